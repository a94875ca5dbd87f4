//! A turn that is over, taken again from its facts.
//!
//! The agent's memory is mapped as it was before the turn, its zones as they were then are there to be written to
//! ([`zone_vfs::store::Disk::rehearse`]), and every call that depends on others gets the answer that is recorded.
//! Nothing of it stays, and nothing happens outside.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, Disk, Generation, MAX_REASON, NewGeneration, Outcome, TurnRecord, TurnStyle};

use super::generation::await_done;
use super::standing::Identity;
use super::turn::call_agent;
use super::{Agent, AgentError, Event, Live};
use crate::code::metered;
use crate::image::{DifferentPage, Image};
use crate::journal::facts::{Began, Entry, read};
use crate::journal::{self, EventRecord, GenerationAbout, OutcomeRecord, Replaying};
use crate::wasi::{Divergence, GuestState, MemoryLimits, OutsideError};

/// What differs between a turn and its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// A call: the first that does.
    Call(Divergence),
    /// What came out.
    Outcome {
        /// What was recorded, in words.
        recorded: String,
        /// What the replay came to.
        replayed: String,
    },
    /// Files of a zone, by its name.
    Zone {
        /// The zone's name.
        zone: String,
        /// How many files differ.
        files: usize,
        /// The path of the first.
        first: String,
    },
    /// Memory.
    Memory {
        /// The memory's index.
        memory: usize,
        /// The first byte of the first page that differs.
        offset: u64,
    },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(at) => at.fmt(f),
            Self::Outcome { recorded, replayed } => {
                write!(f, "outcome: recorded is {recorded}, and the replay comes to {replayed}")
            }
            Self::Zone { zone, files, first } => {
                write!(
                    f,
                    "zone `{zone}`: {files} {} in it, first {first}",
                    if *files == 1 { "path differs" } else { "paths differ" }
                )
            }
            Self::Memory { memory, offset } => {
                write!(f, "memory {memory} differs, first in the page at byte {offset}")
            }
        }
    }
}

/// What became of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The turn.
    pub turn: Turn,
    /// The generation that it began from.
    pub base: GenerationNumber,
    /// Calls that were noted or told.
    pub calls: u64,
    /// Results that came from the journal.
    pub facts: u64,
    /// Whether memory and zones were compared with the generation that the turn made, which has to be kept for that.
    pub compared: bool,
    /// What differs; nothing where the replay is as the turn was.
    pub differences: Vec<Difference>,
    /// How long the guest's code took this time.
    pub took: Duration,
}

/// A turn with all that its replay needs.
pub(super) struct Recorded {
    pub record: TurnRecord,
    pub event: Event,
    pub began: Box<Began>,
    pub entries: Vec<Entry>,
}

/// What came of a turn that was taken again.
pub(super) struct Taken {
    /// Where it wrote.
    pub disk: Arc<Disk>,
    pub called: Result<Result<Vec<u8>, String>, AgentError>,
    /// How long the guest's code took.
    pub took: Duration,
}

impl Agent {
    /// Takes a turn again that is over, on the agent's memory and zones as they were, and compares: calls, outcome, and
    /// memory and files where the generation that the turn made is kept. The agent itself is not touched, and takes turns
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`AgentError::NoReplay`] where the turn has no facts, or not all that it depends on is recorded or kept.
    pub async fn replay(&self, turn: Turn, cancel: impl Future<Output = ()>) -> Result<Replay, AgentError> {
        let recorded = self.recorded(turn)?;
        let Recorded { record, began, entries, .. } = &recorded;
        let no = |reason: String| AgentError::NoReplay { turn, reason };
        let base = self
            .disk
            .generation(began.base)
            .map_err(|_| no(format!("generation {}, from which it began, is not kept", began.base)))?;
        let about = self.completed(&mut None, base.number).await?;
        self.expect_component(&about).await?;
        let reference = about.image.as_ref().ok_or(AgentError::NoMemory { generation: base.number })?;
        let image = self.host.open_image(&self.disk, base.number, reference).await?;
        let template = self.template_of(&about.component).await?;
        let identity = self.identity()?;
        let limits = MemoryLimits::new(bytes(began.max_memory), bytes(began.max_table));
        let (mut live, _) = template.slot(&image, limits, &self.host).await?;
        let calls = entries.iter().map(calls_of).sum();
        let facts = entries.iter().filter(|entry| matches!(entry, Entry::Told(..))).count() as u64;
        let limit = identity.cpu_time;
        let taken = self.take_again(&mut live, Some(&image), &identity, &recorded, limit, cancel);
        let Taken { disk, called, took } = taken.await?;
        if live.is_unreadable() {
            return Err(AgentError::Image(image.unreadable()));
        }
        let mut replay =
            Replay { turn, base: base.number, calls, facts, compared: false, differences: Vec::new(), took };
        match (called, &record.outcome) {
            // what is behind it is otherwise by that
            (Err(AgentError::Outside(OutsideError::Diverged(at))), _) => {
                replay.differences.push(Difference::Call(*at));
            }
            (called, recorded) => {
                let ended = called.is_ok();
                replay.differences.extend(self.outcomes(called, recorded)?);
                if ended {
                    let made = self.disk.generations().into_iter();
                    let made = { made }.find(|it| it.turn == turn && it.cause == Cause::Turn);
                    if let Some(made) = made {
                        replay.differences.extend(self.compare(live, &disk, &made).await?);
                        replay.compared = made.on.is_none();
                    }
                }
            }
        }
        Ok(replay)
    }

    /// Takes a turn again on an instance that stands as the agent did before it, or that is brought there from `over`;
    /// its files are those of the generation that it began from, of a disk that only rehearses. Its processor time has
    /// this limit.
    pub(super) async fn take_again(
        &self,
        live: &mut Live,
        over: Option<&Image>,
        identity: &Identity,
        Recorded { record, event, began, entries }: &Recorded,
        cpu_time: Option<Duration>,
        cancel: impl Future<Output = ()>,
    ) -> Result<Taken, AgentError> {
        let disk = self.disk.rehearse(began.base, record.turn)?;
        let about = self.generation_about(&self.disk.generation(began.base)?)?;
        let limits = MemoryLimits::new(bytes(began.max_memory), bytes(began.max_table));
        let mut state = GuestState {
            outside: Box::new(Replaying::new(began, entries.iter().cloned())),
            limits,
            ..self.state(identity, &about, 0)
        };
        state.lifecycle.generation = began.lifecycle;
        state.lifecycle.start = began.start;
        state.lifecycle.name.clone_from(&began.name);
        state.attach(disk.clone(), &identity.mounts, false)?;
        match over {
            Some(image) => live.restore(image, state).await?,
            None => live.surround(state)?,
        }
        disk.begin(TurnStyle::Transaction, &self.disk.payload(&record.event)?)?;
        let started = Instant::now();
        let limit = self.host.options.turn_time;
        let called = {
            let time = live.begin_call(cpu_time);
            let call = metered(time, call_agent(live, event.clone(), began.tells_start));
            tokio::select! {
                called = call => called,
                () = cancel => return Err(AgentError::Cancelled),
                () = tokio::time::sleep(limit) => return Err(AgentError::Timeout(limit)),
            }
        };
        let took = started.elapsed();
        let called = match called {
            Ok(reply) => live.store.data_mut().outside.end().map(|()| reply).map_err(AgentError::Outside),
            failed => failed,
        };
        Ok(Taken { disk, called, took })
    }

    /// The turn, if all is recorded that its replay needs.
    fn recorded(&self, turn: Turn) -> Result<Recorded, AgentError> {
        let record = self.disk.history_after(Turn(turn.0.saturating_sub(1)), 1)?.into_iter().next();
        self.recorded_of(turn, record)
    }

    /// The same, of what the history has behind the turn before.
    pub(super) fn recorded_of(&self, turn: Turn, record: Option<TurnRecord>) -> Result<Recorded, AgentError> {
        let no = |reason: &str| AgentError::NoReplay { turn, reason: reason.into() };
        let record = record
            .filter(|it| it.turn == turn)
            .ok_or_else(|| no("the agent has no such turn that is over"))?;
        if record.event.is_empty() {
            return Err(no("it was forgotten"));
        }
        let event = match journal::decode(&self.disk.payload(&record.event)?)? {
            EventRecord::Event { id, kind, payload } => Event { id, kind, payload },
            EventRecord::Run(_) => return Err(no("it is a run, of which no facts are kept")),
            EventRecord::Upgrade { .. } => return Err(no("it is an upgrade, of which no facts are kept")),
        };
        let mut entries = Vec::new();
        for piece in &record.facts {
            entries.append(&mut read(&self.disk.payload(piece)?)?);
        }
        if entries.is_empty() {
            return Err(no(
                "it has no facts: they are kept of turns that came to an end, and since version 2 of the store",
            ));
        }
        let Entry::Began(began) = entries.remove(0) else {
            return Err(no("its facts have no beginning"));
        };
        if !began.zones_as_in_base {
            return Err(no("an operator had written to its zones since the generation before"));
        }
        if began.has_connections {
            return Err(no("it began with connections of an earlier turn, which no generation keeps"));
        }
        Ok(Recorded { record, event, began, entries })
    }

    pub(super) fn outcomes(
        &self,
        called: Result<Result<Vec<u8>, String>, AgentError>,
        recorded: &Outcome,
    ) -> Result<Option<Difference>, AgentError> {
        let replayed = match called {
            Ok(Ok(reply)) => Ok(OutcomeRecord::Reply(reply)),
            Ok(Err(text)) => Ok(OutcomeRecord::Refused(text)),
            Err(e) => Err(e.to_string().chars().take(MAX_REASON).collect()),
        };
        let recorded = match recorded {
            Outcome::Ended(outcome) => Ok(journal::decode(&self.disk.payload(outcome)?)?),
            Outcome::Failed(reason) => Err(reason.clone()),
        };
        if replayed == recorded {
            return Ok(None);
        }
        Ok(Some(Difference::Outcome { recorded: in_words(&recorded), replayed: in_words(&replayed) }))
    }

    /// What the replay has made of memory and zones, beside the generation that the turn made.
    async fn compare(
        &self,
        mut live: Live,
        disk: &Arc<Disk>,
        made: &Generation,
    ) -> Result<Vec<Difference>, AgentError> {
        let mut found = Vec::new();
        live.save().await?;
        let generation = NewGeneration { cause: Cause::Turn, about: Vec::new(), on: None };
        await_done(disk, |done| disk.end(&[], Some(generation), done)).await?;
        for zone in self.disk.differences_to(made.number, disk)? {
            if let Some(first) = zone.files.first() {
                let first = String::from_utf8_lossy(&first.path).into_owned();
                found.push(Difference::Zone { zone: zone.zone, files: zone.files.len(), first });
            }
        }
        let about: GenerationAbout = self.generation_about(made)?;
        if let Some(reference) = &about.image {
            let image = self.host.open_image(&self.disk, made.number, reference).await?;
            // SAFETY: the instance is owned here, and no call of it is under way.
            let page = crate::threads::run(move || unsafe { image.first_difference(&live.memories) });
            if let Some(DifferentPage { memory, offset }) = page.await?? {
                found.push(Difference::Memory { memory, offset });
            }
        }
        Ok(found)
    }
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn calls_of(entry: &Entry) -> u64 {
    match entry {
        Entry::Began(_) => 0,
        Entry::Called(..) | Entry::Told(..) => 1,
        Entry::Together(calls, _) => u64::from(*calls),
    }
}

/// An outcome for people, of which they see the beginning.
fn in_words(outcome: &Result<OutcomeRecord, String>) -> String {
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let begin: String = text.chars().take(80).collect();
        if begin.len() < text.len() {
            format!("{begin:?}… ({} bytes)", bytes.len())
        } else {
            format!("{begin:?}")
        }
    };
    match outcome {
        Ok(OutcomeRecord::Reply(reply)) => format!("the reply {}", shown(reply)),
        Ok(OutcomeRecord::Refused(text)) => format!("the error {}", shown(text.as_bytes())),
        Ok(OutcomeRecord::Exit(status)) => format!("exit status {status}"),
        Ok(OutcomeRecord::Upgraded) => "an upgrade".into(),
        Err(reason) => format!("a failure: {}", reason.lines().next().unwrap_or_default()),
    }
}
