//! Exports that somebody has made up, each with a digest that is right.

use super::*;
use crate::store::state::{Generation, State, TurnRecord};
use crate::tree::{Body, ExtentValue, InodeRecord, Key, Name, Tree, Value};
use crate::zone::Usage;

const HEADER: usize = 64;
const AGENT: u8 = 2;
const PLAIN: u8 = 3;
const NODE: u8 = 4;
const CONTENT: u8 = 5;
const ATTACHMENT: u8 = 7;
const GENERATION: u8 = 9;
const STANDS: u8 = 10;

type Item = (u8, Vec<u8>);

/// The items between header and digest.
fn items(export: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut rest = &export[HEADER..export.len() - 40];
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    while let Some((tag, body)) = rest.split_first() {
        let len = match tag {
            1 => {
                let name = usize::from(u16::from_le_bytes([body[0], body[1]]));
                2 + name + 8 + 32 + number(body, 2 + name)
            }
            3 | 4 | 6 => 41 + number(body, 37),
            5 => 44 + 44 * number(body, 40),
            _ => 4 + number(body, 0),
        };
        items.push((*tag, body[..len].to_vec()));
        rest = &body[len..];
    }
    items
}

fn assemble(export: &[u8], items: &[Item]) -> Vec<u8> {
    let mut bytes = export[..HEADER].to_vec();
    for (tag, body) in items {
        bytes.push(*tag);
        bytes.extend_from_slice(body);
    }
    let sum = blake3::hash(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    bytes.extend_from_slice(b"dormxprt");
    bytes
}

struct Trial {
    to: Store,
    export: Vec<u8>,
    items: Vec<Item>,
}

impl Trial {
    fn new() -> Self {
        let from = start(&Simulated::new(1));
        let disk = create(&from, "a");
        live(&from, &disk);
        let export = export_of(&from, &disk);
        let items = items(&export);
        assert_eq!(assemble(&export, &items), export, "they are what there is");
        Self { to: start(&Simulated::new(2)), export, items }
    }

    fn refused(&self, items: &[Item], what: &str) -> String {
        let result = import(&self.to, &assemble(&self.export, items));
        assert_eq!(self.to.agents().unwrap(), [], "{what}");
        match result {
            Err(StoreError::Export(reason)) => reason,
            Err(e @ (StoreError::TooManyZones { .. } | StoreError::NotAMount { .. })) => e.to_string(),
            other => panic!("{what}: {other:?}"),
        }
    }

    /// Changes the n-th item of a kind.
    fn changed(&self, tag: u8, nth: usize, change: impl FnOnce(&mut Vec<u8>)) -> Vec<Item> {
        let mut items = self.items.clone();
        let at = items.iter().enumerate().filter(|(_, it)| it.0 == tag).map(|(at, _)| at).nth(nth).unwrap();
        change(&mut items[at].1);
        items
    }
}

#[test]
fn an_item_that_is_left_out_comes_twice_or_too_early_is_refused() {
    let trial = Trial::new();
    let count = trial.items.len();
    for at in (1..count).step_by(1 + count / 150) {
        let mut items = trial.items.clone();
        let item = items.remove(at);
        let what = format!("without item {at}, a {}", item.0);
        trial.refused(&items, &what);
        items.insert(at, item.clone());
        items.insert(at, item.clone());
        // one attachment more is nobody's
        if item.0 != ATTACHMENT {
            trial.refused(&items, &format!("item {at}, a {}, twice", item.0));
        }
        if matches!(item.0, PLAIN | NODE | CONTENT) {
            items.drain(at..at + 2);
            items.insert(count - 2, item);
            trial.refused(&items, &format!("item {at} late"));
        }
    }
    let no_agent: Vec<_> = trial.items.iter().filter(|it| it.0 != AGENT).cloned().collect();
    trial.refused(&no_agent, "no agent");
    trial.refused(&[], "nothing");
    import(&trial.to, &trial.export).unwrap();
}

#[test]
fn lengths_that_nothing_has_are_refused_before_there_is_room_for_them() {
    let trial = Trial::new();
    for (tag, at) in [(AGENT, 0), (GENERATION, 0), (STANDS, 0), (PLAIN, 37), (NODE, 33), (CONTENT, 40)] {
        for huge in [u32::MAX, 1 << 30, 68 << 20] {
            let items = trial.changed(tag, 0, |body| body[at..at + 4].copy_from_slice(&huge.to_le_bytes()));
            trial.refused(&items, &format!("{huge} at {at} of a {tag}"));
        }
    }
    let unknown_codec = trial.changed(PLAIN, 1, |body| body[32] = 9);
    assert!(trial.refused(&unknown_codec, "a codec").contains("codec"));
}

#[test]
fn labels_that_lead_elsewhere_are_refused() {
    let trial = Trial::new();
    let labels: Vec<Vec<u8>> =
        trial.items.iter().filter(|it| it.0 == PLAIN || it.0 == NODE).map(|it| it.1[..32].to_vec()).collect();
    let mut rng = crate::device::simulated::Rng::new(3);
    let mut tried = 0;
    for _ in 0..400 {
        // a label that something names becomes another's
        let at = rng.below(trial.items.len() as u64) as usize;
        let (tag, body) = &trial.items[at];
        let from = if matches!(*tag, 3 | 4 | 6) { 32 } else { 0 };
        let found = labels.iter().find_map(|label| {
            let place = body[from..].windows(32).position(|it| it == label)?;
            Some((from + place, label))
        });
        let Some((place, label)) = found else { continue };
        let other = &labels[rng.below(labels.len() as u64) as usize];
        if other == label {
            continue;
        }
        let mut items = trial.items.clone();
        items[at].1[place..place + 32].copy_from_slice(other);
        // it may be another of the same: then nothing is wrong but what the file says
        match import(&trial.to, &assemble(&trial.export, &items)) {
            Err(StoreError::Export(_)) => assert_eq!(trial.to.agents().unwrap(), []),
            Ok(came) => {
                let id = came.id();
                try_see(&came).unwrap();
                trial.to.remove(id).unwrap();
            }
            Err(e) => panic!("{e}"),
        }
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}

/// An agent whose zone holds what no zone holds, exported.
fn planted(zone: u16, plant: impl FnOnce(&mut Tree, &dyn crate::chunks::ChunkStore)) -> Vec<u8> {
    let from = start(&Simulated::new(1));
    let disk = create(&from, "a");
    disk.begin(TurnStyle::Transaction, b"event").unwrap();
    write(&disk, zone, "file", &content(1, 100_000));
    write(&disk, zone, "small", b"bytes");
    disk.zone(zone, |zone| {
        for path in [&b"x"[..], b"x/y", b"x/y/z"] {
            zone.mkdir(access(), Inode::ROOT, path).unwrap();
        }
    });
    end(&disk, b"reply").unwrap();
    let segments = from.shared().unwrap().segments.clone();
    {
        let mut inner = disk.lock();
        let head = &mut inner.state.zones[usize::from(zone)].head;
        let stored = head.store(&*segments).unwrap();
        let mut tree = Tree::load(stored.hash);
        plant(&mut tree, &*segments);
        let hash = tree.store(&*segments).unwrap();
        *head = ZoneRoot::load(crate::zone::StoredRoot { hash, ..stored });
    }
    export_of(&from, &disk)
}

fn inode_of(tree: &Tree, store: &dyn crate::chunks::ChunkStore, directory: Inode, name: &str) -> Inode {
    match tree.get(store, &Key::dirent(directory, Name::new(name.as_bytes()).unwrap())).unwrap() {
        Some(Value::Dirent { inode, .. }) => *inode,
        other => panic!("{other:?}"),
    }
}

fn record(
    tree: &mut Tree,
    store: &dyn crate::chunks::ChunkStore,
    inode: Inode,
    change: impl FnOnce(&mut InodeRecord),
) {
    let Some(Value::Inode(record)) = tree.get(store, &Key::inode(inode)).unwrap() else { panic!("no inode") };
    let mut record = record.clone();
    change(&mut record);
    tree.insert(store, Key::inode(inode), Value::Inode(record)).unwrap();
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn a_zone_that_cannot_have_come_about_is_refused_by_the_rule() {
    type Plant = Box<dyn Fn(&mut Tree, &dyn crate::chunks::ChunkStore)>;
    let rules: Vec<(u16, &str, Plant)> = vec![
        (
            WORKSPACE,
            "a directory lies in itself",
            Box::new(|tree, store| {
                let x = inode_of(tree, store, Inode::ROOT, "x");
                let y = inode_of(tree, store, x, "y");
                let dirent = tree.remove(store, &Key::dirent(Inode::ROOT, name("x"))).unwrap().unwrap();
                tree.insert(store, Key::dirent(y, name("again")), dirent).unwrap();
                record(tree, store, x, |it| it.body = Body::Directory { parent: y });
            }),
        ),
        (
            WORKSPACE,
            "a directory lies in two",
            Box::new(|tree, store| {
                let x = inode_of(tree, store, Inode::ROOT, "x");
                record(tree, store, x, |it| it.body = Body::Directory { parent: x });
            }),
        ),
        (
            WORKSPACE,
            "a name stands for no file",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "small");
                tree.remove(store, &Key::inode(file)).unwrap();
            }),
        ),
        (
            EPISODIC,
            "a file has two names",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "small");
                let dirent = Value::Dirent { inode: file, kind: FileKind::Regular };
                tree.insert(store, Key::dirent(Inode::ROOT, name("again")), dirent).unwrap();
                record(tree, store, file, |it| it.links = 2);
            }),
        ),
        (
            WORKSPACE,
            "as many names as it says",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "small");
                record(tree, store, file, |it| it.links = 7);
            }),
        ),
        (
            SEMANTIC,
            "has no symbolic links",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "small");
                record(tree, store, file, |it| {
                    it.body = Body::Symlink(Arc::new(b"/etc".to_vec()));
                    it.size = 4;
                });
            }),
        ),
        (
            SEMANTIC,
            "a file is not what was published",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "small");
                record(tree, store, file, |it| it.size = 1 << 30);
            }),
        ),
        (
            WORKSPACE,
            "a chunk lies beyond the end of its file",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "file");
                record(tree, store, file, |it| it.size = 70_000);
            }),
        ),
        (
            WORKSPACE,
            "larger than one can be",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "file");
                record(tree, store, file, |it| it.size = u64::MAX);
            }),
        ),
        (
            LOGS,
            "a number that was not given",
            Box::new(|tree, store| {
                let Some(Value::Inode(it)) = tree.get(store, &Key::inode(Inode::ROOT)).unwrap().cloned()
                else {
                    panic!("no root")
                };
                tree.insert(store, Key::inode(Inode(1 << 50)), Value::Inode(it)).unwrap();
            }),
        ),
        (
            WORKSPACE,
            "no root directory",
            Box::new(|tree, store| {
                tree.remove(store, &Key::inode(Inode::ROOT)).unwrap();
                for text in ["file", "small", "x"] {
                    tree.remove(store, &Key::dirent(Inode::ROOT, name(text))).unwrap();
                }
            }),
        ),
        (
            EPISODIC,
            "a draft is where none can be",
            Box::new(|tree, store| {
                let file = inode_of(tree, store, Inode::ROOT, "small");
                let draft = crate::tree::DraftRecord { owner: Principal::Agent, base: None };
                tree.insert(store, Key::draft(file), Value::Draft(draft)).unwrap();
            }),
        ),
    ];
    let to = start(&Simulated::new(2));
    for (zone, rule, plant) in rules {
        let bytes = planted(zone, |tree, store| plant(tree, store));
        match import(&to, &bytes) {
            Err(StoreError::Export(reason)) => assert!(reason.contains(rule), "{rule}: {reason}"),
            other => panic!("{rule}: {other:?}"),
        }
        assert_eq!(to.agents().unwrap(), []);
    }
    import(&to, &planted(WORKSPACE, |_, _| {})).unwrap();
}

#[test]
fn a_chunk_of_another_length_than_its_tree_says_is_refused() {
    let bytes = planted(WORKSPACE, |tree, store| {
        let file = inode_of(tree, store, Inode::ROOT, "file");
        let key = Key::extent(file, 0);
        let Some(Value::Extent(ExtentValue::Stored { hash, .. })) = tree.get(store, &key).unwrap().cloned()
        else {
            panic!("no chunk")
        };
        tree.insert(store, key, Value::Extent(ExtentValue::Stored { hash, len: 100 })).unwrap();
    });
    let to = start(&Simulated::new(2));
    assert!(
        matches!(import(&to, &bytes), Err(StoreError::Export(reason)) if reason.contains("another length"))
    );
}

#[test]
fn what_a_zone_uses_is_counted_and_not_believed() {
    let from = start(&Simulated::new(1));
    let disk = create(&from, "a");
    live(&from, &disk);
    let honest: Vec<_> = disk.lock().state.zones.iter().map(|zone| zone.head.usage()).collect();
    {
        let mut inner = disk.lock();
        let segments = from.shared().unwrap().segments.clone();
        for zone in &mut inner.state.zones {
            let mut stored = zone.head.store(&*segments).unwrap();
            stored.counters.usage = Usage::default();
            stored.counters.inherited.bytes = u64::MAX;
            zone.head = ZoneRoot::load(stored);
        }
    }
    let to = start(&Simulated::new(2));
    let came = import(&to, &export_of(&from, &disk)).unwrap();
    let counted: Vec<_> = came.lock().state.zones.iter().map(|zone| zone.head.usage()).collect();
    assert_eq!(counted, honest);
}

#[test]
fn times_and_causes_that_none_can_have_are_refused() {
    const LATE: Timestamp = Timestamp(1 << 63);
    type Plant = fn(&mut State);
    fn generation(state: &mut State, number: u64) -> &mut Generation {
        state.generations.get_mut(&GenerationNumber(number)).unwrap()
    }
    fn turn(state: &mut State) -> &mut TurnRecord {
        Arc::make_mut(state.history.tail.last_mut().unwrap())
    }
    let rules: [(&str, Plant); 12] = [
        ("its agent has a time", |it| it.created = LATE),
        ("turn 9 has a time", |it| turn(it).began = LATE),
        ("turn 9 has a time", |it| turn(it).ended = Timestamp(u64::MAX)),
        ("generation 3 has a time", |it| generation(it, 3).at = LATE),
        ("the pause of generation 3 has a time", |it| {
            generation(it, 3).cause = Cause::Reaped { paused: Some(LATE) };
        }),
        ("generation 3 has a cause", |it| generation(it, 3).cause = Cause::Forked),
        ("generation 3 has a cause", |it| generation(it, 3).cause = Cause::Rewound(GenerationNumber(3))),
        ("generation 0 has a cause", |it| generation(it, 0).cause = Cause::Turn),
        ("generation 3 in it stands on 3", |it| generation(it, 3).on = Some(GenerationNumber(3))),
        ("generation 3 in it stands on 9", |it| generation(it, 3).on = Some(GenerationNumber(9))),
        ("generation 0 in it stands on 0", |it| generation(it, 0).on = Some(GenerationNumber(0))),
        ("the reason of a generation", |it| generation(it, 3).cause = Cause::Side("x".repeat(1 << 16))),
    ];
    let to = start(&Simulated::new(2));
    let lived = |plant: Plant| {
        let from = start(&Simulated::new(1));
        let disk = create(&from, "a");
        live(&from, &disk);
        plant(&mut disk.lock().state);
        export_of(&from, &disk)
    };
    for (rule, plant) in rules {
        match import(&to, &lived(plant)) {
            Err(StoreError::Export(reason)) => assert!(reason.contains(rule), "{rule}: {reason}"),
            other => panic!("{rule}: {other:?}"),
        }
        assert_eq!(to.agents().unwrap(), []);
    }
    // the last that can be
    import(&to, &lived(|it| it.created = Timestamp(LATE.0 - 1))).unwrap();
}

#[test]
fn a_header_with_a_time_that_none_can_be_is_refused() {
    let from = start(&Simulated::new(1));
    let mut header = export_of(&from, &create(&from, "a"))[..HEADER].to_vec();
    header[39] = 0x80;
    header[12..16].fill(0);
    let sum = crc32fast::hash(&header).to_le_bytes();
    header[12..16].copy_from_slice(&sum);
    let refused = ExportAbout::read(&mut &*header).unwrap_err().to_string();
    assert!(refused.contains("its header has a time that none can be"), "{refused}");
}
