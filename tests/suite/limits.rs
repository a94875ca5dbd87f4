//! Limits of agents, changed after they were made; and components that need more than is allowed.

use serde_json::json;

use crate::bed::Bed;

#[test]
fn limits_that_are_set_hold_from_the_next_turn_on() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    let shown = bed.json(["limits", "a"]);
    assert_eq!((&shown["max_memory_bytes"], &shown["max_cpu_seconds"]), (&json!(null), &json!(null)));
    assert_eq!(shown["changed"], false);
    let set = bed.json(["--max-memory", "8M", "limits", "a", "--max-cpu", "5"]);
    assert_eq!((&set["max_memory_bytes"], &set["max_cpu_seconds"]), (&json!(8 << 20), &json!(5.0)));
    assert_eq!(bed.agent("a")["max_memory_bytes"], 8 << 20);
    let ran = bed.run(["send", "a", "grow 50"]);
    assert!(ran.status == Some(1) && ran.err.contains("there is no memory for 50 MiB"), "{ran}");
    // what is not named stays, and one can be taken away
    bed.ok(["limits", "a", "--max-memory", "200M"]);
    assert_eq!(bed.agent("a")["max_cpu_seconds"], 5.0);
    bed.send("a", "grow 50");
    bed.ok(["limits", "a", "--no-max-cpu"]);
    assert_eq!((&bed.agent("a")["max_cpu_seconds"], bed.send("a", "list")), (&json!(null), "1. one".into()));
    // less than the agent has: nothing is changed
    bed.refused(["limits", "a", "--max-memory", "1M"], &["bytes of memory", "are allowed"]);
    for (set, none) in [("--max-memory=1M", "--no-max-memory"), ("--max-cpu=1", "--no-max-cpu")] {
        for flags in [["limits", "a", set, none], [set, "limits", "a", none]] {
            let ran = bed.run(flags);
            assert_eq!(ran.status, Some(2), "{ran}");
            assert!(ran.err.contains("cannot be used with"), "{ran}");
        }
    }
    bed.refused(["limits", "nobody"], &["nobody"]);
    assert_eq!(bed.agent("a")["max_memory_bytes"], 200 << 20);
    // forks begin with them, and the audit log tells
    bed.ok(["fork", "a", "b"]);
    assert_eq!(bed.agent("b")["max_memory_bytes"], 200 << 20);
    let audit = bed.ok(["zone", "cat", "a:/logs/audit"]);
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let limits: Vec<_> = lines.iter().map(|it| (&it["max_memory"], &it["max_cpu"])).collect();
    let (none, five) = (json!(null), json!(5.0));
    let [eight, most] = [json!(8 << 20), json!(200 << 20)];
    assert_eq!(limits, [(&eight, &five), (&most, &five), (&most, &none)]);
    assert!(lines.iter().all(|it| it["what"] == "limits" && it["by"] == "host"), "{audit}");
    // a rewind takes no limit back
    bed.ok(["rewind", "a", "1"]);
    assert_eq!(bed.agent("a")["max_memory_bytes"], 200 << 20);
    bed.ok(["fsck"]);
}

#[test]
fn limits_hold_in_a_host_in_which_the_agent_is_awake() {
    use dormouse::{AgentError, AgentLimits, Event, Host};
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let host = Host::open(bed.options()).expect("the host");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let agent = host.agent("a").expect("the agent");
        let send = async |text: &str| {
            agent.send(Event::message(text).expect("an event")).await.expect("a turn").reply
        };
        send("note one").await.expect("a reply");
        assert!(agent.is_live().await);
        let limits = AgentLimits { memory: Some(8 << 20), cpu: None };
        agent.set_limits(limits).await.expect("limits");
        assert_eq!(agent.own_limits().expect("limits"), limits);
        send("grow 50").await.expect_err("no memory");
        agent.set_limits(AgentLimits::default()).await.expect("limits");
        send("grow 50").await.expect("memory");
        let refused = agent.set_limits(limits).await;
        assert!(matches!(refused, Err(AgentError::MemoryLimit { .. })), "{refused:?}");
        let nothing = AgentLimits { memory: None, cpu: Some(std::time::Duration::ZERO) };
        assert!(matches!(agent.set_limits(nothing).await, Err(AgentError::NoTime)));
        send("list").await.expect("a reply");
    });
}

/// An agent whose memory begins with 2 MiB.
const TEXT: &str = r#"(component
  (core module $m
    (memory (export "memory") 32)
    (func (export "run") (result i32) i32.const 0))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exports)))"#;

#[test]
fn a_component_that_needs_more_memory_than_is_allowed_is_told_how_much() {
    let bed = Bed::empty();
    let text = bed.file("needs.wat", TEXT);
    // its own, and that in which globals are kept
    let needed = (2 << 20) + (64 << 10);
    let told = bed.run(["--max-memory".as_ref(), "1M".as_ref(), "run".as_ref(), text.as_os_str()]);
    told.assert_refused(&[&format!("it needs {needed} bytes of memory, and {} are allowed", 1 << 20)]);
    bed.ok(["--max-memory".as_ref(), "4M".as_ref(), "run".as_ref(), text.as_os_str()]);
}

#[test]
fn a_component_may_be_written_as_text() {
    let bed = Bed::empty();
    let text = bed.file("text.wat", format!(";; a comment first\n{TEXT}"));
    bed.ok(["run".as_ref(), text.as_os_str()]);
    let told = bed.json(["inspect".as_ref(), text.as_os_str()]);
    assert_eq!((&told["kind"], &told["capturable"]), (&json!("component"), &json!(true)), "{told}");
    let binary = bed.file("text.wasm", wat::parse_str(TEXT).expect("a component"));
    let named = |path: &std::path::Path| {
        bed.ok(["run".as_ref(), "--name".as_ref(), "same".as_ref(), path.as_os_str()]);
        bed.json(["generations", "same"])[0]["component_blake3"].clone()
    };
    assert_eq!(named(&text), named(&binary), "it is the same component");
    let wrong = bed.file("wrong.wat", "(component\n  (core module (memory x)))");
    bed.refused(["run".as_ref(), wrong.as_os_str()], &["wrong.wat:2:"]);
    let words = bed.file("words", "a note to myself");
    bed.refused(["run".as_ref(), words.as_os_str()], &["words"]);
}
