//! File operations of a program, as it sees them: in a workspace zone of Dormouse, natively on the
//! filesystem beneath, and as the same component under wasmtime-wasi with a folder of that filesystem.
//!
//! The program is `tests/programs/src/zone_io.rs`, which is compiled into this one for the native runs.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use dormouse::agent::RunOptions;
use dormouse::wasi::Stdio;
use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;
use dormouse_benches::guests;
use dormouse_benches::peer::Peer;

#[path = "../../tests/programs/src/zone_io.rs"]
mod zone_io;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-benched");

/// Operations as the program calls them, as the report does, and the least and the most that are done
/// in one run: a run prepares its files, and its own clock must not matter.
const OPERATIONS: [(&str, &str, u64, u64); 14] = [
    ("write-13", "write 13 bytes, unbuffered", 1_000, 1_000_000),
    ("create-4k", "create a file of 4 KiB", 1_000, 4_000),
    ("read-4k", "open and read a file of 4 KiB", 1_000, 4_000),
    ("stat", "stat a path", 1_000, 10_000),
    ("list", "list a folder, per entry", 1_000, 200_000),
    ("rename", "rename", 1_000, 4_000),
    ("unlink", "unlink", 1_000, 4_000),
    ("walk", "walk a tree of 10,000 files, per file", 10_000, 10_000),
    ("write-64k", "write 64 KiB, sequentially", 512, 20_000),
    ("read-64k", "read 64 KiB, sequentially", 512, 20_000),
    ("random-read-4k", "read 4 KiB at random", 1_000, 200_000),
    ("random-write-4k", "write 4 KiB at random", 1_000, 200_000),
    ("append-fsync", "append 100 bytes and fsync", 20, 2_000),
    ("replace", "write a temporary file, fsync, rename", 20, 1_000),
];

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn told(operation: &str, said: &str) -> anyhow::Result<f64> {
    let (name, nanoseconds) = said.trim().split_once(' ').with_context(|| format!("it prints {said:?}"))?;
    ensure!(name == operation, "it measured {name}");
    Ok(nanoseconds.parse()?)
}

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("zone_io", tmp);
    let component = guests::read(bench.target(), "zone-io")?;
    let bed = Bed::new(tmp, PROGRAM)?;
    let agent = bed.agent("io", &component, &[])?;
    let peer = Peer::new(&component)?;
    let folder = tempfile::tempdir_in(tmp)?;
    let beneath = folder.path().to_str().context("the folder's name is not Unicode")?.to_string();
    for (operation, what, least, most) in OPERATIONS {
        let mut measure = |subject: &str, run: &mut dyn FnMut(Vec<String>) -> anyhow::Result<f64>| {
            bench.mean(what, subject, |iterations| {
                let count = iterations.clamp(least, most);
                let each = run(vec![operation.into(), count.to_string()])?;
                Ok(Duration::from_nanos(((each * iterations as f64) as u64).max(1)))
            });
        };
        measure("Dormouse", &mut |args| {
            let output = Output::default();
            let stdio = Stdio { stdout: Some(Box::new(output.clone())), ..Stdio::default() };
            let options = RunOptions { args, stdio, ..RunOptions::default() };
            let outcome = bed.wait(agent.run(options, std::future::pending()))?;
            ensure!(outcome.status == Ok(0), "the guest ended with {:?}", outcome.status);
            let said = output.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            told(operation, &String::from_utf8(said)?)
        });
        measure("native", &mut |mut args| {
            args.push(beneath.clone());
            Ok(zone_io::run(&args)?)
        });
        for (subject, blocking) in [("wasmtime-wasi", false), ("wasmtime-wasi, in the calling thread", true)]
        {
            measure(subject, &mut |args| {
                let args: Vec<_> = std::iter::once("zone-io".to_string()).chain(args).collect();
                told(operation, &bed.wait(peer.run(&args, folder.path(), blocking))?)
            });
        }
    }
    bench.note("Dormouse's files are in a workspace zone, the others' in a folder of the filesystem beneath");
    bench.finish()
}
