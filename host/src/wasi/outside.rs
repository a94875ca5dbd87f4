//! Where nondeterministic results come from.

use std::time::Instant;

use zone_vfs::id::Timestamp;

/// Everything that a guest can learn and that its own memory and zones do not determine. The
/// journal will implement it to record and to replay; [`LiveOutside`] asks the system.
pub trait Outside: Send {
    /// The wall clock.
    fn wall_clock(&mut self) -> Timestamp;

    /// The monotonic clock of the agent, in nanoseconds: it goes on over pause and resume and never
    /// goes back.
    fn monotonic(&mut self) -> u64;

    /// The time that zones stamp changes with.
    fn zone_time(&mut self) -> Timestamp;

    /// Fills `bytes` with random numbers fit for cryptography.
    fn random(&mut self, bytes: &mut [u8]) -> std::io::Result<()>;
}

/// The system's own clocks and random numbers.
#[derive(Clone, Debug)]
pub struct LiveOutside {
    /// What the agent's monotonic clock showed when it was resumed.
    offset: u64,
    resumed: Instant,
    last_wall: Timestamp,
    /// Zone times follow the clock, rather than the last that the guest has seen.
    process: bool,
}

impl LiveOutside {
    /// Goes on from what the monotonic clock showed at the pause. A `process` (a command) has its
    /// files stamped with the time of each change; a turn has them stamped with the last time that
    /// was recorded in it, which begins with its start.
    pub fn new(monotonic: u64, process: bool) -> Self {
        Self { offset: monotonic, resumed: Instant::now(), last_wall: Timestamp::now(), process }
    }
}

impl Outside for LiveOutside {
    fn wall_clock(&mut self) -> Timestamp {
        self.last_wall = Timestamp::now();
        self.last_wall
    }

    fn monotonic(&mut self) -> u64 {
        self.offset.saturating_add(self.resumed.elapsed().as_nanos() as u64)
    }

    #[inline]
    fn zone_time(&mut self) -> Timestamp {
        if self.process { Timestamp::now() } else { self.last_wall }
    }

    fn random(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
