//! What is damaged of one agent is that agent's; the others serve.

use super::*;
use crate::chunks::{ChunkError, ChunkStore};
use crate::device::Caching;
use crate::segment::Swept;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Agents with content of their own, half of it in a checkpoint, half in the log.
fn filled(device: &Simulated) {
    let store = start(device);
    for (number, name) in NAMES.iter().enumerate() {
        let disk = create(&store, name);
        for turn in 0..3 {
            disk.begin(TurnStyle::Transaction, &content(turn, 20_000)).unwrap();
            // sizes differ, or the agents would share the frames of their change feeds
            write(&disk, EPISODIC, "diary", name.repeat(number + 1).as_bytes());
            write(&disk, WORKSPACE, "large", &content(number as u64 * 10 + turn, 150_000 + number));
            end(&disk, b"done").unwrap();
        }
    }
    store.checkpoint().unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let disk = find(&store, name);
        disk.begin(TurnStyle::Transaction, b"").unwrap();
        write(&disk, WORKSPACE, "more", &content(number as u64, 3_000 + number));
        end(&disk, b"done").unwrap();
    }
}

/// Every frame: its file, where it begins, and its address.
fn frames(device: &Simulated) -> Vec<(String, usize, Hash)> {
    let mut found = Vec::new();
    for name in device.list("segments").unwrap() {
        let path = format!("segments/{name}");
        let bytes = content_of(device, &path);
        for at in (0..bytes.len().saturating_sub(84)).filter(|at| bytes[*at..].starts_with(b"dFrm")) {
            let mut hash = [0; 32];
            hash.copy_from_slice(&bytes[at + 48..at + 80]);
            found.push((path.clone(), at, Hash(hash)));
        }
    }
    found
}

fn content_of(device: &Simulated, path: &str) -> Vec<u8> {
    let file = device.open(path, Caching::Cached).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What of the agents can be read: for each that can be opened, whether all of it can.
fn readable(store: &Store) -> BTreeMap<String, bool> {
    let segments = &store.shared().unwrap().segments;
    let mut found = BTreeMap::new();
    for (name, id) in store.agents().unwrap() {
        let Ok(disk) = store.disk(id) else { continue };
        let roots: Vec<_> = disk.generations().into_iter().flat_map(|it| it.roots).collect();
        let all = roots.iter().all(|root| {
            let mut whole = root.digest(&**segments).is_ok();
            // the chunks, which a digest does not read
            let visited = root.addresses(&**segments, &mut |_, hash| {
                whole &= segments.get(&hash).is_ok();
                true
            });
            whole && visited.is_ok()
        });
        found.insert(name, all);
    }
    found
}

#[test]
fn no_damaged_frame_keeps_a_store_from_opening() {
    let device = Simulated::new(1);
    filled(&device);
    let frames = frames(&device);
    assert!(frames.len() > 40);
    let (mut opened_less, mut read_less) = (0, 0);
    for (path, frame, _) in frames {
        let device = device.killed();
        device.tamper(&path, |bytes| bytes[frame + 50] ^= 0x10).unwrap();
        let store = start(&device);
        assert_eq!(store.agents().unwrap().len(), NAMES.len(), "frame at {frame}");
        let found = readable(&store);
        opened_less += NAMES.len() - found.len();
        read_less += found.values().filter(|whole| !**whole).count();
        let whole = found.values().filter(|whole| **whole).count();
        assert!(whole >= NAMES.len() - 1, "frame at {frame}: {found:?}");
        store.checkpoint().unwrap();
        let fresh = create(&store, "fresh");
        sync(&fresh).unwrap();
        drop((store, fresh));
        let store = start(&device);
        let again: Vec<_> = readable(&store).into_iter().filter(|(name, _)| name != "fresh").collect();
        assert_eq!(again, found.into_iter().collect::<Vec<_>>(), "a checkpoint makes it no worse");
    }
    assert!(opened_less > 3 && read_less > 3, "{opened_less} {read_less}");
}

#[test]
fn lost_segments_take_no_record_with_them() {
    let device = Simulated::new(1);
    filled(&device);
    let before = {
        let device = device.killed();
        let store = start(&device);
        everything(&store)
    };
    // the list of agents is in a later segment than all else
    let store = start(&device);
    store.shared().unwrap().segments.watch(true).unwrap();
    store.shared().unwrap().segments.unwatch();
    let old: Vec<String> =
        device.list("segments").unwrap().iter().map(|name| format!("segments/{name}")).collect();
    create(&store, "e");
    store.checkpoint().unwrap();
    store.remove(store.find("e").unwrap().unwrap()).unwrap();
    drop(store);
    let kept: Vec<_> = old.iter().map(|path| (path, content_of(&device, path))).collect();
    for path in &old {
        device.remove(path).unwrap();
    }
    for _ in 0..2 {
        let store = start(&device);
        let damaged = store.damaged().unwrap();
        let unreadable = NAMES.iter().filter(|name| {
            let id = store.find(name).unwrap().unwrap();
            store.disk(id).is_err() || !readable(&store)[**name]
        });
        assert_eq!(unreadable.count(), NAMES.len(), "{damaged:?}");
        store.checkpoint().unwrap();
    }
    // copies of them turn up
    for (path, bytes) in kept {
        device.create(path, 0, Caching::Cached).unwrap().write_at(0, &bytes).unwrap();
    }
    let store = start(&device);
    assert_eq!(store.damaged().unwrap(), []);
    assert_eq!(everything(&store), before);
}

#[test]
fn damaged_agents_and_forks_of_theirs_wait_for_what_is_missing() {
    let device = Simulated::new(1);
    let (parent, child) = {
        let store = start(&device);
        let parent = create(&store, "parent");
        parent.begin(TurnStyle::Transaction, b"").unwrap();
        for file in 0..200 {
            write(&parent, WORKSPACE, &format!("file{file}"), b"content");
        }
        end(&parent, b"").unwrap();
        create(&store, "bystander");
        store.checkpoint().unwrap();
        parent.begin(TurnStyle::Transaction, b"").unwrap();
        write(&parent, WORKSPACE, "file7", b"changed");
        let at = end(&parent, b"").unwrap();
        let child = fork(&store, &parent, at, "child").unwrap();
        write(&child, WORKSPACE, "file9", b"its own");
        sync(&child).unwrap();
        (parent.id(), child.id())
    };
    let before = everything(&start(&device.killed()));
    // a node of the parent's tree that replay changes
    let lost = {
        let store = start(&device.killed());
        let segments = store.shared().unwrap().segments.clone();
        let disk = store.disk(parent).unwrap();
        let root = disk.generation(GenerationNumber(1)).unwrap().roots[usize::from(WORKSPACE)].clone();
        root.store(&*segments).unwrap().hash
    };
    let (path, at, _) = frames(&device).into_iter().find(|it| it.2 == lost).unwrap();
    let flip = |device: &Simulated| device.tamper(&path, |bytes| bytes[at + 90] ^= 1).unwrap();
    flip(&device);
    for _ in 0..3 {
        let store = start(&device);
        let damaged: Vec<_> = store.damaged().unwrap().into_iter().map(|it| it.id).collect();
        assert_eq!(damaged, [child, parent]);
        assert!(matches!(store.disk(child), Err(StoreError::DamagedAgent { .. })));
        find(&store, "bystander");
        store.checkpoint().unwrap();
        let policy = ReapPolicy::default();
        let report = store.reap(&policy, false).unwrap();
        let nothing = Swept { held_segments: report.swept.held_segments, ..Swept::default() };
        assert!(!report.damage.is_empty() && report.swept == nothing, "{report:?}");
        assert!(nothing.held_segments > 0);
    }
    let healed = device.killed();
    flip(&healed);
    let store = start(&healed);
    assert_eq!(store.damaged().unwrap(), []);
    let find_child = find(&store, "child");
    assert_eq!(read(&find_child, WORKSPACE, "file9").unwrap(), b"its own");
    assert_eq!(everything(&store), before);
    // or they are given up
    let store = start(&device);
    store.remove(parent).unwrap();
    store.remove(child).unwrap();
    for store in [store, start(&device)] {
        let names: Vec<_> = store.agents().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["bystander"]);
        store.checkpoint().unwrap();
    }
    let store = start(&device);
    assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().damage, [""; 0]);
    create(&store, "parent");
}

#[test]
fn the_list_of_agents_is_there_twice() {
    let device = Simulated::new(1);
    filled(&device);
    let before = everything(&start(&device.killed()));
    let hash = crate::superblock::SuperblockFile::peek(&device).unwrap().catalogue.unwrap();
    let places: Vec<_> = frames(&device).into_iter().filter(|it| it.2 == hash).collect();
    assert_eq!(places.len(), 2);
    let damage = |device: &Simulated, (path, at, _): &(String, usize, Hash)| {
        device.tamper(path, |bytes| bytes[at + 90] ^= 1).unwrap();
    };
    for place in &places {
        let device = device.killed();
        damage(&device, place);
        assert_eq!(everything(&start(&device)), before);
    }
    for place in &places {
        damage(&device, place);
    }
    assert!(matches!(try_start(&device), Err(StoreError::Chunk(ChunkError::Damaged { .. }))));
}

/// Turns that leave much behind that nothing needs.
fn busy(disk: &Arc<Disk>, seed: u64) {
    for turn in 0..10 {
        disk.begin(TurnStyle::Transaction, b"").unwrap();
        write(disk, WORKSPACE, "large", &content(seed + turn, 200_000));
        end(disk, b"").unwrap();
    }
}

#[test]
fn damage_holds_back_what_was_stored_before_it_and_no_more() {
    let device = Simulated::new(1);
    let policy = ReapPolicy::keeping(KeepGenerations { turns: 1, sides: 0, ..KeepGenerations::default() });
    let (lost, id) = {
        let store = start(&device);
        let hurt = create(&store, "hurt");
        hurt.begin(TurnStyle::Transaction, b"").unwrap();
        for file in 0..200 {
            write(&hurt, WORKSPACE, &format!("file{file}"), &content(file, 3_000));
        }
        let at = end(&hurt, b"").unwrap();
        let segments = store.shared().unwrap().segments.clone();
        let root = hurt.generation(at).unwrap().roots[usize::from(WORKSPACE)].clone();
        let lost = root.store(&*segments).unwrap().hash;
        store.checkpoint().unwrap();
        (lost, hurt.id())
    };
    let before = see(&start(&device.killed()).disk(id).unwrap());
    let (path, at, _) = frames(&device).into_iter().find(|it| it.2 == lost).unwrap();
    let flip = |device: &Simulated| device.tamper(&path, |bytes| bytes[at + 90] ^= 1).unwrap();
    flip(&device);
    let mut freed = 0;
    for round in 0..4 {
        let store = start(&device);
        let other = if round == 0 { create(&store, "other") } else { find(&store, "other") };
        if round > 0 {
            busy(&other, round * 100);
        }
        let dry = store.reap(&policy, true).unwrap();
        let report = store.reap(&policy, false).unwrap();
        assert!(!report.damage.is_empty() && report.swept.held_segments > 0, "{report:?}");
        assert!(dry.swept.held_segments > 0, "{dry:?}");
        assert_eq!(report.swept.removed_bytes > 0, round > 0, "round {round}: {report:?}");
        freed += report.swept.removed_bytes;
        assert_eq!(
            read(&other, WORKSPACE, "large").map_or(0, |it| it.len()),
            if round > 0 { 200_000 } else { 0 }
        );
    }
    assert!(freed > 3 * 9 * 200_000, "{freed}");
    // all of it is there when the frame reads again
    let healed = device.killed();
    flip(&healed);
    let store = start(&healed);
    assert_eq!(see(&store.disk(id).unwrap()), before);
    assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().damage, [""; 0]);
    assert_eq!(see(&store.disk(id).unwrap()), before);
    // a note that does not read, or of another store, frees nothing
    let spoilt = device.killed();
    spoilt.tamper("held", |bytes| bytes[25] ^= 1).unwrap();
    let store = start(&spoilt);
    let report = store.reap(&policy, false).unwrap();
    assert_eq!((report.swept.removed_bytes, report.swept.removed_segments), (0, 0), "{report:?}");
    // or it is given up
    let store = start(&device);
    store.remove(id).unwrap();
    let report = store.reap(&policy, false).unwrap();
    assert_eq!((report.damage.len(), report.swept.held_segments), (0, 0), "{report:?}");
    assert!(report.swept.removed_bytes > 500_000, "{report:?}");
    assert!(device.list("").unwrap().iter().all(|name| !name.starts_with("held")));
}

#[test]
fn a_damaged_shared_zone_is_removed_by_force_alone() {
    let device = Simulated::new(1);
    let zone = {
        let store = start(&device);
        let zone = store.create_shared("team", Quota::default()).unwrap();
        shared::create_in(&store, "a", zone, true);
        // its name is no reason to take an agent for it
        create(&store, "team");
        shared::write_team(&store, "plan", b"sleep");
        store.checkpoint().unwrap();
        zone
    };
    let hash = crate::superblock::SuperblockFile::peek(&device).unwrap().catalogue.unwrap();
    let state = {
        let store = start(&device.killed());
        let list = catalogue::read(&*store.shared().unwrap().segments, &hash).unwrap();
        list.shared[0].stored.state.clone().unwrap().needs()[0]
    };
    let (path, at, _) = frames(&device).into_iter().find(|it| it.2 == state).unwrap();
    device.tamper(&path, |bytes| bytes[at + 90] ^= 1).unwrap();
    let store = start(&device);
    assert!(matches!(store.remove_shared(zone), Err(StoreError::DamagedAgent { .. })));
    let by: Vec<_> = store.remove_shared_by_force(zone).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(by, ["a"]);
    drop(store);
    for _ in 0..2 {
        let store = start(&device);
        assert_eq!(store.find_shared("team").unwrap(), None);
        let a = find(&store, "a");
        assert!(a.zone(shared::TEAM, |_| ()).is_none());
        write(&a, WORKSPACE, "goes", b"on");
        sync(&a).unwrap();
        write(&find(&store, "team"), WORKSPACE, "goes", b"on");
        assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().damage, [""; 0]);
    }
    let store = start(&device);
    assert_ne!(store.create_shared("team", Quota::default()).unwrap(), zone);
}
