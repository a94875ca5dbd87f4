//! The test programs, each in the zones of an agent.

use std::fmt::Write;

use serde_json::json;

use crate::bed::{Bed, Ran, guest, run};

/// The program's checks all passed, and there were this many at least.
fn assert_checks(ran: &Ran, at_least: usize) {
    assert_eq!(ran.status, Some(0), "{ran}");
    let passed = ran.out.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= at_least && !ran.out.contains("FAIL"), "{ran}");
    assert!(ran.out.ends_with(&format!("{passed} checks, 0 failed\n")), "{ran}");
}

#[test]
fn every_filesystem_function_works_in_the_workspace() {
    let bed = Bed::new(&["fs-all"]);
    assert_checks(&bed.guest("fs-all", []), 113);
    // what it makes it removes: a second run finds the same
    assert_checks(&bed.guest("fs-all", ["/workspace"]), 113);
}

#[test]
fn each_zone_is_a_folder_and_there_is_none_for_credentials() {
    let bed = Bed::new(&["contracts"]);
    let zones = bed.guest("contracts", ["zones"]).out;
    assert_eq!(zones, "/logs\n/memory/episodic\n/memory/procedural\n/memory/semantic\n/workspace\n");
    let mut command = bed.command(["run", "--name", "more", "--zone", "scratch=workspace:1M"]);
    let more = run(command.arg(guest("contracts")).arg("zones"), b"");
    assert_eq!(
        more.out,
        "/logs\n/memory/episodic\n/memory/procedural\n/memory/semantic\n/scratch\n/workspace\n"
    );
}

#[test]
fn each_zone_keeps_its_contract() {
    let bed = Bed::new(&["contracts"]);
    for (kind, zone, other) in [
        ("append-only", "/memory/episodic", "/workspace"),
        ("append-only", "/logs", "/memory/semantic"),
        ("versioned", "/memory/semantic", "/workspace"),
        ("versioned", "/memory/procedural", "/memory/semantic"),
        ("ordinary", "/workspace", "/memory/semantic"),
    ] {
        assert_checks(&bed.guest("contracts", [kind, zone, other]), 31);
    }
}

#[test]
fn zones_of_ones_own_keep_the_contract_of_their_kind() {
    let bed = Bed::new(&["contracts"]);
    let made = ["--zone", "diary=episodic", "--zone", "facts=semantic", "--zone", "desk=workspace"];
    let mut command = bed.command(["run", "--name", "own"]);
    let ran = run(command.args(made).arg(guest("contracts")).arg("zones"), b"");
    assert_eq!(ran.status, Some(0), "{ran}");
    for (kind, zone, other) in [
        ("append-only", "/diary", "/desk"),
        ("versioned", "/facts", "/diary"),
        ("ordinary", "/desk", "/facts"),
    ] {
        let mut command = bed.command(["run", "--name", "own"]);
        assert_checks(&run(command.arg(guest("contracts")).args([kind, zone, other]), b""), 31);
    }
}

#[test]
fn clocks_random_numbers_and_the_missing_network_are_as_in_wasi() {
    let bed = Bed::new(&["clocks", "random", "no-network"]);
    assert_checks(&bed.guest("clocks", []), 13);
    assert_checks(&bed.guest("random", []), 5);
    assert_checks(&bed.guest("no-network", []), 5);
    let drawn: std::collections::HashSet<_> = (0..3).map(|_| bed.guest("random", ["print"]).out).collect();
    assert_eq!(drawn.len(), 3, "two runs drew the same number: {drawn:?}");
}

#[test]
fn standard_streams_pass_through() {
    let bed = Bed::new(&["stdio"]);
    let fed = |what: &str, input: &[u8]| run(&mut bed.guest_command("stdio", [what]), input);
    let bytes: Vec<u8> = (0..=255).filter(|b| *b != 0 && *b < 128).cycle().take(300_000).collect();
    let ran = fed("cat", &bytes);
    assert_eq!((ran.status, ran.out.as_bytes()), (Some(0), &bytes[..]));
    assert_eq!(fed("upper", b"one\ntwo\n").out, "ONE\nTWO\n");
    let both = fed("both", b"12345");
    assert_eq!((both.out.as_str(), both.err.as_str()), ("to stdout\n5 bytes of input\n", "to stderr\n"));
    let large = bed.guest("stdio", ["large", "5000000"]);
    assert_eq!((large.status, large.out.len()), (Some(0), 5_000_000));
    assert_eq!(fed("terminal", b"").out, "(false, false, false)\n");
}

#[test]
fn arguments_and_environment_arrive() {
    let bed = Bed::new(&["stdio"]);
    let args = bed.guest("stdio", ["args", "two words", "", "--flag", "-x", "ü"]).out;
    assert!(args.ends_with("\"args\"\n\"two words\"\n\"\"\n\"--flag\"\n\"-x\"\n\"ü\"\n"), "{args}");
    let mut command = bed.command(["run", "--env", "A=1=2", "--env", "EMPTY=", "--env", "HOSTS"]);
    command.env("HOSTS", "own").env("SECRET", "hidden").arg(guest("stdio")).arg("env");
    assert_eq!(run(&mut command, b"").out, "A=1=2\nEMPTY=\nHOSTS=own\n");
    let mut command = bed.command(["run", "--env", "NOT_SET_ANYWHERE"]);
    run(command.arg(guest("stdio")).arg("env"), b"").assert_refused(&["NOT_SET_ANYWHERE"]);
}

#[test]
fn the_exit_status_is_the_guests_own() {
    let bed = Bed::new(&["exit-code", "stdio", "hello-command"]);
    for status in [0, 1, 7, 255] {
        let ran = bed.guest("exit-code", [status.to_string().as_str()]);
        assert_eq!((ran.status, ran.out.as_str()), (Some(status), "before exit\n"), "{ran}");
    }
    assert_eq!(bed.guest("stdio", ["ok"]).status, Some(0));
    assert_eq!(bed.guest("stdio", ["err"]).status, Some(1));
    let unflushed = bed.guest("stdio", ["status", "3"]);
    assert_eq!((unflushed.status, unflushed.out.as_str()), (Some(1), "before exit\n"));
    assert_eq!(bed.guest("hello-command", ["fail"]).status, Some(1));
}

#[test]
fn a_command_is_a_process_whose_files_stay() {
    let bed = Bed::new(&["hello-command"]);
    assert_eq!(bed.guest("hello-command", []).out, "hello, world: visit 1\n");
    assert_eq!(bed.guest("hello-command", []).out, "hello, world: visit 2\n");
    let mut command = bed.command(["run", "--name", "other", "--env", "NAME=Ada"]);
    assert_eq!(run(command.arg(guest("hello-command")), b"").out, "hello, Ada: visit 1\n");
    assert_eq!(bed.guest("hello-command", ["journal"]).out, "greeted world\ngreeted world\n");
    let removal = bed.guest("hello-command", ["rm", "/memory/episodic/journal.log"]);
    assert_eq!(removal.status, Some(1), "{removal}");
    assert!(removal.err.contains("Operation not permitted"), "{removal}");
    assert_eq!(bed.guest("hello-command", ["journal"]).out, "greeted world\ngreeted world\n");
    // what a run wrote before it trapped stays, too
    let mut put = bed.guest_command("hello-command", ["put", "/workspace/kept"]);
    assert_eq!(run(&mut put, b"kept\n").status, Some(0));
    assert_eq!(bed.guest("hello-command", ["trap"]).status, Some(134));
    assert_eq!(bed.guest("hello-command", ["cat", "/workspace/kept"]).out, "kept\n");
    assert_eq!(bed.agent("hello-command")["world"], json!("wasi:cli/command"));
}

#[test]
fn a_module_of_preview_1_runs_like_a_component() {
    let bed = Bed::new(&[]);
    let text = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/preview1.wat");
    let module = bed.file("preview1.wasm", wat::parse_file(text).expect("the module's text"));
    let ran = run(bed.command(["run"]).arg(module), b"");
    assert_eq!((ran.status, ran.out.as_str()), (Some(7), "hello from preview 1\n"), "{ran}");
    let zones = bed.json(["zone", "ls", "preview1"]);
    let first = zones[0]["mount"].as_str().expect("a zone");
    assert_eq!(bed.ok(["zone", "cat", &format!("preview1:{first}/preview1.txt")]), "hello from preview 1\n");
}

#[test]
fn a_module_that_imports_nothing_runs_too() {
    let bed = Bed::new(&[]);
    for (name, text, status) in [
        ("bare", "(module (func (export \"_start\")))", 0),
        ("memory", "(module (memory (export \"memory\") 1) (func (export \"_start\")))", 0),
        ("trap", "(module (func (export \"_start\") unreachable))", 134),
    ] {
        let module = bed.file(&format!("{name}.wasm"), wat::parse_str(text).expect("the module's text"));
        let ran = run(bed.command(["run"]).arg(module), b"");
        assert_eq!(ran.status, Some(status), "{ran}");
    }
}

#[test]
fn a_module_of_very_many_data_segments_is_compiled_in_time() {
    const SEGMENTS: usize = 90_000;
    let segments = (0..SEGMENTS).fold(String::new(), |mut text, n| {
        write!(text, "(data (i32.const {}) \"\\{:02x}\")", n * 16, n % 251).expect("a String takes all");
        text
    });
    let text = format!(
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 32)
        (func (export "_start") (call $exit (i32.load8_u (i32.const 1439984)))) {segments})"#
    );
    let bed = Bed::new(&[]);
    let module = bed.file("segments.wasm", wat::parse_str(text).expect("the module's text"));
    let ran = run(bed.command(["run"]).arg(module), b"");
    assert_eq!(ran.status, Some((SEGMENTS as i32 - 1) % 251), "{ran}");
}
