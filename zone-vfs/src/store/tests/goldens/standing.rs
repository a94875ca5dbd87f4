//! A store in which generations stand on others: in a checkpoint, and in the log behind it.

use super::super::export::{Taking, export_of};
use super::super::standing::turn_on;
use super::*;

const FORMATS: &[&str] = &["standing-v2"];

fn fill_standing(store: &Store) {
    let a = create(store, "a");
    turn_on(&a, b"one");
    turn_on(&a, b"two");
    store.checkpoint().unwrap();
    turn_on(&a, b"three");
    a.complete(GenerationNumber(2), b"completed").unwrap();
}

fn check_standing(store: &Store) {
    let a = find(store, "a");
    let found: Vec<_> = a.generations().iter().map(|it| it.on.map(|on| on.0)).collect();
    assert_eq!(found, [None, Some(0), None, Some(2)]);
    let completed = a.generation(GenerationNumber(2)).unwrap().about;
    assert_eq!(&*a.payload(&completed).unwrap(), b"completed");
}

#[test]
fn stores_with_standing_generations_open_in_every_format() {
    for version in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        copy(&goldens().join(version), &path);
        for _ in 0..2 {
            let store = Store::open(&path, &golden_options()).unwrap();
            check_standing(&store);
            store.checkpoint().unwrap();
            check_standing(&store);
        }
    }
}

const EXPORTS: &[&str] = &["standing-export-v2"];

fn check_export(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &golden_options()).unwrap();
    store.import(&mut &bytes[..], &mut Taking::default()).unwrap();
    check_standing(&store);
}

#[test]
fn exports_with_standing_generations_are_imported_in_every_format() {
    for version in EXPORTS {
        check_export(&std::fs::read(goldens().join(version).join("a.export")).unwrap());
    }
}

#[test]
fn an_export_with_standing_generations_as_it_is_written_now_is_imported() {
    let (folder, path) = written("standing-export");
    let store = Store::open(&folder.path().join("store"), &golden_options()).unwrap();
    fill_standing(&store);
    let bytes = export_of(&store, &find(&store, "a"));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("a.export"), &bytes).unwrap();
    check_export(&bytes);
}

#[test]
fn standing_generations_are_found_as_they_are_written_now() {
    let (_kept, path) = written("standing");
    fill_standing(&Store::open(&path, &golden_options()).unwrap());
    check_standing(&Store::open(&path, &golden_options()).unwrap());
}
