//! Scrubbing names what is damaged, makes whole what can be, and makes nothing worse.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::device::Caching;

fn scrub(store: &Store, repair: bool) -> (ScrubReport, Vec<Finding>) {
    let mut findings = Vec::new();
    let report = store.scrub(repair, &mut |it| findings.push(it.clone())).unwrap();
    (report, findings)
}

fn damages(findings: &[Finding]) -> Vec<&Damage> {
    findings
        .iter()
        .filter_map(|it| if let Finding::Agent(damage) = it { Some(damage) } else { None })
        .collect()
}

/// A store whose agent has a file in folders, and one that has nothing to do with it.
fn filled(device: &Simulated) -> (Store, Hash) {
    let store = start(device);
    let a = create(&store, "a");
    a.zone(WORKSPACE, |zone| {
        let (mut folder, names) = (Inode::ROOT, [&b"deep"[..], b"er"]);
        for name in names {
            zone.mkdir(access(), folder, name).unwrap();
            folder = zone.stat_at(access(), folder, name, false).unwrap().inode;
        }
        let inode = zone.open(access(), folder, b"file.txt", WRITE).unwrap();
        zone.append(access(), inode, &content(1, 64 << 10)).unwrap();
        zone.close(inode).unwrap();
    });
    sync(&a).unwrap();
    mark(&a).unwrap();
    let b = create(&store, "b");
    write(&b, SEMANTIC, "fact", &content(2, 64 << 10));
    sync(&b).unwrap();
    store.checkpoint().unwrap();
    let segments = &store.shared().unwrap().segments;
    let lost =
        crate::chunks::ChunkStore::put(&**segments, crate::chunks::FrameKind::Chunk, &content(1, 64 << 10));
    (store, lost.unwrap())
}

pub(super) fn damage(device: &Simulated, hash: &Hash) {
    let mut hit = 0;
    for name in device.list("segments").unwrap() {
        device
            .tamper(&format!("segments/{name}"), |bytes| {
                for at in 0..bytes.len().saturating_sub(200) {
                    if bytes[at..].starts_with(b"dFrm") && bytes[at + 48..at + 80] == hash.0 {
                        bytes[at + 150] ^= 1;
                        hit += 1;
                    }
                }
            })
            .unwrap();
    }
    assert!(hit > 0);
}

#[test]
fn a_sound_store_is_said_to_be_sound() {
    let device = Simulated::new(1);
    let (store, _) = filled(&device);
    for repair in [false, true] {
        let (report, findings) = scrub(&store, repair);
        assert!(report.is_sound() && findings.is_empty(), "{findings:?}");
        assert!(report.frames > 10 && report.bytes > 128 << 10);
    }
    // while agents work
    let b = find(&store, "b");
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for turn in 0..30 {
                write(&b, WORKSPACE, "busy", &content(turn, 30_000));
                sync(&b).unwrap();
            }
        });
        while !worker.is_finished() {
            let (report, findings) = scrub(&store, true);
            assert!(report.is_sound(), "{findings:?}");
        }
    });
}

#[test]
fn a_damaged_chunk_is_named_by_agent_zone_and_path() {
    let device = Simulated::new(1);
    let (store, lost) = filled(&device);
    let others = see(&find(&store, "b"));
    drop(store);
    damage(&device, &lost);
    let store = start(&device);
    let (report, findings) = scrub(&store, false);
    assert_eq!((report.damaged_frames, report.damaged_agents), (1, 1));
    let damages = damages(&findings);
    assert!(!damages.is_empty(), "{findings:?}");
    for damage in &damages {
        assert_eq!(damage.agent.as_ref().unwrap().1, "a");
        assert_eq!(damage.zone.as_deref(), Some("Workspace"));
        assert_eq!(damage.path.as_deref(), Some("/deep/er/file.txt"));
        assert_eq!(damage.hash, Some(lost));
    }
    let before = content_of(&device);
    let (report, findings) = scrub(&store, true);
    assert_eq!(report.quarantined, 1, "{findings:?}");
    let set_aside = device.list("quarantine").unwrap();
    assert_eq!(set_aside.len(), 1);
    // what was there is there still, and nothing else is damaged
    let kept = bytes_of(&device, &format!("quarantine/{}", set_aside[0]));
    assert!(before.iter().any(|it| kept.starts_with(it)));
    let (report, again) = scrub(&store, true);
    assert_eq!((report.damaged_frames, report.quarantined, report.damaged_agents), (0, 0, 1));
    assert_eq!(self::damages(&again).len(), damages.len());
    // the same content, written again, is whole again
    let a = find(&store, "a");
    write(&a, EPISODIC, "again", &content(1, 64 << 10));
    sync(&a).unwrap();
    let (report, findings) = scrub(&store, false);
    assert!(report.is_sound(), "{findings:?}");
    drop((store, a));
    let store = start(&device);
    assert_eq!(see(&find(&store, "b")), others);
    assert!(scrub(&store, false).0.is_sound());
}

#[test]
fn a_damaged_version_is_named_by_the_path_of_its_file() {
    let device = Simulated::new(1);
    let (store, _) = filled(&device);
    let b = find(&store, "b");
    write(&b, SEMANTIC, "fact", &content(3, 8_000));
    sync(&b).unwrap();
    let rename = |from: &[u8], to: &[u8]| {
        b.zone(SEMANTIC, |zone| zone.rename(access(), (Inode::ROOT, from), (Inode::ROOT, to)))
            .unwrap()
            .unwrap();
    };
    b.zone(SEMANTIC, |zone| zone.mkdir(access(), Inode::ROOT, b"known").map(drop)).unwrap().unwrap();
    rename(b"fact", b"known/it");
    write(&b, SEMANTIC, "known/it", b"another version");
    sync(&b).unwrap();
    store.checkpoint().unwrap();
    let segments = &store.shared().unwrap().segments;
    let kind = crate::chunks::FrameKind::Chunk;
    let lost = crate::chunks::ChunkStore::put(&**segments, kind, &content(3, 8_000)).unwrap();
    drop((store, b));
    damage(&device, &lost);
    let (_, findings) = scrub(&start(&device), false);
    let damages = damages(&findings);
    let now = damages.iter().find(|it| it.generation.is_none()).expect("what stands now is hit");
    assert_eq!(now.agent.as_ref().unwrap().1, "b");
    assert_eq!((now.zone.as_deref(), now.path.as_deref()), (Some("Semantic"), Some("/known/it")));
}

fn bytes_of(device: &Simulated, path: &str) -> Vec<u8> {
    let file = device.open(path, Caching::Cached).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn content_of(device: &Simulated) -> Vec<Vec<u8>> {
    let names = device.list("segments").unwrap();
    names.iter().map(|name| bytes_of(device, &format!("segments/{name}"))).collect()
}

#[test]
fn every_part_is_looked_at_and_repaired() {
    let device = Simulated::new(1);
    let (store, _) = filled(&device);
    // none comes by itself while the log is looked at
    store.checkpoint().unwrap();
    let seen = see_all(&store);
    // the slot that counts
    let newest = store.shared().unwrap().superblock.lock().unwrap().current().sequence;
    device
        .tamper("superblock", |bytes| {
            for slot in bytes.chunks_mut(4096) {
                if slot[16..24] == newest.to_le_bytes() {
                    slot[100] ^= 1;
                }
            }
        })
        .unwrap();
    let b = find(&store, "b");
    write(&b, EPISODIC, "diary", b"in the log");
    sync(&b).unwrap();
    // a group in the log that is acknowledged
    let log = device.list("log").unwrap();
    for name in &log {
        device
            .tamper(&format!("log/{name}"), |bytes| {
                let text = b"in the log";
                if let Some(at) = bytes.windows(text.len()).position(|it| it == text) {
                    bytes[at] ^= 1;
                }
            })
            .unwrap();
    }
    let (report, findings) = scrub(&store, true);
    assert!(findings.iter().any(|it| matches!(it, Finding::Log { .. })), "{findings:?}");
    assert!(report.findings >= 1);
    assert!(scrub(&store, true).0.is_sound());
    // a footer
    store.shared().unwrap().segments.watch(true).unwrap();
    store.shared().unwrap().segments.unwatch();
    store.shared().unwrap().segments.flush().unwrap();
    let name = device.list("segments").unwrap().pop().unwrap();
    device
        .tamper(&format!("segments/{name}"), |bytes| {
            let end = bytes.len();
            bytes[end - 5] ^= 1;
        })
        .unwrap();
    let (_, findings) = scrub(&store, true);
    assert!(findings.iter().any(|it| matches!(it, Finding::Segment { .. })), "{findings:?}");
    let (_, findings) = scrub(&store, true);
    assert_eq!(findings, []);
    assert_eq!(see(&find(&store, "a")), seen["a"]);
    assert_eq!(read(&b, EPISODIC, "diary").unwrap(), b"in the log");
    let all = see_all(&store);
    drop((store, b));
    assert_eq!(see_all(&start(&device)), all);
}

#[test]
fn a_scrub_beside_commits_finds_nothing() {
    let device = Simulated::new(1);
    let store = start(&device);
    let disk = create(&store, "a");
    let (over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                write(&disk, WORKSPACE, "file", &content(commits.load(Ordering::Relaxed), 5_000));
                sync(&disk).unwrap();
                commits.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut findings = Vec::new();
        for _ in 0..10 {
            let before = commits.load(Ordering::Relaxed);
            // at least one that commits go on beside
            while commits.load(Ordering::Relaxed) < before + 3 && findings.is_empty() {
                store.scrub(false, &mut |found| findings.push(found.clone())).unwrap();
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(findings, []);
    });
}
