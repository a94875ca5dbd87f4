//! A store in which a policy has given old versions back: of a paused agent, which a checkpoint holds, and of one that
//! was never paused, which the log holds.

use super::super::policies::{NOW, contents, versions};
use super::*;

const FORMATS: &[&str] = &["reaped-v1", "reaped-v2"];

fn learn(store: &Store, name: &str) -> Arc<Disk> {
    let disk = create(store, name);
    for fact in ["one", "two", "three"] {
        disk.begin(TurnStyle::Transaction, fact.as_bytes()).unwrap();
        write(&disk, SEMANTIC, "fact", fact.as_bytes());
        end(&disk, b"learned").unwrap();
    }
    disk
}

fn fill_reaped(store: &Store) {
    let paused = learn(store, "paused");
    mark(&paused).unwrap();
    assert_eq!(store.reap(&versions(NOW, 2), false).unwrap().versions.events, 1);
    let awake = learn(store, "awake");
    awake.begin(TurnStyle::Transaction, b"").unwrap();
    fail(&awake, "it broke").unwrap();
    // what a reaping does first, without the checkpoint that follows
    let given = store.shared().unwrap().reap_versions(&versions(NOW, 2), false).unwrap();
    assert_eq!(given.0.events, 1);
}

fn check_reaped(store: &Store) {
    let head = |name: &str| {
        let disk = find(store, name);
        let head = disk.generation(disk.head()).unwrap();
        (disk, head)
    };
    let (paused, stands) = head("paused");
    let all = paused.generations();
    let before = &all[all.len() - 2];
    assert_eq!((&before.cause, before.number.0 + 1), (&Cause::Paused, stands.number.0));
    assert_eq!(stands.cause, Cause::Reaped { paused: Some(before.at) });
    assert_eq!((&stands.about, stands.paused()), (&before.about, Some(before.at)));
    let (awake, stands) = head("awake");
    assert_eq!(stands.cause, Cause::Reaped { paused: None });
    assert_eq!(stands.turn.0, 3, "it stands for the one before the turn that failed");
    for disk in [&paused, &awake] {
        assert_eq!(contents(disk, SEMANTIC, "fact"), 2);
        assert_eq!(read(disk, SEMANTIC, "fact").unwrap(), b"three");
    }
}

#[test]
fn reaped_stores_of_every_format_open() {
    for version in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        copy(&goldens().join(version), &path);
        for _ in 0..2 {
            let store = Store::open(&path, &golden_options()).unwrap();
            check_reaped(&store);
            store.checkpoint().unwrap();
            check_reaped(&store);
        }
        let store = Store::open(&path, &golden_options()).unwrap();
        let disk = find(&store, "paused");
        let reaped = disk.head();
        disk.begin(TurnStyle::Transaction, b"").unwrap();
        assert_eq!(end(&disk, b"").unwrap(), reaped.next(), "work goes on");
        assert!(disk.generation(reaped).is_err(), "it stood for what is over now");
    }
}

#[test]
fn a_reaped_store_as_it_is_written_now_opens() {
    let (_kept, path) = written("reaped");
    let store = Store::open(&path, &golden_options()).unwrap();
    fill_reaped(&store);
    drop(store);
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("copy");
    copy(&path, &copied);
    check_reaped(&Store::open(&copied, &golden_options()).unwrap());
}
