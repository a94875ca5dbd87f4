//! Versions: drafts, publishing, names, and the ways in which tools write files.

use super::*;
use crate::id::Version;
use crate::tree::VersionKind;

const ROOT: Inode = Inode::ROOT;
const TRUNCATE: OpenOptions = OpenOptions { truncate: true, ..CREATE };
const EXCLUSIVE: OpenOptions = OpenOptions { exclusive: true, ..CREATE };

fn host(now: u64) -> Access {
    Access::new(Principal::Host, Timestamp(now))
}

/// A semantic zone in turn 1.
fn memory() -> Zone {
    let mut zone = zone(ZoneKind::Semantic);
    zone.begin_turn(Turn(1));
    zone
}

fn next_turn(zone: &mut Zone) {
    let turn = zone.turn().next();
    zone.end_turn();
    zone.begin_turn(turn);
}

/// Writes a file as most programs do: from the beginning, and then closes it.
fn put(zone: &mut Zone, now: u64, path: &str, content: &[u8]) -> Inode {
    let file = zone.open(agent(now), ROOT, path.as_bytes(), TRUNCATE).unwrap();
    if !content.is_empty() {
        zone.write(agent(now), file, 0, content).unwrap();
    }
    zone.close_writer(file).unwrap();
    file
}

/// A temporary file, synced, and then renamed over the target.
fn replace(zone: &mut Zone, now: u64, path: &str, content: &[u8]) {
    let temporary = format!("{path}.tmp");
    let file = zone.open(agent(now), ROOT, temporary.as_bytes(), EXCLUSIVE).unwrap();
    zone.write(agent(now), file, 0, content).unwrap();
    zone.sync(agent(now), file).unwrap();
    zone.close_writer(file).unwrap();
    zone.rename(agent(now), (ROOT, temporary.as_bytes()), (ROOT, path.as_bytes())).unwrap();
}

fn get(zone: &mut Zone, access: Access, path: &str) -> Result<Vec<u8>> {
    let file = zone.open(access, ROOT, path.as_bytes(), READ)?;
    let size = zone.stat(access, file)?.size as usize;
    let mut bytes = vec![0xff; size + 1];
    let read = zone.read(access, file, 0, &mut bytes)?;
    assert_eq!(read, size);
    bytes.truncate(size);
    zone.close(file)?;
    Ok(bytes)
}

fn kinds(zone: &Zone, file: Inode) -> Vec<VersionKind> {
    let history = zone.history(agent(99), file, None, usize::MAX).unwrap();
    history.iter().map(|entry| entry.record.kind).collect()
}

/// The content of every version of a file, oldest first.
fn contents(zone: &Zone, file: Inode) -> Vec<Vec<u8>> {
    let history = zone.history(agent(99), file, None, usize::MAX).unwrap();
    let versions = history.iter().filter(|entry| entry.record.has_content());
    versions
        .map(|entry| {
            let mut bytes = vec![0; entry.record.size as usize + 1];
            let read = zone.read_version(agent(99), file, entry.version, 0, &mut bytes).unwrap();
            bytes.truncate(read);
            bytes
        })
        .collect()
}

/// The zone again, from its changes alone.
fn replayed(zone: &mut Zone, twin: &mut Zone) {
    let drained = zone.drain_changes(&DrainLimits::default()).unwrap();
    let sent = postcard::to_stdvec(&drained.changes).unwrap();
    let received: Vec<Change> = postcard::from_bytes(&sent).unwrap();
    twin.apply(&received).unwrap();
    let store = zone.state.store.clone();
    let digests = [zone, twin].map(|zone| zone.snapshot().unwrap().digest(&*store).unwrap());
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_file_that_is_closed_is_a_version() {
    let mut zone = memory();
    let file = put(&mut zone, 10, "fact", b"one");
    assert_eq!(put(&mut zone, 11, "fact", b"two"), file);
    assert_eq!(put(&mut zone, 12, "fact", b"two"), file, "the same content again is no version");
    assert_eq!(contents(&zone, file), [b"one", b"two"]);
    let history = zone.history(agent(20), file, None, 10).unwrap();
    let [first, second] = &history[..] else { panic!("{history:?}") };
    assert_eq!((first.record.kind, second.record.kind), (VersionKind::Create, VersionKind::Publish));
    assert_eq!((first.record.at, second.record.at), (Timestamp(10), Timestamp(11)));
    assert_eq!((first.record.by, first.record.turn), (Principal::Agent, Turn(1)));
    assert_eq!((first.is_current, second.is_current), (false, true));
    assert_eq!(second.path.as_deref(), Some(&b"fact"[..]));
    assert_ne!(first.record.hash, second.record.hash);
    assert_eq!(zone.current(file).unwrap(), Some(second.version));
    assert_eq!(zone.history(agent(20), file, Some(first.version), 10).unwrap(), std::slice::from_ref(second));
    assert_eq!(zone.version(agent(20), file, first.version).unwrap(), *first);
    assert_eq!(code(zone.version(agent(20), file, Version(1))), ErrorCode::NoEntry);
    let mut two = [0; 2];
    assert_eq!(zone.read_version(agent(20), file, first.version, 1, &mut two).unwrap(), 2);
    assert_eq!(&two, b"ne");
}

#[test]
fn a_draft_is_its_owners_alone() {
    let mut zone = memory();
    put(&mut zone, 10, "fact", b"published");
    let file = zone.open(agent(11), ROOT, b"fact", READ_WRITE).unwrap();
    zone.write(agent(11), file, 0, b"DRAFT").unwrap();
    assert_eq!(get(&mut zone, agent(12), "fact").unwrap(), b"DRAFTshed");
    assert_eq!(get(&mut zone, host(12), "fact").unwrap(), b"published");
    assert_eq!(zone.stat(host(12), file).unwrap().size, 9);
    zone.set_size(agent(12), file, 3).unwrap();
    assert_eq!(zone.stat(host(12), file).unwrap().size, 9);
    assert_eq!(*zone.read_shared(host(12), file, 2, 100).unwrap(), *b"blished");
    assert_eq!(code(zone.open(host(12), ROOT, b"fact", READ_WRITE)), ErrorCode::Busy);
    assert_eq!(code(zone.unlink(host(12), ROOT, b"fact")), ErrorCode::Busy);
    let fresh = zone.open(agent(13), ROOT, b"new", CREATE).unwrap();
    assert_eq!(names(&zone, ROOT), ["fact", "new"]);
    let seen = zone.readdir(host(13), ROOT, None, 10).unwrap();
    assert_eq!(seen.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>(), ["fact"]);
    assert_eq!(code(get(&mut zone, host(13), "new")), ErrorCode::NoEntry);
    assert_eq!(code(zone.open(host(13), ROOT, b"new", CREATE)), ErrorCode::Busy);
    assert_eq!(code(zone.mkdir(host(13), ROOT, b"new")), ErrorCode::Busy);
    zone.close_writer(fresh).unwrap();
    assert_eq!(get(&mut zone, host(14), "new").unwrap(), b"");
    assert!(zone.sync(host(14), file).unwrap().is_some(), "the host publishes no draft of the agent's");
    assert_eq!(contents(&zone, file).len(), 1);
    zone.sync(agent(14), file).unwrap();
    assert_eq!(contents(&zone, file), [&b"published"[..], b"DRA"]);
    assert_eq!(get(&mut zone, host(15), "fact").unwrap(), b"DRA");
    zone.write(agent(15), file, 3, b"FT").unwrap();
    zone.open_inode(file).unwrap();
    zone.close_writer(file).unwrap();
    assert_eq!(contents(&zone, file).len(), 3, "the last writer is gone, though another reads");
}

#[test]
fn drafts_go_on_in_another_process() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), store.clone());
    zone.begin_turn(Turn(1));
    let old = pattern(200_000, 1);
    let file = put(&mut zone, 10, "large", &old);
    let other = zone.open(agent(11), ROOT, b"other", CREATE).unwrap();
    zone.append(agent(11), other, b"unfinished").unwrap();
    zone.open_writer(file).unwrap();
    zone.write(agent(12), file, 100_000, b"changed").unwrap();
    let stored = zone.snapshot().unwrap().store(&*store).unwrap();

    let mut zone = Zone::from_root(ZoneRoot::load(stored), store.clone());
    zone.open_writer(file).unwrap();
    zone.drop_orphans_except(&[file].into()).unwrap();
    assert_eq!(contents(&zone, other), [b"unfinished"], "nothing has it open any more");
    assert_eq!(get(&mut zone, host(13), "large").unwrap(), old);
    let mut new = old.clone();
    new[100_000..100_007].copy_from_slice(b"changed");
    assert_eq!(content(&mut zone, file), new);
    zone.close(file).unwrap();
    assert_eq!(contents(&zone, file), [old, new]);
}

#[test]
fn what_a_file_is_stays_over_all_that_tools_do() {
    let mut zone = memory();
    let file = put(&mut zone, 10, "fact", b"one");
    next_turn(&mut zone);
    replace(&mut zone, 11, "fact", b"two");
    zone.rename(agent(12), (ROOT, b"fact"), (ROOT, b"known")).unwrap();
    assert_eq!(zone.resolve(agent(12), ROOT, b"known", true).unwrap(), file);
    let first = zone.history(agent(12), file, None, 1).unwrap()[0].version;
    zone.rollback(agent(13), file, first, Expected::Any).unwrap();
    assert_eq!(get(&mut zone, host(14), "known").unwrap(), b"one");
    zone.unlink(agent(15), ROOT, b"known").unwrap();
    assert_eq!(
        kinds(&zone, file),
        [
            VersionKind::Create,
            VersionKind::Publish,
            VersionKind::Rename,
            VersionKind::Rollback { to: first },
            VersionKind::Tombstone
        ]
    );
    assert_eq!(contents(&zone, file), [&b"one"[..], b"two", b"one"]);
    let gone = zone.deleted(agent(16), None, 10).unwrap();
    let paths: Vec<_> = gone.iter().map(|gone| gone.path.clone().unwrap()).collect();
    assert_eq!(paths, [b"known"], "what was renamed is not deleted");
    assert_eq!(zone.deleted(agent(16), Some(&gone[0].place), 10).unwrap(), []);
    assert_eq!(zone.place_of_event(agent(16), gone[0].version).unwrap(), gone[0].place);
    assert_eq!(code(zone.place_of_event(agent(16), Version(u64::MAX))), ErrorCode::NoEntry);
    zone.rollback(agent(17), file, first, Expected::Missing).unwrap();
    assert_eq!(zone.resolve(agent(17), ROOT, b"known", true).unwrap(), file, "it is back, as itself");
    assert_eq!(put(&mut zone, 18, "known", b"three"), file);
}

#[test]
fn a_temporary_file_renamed_over_another_is_one_version_of_it() {
    let mut zone = memory();
    let mut twin =
        Zone::from_root(ZoneRoot::empty(ZoneKind::Semantic, Quota::default()), zone.state.store.clone());
    let file = put(&mut zone, 10, "fact", b"one");
    replayed(&mut zone, &mut twin);
    for (now, content) in [(20, &b"two"[..]), (30, b"two"), (40, b"three")] {
        next_turn(&mut zone);
        replace(&mut zone, now, "fact", content);
        replayed(&mut zone, &mut twin);
    }
    assert_eq!(zone.resolve(agent(50), ROOT, b"fact", true).unwrap(), file);
    assert_eq!(contents(&zone, file), [&b"one"[..], b"two", b"three"]);
    assert_eq!(zone.deleted(agent(50), None, 10).unwrap(), []);
    assert_eq!(zone.past_usage(), Usage { bytes: 11, inodes: 3 }, "nothing of the temporary files is left");
    assert_eq!(zone.usage(), Usage { bytes: 5, inodes: 1 });
    assert_eq!(names(&twin, ROOT), ["fact"]);
}

#[test]
fn descriptors_of_what_was_renamed_over_a_file_are_that_files() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), store.clone());
    zone.begin_turn(Turn(1));
    let file = put(&mut zone, 10, "fact", b"one");
    let temporary = zone.open(agent(11), ROOT, b"tmp", EXCLUSIVE).unwrap();
    zone.write(agent(11), temporary, 0, b"two").unwrap();
    zone.rename(agent(12), (ROOT, b"tmp"), (ROOT, b"fact")).unwrap();
    assert_eq!(zone.stat(agent(12), temporary).unwrap().inode, file);
    zone.append(agent(13), temporary, b" more").unwrap();
    assert_eq!(content(&mut zone, temporary), b"two more");
    zone.sync(agent(13), temporary).unwrap();
    assert_eq!(contents(&zone, file), [&b"one"[..], b"two", b"two more"]);
    zone.write(agent(14), temporary, 0, b"TWO").unwrap();
    let root = zone.snapshot().unwrap();
    let mut zone = Zone::from_root(root, store);
    zone.open_writer(temporary).unwrap();
    zone.drop_orphans_except(&[temporary].into()).unwrap();
    assert_eq!(content(&mut zone, temporary), b"TWO more");
    assert_eq!((zone.references(temporary), zone.references(file)), (1, 1));
    zone.close_writer(temporary).unwrap();
    assert_eq!(code(zone.close(temporary)), ErrorCode::BadDescriptor);
    assert_eq!(contents(&zone, file).last().unwrap(), b"TWO more");
    assert_eq!(zone.usage(), Usage { bytes: 8, inodes: 1 });
}

#[test]
fn what_is_born_and_gone_in_a_turn_leaves_no_trace() {
    let mut zone = memory();
    let mut twin =
        Zone::from_root(ZoneRoot::empty(ZoneKind::Semantic, Quota::default()), zone.state.store.clone());
    replayed(&mut zone, &mut twin);
    let empty = zone.past_usage();
    for path in ["never written", "synced", "large"] {
        let file = zone.open(agent(10), ROOT, path.as_bytes(), EXCLUSIVE).unwrap();
        match path {
            "synced" => zone.write(agent(10), file, 0, b"x").map(drop).unwrap(),
            "large" => zone.write(agent(10), file, 0, &pattern(300_000, 2)).map(drop).unwrap(),
            _ => {}
        }
        zone.sync(agent(10), file).unwrap();
        replayed(&mut zone, &mut twin);
        zone.close_writer(file).unwrap();
        zone.unlink(agent(11), ROOT, path.as_bytes()).unwrap();
        replayed(&mut zone, &mut twin);
        assert_eq!(zone.history(agent(12), file, None, 10).unwrap(), []);
    }
    let directory = zone.mkdir(agent(10), ROOT, b"d").unwrap();
    zone.rename(agent(10), (ROOT, b"d"), (ROOT, b"e")).unwrap();
    zone.rmdir(agent(11), ROOT, b"e").unwrap();
    assert_eq!(zone.history(agent(12), directory, None, 10).unwrap(), []);
    assert_eq!((zone.past_usage(), zone.usage()), (empty, Usage::default()));
    assert_eq!(zone.deleted(agent(12), None, 10).unwrap(), []);
    replayed(&mut zone, &mut twin);

    let file = put(&mut zone, 20, "kept", b"x");
    next_turn(&mut zone);
    zone.unlink(agent(21), ROOT, b"kept").unwrap();
    assert_eq!(kinds(&zone, file), [VersionKind::Create, VersionKind::Tombstone]);
}

#[test]
fn a_file_without_a_name_is_read_and_written_and_never_published() {
    let mut zone = memory();
    let large = pattern(200_000, 3);
    for lasting in [false, true] {
        let file = put(&mut zone, 10, "f", &large);
        if lasting {
            next_turn(&mut zone);
        }
        zone.open_writer(file).unwrap();
        zone.unlink(agent(11), ROOT, b"f").unwrap();
        assert_eq!(content(&mut zone, file), large);
        zone.write(agent(12), file, 150_000, b"changed").unwrap();
        assert_eq!(content(&mut zone, file)[150_000..150_007], *b"changed");
        assert_eq!(content(&mut zone, file)[..150_000], large[..150_000]);
        zone.sync(agent(12), file).unwrap();
        zone.close_writer(file).unwrap();
        assert_eq!(contents(&zone, file).len(), usize::from(lasting));
        assert_eq!(zone.usage(), Usage::default());
    }
    assert_eq!(zone.past_usage().inodes, 2, "a version and a tombstone");
}

#[test]
fn large_drafts_copy_what_they_change() {
    let chunks = store();
    let mut zone = Zone::new(ZoneKind::Procedural, Quota::default(), Timestamp(1), chunks.clone());
    let mut twin = Zone::from_root(ZoneRoot::empty(ZoneKind::Procedural, Quota::default()), chunks.clone());
    let mut expected = pattern(1_000_000, 1);
    let file = put(&mut zone, 10, "f", &expected);
    let all = chunks.len();
    zone.open_writer(file).unwrap();
    for (now, at, bytes) in
        [(11, 0, &b"begin"[..]), (12, 65_534, b"across"), (13, 999_999, b"end and more"), (14, 500_000, b"!")]
    {
        zone.write(agent(now), file, at, bytes).unwrap();
        let at = at as usize;
        expected.resize(expected.len().max(at + bytes.len()), 0);
        expected[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(content(&mut zone, file), expected);
        zone.sync(agent(now), file).unwrap();
        assert_eq!(content(&mut zone, file), expected);
        replayed(&mut zone, &mut twin);
    }
    assert!(chunks.len() - all < 24, "{} new chunks", chunks.len() - all);
    for size in [700_000, 900_000, 70_000, 1_000, 80_000, 0, 5] {
        zone.set_size(agent(20), file, size as u64).unwrap();
        expected.resize(size, 0);
        assert_eq!(content(&mut zone, file), expected, "{size}");
        zone.spill().unwrap();
        assert_eq!(content(&mut zone, file), expected, "{size}");
        zone.sync(agent(20), file).unwrap();
        replayed(&mut zone, &mut twin);
        assert_eq!(content(&mut twin_open(&mut twin, file), file), expected, "{size}");
    }
    assert_eq!(contents(&zone, file).len(), 12);
    assert_eq!(contents(&zone, file)[11], expected);
}

/// A copy of a zone with a file open.
fn twin_open(zone: &mut Zone, file: Inode) -> Zone {
    let mut zone = Zone::from_root(zone.snapshot().unwrap(), zone.state.store.clone());
    zone.open_inode(file).unwrap();
    zone
}

#[test]
fn equal_content_is_one_version_however_it_came_about() {
    let mut zone = memory();
    let bytes = pattern(700_000, 5);
    let file = put(&mut zone, 10, "f", &bytes);
    zone.open_writer(file).unwrap();
    // a change that is taken back
    zone.write(agent(11), file, 400_000, &[0; 100]).unwrap();
    zone.write(agent(11), file, 400_000, &bytes[400_000..400_100]).unwrap();
    zone.sync(agent(11), file).unwrap();
    // the end cut off and written again, in small pieces
    zone.set_size(agent(12), file, 300_000).unwrap();
    for (index, part) in bytes[300_000..].chunks(7_001).enumerate() {
        zone.write(agent(12), file, 300_000 + index as u64 * 7_001, part).unwrap();
    }
    zone.sync(agent(12), file).unwrap();
    assert_eq!(contents(&zone, file).len(), 1);
    // a hole that was written with zeros
    let file = zone.open(agent(13), ROOT, b"hole", CREATE).unwrap();
    zone.set_size(agent(13), file, 1 << 29).unwrap();
    zone.sync(agent(13), file).unwrap();
    zone.write(agent(13), file, 0, &vec![0; 1 << 20]).unwrap();
    zone.sync(agent(13), file).unwrap();
    assert_eq!(zone.history(agent(14), file, None, 10).unwrap().len(), 1);
    let mut some = [1; 10];
    let version = zone.current(file).unwrap().unwrap();
    assert_eq!(zone.read_version(agent(14), file, version, (1 << 29) - 5, &mut some).unwrap(), 5);
    assert_eq!(some, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn conditions_are_on_the_version_seen() {
    let mut zone = memory();
    let file = put(&mut zone, 10, "fact", b"one");
    let seen = zone.current(file).unwrap().unwrap();
    let changed = |error: ZoneError| {
        assert_eq!(error.code, ErrorCode::Busy);
        assert!(error.is_changed(), "{error}");
    };
    put(&mut zone, 11, "fact", b"two");
    let expected = Expected::Version(seen);
    let now = Expected::Version(zone.current(file).unwrap().unwrap());
    zone.open_writer(file).unwrap();
    zone.write(agent(12), file, 0, b"mine").unwrap();
    changed(zone.publish(agent(12), file, expected).unwrap_err());
    assert_eq!(contents(&zone, file).len(), 2, "the draft stays a draft");
    let current = zone.publish(agent(12), file, now).unwrap().unwrap();
    zone.close_writer(file).unwrap();
    changed(zone.unlink_if(agent(13), ROOT, b"fact", expected).unwrap_err());
    changed(zone.rollback(agent(13), file, seen, now).unwrap_err());
    put(&mut zone, 14, "other", b"other");
    changed(zone.rename_if(agent(14), (ROOT, b"other"), (ROOT, b"fact"), expected).unwrap_err());
    changed(zone.rename_if(agent(14), (ROOT, b"other"), (ROOT, b"fact"), Expected::Missing).unwrap_err());
    assert_eq!(get(&mut zone, agent(15), "fact").unwrap(), b"mine");
    let current = Expected::Version(current);
    zone.rename_if(agent(16), (ROOT, b"other"), (ROOT, b"fact"), current).unwrap();
    zone.rename_if(agent(16), (ROOT, b"fact"), (ROOT, b"free"), Expected::Missing).unwrap();
    let last = Expected::Version(zone.current(file).unwrap().unwrap());
    zone.unlink_if(agent(17), ROOT, b"free", last).unwrap();
    assert_eq!(names(&zone, ROOT), [""; 0]);
    let create = zone.open(agent(18), ROOT, b"lock", EXCLUSIVE).unwrap();
    assert_eq!(code(zone.open(agent(18), ROOT, b"lock", EXCLUSIVE)), ErrorCode::Exist);
    zone.close_writer(create).unwrap();
}

#[test]
fn one_fact_of_ten_thousand_costs_what_it_changes() {
    let chunks = store();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), chunks.clone());
    let fact = |number: usize, value: &str| {
        format!(
            "{{\"id\":{number},\"kind\":\"fact\",\"about\":\"subject {}\",\"is\":\"{value}\"}}\n",
            number * 7919 % 1000
        )
    };
    let mut lines: Vec<String> =
        (0..10_000).map(|number| fact(number, "as it was first told, long ago")).collect();
    put(&mut zone, 10, "facts.jsonl", lines.concat().as_bytes());
    let file = zone.resolve(agent(10), ROOT, b"facts.jsonl", true).unwrap();
    let size = lines.concat().len() as u64;
    let first = zone.past_usage().bytes;
    assert_eq!(first, size);
    for (round, in_place) in [(0, true), (1, false), (2, true), (3, false)] {
        next_turn(&mut zone);
        lines[round * 2_500 + 17] = fact(round * 2_500 + 17, "different now, and of another length");
        let before = zone.past_usage().bytes;
        let content = lines.concat();
        if in_place {
            put(&mut zone, 11, "facts.jsonl", content.as_bytes());
        } else {
            replace(&mut zone, 11, "facts.jsonl", content.as_bytes());
        }
        let added = zone.past_usage().bytes - before;
        assert!(added > 0 && added <= size / 4, "{added} of {size}");
        assert_eq!(get(&mut zone, host(12), "facts.jsonl").unwrap(), content.as_bytes());
    }
    assert_eq!(contents(&zone, file).len(), 5);
    let total = zone.past_usage().bytes - first;
    assert!(total < size / 2, "four rewrites stored {total} bytes, the file has {size}");
}

#[test]
fn git_leaves_the_versions_that_a_reader_expects() {
    let mut zone = memory();
    for directory in ["objects", "objects/ab", "refs"] {
        zone.mkdir(agent(2), ROOT, directory.as_bytes()).unwrap();
    }
    let commit = |zone: &mut Zone, now: u64, round: u8| {
        // an object: a temporary file, of which a link is tried first, and then a rename
        let temporary = zone.open(agent(now), ROOT, b"objects/ab/tmp_obj_x", EXCLUSIVE).unwrap();
        zone.write(agent(now), temporary, 0, &pattern(5_000, round)).unwrap();
        zone.close_writer(temporary).unwrap();
        let name = format!("objects/ab/{round:038}");
        let link = zone.link(agent(now), (ROOT, b"objects/ab/tmp_obj_x"), true, (ROOT, name.as_bytes()));
        assert_eq!(code(link), ErrorCode::NotPermitted);
        zone.rename(agent(now), (ROOT, b"objects/ab/tmp_obj_x"), (ROOT, name.as_bytes())).unwrap();
        // index and ref: a lock file that is renamed over them, the index while it is still open
        for (lock, target, content) in [
            ("index.lock", "index", pattern(3_000, round)),
            ("refs/main.lock", "refs/main", vec![b'0' + round; 41]),
        ] {
            let file = zone.open(agent(now), ROOT, lock.as_bytes(), EXCLUSIVE).unwrap();
            zone.write(agent(now), file, 0, &content).unwrap();
            zone.sync(agent(now), file).unwrap();
            zone.rename(agent(now), (ROOT, lock.as_bytes()), (ROOT, target.as_bytes())).unwrap();
            zone.close_writer(file).unwrap();
        }
    };
    for round in 0..3 {
        commit(&mut zone, 10 + u64::from(round), round);
        next_turn(&mut zone);
    }
    for (path, versions) in [("index", 3), ("refs/main", 3)] {
        let file = zone.resolve(agent(20), ROOT, path.as_bytes(), true).unwrap();
        assert_eq!(contents(&zone, file).len(), versions, "{path}");
    }
    for round in 0..3 {
        let name = format!("objects/ab/{round:038}");
        let file = zone.resolve(agent(20), ROOT, name.as_bytes(), true).unwrap();
        assert_eq!(kinds(&zone, file), [VersionKind::Create]);
    }
    assert_eq!(zone.deleted(agent(20), None, 10).unwrap(), [], "no lock file left a trace");
    assert_eq!(zone.past_usage().inodes, 3 + 3 + 3 + 3);
}

#[test]
fn the_history_has_a_quota_of_its_own() {
    let quota = Quota { bytes: 100, inodes: 5 };
    let mut zone = Zone::new(ZoneKind::Semantic, quota, Timestamp(1), store());
    let mut versions = 0;
    let refused = loop {
        next_turn(&mut zone);
        let file = zone.open(agent(10), ROOT, b"f", CREATE).unwrap();
        let written = zone.write(agent(10), file, 0, &[versions; 60]);
        zone.close_writer(file).unwrap();
        match written {
            Ok(_) => versions += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code, ErrorCode::Quota);
    assert_eq!(versions, 7, "four times a hundred bytes, and the one that went beyond");
    assert_eq!(get(&mut zone, agent(11), "f").unwrap(), [6; 60]);
    zone.unlink(agent(12), ROOT, b"f").unwrap();
    assert_eq!(zone.usage(), Usage::default(), "what goes is never refused");
    next_turn(&mut zone);
    let again = zone.open(agent(13), ROOT, b"f", CREATE);
    assert_eq!(again.unwrap_err().code, ErrorCode::Quota, "a file that is made anew has a version, too");
}

#[test]
fn files_that_come_and_go_use_the_quota_of_the_history() {
    let quota = Quota { bytes: 100, inodes: 50 };
    let mut zone = Zone::new(ZoneKind::Procedural, quota, Timestamp(1), store());
    let refused = (0..20).find_map(|number| {
        let made = zone.open(agent(10), ROOT, b"f", CREATE);
        if let Ok(file) = made {
            zone.write(agent(10), file, 0, &[number; 60]).unwrap();
            zone.close_writer(file).unwrap();
            next_turn(&mut zone);
            zone.unlink(agent(12), ROOT, b"f").unwrap();
            next_turn(&mut zone);
        }
        made.err().map(|error| (number, error.code))
    });
    assert_eq!(refused, Some((7, ErrorCode::Quota)));
    assert!(zone.past_usage().bytes <= 460);
}

#[test]
fn what_was_forgotten_is_gone_from_every_version() {
    let chunks = store();
    for kind in [ZoneKind::Semantic, ZoneKind::Procedural, ZoneKind::Workspace, ZoneKind::Episodic] {
        let mut zone = Zone::new(kind, Quota::default(), Timestamp(1), chunks.clone());
        let secret = pattern(300_000, 9);
        let file = put_any(&mut zone, "secret", &secret);
        put_any(&mut zone, "other", &secret[..100_000]);
        zone.spill().unwrap();
        next_turn(&mut zone);
        let refused = zone.forget(agent(11), file).map(drop).map_err(|error| error.code);
        let mut zone = match (kind, refused) {
            (ZoneKind::Semantic, Ok(())) => {
                // once more, as the operator
                let mut zone = Zone::new(kind, Quota::default(), Timestamp(1), chunks.clone());
                assert_eq!(put_any(&mut zone, "secret", &secret), file);
                put_any(&mut zone, "other", &secret[..100_000]);
                zone
            }
            (_, refused) => {
                assert_eq!(refused, Err(ErrorCode::NotPermitted));
                zone
            }
        };
        let gone = zone.forget(host(12), file).unwrap();
        assert!(gone.contents >= 1 && gone.bytes >= 300_000);
        assert!(!gone.chunks.is_empty());
        assert_eq!(code(zone.resolve(host(13), ROOT, b"secret", true)), ErrorCode::NoEntry);
        let root = zone.snapshot().unwrap();
        root.store(&*chunks).unwrap();
        let mut named = BTreeSet::new();
        root.addresses(&*chunks, &mut |_, hash| named.insert(hash)).unwrap();
        assert!(gone.chunks.iter().all(|chunk| !named.contains(chunk)));
        assert_eq!(get(&mut zone, host(13), "other").unwrap(), secret[..100_000]);
        assert_eq!(zone.usage(), Usage { bytes: 100_000, inodes: 1 });
        if kind.keeps_versions() {
            assert_eq!(contents(&zone, file), Vec::<Vec<u8>>::new());
            assert!(kinds(&zone, file).iter().all(|kind| *kind == VersionKind::Forgotten));
            assert_eq!(
                code(zone.rollback(host(14), file, Version(file.0 + 1), Expected::Any)),
                ErrorCode::NoEntry
            );
        }
    }
}

/// Writes a new file in a zone of any kind.
fn put_any(zone: &mut Zone, path: &str, content: &[u8]) -> Inode {
    let file = zone.open(agent(10), ROOT, path.as_bytes(), EXCLUSIVE).unwrap();
    zone.append(agent(10), file, content).unwrap();
    zone.close(file).unwrap();
    file
}

#[test]
fn a_rewind_takes_files_back_and_history_on() {
    let store = store();
    let chunks: Arc<dyn ChunkStore> = store.clone();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), chunks.clone());
    let file = put(&mut zone, 10, "fact", b"one");
    let secret = put(&mut zone, 10, "secret", &pattern(100_000, 1));
    next_turn(&mut zone);
    let early = zone.snapshot().unwrap();
    put(&mut zone, 20, "fact", b"two");
    let late = put(&mut zone, 20, "late", b"late");
    next_turn(&mut zone);
    zone.forget(host(21), secret).unwrap();
    let left = zone.snapshot().unwrap();
    let root = early.rewound(&left, Timestamp(30), &chunks).unwrap();
    assert_eq!(
        root.digest(&*store).unwrap(),
        early.rewound(&left, Timestamp(30), &chunks).unwrap().digest(&*store).unwrap()
    );
    let mut zone = Zone::from_root(root, chunks.clone());
    assert_eq!(names(&zone, ROOT), ["fact"], "what was forgotten does not come back");
    assert_eq!(get(&mut zone, host(31), "fact").unwrap(), b"one");
    assert_eq!(contents(&zone, file), [b"one", b"two"]);
    let history = zone.history(agent(31), file, None, 10).unwrap();
    assert_eq!((history[0].is_current, history[1].is_current), (true, false));
    let fresh = put(&mut zone, 32, "new", b"new");
    assert!(fresh > late && fresh >= left.counters().next_inode, "numbers are not given twice");
    put(&mut zone, 33, "fact", b"three");
    assert_eq!(contents(&zone, file), [&b"one"[..], b"two", b"three"]);
    assert_eq!(contents(&zone, late), [b"late"]);
    let gone = zone.deleted(agent(34), None, 10).unwrap();
    assert_eq!(gone.len(), 2, "the late file and the forgotten one");
    for it in &gone {
        assert_eq!(zone.place_of_event(agent(34), it.version).unwrap(), it.place);
    }
}

#[test]
fn a_rewind_to_a_failed_turn_leaves_an_earlier_rewind_as_it_was() {
    let chunks: Arc<dyn ChunkStore> = store();
    let mut zone = Zone::new(ZoneKind::Semantic, Quota::default(), Timestamp(1), chunks.clone());
    put(&mut zone, 10, "fact", b"one");
    next_turn(&mut zone);
    let first = zone.snapshot().unwrap();
    put(&mut zone, 20, "fact", b"two");
    next_turn(&mut zone);
    let second = zone.snapshot().unwrap();
    put(&mut zone, 30, "fact", b"of a turn that fails");
    let failed = zone.snapshot().unwrap();
    // the first number after the failed turn's is that of this rewind
    let back = first.rewound(&second.after(&failed), Timestamp(40), &chunks).unwrap();
    let root = failed.rewound(&back, Timestamp(50), &chunks).unwrap();
    let mut zone = Zone::from_root(root, chunks.clone());
    let mut asof = |at: u64| get(&mut zone, host(60), &format!(".asof/1970-01-01T00:00:00.{at:09}Z/fact"));
    assert_eq!(asof(20).unwrap(), b"two");
    assert_eq!(asof(40).unwrap(), b"one", "there the rewind had taken it");
    assert_eq!(asof(50).unwrap(), b"of a turn that fails");
}
