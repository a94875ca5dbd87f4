//! What goes back with a rewind, what stays, and that forks leave their parent alone.

use crate::bed::Bed;

/// An agent with two notes and two drafts; paused as generation 3 between the first and the second.
fn two_notes() -> Bed {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    bed.send("a", "draft first");
    assert_eq!(bed.json(["pause", "a"])["generation"], 3);
    bed.send("a", "note two");
    bed.send("a", "draft second");
    assert_eq!(bed.agent("a")["generation"], 5);
    bed
}

#[test]
fn memory_knowledge_and_workspace_go_back_and_what_happened_stays() {
    let bed = two_notes();
    assert_eq!(bed.send("a", "status"), "memory=2 journal=2 semantic=2 logs=2 turns=5");
    let made = bed.json(["rewind", "a", "3"]);
    assert_eq!((&made["rewound_to"], &made["generation"]), (&3.into(), &7.into()));
    assert_eq!(bed.agent("a")["state"], "rewound");
    assert_eq!(bed.send("a", "status"), "memory=1 journal=2 semantic=1 logs=2 turns=3");
    assert_eq!((bed.send("a", "list"), bed.send("a", "draft")), ("1. one".into(), "first\n".into()));
    assert_eq!(bed.ok(["zone", "cat", "a:/memory/episodic/journal.log"]), "note 1: one\nnote 2: two\n");
    assert_eq!(bed.ok(["zone", "cat", "a:/logs/notes.log"]), "turn 1: kept note 1\nturn 3: kept note 2\n");

    // it goes another way from there, and the journal tells of both
    assert_eq!(bed.send("a", "note three"), "kept note 2");
    assert_eq!(bed.send("a", "list"), "1. one\n2. three");
    let journal = bed.ok(["zone", "cat", "a:/memory/episodic/journal.log"]);
    assert_eq!(journal, "note 1: one\nnote 2: two\nnote 2: three\n");

    // and forth again, to what the rewind left behind
    bed.ok(["rewind", "a", "5"]);
    assert_eq!(
        (bed.send("a", "list"), bed.send("a", "draft")),
        ("1. one\n2. two".into(), "first\nsecond\n".into())
    );
    assert_eq!(bed.send("a", "status"), "memory=2 journal=3 semantic=2 logs=3 turns=7");
    // old generations show the files as they were
    assert_eq!(bed.ok(["zone", "cat", "a@3:/memory/semantic/notes.txt"]), "one\n");
    assert_eq!(bed.ok(["zone", "cat", "a@6:/memory/semantic/notes.txt"]), "one\ntwo\n");
    assert_eq!(bed.ok(["zone", "cat", "a@3:/memory/episodic/journal.log"]), "note 1: one\n");
}

#[test]
fn a_rewind_to_the_beginning_and_to_where_it_stands() {
    let bed = two_notes();
    bed.ok(["rewind", "a", "5"]);
    assert_eq!(bed.send("a", "list"), "1. one\n2. two");
    bed.ok(["rewind", "a", "0"]);
    assert_eq!(bed.send("a", "status"), "memory=0 journal=2 semantic=0 logs=2 turns=1");
    bed.refused(["rewind", "a", "99"], &["no generation 99"]);
    assert_eq!(bed.send("a", "status"), "memory=0 journal=2 semantic=0 logs=2 turns=2");
}

#[test]
fn a_fork_of_an_old_generation_begins_there() {
    let bed = two_notes();
    bed.ok(["fork", "a", "old", "--at", "3"]);
    assert_eq!(bed.send("old", "list"), "1. one");
    assert_eq!(bed.ok(["zone", "cat", "old:/memory/episodic/journal.log"]), "note 1: one\n");
    assert_eq!(bed.send("old", "note other"), "kept note 2");
    assert_eq!(bed.send("a", "list"), "1. one\n2. two");
    assert_eq!(bed.ok(["zone", "cat", "a:/memory/semantic/notes.txt"]), "one\ntwo\n");
    assert_eq!(bed.ok(["zone", "cat", "old:/memory/episodic/journal.log"]), "note 1: one\nnote 2: other\n");
}

#[test]
fn nothing_that_a_fork_does_changes_its_parent_or_a_sibling() {
    let bed = two_notes();
    bed.ok(["fork", "a", "f", "--count", "3"]);
    let parent = (bed.agent("a"), bed.json(["generations", "a"]));
    let sibling = (bed.agent("f-3"), bed.json(["generations", "f-3"]));
    for event in [
        "note three",
        "write /workspace/draft.txt gone",
        "write /memory/semantic/notes.txt gone",
        "note four",
    ] {
        bed.send("f-1", event);
        bed.send("f-2", event);
    }
    bed.ok(["rewind", "f-1", "0"]);
    bed.send("f-1", "note five");
    bed.ok(["rm", "f-2"]);
    assert_eq!(parent, (bed.agent("a"), bed.json(["generations", "a"])));
    assert_eq!(sibling, (bed.agent("f-3"), bed.json(["generations", "f-3"])));
    assert_eq!(bed.send("a", "status"), "memory=2 journal=2 semantic=2 logs=2 turns=5");
    assert_eq!(bed.send("f-3", "list"), "1. one\n2. two");
    assert_eq!(bed.send("f-3", "draft"), "first\nsecond\n");
    // nor does the parent's end change the forks
    bed.ok(["rm", "a"]);
    assert_eq!(bed.send("f-3", "list"), "1. one\n2. two");
    assert_eq!(bed.send("f-1", "list"), "1. one\n2. two\n3. five");
    bed.ok(["fork", "f-3", "grandchild"]);
    assert_eq!(bed.send("grandchild", "list"), "1. one\n2. two");
}

#[test]
fn what_the_operator_puts_is_seen_by_the_agent_and_its_forks() {
    let bed = two_notes();
    let file = bed.file("file", "from outside");
    bed.ok(["zone".as_ref(), "put".as_ref(), "a:/workspace/in.txt".as_ref(), file.as_os_str()]);
    bed.ok(["fork", "a", "f"]);
    assert_eq!(bed.send("a", "read /workspace/in.txt"), "from outside");
    assert_eq!(bed.send("f", "read /workspace/in.txt"), "from outside");
    bed.ok(["zone", "rm", "a:/workspace/in.txt"]);
    assert_eq!(bed.run(["send", "a", "read /workspace/in.txt"]).status, Some(1));
    assert_eq!(bed.send("f", "read /workspace/in.txt"), "from outside");
}

#[test]
fn no_fork_at_all_is_wrong_usage() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let ran = bed.run(["fork", "a", "--count", "0"]);
    assert_eq!(ran.status, Some(2), "{ran}");
    assert!(ran.err.contains("there is nothing to make"), "{ran}");
}
