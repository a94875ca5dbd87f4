//! What it costs to bring an agent back, to fork it, to write a generation and to rewind it.
//!
//! - [`subjects`]: the agents that are measured, from a few hundred KiB of memory to 256 MiB.
//! - [`resume`]: warm slot, cold, another process; beside plain wasmtime's instantiation.
//! - [`fork`]: durable forks, and an instance of a fork.
//! - [`generation`]: turns that change a part of the memory, pause, rewind.

mod fork;
mod generation;
mod resume;
mod subjects;

use std::path::Path;

use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;

/// The command `dormouse`, built as this benchmark is.
const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-benched");

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("restore_latency", tmp);
    let subjects = subjects::all(&mut bench)?;
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
        fork::instance(&mut bench, &bed, subject)?;
        fork::durable(&mut bench, &bed, subject)?;
        fork::to_live(&mut bench, &bed, subject)?;
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
    bench.finish()
}
