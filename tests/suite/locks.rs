//! `dormouse:zones/locks`: among agents that are awake in one process.

use dormouse::{Agent, AgentName, AgentOptions, Event, Host};
use zone_vfs::contract::Principal;
use zone_vfs::id::{Inode, Timestamp};
use zone_vfs::zone::{Access, OpenOptions};

use crate::bed::{Bed, guest};

async fn ask(agent: &Agent, text: &str) -> Result<String, String> {
    let report = agent.send(Event::message(text).expect("an event")).await.expect("a turn");
    report.reply.map(|bytes| String::from_utf8(bytes).expect("text"))
}

/// Lets `work` have two agents that share a zone with the files `x` and `y`, which hold `0`.
fn with_two(work: impl AsyncFnOnce(Agent, Agent)) {
    let bed = Bed::new(&["locks-agent"]);
    let host = Host::open(bed.options()).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let component = std::fs::read(guest("locks-agent")).expect("the component");
        let make = async |name: &str, zone: &str| {
            let options =
                AgentOptions { zones: vec![zone.parse().expect("a zone")], ..AgentOptions::default() };
            host.create(&AgentName::new(name).expect("a name"), &component, options).await.expect("an agent")
        };
        let (a, b) = (make("a", "team=/team").await, make("b", "team=/team").await);
        let store = host.store().expect("the store");
        let team = store.shared_zone(store.find_shared("team").expect("a store").expect("a zone"));
        let access = Access::new(Principal::Host, Timestamp::now());
        let options = OpenOptions { create: true, write: true, ..OpenOptions::default() };
        team.expect("a zone").zone(|zone| {
            for name in [b"x", b"y"] {
                let inode = zone.open(access, Inode::ROOT, name, options).expect("a file");
                zone.append(access, inode, b"0").expect("content");
            }
        });
        work(a, b).await;
    });
    host.close().expect("closed");
}

fn held<T>() -> Result<T, String> {
    Err("held".into())
}

#[test]
fn a_lock_keeps_the_other_out_until_it_is_let_go() {
    with_two(async |a, b| {
        let lock = ask(&a, "lock exclusive /team/x 0").await.expect("a lock");
        assert_eq!(ask(&b, "lock shared /team/x 0").await, held());
        assert_eq!(ask(&b, "lock shared /team/x 20").await, held(), "the time was over");
        ask(&b, "lock exclusive /team/y 0").await.expect("another file");
        let waiting = {
            let b = b.clone();
            tokio::spawn(async move { ask(&b, "lock shared /team/x 60000").await })
        };
        assert_eq!(ask(&a, &format!("held {lock}")).await, Ok("true".into()));
        assert_eq!(ask(&a, &format!("unlock {lock}")).await, Ok("true".into()));
        let shared = waiting.await.expect("a task").expect("a lock");
        assert_eq!(ask(&a, &format!("unlock {lock}")).await, Ok("false".into()));
        // both may read; and one that is shared can become exclusive
        let other = ask(&a, "lock shared /team/x 0").await.expect("a lock");
        assert_eq!(ask(&b, &format!("change {shared} exclusive 0")).await, held());
        ask(&a, &format!("unlock {other}")).await.expect("unlocked");
        ask(&b, &format!("change {shared} exclusive 0")).await.expect("changed");
        assert_eq!(ask(&a, "lock shared /team/x 0").await, held());
        assert!(ask(&a, "lock shared /team/none 0").await.is_err_and(|e| e.contains("NoEntry")));
        assert!(ask(&a, "lock shared /nowhere/x 0").await.is_err_and(|e| e.contains("NoEntry")));
    });
}

#[test]
fn locks_go_when_their_agent_pauses_or_fails_and_a_fork_has_none() {
    with_two(async |a, b| {
        for way in 0..3 {
            let lock = ask(&a, "lock exclusive /team/x 0").await.expect("a lock");
            assert_eq!(ask(&b, "lock exclusive /team/x 0").await, held(), "{way}");
            match way {
                0 => drop(a.pause().await.expect("paused")),
                1 => {
                    let failed = a.send(Event::message("panic").expect("an event")).await;
                    assert!(failed.is_err());
                }
                _ => {
                    let names = [AgentName::new("child").expect("a name")];
                    let child = a.fork(&names, None).await.expect("a fork").remove(0);
                    assert_eq!(ask(&child, &format!("held {lock}")).await, Ok("false".into()));
                    assert_eq!(ask(&child, "lock shared /team/x 0").await, held());
                    a.rewind(zone_vfs::id::GenerationNumber(0)).await.expect("rewound");
                }
            }
            let others = ask(&b, "lock exclusive /team/x 0").await.expect("it is free");
            // the number that memory still has is nobody's
            assert_eq!(ask(&a, &format!("held {lock}")).await, Ok("false".into()), "{way}");
            assert_eq!(ask(&a, &format!("unlock {lock}")).await, Ok("false".into()), "{way}");
            assert_eq!(ask(&a, "lock shared /team/x 0").await, held(), "{way}");
            ask(&b, &format!("unlock {others}")).await.expect("unlocked");
        }
    });
}

#[test]
fn two_that_wait_for_each_other_are_not_left_waiting() {
    with_two(async |a, b| {
        let x = ask(&a, "lock exclusive /team/x 0").await.expect("a lock");
        let y = ask(&b, "lock exclusive /team/y 0").await.expect("a lock");
        let wait = |agent: &Agent, path: &'static str| {
            let agent = agent.clone();
            tokio::spawn(async move { ask(&agent, &format!("lock exclusive {path} 60000")).await })
        };
        let (mut first, mut second) = (wait(&a, "/team/y"), wait(&b, "/team/x"));
        // whoever comes second is refused, and lets the other pass
        let (refused, other, agent, own) = tokio::select! {
            told = &mut first => (told, second, &a, x),
            told = &mut second => (told, first, &b, y),
        };
        assert_eq!(refused.expect("a task"), Err("deadlock".into()));
        ask(agent, &format!("unlock {own}")).await.expect("unlocked");
        other.await.expect("a task").expect("a lock");
    });
}

#[test]
fn nothing_is_lost_between_two_that_count() {
    with_two(async |a, b| {
        let count = |agent: &Agent| {
            let agent = agent.clone();
            tokio::spawn(async move { ask(&agent, "count /team/x 200").await })
        };
        let (first, second) = (count(&a), count(&b));
        let counts = [first.await, second.await].map(|told| told.expect("a task").expect("a count"));
        assert!(counts.contains(&"400".to_string()), "{counts:?}");
    });
}
