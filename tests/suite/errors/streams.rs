//! Standard output and error that nobody reads any more.

use std::io::pipe;
use std::process::{Command, Stdio};

use crate::bed::{Bed, Ran};

/// The writing end of a pipe that nobody reads.
fn nobody() -> Stdio {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Runs a command with nobody at one of its streams.
fn unheard(command: &mut Command, output: bool, error: bool) -> Ran {
    let output = if output { nobody() } else { Stdio::piped() };
    let error = if error { nobody() } else { Stdio::piped() };
    let child = command.stdin(Stdio::null()).stdout(output).stderr(error).spawn().expect("the program");
    let ended = child.wait_with_output().expect("its end");
    Ran {
        command: format!("{command:?}"),
        status: ended.status.code(),
        out: String::from_utf8_lossy(&ended.stdout).into(),
        err: String::from_utf8_lossy(&ended.stderr).into(),
    }
}

fn agent() -> Bed {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note one");
    bed.send("n", "write /workspace/f content");
    bed
}

#[test]
fn listings_end_quietly_when_their_reader_has_gone() {
    let bed = agent();
    for command in [
        &["ps"][..],
        &["ps", "--json"],
        &["generations", "n"],
        &["generations", "--json", "n"],
        &["du"],
        &["du", "--json"],
        &["fsck"],
        &["fsck", "--json"],
        &["logs", "n"],
        &["diff", "n@1", "n"],
        &["reap", "--dry-run", "--json"],
        &["zone", "ls", "-R", "n"],
        &["zone", "ls", "--json", "n"],
        &["zone", "cat", "n:/workspace/f"],
        &["zone", "get", "n:/workspace/f", "-"],
        &["zone", "changes", "n:/workspace"],
        &["zone", "changes", "--json", "n:/workspace"],
        &["zone", "changes", "--follow", "n:/workspace"],
        &["send", "n", "list"],
        &["send", "--json", "n", "list"],
    ] {
        let ran = unheard(&mut bed.command(command), true, false);
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{ran}");
    }
}

#[test]
fn a_backup_that_nobody_reads_is_an_error() {
    let bed = agent();
    let ran = unheard(&mut bed.command(["backup", "-"]), true, false);
    ran.assert_refused(&["not whole", "whoever read it has gone"]);
}

#[test]
fn nobody_at_standard_error_changes_nothing_else() {
    let bed = agent();
    for (status, command) in [
        (1, &["send", "nobody", "x"][..]),
        (1, &["zone", "cat", "n:/workspace/none"]),
        (1, &["zone", "rm", "n:/memory/episodic"]),
        (0, &["zone", "get", "n:/workspace/f", "got"]),
        (0, &["zone", "put", "n:/workspace/g", "got"]),
        (1, &["send", "n", "no such thing to do"]),
    ] {
        for output in [false, true] {
            let ran = unheard(bed.command(command).env("DORMOUSE_LOG", "trace"), output, true);
            assert_eq!(ran.status, Some(status), "{ran}");
        }
    }
    assert_eq!(bed.ok(["zone", "cat", "n:/workspace/g"]), "content");
    // a run, too: what the guest writes is its own affair
    let bed = Bed::new(&["hostile"]);
    let mut command = bed.guest_command("hostile", ["checks"]);
    let ran = unheard(&mut command, false, true);
    assert_ne!(ran.status, Some(101), "{ran}");
}

/// Runs a command whose output goes to a device that is full.
#[cfg(target_os = "linux")]
fn to_a_full_device(command: &mut Command) -> Ran {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let child =
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn().expect("the program");
    let ended = child.wait_with_output().expect("its end");
    Ran {
        command: format!("{command:?}"),
        status: ended.status.code(),
        out: String::new(),
        err: String::from_utf8_lossy(&ended.stderr).into(),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_told_apart_from_what_was_done() {
    let bed = agent();
    let turns = || bed.agent("n")["turns"].as_u64().expect("a number");
    let before = turns();
    for command in [&["send", "n", "note two"][..], &["send", "--json", "n", "note three"]] {
        let ran = to_a_full_device(&mut bed.command(command));
        assert_eq!(ran.status, Some(74), "{ran}");
        let generation = bed.agent("n")["generation"].as_u64().expect("a number");
        let done =
            format!("the turn is done (generation {generation}), but its output could not be written: ");
        ran.assert_one_message(&[&done, "No space left on device"]);
        assert!(!ran.err.contains("free some space"), "{ran}");
    }
    assert_eq!(turns(), before + 2);
    for command in [
        &["pause", "n"][..],
        &["pause", "--json", "n"],
        &["resume", "n"],
        &["fork", "n"],
        &["pin", "n", "0"],
        &["rewind", "n", "2"],
        &["reap"],
        &["rm", "n-fork"],
    ] {
        let ran = to_a_full_device(&mut bed.command(command));
        assert_eq!(ran.status, Some(74), "{ran}");
        ran.assert_one_message(&[
            "what was asked for is done, but its output could not be written: No space",
        ]);
    }
    assert_eq!(bed.json(["ps"]).as_array().map(Vec::len), Some(1));
    for command in [
        &["ps"][..],
        &["ps", "--json"],
        &["generations", "n"],
        &["du"],
        &["fsck"],
        &["diff", "n@1", "n"],
        &["reap", "--dry-run"],
        &["zone", "ls", "-R", "n"],
        &["zone", "cat", "n:/workspace/f"],
        &["zone", "get", "n:/workspace/f", "-"],
        &["zone", "changes", "n:/workspace"],
    ] {
        let ran = to_a_full_device(&mut bed.command(command));
        assert_eq!(ran.status, Some(74), "{ran}");
        ran.assert_one_message(&["standard output could not be written: No space left on device"]);
    }
}
