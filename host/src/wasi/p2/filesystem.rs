use zone_vfs::id::Timestamp;
use zone_vfs::tree::FileKind;
use zone_vfs::zone::{ErrorCode, Stat};

use super::bindings::wasi::filesystem::{preopens, types};
use super::clocks::datetime;
use super::{Fs, W};
use crate::wasi::delegate_generated::Kind;
use crate::wasi::fs::{FsError, HowToOpen, MAX_WRITE, NewTime};
use crate::wasi::object::{Flags, Object};
use crate::wasi::state::GuestState;
use types::{DescriptorFlags, DescriptorType, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags};

macro_rules! codes {
    ($($name:ident),* $(,)?) => {
        fn told(code: ErrorCode) -> types::ErrorCode {
            match code { $(ErrorCode::$name => types::ErrorCode::$name,)* }
        }
    };
}

codes!(
    Access,
    WouldBlock,
    Already,
    BadDescriptor,
    Busy,
    Deadlock,
    Quota,
    Exist,
    FileTooLarge,
    IllegalByteSequence,
    InProgress,
    Interrupted,
    Invalid,
    Io,
    IsDirectory,
    Loop,
    TooManyLinks,
    MessageSize,
    NameTooLong,
    NoDevice,
    NoEntry,
    NoLock,
    InsufficientMemory,
    InsufficientSpace,
    NotDirectory,
    NotEmpty,
    NotRecoverable,
    Unsupported,
    NoTty,
    NoSuchDevice,
    Overflow,
    NotPermitted,
    Pipe,
    ReadOnly,
    InvalidSeek,
    TextFileBusy,
    CrossDevice,
);

/// A code as a number, for the handle table.
pub(super) fn code_index(code: ErrorCode) -> Option<u8> {
    ErrorCode::ALL.iter().position(|c| *c == code).map(|i| i as u8)
}

fn kind(kind: FileKind) -> DescriptorType {
    match kind {
        FileKind::Directory => DescriptorType::Directory,
        FileKind::Regular => DescriptorType::RegularFile,
        FileKind::Symlink => DescriptorType::SymbolicLink,
    }
}

fn stat(stat: &Stat) -> types::DescriptorStat {
    types::DescriptorStat {
        type_: kind(stat.kind),
        link_count: u64::from(stat.links),
        size: stat.size,
        data_access_timestamp: Some(datetime(stat.accessed)),
        data_modification_timestamp: Some(datetime(stat.modified)),
        status_change_timestamp: Some(datetime(stat.changed)),
    }
}

fn new_time(time: NewTimestamp) -> Fs<NewTime> {
    Ok(match time {
        NewTimestamp::NoChange => NewTime::NoChange,
        NewTimestamp::Now => NewTime::Now,
        NewTimestamp::Timestamp(t) => {
            if t.nanoseconds >= 1_000_000_000 {
                return Err(ErrorCode::Invalid.into());
            }
            let nanoseconds =
                t.seconds.checked_mul(1_000_000_000).and_then(|s| s.checked_add(t.nanoseconds.into()));
            NewTime::At(Timestamp(nanoseconds.ok_or(ErrorCode::Overflow)?))
        }
    })
}

fn follow(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

/// Synchronous writes are not there, as in wasmtime-wasi: a guest that needs them calls `sync`.
const SYNC: [DescriptorFlags; 3] = [
    DescriptorFlags::FILE_INTEGRITY_SYNC,
    DescriptorFlags::DATA_INTEGRITY_SYNC,
    DescriptorFlags::REQUESTED_WRITE_SYNC,
];

impl preopens::Host for GuestState {
    fn get_directories(&mut self) -> W<Vec<(u32, String)>> {
        Ok(self.preopens()?)
    }
}

impl types::Host for GuestState {
    fn convert_error_code(&mut self, e: FsError) -> W<types::ErrorCode> {
        match e {
            FsError::Code(code) => Ok(told(code)),
            FsError::Trap(e) => Err(e),
        }
    }

    fn method_descriptor_read_via_stream(&mut self, d: u32, offset: u64) -> Fs<u32> {
        self.fs_read_stream(d, offset)
    }

    fn method_descriptor_write_via_stream(&mut self, d: u32, offset: u64) -> Fs<u32> {
        self.fs_write_stream(d, Some(offset))
    }

    fn method_descriptor_append_via_stream(&mut self, d: u32) -> Fs<u32> {
        self.fs_write_stream(d, None)
    }

    fn method_descriptor_advise(&mut self, d: u32, offset: u64, length: u64, _: types::Advice) -> Fs<()> {
        self.fs_advise(d, offset, length)
    }

    async fn method_descriptor_sync_data(&mut self, d: u32) -> Fs<()> {
        self.fs_sync(d).await
    }

    fn method_descriptor_get_flags(&mut self, d: u32) -> Fs<DescriptorFlags> {
        let flags = self.fs_flags(d)?;
        let mut told = DescriptorFlags::empty();
        for (set, flag) in [
            (flags.read, DescriptorFlags::READ),
            (flags.write, DescriptorFlags::WRITE),
            (flags.mutate_directory, DescriptorFlags::MUTATE_DIRECTORY),
        ] {
            if set {
                told |= flag;
            }
        }
        Ok(told)
    }

    fn method_descriptor_get_type(&mut self, d: u32) -> Fs<DescriptorType> {
        Ok(kind(self.fs_stat(d)?.kind))
    }

    fn method_descriptor_set_size(&mut self, d: u32, size: u64) -> Fs<()> {
        self.fs_set_size(d, size)
    }

    fn method_descriptor_set_times(
        &mut self,
        d: u32,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> Fs<()> {
        self.fs_set_times(d, new_time(accessed)?, new_time(modified)?)
    }

    fn method_descriptor_read(&mut self, d: u32, length: u64, offset: u64) -> Fs<(Vec<u8>, bool)> {
        let (bytes, end) = self.fs_read(d, length, offset)?;
        Ok((bytes.into(), end))
    }

    fn method_descriptor_write(&mut self, d: u32, bytes: Vec<u8>, offset: u64) -> Fs<u64> {
        let (_, place) = self.fs_sink(d)?;
        let bytes = &bytes[..bytes.len().min(MAX_WRITE)];
        self.write_to(place, Some(offset), bytes)?;
        Ok(bytes.len() as u64)
    }

    fn method_descriptor_read_directory(&mut self, d: u32) -> Fs<u32> {
        self.fs_read_directory(d)
    }

    async fn method_descriptor_sync(&mut self, d: u32) -> Fs<()> {
        self.fs_sync(d).await
    }

    fn method_descriptor_create_directory_at(&mut self, d: u32, path: String) -> Fs<()> {
        self.fs_create_directory(d, &path)
    }

    fn method_descriptor_stat(&mut self, d: u32) -> Fs<types::DescriptorStat> {
        Ok(stat(&self.fs_stat(d)?))
    }

    fn method_descriptor_stat_at(
        &mut self,
        d: u32,
        flags: PathFlags,
        path: String,
    ) -> Fs<types::DescriptorStat> {
        Ok(stat(&self.fs_stat_at(d, &path, follow(flags))?))
    }

    fn method_descriptor_set_times_at(
        &mut self,
        d: u32,
        flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> Fs<()> {
        self.fs_set_times_at(d, &path, follow(flags), new_time(accessed)?, new_time(modified)?)
    }

    fn method_descriptor_link_at(
        &mut self,
        d: u32,
        flags: PathFlags,
        old: String,
        to: u32,
        new: String,
    ) -> Fs<()> {
        self.fs_link(d, follow(flags), &old, to, &new)
    }

    fn method_descriptor_open_at(
        &mut self,
        d: u32,
        path_flags: PathFlags,
        path: String,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> Fs<u32> {
        let how = HowToOpen {
            create: open.contains(OpenFlags::CREATE),
            directory: open.contains(OpenFlags::DIRECTORY),
            exclusive: open.contains(OpenFlags::EXCLUSIVE),
            truncate: open.contains(OpenFlags::TRUNCATE),
            follow: follow(path_flags),
        };
        if SYNC.into_iter().any(|flag| flags.contains(flag)) {
            return Err(ErrorCode::Unsupported.into());
        }
        let flags = Flags {
            read: flags.contains(DescriptorFlags::READ),
            write: flags.contains(DescriptorFlags::WRITE),
            mutate_directory: flags.contains(DescriptorFlags::MUTATE_DIRECTORY),
        };
        self.fs_open(d, &path, how, flags)
    }

    fn method_descriptor_readlink_at(&mut self, d: u32, path: String) -> Fs<String> {
        self.fs_readlink(d, &path)
    }

    fn method_descriptor_remove_directory_at(&mut self, d: u32, path: String) -> Fs<()> {
        self.fs_remove_directory(d, &path)
    }

    fn method_descriptor_rename_at(&mut self, d: u32, old: String, to: u32, new: String) -> Fs<()> {
        self.fs_rename(d, &old, to, &new)
    }

    fn method_descriptor_symlink_at(&mut self, d: u32, target: String, path: String) -> Fs<()> {
        self.fs_symlink(d, &target, &path)
    }

    fn method_descriptor_unlink_file_at(&mut self, d: u32, path: String) -> Fs<()> {
        self.fs_unlink(d, &path)
    }

    fn method_descriptor_is_same_object(&mut self, d: u32, other: u32) -> W<bool> {
        match self.fs_same(d, other) {
            Ok(same) => Ok(same),
            Err(FsError::Trap(e)) => Err(e),
            Err(FsError::Code(code)) => Err(wasmtime::Error::msg(code.name())),
        }
    }

    fn method_descriptor_metadata_hash(&mut self, d: u32) -> Fs<MetadataHashValue> {
        let (lower, upper) = self.fs_metadata_hash(d)?;
        Ok(MetadataHashValue { lower, upper })
    }

    fn method_descriptor_metadata_hash_at(
        &mut self,
        d: u32,
        flags: PathFlags,
        path: String,
    ) -> Fs<MetadataHashValue> {
        let (lower, upper) = self.fs_metadata_hash_at(d, &path, follow(flags))?;
        Ok(MetadataHashValue { lower, upper })
    }

    fn method_directory_entry_stream_read_directory_entry(
        &mut self,
        d: u32,
    ) -> Fs<Option<types::DirectoryEntry>> {
        Ok(self.fs_next_entry(d)?.map(|(k, name)| types::DirectoryEntry { type_: kind(k), name }))
    }

    fn filesystem_error_code(&mut self, error: u32) -> W<Option<types::ErrorCode>> {
        match self.table.get(error)? {
            Object::Error { code, .. } => {
                Ok(code.and_then(|c| ErrorCode::ALL.get(usize::from(c))).map(|c| told(*c)))
            }
            Object::Foreign(..) | Object::Gone(_) => Ok(None),
            _ => Err(self.table.wrong(error, "an error").into()),
        }
    }

    fn drop_descriptor(&mut self, d: u32) -> W<()> {
        self.fs_drop(d, Kind::Descriptor).map(|_| ())
    }

    fn drop_directory_entry_stream(&mut self, d: u32) -> W<()> {
        self.fs_drop(d, Kind::DirectoryEntryStream).map(|_| ())
    }
}
