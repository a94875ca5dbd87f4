//! Errors of the device: failed writes and flushes, failed reads, and bytes that rot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::shared::{TEAM, with_mount};
use super::*;

/// A bit of everything, with a checkpoint in the middle. Stops at the first error.
fn work(store: &Store) -> Result<(), StoreError> {
    let team = store.create_shared("team", Quota::default())?;
    let a = store.create(AgentId(Uuid::from_u128(1)), &new_agent("a"), specs())?;
    let b = store.create(AgentId(Uuid::from_u128(2)), &new_agent("b"), with_mount(team, true))?;
    for turn in 0..4u64 {
        for disk in [&a, &b] {
            disk.begin(TurnStyle::Transaction, b"event")?;
            let file = |zone: &mut Zone| write_zone(zone, &format!("f{turn}"), &content(turn, 18_000));
            disk.zone(SEMANTIC, file).transpose()?;
            disk.zone(EPISODIC, |zone| write_zone(zone, "diary", b"a line\n")).transpose()?;
            sync(disk)?;
            end(disk, b"done")?;
        }
        let file = |zone: &mut Zone| write_zone(zone, &format!("f{turn}"), &content(turn * 5, 9_000));
        b.zone(TEAM, file).transpose()?;
        sync(&b)?;
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
            assert!(is_poisoned(sync(&disk)), "{fault:?}: {name} is told");
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

/// A store that was closed or not, and what it looked like before its last commit and after.
fn base(seed: u64) -> (Simulated, World, World) {
    let device = Simulated::new(seed);
    let store = start(&device);
    work(&store).unwrap();
    let before = World::try_of(&store).unwrap();
    let a = find(&store, "a");
    write(&a, WORKSPACE, "last", &content(seed, 50 + (seed as usize % 3) * 9_000));
    sync(&a).unwrap();
    let after = World::try_of(&store).unwrap();
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
        World::try_of(&start(&probe)).unwrap();
        let mut refused = 0;
        for read in 1..=probe.reads() {
            let device = device.killed();
            device.inject(Fault::Read(read));
            let found = try_start(&device).and_then(|store| World::try_of(&store));
            match found {
                Ok(found) => assert_eq!(found, expected, "seed {seed}, read {read}"),
                Err(_) => refused += 1,
            }
            device.heal();
            let device = if read % 2 == 0 { device.crash(read) } else { device };
            let again = World::try_of(&start(&device)).unwrap();
            assert_eq!(again, expected, "seed {seed}, after read {read} had failed");
        }
        assert!(refused > 0, "no read that failed was noticed");
    }
}

/// Each read of a rewind fails once. Were the rewind durable by then, and not in memory, the next generation would
/// have a number that the log has given already.
#[test]
fn a_read_that_fails_in_a_rewind_leaves_the_agent_where_it_was() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for turn in 0..4 {
        a.begin(TurnStyle::Transaction, b"event").unwrap();
        for file in 0..30 {
            write(&a, SEMANTIC, &format!("f{file}"), &content(turn * 100 + file, 900));
        }
        if turn == 2 { fail(&a, "it broke") } else { end(&a, b"done") }.unwrap();
    }
    store.checkpoint().unwrap();
    let (before, side) = (see(&a), GenerationNumber(3));
    drop((store, a));
    for read in 1.. {
        let device = device.killed();
        let store = start(&device);
        let a = find(&store, "a");
        let reads = device.reads();
        device.inject(Fault::Read(reads + read));
        let rewound = rewind(&a, side);
        device.heal();
        if rewound.is_ok() {
            assert!(device.reads() < reads + read && read > 4, "{read} reads");
            break;
        }
        assert_eq!(see(&a), before, "read {read}");
        rewind(&a, side).unwrap();
        mark(&a).unwrap();
        let after = see(&a);
        drop((store, a));
        assert_eq!(see(&find(&start(&device.crash(read)), "a")), after, "read {read}");
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

/// What can be read of each agent and each shared zone of a store.
#[derive(PartialEq, Eq, Debug)]
struct Rest {
    agents: BTreeMap<String, Option<Seen>>,
    teams: BTreeMap<String, Option<Files>>,
}

impl Rest {
    /// None may be missing without a word.
    fn of(store: &Store, expected: &World) -> Result<Self, StoreError> {
        let agents = store.agents()?;
        assert!(agents.iter().map(|(name, _)| name).eq(expected.agents.keys()), "other agents");
        let teams = store.shared_zones()?;
        assert!(teams.iter().map(|it| &it.name).eq(expected.teams.keys()), "other shared zones");
        let seen = |id| store.disk(id).and_then(|disk| try_see(&disk)).ok();
        let read = |id| store.shared_zone(id).ok().and_then(|zone| zone.zone(try_read_zone)?.ok());
        Ok(Self {
            agents: agents.into_iter().map(|(name, id)| (name, seen(id))).collect(),
            teams: teams.into_iter().map(|it| (it.name, read(it.id))).collect(),
        })
    }

    /// Whether all that can be read is as it should be.
    fn is(&self, wanted: &World) -> bool {
        let teams = |name: &String| wanted.teams.get(name).map(|it| &it.files);
        self.agents.iter().all(|(name, seen)| seen.is_none() || seen.as_ref() == wanted.agents.get(name))
            && self.teams.iter().all(|(name, files)| files.is_none() || files.as_ref() == teams(name))
    }

    fn is_whole(&self) -> bool {
        self.agents.values().all(Option::is_some) && self.teams.values().all(Option::is_some)
    }

    /// Those of which something cannot be read.
    fn damaged(&self) -> impl Iterator<Item = &String> {
        let agents = self.agents.iter().filter(|(_, seen)| seen.is_none()).map(|(name, _)| name);
        agents.chain(self.teams.iter().filter(|(_, files)| files.is_none()).map(|(name, _)| name))
    }
}

/// The files of an agent, as it stands, that are there and whose content does not read.
fn unreadable(store: &Store, name: &str, expected: &World) -> Vec<(String, String)> {
    let Ok(disk) = store.find(name).and_then(|id| store.disk(id.unwrap())) else { return Vec::new() };
    let mut found = Vec::new();
    for (index, files) in expected.agents[name].zones.iter().enumerate() {
        for path in files.keys().filter(|path| !path.ends_with('/')) {
            let reads = disk.zone(index as u16, |zone| {
                let options = OpenOptions { read: true, ..OpenOptions::default() };
                let Ok(file) = zone.open(access(), Inode::ROOT, path.as_bytes(), options) else {
                    return true;
                };
                let reads = zone.read(access(), file, 0, &mut vec![0; files[path].len()]).is_ok();
                zone.close(file).unwrap();
                reads
            });
            if reads == Some(false) {
                found.push((format!("{:?}", KINDS[index]), format!("/{path}")));
            }
        }
    }
    found
}

/// A scrub names everybody of whom something does not read, and the files; a repair makes nothing worse.
fn scrubbed(device: &Simulated, expected: &World, what: &str) {
    let Ok(store) = try_start(device) else { return };
    let Ok(rest) = Rest::of(&store, expected) else { return };
    let mut damage = Vec::new();
    let mut note = |finding: &Finding| {
        if let Finding::Agent(it) = finding {
            damage.push(it.clone());
        }
    };
    // an error names no one, and is one: of the list of agents, say
    let Ok(report) = store.scrub(false, &mut note) else { return };
    assert!(report.findings > 0 || rest.is_whole(), "{what}: nothing was found");
    for name in rest.damaged() {
        let of = |it: &&Damage| it.agent.as_ref().is_none_or(|(_, of)| of == name);
        assert!(damage.iter().any(|it| of(&it)), "{what}: {name} is not named in {damage:?}");
        if expected.agents.contains_key(name) {
            for (zone, path) in unreadable(&store, name, expected) {
                // of what hangs on a node no path is known
                let is_it = |it: &&Damage| {
                    it.zone.as_ref() == Some(&zone) && it.path.as_ref().is_none_or(|of| *of == path)
                };
                let named = damage.iter().filter(of).any(|it| is_it(&it));
                assert!(named, "{what}: {path} of {name} is not named in {damage:?}");
            }
        }
    }
    let sound = store.scrub(true, &mut |_| {}).is_ok();
    if sound {
        let after = Rest::of(&store, expected).unwrap();
        let better = after.damaged().all(|name| rest.damaged().any(|it| it == name)) && after.is(expected);
        assert!(better, "{what}: a repair has made it worse");
        drop(store);
        let again = Rest::of(&start(&device.crash(1)), expected).unwrap();
        assert!(again.is(expected), "{what}: after a repair something else is there");
    }
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
        for number in 0..wanted() / 16 {
            let path = &paths[rng.below(paths.len() as u64) as usize];
            let device = device.killed();
            let mut what = String::new();
            device.tamper(path, |bytes| what = rot(&mut rng, bytes)).unwrap();
            let what = format!("seed {seed}, {path}: {what}");
            let found = catch_unwind(AssertUnwindSafe(|| {
                let rest = Rest::of(&try_start(&device)?, &expected)?;
                if number % 4 == 0 && rest.is(&expected) {
                    scrubbed(&device.killed(), &expected, &what);
                }
                Ok::<_, StoreError>(rest)
            }));
            let Ok(found) = found.unwrap_or_else(|_| panic!("{what}: a panic")) else {
                noticed += 1;
                continue;
            };
            // a damaged last group cannot be told from one that was being written
            let is_right = found.is(&expected) || (path.starts_with("log/") && found.is(&before));
            assert!(is_right, "{what}: something else is there");
            if found.is_whole() {
                harmless += 1;
            } else {
                noticed += 1;
            }
        }
    }
    assert!(noticed > 20 && harmless > 20, "{noticed} noticed, {harmless} harmless");
}
