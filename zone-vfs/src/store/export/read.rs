//! An agent of an export.

use std::io::Read;
use std::sync::{Arc, PoisonError};

use super::arrived::Arrived;
use super::codec::unpacked;
use super::format::{
    AGENT, ATTACHMENT, Agent, CONTENT, FILE, GENERATION, Generation, Header, LEAF, MAGIC, MAX_GENERATIONS,
    MAX_PIECES, MAX_RECORD, NODE, PLAIN, STANDS, STANDS_ON, Stands, TURNS, TURNS_1, TURNS_IN_ONE, is_time,
    read_bytes, read_record,
};
use super::{Arrival, ArrivedAgent, ArrivedGeneration, ExportedZone, bad};
use crate::chunks::MAX_FRAME;
use crate::id::{AgentId, GenerationNumber, Hash, Turn};
use crate::store::catalogue::{StoredGeneration, StoredState};
use crate::store::disk::{Disk, MAX_REASON};
use crate::store::entry::{Cause, Role};
use crate::store::history::History;
use crate::store::older::TurnRecord1;
use crate::store::state::{Outcome, TurnRecord};
use crate::store::stream::Through;
use crate::store::{MAX_ZONES, Shared, Store, StoreError, blob};
use crate::zone::{MAX_NUMBER, PiecesIdentity};

/// The longest name of an agent or zone that is looked at; whoever takes the agent in says which can be. Bytes.
const MAX_NAME: usize = 4096;

impl Store {
    /// Makes an agent of an export, with the id and name that `arrival` gives it. It is there when all of it has been
    /// read, checked and made durable, and otherwise not at all. Waits while the store is reaped, scrubbed or backed up,
    /// and these wait for it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Export`] where the export cannot be used, [`StoreError::NameTaken`].
    pub fn import(&self, from: &mut dyn Read, arrival: &mut dyn Arrival) -> Result<Arc<Disk>, StoreError> {
        let shared = self.shared()?;
        // nothing leads to what is put before the agent is there
        let _no_reaping = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let mut from = Through::new(from, StoreError::Export);
        Header::read(&mut from)?;
        let mut importing =
            Importing { shared, arrived: Arrived::new(shared.segments.clone()), arrival, agent: None };
        let read = importing.read(&mut from);
        let agent = match read {
            // wherever its end was met, that is what is wrong
            Err(_) if from.is_cut => return Err(from.truncated()),
            read => read?,
        };
        agent.state.write(agent.reserved.id, &shared.segments).and_then(|stored| {
            shared.checkpoint_with_agent(stored)?;
            let id = agent.reserved.keep();
            shared.disk(id)
        })
    }
}

/// A name and an id that are taken, until the agent is there or cannot be.
struct Reserved<'a> {
    shared: &'a Arc<Shared>,
    id: AgentId,
    name: String,
    is_kept: bool,
}

impl Reserved<'_> {
    fn keep(mut self) -> AgentId {
        self.is_kept = true;
        self.id
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.shared.agents().forget(self.id, Role::Agent, &self.name);
        }
    }
}

/// The agent, as far as it has come.
struct Coming<'a> {
    reserved: Reserved<'a>,
    state: StoredState,
    history: History,
    /// The last turn and the number of turns that have come.
    turns: (Turn, u64),
}

struct Importing<'a, 'b> {
    shared: &'a Arc<Shared>,
    arrived: Arrived,
    arrival: &'b mut dyn Arrival,
    agent: Option<Coming<'a>>,
}

impl<'a> Importing<'a, '_> {
    fn read(&mut self, from: &mut Through<'_, dyn Read + '_>) -> Result<Coming<'a>, StoreError> {
        loop {
            match from.take::<1>()? {
                [FILE] if self.agent.is_none() => {
                    let failed = |name: &str| format!("is refused: the component {name}");
                    from.take_file(failed, &mut |name, len, content| self.arrival.file(name, len, content))?;
                }
                [AGENT] if self.agent.is_none() => {
                    let agent = read_record(from)?;
                    self.agent = Some(self.agent(agent)?);
                }
                _ if self.agent.is_none() => {
                    return Err(bad("is damaged: it does not begin as an export does"));
                }
                [PLAIN] => {
                    let (label, plain) = read_frame(from)?;
                    self.arrived.take_plain(label, &plain)?;
                }
                [NODE] => {
                    let (label, plain) = read_frame(from)?;
                    self.arrived.take_node(label, &plain)?;
                }
                [LEAF] => {
                    let (label, plain) = read_frame(from)?;
                    self.arrived.take_leaf(label, &plain)?;
                }
                [CONTENT] => self.content(from)?,
                [ATTACHMENT] => {
                    let len = u32::from_le_bytes(from.take()?) as usize;
                    let root = read_bytes(from, len, MAX_RECORD)?;
                    self.arrived.take_attachment(&root)?;
                }
                [TURNS] => self.turns(read_record(from)?)?,
                [TURNS_1] => {
                    let turns: Vec<TurnRecord1> = read_record(from)?;
                    self.turns(turns.into_iter().map(TurnRecord::from).collect())?;
                }
                [GENERATION] => self.generation(read_record(from)?)?,
                [STANDS_ON] => {
                    let (generation, on) = read_record(from)?;
                    self.stands_on(generation, on)?;
                }
                [STANDS] => {
                    let stands = read_record(from)?;
                    let sum = *from.hasher.finalize().as_bytes();
                    if from.take::<32>()? != sum {
                        return Err(bad("is damaged: its digest is wrong"));
                    }
                    if from.take()? != *MAGIC {
                        return Err(bad("is damaged: it does not end as an export does"));
                    }
                    from.end()?;
                    return self.stands(&stands);
                }
                _ => return Err(bad("is damaged: what comes next in it is nothing that an export has")),
            }
        }
    }

    fn agent(&mut self, agent: Agent) -> Result<Coming<'a>, StoreError> {
        let fits = |text: &str| !text.is_empty() && text.len() <= MAX_NAME;
        let named = |zone: &super::format::Zone| fits(&zone.name) && fits(&zone.mount);
        if agent.zones.len() > MAX_ZONES {
            return Err(StoreError::TooManyZones { found: agent.zones.len(), limit: MAX_ZONES });
        }
        if !fits(&agent.name) || !agent.zones.iter().all(named) || agent.about.len() > blob::MAX_PAYLOAD {
            return Err(bad("is refused: it has names that none can have"));
        }
        let highest = agent.last_turn.0.max(agent.next_generation.0);
        if highest > MAX_NUMBER || agent.head >= agent.next_generation {
            return Err(bad("is refused: its agent has numbers that none can have"));
        }
        is_time(agent.created, "its agent")?;
        let zones = agent.zones.into_iter().map(|zone| ExportedZone {
            name: zone.name,
            mount: zone.mount,
            kind: zone.kind,
            quota: zone.quota,
            shared: zone.shared,
        });
        let arrived = ArrivedAgent { name: agent.name, about: agent.about, zones: zones.collect() };
        let new = self.arrival.agent(&arrived)?;
        let is_same = |(there, here): (&ExportedZone, &crate::store::ZoneSpec)| {
            (&there.mount, there.kind, there.shared.is_some())
                == (&here.mount, here.kind, here.shared.is_some())
                && (there.shared.is_some() || there.name == here.name)
        };
        if arrived.zones.len() != new.zones.len() || !arrived.zones.iter().zip(&new.zones).all(is_same) {
            return Err(bad("is refused: its agent has other zones"));
        }
        self.shared.reserve(new.id, &new.name, &new.zones, false)?;
        let reserved = Reserved { shared: self.shared, id: new.id, name: new.name.clone(), is_kept: false };
        let about = blob::put(&*self.shared.segments, &new.about)?;
        let mut state = StoredState::of_new(new.name, about, agent.created, new.zones);
        (state.last_turn, state.head) = (agent.last_turn, agent.head);
        state.next_generation = agent.next_generation;
        Ok(Coming { reserved, state, history: History::default(), turns: (Turn(0), 0) })
    }

    fn content(&mut self, from: &mut Through<'_, dyn Read + '_>) -> Result<(), StoreError> {
        let label = Hash(from.take()?);
        let size = u64::from_le_bytes(from.take()?);
        let count = u32::from_le_bytes(from.take()?);
        if count > MAX_PIECES {
            return Err(bad(format!("is refused: a version in it has more than {MAX_PIECES} pieces")));
        }
        let (mut there, mut here) = (PiecesIdentity::new(size), PiecesIdentity::new(size));
        for _ in 0..count {
            let offset = u64::from_le_bytes(from.take()?);
            let len = u32::from_le_bytes(from.take()?);
            let piece = Hash(from.take()?);
            let (hash, found) = self.arrived.plain(&piece)?;
            if found != len {
                return Err(bad("is refused: a piece in it has another length than it states"));
            }
            there.add(offset, len, &piece);
            here.add(offset, len, &hash);
        }
        if there.finish() != label {
            return Err(bad("is refused: the content of a version in it is not what it says"));
        }
        self.arrived.take_content(label, size, here.finish())
    }

    fn turns(&mut self, turns: Vec<TurnRecord>) -> Result<(), StoreError> {
        let Some(agent) = &mut self.agent else { return Err(bad("is damaged: turns of no agent")) };
        if turns.len() > TURNS_IN_ONE {
            return Err(bad("is refused: it has more turns in one place than it may"));
        }
        for mut turn in turns {
            if turn.turn <= agent.turns.0 || turn.turn > agent.state.last_turn {
                return Err(bad("is refused: its turns are out of order"));
            }
            is_time(turn.began, format_args!("turn {}", turn.turn))?;
            is_time(turn.ended, format_args!("turn {}", turn.turn))?;
            turn.event = self.arrived.payload(&turn.event)?;
            let mut ended = None;
            turn.outcome = match turn.outcome {
                Outcome::Ended(outcome) => {
                    let outcome = self.arrived.payload(&outcome)?;
                    ended = Some(self.arrived.content(&outcome)?);
                    Outcome::Ended(outcome)
                }
                Outcome::Failed(reason) if reason.chars().count() > MAX_REASON => {
                    return Err(bad("is refused: the reason of a failed turn is longer than one can be"));
                }
                failed @ Outcome::Failed(_) => failed,
            };
            self.arrival.turn(turn.turn, &self.arrived.content(&turn.event)?, ended.as_deref())?;
            for fact in &mut turn.facts {
                *fact = self.arrived.payload(fact)?;
                self.arrival.fact(turn.turn, &self.arrived.content(fact)?)?;
            }
            agent.turns = (turn.turn, agent.turns.1 + 1);
            agent.history.push(turn);
        }
        agent.history.page(&*self.shared.segments).map(drop)
    }

    fn generation(&mut self, it: Generation) -> Result<(), StoreError> {
        let Some(agent) = &mut self.agent else { return Err(bad("is damaged: a generation of no agent")) };
        let state = &mut agent.state;
        let before = state.generations.last().map(|it| it.number.0);
        let is_side = matches!(it.cause, Cause::Side(_));
        if !it.is_after(before, state.next_generation.0, state.last_turn.0)
            || (is_side && it.number == state.head)
            || state.generations.len() as u64 >= MAX_GENERATIONS
        {
            return Err(bad(format!(
                "is refused: its generation {} does not follow those before it",
                it.number
            )));
        }
        it.check_cause()?;
        is_time(it.at, format_args!("generation {}", it.number))?;
        let roots = self.arrived.roots(&it.roots, &state.specs)?;
        let attached = it.attachment.map(|number| self.arrived.attachment(number)).transpose()?;
        let about = self.arrival.generation(&ArrivedGeneration {
            number: it.number,
            cause: &it.cause,
            about: &it.about,
            is_head: it.number == state.head,
            attached: attached.map(|(_, about, len)| (about.as_slice(), *len)),
            zones: &roots,
        })?;
        state.generations.push(StoredGeneration {
            number: it.number,
            cause: it.cause,
            about: blob::put(&*self.shared.segments, &about)?,
            turn: it.turn,
            at: it.at,
            roots: roots.stored().collect(),
            attachment: attached.map(|(root, ..)| root.clone()),
            is_pinned: it.pinned,
            on: None,
            // of other shared zones than those that it mounts here
            seen: Vec::new(),
        });
        Ok(())
    }

    /// The last generation stands on one before it.
    fn stands_on(&mut self, generation: GenerationNumber, on: GenerationNumber) -> Result<(), StoreError> {
        let earlier = self.agent.as_mut().and_then(|agent| agent.state.generations.split_last_mut());
        match earlier {
            Some((last, earlier))
                if last.number == generation
                    && last.on.is_none()
                    && earlier.binary_search_by_key(&on, |it| it.number).is_ok() =>
            {
                last.on = Some(on);
                Ok(())
            }
            _ => Err(bad(format!(
                "is refused: generation {generation} in it stands on {on}, which is not before it"
            ))),
        }
    }

    fn stands(&mut self, stands: &Stands) -> Result<Coming<'a>, StoreError> {
        let Some(mut agent) = self.agent.take() else { return Err(bad("is damaged: it has no agent")) };
        let state = &mut agent.state;
        if stands.generations != state.generations.len() as u64 || stands.turns != agent.turns.1 {
            return Err(bad("is damaged: it has not as many turns and generations as it states"));
        }
        if !state.generations.iter().any(|it| it.number == state.head) {
            return Err(bad(format!(
                "is refused: the generation {} at which its agent stands is not in it",
                state.head
            )));
        }
        let roots = self.arrived.roots(&stands.roots, &state.specs)?;
        state.zones.extend(roots.stored().map(|root| (root, root, false)));
        state.history = std::mem::take(&mut agent.history.pieces);
        state.latest = agent.history.tail.iter().map(|turn| TurnRecord::clone(turn)).collect();
        Ok(agent)
    }
}

/// A frame's label, and what it holds.
fn read_frame(from: &mut Through<'_, dyn Read + '_>) -> Result<(Hash, Vec<u8>), StoreError> {
    let label = Hash(from.take()?);
    let [codec] = from.take()?;
    let plain = u32::from_le_bytes(from.take()?) as usize;
    let stored = u32::from_le_bytes(from.take()?) as usize;
    let damaged = |reason| bad(format!("is damaged: a frame in it: {reason}"));
    let plain = unpacked(codec, plain, stored, || read_bytes(from, stored, MAX_FRAME), damaged)?;
    Ok((label, plain))
}
