//! What policies take and leave: pins, old versions, shared zones; and what is derived from zones.

use std::ffi::OsStr;

use dormouse::{AgentName, AgentOptions, Event, Host};
use serde_json::Value;

use crate::bed::{Bed, guest};

/// A command that does what it can, and fails with an error that has these words.
fn fails(bed: &Bed, arguments: &[&str], words: &[&str]) {
    let ran = bed.run(arguments);
    assert_eq!(ran.status, Some(1), "{ran}");
    assert!(words.iter().all(|word| ran.err.contains(word)), "{ran}");
}

/// The generations that are kept, and which of them are pinned.
fn generations(bed: &Bed, agent: &str) -> Vec<(u64, bool)> {
    let all = bed.json(["generations", agent]);
    let all = all.as_array().expect("a list");
    all.iter().map(|it| (it["generation"].as_u64().expect("a number"), it["pinned"] == true)).collect()
}

#[test]
fn a_pinned_generation_is_kept_and_can_be_gone_back_to() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    for note in ["one", "two", "three", "four"] {
        bed.send("a", &format!("note {note}"));
    }
    assert!(bed.ok(["pin", "a", "2"]).contains("pinned"));
    assert_eq!(bed.json(["pin", "a", "2"])["changed"], false);
    bed.refused(["pin", "a", "77"], &["a", "77"]);
    bed.refused(["unpin", "nobody", "1"], &["nobody"]);
    bed.ok(["pause", "a"]);
    let reap = ["reap", "--keep-turns", "0", "--keep-paused", "0", "--thin-paused", "0s", "--budget", "1K"];
    fails(&bed, &reap, &["more than the budget"]);
    assert_eq!(generations(&bed, "a"), [(0, false), (2, true), (5, false)]);
    bed.ok(["rewind", "a", "2"]);
    assert!(bed.send("a", "status").starts_with("memory=2 "));
    bed.ok(["unpin", "a", "2"]);
    bed.ok(["reap", "--keep-turns", "0"]);
    assert!(generations(&bed, "a").iter().all(|(number, pinned)| *number != 2 && !pinned));
}

fn versions(bed: &Bed, place: &str) -> usize {
    let history = bed.json(["zone", "history", place]);
    let entries = history.as_array().expect("a list");
    entries.iter().filter(|it| it["bytes"].as_u64() > Some(0)).count()
}

/// An agent whose fact has five versions, of `1` to `5` times an `x`.
fn five_versions() -> Bed {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    for size in 1..=5 {
        bed.send("a", &format!("write /memory/semantic/fact {}", "x".repeat(size)));
    }
    bed
}

#[test]
fn old_versions_go_as_the_policy_file_says_and_as_options_do() {
    let bed = five_versions();
    bed.ok(["fork", "a", "b"]);
    let policy = bed.store().join("policy.toml");
    std::fs::write(&policy, "versions-older-than = \"0s\"\n[agent.b.zone.semantic]\nkeep-versions = 4\n")
        .expect("a policy");
    let would = bed.json(["reap", "--dry-run"]);
    assert_eq!(would["versions"]["events"], 4 + 1, "{would}");
    assert_eq!(versions(&bed, "a:/memory/semantic/fact"), 5);
    let did = bed.json(["reap"]);
    for what in ["events", "bytes"] {
        assert_eq!(did["versions"][what], would["versions"][what], "{did}");
    }
    assert_eq!(versions(&bed, "a:/memory/semantic/fact"), 1);
    assert_eq!(versions(&bed, "b:/memory/semantic/fact"), 4);
    assert_eq!(bed.ok(["zone", "cat", "a:/memory/semantic/fact"]), "xxxxx");
    // another file, and nobody's; and what the command line says goes before
    let none = bed.file("none.toml", b"");
    let did = bed.json(["reap".as_ref(), "--policy".as_ref(), none.as_os_str()]);
    assert_eq!(did["versions"]["events"], 0);
    let did = bed.json(["reap", "--versions-older-than", "90d"]);
    assert_eq!(did["versions"]["events"], 0);
    std::fs::write(&policy, "keep-version = 3\n").expect("a policy");
    bed.refused(["reap"], &["policy.toml", "keep-version"]);
    std::fs::remove_file(&policy).expect("removed");
    // what was is refused, and not told wrongly
    let history = bed.json(["zone", "history", "b:/memory/semantic/fact"]);
    let then = history[0]["at"].as_str().expect("a time");
    fails(&bed, &["zone", "ls", &format!("b:/memory/semantic/.asof/{then}")], &["reaped"]);
    bed.send("b", "write /memory/semantic/fact new");
    let history = bed.json(["zone", "history", "b:/memory/semantic/fact"]);
    let now = history.as_array().and_then(|all| all.last()).and_then(|it| it["at"].as_str()).expect("a time");
    assert_eq!(bed.send("b", &format!("cat /memory/semantic/.asof/{now}/fact")), "new");
    assert_eq!(bed.json(["fsck"])["findings"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_an_agents_state_is_told_to_be_does_not_change_by_a_reaping() {
    let bed = Bed::new(&["notes"]);
    let put = |name: &str, text: &str| {
        let (file, place) = (bed.file("fact", text), format!("{name}:/memory/semantic/fact"));
        bed.ok(["zone".as_ref(), "put".as_ref(), OsStr::new(&place), file.as_os_str()]);
    };
    for name in ["asleep", "failed", "new", "paused", "rewound"] {
        bed.create(name, "notes");
        put(name, "x");
        put(name, "xx");
    }
    for name in ["asleep", "failed", "paused", "rewound"] {
        bed.send(name, "note one");
    }
    bed.ok(["fork", "asleep", "forked"]);
    bed.ok(["pause", "paused"]);
    bed.ok(["rewind", "rewound", "0"]);
    assert_ne!(bed.run(["send", "failed", "panic"]).status, Some(0));
    let states = || {
        let all = bed.json(["ps"]);
        let all = all.as_array().expect("a list").iter();
        all.map(|it| [&it["name"], &it["state"]].map(|it| it.as_str().expect("text").to_string()))
            .collect::<Vec<_>>()
    };
    let before = states();
    assert_eq!(before.len(), 6);
    assert!(before.iter().all(|[name, state]| name == state), "{before:?}");
    let did = bed.json(["reap", "--versions-older-than", "0s"]);
    assert!(did["versions"]["events"].as_u64() >= Some(6), "{did}");
    for [name, _] in &before {
        let all = bed.json(["generations", name]);
        let last = all.as_array().and_then(|all| all.last()).expect("a generation");
        assert_eq!(last["cause"], "reaped", "{name}: {all}");
    }
    assert_eq!(states(), before);
}

#[test]
fn who_is_only_looked_at_by_a_reaping_stays_out_of_memory() {
    let bed = Bed::new(&["notes"]);
    for name in ["a", "b", "c"] {
        bed.create(name, "notes");
        bed.send(name, "note one");
        bed.ok(["pause", name]);
    }
    // what was not archived behind the turns is now
    with_host(&bed, async |host| {
        host.trim_images(0).await.expect("archived");
        let store = host.store().expect("the store");
        store.checkpoint().expect("a checkpoint");
    });
    with_host(&bed, async |host| {
        let store = host.store().expect("the store");
        assert_eq!(store.agents_in_memory().expect("a number"), 0, "nothing was asked for");
        let policy = host.reap_policy(&dormouse::upkeep::ReapRules::default(), None).expect("a policy");
        let reaped = host.reap(policy, false).await.expect("reaped");
        assert_eq!((reaped.archived, reaped.image_bytes), (0, 0));
        let check = host.check_images(false).await.expect("checked");
        assert!(check.generations >= 6 && check.damage.is_empty(), "{check:?}");
        host.trim_images(0).await.expect("trimmed");
        assert_eq!(store.agents_in_memory().expect("a number"), 0);
    });
    assert!(bed.send("b", "status").starts_with("memory=1 "));
}

#[test]
fn an_old_version_that_a_sleeping_agent_reads_stays() {
    let bed = five_versions();
    let first =
        bed.send("a", "ls /memory/semantic/.versions/fact").lines().next().expect("a version").to_string();
    bed.send("a", &format!("hold /memory/semantic/.versions/fact/{first}"));
    assert_eq!(bed.send("a", "held"), "x");
    bed.ok(["pause", "a"]);
    let did = bed.json(["reap", "--versions-older-than", "0s"]);
    assert_eq!(did["versions"]["events"], 3, "{did}");
    assert_eq!(bed.send("a", "held"), "x");
    bed.send("a", "let-go");
    let did = bed.json(["reap", "--versions-older-than", "0s"]);
    assert_eq!(did["versions"]["events"], 1, "{did}");
    assert_eq!(versions(&bed, "a:/memory/semantic/fact"), 1);
}

#[test]
fn shared_zones_that_nobody_mounts_are_removed_where_that_is_asked_for() {
    let bed = Bed::new(&["notes"]);
    let component = guest("notes");
    bed.ok(["new".as_ref(), "--zone".as_ref(), "team=/team".as_ref(), "a".as_ref(), component.as_os_str()]);
    let did = bed.json(["reap", "--remove-unmounted"]);
    assert_eq!(did["shared_zones"], Value::Array(Vec::new()));
    bed.ok(["rm", "a"]);
    assert_eq!(bed.json(["reap"])["shared_zones"], Value::Array(Vec::new()));
    assert_eq!(bed.json(["reap", "--remove-unmounted"])["shared_zones"][0], "team");
    bed.refused(["zone", "rm-shared", "team"], &["team"]);
}

#[test]
fn an_agent_can_compare_its_generations() {
    let bed = Bed::new(&["zone-history"]);
    bed.create("a", "zone-history");
    bed.send("a", "write /workspace/kept one");
    bed.send("a", "write /workspace/moved two");
    bed.send("a", "write /workspace/kept three");
    bed.send("a", "rename /workspace/moved /workspace/new");
    bed.send("a", "write /workspace/zz last");
    assert_eq!(
        bed.send("a", "diff /workspace 2 -"),
        "DifferenceKind::Changed /workspace/kept 3 5\nDifferenceKind::Renamed(\"/workspace/moved\") /workspace/new 3 3",
        "at most two at a time"
    );
    assert_eq!(
        bed.send("a", "diff /workspace 2 - /workspace/new"),
        "DifferenceKind::Added /workspace/zz - 4"
    );
    assert_eq!(bed.send("a", "diff /workspace/zz 2 -"), "DifferenceKind::Added /workspace/zz - 4");
    assert_eq!(bed.send("a", "diff /workspace 1 1"), "");
    fails(&bed, &["send", "a", "diff /workspace 99 -"], &["no-entry", "99"]);
    fails(&bed, &["send", "a", "diff /nowhere - -"], &["no-entry", "/nowhere"]);
    fails(&bed, &["send", "a", "diff /workspace - - /logs/x"], &["invalid", "another zone"]);
}

/// Lets `work` have a host.
fn with_host(bed: &Bed, work: impl AsyncFnOnce(&Host)) {
    let host = Host::open(bed.options()).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work(&host));
    host.close().expect("closed");
}

#[test]
fn who_waits_for_a_feed_is_woken_by_what_others_write() {
    let bed = Bed::new(&["zone-history"]);
    with_host(&bed, async |host| {
        let component = std::fs::read(guest("zone-history")).expect("the component");
        let make = async |name: &str| {
            let zones = vec!["team=/team".parse().expect("a zone")];
            let options = AgentOptions { zones, ..AgentOptions::default() };
            host.create(&AgentName::new(name).expect("a name"), &component, options).await.expect("an agent")
        };
        let (a, b) = (make("a").await, make("b").await);
        let ask = async |agent: &dormouse::Agent, text: &str| {
            let report = agent.send(Event::message(text).expect("an event")).await.expect("a turn");
            report.reply.map(|bytes| String::from_utf8(bytes).expect("text"))
        };
        assert_eq!(ask(&a, "wait /team 0 0").await, Ok("false".into()));
        assert_eq!(ask(&a, "wait /team 0 30").await, Ok("false".into()), "the time was over");
        let waiting = {
            let a = a.clone();
            tokio::spawn(async move {
                let event = Event::message("wait /team 0 60000").expect("an event");
                a.send(event).await.expect("a turn").reply
            })
        };
        assert_eq!(ask(&b, "write /team/plan one").await, Ok(String::new()));
        assert_eq!(waiting.await.expect("a task"), Ok(b"true".to_vec()));
        assert_eq!(ask(&a, "wait /team 0 60000").await, Ok("true".into()), "it is there already");
        // what a turn writes is committed with it
        ask(&a, "write /workspace/x y").await.expect("written");
        assert_eq!(ask(&a, "wait /workspace 0 60000").await, Ok("true".into()));
        assert_eq!(ask(&a, "wait /workspace 100 0").await, Ok("false".into()));
        assert!(ask(&a, "wait /nowhere 0 0").await.is_err_and(|e| e.starts_with("no-entry")));
    });
}

#[test]
fn what_was_derived_goes_when_something_is_forgotten_and_with_its_agent() {
    let bed = five_versions();
    let derive = |agent: &str| {
        let mut made = None;
        with_host(&bed, async |host| {
            let agent = host.agent(agent).expect("the agent");
            assert!(agent.derived("../out").is_err());
            let index = agent.derived("index").expect("a folder");
            std::fs::write(index.join("words"), b"x xx xxx").expect("written");
            assert_eq!(host.derived_bytes(agent.id()), 8);
            made = Some(index);
        });
        made.expect("a folder")
    };
    let index = derive("a");
    bed.ok(["rewind", "a", "2"]);
    bed.ok(["reap"]);
    assert!(index.join("words").exists(), "neither takes it");
    assert!(bed.ok(["du"]).contains("(derived)"));
    // by the agent, by the operator
    bed.send("a", "write /memory/semantic/other y");
    bed.send("a", "forget /memory/semantic/other");
    assert!(!index.exists());
    derive("a");
    bed.ok(["zone", "forget", "--yes", "a:/memory/semantic/fact"]);
    assert!(!index.exists());
    derive("a");
    bed.ok(["fork", "a", "b"]);
    bed.ok(["rm", "a"]);
    assert!(!index.exists());
    // left behind by a crash between the two
    std::fs::create_dir_all(&index).expect("a folder");
    bed.ok(["reap"]);
    assert!(!index.exists());
    bed.send("b", "versions /memory/semantic/fact");
}

#[test]
fn what_was_derived_from_a_shared_zone_goes_with_what_is_forgotten_there() {
    let bed = Bed::new(&["zone-history"]);
    let path = guest("zone-history");
    for (name, zone) in [("a", Some("team=/team")), ("b", Some("team=/team:ro")), ("c", None)] {
        let mut command = bed.command(["new", name]);
        command.arg(&path).args(zone.map(|it| ["--zone", it]).into_iter().flatten());
        assert_eq!(crate::bed::run(&mut command, b"").status, Some(0));
    }
    bed.send("a", "write /team/secret x");
    let mut derived = Vec::new();
    with_host(&bed, async |host| {
        for name in ["a", "b", "c"] {
            derived.push(host.agent(name).expect("the agent").derived("index").expect("a folder"));
        }
    });
    bed.ok(["zone", "forget", "--dry-run", "@team:/secret"]);
    assert!(derived.iter().all(|it| it.exists()));
    let told = bed.json(["zone", "forget", "--yes", "@team:/secret"]);
    assert_eq!(
        (told["contents"].as_u64(), told["erased_from_files"].as_bool()),
        (Some(1), Some(true)),
        "{told}"
    );
    assert_eq!(derived.iter().map(|it| it.exists()).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn an_agent_that_a_policy_names_and_nobody_made_is_told() {
    let bed = Bed::new(&["notes"]);
    bed.create("scout", "notes");
    std::fs::write(bed.store().join("policy.toml"), "[agent.scuot]\nkeep-turns = 3\n").expect("a policy");
    let mut command = bed.command(["reap"]);
    let ran = crate::bed::run(command.env_remove("DORMOUSE_LOG"), b"");
    assert!(ran.status == Some(0) && ran.err.contains("no agent `scuot`"), "{ran}");
}

#[test]
fn a_policy_that_is_named_has_to_be_there() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.refused(["reap", "--policy", "nowhere.toml"], &["the policy nowhere.toml", "No such file"]);
    // the store's own need not
    bed.ok(["reap"]);
}

#[test]
fn a_zone_that_a_policy_names_and_no_agent_has_is_refused_with_those_that_there_are() {
    let bed = Bed::new(&["notes"]);
    let policy = |text: &str| std::fs::write(bed.store().join("policy.toml"), text).expect("a policy");
    let misspelt = "[zone.facst]\nkeep-versions = 3\n";
    policy(misspelt);
    bed.ok(["reap"]);
    let component = guest("notes");
    for (name, zone) in [("a", "facts=semantic"), ("b", "team=/team")] {
        let new = ["new", "--zone", zone, name].map(OsStr::new);
        bed.ok(new.into_iter().chain([component.as_os_str()]));
    }
    bed.refused(["reap"], &["policy.toml", "zone.facst", "no zone `facst`", "episodic, facts, logs", "team"]);
    bed.refused(["reap", "--dry-run"], &["facst"]);
    policy("[zone.facts]\nkeep-versions = 3\n[zone.semantic]\nkeep-versions = 2\n");
    bed.ok(["reap"]);
    // what one agent has is not what another has
    policy("[agent.b.zone.facts]\nkeep-versions = 3\n");
    let told = bed.refused(["reap"], &["agent.b.zone.facts", "b has no zone `facts`", "workspace"]);
    assert!(!told.contains("episodic, facts"), "{told}");
    policy("[agent.a.zone.facts]\nkeep-versions = 3\n[agent.gone.zone.facst]\nkeep-versions = 3\n");
    bed.ok(["reap"]);
    // a rule that never held for anything
    policy("[zone.procedural]\nkeep-versions = 3\n");
    bed.refused(["reap"], &["zone.procedural", "procedural", "never given back"]);
    policy("[agent.b.zone.team]\nversions-older-than = \"1d\"\n");
    bed.refused(["reap"], &["agent.b.zone.team", "shared", "keeps no versions"]);
}

#[test]
fn a_dry_run_names_the_generations_and_versions_that_would_go() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    for text in ["one", "two", "three"] {
        let file = bed.file("fact", text);
        let file = file.to_str().expect("a path in UTF-8");
        bed.ok(["zone", "put", "a:/memory/semantic/fact", file]);
        bed.send("a", "list");
    }
    let options = ["--keep-turns", "1", "--versions-older-than", "0s"];
    let would = |more: &[&str]| bed.ok(["reap", "--dry-run"].iter().chain(&options).chain(more));
    let before = bed.everything();
    let told = would(&[]);
    assert!(told.contains("a: generations 1-2 would be dropped"), "{told}");
    let versions = told.lines().find(|line| line.starts_with("a:/memory/semantic/fact: events "));
    assert!(versions.is_some_and(|line| line.ends_with(" would go")), "{told}");
    let told: Value = serde_json::from_str(&would(&["--json"])).expect("JSON");
    assert_eq!(told["dropped"], serde_json::json!([{ "agent": "a", "generations": [1, 2] }]), "{told}");
    let of = &told["versions"]["of"][0];
    assert_eq!((&of["agent"], &of["mount"]), (&"a".into(), &"/memory/semantic".into()), "{told}");
    assert_eq!(of["events"][0]["path"], "fact", "{told}");
    assert_eq!(of["events"].as_array().map(|it| it.len() as u64), told["versions"]["events"].as_u64());
    assert_eq!(before, bed.everything());
    let told = bed.ok(["reap"].iter().chain(&options));
    assert!(told.contains("a: generations 1-2 dropped"), "{told}");
}
