//! Generations: a turn's end writes one with the pages that changed, pause and rewind write a record.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use dormouse_benches::bed::{Bed, send};
use dormouse_benches::bench::Bench;
use dormouse_benches::guests;

use crate::PROGRAM;
use crate::subjects::{Plan, Subject};

/// Turns that write to a part of the memory, to the durable reply: the call, the faults on the pages
/// that are written, finding them, their image, and the commit. An agent's memory is never newer than
/// its last turn, so that this is where a pause's work is done.
pub fn turns(bench: &mut Bench, bed: &Bed, subject: &Subject, how: &str) -> anyhow::Result<()> {
    if !subject.touches {
        return Ok(());
    }
    let (host, agent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    for percent in [0, 1, 10] {
        let command = format!("touch-pages {}", subject.pages * percent / 100);
        bench.each(&format!("generation, {percent}% of the memory changed{how}"), subject.label, || {
            bed.wait(async {
                agent.sleep().await;
                host.prepare(&agent, 1).await?;
                agent.resume().await?;
                let begun = Instant::now();
                send(&agent, &command).await?;
                Ok(begun.elapsed())
            })
        });
    }
    bed.wait(agent.sleep());
    Ok(())
}

/// Pause of an agent that is awake: a generation on record, and the instance dropped.
pub fn pause(bench: &mut Bench, bed: &Bed, subject: &Subject, how: &str) -> anyhow::Result<()> {
    let (host, agent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    bench.each(&format!("pause{how}"), subject.label, || {
        bed.wait(async {
            host.prepare(&agent, 1).await?;
            agent.resume().await?;
            let begun = Instant::now();
            agent.pause().await?;
            Ok(begun.elapsed())
        })
    });
    Ok(())
}

/// Rewind of an agent that is awake to where it stood before its last turns. It sleeps afterwards.
pub fn rewind(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let (host, agent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    let to = agent.info()?.head;
    bench.each("rewind", subject.label, || {
        bed.wait(async {
            host.prepare(&agent, 1).await?;
            agent.resume().await?;
            let begun = Instant::now();
            let made = agent.rewind(to).await?;
            let took = begun.elapsed();
            ensure!(made > to, "the rewind made no new generation");
            Ok(took)
        })
    });
    Ok(())
}

/// The same turns on a filesystem in memory, where a sync costs nothing.
pub fn without_sync(bench: &mut Bench) -> anyhow::Result<()> {
    const HOW: &str = ", store in memory";
    let place = Path::new("/dev/shm");
    let mut bed = match Bed::new(place, PROGRAM) {
        Ok(bed) => bed,
        Err(e) => {
            bench.note(format!("turns without a sync were not measured: {e:#}"));
            return Ok(());
        }
    };
    let notes = guests::read(bench.target(), "notes")?;
    let mut plans = vec![Plan::rust(notes.clone(), "Rust +16 MiB", "rust-16", 16)];
    if bench.is_measuring() {
        plans.push(Plan::rust(notes, "Rust +64 MiB", "rust-64", 64));
    }
    for plan in &plans {
        let subject = match plan.settle(&mut bed) {
            Ok(subject) => subject,
            Err(e) => {
                bench.note(format!("{} in memory was not measured: {e:#}", plan.label));
                continue;
            }
        };
        turns(bench, &bed, &subject, HOW)?;
        pause(bench, &bed, &subject, HOW)?;
    }
    Ok(())
}
