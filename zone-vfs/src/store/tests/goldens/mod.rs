//! Stores of every format, as they were written, open and hold what was put into them. Nothing is released: until then
//! those that are kept are of the layouts that a landed version has written.
//!
//! `ZONE_VFS_GOLDEN=FOLDER cargo test -p zone-vfs goldens` writes those of the current format: `all`, of most that there is;
//! `reaped`, in which a policy gave old versions back; `bounded`, in which the operator set bounds of zones anew, and an
//! agent was upgraded; `standing`, in which generations stand on others; `backup` and `export`.

mod backup;
mod bounded;
mod export;
mod reaped;
mod standing;

use std::path::{Path, PathBuf};

use super::*;
use crate::device::DeviceKind;

/// The folder of those that were kept.
fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// Where one of the current format is written: into a folder that is asked for, or one that goes afterwards.
fn written(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let into = std::env::var_os("ZONE_VFS_GOLDEN").map_or(folder.path().into(), PathBuf::from);
    (folder, into.join(name))
}

fn golden_options() -> StoreOptions {
    StoreOptions { device: DeviceKind::Blocking, log_file: 16 << 10, ..options() }
}

/// What a golden store holds: a checkpoint, and behind it a log with one of everything.
fn fill(store: &Store) {
    let team = store.create_shared("team", Quota { bytes: 1 << 20, inodes: 100 }).unwrap();
    let over = store.create_shared("over", Quota::default()).unwrap();
    shared::create_in(store, "member", team, false);
    shared::write_team(store, "plan", b"one");
    let scribe = create(store, "scribe");
    scribe.begin(TurnStyle::Transaction, b"first event").unwrap();
    write(&scribe, EPISODIC, "diary", b"It rained.\n");
    write(&scribe, SEMANTIC, "weather", b"rain");
    write(&scribe, WORKSPACE, "large", &b"sixteen bytes...".repeat(6_000));
    write(&scribe, LOGS, "log", b"wrote\n");
    end(&scribe, b"first reply").unwrap();
    attachments::attach(&scribe, GenerationNumber(1), &attachments::sparse(1, 2)).unwrap();
    let gone = create(store, "gone");
    store.checkpoint().unwrap();
    fork(store, &scribe, GenerationNumber(1), "fork").unwrap();
    store.remove(gone.id()).unwrap();
    store.remove_shared(over).unwrap();
    shared::write_team(store, "plan", b"two");
    scribe.begin(TurnStyle::Transaction, b"second event").unwrap();
    write(&scribe, SEMANTIC, "weather", b"hail");
    fail(&scribe, "it broke").unwrap();
    scribe.begin(TurnStyle::Process, b"third event").unwrap();
    scribe.fact(b"a fact").unwrap();
    write(&scribe, WORKSPACE, "small", b"kept");
    write(&scribe, SEMANTIC, "weather", b"sun");
    end(&scribe, b"third reply").unwrap();
    rewind(&scribe, GenerationNumber(1)).unwrap();
    mark(&scribe).unwrap();
    assert!(scribe.pin(GenerationNumber(3), true).unwrap());
    wait(|done| scribe.set_about(b"about it", done)).unwrap();
    let fork = find(store, "fork");
    attachments::attach(&fork, GenerationNumber(0), &attachments::sparse(2, 1)).unwrap();
    fork.begin(TurnStyle::Transaction, b"never ended").unwrap();
    write(&fork, EPISODIC, "diary", b"It went on.\n");
    write(&fork, WORKSPACE, "large", b"replaced");
    sync(&fork).unwrap();
}

fn check(store: &Store) {
    let names: Vec<_> = store.agents().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["fork", "member", "scribe"]);
    let [team] = &store.shared_zones().unwrap()[..] else { panic!("one shared zone") };
    assert_eq!((team.name.as_str(), team.mounted_by[0].0.as_str()), ("team", "member"));
    assert_eq!(team.usage.as_ref().unwrap().1, Quota { bytes: 1 << 20, inodes: 100 });
    assert_eq!(read(&find(store, "member"), shared::TEAM, "plan").unwrap(), b"two");
    let large = b"sixteen bytes...".repeat(6_000);
    let scribe = see(&find(store, "scribe"));
    assert_eq!(scribe.about, b"about it");
    let files = |zone: u16, name: &str| scribe.zones[usize::from(zone)].get(name).map(|it| it.to_vec());
    assert_eq!(files(EPISODIC, "diary").unwrap(), b"It rained.\n");
    assert_eq!(files(SEMANTIC, "weather").unwrap(), b"rain");
    assert_eq!(files(WORKSPACE, "large").unwrap(), large);
    assert_eq!(files(WORKSPACE, "small"), None);
    assert_eq!(files(LOGS, "log").unwrap(), b"wrote\n");
    let outcomes =
        [(1, Ok(b"first reply".to_vec())), (2, Err("it broke".to_owned())), (3, Ok(b"third reply".to_vec()))];
    let found: Vec<_> = scribe.history.iter().map(|it| (it.turn, it.outcome.clone())).collect();
    assert_eq!(found, outcomes);
    assert_eq!(scribe.history[0].event, b"first event");
    let causes: Vec<_> = scribe.generations.values().map(|(cause, ..)| cause.clone()).collect();
    let rewound = Cause::Rewound(GenerationNumber(1));
    let side = Cause::Side("it broke".into());
    assert_eq!(causes, [Cause::Created, Cause::Turn, side, Cause::Turn, rewound, Cause::Paused]);
    assert_eq!(*scribe.generations[&2].1[usize::from(SEMANTIC)]["weather"], b"hail");
    assert_eq!(*scribe.generations[&3].1[usize::from(WORKSPACE)]["small"], b"kept");
    let pinned: Vec<_> = find(store, "scribe").generations().into_iter().filter(|it| it.is_pinned).collect();
    assert_eq!(pinned.iter().map(|it| it.number.0).collect::<Vec<_>>(), [3]);
    let first = attachments::digest(&attachments::sparse(1, 2));
    assert_eq!(scribe.attached, [(1, first), (4, first), (5, first)].into());
    let fork = see(&find(store, "fork"));
    assert_eq!(fork.attached, [(0, attachments::digest(&attachments::sparse(2, 1)))].into());
    assert_eq!(*fork.zones[usize::from(EPISODIC)]["diary"], b"It rained.\nIt went on.\n");
    assert_eq!(*fork.zones[usize::from(WORKSPACE)]["large"], large);
    assert_eq!(*fork.generations[&1].1[usize::from(WORKSPACE)]["large"], b"replaced");
    assert_eq!(fork.parent.unwrap().1, GenerationNumber(1));
    assert!(
        matches!(&fork.history[..], [SeenTurn { turn: 1, outcome: Err(_), .. }]),
        "the turn was interrupted"
    );
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn goldens_of_every_format_open() {
    for version in ["v1", "v2"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        copy(&goldens().join(version), &path);
        for _ in 0..2 {
            let store = Store::open(&path, &golden_options()).unwrap();
            check(&store);
            store.checkpoint().unwrap();
            check(&store);
            if version != "v1" {
                assert_eq!(see(&find(&store, "scribe")).history[2].facts, [b"a fact"]);
            }
        }
        let store = Store::open(&path, &golden_options()).unwrap();
        let scribe = find(&store, "scribe");
        scribe.begin(TurnStyle::Transaction, b"").unwrap();
        assert_eq!(end(&scribe, b"").unwrap(), GenerationNumber(6), "work goes on");
    }
}

#[test]
fn what_a_golden_holds_is_what_this_version_writes() {
    let (folder, path) = written("all");
    let store = Store::open(&path, &golden_options()).unwrap();
    fill(&store);
    drop(store);
    let copied = folder.path().join("copy");
    copy(&path, &copied);
    let store = Store::open(&copied, &golden_options()).unwrap();
    check(&store);
    assert_eq!(see(&find(&store, "scribe")).history[2].facts, [b"a fact"]);
}
