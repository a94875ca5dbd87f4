//! Faults that were found by people who used it, and by those who tried to break it.

use std::time::Duration;

use zone_vfs::store::{Store, StoreOptions};

use crate::bed::{Bed, guest};

#[test]
fn a_removed_shared_zone_leaves_its_agents_alive() {
    let bed = Bed::new(&["notes"]);
    let path = guest("notes");
    bed.ok(["new".as_ref(), "--zone".as_ref(), "team=/team".as_ref(), "a".as_ref(), path.as_os_str()]);
    bed.send("a", "note one");
    bed.send("a", "write /team/plan x");
    bed.ok(["pause", "a"]);
    bed.ok(["zone", "rm-shared", "--force", "team"]);
    assert_eq!(bed.send("a", "status"), "memory=1 journal=1 semantic=1 logs=1 turns=3");
    let gone = bed.run(["send", "a", "read /team/plan"]);
    assert_eq!(gone.status, Some(1), "{gone}");
    bed.ok(["fork", "a", "b"]);
    assert!(bed.send("b", "status").starts_with("memory=1 "));
    bed.ok(["resume", "b"]);
    assert_eq!(bed.json(["fsck"])["findings"].as_array().map(Vec::len), Some(0));
}

#[test]
fn single_generations_are_removed_but_not_those_that_are_needed() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    for note in ["one", "two", "three"] {
        bed.send("a", &format!("note {note}"));
    }
    bed.ok(["pin", "a", "1"]);
    bed.ok(["rm", "a@0", "a@2"]);
    let left = bed.json(["generations", "a"]);
    let numbers: Vec<_> =
        left.as_array().expect("a list").iter().map(|it| it["generation"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(3)]);
    bed.refused(["rm", "a@1"], &["pinned"]);
    bed.refused(["rm", "a@3"], &["where the agent stands"]);
    bed.refused(["rm", "a@2"], &["2"]);
    bed.refused(["rm", "a@first"], &["`first` is no generation", "number", "generations a"]);
    assert!(bed.send("a", "status").starts_with("memory=3 "));
    bed.ok(["rewind", "a", "1"]);
    assert!(bed.send("a", "status").starts_with("memory=1 "));
}

#[test]
fn a_command_waits_for_another_process_where_it_is_asked_to() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let store = Store::open(&bed.store(), &StoreOptions::default()).expect("the store");
    bed.refused(["ps"], &["another process"]);
    bed.refused(["--wait=0.05", "ps"], &["another process"]);
    // without the file, too
    std::fs::remove_file(bed.store().join("lock")).expect("removed");
    bed.refused(["ps"], &["another process"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bed.ok(["--wait", "ps"]));
        std::thread::sleep(Duration::from_millis(100));
        drop(store);
        assert!(waiting.join().expect("a thread").contains("notes") || !bed.ok(["ps"]).is_empty());
    });
    bed.ok(["ps", "--wait=5"]);
}

#[test]
fn an_agents_own_limit_of_memory_is_kept() {
    let bed = Bed::new(&["notes"]);
    let path = guest("notes");
    bed.ok(["--max-memory".as_ref(), "32M".as_ref(), "new".as_ref(), "a".as_ref(), path.as_os_str()]);
    bed.create("b", "notes");
    bed.ok(["fork", "a", "c"]);
    for (agent, grows) in [("a", false), ("b", true), ("c", false)] {
        assert_eq!(bed.run(["send", agent, "grow 16"]).status, Some(0));
        let ran = bed.run(["send", agent, "grow 64"]);
        assert_eq!(ran.status == Some(0), grows, "{ran}");
    }
}

#[test]
fn options_behind_the_guests_arguments_are_not_taken_without_a_word() {
    let bed = Bed::new(&["notes"]);
    let path = guest("notes");
    let new = |rest: &[&str]| {
        let mut arguments = vec!["new".as_ref(), "a".as_ref(), path.as_os_str()];
        arguments.extend(rest.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
        bed.run(arguments)
    };
    for rest in [&["one", "--zone", "x=workspace"][..], &["one", "--env=K=V"], &["one", "two", "--json"]] {
        new(rest).assert_refused(&[rest
            .last()
            .copied()
            .filter(|it| *it == "--json")
            .unwrap_or("AGENT.wasm")]);
    }
    assert_eq!(new(&["--", "one", "--zone", "x=workspace"]).status, Some(0));
    bed.ok(["rm", "a"]);
    assert_eq!(new(&["--zone", "extra=workspace", "one", "--verbose"]).status, Some(0));
    assert!(bed.ok(["zone", "ls", "a:"]).contains("extra"));
}

#[test]
fn what_was_in_a_removed_folder_comes_back() {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    let folder = bed.path("d");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("f"), "one").expect("a file");
    let put = ["zone".as_ref(), "put".as_ref(), "a:/memory/semantic/d".as_ref(), folder.as_os_str()];
    bed.ok(put);
    let history = bed.json(["zone", "history", "a:/memory/semantic/d/f"]);
    let version = history[0]["version"].to_string();
    bed.ok(["zone", "rm", "-r", "a:/memory/semantic/d"]);
    bed.ok(["zone", "rollback", "a:/memory/semantic/d/f", &version]);
    assert_eq!(bed.send("a", "cat /memory/semantic/d/f"), "one");
    // and the feed says what went, and where it was
    let changes = bed.ok(["zone", "changes", "a:/memory/semantic"]);
    assert!(!changes.contains("file "), "{changes}");
}
