//! Segment files.

use std::sync::Arc;

use super::Input;
use crate::chunks::{ChunkStore, FrameKind};
use crate::device::simulated::Simulated;
use crate::device::{Caching, Device};
use crate::id::Hash;
use crate::segment::{SegmentOptions, Segments};

const KEY: [u8; 32] = [5; 32];
pub(super) const PATH: &str = "segments/00000001.seg";

/// Opens a segment of these bytes: as they are, as frames with true checksums, or as changes of a
/// sound segment. What is then got under an address is what has that address.
pub fn segments(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let device = Simulated::new(1);
    let mut addresses: Vec<Hash> = contents().map(|content| Hash::of(&KEY, &content)).collect();
    match input.below(3) {
        0 => write(&device, input.rest()),
        1 => {
            let file = with_frames(&mut input, &mut addresses);
            write(&device, &file);
        }
        _ => {
            changed(&device, &mut input);
        }
    }
    for _ in 0..2 {
        let Ok(segments) = open(&device) else { return };
        for hash in &addresses {
            if let Ok(plain) = segments.get(hash) {
                assert_eq!(Hash::of(&KEY, &plain), *hash, "other content under an address");
            }
        }
        let hash = segments.put(FrameKind::Chunk, b"new").expect("there is space");
        segments.flush().expect("nothing fails");
        addresses.push(hash);
        assert_eq!(segments.get(&hash).expect("it was put")[..], b"new"[..]);
    }
}

pub(super) fn open(device: &Simulated) -> Result<Segments, crate::segment::SegmentError> {
    let options =
        SegmentOptions { segment_len: 8 << 10, write_buffer: 0, cache: 0, ..SegmentOptions::default() };
    Segments::open(Arc::new(device.clone()), KEY, options)
}

fn write(device: &Simulated, bytes: &[u8]) {
    device.create(PATH, 0, Caching::Cached).and_then(|file| file.write_at(0, bytes)).expect("a file");
}

pub(super) fn contents() -> impl Iterator<Item = Vec<u8>> {
    (0..6u8).map(|number| vec![number; usize::from(number) * 50])
}

/// A sound segment with footers, some bytes of which are changed.
fn changed(device: &Simulated, input: &mut Input) {
    for _ in 0..2 {
        let segments = open(device).expect("a sound segment");
        for content in contents() {
            segments.put(FrameKind::Chunk, &content).expect("there is space");
        }
        segments.flush().expect("nothing fails");
    }
    let change = |bytes: &mut Vec<u8>| {
        while !input.is_empty() {
            let at = usize::from(input.u16()) % bytes.len().max(1);
            match input.below(4) {
                0 => bytes.truncate(at),
                1 => {
                    let from = usize::from(input.u16()) % bytes.len().max(1);
                    let moved = bytes[from..bytes.len().min(from + 100)].to_vec();
                    bytes.truncate(at);
                    bytes.extend(moved);
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = input.byte();
                    }
                }
            }
        }
    };
    device.tamper(PATH, change).expect("a file");
}

/// As `docs/format.md` has it.
fn with_frames(input: &mut Input, addresses: &mut Vec<Hash>) -> Vec<u8> {
    let mut file = b"dormsegm".to_vec();
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&crc32fast::hash(&file).to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    while !input.is_empty() {
        let (kind, codec) = (input.byte() % 5, input.byte() % 3);
        let len = input.below(200);
        let stored = input.take(len);
        let plain = if codec == 1 { u32::from(input.u16()) * 17 } else { stored.len() as u32 };
        let hash = if input.byte() > 60 { Hash::of(&KEY, stored) } else { Hash([input.byte(); 32]) };
        addresses.push(hash);
        let mut frame = b"dFrm".to_vec();
        frame.extend_from_slice(&[1, kind, codec, 0]);
        frame.extend_from_slice(&plain.to_le_bytes());
        frame.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        frame.extend_from_slice(&[0; 32]);
        frame.extend_from_slice(&hash.0);
        let mut sum = crc32fast::Hasher::new();
        sum.update(&frame);
        sum.update(stored);
        frame.extend_from_slice(&sum.finalize().to_le_bytes());
        frame.extend_from_slice(stored);
        file.extend(frame);
        if input.byte() > 240 {
            file.extend_from_slice(input.take(9));
        }
    }
    file
}
