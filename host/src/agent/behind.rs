//! Images behind the turns.
//!
//! Most turns end without an image: their generations *stand on* the one before, and their memory is that one's with
//! the turn run again. An image is taken [behind](crate::ImagePolicy) a turn now and then, and wherever one is needed; the
//! generation is completed with it, and stands by itself from then on.

use std::collections::HashMap;
use std::time::Duration;

use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, Generation, StoreError, TurnRecord};

use super::replay::{Recorded, Taken};
use super::{Agent, AgentError, Running};
use crate::ImagePolicy;
use crate::image::{FlatName, Image};
use crate::journal::{self, GenerationAbout};
use crate::threads;
use crate::upkeep::When;
use crate::wasi::{MemoryLimits, OutsideError, Start};

/// What a live instance has done since its last image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinceImage {
    /// The generation that the image is of.
    pub imaged: GenerationNumber,
    /// Turns that ended since.
    pub turns: u32,
    /// Their processor time.
    pub computed: Duration,
}

impl SinceImage {
    /// None: the image is of this generation.
    pub fn none(imaged: GenerationNumber) -> Self {
        Self { imaged, turns: 0, computed: Duration::ZERO }
    }

    /// Whether an image is due behind the last turn.
    fn is_due(&self, policy: &ImagePolicy) -> bool {
        self.turns >= policy.turns || (self.turns > 0 && self.computed >= policy.replay)
    }
}

impl Agent {
    /// Whether the turn that comes to its end, after this, has to end with an image.
    pub(super) fn ends_with_image(&self, now: &Running, can_be_replayed: bool) -> bool {
        let policy = &self.host.options.images;
        // whoever is never without something to do is imaged in between all the same, and while the one behind an earlier
        // turn is on its way to the disk, not many more come
        let turns = policy.turns.min(ImagePolicy::MAX_TURNS);
        let most = if self.place.is_imaging() { turns } else { 2 * turns };
        turns <= 1
            || !can_be_replayed
            || now.since.turns + 1 >= most
            || now.live.store.data().table.has_foreign()
            || now.live.store.data().has_failed
            // what it was made of goes
            || self.disk.has_forgotten()
    }

    /// Sees to an image behind the turn that has just ended, where one is due.
    pub(super) fn image_when_due(&self, now: &Running) {
        if !now.since.is_due(&self.host.options.images) || !self.place.begin_imaging() {
            return;
        }
        let agent = self.clone();
        tokio::spawn(async move {
            if let Err(e) = agent.image_behind().await {
                // the next start runs the turns again
                tracing::warn!("an image behind a turn: {}", zone_vfs::told(&e));
            }
            agent.place.end_imaging();
        });
    }

    /// Takes an image of how the agent stands, in memory, and makes it durable while turns go on.
    async fn image_behind(&self) -> Result<(), AgentError> {
        let mut running = self.enter().await?;
        let _imaging = self.host.imaging.read().await;
        let Some(mut now) = running.take() else { return Ok(()) };
        if now.since.turns == 0 || !now.stands || !now.stands_at(self.disk.head()) {
            *running = Some(now);
            return Ok(());
        }
        let taken = threads::run(move || {
            let taken = now.capture();
            (now, taken)
        });
        let (now, taken) = taken.await?;
        let (number, image, about) = taken.map_err(|e| self.not_taken(&now, e))?;
        self.host.note_parked(self, now.live.private_bytes());
        *running = Some(now);
        drop(running);
        let (disk, kept) = (self.disk.clone(), image.clone());
        let completed = threads::run(move || {
            kept.sync()?;
            Ok::<_, AgentError>(disk.complete(number, &journal::encode(&about)?)?)
        });
        if let Err(e) = completed.await.and_then(|it| it) {
            // what it stands on is not durable: whoever comes next begins from what is
            let mut running = self.place.running.lock().await;
            if let Some(now) = running.as_mut() {
                now.stands = false;
            }
            *running = None;
            return Err(e);
        }
        self.host.flatten_later(self, number, &image, self.host.flatten_above(&image), When::Quiet);
        Ok(())
    }

    /// What the host keeps of a generation, which has an image after this if it has a memory: where it stands on
    /// another, from the instance that stands there, or by running turns again.
    pub(super) async fn completed(
        &self,
        running: &mut Option<Running>,
        number: GenerationNumber,
    ) -> Result<GenerationAbout, AgentError> {
        let generation = self.disk.generation(number)?;
        if generation.on.is_none() {
            return self.generation_about(&generation);
        }
        // one that was taken behind a turn is on its way
        let _imaging = self.host.imaging.read().await;
        match running.take() {
            Some(mut now) if now.stands && now.stands_at(number) && now.since.turns > 0 => {
                let taken = threads::run(move || {
                    let taken = now.complete();
                    (now, taken)
                });
                let (now, taken) = taken.await?;
                taken.map_err(|e| self.not_taken(&now, e))?;
                *running = Some(now);
            }
            other => {
                *running = other;
                self.made_again(&generation).await?;
            }
        }
        self.place.forget_standing();
        self.generation_about(&self.disk.generation(number)?)
    }

    /// As [`completed`](Self::completed), of one that may be dropped at any time.
    pub(crate) async fn completed_or_gone(
        &self,
        running: &mut Option<Running>,
        number: GenerationNumber,
    ) -> Result<(), AgentError> {
        match self.disk.generation(number) {
            Ok(it) if it.on.is_some() => match self.completed(running, number).await {
                Err(AgentError::Store(StoreError::NoGeneration { .. })) => Ok(()),
                completed => completed.map(drop),
            },
            _ => Ok(()),
        }
    }

    /// Why no image could be taken of an instance, noted where what it is mapped from is not what it was.
    fn not_taken(&self, now: &Running, e: AgentError) -> AgentError {
        match e {
            AgentError::Image(lost) if lost.is_lost() => self.not_read(&now.mapped, lost),
            e => e,
        }
    }

    /// Completes a generation that stands on another by running the turns since again.
    async fn made_again(&self, generation: &Generation) -> Result<(), AgentError> {
        let (base, turns) = self.stands_on(generation)?;
        match self.run_again(generation, &base, &turns).await {
            Err(AgentError::Image(lost)) if lost.is_lost() => {
                let about = self.generation_about(&base)?;
                let reference =
                    about.image.as_ref().ok_or(AgentError::NoMemory { generation: base.number })?;
                self.host.make_again(&self.disk, base.number, reference, lost).await?;
                self.run_again(generation, &base, &turns).await
            }
            made => made,
        }
    }

    /// The generation that this one is made of, which stands by itself, and those of turns between, with its own.
    fn stands_on(&self, generation: &Generation) -> Result<(Generation, Vec<Generation>), AgentError> {
        let (mut at, mut turns) = (generation.clone(), Vec::new());
        while let Some(on) = at.on {
            let before = self.disk.generation(on)?;
            // otherwise nothing lies between that memory would know of
            if at.cause == Cause::Turn {
                turns.push(at);
            }
            at = before;
        }
        turns.reverse();
        Ok((at, turns))
    }

    async fn run_again(
        &self,
        generation: &Generation,
        base: &Generation,
        turns: &[Generation],
    ) -> Result<(), AgentError> {
        let not_made = |turn, reason: String| AgentError::NotMadeAgain {
            generation: generation.number,
            turn,
            reason,
            last: base.number,
        };
        let about = self.generation_about(base)?;
        self.expect_component(&about).await?;
        let reference = about.image.as_ref().ok_or(AgentError::NoMemory { generation: base.number })?;
        let image = self.host.open_image(&self.disk, base.number, reference).await?;
        let template = self.template_of(&about.component).await?;
        let limits = MemoryLimits::new(usize::MAX, usize::MAX);
        let (mut live, _) = template.slot(&image, limits, &self.host).await?;
        let identity = self.identity()?;
        // all at once: the history lies in pieces of many turns
        let (after, up_to) = (base.turn, turns.last().map_or(base.turn, |it| it.turn));
        let records = self.disk.history_after(after, (up_to.0 - after.0) as usize)?;
        let mut records: HashMap<Turn, TurnRecord> = records.into_iter().map(|it| (it.turn, it)).collect();
        for (index, of) in turns.iter().enumerate() {
            let recorded = self.recorded_of(of.turn, records.remove(&of.turn));
            let recorded = recorded.map_err(|e| not_made(of.turn, zone_vfs::told(&e)))?;
            let over = (index == 0).then_some(&image);
            let Recorded { record, began, .. } = &recorded;
            let (turn, base) = (record.turn, began.base);
            // it came to its end under the limit of its time, which may be less by now, or nearly was
            let taken = self.take_again(&mut live, over, &identity, &recorded, None, std::future::pending());
            let Taken { called, .. } = taken.await?;
            if live.is_unreadable() {
                return Err(AgentError::Image(image.unreadable()));
            }
            let differs = match called {
                Err(AgentError::Outside(OutsideError::Diverged(at))) => Some(at.to_string()),
                called => self.outcomes(called, &record.outcome)?.map(|it| it.to_string()),
            };
            if let Some(differs) = differs {
                return Err(not_made(turn, differs));
            }
            tracing::debug!(agent = %self.id(), %turn, %base, "run again");
            live.save().await?;
        }
        let agent = self.id().0;
        let kept = self.generation_about(generation)?;
        let (images, disk, number) = (self.host.images.clone(), self.disk.clone(), generation.number);
        threads::run(move || {
            let flat = FlatName::Generation(agent, number.0);
            if let Some(wrong) = live.look() {
                return Err(AgentError::Image(wrong));
            }
            // SAFETY: the instance is owned here, and no call of it is under way.
            let image = unsafe { images.capture(&live.memories, &image, agent, &flat)? };
            let about = GenerationAbout { image: Some(image.reference().clone()), ..kept };
            Ok(disk.complete(number, &journal::encode(&about)?)?)
        })
        .await?
    }
}

impl Running {
    /// Whether its memory is that of this generation.
    pub fn stands_at(&self, number: GenerationNumber) -> bool {
        self.at == number
    }

    /// What the host keeps of a generation that is made of how it stands.
    pub fn about(&self, image: Option<&Image>, next_start: Start) -> GenerationAbout {
        let state = self.live.store.data();
        GenerationAbout {
            component: self.component,
            component_name: Some(self.component_name.clone()),
            layout: crate::component::LAYOUT_VERSION,
            image: image.map(|image| image.reference().clone()),
            handles: state.table.detached(),
            monotonic: state.outside.now(),
            starts: self.starts,
            next_start,
        }
    }

    /// Takes the image of how it stands, which is not durable yet, and gives the generation that it is of and what the
    /// host keeps of that with it.
    fn capture(&mut self) -> Result<(GenerationNumber, Image, GenerationAbout), AgentError> {
        if let Some(wrong) = self.live.look() {
            return Err(AgentError::Image(wrong));
        }
        let (disk, images) = (&self.disk, &self.host.images);
        let agent = disk.id().0;
        let of = FlatName::Generation(agent, self.since.imaged.0);
        if let Some(flat) = images.rebase(&self.image, &of)? {
            self.image = flat;
        }
        let flat = FlatName::Generation(agent, self.at.0);
        let generation = disk.generation(self.at)?;
        let about: GenerationAbout = journal::decode(&disk.payload(&generation.about)?)?;
        // SAFETY: the instance is owned here, and no call of it is under way.
        let image = unsafe { images.capture_unsynced(&self.live.memories, &self.image, agent, &flat)? };
        let about = GenerationAbout { image: Some(image.reference().clone()), ..about };
        self.image = image.clone();
        self.since = SinceImage::none(self.at);
        Ok((self.at, image, about))
    }

    /// Completes the generation at which it stands.
    pub fn complete(&mut self) -> Result<(), AgentError> {
        let (number, image, about) = self.capture()?;
        image.sync()?;
        Ok(self.disk.complete(number, &journal::encode(&about)?)?)
    }
}
