use super::*;
use crate::device::simulated::{Fault, Simulated};
use crate::device::tests::every_device;

fn position(group: u64) -> LogPosition {
    LogPosition { file_generation: 1, offset: group * 4096, group }
}

#[test]
fn what_is_written_is_found_again() {
    every_device(|device| {
        assert!(matches!(SuperblockFile::open(&*device), Err(SuperblockError::Missing)));
        assert!(matches!(SuperblockFile::peek(&*device), Err(SuperblockError::Missing)));
        let mut file = SuperblockFile::create(&*device).unwrap();
        let first = *file.current();
        assert_eq!((first.catalogue, first.log), (None, LogPosition::START));
        assert!(matches!(SuperblockFile::create(&*device), Err(SuperblockError::Exists)));
        for group in 1..=5 {
            file.advance(Some(Hash([group as u8; 32])), position(group)).unwrap();
        }
        drop(file);
        let file = SuperblockFile::open(&*device).unwrap();
        let found = *file.current();
        assert_eq!(found.store, first.store);
        assert_ne!(found.incarnation, first.incarnation, "each opening has its own");
        assert_eq!((found.catalogue, found.log), (Some(Hash([5; 32])), position(5)));
        assert_eq!(SuperblockFile::peek(&*device).unwrap(), found);
    });
}

#[test]
fn a_crash_leaves_the_old_or_the_new() {
    for seed in 0..2000 {
        let device = Simulated::new(seed);
        device.inject(Fault::Stop(1 + seed % 16));
        let mut durable = 0;
        let mut tried = 0;
        let created = SuperblockFile::create(&device);
        let was_created = created.is_ok();
        if let Ok(mut file) = created {
            for group in 1..=6 {
                tried = group;
                if file.advance(Some(Hash([group as u8; 32])), position(group)).is_err() {
                    break;
                }
                durable = group;
            }
        }
        let device = device.crash(seed);
        match SuperblockFile::open(&device) {
            Ok(file) => {
                let group = file.current().log.group;
                assert!(group == durable || group == tried, "seed {seed}: {group}, {durable} was durable");
                assert_eq!(file.current().catalogue, (group > 0).then_some(Hash([group as u8; 32])));
            }
            Err(SuperblockError::Missing) => {
                assert!(!was_created, "seed {seed}");
                SuperblockFile::create(&device).unwrap();
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

#[test]
fn one_damaged_slot_is_survived_and_two_are_reported() {
    for bit in (0..8 * BLOCK as u64).step_by(61) {
        let device = Simulated::new(1);
        let mut file = SuperblockFile::create(&device).unwrap();
        file.advance(None, position(7)).unwrap();
        // Slot 1 is the newest.
        device.flip_bit(FILE, 8 * BLOCK as u64 + bit).unwrap();
        assert_eq!(SuperblockFile::peek(&device).unwrap().log, LogPosition::START);
        device.flip_bit(FILE, bit).unwrap();
        assert!(matches!(SuperblockFile::open(&device), Err(SuperblockError::Damaged)));
    }
}

#[test]
fn a_newer_format_is_named_and_left_alone() {
    let device = Simulated::new(1);
    SuperblockFile::create(&device).unwrap();
    device
        .tamper(FILE, |bytes| {
            bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
            let sum = slot::checksum(&bytes[..BLOCK]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        })
        .unwrap();
    let writes = device.writes();
    let error = SuperblockFile::open(&device).unwrap_err();
    assert!(matches!(error, SuperblockError::NewerFormat { found: 9, supported: FORMAT_VERSION }));
    assert_eq!(device.writes(), writes);
}

#[test]
fn a_failed_flush_poisons() {
    let device = Simulated::new(1);
    let mut file = SuperblockFile::create(&device).unwrap();
    device.inject(Fault::Flush(device.flushes() + 1));
    assert!(matches!(file.advance(None, position(1)), Err(SuperblockError::Poisoned(_))));
    assert!(matches!(file.advance(None, position(2)), Err(SuperblockError::Poisoned(_))));
    assert_eq!(file.current().log, LogPosition::START);
}
