//! Damage is told apart from a torn tail, and from hostile content.

use super::*;
use crate::device::BLOCK;
use crate::device::simulated::{Fault, Rng};

/// Three groups in each of several files, and the position of each group.
fn filled(device: &Simulated) -> Vec<LogPosition> {
    let (log, _) = start(device, LogOptions { file_len: 4 * BLOCK as u64, ..small() });
    (1..=10).map(|sequence| log.commit(record(1, sequence, &[7; 3000])).unwrap()).collect()
}

#[test]
fn every_damaged_byte_is_noticed() {
    let mut rng = Rng::new(5);
    let sound = Simulated::new(1);
    filled(&sound);
    let files = sound.list("log").unwrap();
    assert_eq!(files.len(), 4);
    let mut noticed = 0;
    for round in 0..600 {
        let device = sound.killed();
        let file = format!("log/{}", files[rng.below(4) as usize]);
        let bit = rng.below(4 * BLOCK as u64 * 8);
        device.flip_bit(&file, bit).unwrap();
        match open(Arc::new(device), small(), LogPosition::START) {
            // A bit of padding, or of the last group, which might be torn.
            Ok((_, records)) => {
                assert!(records.len() >= 9, "round {round}: {file} bit {bit}: {} records", records.len());
                assert!(records.iter().all(|it| it.body == [7; 3000]));
            }
            Err(LogError::Damaged { file: named, .. }) => {
                assert_eq!(named, file);
                noticed += 1;
            }
            // The header of a file is gone, and with it the file's place.
            Err(LogError::Missing { .. }) => noticed += 1,
            Err(other) => panic!("round {round}: {other}"),
        }
    }
    assert!(noticed > 200, "{noticed}");
}

#[test]
fn damage_names_file_and_offset() {
    let device = Simulated::new(1);
    let positions = filled(&device);
    let at = positions[4];
    device.flip_bit("log/00000002.log", (at.offset + 100) * 8).unwrap();
    let error = error_of(&device, LogPosition::START);
    assert!(
        matches!(&error, LogError::Damaged { file, offset, .. } if file == "log/00000002.log" && *offset == at.offset),
        "{error}"
    );
    // What lies before the start of a recovery does not matter to it.
    let (_, records) = open(Arc::new(device), small(), positions[5]).unwrap();
    assert_eq!(sequences(&records), [6, 7, 8, 9, 10]);
}

#[test]
fn missing_and_foreign_files_are_noticed() {
    let device = Simulated::new(1);
    let positions = filled(&device);
    device.create("log/notes.txt", 10, crate::device::Caching::Cached).unwrap();
    assert_eq!(start(&device, small()).1.len(), 10);
    let gap = device.killed();
    gap.remove("log/00000002.log").unwrap();
    let error = error_of(&gap, LogPosition::START);
    assert!(matches!(error, LogError::Missing { generation: 2 }), "{error}");
    let last = device.killed();
    last.remove("log/00000004.log").unwrap();
    let error = error_of(&last, *positions.last().unwrap());
    assert!(matches!(error, LogError::Missing { generation: 4 }), "{error}");
    let other = Simulated::new(2);
    filled(&other);
    let mut foreign = Vec::new();
    other.tamper("log/00000003.log", |bytes| foreign.clone_from(bytes)).unwrap();
    device.tamper("log/00000003.log", |bytes| *bytes = foreign).unwrap();
    let error = error_of(&device, LogPosition::START);
    assert!(error.to_string().contains("another log"), "{error}");
}

#[test]
fn a_lost_header_of_the_last_file_is_noticed() {
    let device = Simulated::new(1);
    let positions = filled(&device);
    assert_eq!(positions[9].file_generation, 4);
    device.flip_bit("log/00000004.log", 200).unwrap();
    let error = error_of(&device, positions[8]);
    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
}

#[test]
fn a_newer_format_is_named() {
    let device = Simulated::new(1);
    filled(&device);
    device
        .tamper("log/00000001.log", |bytes| {
            bytes[8..12].copy_from_slice(&7u32.to_le_bytes());
            let mut sum = crc32fast::Hasher::new();
            sum.update(&bytes[..12]);
            sum.update(&[0; 4]);
            sum.update(&bytes[16..BLOCK]);
            bytes[12..16].copy_from_slice(&sum.finalize().to_le_bytes());
        })
        .unwrap();
    let error = error_of(&device, LogPosition::START);
    assert!(matches!(error, LogError::NewerFormat { found: 7, supported: FORMAT_VERSION, .. }), "{error}");
}

#[test]
fn positions_that_are_none_are_refused() {
    let device = Simulated::new(1);
    filled(&device);
    for (file_generation, offset, group) in
        [(1, 100, 1), (1, 0, 1), (1, 1 << 30, 1), (2, 4096, 1), (9, 4096, 30)]
    {
        let from = LogPosition { file_generation, offset, group };
        let error = error_of(&device, from);
        assert!(matches!(error, LogError::Damaged { .. } | LogError::Missing { .. }), "{from}: {error}");
    }
}

#[test]
fn an_error_of_the_receiver_stops_the_recovery() {
    let device = Simulated::new(1);
    filled(&device);
    let mut seen = 0;
    let error = Log::open(Arc::new(device), small(), LogPosition::START, &mut |_| {
        seen += 1;
        if seen == 3 { Err(LogError::Record("no".into())) } else { Ok(()) }
    })
    .unwrap_err();
    assert!(matches!(error, LogError::Record(_)));
    assert_eq!(seen, 3);
}

proptest::proptest! {
    /// Lengths and counts that do not add up are errors, whatever the checksum says.
    #[test]
    fn no_bytes_make_the_reader_of_records_panic(
        needs in 0..4usize,
        body in proptest::collection::vec(0u8.., 0..100),
        at in 0..200usize,
        byte in 0u8..,
        cut in 0..300usize,
    ) {
        let sound = Record { needs: vec![Hash([9; 32]); needs], ..record(1, 1, &body) };
        let mut buf = crate::device::AlignedBuf::new();
        format::put_record(&mut buf, &sound);
        proptest::prop_assert_eq!(format::take_record(&mut &buf[..]).unwrap(), sound.clone());
        let mut bytes = buf[..buf.len().min(cut)].to_vec();
        if let Some(changed) = bytes.get_mut(at) {
            *changed = byte;
        }
        // Also with a checksum that fits.
        for fits in [false, true] {
            if fits && bytes.len() >= 8 {
                let sum = crc32fast::hash(&bytes[8..]);
                bytes[4..8].copy_from_slice(&sum.to_le_bytes());
            }
            let mut rest = &bytes[..];
            if let Ok(found) = format::take_record(&mut rest) {
                proptest::prop_assert!(format::record_len(&found).unwrap() + rest.len() == bytes.len());
            }
        }
    }
}

/// A body that holds, at a block boundary of the log, what would be the next group.
fn hostile_body(salt: [u8; 16]) -> Vec<u8> {
    let mut group = crate::device::AlignedBuf::new();
    format::begin_group(&mut group);
    format::put_record(&mut group, &record(66, 66, b"forged"));
    format::seal_group(&mut group, &salt, 1, 3, 1);
    let mut body = vec![0; BLOCK - format::GROUP_HEADER - format::RECORD_HEADER];
    body.extend_from_slice(&group);
    body.extend_from_slice(&[0; 100]);
    body
}

/// The hostile record's group is torn: its first block never reached the disk.
fn with_torn_hostile_tail(salt_of: impl FnOnce(&[u8]) -> [u8; 16]) -> Simulated {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    log.commit(record(1, 1, b"sound")).unwrap();
    let mut salt = [0; 16];
    device.tamper("log/00000001.log", |bytes| salt = salt_of(&bytes[32..48])).unwrap();
    let at = log.commit(record(1, 2, &hostile_body(salt))).unwrap().offset as usize;
    drop(log);
    device.tamper("log/00000001.log", |bytes| bytes[at..at + BLOCK].fill(0)).unwrap();
    device
}

#[test]
fn content_that_looks_like_a_group_does_not_pass_for_one() {
    let device = with_torn_hostile_tail(|_| [0; 16]);
    let (log, records) = start(&device, small());
    assert_eq!(sequences(&records), [1]);
    log.commit(record(1, 2, b"goes on")).unwrap();
    drop(log);
    assert_eq!(sequences(&start(&device, small()).1), [1, 2]);
    // With the log's own salt it would pass: this is what the salt is for.
    let device = with_torn_hostile_tail(|salt| salt.try_into().unwrap());
    assert!(matches!(error_of(&device, LogPosition::START), LogError::Damaged { .. }));
}

#[test]
fn an_interrupted_creation_leaves_nothing_that_matters() {
    for seed in 0..50 {
        let device = Simulated::new(seed);
        device.inject(Fault::Stop(1));
        let (log, _) = start(&device, small());
        assert!(log.commit(record(1, 1, b"x")).is_err());
        drop(log);
        let device = device.crash(seed);
        let (log, records) = start(&device, small());
        assert!(records.is_empty());
        log.commit(record(1, 1, b"x")).unwrap();
        drop(log);
        assert_eq!(start(&device, small()).1.len(), 1);
    }
}
