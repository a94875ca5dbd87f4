//! Agents are made: as a fork of their component's genesis image, or not at all.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::{NewAgent, Store, StoreError};

use super::{AgentOptions, Host, HostShared, lock};
use crate::agent::{Agent, AgentError, AgentName, Template, ZonePlan};
use crate::component;
use crate::journal::{self, AgentAbout, GenerationAbout, World};
use crate::threads;
use crate::wasi::{HandleTable, Start};

/// How far an agent is that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Making {
    Begun,
    /// It is in the store, and may lack its genesis.
    Stored,
    Finished,
    /// Whoever wanted it does not wait any more.
    Dropped,
}

/// Takes an agent back of which the making is dropped before its end.
struct Unfinished {
    shared: Arc<HostShared>,
    id: AgentId,
    component: [u8; 32],
    making: Arc<Mutex<Making>>,
}

impl Unfinished {
    fn finish(&self) {
        *lock(&self.making) = Making::Finished;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // before it is stored, who stores it takes it back
        if std::mem::replace(&mut *lock(&self.making), Making::Dropped) == Making::Stored {
            self.shared.take_back(self.id, &self.component);
        }
    }
}

impl Host {
    /// Makes a new agent, which is a fork of its component's genesis image.
    pub async fn create(
        &self,
        name: &AgentName,
        component: &[u8],
        options: AgentOptions,
    ) -> Result<Agent, AgentError> {
        if self.store()?.find(name.as_str())?.is_some() {
            return Err(StoreError::NameTaken(name.to_string()).into());
        }
        let zones = crate::agent::zones(&options.zones)?;
        let (hash, template) = self.shared.admit_off_thread(component).await?;
        let made = self.create_admitted(name, hash, &template, zones, options).await;
        if made.is_err() {
            self.shared.forget_unused(&hash)?;
        }
        made
    }

    async fn create_admitted(
        &self,
        name: &AgentName,
        hash: [u8; 32],
        template: &Arc<Template>,
        zones: ZonePlan,
        options: AgentOptions,
    ) -> Result<Agent, AgentError> {
        let genesis = template.genesis(&self.shared.images).await?;
        let own = template.world == World::Agent && genesis.touched.any();
        if !own {
            let limits = self.shared.options.memory.with(options.max_memory);
            genesis.fits(&limits)?;
        }
        let id = Store::new_id()?;
        let about = AgentAbout {
            component: hash,
            component_name: options.component_name,
            world: template.world,
            args: options.args,
            env: options.env,
            parent: None,
            max_memory: options.max_memory,
            max_cpu: options.max_cpu,
            moved: None,
        };
        let mut generation = GenerationAbout {
            component: hash,
            component_name: Some(about.component_name.clone()),
            layout: component::LAYOUT_VERSION,
            image: (template.world == World::Agent).then(|| genesis.image.reference().clone()),
            handles: genesis.handles.clone(),
            monotonic: 0,
            starts: 0,
            next_start: Start::Created,
        };
        if own {
            generation.image = None;
            generation.handles = HandleTable::default();
        }
        let new = NewAgent {
            name: name.as_str().into(),
            about: journal::encode(&about)?,
            generation: journal::encode(&generation)?,
        };
        let making = Arc::new(Mutex::new(Making::Begun));
        let unfinished =
            Unfinished { shared: self.shared.clone(), id, component: hash, making: making.clone() };
        let (shared, store) = (self.shared.clone(), self.store()?);
        let make = move || {
            let disk = zones.make(&store, |specs| store.create(id, &new, specs))?;
            let mut making = lock(&making);
            if *making == Making::Dropped {
                shared.take_back(id, &hash);
            } else {
                *making = Making::Stored;
            }
            Ok::<_, AgentError>(disk)
        };
        let disk = threads::run(make).await??;
        let agent = self.shared.adopt(disk);
        if own {
            // its memory depends on what it asked: it gets a genesis of its own, over its own zones
            let made = agent.own_genesis(template).await;
            unfinished.finish();
            if let Err(e) = made {
                self.remove(&agent).await?;
                return Err(e);
            }
        } else {
            unfinished.finish();
            self.shared.archive_later(&agent.disk, GenerationNumber(0));
        }
        Ok(agent)
    }
}

impl HostShared {
    /// Removes an agent that was not finished, and its component if that is no other's.
    fn take_back(&self, id: AgentId, component: &[u8; 32]) {
        let remove = || {
            let store = self.store()?;
            store.disk(id)?.abandon()?;
            store.remove(id)?;
            self.purge_derived(id)?;
            lock(&self.agents).places.remove(&id);
            self.reap_due.store(true, Ordering::Relaxed);
            self.forget_unused(component)
        };
        if let Err(e) = remove() {
            // where it is still there, it makes up for its genesis when it is resumed
            tracing::warn!("removing an agent that was not finished: {}", zone_vfs::told(&e));
        }
    }
}
