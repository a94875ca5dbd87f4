//! Guests that do what they must not. Each ends alone: the program says why, and goes on.

use rustix::process::Signal;

use crate::bed::{Bed, Ran, Running, guest, run};

/// The guest trapped, and the program said so.
fn assert_trapped(ran: &Ran, reason: &str) {
    assert_eq!(ran.status, Some(134), "{ran}");
    ran.assert_one_message(&[reason]);
}

#[test]
fn paths_links_and_sizes_of_an_attacker_lead_nowhere() {
    let bed = Bed::new(&["hostile"]);
    let ran = bed.guest("hostile", ["checks"]);
    assert_eq!(ran.status, Some(0), "{ran}");
    assert!(ran.out.ends_with("19 checks, 0 failed\n"), "{ran}");
}

#[test]
fn what_ends_a_guest_ends_only_the_guest() {
    let bed = Bed::new(&["hostile", "hello-command"]);
    for (what, reason) in [
        (&["unreachable"][..], "unreachable"),
        // its own stack ends in its memory or the host's ends, whichever is smaller
        (&["recurse"], "wasm trap"),
        (&["wild-store"], "out of bounds memory access"),
        (&["forged", "0"], "unknown handle"),
        (&["forged", "1"], "unknown handle"),
        (&["forged", "4294967295"], "unknown handle"),
        (&["dropped"], "unknown handle"),
        (&["double-drop"], "unknown handle"),
        (&["handles"], "at most 65536 handles"),
        (&["read-huge"], "at most"),
    ] {
        let arguments = what.iter().copied();
        assert_trapped(&bed.guest("hostile", arguments), reason);
        assert_eq!(bed.agent("hostile")["state"], "failed");
    }
    // the store is none the worse, and the same agent can run again
    assert_eq!(bed.guest("hello-command", []).out, "hello, world: visit 1\n");
    assert_eq!(bed.guest("hostile", ["checks"]).status, Some(0));
}

#[test]
fn memory_ends_at_the_limit() {
    let bed = Bed::new(&["hostile", "notes"]);
    let mut command = bed.command(["--max-memory", "64MiB", "run"]);
    let ran = run(command.arg(guest("hostile")).arg("memory"), b"");
    assert_eq!(ran.status, Some(0), "{ran}");
    let taken: u64 = ran.out.split(' ').next().and_then(|n| n.parse().ok()).expect("a number of MiB");
    assert!((32..64).contains(&taken), "{ran}");
    // an agent's memory grows to the limit and no further, over turns too
    bed.create("n", "notes");
    assert!(bed.run(["--max-memory", "32M", "send", "n", "grow 16"]).status == Some(0));
    let over = bed.run(["--max-memory", "33554432", "send", "n", "grow 64"]);
    assert_ne!(over.status, Some(0), "{over}");
    assert!(bed.send("n", "status").starts_with("memory=0 "));
}

#[test]
fn an_endless_run_is_ended_after_its_time() {
    let bed = Bed::new(&["hostile", "notes"]);
    for what in ["spin", "sleep-forever"] {
        let mut command = bed.command(["run", "--timeout", "0.5"]);
        run(command.arg(guest("hostile")).arg(what), b"").assert_refused(&["hostile.wasm", "0.5 s"]);
    }
    bed.create("n", "notes");
    bed.send("n", "note kept");
    for event in ["spin", "sleep 1000000"] {
        bed.refused(["send", "--timeout", "0.5", "n", event], &["0.5 s", "n stands where it stood before"]);
    }
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 semantic=1 logs=1 "));
}

#[test]
fn a_turn_that_traps_leaves_the_agent_where_it_stood() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note kept");
    for event in ["panic", "exit 3"] {
        let ran = bed.run(["send", "n", event]);
        assert_trapped(&ran, "n stands where it stood before");
        assert_eq!(ran.out, "");
        assert_eq!(bed.agent("n")["state"], "failed");
    }
    assert_eq!(bed.send("n", "list"), "1. kept");
    assert_eq!(bed.send("n", "status"), "memory=1 journal=1 semantic=1 logs=1 turns=3");
    assert_eq!(bed.agent("n")["state"], "asleep");
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_c_ends_a_run_and_a_turn() {
    /// Ticks of a processor (10 ms), long past everything that comes before the guest's loop.
    const BUSY: u64 = 150;
    let bed = Bed::new(&["hostile", "notes", "stdio"]);
    let spinning = Running::start(&mut bed.guest_command("hostile", ["spin"]));
    spinning.until_busy(BUSY);
    spinning.signal(Signal::INT);
    let ran = spinning.end();
    assert_eq!(ran.status, Some(130), "{ran}");

    let mut waiting = Running::start(&mut bed.guest_command("stdio", ["upper"]));
    std::io::Write::write_all(waiting.input.as_mut().expect("its input"), b"line\n").expect("a line for it");
    assert_eq!(waiting.line().as_deref(), Some("LINE"));
    waiting.signal(Signal::INT);
    // its input is open still, and does not keep the process
    let input = waiting.input.take();
    let ran = waiting.end();
    assert_eq!((ran.status, ran.out.as_str()), (Some(130), "LINE\n"), "{ran}");
    drop(input);

    bed.create("n", "notes");
    bed.send("n", "note kept");
    let turn = Running::start(&mut bed.command(["send", "n", "spin"]));
    turn.until_busy(BUSY);
    turn.signal(Signal::INT);
    let ran = turn.end();
    assert_eq!(ran.status, Some(130), "{ran}");
    ran.assert_one_message(&["cancelled", "n stands where it stood"]);
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 semantic=1 logs=1 "));

    // a request to terminate is told from Ctrl-C
    let spinning = Running::start(&mut bed.guest_command("hostile", ["spin"]));
    spinning.until_busy(BUSY);
    spinning.signal(Signal::TERM);
    let ran = spinning.end();
    assert_eq!(ran.status, Some(143), "{ran}");
    let turn = Running::start(&mut bed.command(["send", "n", "spin"]));
    turn.until_busy(BUSY);
    turn.signal(Signal::TERM);
    let ran = turn.end();
    assert_eq!(ran.status, Some(143), "{ran}");
    ran.assert_one_message(&["cancelled", "n stands where it stood"]);
}

/// Waits until a compiler works for this store, or until none does.
#[cfg(target_os = "linux")]
fn until_compiler(bed: &Bed, is_there: bool) {
    let store = bed.store();
    let works = || {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        processes
            .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok())
            .any(|line| line.contains("__compile") && line.contains(store.to_str().expect("a path in UTF-8")))
    };
    while works() != is_there {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn compiling_ends_with_the_time_and_with_ctrl_c() {
    let bed = Bed::new(&[]);
    let mut command = bed.command(["run", "--timeout", "0.05"]);
    run(command.arg(guest("hostile")).arg("checks"), b"").assert_refused(&["hostile.wasm", "0.05 s"]);
    until_compiler(&bed, false);
    for arguments in [&["run"][..], &["new", "n"], &["inspect"]] {
        let mut command = bed.command(arguments);
        let compiling = Running::start(command.arg(guest("hostile")));
        until_compiler(&bed, true);
        compiling.signal(Signal::INT);
        let ran = compiling.end();
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (Some(130), "", ""), "{ran}");
        until_compiler(&bed, false);
    }
    assert_eq!(bed.json(["ps"]), serde_json::json!([]));
    let kept = std::fs::read_dir(bed.store().join("components")).expect("components").count();
    assert_eq!(kept, 0);
}

/// A command whose start function never ends.
const NEVER_STARTS: &str = r#"(component
  (core module $m
    (func $forever (loop br 0))
    (start $forever)
    (func (export "run") (result i32) i32.const 0))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exports)))"#;

#[test]
fn a_component_that_never_starts_is_given_up() {
    let bed = Bed::empty();
    let component = wat::parse_str(NEVER_STARTS).expect("a component");
    let options =
        dormouse::HostOptions { genesis_time: std::time::Duration::from_millis(300), ..bed.options() };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let host = dormouse::Host::open(options).expect("the host");
        let name = dormouse::AgentName::new("n").expect("a name");
        let made = host.create(&name, &component, dormouse::AgentOptions::default()).await;
        assert!(matches!(made, Err(dormouse::AgentError::GenesisTime(_))), "{made:?}");
        assert!(host.agents().expect("agents").is_empty());
        host.close().expect("the host closes");
    });
}
