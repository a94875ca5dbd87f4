//! Image files are a cache: what is archived comes back without them, and costs what differs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::bed::{Bed, Running, random};

/// The image files of a store.
fn images(bed: &Bed) -> Vec<PathBuf> {
    let entries = fs::read_dir(bed.store().join("images")).expect("images");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "flat" || e == "pages"));
    found.sort();
    found
}

/// Removes all of them, as somebody might by hand.
fn lose_images(bed: &Bed) {
    let found = images(bed);
    assert!(!found.is_empty(), "there are none");
    for path in found {
        fs::remove_file(path).expect("an image file goes");
    }
}

/// Pauses an agent; the generation.
fn pause(bed: &Bed, agent: &str) -> String {
    bed.json(["pause", agent])["generation"].to_string()
}

/// An agent with a note for each generation.
fn noted(bed: &Bed, notes: &[&str]) -> Vec<String> {
    bed.create("n", "notes");
    let generation = |note: &&str| {
        bed.send("n", &format!("note {note}"));
        pause(bed, "n")
    };
    notes.iter().map(generation).collect()
}

#[test]
fn image_files_that_are_gone_are_made_again_from_the_archive() {
    let bed = Bed::new(&["notes"]);
    let generations = noted(&bed, &["one", "two", "three"]);
    lose_images(&bed);
    assert_eq!(bed.send("n", "list"), "1. one\n2. two\n3. three");
    pause(&bed, "n");
    lose_images(&bed);
    bed.ok(["fork", "n", "forked", "--at", &generations[1]]);
    lose_images(&bed);
    assert_eq!(bed.send("forked", "list"), "1. one\n2. two");
    bed.ok(["rewind", "n", &generations[0]]);
    assert_eq!(bed.send("n", "list"), "1. one");
    bed.send("n", "note other");
    pause(&bed, "n");
    lose_images(&bed);
    assert_eq!(bed.send("n", "status"), "memory=2 journal=4 semantic=2 logs=4 turns=4");
    // and those that the program itself has made are as good as the first
    bed.send("n", "note last");
    assert_eq!(bed.send("n", "list"), "1. one\n2. other\n3. last");
}

#[test]
fn what_is_not_archived_is_missed_by_name_and_the_rest_goes_on() {
    let bed = Bed::new(&["notes"]);
    let generations = noted(&bed, &["one"]);
    bed.send("n", "note two");
    let head = bed.agent("n")["generation"].to_string();
    lose_images(&bed);
    for arguments in [&["send", "n", "list"][..], &["resume", "n"], &["pause", "n"], &["fork", "n", "f"]] {
        bed.refused(arguments, &[&format!("generation {head}"), "archive", "image file"]);
    }
    assert_eq!(bed.ok(["zone", "cat", "n:/memory/semantic/notes.txt"]), "one\ntwo\n");
    bed.ok(["rewind", "n", &generations[0]]);
    assert_eq!(bed.send("n", "list"), "1. one");
}

/// Changes image files that end like this.
fn damage(bed: &Bed, ending: &str, damage: fn(&mut Vec<u8>)) {
    let files: Vec<_> =
        images(bed).into_iter().filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    assert!(!files.is_empty(), "there are no {ending}");
    for path in files {
        let mut bytes = fs::read(&path).expect("an image file");
        damage(&mut bytes);
        fs::write(&path, bytes).expect("damage");
    }
}

#[test]
fn damaged_image_files_are_made_again_too() {
    let bed = Bed::new(&["notes"]);
    noted(&bed, &["one"]);
    // pages that do not match their checksums, which shows when they are mapped: so without the flat file
    for path in images(&bed) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".flat") && !name.starts_with("genesis") {
            fs::remove_file(path).expect("an image file goes");
        }
    }
    damage(&bed, ".pages", |bytes| bytes[4096..].iter_mut().step_by(4096).for_each(|byte| *byte ^= 1));
    let ran = bed.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran}");
    assert!(ran.out.contains("n@") && ran.out.contains(".pages is damaged"), "{ran}");
    assert_eq!(bed.send("n", "list"), "1. one");
    for (ending, change) in [
        (".pages", (|bytes| bytes.truncate(bytes.len() / 2)) as fn(&mut Vec<u8>)),
        (".pages", |bytes| bytes[0] ^= 1),
        (".pages", Vec::clear),
        (".flat", |bytes| bytes.truncate(bytes.len() / 2)),
        (".flat", |bytes| bytes[0] ^= 1),
        (".flat", Vec::clear),
    ] {
        bed.send("n", "draft x");
        pause(&bed, "n");
        damage(&bed, ending, change);
        assert_eq!(bed.send("n", "list"), "1. one");
    }
}

#[test]
fn fsck_sees_a_byte_that_rotted_in_an_image_file_and_makes_it_whole() {
    let bed = Bed::new(&["notes"]);
    let generations = noted(&bed, &["a secret word"]);
    bed.ok(["fsck"]);
    // in whatever flat file has it: such pages are mapped unseen
    let mut hit = 0;
    for path in images(&bed).into_iter().filter(|path| path.extension().is_some_and(|e| e == "flat")) {
        let mut bytes = fs::read(&path).expect("an image file");
        let found = bytes.windows(13).position(|w| w == b"a secret word");
        let Some(at) = found else { continue };
        bytes[at] = b'A';
        fs::write(&path, bytes).expect("damage");
        hit += 1;
    }
    assert!(hit > 0, "the note is in none of {:?}", images(&bed));
    let ran = bed.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran}");
    assert!(ran.out.contains(&format!("n@{}: image file", generations[0])), "{ran}");
    let ran = bed.run(["fsck", "--repair"]);
    assert!(ran.out.contains("repaired: the memory of n@"), "{ran}");
    bed.ok(["fsck"]);
    assert_eq!(bed.send("n", "list"), "1. a secret word");
}

#[test]
fn files_that_are_archived_go_where_the_cache_is_full() {
    let bed = Bed::new(&["notes"]);
    let generations = noted(&bed, &["one", "two", "three", "four"]);
    bed.ok(["fork", "n", "forked", "--at", &generations[1]]);
    let before = images(&bed).len();
    let reaped = bed.json(["reap", "--image-cache", "0"]);
    assert!(reaped["cached_bytes"].as_u64().is_some(), "{reaped}");
    assert!(images(&bed).len() <= before, "{:?}", images(&bed));
    assert_eq!(bed.send("forked", "list"), "1. one\n2. two");
    for (count, generation) in generations.iter().enumerate().rev() {
        bed.ok(["rewind", "n", generation]);
        let listed = bed.send("n", "list");
        assert_eq!(listed.lines().count(), count + 1, "{listed}");
        bed.ok(["reap", "--image-cache", "0"]);
    }
    // what no generation of a turn needs is archived for the purpose
    for text in ["a", "b", "c"] {
        bed.send("n", &format!("note {text}"));
        bed.send("n", "draft more");
    }
    pause(&bed, "n");
    let listed = bed.json(["generations", "n"]);
    bed.ok(["reap", "--image-cache", "0"]);
    for row in listed.as_array().expect("rows").iter().rev().take(6) {
        bed.ok(["fork", "n", "early", "--at", &row["generation"].to_string()]);
        assert!(bed.send("early", "list").starts_with("1. one"));
        bed.ok(["rm", "early"]);
    }
}

#[test]
fn forks_and_generations_cost_what_differs() {
    let bed = Bed::new(&["notes"]);
    noted(&bed, &["one"]);
    let unique = |name: &str| {
        let usage = bed.json(["du"]);
        let found = usage["agents"].as_array().into_iter().flatten().find(|a| a["name"] == name);
        let memory = &found.unwrap_or_else(|| panic!("no {name} in {usage}"))["attachments"];
        (memory["unique"].as_u64().expect("bytes"), memory["shared"].as_u64().expect("bytes"))
    };
    let (first, _) = unique("n");
    assert!(first > 5_000, "an image is some chunks: {first}");
    for n in 0..50 {
        bed.send("n", &format!("note number {n}"));
        pause(&bed, "n");
    }
    let (after, _) = unique("n");
    // each turn writes the heap, the stack and the globals: some chunks, but no whole image
    assert!(after < first + 50 * 200_000, "{first} {after}");
    bed.ok(["fork", "n", "f", "--count", "100"]);
    let (own, shared) = unique("f-7");
    assert!(own == 0 && shared > 5_000, "{own} {shared}");
    assert!(unique("n").0 <= after, "what forks need too is not its own");
    lose_images(&bed);
    assert_eq!(bed.send("f-99", "list").lines().count(), 51);
}

#[test]
fn a_backup_brings_back_memory_whose_image_files_are_gone() {
    let bed = Bed::new(&["notes"]);
    let generations = noted(&bed, &["one", "two"]);
    lose_images(&bed);
    // the generations of turns were not archived, and their memory is gone
    let backed_up = |to: &Path| {
        let ran = bed.run(["backup".as_ref(), to.as_os_str()]);
        assert_eq!(ran.status, Some(1), "{ran}");
        let named: Vec<_> = ran.err.lines().filter_map(|it| it.split("the memory of ").nth(1)).collect();
        assert!(named.len() == 2 && named[0].starts_with("n@1: ") && named[1].starts_with("n@3: "), "{ran}");
    };
    let backups = bed.path("backups");
    backed_up(&backups);
    fs::remove_dir_all(bed.store()).expect("the store goes");
    bed.ok(["restore".as_ref(), backups.as_os_str()]);
    assert_eq!(bed.send("n", "list"), "1. one\n2. two");
    bed.ok(["rewind", "n", &generations[0]]);
    assert_eq!(bed.send("n", "list"), "1. one");
    // what is not archived goes along as files
    bed.send("n", "note not archived");
    let backups = bed.path("others");
    backed_up(&backups);
    fs::remove_dir_all(bed.store()).expect("the store goes");
    bed.ok(["restore".as_ref(), backups.as_os_str()]);
    assert_eq!(bed.send("n", "list"), "1. one\n2. not archived");
}

#[test]
fn a_backup_names_whose_memory_is_damaged_and_has_everything_else() {
    let bed = Bed::new(&["notes"]);
    let paused = noted(&bed, &["one"]);
    bed.send("n", "note two");
    let head = bed.agent("n")["generation"].to_string();
    bed.create("other", "notes");
    bed.send("other", "note whole");
    let id = bed.agent("n")["id"].as_str().expect("an id").to_owned();
    let pages: Vec<_> =
        images(&bed).into_iter().filter(|path| path.to_string_lossy().ends_with(".pages")).collect();
    let of_n = pages.iter().filter(|path| path.to_string_lossy().contains(&id));
    for path in of_n {
        let mut bytes = fs::read(path).expect("an image file");
        let middle = bytes.len() / 2;
        bytes[middle..].fill(7);
        fs::write(path, bytes).expect("damage");
    }
    let backups = bed.path("backups");
    let named = format!("the memory of n@{head}: ");
    let ran = bed.run(["backup".as_ref(), backups.as_os_str()]);
    assert_eq!(ran.status, Some(1), "{ran}");
    assert!(ran.err.contains(&named) && !ran.err.contains("other"), "{ran}");
    fs::remove_dir_all(bed.store()).expect("the store goes");
    let ran = bed.run(["restore".as_ref(), backups.as_os_str()]);
    assert!(ran.err.contains(&named) && !ran.err.contains("other"), "{ran}");
    assert_eq!(bed.send("other", "list"), "1. whole");
    // it is not where nobody has sent it
    bed.refused(["send", "n", "list"], &["image file"]);
    assert_eq!(bed.ok(["zone", "cat", "n:/memory/semantic/notes.txt"]), "one\ntwo\n");
    bed.ok(["rewind", "n", &paused[0]]);
    assert_eq!(bed.send("n", "list"), "1. one");
}

#[test]
fn a_kill_at_any_moment_of_archiving_making_again_and_removing_loses_nothing() {
    let bed = Bed::new(&["notes"]);
    noted(&bed, &["one", "two"]);
    let kill = |arguments: &[&str]| {
        let running = Running::start(&mut bed.command(arguments));
        std::thread::sleep(Duration::from_micros(random(60_000)));
        running.signal(Signal::KILL);
        let ran = running.end();
        assert!(matches!(ran.status, None | Some(0)), "{ran}");
    };
    for round in 0..12 {
        bed.send("n", &format!("note {round}"));
        kill(&["pause", "n"]);
        kill(&["reap", "--image-cache", "0"]);
        pause(&bed, "n");
        // forks that came about are archived too, whenever the fork was killed
        bed.ok(["reap"]);
        lose_images(&bed);
        kill(&["send", "n", "list"]);
        kill(&["fork", "n", &format!("f{round}")]);
        assert_eq!(bed.send("n", "list").lines().count(), round + 3);
        kill(&["reap", "--image-cache", "0", "--keep-turns", "1"]);
    }
    // the files of turns that were not archived are gone, and nothing else is amiss
    let ran = bed.run(["fsck", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e} in {ran}"));
    let findings = told["findings"].as_array().expect("findings");
    assert!(findings.iter().all(|it| it["kind"] == "image"), "{told}");
    let agents = bed.json(["ps"]);
    for name in agents.as_array().into_iter().flatten().filter_map(|row| row["name"].as_str()) {
        assert!(bed.send(name, "list").starts_with("1. one\n2. two"), "{name}");
    }
}

#[test]
fn a_head_comes_back_with_the_file_of_an_archived_generation_that_it_lies_on() {
    let bed = Bed::new(&["notes"]);
    noted(&bed, &["one"]);
    bed.ok(["fork", "n", "forked"]);
    bed.send("n", "note two");
    bed.send("forked", "note other");
    // the heads are changed pages over a file of a generation that is archived, and are not archived themselves
    let flats = || {
        let generation = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            name.ends_with(".flat") && !name.starts_with("genesis")
        };
        images(&bed).into_iter().filter(generation).collect::<Vec<_>>()
    };
    let lost = flats();
    assert!(!lost.is_empty(), "there is none");
    for damage in [
        |path: &PathBuf| fs::remove_file(path),
        |path: &PathBuf| fs::write(path, ""),
        |path: &PathBuf| fs::write(path, "junk"),
    ] {
        for path in &lost {
            damage(path).expect("a file is lost");
        }
        assert_eq!(bed.send("n", "list"), "1. one\n2. two");
        assert_eq!(bed.send("forked", "list"), "1. one\n2. other");
        assert!(lost.iter().all(|path| path.exists()));
    }
    for path in &lost {
        fs::remove_file(path).expect("a file goes");
    }
    let ran = bed.run(["fsck", "--repair"]);
    assert!(ran.status == Some(1) && ran.out.contains("repaired: the memory of "), "{ran}");
    bed.ok(["fsck"]);
}

#[test]
fn the_genesis_image_is_made_again_where_it_is_gone() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note one");
    for path in images(&bed) {
        if path.file_name().expect("a name").to_string_lossy().starts_with("genesis") {
            fs::remove_file(path).expect("it goes");
        }
    }
    assert_eq!(bed.send("n", "list"), "1. one");
}

#[test]
fn a_component_that_is_lost_is_named_and_can_be_put_back() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let folder = fs::read_dir(bed.store().join("components")).expect("components");
    let files: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 1);
    let whole = fs::read(&files[0]).expect("the component");
    let flipped = [&whole[..100], &[!whole[100]], &whole[101..]].concat();
    for damage in [Some(flipped), None] {
        match damage {
            Some(bytes) => fs::write(&files[0], bytes).expect("a byte rots"),
            None => fs::remove_file(&files[0]).expect("it goes"),
        }
        let ran = bed.run(["fsck"]);
        assert!(
            ran.status == Some(1) && ran.out.contains("component") && ran.out.contains("(of n)"),
            "{ran}"
        );
        let backup = bed.path("backup");
        let ran = bed.run([std::ffi::OsStr::new("backup"), backup.as_os_str()]);
        assert!(ran.status == Some(1) && ran.err.contains("(of n)"), "{ran}");
        bed.create("again", "notes");
        bed.ok(["fsck"]);
        bed.ok(["rm", "again"]);
    }
}
