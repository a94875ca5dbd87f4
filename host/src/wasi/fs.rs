//! The filesystem, version-neutral: handles to zone operations. All meaning is the zone's own.

use std::collections::VecDeque;
use std::sync::Arc;

use zone_vfs::contract::{Operation, Principal, check};
use zone_vfs::id::{Inode, Timestamp};
use zone_vfs::store::{Disk, StoreError};
use zone_vfs::tree::{FileKind, Name};
use zone_vfs::zone::{Access, DirEntry, ErrorCode, OpenOptions, Stat, ZoneError};

use super::bytes::Blob;
use super::call::{Asked, Call};
use super::delegate_generated::Kind;
use super::object::{Descriptor, Flags, Object};
use super::state::GuestState;
use super::table::HandleError;

/// Bytes that one read gives, at most.
pub const MAX_READ: u64 = 1 << 20;
/// Bytes that one write takes, at most: a longer one is written in part.
pub const MAX_WRITE: usize = 1 << 20;

/// Why a call failed: the guest is told the code, or the instance ends.
#[derive(Debug)]
pub enum FsError {
    /// An error code of `wasi:filesystem`.
    Code(ErrorCode),
    /// The call traps.
    Trap(wasmtime::Error),
}

impl From<ErrorCode> for FsError {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<ZoneError> for FsError {
    #[cold]
    fn from(e: ZoneError) -> Self {
        tracing::debug!("refused: {e}");
        Self::Code(e.code)
    }
}

impl From<HandleError> for FsError {
    #[cold]
    fn from(e: HandleError) -> Self {
        match e {
            // as a system that has run out of descriptors
            HandleError::Full => Self::Code(ErrorCode::InsufficientMemory),
            HandleError::Gone(_) => Self::Code(ErrorCode::BadDescriptor),
            e => Self::Trap(e.into()),
        }
    }
}

/// Entries of a folder that are read at once, of which the guest takes one after the other.
const LISTED_AHEAD: usize = 64;

/// What was read ahead for the directory stream that was read last.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The stream; 0 is none.
    handle: u32,
    ahead: VecDeque<DirEntry>,
}

/// A file, and how it is worked on.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The index of its zone.
    pub zone: u16,
    /// The file.
    pub inode: Inode,
    /// Who works on it, and when.
    pub access: Access,
}

impl Place {
    /// The call that writes `bytes` at `position`, or at the end.
    pub(super) fn write_of(&self, position: Option<u64>, bytes: &[u8]) -> Asked {
        Call::Write.at(self.zone, self.inode).with(position.unwrap_or(u64::MAX)).content(bytes)
    }
}

/// Writes all of `bytes`, at `position` or at the end, or nothing.
#[inline]
pub(super) fn write_at(disk: &Disk, place: Place, position: Option<u64>, bytes: &[u8]) -> FsResult<()> {
    let Place { zone, inode, access } = place;
    let written = disk.zone(zone, |z| match position {
        Some(at) => z.write(access, inode, at, bytes).map(drop),
        None => z.append(access, inode, bytes).map(drop),
    });
    Ok(written.ok_or(FsError::Code(ErrorCode::BadDescriptor))??)
}

#[cold]
fn not_synced(e: &StoreError) -> FsError {
    if e.is_no_space() {
        return ErrorCode::InsufficientSpace.into();
    }
    tracing::error!("sync: {e}");
    ErrorCode::Io.into()
}

/// With times to be set among what is asked.
fn times_of(asked: Asked, accessed: Option<Timestamp>, modified: Option<Timestamp>) -> Asked {
    let number = |time: Option<Timestamp>| time.map_or(u64::MAX, |time| time.0);
    asked.with(number(accessed)).with(number(modified))
}

/// The result of a filesystem call.
pub type FsResult<T> = Result<T, FsError>;

/// `open-flags` and `path-flags` of an open.
#[derive(Clone, Copy, Debug, Default)]
pub struct HowToOpen {
    /// `create`.
    pub create: bool,
    /// `directory`.
    pub directory: bool,
    /// `exclusive`.
    pub exclusive: bool,
    /// `truncate`.
    pub truncate: bool,
    /// `symlink-follow`.
    pub follow: bool,
}

impl HowToOpen {
    fn bits(self) -> u64 {
        [self.create, self.directory, self.exclusive, self.truncate, self.follow]
            .into_iter()
            .fold(0, |bits, set| bits << 1 | u64::from(set))
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug)]
pub enum NewTime {
    /// Leave it.
    NoChange,
    /// The time of the call.
    Now,
    /// This.
    At(Timestamp),
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl GuestState {
    #[inline]
    fn descriptor(&self, handle: u32) -> FsResult<Descriptor> {
        match self.table.get(handle)? {
            Object::Descriptor(d) => Ok(*d),
            _ => Err(self.table.wrong(handle, "a descriptor").into()),
        }
    }

    fn directory(&self, handle: u32) -> FsResult<Descriptor> {
        let d = self.descriptor(handle)?;
        if d.directory { Ok(d) } else { Err(ErrorCode::NotDirectory.into()) }
    }

    fn disk(&self) -> FsResult<&Disk> {
        self.disk.as_deref().ok_or(FsError::Code(ErrorCode::BadDescriptor))
    }

    pub(super) fn fs_open(&mut self, base: u32, path: &str, how: HowToOpen, flags: Flags) -> FsResult<u32> {
        let d = self.directory(base)?;
        if how.directory && (how.create || how.exclusive || how.truncate) {
            return Err(ErrorCode::Invalid.into());
        }
        if how.truncate && !flags.write {
            // a file that is opened to be read is not emptied
            return Err(ErrorCode::NotPermitted.into());
        }
        let changes = how.create || how.truncate || flags.write || flags.mutate_directory;
        if changes && !d.flags.mutate_directory {
            return Err(ErrorCode::ReadOnly.into());
        }
        let options = OpenOptions {
            create: how.create,
            exclusive: how.exclusive,
            truncate: how.truncate,
            directory: how.directory,
            read: flags.read || !flags.write,
            write: flags.write,
            follow: how.follow,
        };
        let asked = Call::Open.at(d.zone, d.inode).text(path).with(how.bits()).with(flags.bits());
        let (inode, kind) = self.on(asked, |z, access| {
            let inode = z.open(access, d.inode, path.as_bytes(), options)?;
            match z.stat(access, inode) {
                Ok(stat) => Ok((inode, stat.kind)),
                Err(e) => {
                    if options.write {
                        z.close_writer(inode)?;
                    } else {
                        z.close(inode)?;
                    }
                    Err(e)
                }
            }
        })?;
        let directory = kind == FileKind::Directory;
        let flags = Flags {
            read: options.read,
            write: flags.write,
            mutate_directory: directory && d.flags.mutate_directory,
        };
        self.keep(Object::Descriptor(Descriptor { zone: d.zone, inode, directory, flags }))
    }

    /// Puts an object that holds an open inode into the table, or closes the inode.
    fn keep(&mut self, object: Object) -> FsResult<u32> {
        let (held, purpose) = (object.keeps_open(), object.opened_for());
        match self.table.push(object) {
            Ok(handle) => Ok(handle),
            Err(e) => {
                if let Some((zone, inode)) = held {
                    self.on(Call::Close.at(zone, inode), |z, _| z.close_of(inode, purpose))?;
                }
                Err(e.into())
            }
        }
    }

    fn keep_another(&mut self, zone: u16, inode: Inode, object: Object) -> FsResult<u32> {
        self.through(Call::OpenAgain.at(zone, inode), |z, _| z.open_for(inode, object.opened_for()))?;
        self.keep(object)
    }

    /// Takes an object that is dropped by the guest, and closes what it held open.
    pub(super) fn fs_drop(&mut self, handle: u32, kind: Kind) -> Result<Object, wasmtime::Error> {
        let object = self.table.take_as(handle, kind)?;
        if self.listing.handle == handle {
            // the number comes again one day, for another folder
            self.forget_listing();
        }
        if let (Some((zone, inode)), Some(disk)) = (object.keeps_open(), self.disk.as_deref())
            && let Some(Err(e)) = disk.zone(zone, |z| z.close_of(inode, object.opened_for()))
            // a file that was forgotten is open nowhere
            && e.code != ErrorCode::BadDescriptor
        {
            return Err(wasmtime::Error::msg(format!("closing inode {inode}: {e}")));
        }
        Ok(object)
    }

    pub(super) fn fs_read_stream(&mut self, handle: u32, position: u64) -> FsResult<u32> {
        let d = self.file(handle)?;
        if !d.flags.read {
            return Err(ErrorCode::BadDescriptor.into());
        }
        self.keep_another(d.zone, d.inode, Object::FileInput { zone: d.zone, inode: d.inode, position })
    }

    pub(super) fn fs_write_stream(&mut self, handle: u32, position: Option<u64>) -> FsResult<u32> {
        let d = self.file(handle)?;
        if !d.flags.write {
            return Err(ErrorCode::BadDescriptor.into());
        }
        if let Some(position) = position {
            // what a contract refuses is refused here, with its own code: a stream's errors have none
            self.through(Call::WriteFrom.at(d.zone, d.inode).with(position), |z, access| {
                if z.kind().is_append_only() && z.stat(access, d.inode)?.size != position {
                    z.check(access, Operation::Overwrite)?;
                }
                Ok(())
            })?;
        }
        self.keep_another(d.zone, d.inode, Object::FileOutput { zone: d.zone, inode: d.inode, position })
    }

    fn file(&self, handle: u32) -> FsResult<Descriptor> {
        let d = self.descriptor(handle)?;
        if d.directory { Err(ErrorCode::IsDirectory.into()) } else { Ok(d) }
    }

    pub(super) fn fs_advise(&mut self, handle: u32, offset: u64, length: u64) -> FsResult<()> {
        let d = self.file(handle)?;
        let asked = Call::Advise.at(d.zone, d.inode).with(offset).with(length);
        self.on(asked, |z, access| z.advise(access, d.inode, offset, length))
    }

    #[inline]
    pub(super) fn fs_flags(&self, handle: u32) -> FsResult<Flags> {
        Ok(self.descriptor(handle)?.flags)
    }

    #[inline]
    pub(super) fn fs_stat(&mut self, handle: u32) -> FsResult<Stat> {
        let d = self.descriptor(handle)?;
        self.through(Call::Stat.at(d.zone, d.inode), |z, access| z.stat(access, d.inode))
    }

    pub(super) fn fs_stat_at(&mut self, base: u32, path: &str, follow: bool) -> FsResult<Stat> {
        let d = self.directory(base)?;
        let asked = Call::StatAt.at(d.zone, d.inode).text(path).with(follow.into());
        self.on(asked, |z, access| z.stat_at(access, d.inode, path.as_bytes(), follow))
    }

    pub(super) fn fs_set_size(&mut self, handle: u32, size: u64) -> FsResult<()> {
        let d = self.file(handle)?;
        if !d.flags.write {
            return Err(ErrorCode::BadDescriptor.into());
        }
        let asked = Call::SetSize.at(d.zone, d.inode).with(size);
        self.on(asked, |z, access| z.set_size(access, d.inode, size))
    }

    fn times(&mut self, accessed: NewTime, modified: NewTime) -> (Option<Timestamp>, Option<Timestamp>) {
        let now = self.outside.zone_time();
        let time = |t| match t {
            NewTime::NoChange => None,
            NewTime::Now => Some(now),
            NewTime::At(at) => Some(at),
        };
        (time(accessed), time(modified))
    }

    pub(super) fn fs_set_times(&mut self, handle: u32, accessed: NewTime, modified: NewTime) -> FsResult<()> {
        let d = self.descriptor(handle)?;
        let (accessed, modified) = self.times(accessed, modified);
        let asked = times_of(Call::SetTimes.at(d.zone, d.inode), accessed, modified);
        self.through(asked, |z, access| z.set_times(access, d.inode, accessed, modified))
    }

    pub(super) fn fs_set_times_at(
        &mut self,
        base: u32,
        path: &str,
        follow: bool,
        accessed: NewTime,
        modified: NewTime,
    ) -> FsResult<()> {
        let d = self.directory(base)?;
        Self::may_change(d)?;
        let (accessed, modified) = self.times(accessed, modified);
        let asked = Call::SetTimesAt.at(d.zone, d.inode).text(path).with(follow.into());
        self.on(times_of(asked, accessed, modified), |z, access| {
            let inode = z.resolve(access, d.inode, path.as_bytes(), follow)?;
            z.set_times(access, inode, accessed, modified)
        })
    }

    #[inline]
    pub(super) fn fs_read(&mut self, handle: u32, length: u64, offset: u64) -> FsResult<(Blob, bool)> {
        let d = self.file(handle)?;
        if !d.flags.read {
            return Err(ErrorCode::BadDescriptor.into());
        }
        let bytes = self.read_at(d.zone, d.inode, offset, length)?;
        let end = bytes.is_empty();
        Ok((bytes, end))
    }

    /// Up to `length` bytes; none at the end. Only there, and beyond [`MAX_READ`], are they fewer.
    #[inline]
    pub(super) fn read_at(&mut self, zone: u16, inode: Inode, offset: u64, length: u64) -> FsResult<Blob> {
        let asked = Call::Read.at(zone, inode).with(offset).with(length);
        self.through(asked, |z, access| {
            let size = z.stat(access, inode)?.size;
            let length = length.min(MAX_READ).min(size.saturating_sub(offset)) as usize;
            let shared = z.read_shared(access, inode, offset, length)?;
            if shared.len() == length {
                return Ok(Blob::Zone(shared));
            }
            let mut bytes = vec![0; length];
            let read = z.read(access, inode, offset, &mut bytes)?;
            bytes.truncate(read);
            Ok(Blob::Own(bytes))
        })
    }

    /// Where a write through the descriptor goes.
    #[inline]
    pub(super) fn fs_sink(&mut self, handle: u32) -> FsResult<(Arc<Disk>, Place)> {
        let d = self.file(handle)?;
        if !d.flags.write {
            return Err(ErrorCode::BadDescriptor.into());
        }
        self.file_place(d.zone, d.inode)
    }

    /// Writes all of `bytes`, or nothing. What goes to a shared zone has been copied out of the guest's memory.
    pub(super) fn write_to(&mut self, place: Place, position: Option<u64>, bytes: &[u8]) -> FsResult<()> {
        let asked = place.write_of(position, bytes);
        let write = |state: &mut Self| {
            state.vouch(place.zone)?;
            write_at(state.disk()?, place, position, bytes)
        };
        if self.is_shared(place.zone) {
            return self.depending_fs(asked, write);
        }
        let written = write(self);
        self.noted(asked, written)
    }

    /// A file with its disk, for a call that works on it without the rest of the state.
    #[inline]
    pub(super) fn file_place(&mut self, zone: u16, inode: Inode) -> FsResult<(Arc<Disk>, Place)> {
        let access = self.access();
        let disk = self.disk.clone().ok_or(FsError::Code(ErrorCode::BadDescriptor))?;
        Ok((disk, Place { zone, inode, access }))
    }

    pub(super) fn fs_read_directory(&mut self, handle: u32) -> FsResult<u32> {
        let d = self.directory(handle)?;
        if !d.flags.read {
            return Err(ErrorCode::BadDescriptor.into());
        }
        self.keep_another(
            d.zone,
            d.inode,
            Object::DirectoryStream { zone: d.zone, inode: d.inode, after: None },
        )
    }

    pub(super) fn fs_next_entry(&mut self, handle: u32) -> FsResult<Option<(FileKind, String)>> {
        let Object::DirectoryStream { zone, inode, after } = self.table.get(handle)? else {
            return Err(self.table.wrong(handle, "a directory-entry-stream").into());
        };
        if self.listing.handle != handle || self.listing.ahead.is_empty() {
            let (zone, inode) = (*zone, *inode);
            let after = after.as_deref().and_then(Name::new);
            let mut asked = Call::List.at(zone, inode);
            if let Some(after) = &after {
                asked = asked.content(after.as_bytes());
            }
            let some = self.on(asked, |z, access| z.readdir(access, inode, after.as_ref(), LISTED_AHEAD))?;
            self.listing = Listing { handle, ahead: some.into() };
        }
        let Some(entry) = self.listing.ahead.pop_front() else { return Ok(None) };
        let name = entry.name.as_bytes();
        // what is read ahead is forgotten with the turn: the listing goes on from here
        if let Object::DirectoryStream { after, .. } = self.table.get_mut(handle)? {
            let after = after.get_or_insert_default();
            after.clear();
            after.extend_from_slice(name);
        }
        match std::str::from_utf8(name) {
            Ok(name) => Ok(Some((entry.kind, name.to_string()))),
            Err(_) => Err(ErrorCode::IllegalByteSequence.into()),
        }
    }

    /// Forgets what was read ahead of a folder. At a turn's end, so that an agent that was written out and
    /// one that stayed in memory go on in the same way.
    pub(crate) fn forget_listing(&mut self) {
        self.listing = Listing::default();
    }

    fn may_change(d: Descriptor) -> FsResult<()> {
        if d.flags.mutate_directory { Ok(()) } else { Err(ErrorCode::ReadOnly.into()) }
    }

    pub(super) fn fs_create_directory(&mut self, base: u32, path: &str) -> FsResult<()> {
        let d = self.directory(base)?;
        Self::may_change(d)?;
        self.on(Call::CreateDirectory.at(d.zone, d.inode).text(path), |z, access| {
            z.mkdir(access, d.inode, path.as_bytes()).map(|_| ())
        })
    }

    pub(super) fn fs_remove_directory(&mut self, base: u32, path: &str) -> FsResult<()> {
        let d = self.directory(base)?;
        Self::may_change(d)?;
        self.on(Call::RemoveDirectory.at(d.zone, d.inode).text(path), |z, access| {
            z.rmdir(access, d.inode, path.as_bytes())
        })
    }

    pub(super) fn fs_unlink(&mut self, base: u32, path: &str) -> FsResult<()> {
        let d = self.directory(base)?;
        Self::may_change(d)?;
        self.on(Call::Unlink.at(d.zone, d.inode).text(path), |z, access| {
            z.unlink(access, d.inode, path.as_bytes())
        })
    }

    /// Both directories, which must lie in one zone.
    fn pair(&mut self, from: u32, to: u32) -> FsResult<(Descriptor, Descriptor)> {
        let (from, to) = (self.directory(from)?, self.directory(to)?);
        Self::may_change(from)?;
        Self::may_change(to)?;
        if from.zone != to.zone {
            let mount = self.access().mount;
            self.on(Call::CrossZone.at(from.zone, from.inode), |z, _| {
                check(z.kind(), mount, Operation::CrossZone).map_err(Into::into).map(|_| ())
            })?;
            return Err(ErrorCode::CrossDevice.into());
        }
        Ok((from, to))
    }

    pub(super) fn fs_rename(&mut self, from: u32, old: &str, to: u32, new: &str) -> FsResult<()> {
        let (from, to) = self.pair(from, to)?;
        let asked = Call::Rename.at(from.zone, from.inode).text(old).with(to.inode.0).text(new);
        self.on(asked, |z, access| z.rename(access, (from.inode, old.as_bytes()), (to.inode, new.as_bytes())))
    }

    pub(super) fn fs_link(&mut self, from: u32, follow: bool, old: &str, to: u32, new: &str) -> FsResult<()> {
        let (from, to) = self.pair(from, to)?;
        let asked = Call::Link.at(from.zone, from.inode).text(old).with(to.inode.0).text(new);
        self.on(asked.with(follow.into()), |z, access| {
            z.link(access, (from.inode, old.as_bytes()), follow, (to.inode, new.as_bytes()))
        })
    }

    pub(super) fn fs_symlink(&mut self, base: u32, target: &str, path: &str) -> FsResult<()> {
        let d = self.directory(base)?;
        Self::may_change(d)?;
        self.on(Call::Symlink.at(d.zone, d.inode).text(path).text(target), |z, access| {
            z.symlink(access, target.as_bytes(), d.inode, path.as_bytes()).map(|_| ())
        })
    }

    pub(super) fn fs_readlink(&mut self, base: u32, path: &str) -> FsResult<String> {
        let d = self.directory(base)?;
        let asked = Call::Readlink.at(d.zone, d.inode).text(path);
        let target = self.on(asked, |z, access| z.readlink(access, d.inode, path.as_bytes()))?;
        String::from_utf8(target).map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    pub(super) fn fs_same(&self, a: u32, b: u32) -> FsResult<bool> {
        let (a, b) = (self.descriptor(a)?, self.descriptor(b)?);
        Ok((a.zone, a.inode) == (b.zone, b.inode))
    }

    /// A hash of what identifies an object and its state, as `metadata-hash` asks for. It need not
    /// resist whoever looks for two objects of one hash: all that goes into it is the guest's to see.
    pub(super) fn metadata_hash(zone: u16, stat: &Stat) -> (u64, u64) {
        // two lanes of the mixer of splitmix64 (Steele, Lea and Flood, 2014)
        let mut lanes = [0x9e37_79b9_7f4a_7c15_u64, 0xd1b5_4a32_d192_ed03];
        for part in [u64::from(zone), stat.inode.0, stat.size, stat.modified.0, stat.changed.0] {
            for lane in &mut lanes {
                *lane = mix(lane.rotate_left(23) ^ part);
            }
        }
        (lanes[0], lanes[1])
    }

    pub(super) fn fs_metadata_hash(&mut self, handle: u32) -> FsResult<(u64, u64)> {
        let zone = self.descriptor(handle)?.zone;
        let stat = self.fs_stat(handle)?;
        Ok(Self::metadata_hash(zone, &stat))
    }

    pub(super) fn fs_metadata_hash_at(
        &mut self,
        base: u32,
        path: &str,
        follow: bool,
    ) -> FsResult<(u64, u64)> {
        let zone = self.directory(base)?.zone;
        let stat = self.fs_stat_at(base, path, follow)?;
        Ok(Self::metadata_hash(zone, &stat))
    }

    /// fsync: everything that the agent has written is durable when this returns.
    pub(super) async fn fs_sync(&mut self, handle: u32) -> FsResult<()> {
        let d = self.descriptor(handle)?;
        if self.is_unreadable() {
            return Err(ErrorCode::Io.into());
        }
        let asked = Call::Sync.at(d.zone, d.inode);
        // in a zone that keeps versions, what was written becomes one
        self.through(asked, |z, access| {
            z.stat(access, d.inode)?;
            z.sync(access, d.inode).map(|_| ())
        })?;
        let synced = self.commit_point().await;
        self.depending_fs(asked, |_| synced)
    }

    /// Makes durable all that the agent has written, and the facts that belong to it.
    async fn commit_point(&mut self) -> FsResult<()> {
        let disk = self.disk.clone().ok_or(FsError::Code(ErrorCode::BadDescriptor))?;
        // the sync of a process makes final what it has forgotten: what was derived from that goes first
        if let Some(purge) = &self.before_forgetting
            && disk.has_forgotten()
        {
            let purge = purge.clone();
            if let Err(e) = crate::threads::run(move || purge()).await.flatten() {
                tracing::error!("sync: {e}");
                return Err(ErrorCode::Io.into());
            }
        }
        let facts = self.outside.take_facts()?;
        if !facts.is_empty()
            && let Err(e) = disk.fact(&facts)
        {
            return Err(not_synced(&e));
        }
        let (send, receive) = tokio::sync::oneshot::channel();
        let done = Box::new(move |result| {
            // the receiver is gone only when the turn was cancelled meanwhile
            let _ = send.send(result);
        });
        disk.lend(|| disk.sync(done));
        match receive.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(not_synced(&e)),
            Err(_) => Err(ErrorCode::Io.into()),
        }
    }

    /// Appends to `/logs/stdout` or `/logs/stderr` as the host.
    pub(super) fn log_output(&mut self, error: bool, bytes: &[u8]) -> FsResult<()> {
        let Some((zone, mut files)) = self.logs else { return Ok(()) };
        let access = Access::new(Principal::Host, self.outside.zone_time());
        let Some(disk) = self.disk.as_deref() else { return Ok(()) };
        let (slot, path) =
            if error { (&mut files.stderr, &b"stderr"[..]) } else { (&mut files.stdout, &b"stdout"[..]) };
        let inode = if let Some(inode) = *slot {
            inode
        } else {
            let options = OpenOptions { create: true, write: true, ..OpenOptions::default() };
            let opened = disk.zone(zone, |z| z.open(access, Inode::ROOT, path, options));
            let inode = opened.ok_or(FsError::Code(ErrorCode::BadDescriptor))??;
            *slot = Some(inode);
            self.logs = Some((zone, files));
            inode
        };
        let appended = disk.zone(zone, |z| z.append(access, inode, bytes).map(drop));
        let appended = appended.ok_or(FsError::Code(ErrorCode::BadDescriptor))?.map_err(FsError::from);
        self.noted(Call::Print.at(zone, inode).content(bytes), appended)
    }
}
