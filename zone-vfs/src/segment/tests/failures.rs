//! Full disks, failed writes and flushes, damage.

use super::*;
use crate::device::simulated::Fault;

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let device = Simulated::new(1);
    let segments = start(&device);
    device.inject(Fault::Capacity(30_000));
    let mut stored = Vec::new();
    let mut refused = 0;
    for number in 0..100 {
        match segments.put(FrameKind::Chunk, &content(number, 1000)) {
            Ok(hash) => stored.push((number, hash)),
            Err(ChunkError::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stored.len() > 20 && refused > 50, "{} {refused}", stored.len());
    assert!(matches!(segments.flush(), Err(ChunkError::NoSpace) | Ok(())));
    for (number, hash) in &stored {
        assert_eq!(segments.get(hash).unwrap()[..], content(*number, 1000)[..]);
    }
    device.heal();
    let more = segments.put(FrameKind::Chunk, b"there is room again").unwrap();
    segments.flush().unwrap();
    drop(segments);
    let segments = start(&device.crash(1));
    assert!(segments.get(&more).is_ok());
    assert!(stored.iter().all(|(_, hash)| segments.get(hash).is_ok()));
}

#[test]
fn failed_writes_and_flushes_poison() {
    for fault in [Fault::Write(1), Fault::Flush(1)] {
        let device = Simulated::new(1);
        let segments = start(&device);
        device.inject(fault);
        let hash = segments.put(FrameKind::Chunk, b"x").unwrap();
        assert!(matches!(segments.flush(), Err(ChunkError::Poisoned(_))), "{fault:?}");
        assert!(matches!(segments.flush(), Err(ChunkError::Poisoned(_))), "never tried again");
        assert!(matches!(segments.put(FrameKind::Chunk, b"y"), Err(ChunkError::Poisoned(_))));
        assert!(matches!(segments.put(FrameKind::Chunk, b"x"), Err(ChunkError::Poisoned(_))));
        assert!(segments.get(&hash).is_ok(), "reading goes on");
        drop(segments);
        assert_eq!(start(&device.crash(1)).stats().frames, 0);
    }
}

#[test]
fn every_damaged_byte_is_noticed() {
    let sound = Simulated::new(1);
    let segments = start(&sound);
    let plain: Vec<Vec<u8>> = (0..4).map(|number| content(number, 300)).collect();
    let hashes: Vec<Hash> = plain.iter().map(|it| segments.put(FrameKind::Chunk, it).unwrap()).collect();
    segments.flush().unwrap();
    let unsealed = sound.killed();
    drop(segments);
    let (mut fewer, mut damaged) = (0, 0);
    for device in [unsealed, sound] {
        let len = device.open(&path(1), Caching::Cached).unwrap().len().unwrap();
        for bit in (0..len * 8).step_by(13) {
            let device = device.killed();
            device.flip_bit(&path(1), bit).unwrap();
            let segments = match Segments::open(Arc::new(device), KEY, small()) {
                Ok(segments) => segments,
                Err(error) => panic!("bit {bit}: {error}"),
            };
            for (hash, plain) in hashes.iter().zip(&plain) {
                match segments.get(hash) {
                    Ok(found) => assert_eq!(found[..], plain[..], "bit {bit}"),
                    Err(ChunkError::Missing(_)) => fewer += 1,
                    Err(ChunkError::Damaged { .. }) => damaged += 1,
                    Err(error) => panic!("bit {bit}: {error}"),
                }
            }
        }
    }
    assert!(fewer > 100 && damaged > 100, "{fewer} {damaged}");
}

#[test]
fn a_newer_format_is_named() {
    let device = Simulated::new(1);
    drop({
        let segments = start(&device);
        segments.put(FrameKind::Chunk, b"x").unwrap();
        segments
    });
    device
        .tamper(&path(1), |bytes| {
            bytes[8..12].copy_from_slice(&5u32.to_le_bytes());
            let sum = crc32fast::hash(&bytes[..16]);
            bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        })
        .unwrap();
    let error = Segments::open(Arc::new(device), KEY, small()).err().unwrap();
    assert!(
        matches!(error, SegmentError::NewerFormat { found: 5, supported: FORMAT_VERSION, .. }),
        "{error}"
    );
}

#[test]
fn a_newer_footer_or_frame_is_named_and_nothing_is_written_over_it() {
    type Newer = fn(&mut Vec<u8>);
    let device = Simulated::new(1);
    let segments = start(&device);
    segments.put(FrameKind::Chunk, b"x").unwrap();
    segments.flush().unwrap();
    let unsealed = device.killed();
    segments.close();
    drop(segments);
    let newer_footer = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(4).rposition(|it| it == b"dIdx").unwrap();
        bytes[at + 4..at + 8].copy_from_slice(&2u32.to_le_bytes());
        let end = bytes.len() - 16;
        let key = blake3::derive_key("dormouse 2026 segment footer", &KEY);
        let mac = blake3::keyed_hash(&key, &bytes[at..end]);
        bytes[end..].copy_from_slice(&mac.as_bytes()[..16]);
    };
    let newer_frame = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(4).position(|it| it == b"dFrm").unwrap();
        bytes[at + 4] = 2;
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes[at..at + 80]);
        let stored = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        sum.update(&bytes[at + 84..at + 84 + stored]);
        let sum = sum.finalize().to_le_bytes();
        bytes[at + 80..at + 84].copy_from_slice(&sum);
    };
    let cases: [(&Simulated, Newer, &str); 2] =
        [(&device, newer_footer, "the footer of"), (&unsealed, newer_frame, "the frame at")];
    for (device, newer, named) in cases {
        let mut before = Vec::new();
        device
            .tamper(&path(1), |bytes| {
                newer(bytes);
                before.clone_from(bytes);
            })
            .unwrap();
        let error = Segments::open(Arc::new(device.clone()), KEY, small()).err().unwrap();
        assert!(matches!(error, SegmentError::NewerFormat { found: 2, supported: 1, .. }), "{error}");
        assert!(error.to_string().contains(named), "{error}");
        device.tamper(&path(1), |bytes| assert_eq!(*bytes, before)).unwrap();
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let device = Simulated::new(1);
    let segments = start(&device);
    let hashes: Vec<Hash> =
        (0..60).map(|number| segments.put(FrameKind::Chunk, &content(number, 1000)).unwrap()).collect();
    device.remove(&path(1)).unwrap();
    let error = segments.get(&hashes[0]).unwrap_err();
    assert!(
        matches!(&error, ChunkError::Damaged { reason, .. } if reason.contains("00000001.seg")),
        "{error}"
    );
}
