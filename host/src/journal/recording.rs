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
        let before = self.pending.len();
        // appending to a vector does not fail
        if let Ok(longer) = postcard::to_extend(entry, std::mem::take(&mut self.pending)) {
            self.pending = longer;
        }
        if self.taken + self.pending.len() > MAX_FACTS {
            self.pending.truncate(before);
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

    fn end(&mut self) -> Result<(), OutsideError> {
        self.turn = None;
        Ok(())
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

#[cfg(test)]
mod tests {
    use zone_vfs::id::{GenerationNumber, Inode};

    use super::*;
    use crate::journal::facts::{LISTED_CALLS, encode_began, read};
    use crate::wasi::Start;

    /// What a guest asks, one after the other.
    #[derive(Clone, Copy)]
    enum Ask {
        Wall,
        Monotonic,
        Random(usize),
        /// From its own zones.
        Stat(u64),
        /// From a shared one.
        Shared(u64),
    }

    /// Asks, and gives what is told.
    fn ask(outside: &mut dyn Outside, asks: &[Ask]) -> Result<Vec<Vec<u8>>, OutsideError> {
        asks.iter()
            .map(|ask| {
                Ok(match *ask {
                    Ask::Wall => outside.wall_clock()?.0.to_le_bytes().to_vec(),
                    Ask::Monotonic => outside.monotonic()?.to_le_bytes().to_vec(),
                    Ask::Random(len) => {
                        let mut bytes = vec![0; len];
                        outside.random(&mut bytes)?;
                        bytes
                    }
                    Ask::Stat(inode) => {
                        let asked = Call::Stat.at(0, Inode(inode));
                        outside.note(asked, asked.digest)?;
                        Vec::new()
                    }
                    Ask::Shared(inode) => {
                        let asked = Call::Read.at(1, Inode(inode));
                        if let Some(known) = outside.recall(asked)? {
                            return Ok(known);
                        }
                        outside.record(asked, b"what others wrote")?;
                        b"what others wrote".to_vec()
                    }
                })
            })
            .collect()
    }

    fn began() -> Began {
        Began {
            base: GenerationNumber(3),
            zones_as_in_base: true,
            has_connections: false,
            tells_start: false,
            start: Start::Resumed,
            lifecycle: 7,
            name: "a".into(),
            seed: fresh_seed().unwrap(),
            at: Timestamp(5),
            max_memory: 1 << 20,
            max_table: 10,
        }
    }

    /// A turn that asks so, with a commit point behind each part; what it was told, and its entries.
    fn recorded(parts: &[&[Ask]]) -> (Vec<Vec<u8>>, Began, Vec<Entry>) {
        let began = began();
        let mut recording = Recording::new(1_000);
        recording.begin(&encode_began(&began).unwrap()).unwrap();
        assert_eq!(recording.zone_time(), Timestamp(5));
        let (mut told, mut entries) = (Vec::new(), Vec::new());
        for part in parts {
            told.extend(ask(&mut recording, part).unwrap());
            entries.extend(read(&recording.take_facts().unwrap()).unwrap());
        }
        recording.end().unwrap();
        assert!(!recording.is_noting() && recording.take_facts().unwrap().is_empty(), "of no turn");
        let first = entries.remove(0);
        assert_eq!(first, Entry::Began(Box::new(began.clone())));
        (told, began, entries)
    }

    const ASKS: [Ask; 8] = [
        Ask::Stat(1),
        Ask::Wall,
        Ask::Random(40),
        Ask::Shared(2),
        Ask::Stat(4),
        Ask::Monotonic,
        Ask::Random(3),
        Ask::Stat(5),
    ];

    #[test]
    fn a_turn_that_asks_the_same_is_told_the_same() {
        let (told, began, entries) = recorded(&[&ASKS[..3], &[], &ASKS[3..]]);
        let mut replaying = Replaying::new(&began, entries);
        assert_eq!(ask(&mut replaying, &ASKS).unwrap(), told);
        let wall = Timestamp(u64::from_le_bytes(told[1].clone().try_into().unwrap()));
        assert_eq!(replaying.zone_time(), wall, "files have the time that was seen last");
        replaying.end().unwrap();
        let (other, ..) = recorded(&[&ASKS]);
        assert_ne!(other[2], told[2], "each turn has a seed of its own");
    }

    #[test]
    fn the_first_call_that_differs_is_named() {
        let (_, began, entries) = recorded(&[&ASKS]);
        let first = |asks: &[Ask], at_end: bool| {
            let mut replaying = Replaying::new(&began, entries.clone());
            let asked = ask(&mut replaying, asks);
            match if at_end { asked.and_then(|_| replaying.end()) } else { asked.map(drop) } {
                Err(OutsideError::Diverged(at)) => *at,
                other => panic!("{other:?}"),
            }
        };
        // another file, another call, another argument, one less, one more
        let mut asks = ASKS;
        asks[4] = Ask::Stat(9);
        let at = first(&asks, false);
        assert!(
            at.call == 5 && at.recorded.starts_with("`stat` (") && at.replayed.starts_with("`stat` ("),
            "{at}"
        );
        asks[4] = Ask::Monotonic;
        let at = first(&asks, false);
        assert!(
            at.recorded.starts_with("`stat`") && at.replayed.starts_with("`monotonic-clock now`"),
            "{at}"
        );
        let mut asks = ASKS;
        asks[2] = Ask::Random(41);
        assert_eq!(first(&asks, false).call, 3);
        asks[2] = ASKS[2];
        asks[3] = Ask::Shared(3);
        assert_eq!(first(&asks, false).call, 4);
        assert_eq!(first(&ASKS[..7], true).replayed, "the end of the turn");
        let more: Vec<Ask> = ASKS.iter().copied().chain([Ask::Stat(6)]).collect();
        assert_eq!(first(&more, false).recorded, "the end of the turn");
    }

    #[test]
    fn calls_beyond_those_that_are_listed_are_compared_together() {
        let many: Vec<Ask> = (0..LISTED_CALLS + 5_000).map(Ask::Stat).chain([Ask::Wall]).collect();
        let (told, began, entries) = recorded(&[&many]);
        assert!(entries.len() < LISTED_CALLS as usize + 5);
        let mut replaying = Replaying::new(&began, entries.clone());
        assert_eq!(ask(&mut replaying, &many).unwrap(), told);
        replaying.end().unwrap();
        let mut other = many;
        other[LISTED_CALLS as usize + 4_500] = Ask::Stat(0);
        let mut replaying = Replaying::new(&began, entries);
        assert!(matches!(ask(&mut replaying, &other), Err(OutsideError::Diverged(_))));
    }

    #[test]
    fn facts_are_limited_and_what_there_is_stays_whole() {
        let mut recording = Recording::new(0);
        recording.begin(&encode_began(&began()).unwrap()).unwrap();
        let large = vec![7; 1 << 20];
        let mut taken = 0;
        let refused = loop {
            match recording.record(Call::Read.plain(), &large) {
                Ok(()) if taken == 5 => assert!(!recording.take_facts().unwrap().is_empty()),
                Ok(()) => {}
                Err(e) => break e,
            }
            taken += 1;
        };
        assert!(
            matches!(refused, OutsideError::TooMuch { limit: MAX_FACTS }) && taken == 15,
            "{taken}: {refused}"
        );
        let piece = recording.take_facts().unwrap();
        assert_eq!(read(&piece).unwrap().len(), 9);
    }
}
