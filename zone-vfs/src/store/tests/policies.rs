//! Pins, old versions, and shared zones that nobody mounts: what policies take, and what they never take.

use std::time::Duration;

use super::*;
use crate::zone::Access;

pub const NOW: Option<Duration> = Some(Duration::ZERO);

pub fn versions(older_than: Option<Duration>, newest: usize) -> ReapPolicy {
    let versions = VersionPolicy { older_than, newest };
    ReapPolicy { keep: KeepPolicy { versions, ..KeepPolicy::default() }, ..ReapPolicy::default() }
}

/// An agent whose fact had eight contents of 30,000 bytes, one in each of its turns.
pub fn learned(store: &Store) -> Arc<Disk> {
    let a = create(store, "a");
    for seed in 0..8 {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, SEMANTIC, "fact", &content(seed, 30_000));
        write(&a, SEMANTIC, &format!("passing{}", seed % 2), &content(seed, 10));
        end(&a, b"").unwrap();
    }
    a
}

pub fn contents(disk: &Disk, zone: u16, path: &str) -> usize {
    let access = access();
    let entries = disk.zone(zone, |zone| {
        let file = zone.find_past(access, path.as_bytes()).unwrap();
        zone.history(access, file, None, 1000).unwrap()
    });
    entries.unwrap().iter().filter(|it| it.record.has_content()).count()
}

fn pinned(disk: &Disk) -> Vec<u64> {
    disk.generations().into_iter().filter(|it| it.is_pinned).map(|it| it.number.0).collect()
}

#[test]
fn a_pinned_generation_outlives_every_policy() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    mark(&a).unwrap();
    let (third, seventh) = (GenerationNumber(3), GenerationNumber(7));
    assert!(a.pin(third, true).unwrap());
    assert!(!a.pin(third, true).unwrap(), "it was");
    assert!(a.pin(seventh, true).unwrap());
    assert!(a.pin(seventh, false).unwrap());
    assert!(matches!(a.pin(GenerationNumber(100), true), Err(StoreError::NoGeneration { .. })));
    // by the log, and by a checkpoint
    drop((store, a));
    let store = start(&device);
    assert_eq!(pinned(&find(&store, "a")), [3]);
    store.checkpoint().unwrap();
    drop(store);
    let store = start(&device);
    let a = find(&store, "a");
    assert_eq!(pinned(&a), [3]);
    let keep = KeepPolicy {
        generations: KeepGenerations { turns: 0, sides: 0, pauses: 0 },
        thin_paused: NOW,
        ..KeepPolicy::default()
    };
    let all = ReapPolicy { keep, budget: Some(1000), ..ReapPolicy::default() };
    store.reap(&all, false).unwrap();
    let left: Vec<_> = a.generations().into_iter().map(|it| it.number.0).collect();
    assert_eq!(left, [0, 3, 9]);
    let then = a.zone_at(third, SEMANTIC).unwrap();
    assert_eq!(read_zone(&mut { then })["fact"].to_vec(), content(2, 30_000));
    rewind(&a, third).unwrap();
    assert_eq!(read(&a, SEMANTIC, "fact").unwrap(), content(2, 30_000));
    assert!(a.pin(third, false).unwrap());
    store.reap(&all, false).unwrap();
    assert!(a.generation(third).is_err());
}

#[test]
fn old_versions_go_with_the_generations_that_have_them() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().versions, VersionsGiven::default());
    let long = versions(Some(Duration::MAX), 0);
    assert_eq!(store.reap(&long, false).unwrap().versions.events, 0);
    let head = a.head();
    let would = store.reap(&versions(NOW, 2), true).unwrap().versions;
    assert_eq!((contents(&a, SEMANTIC, "fact"), a.head()), (8, head), "a dry run changes nothing");
    let report = store.reap(&versions(NOW, 2), false).unwrap();
    assert_eq!(report.versions, would);
    // six of the fact's, two of each of the two others
    assert_eq!((report.versions.events, report.versions.bytes), (10, 6 * 30_000 + 4 * 10));
    assert_eq!(contents(&a, SEMANTIC, "fact"), 2);
    assert_eq!(a.generation(a.head()).unwrap().cause, Cause::Reaped { paused: None });
    assert!(report.needed > 8 * 30_000, "generations have them: {report:?}");
    let few = ReapPolicy::keeping(KeepGenerations { turns: 0, sides: 0, pauses: 0 });
    let report = store.reap(&few, false).unwrap();
    assert!(report.needed < 3 * 30_000, "{report:?}");
    drop((store, a));
    let store = start(&device);
    let a = find(&store, "a");
    assert_eq!(contents(&a, SEMANTIC, "fact"), 2);
    assert_eq!(read(&a, SEMANTIC, "fact").unwrap(), content(7, 30_000));
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, SEMANTIC, "fact", b"on it goes");
    end(&a, b"").unwrap();
    assert_eq!(contents(&a, SEMANTIC, "fact"), 3);
    assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
}

#[test]
fn agents_and_zones_have_policies_of_their_own() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    let fork = fork(&store, &a, a.head(), "fork").unwrap();
    let spared = super::fork(&store, &a, a.head(), "spared").unwrap();
    let in_turn = super::fork(&store, &a, a.head(), "in turn").unwrap();
    in_turn.begin(TurnStyle::Transaction, b"").unwrap();
    let mut policy = versions(NOW, 0);
    policy.spare.insert(spared.id());
    let other = VersionPolicy { older_than: NOW, newest: 5 };
    let keep = KeepPolicy { zones: [("Semantic".to_owned(), other)].into(), ..KeepPolicy::default() };
    policy.agents.insert(fork.id(), keep);
    store.reap(&policy, false).unwrap();
    let left: Vec<_> =
        [&a, &fork, &spared, &in_turn].iter().map(|disk| contents(disk, SEMANTIC, "fact")).collect();
    assert_eq!(left, [1, 5, 8, 8]);
    end(&in_turn, b"").unwrap();
}

#[test]
fn what_a_sleeping_agent_has_open_is_kept() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    let old = a.zone(SEMANTIC, |zone| {
        let file = zone.find_past(access(), b"fact").unwrap();
        zone.history(access(), file, None, 10).unwrap()[0].record.content.unwrap().inode()
    });
    let old = old.unwrap();
    a.stand_by(a.head(), &[(SEMANTIC, old, crate::zone::OpenedFor::Reading)]).unwrap();
    store.reap(&versions(NOW, 0), false).unwrap();
    assert_eq!(contents(&a, SEMANTIC, "fact"), 2);
    assert!(a.take_up(a.head()), "it stands by as before");
    let mut bytes = vec![0; 30_000];
    let read =
        a.zone(SEMANTIC, |zone| zone.read(Access::new(Principal::Agent, Timestamp(1)), old, 0, &mut bytes));
    assert_eq!(read.unwrap().unwrap(), 30_000);
    assert_eq!(bytes, content(0, 30_000));
}

#[test]
fn a_machine_may_stop_while_versions_are_given_back() {
    for stop in 1..60 {
        let device = Simulated::new(stop);
        let store = start(&device);
        let a = learned(&store);
        let before = see(&a).zones;
        device.inject(crate::device::simulated::Fault::Stop(stop));
        let done = store.reap(&versions(NOW, 1), false);
        drop((store, a));
        let device = device.crash(stop ^ 0xabc);
        let store = start(&device);
        let a = find(&store, "a");
        assert_eq!(see(&a).zones, before, "stop {stop}");
        let left = contents(&a, SEMANTIC, "fact");
        assert!(left == 1 || left == 8 && done.is_err(), "stop {stop}: {left}, {done:?}");
    }
}

#[test]
fn shared_zones_that_nobody_mounts_go_where_that_is_asked_for() {
    let device = Simulated::new(1);
    let store = start(&device);
    let team = store.create_shared("team", Quota::default()).unwrap();
    store.create_shared("over", Quota::default()).unwrap();
    shared::create_in(&store, "member", team, false);
    assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().shared_zones, [""; 0]);
    let policy = ReapPolicy { remove_unmounted: true, ..ReapPolicy::default() };
    assert_eq!(store.reap(&policy, true).unwrap().shared_zones, ["over"]);
    assert_eq!(store.shared_zones().unwrap().len(), 2);
    assert_eq!(store.reap(&policy, false).unwrap().shared_zones, ["over"]);
    let left: Vec<_> = store.shared_zones().unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(left, ["team"]);
}

#[test]
fn what_is_pinned_while_a_reaping_is_planned_stays() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    let (third, fourth) = (GenerationNumber(3), GenerationNumber(4));
    let keep = KeepGenerations { turns: 0, sides: 0, pauses: 0 };
    let shared = store.shared().unwrap();
    let mut plan = shared.plan(&ReapPolicy::keeping(keep), usize::MAX).unwrap();
    a.pin(third, true).unwrap();
    let mut report = ReapReport::default();
    shared.mark(&mut plan, false, &mut report).unwrap();
    assert_eq!(report.generations, 6, "genesis, the head and the third stay");
    shared.segments.unwatch();
    assert!(a.generation(fourth).is_err());
    store.reap(&ReapPolicy::keeping(keep), false).unwrap();
    drop((store, a));
    let store = start(&device.crash(1));
    let a = find(&store, "a");
    assert_eq!(pinned(&a), [3]);
    assert_eq!(read_zone(&mut a.zone_at(third, SEMANTIC).unwrap())["fact"].to_vec(), content(2, 30_000));
}

#[test]
fn an_agent_that_wakes_while_a_reaping_is_planned_stays() {
    let store = start(&Simulated::new(1));
    for name in ["sleeps", "works", "begins"] {
        mark(&create(&store, name)).unwrap();
    }
    let keep = KeepPolicy { remove_paused: NOW, ..KeepPolicy::default() };
    let policy = ReapPolicy { keep, ..ReapPolicy::default() };
    let mut plan = store.shared().unwrap().plan(&policy, usize::MAX).unwrap();
    let works = find(&store, "works");
    works.begin(TurnStyle::Transaction, b"").unwrap();
    end(&works, b"acknowledged").unwrap();
    mark(&works).unwrap();
    let begins = find(&store, "begins");
    begins.begin(TurnStyle::Transaction, b"").unwrap();
    store.remove_planned(&mut plan).unwrap();
    assert_eq!(see_all(&store).into_keys().collect::<Vec<_>>(), ["begins", "works"]);
    end(&begins, b"done").unwrap();
    let report = store.reap(&policy, false).unwrap();
    assert_eq!(report.agents.into_iter().map(|it| it.1).collect::<Vec<_>>(), ["works"]);
}

#[test]
fn a_pin_beside_a_turn_leaves_the_turn_alone() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    let before = read(&a, EPISODIC, "diary");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, EPISODIC, "diary", b"not synced");
    // a commit that has begun waits in the log, and the end of the turn behind it
    device.hold("log/");
    let pinning = std::thread::spawn({
        let a = a.clone();
        move || a.pin(GenerationNumber(2), true)
    });
    device.wait_for_held();
    let failing = std::thread::spawn({
        let a = a.clone();
        move || fail(&a, "it broke")
    });
    device.release();
    assert!(pinning.join().unwrap().unwrap());
    failing.join().unwrap().unwrap();
    assert_eq!(read(&a, EPISODIC, "diary"), before, "what was not synced has gone with the turn");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "w", b"w");
    assert!(a.pin(GenerationNumber(2), false).unwrap());
    assert!(a.pin(GenerationNumber(2), true).unwrap());
    end(&a, b"done").unwrap();
    let seen = see(&a);
    drop((store, a));
    let store = start(&device.crash(1));
    let a = find(&store, "a");
    assert_eq!(see(&a), seen);
    assert_eq!((pinned(&a), read(&a, WORKSPACE, "w")), (vec![2], Some(b"w".to_vec())));
}

#[test]
fn a_generation_that_a_full_disk_does_not_let_go_is_there() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = learned(&store);
    let second = GenerationNumber(2);
    let seen = see(&a);
    device.inject(crate::device::simulated::Fault::Capacity(device.bytes()));
    let error = store.drop_generation(&a, second).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(see(&a), seen);
    device.heal();
    store.drop_generation(&a, second).unwrap();
    assert!(a.generation(second).is_err());
}
