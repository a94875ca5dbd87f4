//! Zones that several agents mount.

use std::collections::BTreeMap;

use super::*;
use crate::device::Caching;
use crate::device::simulated::{Fault, Rng};
use crate::zone::ErrorCode;

/// The mount of the shared zone among [`specs`].
pub const TEAM: u16 = KINDS.len() as u16;

pub fn with_mount(zone: SharedId, writable: bool) -> Vec<ZoneSpec> {
    let mount = ZoneSpec {
        name: "team".into(),
        mount: "/team".into(),
        kind: ZoneKind::Shared,
        quota: Quota::default(),
        shared: Some(SharedMount { zone, writable }),
    };
    specs().into_iter().chain([mount]).collect()
}

pub fn create_in(store: &Store, name: &str, zone: SharedId, writable: bool) -> Arc<Disk> {
    store.create(Store::new_id().unwrap(), &new_agent(name), with_mount(zone, writable)).unwrap()
}

fn team(store: &Store) -> SharedZone {
    store.shared_zone(store.find_shared("team").unwrap().expect("team")).unwrap()
}

fn held(store: &Store) -> Files {
    team(store).zone(read_zone).unwrap()
}

fn settle(store: &Store) -> Result<(), StoreError> {
    let zone = team(store);
    wait(|done| zone.sync(done))
}

pub fn write_team(store: &Store, name: &str, content: &[u8]) {
    team(store).zone(|zone| write_zone(zone, name, content)).unwrap().unwrap();
    settle(store).unwrap();
}

fn begin(disk: &Disk) {
    disk.begin(TurnStyle::Transaction, b"event").unwrap();
}

fn code<T>(result: Result<T, ZoneError>) -> ErrorCode {
    result.err().expect("it was permitted").code
}

#[test]
fn changes_are_seen_at_once_and_no_mount_takes_them_back() {
    let device = Simulated::new(1);
    let store = start(&device);
    let id = store.create_shared("team", Quota::default()).unwrap();
    let (a, b) = (create_in(&store, "a", id, true), create_in(&store, "b", id, true));
    begin(&a);
    write(&a, TEAM, "plan", b"one");
    assert_eq!(read(&b, TEAM, "plan").unwrap(), b"one");
    write(&b, TEAM, "plan", b"two");
    assert_eq!(read(&a, TEAM, "plan").unwrap(), b"two");
    write(&a, WORKSPACE, "own", b"x");
    fail(&a, "it broke").unwrap();
    assert_eq!(read(&a, WORKSPACE, "own"), None);
    assert_eq!(read(&a, TEAM, "plan").unwrap(), b"two", "a failed turn leaves it");
    begin(&a);
    write(&a, TEAM, "more", b"three");
    end(&a, b"reply").unwrap();
    rewind(&a, GenerationNumber(0)).unwrap();
    assert_eq!(read(&a, TEAM, "more").unwrap(), b"three", "a rewind leaves it");
    begin(&a);
    write(&a, TEAM, "given up", b"four");
    a.abandon().unwrap();
    assert_eq!(read(&b, TEAM, "given up").unwrap(), b"four");
    // generations hold nothing of it
    let generation = a.generation(GenerationNumber(1)).unwrap();
    assert_eq!(generation.roots[usize::from(TEAM)].usage().inodes, 0);
    assert!(
        matches!(a.zone_at(GenerationNumber(1), TEAM), Err(StoreError::NoPast { zone }) if zone == "team")
    );
    // a fork has the same mount
    let child = fork(&store, &a, GenerationNumber(1), "child").unwrap();
    write(&child, TEAM, "plan", b"five");
    assert_eq!(read(&b, TEAM, "plan").unwrap(), b"five");
    assert_eq!(a.info().unwrap().zones, child.info().unwrap().zones);

    settle(&store).unwrap();
    let before = held(&store);
    let all = everything(&store);
    let crashed = device.crash(1);
    drop((store, a, b, child));
    let store = start(&crashed);
    assert_eq!(everything(&store), all);
    assert_eq!(held(&store), before);
    store.checkpoint().unwrap();
    store.close().unwrap();
    let store = start(&crashed);
    assert_eq!(read_zone_of(&store, "child"), before);
    assert_eq!(held(&store), before);
}

fn read_zone_of(store: &Store, agent: &str) -> Files {
    find(store, agent).zone(TEAM, read_zone).unwrap()
}

#[test]
fn a_turn_is_acknowledged_when_all_that_it_has_seen_is_durable() {
    for seed in 0..40 {
        let device = Simulated::new(seed);
        let store = start(&device);
        let id = store.create_shared("team", Quota::default()).unwrap();
        let (a, b) = (create_in(&store, "a", id, true), create_in(&store, "b", id, false));
        let large = content(seed, 60_000);
        begin(&a);
        begin(&b);
        write(&a, TEAM, "plan", &large);
        let crashed = if seed % 2 == 0 {
            end(&a, b"written").unwrap();
            device.crash(seed)
        } else {
            // it wrote nothing, and yet it will remember
            assert_eq!(read(&b, TEAM, "plan").unwrap(), large);
            if seed % 4 == 1 { end(&b, b"read").map(|_| ()) } else { sync(&b) }.unwrap();
            device.crash(seed)
        };
        drop((store, a, b));
        assert_eq!(**held(&start(&crashed))["plan"], *large, "seed {seed}");
    }
}

#[test]
fn a_mount_for_reading_takes_all_writing_away() {
    let store = start(&Simulated::new(1));
    let id = store.create_shared("team", Quota::default()).unwrap();
    let (a, b) = (create_in(&store, "a", id, true), create_in(&store, "b", id, false));
    write(&a, TEAM, "plan", b"one");
    let refused = b.zone(TEAM, |zone| write_zone(zone, "plan", b"two")).unwrap();
    assert_eq!(code(refused), ErrorCode::ReadOnly);
    let made = b.zone(TEAM, |zone| zone.mkdir(access(), Inode::ROOT, b"folder")).unwrap();
    assert_eq!(code(made), ErrorCode::ReadOnly);
    // whoever asks, and by a file that another has open for writing, too
    let inode = a.zone(TEAM, |zone| zone.open(access(), Inode::ROOT, b"plan", WRITE)).unwrap().unwrap();
    let host = Access::new(Principal::Host, Timestamp(1));
    let written = b.zone(TEAM, |zone| zone.write(host, inode, 0, b"x")).unwrap();
    assert!(written.is_err());
    assert_eq!(a.zone(TEAM, |zone| zone.write(access(), inode, 0, b"1")).unwrap().unwrap(), 1);
    assert_eq!(read(&b, TEAM, "plan").unwrap(), b"1ne");
    let child = fork(&store, &b, GenerationNumber(0), "child").unwrap();
    assert_eq!(code(child.zone(TEAM, |zone| write_zone(zone, "plan", b"two")).unwrap()), ErrorCode::ReadOnly);
}

#[test]
fn a_file_without_a_name_lives_while_a_mount_has_it_open() {
    let device = Simulated::new(1);
    let store = start(&device);
    let id = store.create_shared("team", Quota::default()).unwrap();
    let (a, b) = (create_in(&store, "a", id, true), create_in(&store, "b", id, true));
    let open = |disk: &Disk, name: &[u8]| {
        disk.zone(TEAM, |zone| zone.open(access(), Inode::ROOT, name, WRITE)).unwrap().unwrap()
    };
    let unlink = |disk: &Disk, name: &[u8]| {
        disk.zone(TEAM, |z| z.unlink(access(), Inode::ROOT, name)).unwrap().unwrap();
    };
    let size =
        |disk: &Disk, inode| disk.zone(TEAM, |zone| zone.stat(access(), inode)).unwrap().map(|s| s.size);
    let close = |disk: &Disk, inode| disk.zone(TEAM, |zone| zone.close(inode)).unwrap();
    write(&a, TEAM, "file", b"content");
    let inode = open(&a, b"file");
    assert_eq!(code(close(&b, inode)), ErrorCode::BadDescriptor, "another's");
    assert_eq!(open(&b, b"file"), inode);
    unlink(&b, b"file");
    close(&a, inode).unwrap();
    assert_eq!(code(close(&a, inode)), ErrorCode::BadDescriptor);
    assert_eq!(size(&b, inode).unwrap(), 7);
    // whoever sleeps has nothing open, also when a turn fails or is given up
    b.release().unwrap();
    assert_eq!(code(size(&b, inode)), ErrorCode::NoEntry);
    assert_eq!(team(&store).zone(|z| z.usage().bytes).unwrap(), 0);
    for ending in 0..3 {
        begin(&a);
        let inode = open(&a, b"file");
        unlink(&a, b"file");
        match ending {
            0 => drop(fail(&a, "it broke").unwrap()),
            1 => a.abandon().unwrap(),
            _ => {
                end(&a, b"").unwrap();
                store.remove(a.id()).unwrap();
            }
        }
        assert_eq!(code(size(&b, inode)), ErrorCode::NoEntry, "{ending}");
    }
    // the operator, too
    let operator = team(&store);
    let inode = operator.zone(|z| z.open(access(), Inode::ROOT, b"file", WRITE)).unwrap().unwrap();
    unlink(&b, b"file");
    assert_eq!(size(&b, inode).unwrap(), 0);
    drop(operator);
    assert_eq!(code(size(&b, inode)), ErrorCode::NoEntry);
    // and nobody has anything open after a crash
    write(&b, TEAM, "file", b"content");
    let inode = open(&b, b"file");
    unlink(&b, b"file");
    sync(&b).unwrap();
    for checkpoint in [false, true] {
        if checkpoint {
            store.checkpoint().unwrap();
        }
        let store = start(&device.crash(1));
        assert_eq!(code(size(&find(&store, "b"), inode)), ErrorCode::NoEntry);
        assert_eq!(team(&store).zone(|z| z.usage()).unwrap().inodes, 0);
    }
}

#[test]
fn its_quota_is_its_own() {
    let store = start(&Simulated::new(1));
    let id = store.create_shared("team", Quota { bytes: 10, inodes: 2 }).unwrap();
    let (a, b) = (create_in(&store, "a", id, true), create_in(&store, "b", id, true));
    write(&a, TEAM, "one", b"12345");
    assert_eq!(code(b.zone(TEAM, |zone| write_zone(zone, "two", b"123456")).unwrap()), ErrorCode::Quota);
    let made = a.zone(TEAM, |zone| zone.mkdir(access(), Inode::ROOT, b"folder")).unwrap();
    assert_eq!(code(made), ErrorCode::Quota);
    assert_eq!(a.info().unwrap().bytes, 0, "it is nobody's");
    let [info] = &store.shared_zones().unwrap()[..] else { panic!("one zone") };
    let (usage, quota) = info.usage.as_ref().unwrap();
    assert_eq!((usage.bytes, usage.inodes, quota.bytes), (5, 2, 10));
    let by: Vec<_> = info.mounted_by.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((info.name.as_str(), info.id, by), ("team", id, vec!["a", "b"]));
}

#[test]
fn it_is_removed_by_name_alone_and_not_while_it_is_mounted() {
    let device = Simulated::new(1);
    let mut store = start(&device);
    let id = store.create_shared("team", Quota::default()).unwrap();
    assert!(matches!(store.create_shared("team", Quota::default()), Err(StoreError::SharedNameTaken(_))));
    create(&store, "team"); // another space of names
    for round in 0..3 {
        if round == 1 {
            store.checkpoint().unwrap();
        }
        store = start(&device.killed());
        let a = create_in(&store, "a", id, true);
        write(&a, TEAM, "file", round.to_string().as_bytes());
        let refused = store.remove_shared(id).unwrap_err();
        assert_eq!(refused.to_string(), "the shared zone `team` is mounted by a");
        store.remove(a.id()).unwrap();
        assert_eq!(**held(&store)["file"], *round.to_string().as_bytes());
    }
    let operator = team(&store);
    store.remove_shared(id).unwrap();
    assert_eq!(operator.zone(|_| ()), None);
    assert!(matches!(store.remove_shared(id), Err(StoreError::NoSharedZone(_))));
    assert!(matches!(store.shared_zone(id), Err(StoreError::NoSharedZone(_))));
    assert!(store.find_shared("team").unwrap().is_none());
    let made = store.create(Store::new_id().unwrap(), &new_agent("a"), with_mount(id, true));
    assert!(matches!(made, Err(StoreError::NoSharedZone(_))));
    assert!(matches!(store.disk(AgentId(id.0)), Err(StoreError::NoAgent(_))));
    let again = store.create_shared("team", Quota::default()).unwrap();
    assert_ne!(again, id);
    assert!(matches!(store.disk(AgentId(again.0)), Err(StoreError::NoAgent(_))), "it is no agent");
    store.checkpoint().unwrap();
    assert_eq!(store.shared_zones().unwrap().len(), 1);
    assert!(held(&store).is_empty());
}

#[test]
fn only_mounts_are_zones_of_that_kind() {
    let store = start(&Simulated::new(1));
    let id = store.create_shared("team", Quota::default()).unwrap();
    let mut without = with_mount(id, true);
    without[usize::from(TEAM)].shared = None;
    let mut other = with_mount(id, true);
    other[usize::from(TEAM)].kind = ZoneKind::Workspace;
    for zones in [without, other] {
        let made = store.create(Store::new_id().unwrap(), &new_agent("a"), zones);
        assert!(matches!(made, Err(StoreError::NotAMount { zone }) if zone == "team"));
    }
    create(&store, "a"); // the name was not lost
}

#[test]
fn a_full_disk_refuses_the_turn_and_nothing_of_the_zone_is_lost() {
    let device = Simulated::new(1);
    let store = start(&device);
    let id = store.create_shared("team", Quota::default()).unwrap();
    let (a, b) = (create_in(&store, "a", id, true), create_in(&store, "b", id, true));
    let used: u64 = ["log", "segments"]
        .iter()
        .flat_map(|folder| {
            let names = device.list(folder).unwrap().into_iter();
            names.map(move |name| format!("{folder}/{name}"))
        })
        .map(|path| device.open(&path, Caching::Cached).unwrap().len().unwrap())
        .sum();
    device.inject(Fault::Capacity(used));
    begin(&a);
    let refused = (0..200).find_map(|number| {
        write(&a, TEAM, &format!("file{number}"), &content(number, 3_000));
        settle(&store).err().map(|e| (number, e))
    });
    let (number, e) = refused.expect("the disk is full");
    assert!(e.is_no_space(), "{e}");
    assert!(e.to_string().starts_with("the shared zone `team`: "), "{e}");
    assert!(end(&a, b"").unwrap_err().is_no_space());
    a.abandon().unwrap();
    assert_eq!(read(&b, TEAM, &format!("file{number}")).unwrap(), content(number, 3_000), "it is seen");
    assert!(settle(&store).unwrap_err().is_no_space(), "and not durable");
    begin(&b);
    assert!(read(&b, TEAM, "file0").is_some());
    assert!(end(&b, b"").unwrap_err().is_no_space());
    device.heal();
    end(&b, b"").unwrap();
    let crashed = device.crash(3);
    let before = held(&store);
    drop((store, a, b));
    assert_eq!(held(&start(&crashed)), before);
}

#[test]
fn what_was_not_waited_for_is_committed_when_the_store_is_closed() {
    for way in 0..2 {
        let device = Simulated::new(way);
        let store = start(&device);
        let id = store.create_shared("team", Quota::default()).unwrap();
        let a = create_in(&store, "a", id, true);
        for number in 0..20 {
            write(&a, TEAM, &format!("file{number}"), b"x");
        }
        if way == 0 {
            store.close().unwrap();
        } else {
            drop(store);
        }
        assert!(matches!(sync(&a), Err(StoreError::Closed)));
        write(&a, TEAM, "late", b"x");
        assert!(matches!(sync(&a), Err(StoreError::Closed)), "what is not durable is not said to be");
        assert_eq!(held(&start(&device.crash(1))).len(), 20);
    }
}

/// Random operations through two mounts: after a crash, at any operation of the device, the zone stands as after some
/// prefix of the operations, which includes all that was acknowledged.
#[test]
fn after_a_crash_it_stands_as_after_a_prefix_of_its_operations() {
    let runs: u64 = std::env::var("DORMOUSE_SHARED_CRASHES").map_or(150, |n| n.parse().unwrap());
    for seed in 0..runs {
        let device = Simulated::new(seed);
        let store = start(&device);
        let id = store.create_shared("team", Quota::default()).unwrap();
        let agents = [create_in(&store, "a", id, true), create_in(&store, "b", id, true)];
        for agent in &agents {
            begin(agent);
        }
        let mut rng = Rng::new(seed);
        device.inject(Fault::Stop(device.operations() + 1 + rng.below(60)));
        let mut model: BTreeMap<String, Arc<Vec<u8>>> = BTreeMap::new();
        let mut states = vec![model.clone()];
        let mut acknowledged = 0;
        'run: for _ in 0..100 {
            let agent = &agents[rng.below(2) as usize];
            let name = format!("file{}", rng.below(6));
            match rng.below(10) {
                0..6 => {
                    let bytes = content(rng.below(1_000), rng.below(5_000) as usize);
                    // two operations: one that empties it, one that fills it
                    let replaced = agent.zone(TEAM, |zone| {
                        let options = OpenOptions { truncate: true, ..WRITE };
                        let inode = zone.open(access(), Inode::ROOT, name.as_bytes(), options)?;
                        zone.append(access(), inode, &bytes)?;
                        zone.close(inode)
                    });
                    if replaced.unwrap().is_err() {
                        break 'run; // the device has stopped
                    }
                    model.insert(name, Arc::new(bytes));
                }
                6..8 => {
                    let to = format!("file{}", rng.below(6));
                    if !model.contains_key(&name) || to == name {
                        continue;
                    }
                    let (from, into) = (name.as_bytes(), to.as_bytes());
                    let renamed =
                        agent.zone(TEAM, |z| z.rename(access(), (Inode::ROOT, from), (Inode::ROOT, into)));
                    if renamed.unwrap().is_err() {
                        break 'run;
                    }
                    let file = model.remove(&name).unwrap();
                    model.insert(to, file);
                }
                8 => {
                    // a sync covers what its agent has seen
                    agent.zone(TEAM, |zone| zone.usage());
                    let waited = if rng.below(2) == 0 { sync(agent) } else { settle(&store) };
                    if waited.is_err() {
                        break 'run;
                    }
                    acknowledged = states.len() - 1;
                    continue;
                }
                _ => {
                    if store.checkpoint().is_err() {
                        break 'run;
                    }
                    continue;
                }
            }
            states.push(model.clone());
        }
        let crashed = device.crash(seed);
        drop((store, agents));
        let found = held(&start(&crashed));
        let at = states.iter().rposition(|state| *state == found);
        assert!(
            at.is_some_and(|at| at >= acknowledged),
            "seed {seed}: {at:?} of {acknowledged} acknowledged"
        );
    }
}

#[test]
fn many_agents_append_at_once_beside_checkpoints_and_nothing_is_lost_or_torn() {
    const AGENTS: usize = 6;
    const TURNS: usize = 30;
    let device = Simulated::new(1);
    let store = start(&device);
    let id = store.create_shared("team", Quota::default()).unwrap();
    std::thread::scope(|scope| {
        for agent in 0..AGENTS {
            let store = &store;
            scope.spawn(move || {
                let disk = create_in(store, &format!("agent{agent}"), id, true);
                for turn in 0..TURNS {
                    begin(&disk);
                    let line = format!("{agent}:{turn}\n");
                    disk.zone(TEAM, |zone| {
                        let inode = zone.open(access(), Inode::ROOT, b"lines", WRITE).unwrap();
                        zone.append(access(), inode, line.as_bytes()).unwrap();
                        zone.close(inode).unwrap();
                    });
                    if turn % 3 == 0 { fail(&disk, "").map(|_| ()) } else { end(&disk, b"").map(|_| ()) }
                        .unwrap();
                    if turn % 10 == 0 {
                        store.checkpoint().unwrap();
                    }
                }
            });
        }
    });
    settle(&store).unwrap();
    let crashed = device.crash(1);
    drop(store);
    let files = held(&start(&crashed));
    let text = String::from_utf8(files["lines"].to_vec()).unwrap();
    for agent in 0..AGENTS {
        let prefix = format!("{agent}:");
        let turns: Vec<usize> = text.lines().filter_map(|l| l.strip_prefix(&prefix)?.parse().ok()).collect();
        assert_eq!(turns, (0..TURNS).collect::<Vec<_>>(), "agent {agent}");
    }
    assert_eq!(text.lines().count(), AGENTS * TURNS);
}

#[test]
fn a_generation_tells_how_far_its_agent_has_seen_shared_zones() {
    let device = Simulated::new(1);
    let store = start(&device);
    let team = store.create_shared("team", Quota::default()).unwrap();
    let a = create_in(&store, "a", team, true);
    let seen = |disk: &Disk, number: u64| disk.generation(GenerationNumber(number)).unwrap().seen.to_vec();
    let turn = |disk: &Arc<Disk>, uses: bool| {
        disk.begin(TurnStyle::Transaction, b"").unwrap();
        if uses {
            disk.zone(TEAM, read_zone).unwrap();
        }
        end(disk, b"").unwrap();
    };
    turn(&a, false);
    assert_eq!(seen(&a, 1), [], "it has looked at nothing");
    write_team(&store, "plan", b"one");
    turn(&a, true);
    let first = seen(&a, 2);
    let [SeenMount { zone: TEAM, .. }] = first[..] else { panic!("{first:?}") };
    write_team(&store, "plan", b"two");
    turn(&a, false);
    assert_eq!(seen(&a, 3), first, "it does not know of that");
    turn(&a, true);
    let second = seen(&a, 4);
    assert!((second[0].epoch, second[0].sequence) > (first[0].epoch, first[0].sequence), "{second:?}");
    // what it has seen it has seen, wherever its memory goes
    rewind(&a, GenerationNumber(2)).unwrap();
    assert_eq!(seen(&a, 5), second);
    drop((store, a));
    for _ in 0..2 {
        let store = start(&device);
        let a = find(&store, "a");
        assert_eq!((seen(&a, 1), seen(&a, 3), seen(&a, 5)), (Vec::new(), first.clone(), second.clone()));
        store.checkpoint().unwrap();
    }
}
