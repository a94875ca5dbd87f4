//! How a sleeping agent stands: what a resume needs, read and decoded once for each generation.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use zone_vfs::id::GenerationNumber;

use super::seen::Seen;
use super::{Agent, AgentError, Running, Template};
use crate::component::LAYOUT_VERSION;
use crate::image::{ClosedImage, FlatName, Image};
use crate::journal::{self, AgentAbout, GenerationAbout, World};
use crate::wasi::{Lifecycle, MemoryLimits, Mounts, Start};

/// The place of an agent in its host: in memory, asleep, or not yet looked at.
#[derive(Default)]
pub(crate) struct Place {
    /// The live instance. Held through every turn.
    pub running: tokio::sync::Mutex<Option<Running>>,
    standing: Mutex<Option<Arc<Standing>>>,
    /// Whoever ran last went on memory that could not be read, and was dropped before he could be asked.
    unreadable: AtomicBool,
    /// It is known not to have been moved. Told only by who is at the agent, whom a move waits for.
    is_here: AtomicBool,
    /// Those who wait for a turn, and who has it.
    waiting: AtomicUsize,
    /// Ends the call of the turn that goes on.
    cancel: Mutex<Option<oneshot::Sender<()>>>,
    /// An image is being taken behind its turns.
    imaging: AtomicBool,
    /// The events that were answered, once that has been asked.
    seen: Mutex<Option<Seen>>,
}

impl Place {
    /// The next to ask looks anew at how the agent stands.
    pub fn forget_standing(&self) {
        *self.known() = None;
    }

    /// Notes that whoever is dropped now in the middle of his turn went on memory that could not be read.
    pub fn note_unreadable(&self) {
        self.unreadable.store(true, Ordering::Release);
    }

    /// Whether that was noted since this was asked last.
    pub fn take_unreadable(&self) -> bool {
        self.unreadable.swap(false, Ordering::AcqRel)
    }

    /// One more waits for a turn, until what is returned is dropped: none where `limit` do already.
    pub fn wait_in_line(&self, limit: usize) -> Option<InLine<'_>> {
        let waiting = InLine(&self.waiting);
        (self.waiting.fetch_add(1, Ordering::AcqRel) < limit).then_some(waiting)
    }

    /// A call goes on, which can be cancelled from now on; comes when it is.
    pub fn can_be_cancelled(&self) -> oneshot::Receiver<()> {
        let (send, receive) = oneshot::channel();
        *lock(&self.cancel) = Some(send);
        receive
    }

    /// Cancels the call that goes on. Whether there is one.
    pub fn cancel(&self) -> bool {
        lock(&self.cancel).take().is_some_and(|it| it.send(()).is_ok())
    }

    /// Notes that an image is taken behind the turns; false where one is already.
    pub fn begin_imaging(&self) -> bool {
        !self.imaging.swap(true, Ordering::AcqRel)
    }

    /// Whether one is.
    pub fn is_imaging(&self) -> bool {
        self.imaging.load(Ordering::Acquire)
    }

    /// Notes that it has been.
    pub fn end_imaging(&self) {
        self.imaging.store(false, Ordering::Release);
    }

    /// Whether the agent is known not to have been moved, for who is at it.
    pub fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Acquire)
    }

    /// Notes what [`is_here`](Self::is_here) asks, for who is at the agent.
    pub fn note_here(&self, is_here: bool) {
        self.is_here.store(is_here, Ordering::Release);
    }

    pub fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        lock(&self.seen)
    }

    fn known(&self) -> MutexGuard<'_, Option<Arc<Standing>>> {
        lock(&self.standing)
    }

    /// What is known of how the agent stands at this generation.
    pub fn standing(&self, at: GenerationNumber) -> Option<Arc<Standing>> {
        self.known().clone().filter(|known| known.number == at)
    }
}

/// One who waits for a turn, or has it.
pub(crate) struct InLine<'a>(&'a AtomicUsize);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a resume of one generation needs.
pub(crate) struct Standing {
    /// The generation. It never changes, and neither does what follows.
    pub number: GenerationNumber,
    pub about: GenerationAbout,
    pub agent: Arc<Identity>,
    pub template: Arc<Template>,
    image: ClosedImage,
    /// Flat files that the host had made when `image` was looked up.
    flats: u64,
}

/// What stays the same through an agent's generations.
pub(crate) struct Identity {
    /// Arguments, the program's name first.
    pub args: Arc<[String]>,
    pub env: Arc<[(String, String)]>,
    pub mounts: Mounts,
    pub limits: MemoryLimits,
    /// Processor time of a turn.
    pub cpu_time: Option<Duration>,
    lifecycle: Lifecycle,
}

impl Standing {
    /// What people call the component that the memory belongs to.
    pub fn component_name(&self) -> String {
        let known = self.about.component_name.clone();
        known.or_else(|| self.agent.args.first().cloned()).unwrap_or_default()
    }
}

impl Identity {
    pub fn lifecycle(&self, generation: u64, start: Start) -> Lifecycle {
        Lifecycle { generation, start, ..self.lifecycle.clone() }
    }
}

impl Agent {
    /// What stays the same, of an agent that takes events.
    pub(super) fn identity(&self) -> Result<Identity, AgentError> {
        self.identity_of(&self.about()?)
    }

    /// As [`identity`](Self::identity), were `about` what the host keeps about it.
    pub(super) fn identity_of(&self, about: &AgentAbout) -> Result<Identity, AgentError> {
        let info = self.disk.info()?;
        if about.world == World::Command {
            return Err(AgentError::World {
                agent: info.name,
                found: World::Command.name(),
                wanted: "it has no memory between runs; start it with `dormouse run`",
            });
        }
        let lifecycle = Lifecycle::of(&info, 0, Start::Resumed);
        let (limits, cpu_time) = (self.limits(about), self.cpu_time(about));
        let args = std::iter::once(&about.component_name).chain(&about.args).cloned().collect();
        Ok(Identity {
            args,
            env: about.env.clone().into(),
            mounts: Mounts::of(&info.zones),
            limits,
            cpu_time,
            lifecycle,
        })
    }

    /// The bounds on the agent's memory: its own, or else the host's.
    pub(super) fn limits(&self, about: &AgentAbout) -> MemoryLimits {
        self.host.options.memory.with(about.max_memory)
    }

    /// The bound on the processor time of a turn: its own or the host's, whichever is less.
    pub(super) fn cpu_time(&self, about: &AgentAbout) -> Option<Duration> {
        let (own, hosts) = (about.max_cpu, self.host.options.cpu_time);
        own.into_iter().chain(hosts).min()
    }

    /// How the agent stands at its head.
    pub(crate) async fn standing(&self) -> Result<(Arc<Standing>, Image), AgentError> {
        let head = self.disk.head();
        let known = self.place.known().clone();
        let agent = match known {
            Some(known) if known.number == head && self.newest(&known) => match known.image.open_again() {
                Some(image) => return Ok((known, image)),
                None => known.agent.clone(),
            },
            Some(known) => known.agent.clone(),
            None => Arc::new(self.identity()?),
        };
        let generation = self.disk.generation(head)?;
        let about = self.generation_about(&generation)?;
        if about.layout != LAYOUT_VERSION {
            return Err(AgentError::OtherLayout { found: about.layout, supported: LAYOUT_VERSION });
        }
        about.handles.check().map_err(journal::JournalError::Damaged)?;
        let reference = about.image.as_ref().ok_or(AgentError::NoMemory { generation: head })?;
        let limit = agent.limits.memory as u64;
        if reference.bytes() > limit {
            return Err(AgentError::MemoryLimit { needed: reference.bytes(), limit });
        }
        let flats = self.host.images.flats_made();
        let image = match self.host.open_image(&self.disk, head, reference).await {
            Err(AgentError::ImageLost { source, .. })
                if matches!(reference.base(), FlatName::Genesis(_))
                    && source.is_lost()
                    && source.file() == Some(&reference.base().to_string()) =>
            {
                // it follows from the component, and is made where it is not there or does not read
                self.template_of(&about.component).await?.genesis_again(&self.host.images).await?;
                self.host.open_image(&self.disk, head, reference).await?
            }
            opened => opened?,
        };
        let template = self.template_of(&about.component).await?;
        let standing =
            Arc::new(Standing { number: head, about, agent, template, image: image.closed(), flats });
        *self.place.known() = Some(standing.clone());
        Ok((standing, image))
    }

    /// Whether no flat file has been made since, which might be the one for this image.
    fn newest(&self, standing: &Standing) -> bool {
        standing.image.is_flat() || standing.flats == self.host.images.flats_made()
    }

    /// Notes how the agent stands now that a generation has been made.
    pub(super) fn stands(&self, image: &Image, number: GenerationNumber, about: GenerationAbout) {
        let known = self.place.known().clone();
        if let Some(known) = known {
            *self.place.known() = Some(Arc::new(Standing {
                number,
                about,
                agent: known.agent.clone(),
                template: known.template.clone(),
                image: image.closed(),
                flats: self.host.images.flats_made(),
            }));
        }
    }
}
