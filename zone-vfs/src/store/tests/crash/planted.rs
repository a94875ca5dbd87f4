//! Mistakes that are made on purpose: the crash test notices each.

use super::*;
use crate::segment::Planted as SegmentPlanted;

/// The workloads that are tried until the mistake is noticed.
const TRIES: u64 = 200;

fn noticed(conditions: Conditions) -> Option<u64> {
    (0..TRIES).find(|seed| run(*seed, conditions).is_err())
}

#[test]
fn mistakes_of_the_log_are_noticed() {
    for mistake in [Planted::AcknowledgeBeforeFlush, Planted::NoBarrier, Planted::NoChecksum] {
        PLANTED.set(mistake);
        let noticed = noticed(Conditions::default());
        PLANTED.set(Planted::None);
        assert!(noticed.is_some(), "{mistake:?} was not noticed");
    }
}

#[test]
fn mistakes_of_the_segments_are_noticed() {
    for mistake in [SegmentPlanted::FooterBeforeData, SegmentPlanted::NoChecksum] {
        SEGMENT_PLANTED.set(mistake);
        let noticed = noticed(Conditions::default());
        SEGMENT_PLANTED.set(SegmentPlanted::None);
        assert!(noticed.is_some(), "{mistake:?} was not noticed");
    }
}

#[test]
fn mistakes_of_the_store_are_noticed() {
    for mistake in [
        Mistake::SharedIsDurableAtOnce,
        Mistake::TurnWaitsForNothing,
        Mistake::NumbersAreLeftOut,
        Mistake::BackupOfThePast,
    ] {
        MISTAKE.set(Some(mistake));
        let noticed = noticed(Conditions::default());
        MISTAKE.set(None);
        assert!(noticed.is_some(), "{mistake:?} was not noticed");
    }
}

#[test]
fn mistakes_of_what_is_kept_and_what_is_erased_are_noticed() {
    for mistake in [
        Mistake::PinsHoldNothing,
        Mistake::NothingIsStoodOn,
        Mistake::NewestIsTaken,
        Mistake::TheAwakeAreRemoved,
        Mistake::ErasedTooSoon,
        Mistake::TurnsAreRemembered,
    ] {
        MISTAKE.set(Some(mistake));
        let noticed = noticed(Conditions::default());
        MISTAKE.set(None);
        assert!(noticed.is_some(), "{mistake:?} was not noticed");
    }
}

#[test]
fn a_device_that_does_not_sync_folders_is_noticed() {
    let conditions = Conditions { no_folder_sync: true, ..Conditions::default() };
    assert!(noticed(conditions).is_some());
}
