//! Turns that are over, taken again from their journal: they come to the same, and nothing of the agent changes.

use crate::bed::Bed;

/// Replays the last turn; what is told of it.
fn replay(bed: &Bed, agent: &str) -> serde_json::Value {
    let told = bed.json(["replay", agent]);
    assert_eq!((&told["matches"], &told["compared"]), (&true.into(), &true.into()), "{told}");
    told
}

/// Turns that look at clocks, draw random numbers, keep files open, list folders and write to every zone.
fn replays(component: &str) {
    let bed = Bed::new(&[component]);
    bed.create("a", component);
    let events = [
        "remember colour blue",
        "remember shape round",
        "write /workspace/one x",
        "write /workspace/two y",
        "write /memory/semantic/fact it rains",
        "entry",
        "line",
        "random",
        "next",
        "entry",
        "recall colour",
        "remember colour red",
    ];
    for event in events {
        let reply = bed.send("a", event);
        let before = bed.json(["ps"]);
        let told = replay(&bed, "a");
        assert!(told["calls"].as_u64().unwrap() > 0 || told["facts"] == 0, "{event}: {told}");
        assert_eq!(bed.json(["ps"]), before, "{event}: {reply}");
    }
    // also what lies further back, and across pauses and rewinds
    bed.ok(["pause", "a"]);
    bed.send("a", "random");
    replay(&bed, "a");
    bed.ok(["rewind", "a", "3"]);
    bed.send("a", "random");
    replay(&bed, "a");
    for turn in 1..=events.len() {
        let told = bed.json(["replay", "a", "--turn", &turn.to_string()]);
        assert_eq!(told["matches"], true, "{told}");
    }
    assert_eq!(bed.json(["fsck"])["findings"], serde_json::json!([]));
    let told = bed.ok(["replay", "a", "--turn", "1"]);
    assert!(told.starts_with("turn 1 of a, from generation 0: ") && told.contains("\nmatches; "), "{told}");
}

#[test]
fn turns_of_a_rust_agent_replay() {
    replays("notes");
}

#[test]
fn turns_of_a_python_agent_replay() {
    replays("python-agent");
}

#[test]
fn turns_of_a_javascript_agent_replay() {
    replays("js-agent");
}

#[test]
fn turns_of_an_agent_on_spidermonkey_replay() {
    replays("spidermonkey-agent");
}

#[test]
fn a_turn_that_failed_replays_too() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note kept");
    let failed = bed.run(["send", "a", "panic"]);
    assert_eq!(failed.status, Some(134), "{failed}");
    let told = bed.json(["replay", "a"]);
    assert_eq!((&told["turn"], &told["matches"]), (&2.into(), &true.into()), "{told}");
}

/// Locks, and files of a zone that another writes to meanwhile, come from the journal.
#[test]
fn what_depended_on_others_is_told_again_as_it_was() {
    let bed = Bed::new(&["notes", "locks-agent"]);
    let notes = crate::bed::guest("notes");
    let notes = notes.to_str().unwrap();
    bed.ok(["new", "a", "--zone", "team=/shared", notes]);
    bed.ok(["new", "b", "--zone", "team=/shared", notes]);
    bed.send("a", "write /shared/plan first");
    assert_eq!(bed.send("b", "read /shared/plan"), "first");
    bed.send("a", "write /shared/plan second, which is longer");
    bed.send("a", "write /shared/more x");
    let told = replay(&bed, "b");
    assert!(told["facts"].as_u64().unwrap() > 1, "{told}");
    assert_eq!(bed.send("b", "ls /shared"), "more\nplan");
    bed.ok(["zone", "rm", "@team:more"]);
    replay(&bed, "b");
    replay(&bed, "a");
    assert_eq!(bed.send("a", "read /shared/plan"), "second, which is longer");
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let bed = Bed::new(&["notes", "hello-command"]);
    bed.create("a", "notes");
    bed.refused(["replay", "a"], &["turn 0 cannot be replayed", "no such turn"]);
    bed.send("a", "note one");
    bed.refused(["replay", "a", "--turn", "2"], &["turn 2", "no such turn"]);
    let file = bed.file("new", "x");
    bed.ok(["zone", "put", "a:/workspace/new", file.to_str().unwrap()]);
    bed.send("a", "read /workspace/new");
    bed.refused(["replay", "a"], &["an operator"]);
    bed.guest("hello-command", []);
    bed.refused(["replay", "hello-command"], &["it is a run"]);
}

#[test]
fn a_log_tells_what_happened_in_order() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note buy milk");
    bed.ok(["send", "a", "--id", "tea-1", "note buy tea"]);
    bed.run(["send", "a", "panic"]);
    bed.ok(["pause", "a"]);
    bed.ok(["rewind", "a", "1"]);
    bed.run(["send", "a", "nothing such"]);
    let lines = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let all = ["log", "a", "--json"].into_iter().chain(arguments.iter().copied());
        bed.ok(all).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let kinds = |arguments: &[&str]| -> Vec<String> {
        lines(arguments).iter().map(|it| it["kind"].as_str().unwrap().to_string()).collect()
    };
    let all = ["created", "message", "message", "message", "paused", "rewound", "message"];
    assert_eq!(kinds(&[]), all);
    let told = lines(&["--kind", "message"]);
    assert_eq!(told[0]["payload"], "note buy milk");
    assert_eq!((&told[1]["id"], &told[1]["turn"]), (&"tea-1".into(), &2.into()));
    assert!(told[2]["failed"].as_str().unwrap().starts_with("the turn failed"), "{}", told[2]);
    assert!(told[3]["error"].as_str().unwrap().contains("not a command"), "{}", told[3]);
    assert_eq!(lines(&["--kind", "rewound"])[0]["rewound_to"], 1);
    assert_eq!(kinds(&["--text", "tea"]), ["message"]);
    assert_eq!(kinds(&["-n", "2"]), ["rewound", "message"]);
    assert_eq!(kinds(&["--kind", "paused", "--kind", "created"]), ["created", "paused"]);
    let second = lines(&["--text", "tea"])[0]["at"].as_str().unwrap().to_string();
    assert_eq!(kinds(&["--until", &second]), all[..3]);
    assert_eq!(kinds(&["--since", &second]), all[2..]);
    assert_eq!(kinds(&["--since", "1h"]), all);
    let table = bed.ok(["log", "a"]);
    assert!(table.starts_with("  TURN  TIME") && table.contains("\"note buy tea\" -> "), "{table}");
    let wrong = bed.run(["log", "a", "--since", "yesterday"]);
    assert_eq!(wrong.status, Some(2), "{wrong}");
    // the agent is told the same
    let past = bed.send("a", "past");
    let words: Vec<_> = past.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(words, all);
    let about_tea = bed.send("a", "past tea");
    assert!(
        about_tea.starts_with("2 message note buy tea -> kept note 2\n5 message past -> "),
        "{about_tea}"
    );
    replay(&bed, "a");
}

#[test]
fn a_trace_tells_the_calls_of_a_turn() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "write-sync /workspace/file text");
    let told = bed.json(["trace", "a", "1"]);
    let calls: Vec<_> =
        told["facts"].as_array().unwrap().iter().filter_map(|it| it["call"].as_str()).collect();
    assert!(["open", "write", "sync"].iter().all(|call| calls.contains(call)), "{told}");
    assert_eq!(told["facts"][0]["generation"], 0);
    assert!(bed.ok(["trace", "a", "1"]).contains("`sync`"));
    bed.refused(["trace", "a", "7"], &["no turn 7"]);
}
