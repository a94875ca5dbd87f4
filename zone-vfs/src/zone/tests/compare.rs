//! What differs between two states of zones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::chunks::{ChunkError, FrameKind};
use crate::id::Hash;
use crate::tree::CHUNK;

type Told = Vec<(String, DifferenceKind)>;

fn compare(before: &ZoneRoot, after: &ZoneRoot, sameness: Sameness, store: &Arc<MemoryChunks>) -> Told {
    let store: Arc<dyn ChunkStore> = store.clone();
    let found = before.compare(after, sameness, &store).unwrap();
    found.into_iter().map(|it| (String::from_utf8(it.path).unwrap(), it.kind)).collect()
}

/// As [`compare`], told in pages of at most `limit`, of what is at `below` or was renamed out of it.
fn pages(before: &ZoneRoot, after: &ZoneRoot, below: &str, limit: usize, store: &Arc<MemoryChunks>) -> Told {
    let store: Arc<dyn ChunkStore> = store.clone();
    let mut all: Vec<FileDifference> = Vec::new();
    loop {
        let last = all.last().map(|it| it.path.clone());
        let part = DiffPart { below: below.as_bytes(), after: last.as_deref(), utf8: false, limit };
        let page = before.compare_part(after, Sameness::Number, &store, part).unwrap();
        let is_one_path = page.windows(2).all(|two| two[0].path == two[1].path);
        assert!(page.len() <= limit || (page.len() == limit + 1 && is_one_path), "{page:?}");
        if page.is_empty() {
            return all.into_iter().map(|it| (String::from_utf8(it.path).unwrap(), it.kind)).collect();
        }
        all.extend(page);
    }
}

fn told(entries: &[(&str, DifferenceKind)]) -> Told {
    entries.iter().map(|(path, kind)| ((*path).to_string(), kind.clone())).collect()
}

fn renamed(from: &str, changed: bool) -> DifferenceKind {
    DifferenceKind::Renamed { from: from.into(), changed }
}

/// Replaces the content of a file, which is made where it is missing.
fn put(zone: &mut Zone, now: u64, path: &str, content: &[u8]) {
    put_bytes(zone, now, path.as_bytes(), content);
}

fn put_bytes(zone: &mut Zone, now: u64, path: &[u8], content: &[u8]) {
    let options = OpenOptions { truncate: true, ..CREATE };
    let file = zone.open(agent(now), Inode::ROOT, path, options).unwrap();
    zone.write(agent(now), file, 0, content).unwrap();
    zone.close_writer(file).unwrap();
}

fn rename(zone: &mut Zone, now: u64, from: &str, to: &str) {
    zone.rename(agent(now), (Inode::ROOT, from.as_bytes()), (Inode::ROOT, to.as_bytes())).unwrap();
}

fn in_store(kind: ZoneKind) -> (Zone, Arc<MemoryChunks>) {
    let store = store();
    (Zone::new(kind, Quota::default(), Timestamp(1), store.clone()), store)
}

#[test]
fn every_kind_of_difference_is_told() {
    for kind in [ZoneKind::Workspace, ZoneKind::Semantic] {
        let (mut zone, store) = in_store(kind);
        for name in ["same", "small", "gone", "moved", "moved and changed"] {
            put(&mut zone, 2, name, name.as_bytes());
        }
        put(&mut zone, 2, "large", &pattern(5 * CHUNK, 1));
        for name in ["d", "d/in", "empty", "old"] {
            zone.mkdir(agent(2), Inode::ROOT, name.as_bytes()).unwrap();
        }
        put(&mut zone, 2, "d/in/file", b"in");
        put(&mut zone, 2, "d/in/still", b"still");
        let before = zone.snapshot().unwrap();

        put(&mut zone, 3, "small", b"small!");
        let mut changed = pattern(5 * CHUNK, 1);
        changed[3 * CHUNK + 7] ^= 1;
        put(&mut zone, 3, "large", &changed);
        put(&mut zone, 3, "new", b"");
        zone.unlink(agent(3), Inode::ROOT, b"gone").unwrap();
        zone.rmdir(agent(3), Inode::ROOT, b"empty").unwrap();
        rename(&mut zone, 3, "moved", "d/moved");
        put(&mut zone, 3, "moved and changed", b"changed");
        rename(&mut zone, 3, "moved and changed", "d/moved and changed");
        rename(&mut zone, 3, "d", "e");
        put(&mut zone, 4, "e/in/file", b"IN");
        let after = zone.snapshot().unwrap();

        use DifferenceKind::{Added, Changed, Removed};
        let by_number = [
            ("e", renamed("d", false)),
            ("e/in/file", renamed("d/in/file", true)),
            ("e/moved", renamed("moved", false)),
            ("e/moved and changed", renamed("moved and changed", true)),
            ("empty", Removed),
            ("gone", Removed),
            ("large", Changed),
            ("new", Added),
            ("small", Changed),
        ];
        assert_eq!(compare(&before, &after, Sameness::Number, &store), told(&by_number), "{kind}");
        let by_path = [
            ("d", Removed),
            ("d/in", Removed),
            ("d/in/file", Removed),
            ("d/in/still", Removed),
            ("e", Added),
            ("e/in", Added),
            ("e/in/file", Added),
            ("e/in/still", Added),
            ("e/moved", Added),
            ("e/moved and changed", Added),
            ("empty", Removed),
            ("gone", Removed),
            ("large", Changed),
            ("moved", Removed),
            ("moved and changed", Removed),
            ("new", Added),
            ("small", Changed),
        ];
        assert_eq!(compare(&before, &after, Sameness::Path, &store), told(&by_path), "{kind}");
        assert_eq!(compare(&after, &after, Sameness::Number, &store), []);
    }
}

#[test]
fn sizes_versions_and_files_of_both_sides_are_told() {
    let (mut zone, store) = in_store(ZoneKind::Semantic);
    put(&mut zone, 2, "a", b"one");
    let before = zone.snapshot().unwrap();
    put(&mut zone, 3, "a", b"three");
    let store: Arc<dyn ChunkStore> = store;
    let found = before.compare(&zone.snapshot().unwrap(), Sameness::Number, &store).unwrap();
    let (was, is) = (found[0].before.unwrap(), found[0].after.unwrap());
    assert_eq!((was.size, is.size), (3, 5));
    assert_eq!(was.file, is.file);
    assert!(was.version < is.version && was.version.is_some());
    assert_eq!((was.modified, is.modified), (Timestamp(2), Timestamp(3)));
}

#[test]
fn content_that_was_written_again_is_not_different() {
    let (mut zone, store) = in_store(ZoneKind::Workspace);
    put(&mut zone, 2, "inline", b"same");
    put(&mut zone, 2, "chunks", &pattern(3 * CHUNK, 4));
    put(&mut zone, 2, "hole", &vec![0; 3 * CHUNK]);
    let before = zone.snapshot().unwrap();
    put(&mut zone, 3, "inline", b"same");
    put(&mut zone, 3, "chunks", &pattern(3 * CHUNK, 4));
    zone.unlink(agent(3), Inode::ROOT, b"hole").unwrap();
    let file = zone.open(agent(3), Inode::ROOT, b"hole", CREATE).unwrap();
    zone.set_size(agent(3), file, 3 * CHUNK as u64).unwrap();
    zone.close_writer(file).unwrap();
    let after = zone.snapshot().unwrap();
    let times: Vec<_> = ["chunks", "hole", "inline"].map(|it| (it, DifferenceKind::Times)).into();
    assert_eq!(compare(&before, &after, Sameness::Number, &store), told(&times));
    assert_eq!(compare(&before, &after, Sameness::Path, &store), []);
}

#[test]
fn a_file_with_several_names_is_told_at_each() {
    let (mut zone, store) = in_store(ZoneKind::Workspace);
    put(&mut zone, 2, "a", b"one");
    zone.link(agent(2), (Inode::ROOT, b"a"), false, (Inode::ROOT, b"b")).unwrap();
    zone.link(agent(2), (Inode::ROOT, b"a"), false, (Inode::ROOT, b"c")).unwrap();
    zone.unlink(agent(2), Inode::ROOT, b"a").unwrap();
    let before = zone.snapshot().unwrap();
    put(&mut zone, 3, "b", b"two");
    let after = zone.snapshot().unwrap();
    let both = [("b", DifferenceKind::Changed), ("c", DifferenceKind::Changed)];
    assert_eq!(compare(&before, &after, Sameness::Number, &store), told(&both));
}

#[test]
fn directories_that_change_places_are_renamed() {
    let (mut zone, store) = in_store(ZoneKind::Workspace);
    for name in ["a", "b"] {
        zone.mkdir(agent(2), Inode::ROOT, name.as_bytes()).unwrap();
        put(&mut zone, 2, &format!("{name}/f"), name.as_bytes());
    }
    let before = zone.snapshot().unwrap();
    rename(&mut zone, 3, "a", "c");
    rename(&mut zone, 3, "b", "a");
    rename(&mut zone, 3, "c", "b");
    let after = zone.snapshot().unwrap();
    let swapped = [("a", renamed("b", false)), ("b", renamed("a", false))];
    assert_eq!(compare(&before, &after, Sameness::Number, &store), told(&swapped));
    let by_path = [("a/f", DifferenceKind::Changed), ("b/f", DifferenceKind::Changed)];
    assert_eq!(compare(&before, &after, Sameness::Path, &store), told(&by_path));
}

/// Counts what is read.
struct Counted(MemoryChunks, AtomicUsize);

impl ChunkStore for Counted {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.get(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.0.put(kind, plain)
    }
}

#[test]
fn a_small_change_of_a_large_zone_is_found_with_few_reads() {
    let store = Arc::new(Counted(MemoryChunks::default(), AtomicUsize::new(0)));
    let chunks: Arc<dyn ChunkStore> = store.clone();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), chunks.clone());
    for folder in 0..110 {
        zone.mkdir(agent(2), Inode::ROOT, format!("{folder}").as_bytes()).unwrap();
        for file in 0..100 {
            put(&mut zone, 2, &format!("{folder}/{file}"), b"a fact");
        }
    }
    let before = zone.snapshot().unwrap().store(&*chunks).unwrap();
    put(&mut zone, 3, "77/31", b"another fact");
    let after = zone.snapshot().unwrap().store(&*chunks).unwrap();
    drop(zone);
    for sameness in [Sameness::Number, Sameness::Path] {
        store.1.store(0, Ordering::Relaxed);
        let found = ZoneRoot::load(before).compare(&ZoneRoot::load(after), sameness, &chunks).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, b"77/31");
        let nodes = store.0.len();
        let read = store.1.load(Ordering::Relaxed);
        assert!(read <= 30 && nodes > 150, "{read} of {nodes} were read");
    }
}

#[test]
fn a_page_reads_only_what_it_tells() {
    const FILES: usize = 40;
    let store = Arc::new(Counted(MemoryChunks::default(), AtomicUsize::new(0)));
    let chunks: Arc<dyn ChunkStore> = store.clone();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), chunks.clone());
    let name = |file: usize| format!("{file:02}");
    for file in 0..FILES {
        put(&mut zone, 2, &name(file), &pattern(2 * CHUNK, 1));
    }
    let before = zone.snapshot().unwrap().store(&*chunks).unwrap();
    for file in 0..FILES {
        // another file of the same length: whether it differs is seen when it is read
        zone.unlink(agent(3), Inode::ROOT, name(file).as_bytes()).unwrap();
        let mut other = pattern(2 * CHUNK, 1);
        other[CHUNK + file] ^= 1;
        put(&mut zone, 3, &name(file), &other);
    }
    let after = zone.snapshot().unwrap().store(&*chunks).unwrap();
    drop(zone);
    let reads = |part: DiffPart<'_>| {
        store.1.store(0, Ordering::Relaxed);
        let (before, after) = (ZoneRoot::load(before), ZoneRoot::load(after));
        let found = before.compare_part(&after, Sameness::Number, &chunks, part).unwrap();
        let found: Vec<_> = found.into_iter().map(|it| String::from_utf8(it.path).unwrap()).collect();
        (found, store.1.load(Ordering::Relaxed))
    };
    let (all, whole) = reads(DiffPart::default());
    assert_eq!(all.len(), FILES);
    let (page, some) = reads(DiffPart { after: Some(b"20"), limit: 2, ..DiffPart::default() });
    assert_eq!(page, ["21", "22"]);
    let (one, least) = reads(DiffPart { below: b"07", ..DiffPart::default() });
    assert_eq!(one, ["07"]);
    assert_eq!(reads(DiffPart { limit: 0, ..DiffPart::default() }).0, Vec::<String>::new());
    // of the files that are told two chunks each side, at most, beside the trees
    assert!(some < whole - 60 && least < some, "{whole} reads, {some} for a page, {least} for one file");
}

#[test]
fn a_directory_in_the_place_of_another_is_told_as_a_whole() {
    let (mut zone, store) = in_store(ZoneKind::Workspace);
    for name in ["a", "d"] {
        zone.mkdir(agent(2), Inode::ROOT, name.as_bytes()).unwrap();
    }
    let before = zone.snapshot().unwrap();
    zone.rmdir(agent(3), Inode::ROOT, b"d").unwrap();
    zone.mkdir(agent(3), Inode::ROOT, b"d").unwrap();
    put(&mut zone, 3, "b", b"new");
    let after = zone.snapshot().unwrap();
    use DifferenceKind::{Added, Removed};
    put_bytes(&mut zone, 4, b"\xff", b"no text");
    let with_bytes = zone.snapshot().unwrap();
    let chunks: Arc<dyn ChunkStore> = store.clone();
    let count = |utf8| {
        let part = DiffPart { utf8, ..DiffPart::default() };
        before.compare_part(&with_bytes, Sameness::Number, &chunks, part).unwrap().len()
    };
    assert_eq!((count(true), count(false)), (3, 4));
    for limit in 1..4 {
        assert_eq!(
            pages(&before, &after, "", limit, &store),
            told(&[("b", Added), ("d", Removed), ("d", Added)])
        );
    }
}

#[test]
fn too_many_differences_are_refused() {
    let mut paths = super::super::compare::Paths::default();
    let long = |n: usize| format!("{n:0>4000}").into_bytes();
    for n in 0..MAX_DIFFERENCE_BYTES / 4000 {
        assert!(paths.add(long(n)).unwrap());
        assert!(!paths.add(long(n)).unwrap());
    }
    let refused = paths.add(long(usize::MAX)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Overflow);
    assert!(refused.to_string().contains("262,144 files"), "{refused}");
    assert_eq!(MAX_DIFFERENCES, 262_144);
}

/// What is at each path: the number, and the content; `None` for a directory.
type Listing = BTreeMap<String, (Inode, Option<Vec<u8>>)>;

fn listing(zone: &mut Zone, directory: Inode, at: &str, into: &mut Listing) {
    for name in names(zone, directory) {
        let path = if at.is_empty() { name } else { format!("{at}/{name}") };
        let stat = zone.stat_at(agent(9), Inode::ROOT, path.as_bytes(), false).unwrap();
        if stat.kind == FileKind::Directory {
            into.insert(path.clone(), (stat.inode, None));
            listing(zone, stat.inode, &path, into);
        } else {
            zone.open_inode(stat.inode).unwrap();
            let bytes = content(zone, stat.inode);
            zone.close(stat.inode).unwrap();
            into.insert(path, (stat.inode, Some(bytes)));
        }
    }
}

fn all_of(root: &ZoneRoot, store: &Arc<MemoryChunks>) -> Listing {
    let mut all = Listing::new();
    listing(&mut Zone::from_root(root.clone(), store.clone()), Inode::ROOT, "", &mut all);
    all
}

fn check(before: &ZoneRoot, after: &ZoneRoot, is_one_zone: bool, store: &Arc<MemoryChunks>) {
    let (old, new) = (all_of(before, store), all_of(after, store));
    let mut expected = BTreeMap::new();
    for path in old.keys().chain(new.keys()) {
        let kind = match (old.get(path), new.get(path)) {
            (Some(_), None) => DifferenceKind::Removed,
            (None, Some(_)) => DifferenceKind::Added,
            (Some(was), Some(is)) if was.1 != is.1 => DifferenceKind::Changed,
            _ => continue,
        };
        expected.insert(path.clone(), kind);
    }
    let by_path: BTreeMap<_, _> = compare(before, after, Sameness::Path, store).into_iter().collect();
    assert_eq!(by_path, expected);
    if !is_one_zone {
        return;
    }
    let by_number = compare(before, after, Sameness::Number, store);
    for below in ["", "d", "d/e", "a"] {
        let inside = |path: &str| below.is_empty() || path == below || path.starts_with(&format!("{below}/"));
        let is_about = |(path, kind): &&(String, DifferenceKind)| match kind {
            DifferenceKind::Renamed { from, .. } => inside(path) || inside(str::from_utf8(from).unwrap()),
            _ => inside(path),
        };
        let expected: Vec<_> = by_number.iter().filter(is_about).cloned().collect();
        for limit in [1, 2, 5] {
            assert_eq!(pages(before, after, below, limit, store), expected, "{limit} a page below {below:?}");
        }
    }
    let at = |path: &String| by_number.iter().filter(|it| it.0 == *path).map(|it| &it.1).collect::<Vec<_>>();
    for (path, (file, content)) in &new {
        let was: Vec<_> = old.iter().filter(|it| it.1.0 == *file).collect();
        let here = at(path);
        if was.is_empty() && !old.contains_key(path) {
            assert_eq!(here, [&DifferenceKind::Added], "{path}");
        }
        let is_only_name = new.values().filter(|it| it.0 == *file).count() == 1;
        // where nothing else has the name that it had, and it has no name that something else had
        if let [(was_at, (_, before))] = was[..]
            && is_only_name
            && new.get(was_at).is_none_or(|it| it.0 == *file)
            && old.get(path).is_none_or(|it| it.0 == *file)
            && before != content
        {
            let tells = |it: &&DifferenceKind| {
                matches!(it, DifferenceKind::Changed | DifferenceKind::Renamed { changed: true, .. })
            };
            assert!(here.iter().any(tells), "{path}: {here:?}");
        }
    }
    for (path, kind) in &by_number {
        if let DifferenceKind::Renamed { from, .. } = kind {
            let from = String::from_utf8(from.clone()).unwrap();
            assert_eq!(old[&from].0, new[path].0, "{from} to {path}");
        }
        if *kind == DifferenceKind::Removed {
            assert!(old.contains_key(path));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn differences_are_those_of_the_listings(
        versioned in any::<bool>(),
        steps in vec((0..9u8, 0..6u8, 0..6u8, 0..4u8), 1..60),
        forked_at in 0..60usize,
    ) {
        let kind = if versioned { ZoneKind::Semantic } else { ZoneKind::Workspace };
        let (mut zone, store) = in_store(kind);
        let mut fork = None;
        let mut roots = vec![zone.snapshot().unwrap()];
        for (index, (what, a, b, seed)) in steps.into_iter().enumerate() {
            if index == forked_at {
                fork = Some(Zone::from_root(zone.snapshot().unwrap(), store.clone()));
            }
            let now = index as u64 + 2;
            let here = match &mut fork {
                Some(fork) if seed % 2 == 0 => fork,
                _ => &mut zone,
            };
            let path = |n: u8| ["a", "b", "d", "d/a", "d/e", "d/e/a"][usize::from(n)].to_string();
            // what is refused changes nothing
            let _ = match what {
                0..=2 => {
                    let options = OpenOptions { truncate: true, ..CREATE };
                    here.open(agent(now), Inode::ROOT, path(a).as_bytes(), options).and_then(|file| {
                        let len = [3, 3_000, 70_000, 140_000][usize::from(seed)];
                        here.write(agent(now), file, 0, &pattern(len, b / 3))?;
                        here.close_writer(file)
                    })
                }
                3 => here.mkdir(agent(now), Inode::ROOT, path(a).as_bytes()).map(drop),
                4 => here.unlink(agent(now), Inode::ROOT, path(a).as_bytes()),
                5 => here.rmdir(agent(now), Inode::ROOT, path(a).as_bytes()),
                6 => {
                    let (from, to) = (path(a), path(b));
                    here.link(agent(now), (Inode::ROOT, from.as_bytes()), false, (Inode::ROOT, to.as_bytes()))
                }
                _ => {
                    let (from, to) = (path(a), path(b));
                    here.rename(agent(now), (Inode::ROOT, from.as_bytes()), (Inode::ROOT, to.as_bytes()))
                }
            };
            if seed == 3 {
                zone.spill().unwrap();
            }
            if index % 8 == 0 {
                roots.push(zone.snapshot().unwrap());
            }
        }
        let last = zone.snapshot().unwrap();
        let stored = ZoneRoot::load(last.store(&*store).unwrap());
        for root in &roots {
            check(root, &last, true, &store);
            check(&stored, root, true, &store);
        }
        if let Some(mut fork) = fork {
            let fork = fork.snapshot().unwrap();
            check(&last, &fork, false, &store);
            check(&fork, &stored, false, &store);
        }
    }
}
