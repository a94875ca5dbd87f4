//! Agents that are moved to another store: nothing goes on with what is left of them.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bed::{Bed, Running, guest, random, run};

/// Nothing goes on with the agent `a`, and what it was can be looked at.
fn is_fenced(bed: &Bed) {
    let row = bed.agent("a");
    assert_eq!(row["state"], "moved");
    let before = bed.everything();
    let notes = guest("notes");
    let local = notes.to_str().expect("a path");
    let head = row["generation"].to_string();
    let every: [&[&str]; 12] = [
        &["send", "a", "note more"],
        &["resume", "a"],
        &["pause", "a"],
        &["fork", "a", "b"],
        &["fork", "a", "b", "--at", &head],
        &["rewind", "a", &head],
        &["upgrade", "a", local],
        &["zone", "put", "a:/workspace/file", local],
        &["zone", "rm", "a:/memory/semantic/notes.txt"],
        &["zone", "rollback", "a:/memory/semantic/notes.txt", "1"],
        &["zone", "quota", "a:/workspace", "bytes=1M"],
        &["export", "--move", "a", "again"],
    ];
    for refused in every {
        let told = bed.refused(refused, &["a was moved to another store (exported 20", "`dormouse rm a`"]);
        assert!(told.lines().count() <= 1, "{refused:?}: {told}");
    }
    assert_eq!(bed.everything(), before);
    assert!(!bed.path("again").exists() && !bed.path("again.unfinished").exists());
    bed.ok(["generations", "a"]);
    bed.ok(["zone", "ls", "a:/memory/semantic"]);
    bed.ok(["zone", "cat", "a:/memory/semantic/notes.txt"]);
    bed.ok(["zone", "history", "a:/memory/semantic/notes.txt"]);
    bed.ok(["zone", "quota", "a:/workspace"]);
    bed.ok(["logs", "a"]);
    bed.ok(["du"]);
    bed.ok(["fsck"]);
    bed.ok(["reap"]);
}

fn an_agent_with_a_past() -> Bed {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    for text in ["note one", "remember sky blue", "remember sky grey"] {
        bed.send("a", text);
    }
    bed
}

#[test]
fn an_agent_that_was_moved_goes_on_only_from_its_file() {
    let (from, to) = (an_agent_with_a_past(), Bed::empty());
    // not to be mistaken for a move
    from.ok(["export", "a", "copy"]);
    from.send("a", "note two");
    let made = from.json(["export", "--move", "a", "file"]);
    assert_eq!(made["moved"], true);
    is_fenced(&from);
    let file = from.path("file");
    let [copied, moved] = [&from.path("copy"), &file].map(|path| std::fs::read(path).expect("an export")[40]);
    assert_eq!((copied, moved), (0, 1));
    to.ok(["import".as_ref(), file.as_os_str()]);
    assert_eq!(to.send("a", "list"), "1. one\n2. two");
    assert_eq!(to.agent("a")["state"], "asleep");
    // what is left can be exported, and is no move: an operator's way back where the file was lost
    from.ok(["export", "a", "left"]);
    from.refused(["import", "left"], &["an agent named `a` exists"]);
    from.ok(["import", "left", "back"]);
    assert_eq!(from.send("back", "list"), "1. one\n2. two");
    // a fork made before has nothing to do with it
    from.ok(["rm", "a"]);
    from.ok(["import", "file"]);
    assert_eq!(from.send("a", "list"), "1. one\n2. two");
    from.ok(["fsck"]);
}

#[test]
fn a_command_that_was_moved_runs_no_more() {
    let from = Bed::new(&["hello-command"]);
    let component = guest("hello-command");
    let again = || run(from.command(["run", "--name", "h"]).arg(&component), b"");
    assert_eq!(again().status, Some(0));
    from.ok(["export", "--move", "h", "file"]);
    again().assert_refused(&["h was moved to another store"]);
    assert_eq!(from.agent("h")["state"], "moved");
    from.ok(["logs", "h"]);
}

#[test]
fn a_move_through_a_pipe_fences_only_what_was_taken() {
    let from = an_agent_with_a_past();
    from.send("a", "grow 4");
    let mut broken =
        from.command(["export", "--move", "a", "-"]).stdout(Stdio::piped()).spawn().expect("the program");
    drop(broken.stdout.take());
    assert!(!broken.wait().expect("its end").success());
    from.send("a", "note two");
    // a file that cannot be made
    from.refused(["export", "--move", "a", "nowhere/file"], &["nowhere"]);
    from.send("a", "note three");
    let piped = from.command(["export", "--move", "a", "-"]).output().expect("the program");
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    is_fenced(&from);
    let to = Bed::empty();
    let ran = run(&mut to.command(["import", "-"]), &piped.stdout);
    assert_eq!(ran.status, Some(0), "{ran}");
    assert_eq!(to.send("a", "list"), "1. one\n2. two\n3. three");
}

#[test]
fn an_export_that_is_killed_leaves_the_agent_or_its_file() {
    let bed = an_agent_with_a_past();
    bed.send("a", "grow 64");
    let started = Instant::now();
    bed.ok(["export", "a", "first"]);
    let within = started.elapsed() * 5 / 4;
    let (mut notes, mut moved) = (1, 0);
    for round in 0..24 {
        let (file, is_move) = (format!("file{round}"), round % 2 == 1);
        let arguments: &[&str] =
            if is_move { &["export", "--move", "a", &file] } else { &["export", "a", &file] };
        let running = Running::start(&mut bed.command(arguments));
        std::thread::sleep(Duration::from_micros(random(within.as_micros() as u64)));
        running.signal(Signal::KILL);
        let ran = running.end();
        assert!(matches!(ran.status, None | Some(0)), "{ran}");
        let (is_whole, is_moved) = (bed.path(&file).exists(), bed.agent("a")["state"] == "moved");
        assert!(is_whole || ran.status.is_none(), "{ran}");
        assert!(is_move || !is_moved);
        // the mark comes last
        assert!(is_whole || !is_moved);
        assert!(is_moved || !is_move || ran.status.is_none(), "{ran}");
        if is_moved {
            bed.refused(["send", "a", "note more"], &["a was moved"]);
            bed.ok(["rm", "a"]);
            bed.ok(["import", &file]);
            moved += 1;
        } else if is_whole {
            bed.ok(["import", &file, "copy"]);
            assert_eq!(bed.send("copy", "list").lines().count(), notes);
            bed.ok(["rm", "copy"]);
        }
        bed.send("a", "note more");
        notes += 1;
        assert_eq!(bed.send("a", "list").lines().count(), notes);
        for left in [file.clone(), format!("{file}.unfinished")] {
            // it may not be there
            let _ = std::fs::remove_file(bed.path(&left));
        }
    }
    bed.ok(["fsck"]);
    println!("{moved} of 12 were moved before they were killed");
}
