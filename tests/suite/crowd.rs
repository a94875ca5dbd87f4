//! A thousand forks of one agent alive in one process.

use std::time::Instant;

use dormouse::{Agent, AgentError, AgentName, AgentOptions, Event, Host, HostOptions};

use crate::bed::{Bed, guest};

/// How many; `DORMOUSE_FORKS` asks for others.
fn forks() -> usize {
    std::env::var("DORMOUSE_FORKS").map_or(1000, |text| text.parse().expect("a number"))
}

/// So many a process may have in a test that has them used up.
const MAPPINGS: u64 = 2_000;

async fn send(agent: &Agent, text: &str) -> String {
    let event = Event::message(text).expect("an event");
    let report = agent.send(event).await.expect("a turn");
    String::from_utf8(report.reply.expect("a reply")).expect("text")
}

/// Bytes of memory that are this process's, shared pages in proportion; where the system tells.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[test]
fn a_thousand_forks_are_alive_and_differ_only_where_they_wrote() {
    let count = forks();
    let bed = Bed::new(&["notes"]);
    let host = Host::open(bed.options()).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let component = std::fs::read(guest("notes")).expect("the component");
        let name = |text: String| AgentName::new(&text).expect("a name");
        let parent =
            host.create(&name("parent".into()), &component, AgentOptions::default()).await.expect("an agent");
        for event in ["note one", "note two", "draft text", "remember colour blue"] {
            send(&parent, event).await;
        }
        let names: Vec<_> = (0..count).map(|n| name(format!("fork-{n}"))).collect();
        let started = Instant::now();
        let forks = parent.fork(&names, None).await.expect("the forks");
        let forked = started.elapsed();
        assert_eq!(forks.len(), count);
        let before = memory();
        let started = Instant::now();
        for fork in &forks {
            fork.resume().await.expect("a fork alive");
        }
        let resumed = started.elapsed();
        let each = memory().zip(before).map(|(after, before)| after.saturating_sub(before) / count as u64);
        println!("{count} forks: {forked:?}; all resumed, cold: {resumed:?}; PSS of each: {each:?} bytes");

        // some go ways of their own
        let differs = |n: usize| n % 97 == 5;
        for (n, fork) in forks.iter().enumerate().filter(|(n, _)| differs(*n)) {
            assert_eq!(send(fork, &format!("note of fork {n}")).await, "kept note 3");
            send(fork, &format!("remember colour number-{n}")).await;
            send(fork, "draft more").await;
        }
        for (n, fork) in forks.iter().enumerate() {
            assert!(fork.is_live().await, "fork {n} went to sleep");
            let (status, list) = if differs(n) {
                let status = "memory=3 journal=5 semantic=3 logs=1 turns=8";
                (status, format!("1. one\n2. two\n3. of fork {n}"))
            } else {
                ("memory=2 journal=3 semantic=2 logs=0 turns=5", "1. one\n2. two".into())
            };
            assert_eq!(send(fork, "status").await, status, "fork {n}");
            assert_eq!(send(fork, "list").await, list, "fork {n}");
        }
        for n in [0, 5, 6, count - 1] {
            let colour = if differs(n) { format!("number-{n}") } else { "blue".into() };
            assert_eq!(send(&forks[n], "recall colour").await, colour);
            let draft = if differs(n) { "text\nmore\n" } else { "text\n" };
            assert_eq!(send(&forks[n], "draft").await, draft);
        }
        println!("{:#?}", host.process_limits().expect("the limits"));
        assert_eq!(send(&parent, "status").await, "memory=2 journal=3 semantic=2 logs=2 turns=5");
    });
    host.close().expect("the host closes");
    // and all of them are there in another process
    assert_eq!(bed.json(["ps"]).as_array().map(Vec::len), Some(count + 1));
    assert_eq!(bed.send("fork-5", "list"), "1. one\n2. two\n3. of fork 5");
    assert_eq!(bed.send(&format!("fork-{}", count - 1), "list"), "1. one\n2. two");
}

/// In a process of its own: the mappings of others count.
#[test]
fn agents_go_to_sleep_before_the_process_has_no_mappings_left() {
    let this = std::env::current_exe().expect("this program");
    let alone = ["--ignored", "--exact", "crowd::agents_go_to_sleep_in_a_process_of_their_own"];
    let ran = std::process::Command::new(this).args(alone).output().expect("a process");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "another test runs it, alone in its process"]
fn agents_go_to_sleep_in_a_process_of_their_own() {
    let bed = Bed::new(&["notes"]);
    let host = Host::open(HostOptions { mappings: Some(MAPPINGS), warm_slots: 0, ..bed.options() });
    let host = host.expect("the host");
    let mappings = || {
        let limits = host.process_limits().expect("the limits");
        limits.iter().find(|limit| limit.what == "memory mappings").expect("mappings").used
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let component = std::fs::read(guest("notes")).expect("the component");
        let name = |text: String| AgentName::new(&text).expect("a name");
        let parent =
            host.create(&name("parent".into()), &component, AgentOptions::default()).await.expect("an agent");
        send(&parent, "note one").await;
        let names: Vec<_> = (0..1_000).map(|n| name(format!("fork-{n}"))).collect();
        let forks = parent.fork(&names, None).await.expect("the forks");
        let mut most = 0;
        for fork in &forks {
            fork.resume().await.expect("a fork alive, though others went to sleep for it");
            most = most.max(mappings());
        }
        assert!(most > MAPPINGS * 4 / 5 && most < MAPPINGS, "{most} at most");
        assert_eq!(send(&forks[0], "list").await, "1. one", "one that sleeps comes back");
    });
}

#[test]
fn an_agent_for_which_there_is_no_mapping_left_is_refused_with_the_remedy() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let few = HostOptions { mappings: Some(20), ..bed.options() };
    runtime.block_on(async {
        let host = Host::open(few).expect("the host");
        let refused = host.agent("n").expect("n").resume().await;
        assert!(matches!(refused, Err(AgentError::Mappings { limit: 20, .. })), "{refused:?}");
        host.close().expect("closed");
        let host = Host::open(bed.options()).expect("the host");
        host.agent("n").expect("n").resume().await.expect("alive");
    });
}
