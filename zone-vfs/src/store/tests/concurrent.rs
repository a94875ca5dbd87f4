//! Many agents and threads at once, beside checkpoints.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn sixty_four_agents_commit_from_eight_threads_beside_checkpoints() {
    const TURNS: u64 = 20;
    let device = Simulated::new(1);
    let store = start(&device);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| {
            let mut made = 0;
            while !over.load(Ordering::Acquire) || made == 0 {
                store.checkpoint().unwrap();
                made += 1;
            }
        });
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let store = &store;
                scope.spawn(move || {
                    let disks: Vec<_> =
                        (0..8).map(|n| create(store, &format!("agent{worker}-{n}"))).collect();
                    for turn in 0..TURNS {
                        for disk in &disks {
                            disk.begin(TurnStyle::Transaction, b"").unwrap();
                            write(disk, EPISODIC, "diary", format!("{turn},").as_bytes());
                            write(disk, WORKSPACE, "file", &content(turn, 5_000));
                            sync(disk).unwrap();
                            end(disk, b"").unwrap();
                        }
                        let name = format!("fork{worker}-{turn}");
                        let child = fork(store, &disks[0], GenerationNumber(turn + 1), &name).unwrap();
                        if turn % 2 == 0 {
                            store.remove(child.id()).unwrap();
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, Ordering::Release);
        checkpoints.join().unwrap();
    });
    let before = everything(&store);
    assert_eq!(before.len(), 64 + 8 * TURNS as usize / 2);
    drop(store);
    let store = start(&device.crash(1));
    assert_eq!(everything(&store), before);
    let turns: Vec<String> = (0..TURNS).map(|turn| turn.to_string()).collect();
    let diary = format!("{},", turns.join(","));
    assert_eq!(read(&find(&store, "agent7-7"), EPISODIC, "diary").unwrap(), diary.as_bytes());
}

#[test]
fn checkpoints_are_made_when_they_are_due_and_the_log_is_used_again() {
    let device = Simulated::new(1);
    let options = StoreOptions { checkpoint_after: 200 << 10, ..options() };
    let store = Store::on_device(Arc::new(device.clone()), &options).unwrap();
    let a = create(&store, "a");
    let mut smaller = 0;
    let mut last = 0;
    for turn in 0..4_000 {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, SEMANTIC, "file", &content(turn, 2_000));
        end(&a, b"").unwrap();
        let bytes = store.log_bytes().unwrap();
        smaller += u32::from(bytes < last);
        last = bytes;
        // on a busy machine the thread that makes them comes late
        if turn >= 400 && smaller > 0 {
            break;
        }
    }
    store.checkpoint().unwrap();
    assert!(smaller > 0, "no checkpoint was made beside the work");
    assert!(device.list("log").unwrap().len() < 40, "files of the log are used again");
    let before = everything(&store);
    drop(store);
    assert_eq!(everything(&start(&device)), before);
}

#[test]
fn one_commit_of_an_agent_at_a_time_and_no_turn_in_a_turn() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    assert!(matches!(end(&a, b""), Err(StoreError::NoTurn)));
    assert!(matches!(fail(&a, ""), Err(StoreError::NoTurn)));
    assert!(matches!(a.fact(b""), Err(StoreError::NoTurn)));
    a.begin(TurnStyle::Transaction, b"").unwrap();
    assert!(matches!(a.begin(TurnStyle::Transaction, b""), Err(StoreError::Busy)));
    assert!(matches!(mark(&a), Err(StoreError::Busy)));
    assert!(matches!(rewind(&a, GenerationNumber(0)), Err(StoreError::Busy)));
    assert!(matches!(a.release(), Err(StoreError::Busy)));
    let too_large = vec![0; MAX_PAYLOAD + 1];
    assert!(matches!(a.fact(&too_large), Err(StoreError::PayloadTooLarge { .. })));
    let zones = specs().into_iter().cycle().take(MAX_ZONES + 1).collect();
    let refused = store.create(Store::new_id().unwrap(), &new_agent("b"), zones);
    assert!(matches!(refused, Err(StoreError::TooManyZones { .. })));
    // whoever ends a turn from two places gets one end
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| end(&a, b"").is_ok())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ends.iter().filter(|ended| **ended).count(), 1);
    assert!(matches!(rewind(&a, GenerationNumber(9)), Err(StoreError::NoGeneration { .. })));
    drop(store);
    assert!(matches!(sync(&a), Err(StoreError::Closed)));
    assert_eq!(find(&start(&device), "a").generations().len(), 2);
}

/// A checkpoint lets go of what memory has of a zone. It must not take back what the zone counts meanwhile.
#[test]
fn a_turn_that_fails_while_a_checkpoint_is_written_has_given_its_numbers() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    write(&a, SEMANTIC, "fact", &content(1, 20_000));
    sync(&a).unwrap();
    let numbers = |disk: &Disk| disk.zone(SEMANTIC, |zone| zone.next_numbers()).unwrap();
    a.begin(TurnStyle::Transaction, b"event").unwrap();
    // as a checkpoint does it, one thing after the other
    let frozen = catalogue::Frozen::of(&a.lock().state);
    write(&a, SEMANTIC, "gone", b"no more");
    let given = numbers(&a);
    fail(&a, "it broke").unwrap();
    frozen.write(&store.shared().unwrap().segments).unwrap().relieve(&mut a.lock().state);
    assert!(numbers(&a) >= given);
    store.checkpoint().unwrap();
    let crashed = device.crash(1);
    drop((store, a));
    assert!(numbers(&find(&start(&crashed), "a")) >= given, "a number is given twice");
}
