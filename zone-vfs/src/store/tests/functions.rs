//! Turns, generations and rewinds by example; after each, the store is opened again and is the same.

use super::*;

/// The store on every device that this machine has.
fn on_every_device(test: impl Fn(&dyn Fn() -> Store)) {
    let simulated = Simulated::new(3);
    test(&|| start(&simulated));
    for kind in [crate::device::DeviceKind::Blocking, crate::device::DeviceKind::Best] {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { device: kind, ..options() };
        test(&|| Store::open(&folder.path().join("store"), &options).unwrap());
    }
}

/// Opens the store again, and again after a checkpoint: everything is the same.
fn again(store: Store, open: &dyn Fn() -> Store) -> Store {
    let before = everything(&store);
    drop(store);
    let store = open();
    assert_eq!(everything(&store), before, "from the log");
    store.checkpoint().unwrap();
    assert_eq!(everything(&store), before, "a checkpoint changes nothing");
    drop(store);
    let store = open();
    assert_eq!(everything(&store), before, "from the catalogue");
    store
}

#[test]
fn turns_end_and_are_there_after_every_opening() {
    on_every_device(|open| {
        let store = open();
        create(&store, "a");
        let mut store = again(store, open);
        for turn in 1..=4u64 {
            let a = find(&store, "a");
            assert_eq!(a.begin(TurnStyle::Transaction, b"event").unwrap().0, turn);
            write(&a, EPISODIC, "diary", b"line\n");
            write(&a, SEMANTIC, "fact", &content(turn, 300));
            write(&a, WORKSPACE, "large", &content(turn, 200_000));
            assert_eq!(end(&a, b"done").unwrap().0, turn);
            store = again(store, open);
        }
        let a = find(&store, "a");
        assert_eq!(read(&a, EPISODIC, "diary").unwrap(), b"line\nline\nline\nline\n");
        assert_eq!(read(&a, WORKSPACE, "large").unwrap(), content(4, 200_000));
        let second = read_zone(&mut a.zone_at(GenerationNumber(2), WORKSPACE).unwrap());
        assert_eq!(*second["large"], content(2, 200_000));
        assert_eq!(a.history().unwrap().len(), 4);
        assert_eq!(a.last_turn_record().unwrap().outcome, Outcome::Ended(Payload::Inline(b"done".to_vec())));
    });
}

#[test]
fn a_failed_transaction_goes_back_and_a_failed_process_does_not() {
    on_every_device(|open| {
        let store = open();
        for (name, style) in [("transaction", TurnStyle::Transaction), ("process", TurnStyle::Process)] {
            let a = create(&store, name);
            a.begin(style, b"").unwrap();
            write(&a, EPISODIC, "diary", b"synced ");
            write(&a, WORKSPACE, "file", b"synced");
            sync(&a).unwrap();
            write(&a, EPISODIC, "diary", b"unsynced");
            write(&a, LOGS, "log", b"unsynced");
            write(&a, WORKSPACE, "file", b"unsynced");
            fail(&a, "it broke").unwrap();
        }
        let store = again(store, open);
        let transaction = find(&store, "transaction");
        assert_eq!(read(&transaction, EPISODIC, "diary").unwrap(), b"synced ");
        assert_eq!(read(&transaction, LOGS, "log").unwrap(), b"unsynced", "logs stay");
        assert_eq!(read(&transaction, WORKSPACE, "file"), None);
        let side = transaction.generation(GenerationNumber(1)).unwrap();
        assert_eq!(side.cause, Cause::Side("it broke".into()));
        let beside = read_zone(&mut transaction.zone_at(side.number, WORKSPACE).unwrap());
        assert_eq!(**beside["file"], *b"unsynced");
        assert_eq!(transaction.info().unwrap().head, GenerationNumber(0), "a side generation is no head");
        let process = find(&store, "process");
        assert_eq!(read(&process, EPISODIC, "diary").unwrap(), b"synced unsynced");
        assert_eq!(read(&process, WORKSPACE, "file").unwrap(), b"unsynced");
        assert_eq!(process.generations().len(), 1);
        let outcome = Outcome::Failed("it broke".into());
        assert!([transaction, process].iter().all(|a| a.last_turn_record().unwrap().outcome == outcome));
    });
}

#[test]
fn a_turn_whose_host_stopped_is_interrupted() {
    on_every_device(|open| {
        let store = open();
        for name in ["unsynced", "synced", "checkpointed"] {
            let a = create(&store, name);
            a.begin(TurnStyle::Transaction, b"").unwrap();
            write(&a, EPISODIC, "diary", b"one ");
            write(&a, SEMANTIC, "fact", b"new");
            if name != "unsynced" {
                sync(&a).unwrap();
                write(&a, EPISODIC, "diary", b"two");
            }
        }
        store.checkpoint().unwrap();
        let synced = find(&store, "synced");
        wait(|done| synced.set_about(b"more", done)).unwrap();
        drop(store);
        let store = open();
        let unsynced = find(&store, "unsynced");
        assert_eq!(read(&unsynced, EPISODIC, "diary"), None);
        assert!(unsynced.history().unwrap().is_empty());
        for (name, diary) in [("synced", &b"one two"[..]), ("checkpointed", b"one ")] {
            let a = find(&store, name);
            assert_eq!(read(&a, EPISODIC, "diary").unwrap(), diary, "{name}: synced appends stay");
            assert_eq!(read(&a, SEMANTIC, "fact"), None, "{name}: went back");
            let side = a.generation(GenerationNumber(1)).unwrap();
            assert!(matches!(side.cause, Cause::Side(_)));
            assert_eq!(**read_zone(&mut a.zone_at(side.number, SEMANTIC).unwrap())["fact"], *b"new");
            assert!(matches!(a.last_turn_record().unwrap().outcome, Outcome::Failed(_)));
            // the next turn goes on from there
            a.begin(TurnStyle::Transaction, b"").unwrap();
            write(&a, SEMANTIC, "fact", b"newer");
            assert_eq!(end(&a, b"").unwrap(), GenerationNumber(2));
        }
        again(store, open);
    });
}

#[test]
fn what_is_abandoned_stays_gone() {
    on_every_device(|open| {
        let store = open();
        let a = create(&store, "a");
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, WORKSPACE, "file", b"synced");
        sync(&a).unwrap();
        write(&a, WORKSPACE, "file", b"more");
        a.abandon().unwrap();
        assert_eq!(read(&a, WORKSPACE, "file"), None);
        assert!(matches!(a.generation(GenerationNumber(1)).unwrap().cause, Cause::Side(_)));
        let store = again(store, open);
        let a = find(&store, "a");
        write(&a, WORKSPACE, "operator", b"x");
        a.abandon().unwrap();
        // what follows builds on what stood before
        assert_eq!(mark(&a).unwrap(), GenerationNumber(2));
        write(&a, WORKSPACE, "operator", b"y");
        sync(&a).unwrap();
        let store = again(store, open);
        assert_eq!(read(&find(&store, "a"), WORKSPACE, "operator").unwrap(), b"y");
    });
}

#[test]
fn after_abandon_the_log_and_the_open_store_agree() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "file", b"synced");
    sync(&a).unwrap();
    a.abandon().unwrap();
    mark(&a).unwrap();
    write(&a, WORKSPACE, "other", b"x");
    sync(&a).unwrap();
    let before = everything(&store);
    drop(store);
    assert_eq!(everything(&start(&device)), before);
}

#[test]
fn data_about_an_agent_and_marks_take_what_was_written_with_them() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    write(&a, WORKSPACE, "operator", b"1");
    wait(|done| a.set_about(b"new", done)).unwrap();
    write(&a, WORKSPACE, "operator", b"2");
    let marked = mark(&a).unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "agent", b"3");
    wait(|done| a.set_about(b"newer", done)).unwrap();
    store.checkpoint().unwrap();
    write(&a, WORKSPACE, "agent", b"4");
    end(&a, b"").unwrap();
    let before = everything(&store);
    drop(store);
    let store = start(&device);
    assert_eq!(everything(&store), before);
    let a = find(&store, "a");
    assert_eq!(read(&a, WORKSPACE, "operator").unwrap(), b"2");
    assert_eq!(read(&a, WORKSPACE, "agent").unwrap(), b"4");
    assert_eq!(**read_zone(&mut a.zone_at(marked, WORKSPACE).unwrap())["operator"], *b"2");
    assert_eq!(a.info().unwrap().about[..], *b"newer");
}

#[test]
fn a_rewind_moves_what_its_contract_moves() {
    on_every_device(|open| {
        let store = open();
        let a = create(&store, "a");
        for turn in 1..=3u64 {
            a.begin(TurnStyle::Transaction, b"").unwrap();
            for zone in [EPISODIC, SEMANTIC, WORKSPACE, LOGS] {
                write(&a, zone, "file", format!("{turn}").as_bytes());
            }
            end(&a, b"").unwrap();
        }
        assert_eq!(rewind(&a, GenerationNumber(1)).unwrap(), GenerationNumber(4));
        let stands =
            |a: &Disk| [EPISODIC, SEMANTIC, WORKSPACE, LOGS].map(|zone| read(a, zone, "file").unwrap());
        let expected = [&b"123"[..], b"1", b"1", b"123"];
        assert_eq!(stands(&a), expected);
        let store = again(store, open);
        let a = find(&store, "a");
        assert_eq!(stands(&a), expected);
        assert_eq!(a.history().unwrap().len(), 3, "a rewind forgets no turn");
        assert_eq!(a.generation(GenerationNumber(4)).unwrap().cause, Cause::Rewound(GenerationNumber(1)));
        // forward again: nothing was lost
        rewind(&a, GenerationNumber(3)).unwrap();
        assert_eq!(stands(&a), [&b"123"[..], b"3", b"3", b"123"]);
        again(store, open);
    });
}

#[test]
fn generations_of_turns_are_kept_up_to_the_limit_and_others_without() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    let marked = mark(&a).unwrap();
    for _ in 0..KEPT_TURN_GENERATIONS + 20 {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        end(&a, b"").unwrap();
    }
    assert_eq!(a.generations().len(), KEPT_TURN_GENERATIONS + 2);
    assert!(a.generation(marked).is_ok());
    assert!(matches!(a.generation(marked.next()), Err(StoreError::NoGeneration { .. })));
    again(store, &|| start(&device));
}

#[test]
fn large_turns_are_cut_into_records_and_read_back() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, &content(1, 300_000)).unwrap();
    for number in 0..700u64 {
        // 10 MiB of facts: more than a record may be
        a.fact(&content(number, 15_000)).unwrap();
    }
    for number in 0..40u64 {
        write(&a, WORKSPACE, &format!("file{number}"), &content(number, 40_000));
    }
    end(&a, &content(2, 100_000)).unwrap();
    assert!(a.info().unwrap().sequence.0 > 100, "many records");
    let store = again(store, &|| start(&device));
    let a = find(&store, "a");
    assert_eq!(read(&a, WORKSPACE, "file39").unwrap(), content(39, 40_000));
    let last = a.last_turn_record().unwrap();
    assert_eq!(a.payload(&last.event).unwrap()[..], content(1, 300_000));
}
