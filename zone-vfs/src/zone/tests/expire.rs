//! What a policy takes of the history, and what it leaves.

use super::*;
use crate::id::Version;
use crate::tree::VersionKind;

const ROOT: Inode = Inode::ROOT;
const TRUNCATE: OpenOptions = OpenOptions { truncate: true, ..CREATE };
const SECOND: u64 = 1_000_000_000;

fn host(second: u64) -> Access {
    Access::new(Principal::Host, Timestamp(second * SECOND))
}

fn put(zone: &mut Zone, second: u64, path: &str, content: &[u8]) -> Inode {
    let access = agent(second * SECOND);
    let file = zone.open(access, ROOT, path.as_bytes(), TRUNCATE).unwrap();
    zone.write(access, file, 0, content).unwrap();
    zone.close_writer(file).unwrap();
    zone.end_turn();
    file
}

fn keep(second: u64, newest: usize) -> KeepVersions {
    KeepVersions { since: Timestamp(second * SECOND), newest }
}

fn reap(zone: &mut Zone, second: u64, newest: usize) -> u64 {
    zone.reap_versions(host(1000), keep(second, newest), &BTreeSet::new()).unwrap().events
}

fn sizes(zone: &Zone, file: Inode) -> Vec<u64> {
    let history = zone.history(agent(0), file, None, 1000).unwrap();
    history.iter().filter(|it| it.record.has_content()).map(|it| it.record.size).collect()
}

/// A file with ten versions of 1 to 10 bytes at 10 to 100 seconds, and one that was deleted at 55.
fn aged() -> (Zone, Inode, Inode) {
    let mut zone = zone(ZoneKind::Semantic);
    let gone = put(&mut zone, 5, "gone", b"gone");
    let mut file = ROOT;
    for age in 1..=10u64 {
        file = put(&mut zone, age * 10, "fact", &vec![b'x'; age as usize]);
        if age == 5 {
            zone.unlink(agent(55 * SECOND), ROOT, b"gone").unwrap();
            zone.end_turn();
        }
    }
    (zone, file, gone)
}

#[test]
fn what_was_replaced_long_ago_goes() {
    let (mut zone, file, gone) = aged();
    let past = zone.counters.past;
    // at 50 seconds the fifth version stood, and the other file was there
    assert_eq!(reap(&mut zone, 51, 0), 4);
    assert_eq!(sizes(&zone, file), [5, 6, 7, 8, 9, 10]);
    assert_eq!(sizes(&zone, gone), [4]);
    let now = zone.counters.past;
    assert_eq!((past.inodes - now.inodes, past.bytes - now.bytes), (4, 1 + 2 + 3 + 4));
    assert_eq!(reap(&mut zone, 51, 0), 0, "once is enough");
    assert_eq!(reap(&mut zone, 60, 0), 1, "what was deleted; the deletion says when that was");
    assert_eq!(sizes(&zone, gone), [0; 0]);
    assert_eq!(zone.deleted(agent(0), None, 10).unwrap(), []);
    assert_eq!(reap(&mut zone, 2000, 0), 6, "but never how it is");
    assert_eq!(sizes(&zone, file), [10]);
}

#[test]
fn the_newest_stay_and_so_does_what_is_held() {
    let (mut zone, file, _) = aged();
    let history = zone.history(agent(0), file, None, 1000).unwrap();
    let first = history[0].record.content.unwrap();
    zone.open_inode(history[1].record.content.unwrap().inode()).unwrap();
    let held = BTreeSet::from([first]);
    zone.reap_versions(host(1000), keep(2000, 3), &held).unwrap();
    assert_eq!(sizes(&zone, file), [1, 2, 8, 9, 10]);
    zone.close(history[1].record.content.unwrap().inode()).unwrap();
    reap(&mut zone, 2000, 3);
    assert_eq!(sizes(&zone, file), [8, 9, 10]);
}

#[test]
fn the_past_is_whole_from_the_horizon_on_and_refused_before() {
    let (mut zone, _, _) = aged();
    let at = |zone: &mut Zone, second: u64, name: &str| {
        let path = format!(".asof/1970-01-01T00:{:02}:{:02}Z/{name}", second / 60, second % 60);
        let file = zone.open(agent(0), ROOT, path.as_bytes(), READ)?;
        let bytes = content(zone, file);
        zone.close(file)?;
        Ok::<_, ZoneError>(bytes.len())
    };
    let listed = |zone: &Zone| {
        let times = zone.resolve(agent(0), ROOT, b".asof", true).unwrap();
        zone.readdir(agent(0), times, None, 100).unwrap().len()
    };
    let before = listed(&zone);
    reap(&mut zone, 51, 0);
    assert_eq!(listed(&zone), before - 5);
    assert_eq!(at(&mut zone, 50, "fact").unwrap(), 5);
    assert_eq!(at(&mut zone, 50, "gone").unwrap(), 4);
    assert_eq!(at(&mut zone, 77, "fact").unwrap(), 7);
    assert_eq!(code(at(&mut zone, 77, "gone")), ErrorCode::NoEntry);
    let error = at(&mut zone, 49, "fact").unwrap_err();
    assert_eq!(error.to_string(), "no-entry: what the zone was then has been reaped");
}

#[test]
fn drafts_rollbacks_and_tombstones_of_forgetting_keep_what_they_need() {
    let (mut zone, file, gone) = aged();
    let history = zone.history(agent(0), file, None, 1000).unwrap();
    zone.rollback(host(110), file, history[2].version, Expected::Any).unwrap();
    zone.forget(host(120), gone).unwrap();
    let draft = zone.open(agent(130 * SECOND), ROOT, b"fact", OpenOptions { write: true, ..READ }).unwrap();
    zone.write(agent(130 * SECOND), draft, 1, b"!").unwrap();
    zone.end_turn();
    zone.drain_changes(&DrainLimits::default()).unwrap();
    reap(&mut zone, 2000, 0);
    zone.close_writer(draft).unwrap();
    let file = zone.open(agent(0), ROOT, b"fact", READ).unwrap();
    assert_eq!(content(&mut zone, file), b"x!x");
    let left = zone.history(agent(0), gone, None, 10).unwrap();
    assert!(!left.is_empty() && left.iter().all(|it| it.record.kind == VersionKind::Forgotten), "{left:?}");
}

#[test]
fn a_rewind_to_before_a_reaping_makes_nothing_older() {
    let store: Arc<dyn ChunkStore> = store();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), store.clone());
    put(&mut zone, 1, "first", b"1");
    let first = put(&mut zone, 3, "first", b"22");
    let early = zone.snapshot().unwrap();
    put(&mut zone, 10, "first", b"333");
    assert_eq!(reap(&mut zone, 11, 0), 2);
    let recent = put(&mut zone, 41, "recent", b"4444");
    put(&mut zone, 42, "recent", b"55555");
    let left = zone.snapshot().unwrap();
    let back = early.rewound(&left, Timestamp(43 * SECOND), &store).unwrap();
    let mut zone = Zone::from_root(back, store.clone());
    assert_eq!(sizes(&zone, first), [1, 2, 3], "what was given back is there again");
    assert_eq!(reap(&mut zone, 14, 0), 1, "what was replaced before is old again");
    assert_eq!((sizes(&zone, first), sizes(&zone, recent)), (vec![2, 3], vec![4, 5]));
    // how it stood is told from the rewind on
    let asof = |zone: &Zone, second| {
        let path = format!(".asof/1970-01-01T00:00:{second}Z/first");
        zone.resolve(agent(0), ROOT, path.as_bytes(), true)
    };
    assert_eq!(code(asof(&zone, 42)), ErrorCode::NoEntry);
    asof(&zone, 43).unwrap();
    reap(&mut zone, 44, 0);
    assert_eq!((sizes(&zone, first), sizes(&zone, recent)), (vec![2], vec![]), "it is old by now");
}

/// Every version of which it is said that it has content has it.
fn reads(zone: &Zone) {
    for ((version, file), record) in zone.all_events().unwrap() {
        if record.has_content() {
            let mut bytes = vec![0; record.size as usize];
            zone.read_version(agent(0), file, version, 0, &mut bytes).unwrap();
        }
    }
}

#[test]
fn more_than_is_found_at_once_goes_in_parts_each_of_which_is_whole() {
    let mut zone = zone(ZoneKind::Semantic);
    let many = 2 * MAX_OLD_VERSIONS as u64;
    let mut file = ROOT;
    for age in 1..=many {
        file = put(&mut zone, age, "fact", &age.to_le_bytes());
        put(&mut zone, age, &format!("gone{age}"), b"gone");
    }
    // the first so many versions all have what later ones need
    for entry in zone.history(agent(0), file, None, 1000).unwrap() {
        zone.rollback(host(many + 1), file, entry.version, Expected::Any).unwrap();
        zone.end_turn();
    }
    for age in 1..=many {
        zone.unlink(agent((many + 2) * SECOND), ROOT, format!("gone{age}").as_bytes()).unwrap();
        zone.end_turn();
    }
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let before = zone.counters.past;
    let (mut taken, mut rounds) = (ReapedVersions::default(), 0);
    loop {
        let mut old = zone.old_versions(host(2000), keep(2000, 0), &BTreeSet::new()).unwrap();
        while !old.is_empty() {
            let found = zone.take_versions(host(2000), &mut old, 5).unwrap();
            assert!(!found.is_nothing() && found.events + found.names <= 5);
            taken.add(found);
            reads(&zone);
            let left = zone.deleted(agent(0), None, 1000).unwrap();
            for it in &left {
                assert_eq!(zone.place_of_event(agent(0), it.version).unwrap(), it.place);
            }
            assert!(left.iter().all(|it| it.at.0 == (many + 2) * SECOND), "{left:?}");
        }
        rounds += 1;
        if !old.is_cut_short() {
            break;
        }
    }
    assert!(rounds > 2, "{rounds}");
    // what stays is what the file holds, the version that has this, and when the last of the others went
    assert_eq!(zone.all_events().unwrap().len() as u64, before.inodes - taken.events);
    assert_eq!(sizes(&zone, file), [8, 8]);
    assert_eq!(zone.counters.past.inodes, before.inodes - taken.events);
    assert_eq!(zone.counters.past.inodes, 3);
    assert_eq!(zone.deleted(agent(0), None, 1000).unwrap().len(), 0);
}

#[test]
fn a_number_that_two_share_is_taken_once() {
    let store: Arc<dyn ChunkStore> = store();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), store.clone());
    put(&mut zone, 10, "fact", b"one");
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let early = zone.snapshot().unwrap();
    put(&mut zone, 20, "fact", b"failed");
    let failed = zone.snapshot().unwrap();
    let mut zone = Zone::from_root(early.after(&failed), store.clone());
    // the first number behind the failed turn's
    put(&mut zone, 30, "fact", b"went on");
    let left = zone.snapshot().unwrap();
    let root = failed.rewound(&left, Timestamp(40 * SECOND), &store).unwrap();
    let mut zone = Zone::from_root(root, store.clone());
    let events = zone.all_events().unwrap();
    let is_shared = |at: Version| events.iter().filter(|((version, _), _)| *version == at).count() == 2;
    assert!(events.iter().any(|((version, _), _)| is_shared(*version)), "{events:?}");
    put(&mut zone, 50, "fact", b"now");
    reap(&mut zone, 1000, 0);
    let (events, numbers) = (zone.all_events().unwrap(), zone.all_numbers().unwrap());
    let counted = events.iter().filter(|((version, file), _)| numbers.contains(&(*version, *file))).count();
    assert_eq!((counted, zone.counters.past.inodes), (numbers.len(), numbers.len() as u64));
    reads(&zone);
}

#[test]
fn only_the_operator_reaps_and_only_semantic_memory() {
    let (mut zone, ..) = aged();
    let refused = zone.reap_versions(agent(0), keep(2000, 0), &BTreeSet::new()).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotPermitted);
    for (kind, code) in [
        (ZoneKind::Procedural, ErrorCode::NotPermitted),
        (ZoneKind::Workspace, ErrorCode::Unsupported),
        (ZoneKind::Episodic, ErrorCode::Unsupported),
    ] {
        let mut zone = super::zone(kind);
        let refused = zone.reap_versions(host(0), keep(2000, 0), &BTreeSet::new()).unwrap_err();
        assert_eq!(refused.code, code, "{kind}: {refused}");
    }
}
