//! Errors of the device: failed writes and flushes, failed reads, and bytes that rot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::log::CommitError;

/// A bit of everything, with a checkpoint in the middle. Stops at the first error.
fn work(store: &Store) -> Result<(), StoreError> {
    let a = store.create(AgentId(Uuid::from_u128(1)), &new_agent("a"), specs())?;
    let b = store.create(AgentId(Uuid::from_u128(2)), &new_agent("b"), specs())?;
    for turn in 0..4u64 {
        for disk in [&a, &b] {
            disk.begin(TurnStyle::Transaction, b"event")?;
            let file = |zone: &mut Zone| write_zone(zone, &format!("f{turn}"), &content(turn, 18_000));
            disk.zone(SEMANTIC, file).transpose()?;
            disk.zone(EPISODIC, |zone| write_zone(zone, "diary", b"a line\n")).transpose()?;
            sync(disk)?;
            end(disk, b"done")?;
        }
        if turn == 1 {
            store.checkpoint()?;
        }
    }
    store.checkpoint()?;
    fork(store, &a, GenerationNumber(1), "c")?;
    mark(&b)?;
    Ok(())
}

fn is_poisoned<T>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::Zone(e)) => e.to_string().contains("poisoned"),
        Err(e) => e.to_string().contains("poisoned"),
        Ok(_) => false,
    }
}

#[test]
fn a_failed_write_or_flush_poisons_the_store_until_it_is_opened_anew() {
    let probe = Simulated::new(1);
    let store = start(&probe);
    let begun = (probe.writes(), probe.flushes());
    work(&store).unwrap();
    let writes = (begun.0 + 1..=probe.writes()).map(Fault::Write);
    let flushes = (begun.1 + 1..=probe.flushes()).map(Fault::Flush);
    for fault in writes.chain(flushes) {
        let device = Simulated::new(1);
        let store = start(&device);
        device.inject(fault);
        assert!(work(&store).is_err(), "{fault:?} is noticed");
        device.heal();
        let seen = see_all(&store);
        assert!(store.checkpoint().is_err(), "{fault:?}: no checkpoint");
        let new = store.create(AgentId(Uuid::from_u128(9)), &new_agent("new"), specs());
        assert!(is_poisoned(new), "{fault:?}: nothing more is taken");
        for name in seen.keys() {
            let disk = find(&store, name);
            disk.abandon().unwrap();
            assert!(matches!(sync(&disk), Err(StoreError::Commit(CommitError::Poisoned(_)))), "{fault:?}");
        }
        drop(store);
        for device in [device.killed(), device.crash(1)] {
            let store = start(&device);
            assert!(seen.keys().all(|name| store.find(name).unwrap().is_some()));
            create(&store, "new");
            store.checkpoint().unwrap();
        }
    }
}

/// A store that was closed or not, and what it looks like; and what it looked like before its last
/// commit.
fn base(seed: u64) -> (Simulated, BTreeMap<String, Seen>, BTreeMap<String, Seen>) {
    let device = Simulated::new(seed);
    let store = start(&device);
    work(&store).unwrap();
    let before = see_all(&store);
    let a = find(&store, "a");
    write(&a, WORKSPACE, "last", &content(seed, 50 + (seed as usize % 3) * 9_000));
    sync(&a).unwrap();
    let after = see_all(&store);
    if seed.is_multiple_of(2) {
        store.close().unwrap();
    }
    (device.crash(seed), before, after)
}

#[test]
fn a_read_that_fails_while_the_store_is_opened_destroys_nothing() {
    for seed in 0..4 {
        let (device, _, expected) = base(seed);
        let probe = device.killed();
        see_all(&start(&probe));
        let mut refused = 0;
        for read in 1..=probe.reads() {
            let device = device.killed();
            device.inject(Fault::Read(read));
            let found = try_start(&device).and_then(|store| try_see_all(&store));
            match found {
                Ok(found) => assert_eq!(found, expected, "seed {seed}, read {read}"),
                Err(_) => refused += 1,
            }
            device.heal();
            let device = if read % 2 == 0 { device.crash(read) } else { device };
            assert_eq!(see_all(&start(&device)), expected, "seed {seed}, after read {read} had failed");
        }
        assert!(refused > 0, "no read that failed was noticed");
    }
}

/// What may happen to stored bytes by themselves.
fn rot(rng: &mut Rng, bytes: &mut Vec<u8>) -> String {
    const SECTOR: usize = crate::device::simulated::SECTOR;
    let at = rng.below(bytes.len() as u64) as usize;
    let sector = at - at % SECTOR..(at - at % SECTOR + SECTOR).min(bytes.len());
    match rng.below(10) {
        0 => {
            bytes[sector].fill(0);
            format!("zeros at {at}")
        }
        1 => {
            rng.fill(&mut bytes[sector]);
            format!("noise at {at}")
        }
        2 => {
            bytes.truncate(at);
            format!("cut off at {at}")
        }
        _ => {
            bytes[at] ^= 1 << rng.below(8);
            format!("another bit at {at}")
        }
    }
}

/// The agents of a store, and what can be read of them; none may be missing without a word.
fn look(
    device: &Simulated,
    expected: &BTreeMap<String, Seen>,
) -> Result<BTreeMap<String, Option<Seen>>, StoreError> {
    let store = try_start(device)?;
    let agents = store.agents()?;
    assert!(agents.iter().map(|(name, _)| name).eq(expected.keys()), "other agents");
    let seen = |id| store.disk(id).and_then(|disk| try_see(&disk)).ok();
    Ok(agents.into_iter().map(|(name, id)| (name, seen(id))).collect())
}

#[test]
fn bytes_that_rot_are_never_taken_for_what_was_stored() {
    let (mut noticed, mut harmless) = (0, 0);
    for seed in 0..4 {
        let (device, before, expected) = base(seed);
        let mut rng = Rng::new(seed);
        let paths: Vec<String> = ["", "log", "segments"]
            .iter()
            .flat_map(|folder| {
                let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                device.list(folder).unwrap().into_iter().map(move |name| format!("{prefix}{name}"))
            })
            .collect();
        for _ in 0..wanted() / 16 {
            let path = &paths[rng.below(paths.len() as u64) as usize];
            let device = device.killed();
            let mut what = String::new();
            device.tamper(path, |bytes| what = rot(&mut rng, bytes)).unwrap();
            let what = format!("seed {seed}, {path}: {what}");
            let found = catch_unwind(AssertUnwindSafe(|| look(&device, &expected)));
            let Ok(found) = found.unwrap_or_else(|_| panic!("{what}: a panic")) else {
                noticed += 1;
                continue;
            };
            // what can be read is right, whatever has happened to others
            let is = |wanted: &BTreeMap<String, Seen>| {
                found.iter().all(|(name, seen)| seen.is_none() || seen.as_ref() == wanted.get(name))
            };
            // a damaged last group cannot be told from one that was being written
            let is_right = is(&expected) || (path.starts_with("log/") && is(&before));
            assert!(is_right, "{what}: something else is there");
            if found.values().all(Option::is_some) {
                harmless += 1;
            } else {
                noticed += 1;
            }
        }
    }
    assert!(noticed > 20 && harmless > 20, "{noticed} noticed, {harmless} harmless");
}
