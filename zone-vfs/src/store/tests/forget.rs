//! What is forgotten is gone from every byte of the store, or was not forgotten; and nothing else goes.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::device::DeviceKind;
use crate::device::simulated::Rng;
use crate::tree::ChangeKind;

/// What must not be found: it does not compress.
fn marker() -> Vec<u8> {
    content(0x00f0_a6e7, 48)
}

/// Content of this length with the marker in it.
fn marked(seed: u64, len: usize, at: usize) -> Vec<u8> {
    let mut bytes = content(seed, len);
    bytes[at..at + 48].copy_from_slice(&marker());
    bytes
}

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(48).any(|it| it == marker())
}

/// The files below a folder that have the marker in any byte.
fn found_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(found_in(&path));
        } else if holds(&std::fs::read(&path).unwrap()) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// The same, of a device.
fn found_on(device: &Simulated) -> Vec<String> {
    let files = needles::contents_of(device).into_iter();
    files.filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect()
}

/// The number of a file as it is, or as it was in the newest generation that has it.
pub(super) fn try_number(disk: &Disk, zone: u16, name: &str) -> Result<Option<Inode>, StoreError> {
    let mut found = number_now(disk, zone, name)?;
    for generation in disk.generations().into_iter().rev() {
        if found.is_some() {
            break;
        }
        found = look(&disk.zone_at(generation.number, zone)?, name)?;
    }
    Ok(found)
}

/// The file of this name as it is now.
pub(super) fn number_now(disk: &Disk, zone: u16, name: &str) -> Result<Option<Inode>, StoreError> {
    Ok(disk.zone(zone, |zone| look(zone, name)).transpose()?.flatten())
}

fn look(zone: &Zone, name: &str) -> Result<Option<Inode>, StoreError> {
    let host = Access::new(Principal::Host, Timestamp(9));
    match zone.resolve(host, Inode::ROOT, name.as_bytes(), false) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.code == crate::zone::ErrorCode::NoEntry => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn number(disk: &Disk, zone: u16, name: &str) -> Inode {
    try_number(disk, zone, name).unwrap().unwrap_or_else(|| panic!("no {name}"))
}

fn forget(disk: &Arc<Disk>, zone: u16, names: &[&str], turns: Option<(Turn, Turn)>) -> Forgot {
    let files = names.iter().map(|name| number(disk, zone, name)).collect();
    let operated = NewGeneration { cause: Cause::Operated, about: b"forgot".to_vec(), on: None };
    disk.forget(&Forget { zone, files, versions: Vec::new(), turns }, &operated).unwrap()
}

fn purge(store: &Store) {
    assert!(store.is_purge_due().unwrap());
    let report = store.purge().unwrap();
    assert!(report.is_purged, "{report:?}");
    assert!(!store.is_purge_due().unwrap());
}

use crate::id::{Turn, Version};

#[test]
fn every_byte_of_the_store_is_free_of_what_was_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = StoreOptions { device: DeviceKind::Blocking, ..options() };
    let store = Store::open(&path, &options).unwrap();
    let a = create(&store, "a");
    let begin = |event: &[u8]| a.begin(TurnStyle::Transaction, event).unwrap();
    begin(&marked(1, 200, 50));
    write(&a, SEMANTIC, "facts", &marked(2, 200, 100));
    write(&a, SEMANTIC, "kept", b"kept");
    write(&a, WORKSPACE, "large", &marked(3, 1 << 20, 700_000));
    write(&a, WORKSPACE, "gone", &marked(4, 100_000, 1_000));
    write(&a, WORKSPACE, "kept", &content(5, 300_000));
    write(&a, EPISODIC, "diary", &marked(6, 1_000, 1));
    write(&a, LOGS, "log", &marked(7, 3_000, 2_000));
    end(&a, &marked(8, 60_000, 59_000)).unwrap();
    store.checkpoint().unwrap();
    begin(&marked(9, 50_000, 40_000));
    write(&a, SEMANTIC, "facts", &marked(10, 5_000, 100));
    write(&a, WORKSPACE, "large", &marked(11, 1 << 20, 100));
    a.fact(&marked(12, 30_000, 7)).unwrap();
    end(&a, b"").unwrap();
    begin(b"");
    a.zone(WORKSPACE, |z| z.unlink(access(), Inode::ROOT, b"gone")).unwrap().unwrap();
    end(&a, b"").unwrap();
    begin(b"");
    write(&a, WORKSPACE, "failed", &marked(13, 70_000, 7));
    write(&a, SEMANTIC, "facts", &marked(14, 300, 7));
    sync(&a).unwrap();
    fail(&a, &format!("it said {}", "so")).unwrap();
    store.checkpoint().unwrap();
    begin(b"");
    write(&a, EPISODIC, "diary", &marked(15, 200, 1));
    end(&a, b"").unwrap();
    assert!(found_in(&path).len() >= 3, "{:?}", found_in(&path));

    let what = Forget { zone: WORKSPACE, files: vec![number(&a, WORKSPACE, "large")], ..Forget::default() };
    let would = a.would_forget(&what).unwrap();
    assert_eq!((would.content.contents, would.content.bytes), (1, 1 << 20));
    assert_eq!(would.generations.len(), 5);
    let semantic = forget(&a, SEMANTIC, &["facts"], Some((Turn(1), Turn(2))));
    assert_eq!((semantic.content.contents, semantic.turns), (2, 2));
    assert_eq!(semantic.content.bytes, 5_200);
    assert_eq!(a.generations().first().unwrap().number, GenerationNumber(0), "before the file was born");
    assert_eq!(a.generations().len(), 2);
    forget(&a, WORKSPACE, &["large"], None);
    forget(&a, EPISODIC, &["diary"], None);
    forget(&a, LOGS, &["log"], None);
    purge(&store);
    assert_eq!(found_in(&path), [""; 0]);

    // the rest is there, and a tombstone
    assert_eq!(read(&a, SEMANTIC, "kept").unwrap(), b"kept");
    assert_eq!(read(&a, WORKSPACE, "kept").unwrap(), content(5, 300_000));
    assert_eq!((read(&a, SEMANTIC, "facts"), read(&a, EPISODIC, "diary")), (None, None));
    let told = a.changes(EPISODIC, crate::id::ChangeSequence(0), 1_000).unwrap().unwrap();
    let last = &told.entries.last().unwrap().1;
    assert_eq!((last.kind, last.path.as_deref(), last.size), (ChangeKind::Forget, Some(&b"diary"[..]), 0));
    let history = a.history().unwrap();
    assert_eq!(history.len(), 5);
    assert!(a.payload(&history[0].event).unwrap().is_empty());
    begin(b"");
    write(&a, EPISODIC, "diary", b"anew");
    end(&a, b"").unwrap();
    let before = everything(&store);
    drop((a, store));
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(everything(&store), before);
    assert!(!store.is_purge_due().unwrap());
    assert_eq!(found_in(&path), [""; 0]);
}

#[test]
fn what_only_earlier_generations_have_can_be_forgotten() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "gone", &marked(1, 100_000, 5));
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    a.zone(WORKSPACE, |z| z.unlink(access(), Inode::ROOT, b"gone")).unwrap().unwrap();
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "failed", &marked(2, 70_000, 7));
    sync(&a).unwrap();
    fail(&a, "it failed").unwrap();
    forget(&a, WORKSPACE, &["failed"], None);
    forget(&a, WORKSPACE, &["gone"], None);
    purge(&store);
    assert_eq!(found_on(&device), [""; 0]);
    let none = Forget { zone: WORKSPACE, files: vec![Inode(77)], ..Forget::default() };
    assert!(
        matches!(a.would_forget(&none), Err(StoreError::Zone(e)) if e.code == crate::zone::ErrorCode::NoEntry)
    );
    let nowhere = Forget { zone: 9, ..none };
    assert!(matches!(a.would_forget(&nowhere), Err(StoreError::NoZone { index: 9 })));
    a.begin(TurnStyle::Transaction, b"").unwrap();
    let what = Forget { zone: WORKSPACE, files: vec![Inode(2)], ..Forget::default() };
    assert!(matches!(a.forget(&what, &new_generation(b"")), Err(StoreError::Busy)));
}

/// An agent with more turns than one piece of its history has, of which one is to be forgotten; all in segments.
fn with_many_turns(device: &Simulated) -> (Store, Arc<Disk>) {
    let store = start(device);
    let a = create(&store, "a");
    for turn in 0..300 {
        a.begin(TurnStyle::Transaction, &if turn == 7 { marked(turn, 60, 5) } else { vec![7; 60] }).unwrap();
        if turn == 0 {
            write(&a, SEMANTIC, "fact", b"a fact");
        }
        end_quietly(&a, b"done");
    }
    store.checkpoint().unwrap();
    (store, a)
}

fn end_quietly(disk: &Arc<Disk>, outcome: &[u8]) {
    wait(|done| disk.end(outcome, None, done)).unwrap();
}

fn forget_turns(disk: &Arc<Disk>) -> Result<Forgot, StoreError> {
    let file = try_number(disk, SEMANTIC, "fact")?.expect("it has a fact");
    let operated = NewGeneration { cause: Cause::Operated, about: b"forgot".to_vec(), on: None };
    let turns = Some((Turn(1), Turn(20)));
    disk.forget(&Forget { zone: SEMANTIC, files: vec![file], turns, ..Forget::default() }, &operated)
}

#[test]
fn the_event_of_a_turn_that_was_abandoned_is_erased_and_the_outcome_of_one_that_is_forgotten() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, &marked(1, 17_000, 5)).unwrap();
    a.abandon().unwrap();
    let report = store.purge().unwrap();
    assert!(report.is_purged && found_on(&device).is_empty(), "{report:?}");
    a.begin(TurnStyle::Transaction, &marked(2, 17_000, 5)).unwrap();
    write(&a, SEMANTIC, "fact", b"a fact");
    end(&a, &marked(3, 17_000, 5)).unwrap();
    let other = create(&store, "other");
    other.begin(TurnStyle::Transaction, &marked(4, 17_000, 5)).unwrap();
    sync(&other).unwrap();
    store.remove(other.id()).unwrap();
    forget_turns(&a).unwrap();
    drop((a, other));
    purge(&store);
    assert_eq!(found_on(&device), [""; 0]);
}

/// What a checkpoint writes of a history is of the moment at which it began.
#[test]
fn turns_that_are_forgotten_while_a_checkpoint_is_written_stay_so() {
    let device = Simulated::new(1);
    let (store, a) = with_many_turns(&device);
    for _ in 0..300 {
        a.begin(TurnStyle::Transaction, b"later").unwrap();
        end_quietly(&a, b"done");
    }
    let frozen = catalogue::Frozen::of(&a.lock().state);
    forget_turns(&a).unwrap();
    let seen = see(&a);
    let written = frozen.write(&store.shared().unwrap().segments).unwrap();
    written.relieve(&mut a.lock().state);
    assert_eq!(see(&a), seen);
    assert_eq!(seen.history.len(), 600);
    purge(&store);
    assert_eq!(found_on(&device), [""; 0]);
}

#[test]
fn what_it_does_not_reach_is_found() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    let (small, large) = (marked(1, 100, 5), marked(2, 200_000, 7));
    a.begin(TurnStyle::Transaction, b"").unwrap();
    for (zone, name, bytes) in
        [(SEMANTIC, "small", &small), (SEMANTIC, "copy", &small), (WORKSPACE, "large", &large)]
    {
        write(&a, zone, name, bytes);
    }
    let at = end(&a, b"").unwrap();
    fork(&store, &a, at, "fork").unwrap();
    let b = create(&store, "b");
    b.begin(TurnStyle::Transaction, b"").unwrap();
    write(&b, WORKSPACE, "same", &large);
    end(&b, b"").unwrap();
    b.begin(TurnStyle::Transaction, b"").unwrap();
    write(&b, WORKSPACE, "same", b"other");
    end(&b, b"").unwrap();
    let mut ids = forget(&a, SEMANTIC, &["small"], None).content;
    ids.join(&forget(&a, WORKSPACE, &["large"], None).content);
    purge(&store);
    assert_ne!(found_on(&device), [""; 0], "others need it");
    let left = store.find_left(&ids).unwrap();
    let told: BTreeSet<_> = left
        .into_iter()
        .map(|it| {
            (it.agent, it.generation.map(|g| g.0), it.zone, String::from_utf8(it.path.unwrap()).unwrap())
        })
        .collect();
    let place = |agent: &str, generation, zone: &str, path: &str| {
        (agent.to_string(), generation, zone.to_string(), path.to_string())
    };
    let expected = [
        place("a", None, "Semantic", "copy"),
        place("b", Some(1), "Workspace", "same"),
        place("fork", None, "Semantic", "copy"),
        place("fork", None, "Semantic", "small"),
        place("fork", None, "Workspace", "large"),
    ];
    assert_eq!(told, BTreeSet::from(expected));
    assert_eq!(store.find_left(&crate::zone::ContentIds::default()).unwrap(), []);
}

#[test]
fn an_agent_forgets_its_semantic_memory_with_its_turn() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, SEMANTIC, "facts", &marked(1, 10_000, 5));
    end(&a, b"").unwrap();
    let forgets = || {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        let file = number(&a, SEMANTIC, "facts");
        a.zone(SEMANTIC, |z| z.forget(access(), file)).unwrap().unwrap();
    };
    forgets();
    sync(&a).unwrap();
    fail(&a, "it failed").unwrap();
    assert!(!store.is_purge_due().unwrap());
    assert_eq!(read(&a, SEMANTIC, "facts").unwrap(), marked(1, 10_000, 5), "it came back");
    forgets();
    end(&a, b"").unwrap();
    let kept: Vec<_> = a.generations().into_iter().map(|it| it.number.0).collect();
    assert_eq!(kept, [0, 3], "those that could have it are gone");
    drop((a, store));
    let store = start(&device);
    assert!(store.is_purge_due().unwrap(), "the log says so");
    store.checkpoint().unwrap();
    drop(store);
    let store = start(&device);
    assert!(store.is_purge_due().unwrap(), "the catalogue says so");
    assert!(!store.reap(&ReapPolicy::default(), true).unwrap().is_purged);
    assert!(store.reap(&ReapPolicy::default(), false).unwrap().is_purged);
    assert_eq!(found_on(&device), [""; 0]);
    assert!(!store.reap(&ReapPolicy::default(), false).unwrap().is_purged, "once is enough");
}

#[test]
fn a_head_that_may_hold_it_goes_with_the_next_generation() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, SEMANTIC, "facts", &marked(1, 100, 5));
    end(&a, b"").unwrap();
    let file = number(&a, SEMANTIC, "facts");
    let host = Access::new(Principal::Host, Timestamp(9));
    a.zone(SEMANTIC, |z| z.forget(host, file)).unwrap().unwrap();
    sync(&a).unwrap();
    assert_eq!(a.generations().len(), 2, "without a new generation it has to stay");
    store.checkpoint().unwrap();
    drop((a, store));
    let store = start(&device);
    let a = find(&store, "a");
    mark(&a).unwrap();
    let kept: Vec<_> = a.generations().into_iter().map(|it| it.number.0).collect();
    assert_eq!(kept, [0, 2]);
    purge(&store);
    assert_eq!(found_on(&device), [""; 0]);
}

#[test]
fn a_crash_leaves_it_forgotten_or_not_and_it_can_be_finished() {
    clock::start();
    let device = Simulated::new(3);
    let store = start(&device);
    let a = create(&store, "a");
    let (small, large) = (marked(1, 200, 5), marked(2, 150_000, 70_000));
    for _ in 0..2 {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, SEMANTIC, "small", &small);
        write(&a, SEMANTIC, "large", &large);
        write(&a, WORKSPACE, "kept", &content(3, 100_000));
        end(&a, b"").unwrap();
        store.checkpoint().unwrap();
    }
    let b = create(&store, "b");
    write(&b, WORKSPACE, "other", &content(4, 100_000));
    sync(&b).unwrap();
    let kept = see(&b);
    let mut trace = device.start_trace();
    forget(&a, SEMANTIC, &["small", "large"], None);
    purge(&store);
    device.end_trace(&mut trace);
    drop((a, b, store));
    let mut rng = Rng::new(5);
    let (mut before, mut after, mut done) = (0, 0, 0);
    loop {
        let device = trace.crash(rng.bits());
        let store = start(&device);
        let a = find(&store, "a");
        assert_eq!(see(&find(&store, "b")), kept, "at {}", trace.at());
        assert_eq!(read(&a, WORKSPACE, "kept").unwrap(), content(3, 100_000));
        if let Some(found) = read(&a, SEMANTIC, "small") {
            before += 1;
            assert_eq!(found, small);
            assert_eq!(read(&a, SEMANTIC, "large").unwrap(), large);
            assert_eq!(a.generations().len(), 3);
        } else {
            assert_eq!(read(&a, SEMANTIC, "large"), None, "at {}", trace.at());
            assert_eq!(a.generations().len(), 2);
            if store.is_purge_due().unwrap() {
                after += 1;
                purge(&store);
            } else {
                done += 1;
            }
            assert_eq!(found_on(&device), [""; 0], "at {}", trace.at());
            assert_eq!(see(&find(&store, "b")), kept);
        }
        if !trace.step().unwrap() {
            break;
        }
    }
    assert!(before >= 2 && after > 10 && done >= 1, "{before} {after} {done}");
}

/// The versions of a file, the oldest first, with what each holds.
fn versions_of(disk: &Disk, file: Inode) -> Vec<(Version, Option<Vec<u8>>)> {
    let host = Access::new(Principal::Host, Timestamp(9));
    disk.zone(SEMANTIC, |zone| {
        let read = |version| {
            let mut bytes = vec![0; 1 << 20];
            let len = zone.read_version(host, file, version, 0, &mut bytes).ok()?;
            bytes.truncate(len);
            Some(bytes)
        };
        let all = zone.history(host, file, None, 100).unwrap().into_iter();
        all.map(|entry| (entry.version, read(entry.version))).collect()
    })
    .unwrap()
}

fn forget_version(disk: &Arc<Disk>, file: Inode, version: Version) -> Result<Forgot, StoreError> {
    let operated = NewGeneration { cause: Cause::Operated, about: b"forgot".to_vec(), on: None };
    let what = Forget { zone: SEMANTIC, versions: vec![(file, version)], ..Forget::default() };
    disk.forget(&what, &operated)
}

#[test]
fn one_version_is_forgotten_and_the_file_stays_with_its_neighbours() {
    for len in [200, 90_000] {
        let device = Simulated::new(1);
        let store = start(&device);
        let a = create(&store, "a");
        let texts = [content(1, len), marked(2, len, 100), content(3, len), content(4, len)];
        for (turn, text) in texts.iter().enumerate() {
            a.begin(TurnStyle::Transaction, b"").unwrap();
            write(&a, SEMANTIC, "facts", text);
            write(&a, WORKSPACE, "turn", &[turn as u8]);
            end(&a, b"").unwrap();
            store.checkpoint().unwrap();
        }
        let file = number(&a, SEMANTIC, "facts");
        let before = versions_of(&a, file);
        assert_eq!(before.len(), 4);
        let (version, current) = (before[1].0, before[3].0);
        // where it stands it cannot be forgotten, nor what never was
        let refused = forget_version(&a, file, current).unwrap_err();
        assert!(refused.to_string().contains("stands at the content of this version"), "{refused}");
        assert!(forget_version(&a, file, Version(999)).is_err());
        let forgot = forget_version(&a, file, version).unwrap();
        assert_eq!((forgot.content.contents, forgot.content.bytes), (1, len as u64));
        assert_eq!(forgot.generations, [2, 3, 4].map(GenerationNumber), "those since it was published");
        purge(&store);
        assert_eq!(found_on(&device), [""; 0]);
        let wanted: Vec<_> =
            before.iter().map(|it| if it.0 == version { (it.0, None) } else { it.clone() }).collect();
        assert_eq!(versions_of(&a, file), wanted);
        assert_eq!(read(&a, SEMANTIC, "facts").unwrap(), texts[3]);
        // the feed says which
        let told = a.changes(SEMANTIC, crate::id::ChangeSequence(0), 1_000).unwrap().unwrap();
        let last = &told.entries.last().unwrap().1;
        assert_eq!(
            (last.kind, last.version, last.path.as_deref()),
            (ChangeKind::Forget, Some(version), Some(&b"facts"[..]))
        );
        // it has no content any more
        let kept = a.generations().len();
        let again = forget_version(&a, file, version).unwrap();
        assert!(again.is_done && again.generations.is_empty() && again.made.is_none(), "{again:?}");
        assert_eq!(a.generations().len(), kept);
        // back to the version before, and to what stands now: neither brings it back, nor takes the file away
        for generation in [GenerationNumber(1), forgot.made.unwrap()] {
            rewind(&a, generation).unwrap();
            let text = if generation.0 == 1 { &texts[0] } else { &texts[3] };
            assert_eq!(read(&a, SEMANTIC, "facts").as_ref(), Some(text));
            assert_eq!(versions_of(&a, file).iter().find(|it| it.0 == version), Some(&(version, None)));
        }
        let then = everything(&store);
        drop((a, store));
        let store = start(&device);
        assert_eq!(everything(&store), then);
        assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
    }
}

#[test]
fn versions_with_the_very_same_content_are_forgotten_together() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for text in [marked(1, 300, 7), content(2, 300)] {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, SEMANTIC, "facts", &text);
        end(&a, b"").unwrap();
    }
    let file = number(&a, SEMANTIC, "facts");
    let first = versions_of(&a, file)[0].0;
    a.begin(TurnStyle::Transaction, b"").unwrap();
    let host = Access::new(Principal::Host, Timestamp(9));
    a.zone(SEMANTIC, |zone| zone.rollback(host, file, first, crate::zone::Expected::Any)).unwrap().unwrap();
    end(&a, b"").unwrap();
    // what it was rolled back to is what it stands at
    assert!(forget_version(&a, file, first).is_err());
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, SEMANTIC, "facts", b"anew");
    end(&a, b"").unwrap();
    let rolled_back = versions_of(&a, file)[2].0;
    forget_version(&a, file, rolled_back).unwrap();
    purge(&store);
    assert_eq!(found_on(&device), [""; 0]);
    let left: Vec<_> = versions_of(&a, file).into_iter().map(|it| it.1).collect();
    assert_eq!(left, [None, Some(content(2, 300)), None, Some(b"anew".to_vec())]);
}

#[test]
fn an_agent_forgets_a_version_with_its_turn_or_not_at_all() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for text in [marked(1, 300, 7), content(2, 300)] {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, SEMANTIC, "facts", &text);
        end(&a, b"").unwrap();
    }
    let file = number(&a, SEMANTIC, "facts");
    let first = versions_of(&a, file)[0].0;
    let forgets = || a.zone(SEMANTIC, |zone| zone.forget_version(access(), file, first)).unwrap().unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    forgets();
    fail(&a, "it failed").unwrap();
    assert_eq!(versions_of(&a, file)[0].1, Some(marked(1, 300, 7)));
    assert!(a.generations().iter().any(|it| it.number.0 == 1));
    a.begin(TurnStyle::Transaction, b"").unwrap();
    forgets();
    end(&a, b"").unwrap();
    assert_eq!(versions_of(&a, file)[0].1, None);
    assert!(a.generations().iter().all(|it| it.number.0 != 1 && it.number.0 != 2), "they had it");
    purge(&store);
    assert_eq!(found_on(&device), [""; 0]);
    assert_eq!(read(&a, SEMANTIC, "facts"), Some(content(2, 300)));
}

#[test]
fn files_below_a_folder_are_those_that_are_or_were_there_last() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    a.zone(SEMANTIC, |zone| {
        zone.mkdir(access(), Inode::ROOT, b"in").unwrap();
        zone.mkdir(access(), Inode::ROOT, b"in/deep").unwrap();
    });
    for name in ["in/now", "in/deep/gone", "in/moved", "out"] {
        write(&a, SEMANTIC, name, name.as_bytes());
    }
    let [now, gone, moved] = ["in/now", "in/deep/gone", "in/moved"].map(|name| number(&a, SEMANTIC, name));
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    a.zone(SEMANTIC, |zone| {
        zone.unlink(access(), Inode::ROOT, b"in/deep/gone").unwrap();
        zone.rename(access(), (Inode::ROOT, b"in/moved"), (Inode::ROOT, b"kept")).unwrap();
    });
    end(&a, b"").unwrap();
    let below =
        |path: &[u8], limit| a.zone(SEMANTIC, |zone| zone.files_ever_below(path, limit)).unwrap().unwrap();
    assert_eq!(below(b"in", 10), BTreeSet::from([now, gone]));
    assert_eq!(below(b"in/deep", 10), BTreeSet::from([gone]));
    assert!(below(b"", 10).contains(&moved));
    assert_eq!(below(b"out", 10), BTreeSet::new());
    assert_eq!(below(b"nothing", 10), BTreeSet::new());
    assert_eq!(below(b"in", 0).len(), 1, "it stops");
}

/// All that has to be read for it lies on the disk: whichever read fails, all is forgotten or nothing, in this store and
/// after a crash, and it goes well afterwards.
#[test]
fn a_read_that_fails_while_turns_are_forgotten_leaves_all_or_nothing() {
    use crate::device::simulated::Fault;
    let begun = Simulated::new(1);
    {
        let (store, a) = with_many_turns(&begun);
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, WORKSPACE, "secret", &marked(1, 100_000, 5));
        end(&a, b"").unwrap();
        drop(a);
        store.close().unwrap();
    }
    let what = |a: &Disk| Forget {
        zone: WORKSPACE,
        files: vec![number(a, WORKSPACE, "secret")],
        turns: Some((Turn(3), Turn(20))),
        ..Forget::default()
    };
    let operated = NewGeneration { cause: Cause::Operated, about: b"forgot".to_vec(), on: None };
    let is_forgotten = |a: &Disk| {
        let events: Vec<_> =
            a.history().unwrap().into_iter().filter(|it| (3..=20).contains(&it.turn.0)).collect();
        let gone = events.iter().filter(|it| a.payload(&it.event).unwrap().is_empty()).count();
        assert!(gone == 0 || gone == events.len(), "{gone} of {} turns are forgotten", events.len());
        assert_eq!(
            gone == 0,
            read(a, WORKSPACE, "secret").is_some(),
            "the file, and not the turns, or these and not it"
        );
        gone > 0
    };
    let (mut failed, mut went_well) = (0, false);
    for read in 1..200 {
        let device = begun.killed();
        let store = start(&device);
        let a = find(&store, "a");
        let what = what(&a);
        // what was read is read again
        store.checkpoint().unwrap();
        drop((a, store));
        let store = start(&device);
        let a = find(&store, "a");
        device.inject(Fault::Read(device.reads() + read));
        let reads = device.reads();
        let made = a.forget(&what, &operated);
        went_well = made.is_ok() && device.reads() - reads < read;
        device.heal();
        failed += u64::from(made.is_err());
        assert!(made.is_err() || is_forgotten(&a), "read {read}: it is said to be done");
        let was = is_forgotten(&a);
        let crashed = start(&device.crash(read));
        assert_eq!(is_forgotten(&find(&crashed, "a")), was, "read {read}: {made:?}");
        if !was {
            a.forget(&what, &operated).unwrap();
        }
        purge(&store);
        assert_eq!(found_on(&device), [""; 0], "read {read}");
        if went_well {
            break;
        }
    }
    assert!(went_well && failed > 2, "{failed} {went_well}");
}
