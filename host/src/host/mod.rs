//! The host: what a platform embeds.
//!
//! - `options` say how a host is opened and an agent made, `engines` are wasmtime's.
//! - `create` makes agents, `remove` takes them away, `templates` make components ready for both.

mod create;
mod engines;
mod limits;
mod options;
mod pressure;
mod remove;
mod templates;

use std::collections::{HashMap, HashSet};
use std::ops::Not;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use zone_vfs::id::AgentId;
use zone_vfs::store::{DamagedAgent, Disk, Finding, Store, StoreError};

use crate::agent::{Agent, AgentError, Place, Template};
use crate::code::{CodeCache, Components};
use crate::image::ImageStore;
use crate::upkeep::{Archiving, Flattening, Parked};

pub(crate) use self::engines::Engines;
pub use self::limits::ProcessLimit;
pub(crate) use self::limits::{Headroom, Room};
pub use self::options::{AgentOptions, HostOptions, ImagePolicy};
pub(crate) use self::pressure::Pressure;
pub(crate) use self::templates::{Admitted, admit};

/// The places of the agents that somebody holds.
#[derive(Default)]
struct Places {
    places: HashMap<AgentId, Weak<Place>>,
    /// Those that nobody holds are looked for when there are so many.
    sweep_at: usize,
}

/// What agents share with their host.
pub(crate) struct HostShared {
    pub options: HostOptions,
    pub images: Arc<ImageStore>,
    pub engines: Engines,
    store: Mutex<Option<Arc<Store>>>,
    code: Arc<CodeCache>,
    pub components: Components,
    pub templates: Mutex<HashMap<[u8; 32], Arc<Template>>>,
    agents: Mutex<Places>,
    /// Differs between any two starts of this process, and is drawn anew by each.
    started: AtomicU32,
    /// Held for reading while an image is made and not yet named by a record; for writing while image
    /// files are reaped.
    pub imaging: tokio::sync::RwLock<()>,
    pub reap_due: AtomicBool,
    pub flattening: Flattening,
    pub archiving: Arc<Mutex<Archiving>>,
    pub headroom: Headroom,
    pub parked: Arc<Parked>,
}

/// An open store with everything that is needed to run its agents.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<HostShared>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("folder", &self.shared.options.folder).finish_non_exhaustive()
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Opens the store in a folder, which is made when it is missing. One process at a time has it
    /// open.
    pub fn open(options: HostOptions) -> Result<Self, AgentError> {
        let store = Store::open(&options.folder, &options.store)?;
        let images = Arc::new(ImageStore::open(&options.folder.join("images"))?);
        let code = Arc::new(CodeCache::open(&options.folder.join("cache"))?);
        let components = Components::open(&options.folder.join("components"))?;
        let shared = Arc::new(HostShared {
            images,
            engines: engines::engines(options.warm_slots)?,
            store: Mutex::new(Some(Arc::new(store))),
            code,
            components,
            templates: Mutex::default(),
            agents: Mutex::default(),
            started: AtomicU32::new(first_start()?),
            imaging: tokio::sync::RwLock::default(),
            reap_due: AtomicBool::new(false),
            flattening: Flattening::default(),
            archiving: Arc::default(),
            headroom: Headroom::new(options.mappings),
            parked: Arc::new(Parked::new(options.parked_memory)),
            options,
        });
        Ok(Self { shared })
    }

    /// Makes a store that [does not open](StoreError::is_mendable) one that does, without what is lost: see
    /// [`Store::mend`]. It is worth [scrubbing](Store::scrub) then.
    pub fn mend(options: &HostOptions, report: &mut dyn FnMut(&Finding)) -> Result<(), AgentError> {
        Ok(Store::mend(&options.folder, &options.store, report)?)
    }

    /// The store beneath.
    pub fn store(&self) -> Result<Arc<Store>, AgentError> {
        self.shared.store()
    }

    /// The store's folder.
    pub fn folder(&self) -> &Path {
        &self.shared.options.folder
    }

    /// The agent of this name.
    pub fn agent(&self, name: &str) -> Result<Agent, AgentError> {
        let store = self.store()?;
        let id = store.find(name)?.ok_or_else(|| AgentError::NoAgent(name.into()))?;
        Ok(self.shared.adopt(store.disk(id)?))
    }

    /// The agents, by name, but for those that are [damaged](Self::damaged).
    pub fn agents(&self) -> Result<Vec<Agent>, AgentError> {
        let store = self.store()?;
        let mut agents = Vec::new();
        for (_, id) in store.agents()? {
            match store.disk(id) {
                Err(StoreError::DamagedAgent { .. }) => {}
                disk => agents.push(self.shared.adopt(disk?)),
            }
        }
        Ok(agents)
    }

    /// The agents that cannot be read, and why. [`agents`](Self::agents) finds out which these are.
    pub fn damaged(&self) -> Result<Vec<DamagedAgent>, AgentError> {
        Ok(self.store()?.damaged()?)
    }

    /// Closes the host: work behind the turns is finished, warm slots are dropped, the store is closed.
    /// Agents that are still held answer [`StoreError::Closed`] from here on.
    pub fn close(self) -> Result<(), AgentError> {
        self.shared.join_flattening();
        self.shared.join_archiving();
        if self.shared.reap_due.swap(false, Ordering::Relaxed) {
            self.shared.reap_images(&HashSet::new(), false)?;
            // a turn that is still going on, which is a mistake, must not be waited for
            if let Ok(_alone) = self.shared.imaging.try_write() {
                self.shared.shed_images(self.shared.options.image_cache)?;
            }
        }
        lock(&self.shared.templates).clear();
        let store = lock(&self.shared.store).take();
        match store.map(Arc::try_unwrap) {
            Some(Ok(store)) => Ok(store.close()?),
            // someone still holds the store: it is closed when that is dropped
            Some(Err(_)) | None => Ok(()),
        }
    }
}

/// Where the numbers of this process's starts begin. So many can follow before they come to the end.
fn first_start() -> Result<u32, AgentError> {
    let id = Store::new_id()?;
    let [a, b, c, d, ..] = *id.0.as_bytes();
    Ok(u32::from_le_bytes([a, b, c, d]) >> 1)
}

impl HostShared {
    pub fn store(&self) -> Result<Arc<Store>, AgentError> {
        lock(&self.store).clone().ok_or_else(|| StoreError::Closed.into())
    }

    /// The one [`Agent`] of a disk, so that its turns queue.
    pub fn adopt(self: &Arc<Self>, disk: Arc<Disk>) -> Agent {
        let mut agents = lock(&self.agents);
        let known = agents.places.get(&disk.id()).and_then(Weak::upgrade);
        let place = known.unwrap_or_else(|| {
            if agents.places.len() >= agents.sweep_at {
                agents.places.retain(|_, a| a.strong_count() > 0);
                agents.sweep_at = 2 * agents.places.len() + 64;
            }
            let place = Arc::default();
            agents.places.insert(disk.id(), Arc::downgrade(&place));
            place
        });
        Agent { host: self.clone(), disk, place }
    }

    /// The number of a start, which `lifecycle.generation` tells. The upper half counts the starts whose
    /// turns were kept, so that it grows with them. A start whose turn failed, or that a crash ended,
    /// leaves no count behind: the lower half differs all the same.
    pub fn fresh_start(&self, starts: u64) -> u64 {
        let fresh = self.started.fetch_add(1, Ordering::Relaxed);
        (starts.min(u64::from(u32::MAX)) << 32) | u64::from(fresh)
    }

    /// The agents that are in memory, or on their way there.
    pub fn awake(&self) -> Vec<AgentId> {
        let agents = lock(&self.agents);
        let awake = |place: &Weak<Place>| {
            place.upgrade().is_some_and(|place| place.running.try_lock().is_ok_and(|r| r.is_none()).not())
        };
        agents.places.iter().filter(|(_, place)| awake(place)).map(|(id, _)| *id).collect()
    }
}
