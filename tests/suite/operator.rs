//! The operator's view: `zone`, `logs`, `ps`, JSON, and what reaches a terminal.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::bed::{Bed, guest, on_terminal, run};

/// `zone get` or `zone put`.
fn copy(bed: &Bed, what: &str, place: &str, local: &Path) -> crate::bed::Ran {
    bed.run([OsStr::new("zone"), OsStr::new(what), OsStr::new(place), local.as_os_str()])
}

#[test]
fn files_and_folders_go_in_and_come_out_as_they_were() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let from = bed.path("from");
    fs::create_dir_all(from.join("deep/deeper")).expect("folders");
    fs::write(from.join("large"), &large).expect("a file");
    fs::write(from.join("deep/deeper/small"), "small").expect("a file");
    fs::write(from.join("empty"), "").expect("a file");
    assert_eq!(copy(&bed, "put", "a:/workspace/copy", &from).status, Some(0));
    let to = bed.path("to");
    assert_eq!(copy(&bed, "get", "a:/workspace/copy", &to).status, Some(0));
    assert_eq!(fs::read(to.join("large")).expect("the file"), large);
    assert_eq!(fs::read(to.join("deep/deeper/small")).expect("the file"), b"small");
    assert_eq!(fs::read(to.join("empty")).expect("the file"), b"");
    assert_eq!(bed.ok(["zone", "cat", "a:/workspace/copy/deep/deeper/small"]), "small");
    let ran = run(&mut bed.command(["zone", "put", "a:/workspace/piped", "-"]), b"through a pipe");
    assert_eq!(ran.status, Some(0), "{ran}");
    assert_eq!(bed.ok(["zone", "get", "a:/workspace/piped", "-"]), "through a pipe");
    assert_eq!(bed.send("a", "read /workspace/piped"), "through a pipe");
    bed.refused(["zone", "rm", "a:/workspace/copy"], &["is a folder", "--recursive"]);
    bed.ok(["zone", "rm", "-r", "a:/workspace/copy"]);
    assert_eq!(bed.json(["zone", "ls", "a:/workspace"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn nothing_is_written_outside_of_local() {
    let bed = Bed::new(&["notes", "hello-command"]);
    bed.create("a", "notes");
    bed.send("a", "write /workspace/file new");
    let outside = bed.file("outside", "old");
    let target = bed.path("target");
    fs::create_dir(&target).expect("a folder");
    // a folder comes out into one where links stand in the way of its names
    let from = bed.path("from");
    fs::create_dir_all(from.join("folder")).expect("folders");
    fs::write(from.join("file"), "new").expect("a file");
    fs::write(from.join("folder/inner"), "new").expect("a file");
    assert_eq!(copy(&bed, "put", "a:/workspace/tree", &from).status, Some(0));
    let local = bed.path("local");
    fs::create_dir(&local).expect("a folder");
    symlink(&outside, local.join("file")).expect("a link");
    symlink(&target, local.join("folder")).expect("a link");
    let ran = copy(&bed, "get", "a:/workspace/tree/.", &local);
    assert!(matches!(ran.status, Some(0 | 1)), "{ran}");
    assert_eq!(fs::read_to_string(&outside).expect("the file"), "old");
    assert_eq!(fs::read_dir(&target).expect("the folder").count(), 0, "{ran}");
    // a file comes out where a link stands
    let link = bed.path("link");
    symlink(&outside, &link).expect("a link");
    let ran = copy(&bed, "get", "a:/workspace/file", &link);
    assert!(matches!(ran.status, Some(0 | 1)), "{ran}");
    assert_eq!(fs::read_to_string(&outside).expect("the file"), "old", "{ran}");
    // links that a guest made are not followed out of the zone, and lead nowhere when they come out
    let made = symlinks_by_guest(&bed);
    let ran = copy(&bed, "get", &format!("{made}:/workspace"), &bed.path("linked"));
    assert!(matches!(ran.status, Some(0 | 1)), "{ran}");
    bed.refused(["zone", "cat", &format!("{made}:/workspace/out")], &["out"]);
    bed.refused(["zone", "cat", "a:/workspace/../../etc/passwd"], &[]);
}

/// An agent in whose workspace links lead out, made through the library.
fn symlinks_by_guest(bed: &Bed) -> String {
    use zone_vfs::contract::Principal;
    use zone_vfs::id::{Inode, Timestamp};
    use zone_vfs::zone::Access;
    bed.create("linker", "notes");
    let host = dormouse::Host::open(dormouse::HostOptions::new(bed.store())).expect("the host");
    let agent = host.agent("linker").expect("the agent");
    let disk = agent.disk();
    let workspace = disk.zones().iter().position(|z| z.name == "workspace").expect("a workspace") as u16;
    let access = Access::new(Principal::Host, Timestamp::now());
    for (name, target) in [("out", "../../../../etc/passwd"), ("up", "../../../../outside"), ("self", "self")]
    {
        let made =
            disk.zone(workspace, |z| z.symlink(access, target.as_bytes(), Inode::ROOT, name.as_bytes()));
        made.expect("the workspace").unwrap_or_else(|e| panic!("a link {name}: {e}"));
    }
    zone_vfs::store::wait(|done| disk.sync(done)).expect("the links are kept");
    drop(agent);
    host.close().expect("the host closes");
    "linker".into()
}

#[test]
fn contracts_hold_for_the_operator_too() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    let file = bed.file("file", "rewritten");
    let journal = "a:/memory/episodic/journal.log";
    let ran = copy(&bed, "put", journal, &file);
    ran.assert_refused(&["journal.log"]);
    bed.refused(["zone", "rm", journal], &["append-only"]);
    bed.refused(["zone", "rm", "a:/logs/notes.log"], &["append-only"]);
    assert_eq!(bed.ok(["zone", "cat", journal]), "note 1: one\n");
    assert_eq!(copy(&bed, "put", "a:/memory/semantic/notes.txt", &file).status, Some(0));
    assert_eq!(bed.send("a", "read /memory/semantic/notes.txt"), "rewritten");
}

#[test]
fn what_the_host_writes_in_logs_is_not_put_there() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let file = bed.file("file", "a lie");
    let folder = bed.path("folder");
    fs::create_dir_all(folder.join("audit")).expect("folders");
    for (place, local) in [
        ("a:/logs/audit", &file),
        ("a:/logs/stdout", &file),
        ("a:/logs/stderr", &folder),
        ("a:/logs", &folder.join("audit")),
        ("a:/logs", &folder.join(".")),
        ("a:/logs/audit/deeper", &file),
    ] {
        copy(&bed, "put", place, local).assert_refused(&["is not permitted", "in logs"]);
    }
    assert_eq!(copy(&bed, "put", "a:/logs/mine", &file).status, Some(0));
    assert_eq!(copy(&bed, "put", "a:/workspace/audit", &file).status, Some(0));
    // so that the host can always note what is forgotten
    bed.ok(["zone", "forget", "a:/workspace/audit", "-y"]);
    assert!(bed.ok(["zone", "cat", "a:/logs/audit"]).contains("/workspace/audit"));
}

/// What a guest would do to a terminal: clear it, name it, and print a lie from right to left.
const ATTACK: &str = "a\u{1b}[2Jb\u{1b}]0;title\u{7}c\u{9b}31md\u{202e}e\rf";

/// No character that acts is in what a terminal was shown, other than those of the program's own.
fn assert_tame(shown: &str) {
    let acts = |c: char| (c.is_control() && !"\r\n\t".contains(c)) || "\u{202e}\u{9b}".contains(c);
    assert!(!shown.chars().any(acts), "{shown:?}");
    // a carriage return is the terminal's own only before a line's end
    assert!(!shown.replace("\r\n", "\n").contains('\r'), "{shown:?}");
    for letter in ["a\\u{1b}[2Jb", "c\\u{9b}31md\\u{202e}e\\rf"] {
        assert!(shown.contains(letter), "{letter} is missing in {shown:?}");
    }
}

#[test]
fn what_a_guest_says_does_nothing_to_a_terminal() {
    let bed = Bed::new(&["notes", "stdio", "hello-command"]);
    bed.create("a", "notes");
    bed.send("a", &format!("remember key {ATTACK}"));
    // a reply, an error, files, logs
    assert_tame(&on_terminal(&mut bed.command(["send", "a", "recall key"])));
    bed.send("a", &format!("print {ATTACK}"));
    assert_tame(&on_terminal(&mut bed.command(["logs", "a"])));
    assert_tame(&on_terminal(&mut bed.command(["logs", "--stderr", "a"])));
    bed.send("a", &format!("write /workspace/file {ATTACK}"));
    assert_tame(&on_terminal(&mut bed.command(["zone", "cat", "a:/workspace/file"])));
    // the output of a run
    let shown = on_terminal(&mut bed.guest_command("hello-command", ["journal", ATTACK]));
    assert_eq!(shown.matches('\u{1b}').count(), 0, "{shown:?}");
    assert_tame(&on_terminal(&mut bed.guest_command("hello-command", ["journal"])));
    assert!(on_terminal(&mut bed.guest_command("stdio", ["terminal"])).contains("(true, true, true)"));
    // where it is no terminal, bytes pass as they are
    assert_eq!(bed.send("a", "recall key"), ATTACK);
    assert_eq!(bed.guest("hello-command", ["journal"]).out, format!("{ATTACK}\n"));
    // and on a terminal when that is asked for
    let mut raw = bed.command(["run", "--raw"]);
    let shown = on_terminal(raw.arg(guest("hello-command")).arg("journal"));
    assert!(shown.contains("a\u{1b}[2Jb"), "{shown:?}");
}

#[test]
fn names_of_files_do_nothing_to_a_terminal() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "write /workspace/a\u{1b}[2Jb x");
    let shown = on_terminal(&mut bed.command(["zone", "ls", "a:/workspace"]));
    assert!(shown.contains("a\\u{1b}[2Jb"), "{shown:?}");
    let listed = bed.json(["zone", "ls", "a:/workspace"]);
    assert!(listed.to_string().contains("a\\u001b[2Jb"), "{listed}");
}

/// The value has each of these fields, and none of them is null but those that may be.
fn assert_fields(value: &Value, fields: &[&str], nullable: &[&str]) {
    for field in fields {
        assert!(
            value.get(field).is_some_and(|v| !v.is_null() || nullable.contains(field)),
            "{field}: {value}"
        );
    }
}

#[test]
fn every_listing_is_json_when_asked() {
    let bed = Bed::new(&["notes"]);
    assert_eq!(bed.json(["ps"]), serde_json::json!([]));
    let path = guest("notes");
    let made = bed.json([OsStr::new("new"), OsStr::new("a"), path.as_os_str()]);
    assert_fields(&made, &["name", "id", "generation"], &[]);
    let sent = bed.json(["send", "a", "note one"]);
    assert_fields(&sent, &["agent", "turn", "generation", "reply", "error", "microseconds"], &["error"]);
    assert_eq!((&sent["reply"], &sent["turn"]), (&"kept note 1".into(), &1.into()));
    let refused = bed.run(["send", "--json", "a", "recall nothing"]);
    assert_eq!(refused.status, Some(1), "{refused}");
    let refused: Value = serde_json::from_str(&refused.out).expect("JSON");
    assert!(refused["reply"].is_null() && refused["error"].is_string(), "{refused}");
    assert_fields(&bed.json(["pause", "a"]), &["agent", "generation"], &[]);
    assert_fields(&bed.json(["resume", "a"]), &["agent", "generation", "memory_bytes", "microseconds"], &[]);
    let forks = bed.json(["fork", "a", "--count", "2"]);
    assert_eq!(forks.as_array().map(Vec::len), Some(2));
    assert_fields(&forks[0], &["name", "id", "parent", "generation"], &[]);
    let rows = [
        "name",
        "id",
        "state",
        "world",
        "generation",
        "turns",
        "created",
        "file_bytes",
        "memory_bytes",
        "parent",
    ];
    let listed = bed.json(["ps"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(3));
    for row in listed.as_array().expect("rows") {
        assert_fields(row, &rows, &["parent"]);
    }
    assert_eq!(bed.agent("a-fork-1")["parent"], "a");
    let generations = bed.json(["generations", "a"]);
    let fields =
        ["generation", "cause", "turn", "made", "head", "memory_bytes", "changed_pages", "file_bytes"];
    for row in generations.as_array().expect("rows") {
        assert_fields(row, &fields, &[]);
    }
    let heads = generations.as_array().expect("rows").iter().filter(|row| row["head"] == true).count();
    assert_eq!(heads, 1, "{generations}");
    assert_fields(&bed.json(["rewind", "a", "1"]), &["agent", "rewound_to", "generation"], &[]);
    let zones = bed.json(["zone", "ls", "a"]);
    assert_eq!(zones.as_array().map(Vec::len), Some(5));
    assert_fields(&zones[0], &["name", "mount", "kind", "bytes", "quota_bytes", "inodes"], &[]);
    let files = bed.json(["zone", "ls", "-R", "a:/memory/semantic"]);
    assert_eq!(files.as_array().map(Vec::len), Some(1), "{files}");
    let about = bed.json([OsStr::new("inspect"), path.as_os_str()]);
    assert_fields(&about, &["world", "imports", "exports", "capturable", "shared_genesis"], &[]);
}

#[test]
fn logs_show_what_an_agent_printed() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "print one");
    bed.send("a", "print two");
    let ran = bed.run(["logs", "a"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("one\ntwo\n", "one\ntwo\n"));
    let ran = bed.run(["logs", "--stdout", "a"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("one\ntwo\n", ""));
    let ran = bed.run(["logs", "--stderr", "a"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "one\ntwo\n"));
    bed.ok(["rewind", "a", "1"]);
    assert_eq!(bed.run(["logs", "--stdout", "a"]).out, "one\ntwo\n");
}

#[test]
fn removed_agents_are_gone_with_their_files() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    bed.ok(["fork", "a", "b"]);
    bed.refused(["rm", "a", "nobody"], &["nobody"]);
    assert_eq!(bed.json(["ps"]).as_array().map(Vec::len), Some(2), "half of a removal was done");
    bed.ok(["rm", "a", "b"]);
    assert_eq!(bed.json(["ps"]), serde_json::json!([]));
    let images = fs::read_dir(bed.store().join("images")).expect("images");
    let left: Vec<_> = images.map(|e| e.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("genesis-")), "{left:?}");
    bed.create("a", "notes");
    assert_eq!(bed.send("a", "status"), "memory=0 journal=0 semantic=0 logs=0 turns=1");
    // hundreds go at once
    bed.ok(["fork", "a", "b", "--count", "300"]);
    let names: Vec<String> = (1..=300).map(|n| format!("b-{n}")).collect();
    bed.ok(std::iter::once("rm").chain(names.iter().map(String::as_str)));
    assert_eq!(bed.json(["ps"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn a_quota_bounds_bytes_and_inodes() {
    let bed = Bed::new(&["notes"]);
    let component = guest("notes");
    let new = |name: &str, zones: &[&str]| {
        let mut command = bed.command(["new", name]);
        for zone in zones {
            command.args(["--zone", zone]);
        }
        run(command.arg(&component), b"")
    };
    let made = new("a", &["inbox=workspace:64K,inodes=4", "team=/team:rw:inodes=3", "logs=logs:inodes=50"]);
    assert_eq!(made.status, Some(0), "{made}");
    let zones = bed.json(["zone", "ls", "a"]);
    let bounds = |name: &str| {
        let zone = zones.as_array().and_then(|all| all.iter().find(|it| it["name"] == name)).expect("a zone");
        (zone["quota_bytes"].as_u64().expect("bytes"), zone["quota_inodes"].as_u64().expect("inodes"))
    };
    assert_eq!(bounds("inbox"), (64 << 10, 4));
    assert_eq!(bounds("team"), (1 << 30, 3));
    assert_eq!(bounds("logs"), (1 << 30, 50));
    assert_eq!(bounds("workspace"), (1 << 30, 1 << 20));
    let table = bed.ok(["zone", "ls", "a"]);
    assert!(
        table.contains("INODES") && table.contains(" of 4\n") && table.contains(" of 1048576\n"),
        "{table}"
    );
    assert!(bed.ok(["zone", "shared"]).contains(" of 3 "));
    let file = bed.file("file", "x");
    let put = |n: usize| {
        let place = format!("a:/inbox/{n}");
        bed.run(["zone".as_ref(), "put".as_ref(), place.as_ref(), file.as_os_str()])
    };
    let refused = (0..6).map(put).find(|ran| ran.status != Some(0)).expect("no more than four");
    refused.assert_refused(&["quota", "4 of 4 inodes are used"]);
    let refused = new("b", &["team=/team:inodes=4"]);
    refused.assert_refused(&["team", "3 inodes: leave the quota out"]);
    assert_eq!(new("b", &["team=/team:inodes=3"]).status, Some(0));
    for (wrong, told) in [
        ("x=workspace:inodes=0", "`inodes=0` is no number of inodes"),
        ("x=workspace:1K,2K", "says the same twice"),
        ("x=workspace:inodse=7", "is no size"),
    ] {
        let refused = new("c", &[wrong]);
        assert!(refused.status == Some(2) && refused.err.contains(told), "{refused}");
    }
}

#[test]
fn a_zone_that_is_full_gets_another_quota() {
    let bed = Bed::new(&["notes"]);
    let component = guest("notes");
    let zone = ["new", "n", "--zone", "workspace=workspace:4K"].map(OsStr::new);
    bed.ok([zone[0], zone[2], zone[3], zone[1], component.as_os_str()]);
    let large = "x".repeat(5 << 10);
    let event = format!("write /workspace/large {large}");
    assert_eq!(bed.run(["send", "n", &event]).status, Some(1));
    let shown = bed.json(["zone", "quota", "n:/workspace"]);
    assert_eq!((&shown["quota_bytes"], &shown["set"]), (&(4 << 10).into(), &false.into()), "{shown}");
    let inodes = shown["quota_inodes"].clone();
    let set = bed.json(["zone", "quota", "n:/workspace", "bytes=64K"]);
    assert_eq!((&set["quota_bytes"], &set["quota_inodes"]), (&(64 << 10).into(), &inodes), "{set}");
    bed.send("n", &event);
    // below what is used: it stays, and nothing grows
    let told = bed.ok(["zone", "quota", "n:workspace", "1K"]);
    assert!(told.contains("1.0 KiB") && told.contains("shrink"), "{told}");
    assert_eq!(bed.send("n", "read /workspace/large"), large);
    assert_eq!(bed.run(["send", "n", "write /workspace/more x"]).status, Some(1));
    bed.ok(["zone", "rm", "n:/workspace/large"]);
    bed.send("n", "write /workspace/more x");
    // neither a rewind nor another opening takes it back, and a fork has it
    bed.ok(["rewind", "n", "0"]);
    bed.ok(["fork", "n", "child"]);
    for name in ["n", "child"] {
        let shown = bed.json(["zone", "quota", &format!("{name}:/workspace")]);
        assert_eq!(shown["quota_bytes"], 1 << 10, "{name}");
    }
    bed.refused(["zone", "quota", "n:/nowhere", "1M"], &["/nowhere is no zone of n", "/workspace"]);
    bed.refused(["zone", "quota", "n", "1M"], &["name a zone of n"]);
    bed.refused(["zone", "quota", "n@0:/workspace", "1M"], &["not of a generation"]);
    bed.refused(["zone", "quota", "n:/workspace", "1M", "bytes=2M"], &["twice"]);
    assert_eq!(bed.run(["zone", "quota", "n:/workspace", "files=3"]).status, Some(2));
}

#[test]
fn what_a_failed_turn_left_is_not_said_to_be_the_operators() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    let last = || {
        let all = bed.json(["generations", "a"]);
        all.as_array().and_then(|all| all.last()).map(|it| it["cause"].clone()).expect("a generation")
    };
    let ran = bed.run(["send", "a", "panic"]);
    assert_ne!(ran.status, Some(0), "{ran}");
    // its logs stay, and the fork has them
    bed.ok(["fork", "a", "b"]);
    assert_eq!(last(), "after a failed turn");
    bed.send("a", "note two");
    let local = bed.file("local", "text");
    bed.ok(["zone".as_ref(), "put".as_ref(), "a:/workspace/file".as_ref(), local.as_os_str()]);
    bed.ok(["fork", "a", "c"]);
    assert_eq!(last(), "operator");
}

#[test]
fn what_changes_zones_and_agents_tells_programs_in_json_what_it_did() {
    let bed = Bed::new(&["notes", "hello-command"]);
    bed.ok(["new", "--zone", "team=/team", "a", guest("notes").to_str().expect("a path")]);
    let from = bed.path("from");
    fs::create_dir_all(from.join("folder")).expect("folders");
    fs::write(from.join("one"), "1").expect("a file");
    fs::write(from.join("folder/two"), "22").expect("a file");
    let local = from.to_str().expect("a path");
    let copied = |path: &str| serde_json::json!({ "path": path, "files": 2, "bytes": 3 });
    assert_eq!(bed.json(["zone", "put", "a:/workspace/tree", local]), copied("a:/workspace/tree"));
    let to = bed.path("to");
    let got = bed.json(["zone", "get", "a:/workspace/tree", to.to_str().expect("a path")]);
    let mut wanted = copied("a:/workspace/tree");
    wanted["into"] = to.display().to_string().into();
    assert_eq!(got, wanted);
    // standard output has the file
    let ran = bed.run(["zone", "get", "--json", "a:/workspace/tree/one", "-"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "1"), "{ran}");
    let told: Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!((&told["into"], &told["bytes"]), (&"-".into(), &1.into()), "{ran}");
    let removed = bed.json(["zone", "rm", "-r", "a:/workspace/tree"]);
    assert_eq!(removed, serde_json::json!({ "path": "a:/workspace/tree", "files": 2, "folders": 2 }));

    let mounted = bed.json(["zone", "rm-shared", "--force", "@team"]);
    assert_eq!((&mounted["name"], &mounted["mounted_by"]), (&"team".into(), &Value::from(vec!["a"])));
    bed.create("b", "notes");
    bed.ok(["pause", "b"]);
    bed.ok(["fork", "b", "c"]);
    let gone = bed.json(["rm", "c", "b@0"]);
    let generations = serde_json::json!([{ "agent": "b", "generation": 0 }]);
    assert_eq!(gone, serde_json::json!({ "agents": ["c"], "generations": generations }));
}

#[test]
fn logs_are_lines_of_json_for_programs_also_where_the_last_has_no_end() {
    let bed = Bed::new(&["hello-command"]);
    let plain = bed.guest("hello-command", []);
    assert_eq!(plain.status, Some(0), "{plain}");
    let told = bed.ok(["logs", "--json", "--stdout", "hello-command"]);
    let lines: Vec<Value> = told.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
    assert!(lines.iter().all(|it| it["stream"] == "stdout"), "{told}");
    let texts: Vec<&str> = lines.iter().map(|it| it["text"].as_str().expect("text")).collect();
    assert_eq!(texts, plain.out.lines().collect::<Vec<_>>());
    assert!(!texts.is_empty());
}
