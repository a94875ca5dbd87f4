//! What the system lets one process have, and how much of it live agents use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

use super::{Host, lock};
use crate::agent::AgentError;

/// Bits of an address that a process has on this architecture. Source: Linux, `Documentation/arch/x86/x86_64/mm.rst`.
const ADDRESS_BITS: u32 = 47;
/// Of what is used, in percent, that much is told.
const TOLD_FROM: u64 = 80;
/// It is told again when so much more is used. Percent.
const TOLD_AGAIN: u64 = 5;
/// Of mappings, in percent: from there on agents that nobody uses go to sleep.
const SLEEP_FROM: u64 = 90;
/// Of mappings, in percent: where so many are used though nobody is left to go to sleep, no agent is started.
const REFUSED_FROM: u64 = 97;
/// Starts between two looks, at least.
const LEAST_STARTS: u64 = 16;

/// A bound of the system's on the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimit {
    /// What is bounded.
    pub what: &'static str,
    /// How much of it the process has.
    pub used: u64,
    /// How much it can have.
    pub limit: u64,
    /// What an agent in memory takes of it, about, once it has taken a turn.
    pub each: u64,
    /// How the bound is raised.
    pub remedy: &'static str,
}

impl ProcessLimit {
    /// Used of a hundred.
    fn percent(&self) -> u64 {
        self.used.saturating_mul(100) / self.limit.max(1)
    }
}

impl Host {
    /// How many agents can be in memory at once is bounded by what the system lets the process have: memory mappings
    /// first, on most machines, then open files and addresses. A warning is logged when 80 % of one are used.
    ///
    /// # Errors
    ///
    /// What reading `/proc` fails with.
    pub fn process_limits(&self) -> std::io::Result<Vec<ProcessLimit>> {
        process_limits()
    }
}

/// Looks at the limits now and then, as agents are started.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// Starts until the next look.
    left: AtomicU64,
    /// How much of each was used, in percent, when that was told.
    told: Mutex<Vec<u64>>,
    /// Mappings that the process may have, where that is less than the system's limit.
    mappings: Option<u64>,
}

/// Whether more agents can be brought into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// Of these mappings so many are used that others should go.
    Short(ProcessLimit),
}

impl Room {
    fn of(limits: &[ProcessLimit]) -> Self {
        match limits.iter().find(|limit| limit.what == MAPPINGS && limit.percent() >= SLEEP_FROM) {
            Some(limit) => Self::Short(*limit),
            None => Self::Enough,
        }
    }

    /// What an agent is refused with that would come in all the same.
    pub fn refused(self) -> Result<(), AgentError> {
        match self {
            Self::Short(limit) if limit.percent() >= REFUSED_FROM => {
                Err(AgentError::Mappings { used: limit.used, limit: limit.limit })
            }
            _ => Ok(()),
        }
    }
}

impl Headroom {
    /// Where the process may have no more than so many mappings, or as many as the system allows.
    pub fn new(mappings: Option<u64>) -> Self {
        Self { mappings, ..Self::default() }
    }

    /// An agent is brought into memory.
    pub fn note_start(&self) -> Room {
        let one_less = |left: u64| Some(left.saturating_sub(1));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if left.is_ok_and(|left| left > 1) {
            return Room::Enough;
        }
        self.now()
    }

    /// How much room there is now.
    pub fn now(&self) -> Room {
        match process_limits() {
            Ok(mut limits) => {
                for limit in limits.iter_mut().filter(|limit| limit.what == MAPPINGS) {
                    limit.limit = self.mappings.unwrap_or(u64::MAX).min(limit.limit);
                }
                self.look(&limits);
                Room::of(&limits)
            }
            // without /proc there is nothing to tell
            Err(e) => {
                tracing::debug!("the limits of the process cannot be read: {e}");
                self.left.store(u64::MAX, Ordering::Relaxed);
                Room::Enough
            }
        }
    }

    fn look(&self, limits: &[ProcessLimit]) {
        let mut told = lock(&self.told);
        told.resize(limits.len(), 0);
        let mut starts = u64::MAX;
        for (limit, told) in limits.iter().zip(told.iter_mut()) {
            let percent = limit.percent();
            if percent < TOLD_FROM {
                *told = 0;
            } else if *told == 0 || percent >= *told + TOLD_AGAIN {
                *told = percent;
                let ProcessLimit { what, used, limit, remedy, .. } = limit;
                tracing::warn!("{used} of {limit} {what} are used ({percent} %): {remedy}");
            }
            let next = if percent < TOLD_FROM { TOLD_FROM } else { SLEEP_FROM };
            let rest = (limit.limit / 100 * next).saturating_sub(limit.used);
            starts = starts.min(rest / limit.each.max(1));
        }
        self.left.store(starts.max(LEAST_STARTS), Ordering::Relaxed);
    }
}

const MAPPINGS: &str = "memory mappings";

fn process_limits() -> std::io::Result<Vec<ProcessLimit>> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(std::io::Error::other);
    let maps = std::fs::read("/proc/self/maps")?.split(|byte| *byte == b'\n').count().saturating_sub(1);
    let files = std::fs::read_dir("/proc/self/fd")?.count();
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = number(statm.split(' ').next().unwrap_or_default())?;
    let soft = |resource, most| getrlimit(resource).current.unwrap_or(most).min(most);
    Ok(vec![
        ProcessLimit {
            what: MAPPINGS,
            used: maps as u64,
            limit: number(&std::fs::read_to_string("/proc/sys/vm/max_map_count")?)?,
            each: 8,
            remedy: "raise it with `sysctl vm.max_map_count=N`, or let agents sleep",
        },
        ProcessLimit {
            what: "open files",
            used: files as u64,
            limit: soft(Resource::Nofile, u64::from(u32::MAX)),
            each: 1,
            remedy: "raise it with `ulimit -n N`, or let agents sleep",
        },
        ProcessLimit {
            what: "bytes of addresses",
            used: pages * rustix::param::page_size() as u64,
            limit: soft(Resource::As, 1 << ADDRESS_BITS),
            each: 16 << 30,
            remedy: "let agents sleep, or spread them over several processes",
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(used: u64) -> [ProcessLimit; 1] {
        [ProcessLimit { what: "things", used, limit: 10_000, each: 8, remedy: "less" }]
    }

    #[test]
    fn it_looks_again_before_it_could_be_too_late() {
        let room = Headroom::default();
        let left = || room.left.load(Ordering::Relaxed);
        room.look(&limit(0));
        assert_eq!(left(), 1_000, "after so many starts 80 % would be used");
        room.look(&limit(7_900));
        assert_eq!(left(), LEAST_STARTS);
        assert_eq!(*lock(&room.told), [0]);
        for (used, told) in [(8_000, 80), (8_400, 80), (8_500, 85), (9_999, 99), (100, 0)] {
            room.look(&limit(used));
            assert_eq!(*lock(&room.told), [told], "{used}");
        }
    }

    #[test]
    fn agents_go_to_sleep_before_none_is_started_any_more() {
        let room = |used| {
            let limit = ProcessLimit { what: MAPPINGS, used, limit: 1_000, each: 8, remedy: "less" };
            Room::of(&[limit])
        };
        assert_eq!(room(899), Room::Enough);
        assert!(room(900) != Room::Enough && room(969).refused().is_ok());
        let refused = room(970).refused().unwrap_err().to_string();
        assert!(refused.contains("970 of 1000") && refused.contains("vm.max_map_count"), "{refused}");
        assert!(Room::of(&limit(9_999)) == Room::Enough, "of other things there is only a warning");
    }

    #[test]
    fn what_this_process_has_is_read() {
        for limit in process_limits().unwrap() {
            assert!(limit.used > 0 && limit.used < limit.limit, "{limit:?}");
        }
        let room = Headroom::default();
        room.note_start();
        assert!(room.left.load(Ordering::Relaxed) >= LEAST_STARTS);
    }
}
