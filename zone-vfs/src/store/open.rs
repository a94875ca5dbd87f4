//! Opening a store: lock, superblock, catalogue, and then the log.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::agents::{Slot, random_uuid};
use super::disk::Disk;
use super::entry::Role;
use super::forget::PurgeDue;
use super::gate::Gate;
use super::readers::Readers;
use super::recovery::{self, Recovery};
use super::shared::Mounts;
use super::state::State;
use super::{Shared, Store, StoreError};
use crate::device::{self, Caching, Device, DeviceKind};
use crate::id::{AgentId, Epoch, Sequence};
use crate::log::{Log, LogError, LogOptions, LogPosition, Record};
use crate::segment::{INDEX_FILE, IndexPlace, SegmentOptions, Segments};
use crate::superblock::{SuperblockError, SuperblockFile};

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Whether a store is made where there is none. Otherwise that is [refused](StoreError::NoStore), and nothing is
    /// made. A store on a device is made in any case.
    pub create: bool,
    /// How bytes reach the disk.
    pub device: DeviceKind,
    /// Bytes of each log file.
    pub log_file: u64,
    /// A checkpoint is made when the log has grown by this many bytes since the last.
    pub checkpoint_after: u64,
    /// Bytes of chunks that are kept in memory for reading.
    pub cache: usize,
    /// Bytes of tree nodes, as they are stored, that zones keep in memory before they let go of them. A zone
    /// need not fit.
    pub nodes: usize,
    /// Bytes of the index of where each frame lies, `index.redb`, that are kept in memory.
    pub index: usize,
    /// Bytes on the disk that are kept for reaping, forgetting, checking and backing up when it is full; 0 for none.
    pub reserve: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            create: true,
            device: DeviceKind::Best,
            log_file: 16 << 20,
            checkpoint_after: 64 << 20,
            cache: 64 << 20,
            nodes: 64 << 20,
            index: 32 << 20,
            reserve: 8 << 20,
        }
    }
}

/// The file that holds the tenant's key, under which content is addressed.
const KEY: &str = "tenant.key";
const KEY_MAGIC: [u8; 8] = *b"DORMKEY1";
/// Bytes of that file.
const KEY_LEN: usize = 64;
const LOCK: &str = "lock";

impl Store {
    /// Opens the store in `folder`, which is made for its owner alone when it is missing or empty, unless the options
    /// say not to.
    pub fn open(folder: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        let (lock, device) = enter(folder, options)?;
        let index = IndexPlace { path: folder.join(INDEX_FILE), cache: options.index };
        Self::with_index(device, options, Some(lock), Some(&index))
    }

    /// Opens the store on a device; whoever calls makes sure that nobody else has it open.
    pub fn on_device(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Self, StoreError> {
        Self::with_index(device, options, None, None)
    }

    fn with_index(
        device: Arc<dyn Device>,
        options: &StoreOptions,
        lock: Option<Lock>,
        index: Option<&IndexPlace>,
    ) -> Result<Self, StoreError> {
        let superblock = match SuperblockFile::open(&*device) {
            Err(SuperblockError::Missing) => {
                refuse_what_is_left(&*device)?;
                make_key(&*device)?;
                SuperblockFile::create(&*device)?
            }
            opened => opened?,
        };
        tracing::debug!("the store's device is {}", device.kind());
        let key = read_key(&*device)?;
        let segments =
            SegmentOptions { cache: options.cache, nodes: options.nodes, ..SegmentOptions::default() };
        #[cfg(test)]
        let segments = super::tests::segment_options(segments);
        let segments = Arc::new(Segments::open_indexed(device.clone(), key, segments, index)?);
        let current = *superblock.current();
        let mut recovery = Recovery::new(segments.clone());
        if let Some(hash) = &current.catalogue {
            let catalogue = recovery::read_catalogue(&segments, hash)?;
            recovery.catalogue(catalogue, current.log)?;
        }
        let log_options = LogOptions {
            file_len: options.log_file,
            barrier: Some(segments.clone()),
            ..LogOptions::default()
        };
        #[cfg(test)]
        let log_options = super::tests::log_options(log_options);
        let mut failed = None;
        let again = log_options.clone();
        let log = Log::open(device.clone(), log_options, current.log, &mut |record| {
            recovery.record(record).map_err(|e| {
                let said = e.to_string();
                failed = Some(e);
                LogError::Record(said.into())
            })
        });
        let log = match (log, failed) {
            (_, Some(e)) => return Err(e),
            (log, None) => log?,
        };
        if recovery.has_newly_damaged() {
            // what they had in the log is kept for when they are sound again
            log.read(&again, current.log, &mut |record| {
                recovery.keep(record);
                Ok(())
            })?;
        }
        let purge = PurgeDue::new(recovery.purge);
        let (states, agents) = recovery.finish();
        let (due, woken) = std::sync::mpsc::sync_channel(1);
        let shared = Arc::new(Shared {
            log,
            log_options: again,
            segments,
            incarnation: current.incarnation,
            superblock: Mutex::new(superblock),
            checkpointed: Mutex::new(current.log),
            agents: Mutex::new(agents),
            gate: Gate::default(),
            readers: Readers::default(),
            reaping: Mutex::default(),
            purge,
            driver: Arc::default(),
            locks: super::locks::LockTable::default(),
            turns: Arc::default(),
            holders: std::sync::atomic::AtomicU64::default(),
            device: device.kind(),
            checkpoint_after: options.checkpoint_after,
            reserve: options.reserve,
            due,
        });
        super::reserve::make(shared.segments.device(), options.reserve);
        let begun = current.log != LogPosition::START;
        shared.take_up(states)?;
        if !begun {
            shared.begin()?;
        }
        let weak = Arc::downgrade(&shared);
        let checkpointer = std::thread::Builder::new()
            .name("dormouse-checkpoint".into())
            .spawn(move || {
                while woken.recv().is_ok() {
                    let Some(shared) = weak.upgrade() else { return };
                    if shared.is_due()
                        && let Err(e) = shared.checkpoint()
                    {
                        // the log keeps everything: the next one, or the next opening, does it
                        tracing::error!("checkpoint: {e}");
                    }
                    if shared.segments.index_waits() {
                        shared.segments.tidy_index();
                    }
                }
            })
            .map_err(|source| StoreError::Io { what: "starting the checkpoint thread".into(), source })?;
        Ok(Self { shared: Some(shared), checkpointer: Some(checkpointer), _lock: lock })
    }
}

/// Takes the lock of the store in `folder`, which is made where the options say so, and opens its device.
pub(super) fn enter(folder: &Path, options: &StoreOptions) -> Result<(Lock, Arc<dyn Device>), StoreError> {
    if !options.create && is_none(folder)? {
        return Err(StoreError::NoStore { folder: folder.display().to_string() });
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| {
        StoreError::Io { what: format!("making the folder {}", folder.display()), source }
    })?;
    super::restore::refuse_unfinished(folder)?;
    refuse_what_is_no_store(folder)?;
    let lock = lock(folder)?;
    let opening = |source| StoreError::Io { what: format!("opening {}", folder.display()), source };
    let device = match options.device {
        DeviceKind::Best => device::open_default(folder),
        kind => device::open(folder, kind),
    }
    .map_err(opening)?;
    Ok((lock, device))
}

/// Whose the first record of a log is: nobody's. It begins the log, and says nothing.
pub(super) const NOBODY: AgentId = AgentId(uuid::Uuid::nil());

impl Shared {
    /// Takes up what the log had records of: shared zones first, which agents mount.
    fn take_up(self: &Arc<Self>, mut states: Vec<State>) -> Result<(), StoreError> {
        states.retain(|state| !state.removed);
        states.sort_by_key(|state| state.role == Role::Agent);
        for mut state in states {
            state.abandon();
            state.prune();
            let mut agents = self.agents();
            if state.role == Role::SharedZone {
                self.open_flow(&mut agents, Disk::new(state, false, self, Mounts::default()))?;
            } else {
                let mounts = self.mounts(&mut agents, &state.specs);
                let disk = Disk::new(state, false, self, mounts);
                agents.slots.insert(disk.id(), Slot::Live(disk));
            }
        }
        Ok(())
    }

    /// Begins the log of a new store and makes its first checkpoint. From here on the superblock names
    /// a place in the log, so that a log that is lost is missed.
    fn begin(self: &Arc<Self>) -> Result<(), StoreError> {
        let record = Record {
            agent: NOBODY,
            epoch: Epoch(0),
            sequence: Sequence(0),
            needs: Vec::new(),
            body: Vec::new(),
        };
        self.log.commit(record)?;
        self.checkpoint()
    }
}

/// A store is only begun where there is nothing of one: a superblock that is gone is damage.
fn refuse_what_is_left(device: &dyn Device) -> Result<(), StoreError> {
    for folder in ["log", "segments"] {
        let found = device
            .list(folder)
            .map_err(|source| StoreError::Io { what: format!("reading the folder {folder}"), source })?;
        if !found.is_empty() {
            return Err(SuperblockError::Missing.into());
        }
    }
    Ok(())
}

/// Whether there is no store in a folder: it is missing, or holds no more than one that was not begun leaves.
fn is_none(folder: &Path) -> Result<bool, StoreError> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        entries => entries,
    };
    let mut names =
        entries.map(|all| all.map(|entry| entry.map(|entry| entry.file_name()))).map_err(reading(folder))?;
    names.try_fold(true, |is_none, name| Ok(is_none && name.map_err(reading(folder))? == LOCK))
}

fn reading(folder: &Path) -> impl Fn(std::io::Error) -> StoreError {
    move |source| StoreError::Io { what: format!("reading the folder {}", folder.display()), source }
}

fn refuse_what_is_no_store(folder: &Path) -> Result<(), StoreError> {
    let mut others = false;
    for entry in std::fs::read_dir(folder).map_err(reading(folder))? {
        let name = entry.map_err(reading(folder))?.file_name();
        match name.to_str() {
            Some("superblock" | "superblock.new" | LOCK | KEY) => return Ok(()),
            _ => others = true,
        }
    }
    if others { Err(StoreError::NotAStore { folder: folder.display().to_string() }) } else { Ok(()) }
}

/// Takes the store's lock, and writes into its file who holds it.
///
/// What is locked is the folder itself, which nobody can replace unnoticed while its files are in use: the file is
/// locked too, for whoever looks at that alone, and could be removed.
fn lock(folder: &Path) -> Result<Lock, StoreError> {
    use rustix::fs::{FlockOperation, OFlags, flock};
    let path = folder.join(LOCK);
    let io = |source| StoreError::Io { what: format!("locking {}", path.display()), source };
    let of_folder = File::open(folder).map_err(io)?;
    let is_locked = match flock(&of_folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => false,
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        // a filesystem that locks no folders
        Err(e) => {
            tracing::debug!("locking the folder {}: {e}", folder.display());
            false
        }
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // nothing that lies outside is written, and nobody waits for what is no file
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(&path)
        .map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        return Err(io(std::io::Error::other("it is not a file")));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) if !is_locked => {}
        Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            let read = Read::by_ref(&mut file).take(200).read_to_string(&mut holder);
            let holder = read.ok().map(|_| holder.trim().to_string()).filter(|h| !h.is_empty());
            return Err(StoreError::Locked { folder: folder.display().to_string(), holder });
        }
        Err(e) => return Err(io(e.into())),
    }
    // what is written is for people; a full disk must not keep anybody from opening the store
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(format!("process {}\n", std::process::id()).as_bytes()));
    Ok(Lock { _file: file, _folder: of_folder })
}

/// Keeps others out of a store for as long as it is there.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    _folder: File,
}

fn make_key(device: &dyn Device) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { what: format!("making {KEY}"), source };
    if device.list("").map_err(io)?.iter().any(|name| name == KEY) {
        return Ok(()); // left by an interrupted beginning, and as good as new
    }
    let mut content = [0u8; KEY_LEN];
    content[..8].copy_from_slice(&KEY_MAGIC);
    content[8..24].copy_from_slice(random_uuid(device)?.as_bytes());
    device.random(&mut content[24..56]).map_err(io)?;
    let check = crc32fast::hash(&content[..56]);
    content[56..60].copy_from_slice(&check.to_le_bytes());
    write_key_file(device, &content)
}

/// Makes the file of the key, whole or not at all.
pub(super) fn write_key_file(device: &dyn Device, content: &[u8; KEY_LEN]) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { what: format!("making {KEY}"), source };
    let temporary = "tenant.key.new";
    if device.list("").map_err(io)?.iter().any(|name| name == temporary) {
        device.remove(temporary).map_err(io)?;
    }
    let file = device.create(temporary, content.len() as u64, Caching::Cached).map_err(io)?;
    file.write_at(0, content).map_err(io)?;
    file.flush().map_err(io)?;
    device.rename(temporary, KEY).map_err(io)
}

/// The file of the key, verified.
pub(super) fn read_key_file(device: &dyn Device) -> Result<[u8; KEY_LEN], StoreError> {
    let io = |source| StoreError::Io { what: format!("reading {KEY}"), source };
    let mut content = [0u8; KEY_LEN];
    device.open(KEY, Caching::Cached).and_then(|file| file.read_at(0, &mut content)).map_err(io)?;
    let stated = u32::from_le_bytes([content[56], content[57], content[58], content[59]]);
    if content[..8] != KEY_MAGIC || crc32fast::hash(&content[..56]) != stated {
        return Err(io(std::io::Error::other("it is damaged")));
    }
    Ok(content)
}

pub(super) fn read_key(device: &dyn Device) -> Result<[u8; 32], StoreError> {
    let content = read_key_file(device)?;
    let mut key = [0u8; 32];
    key.copy_from_slice(&content[24..56]);
    Ok(key)
}
