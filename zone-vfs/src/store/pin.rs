//! Generations by hand: pinned, so that no policy drops them, and dropped.

use std::sync::{Arc, PoisonError};

use super::commit::Commit;
use super::disk::{Disk, Inner};
use super::entry::Entry;
use super::{Store, StoreError, wait};
use crate::id::GenerationNumber;

impl Disk {
    /// Pins a generation, or takes the pin away: durable when this returns. A pinned generation stays until its
    /// agent is removed, or what it holds is forgotten. Whether anything changed. Beside a turn it takes nothing from
    /// it: what the turn has not made durable is as little durable as before.
    pub fn pin(self: &Arc<Self>, generation: GenerationNumber, pinned: bool) -> Result<bool, StoreError> {
        if self.generation(generation)?.is_pinned == pinned {
            return Ok(false);
        }
        let entry = |inner: &Inner| {
            let is_there = inner.state.generations.contains_key(&generation);
            let entry = is_there.then_some(Entry::Pinned { generation, pinned });
            entry.ok_or(StoreError::NoGeneration { generation })
        };
        wait(|done| Commit::beside(self, entry, &[], done))?;
        Ok(true)
    }
}

impl Store {
    /// Drops a generation of an agent, which is neither its head nor pinned, and on which none stands. What only it needs
    /// is given back with the next reaping. Makes a checkpoint: durable when this returns. After an error the generation
    /// is there.
    pub fn drop_generation(&self, disk: &Arc<Disk>, generation: GenerationNumber) -> Result<(), StoreError> {
        let shared = self.shared()?;
        // nothing is given back meanwhile that the generation needs, should it have to stay
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = shared.room();
        let mut dropped = None;
        let made = shared.checkpoint_with(|| {
            let mut inner = disk.lock();
            inner.idle()?;
            let state = &mut inner.state;
            let found = state.generations.get(&generation).ok_or(StoreError::NoGeneration { generation })?;
            if state.head == generation || found.is_pinned {
                return Err(StoreError::GenerationKept { generation, is_head: state.head == generation });
            }
            if let Some(by) = state.stands_on(generation) {
                return Err(StoreError::GenerationNeeded { generation, by });
            }
            dropped = state.generations.remove(&generation);
            Ok(())
        });
        if let (Err(_), Some(dropped)) = (&made, dropped) {
            disk.lock().state.generations.insert(generation, dropped);
        }
        made.map(|_| ())
    }
}
