//! What a host call costs, measured by the guest: on Dormouse, on wasmtime-wasi as it is by default
//! (file calls hop to another thread), and on wasmtime-wasi answering in the calling thread.
//!
//! The guest is `tests/programs/src/bin/hostcalls.rs`. It reports the mean over many calls, loop
//! included; `empty` is the loop alone.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use dormouse::agent::RunOptions;
use dormouse::wasi::{self, Stdio};
use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;
use dormouse_benches::guests;
use dormouse_benches::output::Output;
use dormouse_benches::peer::Peer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-benched");
/// The guest's names, and what the report calls them.
const CALLS: [(&str, &str); 6] = [
    ("empty", "empty loop"),
    ("get-flags", "descriptor.get-flags"),
    ("stat", "descriptor.stat"),
    ("read", "descriptor.read, 64 bytes"),
    ("read-64k", "descriptor.read, 64 KiB"),
    ("write", "descriptor.write, 13 bytes"),
];
/// The guest makes at least so many calls in a run, so that its own clock is no matter.
const LEAST: u64 = 1_000;
/// And at most so many.
const MOST: u64 = 1_000_000;

/// How long `iterations` calls take, from a run of the guest that prints `OP NANOSECONDS`.
fn of(
    call: &str,
    iterations: u64,
    run: impl FnOnce(Vec<String>) -> anyhow::Result<String>,
) -> anyhow::Result<Duration> {
    let calls = iterations.clamp(LEAST, MOST);
    let said = run(vec![call.into(), calls.to_string()])?;
    let (name, nanoseconds) = said.trim().split_once(' ').with_context(|| format!("it prints {said:?}"))?;
    ensure!(name == call, "it measured {name}");
    let nanoseconds: f64 = nanoseconds.parse()?;
    // an empty loop may be shorter than the guest's clock can tell
    Ok(Duration::from_nanos(((nanoseconds * iterations as f64) as u64).max(1)))
}

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("host_calls", tmp);
    let component = guests::read(bench.target(), "hostcalls")?;
    let bed = Bed::new(tmp, PROGRAM)?;
    let agent = bed.agent("calls", &component, &[])?;
    let peer = Peer::new(&component)?;
    let folder = tempfile::tempdir_in(tmp)?;
    for (call, what) in CALLS {
        bench.mean(what, "Dormouse", |iterations| {
            of(call, iterations, |args| {
                let output = Output::default();
                let stdio = Stdio { stdout: Some(wasi::Output::writing(output.clone())), ..Stdio::default() };
                let options = RunOptions { args, stdio, ..RunOptions::default() };
                let outcome = bed.wait(agent.run(options, std::future::pending()))?;
                ensure!(outcome.status == Ok(0), "the guest ended with {:?}", outcome.status);
                Ok(output.text())
            })
        });
        for (subject, blocking) in [("wasmtime-wasi", false), ("wasmtime-wasi, in the calling thread", true)]
        {
            bench.mean(what, subject, |iterations| {
                of(call, iterations, |args| {
                    let args: Vec<_> = std::iter::once("hostcalls".to_string()).chain(args).collect();
                    bed.wait(peer.run(&args, folder.path(), blocking))
                })
            });
        }
    }
    bench.note("Dormouse's files are in a workspace zone, wasmtime-wasi's in a folder of the host");
    bench.finish(&[])
}
