//! What segments do when nothing goes wrong.

use super::*;
use crate::device::tests::every_device;

#[test]
fn what_is_put_is_got() {
    every_device(|device| {
        let mut stored: Vec<(Hash, Vec<u8>)> = Vec::new();
        for life in 0..4u64 {
            let segments = Segments::open(device.clone(), KEY, small()).unwrap();
            for (hash, plain) in &stored {
                assert_eq!(segments.get(hash).unwrap()[..], plain[..], "life {life}");
            }
            for number in 0..30 {
                let plain = content(life * 30 + number, (number * 100) as usize);
                let hash = segments.put(FrameKind::Chunk, &plain).unwrap();
                assert_eq!(segments.get(&hash).unwrap()[..], plain[..], "written or not");
                stored.push((hash, plain));
            }
            if life % 2 == 0 {
                segments.flush().unwrap();
            }
            // The empty one is the same each time.
            assert_eq!(segments.stats().frames, (life + 1) * 29 + 1);
            assert!(segments.stats().segments > 2 * life);
        }
        let missing = Hash([1; 32]);
        let segments = Segments::open(device, KEY, small()).unwrap();
        assert!(matches!(segments.get(&missing), Err(ChunkError::Missing(hash)) if hash == missing));
        assert!(!segments.contains(&missing));
    });
}

#[test]
fn the_same_content_is_stored_once() {
    let device = Simulated::new(1);
    let segments = start(&device);
    let hash = segments.put(FrameKind::Chunk, &content(1, 5000)).unwrap();
    let before = segments.stats();
    assert_eq!(segments.put(FrameKind::Node, &content(1, 5000)).unwrap(), hash);
    assert_eq!(segments.stats(), before);
    drop(segments);
    let segments = start(&device);
    assert_eq!(segments.put(FrameKind::Chunk, &content(1, 5000)).unwrap(), hash);
    assert_eq!(segments.stats().frames, 1);
}

#[test]
fn content_that_repeats_takes_less_room() {
    let device = Simulated::new(1);
    let segments = start(&device);
    let hash = segments.put(FrameKind::Chunk, &vec![1; MAX_FRAME]).unwrap();
    assert!(segments.stats().bytes < 20_000);
    assert_eq!(segments.get(&hash).unwrap()[..], vec![1; MAX_FRAME][..]);
    let hash = segments.put(FrameKind::Chunk, &content(1, MAX_FRAME)).unwrap();
    assert_eq!(segments.get(&hash).unwrap().len(), MAX_FRAME);
    assert!(segments.put(FrameKind::Chunk, &vec![0; MAX_FRAME + 1]).is_err());
}

#[test]
fn a_flush_with_nothing_new_does_nothing() {
    let device = Simulated::new(1);
    let segments = start(&device);
    segments.flush().unwrap();
    assert_eq!(device.operations(), 0);
    segments.put(FrameKind::Chunk, b"x").unwrap();
    segments.flush().unwrap();
    let before = device.operations();
    segments.flush().unwrap();
    segments.put(FrameKind::Chunk, b"x").unwrap();
    segments.flush().unwrap();
    assert_eq!(device.operations(), before);
}

#[test]
fn what_waits_to_be_written_is_no_damage() {
    let device = Simulated::new(1);
    let segments = start(&device);
    // the first stays in memory, and the file is empty; later ones begin segments of their own
    for number in 0..60 {
        segments.put(FrameKind::Chunk, &content(number, 700)).unwrap();
        for (file, _) in segments.files() {
            let checked = segments.check(file).unwrap();
            assert_eq!((checked.reason, checked.unreadable.len()), (None, 0), "{number}: {}", checked.file);
        }
    }
    assert!(segments.files().len() > 1);
}

#[test]
fn opening_after_a_clean_end_reads_footers_only() {
    let device = Simulated::new(1);
    for life in 0..3 {
        let segments = start(&device);
        for number in 0..4 {
            segments.put(FrameKind::Chunk, &content(life * 10 + number, 1000)).unwrap();
        }
    }
    // All in one segment; content that is never read at opening is not missed.
    assert_eq!(device.list(FOLDER).unwrap().len(), 1);
    device.tamper(&path(1), |bytes| bytes[SEGMENT_CONTENT..SEGMENT_CONTENT + 1000].fill(0)).unwrap();
    let segments = start(&device);
    assert_eq!(segments.stats().frames, 12);
    let damaged = segments.get(&Hash::of(&KEY, &content(0, 1000))).unwrap_err();
    assert!(matches!(damaged, ChunkError::Damaged { .. }), "{damaged}");
    for number in [1, 13, 23] {
        segments.get(&Hash::of(&KEY, &content(number, 1000))).unwrap();
    }
}

const SEGMENT_CONTENT: usize = footer::SEGMENT_HEADER;

#[test]
fn other_keys_and_other_files_are_kept_apart() {
    let device = Simulated::new(1);
    let hash = start(&device).put(FrameKind::Chunk, b"secret").unwrap();
    device.create("segments/notes.txt", 3, Caching::Cached).unwrap();
    device.create("segments/1.seg", 3, Caching::Cached).unwrap();
    let other = Segments::open(Arc::new(device.clone()), [8; 32], small()).unwrap();
    assert_ne!(other.put(FrameKind::Chunk, b"secret").unwrap(), hash);
    assert!(matches!(other.get(&hash), Err(ChunkError::Damaged { .. })));
}

#[test]
fn many_threads_put_and_get() {
    every_device(|device| {
        let segments = Segments::open(device, KEY, small()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let segments = &segments;
                scope.spawn(move || {
                    for number in 0..50 {
                        // Half of it is everybody's.
                        let plain = content(number + (number % 2) * thread * 1000, 400);
                        let hash = segments.put(FrameKind::Chunk, &plain).unwrap();
                        if number % 10 == 0 {
                            segments.flush().unwrap();
                        }
                        assert_eq!(segments.get(&hash).unwrap()[..], plain[..]);
                    }
                });
            }
        });
        assert_eq!(segments.stats().frames, 25 + 4 * 25);
    });
}

#[test]
fn a_frame_is_the_same_in_another_store_of_the_tenant_wherever_it_lies() {
    let device = Simulated::new(1);
    let segments = start(&device);
    let contents: Vec<Vec<u8>> = (0..5).map(|number| content(number, 900)).chain([vec![7; 5000]]).collect();
    let hashes: Vec<Hash> = contents.iter().map(|it| segments.put(FrameKind::Chunk, it).unwrap()).collect();
    segments.flush().unwrap();
    let frame_of = |hash: &Hash| {
        let location = segments.lock().index.get(hash).unwrap();
        let mut frame = vec![0; FRAME_HEADER + location.stored as usize];
        let file = device.open(&path(location.segment), Caching::Cached).unwrap();
        file.read_at(location.offset, &mut frame).unwrap();
        frame
    };
    // in another order, at other places, in a segment of another number
    let mut file = footer::segment_header(7).to_vec();
    hashes.iter().rev().for_each(|hash| file.extend(frame_of(hash)));
    for key in [KEY, [8; 32]] {
        let there = Simulated::new(2);
        there.create(&path(7), 0, Caching::Cached).unwrap().write_at(0, &file).unwrap();
        let segments = Segments::open(Arc::new(there.clone()), key, small()).unwrap();
        for (hash, content) in hashes.iter().zip(&contents) {
            match segments.get(hash) {
                Ok(found) => assert!(key == KEY && found[..] == content[..]),
                Err(error) => assert!(key != KEY, "{error}"),
            }
        }
        // it counts as stored there, and is not stored twice
        if key == KEY {
            let before = segments.stats();
            for content in &contents {
                segments.put(FrameKind::Chunk, content).unwrap();
            }
            assert_eq!(segments.stats(), before);
        }
    }
}
