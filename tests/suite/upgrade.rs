//! Another component for an agent that lives on, and that the agent is told when its memory comes to life.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::bed::{Bed, Running, guest, random, run};

/// A guest's component with another digest: a custom section more.
fn another(bed: &Bed, name: &str) -> PathBuf {
    let mut wasm = std::fs::read(guest(name)).unwrap();
    // section 0, of 6 bytes: the name `again`, and no content
    wasm.extend_from_slice(b"\x00\x06\x05again");
    bed.file("another.wasm", wasm)
}

/// An agent that knows `text`, and a component to upgrade it to.
fn knowing(text: &str) -> (Bed, String) {
    let bed = Bed::new(&["upgrade-agent"]);
    let new = another(&bed, "upgrade-agent").to_str().unwrap().to_owned();
    bed.create("a", "upgrade-agent");
    bed.send("a", &format!("keep {text}"));
    (bed, new)
}

#[test]
fn what_the_old_component_saves_the_new_one_loads() {
    let (bed, new) = knowing("hello");
    bed.ok(["zone", "put", "a:/workspace/file", guest("upgrade-agent").to_str().unwrap()]);
    assert_eq!(bed.send("a", "what"), "\"hello\" created resumed");
    bed.send("a", "hold /workspace/held");
    let done = bed.json(["upgrade", "a", &new]);
    assert_eq!((&done["changed"], &done["handed_over_bytes"]), (&true.into(), &5.into()));
    assert_eq!(done["component"], "another.wasm");
    assert_eq!(bed.agent("a")["state"], "upgraded");
    assert_eq!(bed.agent("a")["generation"], done["generation"]);
    // its memory has begun anew, and it is told why
    assert_eq!(bed.send("a", "what"), "\"hello\" upgraded");
    assert_eq!(bed.send("a", "what"), "\"hello\" upgraded resumed");
    assert_eq!(bed.json(["zone", "ls", "a:/workspace"]).as_array().unwrap().len(), 1);
    let again = bed.json(["upgrade", "a", &new]);
    assert_eq!((&again["changed"], &again["turn"]), (&false.into(), &serde_json::Value::Null));
    bed.ok(["fsck"]);
}

#[test]
fn a_rewind_brings_the_old_component_back_and_forth() {
    let (bed, new) = knowing("old");
    let before = bed.agent("a")["generation"].to_string();
    let upgraded = bed.json(["upgrade", "a", &new])["generation"].to_string();
    bed.send("a", "keep new");
    bed.ok(["fork", "a", "young"]);
    bed.ok(["fork", "a", "old", "--at", &before]);
    bed.ok(["rewind", "a", &before]);
    assert_eq!(bed.send("a", "what"), "\"old\" created rewound");
    // each says which component it has
    let changes = |agent: &str| bed.json(["upgrade", agent, &new])["changed"].clone();
    assert_eq!((changes("young"), changes("old"), changes("a")), (false.into(), true.into(), true.into()));
    bed.ok(["rewind", "a", &upgraded]);
    assert_eq!(bed.send("a", "what"), "\"old\" rewound");
    assert_eq!(changes("a"), false);
    assert_eq!(bed.send("young", "what"), "\"new\" upgraded forked");
    assert_eq!(bed.send("old", "what"), "\"old\" upgraded");
}

#[test]
fn a_component_is_kept_for_as_long_as_a_generation_needs_it() {
    let (bed, new) = knowing("x");
    let components = || std::fs::read_dir(bed.store().join("components")).unwrap().count();
    bed.ok(["upgrade", "a", &new]);
    bed.ok(["reap"]);
    assert_eq!(components(), 2);
    assert_eq!(bed.send("a", "what"), "\"x\" upgraded");
    let old: Vec<String> = (0..=1).map(|number| format!("a@{number}")).collect();
    bed.ok(std::iter::once("rm").chain(old.iter().map(String::as_str)));
    bed.ok(["reap"]);
    assert_eq!(components(), 1);
    assert_eq!(bed.send("a", "what"), "\"x\" upgraded resumed");
}

#[test]
fn an_upgrade_that_fails_leaves_everything_as_it_was() {
    for (text, words) in [
        ("refuse-save", "`save` of the old component answered: as it was told"),
        ("refuse-load", "`load` of the new component answered: as it was told"),
        ("large-save", "returned 33554433 bytes, and at most 33554432 are handed over"),
        ("trap-save", "at save"),
        ("trap-load", "at load"),
        ("endless-save", "took longer than 5 s"),
        ("endless-load", "took longer than 5 s"),
    ] {
        let (bed, new) = knowing(text);
        let before = bed.agent("a");
        // compiling is not what takes the time
        bed.ok(["new", "b", &new]);
        let failed = run(&mut bed.command(["upgrade", "a", &new, "--timeout", "5"]), b"");
        assert_ne!(failed.status, Some(0), "{failed}");
        failed.assert_one_message(&[words, "a stands where it stood before"]);
        assert_eq!(bed.agent("a")["generation"], before["generation"]);
        assert_eq!(bed.send("a", "what"), format!("\"{text}\" created resumed"));
        // without what goes wrong it can be had
        let fresh = bed.json(["upgrade", "a", &new, "--fresh"]);
        assert_eq!(
            (&fresh["changed"], &fresh["handed_over_bytes"]),
            (&true.into(), &serde_json::Value::Null)
        );
        assert_eq!(bed.send("a", "what"), "\"\" upgraded");
    }
}

#[test]
fn what_save_and_load_write_is_committed_with_the_upgrade() {
    for text in ["write-save", "write-load"] {
        let (bed, new) = knowing(text);
        bed.ok(["upgrade", "a", &new]);
        assert!(bed.ok(["zone", "cat", "a:/workspace/left"]).ends_with(&text[6..]));
    }
}

#[test]
fn what_cannot_be_an_upgrade_is_refused_by_name() {
    let (bed, _) = knowing("x");
    let command = guest("hello-command");
    bed.refused(
        ["upgrade", "a", command.to_str().unwrap()],
        &["wasi:cli/command", "`a`", "dormouse:agent/agent"],
    );
    bed.refused(["upgrade", "nobody", command.to_str().unwrap()], &["nobody"]);
    bed.refused(["upgrade", "a", "/nowhere.wasm"], &["/nowhere.wasm"]);
    bed.ok(["run", "--name", "c", command.to_str().unwrap()]);
    bed.refused(["upgrade", "c", guest("upgrade-agent").to_str().unwrap()], &["dormouse run --name"]);
    let wrong = bed.file("wrong.wasm", wat::parse_str(WRONG).expect("a component"));
    bed.refused(["upgrade", "a", wrong.to_str().unwrap()], &["`save`", "func() -> result<list<u8>, string>"]);
    let inspected = bed.run(["inspect", wrong.to_str().unwrap()]);
    assert_eq!(inspected.status, Some(1), "{inspected}");
    assert!(inspected.out.contains("its export `save` is not that of dormouse:agent"), "{inspected}");
    assert_eq!(bed.send("a", "what"), "\"x\" created resumed");
    assert_eq!(
        std::fs::read_dir(bed.store().join("components")).unwrap().count(),
        2,
        "none of them was kept"
    );
}

/// An agent by its exports, whose `save` is another function.
const WRONG: &str = r#"(component
    (core module $m
        (memory (export "memory") 1)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
        (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32) unreachable)
        (func (export "save") (param i32)))
    (core instance $i (instantiate $m))
    (type $event (record (field "id" string) (field "kind" string) (field "payload" (list u8))))
    (type $reply (record (field "payload" (list u8))))
    (export $event-type "event" (type $event))
    (export $reply-type "reply" (type $reply))
    (func (export "handle") (param "event" $event-type) (result (result $reply-type (error string)))
        (canon lift (core func $i "handle") (memory $i "memory") (realloc (func $i "realloc"))))
    (func (export "save") (param "state" u32) (canon lift (core func $i "save"))))"#;

#[test]
fn where_the_old_component_is_lost_there_is_no_way_back_and_no_agent_is_lost() {
    let (bed, new) = knowing("x");
    let before = bed.agent("a")["generation"].to_string();
    let components = bed.store().join("components");
    let old: Vec<_> = std::fs::read_dir(&components).unwrap().map(|file| file.unwrap().path()).collect();
    bed.ok(["upgrade", "a", &new]);
    std::fs::remove_file(&old[0]).unwrap();
    std::fs::remove_dir_all(bed.store().join("cache")).unwrap();
    bed.refused(["rewind", "a", &before], &["is not in the store"]);
    bed.refused(["fork", "a", "f", "--at", &before], &["is not in the store"]);
    assert_eq!(bed.send("a", "what"), "\"x\" upgraded");
    // where it is there again, so is the way
    bed.ok(["new", "b", guest("upgrade-agent").to_str().unwrap()]);
    bed.ok(["rewind", "a", &before]);
    assert_eq!(bed.send("a", "what"), "\"x\" created rewound");
}

#[test]
fn what_is_not_handed_over_is_said_and_the_component_is_shown() {
    let bed = Bed::new(&["upgrade-agent", "locks-agent"]);
    let [with, without] =
        ["upgrade-agent", "locks-agent"].map(|name| guest(name).to_str().unwrap().to_owned());
    bed.create("a", "upgrade-agent");
    bed.send("a", "keep trap-save");
    assert!(bed.ok(["upgrade", "a", &without]).contains("exports no `load`"), "nor is `save` called then");
    assert!(bed.ok(["upgrade", "a", &with]).contains("exports no `save`"));
    assert_eq!(bed.send("a", "what"), "\"\" upgraded");
    assert_eq!(bed.agent("a")["component"], "upgrade-agent.wasm");
    assert!(bed.ok(["generations", "a"]).contains("upgraded to locks-agent.wasm"));
    let components: Vec<_> =
        bed.json(["generations", "a"]).as_array().unwrap().iter().map(|it| it["component"].clone()).collect();
    assert_eq!(
        components,
        [
            "upgrade-agent.wasm",
            "upgrade-agent.wasm",
            "locks-agent.wasm",
            "upgrade-agent.wasm",
            "upgrade-agent.wasm"
        ]
    );
}

#[test]
fn a_start_that_the_agent_traps_at_fails_the_turn() {
    let (bed, _) = knowing("x");
    bed.send("a", "fail");
    let failed = run(&mut bed.command(["send", "a", "what"]), b"");
    assert_eq!(failed.status, Some(134), "{failed}");
    assert!(failed.err.contains("at resumed"), "{failed}");
    assert_eq!(bed.agent("a")["state"], "failed");
}

#[test]
fn killed_at_any_moment_it_is_the_old_agent_or_the_new_one() {
    let (bed, new) = knowing("kept");
    // compiled, so that the upgrade itself is what is killed
    bed.ok(["upgrade", "a", &new]);
    let old = guest("upgrade-agent").to_str().unwrap().to_owned();
    for round in 0..12 {
        let to = if round % 2 == 0 { &old } else { &new };
        let upgrade = Running::start(&mut bed.command(["upgrade", "a", to.as_str()]));
        std::thread::sleep(Duration::from_millis(random(60)));
        upgrade.signal(Signal::KILL);
        upgrade.end();
        let told = bed.send("a", "what");
        assert!(told.starts_with("\"kept\" "), "{told}");
        bed.ok(["upgrade", "a", to.as_str()]);
    }
    bed.ok(["fsck"]);
}

#[test]
fn notes_keeps_what_it_knows() {
    let bed = Bed::new(&["notes"]);
    let new = another(&bed, "notes").to_str().unwrap().to_owned();
    bed.create("n", "notes");
    bed.send("n", "note one");
    bed.send("n", "remember key a value");
    bed.ok(["upgrade", "n", &new]);
    assert_eq!(bed.send("n", "list"), "1. one");
    assert_eq!(bed.send("n", "recall key"), "a value");
    assert_eq!(bed.send("n", "status"), "memory=1 journal=2 semantic=1 logs=1 turns=5");
    let starts = bed.send("n", "starts");
    let causes: Vec<&str> = starts.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(causes, ["upgraded", "resumed", "resumed", "resumed"]);
}

#[test]
fn another_language_takes_over() {
    let bed = Bed::new(&["js-agent", "python-agent"]);
    let [js, python] = ["js-agent", "python-agent"].map(|name| guest(name).to_str().unwrap().to_owned());
    bed.create("n", "js-agent");
    bed.send("n", "remember key a value");
    bed.ok(["upgrade", "n", &python]);
    assert_eq!(bed.send("n", "recall key"), "a value");
    assert!(bed.send("n", "who").ends_with(" turns=3"), "{}", bed.send("n", "who"));
    assert!(bed.send("n", "starts").starts_with("upgraded "));
    bed.ok(["upgrade", "n", &js]);
    assert_eq!(bed.send("n", "recall key"), "a value");
    assert!(bed.send("n", "starts").starts_with("upgraded "));
}
