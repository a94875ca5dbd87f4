//! Looking at components, and at image files: headers, lengths, checksums of pages, and every byte where the archive has the image.
//!
//! What is missing and archived is no damage: it is made again when it is needed.

use std::collections::HashSet;
use std::sync::Arc;

use zone_vfs::chunks::ChunkError;
use zone_vfs::device::is_lack;
use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::{AgentLook, Attachment, Generation, StoreError};

use super::archive::image_of;
use crate::agent::AgentError;
use crate::host::{Host, HostShared};
use crate::image::{FlatName, Image, ImageError, ImageReference, ImageStore};
use crate::journal::{self, AgentAbout, GenerationAbout};
use crate::threads;

/// An image that cannot be resumed from, or not from what its files hold now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDamage {
    /// The agent's name.
    pub agent: String,
    /// The generation.
    pub generation: GenerationNumber,
    /// The file, and what is wrong.
    pub reason: String,
    /// A file was made again from the archive, and the generation is whole.
    pub repaired: bool,
}

/// A genesis image that is not what it was: what a command's runs and new agents of a component begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenesisDamage {
    /// An agent of the component.
    pub agent: String,
    /// The file, and what is wrong.
    pub reason: String,
    /// It was made again by starting the component.
    pub repaired: bool,
}

impl std::fmt::Display for ImageDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the memory of {}@{}: {}", self.agent, self.generation, self.reason)
    }
}

/// A component that is not there, or is not what its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentDamage {
    /// An agent that needs it.
    pub agent: String,
    /// What is wrong.
    pub reason: String,
}

/// What a look at the image files and components found.
#[derive(Clone, Debug, Default)]
pub struct ImageCheck {
    /// Components that agents need and cannot have. Without one an agent goes on only as long as the cache has its
    /// compiled code; `dormouse new` with the same file puts it back.
    pub components: Vec<ComponentDamage>,
    /// Genesis images that the components of agents have.
    pub geneses: u64,
    /// Those that are damaged, at most [`MAX_DAMAGE`](Self::MAX_DAMAGE).
    pub damaged_geneses: Vec<GenesisDamage>,
    /// Generations that have an image.
    pub generations: u64,
    /// Those of which every byte was compared with the archive.
    pub compared: u64,
    /// What is damaged, at most [`MAX_DAMAGE`](Self::MAX_DAMAGE) generations.
    pub damage: Vec<ImageDamage>,
}

impl ImageCheck {
    /// Damaged generations that are listed, at most.
    pub const MAX_DAMAGE: usize = 1000;
}

impl Host {
    /// Looks at the image files of all generations and at genesis images, beside live agents. With `repair` the images
    /// that are damaged are made again: from the archive, where it has them, or from the component.
    pub async fn check_images(&self, repair: bool) -> Result<ImageCheck, AgentError> {
        let shared = self.shared.clone();
        let (geneses, damaged) = threads::run(move || shared.check_geneses()).await??;
        let mut damaged_geneses = Vec::with_capacity(damaged.len());
        for (component, mut damage) in damaged {
            if repair {
                match self.shared.genesis_again(&component).await {
                    Ok(()) => damage.repaired = true,
                    Err(e) => {
                        tracing::warn!(agent = %damage.agent, "not repaired: {}", zone_vfs::told(&e));
                    }
                }
            }
            damaged_geneses.push(damage);
        }
        let shared = self.shared.clone();
        let check = threads::run(move || shared.check_images(repair)).await??;
        Ok(ImageCheck { geneses, damaged_geneses, ..check })
    }
}

/// The image of a generation.
struct Looked {
    agent: AgentId,
    number: GenerationNumber,
    reference: ImageReference,
}

/// How many genesis images there are, and those that are damaged, by component.
type Geneses = (u64, Vec<([u8; 32], GenesisDamage)>);

/// What was looked at, so that it need not be again.
struct Looking {
    /// Opens every file anew.
    images: ImageStore,
    compared: HashSet<[u8; 32]>,
}

/// What was read, if it was; an error where something is lacking. What does not read of a record is told by who looks
/// at the store.
fn unless_damaged<T, E: Into<AgentError>>(read: Result<T, E>) -> Result<Option<T>, AgentError> {
    match read.map_err(Into::into) {
        Ok(read) => Ok(Some(read)),
        Err(e) if e.is_lack() => Err(e),
        Err(_) => Ok(None),
    }
}

impl HostShared {
    /// Makes the genesis image of a component anew.
    async fn genesis_again(self: &Arc<Self>, component: &[u8; 32]) -> Result<(), AgentError> {
        self.template_off_thread(component).await?.genesis_again(&self.images).await
    }

    /// Looks at the genesis images of the components of agents. Gives how many there are, and those that are damaged, by
    /// component.
    fn check_geneses(&self) -> Result<Geneses, AgentError> {
        let images = self.images.afresh();
        let (mut geneses, mut damaged) = (0, Vec::new());
        for (component, agent) in self.needed_components()? {
            let name = FlatName::Genesis(self.code_key(&component));
            if !images.has_flat(&name) {
                // it is made when it is needed
                continue;
            }
            geneses += 1;
            match images.flat_image(&name).and_then(|image| image.check_pages()) {
                Err(e) if e.is_lack() => return Err(e.into()),
                Err(e) if !e.is_missing() && damaged.len() < ImageCheck::MAX_DAMAGE => {
                    let reason = zone_vfs::told(&e);
                    damaged.push((component, GenesisDamage { agent, reason, repaired: false }));
                }
                _ => {}
            }
        }
        Ok((geneses, damaged))
    }

    fn check_images(&self, repair: bool) -> Result<ImageCheck, AgentError> {
        // no file goes meanwhile; turns go on
        let _files_stay = self.imaging.blocking_read();
        let images = self.look_at_images(&|_| true, repair)?;
        Ok(ImageCheck { components: self.damaged_components()?, ..images })
    }

    /// Looks at the images of those generations that are `wanted`. Whoever calls sees to it that no file goes.
    pub(super) fn look_at_images(
        &self,
        wanted: &dyn Fn(&Generation) -> bool,
        repair: bool,
    ) -> Result<ImageCheck, AgentError> {
        let mut looking = Looking { images: self.images.afresh(), compared: HashSet::new() };
        let mut check = ImageCheck::default();
        let store = self.store()?;
        self.look_at_all(&mut |agent| {
            for generation in agent.generations.iter().filter(|it| wanted(it)) {
                let reference = unless_damaged(image_of(&store, generation))?.flatten();
                let Some(reference) = reference else { continue };
                check.generations += 1;
                let image = Looked { agent: agent.id, number: generation.number, reference };
                let archived = unless_damaged(store.attached(generation))?.flatten();
                let lost = match looking.look(&image, archived.as_ref(), &mut check.compared) {
                    Ok(()) => continue,
                    Err(e) if e.is_lack() => return Err(e.into()),
                    Err(e) => e,
                };
                let kept = |now: AgentLook| now.generations.iter().any(|it| it.number == image.number);
                let is_kept = store.look(agent.id).is_ok_and(kept);
                if !is_kept || check.damage.len() >= ImageCheck::MAX_DAMAGE {
                    continue;
                }
                let reason = zone_vfs::told(&lost);
                let repaired = repair
                    && match self.repair(&mut looking, &image, lost) {
                        Ok(repaired) => repaired,
                        Err(e) if e.is_lack() => return Err(e),
                        Err(e) => {
                            tracing::warn!(agent = %agent.id, generation = %image.number, "not repaired: {}", zone_vfs::told(&e));
                            false
                        }
                    };
                let (agent, generation) = (agent.name.clone(), image.number);
                check.damage.push(ImageDamage { agent, generation, reason, repaired });
            }
            Ok(())
        })?;
        Ok(check)
    }

    /// The components that agents need, now or in a generation, each with an agent that does.
    fn needed_components(&self) -> Result<Vec<([u8; 32], String)>, AgentError> {
        let store = self.store()?;
        let (mut seen, mut needed) = (HashSet::new(), Vec::new());
        self.look_at_all(&mut |agent| {
            let mut note = |component: [u8; 32]| {
                if seen.insert(component) {
                    needed.push((component, agent.name.clone()));
                }
            };
            if let Some(about) = unless_damaged(store.payload(&agent.about))?
                && let Ok(about) = journal::decode::<AgentAbout>(&about)
            {
                note(about.component);
            }
            for generation in &agent.generations {
                if let Some(about) = unless_damaged(store.payload(&generation.about))?
                    && let Ok(about) = journal::decode::<GenerationAbout>(&about)
                {
                    note(about.component);
                }
            }
            Ok(())
        })?;
        Ok(needed)
    }

    /// The components that agents need, now or in a generation, and that are missing or damaged.
    pub(super) fn damaged_components(&self) -> Result<Vec<ComponentDamage>, AgentError> {
        let mut damage = Vec::new();
        for (hash, agent) in self.needed_components()? {
            match self.components.read(&hash).map_err(AgentError::from) {
                Err(e) if e.is_lack() => return Err(e),
                Err(e) if damage.len() < ImageCheck::MAX_DAMAGE => {
                    damage.push(ComponentDamage { agent, reason: zone_vfs::told(&e) });
                }
                _ => {}
            }
        }
        Ok(damage)
    }

    fn repair(&self, looking: &mut Looking, image: &Looked, lost: ImageError) -> Result<bool, AgentError> {
        let Looked { number, reference, .. } = image;
        let disk = self.store()?.disk(image.agent)?;
        let Some(archived) = disk.attachment(*number)? else {
            if !self.make_base_again(reference, &lost)? {
                return Ok(false);
            }
            looking.images = self.images.afresh();
            return Ok(looking.look(image, None, &mut 0).is_ok());
        };
        let flat = FlatName::Generation(image.agent.0, number.0);
        let opened = looking.images.image(reference, Some(&flat));
        if reference.changed_pages() == 0 && opened.is_ok_and(|it| it.reference().base() == reference.base())
        {
            // others may lie on it, too
            self.images.rewrite_base(reference, &archived)?;
        } else {
            self.materialise(&disk, *number, reference, lost)?;
        }
        looking.images = self.images.afresh();
        Ok(looking.look(image, Some(&archived), &mut 0).is_ok())
    }
}

impl Looking {
    fn look(
        &mut self,
        image: &Looked,
        archived: Option<&Attachment>,
        compared: &mut u64,
    ) -> Result<(), ImageError> {
        let flat = FlatName::Generation(image.agent.0, image.number.0);
        let image = match self.images.image(&image.reference, Some(&flat)) {
            Err(e) if archived.is_some() && e.is_missing() => return Ok(()),
            image => image?,
        };
        image.check_pages()?;
        let Some(archived) = archived else { return Ok(()) };
        let damaged = |reason| ImageError::Damaged { file: image.reference().base().to_string(), reason };
        let digest = image.reference().digest().map_err(damaged)?;
        if self.compared.contains(&digest) {
            return Ok(());
        }
        compare(&image, archived)?;
        self.compared.insert(digest);
        *compared += 1;
        Ok(())
    }
}

/// Compares an image with what the archive has of it. What of that does not read is told by who looks at the store.
fn compare(image: &Image, archived: &Attachment) -> Result<(), ImageError> {
    let damaged = |reason: String| ImageError::Damaged { file: image.reference().base().to_string(), reason };
    match image.differs(archived) {
        Ok(Some(at)) => Err(damaged(format!("it is not what was archived, from byte {at} of the memory on"))),
        Err(StoreError::Io { source, .. }) if is_lack(&source) => {
            Err(ImageError::Io { file: image.reference().base().to_string(), source })
        }
        Err(StoreError::Chunk(ChunkError::Shortage(lack))) => {
            let source = lack
                .raw_os_error()
                .map_or_else(|| std::io::ErrorKind::OutOfMemory.into(), std::io::Error::from_raw_os_error);
            Err(ImageError::Io { file: image.reference().base().to_string(), source })
        }
        Err(StoreError::Io { source, .. }) => Err(damaged(source.to_string())),
        Ok(None) | Err(_) => Ok(()),
    }
}
