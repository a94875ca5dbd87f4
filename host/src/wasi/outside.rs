//! Where nondeterministic results come from.

use std::time::Instant;

use zone_vfs::id::Timestamp;

use super::call::{Asked, CallDigest};

/// Why a guest's call cannot be answered, and the turn ends.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OutsideError {
    /// A turn that is taken again asks otherwise than the first time.
    #[error(transparent)]
    Diverged(Box<Divergence>),
    /// The turn has asked so much that depends on others that its journal would be larger than one can be.
    #[error("the turn has asked for more than its journal may hold, which is {limit} bytes")]
    TooMuch {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The system gives no random numbers.
    #[error("random numbers: {0}")]
    Random(std::sync::Arc<std::io::Error>),
}

/// The first call in which a turn that is taken again differs from what was recorded of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("call {call}: recorded is {recorded}, and the replay comes to {replayed}")]
pub struct Divergence {
    /// How many calls agree before it.
    pub call: u64,
    /// What was recorded.
    pub recorded: String,
    /// What the replay comes to.
    pub replayed: String,
}

/// Everything that a guest can learn and that its own memory and zones do not determine. The
/// journal implements it to record and to replay; [`LiveOutside`] asks the system.
pub trait Outside: Send {
    /// The wall clock, for the guest.
    fn wall_clock(&mut self) -> Result<Timestamp, OutsideError>;

    /// The monotonic clock of the agent, in nanoseconds, for the guest: it goes on over pause and resume and never
    /// goes back.
    fn monotonic(&mut self) -> Result<u64, OutsideError>;

    /// What the monotonic clock shows, for the host itself.
    fn now(&self) -> u64;

    /// The time that zones stamp changes with.
    fn zone_time(&mut self) -> Timestamp;

    /// Fills `bytes` with random numbers fit for cryptography.
    fn random(&mut self, bytes: &mut [u8]) -> Result<(), OutsideError>;

    /// A turn begins, and its facts with `began`, which is the journal's own.
    fn begin(&mut self, _began: &[u8]) -> Result<(), OutsideError> {
        Ok(())
    }

    /// The turn has come to its end, and its facts have been taken: what is asked from here on is of no turn. One that is
    /// taken again is told whether anything is left that it did not ask.
    fn end(&mut self) -> Result<(), OutsideError> {
        Ok(())
    }

    /// Whether what is asked and told is of interest.
    fn is_noting(&self) -> bool {
        false
    }

    /// A call was answered from the agent's own zones; `digest` is of its arguments and its result.
    fn note(&mut self, _asked: Asked, _digest: CallDigest) -> Result<(), OutsideError> {
        Ok(())
    }

    /// The recorded result of a call that depends on others, where there is one: the call is not made then.
    fn recall(&mut self, _asked: Asked) -> Result<Option<Vec<u8>>, OutsideError> {
        Ok(None)
    }

    /// Such a call was made, and this is its result.
    fn record(&mut self, _asked: Asked, _result: &[u8]) -> Result<(), OutsideError> {
        Ok(())
    }

    /// What was noted and recorded since this was asked last: to be made durable with what the turn has written. Empty
    /// where there is nothing.
    fn take_facts(&mut self) -> Result<Vec<u8>, OutsideError> {
        Ok(Vec::new())
    }
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
    fn wall_clock(&mut self) -> Result<Timestamp, OutsideError> {
        self.last_wall = Timestamp::now();
        Ok(self.last_wall)
    }

    fn monotonic(&mut self) -> Result<u64, OutsideError> {
        Ok(self.now())
    }

    fn now(&self) -> u64 {
        self.offset.saturating_add(self.resumed.elapsed().as_nanos() as u64)
    }

    #[inline]
    fn zone_time(&mut self) -> Timestamp {
        if self.process { Timestamp::now() } else { self.last_wall }
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), OutsideError> {
        system_random(bytes)
    }
}

/// Fills `bytes` with random numbers of the system's.
pub(crate) fn system_random(bytes: &mut [u8]) -> Result<(), OutsideError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(OutsideError::Random(std::sync::Arc::new(e.into()))),
        }
    }
    Ok(())
}
