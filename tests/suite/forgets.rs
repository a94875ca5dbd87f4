//! `zone forget`: what the operator has forgotten is in no byte of the store, and what it does not reach is said.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use crate::bed::Bed;

/// Does not compress, and is in nothing else.
const MARKER: &str = "kR7vQ2xZ9mB4tW8nL3pY6sD1fH5jC0gA";

/// The files below a folder that have the marker in any byte.
fn found(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(found(&path));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            if bytes.windows(MARKER.len()).any(|it| it == MARKER.as_bytes()) {
                all.push(path.display().to_string());
            }
        }
    }
    all
}

fn generations(bed: &Bed) -> Vec<u64> {
    let all = bed.json(["generations", "a"]);
    let number = |row: &Value| row["generation"].as_u64().or(row["number"].as_u64());
    all.as_array().into_iter().flatten().filter_map(number).collect()
}

#[test]
fn what_was_forgotten_is_in_no_byte_of_the_store() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "write /workspace/kept same");
    let secret = bed.file("secret", format!("a secret: {MARKER}\n"));
    let diary = bed.file("diary", format!("a diary: {MARKER}\n"));
    let large = bed.file("large", format!("{}{MARKER}{}", "x".repeat(600_000), "y".repeat(300_000)));
    for (place, local) in [
        ("a:/memory/semantic/secret", &secret),
        ("a:/workspace/large", &large),
        ("a:/memory/episodic/log", &diary),
    ] {
        bed.ok(["zone".as_ref(), "put".as_ref(), place.as_ref(), local.as_os_str()]);
    }
    bed.send("a", "write /workspace/kept other");
    std::fs::write(&secret, format!("another: {MARKER}\n")).expect("a file");
    bed.ok(["zone".as_ref(), "put".as_ref(), "a:/memory/semantic/secret".as_ref(), secret.as_os_str()]);
    bed.send("a", "write /workspace/kept last");
    assert!(!found(&bed.store()).is_empty());

    let before = generations(&bed);
    let dry = bed.json(["zone", "forget", "--dry-run", "a:/memory/semantic/secret"]);
    assert_eq!((dry["contents"].as_u64(), dry["dry_run"].as_bool()), (Some(2), Some(true)), "{dry}");
    assert_eq!(generations(&bed), before);
    for place in ["a:/memory/semantic/secret", "a:/workspace/large", "a:/memory/episodic/log"] {
        let told = bed.json(["zone", "forget", "--yes", place]);
        assert_eq!(told["erased_from_files"], true, "{told}");
        assert_eq!(told["not_reached"], Value::Array(Vec::new()), "{told}");
        bed.refused(["zone", "cat", place], &["no such file"]);
    }
    assert_eq!(found(&bed.store()), [""; 0]);
    assert!(generations(&bed).len() < before.len());
    bed.refused(["zone", "forget", "--yes", "a:/workspace/large"], &["no such file"]);
    bed.refused(["zone", "forget", "--yes", "a:/workspace"], &["is a zone"]);
    bed.refused(["zone", "forget", "a:/workspace/kept"], &["--yes"]);
    assert_eq!(bed.ok(["zone", "cat", "a:/workspace/kept"]), "last");
    // the agent goes on, and the audit log tells, but not what
    assert_eq!(bed.send("a", "read /workspace/kept"), "last");
    let audit = bed.ok(["zone", "cat", "a:/logs/audit"]);
    assert_eq!(audit.lines().count(), 3, "{audit}");
    assert!(audit.contains("memory/semantic/secret") && !audit.contains(MARKER), "{audit}");
    let history = bed.json(["zone", "history", "a:/memory/semantic/secret"]);
    assert!(history.as_array().is_some_and(|all| all.iter().all(|it| it["hash"].is_null())), "{history}");
}

#[test]
fn messages_go_where_that_is_asked_for_and_copies_are_named() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", &format!("write /workspace/secret {MARKER}"));
    let turn = bed.agent("a")["turns"].to_string();
    bed.ok(["fork", "a", "b"]);
    let told = bed.json(["zone", "forget", "--yes", "--turns", &turn, "a:/workspace/secret"]);
    assert_eq!(told["turns"], 1, "{told}");
    let left = told["not_reached"].as_array().cloned().unwrap_or_default();
    assert!(
        left.len() == 1 && left[0].as_str().is_some_and(|it| it.contains("b: workspace secret")),
        "{told}"
    );
    assert_eq!(bed.ok(["zone", "cat", "b:/workspace/secret"]), MARKER);
    // a repeated id looks back over the turns that were forgotten
    assert_eq!(
        bed.ok(["send", "--id", "one", "a", "write /workspace/new x"]),
        bed.send("a", "write /workspace/new x")
    );
}

/// Puts text under a name.
fn put(bed: &Bed, place: &str, text: &str) {
    let local = bed.file("text", text);
    bed.ok(["zone".as_ref(), "put".as_ref(), OsStr::new(place), local.as_os_str()]);
}

#[test]
fn one_version_is_forgotten_and_no_rewind_brings_it_back() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let place = "a:/memory/semantic/facts";
    for text in ["the first", MARKER, "the last"] {
        put(&bed, place, text);
        bed.send("a", "list");
    }
    let history = bed.json(["zone", "history", place]);
    let version = |nth: usize| history[nth]["version"].to_string();
    let [first, second, last] = [0, 1, 2].map(version);
    let number = history[1]["version"].as_u64();
    for how in ["--yes", "--dry-run"] {
        bed.refused(
            ["zone", "forget", how, "--version", &last, place],
            &["stands at the content of this version"],
        );
    }
    bed.refused(["zone", "forget", "--yes", "--version", "999", place], &["has no version 999"]);
    let dry = bed.json(["zone", "forget", "--dry-run", "--version", &second, place]);
    assert_eq!((&dry["contents"], &dry["bytes"]), (&1.into(), &MARKER.len().into()), "{dry}");
    let told = bed.json(["zone", "forget", "--yes", "--version", &second, place]);
    assert_eq!(
        (&told["erased_from_files"], &told["not_reached"]),
        (&true.into(), &serde_json::json!([])),
        "{told}"
    );
    assert_eq!(found(&bed.store()), [""; 0]);
    assert_eq!(bed.ok(["zone", "cat", place]), "the last");
    bed.refused(["zone", "rollback", place, &second], &["no content"]);
    for generation in generations(&bed) {
        bed.ok(["rewind", "a", &generation.to_string()]);
        let history = bed.json(["zone", "history", place]);
        let it = history.as_array().and_then(|all| all.iter().find(|it| it["version"].as_u64() == number));
        assert!(it.is_some_and(|it| it["hash"].is_null()), "{history}");
    }
    bed.ok(["zone", "rollback", place, &first]);
    assert_eq!(bed.ok(["zone", "cat", place]), "the first");
    assert!(bed.ok(["zone", "cat", "a:/logs/audit"]).contains(&format!("\"versions\":[{second}]")));
    bed.ok(["fsck"]);
}

#[test]
fn a_folder_is_forgotten_with_what_was_in_it() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let folder = bed.path("in");
    std::fs::create_dir_all(folder.join("deep")).expect("folders");
    for name in ["now", "deep/now", "gone"] {
        std::fs::write(folder.join(name), MARKER).expect("a file");
    }
    for zone in ["memory/semantic", "workspace"] {
        let inside = format!("a:/{zone}/in");
        bed.ok(["zone".as_ref(), "put".as_ref(), OsStr::new(&inside), folder.as_os_str()]);
        put(&bed, &format!("a:/{zone}/out"), "kept");
        bed.send("a", "list");
        bed.ok(["zone", "rm", &format!("a:/{zone}/in/gone")]);
        bed.send("a", "list");
        bed.refused(["zone", "forget", "--yes", &inside], &["is a folder", "-r"]);
        let told = bed.json(["zone", "forget", "--yes", "-r", &inside]);
        assert_eq!((&told["contents"], &told["erased_from_files"]), (&3.into(), &true.into()), "{told}");
        assert_eq!(bed.ok(["zone", "cat", &format!("a:/{zone}/out")]), "kept");
    }
    assert_eq!(found(&bed.store()), [""; 0]);
    bed.refused(["zone", "forget", "--yes", "-r", "a:/workspace"], &["is a zone"]);
    bed.refused(["zone", "forget", "--yes", "-r", "a:/workspace/nothing"], &["no such file"]);
    // what agents share
    let notes = crate::bed::guest("notes");
    bed.ok(["new".as_ref(), "--zone".as_ref(), "team=/team".as_ref(), "b".as_ref(), notes.as_os_str()]);
    bed.ok(["zone".as_ref(), "put".as_ref(), OsStr::new("@team:/in"), folder.as_os_str()]);
    bed.refused(["zone", "forget", "--yes", "-r", "@team:/"], &["is a zone"]);
    bed.refused(["zone", "forget", "--yes", "@team:/in"], &["is a folder", "-r"]);
    bed.ok(["zone", "forget", "--yes", "-r", "@team:/in"]);
    assert_eq!(found(&bed.store()), [""; 0]);
}

#[test]
fn what_is_written_to_a_file_that_was_forgotten_while_it_was_open_is_never_lost() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let journal = |agent: &str| format!("{agent}:/memory/episodic/journal.log");
    bed.send("a", &format!("note {MARKER}"));
    assert_eq!(bed.send("a", "line"), format!("note 1: {MARKER}"));
    bed.ok(["zone", "forget", "--yes", &journal("a")]);
    bed.ok(["fork", "a", "b"]);
    let forgotten = generations(&bed).pop().expect("a generation").to_string();
    // it has the file open, to append and to read
    assert_eq!(bed.send("a", "note after"), "kept note 2");
    assert_eq!(bed.ok(["zone", "cat", &journal("a")]), "note 2: after\n");
    bed.ok(["pause", "a"]);
    bed.ok(["resume", "a"]);
    assert_eq!(bed.send("a", "line"), "note 2: after");
    assert_eq!(bed.send("b", "note in a fork"), "kept note 2");
    assert_eq!(bed.ok(["zone", "cat", &journal("b")]), "note 2: in a fork\n");
    bed.ok(["rewind", "a", &forgotten]);
    assert_eq!(bed.send("a", "note rewound"), "kept note 2");
    assert_eq!(bed.ok(["zone", "cat", &journal("a")]), "note 2: after\nnote 2: rewound\n");
    for agent in ["a", "b"] {
        let listed = bed.ok(["zone", "ls", "-R", &format!("{agent}:/memory/episodic")]);
        assert!(listed.contains("journal.log"), "{listed}");
    }
    bed.ok(["fsck"]);
}

#[test]
fn what_had_the_name_and_was_moved_elsewhere_stays_and_is_named() {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    let (old, new) = ("a:/memory/semantic/plan.new", "a:/memory/semantic/plan");
    let stays = |told: &Value| told["stay"].as_array().map_or(0, Vec::len);
    bed.send("a", "write /memory/semantic/plan.new one");
    bed.send("a", "rename /memory/semantic/plan.new /memory/semantic/plan");
    bed.refused(
        ["zone", "forget", "--yes", old],
        &["at /memory/semantic/plan by now", "--all-that-had-the-name"],
    );
    // what is there now is meant, and nothing else that was
    put(&bed, old, "a draft");
    let before = bed.json(["zone", "history", new]);
    let dry = bed.json(["zone", "forget", "--dry-run", old]);
    assert_eq!((&dry["contents"], stays(&dry)), (&1.into(), 1), "{dry}");
    assert_eq!(dry["files"][0]["path"], "/memory/semantic/plan.new", "{dry}");
    assert_eq!(dry["stay"][0]["path"], "/memory/semantic/plan", "{dry}");
    let told = bed.ok(["zone", "forget", "--yes", old]);
    assert!(told.contains("goes: file") && told.contains("had the name, and stays: file"), "{told}");
    assert_eq!(bed.ok(["zone", "cat", new]), "one");
    assert_eq!(bed.json(["zone", "history", new]), before);
    // what was deleted under the name goes with what is there
    bed.ok(["zone", "rm", new]);
    bed.send("a", "write /memory/semantic/plan two");
    let told = bed.json(["zone", "forget", "--yes", new]);
    assert_eq!(told["files"].as_array().map(Vec::len), Some(2), "{told}");
    assert_eq!((&told["contents"], stays(&told)), (&2.into(), 0), "{told}");
    // in a workspace, where a replaced file is in generations alone
    put(&bed, "a:/workspace/plan", "first");
    bed.send("a", "ls /workspace");
    bed.ok(["zone", "rm", "a:/workspace/plan"]);
    put(&bed, "a:/workspace/plan", MARKER);
    bed.send("a", "ls /workspace");
    let told = bed.json(["zone", "forget", "--yes", "a:/workspace/plan"]);
    assert_eq!((&told["files"][1]["is_there"], &told["contents"]), (&true.into(), &2.into()), "{told}");
    assert_eq!(found(&bed.store()), [""; 0]);
    // wherever they are now
    bed.send("a", "write /memory/semantic/plan.new three");
    bed.send("a", "rename /memory/semantic/plan.new /memory/semantic/plan");
    let all = bed.json(["zone", "forget", "--yes", "--all-that-had-the-name", old]);
    assert_eq!((&all["contents"], stays(&all)), (&1.into(), 0), "{all}");
    bed.refused(["zone", "cat", new], &["no such file"]);
}

#[test]
fn a_forget_that_is_repeated_drops_nothing() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let place = "a:/memory/semantic/facts";
    for text in ["the first", "the last"] {
        put(&bed, place, text);
        bed.send("a", "list");
    }
    let first = bed.json(["zone", "history", place])[0]["version"].to_string();
    bed.ok(["zone", "forget", "--yes", "--version", &first, place]);
    let again = |arguments: &[&str]| {
        bed.send("a", "list");
        let before = generations(&bed);
        let told = bed.json(arguments);
        assert_eq!((&told["already_forgotten"], &told["contents"]), (&true.into(), &0.into()), "{told}");
        assert_eq!(told["generations"], serde_json::json!([]), "{told}");
        assert_eq!(generations(&bed), before);
    };
    again(&["zone", "forget", "--yes", "--version", &first, place]);
    bed.ok(["zone", "forget", "--yes", place]);
    again(&["zone", "forget", "--yes", place]);
    again(&["zone", "forget", "--dry-run", place]);
    assert!(bed.ok(["zone", "forget", "--yes", place]).contains("nothing is left"));
    assert_eq!(bed.ok(["zone", "cat", "a:/logs/audit"]).lines().count(), 2);
}

#[test]
fn nothing_is_forgotten_without_a_line_in_the_audit_trail_which_is_never_forgotten_itself() {
    let bed = Bed::new(&["notes"]);
    let notes = crate::bed::guest("notes");
    for agent in ["a", "b"] {
        let made = ["new", "--zone", "team=/team", "--zone", "logs=logs:2K", agent];
        bed.ok(made.map(OsStr::new).into_iter().chain([notes.as_os_str()]));
    }
    let audit = |agent: &str| {
        let text = bed.ok(["zone", "cat", &format!("{agent}:/logs/audit")]);
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>()
    };
    // logs that are full
    put(&bed, "a:/logs/full", &"x".repeat(2048));
    put(&bed, "a:/workspace/secret", MARKER);
    bed.ok(["zone", "forget", "--yes", "a:/workspace/secret"]);
    assert_eq!(audit("a").len(), 1);
    bed.refused(["zone", "forget", "--yes", "a:/logs/audit"], &["the audit trail is never erased"]);
    bed.refused(["zone", "forget", "--dry-run", "a:/logs/audit"], &["the audit trail is never erased"]);
    // a line for each who mounts it
    put(&bed, "@team:/secret", MARKER);
    bed.ok(["zone", "forget", "--yes", "@team:/secret"]);
    for agent in ["a", "b"] {
        let line = audit(agent).pop().expect("a line");
        assert_eq!((&line["what"], &line["path"]), (&"forget".into(), &"@team:/secret".into()), "{line}");
    }
    assert_eq!(found(&bed.store()), [""; 0]);
    // what an agent forgets itself
    let command = wat::parse_str(FORGETS.replace("ENDS", "i32.const 0")).expect("a component");
    let command = bed.file("forgets.wasm", command);
    let run = || crate::bed::run(bed.command(["run", "--name", "c"]).arg(&command), b"").status;
    assert_eq!(run(), Some(1));
    put(&bed, "c:/memory/semantic/secret", "three");
    assert_eq!(run(), Some(0));
    let lines = audit("c");
    let line = lines.last().expect("a line");
    assert_eq!((lines.len(), &line["by"], &line["turn"]), (1, &"agent".into(), &2.into()), "{line}");
    assert_eq!((&line["path"], &line["bytes"]), (&"/memory/semantic/secret".into(), &5.into()), "{line}");
}

/// A command that forgets `/memory/semantic/secret`, and then does what stands for `ENDS`; status 1 where it may not.
const FORGETS: &str = r#"(component
  (import "dormouse:zones/types@0.1.0" (instance $types
    (type $variant (variant
      (case "no-entry" string) (case "not-permitted" string) (case "unsupported" string) (case "changed" string)
      (case "quota" string) (case "invalid" string) (case "io" string)))
    (export "error" (type (eq $variant)))))
  (alias export $types "error" (type $error))
  (import "dormouse:zones/history@0.1.0" (instance $history
    (alias outer 1 $error (type $outer))
    (export "error" (type $refused (eq $outer)))
    (type $record (record (field "contents" u64) (field "bytes" u64)))
    (export "forgotten" (type $forgotten (eq $record)))
    (export "forget" (func (param "path" string) (result (result $forgotten (error $refused)))))))
  (core module $memory
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 4096))
  (core instance $m (instantiate $memory))
  (core func $forget
    (canon lower (func $history "forget") (memory $m "memory") (realloc (func $m "realloc"))))
  (core module $command
    (import "m" "memory" (memory 1))
    (import "history" "forget" (func $forget (param i32 i32 i32)))
    (data (i32.const 64) "/memory/semantic/secret")
    (func (export "run") (result i32)
      (call $forget (i32.const 64) (i32.const 23) (i32.const 1024))
      (if (i32.load8_u (i32.const 1024)) (then (return (i32.const 1))))
      ENDS))
  (core instance $i (instantiate $command
    (with "m" (instance $m)) (with "history" (instance (export "forget" (func $forget))))))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exports)))"#;

#[test]
fn what_was_derived_goes_however_a_process_ends_that_has_forgotten() {
    let bed = Bed::empty();
    let secret = bed.file("secret", MARKER);
    for (name, ends, status) in [
        ("exits", "i32.const 0", 0),
        ("traps", "unreachable", 134),
        ("is-stopped", "(loop $for-ever (br $for-ever)) unreachable", 1),
    ] {
        let component = wat::parse_str(FORGETS.replace("ENDS", ends)).expect("a component");
        let command = bed.file(&format!("{name}.wasm"), component);
        let run = || {
            let mut run = bed.command(["run", "--timeout", "10", "--name", name]);
            crate::bed::run(run.arg(&command), b"")
        };
        assert_eq!(run().status, Some(1), "there is nothing yet");
        let place = format!("{name}:/memory/semantic/secret");
        bed.ok(["zone".as_ref(), "put".as_ref(), OsStr::new(&place), secret.as_os_str()]);
        let id = bed.agent(name)["id"].as_str().expect("an id").to_string();
        let derived = bed.store().join("derived").join(id).join("index");
        std::fs::create_dir_all(&derived).expect("a folder");
        let ran = run();
        assert_eq!(ran.status, Some(status), "{ran}");
        assert!(!derived.exists(), "{name}");
        bed.refused(["zone", "cat", &place], &["no such file"]);
        let history = bed.json(["zone", "history", &place]);
        assert!(history.as_array().is_some_and(|all| all.iter().all(|it| it["hash"].is_null())), "{history}");
    }
}

/// The same that forgets a version of it.
fn forgets_version(number: u64) -> Vec<u8> {
    let text = FORGETS
        .replace("\"forget\"", "\"forget-version\"")
        .replace("(param \"path\" string)", "(param \"path\" string) (param \"number\" u64)")
        .replace("(param i32 i32 i32)))\n    (data", "(param i32 i32 i64 i32)))\n    (data")
        .replace(
            "(i32.const 23) (i32.const 1024)",
            &format!("(i32.const 23) (i64.const {number}) (i32.const 1024)"),
        )
        .replace("ENDS", "i32.const 0");
    wat::parse_str(text).expect("a component")
}

#[test]
fn a_guest_forgets_one_version_of_a_file() {
    let bed = Bed::empty();
    let run = |number: u64| {
        let command = bed.file("forgets.wasm", forgets_version(number));
        let mut run = bed.command(["run", "--name", "c"]);
        crate::bed::run(run.arg(&command), b"").status
    };
    assert_eq!(run(1), Some(1), "there is nothing yet");
    let place = "c:/memory/semantic/secret";
    for text in [MARKER, "the last"] {
        put(&bed, place, text);
    }
    let history = bed.json(["zone", "history", place]);
    let version = |nth: usize| history[nth]["version"].as_u64().expect("a version");
    assert_eq!(run(version(1)), Some(1), "it stands at that");
    assert_eq!(run(version(0)), Some(0));
    bed.ok(["reap"]);
    assert_eq!(found(&bed.store()), [""; 0]);
    assert_eq!(bed.ok(["zone", "cat", place]), "the last");
}
