//! Paths that lead nowhere, and files that are none.

use std::process::Command;

use crate::bed::{Bed, Ran, guest, run};

/// What `zone ls` says of a place.
fn listed(bed: &Bed, place: &str) -> String {
    bed.refused(["zone", "ls", place], &[])
}

#[test]
fn what_never_was_has_no_differences_changes_or_deletions() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    for turn in ["note one", "write /workspace/file x", "write /workspace/other y", "note two"] {
        bed.send("n", turn);
    }
    for place in [
        "n:/workspace/never",
        "n:/workspace/never/deeper",
        "n:/workspace/..",
        "n:/workspace/../../etc/passwd",
        "n:/workspace/never/../file",
        "n:/memory/semantic/never",
        "n:/memory/semantic/.asof/garbage",
        "n:/memory/semantic/.versions/never",
    ] {
        let said = listed(&bed, place);
        for command in [
            &["zone", "diff", place][..],
            &["zone", "diff", place, "1"],
            &["zone", "diff", "--json", place, "0", "2"],
            &["zone", "changes", place],
            &["zone", "changes", "--json", place],
        ] {
            assert_eq!(bed.refused(command, &[]), said, "{command:?}");
        }
        if place.contains("semantic") {
            assert_eq!(bed.refused(["zone", "deleted", place], &[]), said);
        } else {
            bed.refused(["zone", "deleted", place], &[]);
        }
    }
    bed.refused(["zone", "changes", "--follow", "n:/workspace/.."], &["n:/workspace"]);
    // what is a path for `ls` alone is refused as that
    bed.refused(["zone", "changes", "n:/memory/semantic/.versions"], &["view of the past"]);
}

#[test]
fn what_is_gone_has_differences_changes_and_deletions() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "write /workspace/file x");
    bed.send("n", "note one");
    bed.send("n", "note two");
    let fact = bed.file("fact", "a fact");
    let fact = fact.to_str().expect("a path in UTF-8");
    bed.run(["zone", "put", "n:/memory/semantic/fact", fact]);
    bed.send("n", "note three");
    for place in ["n:/workspace/file", "n:/memory/semantic/fact"] {
        bed.ok(["zone", "rm", place]);
    }
    bed.send("n", "note four");
    // it was there in a generation, and the same in both
    assert_eq!(bed.ok(["zone", "diff", "n:/workspace/file", "1", "2"]), "no differences\n");
    assert!(bed.ok(["zone", "diff", "n:/workspace/file", "1"]).contains("1 removed"));
    assert!(bed.ok(["zone", "changes", "n:/workspace/file"]).contains("remove"));
    assert!(bed.ok(["zone", "changes", "n:/memory/semantic/fact"]).contains("tombstone"));
    // nothing came after the last entry, which is no error
    let none = bed.ok(["zone", "changes", "--after", "1000000", "n:/workspace/file"]);
    assert_eq!(none.lines().count(), 1, "the header alone: {none}");
    assert!(bed.ok(["zone", "deleted", "n:/memory/semantic/fact"]).contains("fact"));
    // whole zones, as ever
    bed.ok(["zone", "changes", "n:/workspace"]);
    bed.ok(["zone", "diff", "n:/workspace"]);
    bed.ok(["zone", "deleted", "n:/memory/semantic"]);
}

#[test]
fn no_time_at_all_is_no_timeout() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    for time in ["0", "0.0", "1e-30", "-1", "nan"] {
        for command in [&["send", "n", "note one"][..], &["run", "x.wasm"]] {
            let timeout = format!("--timeout={time}");
            let ran = bed.run([command[0], timeout.as_str()].into_iter().chain(command[1..].iter().copied()));
            assert_eq!(ran.status, Some(2), "{ran}");
            assert!(ran.err.contains("a number of seconds"), "{ran}");
        }
    }
    assert_eq!(bed.agent("n")["turns"], 0);
}

/// Runs a script with limits, in which `$PROGRAM` is the program.
fn limited(bed: &Bed, limit: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit}; exec \"$@\"")).arg("sh");
    command.args(bed.command(arguments).get_args().fold(
        vec![env!("CARGO_BIN_EXE_dormouse-tested").into()],
        |mut all: Vec<std::ffi::OsString>, argument| {
            all.push(argument.into());
            all
        },
    ));
    run(command.env("DORMOUSE_LOG", "warn").current_dir(bed.path("")), b"")
}

#[test]
fn a_component_is_read_from_a_file_or_a_pipe_and_not_without_end() {
    let bed = Bed::new(&["notes"]);
    // a device without an end, where one may be made and opened; a socket anywhere
    let zero = bed.path("zero");
    let mut places = vec![bed.path("socket")];
    let _listens = std::os::unix::net::UnixListener::bind(&places[0]).expect("a socket");
    if Command::new("mknod").arg(&zero).args(["c", "1", "5"]).status().is_ok_and(|s| s.success()) {
        places.push(zero);
    }
    for place in &places {
        let place = place.to_str().expect("a path in UTF-8");
        for command in [&["run", place][..], &["new", "x", place], &["inspect", place]] {
            bed.refused(command, &[place, "neither a file nor a pipe"]);
        }
    }
    // what comes through a pipe is a component as well; one without an end is left off
    let fifo = bed.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let feed = |content: Vec<u8>, times: usize| {
        let fifo = fifo.clone();
        std::thread::spawn(move || {
            let mut pipe = std::fs::File::options().write(true).open(fifo).expect("a pipe");
            (0..times).try_for_each(|_| std::io::Write::write_all(&mut pipe, &content)).is_ok()
        })
    };
    let feeding = feed(std::fs::read(guest("notes")).expect("a guest"), 1);
    bed.ok(["new".as_ref(), "n".as_ref(), fifo.as_os_str()]);
    assert!(feeding.join().expect("the feeder"));
    let feeding = feed(vec![0; 1 << 20], usize::MAX);
    bed.refused(["inspect".as_ref(), fifo.as_os_str()], &["fifo", "at most"]);
    assert!(!feeding.join().expect("the feeder"), "all of it was read");
}

#[test]
#[cfg(target_os = "linux")]
fn few_threads_and_few_files_are_errors_in_plain_words() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note one");
    let component = guest("notes");
    let component = component.to_str().expect("a path in UTF-8");
    let mut failed = 0;
    for kilobytes in (20_000..140_000).step_by(4_000) {
        let name = format!("m{kilobytes}");
        let ran = limited(&bed, &format!("-v {kilobytes}"), &["new", &name, component]);
        // where not even an error finds memory the process ends, which says so itself
        assert!(!ran.err.contains("panicked"), "{ran}");
        failed += usize::from(ran.status != Some(0));
    }
    assert!(failed > 5, "{failed}");
    for files in 8..40 {
        let ran = limited(&bed, &format!("-n {files}"), &["send", "n", "status"]);
        assert!(!ran.err.contains("panicked") && !ran.err.contains("PAGEMAP_SCAN is missing"), "{ran}");
        if ran.status != Some(0) {
            assert!(ran.err.contains("Too many open files"), "{ran}");
        }
    }
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 semantic=1 logs=1 "));
}

/// With too few of them a turn is refused or done, and nothing is ever called damaged.
#[test]
fn too_few_descriptors_refuse_what_needs_them_and_name_nothing_as_damaged() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let (mut kept, mut refused) = (0, 0);
    for files in 8..64 {
        let limit = format!("-n {files}");
        let sent = limited(&bed, &limit, &["send", "n", "note kept"]);
        if sent.status == Some(0) {
            kept += 1;
        } else {
            let said = sent.err.replace("nothing is damaged", "");
            assert!(!said.contains("poisoned") && !said.contains("damaged"), "{files}: {sent}");
            refused += 1;
        }
        for command in [&["fsck"][..], &["fsck", "--repair"]] {
            let looked = limited(&bed, &limit, command);
            if looked.status != Some(0) {
                assert!(looked.err.contains("oo many open files"), "{files}: {looked}");
                assert!(!looked.out.contains(':'), "{files}: {looked}");
                refused += 1;
            }
        }
        if kept > 3 {
            break;
        }
    }
    assert!(kept > 3 && refused > 3, "{kept} {refused}");
    assert_eq!(bed.send("n", "list").lines().count(), kept);
    bed.ok(["fsck"]);
}
