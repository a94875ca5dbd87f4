//! Forks that are all in memory at once.

use std::time::{Duration, Instant};

use anyhow::Context;
use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;
use dormouse_benches::peer::Peer;

use crate::fork::{names, remove};
use crate::subjects::{Plan, Subject};

/// After this, what a host gives back of the memory of agents that sleep has been given back.
const GIVEN_BACK: Duration = Duration::from_secs(3);

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

/// The same once the allocator has given back what it has free: whoever comes then does not find it.
fn settled() -> anyhow::Result<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
    proportional()
}

/// What instances of plain wasmtime take, where so many are in memory: that of each component once. None has run but
/// for what its instantiation runs.
pub fn plain(bench: &mut Bench, plans: &[Plan], count: usize) -> anyhow::Result<()> {
    if !bench.wants(&memory(count)) {
        return Ok(());
    }
    let mut seen = Vec::new();
    for plan in plans {
        if seen.contains(&plan.language) {
            continue;
        }
        seen.push(plan.language);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let peer = Peer::new(&plan.component)?;
        let before = settled()?;
        let mut kept = Vec::with_capacity(count);
        runtime.block_on(async {
            for _ in 0..count {
                kept.push(peer.keep().await?);
            }
            anyhow::Ok(())
        })?;
        let each = proportional()?.saturating_sub(before) / count as u64;
        bench.fact(format!("memory of each of {count} instances, plain wasmtime"), plan.language, each);
        drop(kept);
    }
    Ok(())
}

/// Makes so many forks, brings all of them into memory, and lets them go again.
pub fn alive(bench: &mut Bench, bed: &Bed, subject: &Subject, count: usize) -> anyhow::Result<()> {
    if !bench.wants(&memory(count)) {
        return Ok(());
    }
    let parent = bed.host()?.agent(subject.name)?;
    let alone = settled()?;
    let begun = Instant::now();
    let forks = bed.wait(parent.fork(&names(subject, "crowd", count)?, None))?;
    bench.samples(format!("fork, durable, each of {count}"), subject.label, [begun.elapsed() / count as u32]);
    let before = settled()?;
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
    // a host looks once in a second what there is to give back to the system
    if bench.is_measuring() {
        std::thread::sleep(GIVEN_BACK);
    }
    let each = proportional()?.saturating_sub(alone) / count as u64;
    bench.fact(format!("memory of each of {count} forks that have gone to sleep"), subject.label, each);
    remove(bed, &forks)
}
