//! A store in which generations stand on others: in a checkpoint, and in the log behind it.

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

#[test]
fn standing_generations_are_found_as_they_are_written_now() {
    let (_kept, path) = written("standing");
    fill_standing(&Store::open(&path, &golden_options()).unwrap());
    check_standing(&Store::open(&path, &golden_options()).unwrap());
}
