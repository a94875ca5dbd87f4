//! Random work by several agents on a simulated device, machines that stop at any point of it, and
//! a model that says what must then be there.
//!
//! One run of a workload gives many crashes: the device remembers every change, and after each of
//! them, and in the middle, the machine is stopped in several ways. Every store that is left is
//! opened and compared with the model, and the work goes on in one of them.
//!
//! - `ZONE_VFS_CRASH_STATES=100000` asks for more crashes than the few thousand of a usual run,
//! - `ZONE_VFS_CRASH_FIRST=1000` begins with another seed than the usual,
//! - `ZONE_VFS_CRASH_SEED=7` runs the workload of one seed, as a failure names it.

mod backups;
mod check;
mod faults;
mod forgetting;
mod planted;
mod retention;
mod shared;
pub mod timeline;
mod turns;
mod versions;
mod work;

use super::model::ModelAgent;
use super::needles::Needles;
use super::*;
use crate::device::simulated::{Fault, Rng};
use crate::zone::{BOUNDS, Bounds};
use retention::Reapings;
use shared::{SeenTeam, Team, Teams, try_see_teams};
use timeline::{Candidate, Timeline};
use work::{Trouble, Work};

/// Crashes that a run of the tests goes through, unless it is told otherwise.
const USUAL_STATES: u64 = 3_000;
/// Times the machine stops in one workload.
const ROUNDS: u64 = 3;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The agents as the model has them.
pub type Found = BTreeMap<String, ModelAgent>;

/// All that a store shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    pub agents: BTreeMap<String, Seen>,
    pub teams: BTreeMap<String, SeenTeam>,
}

impl World {
    pub fn try_of(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { agents: try_see_all(store)?, teams: try_see_teams(store)? })
    }
}

/// The ways in which one workload differs from the next.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    /// Writes and flushes fail, and the disk is full.
    trouble: bool,
    /// The device forgets to sync folders.
    no_folder_sync: bool,
}

/// Runs the workload of `seed` and gives the number of different crashes that it went through.
fn run(seed: u64, conditions: Conditions) -> Result<u64, String> {
    clock::start();
    // in every second workload zones let go of what is in memory all the time
    let little = Bounds { content: 4 << 10, changed: 8, ..Bounds::USUAL };
    BOUNDS.set(if seed % 2 == 1 { little } else { Bounds::USUAL });
    let mut rng = Rng::new(seed ^ 0xc4a5);
    let device = Simulated::new(seed);
    if conditions.no_folder_sync {
        device.inject(Fault::NoFolderSync);
    }
    let mut work = Work::new(seed, device);
    let mut states = 0;
    for round in 0..ROUNDS {
        let failed = |work: &Work, what: String| {
            format!("seed {seed}, round {round}: {what}\nsteps:\n{}", work.steps.join("\n"))
        };
        let trouble = if conditions.trouble { Trouble::draw(&mut rng, &work.device) } else { Trouble::None };
        let (mut trace, timeline) = work.round(trouble).map_err(|what| failed(&work, what))?;
        let mut different = std::collections::HashSet::new();
        let mut next = None;
        loop {
            let ways = if trace.is_settled() { 1 } else { 3 };
            for _ in 0..ways {
                let how = rng.bits();
                let device = trace.crash(how);
                if !different.insert(device.fingerprint()) {
                    continue;
                }
                let found = check::after_crash(&device, &timeline, trace.at(), &mut rng)
                    .map_err(|what| failed(&work, format!("change {}, crash {how}: {what}", trace.at())))?;
                if rng.one_in(different.len() as u64) {
                    next = Some((trace.at(), device, found));
                }
            }
            if !trace.step().map_err(|e| e.to_string())? {
                break;
            }
        }
        states += different.len() as u64;
        let Some((at, device, found)) = next else { return Err("no crash was tried".into()) };
        let device = if rng.one_in(2) { device.crash(rng.bits()) } else { device.killed() };
        work.go_on(at, device, found);
    }
    Ok(states)
}

/// Runs workloads from `first` on until they have gone through so many crashes, on all processors.
fn run_many(first: u64, wanted: u64, conditions: Conditions) {
    use std::sync::atomic::{AtomicU64, Ordering};
    if let Some(seed) = variable("ZONE_VFS_CRASH_SEED") {
        run(seed, conditions).unwrap();
        return;
    }
    let first = first + variable("ZONE_VFS_CRASH_FIRST").unwrap_or_default();
    let (seeds, states) = (AtomicU64::new(first), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while states.load(Ordering::Relaxed) < wanted {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    match run(seed, conditions) {
                        Ok(more) => states.fetch_add(more, Ordering::Relaxed),
                        Err(what) => panic!("{what}\nagain with ZONE_VFS_CRASH_SEED={seed}"),
                    };
                }
            });
        }
    });
    let (workloads, states) = (seeds.into_inner() - first, states.into_inner());
    println!("{states} different crashes of {workloads} workloads, {conditions:?}");
}

fn wanted() -> u64 {
    variable("ZONE_VFS_CRASH_STATES").unwrap_or(USUAL_STATES)
}

#[test]
fn after_any_crash_all_that_was_acknowledged_is_there_and_nothing_is_half_there() {
    run_many(0, wanted() * 3 / 4, Conditions::default());
}

#[test]
fn the_same_holds_with_failed_writes_and_flushes_and_full_disks() {
    run_many(1 << 32, wanted() / 4, Conditions { trouble: true, ..Conditions::default() });
}

#[test]
fn a_seed_is_always_the_same_workload() {
    let once = || {
        clock::start();
        let mut work = Work::new(5, Simulated::new(5));
        let (mut trace, _) = work.round(Trouble::None).unwrap();
        while trace.step().unwrap() {}
        (trace.at(), trace.crash(1).fingerprint(), work.steps)
    };
    assert_eq!(once(), once());
}
