//! Images behind the turns: most turns end without one, and after `kill -9` they are run again from their facts, to the
//! same memory, with nothing told twice.

use std::io::Write;
use std::time::{Duration, Instant};

use dormouse::{Agent, AgentError, Event, Host, HostOptions, ImagePolicy};
use rustix::process::Signal;
use zone_vfs::id::GenerationNumber;
use zone_vfs::store::{Cause, Generation, NewGeneration, TurnStyle, wait};

use crate::bed::{Bed, PROGRAM, Running, guest, random};

/// No image behind any turn that the tests take.
const NEVER: ImagePolicy = ImagePolicy { turns: 128, replay: Duration::MAX };

/// A process that takes turns with an image behind so many.
fn taking(bed: &Bed, turns: u32) -> Running {
    let mut command = std::process::Command::new(PROGRAM);
    Running::start(command.arg("take-turns").arg(bed.store()).arg("a").arg(turns.to_string()))
}

/// Has it take one turn; the reply.
fn take(taking: &mut Running, event: &str) -> String {
    let input = taking.input.as_mut().expect("its input");
    writeln!(input, "{event}").expect("a line for it");
    let line = taking.line().unwrap_or_else(|| panic!("{event}: it ended"));
    let reply = line.strip_prefix("Ok(\"").and_then(|it| it.strip_suffix("\")"));
    reply.unwrap_or_else(|| panic!("{event}: {line}")).to_owned()
}

fn kill(taking: Running) {
    taking.signal(Signal::KILL);
    let ran = taking.end();
    assert_eq!((ran.status, ran.err.as_str()), (None, ""), "{ran}");
}

/// What is done in this process to the agent `a`.
fn with_agent<T>(bed: &Bed, images: ImagePolicy, work: impl AsyncFnOnce(&Host, &Agent) -> T) -> T {
    let host = Host::open(HostOptions { images, ..bed.options() }).expect("the host");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.expect("a runtime").block_on(async {
        let agent = host.agent("a").expect("the agent");
        work(&host, &agent).await
    });
    host.close().expect("closed");
    done
}

async fn send(agent: &Agent, event: &str) -> String {
    let report = agent.send(Event::message(event).expect("an event")).await.expect("a turn");
    String::from_utf8(report.reply.expect("a reply")).expect("text")
}

/// How many generations lie beneath the last one until one that stands by itself.
fn depth(generations: &[Generation]) -> usize {
    let find =
        |number| generations.iter().find(|it| it.number == number).expect("what one stands on is kept");
    let mut at = generations.last();
    let mut depth = 0;
    while let Some(on) = at.and_then(|it| it.on) {
        depth += 1;
        at = Some(find(on));
    }
    depth
}

/// Turns that look at clocks, draw random numbers, keep files open, list folders and write to every zone: a process that
/// takes them is killed, and memory is afterwards as that process had it.
fn are_run_again(component: &str) {
    let bed = Bed::new(&[component]);
    bed.create("a", component);
    let events = [
        "remember colour blue",
        "write /workspace/one x",
        "write /memory/semantic/fact it rains",
        "entry",
        "line",
        "random",
        "next",
        "entry",
        "remember shape round",
        "next",
    ];
    // of a sequence that lives in memory alone
    for (round, numbers) in [["0", "1", "1"], ["2", "3", "5"]].iter().enumerate() {
        let mut running = taking(&bed, 128);
        let replies: Vec<String> = events.iter().map(|event| take(&mut running, event)).collect();
        kill(running);
        let listed = bed.json(["generations", "a"]);
        let head = listed.as_array().expect("a list").last().expect("one").clone();
        assert_eq!(head["memory_bytes"], serde_json::Value::Null, "{component} {round}: {head}");
        assert_eq!(bed.send("a", "recall colour"), "blue", "{component} {round}");
        assert_eq!(bed.send("a", "recall shape"), "round", "{component} {round}");
        let found = [replies[6].as_str(), &replies[9], &bed.send("a", "next")];
        assert_eq!(&found, numbers, "{component} {round}");
        let told = bed.json(["replay", "a"]);
        assert_eq!((&told["matches"], &told["compared"]), (&true.into(), &true.into()), "{told}");
    }
    assert_eq!(bed.json(["fsck"])["findings"], serde_json::json!([]));
}

#[test]
fn turns_of_a_rust_agent_are_run_again_after_a_kill() {
    are_run_again("notes");
}

#[test]
fn turns_of_a_python_agent_are_run_again_after_a_kill() {
    are_run_again("python-agent");
}

#[test]
fn turns_of_a_javascript_agent_are_run_again_after_a_kill() {
    are_run_again("js-agent");
}

#[test]
fn turns_of_an_agent_on_spidermonkey_are_run_again_after_a_kill() {
    are_run_again("spidermonkey-agent");
}

/// Memory that is made again is, byte for byte, what the instance had that took the turns.
#[test]
fn what_is_made_again_is_what_was() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let mut running = taking(&bed, 128);
    for n in 0..20 {
        take(&mut running, &format!("note {n}"));
    }
    kill(running);
    with_agent(&bed, NEVER, async |_, agent| {
        let before = agent.generations();
        assert_eq!(depth(&before), 20);
        // one after the other, each is the base of the next: replay compares memory with what was made again before
        for turn in 1..=20 {
            let replay =
                agent.replay(zone_vfs::id::Turn(turn), std::future::pending()).await.expect("a replay");
            assert_eq!(replay.differences, [], "turn {turn}");
        }
        agent.resume().await.expect("awake");
        assert_eq!(depth(&agent.generations()), 0);
        assert_eq!(agent.generations().len(), before.len(), "completed, not made anew");
        let replay = agent.replay(zone_vfs::id::Turn(20), std::future::pending()).await.expect("a replay");
        assert!(replay.compared && replay.differences.is_empty(), "{replay:?}");
    });
    assert_eq!(bed.send("a", "list").lines().count(), 20);
}

#[test]
fn an_image_is_taken_behind_the_turns_and_bounds_what_is_run_again() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    with_agent(&bed, ImagePolicy { turns: 8, replay: Duration::MAX }, async |_, agent| {
        let mut deepest = 0;
        for n in 0..100 {
            send(agent, &format!("note {n}")).await;
            deepest = deepest.max(depth(&agent.generations()));
        }
        assert!((1..24).contains(&deepest), "{deepest}");
        assert_eq!(agent.generations().len(), 101, "one for each turn");
        // the agent has nothing to do, and what is due comes by itself
        for n in 0..8 {
            send(agent, &format!("note {n} more")).await;
        }
        let begun = Instant::now();
        while depth(&agent.generations()) >= 8 && begun.elapsed() < Duration::from_secs(20) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(depth(&agent.generations()) < 8, "{}", depth(&agent.generations()));
    });
}

#[test]
fn much_computing_brings_an_image_too() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    with_agent(&bed, ImagePolicy { turns: 128, replay: Duration::ZERO }, async |_, agent| {
        for n in 0..10 {
            send(agent, &format!("note {n}")).await;
            let begun = Instant::now();
            while depth(&agent.generations()) > 0 && begun.elapsed() < Duration::from_secs(20) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(depth(&agent.generations()), 0, "turn {n}");
        }
    });
}

/// Whatever needs the memory of a generation without an image makes it: forks, rewinds, pauses, exports, limits, other
/// components, failed turns.
#[test]
fn what_needs_an_image_makes_one() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    with_agent(&bed, NEVER, async |host, agent| {
        for n in 1..=6 {
            assert_eq!(send(agent, &format!("note {n}")).await, format!("kept note {n}"));
        }
        assert_eq!(depth(&agent.generations()), 6);
        let lines = async |agent: &Agent| send(agent, "list").await.lines().count();
        let fork = async |name: &str, at: Option<u64>| {
            let name = dormouse::AgentName::new(name).expect("a name");
            let made = agent.fork(&[name], at.map(GenerationNumber)).await.expect("a fork");
            lines(&made[0]).await
        };
        // of how it stood in the middle, and of how it stands
        assert_eq!(fork("middle", Some(3)).await, 3);
        assert_eq!(fork("now", None).await, 6);
        assert_eq!(lines(agent).await, 6);
        // a turn that fails goes back to where the last one left it
        let failed = agent.send(Event::message("panic").expect("an event")).await;
        assert!(matches!(failed, Err(AgentError::Trap { .. })), "{failed:?}");
        assert_eq!(send(agent, "note 7").await, "kept note 7");
        assert_eq!(send(agent, "note 8").await, "kept note 8");
        agent.rewind(GenerationNumber(5)).await.expect("back");
        assert_eq!(lines(agent).await, 5);
        assert_eq!(send(agent, "note 6").await, "kept note 6");
        agent.sleep().await;
        assert_eq!(depth(&agent.generations()), 0, "who falls asleep leaves an image");
        assert_eq!(send(agent, "note 7").await, "kept note 7");
        agent.pause().await.expect("paused");
        assert_eq!(depth(&agent.generations()), 0);
        assert_eq!(send(agent, "note 8").await, "kept note 8");
        let written = Buffer::default();
        host.export(agent, Box::new(written.clone())).await.expect("an export");
        assert!(agent.generations().iter().all(|it| it.on.is_none()), "what is exported needs nothing");
        std::fs::write(bed.path("export"), &*written.0.lock().expect("bytes")).expect("a file");
        assert_eq!(send(agent, "note 9").await, "kept note 9");
        agent.set_limits(agent_limits(64 << 20)).await.expect("limits");
        assert_eq!(lines(agent).await, 9);
    });
    let export = bed.path("export");
    bed.ok(["import", export.to_str().expect("a path"), "b"]);
    assert_eq!(bed.send("b", "list").lines().count(), 8);
    assert_eq!(bed.send("a", "list").lines().count(), 9);
    bed.ok(["upgrade", "a", guest("notes").to_str().expect("a path")]);
    assert_eq!(bed.send("a", "list").lines().count(), 9);
    assert_eq!(bed.json(["fsck"])["findings"], serde_json::json!([]));
}

fn agent_limits(memory: u64) -> dormouse::AgentLimits {
    dormouse::AgentLimits { memory: Some(memory), cpu: None }
}

#[derive(Clone, Default)]
struct Buffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("bytes").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What an operator writes between turns is in no fact: the turn behind it ends with an image, and so is what a failed
/// turn has left.
#[test]
fn a_turn_that_cannot_be_run_again_ends_with_an_image() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    with_agent(&bed, NEVER, async |_, agent| {
        send(agent, "note one").await;
        let zones = agent.disk().zones();
        let workspace = zones.iter().position(|it| it.name == "workspace").expect("a workspace") as u16;
        let now = zone_vfs::id::Timestamp::now();
        let access = zone_vfs::zone::Access::new(zone_vfs::contract::Principal::Host, now);
        let made = agent.disk().zone(workspace, |zone| zone.mkdir(access, zone_vfs::id::Inode::ROOT, b"new"));
        made.expect("a zone").expect("a folder");
        wait(|done| agent.disk().sync(done)).expect("synced");
        assert_eq!(depth(&agent.generations()), 1);
        assert_eq!(send(agent, "ls /workspace").await, "new");
        assert_eq!(depth(&agent.generations()), 0);
        send(agent, "note two").await;
        assert_eq!(depth(&agent.generations()), 1);
    });
}

/// A turn that does not come to what is recorded is told with the first call that differs, the agent stays where it is,
/// and can be taken back to where its memory can be had.
#[test]
fn what_does_not_come_to_the_same_is_told_and_the_agent_can_go_back() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    let mut running = taking(&bed, 128);
    take(&mut running, "note one");
    take(&mut running, "note two");
    kill(running);
    with_agent(&bed, NEVER, async |_, agent| {
        // as if the second turn had been told other things than the first time: its event is another
        let disk = agent.disk();
        let head = disk.generation(disk.head()).expect("the head");
        let before = disk.history().expect("the turns").pop().expect("one");
        let about = disk.payload(&head.about).expect("what is kept").to_vec();
        let event = disk.payload(&before.event).expect("the event").to_vec();
        let changed = String::from_utf8_lossy(&event).contains("note two");
        assert!(changed, "the event holds its payload");
        let at = event.windows(8).position(|it| it == b"note two").expect("the payload");
        let mut other = event.clone();
        other[at..at + 8].copy_from_slice(b"list    ");
        disk.begin(TurnStyle::Transaction, &other).expect("a turn");
        for fact in &before.facts {
            disk.fact(&disk.payload(fact).expect("a fact")).expect("noted");
        }
        let outcome = match &before.outcome {
            zone_vfs::store::Outcome::Ended(outcome) => disk.payload(outcome).expect("an outcome").to_vec(),
            failed @ zone_vfs::store::Outcome::Failed(_) => panic!("{failed:?}"),
        };
        let new = NewGeneration { cause: Cause::Turn, about, on: Some(disk.head()) };
        wait(|done| disk.end(&outcome, Some(new), done)).expect("ended");
        for _ in 0..2 {
            let told = agent.resume().await.expect_err("it comes to something else").to_string();
            for part in
                ["generation 3", "turn 3", "call 0", "`open`", "the end of the turn", "rewind AGENT 0"]
            {
                assert!(told.contains(part), "{part} in {told}");
            }
            assert_eq!(disk.head(), GenerationNumber(3), "the head stays");
        }
        agent.rewind(GenerationNumber(2)).await.expect("back to what can be had");
        assert_eq!(send(agent, "list").await.lines().count(), 2);
    });
}

/// Killed at any moment, also while an image is taken behind a turn: no acknowledged turn is lost, and memory is that of
/// the zones.
#[test]
fn a_kill_at_any_moment_leaves_memory_and_zones_of_one_turn() {
    for turns in [2, 5] {
        let bed = Bed::new(&["notes"]);
        bed.create("a", "notes");
        let mut kept = 0;
        for _ in 0..20 {
            let mut running = taking(&bed, turns);
            let wanted = random(30);
            for _ in 0..wanted {
                kept += 1;
                assert_eq!(take(&mut running, "note x"), format!("kept note {kept}"));
            }
            std::thread::sleep(Duration::from_micros(random(3_000)));
            kill(running);
        }
        let said = bed.send("a", "status");
        for zone in ["memory=", "journal=", "semantic=", "logs="] {
            assert!(said.contains(&format!("{zone}{kept}")), "{kept}: {said}");
        }
    }
}
