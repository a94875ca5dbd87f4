//! Faults that were found by people who used it, and by those who tried to break it.

use super::*;
use crate::id::{ChangeSequence, Turn};
use crate::tree::ChangeKind;

const ROOT: Inode = Inode::ROOT;
const SECOND: u64 = 1_000_000_000;

fn host(second: u64) -> Access {
    Access::new(Principal::Host, Timestamp(second * SECOND))
}

fn put(zone: &mut Zone, second: u64, path: &str, bytes: &[u8]) -> Inode {
    let file = zone.open(host(second), ROOT, path.as_bytes(), CREATE).unwrap();
    zone.write(host(second), file, 0, bytes).unwrap();
    zone.close_writer(file).unwrap();
    zone.end_turn();
    file
}

#[test]
fn directories_lie_no_deeper_than_the_limit() {
    for kind in [ZoneKind::Workspace, ZoneKind::Semantic, ZoneKind::Episodic] {
        let mut zone = zone(kind);
        let (mut at, mut depth) = (ROOT, 0);
        let refused = loop {
            match zone.mkdir(agent(1), at, b"d") {
                Ok(made) => (at, depth) = (made, depth + 1),
                Err(e) => break e,
            }
        };
        assert_eq!(depth, MAX_DIRECTORY_DEPTH, "{kind}");
        assert_eq!(refused.code, ErrorCode::Invalid, "{refused}");
        zone.open(agent(1), at, b"file", CREATE).unwrap();
    }
}

#[test]
fn what_goes_with_its_folder_is_told_with_its_path_and_when() {
    let mut zone = zone(ZoneKind::Workspace);
    zone.mkdir(host(1), ROOT, b"p").unwrap();
    zone.mkdir(host(1), ROOT, b"p/q").unwrap();
    put(&mut zone, 2, "p/q/x", b"x");
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let last = ChangeSequence(zone.counters.next_change.0 - 1);
    for path in ["p/q/x", "p/q", "p"] {
        let removed = match path {
            "p/q/x" => zone.unlink(host(9), ROOT, path.as_bytes()),
            _ => zone.rmdir(host(9), ROOT, path.as_bytes()),
        };
        removed.unwrap();
    }
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let changes = zone.changes(host(9), last, 10).unwrap().entries;
    let mut told: Vec<_> = changes
        .into_iter()
        .map(|(_, it)| (it.kind, String::from_utf8(it.path.unwrap()).unwrap(), it.at.0 / SECOND))
        .collect();
    told.sort_by(|a, b| a.1.cmp(&b.1));
    let wanted = ["p", "p/q", "p/q/x"].map(|path| (ChangeKind::Remove, path.to_string(), 9));
    assert_eq!(told, wanted);
}

#[test]
fn a_name_that_a_rename_took_is_not_deleted() {
    let mut zone = zone(ZoneKind::Semantic);
    put(&mut zone, 1, "x", b"x");
    put(&mut zone, 1, "gone", b"gone");
    zone.rename(host(2), (ROOT, b"x"), (ROOT, b"y")).unwrap();
    zone.end_turn();
    zone.unlink(host(3), ROOT, b"gone").unwrap();
    zone.end_turn();
    put(&mut zone, 4, "y", b"more");
    let deleted = zone.deleted(host(5), None, 10).unwrap();
    let told: Vec<_> = deleted.iter().map(|it| (it.place.name.to_string(), it.at.0 / SECOND)).collect();
    assert_eq!(told, [("gone".to_string(), 3)]);
    // and where it was renamed, and deleted under its last name
    zone.unlink(host(6), ROOT, b"y").unwrap();
    zone.end_turn();
    let deleted = zone.deleted(host(7), None, 10).unwrap();
    let told: Vec<_> = deleted.iter().map(|it| it.place.name.to_string()).collect();
    assert_eq!(told, ["gone", "y"]);
}

#[test]
fn a_file_comes_back_with_the_folders_that_it_was_in() {
    for made_again in [false, true] {
        let mut zone = zone(ZoneKind::Semantic);
        zone.mkdir(host(1), ROOT, b"d").unwrap();
        zone.mkdir(host(1), ROOT, b"d/e").unwrap();
        let file = put(&mut zone, 2, "d/e/f", b"one");
        let version = zone.current(file).unwrap().unwrap();
        zone.unlink(host(3), ROOT, b"d/e/f").unwrap();
        zone.rmdir(host(3), ROOT, b"d/e").unwrap();
        zone.rmdir(host(3), ROOT, b"d").unwrap();
        zone.end_turn();
        if made_again {
            zone.mkdir(host(4), ROOT, b"d").unwrap();
            zone.end_turn();
        }
        let found = zone.find_past(host(5), b"d/e/f").unwrap();
        assert_eq!(found, file);
        zone.rollback(host(5), found, version, Expected::Missing).unwrap();
        zone.end_turn();
        let back = zone.open(host(6), ROOT, b"d/e/f", READ).unwrap();
        assert_eq!((back, content(&mut zone, back)), (file, b"one".to_vec()));
        // replayed from its changes it is the same
        let mut twin =
            Zone::from_root(ZoneRoot::empty(ZoneKind::Semantic, Quota::default()), zone.state.store.clone());
        twin.apply(&zone.drain_changes(&DrainLimits::default()).unwrap().changes).unwrap();
        let store = zone.state.store.clone();
        let digests = [&mut zone, &mut twin].map(|zone| zone.snapshot().unwrap().digest(&*store).unwrap());
        assert_eq!(digests[0], digests[1]);
    }
    // where something else has the name of a folder, nothing is made
    let mut zone = zone(ZoneKind::Semantic);
    zone.mkdir(host(1), ROOT, b"d").unwrap();
    let file = put(&mut zone, 2, "d/f", b"one");
    let version = zone.current(file).unwrap().unwrap();
    zone.unlink(host(3), ROOT, b"d/f").unwrap();
    zone.rmdir(host(3), ROOT, b"d").unwrap();
    zone.end_turn();
    put(&mut zone, 4, "d", b"a file");
    let refused = zone.rollback(host(5), file, version, Expected::Missing);
    assert_eq!(code(refused), ErrorCode::NotDirectory);
}

#[test]
fn a_path_is_not_sought_in_the_same_place_again_and_again() {
    let mut zone = zone(ZoneKind::Semantic);
    let mut turn = 1;
    let mut next = |zone: &mut Zone| {
        zone.end_turn();
        turn += 1;
        zone.begin_turn(Turn(turn));
    };
    let many = 40;
    // one directory that was `b` in each of those that were `a`
    zone.mkdir(agent(3), ROOT, b"moved").unwrap();
    next(&mut zone);
    let mut from = "moved".to_string();
    for number in 0..many {
        zone.mkdir(agent(3), ROOT, b"a").unwrap();
        zone.rename(agent(3), (ROOT, from.as_bytes()), (ROOT, b"a/b")).unwrap();
        next(&mut zone);
        let old = format!("old{number}");
        zone.rename(agent(3), (ROOT, b"a"), (ROOT, old.as_bytes())).unwrap();
        next(&mut zone);
        from = format!("{old}/b");
    }
    zone.mkdir(agent(3), ROOT, b"x").unwrap();
    next(&mut zone);
    let (there, back) = (format!("{from}/c"), "x");
    for _ in 0..many {
        zone.rename(agent(3), (ROOT, back.as_bytes()), (ROOT, there.as_bytes())).unwrap();
        next(&mut zone);
        zone.rename(agent(3), (ROOT, there.as_bytes()), (ROOT, back.as_bytes())).unwrap();
        next(&mut zone);
    }
    let entries = zone.entries_sought(b"a/b/c/none").unwrap();
    assert!(entries < 12 * many, "{entries}");
    assert_eq!(code(zone.find_past(agent(4), b"a/b/c/none")), ErrorCode::NoEntry);
    zone.find_past(agent(4), b"a/b/c").unwrap();
    // and what is all in one place has an end
    let from = zone.resolve(agent(3), ROOT, b"x", true).unwrap();
    for _ in 0..9_000 {
        zone.rename(agent(3), (ROOT, b"x"), (ROOT, b"y")).unwrap();
        next(&mut zone);
        zone.rename(agent(3), (ROOT, b"y"), (ROOT, b"x")).unwrap();
        next(&mut zone);
    }
    assert_eq!(zone.find_past(agent(4), b"x").unwrap(), from);
    let refused = zone.find_past(agent(4), b"x/none").unwrap_err();
    assert!(refused.to_string().contains("too much to look through"), "{refused}");
}

#[test]
fn a_rollback_that_the_history_has_no_room_for_makes_nothing() {
    let quota = Quota { inodes: 6, ..Quota::default() };
    let mut zone = Zone::new(ZoneKind::Semantic, quota, Timestamp(1), store());
    let mut turn = 1;
    let mut next = |zone: &mut Zone| {
        zone.end_turn();
        turn += 1;
        zone.begin_turn(Turn(turn));
    };
    zone.mkdir(agent(3), ROOT, b"a").unwrap();
    zone.mkdir(agent(3), ROOT, b"a/b").unwrap();
    let file = make(&mut zone, "a/b/fact", b"one");
    zone.close_writer(file).unwrap();
    next(&mut zone);
    let first = zone.history(agent(3), file, None, 1).unwrap()[0].version;
    zone.unlink(agent(3), ROOT, b"a/b/fact").unwrap();
    zone.rmdir(agent(3), ROOT, b"a/b").unwrap();
    zone.rmdir(agent(3), ROOT, b"a").unwrap();
    next(&mut zone);
    let other = make(&mut zone, "other", b"");
    let mut content = 0u32;
    // one more event fits: the first folder
    while zone.counters.past.inodes < 6 * HISTORY_SHARE - 1 {
        zone.append(agent(3), other, &content.to_le_bytes()).unwrap();
        zone.sync(agent(3), other).unwrap();
        next(&mut zone);
        content += 1;
    }
    zone.close_writer(other).unwrap();
    let before = zone.snapshot().unwrap();
    let host = Access::new(Principal::Host, Timestamp(4));
    let refused = zone.rollback(host, file, first, Expected::Any).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Quota, "{refused}");
    assert_eq!(names(&zone, ROOT), ["other"]);
    assert!(zone.snapshot().unwrap().same_as(&before), "nothing has changed");
}
