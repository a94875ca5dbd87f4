//! The device fails to read what is sound: whoever asks is told, and who asks next finds all as it was.

use super::shared::{TEAM, with_mount};
use super::*;
use crate::device::simulated::Fault;

/// Agents, one of them a fork of another, and a shared zone that they mount: partly in a checkpoint, partly in the
/// log.
fn filled(device: &Simulated) -> BTreeMap<String, Seen> {
    let store = start(device);
    let team = store.create_shared("team", Quota::default()).unwrap();
    let make = |name: &str| {
        let id = Store::new_id().unwrap();
        store.create(id, &new_agent(name), with_mount(team, true)).unwrap()
    };
    let work = |disk: &Arc<Disk>, seed: u64| {
        disk.begin(TurnStyle::Transaction, &content(seed, 20_000)).unwrap();
        for file in 0..30 {
            write(disk, SEMANTIC, &format!("f{file}"), &content(seed * 100 + file, 900));
        }
        disk.zone(TEAM, |zone| write_zone(zone, &format!("{seed}"), &content(seed, 20_000)))
            .unwrap()
            .unwrap();
        end(disk, b"done").unwrap()
    };
    let (parent, asleep) = (make("parent"), make("asleep"));
    for seed in 0..3 {
        work(&parent, seed);
        work(&asleep, 10 + seed);
    }
    mark(&asleep).unwrap();
    for file in 0..200 {
        write(&parent, WORKSPACE, &format!("w{file}"), b"of the parent");
    }
    // the last records are read again
    sync(&parent).unwrap();
    store.checkpoint().unwrap();
    let at = work(&parent, 3);
    let child = fork(&store, &parent, at, "child").unwrap();
    let grandchild = fork(&store, &child, child.head(), "grandchild").unwrap();
    // where nobody has looked yet when the log is read
    write(&child, WORKSPACE, "w77", b"of the child");
    work(&child, 4);
    work(&grandchild, 5);
    see_all(&store)
}

/// What could be read of the agents; those who could not be were told that it may pass.
fn look(store: &Store) -> BTreeMap<String, Option<Seen>> {
    let agents = store.agents().unwrap().into_iter();
    agents
        .map(|(name, id)| match store.disk(id) {
            Ok(disk) => (name, try_see(&disk).ok()),
            Err(e) => {
                assert!(
                    matches!(e, StoreError::DamagedAgent { agent, may_pass: true, .. } if agent == id),
                    "{e}"
                );
                assert!(store.damaged().unwrap().iter().any(|it| it.id == id && it.may_pass));
                assert!(e.may_pass() && e.is_of_one_agent(), "{e}");
                assert!(e.to_string().contains("could not be read this time"), "{e}");
                (name, None)
            }
        })
        .collect()
}

#[test]
fn each_read_that_fails_is_tried_again_by_whoever_asks_next() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let (mut told, mut refused, mut whole) = (0, 0, false);
    for read in 1.. {
        let device = device.killed();
        device.inject(Fault::Read(read));
        // all that is read fails for a while
        let more = if read % 3 == 0 { read..read + 200 } else { read..read };
        more.for_each(|it| device.inject(Fault::Read(it)));
        let Ok(store) = try_start(&device) else {
            refused += 1;
            continue;
        };
        let found = look(&store);
        if device.reads() < read {
            whole = true;
            break;
        }
        let unread = found.values().filter(|it| it.is_none()).count();
        told += usize::from(unread > 0);
        device.heal();
        for (name, seen) in found {
            assert!(seen.is_none_or(|seen| seen == expected[&name]), "read {read}: {name}");
        }
        if read % 2 == 0 {
            // what waits for being read is carried along
            store.checkpoint().unwrap();
        }
        // in the same store, which was not opened again
        let again = see_all(&store);
        assert_eq!(again, expected, "read {read}");
        assert_eq!(store.damaged().unwrap(), [], "read {read}");
        for (name, _) in store.agents().unwrap() {
            let disk = find(&store, &name);
            let files = disk.zone(TEAM, read_zone).expect("the shared zone too");
            assert_eq!(files.len(), 9, "read {read}");
            assert!(disk.mount_fault(TEAM).is_none());
            disk.begin(TurnStyle::Transaction, b"").unwrap();
            write(&disk, WORKSPACE, "on", name.as_bytes());
            end(&disk, b"on it goes").unwrap();
        }
        assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0, "read {read}");
        let after = see_all(&store);
        drop(store);
        assert_eq!(see_all(&start(&device.crash(read))), after, "read {read}");
    }
    assert!(told > 20 && refused > 2 && whole, "{told} {refused}");
}

#[test]
fn what_could_not_be_read_can_be_removed_all_the_same() {
    let device = Simulated::new(1);
    filled(&device);
    let options = StoreOptions { cache: 0, ..options() };
    let store = Store::on_device(Arc::new(device.clone()), &options).unwrap();
    let asleep = store.find("asleep").unwrap().unwrap();
    let keep = KeepPolicy { remove_paused: policies::NOW, ..KeepPolicy::default() };
    let policy = ReapPolicy { keep, ..ReapPolicy::default() };
    let mut plan = store.shared().unwrap().plan(&policy, 1).unwrap();
    let reads = device.reads();
    (1..100).for_each(|it| device.inject(Fault::Read(reads + it)));
    store.remove_planned(&mut plan).unwrap();
    assert!(store.disk(asleep).is_err_and(|e| e.may_pass()), "no policy takes what it cannot look at");
    store.remove(asleep).unwrap();
    device.heal();
    assert!(matches!(store.disk(asleep), Err(StoreError::NoAgent(_))));
    drop(store);
    let store = start(&device.crash(1));
    assert!(store.find("asleep").unwrap().is_none());
    assert_eq!(store.agents().unwrap().len(), 3);
}

#[test]
fn what_was_read_and_does_not_verify_is_damage_until_the_store_is_opened_again() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let store = start(&device);
    let asleep = store.find("asleep").unwrap().unwrap();
    let stored = match &store.shared().unwrap().agents().slots[&asleep] {
        agents::Slot::Stored(stored) => stored.state.clone().unwrap(),
        _ => panic!("it is not in memory"),
    };
    let lost = stored.needs()[0];
    scrub::damage(&device, &lost);
    for _ in 0..2 {
        let error = store.disk(asleep).unwrap_err();
        assert!(matches!(error, StoreError::DamagedAgent { may_pass: false, .. }), "{error}");
        assert!(!error.may_pass() && error.to_string().contains("is damaged"));
        let reads = device.reads();
        store.disk(asleep).unwrap_err();
        assert_eq!(device.reads(), reads, "nothing is tried again");
    }
    // the same once more makes it as it was
    scrub::damage(&device, &lost);
    assert!(store.disk(asleep).is_err());
    drop(store);
    assert_eq!(see_all(&start(&device)), expected);
}

#[test]
fn what_a_fork_begins_as_that_could_not_be_read_is_not_taken() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let keep = KeepGenerations { turns: 0, sides: 0, pauses: 0 };
    let mut kept = 0;
    for read in 1.. {
        let device = device.killed();
        device.inject(Fault::Read(read));
        let Ok(store) = try_start(&device) else { continue };
        if device.reads() < read {
            break;
        }
        device.heal();
        let is_unread = |name: &str| store.damaged().unwrap().iter().any(|it| it.name == name);
        if !is_unread("child") || is_unread("parent") {
            continue;
        }
        kept += 1;
        // the fourth turn's, which the parent does not stand at any more
        let parent = find(&store, "parent");
        parent.begin(TurnStyle::Transaction, b"").unwrap();
        end(&parent, b"on it goes").unwrap();
        let report = store.reap(&ReapPolicy::keeping(keep), false).unwrap();
        assert_eq!(report.damage.len(), 0, "read {read}: {report:?}");
        let left: Vec<_> = parent.generations().into_iter().map(|it| it.number.0).collect();
        assert_eq!(left, [0, 4, 5], "read {read}");
        for name in ["child", "grandchild"] {
            assert_eq!(see(&find(&store, name)), expected[name], "read {read}");
        }
        store.reap(&ReapPolicy::keeping(keep), false).unwrap();
        assert!(parent.generation(GenerationNumber(4)).is_err());
        let after = see_all(&store);
        drop((store, parent));
        assert_eq!(see_all(&start(&device.crash(read))), after, "read {read}");
    }
    assert!(kept > 0);
}
