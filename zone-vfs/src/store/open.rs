//! Opening a store: lock, superblock, catalogue, and then the log.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::agents::{Agents, Slot, random_uuid};
use super::disk::Disk;
use super::entry::{self, Entry, Role};
use super::gate::Gate;
use super::shared::{Mounts, SharedId};
use super::state::State;
use super::{Shared, Store, StoreError, catalogue};
use crate::device::{self, Caching, Device, DeviceKind};
use crate::id::{AgentId, Epoch, Sequence};
use crate::log::{Log, LogError, LogOptions, Record};
use crate::segment::{SegmentOptions, Segments};
use crate::superblock::{SuperblockError, SuperblockFile};
use crate::zone::ZoneRoot;

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// How bytes reach the disk.
    pub device: DeviceKind,
    /// Bytes of each log file.
    pub log_file: u64,
    /// A checkpoint is made when the log has grown by this many bytes since the last.
    pub checkpoint_after: u64,
    /// Bytes of chunks that are kept in memory for reading.
    pub cache: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { device: DeviceKind::Best, log_file: 16 << 20, checkpoint_after: 64 << 20, cache: 64 << 20 }
    }
}

/// The file that holds the tenant's key, under which content is addressed.
const KEY: &str = "tenant.key";
const KEY_MAGIC: [u8; 8] = *b"DORMKEY1";
const LOCK: &str = "lock";

impl Store {
    /// Opens the store in `folder`, which is made for its owner alone when it is missing or empty.
    pub fn open(folder: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| {
            StoreError::Io { what: format!("making the folder {}", folder.display()), source }
        })?;
        refuse_what_is_no_store(folder)?;
        let lock = lock(folder)?;
        let opening = |source| StoreError::Io { what: format!("opening {}", folder.display()), source };
        let device = match options.device {
            DeviceKind::Best => device::open_default(folder),
            kind => device::open(folder, kind),
        }
        .map_err(opening)?;
        Self::on_device(device, options, Some(lock))
    }

    /// Opens the store on a device; whoever calls makes sure that nobody else has it open.
    pub fn on_device(
        device: Arc<dyn Device>,
        options: &StoreOptions,
        lock: Option<File>,
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
        let segments = SegmentOptions { cache: options.cache, ..SegmentOptions::default() };
        #[cfg(test)]
        let segments = super::tests::segment_options(segments);
        let segments = Arc::new(Segments::open(device.clone(), key, segments)?);
        let current = *superblock.current();
        let mut agents = Agents::default();
        if let Some(hash) = &current.catalogue {
            let catalogue = catalogue::read(&segments, hash)?;
            agents.removed = catalogue.removed.into_iter().map(|id| (id, current.log)).collect();
            for (id, name, payload) in catalogue.agents {
                agents.names.insert(name, id);
                agents.slots.insert(id, Slot::Stored(payload));
            }
            for zone in catalogue.shared {
                agents.slots.insert(zone.id.stream(), Slot::Stored(zone.state));
                agents.shared.names.insert(zone.name, zone.id);
                if !zone.mounted_by.is_empty() {
                    agents.shared.mounts.insert(zone.id, zone.mounted_by.into_iter().collect());
                }
            }
        }
        let mut recovery =
            Recovery { states: Vec::new(), places: HashMap::new(), agents, segments: segments.clone() };
        let log_options = LogOptions {
            file_len: options.log_file,
            barrier: Some(segments.clone()),
            ..LogOptions::default()
        };
        #[cfg(test)]
        let log_options = super::tests::log_options(log_options);
        let mut failed = None;
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
        let Recovery { states, agents, .. } = recovery;
        let (due, woken) = std::sync::mpsc::sync_channel(1);
        let shared = Arc::new(Shared {
            log,
            segments,
            incarnation: current.incarnation,
            superblock: Mutex::new(superblock),
            checkpointed: Mutex::new(current.log),
            agents: Mutex::new(agents),
            gate: Gate::default(),
            driver: Arc::default(),
            holders: std::sync::atomic::AtomicU64::default(),
            device: device.kind(),
            checkpoint_after: options.checkpoint_after,
            due,
        });
        let begun = current.catalogue.is_some();
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
                }
            })
            .map_err(|source| StoreError::Io { what: "starting the checkpoint thread".into(), source })?;
        Ok(Self { shared: Some(shared), checkpointer: Some(checkpointer), _lock: lock })
    }
}

/// Whose the first record of a log is: nobody's. It begins the log, and says nothing.
const NOBODY: AgentId = AgentId(uuid::Uuid::nil());

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

/// Puts the log's records on top of the catalogue.
struct Recovery {
    states: Vec<State>,
    /// Where in `states` each is.
    places: HashMap<AgentId, usize>,
    agents: Agents,
    segments: Arc<Segments>,
}

impl Recovery {
    fn state(&mut self, id: AgentId) -> Result<Option<usize>, StoreError> {
        if let Some(at) = self.places.get(&id) {
            return Ok(Some(*at));
        }
        let Some(Slot::Stored(payload)) = self.agents.slots.get(&id) else { return Ok(None) };
        let state = catalogue::read_state(id, payload, &self.segments)?;
        Ok(Some(self.push(state)))
    }

    fn push(&mut self, state: State) -> usize {
        self.places.insert(state.id, self.states.len());
        self.states.push(state);
        self.states.len() - 1
    }

    fn record(&mut self, record: Record) -> Result<(), StoreError> {
        if self.agents.removed.contains_key(&record.agent) {
            return Ok(()); // recovery may begin a little early, before the catalogue forgot the agent
        }
        if record.agent == NOBODY {
            return Ok(());
        }
        let entries = entry::decode(&record.body)?;
        let inconsistent = |reason: String| StoreError::Inconsistent { agent: record.agent, reason };
        let at = match self.state(record.agent)? {
            Some(at) => at,
            None => self.created(record.agent, entries.first())?,
        };
        let state = &mut self.states[at];
        if state.removed {
            return Err(inconsistent("a record after its removal".into()));
        }
        if record.sequence <= state.sequence && record.epoch <= state.epoch {
            return Ok(()); // recovery may begin a little early, with records that the catalogue has
        }
        if record.sequence != state.sequence.next() {
            return Err(inconsistent(format!("record {} after {}", record.sequence, state.sequence)));
        }
        if record.epoch < state.epoch {
            return Err(inconsistent(format!("a record of epoch {} after {}", record.epoch, state.epoch)));
        }
        let mut roots: Option<Vec<ZoneRoot>> = None;
        for entry in entries {
            match &entry {
                Entry::Changes(zone, changes) => {
                    let zone = state.zones.get_mut(usize::from(*zone));
                    let zone =
                        zone.ok_or_else(|| inconsistent("changes of a zone that is not there".into()))?;
                    zone.working.apply(changes)?;
                    state.apply(entry, &mut [])?;
                    roots = None;
                    continue;
                }
                // what nothing has promoted does not count
                Entry::Opened { .. } => {
                    state.apply(entry, &mut [])?;
                    state.abandon();
                    roots = None;
                    continue;
                }
                Entry::Withdrawn => {
                    state.withdraw();
                    roots = None;
                    continue;
                }
                // these come before the changes of their record, and look at no root
                Entry::TurnBegan { .. } | Entry::Fact(_) => {
                    state.apply(entry, &mut [])?;
                    roots = None;
                    continue;
                }
                _ => {}
            }
            if roots.is_none() {
                roots = Some(state.snapshot()?);
            }
            state.apply(entry, roots.as_deref_mut().unwrap_or_default())?;
        }
        state.sequence = record.sequence;
        state.epoch = record.epoch;
        if state.removed {
            self.agents.forget(state.id, state.role, &state.name);
        }
        Ok(())
    }

    fn created(&mut self, id: AgentId, first: Option<&Entry>) -> Result<usize, StoreError> {
        let inconsistent = |reason: String| StoreError::Inconsistent { agent: id, reason };
        // the first record of a new agent may open it before it creates it
        let Some(created @ Entry::Created { role, name, zones, parent, .. }) = first else {
            return Err(inconsistent("records of an agent that was never created".into()));
        };
        let roots = match parent {
            Some((parent, generation)) => {
                let at =
                    self.state(*parent)?.ok_or_else(|| inconsistent("its parent is not there".into()))?;
                let parent = &mut self.states[at];
                if !parent.generations.contains_key(generation) {
                    // its writer was gone, or had thrown a turn away, which no record of its own says yet
                    parent.abandon();
                }
                let found = parent.generations.get(generation);
                Some(
                    found
                        .ok_or_else(|| inconsistent("its parent's generation is not there".into()))?
                        .roots
                        .clone(),
                )
            }
            None => None,
        };
        let state = State::new(id, created, roots.as_deref(), self.segments.clone())?;
        let taken = match role {
            Role::Agent => self.agents.names.insert(name.clone(), id).is_some(),
            Role::SharedZone => self.agents.shared.names.insert(name.clone(), SharedId(id.0)).is_some(),
        };
        if taken {
            return Err(inconsistent(format!("its name `{name}` is another's")));
        }
        self.agents.shared.mount(id, zones);
        self.agents.slots.insert(id, Slot::Reserved);
        Ok(self.push(state))
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

fn refuse_what_is_no_store(folder: &Path) -> Result<(), StoreError> {
    let opening =
        |source| StoreError::Io { what: format!("reading the folder {}", folder.display()), source };
    let mut others = false;
    for entry in std::fs::read_dir(folder).map_err(opening)? {
        let name = entry.map_err(opening)?.file_name();
        match name.to_str() {
            Some("superblock" | "superblock.new" | LOCK | KEY) => return Ok(()),
            _ => others = true,
        }
    }
    if others { Err(StoreError::NotAStore { folder: folder.display().to_string() }) } else { Ok(()) }
}

/// Takes the store's lock, and writes into it who holds it.
fn lock(folder: &Path) -> Result<File, StoreError> {
    use rustix::fs::{FlockOperation, flock};
    let path = folder.join(LOCK);
    let what = || format!("locking {}", path.display());
    let io = |source| StoreError::Io { what: what(), source };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
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
    Ok(file)
}

fn make_key(device: &dyn Device) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { what: format!("making {KEY}"), source };
    if device.list("").map_err(io)?.iter().any(|name| name == KEY) {
        return Ok(()); // left by an interrupted beginning, and as good as new
    }
    let mut content = [0u8; 64];
    content[..8].copy_from_slice(&KEY_MAGIC);
    content[8..24].copy_from_slice(random_uuid(device)?.as_bytes());
    device.random(&mut content[24..56]).map_err(io)?;
    let check = crc32fast::hash(&content[..56]);
    content[56..60].copy_from_slice(&check.to_le_bytes());
    let temporary = "tenant.key.new";
    if device.list("").map_err(io)?.iter().any(|name| name == temporary) {
        device.remove(temporary).map_err(io)?;
    }
    let file = device.create(temporary, content.len() as u64, Caching::Cached).map_err(io)?;
    file.write_at(0, &content).map_err(io)?;
    file.flush().map_err(io)?;
    device.rename(temporary, KEY).map_err(io)
}

fn read_key(device: &dyn Device) -> Result<[u8; 32], StoreError> {
    let io = |source| StoreError::Io { what: format!("reading {KEY}"), source };
    let mut content = [0u8; 64];
    device.open(KEY, Caching::Cached).and_then(|file| file.read_at(0, &mut content)).map_err(io)?;
    let stated = u32::from_le_bytes([content[56], content[57], content[58], content[59]]);
    if content[..8] != KEY_MAGIC || crc32fast::hash(&content[..56]) != stated {
        return Err(io(std::io::Error::other("it is damaged")));
    }
    let mut key = [0u8; 32];
    key.copy_from_slice(&content[24..56]);
    Ok(key)
}
