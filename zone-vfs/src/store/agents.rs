//! The agents of a store: by name and by id, read from the catalogue when they are first asked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use uuid::Uuid;

use super::catalogue::StoredAgent;
use super::commit::{Commit, Settle};
use super::damaged::Damaged;
use super::disk::{Disk, Done, Inner, wait};
use super::entry::{Cause, Entry, Role, ZoneSpec};
use super::shared::{Mounts, SharedId, SharedZones};
use super::state::State;
use super::{MAX_ZONES, Shared, Store, StoreError, blob};
use crate::id::{AgentId, GenerationNumber, Timestamp};
use crate::log::{Done as LogDone, LogPosition, Record};

/// Forks that enter the gate at once, at most: a checkpoint waits for them, and everybody's commits with it.
const FORK_BATCH: usize = 256;

/// Where an agent's state is.
pub(super) enum Slot {
    /// In the catalogue, not read yet.
    Stored(StoredAgent),
    /// In memory.
    Live(Arc<Disk>),
    /// Cannot be read, or could not be when it was last asked for. It can be removed, and keeps what there is of it
    /// until then.
    Damaged(Box<Damaged>),
    /// Being made: the name is taken.
    Reserved,
}

#[derive(Default)]
pub(super) struct Agents {
    pub slots: HashMap<AgentId, Slot>,
    pub names: BTreeMap<String, AgentId>,
    /// Removed not long ago, with where the log was then: a recovery that begins there meets records
    /// of theirs.
    pub removed: HashMap<AgentId, LogPosition>,
    /// The zones that several mount.
    pub shared: SharedZones,
}

impl Agents {
    /// Forgets an agent or a shared zone.
    pub fn forget(&mut self, id: AgentId, role: Role, name: &str) {
        match role {
            Role::Agent => {
                self.names.remove(name);
                self.slots.remove(&id);
                self.shared.unmount(id);
            }
            Role::SharedZone => self.forget_shared(SharedId(id.0)),
        }
    }

    /// Those that are not in memory, so that the last catalogue has them as they are.
    pub fn stored(&self) -> HashSet<AgentId> {
        let is_stored = |slot: &Slot| matches!(slot, Slot::Stored(_) | Slot::Damaged(_));
        self.slots.iter().filter(|(_, slot)| is_stored(slot)).map(|(id, _)| *id).collect()
    }
}

/// An agent to be made.
#[derive(Clone, Debug)]
pub struct NewAgent {
    /// Its name, not yet taken.
    pub name: String,
    /// The embedder's data about it.
    pub about: Vec<u8>,
    /// The embedder's part of its first generation.
    pub generation: Vec<u8>,
}

impl Shared {
    pub(super) fn agents(&self) -> MutexGuard<'_, Agents> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn disk(self: &Arc<Self>, id: AgentId) -> Result<Arc<Disk>, StoreError> {
        let mut agents = self.agents();
        match agents.slots.get(&id) {
            Some(Slot::Live(disk)) if disk.role() == Role::Agent => Ok(disk.clone()),
            Some(Slot::Stored(_) | Slot::Damaged(_)) => self.bring_in(&mut agents, id),
            Some(Slot::Live(_) | Slot::Reserved) | None => Err(StoreError::NoAgent(id)),
        }
    }

    /// Reads an agent that is not in memory, and keeps it there.
    pub(super) fn bring_in(
        self: &Arc<Self>,
        agents: &mut Agents,
        id: AgentId,
    ) -> Result<Arc<Disk>, StoreError> {
        let mut state = self.stored_state(agents, id)?;
        // the checkpoint may have been made in the middle of a turn
        state.abandon();
        if state.role != Role::Agent {
            return Err(StoreError::NoAgent(id));
        }
        let mounts = self.mounts(agents, &state.specs);
        let disk = Disk::new(state, false, self, mounts);
        agents.slots.insert(id, Slot::Live(disk.clone()));
        Ok(disk)
    }

    /// Takes name and id, and mounts what the agent mounts.
    pub(super) fn reserve(
        self: &Arc<Self>,
        id: AgentId,
        name: &str,
        zones: &[ZoneSpec],
        is_fork: bool,
    ) -> Result<Mounts, StoreError> {
        let mut agents = self.agents();
        if agents.names.contains_key(name) {
            return Err(StoreError::NameTaken(name.into()));
        }
        if agents.slots.contains_key(&id) || agents.removed.contains_key(&id) {
            return Err(StoreError::IdTaken(id));
        }
        agents.check_mounts(zones, is_fork)?;
        agents.names.insert(name.into(), id);
        agents.slots.insert(id, Slot::Reserved);
        agents.shared.mount(id, zones);
        Ok(self.mounts(&mut agents, zones))
    }

    /// The records with which an agent begins, to be submitted; none where it cannot be made, of which `done` was told.
    /// For whoever has entered the gate, which is left when they are durable: with no checkpoint between reading the
    /// parent and the child's record, which could miss both.
    fn make(
        self: &Arc<Self>,
        id: AgentId,
        new: &NewAgent,
        zones: Vec<ZoneSpec>,
        parent: Option<(Arc<Disk>, GenerationNumber)>,
        done: Done<Arc<Disk>>,
    ) -> Vec<(Record, LogDone)> {
        let made = (|| {
            if zones.len() > MAX_ZONES {
                return Err(StoreError::TooManyZones { found: zones.len(), limit: MAX_ZONES });
            }
            let chunks = self.segments.clone();
            let about = blob::put(&*chunks, &new.about)?;
            let generation = blob::put(&*chunks, &new.generation)?;
            let at = Timestamp::now();
            let begins_as = match &parent {
                Some((disk, _)) if disk.lock().state.removed => return Err(StoreError::NoAgent(disk.id)),
                Some((disk, number)) => Some(disk.generation(*number)?),
                None => None,
            };
            let cause = if parent.is_some() { Cause::Forked } else { Cause::Created };
            let parent = parent.map(|(disk, number)| (disk.id, number));
            let created =
                Entry::Created { role: Role::Agent, name: new.name.clone(), about, zones, parent, at };
            let state = State::new(id, &created, begins_as.as_ref(), chunks)?;
            let first = Entry::Generation { number: GenerationNumber(0), cause, about: generation, at };
            let mounts = self.reserve(id, &new.name, &state.specs, parent.is_some())?;
            Ok((Disk::new(state, true, self, mounts), vec![created, first]))
        })();
        let (disk, control) = match made {
            Ok(made) => made,
            Err(e) => {
                self.gate.leave();
                done(Err(e));
                return Vec::new();
            }
        };
        let (name, made) = (new.name.clone(), disk.clone());
        let settle: Settle = Box::new(move |shared, is_made| {
            if is_made {
                shared.agents().slots.insert(id, Slot::Live(made));
            } else {
                shared.agents().forget(id, Role::Agent, &name);
            }
        });
        let made = disk.clone();
        let done: Done<GenerationNumber> = Box::new(move |result| done(result.map(|_| made)));
        Commit::first(&disk, self, control, settle, done)
    }
}

impl Store {
    /// A new agent with empty zones. Durable when done. Ids are drawn by the caller and never used
    /// twice.
    pub fn create(&self, id: AgentId, new: &NewAgent, zones: Vec<ZoneSpec>) -> Result<Arc<Disk>, StoreError> {
        let shared = self.shared()?;
        shared.gate.enter();
        wait(|done| shared.log.submit_all(shared.make(id, new, zones, None, done)))
    }

    /// New agents that begin as `parent` stood in `generation`: a copy of roots and one commit for
    /// all. Either all are made or, where one fails, an error tells, and those that were made stay.
    pub fn fork(
        &self,
        parent: &Arc<Disk>,
        generation: GenerationNumber,
        children: &[(AgentId, NewAgent)],
    ) -> Result<Vec<Arc<Disk>>, StoreError> {
        let shared = self.shared()?;
        let zones = parent.zones();
        {
            let agents = shared.agents();
            if let Some((_, taken)) = children.iter().find(|(_, c)| agents.names.contains_key(&c.name)) {
                return Err(StoreError::NameTaken(taken.name.clone()));
            }
        }
        let (send, receive) = std::sync::mpsc::channel();
        for (batch, children) in children.chunks(FORK_BATCH).enumerate() {
            shared.gate.enter_as(children.len());
            let mut records = Vec::with_capacity(children.len());
            for (index, (id, child)) in children.iter().enumerate() {
                let send = send.clone();
                let done: Done<Arc<Disk>> = Box::new(move |result| {
                    // the receiver waits below for every one
                    let _ = send.send((batch * FORK_BATCH + index, result));
                });
                let from = Some((parent.clone(), generation));
                records.extend(shared.make(*id, child, zones.clone(), from, done));
            }
            // at once, so that as few groups as can be hold them
            shared.log.submit_all(records);
        }
        drop(send);
        let mut made: Vec<_> = receive
            .iter()
            .map(|(index, result)| result.map(|disk| (index, disk)))
            .collect::<Result<_, _>>()?;
        made.sort_by_key(|(index, _)| *index);
        Ok(made.into_iter().map(|(_, disk)| disk).collect())
    }

    /// Removes an agent, whether it can be read or not: its name is free, its records are gone with the next
    /// checkpoint.
    pub fn remove(&self, id: AgentId) -> Result<(), StoreError> {
        match self.remove_where(id, |_| Ok(())) {
            Err(StoreError::DamagedAgent { agent, .. }) if agent == id => {
                let shared = self.shared()?;
                let damaged = match shared.agents().slots.get(&id) {
                    Some(Slot::Damaged(damaged)) => damaged.clone(),
                    _ => return Err(StoreError::NoAgent(id)),
                };
                shared.remove_damaged(&damaged, Role::Agent)
            }
            removed => removed,
        }
    }

    /// As [`remove`](Self::remove), of one that can be read, unless `check` refuses it as it stands then.
    pub(super) fn remove_where(
        &self,
        id: AgentId,
        check: impl FnOnce(&Inner) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let shared = self.shared()?;
        let disk = shared.disk(id)?;
        let name = disk.lock().state.name.clone();
        let settle: Settle = Box::new(move |shared, is_removed| {
            if is_removed {
                let mut agents = shared.agents();
                agents.forget(id, Role::Agent, &name);
                // the tail moves past a group only after all that is told of it
                agents.removed.insert(id, shared.log.tail());
            }
        });
        let control = |inner: &Inner| check(inner).map(|()| vec![Entry::Removed]);
        wait(|done| Commit::start(&disk, control, Some(settle), done))?;
        shared.readers.departed(&disk);
        disk.let_go();
        Ok(())
    }

    /// The disk of an agent.
    pub fn disk(&self, id: AgentId) -> Result<Arc<Disk>, StoreError> {
        self.shared()?.disk(id)
    }

    /// The id that a name stands for.
    pub fn find(&self, name: &str) -> Result<Option<AgentId>, StoreError> {
        let agents = self.shared()?.agents();
        Ok(agents
            .names
            .get(name)
            .copied()
            .filter(|id| !matches!(agents.slots.get(id), Some(Slot::Reserved) | None)))
    }

    /// The agents, by name, damaged ones too.
    pub fn agents(&self) -> Result<Vec<(String, AgentId)>, StoreError> {
        let agents = self.shared()?.agents();
        let there = |id: &AgentId| !matches!(agents.slots.get(id), Some(Slot::Reserved) | None);
        Ok(agents.names.iter().filter(|(_, id)| there(id)).map(|(n, id)| (n.clone(), *id)).collect())
    }

    /// A new agent id: random, and so never used before.
    pub fn new_id() -> Result<AgentId, StoreError> {
        let mut bytes = [0u8; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|e| StoreError::Io { what: "drawing an agent id".into(), source: e.into() })?;
        }
        Ok(AgentId(uuid::Builder::from_random_bytes(bytes).into_uuid()))
    }
}

/// A fresh random uuid from `device`.
pub(super) fn random_uuid(device: &dyn crate::device::Device) -> Result<Uuid, StoreError> {
    let mut bytes = [0u8; 16];
    device
        .random(&mut bytes)
        .map_err(|source| StoreError::Io { what: "drawing random numbers".into(), source })?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
