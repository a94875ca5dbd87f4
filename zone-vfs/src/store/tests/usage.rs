//! Who uses what: logical, alone, and together with others.

use super::*;

fn of<'a>(usage: &'a StoreUsage, name: &str) -> &'a AgentUsage {
    usage.agents.iter().find(|it| it.name == name).unwrap()
}

fn turn(disk: &Arc<Disk>, seed: u64, len: usize) {
    disk.begin(TurnStyle::Transaction, b"").unwrap();
    write(disk, WORKSPACE, "large", &content(seed, len));
    end(disk, b"").unwrap();
}

#[test]
fn what_is_unique_is_what_comes_free() {
    let store = start(&Simulated::new(1));
    let a = create(&store, "a");
    for seed in 0..3 {
        turn(&a, seed, 200_000);
    }
    let usage = store.usage().unwrap();
    let zone = &of(&usage, "a").zones[usize::from(WORKSPACE)];
    assert_eq!((zone.0.as_str(), zone.1.logical), ("Workspace", 200_000));
    assert!((600_000..620_000).contains(&zone.1.unique), "three versions: {zone:?}");
    let generations = &of(&usage, "a").generations;
    assert_eq!(generations.len(), 4);
    // the two older ones have a content of their own, the head's is what stands
    for (number, bytes) in generations {
        let unique = if [1, 2].contains(&number.0) { 200_000..205_000 } else { 0..1_000 };
        assert!(unique.contains(&bytes.unique), "{number} {bytes:?}");
    }
    assert!(generations[3].1.shared > 200_000 && generations[3].1.logical == 200_000);

    let b = fork(&store, &a, a.info().unwrap().head, "b").unwrap();
    let usage = store.usage().unwrap();
    let (alone, forked) = (of(&usage, "a"), of(&usage, "b"));
    assert!(forked.all.unique < 5_000 && forked.all.logical == 200_000, "{forked:?}");
    assert!((200_000..210_000).contains(&forked.all.shared), "{forked:?}");
    assert!((400_000..415_000).contains(&alone.all.unique), "{alone:?}");
    assert!((200_000..210_000).contains(&alone.all.shared), "{alone:?}");
    turn(&b, 50, 100_000);
    let usage = store.usage().unwrap();
    assert!((100_000..110_000).contains(&of(&usage, "b").all.unique));

    // it comes true
    for (name, disk) in [("b", b), ("a", a)] {
        let usage = store.usage().unwrap();
        let unique = of(&usage, name).all.unique;
        store.remove(disk.id()).unwrap();
        drop(disk);
        let_go(&store);
        let before = usage.needed;
        let after = store.usage().unwrap().needed;
        assert!((before - after).abs_diff(unique) < 2_000, "{name}: {before} {after} {unique}");
    }
    let usage = store.usage().unwrap();
    let files: u64 = usage.segments.iter().map(|it| it.bytes).sum();
    assert_eq!(files, usage.stats.bytes);
    let needed: u64 = usage.segments.iter().map(|it| it.needed).sum();
    assert_eq!(needed, usage.needed);
    let report = store.reap(&ReapPolicy::default(), false).unwrap();
    let usage = store.usage().unwrap();
    assert!(usage.needed <= usage.stats.bytes && usage.stats.bytes < 50_000, "{usage:?} {report:?}");
}

#[test]
fn zones_of_equal_content_and_shared_zones_are_told_apart() {
    let store = start(&Simulated::new(1));
    let a = create(&store, "a");
    write(&a, WORKSPACE, "same", &content(1, 100_000));
    write(&a, EPISODIC, "same", &content(1, 100_000));
    write(&a, SEMANTIC, "own", &content(2, 50_000));
    sync(&a).unwrap();
    let id = store.create_shared("team", Quota::default()).unwrap();
    let team = store.shared_zone(id).unwrap();
    team.zone(|zone| write_zone(zone, "plan", &content(3, 70_000))).unwrap().unwrap();
    wait(|done| team.sync(done)).unwrap();
    let usage = store.usage().unwrap();
    let mine = of(&usage, "a");
    assert!(!mine.is_shared_zone && !mine.is_damaged);
    let zone = |index: u16| mine.zones[usize::from(index)].1;
    assert!(zone(WORKSPACE).unique < 5_000, "{mine:?}");
    assert!((50_000..60_000).contains(&zone(SEMANTIC).unique), "{mine:?}");
    assert_eq!(mine.all.logical, 250_000);
    assert!((150_000..165_000).contains(&mine.all.unique), "{mine:?}");
    let team = of(&usage, "team");
    assert!(team.is_shared_zone && team.all.logical == 70_000);
    assert!((70_000..75_000).contains(&team.all.unique), "{team:?}");
}
