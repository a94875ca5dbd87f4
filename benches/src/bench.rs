//! Criterion, with every sample kept beside it.
//!
//! Criterion decides how often to measure, compares with earlier runs and prints its statistics; the
//! report is made from the very same samples.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use criterion::{Criterion, SamplingMode, Throughput};

use crate::machine::Machine;
use crate::plot::{self, Plot};
use crate::report::{Fact, Report, Row};

/// How long criterion runs each benchmark before it measures. Those samples are not reported.
const WARM_UP: Duration = Duration::from_millis(500);
/// About how long each benchmark is measured, preparations included.
const MEASURED: Duration = Duration::from_millis(2500);
/// Samples that criterion takes; each is of many iterations, which are all reported.
const SAMPLES: usize = 20;

/// How often each subject of a race runs.
pub const ROUNDS: usize = 9;

/// One that takes part in a race.
pub struct Racer<'a> {
    /// What it is called in the report.
    pub subject: &'a str,
    /// Runs a round; gives the mean of one operation.
    pub run: &'a mut dyn FnMut() -> anyhow::Result<Duration>,
}

/// How long one operation took.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// As its caller sees it.
    pub took: Duration,
    /// As the operation itself says.
    pub reported: Option<Duration>,
}

impl From<Duration> for Timed {
    fn from(took: Duration) -> Self {
        Self { took, reported: None }
    }
}

/// What many operations gave, of which several may have been under way at a time.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// From the first's start to the last's end.
    pub took: Duration,
    /// How long each was under way.
    pub each: Vec<Duration>,
}

/// One benchmark program.
pub struct Bench {
    criterion: Criterion,
    report: Report,
    target: PathBuf,
    measuring: bool,
}

#[derive(Default)]
struct Series {
    /// Time spent in criterion's calls so far.
    spent: Duration,
    samples: Vec<u64>,
    reported: Vec<u64>,
    operations: u64,
    took: Duration,
    means: bool,
}

impl Series {
    /// Runs one of criterion's calls; says whether it is one to report, as against the warm-up.
    fn call<R>(&mut self, work: impl FnOnce(&mut Self, bool) -> R) -> R {
        let counts = self.spent > WARM_UP;
        let begun = Instant::now();
        let result = work(self, counts);
        self.spent += begun.elapsed();
        result
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Bench {
    /// A benchmark program of this name; `tmp` is cargo's `CARGO_TARGET_TMPDIR`.
    pub fn new(name: &'static str, tmp: &Path) -> Self {
        let criterion = Criterion::default()
            .warm_up_time(WARM_UP)
            .measurement_time(MEASURED)
            .sample_size(SAMPLES)
            .configure_from_args();
        let report = Report {
            name,
            machine: Machine::here(tmp),
            rows: Vec::new(),
            facts: Vec::new(),
            notes: Vec::new(),
        };
        let target = tmp.parent().unwrap_or(tmp).to_path_buf();
        // without `--bench`, which `cargo bench` gives, criterion runs everything just once
        let measuring = std::env::args().any(|a| a == "--bench") && !std::env::args().any(|a| a == "--test");
        Self { criterion, report, target, measuring }
    }

    /// Whether numbers are wanted; otherwise everything is run once, to see that it runs.
    pub fn is_measuring(&self) -> bool {
        self.measuring
    }

    /// Whether this is to be measured, which criterion does not measure itself: all is, or what contains the word
    /// after `--`.
    pub fn wants(&self, what: &str) -> bool {
        std::env::args().skip(1).find(|arg| !arg.starts_with('-')).is_none_or(|word| what.contains(&word))
    }

    /// Cargo's target folder.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Tells the report's reader something.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        eprintln!("note: {note}");
        self.report.notes.push(note);
    }

    /// Adds something that is no time.
    pub fn fact(&mut self, what: impl Into<String>, subject: &str, bytes: u64) {
        self.report.facts.push(Fact { what: what.into(), subject: subject.into(), bytes });
    }

    /// Adds a row of samples that were taken elsewhere, where numbers are wanted.
    pub fn samples(
        &mut self,
        what: impl Into<String>,
        subject: &str,
        samples: impl IntoIterator<Item = Duration>,
    ) {
        let samples =
            if self.measuring { samples.into_iter().map(nanoseconds).collect() } else { Vec::new() };
        let row = Row { what: what.into(), subject: subject.into(), samples, means: false, per_second: None };
        self.report.rows.push(row);
    }

    /// Measures an operation one by one. `once` prepares it, does it, and says how long it took
    /// without the preparation.
    pub fn each<T: Into<Timed>>(
        &mut self,
        what: &str,
        subject: &str,
        mut once: impl FnMut() -> anyhow::Result<T>,
    ) {
        self.measure(what, subject, false, |series, counts, iterations| {
            let mut total = Duration::ZERO;
            for _ in 0..iterations {
                let timed = once()?.into();
                total += timed.took;
                if counts {
                    series.samples.push(nanoseconds(timed.took));
                    series.reported.extend(timed.reported.map(nanoseconds));
                }
            }
            Ok(total)
        });
    }

    /// Measures an operation that is too short to be timed alone. `many` does it as often as it is
    /// told, and says how long that took. A sample is the mean over one call of `many`.
    pub fn mean(&mut self, what: &str, subject: &str, mut many: impl FnMut(u64) -> anyhow::Result<Duration>) {
        self.measure(what, subject, false, |series, counts, iterations| {
            let took = many(iterations)?;
            if counts {
                series.samples.push(nanoseconds(took) / iterations);
                series.means = true;
            }
            Ok(took)
        });
    }

    /// Measures operations of which several are under way at a time: how long each is, and how many
    /// are done in a second. `many` does as many as it is told.
    pub fn flow(&mut self, what: &str, subject: &str, mut many: impl FnMut(u64) -> anyhow::Result<Flow>) {
        self.measure(what, subject, true, |series, counts, iterations| {
            let flow = many(iterations)?;
            if counts {
                series.operations += iterations;
                series.took += flow.took;
                series.samples.extend(flow.each.iter().copied().map(nanoseconds));
            }
            Ok(flow.took)
        });
    }

    /// Lets subjects do the same in turn, [`ROUNDS`] times each, so that what else goes on hits them all.
    /// Each `run` gives the mean of one operation in its round. The first round is not reported. Without
    /// criterion, which measures one subject after the other.
    pub fn race(&mut self, what: &str, subjects: &mut [Racer<'_>]) -> anyhow::Result<()> {
        let rounds = if self.measuring { ROUNDS } else { 0 };
        let mut samples = vec![Vec::new(); subjects.len()];
        for round in 0..=rounds {
            for (racer, samples) in subjects.iter_mut().zip(&mut samples) {
                let took = (racer.run)().with_context(|| format!("{what}, {}", racer.subject))?;
                if round > 0 {
                    samples.push(nanoseconds(took));
                }
            }
        }
        for (racer, samples) in subjects.iter().zip(samples) {
            let mut sorted = samples.clone();
            sorted.sort_unstable();
            if let Some(median) = sorted.get(sorted.len() / 2) {
                eprintln!("{what}/{}: {}", racer.subject, crate::report::duration(*median));
            }
            self.report.rows.push(Row {
                what: what.into(),
                subject: racer.subject.into(),
                samples,
                means: true,
                per_second: None,
            });
        }
        Ok(())
    }

    fn measure(
        &mut self,
        what: &str,
        subject: &str,
        flows: bool,
        mut work: impl FnMut(&mut Series, bool, u64) -> anyhow::Result<Duration>,
    ) {
        let mut series = Series::default();
        let mut group = self.criterion.benchmark_group(what);
        group.sampling_mode(SamplingMode::Flat);
        if flows {
            group.throughput(Throughput::Elements(1));
        }
        group.bench_function(subject, |bencher| {
            bencher.iter_custom(|iterations| {
                series
                    .call(|series, counts| work(series, counts, iterations))
                    .unwrap_or_else(|e| panic!("{what}, {subject}: {e:#}"))
            });
        });
        group.finish();
        let per_second =
            (flows && series.operations > 0).then(|| series.operations as f64 / series.took.as_secs_f64());
        self.report.rows.push(Row {
            what: what.into(),
            subject: subject.into(),
            samples: series.samples,
            means: series.means,
            per_second,
        });
        if !series.reported.is_empty() {
            self.report.rows.push(Row {
                what: format!("{what}: as it reports itself"),
                subject: subject.into(),
                samples: series.reported,
                means: false,
                per_second: None,
            });
        }
    }

    /// Writes the report to standard output and into `target/bench-report`, and the plots beside it, if anything was
    /// measured.
    pub fn finish(self, plots: &[Plot]) -> anyhow::Result<()> {
        self.criterion.final_summary();
        if self.report.rows.iter().any(|r| !r.samples.is_empty()) {
            let folder = self.target.join("bench-report");
            self.report.publish(&folder)?;
            plot::draw(plots, &self.report, &folder)?;
        }
        Ok(())
    }
}
