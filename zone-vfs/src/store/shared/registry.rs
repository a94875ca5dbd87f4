//! Which shared zones there are, and which agents mount them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::flow::Flow;
use super::mounts::{Mounted, Mounts};
use super::{SharedId, Through};
use crate::contract::ZoneKind;
use crate::id::AgentId;
use crate::store::agents::{Agents, Slot};
use crate::store::disk::Disk;
use crate::store::entry::{Role, ZoneSpec};
use crate::store::{Shared, StoreError};

/// The shared zones of a store.
#[derive(Default)]
pub(in crate::store) struct SharedZones {
    /// Those that are being made have their name, too.
    pub names: BTreeMap<String, SharedId>,
    /// Who mounts each.
    pub mounts: HashMap<SharedId, BTreeSet<AgentId>>,
    /// Those that are in memory.
    pub live: HashMap<SharedId, Arc<Flow>>,
    /// Those that are being removed: nobody mounts them any more.
    closed: HashSet<SharedId>,
}

impl SharedZones {
    /// Notes an agent's mounts.
    pub fn mount(&mut self, agent: AgentId, specs: &[ZoneSpec]) {
        for mount in specs.iter().filter_map(|spec| spec.shared) {
            self.mounts.entry(mount.zone).or_default().insert(agent);
        }
    }

    /// Forgets an agent's mounts.
    pub fn unmount(&mut self, agent: AgentId) {
        self.mounts.retain(|_, by| {
            by.remove(&agent);
            !by.is_empty()
        });
    }

    pub fn name_of(&self, id: SharedId) -> Option<&str> {
        self.names.iter().find(|(_, it)| **it == id).map(|(name, _)| name.as_str())
    }
}

impl Agents {
    pub(super) fn reserve_shared(&mut self, id: SharedId, name: &str) -> Result<(), StoreError> {
        if self.shared.names.contains_key(name) {
            return Err(StoreError::SharedNameTaken(name.into()));
        }
        self.shared.names.insert(name.into(), id);
        self.slots.insert(id.stream(), Slot::Reserved);
        Ok(())
    }

    pub(in crate::store) fn forget_shared(&mut self, id: SharedId) {
        self.shared.names.retain(|_, it| *it != id);
        self.shared.live.remove(&id);
        self.shared.closed.remove(&id);
        self.slots.remove(&id.stream());
    }

    fn is_there(&self, id: SharedId) -> bool {
        !matches!(self.slots.get(&id.stream()), Some(Slot::Reserved) | None)
    }

    pub(super) fn find_shared(&self, name: &str) -> Option<SharedId> {
        self.shared.names.get(name).copied().filter(|id| self.is_there(*id))
    }

    /// The zones, by name.
    pub(super) fn list_shared(&self) -> Vec<(String, SharedId)> {
        let there = self.shared.names.iter().filter(|(_, id)| self.is_there(**id));
        there.map(|(name, id)| (name.clone(), *id)).collect()
    }

    /// The agents that mount a zone, by name.
    pub(super) fn mounted_by(&self, id: SharedId) -> Vec<(String, AgentId)> {
        let Some(by) = self.shared.mounts.get(&id) else { return Vec::new() };
        self.names.iter().filter(|(_, agent)| by.contains(agent)).map(|(n, a)| (n.clone(), *a)).collect()
    }

    /// Lets nobody mount a zone any more, unless someone does and this is not by `force`. Gives who does.
    pub(super) fn close_shared(
        &mut self,
        id: SharedId,
        force: bool,
    ) -> Result<Vec<(String, AgentId)>, StoreError> {
        let by = self.mounted_by(id);
        if force {
            self.shared.closed.insert(id);
            return Ok(by);
        }
        if !by.is_empty() || self.shared.mounts.contains_key(&id) {
            let zone = self.shared.name_of(id).unwrap_or_default().to_string();
            return Err(StoreError::SharedInUse { zone, by: by.into_iter().map(|(name, _)| name).collect() });
        }
        self.shared.closed.insert(id);
        Ok(by)
    }

    pub(super) fn open_shared(&mut self, id: SharedId) {
        self.shared.closed.remove(&id);
    }

    /// Checks that what a new agent mounts can be mounted. A fork's mount may lead nowhere, as its parent's does.
    pub(in crate::store) fn check_mounts(&self, specs: &[ZoneSpec], is_fork: bool) -> Result<(), StoreError> {
        for spec in specs {
            match (spec.kind, &spec.shared) {
                (ZoneKind::Shared, Some(mount)) => {
                    let can_be = self.is_there(mount.zone) && !self.shared.closed.contains(&mount.zone);
                    if !can_be && !is_fork {
                        return Err(StoreError::NoSharedZone(mount.zone));
                    }
                }
                (ZoneKind::Shared, None) | (_, Some(_)) => {
                    return Err(StoreError::NotAMount { zone: spec.name.clone() });
                }
                (_, None) => {}
            }
        }
        Ok(())
    }
}

impl Shared {
    /// A shared zone, read when it is first asked for.
    pub(in crate::store) fn flow(
        self: &Arc<Self>,
        agents: &mut Agents,
        id: SharedId,
    ) -> Result<Arc<Flow>, StoreError> {
        if let Some(flow) = agents.shared.live.get(&id) {
            return Ok(flow.clone());
        }
        match agents.slots.get(&id.stream()) {
            Some(Slot::Stored(_) | Slot::Damaged(_)) => {}
            _ => return Err(StoreError::NoSharedZone(id)),
        }
        let mut state = self.stored_state(agents, id.stream())?;
        state.abandon();
        let disk = Disk::new(state, false, self, Mounts::default());
        self.open_flow(agents, disk)
    }

    /// Takes a shared zone up that was read.
    pub(in crate::store) fn open_flow(
        self: &Arc<Self>,
        agents: &mut Agents,
        disk: Arc<Disk>,
    ) -> Result<Arc<Flow>, StoreError> {
        self.driver.start()?;
        let name = {
            let inner = disk.lock();
            if inner.state.role != Role::SharedZone || inner.state.zones.len() != 1 {
                let reason = "it is mounted as a shared zone, and is none".into();
                return Err(StoreError::Inconsistent { agent: disk.id(), reason });
            }
            inner.state.name.clone()
        };
        let flow = self.adopt_shared(agents, name, disk);
        if let Err(e) = flow.drop_orphans() {
            // whoever uses what is damaged is told; the rest serves
            tracing::warn!("the shared zone `{}`: {e}", flow.name);
        }
        Ok(flow)
    }

    /// An agent's mounts.
    pub(in crate::store) fn mounts(self: &Arc<Self>, agents: &mut Agents, specs: &[ZoneSpec]) -> Mounts {
        if specs.iter().all(|spec| spec.shared.is_none()) {
            return Mounts::default();
        }
        let mounted = specs.iter().map(|spec| {
            let mount = spec.shared?;
            let through = Through { holder: self.new_holder(), writable: mount.writable };
            Some(Mounted::new(mount.zone, self.flow(agents, mount.zone), through))
        });
        Mounts(mounted.collect())
    }
}
