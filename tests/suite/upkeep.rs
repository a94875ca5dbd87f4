//! Giving storage back: `reap`.

use std::path::Path;

use crate::bed::Bed;

/// Bytes of files below a folder.
fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut all = 0;
    for entry in entries {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a type");
        all += if kind.is_dir() { bytes_of(&entry.path()) } else { entry.metadata().expect("a file").len() };
    }
    all
}

/// Bytes that do not compress.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

#[test]
fn what_nothing_needs_is_given_back_and_all_else_stays() {
    const LEN: usize = 4 << 20;
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    let put = |name: &str, content: &[u8]| {
        let local = bed.file("local", content);
        let place = format!("a:/workspace/{name}");
        let ran = bed.run(["zone".as_ref(), "put".as_ref(), place.as_ref(), local.as_os_str()]);
        assert_eq!(ran.status, Some(0), "{ran}");
    };
    let kept = noise(LEN, 1);
    put("kept", &kept);
    put("gone", &noise(LEN, 2));
    put("forked", &noise(LEN, 3));
    bed.ok(["fork", "a", "b"]);
    bed.ok(["zone", "rm", "a:/workspace/gone"]);
    bed.ok(["zone", "rm", "a:/workspace/forked"]);
    // the fork's generation holds both, so that nothing but leftovers can go
    let first = bed.json(["reap"]);
    assert!(first["segments"]["after_bytes"].as_u64() > Some(3 * LEN as u64), "{first}");
    bed.ok(["zone", "rm", "b:/workspace/gone"]);
    bed.ok(["rm", "b"]);
    bed.send("a", "note two");

    let before = bytes_of(&bed.store().join("segments"));
    let would = bed.json(["reap", "--dry-run", "--keep-turns", "1"]);
    assert_eq!(would["dry_run"], true);
    // a checkpoint may have been written
    assert!(bytes_of(&bed.store().join("segments")) >= before, "a dry run has taken something");
    let did = bed.json(["reap", "--keep-turns", "1"]);
    assert!(did["damage"].as_array().is_some_and(Vec::is_empty), "{did}");
    assert_eq!(bed.send("a", "status"), "memory=2 journal=2 semantic=2 logs=2 turns=3");
    assert_eq!(bed.ok(["zone", "cat", "a:/memory/episodic/journal.log"]), "note 1: one\nnote 2: two\n");
    let back = bed.path("back");
    let ran = bed.run(["zone".as_ref(), "get".as_ref(), "a:/workspace/kept".as_ref(), back.as_os_str()]);
    assert_eq!(ran.status, Some(0), "{ran}");
    assert_eq!(std::fs::read(back).expect("the file"), kept);
    bed.refused(["zone", "cat", "a:/workspace/gone"], &["gone"]);
}

#[test]
fn agents_that_slept_for_long_are_removed_and_others_are_not() {
    let bed = Bed::new(&["notes"]);
    for name in ["asleep", "busy"] {
        bed.create(name, "notes");
        bed.send(name, "note one");
    }
    bed.ok(["pause", "asleep"]);
    let kept = bed.json(["reap", "--remove-paused", "1d"]);
    assert!(kept["agents"].as_array().is_some_and(Vec::is_empty), "{kept}");
    let would = bed.json(["reap", "--remove-paused", "0s", "--dry-run"]);
    assert_eq!(would["agents"][0]["name"], "asleep", "{would}");
    assert_eq!(bed.agent("asleep")["name"], "asleep");
    let did = bed.json(["reap", "--remove-paused", "0s"]);
    assert_eq!(did["agents"].as_array().map(Vec::len), Some(1), "{did}");
    assert!(did["image_bytes"].as_u64() > Some(0), "{did}");
    bed.refused(["send", "asleep", "status"], &["no agent", "asleep"]);
    assert_eq!(bed.send("busy", "status"), "memory=1 journal=1 semantic=1 logs=1 turns=2");
}

#[test]
fn wrong_times_and_sizes_are_refused() {
    let bed = Bed::new(&[]);
    for arguments in
        [["--remove-paused", "soon"], ["--thin-paused", "5"], ["--budget", "much"], ["--keep-turns", "-1"]]
    {
        let ran = bed.run(["reap"].into_iter().chain(arguments));
        assert_eq!(ran.status, Some(2), "{ran}");
        assert!(ran.err.contains(arguments[1]), "{ran}");
    }
}

#[test]
fn code_that_no_agent_needs_is_given_back() {
    let bed = Bed::new(&["notes", "hello-command"]);
    bed.create("a", "notes");
    let entries = || {
        let all = std::fs::read_dir(bed.store().join("cache")).unwrap();
        all.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    // earlier code of the guests may be among it
    let before = entries();
    assert!(before >= 2);
    let would = bed.json(["reap", "--dry-run"]);
    assert!(would["code_bytes"].as_u64().unwrap() > 0, "{would}");
    assert_eq!(entries(), before);
    let done = bed.json(["reap"]);
    assert_eq!((&done["code_bytes"], entries()), (&would["code_bytes"], 1));
    assert_eq!(bed.send("a", "note kept"), "kept note 1");
    bed.ok(["rm", "a"]);
    assert_eq!(entries(), 1, "it is a cache, and who begins anew is quick");
    bed.ok(["reap"]);
    assert_eq!(entries(), 0);
    let beside = std::fs::read_dir(bed.store().join("images")).unwrap();
    assert_eq!(beside.count(), 0);
    bed.create("a", "notes");
    assert_eq!(bed.send("a", "note again"), "kept note 1");
}
