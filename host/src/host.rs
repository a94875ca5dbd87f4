//! The host: what a platform embeds.

use std::collections::{HashMap, HashSet};
use std::ops::Not;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use wasmtime::component::Linker;
use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::{DamagedAgent, Disk, NewAgent, Store, StoreError, StoreOptions};

use crate::agent::{Agent, AgentError, AgentName, Place, Template, ZoneOption, ZonePlan, link_lifecycle};
use crate::code::{self, CodeCache, CodeError, Compiler, Components, SlotEngine, Ticker};
use crate::component::{self, ComponentError, Variant};
use crate::image::ImageStore;
use crate::journal::{self, AgentAbout, GenerationAbout, World};
use crate::threads;
use crate::upkeep::{Archiving, Flattening};
use crate::wasi::{GuestState, HandleTable, MemoryLimits, Start};

/// How a host is opened.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The store's folder; it is made when it is missing.
    pub folder: PathBuf,
    /// How the store is opened.
    pub store: StoreOptions,
    /// The program that compiles components; found when it is first needed, if none is given.
    pub compiler: Option<Compiler>,
    /// Bounds on a guest's memory.
    pub memory: MemoryLimits,
    /// How long a turn may take.
    pub turn_time: Duration,
    /// How long a component may take to be instantiated for its genesis image.
    pub genesis_time: Duration,
    /// An image with more changed pages than this is made flat, behind the turns.
    pub flatten_at: usize,
    /// Bytes of image files that are kept though the archive has them too. The files that heads need are kept
    /// in any case.
    pub image_cache: u64,
}

impl HostOptions {
    /// The defaults, for the store in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            store: StoreOptions::default(),
            compiler: None,
            memory: MemoryLimits::default(),
            turn_time: Duration::from_hours(1),
            genesis_time: Duration::from_mins(1),
            flatten_at: 256,
            image_cache: 4 << 30,
        }
    }
}

/// How an agent is made.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Zones beside the default ones, or their quotas.
    pub zones: Vec<ZoneOption>,
    /// What people call the component: its file's name.
    pub component_name: String,
    /// The most linear memory that it and its forks get, in the place of the host's
    /// [`memory`](HostOptions::memory). Bytes.
    pub max_memory: Option<u64>,
}

pub(crate) struct Engines {
    pub boot: SlotEngine,
    pub restore: SlotEngine,
    pub boot_linker: Arc<Linker<GuestState>>,
    pub restore_linker: Arc<Linker<GuestState>>,
    _ticker: Ticker,
}

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
    pub flattening: Arc<Mutex<Flattening>>,
    pub archiving: Arc<Mutex<Archiving>>,
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

fn engines() -> Result<Engines, AgentError> {
    let made = |e: wasmtime::Error| AgentError::Instantiate(format!("{e:#}"));
    let boot = SlotEngine::new(Variant::Boot).map_err(made)?;
    let restore = SlotEngine::new(Variant::Restore).map_err(made)?;
    let linker = |engine: &SlotEngine| {
        let mut linker = Linker::new(&engine.engine);
        crate::wasi::link(&mut linker)?;
        link_lifecycle(&mut linker)?;
        crate::wit::link(&mut linker)?;
        Ok::<_, wasmtime::Error>(Arc::new(linker))
    };
    let ticker = Ticker::start(vec![boot.engine.weak(), restore.engine.weak()])
        .map_err(|source| AgentError::Io { what: "starting the epoch thread".into(), source })?;
    Ok(Engines {
        boot_linker: linker(&boot).map_err(made)?,
        restore_linker: linker(&restore).map_err(made)?,
        boot,
        restore,
        _ticker: ticker,
    })
}

/// Sets a flag when it goes: whoever works for somebody then sees that he has gone.
#[derive(Default)]
struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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

/// Does blocking work on a thread of its own. The flag tells it that nobody waits for it any more.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Result<T, AgentError> + Send + 'static,
) -> Result<T, AgentError> {
    let waiting = StopWhenDropped::default();
    let stop = waiting.0.clone();
    threads::run(move || work(&stop)).await?
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
            engines: engines()?,
            store: Mutex::new(Some(Arc::new(store))),
            code,
            components,
            templates: Mutex::default(),
            agents: Mutex::default(),
            started: AtomicU32::new(first_start()?),
            imaging: tokio::sync::RwLock::default(),
            reap_due: AtomicBool::new(false),
            flattening: Arc::default(),
            archiving: Arc::default(),
            options,
        });
        Ok(Self { shared })
    }

    /// The store beneath.
    pub fn store(&self) -> Result<Arc<Store>, AgentError> {
        self.shared.store()
    }

    /// The store's folder.
    pub fn folder(&self) -> &Path {
        &self.shared.options.folder
    }

    /// Whether the component's code is compiled already.
    pub fn is_compiled(&self, component: &[u8]) -> bool {
        self.is_ready(blake3::hash(component).as_bytes())
    }

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
        let genesis = template.genesis(&self.shared.images).await?.clone();
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
        };
        let mut generation = GenerationAbout {
            component: hash,
            layout: component::LAYOUT_VERSION,
            image: (template.world == World::Agent).then(|| genesis.image.reference().clone()),
            handles: genesis.handles,
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

    /// Whether the code of the component with this hash is compiled already.
    pub fn is_ready(&self, hash: &[u8; 32]) -> bool {
        self.shared.code.has(&self.shared.code_key(hash))
    }

    /// Whether the component's agents can share one genesis image: it asks about nothing while it is
    /// instantiated. Compiles it if need be.
    pub async fn shares_genesis(&self, component: &[u8]) -> Result<bool, AgentError> {
        let (hash, template) = self.shared.admit_off_thread(component).await?;
        let shares = !template.genesis(&self.shared.images).await?.touched.any();
        self.shared.forget_unused(&hash)?;
        Ok(shares)
    }

    /// Gives a command's agent another component, for the runs to come. Its zones stay.
    pub async fn replace_command(
        &self,
        agent: &Agent,
        component: &[u8],
        name: &str,
    ) -> Result<(), AgentError> {
        let _alone = agent.enter().await?;
        let (hash, template) = self.shared.admit_off_thread(component).await?;
        let mut about = agent.about()?;
        if about.world != World::Command || template.world != World::Command {
            return Err(AgentError::World {
                agent: agent.info()?.name,
                found: about.world.name(),
                wanted: "only a command can be run with another component under the same name",
            });
        }
        about.component = hash;
        about.component_name = name.into();
        let bytes = journal::encode(&about)?;
        crate::agent::await_done(&agent.disk, |done| agent.disk.set_about(&bytes, done)).await?;
        Ok(())
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

    /// Removes an agent that cannot be read.
    pub async fn remove_damaged(&self, name: &str) -> Result<(), AgentError> {
        let store = self.store()?;
        let id = store.find(name)?.ok_or_else(|| AgentError::NoAgent(name.into()))?;
        let shared = self.shared.clone();
        threads::run(move || {
            store.remove(id)?;
            shared.purge_derived(id)?;
            let _alone = shared.imaging.blocking_write();
            shared.join_flattening();
            shared.reap_images(&HashSet::new(), false)?;
            Ok(())
        })
        .await?
    }

    /// Removes an agent, and the image files that nothing needs any more.
    pub async fn remove(&self, agent: &Agent) -> Result<(), AgentError> {
        self.remove_all(std::slice::from_ref(agent)).await
    }

    /// Removes agents, and the image files that nothing needs any more.
    pub async fn remove_all(&self, agents: &[Agent]) -> Result<(), AgentError> {
        // each is a commit of its own: those that wait together are flushed together
        for some in agents.chunks(REMOVED_AT_ONCE) {
            let mut tasks = tokio::task::JoinSet::new();
            for agent in some {
                *agent.enter().await? = None;
                let (store, shared, id) = (self.store()?, self.shared.clone(), agent.id());
                tasks.spawn(threads::run(move || {
                    store.remove(id)?;
                    shared.purge_derived(id)?;
                    lock(&shared.agents).places.remove(&id);
                    Ok::<_, AgentError>(())
                }));
            }
            while let Some(removed) = tasks.join_next().await {
                removed.map_err(|e| AgentError::Task(e.to_string()))???;
            }
        }
        let shared = self.shared.clone();
        threads::run(move || {
            let _alone = shared.imaging.blocking_write();
            shared.join_flattening();
            shared.reap_images(&HashSet::new(), false)
        })
        .await??;
        Ok(())
    }

    /// Makes `count` instances of the agent's component stand ready for a resume of this agent or of one
    /// that has as much memory, such as its forks. With none, its code is compiled and loaded, if that
    /// has not been done. Dropped in the middle, it ends the compiler.
    pub async fn prepare(&self, agent: &Agent, count: usize) -> Result<(), AgentError> {
        let about = agent.about()?;
        let template = self.shared.template_off_thread(&about.component).await?;
        if count == 0 {
            return Ok(());
        }
        if about.world == World::Command {
            return template.prepare(&template.genesis(&self.shared.images).await?.image, count).await;
        }
        if agent.lacks_genesis()? {
            // there is no image before it is resumed, and nothing to get ready for
            return Ok(());
        }
        let (_, image) = agent.standing().await?;
        template.prepare(&image, count).await
    }

    /// Compiles a component and takes its genesis image, if that has not been done, so that
    /// [`Host::create`] is quick; says what the component is. Dropped in the middle, it ends the compiler.
    pub async fn warm_up(&self, component: &[u8]) -> Result<World, AgentError> {
        let (shared, component) = (self.shared.clone(), component.to_vec());
        let template = off_thread(move |stop| Ok(shared.load(&component, stop)?.1)).await?;
        template.genesis(&self.shared.images).await?;
        Ok(template.world)
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

/// Agents whose removals wait for the disk together.
const REMOVED_AT_ONCE: usize = 64;

/// Where the numbers of this process's starts begin. So many can follow before they come to the end.
fn first_start() -> Result<u32, AgentError> {
    let id = Store::new_id()?;
    let [a, b, c, d, ..] = *id.0.as_bytes();
    Ok(u32::from_le_bytes([a, b, c, d]) >> 1)
}

impl HostShared {
    /// The keys of the components whose templates are in memory.
    pub fn template_keys(&self) -> Vec<code::CodeKey> {
        lock(&self.templates).values().map(|template| template.key).collect()
    }

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

    fn code_key(&self, component: &[u8; 32]) -> code::CodeKey {
        CodeCache::key(component, &self.engines.boot.engine, &self.engines.restore.engine)
    }

    /// The template of a component, compiled if need be, unless it is refused.
    fn load(&self, component: &[u8], stop: &AtomicBool) -> Result<([u8; 32], Arc<Template>), AgentError> {
        let hash = *blake3::hash(component).as_bytes();
        let template = self.template(&hash, || Ok(component.into()), stop)?;
        Ok((hash, template))
    }

    /// Compiles a component, unless it is refused, and only then keeps it.
    async fn admit_off_thread(
        self: &Arc<Self>,
        component: &[u8],
    ) -> Result<([u8; 32], Arc<Template>), AgentError> {
        let (shared, component) = (self.clone(), component.to_vec());
        off_thread(move |stop| {
            let admitted = shared.load(&component, stop)?;
            shared.components.keep(&component)?;
            Ok(admitted)
        })
        .await
    }

    /// The template of the store's component with this hash. Dropped in the middle, it ends the
    /// compiler.
    pub async fn template_off_thread(self: &Arc<Self>, hash: &[u8; 32]) -> Result<Arc<Template>, AgentError> {
        if let Some(template) = lock(&self.templates).get(hash) {
            return Ok(template.clone());
        }
        let (shared, hash) = (self.clone(), *hash);
        off_thread(move |stop| shared.template(&hash, || shared.components.read(&hash), stop)).await
    }

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
            tracing::warn!("removing an agent that was not finished: {e}");
        }
    }

    /// Removes a component that is no agent's.
    fn forget_unused(&self, hash: &[u8; 32]) -> Result<(), AgentError> {
        let store = self.store()?;
        for (_, id) in store.agents()? {
            let agent = match store.look(id) {
                // it may be its component
                Err(StoreError::DamagedAgent { .. }) => return Ok(()),
                agent => agent?,
            };
            let about: AgentAbout = journal::decode(&store.payload(&agent.about)?)?;
            if about.component == *hash {
                return Ok(());
            }
        }
        lock(&self.templates).remove(hash);
        Ok(self.components.remove(hash)?)
    }

    /// The template of the component with this hash and these bytes, compiled if need be.
    fn template(
        &self,
        hash: &[u8; 32],
        component: impl FnOnce() -> Result<Vec<u8>, CodeError>,
        stop: &AtomicBool,
    ) -> Result<Arc<Template>, AgentError> {
        if let Some(template) = lock(&self.templates).get(hash) {
            return Ok(template.clone());
        }
        let key = self.code_key(hash);
        let restore = &self.engines.restore.engine;
        let code = if let Some(code) = self.code.load(&key, restore)? {
            code
        } else {
            self.compile(&component()?, &key, stop)?;
            let missing = || CodeError::Cache("what was compiled a moment ago cannot be read".into());
            self.code.load(&key, restore)?.ok_or_else(missing)?
        };
        let template = Arc::new(Template::new(key, code, &self.code, &self.engines, &self.options)?);
        Ok(lock(&self.templates).entry(*hash).or_insert(template).clone())
    }

    /// Compiles a component, unless it is refused.
    fn compile(&self, component: &[u8], key: &code::CodeKey, stop: &AtomicBool) -> Result<(), AgentError> {
        let component = code::as_component(component)?;
        let scan = component::scan(&component)?;
        if let Err(refusals) = &scan.capturable {
            return Err(ComponentError::Refused(refusals.clone()).into());
        }
        let missing = crate::wasi::not_provided(scan.kind, &scan.imports);
        if !missing.is_empty() {
            return Err(AgentError::Imports(missing));
        }
        crate::agent::world_of(scan.world())?;
        let compiler = match &self.options.compiler {
            Some(compiler) => compiler.clone(),
            None => Compiler::find()?,
        };
        Ok(self.code.make(key, &component, &compiler, stop)?)
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
