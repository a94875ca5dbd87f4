//! The past as directories, the change feed, and versions against a plain model.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::id::ChangeSequence;
use crate::tree::ChangeKind;

const ROOT: Inode = Inode::ROOT;
const TRUNCATE: OpenOptions = OpenOptions { truncate: true, ..CREATE };
const SECOND: u64 = 1_000_000_000;

fn put(zone: &mut Zone, second: u64, path: &str, content: &[u8]) -> Inode {
    let access = agent(second * SECOND);
    let file = zone.open(access, ROOT, path.as_bytes(), TRUNCATE).unwrap();
    zone.write(access, file, 0, content).unwrap();
    zone.close_writer(file).unwrap();
    file
}

fn read(zone: &mut Zone, path: &str) -> Vec<u8> {
    let file = zone.open(agent(99), ROOT, path.as_bytes(), READ).unwrap();
    let bytes = content(zone, file);
    zone.close(file).unwrap();
    bytes
}

/// The names in a directory, one at a time as a stream gives them.
fn list(zone: &Zone, path: &str) -> Vec<String> {
    let directory = zone.resolve(agent(99), ROOT, path.as_bytes(), true).unwrap();
    let mut names: Vec<String> = Vec::new();
    let mut after = None;
    loop {
        let entries = zone.readdir(agent(99), directory, after.as_ref(), 1).unwrap();
        let Some(entry) = entries.into_iter().next() else { return names };
        names.push(entry.name.to_string());
        after = Some(entry.name);
    }
}

#[test]
fn the_past_is_two_directories() {
    let mut zone = zone(ZoneKind::Semantic);
    let directory = zone.mkdir(agent(SECOND), ROOT, b"d").unwrap();
    put(&mut zone, 10, "d/fact", b"one");
    put(&mut zone, 20, "d/fact", b"two");
    put(&mut zone, 20, "d/fact", b"three");
    put(&mut zone, 30, "top", b"top");
    zone.end_turn();
    zone.unlink(agent(40 * SECOND), ROOT, b"d/fact").unwrap();
    zone.rename(agent(50 * SECOND), (ROOT, b"d"), (ROOT, b"e")).unwrap();
    put(&mut zone, 60, "e/fact", b"another");

    assert_eq!(names(&zone, ROOT), ["e", "top"], "the views are not listed");
    assert_eq!(list(&zone, ".versions"), ["d", "e", "top"]);
    assert_eq!(list(&zone, ".versions/e"), ["fact"]);
    let at = |second: u64| format!("1970-01-01T00:{:02}:{:02}.000000000Z", second / 60, second % 60);
    let versions = list(&zone, ".versions/e/fact");
    assert_eq!(versions.len(), 4, "{versions:?}");
    assert_eq!([&versions[0], &versions[1], &versions[3]], [&at(10), &at(20), &at(60)]);
    assert!(versions[2].starts_with(&format!("{}.", at(20))), "{versions:?}");
    let contents: Vec<_> =
        versions.iter().map(|name| read(&mut zone, &format!(".versions/e/fact/{name}"))).collect();
    assert_eq!(contents, [&b"one"[..], b"two", b"three", b"another"]);

    assert_eq!(list(&zone, ".asof"), [1, 10, 20, 30, 40, 50, 60].map(at));
    for (time, entries) in [
        ("1970-01-01T00:00:00Z", &[][..]),
        ("1970-01-01T00:00:01Z", &["d"]),
        ("1970-01-01T00:00:35.5Z", &["d", "top"]),
        ("1970-01-01T00:00:50Z", &["e", "top"]),
        ("2100-01-01T00:00:00Z", &["e", "top"]),
    ] {
        assert_eq!(list(&zone, &format!(".asof/{time}")), entries, "{time}");
    }
    assert_eq!(read(&mut zone, ".asof/1970-01-01T00:00:15Z/d/fact"), b"one");
    assert_eq!(read(&mut zone, ".asof/1970-01-01T00:00:20Z/d/fact"), b"three");
    assert_eq!(list(&zone, ".asof/1970-01-01T00:00:45Z/d"), [""; 0]);
    assert_eq!(read(&mut zone, ".asof/1970-01-01T00:01:00Z/e/../e/fact"), b"another");
    for path in [".asof/yesterday", ".asof/1970-01-01T00:00:15Z/nothing", ".versions/none", ".versions/top/x"]
    {
        assert_eq!(code(zone.resolve(agent(99), ROOT, path.as_bytes(), true)), ErrorCode::NoEntry, "{path}");
    }
    assert_eq!(code(zone.resolve(agent(99), directory, b".asof", true)), ErrorCode::NoEntry);
    assert_eq!(code(zone.readdir(agent(99), Inode(u64::MAX), None, 1)), ErrorCode::NoEntry);

    // a directory of the past is opened again by its number, also by another process
    let number = zone.open(agent(99), ROOT, b".asof/1970-01-01T00:00:15Z/d", READ).unwrap();
    let mut again = Zone::from_root(zone.snapshot().unwrap(), zone.state.store.clone());
    again.open_inode(number).unwrap();
    again.drop_orphans_except(&[number].into()).unwrap();
    assert_eq!(names(&again, number), ["fact"]);
    let file = again.open(agent(99), number, b"fact", READ).unwrap();
    assert_eq!(content(&mut again, file), b"one");
    again.close(number).unwrap();
}

#[test]
fn nothing_in_the_past_is_written() {
    let mut zone = zone(ZoneKind::Procedural);
    put(&mut zone, 10, "fact", b"one");
    let version = format!(".versions/fact/{}", list(&zone, ".versions/fact")[0]);
    let then = ".asof/1970-01-01T00:00:10Z";
    let inner = format!("{then}/fact");
    let store = zone.state.store.clone();
    let before = zone.snapshot().unwrap().digest(&*store).unwrap();
    let now = agent(99 * SECOND);
    let mut refused = Vec::new();
    for path in [&version[..], &inner, ".versions/new", ".asof/new", ".versions", ".asof", then] {
        let path = path.as_bytes();
        refused.push(zone.unlink(now, ROOT, path));
        refused.push(zone.rename(now, (ROOT, path), (ROOT, b"out")));
        refused.push(zone.rename(now, (ROOT, b"fact"), (ROOT, path)));
        refused.push(zone.rmdir(now, ROOT, path));
        refused.push(zone.open(now, ROOT, path, TRUNCATE).map(drop));
        refused.push(zone.mkdir(now, ROOT, path).map(drop));
    }
    assert!(refused.into_iter().all(|result| result.is_err()));
    let rule = |error: ZoneError| {
        assert_eq!(error.code, ErrorCode::ReadOnly);
        assert_eq!(error.to_string().split(": ").nth(1), Some("the past of procedural memory is read-only"));
    };
    rule(zone.unlink(now, ROOT, version.as_bytes()).unwrap_err());
    rule(zone.open(now, ROOT, version.as_bytes(), READ_WRITE).unwrap_err());
    rule(zone.rename(now, (ROOT, b"fact"), (ROOT, b".versions/x")).unwrap_err());
    let file = zone.open(now, ROOT, inner.as_bytes(), READ).unwrap();
    rule(zone.write(now, file, 0, b"x").unwrap_err());
    rule(zone.set_size(now, file, 0).unwrap_err());
    zone.close(file).unwrap();
    assert_eq!(zone.snapshot().unwrap().digest(&*store).unwrap(), before);
    let mut plain = super::zone(ZoneKind::Workspace);
    plain.mkdir(now, ROOT, b".versions").unwrap();
    assert_eq!(names(&plain, ROOT), [".versions"], "a name like any other where there are no versions");
}

fn fed(zone: &mut Zone, after: &mut ChangeSequence) -> Vec<(ChangeKind, String)> {
    zone.drain_changes(&DrainLimits::default()).unwrap();
    let changes = zone.changes(agent(99), *after, usize::MAX).unwrap();
    assert_eq!(changes.gap, None);
    *after = changes.last;
    let path = |path: Option<Vec<u8>>| String::from_utf8(path.unwrap_or_default()).unwrap();
    let entries = changes.entries.into_iter().map(|(_, record)| record);
    entries
        .map(|record| match record.old_path {
            Some(old) => (record.kind, format!("{} > {}", path(Some(old)), path(record.path))),
            None => (record.kind, path(record.path)),
        })
        .collect()
}

#[test]
fn the_feed_says_what_commits_did() {
    let mut after = ChangeSequence(0);
    let mut zone = zone(ZoneKind::Workspace);
    let said = |entries: &[(ChangeKind, &str)]| -> Vec<(ChangeKind, String)> {
        entries.iter().map(|(kind, path)| (*kind, (*path).to_string())).collect()
    };
    zone.mkdir(agent(1), ROOT, b"d").unwrap();
    let file = make(&mut zone, "d/f", b"text");
    make(&mut zone, "gone", b"text");
    zone.unlink(agent(1), ROOT, b"gone").unwrap();
    assert_eq!(fed(&mut zone, &mut after), said(&[(ChangeKind::Create, "d"), (ChangeKind::Create, "d/f")]));
    zone.write(agent(2), file, 0, b"T").unwrap();
    zone.write(agent(2), file, 1, b"E").unwrap();
    zone.rename(agent(3), (ROOT, b"d"), (ROOT, b"e")).unwrap();
    assert_eq!(
        fed(&mut zone, &mut after),
        said(&[(ChangeKind::Rename, "d > e"), (ChangeKind::Write, "e/f")])
    );
    zone.unlink(agent(4), ROOT, b"e/f").unwrap();
    assert_eq!(fed(&mut zone, &mut after), said(&[(ChangeKind::Remove, "e/f")]));
    zone.write(agent(5), file, 0, b"no name").unwrap();
    assert_eq!(fed(&mut zone, &mut after), []);

    let mut after = ChangeSequence(0);
    let mut zone = super::zone(ZoneKind::Episodic);
    let file = make(&mut zone, "diary", b"1234");
    fed(&mut zone, &mut after);
    zone.append(agent(2), file, b"56").unwrap();
    zone.append(agent(2), file, b"78").unwrap();
    assert_eq!(fed(&mut zone, &mut after), said(&[(ChangeKind::Append { from: 4, to: 8 }, "diary")]));

    let mut after = ChangeSequence(0);
    let mut zone = super::zone(ZoneKind::Semantic);
    zone.begin_turn(Turn(7));
    put(&mut zone, 1, "fact", b"one");
    let open = zone.open(agent(SECOND), ROOT, b"draft", CREATE).unwrap();
    assert_eq!(fed(&mut zone, &mut after), said(&[(ChangeKind::Create, "fact")]), "a draft is nobody else's");
    zone.close(open).unwrap();
    put(&mut zone, 2, "fact", b"two");
    assert_eq!(
        fed(&mut zone, &mut after),
        said(&[(ChangeKind::Create, "draft"), (ChangeKind::Publish, "fact")])
    );
    zone.rename(agent(3), (ROOT, b"draft"), (ROOT, b"final")).unwrap();
    assert_eq!(fed(&mut zone, &mut after), said(&[(ChangeKind::Rename, "draft > final")]));
    zone.begin_turn(Turn(8));
    zone.unlink(agent(4), ROOT, b"final").unwrap();
    assert_eq!(fed(&mut zone, &mut after), said(&[(ChangeKind::Tombstone, "final")]));
    let all = zone.changes(agent(99), ChangeSequence(0), 2).unwrap();
    assert_eq!(
        (all.entries.len(), all.entries[0].1.turn, all.entries[0].1.by),
        (2, Turn(7), Principal::Agent)
    );
}

#[test]
fn the_feed_is_bounded_and_says_what_is_missing() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", b"");
    let rounds = KEPT_CHANGES + 5;
    for round in 0..rounds {
        zone.write(agent(round), file, 0, &round.to_le_bytes()).unwrap();
        zone.drain_changes(&DrainLimits::default()).unwrap();
    }
    let changes = zone.changes(agent(99), ChangeSequence(2), 3).unwrap();
    assert_eq!(changes.gap, Some(ChangeSequence(5)));
    assert_eq!(changes.entries.iter().map(|entry| entry.0.0).collect::<Vec<_>>(), [6, 7, 8]);
    assert_eq!(zone.changes(agent(99), ChangeSequence(5), 1).unwrap().gap, None);
    assert_eq!(changes.last, ChangeSequence(rounds));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, usize),
    Replace(u8, u8, usize),
    Rename(u8, u8),
    Unlink(u8),
    Rollback(u8, usize),
    Turn,
    Reload,
    Rewind,
    Reap(u64, usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let name = || 0..4u8;
    let len = || prop_oneof![4 => 0..40usize, 1 => 2_000..3_000usize, 1 => 60_000..140_000usize];
    prop_oneof![
        5 => (name(), any::<u8>(), len()).prop_map(|(name, seed, len)| Step::Put(name, seed, len)),
        4 => (name(), any::<u8>(), len()).prop_map(|(name, seed, len)| Step::Replace(name, seed, len)),
        3 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name().prop_map(Step::Unlink),
        2 => (name(), any::<usize>()).prop_map(|(name, index)| Step::Rollback(name, index)),
        4 => Just(Step::Turn),
        1 => Just(Step::Reload),
        1 => Just(Step::Rewind),
        2 => (0..30u64, 0..3usize).prop_map(|(age, newest)| Step::Reap(age, newest)),
    ]
}

/// What the zone should be: which file each name stands for, and what each file has held.
#[derive(Clone, Default)]
struct Model {
    names: BTreeMap<String, (Inode, Vec<u8>)>,
    versions: BTreeMap<Inode, Vec<Vec<u8>>>,
    /// The files born in this turn.
    fresh: BTreeSet<Inode>,
}

impl Model {
    fn publish(&mut self, name: &str, file: Inode, content: Vec<u8>) {
        if self.names.get(name).is_none_or(|(_, before)| *before != content) {
            self.versions.entry(file).or_default().push(content.clone());
        }
        self.names.insert(name.to_string(), (file, content));
    }

    fn gone(&mut self, file: Inode) {
        if self.fresh.remove(&file) {
            self.versions.remove(&file);
        }
    }
}

fn versions_of(zone: &Zone, file: Inode) -> Vec<Vec<u8>> {
    let history = zone.history(agent(0), file, None, usize::MAX).unwrap();
    let with_content = history.into_iter().filter(|entry| entry.record.has_content());
    with_content
        .map(|entry| {
            let mut bytes = vec![0; entry.record.size as usize];
            zone.read_version(agent(0), file, entry.version, 0, &mut bytes).unwrap();
            bytes
        })
        .collect()
}

/// Whether all of `few` are among `many`, in this order.
fn is_among(few: &[Vec<u8>], many: &[Vec<u8>]) -> bool {
    let mut many = many.iter();
    few.iter().all(|one| many.any(|other| other == one))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("ZONE_VFS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
    ))]

    #[test]
    fn versions_are_those_of_a_plain_model(steps in vec(steps(), 1..60)) {
        let chunks = store();
        let store: Arc<dyn ChunkStore> = chunks.clone();
        let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), store.clone());
        zone.begin_turn(Turn(1));
        let mut twin = Zone::from_root(ZoneRoot::empty(ZoneKind::Semantic, Quota::default()), store.clone());
        let mut model = Model::default();
        // how the zone stood at the ends of turns
        let mut ends: Vec<(u64, ZoneRoot, Model)> = Vec::new();
        let mut now = 10;
        let names = ["a", "b", "c", "d"];
        // how it was before this time may be reaped
        let mut kept_since = 0;
        for step in steps {
            now += 1;
            let access = agent(now);
            match step {
                Step::Put(name, seed, len) => {
                    let (name, content) = (names[usize::from(name)], pattern(len, seed));
                    let file = zone.open(access, ROOT, name.as_bytes(), TRUNCATE).unwrap();
                    zone.write(access, file, 0, &content).unwrap();
                    zone.close_writer(file).unwrap();
                    if !model.names.contains_key(name) {
                        model.fresh.insert(file);
                    }
                    model.publish(name, file, content);
                }
                Step::Replace(name, seed, len) => {
                    let (name, content) = (names[usize::from(name)], pattern(len, seed));
                    let temporary = zone.open(access, ROOT, b"tmp", CREATE).unwrap();
                    zone.write(access, temporary, 0, &content).unwrap();
                    if seed % 2 == 0 {
                        zone.sync(access, temporary).unwrap();
                    }
                    if seed % 3 > 0 {
                        zone.close(temporary).unwrap();
                    }
                    zone.rename(access, (ROOT, b"tmp"), (ROOT, name.as_bytes())).unwrap();
                    if seed % 3 == 0 {
                        zone.close(temporary).unwrap();
                    }
                    let file = zone.resolve(access, ROOT, name.as_bytes(), true).unwrap();
                    match model.names.get(name) {
                        Some((kept, _)) => prop_assert_eq!(file, *kept),
                        None => drop(model.fresh.insert(temporary)),
                    }
                    model.publish(name, file, content);
                }
                Step::Rename(from, to) => {
                    let (from, to) = (names[usize::from(from)], names[usize::from(to)]);
                    let done = zone.rename(access, (ROOT, from.as_bytes()), (ROOT, to.as_bytes()));
                    prop_assert_eq!(done.is_ok(), model.names.contains_key(from));
                    if let Some((file, content)) = model.names.get(from).cloned()
                        && from != to
                    {
                        if let Some((replaced, _)) = model.names.get(to).cloned() {
                            model.publish(to, replaced, content);
                            model.names.remove(from);
                            model.gone(file);
                        } else {
                            model.names.remove(from);
                            model.names.insert(to.into(), (file, content));
                        }
                    }
                }
                Step::Unlink(name) => {
                    let name = names[usize::from(name)];
                    let done = zone.unlink(access, ROOT, name.as_bytes());
                    prop_assert_eq!(done.is_ok(), model.names.contains_key(name));
                    if let Some((file, _)) = model.names.remove(name) {
                        model.gone(file);
                    }
                }
                Step::Rollback(name, index) => {
                    let name = names[usize::from(name)];
                    let Some((file, _)) = model.names.get(name).cloned() else { continue };
                    let history = zone.history(access, file, None, usize::MAX).unwrap();
                    let history: Vec<_> = history.iter().filter(|entry| entry.record.has_content()).collect();
                    let index = index % history.len();
                    zone.rollback(access, file, history[index].version, Expected::Any).unwrap();
                    let content = model.versions[&file][index].clone();
                    model.versions.get_mut(&file).unwrap().push(content.clone());
                    model.names.insert(name.into(), (file, content));
                }
                Step::Turn => {
                    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
                    twin.apply(&drained.changes).unwrap();
                    zone.end_turn();
                    zone.begin_turn(Turn(now));
                    model.fresh.clear();
                    ends.push((now, zone.snapshot().unwrap(), model.clone()));
                }
                Step::Reload => {
                    let stored = zone.snapshot().unwrap().store(&*store).unwrap();
                assert_eq!(verify(&stored, &*store).unwrap().counters, stored.counters);
                    let span = zone.span;
                    zone.drain_changes(&DrainLimits::default()).unwrap();
                    zone = Zone::from_root(ZoneRoot::load(stored), store.clone());
                    zone.span = span;
                    twin = Zone::from_root(ZoneRoot::load(stored), store.clone());
                }
                Step::Rewind => {
                    let Some((_, root, then)) = ends.get(now as usize % ends.len().max(1)).cloned() else { continue };
                    let left = zone.snapshot().unwrap();
                    let root = root.rewound(&left, Timestamp(now), &store).unwrap();
                    if root.counters().horizon != left.counters().horizon {
                        kept_since = now;
                    }
                    twin = Zone::from_root(root.clone(), store.clone());
                    zone = Zone::from_root(root, store.clone());
                    model.names = then.names;
                    model.fresh.clear();
                    for (file, versions) in &mut model.versions {
                        // what was reaped since then comes back
                        let found = versions_of(&zone, *file);
                        let is_right = if kept_since == 0 { *versions == found } else { is_among(versions, &found) };
                        prop_assert!(is_right || kept_since == now);
                        *versions = found;
                    }
                    // as of this time, it stands as it did then
                    ends.push((now, zone.snapshot().unwrap(), model.clone()));
                }
                Step::Reap(age, newest) => {
                    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
                    twin.apply(&drained.changes).unwrap();
                    zone.end_turn();
                    model.fresh.clear();
                    let fed = zone.counters.next_change;
                    let host = Access::new(Principal::Host, Timestamp(now));
                    let since = now - age.min(now);
                    let keep = KeepVersions { since: Timestamp(since), newest };
                    let past = zone.counters.past;
                    let recent = |zone: &Zone| {
                        let all = zone.all_events().unwrap().into_iter();
                        all.filter(|(_, it)| it.at.0 >= since).map(|(key, _)| key).collect::<Vec<_>>()
                    };
                    let young = recent(&zone);
                    let reaped = zone.reap_versions(host, keep, &BTreeSet::new()).unwrap();
                    prop_assert_eq!(recent(&zone), young);
                    prop_assert_eq!(past.inodes - zone.counters.past.inodes, reaped.events);
                    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
                    twin.apply(&drained.changes).unwrap();
                    prop_assert_eq!(zone.counters.next_change, fed, "it is no news");
                    prop_assert_eq!(zone.reap_versions(host, keep, &BTreeSet::new()).unwrap().events, 0);
                    zone.begin_turn(Turn(now));
                    if !reaped.is_nothing() {
                        kept_since = kept_since.max(since);
                    }
                    for (file, versions) in &mut model.versions {
                        let found = versions_of(&zone, *file);
                        prop_assert!(is_among(&found, versions));
                        if let Some((_, now)) = model.names.values().find(|(live, _)| live == file) {
                            prop_assert!(found.contains(now));
                            let newest = newest.min(versions.len());
                            prop_assert!(found.ends_with(&versions[versions.len() - newest..]));
                        }
                        *versions = found;
                    }
                }
            }
        }
        let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
        twin.apply(&drained.changes).unwrap();
        let digests = [&mut zone, &mut twin].map(|zone| zone.snapshot().unwrap().digest(&*chunks).unwrap());
        prop_assert_eq!(digests[0], digests[1]);
        for (file, versions) in &model.versions {
            prop_assert_eq!(&versions_of(&zone, *file), versions);
        }
        for name in names {
            let wanted = model.names.get(name).map(|(file, _)| *file);
            prop_assert_eq!(zone.resolve(agent(now), ROOT, name.as_bytes(), true).ok(), wanted);
        }
        ends.push((now, zone.snapshot().unwrap(), model.clone()));
        for (at, _, then) in ends {
            if at < kept_since {
                continue;
            }
            for name in names {
                let path = format!(".asof/1970-01-01T00:00:00.{at:09}Z/{name}");
                let found = zone.open(agent(now), ROOT, path.as_bytes(), READ).ok();
                let found = found.map(|file| content(&mut zone, file));
                prop_assert_eq!(&found, &then.names.get(name).map(|(_, content)| content.clone()), "{}", path);
            }
        }
    }
}
