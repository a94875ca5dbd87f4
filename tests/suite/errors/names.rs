use std::ffi::OsStr;

use crate::bed::{Bed, guest};

#[test]
fn a_missing_agent_is_named() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let before = bed.everything();
    for arguments in [
        &["send", "nobody", "list"][..],
        &["pause", "nobody"],
        &["resume", "nobody"],
        &["fork", "nobody"],
        &["fork", "nobody", "b", "--count", "3"],
        &["rewind", "nobody", "0"],
        &["generations", "nobody"],
        &["logs", "nobody"],
        &["rm", "nobody"],
        &["zone", "ls", "nobody"],
        &["zone", "cat", "nobody:/workspace/x"],
        &["zone", "rm", "nobody:/workspace/x"],
        &["zone", "get", "nobody:/workspace/x", "-"],
    ] {
        bed.refused(arguments, &["no agent named `nobody`", "dormouse ps"]);
    }
    // all that are missing are named, and what is there stays
    let told = bed.refused(["rm", "nobody", "a", "none@3", "a@0"], &["`nobody`", "`none`", "dormouse ps"]);
    assert!(told.contains("nothing was removed"), "{told}");
    assert_eq!(before, bed.everything());
}

#[test]
fn a_taken_name_is_named() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    bed.ok(["fork", "a", "b-2"]);
    let before = bed.everything();
    let component = guest("notes");
    bed.refused([OsStr::new("new"), OsStr::new("a"), component.as_os_str()], &["`a` exists"]);
    bed.refused(["fork", "a", "a"], &["`a` exists"]);
    // three are wanted, and the second is taken: none is made
    bed.refused(["fork", "a", "b", "--count", "3"], &["`b-2` exists"]);
    assert_eq!(before, bed.everything());
}

#[test]
fn names_that_cannot_be_are_refused() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let before = bed.everything();
    let component = guest("notes");
    let long = "x".repeat(201);
    for name in [
        "",
        "a b",
        "a..b",
        "a@1",
        "HEAD",
        "a/",
        ".a",
        "a.lock",
        "a:b",
        "a\u{1b}[2J",
        "*",
        "n\u{200b}",
        long.as_str(),
    ] {
        let arguments = [OsStr::new("new"), OsStr::new(name), component.as_os_str()];
        let said = bed.refused(arguments, &["cannot be an agent's name"]);
        assert!(!said.contains('\u{1b}'), "{said:?}");
        bed.refused(["fork", "a", name], &["cannot be an agent's name"]);
    }
    assert_eq!(before, bed.everything());
    // and those that a branch could have are taken
    for name in ["team/notes-2", "x.y", "ümlaut"] {
        bed.ok(["fork", "a", name]);
        assert_eq!(bed.send(name, "list"), "no notes yet");
    }
}

#[test]
fn numbers_that_lead_nowhere_are_refused() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    let before = bed.everything();
    bed.refused(["rewind", "a", "99"], &["generation 99"]);
    bed.refused(["fork", "a", "--at", "99"], &["generation 99"]);
    bed.refused(["fork", "a", "--count", "100000000000"], &["at most"]);
    bed.refused(["zone", "cat", "a@99:/workspace/x"], &["generation 99"]);
    bed.refused(["zone", "cat", "a:/nowhere/x"], &["/nowhere/x", "/workspace"]);
    bed.refused(["zone", "cat", "a:/workspace/x"], &["/workspace/x"]);
    for arguments in [&["rewind", "a", "-1"][..], &["rewind", "a", "first"], &["send"], &["nonsense"], &[]] {
        let ran = bed.run(arguments);
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{ran}");
    }
    assert_eq!(before, bed.everything());
}

#[test]
fn zones_that_cannot_be_are_refused() {
    let bed = Bed::new(&["notes"]);
    let component = guest("notes");
    let new = |zone: &str| {
        bed.run(["new".as_ref(), "--zone".as_ref(), OsStr::new(zone), "a".as_ref(), component.as_os_str()])
    };
    for (zone, word) in [
        ("x=disk", "no kind of zone"),
        ("x", "NAME=KIND"),
        ("../x=logs", "no name for a zone"),
        ("x=logs:many", "no size"),
        ("workspace=logs", "its kind cannot"),
        ("credentials=workspace", "credentials"),
    ] {
        let ran = new(zone);
        assert!(matches!(ran.status, Some(1 | 2)), "{ran}");
        assert!(ran.err.contains(word), "{ran}");
    }
    assert_eq!(bed.json(["ps"]), serde_json::json!([]));
    assert_eq!(new("workspace=workspace:1K").status, Some(0));
    let full = bed.run(["send", "a", &format!("write /workspace/file {}", "x".repeat(2000))]);
    assert_eq!(full.status, Some(1), "{full}");
    assert_eq!(bed.send("a", "write /workspace/file small"), "wrote 5 bytes");
}

#[test]
fn what_paths_and_names_hold_stays_in_its_line() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let evil = "x\ndormouse: all is well\u{1b}[2J\u{202e}";
    let content = bed.file("content", "c");
    let content = content.to_str().expect("a path in UTF-8");
    let place = format!("n:/workspace/{evil}");
    let ran = bed.run(["zone", "put", &place, content]);
    assert_eq!((ran.status, ran.err.lines().count()), (Some(0), 1), "{ran}");
    let shown = "x\\ndormouse: all is well\\u{1b}[2J\\u{202e}";
    for command in [&["zone", "ls", "n:/workspace"][..], &["zone", "changes", "n:/workspace"]] {
        let out = bed.ok(command);
        assert!(out.contains(shown) && !out.contains('\u{1b}'), "{out}");
        assert!(out.lines().all(|line| !line.starts_with("dormouse:")), "{out}");
    }
    bed.ok(["pause", "n"]);
    assert!(bed.ok(["diff", "n@0", "n"]).contains(shown));
    // for programs it is as it is
    assert_eq!(bed.json(["zone", "ls", "n:/workspace"])[0]["path"], evil);
    for command in [
        vec!["send", evil, "x"],
        vec!["zone", "cat", "n:/workspace/other\ndormouse: all is well"],
        vec!["zone", "put", "n:/workspace/y", evil],
        vec!["run", evil],
        vec!["zone", "ls", evil],
        vec!["restore", evil],
    ] {
        let ran = bed.run(&command);
        assert_eq!(ran.status, Some(1), "{ran}");
        assert!(!ran.err.lines().skip(1).any(|line| line.starts_with("dormouse:")), "{ran}");
        assert!(!ran.err.contains('\u{1b}'), "{ran}");
    }
}
