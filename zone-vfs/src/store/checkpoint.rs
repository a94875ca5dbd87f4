//! Checkpoints: all that the log holds goes into segments, and the log is used again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::agents::Slot;
use super::catalogue::{Catalogue, CatalogueZone, Frozen, StoredAgent};
use super::damaged::Damaged;
use super::disk::Disk;
use super::shared::SharedId;
use super::{Shared, StoreError};
use crate::id::{AgentId, Hash};
use crate::log::{CommitError, LogError, LogPosition};
use crate::superblock::SuperblockError;

enum Taken {
    Stored(StoredAgent),
    Frozen(Arc<Disk>, Box<Frozen>),
    Damaged(Box<Damaged>),
}

/// What a checkpoint writes, as it stood when no commit was under way.
struct Taking {
    states: Vec<(AgentId, String, Taken)>,
    /// The shared zones, and who mounts each.
    shared: HashMap<SharedId, Vec<AgentId>>,
    removed: Vec<AgentId>,
    purge: bool,
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
        if self.is_due() || self.segments.index_waits() {
            // a full channel means that it has been woken already
            let _ = self.due.try_send(());
        }
    }

    /// Makes a checkpoint. A failed write of the superblock poisons the store, as one of the segments
    /// does: the disk does not keep what it was given.
    pub(super) fn checkpoint(self: &Arc<Self>) -> Result<(), StoreError> {
        self.checkpoint_with(|| Ok(())).map(|_| ())
    }

    /// Makes a checkpoint, gives the address of its catalogue, and does `first` while commits wait, before the
    /// states are copied.
    pub(super) fn checkpoint_with<R>(
        self: &Arc<Self>,
        first: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<(Hash, R), StoreError> {
        if let Some(reason) = self.log.poisoned() {
            return Err(CommitError::Poisoned(reason).into());
        }
        let made = self.write_checkpoint(first, None);
        self.checkpointed_or_poisoned(made)
    }

    /// Makes a checkpoint with one agent more, whose state is written and whose name is reserved: it is there when this
    /// is durable, and otherwise never was.
    pub(super) fn checkpoint_with_agent(self: &Arc<Self>, agent: StoredAgent) -> Result<(), StoreError> {
        if let Some(reason) = self.log.poisoned() {
            return Err(CommitError::Poisoned(reason).into());
        }
        let made = self.write_checkpoint(|| Ok(()), Some(agent));
        self.checkpointed_or_poisoned(made).map(drop)
    }

    fn checkpointed_or_poisoned<R>(
        &self,
        made: Result<(Hash, R), StoreError>,
    ) -> Result<(Hash, R), StoreError> {
        if let Err(StoreError::Superblock(SuperblockError::Poisoned(reason))) = &made {
            self.log.poison(reason.clone());
        }
        made
    }

    /// Commits wait only while the states are copied, which is a copy of roots.
    /// The lock of the superblock is held throughout, so no commit may ask for it.
    fn write_checkpoint<R>(
        self: &Arc<Self>,
        first: impl FnOnce() -> Result<R, StoreError>,
        new: Option<StoredAgent>,
    ) -> Result<(Hash, R), StoreError> {
        let mut superblock = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        let (position, done, Taking { states, shared, removed, purge }) = self.gate.stopped(|| {
            let position = self.log.tail();
            Ok::<_, StoreError>((position, first()?, self.take(position)))
        })?;
        let mut list = Catalogue::new(removed, purge);
        for (id, name, state) in states {
            let stored = self.write_state(id, name, state)?;
            match shared.get(&SharedId(id.0)) {
                Some(mounted_by) => {
                    list.shared.push(CatalogueZone { stored, mounted_by: mounted_by.clone() });
                }
                None => list.agents.push(stored),
            }
        }
        list.agents.extend(new.clone());
        let hash = list.write(&self.segments)?;
        self.segments.flush()?;
        superblock.advance(Some(hash), position)?;
        if let Some(new) = new {
            // before the next checkpoint, which would leave it out
            self.agents().slots.insert(new.id, Slot::Stored(new));
        }
        *self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner) = position;
        self.log.recycle_before(position).map_err(|e| self.log_failed(e))?;
        drop(superblock);
        self.segments.tidy_index();
        Ok((hash, done))
    }

    /// A file of the log could not be written or removed: as any failed write, that poisons the store, unless nothing
    /// was tried on the disk.
    pub(super) fn log_failed(&self, error: LogError) -> StoreError {
        let error = StoreError::from(error);
        if !error.is_no_space() && !error.is_shortage() {
            let source = std::error::Error::source(&error).map(|it| format!(": {it}")).unwrap_or_default();
            self.log.poison(format!("{error}{source}").into());
        }
        error
    }

    fn write_state(&self, id: AgentId, name: String, state: Taken) -> Result<StoredAgent, StoreError> {
        match state {
            Taken::Stored(stored) => Ok(stored),
            Taken::Damaged(damaged) => {
                let mut stored = damaged.stored;
                stored.carry(&damaged.records, &self.segments)?;
                Ok(stored)
            }
            Taken::Frozen(disk, frozen) => {
                let written = frozen.write(&self.segments)?;
                let mut inner = disk.lock();
                written.relieve(&mut inner.state);
                // one that nobody uses lets go here
                inner.relieve();
                drop(inner);
                let (epoch, sequence) = (written.epoch, written.sequence);
                let state = Some(written.state);
                Ok(StoredAgent { id, name, epoch, sequence, state, carried: Vec::new() })
            }
        }
    }

    /// The agents and shared zones as they stand, and those that are gone and may have a record from
    /// `position` on.
    fn take(&self, position: LogPosition) -> Taking {
        let mut agents = self.agents();
        agents.removed.retain(|_, at| *at >= position);
        let shared = &agents.shared;
        let names: HashMap<_, _> = agents.names.iter().map(|(n, id)| (*id, n)).collect();
        let zones: HashMap<_, _> = shared.names.iter().map(|(n, id)| (id.stream(), n)).collect();
        let states = agents.slots.iter().filter_map(|(id, slot)| {
            let name = names.get(id).or_else(|| zones.get(id))?;
            let taken = match slot {
                Slot::Stored(stored) => Taken::Stored(stored.clone()),
                Slot::Live(disk) => {
                    let frozen = Box::new(Frozen::of(&disk.lock().state));
                    Taken::Frozen(disk.clone(), frozen)
                }
                Slot::Damaged(damaged) => Taken::Damaged(damaged.clone()),
                Slot::Reserved => return None,
            };
            Some((*id, (*name).clone(), taken))
        });
        let mounted_by =
            |id: &SharedId| shared.mounts.get(id).map(|by| by.iter().copied().collect()).unwrap_or_default();
        // in order, so that the same states are written in the same order
        let mut states: Vec<_> = states.collect();
        states.sort_by_key(|(id, ..)| *id);
        let mut removed: Vec<_> = agents.removed.keys().copied().collect();
        removed.sort_unstable();
        let shared = shared.names.values().map(|id| (*id, mounted_by(id))).collect();
        Taking { states, shared, removed, purge: self.purge.is_due() }
    }
}
