//! The turns that are over: the latest in memory, older ones in pieces in the segments.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::Payload;
use super::older::TurnRecord1;
use super::state::{Outcome, TurnRecord};
use super::{StoreError, blob};
use crate::chunks::ChunkStore;
use crate::id::Turn;

/// Turns in one piece, at most.
const TURNS: usize = 256;
/// A piece is closed when the events, facts and outcomes in it have so many bytes.
const PIECE_BYTES: usize = 128 << 10;
/// What a piece begins with. One of version 1 begins with the number of its turns, which is never 0.
const VERSION_2: [u8; 2] = [0, 2];

/// Turns that were written down together, and will not be again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    /// How many.
    pub turns: u32,
    /// The last of them.
    pub last: Turn,
    /// The list of them.
    pub content: Payload,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub pieces: Vec<Piece>,
    /// Those that are in no piece; the last turn always is among them.
    pub tail: Vec<Arc<TurnRecord>>,
    /// How often turns were taken back out of pieces. What was written of the tail before one of these is of another.
    recalls: u64,
}

impl History {
    pub fn new(pieces: Vec<Piece>, tail: Vec<Arc<TurnRecord>>) -> Self {
        Self { pieces, tail, recalls: 0 }
    }

    pub fn push(&mut self, turn: TurnRecord) {
        self.tail.push(Arc::new(turn));
    }

    pub fn last(&self) -> Option<&TurnRecord> {
        self.tail.last().map(|turn| &**turn)
    }

    /// The turns after `after`, oldest first, at most `limit` of them.
    pub fn read(
        &self,
        after: Turn,
        limit: usize,
        chunks: &dyn ChunkStore,
    ) -> Result<Vec<TurnRecord>, StoreError> {
        let mut found = Vec::new();
        for piece in self.pieces.iter().filter(|it| it.last > after) {
            if found.len() >= limit {
                break;
            }
            found.extend(piece.read(chunks)?.into_iter().filter(|it| it.turn > after));
        }
        found.extend(self.tail.iter().filter(|it| it.turn > after).map(|it| TurnRecord::clone(it)));
        found.truncate(limit);
        Ok(found)
    }

    /// Writes full pieces of the tail, and moves those turns out of it. Gives the new pieces.
    pub fn page(&mut self, chunks: &dyn ChunkStore) -> Result<Vec<Piece>, StoreError> {
        let (mut begin, mut bytes) = (0, 0);
        let mut made = Vec::new();
        for (index, turn) in self.tail.iter().enumerate() {
            let full = index - begin == TURNS || bytes >= PIECE_BYTES;
            if full && index > begin {
                made.push(Piece::write(&self.tail[begin..index], chunks)?);
                (begin, bytes) = (index, 0);
            }
            bytes += size(turn);
        }
        self.paged(&made);
        Ok(made)
    }

    /// Takes the pieces from the turn `first` on back into memory; they are written anew with the next checkpoint. An
    /// error changes nothing.
    pub fn recall(&mut self, first: Turn, chunks: &dyn ChunkStore) -> Result<(), StoreError> {
        let kept = self.pieces.partition_point(|piece| piece.last < first);
        let mut tail = Vec::new();
        for piece in &self.pieces[kept..] {
            tail.extend(piece.read(chunks)?.into_iter().map(Arc::new));
        }
        self.pieces.truncate(kept);
        tail.append(&mut self.tail);
        self.tail = tail;
        self.recalls += 1;
        Ok(())
    }

    /// Erases events, facts and outcomes of the turns from `first` to `last`, of which what is in pieces is
    /// [recalled](Self::recall) first: nothing is read where that was done before.
    pub fn erase(&mut self, first: Turn, last: Turn, chunks: &dyn ChunkStore) -> Result<(), StoreError> {
        self.recall(first, chunks)?;
        for turn in self.tail.iter_mut().filter(|it| (first..=last).contains(&it.turn)) {
            let turn = Arc::make_mut(turn);
            turn.event = Payload::Inline(Vec::new());
            turn.facts.clear();
            turn.outcome = match turn.outcome {
                Outcome::Ended(_) => Outcome::Ended(Payload::Inline(Vec::new())),
                Outcome::Failed(_) => Outcome::Failed("forgotten".into()),
            };
        }
        Ok(())
    }

    /// Notes what was written of the tail as it stood in `written`, unless turns were taken back since then: the
    /// beginning of the tail is another.
    pub fn take_over(&mut self, written: &Self, made: &[Piece]) {
        if self.recalls == written.recalls {
            self.paged(made);
        }
    }

    /// Notes that the beginning of the tail is in these pieces.
    fn paged(&mut self, made: &[Piece]) {
        let turns: usize = made.iter().map(|it| it.turns as usize).sum();
        self.tail.drain(..turns.min(self.tail.len()));
        self.pieces.extend_from_slice(made);
    }
}

impl Piece {
    fn write(turns: &[Arc<TurnRecord>], chunks: &dyn ChunkStore) -> Result<Self, StoreError> {
        let plain: Vec<&TurnRecord> = turns.iter().map(|turn| &**turn).collect();
        let bytes = postcard::to_extend(&plain, VERSION_2.to_vec())
            .map_err(|e| StoreError::Encoding(e.to_string()))?;
        let last = turns.last().map_or(Turn(0), |turn| turn.turn);
        Ok(Self { turns: turns.len() as u32, last, content: blob::put_stored(chunks, &bytes)? })
    }

    pub fn read(&self, chunks: &dyn ChunkStore) -> Result<Vec<TurnRecord>, StoreError> {
        let bytes = blob::get(chunks, &self.content)?;
        let turns = match (bytes.strip_prefix(&VERSION_2), bytes.first()) {
            (Some(turns), _) => postcard::from_bytes(turns),
            (None, Some(0)) => {
                let found = bytes.get(1).copied().unwrap_or_default().into();
                return Err(StoreError::NewerRecord { found, supported: VERSION_2[1].into() });
            }
            (None, _) => postcard::from_bytes::<Vec<TurnRecord1>>(&bytes)
                .map(|turns| turns.into_iter().map(TurnRecord::from).collect()),
        };
        turns.map_err(|e| StoreError::Encoding(e.to_string()))
    }
}

fn size(turn: &TurnRecord) -> usize {
    let payload = |it: &Payload| if let Payload::Inline(bytes) = it { bytes.len() } else { 0 };
    payload(&turn.event)
        + turn.facts.iter().map(payload).sum::<usize>()
        + match &turn.outcome {
            Outcome::Ended(outcome) => payload(outcome),
            Outcome::Failed(reason) => reason.len(),
        }
}

impl TurnRecord {
    /// The payloads that it names.
    pub(super) fn payloads(&self) -> impl Iterator<Item = &Payload> {
        let outcome = if let Outcome::Ended(outcome) = &self.outcome { Some(outcome) } else { None };
        std::iter::once(&self.event).chain(&self.facts).chain(outcome)
    }
}
