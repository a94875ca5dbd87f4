//! A turn taken again, of which nothing stays: the agent's zones as they stood in a generation, to be written to by
//! whoever wants to see what a turn does, or did.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::StoreError;
use super::disk::Disk;
use super::history::History;
use super::shared::Mounts;
use super::state::{Generation, State, ZoneState};
use crate::id::{GenerationNumber, Turn};
use crate::zone::Zone;

impl Disk {
    /// A disk that stands as this one did in generation `at`, and whose next turn has the number `turn`. It is worked
    /// with as any disk, and its commits take effect in memory at once: no record of them is made, and when it is
    /// dropped nothing of it is left. Content that is written to it lies in the store's segments until the next
    /// reaping. Zones that are shared are not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoGeneration`].
    pub fn rehearse(&self, at: GenerationNumber, turn: Turn) -> Result<Arc<Self>, StoreError> {
        let store = self.store()?;
        let inner = self.lock();
        let found = inner.state.generations.get(&at);
        let generation = found.ok_or(StoreError::NoGeneration { generation: at })?.clone();
        let state = inner.state.standing_at(generation, turn);
        let disk = Self::rehearsing(state, &store, Mounts::default());
        // under the disk's lock, so that a reaping that drops the generation afterwards sees what needs it
        store.readers.departed(&disk);
        Ok(disk)
    }
}

impl State {
    /// The agent as it stood in a generation of its own, before a turn.
    fn standing_at(&self, generation: Generation, turn: Turn) -> Self {
        let zones = generation
            .roots
            .iter()
            .map(|root| ZoneState::settled(Zone::from_root(root.clone(), self.chunks.clone()), root.clone()));
        Self {
            id: self.id,
            role: self.role,
            name: self.name.clone(),
            about: self.about.clone(),
            created: self.created,
            parent: self.parent,
            epoch: self.epoch,
            sequence: self.sequence,
            digest: self.digest,
            specs: self.specs.clone(),
            zones: zones.collect(),
            turn: None,
            last_turn: Turn(turn.0.saturating_sub(1)),
            head: generation.number,
            next_generation: generation.number.next(),
            generations: BTreeMap::from([(generation.number, generation)]),
            history: History::default(),
            forgotten: Vec::new(),
            removed: false,
            standing_by: None,
            parents_attachment: None,
            chunks: self.chunks.clone(),
        }
    }
}
