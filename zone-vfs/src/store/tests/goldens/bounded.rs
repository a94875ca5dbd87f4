//! Stores in which the operator has set bounds of zones anew, and an agent was upgraded.

use super::*;

/// Those that were kept, oldest first.
const FORMATS: &[&str] = &["bounded-v1", "bounded-v2"];

const EARLIER: Quota = Quota { bytes: 10 << 20, inodes: 1000 };
const LATER: Quota = Quota { bytes: 5, inodes: 7 };

/// One whose bounds are in a checkpoint, and behind that others in the log.
fn fill_bounded(store: &Store) {
    let team = store.create_shared("team", Quota::default()).unwrap();
    let scribe = create(store, "scribe");
    scribe.begin(TurnStyle::Transaction, b"").unwrap();
    write(&scribe, WORKSPACE, "file", b"sixteen bytes...");
    end(&scribe, b"").unwrap();
    scribe.set_quota(EPISODIC, EARLIER).unwrap();
    store.checkpoint().unwrap();
    scribe.set_quota(WORKSPACE, LATER).unwrap();
    store.shared_zone(team).unwrap().set_quota(LATER).unwrap();
    scribe.begin(TurnStyle::Transaction, b"another component").unwrap();
    let upgraded = NewGeneration { cause: Cause::Upgraded, about: b"its memory".to_vec(), on: None };
    wait(|done| scribe.end_as(b"done", Some(upgraded), Some(b"it is another"), done)).unwrap();
}

fn check_bounded(store: &Store) {
    let scribe = find(store, "scribe");
    let quotas: Vec<_> = scribe.zones().into_iter().map(|spec| spec.quota).collect();
    assert_eq!(quotas[usize::from(EPISODIC)], EARLIER);
    assert_eq!(quotas[usize::from(WORKSPACE)], LATER);
    assert_eq!(quotas[usize::from(SEMANTIC)], Quota::default());
    for (zone, quota) in (0..).zip(quotas) {
        assert_eq!(scribe.zone(zone, |z| z.quota()), Some(quota));
    }
    assert_eq!(read(&scribe, WORKSPACE, "file").unwrap(), b"sixteen bytes...");
    assert_eq!(scribe.generation(scribe.head()).unwrap().cause, Cause::Upgraded);
    assert_eq!(*scribe.info().unwrap().about, *b"it is another");
    let [team] = &store.shared_zones().unwrap()[..] else { panic!("one shared zone") };
    assert_eq!(team.usage.as_ref().unwrap().1, LATER);
}

#[test]
fn bounded_stores_of_every_format_open() {
    for version in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        copy(&goldens().join(version), &path);
        for _ in 0..2 {
            let store = Store::open(&path, &golden_options()).unwrap();
            check_bounded(&store);
            store.checkpoint().unwrap();
            check_bounded(&store);
        }
    }
}

#[test]
fn a_bounded_store_as_it_is_written_now_opens() {
    let (_kept, path) = written("bounded");
    let store = Store::open(&path, &golden_options()).unwrap();
    fill_bounded(&store);
    drop(store);
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("copy");
    copy(&path, &copied);
    check_bounded(&Store::open(&copied, &golden_options()).unwrap());
}
