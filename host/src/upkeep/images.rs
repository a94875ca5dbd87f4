//! Images behind the turns: they are made flat, and their files go when nothing needs them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::StoreError;

use crate::agent::{Agent, AgentError};
use crate::host::HostShared;
use crate::image::{FlatName, Image, PAGE};
use crate::journal::{self, AgentAbout, GenerationAbout};

/// Images that are to be made flat, behind the turns.
#[derive(Default)]
pub(crate) struct Flattening {
    wanted: HashMap<AgentId, (FlatName, Image)>,
    /// The thread has something to do, or will look once more.
    busy: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Image files that nothing needs are looked for after this many generations of an agent.
const REAP_EVERY: u64 = 128;
/// An image of which less than this share has changed is not made flat as long as its agent is in memory.
const FLATTEN_SHARE: u64 = 16;

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostShared {
    /// An image of an agent that is in memory is made flat where it has more changed pages than this: a flat file costs
    /// its whole length, and is of use once it is mapped.
    pub fn flatten_above(&self, image: &Image) -> usize {
        let pages = image.reference().bytes() / PAGE as u64;
        usize::try_from(pages / FLATTEN_SHARE).unwrap_or(usize::MAX).max(self.options.flatten_at)
    }

    /// Makes an image flat, in the background, if it has more than `above` changed pages.
    pub fn flatten_later(&self, agent: &Agent, generation: GenerationNumber, image: &Image, above: usize) {
        if generation.0.is_multiple_of(REAP_EVERY) {
            self.reap_due.store(true, Ordering::Relaxed);
        }
        if image.reference().changed_pages() <= above {
            return;
        }
        let mut work = lock(&self.flattening);
        // of an agent's images only the newest is worth the work
        work.wanted.insert(agent.id(), (FlatName::Generation(agent.id().0, generation.0), image.clone()));
        if work.thread.as_ref().is_some_and(|t| !t.is_finished()) && work.busy {
            return;
        }
        let (images, queue) = (self.images.clone(), self.flattening.clone());
        let spawned = std::thread::Builder::new().name("dormouse-flatten".into()).spawn(move || {
            loop {
                let next = {
                    let mut work = lock(&queue);
                    let next = work.wanted.keys().next().copied().and_then(|id| work.wanted.remove(&id));
                    work.busy = next.is_some();
                    next
                };
                let Some((name, image)) = next else { return };
                if let Err(e) = images.flatten(&image, &name) {
                    // the generation has its pages all the same, and is resumed from them
                    tracing::warn!("making {name} flat: {}", zone_vfs::told(&e));
                }
            }
        });
        match spawned {
            Ok(thread) => {
                work.busy = true;
                work.thread = Some(thread);
            }
            Err(e) => tracing::warn!("starting the thread that makes images flat: {e}"),
        }
    }

    /// Waits until no image is being made flat.
    pub fn join_flattening(&self) {
        let thread = lock(&self.flattening).thread.take();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the thread that makes images flat panicked");
        }
    }

    /// Removes the image files and components that no generation of any agent but these names. Gives the
    /// bytes of the image files; with `dry_run` it only counts them.
    pub fn reap_images(&self, but: &HashSet<AgentId>, dry_run: bool) -> Result<u64, AgentError> {
        let store = self.store()?;
        let (mut flats, mut pages) = (HashSet::new(), HashSet::new());
        let mut components = HashSet::new();
        for (_, id) in store.agents()?.into_iter().filter(|(_, id)| !but.contains(id)) {
            let agent = match store.look(id) {
                // what it names cannot be known
                Err(StoreError::DamagedAgent { .. }) => return Ok(0),
                agent => agent?,
            };
            let about: AgentAbout = journal::decode(&store.payload(&agent.about)?)?;
            components.insert(about.component);
            for generation in &agent.generations {
                flats.insert(FlatName::Generation(id.0, generation.number.0));
                let bytes = store.payload(&generation.about)?;
                if bytes.is_empty() {
                    continue;
                }
                let about: GenerationAbout = journal::decode(&bytes)?;
                components.insert(about.component);
                if let Some(image) = about.image {
                    flats.insert(image.base().clone());
                    pages.extend(image.files().iter().copied());
                }
            }
        }
        for template in lock(&self.templates).values() {
            flats.insert(FlatName::Genesis(template.key));
        }
        if !dry_run {
            lock(&self.templates).retain(|hash, _| components.contains(hash));
            self.components.retain(&components)?;
        }
        Ok(self.images.retain(&flats, &pages, dry_run)?)
    }
}
