//! What a writer has in memory, however long nothing is drained.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::super::relieve::Bounds;
use super::*;
use crate::chunks::{ChunkError, FrameKind};
use crate::id::Hash;

/// A store that can be full, and counts what it refused.
#[derive(Default)]
struct Filled {
    stored: MemoryChunks,
    is_full: AtomicBool,
    refused: AtomicUsize,
}

impl ChunkStore for Filled {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        self.stored.get(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        if self.is_full.load(Ordering::Relaxed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(ChunkError::NoSpace);
        }
        self.stored.put(kind, plain)
    }
}

/// A zone with little room in memory, above a store that can be full.
fn cramped(bounds: Bounds) -> (Zone, Arc<Filled>) {
    let store = Arc::new(Filled::default());
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    zone.bounded.bounds = bounds;
    (zone, store)
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_large_file_does_not_stay_in_memory_until_it_is_committed() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let file = make(&mut zone, "large", b"");
    let piece = pattern(1 << 20, 3);
    for at in 0..96 {
        zone.write(agent(2), file, at << 20, &piece).unwrap();
        assert!(zone.resident_bytes() <= Bounds::USUAL.content + (2 << 20), "{at}");
    }
    let changes = zone.drain_changes(&DrainLimits::default()).unwrap().changes;
    let mut replica = Zone::from_root(ZoneRoot::empty(ZoneKind::Workspace, Quota::default()), store);
    replica.apply(&changes).unwrap();
    let mut read = vec![0; 1 << 20];
    replica.open_inode(file).unwrap();
    for at in [0, 50, 95] {
        assert_eq!(replica.read(agent(3), file, at << 20, &mut read).unwrap(), read.len());
        assert_eq!(read, piece, "{at}");
    }
}

#[test]
fn many_files_do_not_all_stay_in_memory_until_they_are_committed() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let count = Bounds::USUAL.changed;
    for number in 0..count {
        let file = make(&mut zone, &format!("file-{number}"), b"x");
        zone.close_writer(file).unwrap();
    }
    let mut nodes = 0;
    zone.state.tree.stored_places(&mut |kind, _, _| nodes += usize::from(kind == FrameKind::Node));
    assert!(nodes > 0, "some are in the chunk store");
    let changes = zone.drain_changes(&DrainLimits::default()).unwrap().changes;
    let mut replica = Zone::from_root(ZoneRoot::empty(ZoneKind::Workspace, Quota::default()), store.clone());
    replica.apply(&changes).unwrap();
    let (here, there) = (zone.snapshot().unwrap(), replica.snapshot().unwrap());
    assert_eq!(here.digest(&*store).unwrap(), there.digest(&*store).unwrap());
    assert_eq!(names(&replica, Inode::ROOT).len(), count);
}

#[test]
fn a_write_that_a_full_disk_refuses_has_not_taken_effect_and_is_taken_when_there_is_room() {
    let (mut zone, store) = cramped(Bounds { content: 1 << 20, ..Bounds::USUAL });
    let file = make(&mut zone, "file", b"");
    let piece = pattern(1 << 18, 5);
    store.is_full.store(true, Ordering::Relaxed);
    let mut written = 0;
    let refused = loop {
        match zone.append(agent(2), file, &piece) {
            Ok(at) => assert_eq!(at, written),
            Err(error) => break error,
        }
        written += piece.len() as u64;
        assert!(written <= 2 << 20, "nothing is refused");
    };
    assert_eq!(refused.code, ErrorCode::InsufficientSpace);
    assert_eq!(zone.stat(agent(2), file).unwrap().size, written);
    let tries = store.refused.load(Ordering::Relaxed);
    for _ in 0..100 {
        assert_eq!(code(zone.append(agent(2), file, &piece)), ErrorCode::InsufficientSpace);
        assert_eq!(code(zone.mkdir(agent(2), Inode::ROOT, b"folder")), ErrorCode::InsufficientSpace);
        assert_eq!(code(zone.set_size(agent(2), file, 8 << 20)), ErrorCode::InsufficientSpace);
        assert_eq!(code(zone.symlink(agent(2), b"file", Inode::ROOT, b"link")), ErrorCode::InsufficientSpace);
        let again = (Inode::ROOT, &b"again"[..]);
        assert_eq!(
            code(zone.link(agent(2), (Inode::ROOT, b"file"), true, again)),
            ErrorCode::InsufficientSpace
        );
        assert_eq!(code(zone.rename(agent(2), (Inode::ROOT, b"file"), again)), ErrorCode::InsufficientSpace);
    }
    assert_eq!(store.refused.load(Ordering::Relaxed), tries, "nothing is tried again at once");
    assert_eq!(zone.stat(agent(2), file).unwrap().size, written);
    assert_eq!(names(&zone, Inode::ROOT), ["file"]);
    store.is_full.store(false, Ordering::Relaxed);
    assert_eq!(zone.append(agent(2 + SECOND), file, &piece).unwrap(), written);
    let all = content(&mut zone, file);
    assert_eq!(all.len() as u64, written + piece.len() as u64);
    assert!(all.chunks(piece.len()).all(|it| it == piece));
}

#[test]
fn a_full_disk_keeps_nobody_from_removing_and_cutting_what_is_in_memory() {
    let (mut zone, store) = cramped(Bounds { content: 1 << 20, ..Bounds::USUAL });
    zone.mkdir(agent(2), Inode::ROOT, b"folder").unwrap();
    let large = make(&mut zone, "large", b"");
    let [removed, replaced] = ["removed", "replaced"].map(|name| {
        let file = make(&mut zone, name, b"");
        zone.append(agent(2), file, &pattern(1 << 19, 1)).unwrap();
        zone.close_writer(file).unwrap();
        file
    });
    zone.append(agent(2), large, &pattern(1 << 20, 2)).unwrap();
    store.is_full.store(true, Ordering::Relaxed);
    assert_eq!(code(zone.append(agent(2), large, b"x")), ErrorCode::InsufficientSpace);
    let path = |name: &'static str| (Inode::ROOT, name.as_bytes());
    zone.rename(agent(2), path("removed"), path("replaced")).unwrap();
    zone.rmdir(agent(2), Inode::ROOT, b"folder").unwrap();
    assert!(zone.stat(agent(2), replaced).is_err() && zone.stat(agent(2), removed).is_ok());
    zone.set_size(agent(2), large, 1 << 18).unwrap();
    zone.unlink(agent(2), Inode::ROOT, b"replaced").unwrap();
    assert_eq!(names(&zone, Inode::ROOT), ["large"]);
    // less is in memory now than may be
    zone.append(agent(2), large, b"x").unwrap();
    assert_eq!(content(&mut zone, large), [&pattern(1 << 20, 2)[..1 << 18], b"x"].concat());
}

#[test]
fn as_many_changes_as_may_wait_for_one_commit_leave_no_room_for_more_until_they_are_drained() {
    let bounds = Bounds { changed: 64, waiting: 1_000, ..Bounds::USUAL };
    let (mut zone, _) = cramped(bounds);
    let mut made = 0;
    let refused = loop {
        // each goes again, and still is a change
        match zone.mkdir(agent(2), Inode::ROOT, format!("folder-{made}").as_bytes()) {
            Ok(_) => zone.rmdir(agent(2), Inode::ROOT, format!("folder-{made}").as_bytes()).unwrap(),
            Err(error) => break error,
        }
        made += 1;
        assert!(made <= bounds.waiting, "nothing is refused");
    };
    assert_eq!(refused.code, ErrorCode::InsufficientMemory);
    assert!(refused.to_string().contains("wait for one commit"), "{refused}");
    assert!((bounds.waiting..bounds.waiting + 16).contains(&zone.state.pending.len()));
    zone.drain_changes(&DrainLimits::default()).unwrap();
    zone.mkdir(agent(2), Inode::ROOT, b"another").unwrap();
}
