use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::chunks::{ChunkError, FrameKind};
use crate::id::{ChangeSequence, Hash};
use crate::tree::{CHUNK, ExtentValue, Part, StoredValue};

const ROOT: Inode = Inode::ROOT;

/// Storage that fails after so many reads or writes.
#[derive(Default)]
struct Failing {
    chunks: MemoryChunks,
    left: AtomicUsize,
}

impl Failing {
    fn allow(&self, count: usize) {
        self.left.store(count, Ordering::Relaxed);
    }

    fn spend(&self, error: ChunkError) -> Result<(), ChunkError> {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| error)
    }
}

impl ChunkStore for Failing {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        self.spend(ChunkError::Missing(*hash))?;
        self.chunks.get(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.spend(ChunkError::NoSpace)?;
        self.chunks.put(kind, plain)
    }
}

type Step = fn(&mut Zone, Inode) -> Result<()>;

/// Operations on a zone with the directories `d` of 300 files and `e`, and the file `big`.
const STEPS: &[(&str, Step)] = &[
    ("create", |zone, _| {
        let inode = zone.open(agent(5), ROOT, b"d/new", CREATE)?;
        zone.close(inode)
    }),
    ("mkdir", |zone, _| zone.mkdir(agent(5), ROOT, b"d/new").map(drop)),
    ("symlink", |zone, _| zone.symlink(agent(5), b"target", ROOT, b"d/new").map(drop)),
    ("link", |zone, _| zone.link(agent(5), (ROOT, b"d/f7"), true, (ROOT, b"e/new"))),
    ("unlink", |zone, _| zone.unlink(agent(5), ROOT, b"d/f7")),
    ("unlink chunks", |zone, _| zone.unlink(agent(5), ROOT, b"e/chunks")),
    ("unlink open", |zone, _| zone.unlink(agent(5), ROOT, b"big")),
    ("rmdir", |zone, _| zone.rmdir(agent(5), ROOT, b"e/empty")),
    ("rename", |zone, _| zone.rename(agent(5), (ROOT, b"d/f7"), (ROOT, b"e/new"))),
    ("rename over chunks", |zone, _| zone.rename(agent(5), (ROOT, b"d/f7"), (ROOT, b"e/chunks"))),
    ("rename over open", |zone, _| zone.rename(agent(5), (ROOT, b"d/f7"), (ROOT, b"big"))),
    ("rename directory", |zone, _| zone.rename(agent(5), (ROOT, b"d"), (ROOT, b"e/empty"))),
    ("write", |zone, big| zone.write(agent(5), big, 10, b"x").map(drop)),
    ("write across", |zone, big| zone.write(agent(5), big, 10, &vec![1; 3 * CHUNK]).map(drop)),
    ("append", |zone, big| zone.append(agent(5), big, &vec![1; 2 * CHUNK]).map(drop)),
    ("cut", |zone, big| zone.set_size(agent(5), big, CHUNK as u64 + 5)),
    ("cut to inline", |zone, big| zone.set_size(agent(5), big, 5)),
    ("truncate on opening", |zone, _| {
        let options = OpenOptions { truncate: true, ..READ_WRITE };
        let inode = zone.open(agent(5), ROOT, b"e/chunks", options)?;
        zone.close(inode)
    }),
    ("set times", |zone, _| zone.set_times(agent(5), Inode(20), None, Some(Timestamp(5)))),
    ("spill", |zone, _| zone.spill()),
    ("drop orphans", |zone, _| zone.drop_orphans_except(&[].into())),
];

fn digest(zone: &mut Zone, store: &Failing) -> Hash {
    store.allow(usize::MAX);
    zone.snapshot().unwrap().digest(store).unwrap()
}

#[test]
fn what_fails_has_changed_nothing() {
    let store = Arc::new(Failing::default());
    store.allow(usize::MAX);
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    for directory in ["d", "e", "e/empty"] {
        zone.mkdir(agent(2), ROOT, directory.as_bytes()).unwrap();
    }
    for number in 0..300 {
        make(&mut zone, &format!("d/f{number}"), b"content");
    }
    make(&mut zone, "e/chunks", &pattern(3 * CHUNK, 1));
    make(&mut zone, "orphan", &pattern(3 * CHUNK, 1));
    let big = make(&mut zone, "big", &pattern(4 * CHUNK - 7, 2));
    zone.unlink(agent(3), ROOT, b"orphan").unwrap();
    let stored = zone.snapshot().unwrap().store(&*store).unwrap();
    let before = digest(&mut zone, &store);
    for (name, step) in STEPS {
        let mut failures = 0;
        let after = loop {
            store.allow(usize::MAX);
            let mut zone = Zone::from_root(ZoneRoot::load(stored), store.clone());
            zone.open_inode(big).unwrap();
            store.allow(failures);
            let result = step(&mut zone, big);
            if result.is_ok() {
                break digest(&mut zone, &store);
            }
            failures += 1;
            assert!(matches!(code(result), ErrorCode::Io | ErrorCode::InsufficientSpace), "{name}");
            assert_eq!(digest(&mut zone, &store), before, "{name}, {failures}");
            assert_eq!(zone.usage(), stored.counters.usage, "{name}, {failures}");
            step(&mut zone, big).unwrap();
        };
        assert!(failures > 0 || *name == "spill", "{name} read nothing");
        assert!(after != before || *name == "spill", "{name} did nothing");
    }
}

#[test]
fn a_file_that_is_named_again_is_so_wholly_or_not_at_all() {
    let store = Arc::new(Failing::default());
    store.allow(usize::MAX);
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    zone.mkdir(agent(2), ROOT, b"d").unwrap();
    for number in 0..300 {
        make(&mut zone, &format!("d/f{number}"), b"content");
    }
    let content = pattern(4 * CHUNK - 7, 2);
    let file = make(&mut zone, "file", &content);
    zone.open_inode(file).unwrap();
    zone.unlink(agent(3), ROOT, b"file").unwrap();
    let stored = zone.snapshot().unwrap().store(&*store).unwrap();
    let before = digest(&mut zone, &store);
    let mut failures = 0;
    loop {
        store.allow(usize::MAX);
        let mut zone = Zone::from_root(ZoneRoot::load(stored), store.clone());
        zone.open_inode(file).unwrap();
        store.allow(failures);
        let Err(e) = zone.link_unnamed(agent(6), file, (ROOT, b"d/named")) else { break };
        failures += 1;
        assert_eq!(e.code, ErrorCode::Io, "{failures}");
        assert_eq!(digest(&mut zone, &store), before, "{failures}");
        zone.link_unnamed(agent(6), file, (ROOT, b"d/named")).unwrap();
        assert_eq!(zone.usage(), stored.counters.usage, "it was counted all the time");
        assert_eq!(super::content(&mut zone, file), content);
        zone.close(file).unwrap();
        assert_eq!(zone.resolve(agent(7), ROOT, b"d/named", false).unwrap(), file);
    }
    assert!(failures > 0);
}

#[test]
fn a_drain_that_fails_loses_nothing() {
    let store = Arc::new(Failing::default());
    store.allow(usize::MAX);
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let mut twin = Zone::from_root(zone.snapshot().unwrap(), store.clone());
    make(&mut zone, "f", &pattern(2 * CHUNK, 1));
    store.allow(1);
    assert_eq!(code(zone.drain_changes(&DrainLimits::default())), ErrorCode::InsufficientSpace);
    assert!(zone.is_dirty());
    store.allow(usize::MAX);
    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
    assert_eq!(drained.needs.len(), 2);
    twin.apply(&drained.changes).unwrap();
    assert_eq!(digest(&mut twin, &store), digest(&mut zone, &store));
}

#[test]
fn a_zone_can_be_made_from_its_changes_alone() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Logs, Quota::default(), Timestamp(1), store.clone());
    let mut twin = Zone::from_root(ZoneRoot::empty(ZoneKind::Logs, Quota::default()), store.clone());
    for number in 0..3 {
        make(&mut zone, &format!("f{number}"), &pattern(5000, number));
        twin.apply(&zone.drain_changes(&DrainLimits::default()).unwrap().changes).unwrap();
    }
    let digests = [&mut zone, &mut twin].map(|zone| zone.snapshot().unwrap().digest(&*store).unwrap());
    assert_eq!(digests[0], digests[1]);
    assert_eq!(names(&twin, ROOT), ["f0", "f1", "f2"]);
}

/// The encoding may only change together with the version of the records that hold it.
#[test]
fn changes_are_written_as_they_were() {
    let encode = |change: Change| postcard::to_stdvec(&change).unwrap();
    let inode = Inode(300);
    assert_eq!(encode(Change::Put(Key::orphan(inode), StoredValue::Orphan)), [0, 0, 3, 0xac, 2, 3]);
    assert_eq!(encode(Change::Remove(Key::extent(inode, 5))), [1, 0xac, 2, 2, 5]);
    assert_eq!(encode(Change::Cut { inode, chunk: 5, len: 7 }), [2, 0xac, 2, 5, 7]);
    let patch = Change::Patch { inode, offset: 129, bytes: b"abc".to_vec() };
    assert_eq!(encode(patch), [3, 0xac, 2, 0x81, 1, 3, b'a', b'b', b'c']);
    let usage = Usage { bytes: 1, inodes: 2 };
    let counters = Counters {
        next_inode: inode,
        usage,
        past: Usage { bytes: 3, inodes: 4 },
        next_change: ChangeSequence(5),
        dropped: ChangeSequence(6),
        latest: Timestamp(7),
        inherited: Usage { bytes: 2, inodes: 1 },
        inherited_past: Usage::default(),
        horizon: Version(9),
        reaped: Version(8),
    };
    assert_eq!(encode(Change::Counters(counters)), [4, 0xac, 2, 1, 2, 3, 4, 5, 6, 7, 2, 1, 0, 0, 9, 8]);
}

#[test]
fn a_chunk_of_the_wrong_length_is_damage() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let file = make(&mut zone, "f", &pattern(5000, 1));
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let hash = store.put(FrameKind::Chunk, b"short").unwrap();
    zone.apply(&[Change::Put(Key::extent(file, 0), StoredValue::Extent { hash, len: 5000 })]).unwrap();
    assert_eq!(code(zone.read(agent(3), file, 0, &mut [0; 10])), ErrorCode::Io);
    assert_eq!(code(zone.write(agent(3), file, 0, b"x")), ErrorCode::Io);
    assert_eq!(code(zone.set_size(agent(3), file, 4000)), ErrorCode::Io);
}

#[test]
fn small_writes_travel_as_patches_and_large_ones_by_address() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", &vec![1; 3 * CHUNK]);
    let limits = DrainLimits::default();
    let first = zone.drain_changes(&limits).unwrap();
    assert_eq!(first.needs.len(), 3);
    assert!(zone.drain_changes(&limits).unwrap().changes.is_empty());

    zone.write(agent(3), file, CHUNK as u64 - 2, b"abcd").unwrap();
    zone.write(agent(3), file, 100, &[2; 10]).unwrap();
    let drained = zone.drain_changes(&limits).unwrap();
    assert!(drained.needs.is_empty());
    let patch = |offset: usize, bytes: &[u8]| Change::Patch {
        inode: file,
        offset: offset as u64,
        bytes: bytes.into(),
    };
    let counters = Change::Counters(zone.counters);
    let in_feed = |change: &Change| matches!(change, Change::Put(Key { part: Part::Change(_), .. }, _));
    assert!(in_feed(&drained.changes[0]));
    assert_eq!(
        drained.changes[2..6],
        [patch(100, &[2; 10]), patch(CHUNK - 2, b"ab"), patch(CHUNK, b"cd"), counters]
    );
    assert!(
        matches!(&drained.changes[1], Change::Put(key, StoredValue::Inode(_)) if *key == Key::inode(file))
    );

    zone.write(agent(3), file, 0, &[3; 16 << 10]).unwrap();
    assert!(zone.drain_changes(&limits).unwrap().needs.is_empty());
    zone.write(agent(3), file, 0, &vec![4; (16 << 10) + 1]).unwrap();
    let drained = zone.drain_changes(&limits).unwrap();
    assert_eq!(drained.needs.len(), 1);
    let sent: usize = drained.changes.iter().map(|change| postcard::to_stdvec(change).unwrap().len()).sum();
    assert!(sent < 300);
}

#[test]
fn the_total_of_what_travels_inline_is_limited() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", &vec![1; 8 * CHUNK]);
    zone.drain_changes(&DrainLimits::default()).unwrap();
    for chunk in 0..8 {
        zone.write(agent(3), file, chunk * CHUNK as u64, &[9; 100]).unwrap();
    }
    let drained = zone.drain_changes(&DrainLimits { chunk: 1000, total: 350 }).unwrap();
    let patches = drained.changes.iter().filter(|change| matches!(change, Change::Patch { .. })).count();
    assert_eq!((patches, drained.needs.len()), (3, 5));
}

#[test]
fn what_came_and_went_between_drains_leaves_little() {
    let mut zone = zone(ZoneKind::Workspace);
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let file = make(&mut zone, "f", &vec![1; 3 * CHUNK]);
    zone.unlink(agent(3), ROOT, b"f").unwrap();
    zone.close(file).unwrap();
    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
    assert!(drained.needs.is_empty());
    let removes = drained.changes.iter().filter(|change| matches!(change, Change::Remove(_))).count();
    assert_eq!(removes + 2, drained.changes.len(), "the root's times and the counters are left");
}

#[test]
fn damaged_changes_are_refused_and_change_nothing() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let file = make(&mut zone, "f", &pattern(CHUNK, 1));
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let before = zone.snapshot().unwrap().digest(&*store).unwrap();
    let good = Change::Patch { inode: file, offset: 5, bytes: b"good".to_vec() };
    let damaged = [
        Change::Patch { inode: file, offset: CHUNK as u64 - 1, bytes: b"across".to_vec() },
        Change::Put(Key::inode(file), StoredValue::Orphan),
        Change::Put(Key::extent(file, 0), StoredValue::Extent { hash: Hash([0; 32]), len: u32::MAX }),
        Change::Put(
            Key::inode(file),
            StoredValue::Inode(new_record(Body::Inline(Arc::default()), 9, Timestamp(1))),
        ),
    ];
    for change in damaged {
        assert_eq!(code(zone.apply(&[good.clone(), change])), ErrorCode::Io);
        assert_eq!(zone.snapshot().unwrap().digest(&*store).unwrap(), before);
    }
    zone.apply(&[good]).unwrap();
    assert_eq!(content(&mut zone, file)[5..9], *b"good");
    zone.write(agent(3), file, 0, b"x").unwrap();
    assert_eq!(code(zone.apply(&[])), ErrorCode::Busy);
}

#[test]
fn spilling_bounds_memory() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let file = make(&mut zone, "f", &pattern(10 * CHUNK, 1));
    let root = zone.snapshot().unwrap();
    assert_eq!(zone.resident_bytes(), 10 * CHUNK);
    zone.spill().unwrap();
    assert_eq!(zone.resident_bytes(), 0);
    let in_memory = |root: &ZoneRoot| {
        let values = root.tree().entries(&*store).unwrap().map(|entry| entry.unwrap().1);
        values.filter(|value| matches!(value, Value::Extent(ExtentValue::Memory(_)))).count()
    };
    assert_eq!(in_memory(&zone.snapshot().unwrap()), 0);
    assert_eq!(in_memory(&root), 10, "a snapshot keeps what it has");
    assert_eq!(content(&mut zone, file), pattern(10 * CHUNK, 1));
    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
    assert_eq!(drained.needs.len(), 10, "what was spilled is named by the changes");
}
