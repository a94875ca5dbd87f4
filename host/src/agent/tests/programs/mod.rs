//! Random programs: rewritten, paused after every call and resumed elsewhere, they do what they would have done.
//!
//! wasm-smith makes core modules from a seed; [`shape`] dresses them as a component of several levels and
//! instances; [`written`] has some that are written by hand. Each program runs on three [`machines`] at once, and after every call all three stand alike.

mod machines;
pub(crate) mod random;
mod shape;
mod written;

use super::super::AgentError;
use crate::component::{ComponentError, Reason, Variant, inspect, rewrite};
use crate::image::DirtyTracking;

use self::machines::{Bench, Mistake};
use self::random::Random;
use self::shape::Program;

/// Programs of all tests together. `DORMOUSE_PROGRAMS` asks for more.
const PROGRAMS: u64 = 1_000;
/// Tests that share them.
const SHARES: u64 = 8;

/// What has become of some programs.
#[derive(Default, Debug)]
struct Tally {
    programs: u32,
    refused: u32,
    ended_early: u32,
    with_tables: u32,
    with_tags: u32,
    calls: u64,
    restores: u64,
    traps: u64,
    thrown: u64,
}

fn programs() -> u64 {
    std::env::var("DORMOUSE_PROGRAMS").map_or(PROGRAMS, |text| text.parse().unwrap())
}

fn run(seeds: impl Iterator<Item = u64>) -> Tally {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut tally = Tally::default();
    let bench = Bench::new();
    for seed in seeds {
        let mut random = Random::new(seed);
        let program = Program::new(&mut random);
        tally.programs += 1;
        let tracking = if seed % 4 == 0 { DirtyTracking::Comparison } else { DirtyTracking::here() };
        match runtime.block_on(bench.run(&program, &mut random, tracking, None)) {
            Ok(ended) => {
                tally.calls += ended.calls;
                tally.restores += ended.restores;
                tally.traps += ended.traps;
                tally.thrown += ended.thrown;
                tally.ended_early += u32::from(ended.early);
                tally.with_tables += u32::from(ended.tables);
                tally.with_tags += u32::from(program.has_tags());
            }
            Err(Failed::Refused(_)) => tally.refused += 1,
            Err(Failed::Differs(what)) => panic!("seed {seed}: {what}\n{program:?}"),
        }
    }
    tally
}

/// Why a program did not run to its end.
#[derive(Debug)]
enum Failed {
    /// It cannot be captured, for this reason first.
    Refused(#[expect(dead_code, reason = "printed")] Reason),
    /// The machines do not agree.
    Differs(String),
}

impl From<ComponentError> for Failed {
    fn from(e: ComponentError) -> Self {
        match e {
            ComponentError::Refused(refusals) if !refusals.is_empty() => {
                Self::Refused(refusals[0].reason.clone())
            }
            e => Self::Differs(format!("rewriting: {e}")),
        }
    }
}

impl From<AgentError> for Failed {
    fn from(e: AgentError) -> Self {
        Self::Differs(format!("{e}: {:?}", std::error::Error::source(&e)))
    }
}

impl From<crate::image::ImageError> for Failed {
    fn from(e: crate::image::ImageError) -> Self {
        Self::Differs(format!("{e}: {:?}", std::error::Error::source(&e)))
    }
}

fn share(number: u64) {
    let tally = run((0..programs()).filter(|seed| seed % SHARES == number));
    println!("{tally:?}");
    assert!(tally.refused * 10 <= tally.programs, "most programs can be captured: {tally:?}");
    assert!(tally.ended_early * 2 <= tally.programs, "most programs run to their end: {tally:?}");
    assert!(tally.with_tables * 10 >= tally.programs, "some change tables: {tally:?}");
    assert!(tally.with_tags * 20 >= tally.programs, "some throw exceptions: {tally:?}");
    assert!(tally.calls > 3 * u64::from(tally.programs), "they are called: {tally:?}");
}

macro_rules! shares {
    ($($name:ident: $number:literal,)*) => {
        $(
            #[test]
            fn $name() {
                share($number);
            }
        )*
    };
}

shares! {
    paused_and_resumed_they_go_on_as_without_0: 0,
    paused_and_resumed_they_go_on_as_without_1: 1,
    paused_and_resumed_they_go_on_as_without_2: 2,
    paused_and_resumed_they_go_on_as_without_3: 3,
    paused_and_resumed_they_go_on_as_without_4: 4,
    paused_and_resumed_they_go_on_as_without_5: 5,
    paused_and_resumed_they_go_on_as_without_6: 6,
    paused_and_resumed_they_go_on_as_without_7: 7,
}

#[test]
fn the_same_seed_is_the_same_program() {
    let program = |seed| Program::new(&mut Random::new(seed)).component();
    assert_eq!(program(7), program(7));
    assert_ne!(program(7), program(8));
}

/// What is read of a file that was tampered with and what is written of it agree, whatever is in it: what the rewriter
/// gives out it has validated.
#[test]
fn damaged_programs_are_refused_or_written_anew() {
    let (mut refused, mut written) = (0, 0);
    for seed in 0..programs() / 10 {
        let mut random = Random::new(seed);
        let wasm = Program::new(&mut random).component();
        for _ in 0..20 {
            let mut damaged = wasm.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(damaged.len());
                match random.below(4) {
                    0 => damaged.truncate(at.max(1)),
                    1 => damaged[at] = random.next() as u8,
                    2 => damaged[at] ^= 1 << random.below(8),
                    _ => {
                        let from = random.below(damaged.len());
                        let len = random.below(16).min(damaged.len() - at.max(from));
                        damaged.copy_within(from..from + len, at);
                    }
                }
            }
            let capturable = inspect(&damaged).is_ok_and(|report| report.capturable && report.components > 0);
            for variant in [Variant::Boot, Variant::Restore] {
                let rewritten = rewrite(&damaged, variant);
                assert_eq!(rewritten.is_ok(), capturable, "seed {seed}: {:?}", rewritten.err());
            }
            *if capturable { &mut written } else { &mut refused } += 1;
        }
    }
    assert!(refused > 0 && written > 0, "{refused} refused, {written} written");
}

#[test]
fn mistakes_are_noticed() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bench = Bench::new();
    for mistake in [Mistake::Globals, Mistake::Pages] {
        let is_noticed = |seed| {
            let mut random = Random::new(seed);
            let program = Program::new(&mut random);
            let run = bench.run(&program, &mut random, DirtyTracking::here(), Some(mistake));
            matches!(runtime.block_on(run), Err(Failed::Differs(_)))
        };
        assert!((0..20).any(is_noticed), "{mistake:?}");
    }
}
