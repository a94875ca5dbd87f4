//! The store over simulated and real devices: by example, against a model under crashes, and with
//! everything that can be refused.

mod attachments;
mod backup;
mod changes;
mod commits;
mod concurrent;
mod crash;
mod damage;
mod diff;
mod forget;
mod forks;
mod found;
mod full;
mod functions;
mod goldens;
mod index;
mod memory;
mod model;
mod policies;
mod reap;
mod refusals;
mod scrub;
mod shared;
mod threads;
mod travel;
mod usage;

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use crate::contract::{Principal, ZoneKind};
use crate::device::Device;
use crate::device::simulated::Simulated;
use crate::id::clock;
use crate::id::{AgentId, GenerationNumber, Hash, Inode, Timestamp};
use crate::log::{LogOptions, Planted};
use crate::segment::SegmentOptions;
use crate::tree::FileKind;
use crate::zone::{Access, OpenOptions, Quota, Zone, ZoneError, ZoneRoot};

/// The zones of every agent here, in this order.
const KINDS: [ZoneKind; 4] = [ZoneKind::Episodic, ZoneKind::Semantic, ZoneKind::Workspace, ZoneKind::Logs];
const EPISODIC: u16 = 0;
const SEMANTIC: u16 = 1;
const WORKSPACE: u16 = 2;
const LOGS: u16 = 3;

thread_local! {
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::None) };
    static SEGMENT_PLANTED: Cell<crate::segment::Planted> = const { Cell::new(crate::segment::Planted::None) };
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
    NewGeneration { cause: Cause::Turn, about: about.to_vec() }
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
    let pause = NewGeneration { cause: Cause::Paused, about: b"pause".to_vec() };
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
    zone.close(inode)
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

/// What an agent shows of itself, without times and counts of records.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: AgentId,
    about: Vec<u8>,
    parent: Option<(AgentId, GenerationNumber)>,
    zones: Vec<Files>,
    last_turn: u64,
    history: Vec<(u64, Result<Vec<u8>, String>)>,
    generations: BTreeMap<u64, (Cause, Vec<Files>)>,
    attached: BTreeMap<u64, Hash>,
    next: u64,
    head: u64,
}

fn try_see(disk: &Disk) -> Result<Seen, StoreError> {
    let info = disk.info()?;
    let zones = 0..KINDS.len() as u16;
    let (mut generations, mut attached) = (BTreeMap::new(), BTreeMap::new());
    let mut lately: Option<(Payload, Hash)> = None;
    // most zones do not change from one generation to the next
    let mut last: Vec<Option<(ZoneRoot, Files)>> = vec![None; KINDS.len()];
    for generation in disk.generations() {
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
                Some((same, files)) if same.same_as(&root) => files.clone(),
                _ => try_read_zone(&mut disk.zone_at(generation.number, index)?)?,
            };
            *last = Some((root, files.clone()));
            all.push(files);
        }
        generations.insert(generation.number.0, (generation.cause, all));
    }
    let mut history = Vec::new();
    for record in disk.history()? {
        let outcome = match record.outcome {
            Outcome::Ended(payload) => Ok(disk.payload(&payload)?.to_vec()),
            Outcome::Failed(reason) => Err(reason),
        };
        history.push((record.turn.0, outcome));
    }
    let standing = zones.filter_map(|zone| disk.zone(zone, try_read_zone));
    Ok(Seen {
        id: info.id,
        about: info.about.to_vec(),
        parent: info.parent,
        zones: standing.collect::<Result<_, _>>()?,
        last_turn: info.last_turn.0,
        history,
        generations,
        attached,
        next: disk.next_generation().0,
        head: info.head.0,
    })
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
