//! What all agents of one component share.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmtime::component::InstancePre;

use super::optional::Optional;
use super::warm::{MAX_READY, Taken, Warm};
use super::{AgentError, Live};
use crate::code::{Code, CodeCache, CodeKey, SlotEngine};
use crate::component;
use crate::host::{Engines, HostOptions, HostShared, Pressure};
use crate::image::{FlatName, Image, ImageStore, PageRun};
use crate::journal::{self, World};
use crate::wasi::{GuestState, HandleTable, MemoryLimits, Touched};

/// The component's code, its genesis image and its warm slots.
pub(crate) struct Template {
    pub key: CodeKey,
    pub world: World,
    pub accessors: Vec<String>,
    /// What it exports besides what its world must.
    pub optional: Optional,
    pub boot: Boot,
    restore: InstancePre<GuestState>,
    engine: SlotEngine,
    genesis_time: Duration,
    limits: MemoryLimits,
    /// Held while it is made.
    genesis: tokio::sync::Mutex<Option<Arc<Genesis>>>,
    warm: Warm,
    /// Pages that an agent which lay on the genesis had written when it took its last turn.
    written: Mutex<Arc<[PageRun]>>,
}

/// Where the boot variant comes from when it is needed.
pub(crate) struct Boot {
    pub code: Arc<CodeCache>,
    pub engine: SlotEngine,
    pub linker: Arc<wasmtime::component::Linker<GuestState>>,
}

/// The image that is taken after instantiation, and what belongs to it.
#[derive(Clone)]
pub(crate) struct Genesis {
    pub image: Image,
    pub handles: HandleTable,
    pub touched: Touched,
}

impl Genesis {
    /// Takes the image of an instance that is as the boot has left it.
    pub fn take(images: &ImageStore, name: &FlatName, live: &mut Live) -> Result<Self, AgentError> {
        let touched = live.store.data().touched;
        // SAFETY: the instance is owned here, and no call of it is under way.
        let image = unsafe { images.capture_flat(&live.memories, name)? };
        let handles = live.store.data().table.detached();
        Ok(Self { image, handles, touched })
    }

    /// Refuses a memory that is larger than what is allowed.
    pub fn fits(&self, limits: &MemoryLimits) -> Result<(), AgentError> {
        let (needed, limit) = (self.image.reference().bytes(), limits.memory as u64);
        if needed > limit { Err(AgentError::MemoryLimit { needed, limit }) } else { Ok(()) }
    }
}

/// What is kept beside a genesis image.
#[derive(Serialize, Deserialize)]
struct GenesisAbout {
    handles: HandleTable,
    touched: Touched,
}

impl journal::Record for GenesisAbout {}

impl Template {
    pub fn new(
        key: CodeKey,
        code: Code,
        cache: &Arc<CodeCache>,
        engines: &Engines,
        options: &HostOptions,
    ) -> Result<Self, AgentError> {
        let world = world_of(code.about.world)?;
        let restore = engines
            .restore_linker
            .instantiate_pre(&code.restore)
            .map_err(|e| AgentError::Instantiate(format!("{e:#}")))?;
        let optional = if world == World::Agent { Optional::of(&restore)? } else { Optional::default() };
        Ok(Self {
            optional,
            genesis_time: options.genesis_time,
            limits: options.memory,
            key,
            world,
            accessors: code.about.accessors,
            restore,
            engine: engines.restore.clone(),
            genesis: tokio::sync::Mutex::default(),
            warm: Warm::new(engines.budget.clone()),
            written: Mutex::new(Arc::default()),
            boot: Boot {
                code: cache.clone(),
                engine: engines.boot.clone(),
                linker: engines.boot_linker.clone(),
            },
        })
    }

    /// The genesis image that agents of the component share: read, or made by running the boot
    /// variant without environment, arguments or zones. One whose file was made anew since it was opened, or of which a
    /// page could not be read, is looked at again.
    pub async fn genesis(&self, images: &ImageStore) -> Result<Arc<Genesis>, AgentError> {
        let mut known = self.genesis.lock().await;
        if let Some(genesis) = known.as_ref().filter(|it| images.is_current(&it.image)) {
            return Ok(genesis.clone());
        }
        let name = FlatName::Genesis(self.key);
        let found = match read_genesis(images, &name) {
            Err(AgentError::Image(lost)) if lost.is_lost() => {
                tracing::warn!(file = %name, "made again by starting the component: {}", zone_vfs::told(&lost));
                None
            }
            found => found?,
        };
        let genesis = match found {
            Some(genesis) => genesis,
            None => self.make_genesis(images, &name).await?,
        };
        Ok(known.insert(Arc::new(genesis)).clone())
    }

    /// Makes the genesis image anew, whatever is there. It follows from the component alone: what lies on it finds what
    /// there was.
    pub async fn genesis_again(&self, images: &ImageStore) -> Result<(), AgentError> {
        let mut known = self.genesis.lock().await;
        let genesis = self.make_genesis(images, &FlatName::Genesis(self.key)).await?;
        *known = Some(Arc::new(genesis));
        Ok(())
    }

    async fn make_genesis(&self, images: &ImageStore, name: &FlatName) -> Result<Genesis, AgentError> {
        let state = GuestState { limits: self.limits, ..GuestState::default() };
        let genesis = Genesis::take(images, name, &mut self.boot_genesis(state).await?)?;
        write_about(images, name, &genesis)?;
        Ok(genesis)
    }

    /// Runs the boot variant's instantiation over `state`, for a genesis image to be taken of it.
    pub async fn boot_genesis(&self, state: GuestState) -> Result<Live, AgentError> {
        let boot = tokio::time::timeout(self.genesis_time, self.boot(state));
        let mut live = boot.await.map_err(|_| AgentError::GenesisTime(self.genesis_time))??;
        live.save().await?;
        Ok(live)
    }

    /// An instance of the boot variant.
    pub async fn boot(&self, state: GuestState) -> Result<Live, AgentError> {
        let component = self.boot.code.boot(&self.key, &self.boot.engine.engine)?;
        let pre = self
            .boot
            .linker
            .instantiate_pre(&component)
            .map_err(|e| AgentError::Instantiate(format!("{e:#}")))?;
        Live::new(&pre, &self.boot.engine, &self.accessors, state).await
    }

    /// Makes warm slots until `count` stand ready for an image like this one.
    pub async fn prepare(&self, image: &Image, count: usize) -> Result<(), AgentError> {
        for _ in self.warm.ready(image)..count.min(MAX_READY) {
            let mut live = self.cold(self.limits).await?;
            live.make_ready(image).await?;
            self.warm.order(live);
        }
        Ok(())
    }

    /// Drops slots that nobody asks for, or all where memory is short. Whether any are left.
    pub fn trim(&self, is_short: bool) -> bool {
        self.warm.trim(is_short)
    }

    /// Makes slots ahead, for images like this one, until there are as many as are wanted.
    async fn fill(&self, image: &Image, pressure: &Pressure) {
        while let Some(share) = self.warm.next() {
            let made = async {
                let mut live = self.cold(self.limits).await?;
                live.make_ready(image).await?;
                Ok::<_, AgentError>(live)
            };
            match made.await {
                Ok(live) if !pressure.is_high() => self.warm.put_ahead(live, share),
                Ok(_) => return self.warm.stop_filling(),
                Err(e) => {
                    // whoever resumes makes his own, and is told
                    tracing::debug!("no slot was made ahead: {}", zone_vfs::told(&e));
                    return self.warm.stop_filling();
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// The pages that an agent on the component's genesis is likely to write to.
    pub fn written(&self) -> Arc<[PageRun]> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the pages that an agent had written when its turn ended.
    pub fn note_written(&self, image: &Image) {
        if matches!(image.reference().base(), FlatName::Genesis(_)) {
            *self.written.lock().unwrap_or_else(PoisonError::into_inner) = image.written();
        }
    }

    /// A fresh instance of the restore variant, within `limits`.
    pub async fn cold(&self, limits: MemoryLimits) -> Result<Live, AgentError> {
        let state = GuestState { limits, ..GuestState::default() };
        Live::new(&self.restore, &self.engine, &self.accessors, state).await
    }

    /// A fresh instance over which `image` can be mapped: one that stood ready, best for just such an
    /// image, or one that is made now; says which.
    pub async fn slot(
        self: &Arc<Self>,
        image: &Image,
        limits: MemoryLimits,
        host: &Arc<HostShared>,
    ) -> Result<(Live, bool), AgentError> {
        let Taken { live, fill } = self.warm.take(image);
        host.keep_watch();
        if fill {
            let (template, image, parked) = (self.clone(), image.clone(), host.parked.clone());
            tokio::spawn(async move { template.fill(&image, &parked.pressure).await });
        }
        match live {
            Some(live) => Ok((live, true)),
            None => Ok((self.cold(limits).await?, false)),
        }
    }
}

fn about_path(images: &ImageStore, name: &FlatName) -> std::path::PathBuf {
    images.beside(name)
}

fn read_genesis(images: &ImageStore, name: &FlatName) -> Result<Option<Genesis>, AgentError> {
    let path = about_path(images, name);
    let about = match crate::code::read_regular(&path) {
        Ok(bytes) => journal::decode::<GenesisAbout>(&bytes),
        // missing, or no file: it is made anew
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => return Ok(None),
        Err(source) => return Err(AgentError::Io { what: format!("reading {}", path.display()), source }),
    };
    match (about, images.has_flat(name)) {
        (Ok(about), true) if about.handles.check().is_ok() => Ok(Some(Genesis {
            image: images.flat_image(name)?,
            handles: about.handles,
            touched: about.touched,
        })),
        _ => Ok(None),
    }
}

fn write_about(images: &ImageStore, name: &FlatName, genesis: &Genesis) -> Result<(), AgentError> {
    let about = GenesisAbout { handles: genesis.handles.clone(), touched: genesis.touched };
    images.write_beside(name, &journal::encode(&about)?)?;
    Ok(())
}

/// The world that a component's exports make it part of.
pub(crate) fn world_of(world: component::World) -> Result<World, AgentError> {
    match world {
        component::World::Command => Ok(World::Command),
        component::World::Agent => Ok(World::Agent),
        component::World::Other => Err(AgentError::Instantiate(
            "it is neither a command nor an agent: it exports neither `wasi:cli/run` nor `handle` of \
             dormouse:agent/agent"
                .into(),
        )),
    }
}
