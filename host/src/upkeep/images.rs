//! Images behind the turns: they are made flat, and their files go when nothing needs them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::StoreError;

use crate::agent::{Agent, AgentError};
use crate::host::HostShared;
use crate::image::{FlatName, Image, ImageStore, PAGE, PagesName};
use crate::journal::{self, AgentAbout, GenerationAbout};

/// Images that are to be made flat, behind the turns. Dropped, it forgets those that wait.
#[derive(Default)]
pub(crate) struct Flattening(Arc<Work>);

impl Drop for Flattening {
    fn drop(&mut self) {
        lock(&self.0.queue).wanted.clear();
        self.0.changed.notify_all();
    }
}

#[derive(Default)]
struct Work {
    queue: Mutex<Queue>,
    /// Told of what is new in the queue.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    wanted: HashMap<AgentId, Wanted>,
    /// Somebody waits for the end of it: nothing that is wanted is waited for.
    hurry: usize,
    /// The thread has something to do, or will look once more.
    busy: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Wanted {
    name: FlatName,
    image: Image,
    /// When the agent's first image that was not made flat yet came here.
    since: Instant,
    due: Instant,
}

/// When an image is to be made flat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At once: nothing is going to happen to the agent for a while.
    Now,
    /// Once the agent has been quiet for a while: to write it out whole after every turn would take the processor and
    /// the disk from the turns, and each file would be of use to nobody.
    Quiet,
}

impl When {
    /// When the newest image of an agent is to be made flat, which is of `now`; the first that was not yet is of `since`.
    fn due(self, since: Instant, now: Instant) -> Instant {
        match self {
            Self::Now => now,
            Self::Quiet => (now + QUIET).min(since + LATEST),
        }
    }
}

/// How long an agent takes no turn before its image is made flat.
const QUIET: Duration = Duration::from_millis(500);
/// An agent that is never quiet for so long has its image made flat all the same.
const LATEST: Duration = Duration::from_secs(5);
/// An image that lies in more files than this, or has so many changed pages, is near where a turn itself would have to
/// write it whole.
const MANY_FILES: usize = 4;
const MANY_PAGES: usize = 8192;

impl Queue {
    /// What is to be done now, or else for how long there is nothing.
    fn next(&mut self, now: Instant) -> Result<Wanted, Option<Duration>> {
        let Some((id, due)) = self.wanted.iter().map(|(id, it)| (*id, it.due)).min_by_key(|(_, due)| *due)
        else {
            return Err(None);
        };
        if self.hurry == 0 && due > now {
            return Err(Some(due - now));
        }
        self.wanted.remove(&id).ok_or(None)
    }

    /// An agent has a new image, the only one of its images that is worth the work. Whether it is to be made now.
    fn put(&mut self, id: AgentId, name: FlatName, image: Image, when: When, now: Instant) -> bool {
        let since = self.wanted.get(&id).map_or(now, |it| it.since);
        let (files, pages) = (image.reference().files().len(), image.reference().changed_pages());
        let due = if files > MANY_FILES || pages > MANY_PAGES { now } else { when.due(since, now) };
        self.wanted.insert(id, Wanted { name, image, since, due });
        due <= now
    }
}

impl Work {
    /// Makes images flat until there is none left.
    fn run(&self, images: &ImageStore) {
        let mut queue = lock(&self.queue);
        loop {
            match queue.next(Instant::now()) {
                Ok(Wanted { name, image, .. }) => {
                    drop(queue);
                    if let Err(e) = images.flatten(&image, &name) {
                        // the generation has its pages all the same, and is resumed from them
                        tracing::warn!("making {name} flat: {}", zone_vfs::told(&e));
                    }
                    queue = lock(&self.queue);
                }
                Err(Some(quiet)) => {
                    let waited = self.changed.wait_timeout(queue, quiet);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(None) => {
                    queue.busy = false;
                    return;
                }
            }
        }
    }
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

    /// Notes that an agent has made a generation: files that none needs any more are looked for now and then.
    pub fn note_generation(&self, generation: GenerationNumber) {
        if generation.0.is_multiple_of(REAP_EVERY) {
            self.reap_due.store(true, Ordering::Relaxed);
        }
    }

    /// Makes an image flat, in the background, if it has more than `above` changed pages.
    pub fn flatten_later(
        &self,
        agent: &Agent,
        generation: GenerationNumber,
        image: &Image,
        above: usize,
        when: When,
    ) {
        self.note_generation(generation);
        let (id, name) = (agent.id(), FlatName::Generation(agent.id().0, generation.0));
        let mut queue = lock(&self.flattening.0.queue);
        if image.reference().changed_pages() <= above {
            // an older one is of no use any more
            if queue.wanted.get(&id).is_some_and(|wanted| wanted.name != name) {
                queue.wanted.remove(&id);
            }
            return;
        }
        let is_due = queue.put(id, name, image.clone(), when, Instant::now());
        if queue.thread.as_ref().is_some_and(|t| !t.is_finished()) && queue.busy {
            if is_due {
                self.flattening.0.changed.notify_one();
            }
            return;
        }
        let (images, work) = (self.images.clone(), self.flattening.0.clone());
        let spawned =
            std::thread::Builder::new().name("dormouse-flatten".into()).spawn(move || work.run(&images));
        match spawned {
            Ok(thread) => {
                queue.busy = true;
                queue.thread = Some(thread);
            }
            Err(e) => tracing::warn!("starting the thread that makes images flat: {e}"),
        }
    }

    /// Waits until no image is being made flat; those that were to wait for a quiet time are made now.
    pub fn join_flattening(&self) {
        let thread = {
            let mut queue = lock(&self.flattening.0.queue);
            queue.hurry += 1;
            self.flattening.0.changed.notify_one();
            queue.thread.take()
        };
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the thread that makes images flat panicked");
        }
        lock(&self.flattening.0.queue).hurry -= 1;
    }

    /// What the generations of all agents but these name; none where an agent is damaged, of which that cannot be known.
    fn named_by_agents(&self, but: &HashSet<AgentId>) -> Result<Option<Named>, AgentError> {
        let store = self.store()?;
        let mut named = Named::default();
        for (_, id) in store.agents()?.into_iter().filter(|(_, id)| !but.contains(id)) {
            let agent = match store.look(id) {
                Err(StoreError::DamagedAgent { .. }) => return Ok(None),
                agent => agent?,
            };
            let about: AgentAbout = journal::decode(&store.payload(&agent.about)?)?;
            named.components.insert(about.component);
            for generation in &agent.generations {
                named.flats.insert(FlatName::Generation(id.0, generation.number.0));
                let bytes = store.payload(&generation.about)?;
                if bytes.is_empty() {
                    continue;
                }
                let about: GenerationAbout = journal::decode(&bytes)?;
                named.components.insert(about.component);
                if let Some(image) = about.image {
                    named.flats.insert(image.base().clone());
                    named.pages.extend(image.files().iter().copied());
                }
            }
        }
        Ok(Some(named))
    }

    /// Removes the image files and components that no generation of any agent but these names. Gives the
    /// bytes of the image files; with `dry_run` it only counts them.
    pub fn reap_images(&self, but: &HashSet<AgentId>, dry_run: bool) -> Result<u64, AgentError> {
        let Some(Named { mut flats, pages, components }) = self.named_by_agents(but)? else { return Ok(0) };
        for template in lock(&self.templates).values() {
            flats.insert(FlatName::Genesis(template.key));
        }
        if !dry_run {
            lock(&self.templates).retain(|hash, _| components.contains(hash));
            self.components.retain(&components)?;
        }
        Ok(self.images.retain(&flats, &pages, dry_run)?)
    }

    /// Removes the compiled code of components that no agent but these has, now or in a generation, and that are not in
    /// memory. Gives its bytes; with `dry_run` it only counts them.
    pub fn reap_code(&self, but: &HashSet<AgentId>, dry_run: bool) -> Result<u64, AgentError> {
        let Some(named) = self.named_by_agents(but)? else { return Ok(0) };
        let mut keep: HashSet<_> =
            named.components.iter().map(|component| self.code_key(component)).collect();
        keep.extend(self.template_keys());
        let bytes = self.retain_code(&keep, dry_run)?;
        if !dry_run {
            self.images.retain_geneses(&keep)?;
        }
        Ok(bytes)
    }
}

/// What generations name.
#[derive(Default)]
struct Named {
    flats: HashSet<FlatName>,
    pages: HashSet<PagesName>,
    components: HashSet<[u8; 32]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_waits_until_its_agent_is_quiet_and_not_for_ever() {
        let since = Instant::now();
        assert_eq!(When::Now.due(since, since), since);
        assert_eq!(When::Quiet.due(since, since), since + QUIET);
        // a turn in the meantime puts it off
        let later = since + QUIET / 2;
        assert_eq!(When::Quiet.due(since, later), later + QUIET);
        assert_eq!(When::Quiet.due(since, since + LATEST), since + LATEST);
        assert_eq!(When::Quiet.due(since, since + 2 * LATEST), since + LATEST);
    }
}
