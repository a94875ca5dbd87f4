//! Checkpoints: all that the log holds goes into segments, and the log is used again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::agents::Slot;
use super::catalogue::{self, Frozen};
use super::entry::Payload;
use super::{Shared, StoreError};
use crate::id::AgentId;
use crate::log::{CommitError, LogPosition};
use crate::superblock::SuperblockError;

enum Taken {
    Stored(String, Payload),
    Frozen(Box<Frozen>),
}

impl Shared {
    pub(super) fn log_bytes(&self) -> u64 {
        let from = *self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner);
        self.log.bytes_since(from)
    }

    pub(super) fn is_due(&self) -> bool {
        self.log_bytes() > self.checkpoint_after
    }

    /// Wakes the checkpoint thread if the log has grown enough.
    pub(super) fn checkpoint_if_due(&self) {
        if self.is_due() {
            // a full channel means that it has been woken already
            let _ = self.due.try_send(());
        }
    }

    /// Makes a checkpoint. A failed write of the superblock poisons the store, as one of the segments
    /// does: the disk does not keep what it was given.
    pub(super) fn checkpoint(self: &Arc<Self>) -> Result<(), StoreError> {
        if let Some(reason) = self.log.poisoned() {
            return Err(CommitError::Poisoned(reason).into());
        }
        let made = self.write_checkpoint();
        if let Err(StoreError::Superblock(SuperblockError::Poisoned(reason))) = &made {
            self.log.poison(reason.clone());
        }
        made
    }

    /// Commits wait only while the states are copied, which is a copy of roots.
    /// The lock of the superblock is held throughout, so no commit may ask for it.
    fn write_checkpoint(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut superblock = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        let (position, (taken, removed)) = self.gate.stopped(|| {
            let position = self.log.tail();
            (position, self.take(position))
        });
        let mut agents: Vec<(AgentId, String, Payload)> = Vec::with_capacity(taken.len());
        for (id, state) in taken {
            match state {
                Taken::Stored(name, payload) => agents.push((id, name, payload)),
                Taken::Frozen(state) => {
                    let name = state.name().to_string();
                    agents.push((id, name, state.write(&self.segments)?));
                }
            }
        }
        let hash = catalogue::write(&self.segments, agents, &removed)?;
        self.segments.flush()?;
        superblock.advance(Some(hash), position)?;
        *self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner) = position;
        self.log.recycle_before(position)?;
        Ok(())
    }

    /// The agents as they stand, and those that are gone and may have a record from `position` on.
    fn take(&self, position: LogPosition) -> (Vec<(AgentId, Taken)>, Vec<AgentId>) {
        // in order, so that the same agents are written in the same order
        let mut agents = self.agents();
        agents.removed.retain(|_, at| *at >= position);
        let names: HashMap<_, _> = agents.names.iter().map(|(n, id)| (*id, n)).collect();
        let mut taken: Vec<_> = agents
            .slots
            .iter()
            .filter_map(|(id, slot)| {
                let taken = match slot {
                    Slot::Stored(payload) => Taken::Stored((*names.get(id)?).clone(), payload.clone()),
                    Slot::Live(disk) => Taken::Frozen(Box::new(Frozen::of(&disk.lock().state))),
                    Slot::Reserved => return None,
                };
                Some((*id, taken))
            })
            .collect();
        taken.sort_by_key(|(id, _)| *id);
        let mut removed: Vec<_> = agents.removed.keys().copied().collect();
        removed.sort_unstable();
        (taken, removed)
    }
}
