//! Turns that wait for one another, and turns that are cancelled.

use std::time::{Duration, Instant};

use dormouse::{Agent, AgentError, Event, Host, HostOptions};

use crate::bed::{Bed, guest};

async fn send(agent: &Agent, text: &str) -> Result<String, AgentError> {
    let report = agent.send(Event::message(text)?).await?;
    Ok(String::from_utf8(report.reply.expect("a reply")).expect("text"))
}

fn with_agent(options: impl FnOnce(&mut HostOptions), work: impl AsyncFnOnce(&Host, Agent)) {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let mut opened = bed.options();
    options(&mut opened);
    let host = Host::open(opened).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let agent = host.agent("a").expect("the agent");
        work(&host, agent).await;
    });
    host.close().expect("closed");
}

/// Waits until a turn goes on.
async fn under_way(agent: &Agent) {
    let begun = Instant::now();
    while !agent.disk().is_in_turn() {
        assert!(begun.elapsed() < Duration::from_secs(20), "there is no turn");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until a turn goes on, and cancels it.
async fn cancel(agent: &Agent) {
    let begun = Instant::now();
    while !agent.cancel() {
        assert!(begun.elapsed() < Duration::from_secs(20), "there is no turn");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn turns_are_taken_in_the_order_in_which_they_are_sent() {
    with_agent(
        |_| (),
        async |_, agent| {
            let first = {
                let agent = agent.clone();
                tokio::spawn(async move { send(&agent, "sleep 300").await })
            };
            under_way(&agent).await;
            let mut sent = tokio::task::JoinSet::new();
            for n in 1..=10 {
                let agent = agent.clone();
                sent.spawn(async move { (n, send(&agent, &format!("note {n}")).await) });
                // so that it stands in line before the next
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(first.await.expect("a task").expect("a turn"), "awake");
            while let Some(turn) = sent.join_next().await {
                let (n, reply) = turn.expect("a task");
                assert_eq!(reply.expect("a turn"), format!("kept note {n}"));
            }
        },
    );
}

#[test]
fn no_more_wait_than_may_and_a_turn_that_is_cancelled_makes_room() {
    with_agent(
        |options| options.max_waiting = 2,
        async |_, agent| {
            let spin = {
                let agent = agent.clone();
                tokio::spawn(async move { send(&agent, "spin").await })
            };
            under_way(&agent).await;
            let wait = || {
                let agent = agent.clone();
                tokio::spawn(async move { send(&agent, "note one").await })
            };
            // one of the two stands in line, the other cannot
            let (mut first, mut second) = (wait(), wait());
            let (refused, waiting) = tokio::select! {
                done = &mut first => (done, second),
                done = &mut second => (done, first),
            };
            let refused = refused.expect("a task").expect_err("nobody is refused");
            assert!(matches!(refused, AgentError::TooManyWaiting { limit: 2 }), "{refused}");
            cancel(&agent).await;
            assert!(matches!(spin.await.expect("a task"), Err(AgentError::Cancelled)));
            assert_eq!(waiting.await.expect("a task").expect("a turn"), "kept note 1");
            assert!(!agent.cancel(), "nothing goes on");
            let history = agent.disk().history().expect("the turns");
            let failed = format!("{:?}", history[0].outcome);
            assert!(failed.contains("the turn was cancelled"), "{failed}");
        },
    );
}

#[test]
fn an_agent_is_paused_at_once_though_its_turn_does_not_end() {
    with_agent(
        |_| (),
        async |_, agent| {
            assert_eq!(send(&agent, "note one").await.expect("a turn"), "kept note 1");
            let spin = {
                let agent = agent.clone();
                tokio::spawn(async move { send(&agent, "spin").await })
            };
            under_way(&agent).await;
            // it can be cancelled once its call has begun
            tokio::time::sleep(Duration::from_millis(20)).await;
            let paused = agent.pause_now().await.expect("paused");
            assert_eq!(agent.disk().head(), paused);
            assert!(matches!(spin.await.expect("a task"), Err(AgentError::Cancelled)));
            assert_eq!(send(&agent, "list").await.expect("a turn"), "1. one");
        },
    );
}

/// An agent would not start there until its limits are raised.
#[test]
fn where_memory_is_beyond_the_limits_nobody_goes_back_to() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    bed.ok(["new", "b", guest("notes").to_str().expect("a path")]);
    bed.send("b", "grow 20");
    bed.ok(["rewind", "b", "0"]);
    bed.ok(["limits", "b", "--max-memory", "16M"]);
    bed.refused(["rewind", "b", "1"], &["16777216 are allowed"]);
    bed.refused(["fork", "b", "c", "--at", "1"], &["16777216 are allowed"]);
    assert_eq!(bed.send("b", "list"), "no notes yet");
    bed.ok(["limits", "b", "--max-memory", "64M"]);
    bed.ok(["rewind", "b", "1"]);
}
