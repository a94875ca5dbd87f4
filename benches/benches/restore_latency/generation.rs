//! Generations: a turn's end writes one with the pages that changed, pause and rewind write a record.

use std::io::IoSlice;
use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use dormouse::agent::TurnReport;
use dormouse::image::PAGE;
use dormouse::{Agent, Event};
use dormouse_benches::bed::Bed;
use dormouse_benches::bench::{Bench, Timed};
use dormouse_benches::guests;

use crate::PROGRAM;
use crate::resume::timed;
use crate::subjects::{Plan, Subject};

/// What a turn's row is called that changes so much of the memory.
pub fn changed(percent: u64, how: &str) -> String {
    format!("generation, {percent}% of the memory changed{how}")
}

/// What the row is called of a first turn that writes to so many pages.
pub fn touched(pages: usize) -> String {
    format!("turn, the first after a warm resume, {pages} pages written{IN_MEMORY}")
}

/// Pages of a file that a turn's image is appended to.
const PAGES_PER_FILE: usize = 4096;

/// How rows are called whose store is in memory.
pub const IN_MEMORY: &str = ", store in memory";

async fn turn(agent: &Agent, command: &str) -> anyhow::Result<TurnReport> {
    let report = agent.send(Event::message(command)?).await?;
    ensure!(report.reply.is_ok(), "{command}: {:?}", report.reply);
    Ok(report)
}

/// First turns after a warm resume that write to some pages: what first touches cost, beside what a turn costs.
fn touches(bench: &mut Bench, bed: &Bed, subject: &Subject) -> anyhow::Result<()> {
    let (host, agent) = (bed.host()?, bed.host()?.agent(subject.name)?);
    for pages in [0, 1, 16, 256] {
        let command = format!("touch-pages {pages}");
        bench.each(&touched(pages), subject.label, || {
            bed.wait(async {
                agent.sleep().await;
                host.prepare(&agent, 1).await?;
                ensure!(timed(&agent).await?.1, "no slot stood ready");
                Ok(turn(&agent, &command).await?.took)
            })
        });
    }
    Ok(())
}

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
        bench.each(&changed(percent, how), subject.label, || {
            bed.wait(async {
                agent.sleep().await;
                host.prepare(&agent, 1).await?;
                agent.resume().await?;
                let report = turn(&agent, &command).await?;
                Ok(Timed { took: report.took, reported: Some(report.imaging) })
            })
        });
    }
    bed.wait(agent.sleep());
    Ok(())
}

/// What the system takes for the pages of such turns: a write of as many to the end of a file, one call for 256, without
/// a sync.
fn bare_writes(bench: &mut Bench, place: &Path, subject: &Subject) -> anyhow::Result<()> {
    let file = tempfile::tempfile_in(place)?;
    for percent in [1, 10] {
        let count = (subject.pages * percent / 100) as usize;
        let mut pages = vec![[1_u8; PAGE]; count];
        let mut at = 0;
        bench.each(&format!("a bare write of the pages of {percent}%{IN_MEMORY}"), subject.label, || {
            // as a pages file, which another follows
            if at + count > PAGES_PER_FILE {
                file.set_len(0)?;
                at = 0;
            }
            for page in &mut pages {
                page[0] = page[0].wrapping_add(1);
            }
            let begun = Instant::now();
            for some in pages.chunks(256) {
                let slices: Vec<_> = some.iter().map(|page| IoSlice::new(page)).collect();
                let written = rustix::io::pwritev(&file, &slices, (at * PAGE) as u64)?;
                ensure!(written == some.len() * PAGE, "only {written} bytes were written");
                at += some.len();
            }
            Ok(begun.elapsed())
        });
    }
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
        turns(bench, &bed, &subject, IN_MEMORY)?;
        bare_writes(bench, place, &subject)?;
        pause(bench, &bed, &subject, IN_MEMORY)?;
        touches(bench, &bed, &subject)?;
    }
    Ok(())
}
