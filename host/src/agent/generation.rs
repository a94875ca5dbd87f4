//! Resume, pause, fork and rewind.

use std::time::{Duration, Instant};

use zone_vfs::contract::ZoneKind;
use zone_vfs::id::GenerationNumber;
use zone_vfs::store::{Cause, Disk, Done, NewAgent, NewGeneration, Store, StoreError, TurnStyle};

use super::behind::SinceImage;
use super::standing::Identity;
use super::template::Genesis;
use super::{Agent, AgentError, AgentName, Resumed, Running, Template};
use crate::code::metered;
use crate::host::Room;
use crate::image::{FlatName, Image, ImageReference};
use crate::journal::{self, AgentAbout, EventRecord, GenerationAbout, OutcomeRecord, Recording, World};
use crate::threads;
use crate::upkeep::When;
use crate::wasi::{GuestState, HandleTable, Start};

/// Agents that one fork makes, at most.
pub const MAX_FORKS: usize = 100_000;

/// A paused image with more changed pages than this is made flat, behind the pause.
const FLATTEN_PAUSED: usize = 16;
/// Bytes of a memory that is written anew at every pause, however few of its pages have changed.
const FLATTEN_SMALL: u64 = 4 << 20;
/// So many forks at once are worth a flat image.
const MANY_FORKS: usize = 4;

/// Awaits what a disk calls back. No lock may be held that another's call back needs: see [`Disk::lend`].
pub(crate) async fn await_done<T: Send + 'static>(
    disk: &Disk,
    start: impl FnOnce(Done<T>),
) -> Result<T, StoreError> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let done: Done<T> = Box::new(move |result| {
        // the receiver is gone only when the caller was dropped, which then does not ask any more
        let _ = send.send(result);
    });
    disk.lend(|| start(done));
    receive.await.map_err(|_| StoreError::Closed)?
}

impl Agent {
    /// Brings the agent into memory if it is not there.
    pub(super) async fn ensure_running(&self, running: &mut Option<Running>) -> Result<Resumed, AgentError> {
        match self.bring_in(running).await {
            Err(AgentError::Image(lost)) if lost.is_lost() => {
                // damage that shows only when the image is mapped; what was opened for the instance is let go
                self.disk.release()?;
                let generation = self.disk.generation(self.disk.head())?;
                let about = self.generation_about(&generation)?;
                let reference =
                    about.image.as_ref().ok_or(AgentError::NoMemory { generation: generation.number })?;
                self.host.make_again(&self.disk, generation.number, reference, lost).await?;
                self.place.forget_standing();
                self.bring_in(running).await
            }
            Err(AgentError::NoMemory { .. }) if self.lacks_genesis()? => {
                let template = self.template_of(&self.about()?.component).await?;
                self.own_genesis_entered(&template).await?;
                self.bring_in(running).await
            }
            brought => brought,
        }
    }

    async fn bring_in(&self, running: &mut Option<Running>) -> Result<Resumed, AgentError> {
        let head = self.disk.head();
        if running.is_none() && self.disk.generation(head)?.on.is_some() {
            // the host ended before an image was taken
            self.completed(running, head).await?;
        }
        if let Some(now) = running {
            let memory = now.image.reference().bytes();
            return Ok(Resumed {
                generation: self.disk.head(),
                took: Duration::ZERO,
                was_live: true,
                warm: true,
                memory,
            });
        }
        let (standing, image) = self.standing().await?;
        if let Room::Short(_) = self.host.headroom.note_start() {
            self.host.make_room().await?;
        }
        let (mut live, warm) = standing.template.slot(&image, standing.agent.limits, &self.host).await?;
        let started = Instant::now();
        let starts = standing.about.starts + 1;
        let mut state = self.state(&standing.agent, &standing.about, starts);
        let stand = self.disk.take_up(standing.number);
        state.attach(self.disk.clone(), &standing.agent.mounts, stand)?;
        live.restore(&image, state).await?;
        let took = started.elapsed();
        let memory = image.reference().bytes();
        let populate = match image.reference().base() {
            FlatName::Genesis(_) => standing.template.written(),
            _ => image.written_before(),
        };
        let in_memory = self.host.parked.enter(self, live.private_bytes());
        *running = Some(Running {
            live,
            mapped: image.reference().base().clone(),
            image,
            component: standing.about.component,
            component_name: standing.component_name(),
            starts,
            cpu_time: standing.agent.cpu_time,
            to_tell: standing.template.optional.resumed,
            populate: Some(populate),
            at: standing.number,
            stands: true,
            since: SinceImage::none(standing.number),
            host: self.host.clone(),
            disk: self.disk.clone(),
            _in_memory: in_memory,
        });
        Ok(Resumed { generation: standing.number, took, was_live: false, warm, memory })
    }

    pub(super) fn state(&self, identity: &Identity, generation: &GenerationAbout, starts: u64) -> GuestState {
        GuestState {
            table: generation.handles.clone(),
            args: identity.args.clone(),
            env: identity.env.clone(),
            lifecycle: identity.lifecycle(self.host.fresh_start(starts), generation.next_start),
            limits: identity.limits,
            ..GuestState::over(Recording::new(generation.monotonic))
        }
    }

    /// Instantiates the component with the agent's own environment, arguments and zones, as a turn of
    /// its own, and takes the image.
    pub(crate) async fn own_genesis(&self, template: &Template) -> Result<(), AgentError> {
        let _running = self.enter().await?;
        self.own_genesis_entered(template).await
    }

    /// Whether its own genesis, which is to be its first start, has not come to its end: the host ended before.
    pub(crate) fn lacks_genesis(&self) -> Result<bool, AgentError> {
        let head = self.generation_about(&self.disk.generation(self.disk.head())?)?;
        Ok(head.image.is_none() && head.starts == 0 && self.about()?.world == World::Agent)
    }

    async fn own_genesis_entered(&self, template: &Template) -> Result<(), AgentError> {
        let identity = self.identity()?;
        let mut generation = self.generation_about(&self.disk.generation(self.disk.head())?)?;
        let event = EventRecord::Run(identity.args.iter().skip(1).cloned().collect());
        self.disk.begin(TurnStyle::Transaction, &journal::encode(&event)?)?;
        let booted = async {
            let mut state = self.state(&identity, &generation, generation.starts + 1);
            state.attach(self.disk.clone(), &identity.mounts, false)?;
            let time = state.cpu.begin(identity.cpu_time);
            metered(time, template.boot_genesis(state)).await
        };
        let booted = booted.await;
        // not while the guest's code runs, which a reaping would wait for, and whoever comes after it
        let _imaging = self.host.imaging.read().await;
        let name = FlatName::OwnGenesis(self.disk.id().0);
        let made =
            booted.and_then(|mut live| Ok((Genesis::take(&self.host.images, &name, &mut live)?, live)));
        let (genesis, live) = match made {
            Ok(made) => made,
            Err(e) => {
                self.abandon().await?;
                return Err(e);
            }
        };
        generation.monotonic = {
            let mut live = live;
            live.store.data_mut().outside.now()
        };
        generation.image = Some(genesis.image.reference().clone());
        generation.handles = genesis.handles;
        generation.starts += 1;
        let outcome = journal::encode(&OutcomeRecord::Reply(Vec::new()))?;
        let new = NewGeneration { cause: Cause::Created, about: journal::encode(&generation)?, on: None };
        self.before_forgetting().await?;
        let number = await_done(&self.disk, |done| self.disk.end(&outcome, Some(new), done)).await?;
        self.host.archive_later(&self.disk, number);
        Ok(self.disk.release()?)
    }

    /// Writes a generation and drops the instance. Waits for a turn that is going on.
    pub async fn pause(&self) -> Result<GenerationNumber, AgentError> {
        let mut running = self.enter().await?;
        self.completed(&mut running, self.disk.head()).await?;
        let _imaging = self.host.imaging.read().await;
        let (about, image) = self.newest_head().await?;
        // every turn ends with an image: what stands in memory now is what the head's image holds
        let paused = NewGeneration { cause: Cause::Paused, about: journal::encode(&about)?, on: None };
        let number = await_done(&self.disk, |done| self.disk.mark(paused, done)).await?;
        *running = None;
        if let Some(image) = image {
            self.stands(&image, number, about);
            if let Err(e) = self.stand_by() {
                tracing::debug!("opening what a paused agent has open: {e}");
            }
            let small = image.reference().bytes() <= FLATTEN_SMALL;
            let above = if small { 0 } else { FLATTEN_PAUSED };
            self.host.flatten_later(self, number, &image, above, When::Now);
            self.host.archive_later(&self.disk, number);
        }
        Ok(number)
    }

    /// What a generation made now holds of the host's: as the head's, on a flat file where one has
    /// been made since.
    pub(super) async fn newest_head(&self) -> Result<(GenerationAbout, Option<Image>), AgentError> {
        let head = self.disk.generation(self.disk.head())?;
        let mut about = self.generation_about(&head)?;
        let mut image = None;
        if let Some(reference) = &about.image {
            let found = self.host.open_image(&self.disk, head.number, reference).await?;
            about.image = Some(found.reference().clone());
            image = Some(found);
        }
        Ok((about, image))
    }

    /// Makes a generation of what the operator has written to the zones.
    async fn mark_operated(&self) -> Result<GenerationNumber, AgentError> {
        let head = self.disk.generation(self.disk.head())?;
        let about = match self.newest_head().await {
            Ok((about, _)) => about,
            // it names what the head names: whoever goes back to an earlier one needs no more
            Err(e) if e.is_lost_image() => self.generation_about(&self.disk.generation(self.disk.head())?)?,
            Err(e) => return Err(e),
        };
        // its memory is the same, and made of the same
        let on = head.on.map(|_| head.number);
        let now = NewGeneration { cause: Cause::Operated, about: journal::encode(&about)?, on };
        Ok(await_done(&self.disk, |done| self.disk.mark(now, done)).await?)
    }

    /// Drops the instance; the agent stands at its head, on disk. Waits for a turn that is going on.
    pub async fn sleep(&self) {
        let mut running = self.place.running.lock().await;
        self.fall_asleep(&mut running);
    }

    /// As [`sleep`](Self::sleep), unless the agent is being worked with.
    pub(crate) fn sleep_unless_busy(&self) {
        if let Ok(mut running) = self.place.running.try_lock() {
            self.fall_asleep(&mut running);
        }
    }

    pub(super) fn fall_asleep(&self, running: &mut Option<Running>) {
        let _policies = self.disk.keep_policies_off();
        let Some(now) = running.take() else { return };
        let image = now.image.clone();
        drop(now);
        if let Err(e) = self.stand_by() {
            // whoever resumes it tries again, and is told
            tracing::debug!("opening what a sleeping agent has open: {e}");
        }
        // whoever comes and goes with every turn is not written out whole each time
        let above = self.host.options.flatten_at;
        self.host.flatten_later(self, self.disk.head(), &image, above, When::Quiet);
    }

    /// Keeps what the agent's handles refer to open while it sleeps, so that it outlives its name.
    /// Whoever removes files of a sleeping agent calls this first.
    pub(crate) fn stand_by(&self) -> Result<(), AgentError> {
        let head = self.disk.head();
        let known = self.place.standing(head);
        let files: Vec<_> = match known {
            Some(known) => known.about.handles.open_files().collect(),
            None => match self.generation_about(&self.disk.generation(head)?) {
                Ok(about) => about.handles.open_files().collect(),
                Err(AgentError::NoMemory { .. }) => Vec::new(),
                Err(e) => return Err(e),
            },
        };
        Ok(self.disk.stand_by(head, &files)?)
    }

    /// Pins a generation, so that no policy drops it, or takes the pin away; gives whether that changed anything.
    /// Beside a turn that is going on.
    pub async fn pin(&self, generation: GenerationNumber, pinned: bool) -> Result<bool, AgentError> {
        let disk = self.disk.clone();
        Ok(threads::run(move || disk.pin(generation, pinned)).await??)
    }

    /// Drops a generation, which is neither the head nor pinned: what only it needs is given back with the next
    /// reaping. Durable when this returns.
    pub async fn drop_generation(&self, generation: GenerationNumber) -> Result<(), AgentError> {
        let (store, disk) = (self.host.store()?, self.disk.clone());
        Ok(threads::run(move || store.drop_generation(&disk, generation)).await??)
    }

    /// Takes memory, handles, semantic and procedural memory and the workspace back to generation
    /// `to`; episodic memory and logs stay as they are now.
    pub async fn rewind(&self, to: GenerationNumber) -> Result<GenerationNumber, AgentError> {
        let mut running = self.enter().await?;
        let mut about = self.completed(&mut running, to).await?;
        self.expect_component(&about).await?;
        self.expect_limits(&about)?;
        let _imaging = self.host.imaging.read().await;
        if !self.disk.stands_at_head() {
            // what the operator has written since the last turn must be there to come back to
            self.mark_operated().await?;
        }
        let head = self.generation_about(&self.disk.generation(self.disk.info()?.head)?)?;
        about.monotonic = about.monotonic.max(head.monotonic);
        about.starts = about.starts.max(head.starts);
        about.next_start = Start::Rewound;
        if let Some(reference) = &about.image {
            let image = self.host.open_whole(&self.disk, to, reference).await?;
            about.image = Some(image.reference().clone());
        }
        *running = None;
        // turns after that generation have not happened to whom stands there
        *self.place.seen() = None;
        let agent = self.about_with(&about)?.map(|agent| journal::encode(&agent)).transpose()?;
        let about = journal::encode(&about)?;
        let rewind = |done| self.disk.rewind_as(to, &about, agent.as_deref(), done);
        let number = await_done(&self.disk, rewind).await?;
        self.place.forget_standing();
        self.host.archive_later(&self.disk, number);
        Ok(number)
    }

    /// Makes new agents that begin where this one stood in generation `at`, or stands now.
    pub async fn fork(
        &self,
        names: &[AgentName],
        at: Option<GenerationNumber>,
    ) -> Result<Vec<Agent>, AgentError> {
        if names.len() > MAX_FORKS {
            return Err(AgentError::TooManyForks { found: names.len(), limit: MAX_FORKS });
        }
        let mut running = self.enter().await?;
        let about = self.completed(&mut running, at.unwrap_or(self.disk.head())).await?;
        if at.is_some() {
            self.expect_component(&about).await?;
            self.expect_limits(&about)?;
        }
        let _imaging = self.host.imaging.read().await;
        let info = self.disk.info()?;
        let at = match at {
            Some(at) => at,
            None if self.disk.stands_at_head() => info.head,
            // the operator has written since the last turn: that is part of how the agent stands
            None => self.mark_operated().await?,
        };
        let generation = self.disk.generation(at)?;
        let mut about = self.generation_about(&generation)?;
        about.next_start = Start::Forked;
        if let Some(reference) = &about.image {
            let flat = FlatName::Generation(self.disk.id().0, at.0);
            let mut image = self.host.open_whole(&self.disk, at, reference).await?;
            if names.len() >= MANY_FORKS && image.reference().changed_pages() > FLATTEN_PAUSED {
                // the first pays for all: each of them maps one file
                let (images, name) = (self.host.images.clone(), flat.clone());
                let changed = image.clone();
                threads::run(move || images.flatten(&changed, &name)).await??;
                image = self.host.images.image(reference, Some(&flat))?;
            }
            about.image = Some(image.reference().clone());
        }
        about.handles = self.inherited(about.handles);
        let mut agent = match self.about_with(&about)? {
            Some(agent) => agent,
            None => journal::decode(&info.about)?,
        };
        agent.parent = Some(info.name);
        let new = NewAgent {
            name: String::new(),
            about: journal::encode(&agent)?,
            generation: journal::encode(&about)?,
        };
        let mut children = Vec::with_capacity(names.len());
        for name in names {
            children.push((Store::new_id()?, NewAgent { name: name.as_str().into(), ..new.clone() }));
        }
        let (store, disk) = (self.host.store()?, self.disk.clone());
        let disks = threads::run(move || store.fork(&disk, at, &children)).await??;
        drop(running);
        self.host.archive_forks(&self.disk, at, &disks);
        Ok(disks.into_iter().map(|disk| self.host.adopt(disk)).collect())
    }

    /// What the host keeps about the agent once it stands at a generation of which `about` is: none where that is what
    /// it keeps now. An upgrade lies between then.
    fn about_with(&self, about: &GenerationAbout) -> Result<Option<AgentAbout>, AgentError> {
        let mut agent = self.about()?;
        if agent.world == World::Command || agent.component == about.component {
            return Ok(None);
        }
        agent.component = about.component;
        if let Some(name) = &about.component_name {
            agent.component_name.clone_from(name);
        }
        Ok(Some(agent))
    }

    /// Refuses a generation before or after an upgrade whose component cannot be had: an agent that cannot be started
    /// where it stands would be worse off than it is. It may be compiled for that, so that nothing that others wait for
    /// is held meanwhile.
    pub(super) async fn expect_component(&self, about: &GenerationAbout) -> Result<(), AgentError> {
        if let Some(agent) = self.about_with(about)? {
            self.template_of(&agent.component).await?;
        }
        Ok(())
    }

    /// Refuses a generation whose memory is larger than the agent's may be: who stood there could not be started.
    fn expect_limits(&self, about: &GenerationAbout) -> Result<(), AgentError> {
        let limit = self.limits(&self.about()?).memory as u64;
        match about.image.as_ref().map(ImageReference::bytes) {
            Some(needed) if needed > limit => Err(AgentError::MemoryLimit { needed, limit }),
            _ => Ok(()),
        }
    }

    /// The handles that a fork gets: what is open in a zone that begins anew is closed.
    fn inherited(&self, mut handles: HandleTable) -> HandleTable {
        use zone_vfs::contract::lifecycle::OnFork;
        let anew: Vec<u16> = (0u16..)
            .zip(self.disk.zones())
            .filter(|(_, z): &(u16, _)| ZoneKind::on_fork(z.kind) == OnFork::NewLog)
            .map(|(index, _)| index)
            .collect();
        handles.close_files_in(&anew);
        handles
    }

    /// Throws away what is not durable, once no commit is under way.
    pub(super) async fn abandon(&self) -> Result<(), AgentError> {
        loop {
            match self.disk.abandon() {
                Err(StoreError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
                result => return Ok(result?),
            }
        }
    }
}
