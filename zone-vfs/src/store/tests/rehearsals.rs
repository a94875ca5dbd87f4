//! Facts of turns, and turns that are taken again on a disk of which nothing stays.

use super::*;

fn facts(disk: &Disk, turn: u64) -> Vec<Vec<u8>> {
    let record = disk.history_after(Turn(turn - 1), 1).unwrap().remove(0);
    assert_eq!(record.turn, Turn(turn));
    record.facts.iter().map(|fact| disk.payload(fact).unwrap().to_vec()).collect()
}

#[test]
fn the_facts_of_a_turn_stay_with_it() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    let large = content(3, 40_000);
    a.begin(TurnStyle::Transaction, b"first").unwrap();
    a.fact(b"one").unwrap();
    sync(&a).unwrap();
    a.fact(&large).unwrap();
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"second").unwrap();
    a.fact(b"two").unwrap();
    fail(&a, "it broke").unwrap();
    a.begin(TurnStyle::Transaction, b"third").unwrap();
    a.fact(b"three").unwrap();
    sync(&a).unwrap();
    a.fact(b"nobody has made this durable").unwrap();
    let all = [vec![b"one".to_vec(), large], vec![b"two".to_vec()], vec![b"three".to_vec()]];
    drop((store, a));
    // by the log, and by a checkpoint
    for checkpointed in [false, true] {
        let store = start(&device);
        let a = find(&store, "a");
        if checkpointed {
            store.checkpoint().unwrap();
            store.reap(&ReapPolicy::default(), false).unwrap();
        }
        assert_eq!([facts(&a, 1), facts(&a, 2), facts(&a, 3)], all);
    }
    let store = start(&device);
    assert_eq!(facts(&find(&store, "a"), 1), all[0]);
    // and when the turns are in pieces of history
    let a = find(&store, "a");
    for turn in 4..300 {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        a.fact(format!("of {turn}").as_bytes()).unwrap();
        end(&a, b"").unwrap();
    }
    store.checkpoint().unwrap();
    drop((store, a));
    let store = start(&device);
    let a = find(&store, "a");
    assert_eq!([facts(&a, 1), facts(&a, 2), facts(&a, 3)], all);
    assert_eq!(facts(&a, 299), [b"of 299"]);
}

#[test]
fn of_a_rehearsal_nothing_stays() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"first").unwrap();
    write(&a, SEMANTIC, "fact", b"one");
    write(&a, EPISODIC, "diary", b"one\n");
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"second").unwrap();
    write(&a, SEMANTIC, "fact", b"two");
    write(&a, EPISODIC, "diary", b"two\n");
    end(&a, b"").unwrap();
    let rehearsal = a.rehearse(GenerationNumber(1), Turn(2)).unwrap();
    assert_eq!(rehearsal.begin(TurnStyle::Transaction, b"second").unwrap(), Turn(2));
    assert_eq!(read(&rehearsal, SEMANTIC, "fact").unwrap(), b"one");
    write(&rehearsal, SEMANTIC, "fact", b"two");
    sync(&rehearsal).unwrap();
    write(&rehearsal, EPISODIC, "diary", b"two\n");
    write(&rehearsal, WORKSPACE, "large", &content(1, 50_000));
    // a reaping beside it takes nothing that it needs
    let few = KeepGenerations { turns: 0, sides: 0, pauses: 0 };
    store.reap(&ReapPolicy::keeping(few), false).unwrap();
    end(&rehearsal, b"").unwrap();
    assert_eq!(read(&rehearsal, WORKSPACE, "large").unwrap(), content(1, 50_000));
    let differs = a.differences_to(GenerationNumber(2), &rehearsal).unwrap();
    let files: Vec<_> = differs.iter().flat_map(|zone| &zone.files).map(|it| it.path.clone()).collect();
    assert_eq!(files, [b"large".to_vec()]);
    assert!(matches!(a.rehearse(GenerationNumber(9), Turn(3)), Err(StoreError::NoGeneration { .. })));
    drop(rehearsal);
    assert_eq!(read(&a, WORKSPACE, "large"), None);
    assert_eq!(read(&a, EPISODIC, "diary").unwrap(), b"one\ntwo\n");
    drop((store, a));
    let store = start(&device);
    let a = find(&store, "a");
    assert_eq!(read(&a, WORKSPACE, "large"), None);
    assert_eq!(read(&a, SEMANTIC, "fact").unwrap(), b"two");
    assert_eq!((a.head(), a.info().unwrap().last_turn), (GenerationNumber(2), Turn(2)));
}

#[test]
fn a_rehearsal_that_syncs_and_forgets_leaves_locks_and_files_alone() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, SEMANTIC, "secret", b"of the agent's");
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    a.try_lock(WORKSPACE, Inode::ROOT, 1, LockKind::Exclusive).unwrap().unwrap();
    let rehearsal = a.rehearse(GenerationNumber(1), Turn(2)).unwrap();
    rehearsal.begin(TurnStyle::Transaction, b"").unwrap();
    let forgotten = rehearsal.zone(SEMANTIC, |zone| {
        let file = zone.find_past(access(), b"secret").unwrap();
        zone.forget(access(), file).unwrap()
    });
    assert!(forgotten.unwrap().contents > 0);
    fail(&rehearsal, "it broke").unwrap();
    rehearsal.release().unwrap();
    assert!(a.try_lock(WORKSPACE, Inode::ROOT, 2, LockKind::Shared).unwrap().is_err(), "it is held");
    end(&a, b"").unwrap();
    store.reap(&ReapPolicy::default(), false).unwrap();
    assert_eq!(read(&a, SEMANTIC, "secret").unwrap(), b"of the agent's");
}
