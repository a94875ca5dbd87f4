//! Versions of files in semantic memory, and the change feed: as the operator and as the agent see them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::bed::Bed;

const FACTS: &str = "/memory/semantic/facts";

fn history(bed: &Bed, place: &str) -> Vec<Value> {
    bed.json(["zone", "history", place]).as_array().cloned().unwrap_or_default()
}

fn kinds(versions: &[Value]) -> Vec<String> {
    versions.iter().map(|v| v["kind"].as_str().unwrap_or_default().to_string()).collect()
}

fn number(version: &Value) -> String {
    version["version"].to_string()
}

/// An agent that has written its facts three times.
fn three_versions() -> Bed {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    for text in ["one", "two", "three"] {
        bed.send("a", &format!("write {FACTS} {text}"));
    }
    bed
}

#[test]
fn every_close_is_a_version_and_old_ones_stay_readable() {
    let bed = three_versions();
    let versions = history(&bed, "a:/memory/semantic/facts");
    assert_eq!(kinds(&versions), ["create", "publish", "publish"], "{versions:?}");
    assert_eq!(versions[2]["current"], true);
    assert_eq!(versions[0]["file"], versions[2]["file"]);
    assert_eq!(versions[1]["by"], "agent");
    assert_ne!(versions[0]["hash"], versions[1]["hash"]);
    // the agent sees the same, by WIT and as files
    let told = bed.send("a", &format!("versions {FACTS}"));
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.lines().nth(2).is_some_and(|line| line.ends_with("current")), "{told}");
    assert_eq!(bed.send("a", &format!("read {FACTS} {}", number(&versions[0]))), "one");
    let names = bed.send("a", "ls /memory/semantic/.versions/facts");
    let times: Vec<&str> = names.lines().collect();
    assert_eq!(times.len(), 3, "{names}");
    assert_eq!(bed.send("a", &format!("cat /memory/semantic/.versions/facts/{}", times[1])), "two");
    assert_eq!(bed.ok(["zone", "cat", &format!("a:/memory/semantic/.versions/facts/{}", times[0])]), "one");
    let then = versions[1]["at"].as_str().expect("a time");
    assert_eq!(bed.ok(["zone", "cat", &format!("a:/memory/semantic/.asof/{then}/facts")]), "two");
    let listed = bed.send("a", "ls /memory/semantic");
    assert!(!listed.contains(".versions") && !listed.contains(".asof"), "{listed}");
    let refused = bed.run(["send", "a", &format!("write /memory/semantic/.versions/facts/{} x", times[0])]);
    assert!(refused.status == Some(1) && refused.err.contains("Read-only"), "{refused}");
}

#[test]
fn a_rollback_is_a_new_version_and_brings_back_what_was_deleted() {
    let bed = three_versions();
    let first = number(&history(&bed, "a:/memory/semantic/facts")[0]);
    let made = bed.json(["zone", "rollback", "a:/memory/semantic/facts", &first]);
    assert_eq!(made["rolled_back_to"].to_string(), first);
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "one");
    assert_eq!(bed.send("a", &format!("current {FACTS}")), format!("Some({})", made["version"]));
    // only if nobody was faster
    bed.refused(
        ["zone", "rollback", "a:/memory/semantic/facts", &first, "--expect", &first],
        &["facts: the file has changed: it is at version"],
    );
    let none = "no version 999 of a:/memory/semantic/facts; `dormouse zone history a:/memory/semantic/facts`";
    bed.refused(["zone", "rollback", "a:/memory/semantic/facts", "999"], &[none]);
    let refused = bed.run(["send", "a", &format!("rollback {FACTS} {first} {first}")]);
    assert!(refused.status == Some(1) && refused.err.contains("changed: "), "{refused}");
    let refused = bed.run(["send", "a", &format!("remove {FACTS} {first}")]);
    assert!(refused.status == Some(1) && refused.err.contains("changed: "), "{refused}");

    bed.send("a", &format!("remove {FACTS} {}", made["version"]));
    bed.refused(["zone", "cat", "a:/memory/semantic/facts"], &["facts"]);
    assert_eq!(bed.send("a", "removed /memory/semantic"), FACTS);
    assert_eq!(bed.json(["zone", "deleted", "a:/memory/semantic"])[0]["path"], "facts");
    let versions = history(&bed, "a:/memory/semantic/facts");
    let before = versions[0]["file"].clone();
    assert_eq!(kinds(&versions).last().map(String::as_str), Some("tombstone"), "{versions:?}");
    let back = bed.send("a", &format!("rollback {FACTS} {}", number(&versions[2])));
    assert!(back.parse::<u64>().is_ok(), "{back}");
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "three");
    assert_eq!(history(&bed, "a:/memory/semantic/facts")[0]["file"], before);
}

#[test]
fn what_a_name_stood_for_before_is_told_and_can_be_brought_back() {
    let bed = three_versions();
    let place = "a:/memory/semantic/facts";
    let old = history(&bed, place);
    bed.ok(["zone", "rm", place]);
    bed.send("a", &format!("write {FACTS} another"));
    let all = history(&bed, place);
    assert_eq!(kinds(&all), ["create", "publish", "publish", "tombstone", "create"], "{all:?}");
    assert_eq!((&all[0]["file"], &all[4]["current"]), (&old[0]["file"], &true.into()), "{all:?}");
    let other = all[4]["file"].clone();
    assert_ne!(other, old[0]["file"]);
    assert_eq!(
        bed.json(["zone", "history", place, "--after", &number(&all[1]), "--limit", "2"]),
        Value::from(all[2..4].to_vec())
    );
    // as the agent sees it
    let told = bed.send("a", &format!("versions {FACTS}"));
    assert_eq!(told.lines().count(), 5, "{told}");
    assert_eq!(bed.send("a", &format!("read {FACTS} {}", number(&all[1]))), "two");
    // the file that is there has that content now
    bed.refused(
        ["zone", "rollback", place, &number(&all[1]), "--expect", &number(&all[0])],
        &["the file has changed: it is at version"],
    );
    bed.ok(["zone", "rollback", place, &number(&all[1])]);
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "two");
    bed.send("a", &format!("rollback {FACTS} {}", number(&all[2])));
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "three");
    let now = history(&bed, place);
    assert_eq!((now.len(), &now[6]["file"], &now[6]["current"]), (7, &other, &true.into()), "{now:?}");
    // and keeps it when the earlier file is forgotten with everything that it was
    bed.ok(["zone", "rm", place]);
    bed.ok(["zone", "rollback", place, &number(&all[0])]);
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "one");
    bed.ok(["fsck"]);
}

#[test]
fn a_temporary_file_that_is_renamed_over_its_target_is_one_version_of_it() {
    let bed = three_versions();
    bed.send("a", "write /memory/semantic/facts.tmp four");
    bed.send("a", "unlink /memory/semantic/facts.tmp");
    let one_turn = bed.json(["zone", "history", "a:/memory/semantic/facts"]);
    assert_eq!(one_turn.as_array().map(Vec::len), Some(3), "{one_turn}");
    bed.send("a", "write /memory/semantic/facts.new five");
    bed.send("a", "rename /memory/semantic/facts.new /memory/semantic/facts");
    let versions = history(&bed, "a:/memory/semantic/facts");
    assert_eq!(versions.len(), 4, "{versions:?}");
    assert_eq!(versions[3]["file"], versions[0]["file"], "{versions:?}");
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "five");
}

#[test]
fn the_last_writer_publishes_whoever_still_reads() {
    let bed = three_versions();
    assert_eq!(bed.send("a", &format!("write-beside-a-reader {FACTS} four")), "4");
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "four");
    assert_eq!(history(&bed, "a:/memory/semantic/facts").len(), 4);
}

#[test]
fn a_rewind_keeps_the_history_and_numbers_go_on() {
    let bed = three_versions();
    let last = history(&bed, "a:/memory/semantic/facts")[2]["version"].as_u64();
    bed.ok(["rewind", "a", "1"]);
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "one");
    bed.send("a", &format!("write {FACTS} another"));
    let versions = history(&bed, "a:/memory/semantic/facts");
    assert!(versions.last().is_some_and(|v| v["version"].as_u64() > last), "{versions:?}");
    let third = versions.iter().find(|v| v["version"].as_u64() == last).map(number).expect("the third");
    assert_eq!(bed.send("a", &format!("read {FACTS} {third}")), "three");
    bed.ok(["zone", "rollback", "a:/memory/semantic/facts", &third]);
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "three");
}

#[test]
fn the_feed_tells_what_commits_did() {
    let bed = three_versions();
    let told = bed.send("a", "changes /memory/semantic 0");
    assert!(told.lines().count() >= 4 && told.contains(FACTS), "{told}");
    let lines = |after: &str| -> Vec<Value> {
        let text = bed.ok(["zone", "changes", "a:/memory/semantic", "--after", after, "--json"]);
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = lines("0");
    let of_facts: Vec<_> = all.iter().filter(|c| c["path"] == "facts").collect();
    assert_eq!(of_facts.len(), 3, "{all:?}");
    assert_eq!(of_facts[2]["kind"], "publish");
    let last = all.last().expect("an entry")["sequence"].to_string();
    assert!(lines(&last).is_empty());

    // somebody follows it while another process works
    let mut command =
        bed.command(["zone", "changes", "a:/memory/semantic", "--after", &last, "--follow", "--json"]);
    let mut follower = command.stdout(Stdio::piped()).spawn().expect("the program");
    let retry = |event: &str| loop {
        // the follower has the store open now and then
        let ran = bed.run(["send", "a", event]);
        if ran.status == Some(0) {
            break;
        }
        assert!(ran.err.contains("in use") || ran.err.contains("open"), "{ran}");
    };
    retry(&format!("write {FACTS} four"));
    let mut line = String::new();
    let mut output = BufReader::new(follower.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    let change: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&change["path"], &change["kind"]), (&"facts".into(), &"publish".into()), "{line}");
    // nobody reads any more, and nothing comes that it could learn that from
    drop(output);
    follower.wait().expect("it ends");
    let followed = ["zone", "changes", "a:/memory/semantic", "--follow", "--limit", "2", "--json"];
    assert_eq!(bed.ok(followed).lines().count(), 2);
}

#[test]
fn writing_and_removing_can_be_made_conditional_on_the_version_that_was_seen() {
    let bed = three_versions();
    let (place, versions) =
        ("a:/memory/semantic/facts", history(&three_versions(), "a:/memory/semantic/facts"));
    let (first, last) = (number(&versions[0]), number(&versions[2]));
    let text = bed.file("text", "four");
    let put = |expect: &str, place: &str| {
        let mut put = bed.command(["zone", "put", "--expect", expect, place]);
        crate::bed::run(put.arg(&text), b"")
    };
    put(&first, place).assert_refused(&["has changed: it is at version"]);
    put("none", place).assert_refused(&["has changed: it is at version"]);
    put(&last, "a:/memory/semantic/other").assert_refused(&["no such file"]);
    put(&last, "a:/workspace/other").assert_refused(&["have no versions"]);
    assert_eq!(put(&last, place).status, Some(0));
    assert_eq!(put("none", "a:/workspace/other").status, Some(0));
    put("none", "a:/workspace/other").assert_refused(&["is there"]);
    assert_eq!(bed.ok(["zone", "cat", place]), "four");
    bed.refused(["zone", "rm", "--expect", &last, place], &["has changed: it is at version"]);
    let now = number(history(&bed, place).last().expect("a version"));
    // the agent, by a rename
    bed.send("a", "write /memory/semantic/facts.new five");
    let rename = |expected: &str| {
        bed.run(["send", "a", &format!("rename-if /memory/semantic/facts.new {FACTS}{expected}")])
    };
    for stale in [format!(" {last}"), String::new()] {
        let refused = rename(&stale);
        assert!(
            refused.status == Some(1) && refused.err.contains("changed: the file has changed"),
            "{refused}"
        );
    }
    assert_eq!(rename(&format!(" {now}")).status, Some(0));
    assert_eq!(bed.send("a", &format!("cat {FACTS}")), "five");
    let now = number(history(&bed, place).last().expect("a version"));
    bed.ok(["zone", "rm", "--expect", &now, place]);
    // nothing has the name now
    bed.send("a", "write /memory/semantic/facts.new six");
    assert_eq!(rename("").status, Some(0));
}

#[test]
fn zones_that_keep_no_versions_say_so() {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    bed.send("a", "write /workspace/file one");
    bed.refused(["zone", "history", "a:/workspace/file"], &["keeps no versions"]);
    let refused = bed.run(["send", "a", "versions /workspace/file"]);
    assert!(refused.status == Some(1) && refused.err.contains("unsupported: "), "{refused}");
    let refused = bed.run(["send", "a", "versions /nowhere/file"]);
    assert!(refused.status == Some(1) && refused.err.contains("no-entry: "), "{refused}");
    // the feed is there all the same
    let told = bed.send("a", "changes /workspace 0");
    assert!(told.contains("/workspace/file"), "{told}");
}

#[test]
fn names_that_are_gone_are_told_page_by_page() {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    let path = |n: usize| format!("/memory/semantic/{n}");
    for n in 0..5 {
        bed.send("a", &format!("write {} x", path(n)));
    }
    for n in [3, 0, 4, 1, 2] {
        bed.send("a", &format!("unlink {}", path(n)));
    }
    let page = |all: &[usize]| all.iter().map(|n| path(*n)).collect::<Vec<_>>();
    let pages = [page(&[0, 1]).join(" "), page(&[2, 3]).join(" "), path(4)];
    assert_eq!(bed.send("a", "removed-in-pages /memory/semantic 2"), pages.join("\n"));
    assert_eq!(bed.send("a", "removed /memory/semantic"), page(&[0, 1, 2, 3, 4]).join("\n"));
    // one that has come back is still a place to go on after
    let gone = bed.json(["zone", "deleted", "a:/memory/semantic"]);
    let number = gone[2]["version"].to_string();
    let versions = history(&bed, "a:/memory/semantic/2");
    bed.ok(["zone", "rollback", "a:/memory/semantic/2", &versions[0]["version"].to_string()]);
    assert_eq!(
        bed.send("a", &format!("removed-after /memory/semantic {number}")),
        page(&[3, 4]).join("\n"),
        "{gone}"
    );
    let refused = bed.run(["send", "a", "removed-after /memory/semantic 999999"]);
    assert!(refused.status == Some(1) && refused.err.contains("no-entry: "), "{refused}");
}
