//! The archive: images in the store's segments, behind the turns, and image files as a cache of that.
//!
//! Archived are the generations that are kept for long: of creations, pauses, forks and rewinds; of the others
//! those that stand in the way of the cache's budget. An archive that fails, for want of space say, leaves all
//! as it is and is made by a later reaping.
//!
//! The order in which a file goes: the record that names the archived image is durable before the generation has an
//! attachment here, and only files of generations that have one are removed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::{AgentLook, Cause, Disk, Generation, Payload, Store, StoreError};

use super::images::lock;
use crate::agent::AgentError;
use crate::host::{Host, HostShared};
use crate::image::{FlatName, Image, ImageError, ImageReference, ImageStore};
use crate::journal::{self, GenerationAbout};
use crate::threads;

/// Generations that wait for being archived, at most; more are left to a reaping.
const MAX_WAITING: usize = 4096;
/// Archived images that are remembered, so that others that are the same need not be read.
const MAX_KNOWN: usize = 4096;
/// Generations that are archived in one go so that their files can go.
const MAX_MADE: usize = 512;
/// What waits when the host is closed is archived for no longer than this.
const AT_CLOSE: Duration = Duration::from_secs(10);
/// Forks that are archived at once where their parent was not; more are left to a reaping.
const MAX_FORKS: usize = 64;

/// What is to be archived, behind the turns.
#[derive(Default)]
pub(crate) struct Archiving {
    waiting: VecDeque<(Arc<Disk>, GenerationNumber)>,
    /// The roots of images that were archived, by what names the image.
    known: HashMap<[u8; 32], Payload>,
    /// The thread has something to do, or will look once more.
    busy: bool,
    /// After this nothing that waits is begun.
    until: Option<Instant>,
    thread: Option<JoinHandle<()>>,
}

/// The image files that a generation can be resumed from, and whether it needs them.
struct Named {
    agent: AgentId,
    number: GenerationNumber,
    files: Vec<String>,
    /// It is no head, so that its files can go once it is archived.
    can_go: bool,
    archived: bool,
}

impl HostShared {
    /// Archives the image of a generation, in the background.
    pub fn archive_later(self: &Arc<Self>, disk: &Arc<Disk>, generation: GenerationNumber) {
        if disk.generation(generation).is_ok_and(|it| it.attachment.is_some()) {
            return;
        }
        let mut work = lock(&self.archiving);
        if work.waiting.len() >= MAX_WAITING {
            return;
        }
        work.waiting.push_back((disk.clone(), generation));
        if work.busy {
            return;
        }
        // it holds neither the host nor the store, which can be closed at any time
        let (shared, images, work_of) = (Arc::downgrade(self), self.images.clone(), self.archiving.clone());
        let limit = self.options.image_cache;
        let run = move || archive_all(&shared, &images, &work_of, limit);
        match std::thread::Builder::new().name("dormouse-archive".into()).spawn(run) {
            Ok(thread) => {
                work.busy = true;
                work.thread = Some(thread);
            }
            Err(e) => tracing::warn!("starting the thread that archives images: {e}"),
        }
    }

    /// Archives the first generations of agents that were just made, and the one that they are forks of.
    pub fn archive_forks(self: &Arc<Self>, parent: &Arc<Disk>, at: GenerationNumber, children: &[Arc<Disk>]) {
        self.archive_later(parent, at);
        for child in children.iter().take(MAX_FORKS) {
            self.archive_later(child, GenerationNumber(0));
        }
    }

    /// Waits until nothing is being archived, but for what is left to a later reaping.
    pub fn join_archiving(&self) {
        let thread = {
            let mut work = lock(&self.archiving);
            work.until = Some(Instant::now() + AT_CLOSE);
            work.thread.take()
        };
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the thread that archives images panicked");
        }
        lock(&self.archiving).until = None;
    }

    /// Archives the image of a generation in this thread, unless that is done or it has none.
    pub(super) fn archive_now(&self, disk: &Arc<Disk>, generation: &Generation) -> Result<(), AgentError> {
        attach(&self.images, &self.archiving, disk, generation).map(drop)
    }

    /// Archives what is kept for long and was not archived behind the turns. Gives the number of generations.
    pub fn archive_kept(&self) -> Result<u64, AgentError> {
        let lacks =
            |it: &&Generation| it.attachment.is_none() && !matches!(it.cause, Cause::Turn | Cause::Side(_));
        let store = self.store()?;
        let mut made = 0;
        self.look_at_all(&mut |agent| {
            for generation in agent.generations.iter().filter(lacks) {
                if image_of(&store, generation)?.is_none() {
                    continue;
                }
                // only now into memory
                let archived = store.disk(agent.id).map_err(AgentError::from);
                match archived.and_then(|disk| attach(&self.images, &self.archiving, &disk, generation)) {
                    Ok(done) => made += u64::from(done),
                    Err(AgentError::Image(e)) if e.is_lost() => {
                        tracing::warn!(agent = %agent.id, generation = %generation.number, "not archived: {}", zone_vfs::told(&e));
                    }
                    Err(AgentError::Store(StoreError::NoGeneration { .. } | StoreError::NoAgent(_))) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        })?;
        Ok(made)
    }

    /// Removes image files that can be made again from the archive, those that were not changed for longest
    /// first, until no more than `limit` bytes are taken. What a head or an instance needs stays. Gives the bytes
    /// that came free. Must not be called from an async task: it waits.
    pub fn trim_images(&self, limit: u64) -> Result<u64, AgentError> {
        let taken = |files: &[(String, u64)]| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
        if taken(&self.images.files()?) <= limit {
            return Ok(0);
        }
        // what stands in the way is archived first, while turns go on
        let Some(named) = self.named()? else { return Ok(0) };
        let store = self.store()?;
        for it in named.iter().filter(|it| it.can_go && !it.archived).take(MAX_MADE) {
            match store.disk(it.agent) {
                Ok(disk) => archive(&self.images, &self.archiving, &disk, it.number),
                Err(StoreError::DamagedAgent { .. } | StoreError::NoAgent(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let _alone = self.imaging.blocking_write();
        self.shed_images(limit)
    }

    /// As [`trim_images`](Self::trim_images), of what is archived already. No image is made meanwhile.
    pub fn shed_images(&self, limit: u64) -> Result<u64, AgentError> {
        let Some(named) = self.named()? else { return Ok(0) };
        let (free, needed): (Vec<_>, Vec<_>) = named.into_iter().partition(|it| it.can_go && it.archived);
        let mut can_go: HashSet<String> = free.into_iter().flat_map(|it| it.files).collect();
        for name in needed.iter().flat_map(|it| &it.files) {
            can_go.remove(name);
        }
        for key in self.template_keys() {
            can_go.remove(&FlatName::Genesis(key).to_string());
        }
        Ok(self.images.shed(&self.images.files()?, &can_go, limit)?)
    }

    /// Looks at the agents one by one, but for those that are damaged, and brings none into memory. Whether all of
    /// them could be looked at.
    pub(super) fn look_at_all(
        &self,
        look: &mut dyn FnMut(AgentLook) -> Result<(), AgentError>,
    ) -> Result<bool, AgentError> {
        let store = self.store()?;
        let mut all = true;
        for (_, id) in store.agents()? {
            match store.look(id) {
                Err(StoreError::DamagedAgent { .. }) => all = false,
                Err(StoreError::NoAgent(_)) => {}
                agent => look(agent?)?,
            }
        }
        Ok(all)
    }

    /// The image files of all generations; none where a damaged agent may need any.
    fn named(&self) -> Result<Option<Vec<Named>>, AgentError> {
        let store = self.store()?;
        let mut named = Vec::new();
        let all = self.look_at_all(&mut |agent| {
            for generation in &agent.generations {
                let Some(reference) = image_of(&store, generation)? else { continue };
                let flat = FlatName::Generation(agent.id.0, generation.number.0);
                let files = [flat.to_string(), reference.base().to_string()].into_iter();
                named.push(Named {
                    agent: agent.id,
                    number: generation.number,
                    files: files.chain(reference.files().iter().map(ToString::to_string)).collect(),
                    can_go: generation.number != agent.head,
                    archived: generation.attachment.is_some(),
                });
            }
            Ok(())
        })?;
        Ok(all.then_some(named))
    }

    /// Opens the image of a generation. Files that are missing or damaged are made again from the archive.
    pub async fn open_image(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
        number: GenerationNumber,
        reference: &ImageReference,
    ) -> Result<Image, AgentError> {
        let flat = FlatName::Generation(disk.id().0, number.0);
        match self.images.image(reference, Some(&flat)) {
            Err(e) if e.is_lost() => {
                self.make_again(disk, number, reference, e).await?;
                Ok(self.images.image(reference, Some(&flat))?)
            }
            opened => Ok(opened?),
        }
    }

    /// As [`open_image`](Self::open_image), of an image to which something is going to be moved: its changed pages are looked
    /// at too.
    pub async fn open_whole(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
        number: GenerationNumber,
        reference: &ImageReference,
    ) -> Result<Image, AgentError> {
        let image = self.open_image(disk, number, reference).await?;
        let looked = {
            let image = image.clone();
            threads::run(move || image.check_changed()).await?
        };
        match looked {
            Err(e) if e.is_lost() => {
                self.make_again(disk, number, reference, e).await?;
                let flat = FlatName::Generation(disk.id().0, number.0);
                Ok(self.images.image(reference, Some(&flat))?)
            }
            looked => Ok(looked.map(|()| image)?),
        }
    }

    /// Makes the image of a generation again from the archive, as one flat file, where its files are `lost`.
    pub async fn make_again(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
        number: GenerationNumber,
        reference: &ImageReference,
        lost: ImageError,
    ) -> Result<(), AgentError> {
        let (shared, disk, reference) = (self.clone(), disk.clone(), reference.clone());
        threads::run(move || shared.materialise(&disk, number, &reference, lost)).await?
    }

    /// As [`make_again`](Self::make_again), in this thread.
    pub fn materialise(
        &self,
        disk: &Arc<Disk>,
        number: GenerationNumber,
        reference: &ImageReference,
        lost: ImageError,
    ) -> Result<(), AgentError> {
        let archived = match disk.attachment(number) {
            Ok(Some(archived)) => archived,
            Ok(None) if self.make_base_again(reference, &lost)? => return Ok(()),
            Ok(None) => {
                let reason = "its image is not in the archive";
                return Err(AgentError::ImageLost { generation: number, reason, source: lost });
            }
            Err(e) => return Err(e.into()),
        };
        let flat = FlatName::Generation(disk.id().0, number.0);
        let (agent, told) = (disk.id(), zone_vfs::told(&lost));
        if reference.base() == &flat && lost.is_missing() {
            // an import refers to what is only in the archive
            tracing::debug!(%agent, generation = %number, "made from the archive: {told}");
        } else {
            tracing::warn!(%agent, generation = %number, "made again from the archive: {told}");
        }
        self.images.materialise(&flat, reference, &archived)?;
        Ok(())
    }
}

impl HostShared {
    /// Makes the flat file again that an image lies on, where that is the file that is `lost` and the generation that it
    /// is named after is in the archive. Gives whether it has.
    pub(super) fn make_base_again(
        &self,
        reference: &ImageReference,
        lost: &ImageError,
    ) -> Result<bool, AgentError> {
        let name = reference.base();
        let &FlatName::Generation(agent, number) = name else { return Ok(false) };
        if lost.file() != Some(&name.to_string()) {
            return Ok(false);
        }
        let store = self.store()?;
        let disk = match store.disk(AgentId(agent)) {
            Err(e) if matches!(e, StoreError::NoAgent(_)) || e.is_of_one_agent() => return Ok(false),
            disk => disk?,
        };
        let number = GenerationNumber(number);
        let Ok(generation) = disk.generation(number) else { return Ok(false) };
        let (Some(image), Some(archived)) = (image_of(&store, &generation)?, disk.attachment(number)?) else {
            return Ok(false);
        };
        tracing::warn!(file = %name, "made again from the archive: {}", zone_vfs::told(lost));
        self.images.materialise(name, &image, &archived)?;
        Ok(true)
    }
}

/// What a generation's record says of its image, if it has one.
pub(super) fn image_of(store: &Store, generation: &Generation) -> Result<Option<ImageReference>, AgentError> {
    image_in(&store.payload(&generation.about)?)
}

fn image_in(bytes: &[u8]) -> Result<Option<ImageReference>, AgentError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(journal::decode::<GenerationAbout>(bytes)?.image)
}

fn archive_all(shared: &Weak<HostShared>, images: &ImageStore, archiving: &Mutex<Archiving>, limit: u64) {
    let mut trimmed = false;
    loop {
        let next = {
            let mut work = lock(archiving);
            if work.until.is_some_and(|until| Instant::now() > until) {
                work.waiting.clear();
            }
            let next = work.waiting.pop_front();
            work.busy = next.is_some() || !trimmed;
            next
        };
        match next {
            Some((disk, number)) => archive(images, archiving, &disk, number),
            None if trimmed => return,
            None => {
                trimmed = true;
                if let Err(e) = trim(shared, images, limit) {
                    tracing::warn!("removing image files that are archived: {}", zone_vfs::told(&e));
                }
            }
        }
    }
}

fn trim(shared: &Weak<HostShared>, images: &ImageStore, limit: u64) -> Result<(), AgentError> {
    if images.files()?.iter().map(|(_, bytes)| bytes).sum::<u64>() > limit
        && let Some(shared) = shared.upgrade()
    {
        shared.trim_images(limit)?;
    }
    Ok(())
}

/// Archives the image of one generation, as far as that can be done.
fn archive(images: &ImageStore, archiving: &Mutex<Archiving>, disk: &Arc<Disk>, number: GenerationNumber) {
    let archived = disk.generation(number).map_err(AgentError::from);
    match archived.and_then(|generation| attach(images, archiving, disk, &generation)) {
        Ok(_)
        | Err(AgentError::Store(
            StoreError::NoAgent(_) | StoreError::NoGeneration { .. } | StoreError::Closed,
        )) => {}
        // its files are there all the same, and a reaping tries again
        Err(e) => {
            tracing::warn!(agent = %disk.id(), generation = %number, "not archived: {}", zone_vfs::told(&e));
        }
    }
}

/// Archives the image of a generation, if it has one and is not archived. Whether that was done.
fn attach(
    images: &ImageStore,
    archiving: &Mutex<Archiving>,
    disk: &Arc<Disk>,
    generation: &Generation,
) -> Result<bool, AgentError> {
    let reference = image_in(&disk.payload(&generation.about)?)?.filter(|_| generation.attachment.is_none());
    let Some(reference) = reference else { return Ok(false) };
    let damaged = |reason| ImageError::Damaged { file: reference.base().to_string(), reason };
    let digest = reference.digest().map_err(damaged)?;
    let known = lock(archiving).known.get(&digest).cloned();
    if let Some(root) = known
        && disk.attach_known(generation.number, &root)?
    {
        return Ok(true);
    }
    let flat = FlatName::Generation(disk.id().0, generation.number.0);
    let image = images.image(&reference, Some(&flat))?;
    let mut reader = image.reader()?;
    let (about, len) = (reader.about()?, reader.len());
    let root = disk.attach(generation.number, &about, len, &mut |index, into| reader.fill(index, into))?;
    let mut work = lock(archiving);
    if work.known.len() >= MAX_KNOWN {
        work.known.clear();
    }
    work.known.insert(digest, root);
    Ok(true)
}

impl Host {
    /// Archives the images that are kept for long, and removes image files that can be made again from the
    /// archive until they take no more than `limit` bytes. Those of heads and of what is in memory stay.
    /// Gives the bytes that came free.
    pub async fn trim_images(&self, limit: u64) -> Result<u64, AgentError> {
        let shared = self.shared.clone();
        threads::run(move || {
            shared.archive_kept()?;
            shared.trim_images(limit)
        })
        .await?
    }
}
