//! Agents, and shared zones, that cannot be read.
//!
//! What was read and does not verify is damage, and counts as that until the store is opened again. An error of the
//! device says nothing of what is stored: whoever asks is told of it, and who asks next has it tried again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::agents::{Agents, Slot};
use super::catalogue::{Carried, StoredAgent};
use super::chain::ChainDigest;
use super::entry::{self, Entry, Role};
use super::recovery::Recovery;
use super::state::{Generation, State};
use super::{Shared, Store, StoreError, catalogue};
use crate::chunks::ChunkStore;
use crate::id::{AgentId, GenerationNumber};
use crate::log::Record;

/// An agent, or a shared zone, whose state cannot be read.
#[derive(Clone)]
pub(super) struct Damaged {
    /// As the next catalogue has it, but for `records`.
    pub stored: StoredAgent,
    /// Records that the catalogue does not have.
    pub records: Arc<Vec<Carried>>,
    /// What is wrong.
    pub reason: String,
    /// The device failed, and may not the next time.
    pub may_pass: bool,
}

/// An agent that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedAgent {
    /// Which.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub reason: String,
    /// The device failed to read it. Whether it is damaged is not known: whoever asks for it next has it tried again.
    pub may_pass: bool,
}

impl Damaged {
    pub fn new(stored: StoredAgent, error: &StoreError) -> Self {
        let (reason, may_pass) = (crate::told(error), error.may_pass());
        if may_pass {
            tracing::warn!(agent = %stored.id, reason, "an agent could not be read");
        } else {
            tracing::error!(agent = %stored.id, reason, "an agent is damaged");
        }
        Self { stored, records: Arc::default(), reason, may_pass }
    }

    /// What whoever asks for it is told.
    pub fn error(&self) -> StoreError {
        let (reason, may_pass) = (self.reason.clone(), self.may_pass);
        StoreError::DamagedAgent { agent: self.stored.id, reason, may_pass }
    }

    /// The generation that it is a fork of, where its state begins with that.
    fn begins_as(&self, chunks: &dyn ChunkStore) -> Result<Option<(AgentId, GenerationNumber)>, StoreError> {
        if self.stored.state.is_some() {
            return Ok(None);
        }
        let first = match self.stored.carried.first() {
            Some(payload) => StoredAgent::read_carried(payload, chunks)?.into_iter().next(),
            None => self.records.first().cloned(),
        };
        let Some(first) = first else { return Ok(None) };
        Ok(match entry::decode(&first.body)?.1.first() {
            Some(Entry::Created { parent, .. }) => *parent,
            _ => None,
        })
    }
}

impl Agents {
    fn unread(&self, id: AgentId) -> Option<&Damaged> {
        match self.slots.get(&id) {
            Some(Slot::Damaged(damaged)) if damaged.may_pass => Some(damaged),
            _ => None,
        }
    }
}

impl Shared {
    /// Reads the state of an agent, or of a shared zone, that is not in memory. One that is damaged is so from here
    /// on, and harms nobody else.
    pub(super) fn stored_state(
        self: &Arc<Self>,
        agents: &mut Agents,
        id: AgentId,
    ) -> Result<State, StoreError> {
        let read = match agents.slots.get(&id) {
            Some(Slot::Stored(stored)) => catalogue::read_state(stored, &self.segments),
            Some(Slot::Damaged(damaged)) if damaged.may_pass => self.read_again(agents, id),
            Some(Slot::Damaged(damaged)) => return Err(damaged.error()),
            Some(Slot::Live(_) | Slot::Reserved) | None => return Err(StoreError::NoAgent(id)),
        };
        match (read, agents.slots.remove(&id)) {
            (Err(e), Some(Slot::Stored(stored))) if e.is_of_one_agent() => {
                let damaged = Damaged::new(stored, &e);
                let told = damaged.error();
                agents.slots.insert(id, Slot::Damaged(Box::new(damaged)));
                Err(told)
            }
            (Err(e), Some(Slot::Damaged(damaged))) if e.is_of_one_agent() => {
                let damaged = Damaged { records: damaged.records, ..Damaged::new(damaged.stored, &e) };
                let told = damaged.error();
                agents.slots.insert(id, Slot::Damaged(Box::new(damaged)));
                Err(told)
            }
            (read, slot) => {
                agents.slots.extend(slot.map(|slot| (id, slot)));
                read
            }
        }
    }

    /// Reads what could not be read: the state, and on top of it the records that were kept. A fork begins as its
    /// parent stood, so those that it descends from, and that could not be read either, come first.
    fn read_again(self: &Arc<Self>, agents: &mut Agents, id: AgentId) -> Result<State, StoreError> {
        let mut line = vec![id];
        let mut of = None;
        // no longer than there are agents, whatever they say of themselves
        while let Some(damaged) = line.last().and_then(|last| agents.unread(*last)) {
            of = damaged.begins_as(&*self.segments)?;
            match of {
                Some((parent, _)) if agents.unread(parent).is_some() && line.len() < agents.slots.len() => {
                    line.push(parent);
                }
                _ => break,
            }
        }
        if line.len() > 1 {
            for parent in line.drain(1..).rev() {
                self.bring_in(agents, parent)?;
            }
            of = agents.unread(id).map(|it| it.begins_as(&*self.segments)).transpose()?.flatten();
        }
        let begins_as = of.map(|(parent, number)| self.begun(agents, parent, number)).transpose()?.flatten();
        let damaged = agents.unread(id).ok_or(StoreError::NoAgent(id))?;
        let (mut state, has_forgotten) = Recovery::one(self.segments.clone(), damaged, begins_as)?;
        state.abandon();
        state.prune();
        // its name was kept for it, and what it mounts is known from here on
        agents.shared.mount(id, &state.specs);
        if has_forgotten {
            self.purge.want();
        }
        Ok(state)
    }

    /// The generations as which forks begin that cannot be read: nothing but their records tells. None where those do
    /// not read either.
    pub(super) fn awaited(&self) -> Result<Option<BTreeSet<(AgentId, GenerationNumber)>>, StoreError> {
        let damaged: Vec<Damaged> = {
            let agents = self.agents();
            let damaged = agents.slots.values().filter_map(|slot| match slot {
                Slot::Damaged(damaged) if damaged.stored.state.is_none() => Some((**damaged).clone()),
                _ => None,
            });
            damaged.collect()
        };
        let mut awaited = BTreeSet::new();
        for fork in damaged {
            match fork.begins_as(&*self.segments) {
                Ok(begins_as) => awaited.extend(begins_as),
                Err(e) if e.is_of_one_agent() => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(Some(awaited))
    }

    /// A generation of whoever has it.
    fn begun(
        &self,
        agents: &Agents,
        parent: AgentId,
        number: GenerationNumber,
    ) -> Result<Option<Generation>, StoreError> {
        match agents.slots.get(&parent) {
            Some(Slot::Live(disk)) => Ok(disk.lock().state.generations.get(&number).cloned()),
            Some(Slot::Stored(stored)) => {
                let mut state = catalogue::read_state(stored, &self.segments)?;
                state.abandon();
                Ok(state.generations.remove(&number))
            }
            Some(Slot::Damaged(damaged)) => Err(damaged.error()),
            Some(Slot::Reserved) | None => Ok(None),
        }
    }

    /// Removes an agent, or a shared zone, that cannot be read: its record needs no more than its number, and follows
    /// no digest.
    pub(super) fn remove_damaged(self: &Arc<Self>, damaged: &Damaged, role: Role) -> Result<(), StoreError> {
        let StoredAgent { id, name, epoch, sequence, .. } = &damaged.stored;
        let record = Record {
            agent: *id,
            epoch: epoch.next(),
            sequence: sequence.next(),
            needs: Vec::new(),
            body: entry::encode(
                ChainDigest::default(),
                &[Entry::Opened { incarnation: self.incarnation }, Entry::Removed],
            )?,
        };
        self.gate.enter();
        let result = self.log.commit(record);
        if result.is_ok() {
            let mut agents = self.agents();
            agents.forget(*id, role, name);
            agents.removed.insert(*id, self.log.tail());
        }
        self.gate.leave();
        Ok(result.map(|_| ())?)
    }
}

impl Store {
    /// The agents that cannot be read, by name. They are among [`agents`](Self::agents), [`disk`](Self::disk)
    /// says why, and they can be removed. Whether the others can be read is known when they are asked for;
    /// [`scrub`](Self::scrub) finds out.
    pub fn damaged(&self) -> Result<Vec<DamagedAgent>, StoreError> {
        let agents = self.shared()?.agents();
        let damaged = agents.names.iter().filter_map(|(name, id)| match agents.slots.get(id) {
            Some(Slot::Damaged(it)) => {
                let (reason, may_pass) = (it.reason.clone(), it.may_pass);
                Some(DamagedAgent { id: *id, name: name.clone(), reason, may_pass })
            }
            _ => None,
        });
        Ok(damaged.collect())
    }
}
