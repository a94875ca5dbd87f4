//! Crashes anywhere: what was flushed is there, and nothing passes for what it is not.

use super::*;
use crate::device::simulated::{Fault, Rng};
use crate::id::{AgentId, Epoch, Sequence};
use crate::log::{Log, LogError, LogOptions, LogPosition, Planted, Record};

#[test]
fn what_was_flushed_survives() {
    for seed in 0..1500 {
        let mut rng = Rng::new(seed);
        let mut device = Simulated::new(seed);
        let mut durable: Vec<u64> = Vec::new();
        for life in 0..4 {
            device.inject(Fault::Stop(1 + rng.below(30)));
            let opened = Segments::open(Arc::new(device.clone()), KEY, small());
            match opened {
                Ok(segments) => {
                    check(&segments, &durable, seed);
                    fill(&segments, &mut rng, life, &mut durable);
                }
                Err(SegmentError::Io { .. }) if device.list("").is_err() => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if rng.one_in(4) {
                device = device.killed();
                check(&start(&device), &durable, seed);
            }
            device = device.crash(rng.bits());
        }
        check(&start(&device), &durable, seed);
    }
}

fn fill(segments: &Segments, rng: &mut Rng, life: u64, durable: &mut Vec<u64>) {
    let mut put = Vec::new();
    for number in 0..rng.below(60) {
        let number = life * 100 + number;
        if segments.put(FrameKind::Chunk, &content(number, (number * 37 % 3000) as usize)).is_err() {
            return;
        }
        put.push(number);
        if rng.one_in(8) {
            if segments.flush().is_err() {
                return;
            }
            durable.append(&mut put);
        }
    }
}

fn check(segments: &Segments, durable: &[u64], seed: u64) {
    for number in durable {
        let plain = content(*number, (number * 37 % 3000) as usize);
        match segments.get(&Hash::of(&KEY, &plain)) {
            Ok(found) => assert_eq!(found[..], plain[..]),
            Err(error) => panic!("seed {seed}: {number} was durable: {error}"),
        }
    }
    // Whatever is indexed can be read.
    assert_eq!(segments.unreadable(), [], "seed {seed}: indexed, and does not read");
}

/// Records that need chunks, over the same device: no record without its chunks.
fn records_have_their_chunks(seed: u64, planted: Planted) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let device = Simulated::new(seed);
    device.inject(Fault::Stop(10 + rng.below(60)));
    if let Ok(segments) = Segments::open(Arc::new(device.clone()), KEY, small()) {
        let segments = Arc::new(segments);
        let options = LogOptions {
            file_len: 32 << 10,
            barrier: Some(segments.clone()),
            planted,
            ..LogOptions::default()
        };
        let log = Log::open(Arc::new(device.clone()), options, LogPosition::START, &mut |_| Ok(()));
        for sequence in 1..=40 {
            let Ok(log) = &log else { break };
            let Ok(hash) = segments.put(FrameKind::Chunk, &content(sequence, 900)) else { break };
            let (agent, needs) = (AgentId(uuid::Uuid::from_u128(1)), vec![hash]);
            let record =
                Record { agent, epoch: Epoch(1), sequence: Sequence(sequence), needs, body: Vec::new() };
            if log.commit(record).is_err() {
                break;
            }
        }
    }
    let device = device.crash(seed);
    let segments = start(&device);
    let mut lost = 0;
    let opened = Log::open(Arc::new(device), LogOptions::default(), LogPosition::START, &mut |record| {
        lost += record.needs.iter().filter(|hash| segments.get(hash).is_err()).count();
        Ok::<_, LogError>(())
    });
    opened.map_err(|error| error.to_string())?;
    if lost > 0 { Err(format!("{lost} chunks are gone")) } else { Ok(()) }
}

#[test]
fn no_record_survives_without_its_chunks() {
    for seed in 0..1000 {
        if let Err(what) = records_have_their_chunks(seed, Planted::None) {
            panic!("seed {seed}: {what}");
        }
    }
    let caught =
        (0..200).filter(|seed| records_have_their_chunks(*seed, Planted::NoBarrier).is_err()).count();
    assert!(caught > 10, "a log without the barrier was caught {caught} times in 200");
}

/// A crash cuts the file off in the middle of a guest's content, where a footer seems to end.
#[test]
fn content_that_looks_like_a_footer_does_not_pass_for_one() {
    for key in [[0; 32], KEY] {
        let device = Simulated::new(1);
        let segments = start(&device);
        let first = segments.put(FrameKind::Chunk, b"first").unwrap();
        segments.flush().unwrap();
        let at = segments.stats().bytes + FRAME_HEADER as u64;
        let mut hostile = footer::encode(&[], 0, at, &key);
        let cut = at as usize + hostile.len();
        hostile.extend(content(1, 100));
        segments.put(FrameKind::Chunk, &hostile).unwrap();
        segments.flush().unwrap();
        let crashed = device.crash(1);
        crashed.tamper(&path(1), |bytes| bytes.truncate(cut)).unwrap();
        // With the store's own key it would pass: this is what the key is for.
        assert_eq!(start(&crashed).contains(&first), key != KEY);
    }
}

/// The sector with the start of a footer's trailer reached the disk, the one with the rest did not.
#[test]
fn a_torn_trailer_hides_nothing() {
    for zeros in 1..=footer::trailer_len() {
        let device = Simulated::new(1);
        let hash = start(&device).put(FrameKind::Chunk, b"durable").unwrap();
        device
            .tamper(&path(1), |bytes| {
                let start = bytes.len() - zeros;
                bytes[start..].fill(0);
            })
            .unwrap();
        let segments = start(&device);
        assert_eq!(segments.get(&hash).unwrap()[..], b"durable"[..], "{zeros} bytes lost");
        drop(segments);
        assert!(start(&device).contains(&hash));
    }
}

/// A guest stores content that holds a whole frame, under an address whose content it is not.
#[test]
fn content_that_looks_like_a_frame_does_not_pass_for_one() {
    let device = Simulated::new(1);
    let victim = Hash::of(&KEY, b"what the victim will store");
    let segments = start(&device);
    let mut hostile = content(1, 100);
    hostile.extend(frame::encode(FrameKind::Chunk, b"forged", &victim));
    let first = segments.put(FrameKind::Chunk, b"first").unwrap();
    segments.put(FrameKind::Chunk, &hostile).unwrap();
    let last = segments.put(FrameKind::Chunk, b"last").unwrap();
    segments.flush().unwrap();
    // The machine stops before a footer, and the header of the hostile frame is lost.
    let crashed = device.crash(1);
    let at = footer::SEGMENT_HEADER + FRAME_HEADER + b"first".len();
    crashed.tamper(&path(1), |bytes| bytes[at..at + 4].fill(0)).unwrap();
    let segments = start(&crashed);
    assert!(segments.get(&first).is_ok());
    assert!(segments.get(&last).is_ok(), "what lies behind the damage is found");
    assert!(!segments.contains(&victim));
    drop(segments);
    assert_eq!(start(&crashed).stats().frames, 2, "the torn segment was sealed with what reads");
}

#[test]
fn what_a_purge_was_overwriting_is_written_again_by_whoever_puts_it() {
    let device = Simulated::new(1);
    let segments = start(&device);
    let all: Vec<_> = (0..40).map(|number| content(number, 900)).collect();
    let put = |segments: &Segments, content: &[u8]| segments.put(FrameKind::Chunk, content).unwrap();
    let hashes: Vec<_> = all.iter().map(|content| put(&segments, content)).collect();
    segments.flush().unwrap();
    let mut trace = device.start_trace();
    segments.watch(true).unwrap();
    let marked = hashes.iter().step_by(5).filter(|hash| segments.mark(hash).unwrap().is_some()).count();
    assert_eq!(marked, 8);
    segments.purge(0).unwrap();
    device.end_trace(&mut trace);
    drop(segments);
    let mut half = 0;
    loop {
        for how in 0..4 {
            let segments = start(&trace.crash(how));
            assert!(segments.unreadable().is_empty(), "at {}", trace.at());
            let there = hashes.iter().filter(|hash| segments.contains(hash)).count();
            half += usize::from((9..40).contains(&there));
            for (content, hash) in all.iter().zip(&hashes).step_by(5) {
                assert_eq!(&segments.get(hash).unwrap()[..], content, "at {}", trace.at());
            }
            for content in &all {
                let hash = put(&segments, content);
                segments.flush().unwrap();
                assert_eq!(&segments.get(&hash).unwrap()[..], content, "at {}", trace.at());
            }
        }
        if !trace.step().unwrap() {
            break;
        }
    }
    assert!(half > 0);
}
