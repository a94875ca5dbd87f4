//! The session's history: what happened to an agent, in order, as its records have it.

use zone_vfs::id::{GenerationNumber, Timestamp, Turn};
use zone_vfs::store::{Cause, Disk, Generation, Outcome, StoreError, TurnRecord};

use super::facts::{self, Entry};
use super::{EventRecord, JournalError, OutcomeRecord, decode};

/// Turns that are read at once.
const PIECE: usize = 256;

/// Which entries are asked for. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Those behind this place, which is a [`SessionEntry::place`].
    pub after: Option<Place>,
    /// Those that began at this time or later.
    pub since: Option<Timestamp>,
    /// Those that began at this time or earlier.
    pub until: Option<Timestamp>,
    /// Those of one of these kinds; of all where there is none. See [`SessionEntry::kind`].
    pub kinds: Vec<String>,
    /// Those in whose event, reply or reason this text is, byte by byte.
    pub text: Option<String>,
}

/// Where an entry stands: by turn, and behind a turn by generation. Entries come in the order of their places, and one
/// that was read stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The turn that it is, or the last before it.
    pub turn: Turn,
    /// The generation that it made; none of a turn.
    pub generation: Option<GenerationNumber>,
}

/// Something that happened to an agent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionEntry {
    /// Where it stands.
    pub place: Place,
    /// When it began.
    pub at: Timestamp,
    /// What it was.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Happened {
    /// A turn that is over.
    Turn(PastTurn),
    /// A generation was made otherwise than by a turn, for this reason.
    Generation(Cause),
}

/// A turn that is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PastTurn {
    /// What it was about; none where it was forgotten.
    pub event: Option<EventRecord>,
    /// What came out; the reason where it failed. None where it was forgotten.
    pub outcome: Option<Result<OutcomeRecord, String>>,
    /// When it was over.
    pub ended: Timestamp,
    /// The generation that it made, where that is kept.
    pub generation: Option<GenerationNumber>,
}

impl SessionEntry {
    /// The kind of entry: of a turn the kind of its event, `run` or `upgrade`, or `forgotten`; otherwise `created`,
    /// `paused`, `forked`, `rewound`, `operator`, `reaped` or `side`.
    pub fn kind(&self) -> &str {
        match &self.what {
            Happened::Turn(turn) => match &turn.event {
                Some(EventRecord::Event { kind, .. }) => kind,
                Some(EventRecord::Run(_)) => "run",
                Some(EventRecord::Upgrade { .. }) => "upgrade",
                None => "forgotten",
            },
            Happened::Generation(cause) => match cause {
                Cause::Created => "created",
                Cause::Paused => "paused",
                Cause::Forked => "forked",
                Cause::Rewound(_) => "rewound",
                Cause::Operated => "operator",
                Cause::Reaped { .. } => "reaped",
                Cause::Side(_) => "side",
                // the turn tells it
                Cause::Turn | Cause::Upgraded => "turn",
            },
        }
    }

    fn contains(&self, text: &str) -> bool {
        let is_in = |bytes: &[u8]| {
            let wanted = text.as_bytes();
            wanted.is_empty() || bytes.windows(wanted.len()).any(|part| part == wanted)
        };
        match &self.what {
            Happened::Generation(Cause::Side(reason)) => is_in(reason.as_bytes()),
            Happened::Generation(_) => false,
            Happened::Turn(turn) => {
                let event = match &turn.event {
                    Some(EventRecord::Event { id, payload, .. }) => is_in(id.as_bytes()) || is_in(payload),
                    Some(EventRecord::Run(args)) => args.iter().any(|arg| is_in(arg.as_bytes())),
                    Some(EventRecord::Upgrade { component_name, .. }) => is_in(component_name.as_bytes()),
                    None => false,
                };
                event
                    || match &turn.outcome {
                        Some(Ok(OutcomeRecord::Reply(reply))) => is_in(reply),
                        Some(Ok(OutcomeRecord::Refused(text)) | Err(text)) => is_in(text.as_bytes()),
                        Some(Ok(OutcomeRecord::Exit(_) | OutcomeRecord::Upgraded)) | None => false,
                    }
            }
        }
    }
}

impl SessionQuery {
    fn wants(&self, entry: &SessionEntry) -> bool {
        self.after.is_none_or(|after| entry.place > after)
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at <= until)
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == entry.kind()))
            && self.text.as_deref().is_none_or(|text| entry.contains(text))
    }
}

/// Why the history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Gives `each` what happened to the agent and is asked for, oldest first, until it says that it has enough. Turns
/// that are going on are not among it; generations are those that are kept.
///
/// # Errors
///
/// Those of reading the agent's records, and of `each`.
pub fn session<E: From<SessionError>>(
    disk: &Disk,
    query: &SessionQuery,
    mut each: impl FnMut(SessionEntry) -> Result<std::ops::ControlFlow<()>, E>,
) -> Result<(), E> {
    let generations = disk.generations();
    let mut others = { generations.iter() }.filter(|it| !is_of_turn(&it.cause)).peekable();
    let mut tell = |entry: SessionEntry| {
        if query.wants(&entry) { each(entry) } else { Ok(std::ops::ControlFlow::Continue(())) }
    };
    // one that failed before the place may be told of by a side generation behind it
    let mut after = query.after.map_or(Turn(0), |after| Turn(after.turn.0.saturating_sub(1)));
    loop {
        let turns = disk.history_after(after, PIECE).map_err(SessionError::from)?;
        let last = turns.last().map(|it| it.turn);
        for record in &turns {
            while let Some(made) = others.next_if(|it| it.turn < record.turn) {
                if tell(of_generation(made))?.is_break() {
                    return Ok(());
                }
            }
            if tell(of_turn(disk, record, &generations)?)?.is_break() {
                return Ok(());
            }
        }
        match last {
            Some(last) => after = last,
            None => break,
        }
    }
    for made in others {
        if tell(of_generation(made))?.is_break() {
            break;
        }
    }
    Ok(())
}

fn of_turn(
    disk: &Disk,
    record: &TurnRecord,
    generations: &[Generation],
) -> Result<SessionEntry, SessionError> {
    let event = if record.event.is_empty() { None } else { Some(decode(&disk.payload(&record.event)?)?) };
    let outcome = match &record.outcome {
        Outcome::Failed(reason) => Some(Err(reason.clone())),
        Outcome::Ended(outcome) if outcome.is_empty() => None,
        Outcome::Ended(outcome) => Some(Ok(decode(&disk.payload(outcome)?)?)),
    };
    let made = generations.iter().find(|it| it.turn == record.turn && is_of_turn(&it.cause));
    Ok(SessionEntry {
        place: Place { turn: record.turn, generation: None },
        at: record.began,
        what: Happened::Turn(PastTurn {
            event,
            outcome,
            ended: record.ended,
            generation: made.map(|it| it.number),
        }),
    })
}

/// A turn that is over, and its facts in order; none where there is no such turn.
pub fn past_turn(disk: &Disk, turn: Turn) -> Result<Option<(SessionEntry, Vec<Entry>)>, SessionError> {
    let found = disk.history_after(Turn(turn.0.saturating_sub(1)), 1)?;
    let record = found.first().filter(|it| it.turn == turn);
    let Some(record) = record else { return Ok(None) };
    let mut entries = Vec::new();
    for piece in &record.facts {
        entries.append(&mut facts::read(&disk.payload(piece)?)?);
    }
    Ok(Some((of_turn(disk, record, &disk.generations())?, entries)))
}

/// Whether a generation is made by a turn, which tells of it.
fn is_of_turn(cause: &Cause) -> bool {
    matches!(cause, Cause::Turn | Cause::Upgraded)
}

fn of_generation(made: &Generation) -> SessionEntry {
    SessionEntry {
        place: Place { turn: made.turn, generation: Some(made.number) },
        at: made.at,
        what: Happened::Generation(made.cause.clone()),
    }
}
