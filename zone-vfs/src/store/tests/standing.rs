//! Generations that are of no use without an earlier one, which is kept as long.

use super::export::{Taking, export_of};
use super::*;

/// A turn, whose generation stands on the one before.
pub fn turn_on(disk: &Arc<Disk>, text: &[u8]) -> GenerationNumber {
    disk.begin(TurnStyle::Transaction, text).unwrap();
    write(disk, EPISODIC, "diary", text);
    let generation = NewGeneration { on: Some(disk.head()), ..new_generation(b"without") };
    wait(|done| disk.end(b"", Some(generation), done)).unwrap()
}

/// The generations that are kept, each with the one that it stands on.
fn standing(disk: &Disk) -> Vec<(u64, Option<u64>)> {
    disk.generations().iter().map(|it| (it.number.0, it.on.map(|on| on.0))).collect()
}

fn keeping(turns: usize) -> ReapPolicy {
    ReapPolicy::keeping(KeepGenerations { turns, ..KeepGenerations::default() })
}

#[test]
fn what_one_stands_on_is_kept_as_long() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    for text in [b"1", b"2", b"3", b"4"] {
        turn_on(&a, text);
    }
    let all = [(0, None), (1, Some(0)), (2, Some(1)), (3, Some(2)), (4, Some(3))];
    store.reap(&keeping(1), false).unwrap();
    assert_eq!(standing(&a), all);
    let refused = store.drop_generation(&a, GenerationNumber(2)).unwrap_err().to_string();
    assert_eq!(refused, "generation 2 is needed by generation 3, whose memory is made from it");
    drop((store, a));
    // by the log, and by a checkpoint
    for _ in 0..2 {
        let store = start(&device);
        assert_eq!(standing(&find(&store, "a")), all);
        store.checkpoint().unwrap();
    }
    let store = start(&device);
    let a = find(&store, "a");
    a.complete(GenerationNumber(3), b"with").unwrap();
    assert_eq!(&*a.payload(&a.generation(GenerationNumber(3)).unwrap().about).unwrap(), b"with");
    store.drop_generation(&a, GenerationNumber(2)).unwrap();
    assert_eq!(standing(&a), [(0, None), (1, Some(0)), (3, None), (4, Some(3))]);
    store.reap(&keeping(1), false).unwrap();
    assert_eq!(standing(&a), [(0, None), (3, None), (4, Some(3))]);
    a.complete(GenerationNumber(4), b"with").unwrap();
    store.reap(&keeping(1), false).unwrap();
    drop((store, a));
    let store = start(&device);
    assert_eq!(standing(&find(&store, "a")), [(0, None), (4, None)]);
}

#[test]
fn many_turns_do_not_take_what_they_stand_on() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    turn_on(&a, b"first");
    a.complete(GenerationNumber(1), b"with").unwrap();
    for _ in 0..KEPT_TURN_GENERATIONS + 5 {
        turn_on(&a, b"x");
    }
    let kept = standing(&a);
    assert_eq!(
        kept.len(),
        KEPT_TURN_GENERATIONS + 7,
        "the chain down to what stands by itself, and the beginning"
    );
    a.complete(a.head(), b"with").unwrap();
    turn_on(&a, b"x");
    let kept = standing(&a);
    assert_eq!(kept.len(), KEPT_TURN_GENERATIONS + 8, "the oldest are needed by those that are kept");
    // the newest of these stands by itself, and so do all that are kept once it is the oldest
    let middle = GenerationNumber(a.head().0 - KEPT_TURN_GENERATIONS as u64 / 2);
    a.complete(middle, b"with").unwrap();
    for _ in 0..KEPT_TURN_GENERATIONS / 2 {
        turn_on(&a, b"x");
    }
    assert_eq!(standing(&a)[..2], [(0, None), (middle.0, None)]);
}

#[test]
fn one_is_completed_beside_a_turn_and_takes_nothing_from_it() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    turn_on(&a, b"one");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, WORKSPACE, "w", b"of the turn");
    a.complete(GenerationNumber(1), b"with").unwrap();
    let killed = device.killed();
    let again = start(&killed);
    let found = find(&again, "a");
    assert_eq!((standing(&found), read(&found, WORKSPACE, "w")), (vec![(0, None), (1, None)], None));
    end(&a, b"").unwrap();
    assert_eq!(read(&a, WORKSPACE, "w").unwrap(), b"of the turn");
    let missing = a.complete(GenerationNumber(9), b"").unwrap_err();
    assert!(matches!(missing, StoreError::NoGeneration { .. }), "{missing}");
    // only on where the agent stands
    a.begin(TurnStyle::Transaction, b"").unwrap();
    let generation = NewGeneration { on: Some(GenerationNumber(0)), ..new_generation(b"") };
    let refused = wait(|done| a.end(b"", Some(generation), done)).unwrap_err();
    assert!(matches!(refused, StoreError::NoGeneration { .. }), "{refused}");
}

#[test]
fn what_stands_on_what_was_forgotten_goes_with_it() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    turn_on(&a, b"before");
    write(&a, WORKSPACE, "secret", b"x");
    sync(&a).unwrap();
    let file = a.zone(WORKSPACE, |zone| zone.stat_at(access(), Inode::ROOT, b"secret", true).unwrap().inode);
    mark(&a).unwrap();
    turn_on(&a, b"after");
    a.pin(GenerationNumber(3), true).unwrap();
    let what = Forget { zone: WORKSPACE, files: vec![file.unwrap()], versions: Vec::new(), turns: None };
    let would = a.would_forget(&what).unwrap();
    let operated = NewGeneration { cause: Cause::Operated, about: b"forgot".to_vec(), on: None };
    let forgot = a.forget(&what, &operated).unwrap();
    assert_eq!(would.generations, forgot.generations);
    assert_eq!(forgot.generations, [GenerationNumber(2), GenerationNumber(3)]);
    assert_eq!(standing(&a), [(0, None), (1, Some(0)), (4, None)]);
}

/// A record of what one rehearses would be the agent's own.
#[test]
fn a_rehearsal_completes_nothing() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    turn_on(&a, b"one");
    let rehearsed = a.rehearse(GenerationNumber(1), Turn(2)).unwrap();
    let before = device.operations();
    assert!(rehearsed.complete(GenerationNumber(1), b"with").is_err());
    assert_eq!((device.operations(), standing(&a)), (before, vec![(0, None), (1, Some(0))]));
}

#[test]
fn none_stands_on_what_its_own_commit_may_drop() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"").unwrap();
    write(&a, SEMANTIC, "secret", b"x");
    end(&a, b"").unwrap();
    a.begin(TurnStyle::Transaction, b"").unwrap();
    let forgot = a.zone(SEMANTIC, |zone| {
        let file = zone.stat_at(access(), Inode::ROOT, b"secret", true).unwrap().inode;
        zone.forget(access(), file)
    });
    forgot.unwrap().unwrap();
    let generation = NewGeneration { on: Some(a.head()), ..new_generation(b"") };
    let refused = wait(|done| a.end(b"", Some(generation), done)).unwrap_err();
    assert!(matches!(refused, StoreError::NoGeneration { .. }), "{refused}");
    end(&a, b"").unwrap();
    assert_eq!(standing(&a), [(0, None), (2, None)]);
}

#[test]
fn an_export_tells_what_stands_on_what() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    turn_on(&a, b"one");
    turn_on(&a, b"two");
    let bytes = export_of(&store, &a);
    let other = Simulated::new(2);
    let imported = start(&other).import(&mut &bytes[..], &mut Taking::default()).unwrap();
    assert_eq!(standing(&imported), standing(&a));
}
