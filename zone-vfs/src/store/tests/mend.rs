//! Stores of which something is lost on which all hangs: refused by name, and mended without what is lost.

use super::*;
use crate::device::Caching;
use crate::device::simulated::Fault;
use crate::id::Epoch;
use crate::superblock::{self, SuperblockFile};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn event(name: &str, turn: u64) -> Vec<u8> {
    [format!("{name} is asked for turn {turn} ").as_bytes(), &content(turn, 9_000)].concat()
}

fn turn(disk: &Arc<Disk>, name: &str, turn: u64) {
    disk.begin(TurnStyle::Transaction, &event(name, turn)).unwrap();
    write(disk, WORKSPACE, "last", format!("{name} {turn}").as_bytes());
    write(disk, SEMANTIC, "known", &content(turn * 10, 70_000));
    write(disk, EPISODIC, "diary", format!("{name} {turn}\n").as_bytes());
    end(disk, b"done").unwrap();
}

/// Agents with turns in two checkpoints, and in two files of the log behind these.
fn filled(device: &Simulated) -> BTreeMap<String, Seen> {
    let store = start(device);
    for name in NAMES {
        create(&store, name);
    }
    for number in 1..=6 {
        for name in NAMES {
            turn(&find(&store, name), name, number);
        }
        if number == 2 || number == 3 {
            store.checkpoint().unwrap();
        }
    }
    see_all(&store)
}

fn mend(device: &Simulated) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    let device: Arc<dyn Device> = Arc::new(device.clone());
    Store::mend_device(&device, &options(), &mut |it| found.push(format!("{it:?}")))?;
    Ok(found)
}

fn files(device: &Simulated) -> Vec<String> {
    let mut files = device.list("").unwrap();
    for folder in ["log", "segments"] {
        files.extend(device.list(folder).unwrap().iter().map(|name| format!("{folder}/{name}")));
    }
    files
}

fn content_of(device: &Simulated, path: &str) -> Vec<u8> {
    let file = device.open(path, Caching::Cached).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Damages a file in one of five ways.
fn damage(device: &Simulated, path: &str, way: usize) {
    if way == 4 {
        return device.remove(path).unwrap();
    }
    let spoil = |bytes: &mut Vec<u8>| {
        let len = bytes.len();
        let page = match way {
            0 => 0,
            1 => len / 2,
            2 => len.saturating_sub(4096),
            _ => return bytes.clear(),
        };
        bytes[page..len.min(page + 4096)].fill(0xa5);
    };
    device.tamper(path, spoil).unwrap();
}

#[test]
fn whatever_file_is_damaged_the_store_opens_or_says_why_and_opens_when_it_is_mended() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let (mut opened, mut mended, mut whole, mut less) = (0, 0, 0, 0);
    for path in files(&device) {
        for way in 0..5 {
            let device = device.killed();
            damage(&device, &path, way);
            let case = format!("{path}, way {way}");
            let mut said = Vec::new();
            let store = match try_start(&device) {
                Ok(store) => {
                    opened += 1;
                    store
                }
                Err(e) if path == "tenant.key" => {
                    assert!(crate::told(&e).contains("tenant.key"), "{case}: {e}");
                    let before = device.fingerprint();
                    mend(&device).unwrap_err();
                    assert_eq!(device.fingerprint(), before, "{case}");
                    continue;
                }
                Err(e) => {
                    assert!(e.is_mendable(), "{case}: {e}");
                    said = mend(&device).unwrap();
                    mended += 1;
                    start(&device)
                }
            };
            let damaged: Vec<_> = store.damaged().unwrap().into_iter().map(|it| it.name).collect();
            for (name, before) in &expected {
                let found = store.find(name).unwrap();
                let now = found.and_then(|id| store.disk(id).ok()).and_then(|disk| try_see(&disk).ok());
                match now {
                    Some(now) if now == *before => whole += 1,
                    Some(now) if now.last_turn < before.last_turn => {
                        less += 1;
                        // where only the end of the log is damaged, that is what a crash leaves, too
                        let is_torn = said.is_empty() && path.starts_with("log/");
                        let is_said = said.iter().any(|it| it.contains("Lost"));
                        assert!(is_torn || is_said, "{case}: {name}: {said:?}");
                    }
                    // what the segments lost, a scrub names
                    _ => {
                        let report = store.scrub(false, &mut |_| {}).unwrap();
                        assert!(!report.is_sound() || damaged.contains(name), "{case}: {name}");
                    }
                }
            }
            // and goes on, also after another crash
            let new = create(&store, "new");
            turn(&new, "new", 1);
            for name in NAMES {
                if let Some(Ok(disk)) = store.find(name).unwrap().map(|id| store.disk(id))
                    && disk.zone(WORKSPACE, |zone| try_read_zone(zone).is_ok()).unwrap()
                {
                    disk.begin(TurnStyle::Transaction, b"on").unwrap();
                    write(&disk, WORKSPACE, "on", b"it goes on");
                    end(&disk, b"done").unwrap();
                }
            }
            drop((new, store));
            let store = start(&device.crash(1));
            assert_eq!(read(&find(&store, "new"), WORKSPACE, "last").unwrap(), b"new 1", "{case}");
        }
    }
    assert!(opened > 10 && mended > 10 && whole > 3 * 10 && less > 3, "{opened} {mended} {whole} {less}");
}

#[test]
fn what_a_hole_in_the_log_takes_is_said_and_everything_else_is_there() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let wanted = event("b", 5);
    let holds = |path: &String| content_of(&device, path).windows(32).position(|it| *it == wanted[..32]);
    let logs = files(&device).into_iter().filter(|it| it.starts_with("log/"));
    let (at, path) = logs.rev().find_map(|path| Some((holds(&path)?, path))).unwrap();
    device.flip_bit(&path, at as u64 * 8).unwrap();
    let error = try_start(&device).unwrap_err();
    assert!(matches!(error, StoreError::Log(_)) && error.is_mendable(), "{error}");
    let said = mend(&device).unwrap();
    let of_b: Vec<_> = said.iter().filter(|it| it.contains("\"b: its record")).collect();
    assert!(of_b.len() == 1 && of_b[0].contains("turns 5 to 6 are lost"), "{said:?}");
    assert!(of_b[0].contains("after turn 4"), "{said:?}");
    assert!(said.iter().any(|it| it.contains("do not read")), "{said:?}");
    assert!(!said.iter().any(|it| it.contains("\"a: ") || it.contains("\"c: ")), "{said:?}");
    let store = start(&device);
    for (name, before) in &expected {
        let now = see(&find(&store, name));
        if name == "b" {
            assert_eq!((now.last_turn, now.history.len()), (4, 4));
            assert_eq!(read(&find(&store, "b"), WORKSPACE, "last").unwrap(), b"b 4");
        } else {
            assert!(now == *before, "{name} stands after turn {}", now.last_turn);
        }
    }
    // the damaged file is kept, and no number of what is lost is used again
    let kept = device.list("quarantine").unwrap();
    assert!(
        kept.iter().any(|name| content_of(&device, &format!("quarantine/{name}")).len() > 4096),
        "{kept:?}"
    );
    let b = find(&store, "b");
    turn(&b, "b", 5);
    assert!(b.lock().state.epoch > Epoch(1 << 20));
    assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
}

#[test]
fn without_a_superblock_the_newest_list_of_agents_is_found_and_nobody_loses_anything() {
    let device = Simulated::new(1);
    let expected = filled(&device);
    let before = SuperblockFile::peek(&device).unwrap();
    for gone in [true, false] {
        let device = device.killed();
        if gone {
            device.remove(superblock::FILE).unwrap();
        } else {
            device.tamper(superblock::FILE, |bytes| bytes.fill(7)).unwrap();
        }
        let said = mend(&device).unwrap();
        assert!(said.iter().any(|it| it.contains("which store this is")), "{said:?}");
        let store = start(&device);
        assert!(see_all(&store) == expected);
        assert_ne!(SuperblockFile::peek(&device).unwrap().store, before.store);
        assert_eq!(device.list("quarantine").unwrap().contains(&"superblock-0".to_owned()), !gone);
    }
}

#[test]
fn a_mending_that_a_crash_ends_is_done_again() {
    let device = Simulated::new(1);
    filled(&device);
    device.tamper(superblock::FILE, |bytes| bytes.fill(7)).unwrap();
    let expected = {
        let device = device.killed();
        mend(&device).unwrap();
        see_all(&start(&device))
    };
    let mut interrupted = 0;
    for at in 1.. {
        let device = device.killed();
        device.inject(Fault::Stop(device.operations() + at));
        if mend(&device).is_ok() {
            break;
        }
        interrupted += 1;
        let found = device.crash(at);
        let store = try_start(&found).unwrap_or_else(|e| {
            assert!(e.is_mendable(), "{at}: {e}");
            mend(&found).unwrap();
            start(&found)
        });
        assert!(see_all(&store) == expected, "{at}");
    }
    assert!(interrupted > 5, "{interrupted}");
}

#[test]
fn too_few_descriptors_end_a_mending_without_a_change() {
    let device = Simulated::new(1);
    filled(&device);
    device.remove(superblock::FILE).unwrap();
    let before = device.fingerprint();
    device.inject(Fault::Descriptors(device.opened() + 1));
    let error = mend(&device).unwrap_err();
    assert!(error.is_shortage(), "{error}");
    assert_eq!(device.fingerprint(), before);
}
