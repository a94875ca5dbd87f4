//! Forks.

use std::time::Instant;

use anyhow::ensure;
use dormouse::{Agent, AgentName};
use dormouse_benches::bed::{Bed, send};
use dormouse_benches::bench::{Bench, Timed};

use crate::resume::{READY, timed};
use crate::subjects::Subject;

/// Forks that are made by one call, as `dormouse fork --count` does.
const COUNT: usize = 100;

/// What the rows are called.
pub const INSTANCE: &str = "fork, instance from the parent's image";
pub const DURABLE: &str = "fork, durable, each of 100";
pub const DEEP: &str = "fork, one, durable and awake, of a fork of a fork";
pub const LIVE: &str = "fork, one, durable and awake";

/// Names for the forks of one agent. They can be used again when the forks are removed.
pub fn names(subject: &Subject, what: &str, count: usize) -> anyhow::Result<Vec<AgentName>> {
    (0..count).map(|n| Ok(AgentName::new(&format!("{}-{what}-{n}", subject.name))?)).collect()
}

/// Removes them.
pub fn remove(bed: &Bed, forks: &[Agent]) -> anyhow::Result<()> {
    // not by the host, which would look each time for image files that nothing needs any more
    let store = bed.host()?.store()?;
    forks.iter().try_for_each(|fork| Ok(store.remove(fork.id())?))
}

/// An instance of a fork from its parent's image: what a fork costs once it is on record.
pub fn instance(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let (host, parent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    let forks = bed.wait(parent.fork(&names(subject, "instance", COUNT)?, None))?;
    let mut next = forks.iter().cycle();
    let mut used = 0..;
    bench.each(INSTANCE, subject.label, || {
        bed.wait(async {
            let Some(fork) = next.next() else { anyhow::bail!("there are no forks") };
            if used.next().is_some_and(|n| n % READY == 0) {
                host.prepare(fork, READY).await?;
            }
            let (timed, warm) = timed(fork).await?;
            ensure!(warm, "no slot stood ready");
            fork.sleep().await;
            Ok(Timed { reported: None, ..timed })
        })
    });
    remove(bed, &forks)
}

/// Durable forks, a hundred by one call: the time for one of them.
pub fn durable(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let parent = bed.host()?.agent(subject.name)?;
    let names = names(subject, "durable", COUNT)?;
    bench.each(DURABLE, subject.label, || {
        let begun = Instant::now();
        let forks = bed.wait(parent.fork(&names, None))?;
        let took = begun.elapsed();
        ensure!(forks.len() == COUNT, "there are {} forks", forks.len());
        remove(bed, &forks)?;
        Ok(took / COUNT as u32)
    });
    Ok(())
}

/// One durable fork that is awake at the end, of the agent and of a fork of a fork of it, which have taken turns.
pub fn to_live(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let agent = bed.host()?.agent(subject.name)?;
    live(bench, bed, subject, &agent, LIVE)?;
    let chain = bed.wait(async {
        let mut chain: Vec<Agent> = Vec::new();
        for name in names(subject, "chain", 2)? {
            let parent = chain.last().unwrap_or(&agent);
            let forks = parent.fork(&[name], None).await?;
            chain.extend(forks);
            if let Some(fork) = chain.last() {
                send(fork, "next").await?;
            }
        }
        anyhow::Ok(chain)
    })?;
    if let Some(last) = chain.last() {
        live(bench, bed, subject, last, DEEP)?;
    }
    remove(bed, &chain)
}

fn live(bench: &mut Bench, bed: &Bed, subject: &Subject, parent: &Agent, what: &str) -> anyhow::Result<()> {
    let host = bed.host()?;
    let names = names(subject, "live", 1)?;
    bench.each(what, subject.label, || {
        bed.wait(async {
            host.prepare(parent, 1).await?;
            let begun = Instant::now();
            let forks = parent.fork(&names, None).await?;
            for fork in &forks {
                ensure!(timed(fork).await?.1, "no slot stood ready");
            }
            let took = begun.elapsed();
            for fork in &forks {
                fork.sleep().await;
            }
            remove(bed, &forks)?;
            Ok(took)
        })
    });
    Ok(())
}
