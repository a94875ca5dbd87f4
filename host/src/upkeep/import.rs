//! Imports: an agent of an export, in this store.
//!
//! Nothing of the file is believed: components are looked at as those of new agents, handles have to be of files that
//! came with them, memories as long as what came of them. What is imported is a copy with an identity of its own, whatever
//! became of the agent elsewhere.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use zone_vfs::id::{AgentId, GenerationNumber, Turn};
use zone_vfs::store::{Arrival, ArrivedAgent, ArrivedGeneration, Cause, Disk, NewArrival, Store, StoreError};

use super::arrived::{self, is_name, refused, told};
use crate::agent::{Agent, AgentError, AgentName, Mounting, ZoneOption, named_mounts, zones_as};
use crate::code;
use crate::component::{LAYOUT_VERSION, MemoryLimits, limits};
use crate::host::{Admitted, Host, HostShared, admit};
use crate::image::{FlatName, ImageReference, check_archived};
use crate::journal::{self, AgentAbout, GenerationAbout, World};
use crate::threads;
use crate::wasi::Start;

/// Components of one export.
const MAX_COMPONENTS: usize = 4096;

/// What an operator says about an agent that is imported.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Its name; the one that it had where there is none.
    pub name: Option<AgentName>,
    /// Its environment, which no export holds.
    pub env: Vec<(String, String)>,
    /// The shared zones for the places where it mounts such: exactly one for each.
    pub zones: Vec<ZoneOption>,
    /// The most linear memory that it and its forks get, in the place of what the export says, which can only be less than
    /// the host's bound. Bytes.
    pub max_memory: Option<u64>,
    /// The most processor time that a turn of it and its forks gets, in the place of what the export says.
    pub max_cpu: Option<Duration>,
}

impl Host {
    /// Makes an agent of an export. It is there when all of it has been read, checked and made durable, and otherwise
    /// not at all. Its code is compiled when it is first needed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Export`] names what is wrong with the export, [`StoreError::NameTaken`].
    pub async fn import(
        &self,
        from: Box<dyn Read + Send>,
        options: ImportOptions,
    ) -> Result<Agent, AgentError> {
        self.import_with(from, options, false).await
    }

    /// As [`import`](Self::import); a shared zone that the options say nothing about is mounted under the name that it
    /// had.
    pub(super) async fn import_as_named(
        &self,
        from: Box<dyn Read + Send>,
        options: ImportOptions,
    ) -> Result<Agent, AgentError> {
        self.import_with(from, options, true).await
    }

    async fn import_with(
        &self,
        mut from: Box<dyn Read + Send>,
        options: ImportOptions,
        as_named: bool,
    ) -> Result<Agent, AgentError> {
        let shared = self.shared.clone();
        let disk = threads::run(move || shared.import(&mut *from, options, as_named)).await??;
        Ok(self.shared.adopt(disk))
    }
}

impl HostShared {
    /// Must not be called from an async task: it waits.
    fn import(
        self: &Arc<Self>,
        from: &mut dyn Read,
        options: ImportOptions,
        as_named: bool,
    ) -> Result<Arc<Disk>, AgentError> {
        let store = self.store()?;
        // no component goes that no agent names yet
        let _files_stay = self.imaging.blocking_read();
        let mut importing = Importing {
            host: self,
            store: &store,
            options,
            as_named,
            components: BTreeMap::new(),
            id: Store::new_id()?,
            world: World::Agent,
            memory: 0,
            mounting: None,
        };
        let imported = store.import(from, &mut importing);
        let Importing { components, mounting, .. } = importing;
        match imported {
            Ok(disk) => {
                if let Err(e) = self.materialise_head(&disk) {
                    // it is made when the agent is resumed
                    tracing::debug!(agent = %disk.id(), "its image is not made yet: {}", zone_vfs::told(&e));
                }
                Ok(disk)
            }
            Err(e) => {
                if let Some(mounting) = mounting {
                    mounting.take_back(&store);
                }
                for hash in components.keys() {
                    self.forget_unused(hash)?;
                }
                Err(e.into())
            }
        }
    }

    /// Makes the image file of the generation at which an agent stands that has just come.
    fn materialise_head(&self, disk: &Arc<Disk>) -> Result<(), AgentError> {
        let head = disk.generation(disk.head())?;
        let bytes = disk.payload(&head.about)?;
        let about: GenerationAbout = journal::decode(&bytes)?;
        if let (Some(reference), Some(archived)) = (about.image, disk.attachment(head.number)?) {
            self.images.materialise(reference.base(), &reference, &archived)?;
        }
        Ok(())
    }
}

struct Importing<'a> {
    host: &'a Arc<HostShared>,
    store: &'a Arc<Store>,
    options: ImportOptions,
    /// Shared zones are mounted under the names that they had, where the options say nothing else.
    as_named: bool,
    /// Those that came.
    components: BTreeMap<[u8; 32], Admitted>,
    id: AgentId,
    world: World,
    /// Bytes that its memory may have.
    memory: u64,
    mounting: Option<Mounting>,
}

impl Importing<'_> {
    fn admitted(&self, component: &[u8; 32]) -> Result<&Admitted, StoreError> {
        self.components.get(component).ok_or_else(|| {
            refused(format!(
                "it needs the component {}, which has not come",
                blake3::Hash::from_bytes(*component).to_hex()
            ))
        })
    }

    fn component(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let admitted = admit(&code::as_component(bytes)?)?;
        let hash = self.host.components.keep(bytes)?;
        self.components.insert(hash, admitted);
        Ok(())
    }

    fn image(
        &self,
        reference: Option<&ImageReference>,
        component: &[MemoryLimits],
        it: &ArrivedGeneration<'_>,
    ) -> Result<Option<ImageReference>, StoreError> {
        let wrong = |reason: &str| refused(format!("the memory of generation {}: {reason}", it.number));
        match (reference, it.attached) {
            (Some(reference), Some((about, len))) => {
                let memories = reference.memories().to_vec();
                check_archived(&memories, about, len).map_err(|reason| wrong(&reason))?;
                MemoryLimits::check(component, &memories).map_err(|reason| wrong(&reason))?;
                let bytes = memories.iter().fold(0u64, |all, memory| all.saturating_add(*memory));
                if bytes > self.memory {
                    let allowed = self.memory;
                    return Err(wrong(&format!(
                        "it has {bytes} bytes, and {allowed} are allowed: raise --max-memory"
                    )));
                }
                let base = FlatName::Generation(self.id.0, it.number.0);
                Ok(Some(ImageReference::in_archive(base, memories)))
            }
            (Some(_), None) => Err(wrong("it has not come")),
            (None, Some(_)) => Err(wrong("there is none, and it has come")),
            (None, None) => Ok(None),
        }
    }
}

impl Arrival for Importing<'_> {
    fn file(&mut self, name: &str, len: u64, content: &mut dyn Read) -> io::Result<()> {
        let refused = |reason: String| Err(io::Error::other(reason));
        if len > limits::MAX_BYTES as u64 {
            return refused(format!("a component has at most {} bytes", limits::MAX_BYTES));
        }
        if self.components.len() >= MAX_COMPONENTS {
            return refused(format!("an agent has had at most {MAX_COMPONENTS} components"));
        }
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        if blake3::hash(&bytes).to_hex().as_str() != name {
            return refused("it is not what its name says".into());
        }
        self.component(&bytes).or_else(|e| refused(zone_vfs::told(&e)))
    }

    fn agent(&mut self, agent: &ArrivedAgent) -> Result<NewArrival, StoreError> {
        let name = match &self.options.name {
            Some(name) => name.clone(),
            None => AgentName::new(&agent.name).map_err(|e| told(&e))?,
        };
        if self.store.find(name.as_str())?.is_some() {
            return Err(StoreError::NameTaken(name.to_string()));
        }
        let about: AgentAbout = journal::decode(&agent.about).map_err(|e| told(&e))?;
        self.world = about.world;
        if self.admitted(&about.component)?.world != about.world {
            return Err(refused("its component is of another world than its agent"));
        }
        is_name(&about.component_name)?;
        if about.max_cpu.is_some_and(|it| it.is_zero()) {
            return Err(refused("it gives its turns no processor time"));
        }
        // what the file says of limits can lower them
        let allowed = self.host.options.memory.memory as u64;
        let own = about.max_memory.map(|own| own.min(allowed));
        let max_memory = self.options.max_memory.or(own);
        self.memory = max_memory.unwrap_or(allowed);
        let about = AgentAbout {
            env: self.options.env.clone(),
            parent: None,
            moved: None,
            max_memory,
            max_cpu: self.options.max_cpu.or(about.max_cpu),
            ..about
        };
        if self.as_named {
            let missing = named_mounts(&agent.zones, &self.options.zones).map_err(|e| told(&e))?;
            self.options.zones.extend(missing);
        }
        let plan = zones_as(&agent.zones, &self.options.zones).map_err(|e| told(&e))?;
        let mounting = plan.mount(self.store).map_err(|e| told(&e))?;
        let zones = mounting.specs.clone();
        self.mounting = Some(mounting);
        Ok(NewArrival {
            id: self.id,
            name: name.as_str().into(),
            about: journal::encode(&about).map_err(|e| told(&e))?,
            zones,
        })
    }

    fn turn(&mut self, turn: Turn, event: &[u8], outcome: Option<&[u8]>) -> Result<(), StoreError> {
        arrived::turn(turn, event, outcome, self.world)
    }

    fn fact(&mut self, turn: Turn, fact: &[u8]) -> Result<(), StoreError> {
        arrived::fact(turn, fact)
    }

    fn generation(&mut self, it: &ArrivedGeneration<'_>) -> Result<Vec<u8>, StoreError> {
        if it.about.is_empty() {
            // what a failed turn has left: files only
            let is_side = matches!(it.cause, Cause::Side(_)) && it.attached.is_none();
            return if is_side { Ok(Vec::new()) } else { Err(nothing(it.number)) };
        }
        let about: GenerationAbout = journal::decode(it.about)
            .map_err(|e| refused(format!("the record of generation {}: {e}", it.number)))?;
        arrived::generation(&about, it.number)?;
        // the world of a command's earlier components says nothing: each run begins anew
        let component = self.admitted(&about.component)?;
        if self.world == World::Agent && component.world != World::Agent {
            return Err(refused(format!("the component of generation {} is of another world", it.number)));
        }
        if self.world == World::Command && about.image.is_some() {
            return Err(refused(format!("generation {} has a memory, and a command keeps none", it.number)));
        }
        if about.layout != LAYOUT_VERSION && about.image.is_some() {
            return Err(refused(format!(
                "the memory of generation {} was captured in layout {}, this program has layout {LAYOUT_VERSION}",
                it.number, about.layout
            )));
        }
        if about.image.is_none() && self.world == World::Agent && about.starts > 0 {
            return Err(nothing(it.number));
        }
        let mut about = GenerationAbout {
            image: self.image(about.image.as_ref(), &component.memories, it)?,
            handles: arrived::handles(about.handles, it)?,
            ..about
        };
        if it.is_head {
            // a copy: what it draws at random is to be its own
            about.next_start = Start::Forked;
        }
        journal::encode(&about).map_err(|e| told(&e))
    }
}

fn nothing(number: GenerationNumber) -> StoreError {
    refused(format!("generation {number} has no memory"))
}
