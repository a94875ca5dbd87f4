//! The store over simulated and real devices: by example, against a model under crashes, and with
//! everything that can be refused.

mod concurrent;
mod crash;
mod forks;
mod full;
mod functions;
mod goldens;
mod model;
mod refusals;

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use crate::contract::{Principal, ZoneKind};
use crate::device::Device;
use crate::device::simulated::Simulated;
use crate::id::{AgentId, GenerationNumber, Hash, Inode, Timestamp};
use crate::log::{LogOptions, Planted};
use crate::zone::{Access, OpenOptions, Quota, Zone, ZoneError};

/// The zones of every agent here, in this order.
const KINDS: [ZoneKind; 4] = [ZoneKind::Episodic, ZoneKind::Semantic, ZoneKind::Workspace, ZoneKind::Logs];
const EPISODIC: u16 = 0;
const SEMANTIC: u16 = 1;
const WORKSPACE: u16 = 2;
const LOGS: u16 = 3;

thread_local! {
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::None) };
}

/// What [`Store::on_device`] gives the log in tests: small groups, so that a crash finds a commit of
/// many records half-way, and the mistake that the test has planted.
pub(super) fn log_options(options: LogOptions) -> LogOptions {
    LogOptions { group_target: 24 << 10, planted: PLANTED.get(), ..options }
}

fn options() -> StoreOptions {
    StoreOptions { log_file: 64 << 10, checkpoint_after: u64::MAX, ..StoreOptions::default() }
}

fn try_start(device: &Simulated) -> Result<Store, StoreError> {
    Store::on_device(Arc::new(device.clone()), &options(), None)
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
const READ: OpenOptions = OpenOptions { create: false, write: false, ..WRITE };

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

/// The files of a zone and their content.
type Files = BTreeMap<String, Arc<Vec<u8>>>;

fn read_zone(zone: &mut Zone) -> Files {
    let entries = zone.readdir(access(), Inode::ROOT, None, usize::MAX).unwrap();
    entries
        .iter()
        .map(|entry| {
            let name = entry.name.to_string();
            let inode = zone.open(access(), Inode::ROOT, name.as_bytes(), READ).unwrap();
            let mut bytes = vec![0; zone.stat(access(), inode).unwrap().size as usize];
            let read = zone.read(access(), inode, 0, &mut bytes).unwrap();
            assert_eq!(read, bytes.len());
            zone.close(inode).unwrap();
            (name, Arc::new(bytes))
        })
        .collect()
}

fn read(disk: &Disk, zone: u16, name: &str) -> Option<Vec<u8>> {
    disk.zone(zone, read_zone).unwrap().get(name).map(|bytes| bytes.to_vec())
}

/// What an agent shows of itself, without times and counts of records.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    about: Vec<u8>,
    parent: Option<(AgentId, GenerationNumber)>,
    zones: Vec<Files>,
    last_turn: u64,
    history: Vec<(u64, Result<Vec<u8>, String>)>,
    generations: BTreeMap<u64, (Cause, Vec<Files>)>,
    next: u64,
    head: u64,
}

fn see(disk: &Disk) -> Seen {
    let info = disk.info().unwrap();
    let zones = 0..KINDS.len() as u16;
    let generation = |g: Generation| {
        let files = zones.clone().map(|zone| read_zone(&mut disk.zone_at(g.number, zone).unwrap())).collect();
        (g.number.0, (g.cause, files))
    };
    let turn = |record: TurnRecord| {
        let outcome = match record.outcome {
            Outcome::Ended(payload) => Ok(disk.payload(&payload).unwrap().to_vec()),
            Outcome::Failed(reason) => Err(reason),
        };
        (record.turn.0, outcome)
    };
    Seen {
        about: info.about.to_vec(),
        parent: info.parent,
        zones: zones.clone().map(|zone| disk.zone(zone, read_zone).unwrap()).collect(),
        last_turn: info.last_turn.0,
        history: disk.history().into_iter().map(turn).collect(),
        generations: disk.generations().into_iter().map(generation).collect(),
        next: disk.next_generation().0,
        head: info.head.0,
    }
}

fn see_all(store: &Store) -> BTreeMap<String, Seen> {
    store.agents().unwrap().into_iter().map(|(name, id)| (name, see(&store.disk(id).unwrap()))).collect()
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
        format!("{name} {info:?} {generations:?} {:?} {:?}", disk.history(), digests(store, &disk))
    };
    agents.into_iter().map(of).collect()
}

/// Bytes that differ from place to place and from seed to seed, and do not compress.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    crate::device::simulated::Rng::new(seed).fill(&mut bytes);
    bytes
}
