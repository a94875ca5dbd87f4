//! What is stored means the same on another host: the format's promises to a later tier of buckets.

use std::collections::BTreeSet;

use super::*;
use crate::chunks::ChunkStore;
use crate::device::{Caching, DeviceKind};
use crate::id::Epoch;
use crate::log::{Log, LogPosition, Record};
use crate::store::chain::ChainDigest;
use crate::store::entry::{self, Entry};
use crate::superblock::SuperblockFile;

/// All records of a store, from the beginning of its log. It must not have been recycled.
fn records(device: &Simulated) -> Vec<Record> {
    let mut records = Vec::new();
    let device = Arc::new(device.killed());
    Log::open(device, LogOptions::default(), LogPosition::START, &mut |record| {
        records.push(record);
        Ok(())
    })
    .unwrap();
    records
}

/// Turns of an agent with everything that records hold.
fn live(store: &Store, disk: &Arc<Disk>) {
    for turn in 0..6u64 {
        disk.begin(TurnStyle::Transaction, &content(turn, 17_000)).unwrap();
        disk.fact(b"a fact").unwrap();
        write(disk, EPISODIC, "diary", format!("{turn} ").as_bytes());
        write(disk, SEMANTIC, "large", &content(100 + turn, 90_000));
        write(disk, WORKSPACE, &format!("file{turn}"), b"small");
        sync(disk).unwrap();
        match turn {
            2 => drop(fail(disk, "it broke").unwrap()),
            _ => drop(end(disk, &content(200 + turn, 18_000)).unwrap()),
        }
    }
    mark(disk).unwrap();
    rewind(disk, GenerationNumber(2)).unwrap();
    wait(|done| disk.set_about(b"other", done)).unwrap();
    assert!(store.log_bytes().unwrap() > 0);
}

/// An empty store of the same tenant, with these chunks, whose log holds these records.
fn transplant(from: &Simulated, segments: &Segments, records: &[Record]) -> Simulated {
    let device = Simulated::new(99);
    let key = from.open("tenant.key", Caching::Cached).unwrap();
    let mut bytes = vec![0; key.len().unwrap() as usize];
    key.read_at(0, &mut bytes).unwrap();
    let copy = device.create("tenant.key", 0, Caching::Cached).unwrap();
    copy.write_at(0, &bytes).unwrap();
    copy.flush().unwrap();
    SuperblockFile::create(&device).unwrap();
    {
        // opened once, it is a store with nothing in it
        let store = start(&device);
        let chunks = &store.shared().unwrap().segments;
        for hash in records.iter().flat_map(|record| &record.needs) {
            let plain = segments.get(hash).unwrap();
            assert_eq!(chunks.put(crate::chunks::FrameKind::Chunk, &plain).unwrap(), *hash);
        }
        chunks.flush().unwrap();
    }
    let from = SuperblockFile::peek(&device).unwrap().log;
    let log = Log::open(Arc::new(device.clone()), LogOptions::default(), from, &mut |_| Ok(())).unwrap();
    for record in records {
        log.commit(record.clone()).unwrap();
    }
    drop(log);
    device
}

#[test]
fn one_agents_records_make_the_same_agent_in_an_empty_store() {
    let device = Simulated::new(1);
    let store = start(&device);
    let (a, other) = (create(&store, "a"), create(&store, "other"));
    std::thread::scope(|scope| {
        scope.spawn(|| live(&store, &other));
        live(&store, &a);
    });
    let wanted = see(&a);
    let mine: Vec<_> = records(&device).into_iter().filter(|record| record.agent == a.id()).collect();
    assert!(mine.len() > 10);
    let there = transplant(&device, &store.shared().unwrap().segments, &mine);
    let store = start(&there);
    assert_eq!(see(&find(&store, "a")), wanted);
    assert_eq!(store.agents().unwrap().len(), 1);
    // and it goes on there
    let a = find(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, EPISODIC, "diary", b"there");
    end(&a, b"").unwrap();
    store.checkpoint().unwrap();
    let before = everything(&store);
    drop(store);
    assert_eq!(everything(&start(&there.crash(1))), before);
}

/// The last digest stands for all records, wherever they are: one that was changed is found by the next.
#[test]
fn an_agents_records_are_a_chain_that_tells_what_was_changed() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    live(&store, &a);
    let mine: Vec<_> = records(&device).into_iter().filter(|record| record.agent == a.id()).collect();
    let mut before = ChainDigest::default();
    for record in &mine {
        assert_eq!(entry::decode(&record.body).unwrap().0, before, "record {}", record.sequence);
        before = ChainDigest::of(record);
    }
    assert_eq!(a.lock().state.digest, before);
    let segments = &store.shared().unwrap().segments;
    let with = |change: &dyn Fn(&mut Record)| {
        let mut records = mine.clone();
        change(&mut records[5]);
        let there = start(&transplant(&device, segments, &records));
        let damaged = there.damaged().unwrap();
        damaged.into_iter().map(|it| it.reason).collect::<Vec<_>>()
    };
    let unchanged: Vec<String> = Vec::new();
    assert_eq!(with(&|_| {}), unchanged);
    // what the record says is well formed, and says something else
    let told = with(&|record| {
        let (before, mut entries) = entry::decode(&record.body).unwrap();
        entries.push(Entry::Synced);
        record.body = entry::encode(before, &entries).unwrap();
    });
    assert!(told.len() == 1 && told[0].contains("record 7 does not follow"), "{told:?}");
    let told =
        with(&|record| record.needs.push(mine.iter().find_map(|it| it.needs.first().copied()).unwrap()));
    assert!(told.len() == 1, "{told:?}");
    // a checkpoint keeps it
    store.checkpoint().unwrap();
    drop((store, a));
    let store = start(&device);
    assert_eq!(find(&store, "a").lock().state.digest, before);
}

#[test]
fn a_record_lists_every_chunk_that_it_names_and_they_are_durable_before_it() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    let mut trace = device.start_trace();
    live(&store, &a);
    fork(&store, &a, GenerationNumber(3), "child").unwrap();
    device.end_trace(&mut trace);
    // an address is looked for in the bytes, however a record writes it down
    let segments = &store.shared().unwrap().segments;
    let stored: BTreeSet<Hash> = segments.addresses().into_iter().collect();
    let mut named = 0;
    for record in records(&device) {
        let needs: BTreeSet<Hash> = record.needs.iter().copied().collect();
        for window in record.body.windows(32) {
            let Ok(bytes) = window.try_into() else { continue };
            if stored.contains(&Hash(bytes)) {
                named += 1;
                assert!(needs.contains(&Hash(bytes)), "{} of {} names more", record.sequence, record.agent);
            }
        }
    }
    assert!(named > 20, "{named}");
    // whatever a crash leaves of the log, the chunks of its records are there
    let mut with_needs = 0;
    loop {
        let crashed = trace.crash(trace.at() as u64);
        let found = records(&crashed);
        let there = start(&crashed);
        let segments = &there.shared().unwrap().segments;
        for hash in found.iter().flat_map(|record| &record.needs) {
            with_needs += 1;
            assert!(segments.get(hash).is_ok(), "after {} changes", trace.at());
        }
        if !trace.step().unwrap() {
            break;
        }
    }
    assert!(with_needs > 100);
}

#[test]
fn a_copied_store_that_is_opened_twice_has_two_incarnations() {
    let folder = tempfile::tempdir().unwrap();
    let (original, copy) = (folder.path().join("original"), folder.path().join("copy"));
    let options = StoreOptions { device: DeviceKind::Blocking, ..options() };
    let store = Store::open(&original, &options).unwrap();
    live(&store, &create(&store, "a"));
    let epoch = find(&store, "a").info().unwrap().epoch;
    drop(store);
    let copied = std::process::Command::new("cp").arg("-r").arg(&original).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut opened = Vec::new();
    for folder in [&original, &copy] {
        let store = Store::open(folder, &options).unwrap();
        let a = find(&store, "a");
        a.begin(TurnStyle::Transaction, b"").unwrap();
        end(&a, b"").unwrap();
        assert!(a.info().unwrap().epoch > epoch, "a new writer");
        let incarnation = store.incarnation().unwrap();
        drop((a, store));
        let device = crate::device::open(folder, DeviceKind::Blocking).unwrap();
        let mut written = Vec::new();
        Log::open(device, LogOptions::default(), LogPosition::START, &mut |record| {
            if record.epoch > epoch {
                written.extend(entry::decode(&record.body).unwrap().1);
            }
            Ok(())
        })
        .unwrap();
        // the records of a writer begin with the opening that it belongs to
        assert!(matches!(written[0], Entry::Opened { incarnation: found } if found == incarnation));
        opened.push((
            SuperblockFile::peek(&*crate::device::open(folder, DeviceKind::Blocking).unwrap()),
            incarnation,
        ));
    }
    let [(Ok(first), a), (Ok(second), b)] = &opened[..] else { panic!("two stores") };
    assert_eq!(first.store, second.store, "the same store by name");
    assert_ne!(a, b);
    assert_eq!((first.incarnation, second.incarnation), (*a, *b));
}

#[test]
fn records_of_an_agent_are_named_by_epoch_and_its_own_sequence() {
    let device = Simulated::new(1);
    let store = start(&device);
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    for disk in [&a, &b, &a, &b, &a] {
        disk.begin(TurnStyle::Transaction, b"").unwrap();
        end(disk, b"").unwrap();
    }
    drop(store);
    let store = start(&device);
    sync(&find(&store, "a")).unwrap();
    for id in [a.id(), b.id()] {
        let all = records(&device);
        let names: Vec<_> =
            all.iter().filter(|it| it.agent == id).map(|it| (it.epoch, it.sequence.0)).collect();
        assert!(names.iter().map(|it| it.1).eq(1..=names.len() as u64), "without gaps: {names:?}");
        assert!(names.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1));
        assert_eq!(names.last().map(|it| it.0), Some(Epoch(if id == a.id() { 2 } else { 1 })));
    }
}
