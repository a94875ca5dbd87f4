//! Looking at agents without bringing them into memory: what the catalogue has of those that nobody has asked for yet.

use std::sync::Arc;

use super::agents::Slot;
use super::attachment::Attachment;
use super::entry::{Payload, Role, ZoneSpec};
use super::state::{Generation, State};
use super::{Store, StoreError, blob, catalogue};
use crate::id::{AgentId, GenerationNumber};

/// An agent as it was committed last.
#[derive(Clone, Debug)]
pub struct AgentLook {
    /// Which.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// The embedder's data about it.
    pub about: Payload,
    /// Its zones, in order.
    pub zones: Vec<ZoneSpec>,
    /// The generation that it stands at.
    pub head: GenerationNumber,
    /// All generations that are kept, oldest first.
    pub generations: Vec<Generation>,
}

impl AgentLook {
    fn of(state: &State) -> Self {
        Self {
            id: state.id,
            name: state.name.clone(),
            about: state.about.clone(),
            zones: state.specs.clone(),
            head: state.head,
            generations: state.generations.values().cloned().collect(),
        }
    }
}

impl Store {
    /// Looks at an agent. One that nobody has asked for yet stays out of memory, so that all agents of a store can be
    /// looked at one by one. Nothing of it is held: what was seen may be gone when it is read.
    ///
    /// # Errors
    ///
    /// As [`disk`](Self::disk): an agent that does not verify is damaged from here on.
    pub fn look(&self, id: AgentId) -> Result<AgentLook, StoreError> {
        let shared = self.shared()?;
        loop {
            let mut agents = shared.agents();
            let slot = match agents.slots.get(&id) {
                Some(Slot::Live(disk)) if disk.role() == Role::Agent => Ok(disk.clone()),
                Some(Slot::Stored(stored)) => Err(stored.clone()),
                // what the device failed to read is read again, with the records that were kept
                Some(Slot::Damaged(_)) => Ok(shared.bring_in(&mut agents, id)?),
                Some(Slot::Live(_) | Slot::Reserved) | None => return Err(StoreError::NoAgent(id)),
            };
            drop(agents);
            let stored = match slot {
                Ok(disk) => return Ok(AgentLook::of(&disk.lock().state)),
                Err(stored) => stored,
            };
            match catalogue::read_state(&stored, &shared.segments) {
                Ok(state) if state.role != Role::Agent => return Err(StoreError::NoAgent(id)),
                Ok(mut state) => {
                    // as it will be when it is loaded
                    state.abandon();
                    return Ok(AgentLook::of(&state));
                }
                Err(e) if e.is_of_one_agent() => {
                    let mut agents = shared.agents();
                    // one that was woken or removed meanwhile may have left nothing of what was to be read
                    if matches!(agents.slots.get(&id), Some(Slot::Stored(now)) if *now == stored) {
                        shared.stored_state(&mut agents, id)?;
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// How many agents are in memory: those that somebody has asked for since the store was opened.
    pub fn agents_in_memory(&self) -> Result<usize, StoreError> {
        let agents = self.shared()?.agents();
        let is_live = |slot: &Slot| matches!(slot, Slot::Live(disk) if disk.role() == Role::Agent);
        Ok(agents.slots.values().filter(|slot| is_live(slot)).count())
    }

    /// The bytes of a payload that a generation, or what is about an agent, holds.
    pub fn payload(&self, payload: &Payload) -> Result<Arc<[u8]>, StoreError> {
        Ok(blob::get(&*self.shared()?.segments, payload)?)
    }

    /// What is attached to a generation that was seen.
    pub fn attached(&self, generation: &Generation) -> Result<Option<Attachment>, StoreError> {
        Attachment::of(generation, &self.shared()?.segments)
    }
}
