//! Forks, removals and names.

use super::*;

#[test]
fn a_fork_begins_as_its_contracts_say_and_changes_no_other() {
    let device = Simulated::new(1);
    let store = start(&device);
    let parent = create(&store, "parent");
    parent.begin(TurnStyle::Transaction, b"").unwrap();
    for zone in [EPISODIC, SEMANTIC, WORKSPACE, LOGS] {
        write(&parent, zone, "file", b"parent ");
    }
    let at = end(&parent, b"").unwrap();
    let before = see(&parent);
    let child = fork(&store, &parent, at, "child").unwrap();
    let of = |disk: &Disk| [EPISODIC, SEMANTIC, WORKSPACE, LOGS].map(|zone| read(disk, zone, "file"));
    let inherited = Some(b"parent ".to_vec());
    assert_eq!(of(&child), [inherited.clone(), inherited.clone(), inherited, None], "a log begins anew");
    child.begin(TurnStyle::Transaction, b"").unwrap();
    for zone in [EPISODIC, SEMANTIC, WORKSPACE, LOGS] {
        write(&child, zone, "file", b"child");
    }
    let later = end(&child, b"").unwrap();
    let grandchild = fork(&store, &child, later, "grandchild").unwrap();
    let elder = fork(&store, &child, GenerationNumber(0), "elder").unwrap();
    assert_eq!(read(&grandchild, EPISODIC, "file").unwrap(), b"parent child");
    assert_eq!(read(&grandchild, WORKSPACE, "file").unwrap(), b"child");
    assert_eq!(read(&elder, EPISODIC, "file").unwrap(), b"parent ");
    assert_eq!(see(&parent), before, "forks do not change their parent");
    assert_eq!(child.info().unwrap().parent, Some((parent.id(), at)));
    let all = everything(&store);
    drop(store);
    let store = start(&device);
    assert_eq!(everything(&store), all);
    store.checkpoint().unwrap();
    store.remove(find(&store, "parent").id()).unwrap();
    store.remove(find(&store, "child").id()).unwrap();
    let left = everything(&store);
    assert_eq!(left.len(), 2);
    for _ in 0..2 {
        drop(start(&device));
    }
    drop(store);
    let store = start(&device);
    assert_eq!(everything(&store), left, "forks outlive their parents");
    store.checkpoint().unwrap();
    drop(store);
    assert_eq!(everything(&start(&device)), left);
}

#[test]
fn what_an_interrupted_turn_left_can_be_forked() {
    let device = Simulated::new(1);
    let store = start(&device);
    for name in ["abandoned", "stopped"] {
        let a = create(&store, name);
        a.begin(TurnStyle::Transaction, b"").unwrap();
        write(&a, WORKSPACE, "file", b"synced");
        sync(&a).unwrap();
    }
    find(&store, "abandoned").abandon().unwrap();
    fork(&store, &find(&store, "abandoned"), GenerationNumber(1), "first").unwrap();
    drop(store);
    let store = start(&device);
    fork(&store, &find(&store, "stopped"), GenerationNumber(1), "second").unwrap();
    let before = everything(&store);
    drop(store);
    let store = start(&device);
    assert_eq!(everything(&store), before);
    assert_eq!(read(&find(&store, "first"), WORKSPACE, "file").unwrap(), b"synced");
    assert_eq!(read(&find(&store, "second"), WORKSPACE, "file").unwrap(), b"synced");
}

#[test]
fn a_thousand_forks_share_what_they_have() {
    let device = Simulated::new(1);
    let store = start(&device);
    let parent = create(&store, "parent");
    write(&parent, WORKSPACE, "file", &content(1, 100_000));
    let at = mark(&parent).unwrap();
    let children: Vec<_> =
        (0..1000).map(|n| (Store::new_id().unwrap(), new_agent(&format!("child{n}")))).collect();
    let made = store.fork(&parent, at, &children).unwrap();
    assert!(made.iter().zip(&children).all(|(disk, (id, _))| disk.id() == *id), "in the order asked for");
    write(&made[500], WORKSPACE, "file", b"its own");
    sync(&made[500]).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let store = start(&device);
    assert_eq!(store.agents().unwrap().len(), 1001);
    assert_eq!(read(&find(&store, "child500"), WORKSPACE, "file").unwrap(), b"its own");
    assert_eq!(read(&find(&store, "child501"), WORKSPACE, "file").unwrap(), content(1, 100_000));
}

#[test]
fn a_name_is_free_again_after_removal_and_an_id_never() {
    let device = Simulated::new(1);
    let store = start(&device);
    let first = create(&store, "a");
    write(&first, WORKSPACE, "file", b"first");
    sync(&first).unwrap();
    let taken = store.create(Store::new_id().unwrap(), &new_agent("a"), specs());
    assert!(matches!(taken, Err(StoreError::NameTaken(name)) if name == "a"));
    let taken = fork(&store, &first, GenerationNumber(0), "a");
    assert!(matches!(taken, Err(StoreError::NameTaken(_))));
    let taken = store.create(first.id(), &new_agent("b"), specs());
    assert!(matches!(taken, Err(StoreError::IdTaken(_))));
    store.remove(first.id()).unwrap();
    assert!(matches!(store.remove(first.id()), Err(StoreError::NoAgent(_))));
    assert!(matches!(store.disk(first.id()), Err(StoreError::NoAgent(_))));
    assert_eq!(store.find("a").unwrap(), None);
    let taken = store.create(first.id(), &new_agent("b"), specs());
    assert!(matches!(taken, Err(StoreError::IdTaken(_))));
    let second = create(&store, "a");
    assert_eq!(read(&second, WORKSPACE, "file"), None);
    let before = everything(&store);
    drop(store);
    assert_eq!(everything(&start(&device)), before);
}

#[test]
fn a_removed_agent_takes_no_commits_and_does_not_come_back() {
    let device = Simulated::new(1);
    let store = start(&device);
    let gone = create(&store, "gone");
    store.checkpoint().unwrap();
    gone.begin(TurnStyle::Transaction, b"").unwrap();
    write(&gone, WORKSPACE, "file", b"x");
    store.remove(gone.id()).unwrap();
    assert!(matches!(end(&gone, b""), Err(StoreError::NoAgent(_))));
    assert!(matches!(sync(&gone), Err(StoreError::NoAgent(_))));
    assert!(matches!(fork(&store, &gone, GenerationNumber(0), "child"), Err(StoreError::NoAgent(_))));
    assert!(store.agents().unwrap().is_empty());
    for _ in 0..2 {
        drop(start(&device));
    }
    store.checkpoint().unwrap();
    drop(store);
    assert!(start(&device).agents().unwrap().is_empty());
}

/// A checkpoint waits for whoever commits, and whoever forks into many must not wait for the checkpoint.
#[test]
fn many_forks_and_checkpoints_go_side_by_side() {
    let store = start(&Simulated::new(1));
    let parent = create(&store, "parent");
    let children: Vec<_> =
        (0..600).map(|n| (Store::new_id().unwrap(), new_agent(&format!("child{n}")))).collect();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        let made = store.fork(&parent, GenerationNumber(0), &children).unwrap();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(made.iter().map(|it| it.id()).eq(children.iter().map(|(id, _)| *id)), "in their order");
    });
}
