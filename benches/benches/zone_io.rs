//! File operations of a program, as it sees them: in a workspace zone of Dormouse, natively on the
//! filesystem beneath, and as the same component under wasmtime-wasi with a folder of that filesystem.
//!
//! The program is `tests/programs/src/zone_io.rs`, which is compiled into this one for the native runs.
//! The subjects run in turn, so that what else the machine does hits them all. With a word after `--`,
//! only operations whose description contains it are measured.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use dormouse::Agent;
use dormouse::agent::RunOptions;
use dormouse::wasi::{self, Stdio};
use dormouse_benches::bed::Bed;
use dormouse_benches::bench::{Bench, Racer};
use dormouse_benches::guests;
use dormouse_benches::output::Output;
use dormouse_benches::peer::Peer;

#[path = "../../tests/programs/src/zone_io.rs"]
mod zone_io;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-benched");

/// Operations as the program calls them, as the report does, and how many are done in a round.
const OPERATIONS: [(&str, &str, u64); 14] = [
    ("write-13", "write 13 bytes, unbuffered", 100_000),
    ("create-4k", "create a file of 4 KiB", 500),
    ("read-4k", "open and read a file of 4 KiB", 500),
    ("stat", "stat a path", 500),
    ("list", "list a folder, per entry", 50_000),
    ("rename", "rename", 500),
    ("unlink", "unlink", 500),
    ("walk", "walk a tree of 10,000 files, per file", 10_000),
    ("write-64k", "write 64 KiB, sequentially", 2_000),
    ("read-64k", "read 64 KiB, sequentially", 2_000),
    ("random-read-4k", "read 4 KiB at random", 20_000),
    ("random-write-4k", "write 4 KiB at random", 20_000),
    ("append-fsync", "append 100 bytes and fsync", 100),
    ("replace", "write a temporary file, fsync, rename", 50),
];

/// Agents that append and fsync at once, and how often each.
const CROWDS: [(usize, u64); 4] = [(1, 200), (8, 100), (64, 60), (256, 20)];

fn told(operation: &str, said: &str) -> anyhow::Result<f64> {
    let (name, nanoseconds) = said.trim().split_once(' ').with_context(|| format!("it prints {said:?}"))?;
    ensure!(name == operation, "it measured {name}");
    Ok(nanoseconds.parse()?)
}

/// What one operation of an agent took, in nanoseconds.
async fn in_zone(agent: &Agent, args: &[String]) -> anyhow::Result<f64> {
    let output = Output::default();
    let stdio = Stdio { stdout: Some(wasi::Output::writing(output.clone())), ..Stdio::default() };
    let options = RunOptions { args: args.to_vec(), stdio, ..RunOptions::default() };
    let outcome = agent.run(options, std::future::pending()).await?;
    ensure!(outcome.status == Ok(0), "the guest ended with {:?}", outcome.status);
    told(&args[0], &output.text())
}

/// The same under wasmtime-wasi, with `folder` as its own.
async fn in_wasmtime(peer: &Peer, args: &[String], folder: &Path, blocking: bool) -> anyhow::Result<f64> {
    let args: Vec<_> = std::iter::once("zone-io".to_string()).chain(args.iter().cloned()).collect();
    told(&args[1], &peer.run(&args, folder, blocking).await?)
}

/// The same in this process, in `folder`.
fn natively(args: &[String], folder: &Path) -> anyhow::Result<f64> {
    let folder = folder.to_str().context("the folder's name is not Unicode")?;
    Ok(zone_io::run(&[args, &[folder.to_string()]].concat())?)
}

fn nanoseconds(each: f64) -> Duration {
    Duration::from_nanos((each as u64).max(1))
}

/// What one operation took where several did the same at once: by how many were done in a second.
fn together(each: &[f64]) -> Duration {
    nanoseconds(1.0 / each.iter().map(|nanoseconds| 1.0 / nanoseconds).sum::<f64>())
}

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("zone_io", tmp);
    let component = guests::read(bench.target(), "zone-io")?;
    let bed = Bed::new(tmp, PROGRAM)?;
    let peer = Peer::new(&component)?;
    let folder = tempfile::tempdir_in(tmp)?;
    let agent = bed.agent("io", &component, &[])?;
    for (operation, what, count) in OPERATIONS {
        if !bench.wants(what) {
            continue;
        }
        let count = if bench.is_measuring() { count } else { count.min(100) };
        let args = [operation.to_string(), count.to_string()];
        let wasmtime = |blocking| bed.wait(in_wasmtime(&peer, &args, folder.path(), blocking));
        bench.race(
            what,
            &mut [
                Racer {
                    subject: "Dormouse",
                    run: &mut || Ok(nanoseconds(bed.wait(in_zone(&agent, &args))?)),
                },
                Racer { subject: "native", run: &mut || Ok(nanoseconds(natively(&args, folder.path())?)) },
                Racer { subject: "wasmtime-wasi", run: &mut || Ok(nanoseconds(wasmtime(false)?)) },
                Racer {
                    subject: "wasmtime-wasi, in the calling thread",
                    run: &mut || Ok(nanoseconds(wasmtime(true)?)),
                },
            ],
        )?;
    }
    let mut crowd = vec![agent];
    for (many, count) in CROWDS {
        let what = format!("append 100 bytes and fsync, {many} at once, per operation of all");
        if !bench.wants(&what) || (!bench.is_measuring() && many > 8) {
            continue;
        }
        while crowd.len() < many {
            crowd.push(bed.agent(&format!("io-{}", crowd.len()), &component, &[])?);
        }
        crowded(&mut bench, &bed, &crowd[..many], folder.path(), &what, count)?;
    }
    bench.note("Dormouse's files are in a workspace zone, the others' in a folder of the filesystem beneath");
    bench.finish(&[])
}

/// Many that append and sync at once: agents, and threads of this process.
fn crowded(
    bench: &mut Bench,
    bed: &Bed,
    agents: &[Agent],
    folder: &Path,
    what: &str,
    count: u64,
) -> anyhow::Result<()> {
    let args = ["append-fsync".to_string(), count.to_string()];
    let folders: Vec<_> = (0..agents.len()).map(|n| folder.join(format!("at-once-{n}"))).collect();
    folders.iter().try_for_each(std::fs::create_dir_all)?;
    bench.race(
        what,
        &mut [
            Racer {
                subject: "Dormouse",
                run: &mut || {
                    bed.wait(async {
                        let mut runs = tokio::task::JoinSet::new();
                        for agent in agents {
                            let (agent, args) = (agent.clone(), args.clone());
                            runs.spawn(async move { in_zone(&agent, &args).await });
                        }
                        let each: anyhow::Result<Vec<_>> = runs.join_all().await.into_iter().collect();
                        Ok(together(&each?))
                    })
                },
            },
            Racer {
                subject: "native, a thread each",
                run: &mut || {
                    std::thread::scope(|scope| {
                        let args = &args;
                        let run = |folder: &'_ std::path::PathBuf| {
                            let folder = folder.clone();
                            scope.spawn(move || natively(args, &folder))
                        };
                        let threads: Vec<_> = folders.iter().map(run).collect();
                        let joined = threads.into_iter().map(|thread| {
                            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                        });
                        Ok(together(&joined.collect::<anyhow::Result<Vec<_>>>()?))
                    })
                },
            },
        ],
    )
}
