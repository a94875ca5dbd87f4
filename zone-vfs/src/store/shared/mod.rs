//! Zones that several agents mount.
//!
//! A shared zone has an id, a name, a quota and records of its own: it is a [`Disk`] of one zone on which
//! no turns are taken. Agents' [`ZoneSpec`]s refer to it. All mounts work on one tree, so that changes
//! are seen at once; each operation commits by itself, in order, whatever becomes of the turn in which
//! it was done. What an agent has seen here is durable before its own commit point is.
//!
//! - [`SharedZone`] is the operator's access; an agent's is [`Disk::zone`].
//! - `flow` is a zone's way into the log, `driver` the thread that starts its commits.
//! - `mounts` is what an agent's disk keeps of the zones it mounts, `registry` which there are.
//!
//! Open files: a file that was unlinked stays while a mount has it open. A sleeping agent has nothing
//! open: the handles that its generation keeps are opened again at resume, and one whose file is gone
//! by then is not there any more (`no-entry`). Inode numbers are never reused, so that it
//! cannot become another file.

mod driver;
mod flow;
mod mounts;
mod registry;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::agents::{Slot, random_uuid};
use super::commit::{Commit, Settle};
use super::disk::{Disk, Done, wait};
use super::entry::{Cause, Entry, Payload, Role, ZoneSpec};
use super::state::State;
use super::{Shared, Store, StoreError};
use crate::contract::ZoneKind;
use crate::id::{AgentId, GenerationNumber, Timestamp};
use crate::zone::{Holder, Quota, Through, Usage, Zone};

pub(super) use driver::Driver;
use flow::Flow;
pub(super) use mounts::{Mounted, Mounts};
pub(super) use registry::SharedZones;

/// A shared zone's durable identity, which also names its records. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SharedId(pub Uuid);

impl SharedId {
    /// Whose records the zone's are.
    pub(super) fn stream(self) -> AgentId {
        AgentId(self.0)
    }
}

impl fmt::Display for SharedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How an agent mounts a shared zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMount {
    /// Which.
    pub zone: SharedId,
    /// Whether the mount is `:rw`. Through one that is not, nobody writes.
    pub writable: bool,
}

/// What is known of a shared zone.
#[derive(Clone, Debug)]
pub struct SharedInfo {
    /// Its id.
    pub id: SharedId,
    /// Its name, which no other shared zone has.
    pub name: String,
    /// What it uses, or why it cannot be read.
    pub usage: Result<(Usage, Quota), Arc<StoreError>>,
    /// The agents that mount it, by name.
    pub mounted_by: Vec<(String, AgentId)>,
}

/// A shared zone, for the operator: what is opened here is closed when this is dropped.
pub struct SharedZone {
    flow: Arc<Flow>,
    through: Through,
}

impl fmt::Debug for SharedZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedZone").field("name", &self.flow.name).finish_non_exhaustive()
    }
}

impl SharedZone {
    /// Its id.
    pub fn id(&self) -> SharedId {
        self.flow.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.flow.name
    }

    /// Works on the zone as it stands now. What changes is seen by every mount at once and commits
    /// without anybody waiting; [`SharedZone::sync`] waits. `None` only where the zone was removed.
    #[inline]
    pub fn zone<R>(&self, work: impl FnOnce(&mut Zone) -> R) -> Option<R> {
        self.flow.zone(self.through, work)
    }

    /// Gives the zone other bounds: durable when this returns. What is used already stays, also beyond them.
    pub fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.flow.disk.set_quota(0, quota)
    }

    /// Tells when all that can be seen in the zone is durable. `done` runs on a thread of the store's.
    pub fn sync(&self, done: Done<()>) {
        let flow = self.flow.clone();
        self.flow.settle(Box::new(move |result| done(result.map_err(|e| flow.named(e)))));
    }
}

impl Drop for SharedZone {
    fn drop(&mut self) {
        if let Err(e) = self.flow.let_go(self.through.holder) {
            tracing::warn!("closing files of the shared zone `{}`: {e}", self.flow.name);
        }
    }
}

impl Shared {
    pub(super) fn new_holder(&self) -> Holder {
        Holder(self.holders.fetch_add(1, Ordering::Relaxed))
    }

    fn make_shared(self: &Arc<Self>, name: &str, quota: Quota, done: Done<SharedId>) {
        self.gate.enter();
        let made = (|| {
            self.driver.start()?;
            let id = SharedId(random_uuid(self.segments.device())?);
            let spec = ZoneSpec {
                name: name.into(),
                mount: String::new(),
                kind: ZoneKind::Shared,
                quota,
                shared: None,
            };
            let at = Timestamp::now();
            let none = || Payload::Inline(Vec::new());
            let created = Entry::Created {
                role: Role::SharedZone,
                name: name.into(),
                about: none(),
                zones: vec![spec],
                parent: None,
                at,
            };
            let state = State::new(id.stream(), &created, None, self.segments.clone())?;
            let first =
                Entry::Generation { number: GenerationNumber(0), cause: Cause::Created, about: none(), at };
            self.agents().reserve_shared(id, name)?;
            Ok((id, Disk::new(state, true, self, Mounts::default()), vec![created, first]))
        })();
        let (id, disk, control) = match made {
            Ok(made) => made,
            Err(e) => {
                self.gate.leave();
                return done(Err(e));
            }
        };
        let (made, called) = (disk.clone(), name.to_string());
        let settle: Settle = Box::new(move |shared, is_made| {
            let mut agents = shared.agents();
            if is_made {
                shared.adopt_shared(&mut agents, called, made);
            } else {
                agents.forget_shared(id);
            }
        });
        let done: Done<GenerationNumber> = Box::new(move |result| done(result.map(|_| id)));
        Commit::start_inside(&disk, self, |_| Ok(control), Some(settle), done);
    }
}

impl Store {
    /// A new shared zone, empty. Durable when done.
    pub fn create_shared(&self, name: &str, quota: Quota) -> Result<SharedId, StoreError> {
        let shared = self.shared()?;
        wait(|done| shared.make_shared(name, quota, done))
    }

    /// The shared zone of this name.
    pub fn find_shared(&self, name: &str) -> Result<Option<SharedId>, StoreError> {
        Ok(self.shared()?.agents().find_shared(name))
    }

    /// A shared zone, for the operator.
    pub fn shared_zone(&self, id: SharedId) -> Result<SharedZone, StoreError> {
        let shared = self.shared()?;
        let flow = shared.flow(&mut shared.agents(), id)?;
        Ok(SharedZone { flow, through: Through { holder: shared.new_holder(), writable: true } })
    }

    /// The shared zones, by name.
    pub fn shared_zones(&self) -> Result<Vec<SharedInfo>, StoreError> {
        let shared = self.shared()?;
        let mut agents = shared.agents();
        let all = agents.list_shared();
        let mut infos = Vec::with_capacity(all.len());
        for (name, id) in all {
            let mounted_by = agents.mounted_by(id);
            let usage = match shared.flow(&mut agents, id) {
                Ok(flow) => {
                    let inner = flow.disk.lock();
                    let zone = inner.state.zones.first().map(|z| &z.working);
                    Ok(zone.map_or_else(Default::default, |z| (z.usage(), z.quota())))
                }
                Err(e) => Err(Arc::new(e)),
            };
            infos.push(SharedInfo { id, name, usage, mounted_by });
        }
        Ok(infos)
    }

    /// Removes a shared zone that no agent mounts. Its name is free; its id is never used again.
    pub fn remove_shared(&self, id: SharedId) -> Result<(), StoreError> {
        self.take_shared_away(id, false).map(drop)
    }

    /// Removes a shared zone, whoever mounts it and whether it can be read or not, and gives the agents that
    /// mount it: their mounts lead nowhere from here on, and forks of theirs are refused.
    pub fn remove_shared_by_force(&self, id: SharedId) -> Result<Vec<(String, AgentId)>, StoreError> {
        self.take_shared_away(id, true)
    }

    fn take_shared_away(&self, id: SharedId, force: bool) -> Result<Vec<(String, AgentId)>, StoreError> {
        let shared = self.shared()?;
        let mut agents = shared.agents();
        let flow = match shared.flow(&mut agents, id) {
            Err(StoreError::DamagedAgent { .. }) if force => None,
            flow => Some(flow?),
        };
        // from here on nobody mounts it
        let by = agents.close_shared(id, force)?;
        let Some(flow) = flow else {
            let damaged = match agents.slots.get(&id.stream()) {
                Some(Slot::Damaged(damaged)) => damaged.clone(),
                _ => return Err(StoreError::NoSharedZone(id)),
            };
            drop(agents);
            let removed = shared.remove_damaged(&damaged, Role::SharedZone);
            if removed.is_err() {
                shared.agents().open_shared(id);
            }
            return removed.map(|()| by);
        };
        drop(agents);
        // until no commit of it is under way; what became of its changes does not matter any more
        wait(|done: Done<()>| flow.settle(Box::new(move |_| done(Ok(())))))?;
        let settle: Settle = Box::new(move |shared, is_removed| {
            let mut agents = shared.agents();
            if is_removed {
                agents.forget_shared(id);
                // the tail moves past a group only after all that is told of it
                agents.removed.insert(id.stream(), shared.log.tail());
            } else {
                agents.open_shared(id);
            }
        });
        let control = |_: &_| Ok(vec![Entry::Removed]);
        wait(|done| Commit::start(&flow.disk, control, Some(settle), done)).map(|_| by)
    }
}

impl Shared {
    /// Takes a shared zone's disk up among those that are open.
    pub(super) fn adopt_shared(
        &self,
        agents: &mut super::agents::Agents,
        name: String,
        disk: Arc<Disk>,
    ) -> Arc<Flow> {
        agents.slots.insert(disk.id(), Slot::Live(disk.clone()));
        let flow = Flow::new(disk, name, self.driver.clone());
        agents.shared.live.insert(flow.id, flow.clone());
        flow
    }
}
