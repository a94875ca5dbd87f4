//! Bounds of zones that the operator sets anew.

use super::*;
use crate::zone::ErrorCode;

const LITTLE: Quota = Quota { bytes: 10, inodes: 100 };
const MORE: Quota = Quota { bytes: 1 << 20, inodes: 100 };

fn quota(disk: &Disk, zone: u16) -> Quota {
    disk.zone(zone, |z| z.quota()).unwrap()
}

/// Whether `len` bytes can be appended to a new file.
fn fits(disk: &Disk, name: &str, len: usize) -> bool {
    let written = disk.zone(WORKSPACE, |zone| {
        let inode = zone.open(access(), Inode::ROOT, name.as_bytes(), WRITE).unwrap();
        let written = zone.append(access(), inode, &vec![b'x'; len]);
        zone.close(inode).unwrap();
        written
    });
    match written.unwrap() {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e.code, ErrorCode::Quota, "{e}");
            false
        }
    }
}

#[test]
fn bounds_hold_at_once_and_nothing_takes_them_back() {
    let device = Simulated::new(1);
    let store = start(&device);
    let disk = create(&store, "a");
    disk.begin(TurnStyle::Transaction, b"").unwrap();
    write(&disk, WORKSPACE, "f", &[1; 100]);
    // beside a turn, which may fail
    disk.set_quota(WORKSPACE, LITTLE).unwrap();
    fail(&disk, "it broke").unwrap();
    assert_eq!(quota(&disk, WORKSPACE), LITTLE);
    assert!(!fits(&disk, "g", 11) && fits(&disk, "h", 10));
    sync(&disk).unwrap();
    mark(&disk).unwrap();
    rewind(&disk, GenerationNumber(0)).unwrap();
    assert_eq!(quota(&disk, WORKSPACE), LITTLE, "made after the bounds of that generation");
    disk.set_quota(WORKSPACE, MORE).unwrap();
    assert!(fits(&disk, "h", 1000));
    sync(&disk).unwrap();
    // less than is used refuses to grow, and takes nothing
    disk.set_quota(WORKSPACE, LITTLE).unwrap();
    assert!(!fits(&disk, "g", 1));
    assert_eq!(read(&disk, WORKSPACE, "h").unwrap().len(), 1000);
    fork(&store, &disk, disk.head(), "child").unwrap();
    assert!(matches!(disk.set_quota(99, MORE), Err(StoreError::NoZone { index: 99 })));
    let crashed = device.crash(1);
    drop((disk, store));
    for checkpoints in 0..3 {
        let store = start(&crashed);
        for name in ["a", "child"] {
            let disk = find(&store, name);
            assert_eq!(quota(&disk, WORKSPACE), LITTLE, "{name}, {checkpoints}");
            assert_eq!(disk.zones()[usize::from(WORKSPACE)].quota, LITTLE);
            assert_eq!(quota(&disk, SEMANTIC), Quota::default());
        }
        store.checkpoint().unwrap();
    }
}

#[test]
fn the_bounds_of_a_shared_zone_are_set_for_all_that_mount_it() {
    let device = Simulated::new(1);
    let store = start(&device);
    let team = store.create_shared("team", LITTLE).unwrap();
    let (one, other) =
        (shared::create_in(&store, "one", team, true), shared::create_in(&store, "other", team, false));
    one.set_quota(shared::TEAM, MORE).unwrap();
    assert_eq!((quota(&one, shared::TEAM), quota(&other, shared::TEAM)), (MORE, MORE));
    store.shared_zone(team).unwrap().set_quota(Quota { inodes: 7, ..MORE }).unwrap();
    drop((one, other));
    let crashed = device.crash(1);
    drop(store);
    for _ in 0..2 {
        let store = start(&crashed);
        let [team] = &store.shared_zones().unwrap()[..] else { panic!("one shared zone") };
        assert_eq!(team.usage.as_ref().unwrap().1, Quota { inodes: 7, ..MORE });
        store.checkpoint().unwrap();
    }
}

#[test]
fn what_the_embedder_keeps_changes_with_the_turn_or_the_rewind_and_not_without() {
    let device = Simulated::new(1);
    let store = start(&device);
    let disk = create(&store, "a");
    let about = |disk: &Disk| disk.info().unwrap().about.to_vec();
    let before = about(&disk);
    let upgraded = || NewGeneration { cause: Cause::Upgraded, about: b"memory".to_vec(), on: None };
    // refused: there is no turn
    assert!(wait(|done| disk.end_as(b"", Some(upgraded()), Some(b"another"), done)).is_err());
    assert_eq!(about(&disk), before);
    disk.begin(TurnStyle::Transaction, b"").unwrap();
    write(&disk, WORKSPACE, "f", b"new");
    let number = wait(|done| disk.end_as(b"", Some(upgraded()), Some(b"another"), done)).unwrap();
    assert_eq!(
        (about(&disk), disk.generation(number).unwrap().cause),
        (b"another".to_vec(), Cause::Upgraded)
    );
    assert!(wait(|done| disk.rewind_as(GenerationNumber(99), b"", Some(b"none"), done)).is_err());
    assert_eq!(about(&disk), b"another");
    let crashed = device.crash(1);
    let back = wait(|done| disk.rewind_as(GenerationNumber(0), b"old memory", Some(&before), done)).unwrap();
    assert_eq!((about(&disk), disk.head()), (before.clone(), back));
    let after = device.crash(2);
    drop((disk, store));
    for (device, expected) in [(crashed, b"another".to_vec()), (after, before)] {
        assert_eq!(about(&find(&start(&device), "a")), expected);
    }
}
