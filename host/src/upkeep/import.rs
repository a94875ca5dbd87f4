//! Imports: an agent of an export, in this store.
//!
//! Nothing of the file is believed: components are looked at as those of new agents, handles have to be of files that
//! came with them, memories as long as what came of them. What is imported is a copy with an identity of its own, whatever
//! became of the agent elsewhere.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::{
    Arrival, ArrivedAgent, ArrivedGeneration, Cause, Disk, NewArrival, Opened, Store, StoreError,
};
use zone_vfs::tree::FileKind;

use crate::agent::{Agent, AgentError, AgentName, Mounting, ZoneOption, zones_as};
use crate::code;
use crate::component::{LAYOUT_VERSION, limits};
use crate::host::{Host, HostShared, admit};
use crate::image::{FlatName, ImageReference, check_archived};
use crate::journal::{self, AgentAbout, GenerationAbout, World};
use crate::threads;
use crate::wasi::object::Object;
use crate::wasi::{HandleTable, Start};

/// Components of one export.
const MAX_COMPONENTS: usize = 4096;
/// Starts that are believed to have been: one can go on counting from there.
const MAX_STARTS: u64 = 1 << 32;
/// What people call a component. Bytes.
const MAX_COMPONENT_NAME: usize = 1024;
/// Where a directory stream goes on: a name. Bytes.
const MAX_AFTER: usize = 255;

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
        mut from: Box<dyn Read + Send>,
        options: ImportOptions,
    ) -> Result<Agent, AgentError> {
        let shared = self.shared.clone();
        let disk = threads::run(move || shared.import(&mut *from, options)).await??;
        Ok(self.shared.adopt(disk))
    }
}

impl HostShared {
    /// Must not be called from an async task: it waits.
    fn import(
        self: &Arc<Self>,
        from: &mut dyn Read,
        options: ImportOptions,
    ) -> Result<Arc<Disk>, AgentError> {
        let store = self.store()?;
        // no component goes that no agent names yet
        let _files_stay = self.imaging.blocking_read();
        let mut importing = Importing {
            host: self,
            store: &store,
            options,
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
    /// Those that came, with the worlds that they are for.
    components: BTreeMap<[u8; 32], World>,
    id: AgentId,
    world: World,
    /// Bytes that its memory may have.
    memory: u64,
    mounting: Option<Mounting>,
}

fn refused(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Export(format!("is refused: {reason}"))
}

fn told(error: &(dyn std::error::Error + 'static)) -> StoreError {
    refused(zone_vfs::told(error))
}

impl Importing<'_> {
    fn world_of(&self, component: &[u8; 32]) -> Result<World, StoreError> {
        let found = self.components.get(component).copied();
        found.ok_or_else(|| {
            refused(format!(
                "it needs the component {}, which has not come",
                blake3::Hash::from_bytes(*component).to_hex()
            ))
        })
    }

    fn component(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let world = admit(&code::as_component(bytes)?)?;
        let hash = self.host.components.keep(bytes)?;
        self.components.insert(hash, world);
        Ok(())
    }

    fn image(
        &self,
        reference: Option<&ImageReference>,
        it: &ArrivedGeneration<'_>,
    ) -> Result<Option<ImageReference>, StoreError> {
        let wrong = |reason: &str| refused(format!("the memory of generation {}: {reason}", it.number));
        match (reference, it.attached) {
            (Some(reference), Some((about, len))) => {
                let memories = reference.memories().to_vec();
                check_archived(&memories, about, len).map_err(|reason| wrong(&reason))?;
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

/// Checks what handles stand for. What is open and is not there any more is closed, as it is when an agent is resumed.
fn handles(mut table: HandleTable, it: &ArrivedGeneration<'_>) -> Result<HandleTable, StoreError> {
    let wrong = |reason: &str| refused(format!("a handle of generation {}: {reason}", it.number));
    table.check().map_err(|reason| wrong(&reason))?;
    let mut gone = Vec::new();
    for (_, object) in table.iter() {
        match object {
            Object::Foreign(..) => return Err(wrong("it stands for what no other process has")),
            Object::DirectoryStream { after: Some(after), .. } if after.len() > MAX_AFTER => {
                return Err(wrong("it goes on behind a name that none can have"));
            }
            _ => {}
        }
        let Some((zone, inode)) = object.keeps_open() else { continue };
        let is_directory = match object {
            Object::Descriptor(descriptor) => descriptor.directory,
            Object::DirectoryStream { .. } => true,
            _ => false,
        };
        match it.opened(zone, inode)? {
            Opened::Is(FileKind::Directory) if is_directory => {}
            Opened::Is(FileKind::Regular) if !is_directory => {}
            Opened::Is(_) => return Err(wrong("it stands for a file that is of another kind")),
            Opened::NoZone => return Err(wrong("it stands for a file of a zone that there is not")),
            Opened::Missing => gone.push((zone, inode)),
            Opened::Shared => {}
        }
    }
    table.close_files(|file| gone.contains(&file));
    Ok(table)
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
        if self.world_of(&about.component)? != about.world {
            return Err(refused("its component is of another world than its agent"));
        }
        is_name(&about.component_name)?;
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

    fn generation(&mut self, it: &ArrivedGeneration<'_>) -> Result<Vec<u8>, StoreError> {
        if it.about.is_empty() {
            // what a failed turn has left: files only
            let is_side = matches!(it.cause, Cause::Side(_)) && it.attached.is_none();
            return if is_side { Ok(Vec::new()) } else { Err(nothing(it.number)) };
        }
        let about: GenerationAbout = journal::decode(it.about).map_err(|e| told(&e))?;
        let mut about = GenerationAbout {
            image: self.image(about.image.as_ref(), it)?,
            handles: handles(about.handles, it)?,
            ..about
        };
        // the world of a command's earlier components says nothing: each run begins anew
        let world = self.world_of(&about.component)?;
        if self.world == World::Agent && world != World::Agent {
            return Err(refused(format!("the component of generation {} is of another world", it.number)));
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
        if about.starts >= MAX_STARTS {
            return Err(refused(format!("generation {} was started more often than can be", it.number)));
        }
        is_name(about.component_name.as_deref().unwrap_or_default())?;
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

fn is_name(name: &str) -> Result<(), StoreError> {
    if name.len() <= MAX_COMPONENT_NAME {
        Ok(())
    } else {
        Err(refused("what its component is called is too long"))
    }
}
