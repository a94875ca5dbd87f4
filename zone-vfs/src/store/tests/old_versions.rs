//! Old versions that a policy gives back: beside the agent's work, and without a trace of what is refused.

use std::collections::BTreeSet;

use super::super::agents::Slot;
use super::super::commit::Commit;
use super::super::disk::Inner;
use super::super::entry::Entry;
use super::policies::{NOW, contents, learned, versions};
use super::*;
use crate::zone::{Access, KeepVersions};

fn is_live(store: &Store, name: &str) -> bool {
    let agents = store.shared().unwrap().agents();
    matches!(agents.slots[&agents.names[name]], Slot::Live(_))
}

#[test]
fn agents_of_which_nothing_is_taken_stay_where_they_are() {
    let device = Simulated::new(1);
    let store = start(&device);
    learned(&store);
    // the last records are read again
    create(&store, "b");
    store.checkpoint().unwrap();
    drop(store);
    let store = start(&device);
    assert!(!is_live(&store, "a"));
    let would = store.reap(&versions(NOW, 2), true).unwrap().versions;
    assert_eq!((would.events, is_live(&store, "a")), (10, false), "a dry run takes nothing");
    assert_eq!(store.reap(&versions(NOW, 8), false).unwrap().versions.events, 0);
    assert!(!is_live(&store, "a"));
    assert_eq!(store.reap(&versions(NOW, 2), false).unwrap().versions, would);
    assert!(is_live(&store, "a"));
}

#[test]
fn an_agent_is_as_long_paused_as_before() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    mark(&a).unwrap();
    let paused = a.generation(a.head()).unwrap();
    let all = a.generations().len();
    for newest in [5, 3, 1] {
        assert!(store.reap(&versions(NOW, newest), false).unwrap().versions.events > 0);
        let head = a.generation(a.head()).unwrap();
        assert_eq!(head.cause, Cause::Reaped { paused: Some(paused.at) });
        assert_eq!(a.generations().len(), all + 1, "each stands for the one before");
    }
    let mut policy = versions(NOW, 0);
    policy.keep.remove_paused = NOW;
    drop((store, a));
    let store = start(&device);
    assert_eq!(find(&store, "a").generations().len(), all + 1, "also when the log is read");
    let would = store.reap(&policy, true).unwrap().agents;
    assert_eq!(would.len(), 1);
    assert_eq!(store.reap(&policy, false).unwrap().agents, would);
    let b = create(&store, "b");
    write(&b, SEMANTIC, "fact", b"one");
    mark(&b).unwrap();
    write(&b, SEMANTIC, "fact", b"two");
    sync(&b).unwrap();
    store.reap(&versions(NOW, 0), false).unwrap();
    b.begin(TurnStyle::Transaction, b"").unwrap();
    end(&b, b"").unwrap();
    assert!(b.generations().iter().all(|it| !matches!(it.cause, Cause::Reaped { .. })), "it is over");
}

#[test]
fn a_refused_commit_of_a_policy_leaves_nothing_behind() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    a.stand_by(a.head(), &[]).unwrap();
    let before = see(&a);
    let work = |inner: &mut Inner| {
        let zone = &mut inner.state.zones[usize::from(SEMANTIC)].working;
        let keep = KeepVersions { since: Timestamp::now(), newest: 2 };
        let access = Access::new(Principal::Host, Timestamp::now());
        assert!(zone.reap_versions(access, keep, &BTreeSet::new()).unwrap().events > 0);
        // more than any record holds
        Ok(vec![Entry::About(Payload::Inline(vec![0; 16 << 20]))])
    };
    let refused = wait(|done| Commit::of_policy(&a, work, done));
    assert!(matches!(refused, Err(StoreError::Commit(_))), "{refused:?}");
    assert_eq!(see(&a), before);
    assert_eq!(store.reap(&versions(NOW, 2), false).unwrap().versions.events, 10, "and keeps nobody off");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    end(&a, b"").unwrap();
}

#[test]
fn who_is_woken_meanwhile_waits_for_a_commit_of_a_policy() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    let head = a.head();
    device.hold("log");
    std::thread::scope(|scope| {
        let reaping = scope.spawn(|| store.reap(&versions(NOW, 0), false).unwrap().versions.events);
        device.wait_for_held();
        assert!(a.lock().giving);
        let turn = scope.spawn(|| a.begin(TurnStyle::Transaction, b""));
        let paused = scope.spawn(|| fork(&store, &a, head, "fork").map(drop));
        device.release();
        turn.join().unwrap().unwrap();
        paused.join().unwrap().unwrap();
        // what the agent does comes first: the rest goes another time
        assert!(reaping.join().unwrap() > 0);
    });
    write(&a, SEMANTIC, "fact", b"on it goes");
    end(&a, b"").unwrap();
    store.reap(&versions(NOW, 0), false).unwrap();
    assert_eq!(contents(&a, SEMANTIC, "fact"), 1);
    assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
}

#[test]
fn who_keeps_policies_off_finds_the_head_where_it_was() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    device.hold("log");
    std::thread::scope(|scope| {
        let reaping = scope.spawn(|| store.reap(&versions(NOW, 0), false));
        device.wait_for_held();
        let held = scope.spawn(|| {
            let off = a.keep_policies_off();
            assert!(!a.lock().giving, "it waits for the commit that is under way");
            off
        });
        device.release();
        let _off = held.join().unwrap();
        reaping.join().unwrap().unwrap();
        let head = a.head();
        assert_eq!(store.reap(&versions(NOW, 0), false).unwrap().versions.events, 0, "it is passed over");
        assert_eq!(a.head(), head);
        fork(&store, &a, head, "fork").unwrap();
    });
    store.reap(&versions(NOW, 0), false).unwrap();
    assert_eq!(
        store.reap(&versions(NOW, 0), true).unwrap().versions.events,
        0,
        "and comes to it another time"
    );
    assert_eq!(contents(&a, SEMANTIC, "fact"), 1);
}
