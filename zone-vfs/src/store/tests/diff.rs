//! What differs between generations and between agents.

use super::*;
use crate::zone::DifferenceKind;

fn paths(files: &[crate::zone::FileDifference]) -> Vec<(String, DifferenceKind)> {
    files.iter().map(|it| (String::from_utf8(it.path.clone()).unwrap(), it.kind.clone())).collect()
}

#[test]
fn generations_and_agents_are_compared() {
    let device = Simulated::new(1);
    let store = start(&device);
    let parent = create(&store, "parent");
    parent.begin(TurnStyle::Transaction, b"").unwrap();
    for zone in [EPISODIC, SEMANTIC, WORKSPACE, LOGS] {
        write(&parent, zone, "file", b"first");
    }
    let first = end(&parent, b"").unwrap();
    let child = fork(&store, &parent, first, "child").unwrap();
    parent.begin(TurnStyle::Transaction, b"").unwrap();
    write(&parent, WORKSPACE, "file", &content(1, 200_000));
    write(&parent, WORKSPACE, "new", b"");
    let second = end(&parent, b"").unwrap();
    parent.begin(TurnStyle::Transaction, b"").unwrap();
    write(&parent, WORKSPACE, "later", b"");

    use DifferenceKind::{Added, Changed, Removed};
    let found = parent.diff(WORKSPACE, Some(first), Some(second)).unwrap();
    let both = [("file".to_string(), Changed), ("new".to_string(), Added)];
    assert_eq!(paths(&found), both);
    assert_eq!((found[0].before.unwrap().size, found[0].after.unwrap().size), (5, 200_000));
    // what is not committed does not count
    assert_eq!(paths(&parent.diff(WORKSPACE, Some(first), None).unwrap()), both);
    assert_eq!(parent.diff(SEMANTIC, Some(first), None).unwrap(), []);
    end(&parent, b"").unwrap();
    assert_eq!(parent.diff(WORKSPACE, Some(first), None).unwrap().len(), 3);
    let gone = StoreError::NoGeneration { generation: GenerationNumber(99) }.to_string();
    assert_eq!(parent.diff(0, Some(GenerationNumber(99)), None).unwrap_err().to_string(), gone);
    assert!(matches!(parent.diff(77, None, None), Err(StoreError::NoZone { index: 77 })));

    // the same after a checkpoint, from what lies in segments
    store.checkpoint().unwrap();
    drop((parent, child, store));
    let store = start(&device);
    let (parent, child) = (find(&store, "parent"), find(&store, "child"));
    let all = store.diff((&child, None), (&parent, Some(second))).unwrap();
    assert_eq!(all.shared, Vec::<String>::new());
    assert_eq!(all.zones.len(), KINDS.len());
    let of = |zone: u16| paths(&all.zones[usize::from(zone)].files);
    assert_eq!(of(WORKSPACE), both);
    assert_eq!(of(SEMANTIC), []);
    assert_eq!(of(LOGS), [("file".to_string(), Added)]);
    let back = store.diff((&parent, Some(second)), (&child, None)).unwrap();
    assert_eq!(paths(&back.zones[usize::from(LOGS)].files), [("file".to_string(), Removed)]);
}

#[test]
fn shared_zones_are_left_out_and_a_zone_that_is_missing_counts_as_empty() {
    let device = Simulated::new(1);
    let store = start(&device);
    let team = store.create_shared("team", Quota::default()).unwrap();
    let mut zones = specs();
    zones.push(ZoneSpec {
        name: "team".into(),
        mount: "/team".into(),
        kind: ZoneKind::Shared,
        quota: Quota::default(),
        shared: Some(SharedMount { zone: team, writable: true }),
    });
    let a = store.create(Store::new_id().unwrap(), &new_agent("a"), zones).unwrap();
    let extra = ZoneSpec { name: "extra".into(), mount: "/extra".into(), ..specs().remove(2) };
    let b = store.create(Store::new_id().unwrap(), &new_agent("b"), vec![extra]).unwrap();
    write(&b, 0, "file", b"content");
    sync(&b).unwrap();
    assert!(matches!(a.diff(4, None, None), Err(StoreError::NoPast { .. })));
    let found = store.diff((&a, None), (&b, None)).unwrap();
    assert_eq!(found.shared, ["team"]);
    let zones: Vec<_> = found.zones.iter().map(|it| (it.zone.as_str(), it.files.len())).collect();
    assert_eq!(zones, [("extra", 1), ("Episodic", 0), ("Semantic", 0), ("Workspace", 0), ("Logs", 0)]);
}
