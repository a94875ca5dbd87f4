//! Resume, and what plain wasmtime does instead.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dormouse::Agent;
use dormouse_benches::bed::{Bed, send};
use dormouse_benches::bench::{Bench, Timed};
use dormouse_benches::peer::Peer;

use crate::subjects::{Plan, Subject};
use crate::{FORK_PEER, PROGRAM};

/// What a peer's rows are called.
pub const ON_DEMAND: &str = "instantiate, plain wasmtime";
pub const POOLING: &str = "instantiate, plain wasmtime, pooling";
pub const FORK: &str = "fork(2) of a process of that size";
/// What a resume's rows are called.
pub const WARM: &str = "resume, warm slot";
pub const COLD: &str = "resume, cold";
pub const UNCACHED: &str = "resume, cold, image not in the page cache";

/// Plain wasmtime's instantiation of the unrewritten components. It gives a component that has just
/// been started, not an agent that remembers.
pub fn plain(bench: &mut Bench, plans: &[Plan]) -> anyhow::Result<()> {
    let mut seen = Vec::new();
    for plan in plans {
        if seen.contains(&plan.language) {
            continue;
        }
        seen.push(plan.language);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut measure = |what: &str, peer: Peer| {
            bench.each(what, plan.language, || runtime.block_on(peer.instantiate()));
        };
        measure(ON_DEMAND, Peer::new(&plan.component)?);
        measure(POOLING, Peer::pooling(&plan.component)?);
    }
    Ok(())
}

/// Forks that the process of a peer makes of itself.
const FORKS: usize = 200;

/// How long `fork(2)` takes of a process that has written to as much memory as an agent has.
pub fn fork_of_process(bench: &mut Bench, subject: &Subject) -> anyhow::Result<()> {
    if !bench.wants(FORK) {
        return Ok(());
    }
    let bytes = subject.pages * dormouse::image::PAGE as u64;
    let count = if bench.is_measuring() { FORKS } else { 1 };
    let output = Command::new(FORK_PEER).args([bytes.to_string(), count.to_string()]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    let samples: Vec<Duration> =
        lines.lines().map(|line| Ok(Duration::from_nanos(line.parse()?))).collect::<anyhow::Result<_>>()?;
    bench.samples(FORK, subject.label, samples);
    Ok(())
}

/// Resumes a sleeping agent; says how long the call took, and whether a slot stood ready.
pub async fn timed(agent: &Agent) -> anyhow::Result<(Timed, bool)> {
    let begun = Instant::now();
    let resumed = agent.resume().await?;
    let took = begun.elapsed();
    ensure!(!resumed.was_live, "it was in memory already");
    Ok((Timed { took, reported: Some(resumed.took) }, resumed.warm))
}

/// Slots are made ready so many at a time, so that not every resume comes right after an
/// instantiation, which leaves nothing of use in the processor's caches.
pub const READY: usize = 16;

/// Into a slot that stands ready.
pub fn warm(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let (host, agent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    let mut used = 0..;
    bench.each(WARM, subject.label, || {
        bed.wait(async {
            if used.next().is_some_and(|n| n % READY == 0) {
                host.prepare(&agent, READY).await?;
            }
            let (timed, warm) = timed(&agent).await?;
            ensure!(warm, "no slot stood ready");
            agent.sleep().await;
            Ok(timed)
        })
    });
    Ok(())
}

/// With an instance that has to be made first.
pub fn cold(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let agent = bed.host()?.agent(subject.name)?;
    bench.each(COLD, subject.label, || {
        bed.wait(async {
            loop {
                let (timed, warm) = timed(&agent).await?;
                agent.sleep().await;
                // a slot that still stood ready is used up now
                if !warm {
                    return Ok(Timed { reported: None, ..timed });
                }
            }
        })
    });
    Ok(())
}

/// As [`cold`], where the system has none of the store's images in its page cache: what the resume itself reads, and then
/// with a turn, which reads what it touches.
pub fn uncached(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let agent = bed.host()?.agent(subject.name)?;
    bench.each(UNCACHED, subject.label, || {
        bed.wait(async {
            agent.sleep().await;
            forget_cached(&bed.store().join("images"))?;
            let (timed, _) = timed(&agent).await?;
            agent.sleep().await;
            Ok(Timed { reported: None, ..timed })
        })
    });
    Ok(())
}

/// Takes the files of a folder out of the page cache.
fn forget_cached(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let file = File::open(entry?.path())?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// By the program, in a process of its own that opens the store, resumes and exits.
pub fn other_process(bench: &mut Bench, bed: &Bed, subject: &Subject) {
    bench.each("resume, another process", subject.label, || {
        let begun = Instant::now();
        let output = Command::new(PROGRAM)
            .arg("--store")
            .arg(bed.store())
            .args(["--max-memory", "2G"])
            .args(["resume", subject.name, "--json"])
            .output()
            .context("starting the program")?;
        let took = begun.elapsed();
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let microseconds = said["microseconds"].as_f64().context("it reports no microseconds")?;
        Ok(Timed { took, reported: Some(Duration::from_secs_f64(microseconds / 1e6)) })
    });
}

/// The first turn after a warm resume, which pays for the pages that it touches, and a turn of an
/// agent that is awake. Both end with a durable generation.
pub fn first_turn(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let (host, agent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    let turn = async || {
        let begun = Instant::now();
        send(&agent, "next").await?;
        anyhow::Ok(begun.elapsed())
    };
    bench.each("turn, the first after a warm resume", subject.label, || {
        bed.wait(async {
            agent.sleep().await;
            host.prepare(&agent, 1).await?;
            ensure!(timed(&agent).await?.1, "no slot stood ready");
            turn().await
        })
    });
    bench.each("turn, awake", subject.label, || bed.wait(turn()));
    bed.wait(agent.sleep());
    Ok(())
}
