//! Files between the operator and zones: `zone put`, `get` and `ls`, and what comes through a pipe.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;

use crate::bed::{Bed, Ran, Running};

/// `zone get` or `zone put`, with `local` as it is written.
fn copy(bed: &Bed, what: &str, place: &str, local: impl AsRef<OsStr>) -> Ran {
    bed.run([OsStr::new("zone"), OsStr::new(what), OsStr::new(place), local.as_ref()])
}

fn ok(ran: &Ran) {
    assert_eq!(ran.status, Some(0), "{ran}");
}

/// The paths of everything in a zone's folder.
fn paths(bed: &Bed, place: &str) -> Vec<String> {
    let listed = bed.json(["zone", "ls", "-R", place]);
    let rows = listed.as_array().expect("rows");
    rows.iter().map(|row| row["path"].as_str().expect("a path").to_string()).collect()
}

/// `from/a` and `from/deep/b` beside the store.
fn folder(bed: &Bed) -> std::path::PathBuf {
    let from = bed.path("from");
    fs::create_dir_all(from.join("deep")).expect("folders");
    fs::write(from.join("a"), "a").expect("a file");
    fs::write(from.join("deep/b"), "b").expect("a file");
    from
}

#[test]
fn put_goes_where_cp_would_put_it() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let from = folder(&bed);
    // to a new name; then into the folder that is there; then only what is in it
    ok(&copy(&bed, "put", "n:/workspace/to", &from));
    assert_eq!(paths(&bed, "n:/workspace/to"), ["a", "deep", "deep/b"]);
    ok(&copy(&bed, "put", "n:/workspace/to", &from));
    assert_eq!(paths(&bed, "n:/workspace/to/from"), ["a", "deep", "deep/b"]);
    ok(&bed.run(["zone", "rm", "-r", "n:/workspace/to/from"]));
    fs::write(from.join("a"), "changed").expect("a file");
    ok(&copy(&bed, "put", "n:/workspace/to", from.join(".")));
    assert_eq!(paths(&bed, "n:/workspace/to"), ["a", "deep", "deep/b"]);
    assert_eq!(bed.ok(["zone", "cat", "n:/workspace/to/a"]), "changed");
    // a file goes into a folder, and not to a folder that is not there, nor over one
    ok(&copy(&bed, "put", "n:/workspace/to/deep/", from.join("a")));
    assert_eq!(bed.ok(["zone", "cat", "n:/workspace/to/deep/a"]), "changed");
    copy(&bed, "put", "n:/workspace/nowhere/", from.join("a")).assert_refused(&["/workspace/nowhere/"]);
    copy(&bed, "put", "n:/workspace/to/a", &from).assert_refused(&["/workspace/to/a", "no folder"]);
    // an error names the file that it is about, and nothing of the whole is there
    fs::write(from.join("deep").join("x".repeat(255)), "x").expect("a file");
    ok(&copy(&bed, "put", "n:/memory/episodic/kept", from.join(".")));
    fs::write(from.join("b"), "new").expect("a file");
    copy(&bed, "put", "n:/memory/episodic/kept", from.join("."))
        .assert_refused(&["n:/memory/episodic/kept/a", "append-only"]);
    assert!(!paths(&bed, "n:/memory/episodic/kept").contains(&"b".to_string()));
}

#[test]
fn get_goes_where_cp_would_put_it() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    ok(&copy(&bed, "put", "n:/workspace/tree", folder(&bed)));
    let read = |path: &str| fs::read_to_string(bed.path(path)).expect("the file");
    // here, under its own name
    ok(&bed.run(["zone", "get", "n:/workspace/tree"]));
    assert_eq!((read("tree/a"), read("tree/deep/b")), ("a".into(), "b".into()));
    // to a new name; then into the folder that is there; then only what is in it
    ok(&copy(&bed, "get", "n:/workspace/tree", bed.path("new")));
    assert_eq!(read("new/deep/b"), "b");
    ok(&copy(&bed, "get", "n:/workspace/tree", bed.path("new")));
    assert_eq!(read("new/tree/deep/b"), "b");
    fs::write(bed.path("new/a"), "old").expect("a file");
    ok(&copy(&bed, "get", "n:/workspace/tree/.", bed.path("new")));
    assert_eq!(read("new/a"), "a");
    ok(&copy(&bed, "get", "n:/workspace/tree/a", bed.path("new/deep")));
    assert_eq!(read("new/deep/a"), "a");
    // the name under which it would come is a link that leads away
    fs::create_dir(bed.path("away")).expect("a folder");
    fs::create_dir(bed.path("trap")).expect("a folder");
    std::os::unix::fs::symlink(bed.path("away"), bed.path("trap/tree")).expect("a link");
    copy(&bed, "get", "n:/workspace/tree", bed.path("trap")).assert_refused(&["trap/tree", "no folder"]);
    assert_eq!(fs::read_dir(bed.path("away")).expect("the folder").count(), 0);
}

#[test]
fn listings_begin_above_the_zones() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    ok(&copy(&bed, "put", "n:/workspace/tree", folder(&bed)));
    let zones = bed.ok(["zone", "ls", "n"]);
    assert_eq!(zones.lines().count(), 6, "{zones}");
    for place in ["n:/", "n:", "n:/."] {
        assert_eq!(bed.ok(["zone", "ls", place]), zones, "{place}");
    }
    let memory = bed.ok(["zone", "ls", "n:/memory"]);
    assert_eq!(memory.lines().count(), 4, "{memory}");
    assert!(memory.contains("/memory/episodic") && !memory.contains("/workspace"), "{memory}");
    assert_eq!(paths(&bed, "n:/workspace"), ["tree", "tree/a", "tree/deep", "tree/deep/b"]);
    let all = bed.ok(["zone", "ls", "--recursive", "n"]);
    assert!(all.contains(" /workspace/tree/deep/b\n") && all.contains(" /memory/episodic/\n"), "{all}");
    bed.refused(["zone", "ls", "n:/mem"], &["/mem is in no zone", "/memory/episodic"]);
}

#[test]
fn a_generation_is_named_in_what_is_said_of_it() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "write /workspace/x one");
    bed.send("n", "write /workspace/x two");
    for arguments in
        [&["zone", "cat", "n@1:/workspace/x"][..], &["zone", "cat", "--at", "1", "n:/workspace/x"]]
    {
        assert_eq!(bed.ok(arguments), "one");
    }
    bed.refused(["zone", "cat", "n@1:/workspace/y"], &["n@1:/workspace/y: no such file or directory"]);
    bed.refused(["zone", "get", "--at", "1", "n:/workspace/y"], &["n@1:/workspace/y: no such file"]);
    bed.refused(["zone", "cat", "--at", "2", "n@1:/workspace/x"], &["two generations"]);
    for arguments in [
        &["zone", "ls", "n@99"][..],
        &["zone", "ls", "n@99:/workspace"],
        &["rewind", "n", "99"],
        &["fork", "--at", "99", "n"],
    ] {
        bed.refused(arguments, &["n: no generation 99", "dormouse generations"]);
    }
}

#[test]
fn what_comes_through_a_pipe_keeps_nobody_waiting() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    for (arguments, answer) in
        [(&["zone", "put", "n:/workspace/piped", "-"][..], ""), (&["send", "n", "-"], "kept note 1")]
    {
        let mut waiting = Running::start(&mut bed.command(arguments));
        let input = waiting.input.as_mut().expect("its input");
        input.write_all(b"note through ").expect("input");
        // long after it has started others still use the store
        for _ in 0..3 {
            bed.json(["ps"]);
        }
        waiting.input.as_mut().expect("its input").write_all(b"a pipe").expect("input");
        let ran = waiting.end();
        assert_eq!((ran.status, ran.out.as_str()), (Some(0), answer), "{ran}");
    }
    assert_eq!(bed.ok(["zone", "cat", "n:/workspace/piped"]), "note through a pipe");
    copy(&bed, "put", "n:/workspace", "-").assert_refused(&["is a folder"]);
    let large = vec![b'x'; (32 << 20) + 1];
    crate::bed::run(&mut bed.command(["send", "n", "-"]), &large).assert_refused(&["at most"]);
}

#[test]
fn rules_and_faults_are_told_in_words() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note one");
    for (arguments, words) in [
        (&["zone", "cat", "n:/workspace/x"][..], "no such file or directory"),
        (&["zone", "rm", "n:/workspace/x"], "no such file or directory"),
        (&["zone", "rm", "n:/memory/episodic/journal.log"], "episodic memory is append-only"),
        (&["zone", "cat", "n:/workspace/../../x"], "not permitted"),
        (&["zone", "cat", "n:/memory/episodic/journal.log/x"], "not a directory"),
    ] {
        let said = bed.refused(arguments, &[words]);
        for code in ["no-entry", "not-permitted", "not-directory"] {
            assert!(!said.contains(code), "{said}");
        }
    }
}

/// A node that `mknod` makes of these arguments. Whoever may not make devices gets none.
fn node(path: &std::path::Path, kind: &[&str]) -> bool {
    let mut command = std::process::Command::new("mknod");
    command.arg(path).args(kind).stderr(std::process::Stdio::null());
    command.status().expect("mknod").success()
}

#[test]
fn get_writes_into_what_is_no_file_and_replaces_no_link() {
    use std::io::Read;
    use std::os::unix::fs::FileTypeExt;
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "write /workspace/f content");
    // a pipe has a reader, which gets it
    let fifo = bed.path("fifo");
    assert!(node(&fifo, &["p"]), "no pipe could be made");
    let reading = fifo.clone();
    let reader = std::thread::spawn(move || {
        let mut got = String::new();
        fs::File::open(reading).and_then(|mut pipe| pipe.read_to_string(&mut got)).expect("what comes");
        got
    });
    ok(&copy(&bed, "get", "n:/workspace/f", &fifo));
    assert_eq!(reader.join().expect("the reader"), "content");
    let kind = |path: &std::path::Path| fs::symlink_metadata(path).expect("what is there").file_type();
    assert!(kind(&fifo).is_fifo());
    // a device like /dev/null, where one may be made and opened
    let null = bed.path("null");
    if node(&null, &["c", "1", "3"]) {
        let ran = copy(&bed, "get", "n:/workspace/f", &null);
        assert!(kind(&null).is_char_device(), "{ran}");
        assert!(ran.status == Some(0) || ran.err.contains("ermission"), "{ran}");
    }
    // nobody listens at a socket
    let socket = bed.path("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    copy(&bed, "get", "n:/workspace/f", &socket).assert_refused(&[socket.to_str().expect("a path")]);
    assert!(kind(&socket).is_socket());
    // neither is a link followed nor replaced
    let victim = bed.file("victim", "mine");
    std::os::unix::fs::symlink(&victim, bed.path("link")).expect("a link");
    copy(&bed, "get", "n:/workspace/f", bed.path("link")).assert_refused(&["link", "symbolic link"]);
    fs::create_dir(bed.path("folder")).expect("a folder");
    std::os::unix::fs::symlink(&victim, bed.path("folder/f")).expect("a link");
    copy(&bed, "get", "n:/workspace/f", bed.path("folder")).assert_refused(&["folder/f", "symbolic link"]);
    assert!(kind(&bed.path("link")).is_symlink() && kind(&bed.path("folder/f")).is_symlink());
    assert_eq!(fs::read_to_string(victim).expect("the file"), "mine");
    let left = fs::read_dir(bed.path("folder")).expect("the folder").count();
    assert_eq!(left, 1);
}
