//! Zones that several agents mount: seen at once, never taken back, removed by name alone.

use std::ffi::OsStr;
use std::time::Duration;

use dormouse::{Agent, AgentName, AgentOptions, Event, Host};
use rustix::process::Signal;

use crate::bed::{Bed, Running, guest, random};

/// An agent with one more zone.
fn create(bed: &Bed, name: &str, zone: &str) {
    let path = guest("notes");
    bed.ok([OsStr::new("new"), OsStr::new(name), path.as_os_str(), OsStr::new("--zone"), OsStr::new(zone)]);
}

fn team() -> Bed {
    let bed = Bed::new(&["notes"]);
    create(&bed, "a", "team=/team:64K");
    create(&bed, "b", "team=/shared/plans:ro");
    bed
}

#[test]
fn what_one_writes_the_other_reads_and_nobody_takes_it_back() {
    let bed = team();
    bed.send("a", "write /team/plan one");
    assert_eq!(bed.send("b", "read /shared/plans/plan"), "one");
    let refused = bed.run(["send", "b", "write /shared/plans/plan two"]);
    assert!(refused.status == Some(1) && refused.err.contains("Read-only"), "{refused}");
    bed.ok(["fork", "a", "child"]);
    bed.send("child", "write /team/plan two");
    assert_eq!(bed.send("a", "read /team/plan"), "two");
    bed.ok(["rewind", "a", "0"]);
    assert_eq!(bed.send("a", "read /team/plan"), "two");
    // the quota is the zone's
    let large = "x".repeat(65 << 10);
    let refused = bed.run(["send", "a", &format!("write /team/large {large}")]);
    assert_eq!(refused.status, Some(1), "{refused}");

    let row = bed.agent("b")["shared_zones"][0].clone();
    assert_eq!((&row["name"], &row["mount"]), (&"team".into(), &"/shared/plans".into()));
    assert_eq!(row["writable"], false);
    let zones = bed.json(["zone", "shared"]);
    assert_eq!(zones.as_array().map(Vec::len), Some(1), "{zones}");
    assert_eq!(zones[0]["mounted_by"], serde_json::json!(["a", "b", "child"]));
    assert_eq!(zones[0]["quota_bytes"], 64 << 10);
    let listed = bed.json(["zone", "ls", "a"]);
    let mount = listed.as_array().and_then(|rows| rows.iter().find(|row| row["mount"] == "/team"));
    assert_eq!(mount.map(|row| &row["quota_bytes"]), Some(&(64 << 10).into()), "{listed}");
}

#[test]
fn the_operator_works_on_a_shared_zone_by_its_name() {
    let bed = team();
    let local = bed.file("local", "from outside");
    let local = local.to_str().expect("a path in UTF-8");
    bed.ok(["zone", "put", "@team:/note", local]);
    assert_eq!(bed.send("a", "read /team/note"), "from outside");
    assert_eq!(bed.ok(["zone", "cat", "b:/shared/plans/note"]), "from outside");
    // a mount that is read-only is that for the operator, too
    bed.refused(["zone", "put", "b:/shared/plans/note", local], &["b:/shared/plans", "read-only"]);
    let listed = bed.json(["zone", "ls", "@team:/"]);
    assert_eq!(listed[0]["path"], "note");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "no temporary file is left: {listed}");
    bed.ok(["zone", "get", "@team:/note", "copy"]);
    assert_eq!(std::fs::read_to_string(bed.path("copy")).expect("a copy"), "from outside");
    bed.refused(["zone", "cat", "@team@3:/note"], &["no generations"]);
    bed.refused(["zone", "cat", "a@0:/team/note"], &["team", "no generations"]);
    bed.refused(["zone", "cat", "@other:/note"], &["no shared zone named `other`"]);
    bed.ok(["zone", "rm", "@team:/note"]);
    assert_eq!(bed.json(["zone", "ls", "@team:/"]).as_array().map(Vec::len), Some(0));

    bed.refused(["zone", "rm-shared", "team"], &["mounted by a, b"]);
    bed.ok(["rm", "a", "b"]);
    assert_eq!(bed.json(["zone", "shared"])[0]["mounted_by"], serde_json::json!([]));
    bed.ok(["zone", "rm-shared", "team"]);
    assert_eq!(bed.json(["zone", "shared"]), serde_json::json!([]));
}

#[test]
fn mounts_that_cannot_be_are_refused_and_leave_nothing() {
    let bed = team();
    let path = guest("notes");
    let path = path.to_str().expect("a path in UTF-8");
    for (zone, words) in [
        ("team=/workspace", &["/workspace"][..]),
        ("team=/memory", &["no place for a zone"]),
        ("team=/team:1K", &["quota", "65536"]),
        ("more=shared", &["more=/more"]),
    ] {
        let ran = bed.run(["new", "c", path, "--zone", zone]);
        assert!(matches!(ran.status, Some(1 | 2)), "{ran}");
        assert!(words.iter().all(|word| ran.err.contains(word)), "{words:?} in {ran}");
    }
    // a zone that was made for an agent that could not be made is gone again
    bed.refused(["new", "a", path, "--zone", "fresh=/fresh"], &["`a`"]);
    assert_eq!(bed.json(["zone", "shared"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let bed = team();
    let mut kept = Vec::new();
    for round in 0..12 {
        let event = format!("write /team/file-{round} content-{round}");
        let running = Running::start(&mut bed.command(["send", "a", &event]));
        std::thread::sleep(Duration::from_micros(random(150_000)));
        running.signal(Signal::KILL);
        let ran = running.end();
        assert!(matches!(ran.status, None | Some(0)), "{ran}");
        if ran.status == Some(0) {
            kept.push(round);
        }
        for round in &kept {
            let place = format!("@team:/file-{round}");
            assert_eq!(bed.ok(["zone", "cat", &place]), format!("content-{round}"));
        }
    }
    bed.send("a", "write /team/last x");
    assert_eq!(bed.send("b", "read /shared/plans/last"), "x");
}

async fn send(agent: &Agent, text: &str) -> String {
    let report = agent.send(Event::message(text).expect("an event")).await.expect("a turn");
    String::from_utf8(report.reply.expect("a reply")).expect("text")
}

#[test]
fn agents_that_are_awake_see_changes_in_the_middle_of_their_turns() {
    let bed = Bed::new(&["notes"]);
    let host = Host::open(bed.options()).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let component = std::fs::read(guest("notes")).expect("the component");
        let make = async |name: &str, zone: &str| {
            let options =
                AgentOptions { zones: vec![zone.parse().expect("a zone")], ..AgentOptions::default() };
            host.create(&AgentName::new(name).expect("a name"), &component, options).await.expect("an agent")
        };
        let (a, b) = (make("a", "team=/team").await, make("b", "team=/team").await);
        // a turn of b's is under way while a writes, and fails after it has written, too
        let sleeping = {
            let b = b.clone();
            tokio::spawn(async move { b.send(Event::message("sleep 300").expect("an event")).await })
        };
        assert_eq!(send(&a, "write-sync /team/plan one").await, send(&a, "write-sync /team/plan one").await);
        let operator = host.store().expect("the store");
        let id = operator.find_shared("team").expect("a store").expect("a zone");
        assert_eq!(operator.shared_zone(id).expect("a zone").zone(|z| z.usage().bytes), Some(3));
        sleeping.await.expect("a task").expect("a turn");
        assert_eq!(send(&b, "read /team/plan").await, "one");
        let failed = b.send(Event::message("panic").expect("an event")).await;
        assert!(failed.is_err());
        assert_eq!(send(&b, "read /team/plan").await, "one");
    });
    host.close().expect("closed");
}

#[test]
fn what_is_put_into_a_shared_zone_is_seen_under_its_own_name_alone() {
    let bed = team();
    // more than one piece, which commit while it is copied
    let content = vec![7u8; 3 << 20];
    bed.ok(["zone", "quota", "@team", "64M"]);
    let file = bed.file("large", &content);
    let file = file.to_str().expect("a path in UTF-8");
    let kinds = |at: usize| {
        let lines = bed.ok(["zone", "changes", "--json", "a:/team"]);
        let entries = lines.lines().map(|it| serde_json::from_str::<serde_json::Value>(it).expect("JSON"));
        let of_files = entries.filter(|it| it["path"] != "").skip(at);
        of_files.map(|it| (it["kind"].clone(), it["path"].clone())).collect::<Vec<_>>()
    };
    bed.ok(["zone", "put", "@team:/one", file]);
    let first = kinds(0);
    assert_eq!(first, [("create".into(), "one".into())]);
    bed.ok(["zone", "put", "a:/team/one", file]);
    let second = kinds(1);
    assert!(!second.is_empty() && second.iter().all(|(_, path)| path == "one"), "{second:?}");
    assert_eq!(bed.json(["zone", "ls", "@team"]).as_array().map(Vec::len), Some(1));
    assert_eq!(bed.json(["zone", "ls", "@team"])[0]["bytes"], content.len());
    // what cannot have the name leaves nothing
    bed.ok(["zone", "put", "@team:/folder/.", bed.path("").join("store/images").to_str().expect("a path")]);
    let inodes = || bed.json(["zone", "quota", "@team"])["charged_inodes"].clone();
    let before = inodes();
    bed.refused(["zone", "put", "@team:/one/x", file], &[]);
    assert_eq!(before, inodes());
    let limit = bed.refused(
        ["zone", "put", "@team:/huge", bed.file("huge", vec![1; 65 << 20]).to_str().expect("a path")],
        &[],
    );
    assert!(limit.contains("quota"), "{limit}");
    assert_eq!(before, inodes());
}
