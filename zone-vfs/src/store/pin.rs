//! Generations by hand: pinned, so that no policy drops them, and dropped.

use std::sync::Arc;

use super::commit::Commit;
use super::disk::{Disk, Done, Inner};
use super::entry::Entry;
use super::{Store, StoreError, wait};
use crate::id::GenerationNumber;

impl Disk {
    /// Pins a generation, or takes the pin away: durable when this returns. A pinned generation stays until its
    /// agent is removed, or what it holds is forgotten. Whether anything changed.
    pub fn pin(self: &Arc<Self>, generation: GenerationNumber, pinned: bool) -> Result<bool, StoreError> {
        if self.generation(generation)?.is_pinned == pinned {
            return Ok(false);
        }
        let control = move |inner: &Inner| {
            if !inner.state.generations.contains_key(&generation) {
                return Err(StoreError::NoGeneration { generation });
            }
            Ok(vec![Entry::Pinned { generation, pinned }])
        };
        wait(|done: Done<()>| {
            Commit::start(self, control, None, Box::new(|result| done(result.map(|_| ()))));
        })?;
        Ok(true)
    }
}

impl Store {
    /// Drops a generation of an agent, which is neither its head nor pinned. What only it needs is given back with
    /// the next reaping. Makes a checkpoint: durable when this returns.
    pub fn drop_generation(&self, disk: &Arc<Disk>, generation: GenerationNumber) -> Result<(), StoreError> {
        {
            let mut inner = disk.lock_settled();
            inner.idle()?;
            let state = &mut inner.state;
            let found = state.generations.get(&generation).ok_or(StoreError::NoGeneration { generation })?;
            if state.head == generation || found.is_pinned {
                return Err(StoreError::GenerationKept { generation, is_head: state.head == generation });
            }
            state.generations.remove(&generation);
        }
        self.checkpoint()
    }
}
