//! Agents that go to another store, as one file.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::bed::{Bed, guest, run};

/// Exports an agent to a file of this name.
fn export(bed: &Bed, agent: &str, file: &str) -> (PathBuf, Value) {
    let path = bed.path(file);
    let made = bed.json(["export".as_ref(), agent.as_ref(), path.as_os_str()]);
    (path, made)
}

/// Each generation, but for the times that are shown.
fn generations(bed: &Bed, agent: &str) -> Vec<Value> {
    let all = bed.json(["generations", agent]);
    let numbers =
        |it: &Value| serde_json::json!([it["generation"], it["cause"], it["turn"], it["component"]]);
    all.as_array().expect("a list").iter().map(numbers).collect()
}

fn no_agents(bed: &Bed) {
    if bed.store().exists() {
        assert_eq!(bed.json(["ps"]), serde_json::json!([]));
    }
}

#[test]
fn an_agent_goes_on_in_another_store_as_it_stood() {
    let (from, to) = (Bed::new(&["notes"]), Bed::empty());
    from.create("a", "notes");
    for text in ["note one", "remember sky blue", "note two", "remember sky grey"] {
        from.send("a", text);
    }
    from.ok(["zone", "put", "a:/workspace/file", guest("notes").to_str().expect("a path")]);
    from.ok(["pause", "a"]);
    from.send("a", "note three");
    let (file, made) = export(&from, "a", "a.export");
    assert!(made["generations"].as_u64() > Some(5) && made["turns"] == 5, "{made}");
    let came = to.json(["import".as_ref(), file.as_os_str()]);
    assert_eq!((&came["name"], &came["generation"]), (&"a".into(), &from.agent("a")["generation"]));
    assert_ne!(came["id"], from.agent("a")["id"]);
    assert_eq!(generations(&to, "a"), generations(&from, "a"));
    to.ok(["fsck"]);
    for (text, bed) in [("list", &to), ("recall sky", &to)] {
        assert_eq!(bed.send("a", text), from.send("a", text), "{text}");
    }
    // an identity of its own, as after a fork
    assert!(to.send("a", "who").contains(came["id"].as_str().expect("an id")));
    assert!(to.send("a", "starts").contains("forked"), "{}", to.send("a", "starts"));
    assert_ne!(to.send("a", "random"), from.send("a", "random"));
    let content = |bed: &Bed| bed.ok(["zone", "ls", "a:/workspace"]);
    assert_eq!(content(&to).lines().count(), content(&from).lines().count());
    // the past came along
    let second = generations(&to, "a").iter().find(|it| it[2] == 1).expect("the first turn")[0].to_string();
    to.ok(["rewind", "a", &second]);
    assert_eq!(to.send("a", "list"), "1. one");
    to.ok(["fork", "a", "b"]);
    assert_eq!(to.send("b", "list"), "1. one");
    to.ok(["reap"]);
    to.ok(["fsck"]);
}

#[test]
fn an_agent_that_was_upgraded_goes_with_both_components() {
    let (from, to) = (Bed::new(&["upgrade-agent"]), Bed::empty());
    let mut wasm = std::fs::read(guest("upgrade-agent")).expect("the guest");
    wasm.extend_from_slice(b"\x00\x06\x05again");
    let new = from.file("another.wasm", wasm);
    from.create("a", "upgrade-agent");
    from.send("a", "keep hello");
    let before = from.agent("a")["generation"].to_string();
    from.ok(["upgrade".as_ref(), "a".as_ref(), new.as_os_str()]);
    let (file, _) = export(&from, "a", "a.export");
    to.ok(["import".as_ref(), file.as_os_str(), "b".as_ref()]);
    assert_eq!(to.send("b", "what"), "\"hello\" forked");
    to.ok(["rewind", "b", &before]);
    assert_eq!(to.send("b", "what"), "\"hello\" created rewound");
}

#[test]
fn a_command_and_its_zones_go_too() {
    let (from, to) = (Bed::new(&["hello-command"]), Bed::new(&["hello-command"]));
    let ran = run(from.command(["run", "--name", "h"]).arg(guest("hello-command")), b"");
    assert_eq!(ran.status, Some(0), "{ran}");
    let (file, _) = export(&from, "h", "h.export");
    to.ok(["import".as_ref(), file.as_os_str()]);
    assert_eq!(to.ok(["logs", "h"]), from.ok(["logs", "h"]));
    let again = run(to.command(["run", "--name", "h"]).arg(guest("hello-command")), b"");
    assert_eq!(again.status, Some(0), "{again}");
}

#[test]
fn an_export_goes_through_a_pipe_and_holds_neither_environment_nor_key() {
    let (from, to) = (Bed::new(&["notes"]), Bed::empty());
    let notes = guest("notes");
    from.ok([
        "new".as_ref(),
        "--env".as_ref(),
        "TOKEN=needle-in-a-haystack".as_ref(),
        "a".as_ref(),
        notes.as_os_str(),
    ]);
    from.send("a", "note one");
    let piped = from.command(["export", "a", "-"]).stdout(Stdio::piped()).output().expect("the program");
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    let has = |needle: &[u8]| piped.stdout.windows(needle.len()).any(|it| it == needle);
    let key = std::fs::read(from.store().join("tenant.key")).expect("the key");
    assert!(!has(b"needle-in-a-haystack") && !has(&key[24..56]) && has(b"dormxprt"));
    let ran = run(&mut to.command(["import", "-", "b", "--json"]), &piped.stdout);
    assert_eq!(ran.status, Some(0), "{ran}");
    assert_eq!(to.send("b", "list"), "1. one");
}

#[test]
fn what_is_damaged_cut_or_in_the_way_is_refused_and_nothing_is_there() {
    let (from, to) = (Bed::new(&["notes"]), Bed::new(&["notes"]));
    from.create("a", "notes");
    from.send("a", "note one");
    let (file, _) = export(&from, "a", "a.export");
    let again = file.to_str().expect("a path");
    from.refused(["export", "a", again], &["is there already", "--force"]);
    from.ok(["export", "--force", "a", again]);
    assert!(!from.path("a.export.unfinished").exists());
    let bytes = std::fs::read(&file).expect("the export");
    let refused = |bytes: &[u8], word: &str| {
        let bad = to.file("bad", bytes);
        to.refused(["import", bad.to_str().expect("a path")], &["bad", word]);
        no_agents(&to);
    };
    refused(&bytes[..bytes.len() / 2], "is truncated");
    refused(&bytes[..bytes.len() - 1], "is truncated");
    refused(b"a note to myself", "is no export");
    refused(&[&bytes[..], b"!"].concat(), "1 byte follows the end");
    for nth in 1..20 {
        let mut flipped = bytes.clone();
        flipped[nth * bytes.len() / 20] ^= 4;
        refused(&flipped, "");
    }
    to.refused(["import", "nothing.export"], &["nothing.export"]);
    to.create("a", "notes");
    to.refused(["import", again], &["an agent named `a` exists"]);
    to.ok(["import", again, "b"]);
    assert_eq!(to.send("b", "list"), "1. one");
    to.refused(["import", again, "not a name"], &["cannot be an agent's name"]);
}

#[test]
fn a_shared_zone_is_mounted_as_the_operator_says() {
    let (from, to) = (Bed::new(&["notes"]), Bed::new(&["notes"]));
    let notes = guest("notes");
    from.ok(["new".as_ref(), "--zone".as_ref(), "team=/team".as_ref(), "a".as_ref(), notes.as_os_str()]);
    from.send("a", "note one");
    from.ok(["zone", "put", "@team:/file", notes.to_str().expect("a path")]);
    let (file, made) = export(&from, "a", "a.export");
    assert!(made["bytes"].as_u64() > Some(1000), "{made}");
    let file = file.to_str().expect("a path");
    to.refused(["import", file], &["`team` at /team", "--zone team=/team"]);
    to.refused(["import", file, "--zone", "team=/elsewhere"], &["`team` at /team"]);
    to.refused(["import", file, "--zone", "team=/team", "--zone", "more=/more"], &["`more`"]);
    no_agents(&to);
    assert_eq!(to.json(["zone", "shared"]), serde_json::json!([]));
    to.ok(["import", file, "--zone", "team=/team:ro"]);
    assert_eq!(to.send("a", "list"), "1. one");
    assert_eq!(to.json(["zone", "shared"]).as_array().map(Vec::len), Some(1));
}

/// An open file, a generator and a directory listing go on elsewhere, in any language.
fn goes_on_elsewhere(component: &str) {
    let (from, to) = (Bed::new(&[component]), Bed::new(&[component]));
    from.create("a", component);
    for text in ["remember colour blue", "remember shape round", "next", "next", "line"] {
        from.send("a", text);
    }
    let (file, _) = export(&from, "a", "a.export");
    to.ok(["import".as_ref(), file.as_os_str()]);
    for bed in [&to, &from] {
        assert_eq!(bed.send("a", "recall colour"), "blue");
        assert_eq!((bed.send("a", "next"), bed.send("a", "line")), ("1".into(), "shape=round".into()));
    }
    to.ok(["fsck"]);
}

#[test]
fn a_rust_agent_goes_on_elsewhere() {
    goes_on_elsewhere("notes");
}

#[test]
fn a_python_agent_goes_on_elsewhere() {
    goes_on_elsewhere("python-agent");
}

#[test]
fn a_javascript_agent_goes_on_elsewhere() {
    goes_on_elsewhere("js-agent");
}
