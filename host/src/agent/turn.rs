//! A turn of an agent: one call of `handle`.

use std::fmt::Write as _;
use std::future::Future;
use std::time::{Duration, Instant};

use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, NewGeneration, TurnStyle};

use super::behind::SinceImage;
use super::bindings::{AgentWorld, WitEvent};
use super::generation::await_done;
use super::{Agent, AgentError, Live, Running, Template};
use crate::code::{OutOfTime, metered};
use crate::image::{EXCEPTION_HEAP, FlatName, ImageError};
use crate::journal::{self, EventRecord, GenerationAbout, OutcomeRecord, World};
use crate::threads;
use crate::upkeep::When;
use crate::wasi::{OutsideError, Start};

/// Bytes of an event's payload, at most: it must fit the guest's memory twice.
pub const MAX_PAYLOAD: usize = 32 << 20;

/// Bytes of an event's id, at most.
pub const MAX_EVENT_ID: usize = 1024;

/// An image is taken in the thread that waits for it where the agent wrote to no more than this before, and is the only
/// one in a turn. Bytes.
const IMAGED_HERE: u64 = 8 << 20;

/// Something that happened, for an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Names the event. One that is sent again under the same id gets the first reply, unless that
    /// turn failed or was rewound: so whoever does not know whether an event arrived can repeat it.
    /// At most [`MAX_EVENT_ID`] bytes.
    pub id: String,
    /// What sort of event it is; `message` for what `dormouse send` brings.
    pub kind: String,
    /// Its content.
    pub payload: Vec<u8>,
}

impl Event {
    /// A message with a fresh id.
    pub fn message(payload: impl Into<Vec<u8>>) -> Result<Self, AgentError> {
        let id = zone_vfs::store::Store::new_id()?;
        Ok(Self { id: id.to_string(), kind: "message".into(), payload: payload.into() })
    }
}

/// A turn that ended, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnReport {
    /// Its number.
    pub turn: Turn,
    /// The generation that was made at its end.
    pub generation: GenerationNumber,
    /// The reply, or the error that the agent answered with.
    pub reply: Result<Vec<u8>, String>,
    /// From the event to the durable reply.
    pub took: Duration,
    /// What of that was spent on the image: finding the pages that have changed, and writing and syncing them. Nothing
    /// where the turn is not a new one.
    pub imaging: Duration,
    /// The event had been answered before: no turn was taken, and this is the first reply.
    pub repeated: bool,
}

impl Agent {
    /// Takes one turn, and gives the reply when it is durable. Turns queue, in the order in which they are sent.
    ///
    /// # Errors
    ///
    /// [`AgentError::TooManyWaiting`] where as many wait already as [may](crate::HostOptions::max_waiting); what went wrong
    /// with the turn, which then took no effect.
    pub async fn send(&self, event: Event) -> Result<TurnReport, AgentError> {
        self.send_until(event, std::future::pending()).await
    }

    /// As [`Agent::send`]; the turn is cancelled, and the agent stands where it stood, when `cancel`
    /// comes first.
    pub async fn send_until(
        &self,
        event: Event,
        cancel: impl Future<Output = ()>,
    ) -> Result<TurnReport, AgentError> {
        let started = Instant::now();
        if event.payload.len() > MAX_PAYLOAD {
            return Err(AgentError::PayloadTooLarge { len: event.payload.len(), limit: MAX_PAYLOAD });
        }
        if event.id.len() > MAX_EVENT_ID {
            return Err(AgentError::EventIdTooLong { len: event.id.len(), limit: MAX_EVENT_ID });
        }
        self.expect(World::Agent, "its turns are taken by `dormouse run`, not `send`")?;
        let limit = self.host.options.max_waiting;
        let _in_line = self.place.wait_in_line(limit).ok_or(AgentError::TooManyWaiting { limit })?;
        let mut running = self.enter().await?;
        if let Some((turn, generation, reply)) = self.answered(&event.id)? {
            let took = started.elapsed();
            return Ok(TurnReport { turn, generation, reply, took, imaging: Duration::ZERO, repeated: true });
        }
        let mut cancel = std::pin::pin!(cancel);
        let brought = tokio::select! {
            brought = self.ensure_running(&mut running) => brought.map(drop),
            () = &mut cancel => Err(AgentError::Cancelled),
        };
        if matches!(brought, Err(AgentError::Cancelled)) {
            // what was opened on the way is let go; its own genesis, if that was under way, has not been
            if self.disk.is_in_turn() { self.abandon().await? } else { self.disk.release()? }
        }
        brought?;
        let Some(now) = running.as_mut() else {
            return Err(AgentError::Task("the agent is not running after a resume".into()));
        };
        let record = EventRecord::Event {
            id: event.id.clone(),
            kind: event.kind.clone(),
            payload: event.payload.clone(),
        };
        let began = self.begins(now)?;
        let can_be_replayed = began.zones_as_in_base && !began.has_connections;
        let began = journal::facts::encode_began(&began)?;
        now.stands = false;
        now.live.store.data_mut().has_failed = false;
        now.live.store.data_mut().outside.begin(&began).map_err(AgentError::Outside)?;
        let turn = self.disk.begin(TurnStyle::Transaction, &journal::encode(&record)?)?;
        let id = event.id.clone();
        let limit = self.host.options.turn_time;
        let time = now.live.begin_call(now.cpu_time);
        let cancelled = self.place.can_be_cancelled();
        let called = {
            let call = metered(time.clone(), call_handle(now, event));
            tokio::select! {
                result = call => result,
                () = &mut cancel => Err(AgentError::Cancelled),
                Ok(()) = cancelled => Err(AgentError::Cancelled),
                () = tokio::time::sleep(limit) => Err(AgentError::Timeout(limit)),
            }
        };
        now.since.computed += time.used();
        // a turn that has come to its end is looked at behind it, beside what others do
        let looked_at = running.as_ref().filter(|now| called.is_err() || now.live.is_unreadable());
        if let Some(e) = looked_at.and_then(|now| self.unreadable(now)) {
            return Err(self.give_up(&mut running, e).await);
        }
        let reply = match called {
            Ok(reply) => reply,
            Err(e) => return Err(self.fail(&mut running, e).await),
        };
        match self.commit(&mut running, &reply, can_be_replayed).await {
            Ok((generation, imaging)) => {
                self.note_answered(&id, turn);
                Ok(TurnReport { turn, generation, reply, took: started.elapsed(), imaging, repeated: false })
            }
            Err(e) => Err(self.give_up(&mut running, e).await),
        }
    }

    /// Cancels the turn that goes on, which fails with [`AgentError::Cancelled`] wherever it was sent from; the agent stands
    /// where it stood. Whether there was one that had not come to its end.
    pub fn cancel(&self) -> bool {
        self.place.cancel()
    }

    /// Cancels the turn that goes on, and [pauses](Self::pause) the agent. Turns that wait already are taken before.
    pub async fn pause_now(&self) -> Result<GenerationNumber, AgentError> {
        self.cancel();
        self.pause().await
    }

    pub(super) fn expect(&self, world: World, wanted: &'static str) -> Result<(), AgentError> {
        let found = self.about()?.world;
        if found == world {
            return Ok(());
        }
        Err(AgentError::World { agent: self.disk.info()?.name, found: found.name(), wanted })
    }

    /// The turn's end: the image, where it is to have one, and then one commit that ties everything together.
    async fn commit(
        &self,
        running: &mut Option<Running>,
        reply: &Result<Vec<u8>, String>,
        can_be_replayed: bool,
    ) -> Result<(GenerationNumber, Duration), AgentError> {
        let Some(mut now) = running.take() else {
            return Err(AgentError::Task("the agent is not running at its turn's end".into()));
        };
        // no image file is reaped between the image and the commit that names it
        let _imaging = self.host.imaging.read().await;
        let began = Instant::now();
        now.live.save().await?;
        let with_image = self.ends_with_image(&now, can_be_replayed);
        self.hand_over_facts(&mut now)?;
        now.live.store.data_mut().outside.end().map_err(AgentError::Outside)?;
        let on = if with_image { None } else { Some(self.disk.head()) };
        let (mut now, about) = if with_image {
            let imaged = FlatName::Generation(self.disk.id().0, now.since.imaged.0);
            if let Some(flat) = self.host.images.rebase(&now.image, &imaged)? {
                now.image = flat;
            }
            self.capture(now, Start::Resumed).await?
        } else {
            if let Some(e) = self.unreadable(&now) {
                return Err(e);
            }
            let about = now.about(None, Start::Resumed);
            (now, about)
        };
        let imaging = if with_image { began.elapsed() } else { Duration::ZERO };
        // it has read what the guest has not
        if now.live.is_unreadable()
            && let Some(e) = self.unreadable(&now)
        {
            return Err(e);
        }
        let outcome = match reply {
            Ok(payload) => OutcomeRecord::Reply(payload.clone()),
            Err(text) => OutcomeRecord::Refused(text.clone()),
        };
        let outcome = journal::encode(&outcome)?;
        let generation = NewGeneration { cause: Cause::Turn, about: journal::encode(&about)?, on };
        self.before_forgetting().await?;
        let number = await_done(&self.disk, |done| self.disk.end(&outcome, Some(generation), done)).await?;
        self.host.note_parked(self, now.live.private_bytes());
        (now.at, now.stands) = (number, true);
        if with_image {
            now.since = SinceImage::none(number);
            let above = self.host.flatten_above(&now.image);
            self.host.flatten_later(self, number, &now.image, above, When::Quiet);
            self.stands(&now.image, number, about);
            if let Some(standing) = self.place.standing(number) {
                standing.template.note_written(&now.image);
            }
        } else {
            now.since.turns += 1;
            self.host.note_generation(number);
            self.image_when_due(&now);
        }
        *running = Some(now);
        Ok((number, imaging))
    }

    /// That a page which the instance has used could not be read, or is not what it was, where that is so; the file is
    /// then looked at anew before it is used again.
    pub(super) fn unreadable(&self, now: &Running) -> Option<AgentError> {
        now.live.look().map(|source| self.not_read(&now.mapped, source))
    }

    /// Notes what is wrong with the file that a memory is mapped from.
    pub(super) fn not_read(&self, mapped: &FlatName, source: ImageError) -> AgentError {
        self.host.images.note_unreadable(mapped);
        self.place.forget_standing();
        let agent = self.disk.info().map(|info| info.name).unwrap_or_default();
        AgentError::ImageRead { agent, generation: self.disk.head(), source }
    }

    /// Takes the image of a live instance whose globals have been saved.
    pub(super) async fn capture(
        &self,
        running: Running,
        next_start: Start,
    ) -> Result<(Running, GenerationAbout), AgentError> {
        let images = self.host.images.clone();
        let agent = self.disk.id().0;
        let next = self.disk.next_generation();
        let mapped = running.mapped.clone();
        // to hand it to another thread takes as long as a small image does
        let here = running.live.private_bytes() <= IMAGED_HERE && self.disk.is_alone();
        let take = move || {
            let mut now = running;
            if let Some(wrong) = now.live.look() {
                return Ok(Err(wrong));
            }
            let flat = FlatName::Generation(agent, next.0);
            // SAFETY: the instance is owned here, and no call of it is under way.
            let image = unsafe { images.capture(&now.live.memories, &now.image, agent, &flat)? };
            let about = now.about(Some(&image), next_start);
            now.image = image;
            Ok::<_, AgentError>(Ok((now, about)))
        };
        let taken = if here { take()? } else { threads::run(take).await?? };
        taken.map_err(|wrong| self.not_read(&mapped, wrong))
    }

    /// Fails the turn for `reason`: the instance is thrown away, the agent stands at its head, and
    /// what the turn left is kept beside.
    pub(super) async fn fail(&self, running: &mut Option<Running>, reason: AgentError) -> AgentError {
        if let Some(mut now) = running.take()
            && let Err(e) = self.hand_over_facts(&mut now)
        {
            // the turn fails all the same, and is not told by its facts
            tracing::warn!("the facts of a turn that failed: {}", zone_vfs::told(&e));
        }
        match self.settled_fail(&reason.to_string()).await {
            Ok(()) => reason,
            Err(e) => {
                tracing::error!("the failed turn could not be recorded: {}", zone_vfs::told(&e));
                self.give_up(running, reason).await
            }
        }
    }

    /// Has the file made again of which a page was not what it had been, as far as that can be done: the next to come, in
    /// this process or another, finds it whole.
    async fn mend(&self, lost: &ImageError) {
        let made = async {
            let head = self.generation_about(&self.disk.generation(self.disk.head())?)?;
            self.mend_genesis(&*self.template_of(&head.component).await?, lost).await?;
            let (_, image) = self.standing().await?;
            let flat = FlatName::Generation(self.disk.id().0, self.disk.head().0);
            if image.reference().base() == &flat || lost.file() != Some(&flat.to_string()) {
                return Ok(());
            }
            // it was made of files that may be there
            let (images, made_of) = (self.host.images.clone(), image.clone());
            match threads::run(move || images.flatten(&made_of, &flat)).await? {
                Err(e) if e.is_lost() => {
                    self.host.make_again(&self.disk, self.disk.head(), image.reference(), e).await
                }
                made => Ok(made?),
            }
        };
        if let Err(e) = made.await {
            // whoever comes next is told
            tracing::warn!("what a turn could not be taken on was not made again: {}", zone_vfs::told(&e));
        }
    }

    /// Makes the genesis image of a component anew where that is the file that is `lost`.
    pub(super) async fn mend_genesis(
        &self,
        template: &Template,
        lost: &ImageError,
    ) -> Result<(), AgentError> {
        let name = FlatName::Genesis(template.key).to_string();
        if lost.file() == Some(&name) { template.genesis_again(&self.host.images).await } else { Ok(()) }
    }

    /// A commit was refused (a full disk, say): nothing of the turn took effect.
    pub(super) async fn give_up(&self, running: &mut Option<Running>, reason: AgentError) -> AgentError {
        *running = None;
        if let Err(e) = self.abandon().await {
            tracing::error!("going back after a refused commit: {}", zone_vfs::told(&e));
        }
        if let AgentError::ImageRead { source, .. } = &reason {
            self.mend(source).await;
        }
        reason
    }
}

async fn call_handle(now: &mut Running, event: Event) -> Result<Result<Vec<u8>, String>, AgentError> {
    if let Some(pages) = now.populate.take().filter(|_| now.image.is_flat()) {
        // SAFETY: the instance is owned here, and no call of it is under way.
        unsafe { now.image.populate(&now.live.memories, &pages) };
    }
    let tells_start = std::mem::take(&mut now.to_tell);
    call_agent(&mut now.live, event, tells_start).await
}

/// Calls `handle`, after `resumed` where the turn tells the component that its memory has come to life.
pub(super) async fn call_agent(
    live: &mut Live,
    event: Event,
    tells_start: bool,
) -> Result<Result<Vec<u8>, String>, AgentError> {
    live.store.set_epoch_deadline(1);
    let world = AgentWorld::new(&mut live.store, &live.instance).map_err(|e| {
        AgentError::Instantiate(format!("its `handle` is not that of dormouse:agent/agent: {e:#}"))
    })?;
    if tells_start {
        live.call_resumed().await?;
    }
    let event = WitEvent { id: event.id, kind: event.kind, payload: event.payload };
    let reply = world.call_handle(&mut live.store, &event).await.map_err(|e| failed(&e))?;
    Ok(reply.map(|reply| reply.payload))
}

/// Why a call of the guest's did not return.
pub(super) fn failed(e: &wasmtime::Error) -> AgentError {
    if let Some(OutOfTime(limit)) = e.downcast_ref() {
        return AgentError::CpuTime(*limit);
    }
    match e.downcast_ref::<OutsideError>() {
        Some(e) => AgentError::Outside(e.clone()),
        None => AgentError::Trap { reason: trap_reason(e) },
    }
}

/// What happened: the trap's own words, then the top of the guest's backtrace.
pub(super) fn trap_reason(e: &wasmtime::Error) -> String {
    if let Some(exit) = e.downcast_ref::<crate::wasi::Exit>() {
        return format!("the agent called exit with status {}", exit.0);
    }
    let mut reason = e.root_cause().to_string();
    if e.is::<wasmtime::ThrownException>() {
        reason.push_str(", which nobody caught");
    } else if e.is::<wasmtime::GcHeapOutOfMemory<()>>() {
        let _ = write!(
            reason,
            ": the exceptions that it holds take more than {} MiB, or than is left of its memory",
            EXCEPTION_HEAP >> 20
        ); // a String takes all
    }
    if let Some(backtrace) = e.downcast_ref::<wasmtime::WasmBacktrace>() {
        let names: Vec<String> = backtrace
            .frames()
            .iter()
            .map(|frame| match frame.func_name() {
                Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
                None => format!("function {}", frame.func_index()),
            })
            .collect();
        // how a panic comes about says nothing about the guest
        let told: Vec<&String> =
            names.iter().skip_while(|name| MACHINERY.iter().any(|m| name.contains(m))).collect();
        let told = if told.is_empty() { names.iter().collect() } else { told };
        for name in told.iter().take(FRAMES) {
            reason.push_str("\n    at ");
            reason.push_str(name);
        }
        if told.len() > FRAMES {
            let _ = write!(reason, "\n    and {} more", told.len() - FRAMES); // a String takes all
        }
    }
    reason
}

/// Functions of a language's own that lie between a panic and the trap.
const MACHINERY: [&str; 6] = ["std::", "core::", "__rust", "rust_panic", "rust_begin_unwind", "abort"];
/// Functions of a guest's backtrace that are told.
const FRAMES: usize = 8;
