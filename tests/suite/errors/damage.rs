use std::fs;
use std::path::{Path, PathBuf};

use crate::bed::{Bed, guest};

const BLOCK: usize = 4096;

/// A store with an agent of three notes and a file of a megabyte, and a copy of it beside.
struct Damaged {
    bed: Bed,
}

/// Copies a folder, so that no file is shared with another one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("a copy");
        }
    }
}

impl Damaged {
    fn new() -> Self {
        Self::made(true)
    }

    fn made(paused: bool) -> Self {
        let bed = Bed::new(&["notes"]);
        bed.create("n", "notes");
        for text in ["one", "two", "three"] {
            bed.send("n", &format!("note {text}"));
        }
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(1 << 20).collect();
        let file = bed.file("noise", noise);
        bed.ok(["zone".as_ref(), "put".as_ref(), "n:/workspace/noise".as_ref(), file.as_os_str()]);
        if paused {
            bed.ok(["pause", "n"]);
        }
        fs::rename(bed.store(), bed.path("good")).expect("the store moves");
        let damaged = Self { bed };
        damaged.restore();
        damaged
    }

    /// Puts the good store in place again.
    fn restore(&self) {
        if self.bed.store().exists() {
            fs::remove_dir_all(self.bed.store()).expect("the store goes");
        }
        copy(&self.bed.path("good"), &self.bed.store());
    }

    /// The one file in a folder of the store whose name ends like this.
    fn find(&self, folder: &str, ending: &str) -> PathBuf {
        let entries = fs::read_dir(self.bed.store().join(folder)).expect("a folder");
        let mut found: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
        found.retain(|path| path.to_string_lossy().ends_with(ending));
        assert_eq!(found.len(), 1, "{ending} in {folder}: {found:?}");
        found.remove(0)
    }

    /// No command works on the store; each says why in one message with these words. When the file is
    /// good again, everything is there.
    fn assert_closed(&self, path: &Path, words: &[&str]) {
        for arguments in
            [&["ps"][..], &["send", "n", "note lost"], &["rm", "n"], &["pause", "n"], &["zone", "ls", "n"]]
        {
            let said = self.bed.refused(arguments, words);
            assert!(said.contains(self.bed.store().to_str().expect("a path in UTF-8")), "{said}");
        }
        let component = guest("notes");
        self.bed.refused(["new".as_ref(), "other".as_ref(), component.as_os_str()], words);
        let good =
            self.bed.path("good").join(path.strip_prefix(self.bed.store()).expect("a file of the store's"));
        fs::copy(good, path).expect("the good file");
        self.assert_good();
        self.restore();
    }

    /// The agent is there and knows everything.
    fn assert_good(&self) {
        let status = self.bed.send("n", "status");
        assert!(status.starts_with("memory=3 journal=3 semantic=3 logs=3 "), "{status}");
        assert_eq!(self.bed.send("n", "list"), "1. one\n2. two\n3. three");
        assert_eq!(self.bed.ok(["zone", "ls", "n:/workspace"]).lines().count(), 2);
    }
}

/// Changes a file; nothing else of the store's changes with it.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file of the store's");
    change(&mut bytes);
    fs::write(path, bytes).expect("a file of the store's");
}

/// Turns the bits of a byte around.
fn flip(at: usize) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at] ^= 0xff
}

/// CRC-32 (IEEE), as docs/format.md says.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Gives a block another version, under a good checksum.
fn set_version(block: &mut [u8], version: u32) {
    block[8..12].copy_from_slice(&version.to_le_bytes());
    block[12..16].fill(0);
    let sum = crc32(block);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn one_damaged_superblock_slot_is_borne_and_two_are_not() {
    let store = Damaged::new();
    let path = store.bed.store().join("superblock");
    for slot in [0, 1] {
        change(&path, flip(slot * BLOCK + 30));
        store.assert_good();
        store.restore();
    }
    change(&path, |bytes| {
        bytes[30] ^= 1;
        bytes[BLOCK + 30] ^= 1;
    });
    store.assert_closed(&path, &["superblock", "damaged"]);
    change(&path, Vec::clear);
    store.assert_closed(&path, &["superblock"]);
    fs::remove_file(&path).expect("a file of the store's");
    store.assert_closed(&path, &["superblock"]);
}

#[test]
fn a_damaged_log_is_named_and_not_taken_for_an_empty_one() {
    let store = Damaged::new();
    let path = store.find("log", ".log");
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let said = [name.as_str(), "damaged"];
    change(&path, flip(20));
    store.assert_closed(&path, &said);
    // a group with others behind it
    change(&path, flip(3 * BLOCK + 100));
    store.assert_closed(&path, &said);
    change(&path, |bytes| bytes.truncate(bytes.len() / 2));
    store.assert_closed(&path, &said);
    change(&path, Vec::clear);
    store.assert_closed(&path, &["log", "damaged"]);
    fs::remove_file(&path).expect("a file of the store's");
    store.assert_closed(&path, &["log", "damaged"]);
}

#[test]
fn a_newer_store_is_refused_by_its_version() {
    let store = Damaged::new();
    let path = store.bed.store().join("superblock");
    change(&path, |bytes| bytes.chunks_mut(BLOCK).for_each(|slot| set_version(slot, 77)));
    store.assert_closed(&path, &["77"]);
    // one slot of a newer version: a newer program was at work
    change(&path, |bytes| set_version(&mut bytes[..BLOCK], 77));
    store.assert_closed(&path, &["77"]);
    let path = store.find("log", ".log");
    change(&path, |bytes| set_version(&mut bytes[..BLOCK], 77));
    store.assert_closed(&path, &["77"]);
}

#[test]
fn a_store_without_its_key_is_not_opened() {
    let store = Damaged::new();
    let path = store.bed.store().join("tenant.key");
    change(&path, flip(40));
    store.assert_closed(&path, &["tenant.key"]);
    change(&path, |bytes| bytes.truncate(10));
    store.assert_closed(&path, &["tenant.key"]);
    fs::remove_file(&path).expect("a file of the store's");
    store.assert_closed(&path, &["tenant.key"]);
}

#[test]
fn damaged_content_is_reported_where_it_is_and_the_rest_can_be_read() {
    let store = Damaged::new();
    let path = store.find("segments", ".seg");
    let noise = fs::read(store.bed.path("noise")).expect("the file's bytes");
    change(&path, |bytes| {
        let wanted = &noise[500_000..500_064];
        let middle = bytes.windows(64).position(|w| w == wanted).expect("the file's bytes");
        bytes[middle] ^= 1;
    });
    let ran = store.bed.run(["zone", "cat", "n:/workspace/noise"]);
    assert_eq!(ran.status, Some(1), "{}", ran.err);
    ran.assert_one_message(&["/workspace/noise"]);
    let to = store.bed.path("to");
    store.bed.refused(
        ["zone".as_ref(), "get".as_ref(), "n:/workspace/noise".as_ref(), to.as_os_str()],
        &["noise"],
    );
    assert!(!to.exists(), "half a file came out");
    store.assert_good();
}

#[test]
fn a_damaged_image_is_named_and_the_zones_can_be_read() {
    // as a turn leaves it: what is archived would be made again
    let store = Damaged::made(false);
    for (ending, damage) in [
        (".pages", (|bytes| bytes.truncate(bytes.len() / 2)) as fn(&mut Vec<u8>)),
        (".pages", |bytes| bytes[0] ^= 1),
        (".pages", Vec::clear),
    ] {
        let path = store.find("images", ending);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        change(&path, damage);
        for arguments in [&["send", "n", "note lost"][..], &["resume", "n"]] {
            store.bed.refused(arguments, &[name.as_str()]);
        }
        assert_eq!(store.bed.ok(["zone", "cat", "n:/memory/semantic/notes.txt"]), "one\ntwo\nthree\n");
        let good = store.bed.path("good/images").join(&name);
        fs::copy(good, &path).expect("the good file");
        store.assert_good();
        store.restore();
    }
}

#[test]
fn a_damaged_genesis_image_is_made_anew() {
    let store = Damaged::made(false);
    for damage in
        [(|bytes| bytes.truncate(bytes.len() / 2)) as fn(&mut Vec<u8>), |bytes| bytes[0] ^= 1, Vec::clear]
    {
        let path = store.find("images", ".flat");
        change(&path, damage);
        store.assert_good();
        store.restore();
    }
}

#[test]
fn damaged_code_is_made_anew() {
    let store = Damaged::new();
    let cache = store.bed.store().join("cache");
    let entry =
        fs::read_dir(&cache).expect("the cache").map(|e| e.expect("an entry").path()).find(|p| p.is_dir());
    let entry = entry.expect("an entry");
    let names: Vec<_> =
        fs::read_dir(&entry).expect("an entry").map(|e| e.expect("a file").file_name()).collect();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        change(&entry.join(name), |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
        store.assert_good();
        store.restore();
    }
    change(&cache.join("mac.key"), |bytes| bytes.truncate(3));
    store.assert_good();
    fs::remove_dir_all(&cache).expect("the cache goes");
    store.assert_good();
}

#[test]
fn a_damaged_component_is_named() {
    let store = Damaged::new();
    let path = store.find("components", ".wasm");
    let component = path.file_stem().expect("a name").to_string_lossy().into_owned();
    change(&path, flip(5000));
    // compiled code needs it no more; without that it is missed
    store.assert_good();
    fs::remove_dir_all(store.bed.store().join("cache")).expect("the cache goes");
    store.bed.refused(["send", "n", "list"], &[component.as_str(), "damaged"]);
    // the same component brings it back
    let again = guest("notes");
    store.bed.ok(["new".as_ref(), "other".as_ref(), again.as_os_str()]);
    assert_eq!(store.bed.send("n", "list"), "1. one\n2. two\n3. three");
}

#[test]
fn a_repair_brings_back_what_reads_and_says_what_is_lost() {
    let store = Damaged::made(false);
    let bed = &store.bed;
    let repaired = |words: &[&str]| {
        bed.refused(["fsck"], &["fsck --repair"]);
        let ran = bed.run(["fsck", "--repair"]);
        assert_eq!(ran.status, Some(1), "{ran}");
        for word in ["the store does not open: ", "lost: "].iter().chain(words) {
            assert!(ran.out.contains(word), "{word}: {ran}");
        }
        bed.ok(["fsck"]);
    };
    let superblock = bed.store().join("superblock");
    change(&superblock, |bytes| bytes.fill(7));
    repaired(&["superblock: neither slot reads", "quarantine/"]);
    assert!(bed.store().join("quarantine/superblock-0").exists());
    store.assert_good();
    store.restore();
    fs::remove_file(&superblock).expect("a file of the store's");
    repaired(&["superblock: it is gone"]);
    store.assert_good();
    store.restore();
    // the first page of the log, which says which log it is: what follows reads
    change(&store.find("log", ".log"), |bytes| bytes[..BLOCK].fill(7));
    repaired(&["quarantine/"]);
    store.assert_good();
    store.restore();
    // the group with the last turn, before that of a file
    change(&store.find("log", ".log"), |bytes| {
        let at = bytes.windows(10).position(|it| it == b"note three").expect("the event is in the log");
        bytes[at] ^= 1;
    });
    repaired(&["do not read", "n: its records ", "after turn 2"]);
    assert_eq!(bed.send("n", "list"), "1. one\n2. two");
    let status = bed.send("n", "status");
    assert!(status.starts_with("memory=2 journal=2 semantic=2 logs=2 "), "{status}");
}
