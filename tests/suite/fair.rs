//! Guests that compute without end: each is stopped with an error of its own, and the others go on.

use std::time::{Duration, Instant};

use dormouse::{Agent, AgentError, AgentName, AgentOptions, Event, Host, HostOptions};

use crate::bed::{Bed, guest};

/// Agents that spin at once, more than any machine here has cores for.
const SPINNERS: usize = 12;
/// Processor time that each of them gets.
const LIMIT: Duration = Duration::from_secs(1);
/// Turns that another agent takes meanwhile.
const TURNS: usize = 20;

#[test]
fn a_turn_has_so_much_processor_time_and_no_more() {
    let bed = Bed::new(&["notes", "hello-command"]);
    bed.create("a", "notes");
    let words = ["a stands where it stood before", "it used more than 500ms of processor time"];
    bed.refused(["--max-cpu", "0.5", "send", "a", "spin"], &words);
    assert_eq!(bed.send("a", "status"), "memory=0 journal=0 semantic=0 logs=0 turns=1");
    // to sleep is not to compute
    assert_eq!(bed.ok(["--max-cpu", "0.2", "send", "a", "sleep 500"]), "awake");
    // an agent that is made with a limit keeps it, and so do its forks
    bed.ok(["new", "--max-cpu", "0.5", "b", guest("notes").to_str().unwrap()]);
    bed.ok(["fork", "b", "c"]);
    for agent in ["b", "c"] {
        bed.refused(["send", agent, "spin"], &["it used more than 500ms of processor time"]);
        assert_eq!(bed.send(agent, "list"), "no notes yet");
    }
    // the smaller limit holds
    bed.refused(["--max-cpu", "0.2", "send", "b", "spin"], &["it used more than 200ms of processor time"]);
    bed.refused(["--max-cpu", "9", "send", "b", "spin"], &["it used more than 500ms of processor time"]);
    assert_eq!(bed.agent("c")["max_cpu_seconds"], 0.5);
    bed.ok(["run", "--max-cpu", "60", guest("hello-command").to_str().unwrap()]);
}

async fn send(agent: &Agent, text: &str) -> Result<String, AgentError> {
    let report = agent.send(Event::message(text)?).await?;
    Ok(String::from_utf8(report.reply.expect("a reply")).expect("text"))
}

#[test]
fn guests_that_spin_leave_the_others_their_turns() {
    let bed = Bed::new(&["notes"]);
    let options = HostOptions { cpu_time: Some(LIMIT), ..bed.options() };
    let host = Host::open(options).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let component = std::fs::read(guest("notes")).expect("the component");
        let name = |text: String| AgentName::new(&text).expect("a name");
        let busy =
            host.create(&name("busy".into()), &component, AgentOptions::default()).await.expect("an agent");
        let names: Vec<_> = (0..SPINNERS).map(|n| name(format!("spinner-{n}"))).collect();
        let spinners = busy.fork(&names, None).await.expect("the forks");
        let mut spinning = tokio::task::JoinSet::new();
        for spinner in &spinners {
            let spinner = spinner.clone();
            spinning.spawn(async move { send(&spinner, "spin").await });
        }
        let mut took = Vec::new();
        for turn in 1..=TURNS {
            let started = Instant::now();
            assert_eq!(
                send(&busy, &format!("note {turn}")).await.expect("a turn"),
                format!("kept note {turn}")
            );
            took.push(started.elapsed());
        }
        assert!(!spinning.is_empty());
        took.sort();
        println!(
            "{TURNS} turns beside {SPINNERS} spinners: p50 {:?}, most {:?}",
            took[TURNS / 2],
            took[TURNS - 1]
        );
        while let Some(ended) = spinning.join_next().await {
            let ended = ended.expect("a task that ended");
            assert!(matches!(ended, Err(AgentError::CpuTime(LIMIT))), "{ended:?}");
        }
        for spinner in &spinners {
            assert_eq!(send(spinner, "list").await.expect("a turn"), "no notes yet");
        }
    });
}

/// A command that computes without end as it is instantiated, before it is run, where it has arguments.
const STARTS_SPINNING: &str = r#"(component
    (core module $m
        (import "h" "arguments" (func $arguments (param i32)))
        (import "h" "memory" (memory 1))
        (func (export "run") (result i32) i32.const 0)
        (func $begin
            (call $arguments (i32.const 0))
            (if (i32.gt_u (i32.load (i32.const 4)) (i32.const 1)) (then (loop $again (br $again)))))
        (start $begin))
    (core module $memory (memory (export "memory") 1)
        (global $top (mut i32) (i32.const 1024))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $top)
            (global.set $top (i32.add (global.get $top) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))))
    (import "wasi:cli/environment@0.2.0" (instance $environment
        (export "get-arguments" (func (result (list string))))))
    (core instance $i (instantiate $memory))
    (core func $arguments (canon lower (func $environment "get-arguments")
        (memory $i "memory") (realloc (func $i "realloc"))))
    (core instance $n (instantiate $m (with "h" (instance
        (export "arguments" (func $arguments)) (export "memory" (memory $i "memory"))))))
    (func $run (result (result)) (canon lift (core func $n "run")))
    (instance $out (export "run" (func $run)))
    (export "wasi:cli/run@0.2.0" (instance $out)))"#;

#[test]
fn what_is_computed_before_the_first_call_counts_too() {
    let bed = Bed::new(&[]);
    let component = bed.file("spins.wasm", wat::parse_str(STARTS_SPINNING).expect("a component"));
    let component = component.to_str().expect("a path");
    // with its name alone, and for the genesis without even that, it ends at once
    bed.ok(["run", "--max-cpu", "0.3", "--name", "d", component]);
    bed.refused(
        ["run", "--max-cpu", "0.3", "--name", "c", component, "and", "more"],
        &["it used more than 300ms of processor time"],
    );
}
