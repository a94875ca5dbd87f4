//! A turn's facts, noted as it goes on; and taken again.

use std::collections::VecDeque;

use zone_vfs::id::Timestamp;

use super::facts::{Began, Entry, FACTS_VERSION, Listing, MAX_FACTS};
use crate::wasi::{Asked, Call, CallDigest, Divergence, LiveOutside, Outside, OutsideError, system_random};

/// Random numbers of a turn: the output of BLAKE3 keyed with the turn's seed, which is as good as the seed is secret
/// (<https://github.com/BLAKE3-team/BLAKE3-specs>, section 6.3).
struct TurnRandom(blake3::OutputReader);

impl TurnRandom {
    fn of(seed: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_keyed(seed).finalize_xof())
    }
}

/// A fresh seed.
pub(crate) fn fresh_seed() -> Result<[u8; 32], OutsideError> {
    let mut seed = [0; 32];
    system_random(&mut seed)?;
    Ok(seed)
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn args(asked: Asked) -> [u8; 4] {
    asked.digest.finish32().to_le_bytes()
}

/// Asks the system, and notes what it answers once a turn has begun.
pub(crate) struct Recording {
    live: LiveOutside,
    turn: Option<Turn>,
}

struct Turn {
    random: TurnRandom,
    at: Timestamp,
    listing: Listing,
    /// Entries that no piece has yet, as postcard.
    pending: Vec<u8>,
    /// Bytes of those that one has.
    taken: usize,
}

impl Turn {
    fn push(&mut self, entry: &Entry) -> Result<(), OutsideError> {
        // appending to a vector does not fail
        if let Ok(longer) = postcard::to_extend(entry, std::mem::take(&mut self.pending)) {
            self.pending = longer;
        }
        if self.taken + self.pending.len() > MAX_FACTS {
            return Err(OutsideError::TooMuch { limit: MAX_FACTS });
        }
        Ok(())
    }

    fn push_all(&mut self, entries: [Option<Entry>; 2]) -> Result<(), OutsideError> {
        entries.iter().flatten().try_for_each(|entry| self.push(entry))
    }
}

impl Recording {
    /// Goes on from what the monotonic clock of an agent showed.
    pub fn new(monotonic: u64) -> Self {
        Self { live: LiveOutside::new(monotonic, false), turn: None }
    }

    fn told(&mut self, call: Call, value: u64) -> Result<(), OutsideError> {
        self.record(call.plain(), &value.to_le_bytes())
    }
}

impl Outside for Recording {
    fn wall_clock(&mut self) -> Result<Timestamp, OutsideError> {
        let now = self.live.wall_clock()?;
        if let Some(turn) = &mut self.turn {
            turn.at = now;
        }
        self.told(Call::WallClock, now.0)?;
        Ok(now)
    }

    fn monotonic(&mut self) -> Result<u64, OutsideError> {
        let now = self.live.now();
        self.told(Call::MonotonicClock, now)?;
        Ok(now)
    }

    fn now(&self) -> u64 {
        self.live.now()
    }

    fn zone_time(&mut self) -> Timestamp {
        match &self.turn {
            Some(turn) => turn.at,
            None => self.live.zone_time(),
        }
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), OutsideError> {
        let Some(turn) = &mut self.turn else { return self.live.random(bytes) };
        turn.random.0.fill(bytes);
        let asked = Call::Random.plain().with(bytes.len() as u64);
        self.note(asked, asked.digest)
    }

    fn begin(&mut self, began: &[u8]) -> Result<(), OutsideError> {
        self.turn = None;
        // it comes from the host itself; one that does not read is of no turn
        if let Ok(began) = postcard::from_bytes::<Began>(began) {
            let (random, at) = (TurnRandom::of(&began.seed), began.at);
            let mut turn = Turn { random, at, listing: Listing::default(), pending: Vec::new(), taken: 0 };
            turn.push(&Entry::Began(Box::new(began)))?;
            self.turn = Some(turn);
        }
        Ok(())
    }

    fn is_noting(&self) -> bool {
        self.turn.is_some()
    }

    fn note(&mut self, asked: Asked, digest: CallDigest) -> Result<(), OutsideError> {
        let Some(turn) = &mut self.turn else { return Ok(()) };
        match turn.listing.call(asked, digest) {
            Some(entry) => turn.push(&entry),
            None => Ok(()),
        }
    }

    fn record(&mut self, asked: Asked, result: &[u8]) -> Result<(), OutsideError> {
        let Some(turn) = &mut self.turn else { return Ok(()) };
        turn.listing.told();
        let together = turn.listing.flush();
        turn.push_all([together, Some(Entry::Told(asked.call as u8, args(asked), result.to_vec()))])
    }

    fn take_facts(&mut self) -> Result<Vec<u8>, OutsideError> {
        let Some(turn) = &mut self.turn else { return Ok(Vec::new()) };
        let together = turn.listing.flush();
        turn.push_all([together, None])?;
        let entries = std::mem::take(&mut turn.pending);
        turn.taken += entries.len();
        let mut piece = Vec::with_capacity(entries.len() + 1);
        piece.push(FACTS_VERSION);
        piece.extend_from_slice(&entries);
        Ok(piece)
    }
}

/// Answers as a turn was answered that has been recorded, and compares what it is asked.
pub(crate) struct Replaying {
    entries: VecDeque<Entry>,
    random: TurnRandom,
    at: Timestamp,
    listing: Listing,
}

impl Replaying {
    /// Of a turn that began so, with these entries behind its beginning.
    pub fn new(began: &Began, entries: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            entries: entries.into_iter().collect(),
            random: TurnRandom::of(&began.seed),
            at: began.at,
            listing: Listing::default(),
        }
    }

    fn differs(&self, recorded: Option<&Entry>, replayed: String) -> OutsideError {
        let recorded = recorded.map_or_else(|| "the end of the turn".into(), Entry::describe);
        let call = self.listing.calls();
        OutsideError::Diverged(Box::new(Divergence { call, recorded, replayed }))
    }

    fn expect(&mut self, entry: &Entry) -> Result<(), OutsideError> {
        match self.entries.pop_front() {
            Some(found) if found == *entry => Ok(()),
            found => Err(self.differs(found.as_ref(), entry.describe())),
        }
    }

    fn told(&mut self, asked: Asked) -> Result<Vec<u8>, OutsideError> {
        self.listing.told();
        if let Some(together) = self.listing.flush() {
            self.expect(&together)?;
        }
        let (number, digest) = (asked.call as u8, args(asked));
        match self.entries.pop_front() {
            Some(Entry::Told(call, of, result)) if (call, of) == (number, digest) => Ok(result),
            found => {
                let replayed = Entry::Called(number, digest).describe();
                Err(self.differs(found.as_ref(), replayed))
            }
        }
    }

    fn told_number(&mut self, call: Call) -> Result<u64, OutsideError> {
        let told = self.told(call.plain())?;
        number(&told).ok_or_else(|| {
            self.differs(None, format!("`{}`, of which nothing readable is recorded", call.name()))
        })
    }
}

impl Outside for Replaying {
    fn wall_clock(&mut self) -> Result<Timestamp, OutsideError> {
        self.at = Timestamp(self.told_number(Call::WallClock)?);
        Ok(self.at)
    }

    fn monotonic(&mut self) -> Result<u64, OutsideError> {
        self.told_number(Call::MonotonicClock)
    }

    fn now(&self) -> u64 {
        0
    }

    fn zone_time(&mut self) -> Timestamp {
        self.at
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), OutsideError> {
        self.random.0.fill(bytes);
        let asked = Call::Random.plain().with(bytes.len() as u64);
        self.note(asked, asked.digest)
    }

    fn is_noting(&self) -> bool {
        true
    }

    fn note(&mut self, asked: Asked, digest: CallDigest) -> Result<(), OutsideError> {
        match self.listing.call(asked, digest) {
            Some(entry) => self.expect(&entry),
            None => Ok(()),
        }
    }

    fn recall(&mut self, asked: Asked) -> Result<Option<Vec<u8>>, OutsideError> {
        self.told(asked).map(Some)
    }

    fn take_facts(&mut self) -> Result<Vec<u8>, OutsideError> {
        if let Some(together) = self.listing.flush() {
            self.expect(&together)?;
        }
        Ok(Vec::new())
    }

    fn end(&mut self) -> Result<(), OutsideError> {
        self.take_facts()?;
        match self.entries.pop_front() {
            Some(left) => Err(self.differs(Some(&left), "the end of the turn".into())),
            None => Ok(()),
        }
    }
}
