//! What ends a command early, whatever it is doing; and what is refused before anything is changed.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse::{AgentError, AgentName, AgentOptions, Event, Host};
use rustix::process::{Pid, Signal, kill_process};

use crate::bed::{Bed, guest, options};

/// A process whose output nobody reads. After this time it counts as hanging.
const HANGS: Duration = Duration::from_mins(2);

fn unread(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program")
}

/// Its exit status, while its output still is not read.
fn end(mut child: Child) -> Option<i32> {
    let begun = Instant::now();
    while begun.elapsed() < HANGS {
        if let Some(status) = child.try_wait().expect("a process of this test's") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("a process of this test's");
    child.wait().expect("its end");
    panic!("it hung");
}

#[test]
fn a_reader_that_does_not_read_stops_no_timeout_and_no_signal() {
    let bed = Bed::new(&["stdio", "hostile"]);
    let stdio = guest("stdio");
    let printing = |options: &[&str]| {
        let mut command = bed.command(["run"]);
        command.args(options).arg(&stdio).args(["large", "10000000"]);
        unread(&mut command)
    };
    assert_eq!(end(printing(&["--timeout", "1"])), Some(1));
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let child = printing(&[]);
        // once the guest prints its signals are the program's
        until_in_turn(&child);
        kill_process(Pid::from_child(&child), signal).expect("a signal to a process of this test's");
        assert_eq!(end(child), Some(status));
    }
    // what is read later comes whole
    let whole = bed.guest("stdio", ["large", "3000000"]);
    assert_eq!((whole.status, whole.out.len()), (Some(0), 3_000_000));
}

/// Waits until the process has written to its pipe all that it takes.
fn until_in_turn(child: &Child) {
    use std::os::fd::AsFd;
    let out = child.stdout.as_ref().expect("its output").as_fd();
    let begun = Instant::now();
    while rustix::io::ioctl_fionread(out).expect("a pipe") == 0 {
        assert!(begun.elapsed() < HANGS, "it prints nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_disk_at_standard_output_is_told() {
    let bed = Bed::new(&["stdio"]);
    let mut command = bed.guest_command("stdio", ["large", "100"]);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device that is full");
    let child =
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn().expect("the program");
    let ended = child.wait_with_output().expect("its end");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("I/O error"), "the guest says so: {ended:?}");
}

#[test]
fn what_a_run_refuses_changes_nothing() {
    let bed = Bed::new(&["stdio", "hello-command", "notes"]);
    let [stdio, hello, notes] = ["stdio", "hello-command", "notes"].map(guest);
    fn run<'a>(rest: &[&'a OsStr]) -> Vec<&'a OsStr> {
        [&[OsStr::new("run")], rest].concat()
    }
    bed.ok(run(&["--name".as_ref(), "n".as_ref(), stdio.as_os_str(), "args".as_ref()]));
    let before = bed.everything();
    let other =
        ["--name".as_ref(), "n".as_ref(), "--zone".as_ref(), "more=workspace".as_ref(), hello.as_os_str()];
    bed.refused(run(&other), &["exists and has its zones"]);
    assert_eq!(bed.everything(), before);
    assert!(
        bed.ok(run(&["--name".as_ref(), "n".as_ref(), stdio.as_os_str(), "args".as_ref()])).contains("args")
    );
    // its code is compiled already
    bed.refused(run(&[notes.as_os_str()]), &["is an agent, not a command", "dormouse new"]);
    bed.refused(run(&["--name".as_ref(), "m".as_ref(), notes.as_os_str()]), &["is an agent, not a command"]);
    let names: Vec<_> =
        bed.json(["ps"]).as_array().into_iter().flatten().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["n"]);
}

#[test]
fn an_agent_that_could_never_be_in_memory_is_not_made() {
    let bed = Bed::new(&["notes"]);
    let path = guest("notes");
    let new = |limit: &str| {
        bed.run(["--max-memory".as_ref(), limit.as_ref(), "new".as_ref(), "n".as_ref(), path.as_os_str()])
    };
    let ran = new("1M");
    ran.assert_refused(&["memory"]);
    // its genesis image is there by now
    bed.create("other", "notes");
    new("1M").assert_refused(&["raise --max-memory"]);
    assert_eq!(new("32M").status, Some(0));
    assert_eq!(bed.run(["send", "n", "status"]).status, Some(0));
}

#[test]
fn all_that_is_to_be_removed_can_be_before_anything_is() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    for _ in 0..3 {
        bed.send("a", "note x");
    }
    bed.ok(["pin", "a", "2"]);
    for (last, why) in [("a@3", "where the agent stands"), ("a@2", "pinned")] {
        bed.refused(["rm", "a@1", last], &[why]);
        assert_eq!(bed.json(["generations", "a"]).as_array().map(Vec::len), Some(4));
    }
}

/// Copies a folder as a crash would leave it.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else if let Err(e) = std::fs::copy(entry.path(), &target) {
            // what goes just now is not in a crash's picture either
            assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{e}");
        }
    }
}

/// An agent that looks at a clock as it starts, so that each has a genesis of its own, which takes a while.
const LOOKS_AT_A_CLOCK: &str = r#"(component
  (import "dormouse:agent/types@0.1.0" (instance $types
    (type $event (record (field "id" string) (field "kind" string) (field "payload" (list u8))))
    (export "event" (type (eq $event)))
    (type $reply (record (field "payload" (list u8))))
    (export "reply" (type (eq $reply)))))
  (alias export $types "event" (type $event))
  (alias export $types "reply" (type $reply))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
  (core func $now (canon lower (func $clock "now")))
  (core module $agent
    (import "clock" "now" (func $now (result i64)))
    (memory (export "memory") 1)
    (func $begin (local $left i32)
      (drop (call $now))
      (local.set $left (i32.const 200000000))
      (loop $again
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $again (local.get $left))))
    (start $begin)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 4096)
    (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 1024))
  (core instance $i (instantiate $agent (with "clock" (instance (export "now" (func $now))))))
  (func $handle (param "event" $event) (result (result $reply (error string)))
    (canon lift (core func $i "handle") (memory $i "memory") (realloc (func $i "realloc"))))
  (export "handle" (func $handle)))"#;

#[test]
fn an_agent_whose_genesis_was_cut_short_is_gone_or_makes_up_for_it() {
    let bed = Bed::empty();
    let component = wat::parse_str(LOOKS_AT_A_CLOCK).expect("a component");
    let open = |folder: std::path::PathBuf| Host::open(options(folder)).expect("the host");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let crashed = bed.path("crashed");
    runtime.block_on(async {
        let host = open(bed.store());
        assert!(!host.shares_genesis(&component).await.expect("an answer"), "it has a genesis of its own");
        let name = AgentName::new("n").expect("a name");
        let store = host.store().expect("the store");
        {
            let mut making = std::pin::pin!(host.create(&name, &component, AgentOptions::default()));
            let begun = async {
                while store.find("n").expect("an answer").is_none() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = begun => {}
                made = &mut making => panic!("it was made at once: {made:?}"),
            }
            copy(&bed.store(), &crashed);
        }
        drop(store);
        let gone = host.agent("n").expect_err("it was not finished");
        assert!(matches!(gone, AgentError::NoAgent(_)), "{gone:?}");
        host.create(&name, &component, AgentOptions::default()).await.expect("the name is free");
        host.close().expect("the host closes");

        let host = open(crashed);
        let agent = host.agent("n").expect("the agent that was being made");
        let generations = agent.generations();
        assert_eq!(generations.len(), 1, "its genesis had not come to its end");
        host.prepare(&agent, 1).await.expect("nothing to get ready");
        let event = Event::message("status").expect("an event");
        agent.send(event).await.expect("a turn");
        drop(agent);
        host.close().expect("the host closes");
    });
}
