//! What a writer has in memory, however long nothing is drained.

use super::super::relieve::{MAX_CHANGED, MAX_RESIDENT};
use super::*;
use crate::chunks::FrameKind;

#[test]
fn a_large_file_does_not_stay_in_memory_until_it_is_committed() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let file = make(&mut zone, "large", b"");
    let piece = pattern(1 << 20, 3);
    for at in 0..96 {
        zone.write(agent(2), file, at << 20, &piece).unwrap();
        assert!(zone.resident_bytes() <= MAX_RESIDENT + (2 << 20), "{at}");
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
    let count = MAX_CHANGED;
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
