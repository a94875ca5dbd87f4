//! The index's file saves reading, and is never needed: whatever becomes of it, every frame is found.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::device::simulated::{Fault, Rng, Simulated};
use crate::device::{self, DeviceKind};
use crate::id::Hash;
use crate::segment::{IndexPlace, SegmentOptions, Segments};

const KEY: [u8; 32] = [7; 32];

struct Bed {
    folder: tempfile::TempDir,
    key: [u8; 32],
}

impl Bed {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), key: KEY }
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("index.redb")
    }

    fn open(&self) -> Segments {
        let device = device::open(self.folder.path(), DeviceKind::Blocking).unwrap();
        let options = SegmentOptions { segment_len: 16 << 10, cache: 0, ..SegmentOptions::default() };
        let place = IndexPlace { path: self.index(), cache: 1 << 20 };
        Segments::open_indexed(device, self.key, options, Some(&place)).unwrap()
    }

    fn copy(&self) -> Self {
        let copy = Self { folder: tempfile::tempdir().unwrap(), key: self.key };
        copy_all(self.folder.path(), copy.folder.path());
        copy
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 500 + (number % 7) as usize * 100];
    Rng::new(number + 1).fill(&mut bytes);
    bytes
}

fn put(segments: &Segments, numbers: std::ops::Range<u64>) -> Vec<(Hash, u64)> {
    let put = numbers.map(|it| (segments.put(FrameKind::Chunk, &content(it)).unwrap(), it));
    let put = put.collect();
    segments.flush().unwrap();
    put
}

fn check(segments: &Segments, all: &[(Hash, u64)]) {
    for (hash, number) in all {
        assert_eq!(*segments.get(hash).unwrap(), *content(*number));
    }
    assert_eq!(segments.stats().frames, all.len() as u64);
}

/// 400 frames in many segments, which the index's file covers.
fn filled(bed: &Bed) -> Vec<(Hash, u64)> {
    filled_in(&bed.open())
}

fn filled_in(segments: &Segments) -> Vec<(Hash, u64)> {
    let all = put(segments, 0..400);
    segments.tidy_index();
    check(segments, &all);
    all
}

fn is_right(segments: &Segments) -> bool {
    segments.verify_index().unwrap().is_right
}

#[test]
fn an_intact_index_saves_reading_the_footers() {
    let bed = Bed::new();
    let mut all = filled(&bed);
    for round in 1..4 {
        let segments = bed.open();
        assert!(segments.looked_at() <= 4, "{} of {}", segments.looked_at(), segments.stats().segments);
        assert!(segments.stats().segments > 15);
        assert!(is_right(&segments));
        check(&segments, &all);
        // what is there is not written again
        let before = segments.stats();
        put(&segments, 0..400);
        assert_eq!(segments.stats(), before);
        all.extend(put(&segments, round * 1000..round * 1000 + 60));
        segments.tidy_index();
        check(&segments, &all);
    }
}

#[test]
fn a_file_that_is_gone_cut_off_garbage_old_or_foreign_is_made_anew() {
    let bed = Bed::new();
    filled(&bed);
    let old = fs::read(bed.index()).unwrap();
    let all = {
        let segments = bed.open();
        put(&segments, 400..600);
        put(&segments, 0..600)
    };
    let foreign = {
        let other = Bed { key: [8; 32], ..Bed::new() };
        filled(&other);
        fs::read(other.index()).unwrap()
    };
    let now = fs::read(bed.index()).unwrap();
    let mut cases: Vec<(String, Option<Vec<u8>>)> = vec![
        ("gone".into(), None),
        ("empty".into(), Some(Vec::new())),
        ("garbage".into(), Some(content(3))),
        ("old".into(), Some(old)),
        ("foreign".into(), Some(foreign)),
    ];
    for part in [1, 2, 3, 7] {
        cases.push((format!("cut off at {part}/8"), Some(now[..now.len() * part / 8].to_vec())));
        let mut zeros = now.clone();
        let at = zeros.len() * part / 8;
        zeros[at..at + 4096].fill(0);
        cases.push((format!("zeros at {part}/8"), Some(zeros)));
    }
    let mut rng = Rng::new(5);
    for _ in 0..40 {
        let mut flipped = now.clone();
        let at = rng.below(flipped.len() as u64) as usize;
        flipped[at] ^= 1 << rng.below(8);
        cases.push((format!("flipped at {at}"), Some(flipped)));
    }
    for (what, content) in cases {
        println!("{what}");
        let bed = bed.copy();
        match content {
            None => fs::remove_file(bed.index()).unwrap(),
            Some(content) => fs::write(bed.index(), content).unwrap(),
        }
        for _ in 0..2 {
            let segments = bed.open();
            for (hash, number) in &all {
                assert_eq!(*segments.get(hash).unwrap(), *self::content(*number), "{what}");
            }
            is_right(&segments);
            assert!(is_right(&segments), "{what}");
            check(&segments, &all);
            segments.tidy_index();
        }
    }
}

/// Takes the first place out of the index's file.
fn lose_a_place(file: &Path, hash: &Hash) {
    use redb::TableDefinition;
    const PLACES: TableDefinition<&[u8; 32], &[u8; 20]> = TableDefinition::new("places");
    let database = redb::Database::open(file).unwrap();
    let writing = database.begin_write().unwrap();
    assert!(writing.open_table(PLACES).unwrap().remove(&hash.0).unwrap().is_some());
    writing.commit().unwrap();
}

/// An index that lacks a place, and a device that does not say what is there: whether it is missing is not known.
#[test]
fn what_the_index_cannot_be_compared_with_is_named_and_nothing_in_it_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let place = IndexPlace { path: folder.path().join("index.redb"), cache: 1 << 20 };
    let device = Simulated::new(1);
    let open = || {
        let options = SegmentOptions { segment_len: 16 << 10, cache: 0, ..SegmentOptions::default() };
        Segments::open_indexed(Arc::new(device.clone()), KEY, options, Some(&place)).unwrap()
    };
    let all = filled_in(&open());
    let (lost, number) = all[0];
    lose_a_place(&place.path, &lost);
    let segments = open();
    let reads = device.reads();
    (1..2_000).for_each(|it| device.inject(Fault::Read(reads + it)));
    let error = segments.get(&lost).unwrap_err();
    assert!(matches!(error, ChunkError::Io(_)), "{error}");
    let compared = segments.verify_index().unwrap();
    assert!(!compared.unread.is_empty());
    assert!(compared.unread.iter().all(|it| it.contains("the device failed")), "{:?}", compared.unread);
    device.heal();
    assert_eq!(*segments.get(&lost).unwrap(), *content(number));
    check(&segments, &all);
    // and what there are no descriptors to look at is no damage either
    drop(segments);
    lose_a_place(&place.path, &lost);
    let segments = open();
    device.inject(Fault::Descriptors(0));
    let error = segments.get(&lost).unwrap_err();
    assert!(matches!(error, ChunkError::Shortage(_)), "{error}");
    assert!(matches!(segments.verify_index(), Err(ChunkError::Shortage(_))));
    device.heal();
    check(&segments, &all);
}

#[test]
fn wrong_and_missing_places_are_noticed_by_readers_and_before_a_sweep() {
    use redb::{ReadableDatabase, ReadableTable, TableDefinition};
    const PLACES: TableDefinition<&[u8; 32], &[u8; 20]> = TableDefinition::new("places");
    let bed = Bed::new();
    let all = filled(&bed);
    {
        let database = redb::Database::open(bed.index()).unwrap();
        let rows: Vec<([u8; 32], [u8; 20])> = {
            let table = database.begin_read().unwrap().open_table(PLACES).unwrap();
            table.iter().unwrap().map(|row| row.unwrap()).map(|(k, v)| (*k.value(), *v.value())).collect()
        };
        assert!(rows.len() > 300);
        let writing = database.begin_write().unwrap();
        {
            let mut table = writing.open_table(PLACES).unwrap();
            for (at, (hash, _)) in rows.iter().enumerate() {
                match at % 3 {
                    0 => drop(table.remove(hash).unwrap()),
                    1 => drop(table.insert(hash, &rows[(at + 1) % rows.len()].1).unwrap()),
                    _ => {}
                }
            }
        }
        writing.commit().unwrap();
    }
    // readers
    let copy = bed.copy();
    let segments = copy.open();
    for (hash, number) in &all {
        assert_eq!(*segments.get(hash).unwrap(), *content(*number));
    }
    check(&segments, &all);
    assert!(is_right(&segments));
    // a sweep
    let segments = bed.open();
    assert!(!is_right(&segments));
    check(&segments, &all);
    segments.watch(true).unwrap();
    for (hash, _) in &all {
        segments.mark(hash).unwrap();
    }
    segments.sweep(0, false).unwrap();
    check(&segments, &all);
}

#[test]
fn what_a_sweep_removes_leaves_the_file_and_a_crash_at_any_time_loses_nothing() {
    let bed = Bed::new();
    let all = filled(&bed);
    let kept: Vec<_> = all.iter().filter(|it| it.1 % 5 == 0).copied().collect();
    let segments = bed.open();
    assert!(is_right(&segments));
    segments.watch(true).unwrap();
    for (hash, _) in &kept {
        segments.mark(hash).unwrap();
    }
    let swept = segments.sweep(0, false).unwrap();
    assert!(swept.compacted_segments > 5, "{swept:?}");
    // killed before and after the file is written
    let before = bed.copy();
    segments.tidy_index();
    let after = bed.copy();
    drop(segments);
    for bed in [before, after, bed] {
        for _ in 0..2 {
            let segments = bed.open();
            for (hash, number) in &kept {
                assert_eq!(*segments.get(hash).unwrap(), *content(*number));
            }
            assert!(is_right(&segments));
            let gone = all.iter().filter(|it| it.1 % 5 != 0 && !segments.contains(&it.0)).count();
            assert!(gone > 200, "{gone}");
            segments.tidy_index();
        }
    }
}

#[test]
fn a_second_opening_beside_one_that_is_closed_works() {
    let bed = Bed::new();
    let all = filled(&bed);
    let closed = Arc::new(bed.open());
    closed.close();
    let open = bed.open();
    check(&open, &all);
    for (hash, number) in &all {
        assert_eq!(*closed.get(hash).unwrap(), *content(*number));
    }
}

#[test]
fn a_segment_that_the_device_failed_to_read_is_asked_again() {
    let (folder, device) = (tempfile::tempdir().unwrap(), Simulated::new(1));
    let open = || {
        let options = SegmentOptions { segment_len: 16 << 10, cache: 0, ..SegmentOptions::default() };
        let place = IndexPlace { path: folder.path().join("index.redb"), cache: 1 << 20 };
        Segments::open_indexed(Arc::new(device.clone()), KEY, options, Some(&place)).unwrap()
    };
    let all = filled_in(&open());
    let segments = open();
    let unknown = Hash::of(&KEY, b"never stored");
    for first in [1, 2, 3, 10, 40, 70] {
        for many in [1, 5, 1000] {
            let reads = device.reads();
            (0..many).for_each(|it| device.inject(Fault::Read(reads + first + it)));
            segments.rebuild_index().unwrap();
            if many == 1000 && first == 1 {
                let error = segments.get(&all[0].0).unwrap_err();
                assert!(matches!(error, ChunkError::Io(_)), "whether it is missing is not known: {error}");
            }
            if many % 5 == 0 {
                // what the index's file says of itself does not cover them
                segments.tidy_index();
            }
            device.heal();
            check(&segments, &all);
            let error = segments.get(&unknown).unwrap_err();
            assert!(matches!(error, ChunkError::Missing(_)), "{error}");
        }
    }
    drop(segments);
    check(&open(), &all);
}
