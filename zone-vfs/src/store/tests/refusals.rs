//! What cannot be opened says why, and what failed is not believed.

use super::*;
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::device::simulated::Fault;
use crate::id::{Epoch, Sequence};
use crate::log::{CommitError, LogError, Record};
use crate::store::chain::ChainDigest;
use crate::superblock::SuperblockError;

/// A store with a checkpoint and something in the log.
fn stored() -> Simulated {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "file", &content(1, 3_000));
    end(&a, b"").unwrap();
    store.checkpoint().unwrap();
    for turn in 0..6 {
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, WORKSPACE, "file", &content(turn, 3_000));
        end(&a, b"").unwrap();
    }
    device
}

fn error(device: &Simulated) -> StoreError {
    try_start(device).expect_err("it was opened")
}

#[test]
fn a_second_opening_of_a_folder_is_refused_and_the_first_unharmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    let a = create(&store, "a");
    let refused = Store::open(&path, &options()).expect_err("locked");
    let StoreError::Locked { holder, .. } = &refused else { panic!("{refused}") };
    assert_eq!(*holder, Some(format!("process {}", std::process::id())));
    assert!(refused.to_string().contains("is open in another process"));
    write(&a, WORKSPACE, "file", b"x");
    sync(&a).unwrap();
    store.close().unwrap();
    let store = Store::open(&path, &options()).unwrap();
    assert_eq!(read(&find(&store, "a"), WORKSPACE, "file").unwrap(), b"x");
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.txt"), b"dear").unwrap();
    let refused = Store::open(folder.path(), &options());
    assert!(matches!(refused, Err(StoreError::NotAStore { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn disks_that_outlive_their_store_do_no_harm() {
    let device = Simulated::new(1);
    let store = start(&device);
    let old = create(&store, "a");
    write(&old, WORKSPACE, "file", &content(1, 100_000));
    sync(&old).unwrap();
    drop(store);
    assert_eq!(read(&old, WORKSPACE, "file").unwrap(), content(1, 100_000), "reading goes on");
    let store = start(&device);
    let new = find(&store, "a");
    write(&new, WORKSPACE, "file", &content(2, 100_000));
    sync(&new).unwrap();
    write(&old, WORKSPACE, "file", &content(3, 100_000));
    assert!(matches!(sync(&old), Err(StoreError::Closed)));
    drop(old);
    store.checkpoint().unwrap();
    let before = everything(&store);
    drop((store, new));
    assert_eq!(everything(&start(&device)), before);
}

#[test]
fn newer_formats_are_named() {
    let device = stored();
    device
        .tamper("superblock", |bytes| {
            for slot in bytes.chunks_mut(4096) {
                slot[8..12].copy_from_slice(&2u32.to_le_bytes());
                slot[12..16].fill(0);
                let check = crc32fast::hash(slot);
                slot[12..16].copy_from_slice(&check.to_le_bytes());
            }
        })
        .unwrap();
    let newer = error(&device);
    assert!(
        matches!(newer, StoreError::Superblock(SuperblockError::NewerFormat { found: 2, supported: 1 })),
        "{newer}"
    );

    for (body, is_newer) in [(&[RECORD_VERSION + 1, 0][..], true), (&[RECORD_VERSION, 0xff, 0xff], false)] {
        let device = stored();
        let store = start(&device);
        let a = find(&store, "a");
        let sequence = a.info().unwrap().sequence.next();
        let record =
            Record { agent: a.id(), epoch: Epoch(9), sequence, needs: Vec::new(), body: body.to_vec() };
        store.shared().unwrap().log.commit(record).unwrap();
        drop(store);
        if is_newer {
            assert!(matches!(error(&device), StoreError::NewerRecord { found: 2, supported: 1 }));
        } else {
            let store = start(&device);
            assert!(matches!(store.disk(a.id()), Err(StoreError::DamagedAgent { .. })));
        }
    }

    let device = stored();
    let store = start(&device);
    let shared = store.shared().unwrap();
    let payload = Payload::Inline(vec![3, 0xff, 0xff]);
    let payload = postcard::to_stdvec(&payload).unwrap();
    let hash = shared.segments.put(FrameKind::Catalogue, &payload).unwrap();
    shared.segments.flush().unwrap();
    shared.superblock.lock().unwrap().advance(Some(hash), shared.log.tail()).unwrap();
    drop(store);
    assert!(matches!(error(&device), StoreError::NewerRecord { found: 3, supported: 2 }));
}

#[test]
fn records_that_do_not_fit_together_are_one_agents_damage() {
    for (agent, epoch, sequence) in [(None, 9, 100), (None, 0, 0), (Some(5), 1, 1)] {
        let device = stored();
        let store = start(&device);
        let a = find(&store, "a");
        let next = a.info().unwrap().sequence.0 + 1;
        let record = Record {
            agent: agent.map_or(a.id(), |number| AgentId(Uuid::from_u128(number))),
            epoch: Epoch(epoch),
            sequence: Sequence(if sequence == 0 { next } else { sequence }),
            needs: Vec::new(),
            body: entry::encode(ChainDigest::default(), &[]).unwrap(),
        };
        let id = record.agent;
        store.shared().unwrap().log.commit(record).unwrap();
        drop((store, a));
        for _ in 0..2 {
            let store = start(&device);
            assert!(matches!(store.disk(id), Err(StoreError::DamagedAgent { .. })), "{agent:?} {epoch}");
            assert_eq!(store.damaged().unwrap().len(), 1);
            create(&store, "other");
            store.checkpoint().unwrap();
            store.remove(store.find("other").unwrap().unwrap()).unwrap();
        }
        let store = start(&device);
        store.remove(id).unwrap();
        for store in [store, start(&device)] {
            assert_eq!(store.damaged().unwrap(), []);
            assert!(matches!(store.disk(id), Err(StoreError::NoAgent(_))));
            store.checkpoint().unwrap();
        }
    }
}

#[test]
fn every_damaged_part_has_one_clear_error() {
    let device = stored();
    device.tamper("tenant.key", |bytes| bytes[30] ^= 1).unwrap();
    let damaged = error(&device);
    assert!(
        matches!(damaged, StoreError::Io { .. }) && damaged.to_string().contains("tenant.key"),
        "{damaged}"
    );

    let device = stored();
    device.remove("tenant.key").unwrap();
    assert!(error(&device).to_string().contains("tenant.key"));
    assert!(
        !device.list("").unwrap().contains(&"tenant.key".to_owned()),
        "no other key is made in its place"
    );

    let device = stored();
    device.tamper("superblock", |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x55)).unwrap();
    assert!(matches!(error(&device), StoreError::Superblock(SuperblockError::Damaged)));

    let device = stored();
    for name in device.list("segments").unwrap() {
        device.remove(&format!("segments/{name}")).unwrap();
    }
    assert!(matches!(error(&device), StoreError::Chunk(ChunkError::Missing(_))));

    // a group in the middle of the log, of which later ones exist
    let device = stored();
    let log = device.list("log").unwrap().into_iter().last().unwrap();
    device
        .tamper(&format!("log/{log}"), |bytes| {
            let groups: Vec<_> = (4096..bytes.len())
                .step_by(4096)
                .filter(|at| bytes[*at..].starts_with(b"dormlogG"))
                .collect();
            bytes[groups[groups.len() - 2] + 60] ^= 1;
        })
        .unwrap();
    assert!(matches!(error(&device), StoreError::Log(LogError::Damaged { .. })));

    let device = stored();
    for name in device.list("log").unwrap() {
        device.remove(&format!("log/{name}")).unwrap();
    }
    assert!(matches!(error(&device), StoreError::Log(LogError::Missing { .. })));
}

#[test]
fn a_failed_write_or_flush_poisons_and_the_next_opening_recovers() {
    let mut poisoned = 0;
    for n in 1..24u64 {
        for write_fails in [true, false] {
            let device = Simulated::new(n);
            let store = start(&device);
            let a = create(&store, "a");
            device.inject(if write_fails {
                Fault::Write(device.writes() + n)
            } else {
                Fault::Flush(device.flushes() + n)
            });
            let mut ended = 0;
            for turn in 0..8u64 {
                a.begin(TurnStyle::Transaction, b"").unwrap();
                write(&a, EPISODIC, "diary", b"x");
                write(&a, WORKSPACE, "file", &content(turn, 90_000));
                if end(&a, b"").is_err() {
                    device.heal();
                    assert!(matches!(
                        sync(&a),
                        Err(StoreError::Commit(CommitError::Poisoned(_))
                            | StoreError::Chunk(ChunkError::Poisoned(_))
                            | StoreError::Zone(_))
                    ));
                    poisoned += 1;
                    break;
                }
                ended += 1;
            }
            drop(store);
            let store = start(&device.crash(n));
            let a = find(&store, "a");
            let history = a.history().unwrap();
            let found = history.iter().filter(|turn| matches!(turn.outcome, Outcome::Ended(_))).count();
            assert!(found == ended || found == ended + 1, "{found} turns, {ended} acknowledged");
            assert_eq!(read(&a, EPISODIC, "diary").unwrap_or_default().len(), found);
            if let Some(last) = found.checked_sub(1) {
                assert_eq!(read(&a, WORKSPACE, "file").unwrap(), content(last as u64, 90_000));
            }
        }
    }
    assert!(poisoned > 20, "{poisoned}");
}
