//! Reaping takes what nothing needs, and nothing else: beside live agents, and wherever it is interrupted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::device::simulated::{Fault, Rng};

fn reap(store: &Store) -> ReapReport {
    let report = store.reap(&ReapPolicy::default(), false).unwrap();
    assert_eq!(report.damage, [""; 0]);
    report
}

fn keep(turns: usize) -> ReapPolicy {
    ReapPolicy::keeping(KeepGenerations { turns, sides: 0, ..KeepGenerations::default() })
}

fn turn(disk: &Arc<Disk>, seed: u64) {
    disk.begin(TurnStyle::Transaction, &content(seed, 20_000)).unwrap();
    write(disk, EPISODIC, "diary", b"line\n");
    write(disk, WORKSPACE, "large", &content(seed, 200_000));
    end(disk, b"done").unwrap();
}

#[test]
fn what_was_replaced_is_given_back() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for seed in 0..20 {
        turn(&a, seed);
    }
    let before = everything(&store);
    let first = reap(&store);
    assert_eq!(first.generations, 0);
    let dry = store.reap(&keep(2), true).unwrap();
    assert_eq!(everything(&store), before, "nothing but old nodes has gone");
    let report = store.reap(&keep(2), false).unwrap();
    assert_eq!(report.generations, 18);
    assert_eq!((dry.generations, dry.from_generations), (18, report.from_generations));
    assert!(report.from_generations.bytes > 17 * 200_000, "{report:?}");
    assert!(report.from_generations.bytes < 19 * 200_000, "events are history's: {report:?}");
    assert!(report.after.bytes + 3_000_000 < report.before.bytes, "{report:?}");
    assert!(report.swept.compacted_segments + report.swept.removed_segments >= 1, "{report:?}");
    let kept: Vec<_> = a.generations().into_iter().map(|it| it.number.0).collect();
    assert_eq!(kept, [0, 19, 20]);
    let before = everything(&store);
    let again = reap(&store);
    assert!(again.from_leftovers.bytes < 100_000, "{again:?}");
    assert!(again.after.bytes < 2_000_000, "{again:?}");
    // the checkpoint writes the same again
    assert_eq!(reap(&store).needed, reap(&store).needed);
    assert_eq!(everything(&store), before);
    drop((store, a));
    let store = start(&device);
    assert_eq!(everything(&store), before);
    turn(&find(&store, "a"), 100);
}

#[test]
fn removed_agents_refused_writes_and_old_checkpoints_are_given_back() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    turn(&a, 1);
    let b = create(&store, "b");
    for seed in 100..110 {
        turn(&b, seed);
    }
    // written, and then thrown away
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "refused", &content(7, 500_000));
    a.zone(WORKSPACE, Zone::spill).unwrap().unwrap();
    a.abandon().unwrap();
    for _ in 0..5 {
        store.checkpoint().unwrap();
        turn(&a, 2);
    }
    store.remove(b.id()).unwrap();
    // somebody still looks at it
    let report = reap(&store);
    assert_eq!(read(&b, WORKSPACE, "large").unwrap(), content(109, 200_000));
    assert!(report.from_leftovers.bytes > 500_000, "{report:?}");
    drop(b);
    let_go(&store);
    let report = reap(&store);
    assert!(report.from_leftovers.bytes > 2_000_000, "{report:?}");
    let report = reap(&store);
    assert!(report.after.bytes < 1_000_000, "{report:?}");
    drop((store, a));
    assert_eq!(read(&find(&start(&device), "a"), WORKSPACE, "large").unwrap(), content(2, 200_000));
}

#[test]
fn what_is_in_use_is_not_taken() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for seed in 0..6 {
        turn(&a, seed);
    }
    // a fork of a generation that then goes, and a reader of another
    let child = fork(&store, &a, GenerationNumber(2), "child").unwrap();
    let mut reader = a.zone_at(GenerationNumber(3), WORKSPACE).unwrap();
    // an open turn with changes that no record has: spilled, in memory, and an event of its own
    a.begin(TurnStyle::Transaction, &content(50, 40_000)).unwrap();
    a.fact(&content(51, 40_000)).unwrap();
    write(&a, WORKSPACE, "spilled", &content(52, 300_000));
    a.zone(WORKSPACE, Zone::spill).unwrap().unwrap();
    write(&a, WORKSPACE, "open", &content(53, 300_000));
    sync(&a).unwrap();
    write(&a, WORKSPACE, "after", &content(54, 300_000));
    a.zone(WORKSPACE, |zone| {
        zone.spill().unwrap();
        // an unlinked file that is still open
        let inode =
            zone.open(access(), Inode::ROOT, b"large", OpenOptions { create: false, ..WRITE }).unwrap();
        zone.unlink(access(), Inode::ROOT, b"large").unwrap();
        inode
    });
    let report = store.reap(&keep(0), false).unwrap();
    assert_eq!(report.generations, 5, "the head stays");
    for _ in 0..2 {
        assert_eq!(read_zone(&mut reader)["large"][..], content(2, 200_000));
        assert_eq!(read(&child, WORKSPACE, "large").unwrap(), content(1, 200_000));
        for (name, seed) in [("spilled", 52), ("open", 53), ("after", 54)] {
            assert_eq!(read(&a, WORKSPACE, name).unwrap(), content(seed, 300_000), "{name}");
        }
        reap(&store);
    }
    end(&a, b"done").unwrap();
    let before = everything(&store);
    drop(reader);
    reap(&store);
    assert_eq!(everything(&store), before);
    drop((store, a, child));
    let store = start(&device);
    assert_eq!(everything(&store), before);
    let event = find(&store, "a").last_turn_record().unwrap().event;
    assert_eq!(find(&store, "a").payload(&event).unwrap()[..], content(50, 40_000));
}

#[test]
fn content_that_is_put_again_while_it_goes_is_written_again() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for seed in 0..4 {
        turn(&a, seed);
    }
    let policy = keep(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, stop, a) = (&store, &stop, &a);
        scope.spawn(move || {
            let mut seed = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                turn(a, seed % 4);
                seed += 1;
            }
        });
        for _ in 0..8 {
            store.reap(&policy, false).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let before = everything(&store);
    let large = read(&a, WORKSPACE, "large").unwrap();
    assert!((0..4).any(|seed| large == content(seed, 200_000)));
    drop((store, a));
    let store = start(&device);
    assert_eq!(everything(&store), before);
    assert_eq!(read(&find(&store, "a"), WORKSPACE, "large").unwrap(), large);
}

#[test]
fn policies_take_old_pauses_and_keep_to_a_budget() {
    let device = Simulated::new(1);
    let store = start(&device);
    let (a, b, c) = (create(&store, "a"), create(&store, "b"), create(&store, "c"));
    for seed in 0..8 {
        turn(&a, seed);
        turn(&b, 100 + seed);
        turn(&c, 200 + seed);
    }
    mark(&a).unwrap();
    mark(&c).unwrap();
    let paused = |policy: ReapPolicy| store.reap(&policy, false).unwrap();
    let spare = BTreeSet::from([c.id()]);
    let policy = |keep| ReapPolicy { keep, spare: spare.clone(), ..ReapPolicy::default() };
    let long = Some(Duration::from_hours(1));
    let report =
        paused(policy(KeepPolicy { remove_paused: long, thin_paused: long, ..KeepPolicy::default() }));
    assert_eq!((report.agents.len(), report.generations), (0, 0));
    let now = Some(Duration::ZERO);
    let thin = policy(KeepPolicy { thin_paused: now, ..KeepPolicy::default() });
    assert_eq!(store.reap(&thin, true).unwrap().generations, 8);
    assert_eq!(paused(thin).generations, 8);
    let report = paused(policy(KeepPolicy { remove_paused: now, ..KeepPolicy::default() }));
    assert_eq!(report.agents, [(a.id(), "a".to_owned())]);
    assert!(store.find("a").unwrap().is_none());
    let budget = |budget| ReapPolicy { budget: Some(budget), spare: spare.clone(), ..ReapPolicy::default() };
    let report = paused(budget(u64::MAX));
    assert!(!report.over_budget && report.generations == 0);
    drop(a);
    let_go(&store);
    let needed = reap(&store).needed;
    let report = paused(budget(needed - 300_000));
    assert!(!report.over_budget && report.needed <= needed - 300_000, "{report:?}");
    assert!(b.generations().len() < 9 && b.generations().len() > 2, "{}", b.generations().len());
    let report = paused(budget(1000));
    assert!(report.over_budget);
    assert_eq!(b.generations().len(), 2, "the first and the head");
    assert_eq!(c.generations().len(), 10);
}

/// Work with reapings in it, on a machine that stops at operation `stop`: all that was acknowledged is there.
fn interrupted(seed: u64, stop: u64) -> bool {
    let device = Simulated::new(seed);
    let store = start(&device);
    let mut acknowledged = BTreeMap::new();
    let disks = ["a", "b"].map(|name| create(&store, name));
    device.inject(Fault::Stop(device.operations() + stop));
    let mut rng = Rng::new(seed);
    let mut whole = true;
    for round in 0..10 {
        for disk in &disks {
            let value = rng.below(4);
            disk.begin(TurnStyle::Transaction, b"").unwrap();
            let written = disk.zone(WORKSPACE, |zone| {
                write_zone(zone, "large", &content(value, 30_000))?;
                write_zone(zone, &format!("{}", rng.below(30)), &content(round, 3_000))
            });
            if written.unwrap().is_err() || end(disk, b"").is_err() {
                whole = false;
                break;
            }
            acknowledged.insert(disk.id(), (value, disk.info().unwrap().last_turn));
        }
        let policy = keep(rng.below(3) as usize);
        if !whole || (round % 2 == 1 && store.reap(&policy, false).is_err()) {
            whole = false;
            break;
        }
    }
    drop((store, disks));
    let device = device.crash(seed ^ 0x5eed);
    for _ in 0..2 {
        let store = start(&device);
        assert_eq!(store.damaged().unwrap(), [], "seed {seed}, stop {stop}");
        let shown = see_all(&store);
        assert_eq!(shown.len(), 2);
        for (id, (value, turn)) in &acknowledged {
            let disk = store.disk(*id).unwrap();
            let found = disk.info().unwrap().last_turn;
            assert!(found >= *turn, "seed {seed}, stop {stop}");
            if found == *turn {
                assert_eq!(read(&disk, WORKSPACE, "large").unwrap(), content(*value, 30_000));
            }
        }
        let report = store.reap(&ReapPolicy::default(), false).unwrap();
        assert_eq!(report.damage, [""; 0], "seed {seed}, stop {stop}");
        assert_eq!(see_all(&store), shown, "seed {seed}, stop {stop}");
    }
    whole
}

#[test]
fn a_machine_may_stop_at_any_operation_of_a_reaping() {
    let mut stop = 1;
    let mut seed = 0;
    while !interrupted(seed, stop) {
        stop += 1;
        seed += 1;
        assert!(stop < 2000, "it never ends by itself");
    }
    assert!(stop > 50, "{stop}");
}

#[test]
fn a_full_disk_ends_no_reaping_badly() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for seed in 0..6 {
        turn(&a, seed);
        write(&a, EPISODIC, &format!("kept{seed}"), &content(seed + 50, 50_000));
    }
    sync(&a).unwrap();
    store.checkpoint().unwrap();
    let before = everything(&store);
    let used: u64 = ["log", "segments"]
        .iter()
        .flat_map(|folder| {
            device.list(folder).unwrap().into_iter().map(move |name| format!("{folder}/{name}"))
        })
        .map(|path| device.open(&path, crate::device::Caching::Cached).unwrap().len().unwrap())
        .sum();
    device.inject(Fault::Capacity(used + 40_000));
    let result = store.reap(&keep(1), false);
    let compacted = result.as_ref().map_or(0, |it| it.swept.compacted_segments);
    assert!(result.is_ok_and(|it| it.swept.out_of_space) || a.generations().len() <= 3);
    device.heal();
    assert!(everything(&store) == before || a.generations().len() == 2);
    let report = store.reap(&keep(1), false).unwrap();
    assert!(compacted + report.swept.compacted_segments > 0 && !report.swept.out_of_space, "{report:?}");
    let after = everything(&store);
    drop((store, a));
    assert_eq!(everything(&start(&device)), after);
}

#[test]
fn small_segments_are_joined() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    let mut most = 0;
    for seed in 0..30 {
        write(&a, SEMANTIC, &format!("kept{seed}"), &content(seed, 3_000));
        sync(&a).unwrap();
        most = most.max(reap(&store).after.segments);
    }
    assert!(most < 14, "{most}");
    let before = everything(&store);
    drop((store, a));
    assert_eq!(everything(&start(&device)), before);
}

#[test]
fn turns_beyond_the_latest_are_read_from_pieces() {
    let device = Simulated::new(1);
    let mut store = start(&device);
    create(&store, "a");
    for round in 0..3 {
        let a = find(&store, "a");
        for turn in 0..400u64 {
            a.begin(TurnStyle::Transaction, &turn.to_le_bytes()).unwrap();
            wait(|done| a.end(&content(turn, 600), None, done)).unwrap();
        }
        let history = a.history().unwrap();
        assert_eq!(history.len(), 400 * (round + 1));
        assert!(history.iter().enumerate().all(|(at, it)| it.turn.0 == at as u64 + 1));
        store.checkpoint().unwrap();
        assert_eq!(a.history().unwrap(), history);
        let tail = a.lock().state.history.tail.len();
        assert!(tail <= 260, "{tail} turns in memory");
        assert_eq!(a.last_turn_record().as_ref(), history.last());
        let some = a.history_after(Turn(300), 150).unwrap();
        assert_eq!(some[..], history[300..history.len().min(450)]);
        reap(&store);
        drop((a, store));
        store = start(&device);
        assert_eq!(find(&store, "a").history().unwrap(), history);
    }
}
