//! Too few file descriptors are no damage: whatever needs one is refused, says what to do, and goes well later.

use std::error::Error;

use super::*;
use crate::device::simulated::Fault;

fn filled(device: &Simulated) -> BTreeMap<String, Seen> {
    let store = start(device);
    for (number, name) in (0..).zip(["a", "b", "c"]) {
        let agent = create(&store, name);
        agent.begin(TurnStyle::Transaction, &content(number, 20_000)).unwrap();
        write(&agent, WORKSPACE, "large", &content(10 + number, 150_000));
        write(&agent, SEMANTIC, "facts", &content(20 + number, 9_000));
        end(&agent, b"done").unwrap();
    }
    let seen = see_all(&store);
    store.close().unwrap();
    seen
}

fn all_said(error: &StoreError) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        said = format!("{said}: {error}");
        source = error.source();
    }
    said
}

#[track_caller]
fn is_refused<T>(result: Result<T, StoreError>) {
    let Err(error) = result else { panic!("it went well without a file") };
    assert!(error.is_shortage() && !error.is_of_one_agent(), "{error}");
    let said = all_said(&error);
    assert!(said.contains("nothing is damaged: raise the limit of open files, ulimit -n"), "{said}");
}

#[test]
fn a_store_that_can_open_no_file_refuses_and_names_nobody_as_damaged() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let store = start(&device);
    let damaged = Cell::new(0);
    device.inject(Fault::Descriptors(0));
    for (_, id) in store.agents().unwrap() {
        // what it needs may be in a file that is open
        if let refused @ Err(_) = store.disk(id) {
            is_refused(refused);
        }
    }
    for repair in [false, true] {
        is_refused(store.scrub(repair, &mut |_| damaged.set(damaged.get() + 1)));
    }
    for dry_run in [false, true] {
        is_refused(store.reap(&ReapPolicy::default(), dry_run));
    }
    is_refused(store.backup(&mut Vec::new(), None, &mut |_| Ok(Vec::new())));
    let other = device.killed();
    other.inject(Fault::Descriptors(0));
    is_refused(try_start(&other));
    assert_eq!((store.damaged().unwrap(), damaged.get()), (Vec::new(), 0));
    device.heal();
    assert_eq!(see_all(&store), expected);
    let report = store.scrub(true, &mut |it| panic!("{it:?}")).unwrap();
    assert!(report.is_sound() && device.list("quarantine").unwrap().is_empty());
    store.reap(&ReapPolicy::default(), false).unwrap();
    drop(store);
    assert_eq!(see_all(&start(&device.crash(1))), expected);
}

/// One file less than is needed, wherever that is met first.
#[test]
fn files_that_run_out_in_the_middle_harm_nothing() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let mut refused = 0;
    for allowed in 0.. {
        let device = device.killed();
        device.inject(Fault::Descriptors(allowed));
        let worked = try_start(&device).and_then(|store| {
            let report = store.scrub(true, &mut |it| panic!("{allowed}: {it:?}"))?;
            assert!(report.is_sound());
            store.reap(&ReapPolicy::default(), false)?;
            Ok(())
        });
        device.heal();
        assert!(device.list("quarantine").unwrap().is_empty(), "{allowed}");
        assert_eq!(see_all(&start(&device.crash(allowed))), expected, "{allowed}");
        match worked {
            Ok(()) => break,
            worked => is_refused(worked),
        }
        refused += 1;
    }
    assert!(refused > 10, "{refused}");
}

/// Turns, checkpoints, forgetting and reaping, with one file less than each of them needs: what is refused is told why,
/// and goes well afterwards in the same store.
#[test]
fn files_that_run_out_while_agents_work_poison_nothing() {
    let begun = Simulated::new(1);
    filled(&begun);
    let mut refused = 0;
    for allowed in 0.. {
        let device = begun.killed();
        let store = start(&device);
        let agents = ["a", "b"].map(|name| find(&store, name));
        device.inject(Fault::Descriptors(device.opened() + allowed));
        let (mut last, mut lacked) = ([None, None], false);
        let mut goes_well = |result: Result<(), StoreError>| {
            let went_well = result.is_ok();
            if !went_well {
                is_refused(result);
                lacked = true;
            }
            went_well
        };
        for round in 0..6 {
            for (agent, last) in agents.iter().zip(&mut last) {
                // one that could not be ended goes on
                let _ = agent.begin(TurnStyle::Transaction, b"event");
                let text = content(40 + round, 30_000);
                let wrote = agent.zone(WORKSPACE, |zone| write_zone(zone, "later", &text)).unwrap();
                *last = goes_well(wrote.map_err(Into::into)).then_some(text);
                goes_well(end(agent, b"done").map(drop));
            }
            goes_well(store.checkpoint());
        }
        goes_well(store.reap(&ReapPolicy::default(), false).map(drop));
        device.heal();
        for (agent, last) in agents.iter().zip(last) {
            if last.is_some() {
                assert_eq!(read(agent, WORKSPACE, "later"), last, "{allowed}");
            }
            let _ = agent.begin(TurnStyle::Transaction, b"event");
            write(agent, WORKSPACE, "after", b"all is well");
            end(agent, b"done").unwrap();
        }
        store.checkpoint().unwrap();
        store.reap(&ReapPolicy::default(), false).unwrap();
        let expected = see_all(&store);
        drop((agents, store));
        assert_eq!(see_all(&start(&device.crash(allowed))), expected, "{allowed}");
        if !lacked {
            break;
        }
        refused += 1;
    }
    assert!(refused > 10, "{refused}");
}

/// A device that fails to read says so of itself; nothing else is called damaged.
#[test]
fn a_scrub_says_of_what_the_device_fails_to_read_that_it_does() {
    let device = Simulated::new(1);
    filled(&device);
    let mut told = 0;
    for read in 1.. {
        let device = device.killed();
        let store = start(&device);
        let begun = device.reads();
        device.inject(Fault::Read(begun + read));
        let mut findings = Vec::new();
        let scrubbed = store.scrub(false, &mut |it| findings.push(it.clone()));
        if scrubbed.is_ok() && device.reads() < begun + read {
            break;
        }
        for finding in &findings {
            if let Finding::Segment { reason, .. } = finding {
                assert!(reason.contains("the device failed"), "read {read}: {reason}");
                told += 1;
            }
        }
    }
    assert!(told > 3, "{told}");
}

/// The bytes and names of all files, and how often something was written.
fn footprint(device: &Simulated) -> (u64, u64, u64) {
    (device.fingerprint(), device.writes(), device.bytes())
}

#[test]
fn who_only_looks_writes_nothing_and_keeps_the_reserve() {
    let device = Simulated::new(1);
    filled(&device);
    let options = StoreOptions { reserve: 64 << 10, ..options() };
    let store = Store::on_device(Arc::new(device.clone()), &options).unwrap();
    let a = find(&store, "a");
    // some of it in the log alone, some in memory alone
    a.begin(TurnStyle::Transaction, b"event").unwrap();
    write(&a, WORKSPACE, "later", &content(30, 90_000));
    end(&a, b"done").unwrap();
    write(&find(&store, "b"), SEMANTIC, "draft", &content(31, 90_000));
    device.inject(Fault::Capacity(device.bytes()));
    let before = footprint(&device);
    let keep = KeepGenerations { turns: 0, ..KeepGenerations::default() };
    let policy = ReapPolicy {
        keep: KeepPolicy { generations: keep, ..KeepPolicy::default() },
        ..ReapPolicy::default()
    };
    let dry = store.reap(&policy, true).unwrap();
    assert!(store.scrub(false, &mut |it| panic!("{it:?}")).unwrap().is_sound());
    assert_eq!(footprint(&device), before);
    // and says what is then done
    device.heal();
    let done = store.reap(&policy, false).unwrap();
    assert_eq!((dry.generations, dry.from_generations), (done.generations, done.from_generations));
    assert!(done.generations > 0 && dry.damage.is_empty());
}

/// A crash has torn the newest segment, and there is no room for the footer that would say what is left of it.
#[test]
fn a_torn_segment_that_found_no_room_for_its_footer_is_no_damage() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let newest = device.list("segments").unwrap().pop().unwrap();
    // what was written and not flushed, of which some is missing
    device
        .tamper(&format!("segments/{newest}"), |bytes| bytes.extend([&[0; 700][..], &[7; 90]].concat()))
        .unwrap();
    device.inject(Fault::Capacity(device.bytes()));
    let store = start(&device);
    let mut findings = Vec::new();
    store.scrub(false, &mut |it| findings.push(it.clone())).unwrap();
    assert_eq!(findings, []);
    // what is lost of it later is
    device.heal();
    device.tamper(&format!("segments/{newest}"), |bytes| bytes[100] ^= 1).unwrap();
    store.scrub(false, &mut |it| findings.push(it.clone())).unwrap();
    assert!(!findings.is_empty());
    device.tamper(&format!("segments/{newest}"), |bytes| bytes[100] ^= 1).unwrap();
    drop(store);
    assert_eq!(see_all(&start(&device)), expected);
}
