//! An agent goes on from memory and from what it holds open. Each `send` is a process of its own, so
//! between any two turns the agent is written out, its process ends, and another one resumes it.

use crate::bed::Bed;

/// Open files, a dictionary, a generator and a directory listing go on, over a pause and in forks.
fn goes_on(component: &str) {
    let bed = Bed::new(&[component]);
    bed.create("a", component);
    assert_eq!(bed.send("a", "remember colour blue"), "remembered colour (1 known)");
    assert_eq!(bed.send("a", "remember shape round"), "remembered shape (2 known)");
    for file in ["one", "two", "three"] {
        bed.send("a", &format!("write /workspace/{file} x"));
    }
    assert_eq!((bed.send("a", "next"), bed.send("a", "next")), ("0".into(), "1".into()));
    assert_eq!(bed.send("a", "line"), "colour=blue");
    let mut entries = vec![bed.send("a", "entry")];
    bed.ok(["pause", "a"]);
    assert_eq!(bed.send("a", "recall colour"), "blue");
    assert_eq!((bed.send("a", "next"), bed.send("a", "next")), ("1".into(), "2".into()));
    assert_eq!(bed.send("a", "line"), "shape=round");

    // so that whoever goes on from here has a generator that is seeded
    let before = bed.send("a", "random");

    // two forks go on from here, and neither the other nor the parent notices
    bed.ok(["fork", "a", "left"]);
    bed.ok(["fork", "a", "right"]);
    assert_eq!(bed.send("left", "next"), "3");
    assert_eq!(bed.send("left", "remember colour red"), "remembered colour (2 known)");
    assert_eq!(bed.send("left", "line"), "colour=red");
    assert_eq!((bed.send("right", "next"), bed.send("right", "next")), ("3".into(), "5".into()));
    assert_eq!(bed.send("right", "recall colour"), "blue");
    assert_eq!(bed.send("right", "line"), "(end)");
    let mut forked = entries.clone();
    for _ in 0..2 {
        entries.push(bed.send("a", "entry"));
        forked.push(bed.send("right", "entry"));
    }
    for mut listing in [entries, forked] {
        listing.sort();
        assert_eq!(listing, ["one", "three", "two"]);
    }
    assert_eq!(bed.send("a", "entry"), "(end)");
    assert_eq!((bed.send("a", "next"), bed.send("a", "line")), ("3".into(), "(end)".into()));
    assert_eq!(bed.send("a", "recall colour"), "blue");
    assert_eq!(bed.ok(["zone", "cat", "a:/memory/episodic/journal.log"]), "colour=blue\nshape=round\n");

    // each draws numbers of its own, the guest's generator included
    let mut drawn: Vec<String> = ["a", "left", "right"].iter().map(|name| bed.send(name, "random")).collect();
    assert!(drawn.iter().all(|it| it.split(' ').count() == 2), "of the host, and of the language: {drawn:?}");
    drawn.push(before);
    let words: std::collections::HashSet<&str> = drawn.iter().flat_map(|d| d.split(' ')).collect();
    assert_eq!(words.len(), drawn.iter().map(|d| d.split(' ').count()).sum::<usize>(), "{drawn:?}");
}

#[test]
fn a_rust_agent_goes_on() {
    goes_on("notes");
}

#[test]
fn a_python_agent_goes_on() {
    goes_on("python-agent");
}

#[test]
fn a_javascript_agent_goes_on() {
    goes_on("js-agent");
}

#[test]
fn a_javascript_agent_on_spidermonkey_goes_on() {
    goes_on("spidermonkey-agent");
}

/// Goes on with each handle, which tells that it is well.
fn use_all(bed: &Bed, agent: &str) {
    let told = bed.send(agent, "use");
    assert!(told.lines().count() >= 9 && told.lines().all(|line| line.starts_with("ok ")), "{told}");
}

#[test]
fn what_a_sleeping_agent_has_open_outlives_its_name() {
    let bed = Bed::new(&["held-handles"]);
    bed.create("held", "held-handles");
    assert_eq!(bed.send("held", "open"), "opened");
    use_all(&bed, "held");
    bed.ok(["zone", "rm", "held:/workspace/held/text"]);
    use_all(&bed, "held");
    bed.ok(["pause", "held"]);
    bed.ok(["zone", "rm", "held:/workspace/held/written"]);
    bed.ok(["fork", "held", "fork"]);
    use_all(&bed, "fork");
    use_all(&bed, "held");
    bed.ok(["rewind", "held", "2"]);
    use_all(&bed, "held");
    bed.ok(["reap"]);
    use_all(&bed, "held");
}

#[test]
fn handles_of_every_kind_go_on() {
    let bed = Bed::new(&["held-handles"]);
    bed.create("held", "held-handles");
    assert_eq!(bed.send("held", "open"), "opened");
    let used = |agent: &str| use_all(&bed, agent);
    used("held");
    used("held");
    bed.ok(["pause", "held"]);
    used("held");
    bed.ok(["fork", "held", "fork"]);
    used("held");
    used("fork");
    used("fork");
    // back to when they had been used once: the listing, the streams and the unlinked file go back
    bed.ok(["rewind", "held", "2"]);
    used("held");
    used("fork");
    used("held");
}

#[test]
fn an_agent_whose_memory_grew_goes_on() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    // much and little by turns, so that the image is made flat and patched again
    for (event, turns) in [("grow 16", 3), ("touch-pages 3", 6), ("grow 5", 9), ("touch-pages 2000", 12)] {
        bed.send("a", event);
        for turn in 0..2 {
            let status = format!("memory=1 journal=1 semantic=1 logs=1 turns={}", turns + turn);
            assert_eq!(bed.send("a", "status"), status, "after {event}");
        }
    }
    bed.ok(["pause", "a"]);
    bed.ok(["fork", "a", "b"]);
    assert_eq!(bed.send("b", "list"), "1. one");
    bed.ok(["rewind", "a", "1"]);
    assert_eq!(bed.send("a", "list"), "1. one");
    bed.send("a", "grow 2");
    assert_eq!(bed.send("a", "list"), "1. one");
}

/// A word of `who`.
fn word(said: &str, name: &str) -> String {
    let start = format!("{name}=");
    let word = said.split_whitespace().find_map(|w| w.strip_prefix(&start));
    word.unwrap_or_else(|| panic!("no {name} in {said}")).into()
}

#[test]
fn an_agent_is_told_who_it_is_and_why_it_starts() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let id = bed.agent("a")["id"].as_str().expect("an id").to_string();
    let first = bed.send("a", "who");
    assert_eq!((word(&first, "id"), word(&first, "name")), (id.clone(), "a".into()));
    assert_eq!((word(&first, "cause"), word(&first, "parent")), ("created".into(), "-".into()));
    let second = bed.send("a", "who");
    assert_eq!((word(&second, "id"), word(&second, "cause")), (id.clone(), "resumed".into()));
    let start = |said: &str| word(said, "generation").parse::<u64>().expect("a number");
    assert!(start(&second) > start(&first), "{first} {second}");
    // also after a start whose turn failed, and in forks
    assert_eq!(bed.run(["send", "a", "panic"]).status, Some(134));
    let third = bed.send("a", "who");
    assert!(start(&third) > start(&second), "{second} {third}");
    bed.ok(["rewind", "a", "2"]);
    bed.ok(["fork", "a", "b"]);
    let fork = bed.send("b", "who");
    assert!(start(&fork) > start(&third), "{third} {fork}");
    assert_eq!((word(&fork, "cause"), word(&fork, "name")), ("forked".into(), "b".into()));
    assert_ne!(word(&fork, "id"), id);
    assert_ne!(word(&fork, "parent"), "-");
    assert_eq!(word(&fork, "turns"), "3");
    bed.ok(["rewind", "a", "1"]);
    let back = bed.send("a", "who");
    assert_eq!((word(&back, "cause"), word(&back, "turns")), ("rewound".into(), "2".into()));
}

#[test]
fn clocks_go_on_and_never_back() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let times = |agent: &str| -> Vec<u128> {
        bed.send(agent, "time").split(' ').map(|t| t.parse().expect("nanoseconds")).collect()
    };
    let mut before = times("a");
    bed.ok(["pause", "a"]);
    bed.ok(["fork", "a", "b"]);
    let fork = times("b");
    assert!(fork[0] > before[0] && fork[1] >= before[1], "{before:?} {fork:?}");
    for _ in 0..3 {
        let now = times("a");
        assert!(now[0] > before[0] && now[1] >= before[1], "{before:?} {now:?}");
        before = now;
    }
}

#[test]
fn an_event_that_comes_again_gets_the_first_reply() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let sent = |agent: &str, id: &str, event: &str| bed.json(["send", "--id", id, agent, event]);
    let first = sent("a", "one", "note one");
    assert_eq!((&first["reply"], &first["repeated"]), (&"kept note 1".into(), &false.into()));
    bed.send("a", "note two");
    // in another process, after other turns: the reply is that of the first time, and no turn was taken
    let again = sent("a", "one", "note one");
    assert_eq!((&again["reply"], &again["repeated"]), (&"kept note 1".into(), &true.into()));
    assert_eq!((&again["turn"], &again["generation"]), (&first["turn"], &first["generation"]));
    assert!(bed.send("a", "status").starts_with("memory=2 journal=2 "));
    // so does an error of the agent's
    let refused = |id: &str| bed.run(["send", "--id", id, "a", "recall nothing"]);
    let (first, again) = (refused("wrong"), refused("wrong"));
    assert_eq!((first.status, &first.err), (Some(1), &again.err), "{first}");
    // a turn that failed has given no reply
    assert_eq!(bed.run(["send", "--id", "two", "a", "panic"]).status, Some(134));
    assert_eq!(sent("a", "two", "note three")["reply"], "kept note 3");
    // nor has one that was rewound
    bed.ok(["rewind", "a", "2"]);
    assert_eq!(sent("a", "two", "note three")["repeated"], false);
    assert_eq!(sent("a", "one", "note one")["repeated"], true);
    // a fork has turns of its own
    bed.ok(["fork", "a", "b"]);
    assert_eq!(sent("b", "one", "list")["repeated"], false);
    bed.refused(["send", "--id", &"x".repeat(1025), "a", "list"], &["at most 1024"]);
}
