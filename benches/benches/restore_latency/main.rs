//! What it costs to bring an agent back, to fork it, to write a generation and to rewind it.
//!
//! - [`subjects`]: the agents that are measured, from a few hundred KiB of memory to 256 MiB.
//! - [`resume`]: warm slot, cold, another process; beside plain wasmtime's instantiation.
//! - [`fork`]: durable forks, and an instance of a fork.
//! - [`crowd`]: forks that are all in memory at once.
//! - [`generation`]: turns that change a part of the memory, pause, rewind.

mod crowd;
mod fork;
mod generation;
mod resume;
mod subjects;

use std::path::Path;

use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;
use dormouse_benches::plot::Plot;

/// The command `dormouse`, built as this benchmark is.
const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-benched");

/// A process that forks itself.
const FORK_PEER: &str = env!("CARGO_BIN_EXE_fork-peer");

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("restore_latency", tmp);
    let subjects = subjects::all(&mut bench)?;
    let crowds: &[usize] = if bench.is_measuring() { &CROWDS } else { &[10] };
    crowd::plain(&mut bench, &subjects, crowds[0])?;
    resume::plain(&mut bench, &subjects)?;

    let mut bed = Bed::new(tmp, PROGRAM)?;
    let subjects = subjects::settle(&mut bed, &subjects)?;
    bed.close()?;
    for subject in &subjects {
        resume::other_process(&mut bench, &bed, subject);
    }
    bed.open()?;
    for subject in &subjects {
        resume::warm(&mut bench, &bed, subject)?;
        resume::cold(&mut bench, &bed, subject)?;
        resume::uncached(&mut bench, &bed, subject)?;
        resume::fork_of_process(&mut bench, subject)?;
        fork::instance(&mut bench, &bed, subject)?;
        fork::durable(&mut bench, &bed, subject)?;
        fork::to_live(&mut bench, &bed, subject)?;
    }
    for (index, count) in crowds.iter().enumerate() {
        for subject in subjects.iter().filter(|it| index == 0 || it.label == "Rust") {
            if subject.pages * PAGE <= LARGEST_CROWD {
                crowd::alive(&mut bench, &bed, subject, *count)?;
            }
        }
    }
    // what follows changes the agents
    for subject in &subjects {
        resume::first_turn(&mut bench, &bed, subject)?;
        generation::rewind(&mut bench, &bed, subject)?;
        generation::pause(&mut bench, &bed, subject, "")?;
        generation::turns(&mut bench, &bed, subject, "")?;
    }
    drop(bed);
    generation::without_sync(&mut bench)?;
    bench.finish(&plots())
}

/// How many forks are in memory at once; more than the first only of the smallest agent.
const CROWDS: [usize; 2] = [1_000, 10_000];
/// Bytes of the largest agent of which there is a crowd.
const LARGEST_CROWD: u64 = 128 << 20;
const PAGE: u64 = dormouse::image::PAGE as u64;

/// The pictures of all that.
fn plots() -> Vec<Plot> {
    const SUBJECTS: [&str; 9] = [
        "Rust",
        "Rust +16 MiB",
        "Rust +64 MiB",
        "Rust +256 MiB",
        "Rust +1 GiB",
        "QuickJS",
        "SpiderMonkey",
        "CPython",
        "CPython +256 MiB",
    ];
    let plot = |name, title, bars: Vec<(String, &'static str)>| Plot {
        name,
        title,
        bars,
        subjects: SUBJECTS.to_vec(),
    };
    let row = |what: &str, label| (what.to_owned(), label);
    vec![
        plot(
            "resume",
            "Bringing an agent back",
            vec![
                row(resume::WARM, "warm slot"),
                row(resume::COLD, "cold, instance made first"),
                row(resume::UNCACHED, "cold, page cache empty"),
                row(resume::ON_DEMAND, "wasmtime: a new instance"),
                row(resume::POOLING, "wasmtime, pooling: the same"),
                row(resume::FORK, "fork(2) of such a process"),
            ],
        ),
        plot(
            "fork",
            "Forking an agent",
            vec![
                row(fork::INSTANCE, "instance of a fork"),
                row(fork::DURABLE, "durable, each of 100"),
                row(fork::LIVE, "one, durable and awake"),
                row(fork::DEEP, "the same, of a fork's fork"),
                row(resume::FORK, "fork(2) of such a process"),
            ],
        ),
        plot(
            "alive",
            "Memory of each fork alive at once (PSS)",
            CROWDS
                .iter()
                .zip(["of 1,000", "of 10,000"])
                .map(|(n, label)| (crowd::memory(*n), label))
                .collect(),
        ),
        plot(
            "pause",
            "A turn's image by how much has changed, without the disk's sync",
            [(0, "nothing"), (1, "1 %"), (10, "10 %")]
                .map(|(percent, label)| {
                    let what = generation::changed(percent, generation::IN_MEMORY);
                    (format!("{what}: as it reports itself"), label)
                })
                .to_vec(),
        ),
        plot(
            "first-touch",
            "The first turn after a warm resume, by pages written, without the disk's sync",
            [(0, "0 pages"), (1, "1 page"), (16, "16 pages"), (256, "256 pages")]
                .map(|(pages, label)| (generation::touched(pages), label))
                .to_vec(),
        ),
        plot("rewind", "Rewind and pause, durable", vec![row("rewind", "rewind"), row("pause", "pause")]),
    ]
}
