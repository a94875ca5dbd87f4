//! Faults that were found by people who tried to break it.

use super::*;
use crate::device::simulated::Fault;
use crate::id::{ChangeSequence, Version};
use crate::store::chain::ChainDigest;

#[test]
fn numbers_at_the_end_of_their_range_are_answered() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    write(&a, SEMANTIC, "fact", b"one");
    sync(&a).unwrap();
    let last = a.zone(SEMANTIC, |zone| {
        let file = zone.find_past(access(), b"fact").unwrap();
        assert_eq!(zone.history(access(), file, Some(Version(u64::MAX)), 10).unwrap(), []);
        assert!(zone.version(access(), file, Version(u64::MAX)).is_err());
        assert!(zone.rollback(access(), file, Version(u64::MAX), crate::zone::Expected::Any).is_err());
        zone.changes(access(), ChangeSequence(u64::MAX), 10).unwrap().entries.len()
    });
    assert_eq!(last, Some(0));
    assert!(a.changes(SEMANTIC, ChangeSequence(u64::MAX), 10).unwrap().unwrap().entries.is_empty());
}

#[test]
fn whoever_removes_the_lock_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    create(&store, "a");
    let locked = || matches!(Store::open(&path, &options()), Err(StoreError::Locked { .. }));
    assert!(locked());
    std::fs::remove_file(path.join("lock")).unwrap();
    assert!(locked());
    std::fs::write(path.join("lock"), b"").unwrap();
    assert!(locked());
    drop(store);
    // a planted link is not written through, and what is no file keeps nobody waiting
    let victim = folder.path().join("victim");
    std::fs::write(&victim, b"precious").unwrap();
    std::fs::remove_file(path.join("lock")).unwrap();
    std::os::unix::fs::symlink(&victim, path.join("lock")).unwrap();
    assert!(Store::open(&path, &options()).is_err());
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    std::fs::remove_file(path.join("lock")).unwrap();
    assert!(find(&Store::open(&path, &options()).unwrap(), "a").info().is_ok());
}

#[test]
fn a_full_disk_keeps_nobody_from_giving_room_back() {
    let device = Simulated::new(1);
    let options = StoreOptions { reserve: 256 << 10, ..options() };
    let open = || Store::on_device(Arc::new(device.clone()), &options).unwrap();
    let store = open();
    let a = create(&store, "a");
    let used = |device: &Simulated| -> u64 {
        let files = ["", "log", "segments"].iter().flat_map(|folder| {
            let names = device.list(folder).unwrap_or_default();
            names
                .into_iter()
                .map(move |name| if folder.is_empty() { name } else { format!("{folder}/{name}") })
        });
        let sizes =
            files.filter_map(|path| device.open(&path, crate::device::Caching::Cached).ok()?.len().ok());
        sizes.sum()
    };
    for seed in 0..10 {
        write(&a, WORKSPACE, "large", &content(seed, 100_000));
        sync(&a).unwrap();
    }
    device.inject(Fault::Capacity(used(&device) + 30_000));
    let mut seed = 10;
    let full = loop {
        let written = a.zone(WORKSPACE, |zone| write_zone(zone, "large", &content(seed, 100_000))).unwrap();
        match written.map_err(StoreError::from).and_then(|()| sync(&a)) {
            Ok(()) => seed += 1,
            Err(e) => break e,
        }
    };
    assert!(full.to_string().contains("space"), "{full}");
    a.abandon().unwrap();
    let report = store.reap(&ReapPolicy::default(), false).unwrap();
    assert!(report.after.bytes < report.before.bytes, "{report:?}");
    assert!(device.list("").unwrap().iter().any(|name| name == "reserve"), "it is kept again");
    for seed in 100..103 {
        write(&a, WORKSPACE, "large", &content(seed, 100_000));
        sync(&a).unwrap();
    }
    assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
    drop((store, a));
    assert_eq!(read(&find(&open(), "a"), WORKSPACE, "large").unwrap(), content(102, 100_000));
}

#[test]
fn an_agent_whose_records_do_not_fit_is_a_finding() {
    let device = Simulated::new(1);
    let store = start(&device);
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    write(&a, EPISODIC, "diary", b"one");
    sync(&a).unwrap();
    // as two writers at once leave it: a record whose number was given before
    let record = crate::log::Record {
        agent: b.id(),
        epoch: crate::id::Epoch(99),
        sequence: crate::id::Sequence(99),
        needs: Vec::new(),
        body: entry::encode(ChainDigest::default(), &[]).unwrap(),
    };
    store.shared().unwrap().log.commit(record).unwrap();
    drop((store, a, b));
    let store = start(&device);
    assert_eq!(store.damaged().unwrap().len(), 1);
    let mut found = Vec::new();
    let report = store.scrub(true, &mut |it| found.push(format!("{it:?}"))).unwrap();
    assert_eq!((report.findings, report.damaged_agents), (1, 1), "{found:?}");
    assert!(found[0].contains("\"b\""), "{found:?}");
    assert_eq!(read(&find(&store, "a"), EPISODIC, "diary").unwrap(), b"one");
}

#[test]
fn a_removed_shared_zone_leaves_its_agents_forkable() {
    let device = Simulated::new(1);
    let store = start(&device);
    let team = store.create_shared("team", Quota::default()).unwrap();
    shared::create_in(&store, "member", team, false);
    store.remove_shared_by_force(team).unwrap();
    let member = find(&store, "member");
    let child = fork(&store, &member, member.head(), "child").unwrap();
    assert!(child.zone(shared::TEAM, |_| ()).is_none(), "its mount leads nowhere");
    drop((store, member, child));
    let store = start(&device);
    assert!(find(&store, "child").info().is_ok());
}

#[test]
fn the_room_that_is_kept_is_whole_or_not_there() {
    let device = Simulated::new(1);
    let open = |bytes| {
        let options = StoreOptions { reserve: bytes, ..options() };
        Store::on_device(Arc::new(device.clone()), &options).unwrap()
    };
    let kept = || {
        let file = device.open("reserve", crate::device::Caching::Cached).ok()?;
        Some(file.len().unwrap())
    };
    drop(open(100_000));
    assert_eq!(kept(), Some(100_000));
    drop(open(50_000));
    assert_eq!(kept(), Some(50_000), "of another length: made anew");
    drop(open(0));
    assert_eq!(kept(), None, "none is wanted");
    // what a crash in the middle leaves
    device.create("reserve", 7, crate::device::Caching::Cached).unwrap();
    let store = open(50_000);
    assert_eq!(kept(), Some(50_000));
    drop(store);
    drop(open(0));
    // no more room than that: it is left to those who commit
    device.inject(Fault::Capacity(1 << 30));
    let used = (1 << 30) - device.free().unwrap().unwrap();
    device.heal();
    device.inject(Fault::Capacity(used + 90_000));
    drop(open(50_000));
    assert_eq!(kept(), None);
    device.heal();
    drop(open(50_000));
    assert_eq!(kept(), Some(50_000));
}
