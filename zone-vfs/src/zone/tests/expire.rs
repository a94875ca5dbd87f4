//! What a policy takes of the history, and what it leaves.

use super::*;
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
    let reaped = zone.reap_versions(host(1000), keep(second, newest), &BTreeSet::new()).unwrap();
    assert!(!reaped.more);
    reaped.events
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
