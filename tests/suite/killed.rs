//! `kill -9` at any moment: no acknowledged turn is lost, and memory, zones and journal are of one
//! generation afterwards.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bed::{Bed, PROGRAM, Running, guest, random};

/// How many notes there are in memory and in each zone, which agree.
fn notes(bed: &Bed, agent: &str) -> u64 {
    let said = bed.send(agent, "status");
    let count = |name: &str| -> u64 {
        let word = said.split(' ').find_map(|w| w.strip_prefix(name));
        word.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
    };
    let memory = count("memory=");
    for zone in ["journal=", "semantic=", "logs="] {
        assert_eq!(count(zone), memory, "{said}");
    }
    memory
}

/// Kills a process that takes turn after turn, `times` times, and looks at the store after each.
fn kill_while_noting(times: usize) {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let mut kept = 0;
    for _ in 0..times {
        let mut command = std::process::Command::new(PROGRAM);
        let mut noting = Running::start(command.arg("keep-noting").arg(bed.store()).arg("n"));
        for _ in 0..random(20) {
            assert!(noting.line().is_some(), "{}", noting.end());
        }
        // anywhere within a turn or a pause, or in the middle of what comes before the first
        std::thread::sleep(Duration::from_micros(random(20_000)));
        noting.signal(Signal::KILL);
        let ran = noting.end();
        assert_eq!((ran.status, ran.err.as_str()), (None, ""), "{ran}");
        let acknowledged = ran.out.lines().count() as u64;
        let found = notes(&bed, "n");
        // the turn that was under way may have been committed without being told
        assert!((kept + acknowledged..=kept + acknowledged + 1).contains(&found), "{kept} {found} {ran}");
        kept = found;
    }
    let listed = bed.send("n", "list");
    assert_eq!(listed.lines().count() as u64, kept.max(1), "{listed}");
}

#[test]
fn no_acknowledged_turn_is_lost_1() {
    kill_while_noting(25);
}

#[test]
fn no_acknowledged_turn_is_lost_2() {
    kill_while_noting(25);
}

#[test]
fn no_acknowledged_turn_is_lost_3() {
    kill_while_noting(25);
}

#[test]
fn no_acknowledged_turn_is_lost_4() {
    kill_while_noting(25);
}

/// Runs the program with arguments and kills it at a random moment within `within`. Says whether it
/// had ended before that, and well.
fn kill_within(bed: &Bed, arguments: &[&str], within: Duration) -> bool {
    let running = Running::start(&mut bed.command(arguments));
    std::thread::sleep(Duration::from_micros(random(within.as_micros() as u64)));
    running.signal(Signal::KILL);
    let ran = running.end();
    assert!(matches!(ran.status, None | Some(0)), "{ran}");
    ran.status == Some(0)
}

/// A little more than what a run of the program takes now, on this machine.
fn takes(bed: &Bed, arguments: &[&str]) -> Duration {
    let started = Instant::now();
    bed.ok(arguments);
    started.elapsed() * 5 / 4
}

#[test]
fn a_send_that_is_killed_is_whole_or_not_at_all() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    let within = takes(&bed, &["send", "n", "note first"]);
    let mut kept = 1;
    for _ in 0..25 {
        let acknowledged = u64::from(kill_within(&bed, &["send", "n", "note more"], within));
        let found = notes(&bed, "n");
        assert!((kept + acknowledged..=kept + 1).contains(&found), "{kept} {acknowledged} {found}");
        kept = found;
    }
}

#[test]
fn what_changes_agents_is_killed_and_leaves_a_good_store() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    for text in ["one", "two", "three"] {
        bed.send("n", &format!("note {text}"));
    }
    let component = guest("notes");
    let component = component.to_str().expect("a path in UTF-8");
    let folder = bed.path("folder");
    std::fs::create_dir(&folder).expect("a folder");
    for n in 0..50_u8 {
        std::fs::write(folder.join(format!("file-{n}")), vec![n; 5000]).expect("a file");
    }
    let folder = folder.to_str().expect("a path in UTF-8");
    let head = || bed.agent("n")["generation"].to_string();
    let forking = takes(&bed, &["fork", "n", "first", "--count", "20"]);
    let pausing = takes(&bed, &["pause", "n"]);
    let rewinding = takes(&bed, &["rewind", "n", &head()]);
    let making = takes(&bed, &["new", "other", component]);
    let putting = takes(&bed, &["zone", "put", "n:/workspace/first", folder]);
    let removing = takes(&bed, &["rm", "first-1"]);
    for round in 0..6 {
        kill_within(&bed, &["fork", "n", &format!("f{round}"), "--count", "20"], forking);
        kill_within(&bed, &["pause", "n"], pausing);
        kill_within(&bed, &["rewind", "n", &head()], rewinding);
        let made = kill_within(&bed, &["new", &format!("made{round}"), component], making);
        let into = format!("n:/workspace/put{round}");
        let put = kill_within(&bed, &["zone", "put", &into, folder], putting);
        let gone = format!("first-{}", round + 2);
        let removed = kill_within(&bed, &["rm", &gone], removing);

        assert_eq!(notes(&bed, "n"), 3);
        let all = bed.json(["ps"]);
        let names: Vec<&str> =
            all.as_array().expect("rows").iter().filter_map(|r| r["name"].as_str()).collect();
        assert!(!removed || !names.contains(&gone.as_str()), "{gone} was removed: {names:?}");
        assert!(!made || names.contains(&format!("made{round}").as_str()), "it was made: {names:?}");
        if put {
            assert_eq!(bed.json(["zone", "ls", &into]).as_array().map(Vec::len), Some(50));
        }
        // the forks that are there are whole
        let forks: Vec<&&str> = names.iter().filter(|n| n.starts_with(&format!("f{round}-"))).collect();
        for fork in forks.iter().take(1).chain(forks.last()) {
            assert_eq!(bed.send(fork, "list"), "1. one\n2. two\n3. three", "{fork}");
        }
        if names.contains(&format!("made{round}").as_str()) {
            assert_eq!(notes(&bed, &format!("made{round}")), 0);
        }
        if names.contains(&gone.as_str()) {
            assert_eq!(bed.send(&gone, "list"), "1. one\n2. two\n3. three");
        }
    }
    bed.send("n", "note four");
    assert_eq!(notes(&bed, "n"), 4);
}

#[test]
fn a_turn_that_is_killed_goes_back_and_what_it_synced_is_kept_beside() {
    let bed = Bed::new(&["stdio", "notes"]);
    bed.create("n", "notes");
    bed.send("n", "note kept");
    bed.send("n", "write-sync /workspace/file before");
    let generation = bed.agent("n")["generation"].clone();
    // a turn that neither ends nor can be told to: it is killed while it sleeps
    let turn = Running::start(&mut bed.command(["send", "n", "sleep 600000"]));
    let lock = bed.store().join("lock");
    let holder = turn.id().to_string();
    while !std::fs::read_to_string(&lock).is_ok_and(|text| text.contains(&holder)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    turn.signal(Signal::KILL);
    assert_eq!(turn.end().status, None);
    assert_eq!(bed.agent("n")["generation"], generation);
    assert_eq!(notes(&bed, "n"), 1);
    assert_eq!(bed.send("n", "read /workspace/file"), "before");
}
