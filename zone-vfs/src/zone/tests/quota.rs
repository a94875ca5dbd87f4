//! What a fork is charged, beside a plain model.

use std::collections::BTreeMap;

use super::*;
use crate::device::simulated::Rng;

const QUOTA: Quota = Quota { bytes: 10_000, inodes: 40 };

/// A workspace with these files, of a size each.
fn filled(files: &[(&str, u64)]) -> (Zone, Arc<MemoryChunks>) {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, QUOTA, Timestamp(1), store.clone());
    for (name, size) in files {
        let file = make(&mut zone, name, b"");
        zone.set_size(agent(2), file, *size).unwrap();
        zone.close_writer(file).unwrap();
    }
    (zone, store)
}

fn fork(zone: &mut Zone, store: &Arc<MemoryChunks>) -> Zone {
    Zone::from_root(zone.snapshot().unwrap().forked(), store.clone())
}

fn add(zone: &mut Zone, name: &str, size: u64) -> Result<()> {
    let file = zone.open(agent(3), Inode::ROOT, name.as_bytes(), CREATE)?;
    let sized = zone.set_size(agent(3), file, size);
    zone.close_writer(file)?;
    sized
}

#[test]
fn a_fork_of_a_full_zone_can_write_as_much_again() {
    let (mut zone, store) = filled(&[("a", 6_000), ("b", 4_000)]);
    assert_eq!(code(add(&mut zone, "c", 1)), ErrorCode::Quota);
    let mut child = fork(&mut zone, &store);
    assert_eq!((child.usage().bytes, child.charged()), (10_000, Usage::default()));
    add(&mut child, "c", 10_000).unwrap();
    assert_eq!((child.usage().bytes, child.charged().bytes), (20_000, 10_000));
    assert_eq!(code(add(&mut child, "d", 1)), ErrorCode::Quota);
    // nested: nothing of that is the grandchild's
    let mut grandchild = fork(&mut child, &store);
    add(&mut grandchild, "e", 9_000).unwrap();
    assert_eq!(grandchild.charged().bytes, 9_000);
    assert_eq!(code(add(&mut zone, "c2", 1)), ErrorCode::Quota, "the parent is what it was");
}

#[test]
fn what_replaces_what_was_inherited_is_charged() {
    let (mut zone, store) = filled(&[("a", 6_000), ("b", 4_000)]);
    let mut child = fork(&mut zone, &store);
    for name in ["a", "b"] {
        child.unlink(agent(3), Inode::ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(child.charged(), Usage::default(), "never less than nothing");
    add(&mut child, "c", 10_000).unwrap();
    assert_eq!(child.charged().bytes, 10_000);
    assert_eq!(code(add(&mut child, "d", 1)), ErrorCode::Quota);
}

#[test]
fn charges_are_those_of_a_plain_model_and_travel_with_changes() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (mut zone, store) = filled(&[("f0", 3_000), ("f1", 5_000)]);
        let mut sizes: BTreeMap<String, u64> = [("f0".into(), 3_000), ("f1".into(), 5_000)].into();
        let mut inherited = Usage::default();
        zone.drain_changes(&DrainLimits::default()).unwrap();
        let mut replica = Zone::from_root(zone.snapshot().unwrap(), store.clone());
        for step in 0..120 {
            let name = format!("f{}", rng.below(8));
            let size = rng.below(6_000);
            let used = |sizes: &BTreeMap<String, u64>| Usage {
                bytes: sizes.values().sum(),
                inodes: sizes.len() as u64,
            };
            match rng.below(10) {
                0 => {
                    zone.drain_changes(&DrainLimits::default()).unwrap();
                    zone = fork(&mut zone, &store);
                    inherited = used(&sizes);
                    replica = Zone::from_root(zone.snapshot().unwrap(), store.clone());
                }
                1..=3 => {
                    let gone = zone.unlink(agent(step), Inode::ROOT, name.as_bytes());
                    assert_eq!(gone.is_ok(), sizes.remove(&name).is_some());
                }
                _ => {
                    let there = sizes.contains_key(&name);
                    let mut next = sizes.clone();
                    next.insert(name.clone(), size);
                    let grows = size > sizes.get(&name).copied().unwrap_or(0);
                    let charged = used(&next).bytes.saturating_sub(inherited.bytes);
                    let fits = !grows || charged <= QUOTA.bytes;
                    let added = add(&mut zone, &name, size);
                    assert_eq!(added.is_ok(), fits, "seed {seed}, step {step}: {added:?}");
                    if fits {
                        sizes = next;
                    } else if !there {
                        sizes.insert(name, 0);
                    }
                }
            }
            inherited = inherited.min(used(&sizes));
            let model = used(&sizes);
            assert_eq!(zone.usage(), model, "seed {seed}, step {step}");
            let charged = (model.bytes - inherited.bytes, model.inodes - inherited.inodes);
            assert_eq!((zone.charged().bytes, zone.charged().inodes), charged, "seed {seed}, step {step}");
            if rng.one_in(4) {
                let changes = zone.drain_changes(&DrainLimits::default()).unwrap().changes;
                replica.apply(&changes).unwrap();
                assert_eq!(replica.snapshot().unwrap().counters(), zone.snapshot().unwrap().counters());
            }
        }
    }
}
