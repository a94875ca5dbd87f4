//! Forks that are all in memory at once.

use std::time::Instant;

use anyhow::Context;
use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;

use crate::fork::{names, remove};
use crate::subjects::Subject;

/// What a fork takes, where so many are in memory.
pub fn memory(count: usize) -> String {
    format!("memory of each of {count} forks alive")
}

/// What bringing one of them into memory takes.
pub fn resume(count: usize) -> String {
    format!("resume, each of {count} forks, cold")
}

/// Bytes that are this process's, shared pages in proportion.
fn proportional() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("the system does not tell")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// Makes so many forks, brings all of them into memory, and lets them go again.
pub fn alive(bench: &mut Bench, bed: &Bed, subject: &Subject, count: usize) -> anyhow::Result<()> {
    let parent = bed.host()?.agent(subject.name)?;
    let alone = proportional()?;
    let begun = Instant::now();
    let forks = bed.wait(parent.fork(&names(subject, "crowd", count)?, None))?;
    bench.samples(format!("fork, durable, each of {count}"), subject.label, [begun.elapsed() / count as u32]);
    let before = proportional()?;
    let mut took = Vec::with_capacity(count);
    let woken = bed.wait(async {
        for fork in &forks {
            let begun = Instant::now();
            fork.resume().await?;
            took.push(begun.elapsed());
        }
        anyhow::Ok(())
    });
    match woken {
        Ok(()) => {
            bench.samples(resume(count), subject.label, took);
            let each = proportional()?.saturating_sub(before) / count as u64;
            bench.fact(memory(count), subject.label, each);
        }
        Err(e) => {
            bench.note(format!("{} of {count} forks of {} came alive: {e:#}", took.len(), subject.label));
        }
    }
    bed.wait(async {
        for fork in &forks {
            fork.sleep().await;
        }
    });
    let each = proportional()?.saturating_sub(alone) / count as u64;
    bench.fact(format!("memory of each of {count} forks that have gone to sleep"), subject.label, each);
    remove(bed, &forks)
}
