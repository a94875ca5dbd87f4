//! The store over simulated and real devices: by example, against a model under crashes, and with
//! everything that can be refused.

mod attachments;
mod backup;
mod bounds;
mod changes;
mod commits;
mod concurrent;
mod crash;
mod damage;
mod diff;
mod export;
mod forget;
mod forks;
mod found;
mod full;
mod functions;
mod goldens;
mod index;
mod look;
mod memory;
mod mend;
mod model;
mod needles;
mod old_versions;
mod policies;
mod reap;
mod refusals;
mod rehearsals;
mod scrub;
mod shared;
mod shortage;
mod standing;
mod threads;
mod travel;
mod unread;
mod usage;
mod versions;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use versions::Past;

use super::*;
use crate::contract::{Principal, ZoneKind};
use crate::device::Device;
use crate::device::simulated::Simulated;
use crate::id::clock;
use crate::id::{AgentId, GenerationNumber, Hash, Inode, Timestamp, Turn};
use crate::log::{LogOptions, Planted};
use crate::segment::SegmentOptions;
use crate::tree::FileKind;
use crate::zone::{Access, Change, OpenOptions, Quota, Zone, ZoneError, ZoneRoot};

/// The zones of every agent here, in this order.
const KINDS: [ZoneKind; 4] = [ZoneKind::Episodic, ZoneKind::Semantic, ZoneKind::Workspace, ZoneKind::Logs];
const EPISODIC: u16 = 0;
const SEMANTIC: u16 = 1;
const WORKSPACE: u16 = 2;
const LOGS: u16 = 3;

thread_local! {
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::None) };
    static SEGMENT_PLANTED: Cell<crate::segment::Planted> = const { Cell::new(crate::segment::Planted::None) };
    static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Mistakes of the store's own that the crash tests have to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Whoever waits for a shared zone is told at once that it is durable.
    SharedIsDurableAtOnce,
    /// A turn does not wait for what it has seen in shared zones.
    TurnWaitsForNothing,
    /// A commit leaves out which numbers a zone has given.
    NumbersAreLeftOut,
    /// A backup is of the last checkpoint that there happens to be.
    BackupOfThePast,
    /// A policy takes what is pinned.
    PinsHoldNothing,
    /// A policy takes what one stands on that stays.
    NothingIsStoodOn,
    /// A policy takes the newest versions too.
    NewestIsTaken,
    /// A policy removes agents that nobody has paused.
    TheAwakeAreRemoved,
    /// What was forgotten counts as erased before the segments are written anew.
    ErasedTooSoon,
    /// Forgetting leaves the events and outcomes of turns.
    TurnsAreRemembered,
}

/// Whether this thread is to make the mistake.
pub(super) fn makes(mistake: Mistake) -> bool {
    MISTAKE.get() == Some(mistake)
}

/// A zone's changes, but for what a mistake leaves out of them.
pub(super) fn with_mistake(mut changes: Vec<Change>) -> Vec<Change> {
    if makes(Mistake::NumbersAreLeftOut) {
        changes.retain(|change| !matches!(change, Change::Counters(_)));
    }
    changes
}

/// What [`Store::on_device`] gives the log in tests: small groups, so that a crash finds a commit of
/// many records half-way, and the mistake that the test has planted.
pub(super) fn log_options(options: LogOptions) -> LogOptions {
    LogOptions { group_target: 24 << 10, planted: PLANTED.get(), ..options }
}

/// What [`Store::on_device`] gives the segments in tests: short ones, and the planted mistake.
pub(super) fn segment_options(options: SegmentOptions) -> SegmentOptions {
    SegmentOptions {
        segment_len: 100 << 10,
        write_buffer: 8 << 10,
        planted: SEGMENT_PLANTED.get(),
        ..options
    }
}

fn options() -> StoreOptions {
    StoreOptions { log_file: 64 << 10, checkpoint_after: u64::MAX, reserve: 0, ..StoreOptions::default() }
}

fn try_start(device: &Simulated) -> Result<Store, StoreError> {
    Store::on_device(Arc::new(device.clone()), &options())
}

fn start(device: &Simulated) -> Store {
    try_start(device).unwrap()
}

fn specs() -> Vec<ZoneSpec> {
    KINDS
        .iter()
        .map(|kind| ZoneSpec {
            name: format!("{kind:?}"),
            mount: format!("/{kind:?}"),
            kind: *kind,
            quota: Quota::default(),
            shared: None,
        })
        .collect()
}

fn new_agent(name: &str) -> NewAgent {
    NewAgent { name: name.into(), about: b"about".to_vec(), generation: b"genesis".to_vec() }
}

fn create(store: &Store, name: &str) -> Arc<Disk> {
    store.create(Store::new_id().unwrap(), &new_agent(name), specs()).unwrap()
}

fn fork(
    store: &Store,
    parent: &Arc<Disk>,
    at: GenerationNumber,
    name: &str,
) -> Result<Arc<Disk>, StoreError> {
    let child = (Store::new_id().unwrap(), new_agent(name));
    store.fork(parent, at, &[child]).map(|mut made| made.remove(0))
}

/// Waits until nobody holds an agent that was removed: the committer does for a moment.
fn let_go(store: &Store) {
    while !store.shared().unwrap().readers.needed().1.is_empty() {
        std::thread::yield_now();
    }
}

fn find(store: &Store, name: &str) -> Arc<Disk> {
    store.disk(store.find(name).unwrap().expect(name)).unwrap()
}

fn new_generation(about: &[u8]) -> NewGeneration {
    NewGeneration { cause: Cause::Turn, about: about.to_vec(), on: None }
}

fn sync(disk: &Arc<Disk>) -> Result<(), StoreError> {
    wait(|done| disk.sync(done))
}

fn end(disk: &Arc<Disk>, outcome: &[u8]) -> Result<GenerationNumber, StoreError> {
    wait(|done| disk.end(outcome, Some(new_generation(b"turn")), done))
}

fn fail(disk: &Arc<Disk>, reason: &str) -> Result<GenerationNumber, StoreError> {
    wait(|done| disk.fail(reason, done))
}

fn mark(disk: &Arc<Disk>) -> Result<GenerationNumber, StoreError> {
    let pause = NewGeneration { cause: Cause::Paused, about: b"pause".to_vec(), on: None };
    wait(|done| disk.mark(pause, done))
}

fn rewind(disk: &Arc<Disk>, to: GenerationNumber) -> Result<GenerationNumber, StoreError> {
    wait(|done| disk.rewind(to, b"rewound", done))
}

const ACCESS_TIME: u64 = 7;

fn access() -> Access {
    Access::new(Principal::Agent, Timestamp(ACCESS_TIME))
}

const WRITE: OpenOptions = OpenOptions {
    create: true,
    exclusive: false,
    truncate: false,
    directory: false,
    read: true,
    write: true,
    follow: true,
};

/// Appends to a file, or gives it this content, as the zone's contract allows.
fn write_zone(zone: &mut Zone, name: &str, content: &[u8]) -> Result<(), ZoneError> {
    let appends = zone.kind().is_append_only();
    let options = OpenOptions { truncate: !appends, ..WRITE };
    let inode = zone.open(access(), Inode::ROOT, name.as_bytes(), options)?;
    zone.append(access(), inode, content)?;
    zone.close_writer(inode)
}

fn write(disk: &Disk, zone: u16, name: &str, content: &[u8]) {
    disk.zone(zone, |zone| write_zone(zone, name, content)).unwrap().unwrap();
}

/// The files of a zone and their content, by path. Directories end with a slash, and hold nothing.
type Files = BTreeMap<String, Arc<Vec<u8>>>;

fn try_read_zone(zone: &mut Zone) -> Result<Files, ZoneError> {
    let mut files = Files::new();
    let mut directories = vec![(Inode::ROOT, String::new())];
    while let Some((directory, path)) = directories.pop() {
        for entry in zone.readdir(access(), directory, None, usize::MAX)? {
            let mut path = format!("{path}{}", entry.name);
            if entry.kind == FileKind::Directory {
                path.push('/');
                directories.push((entry.inode, path.clone()));
                files.insert(path, Arc::default());
                continue;
            }
            let mut bytes = vec![0; zone.stat(access(), entry.inode)?.size as usize];
            zone.open_inode(entry.inode)?;
            let read = zone.read(access(), entry.inode, 0, &mut bytes)?;
            assert_eq!(read, bytes.len());
            zone.close(entry.inode)?;
            files.insert(path, Arc::new(bytes));
        }
    }
    Ok(files)
}

fn read_zone(zone: &mut Zone) -> Files {
    try_read_zone(zone).unwrap()
}

fn read(disk: &Disk, zone: u16, name: &str) -> Option<Vec<u8>> {
    disk.zone(zone, read_zone).unwrap().get(name).map(|bytes| bytes.to_vec())
}

/// A turn that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenTurn {
    turn: u64,
    event: Vec<u8>,
    outcome: Result<Vec<u8>, String>,
    /// None of one that was interrupted: how many of them had become durable does not matter.
    facts: Vec<Vec<u8>>,
}

/// What an agent shows of itself, without times and counts of records.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: AgentId,
    about: Vec<u8>,
    parent: Option<(AgentId, GenerationNumber)>,
    mounts: Vec<SharedMount>,
    zones: Vec<Files>,
    /// Of the zone that keeps versions.
    past: Arc<Past>,
    last_turn: u64,
    history: Vec<SeenTurn>,
    generations: BTreeMap<u64, (Cause, Vec<Files>, Arc<Past>)>,
    pinned: BTreeSet<u64>,
    attached: BTreeMap<u64, Hash>,
    /// Those that stand on another, and on which.
    on: BTreeMap<u64, u64>,
    next: u64,
    head: u64,
}

impl Seen {
    /// What it holds, whatever numbers that has.
    fn without_numbers(mut self) -> Self {
        self.past = Arc::default();
        self.generations.values_mut().for_each(|(.., past)| *past = Arc::default());
        self
    }
}

fn try_see(disk: &Disk) -> Result<Seen, StoreError> {
    let info = disk.info()?;
    let zones = 0..KINDS.len() as u16;
    let (mut generations, mut attached, mut pinned) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut on = BTreeMap::new();
    let mut lately: Option<(Payload, Hash)> = None;
    let mut past = Arc::default();
    // most zones do not change from one generation to the next
    let mut last: Vec<Option<(ZoneRoot, Files)>> = vec![None; KINDS.len()];
    for generation in disk.generations() {
        on.extend(generation.on.map(|on| (generation.number.0, on.0)));
        if generation.is_pinned {
            pinned.insert(generation.number.0);
        }
        if let Some(root) = generation.attachment {
            let known = lately.take().filter(|(same, _)| *same == root);
            let what =
                known.map_or_else(|| attachments::read_digest(disk, generation.number), |it| Ok(it.1))?;
            attached.insert(generation.number.0, what);
            lately = Some((root, what));
        }
        let mut all = Vec::new();
        for ((index, root), last) in zones.clone().zip(generation.roots).zip(&mut last) {
            let files = match last {
                Some((same, files)) if same.same_as(&root) && same.counters() == root.counters() => {
                    files.clone()
                }
                _ => {
                    let mut zone = disk.zone_at(generation.number, index)?;
                    if index == SEMANTIC {
                        past = Arc::new(versions::try_read_past(&zone)?);
                    }
                    try_read_zone(&mut zone)?
                }
            };
            *last = Some((root, files.clone()));
            all.push(files);
        }
        let cause = match generation.cause {
            Cause::Reaped { paused } => Cause::Reaped { paused: paused.map(|_| Timestamp(0)) },
            cause => cause,
        };
        generations.insert(generation.number.0, (cause, all, past.clone()));
    }
    let mut history = Vec::new();
    for record in disk.history()? {
        let outcome = match record.outcome {
            Outcome::Ended(payload) => Ok(disk.payload(&payload)?.to_vec()),
            Outcome::Failed(reason) => Err(reason),
        };
        let event = disk.payload(&record.event)?.to_vec();
        let mut facts = Vec::new();
        if !matches!(&outcome, Err(reason) if reason == model::INTERRUPTED) {
            for fact in &record.facts {
                facts.push(disk.payload(fact)?.to_vec());
            }
        }
        history.push(SeenTurn { turn: record.turn.0, event, outcome, facts });
    }
    let standing = zones.filter_map(|zone| try_read_standing(disk, zone));
    let past = disk.zone(SEMANTIC, |zone| versions::try_read_past(zone)).transpose()?.unwrap_or_default();
    Ok(Seen {
        id: info.id,
        about: info.about.to_vec(),
        parent: info.parent,
        mounts: info.zones.iter().filter_map(|spec| spec.shared).collect(),
        zones: standing.collect::<Result<_, _>>()?,
        past: Arc::new(past),
        last_turn: info.last_turn.0,
        history,
        generations,
        pinned,
        attached,
        on,
        next: disk.next_generation().0,
        head: info.head.0,
    })
}

/// What a zone of an agent's holds. Of a copy: whoever closes a draft as the last that had it open publishes it.
fn try_read_standing(disk: &Disk, zone: u16) -> Option<Result<Files, ZoneError>> {
    let chunks = disk.lock().state.chunks.clone();
    let root = disk.zone(zone, Zone::snapshot)?;
    Some(root.and_then(|root| try_read_zone(&mut Zone::from_root(root, chunks))))
}

fn see(disk: &Disk) -> Seen {
    try_see(disk).unwrap()
}

fn try_see_all(store: &Store) -> Result<BTreeMap<String, Seen>, StoreError> {
    store.agents()?.into_iter().map(|(name, id)| Ok((name, try_see(&*store.disk(id)?)?))).collect()
}

fn see_all(store: &Store) -> BTreeMap<String, Seen> {
    try_see_all(store).unwrap()
}

/// Digests of all that an agent has: its zones as they stand, and in every generation.
fn digests(store: &Store, disk: &Disk) -> Vec<Hash> {
    let segments = &store.shared().unwrap().segments;
    let standing = (0..KINDS.len() as u16).map(|zone| disk.zone(zone, Zone::snapshot).unwrap().unwrap());
    let roots: Vec<_> = standing.chain(disk.generations().into_iter().flat_map(|g| g.roots)).collect();
    roots.iter().map(|root| root.digest(&**segments).unwrap()).collect()
}

/// Everything about every agent, to be compared before and after an opening of the store.
fn everything(store: &Store) -> Vec<String> {
    let agents = store.agents().unwrap();
    let of = |(name, id): (String, AgentId)| {
        let disk = store.disk(id).unwrap();
        let info = disk.info().unwrap();
        let generations: Vec<_> =
            disk.generations().into_iter().map(|g| (g.number, g.cause, g.about, g.turn, g.at)).collect();
        format!("{name} {info:?} {generations:?} {:?} {:?}", disk.history().unwrap(), digests(store, &disk))
    };
    agents.into_iter().map(of).collect()
}

/// Bytes that differ from place to place and from seed to seed, and do not compress.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    crate::device::simulated::Rng::new(seed).fill(&mut bytes);
    bytes
}
