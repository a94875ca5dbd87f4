//! The events that an agent has answered: one that comes again gets the first reply.

use std::collections::HashMap;

use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, Generation, Outcome, TurnRecord};

use super::{Agent, AgentError};
use crate::journal::{self, EventRecord, OutcomeRecord};

/// Turns that are looked back on, at most.
const MAX_TURNS: usize = 1024;
/// Bytes of events that are read to look back, at most: earlier turns are not looked at then.
const MAX_READ: u64 = 64 << 20;

/// The turns of an agent's branch that ended with a reply, by a hash of their event's id.
#[derive(Default)]
pub(crate) struct Seen {
    turns: HashMap<u64, Turn>,
}

fn hash(id: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The turns that led to where an agent stands, as ranges (after, up to): those that a rewind left
/// behind are not among them. Where a rewind went to a generation that is not kept any more, what was
/// before is not known, and not among them either: such an event is answered anew.
fn branch(generations: &[Generation], head: GenerationNumber) -> Vec<(Turn, Turn)> {
    let find = |number| generations.iter().find(|g| g.number == number);
    let mut ranges = Vec::new();
    let mut at = find(head);
    while let Some(stands) = at {
        let rewinds = generations.iter().rev().filter(|g| g.number <= stands.number);
        let last = rewinds.into_iter().find_map(|g| match g.cause {
            Cause::Rewound(to) => Some((g.turn, to)),
            _ => None,
        });
        ranges.push((last.map_or(Turn(0), |(turn, _)| turn), stands.turn));
        // a rewind goes to an earlier generation: this comes to an end
        at = last.and_then(|(_, to)| find(to));
    }
    ranges
}

impl Seen {
    /// Notes that the event with this id has been answered.
    pub fn note(&mut self, id: &str, turn: Turn) {
        if self.turns.len() >= 2 * MAX_TURNS {
            let oldest = Turn(turn.0.saturating_sub(MAX_TURNS as u64));
            self.turns.retain(|_, seen| *seen > oldest);
        }
        self.turns.insert(hash(id), turn);
    }
}

impl Agent {
    fn read_event(&self, record: &TurnRecord) -> Result<Option<(String, OutcomeRecord)>, AgentError> {
        let Outcome::Ended(outcome) = &record.outcome else { return Ok(None) };
        if record.event.is_empty() {
            // forgotten
            return Ok(None);
        }
        match journal::decode(&self.disk.payload(&record.event)?)? {
            EventRecord::Event { id, .. } => Ok(Some((id, journal::decode(&self.disk.payload(outcome)?)?))),
            EventRecord::Run(_) | EventRecord::Upgrade { .. } => Ok(None),
        }
    }

    fn look_back(&self) -> Result<Seen, AgentError> {
        let branch = branch(&self.disk.generations(), self.disk.head());
        let mut seen = Seen::default();
        let mut read = 0;
        let after = Turn(self.disk.info()?.last_turn.0.saturating_sub(MAX_TURNS as u64));
        for record in self.disk.history_after(after, MAX_TURNS)?.iter().rev() {
            read += record.event.len();
            if read > MAX_READ {
                break;
            }
            if !branch
                .iter()
                .any(|(after, to)| (*after..=*to).contains(&record.turn) && record.turn != *after)
            {
                continue;
            }
            if let Some((id, _)) = self.read_event(record)? {
                seen.turns.entry(hash(&id)).or_insert(record.turn);
            }
        }
        Ok(seen)
    }

    /// The first reply to an event, if one of this id has been answered on this branch: with its turn,
    /// and the generation that the turn made, or that the agent stands at where that is not kept any
    /// more. The agent's turn is held.
    pub(super) fn answered(&self, id: &str) -> Result<Option<(Turn, GenerationNumber, Reply)>, AgentError> {
        let turn = {
            let mut seen = self.place.seen();
            if seen.is_none() {
                *seen = Some(self.look_back()?);
            }
            match seen.as_ref().and_then(|seen| seen.turns.get(&hash(id))) {
                Some(turn) => *turn,
                None => return Ok(None),
            }
        };
        let first = self.disk.history_after(Turn(turn.0.saturating_sub(1)), 1)?;
        let Some(record) = first.first().filter(|record| record.turn == turn) else { return Ok(None) };
        let reply = match self.read_event(record)? {
            Some((first, OutcomeRecord::Reply(payload))) if first == id => Ok(payload),
            Some((first, OutcomeRecord::Refused(text))) if first == id => Err(text),
            // another id with the same hash
            _ => return Ok(None),
        };
        let made = self.disk.generations().into_iter().find(|g| g.turn == turn && g.cause == Cause::Turn);
        Ok(Some((turn, made.map_or_else(|| self.disk.head(), |g| g.number), reply)))
    }

    /// Notes that an event has been answered.
    pub(super) fn note_answered(&self, id: &str, turn: Turn) {
        if let Some(seen) = &mut *self.place.seen() {
            seen.note(id, turn);
        }
    }
}

/// What an agent answers.
type Reply = Result<Vec<u8>, String>;

#[cfg(test)]
mod tests {
    use zone_vfs::id::Timestamp;
    use zone_vfs::store::Payload;

    use super::*;

    /// Generations of which each has the turn and the cause given.
    fn generations(all: &[(u64, u64, Cause)]) -> Vec<Generation> {
        let about = Payload::Inline(Vec::new());
        let made = |(number, turn, cause): &(u64, u64, Cause)| Generation {
            number: GenerationNumber(*number),
            cause: cause.clone(),
            about: about.clone(),
            turn: Turn(*turn),
            at: Timestamp(0),
            roots: Vec::new(),
            attachment: None,
            is_pinned: false,
            seen: std::sync::Arc::default(),
            on: None,
        };
        all.iter().map(made).collect()
    }

    /// The turns up to 9 on the branch of the last generation.
    fn turns(all: &[(u64, u64, Cause)]) -> Vec<u64> {
        let generations = generations(all);
        let head = generations.last().unwrap().number;
        let branch = branch(&generations, head);
        (1..=9).filter(|t| branch.iter().any(|(after, to)| after.0 < *t && *t <= to.0)).collect()
    }

    fn to(number: u64) -> Cause {
        Cause::Rewound(GenerationNumber(number))
    }

    #[test]
    fn a_branch_leaves_out_what_was_rewound() {
        let mut all =
            vec![(0, 0, Cause::Created), (1, 1, Cause::Turn), (2, 2, Cause::Turn), (3, 3, Cause::Turn)];
        assert_eq!(turns(&all), [1, 2, 3]);
        all.push((4, 3, to(1)));
        assert_eq!(turns(&all), [1]);
        all.push((5, 4, Cause::Turn));
        assert_eq!(turns(&all), [1, 4]);
        // back to what had been left, and it counts again
        all.push((6, 4, to(3)));
        assert_eq!(turns(&all), [1, 2, 3]);
        all.push((7, 5, Cause::Turn));
        assert_eq!(turns(&all), [1, 2, 3, 5]);
        // to a generation in the middle of the other branch
        all.push((8, 5, to(5)));
        assert_eq!(turns(&all), [1, 4]);
        // the target is not kept any more: what was before it is not known
        all.push((9, 6, Cause::Turn));
        all.retain(|(number, ..)| *number != 5);
        assert_eq!(turns(&all), [6]);
    }

    #[test]
    fn memory_of_events_is_bounded() {
        let mut seen = Seen::default();
        for turn in 1..=10 * MAX_TURNS as u64 {
            seen.note(&turn.to_string(), Turn(turn));
            assert!(seen.turns.len() <= 2 * MAX_TURNS);
        }
        assert_eq!(seen.turns.get(&hash("10240")), Some(&Turn(10_240)));
        assert_eq!(seen.turns.get(&hash("1")), None);
    }
}
