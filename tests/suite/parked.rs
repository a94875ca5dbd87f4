//! What stays in memory between turns.

use std::time::{Duration, Instant};

use dormouse::{Agent, AgentName, AgentOptions, Event, Host, HostOptions};

use crate::bed::{Bed, guest};

async fn send(agent: &Agent, text: &str) -> String {
    let report = agent.send(Event::message(text).expect("an event")).await.expect("a turn");
    String::from_utf8(report.reply.expect("a reply")).expect("text")
}

/// Runs `work` with a host over some agents that are alike.
fn with_agents<F: Future<Output = ()>>(
    count: usize,
    options: impl FnOnce(&mut HostOptions),
    work: impl FnOnce(Host, Vec<Agent>) -> F,
) {
    let bed = Bed::new(&["notes"]);
    let mut hosts = bed.options();
    options(&mut hosts);
    let host = Host::open(hosts).expect("the host");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let component = std::fs::read(guest("notes")).expect("the component");
        let mut agents = Vec::new();
        for n in 0..count {
            let name = AgentName::new(&format!("n{n}")).expect("a name");
            let made = host.create(&name, &component, AgentOptions::default()).await;
            agents.push(made.expect("an agent"));
        }
        work(host, agents).await;
    });
}

async fn awake(agents: &[Agent]) -> Vec<usize> {
    let mut awake = Vec::new();
    for (index, agent) in agents.iter().enumerate() {
        if agent.is_live().await {
            awake.push(index);
        }
    }
    awake
}

/// Waits until this many are awake, and no fewer before.
async fn settle(agents: &[Agent], wanted: usize) -> Vec<usize> {
    let begun = Instant::now();
    loop {
        let awake = awake(agents).await;
        assert!(awake.len() >= wanted, "{awake:?}");
        if awake.len() == wanted || begun.elapsed() > Duration::from_secs(20) {
            return awake;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn agents_that_had_their_turn_longest_ago_sleep_where_memory_is_used_up() {
    // each takes 48 KiB and the pages that it has written, a few of them
    with_agents(
        8,
        |options| options.parked_memory = 300 << 10,
        async |_host, agents| {
            for (n, agent) in agents.iter().enumerate() {
                assert_eq!(send(agent, &format!("note {n}")).await, "kept note 1");
            }
            let taken = agents.len();
            let stay = {
                tokio::time::sleep(Duration::from_millis(50)).await;
                awake(&agents).await.len()
            };
            assert!(stay > 1 && stay < taken, "{stay} of {taken} are awake");
            let last: Vec<usize> = (taken - stay..taken).collect();
            assert_eq!(settle(&agents, stay).await, last);
            // nothing is lost, and who is used again stays
            assert_eq!(send(&agents[taken - stay], "list").await, format!("1. {}", taken - stay));
            assert_eq!(send(&agents[0], "list").await, "1. 0");
            let mut now = settle(&agents, stay).await;
            now.retain(|n| *n < taken - stay + 2);
            assert_eq!(now, [0, taken - stay], "the second longest slept");
            for (n, agent) in agents.iter().enumerate() {
                assert_eq!(send(agent, "list").await, format!("1. {n}"));
            }
        },
    );
}

#[test]
fn an_agent_alone_stays_awake_whatever_it_takes() {
    with_agents(
        1,
        |options| options.parked_memory = 0,
        async |_host, agents| {
            send(&agents[0], "grow 8").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(awake(&agents).await, [0]);
        },
    );
}

#[test]
fn slots_are_made_ahead_for_resumes_that_follow_each_other() {
    for slots in [8, 0] {
        with_agents(
            30,
            |options| options.warm_slots = slots,
            async |_host, agents| {
                let mut warm = 0;
                for agent in &agents {
                    warm += usize::from(agent.resume().await.expect("awake").warm);
                    // whoever makes them has the time
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                if slots == 0 { assert_eq!(warm, 0) } else { assert!(warm > 20, "{warm} of 30 found one") }
            },
        );
    }
}
