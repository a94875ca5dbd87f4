//! Upgrade: another component for an agent that lives on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, NewGeneration, TurnStyle};

use super::generation::await_done;
use super::{Agent, AgentError, Entered, Live, Template};
use crate::code::metered;
use crate::image::{FlatName, Image};
use crate::journal::{self, AgentAbout, EventRecord, GenerationAbout, OutcomeRecord, World};
use crate::threads;
use crate::upkeep::When;
use crate::wasi::{HandleTable, Start};

/// Bytes that one component hands to the next, at most.
pub const MAX_STATE: usize = 32 << 20;

/// How an agent is upgraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpgradeOptions {
    /// Nothing is handed over: `save` of the old component is not called, and it need not even load.
    pub fresh: bool,
}

/// An agent that has another component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The turn as which the upgrade is in the history.
    pub turn: Turn,
    /// The generation that it made.
    pub generation: GenerationNumber,
    /// What the old component has handed to the new one.
    pub handed_over: HandOver,
}

/// What became of what an agent knew in memory, when it was upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// The old component saved so many bytes, and the new one loaded them.
    Bytes(u64),
    /// The old component exports no `save`.
    NoSave,
    /// The new component exports no `load`, so that the old one was not asked.
    NoLoad,
    /// Nothing was to be handed over.
    Fresh,
}

/// What an upgraded agent is to begin from.
struct Anew {
    live: Live,
    /// What its memories are mapped from, where they are.
    over: Option<Image>,
    handed_over: HandOver,
}

impl Agent {
    /// Gives an agent that takes events another component, which `template` is of. Zones, history and name stay;
    /// memory begins from the new component's genesis, open files are closed, and what the old component's `save`
    /// returns is given to the new one's `load`. All of it is one turn: where any of it fails, the agent stands as it
    /// stood. None where it has the component already.
    ///
    /// # Errors
    ///
    /// [`AgentError::Upgrade`] where `save` or `load` answer with an error, and what a turn can end with.
    pub(crate) async fn upgrade_to(
        &self,
        component: [u8; 32],
        template: &Arc<Template>,
        name: &str,
        options: UpgradeOptions,
        cancel: impl Future<Output = ()>,
    ) -> Result<Option<Upgraded>, AgentError> {
        self.expect(World::Agent, "a command gets another component with `dormouse run --name`")?;
        let mut running = self.enter().await?;
        let mut agent = self.about()?;
        if template.world != agent.world {
            let (agent, found, wanted) = (self.disk.info()?.name, template.world.name(), agent.world.name());
            return Err(AgentError::UpgradeWorld { agent, found, wanted });
        }
        if agent.component == component {
            return Ok(None);
        }
        let mut cancel = std::pin::pin!(cancel);
        let hands_over = if options.fresh {
            HandOver::Fresh
        } else if !self.template_of(&agent.component).await?.optional.save {
            HandOver::NoSave
        } else if !template.optional.load {
            HandOver::NoLoad
        } else {
            HandOver::Bytes(0)
        };
        if let HandOver::Bytes(_) = hands_over {
            let brought = tokio::select! {
                brought = self.ensure_running(&mut running) => brought.map(drop),
                () = &mut cancel => Err(AgentError::Cancelled),
            };
            if matches!(brought, Err(AgentError::Cancelled)) {
                if self.disk.is_in_turn() { self.abandon().await? } else { self.disk.release()? }
            }
            brought?;
        }
        agent.component = component;
        agent.component_name = name.into();
        let event = EventRecord::Upgrade { component, component_name: name.into() };
        let turn = self.disk.begin(TurnStyle::Transaction, &journal::encode(&event)?)?;
        let limit = self.host.options.turn_time;
        let made = tokio::select! {
            made = self.anew(&mut running, hands_over, &agent, template) => made,
            () = &mut cancel => Err(AgentError::Cancelled),
            () = tokio::time::sleep(limit) => Err(AgentError::Timeout(limit)),
        };
        let anew = match made {
            Ok(anew) => anew,
            // nothing that was done on memory that nobody could read may be kept
            Err(e @ AgentError::ImageRead { .. }) => return Err(self.give_up(&mut running, e).await),
            Err(e) => return Err(self.fail(&mut running, e).await),
        };
        let handed_over = anew.handed_over;
        let committed = self.commit_upgrade(anew, &agent).await;
        if let Err(AgentError::ImageRead { source, .. }) = &committed {
            self.mend_genesis(template, source).await?;
        }
        match committed {
            Ok(generation) => Ok(Some(Upgraded { turn, generation, handed_over })),
            Err(e) => Err(self.give_up(&mut running, e).await),
        }
    }

    /// Ends the old instance, and makes one of the new component over the agent's zones.
    async fn anew(
        &self,
        running: &mut Entered<'_>,
        hands_over: HandOver,
        agent: &AgentAbout,
        template: &Arc<Template>,
    ) -> Result<Anew, AgentError> {
        let (mut saved, mut computed) = (None, Duration::ZERO);
        if let Some(now) = running.as_mut().filter(|_| matches!(hands_over, HandOver::Bytes(_))) {
            let time = now.live.begin_call(now.cpu_time);
            let save = metered(time.clone(), now.live.call_save());
            let state = save.await;
            if let Some(e) = self.unreadable(now) {
                return Err(e);
            }
            let state = state?.map_err(|text| AgentError::Upgrade { of: "save", text })?;
            if state.len() > MAX_STATE {
                return Err(AgentError::StateTooLarge { len: state.len(), limit: MAX_STATE });
            }
            saved = Some(state);
            computed = time.used();
        }
        **running = None;
        let head = self.generation_about(&self.disk.generation(self.disk.head())?)?;
        let begin = GenerationAbout { handles: HandleTable::default(), next_start: Start::Upgraded, ..head };
        let identity = self.identity_of(agent)?;
        let genesis = template.genesis(&self.host.images).await?;
        // all of it together has the time of one turn
        let left = identity.cpu_time.map(|limit| limit.saturating_sub(computed));
        let state = |generation: &GenerationAbout| -> Result<_, AgentError> {
            let mut state = self.state(&identity, generation, generation.starts + 1);
            state.attach(self.disk.clone(), &identity.mounts, false)?;
            let time = state.cpu.begin(left);
            Ok((state, time))
        };
        let (mut live, over, time) = if genesis.touched.any() {
            let (state, time) = state(&begin)?;
            (metered(time.clone(), template.boot_genesis(state)).await?, None, time)
        } else {
            genesis.fits(&identity.limits)?;
            let begin = GenerationAbout { handles: genesis.handles.clone(), ..begin };
            let (mut live, _) = template.slot(&genesis.image, identity.limits, &self.host).await?;
            let (state, time) = state(&begin)?;
            live.restore(&genesis.image, state).await?;
            (live, Some(genesis.image.clone()), time)
        };
        let mut handed_over = hands_over;
        if let Some(bytes) = saved {
            handed_over = HandOver::Bytes(bytes.len() as u64);
            let load = metered(time, live.call_load(bytes));
            load.await?.map_err(|text| AgentError::Upgrade { of: "load", text })?;
        }
        live.save().await?;
        Ok(Anew { live, over, handed_over })
    }

    /// The image, and the one commit that makes the agent another.
    async fn commit_upgrade(&self, anew: Anew, agent: &AgentAbout) -> Result<GenerationNumber, AgentError> {
        // no image file is reaped between the image and the commit that names it
        let _imaging = self.host.imaging.read().await;
        let head = self.generation_about(&self.disk.generation(self.disk.head())?)?;
        let (images, id, next) = (self.host.images.clone(), self.disk.id().0, self.disk.next_generation());
        let taken = threads::run(move || {
            let Anew { live, over, .. } = anew;
            let flat = FlatName::Generation(id, next.0);
            if let (Some(over), Some(wrong)) = (&over, live.look()) {
                return Ok(Err((over.reference().base().clone(), wrong)));
            }
            // SAFETY: the instance is owned here, and no call of it is under way.
            let image = unsafe {
                match &over {
                    Some(over) => images.capture(&live.memories, over, id, &flat)?,
                    None => images.capture_flat(&live.memories, &flat)?,
                }
            };
            Ok::<_, AgentError>(Ok((live, image)))
        })
        .await??;
        let (mut live, image) = taken.map_err(|(mapped, wrong)| self.not_read(&mapped, wrong))?;
        if live.is_unreadable() {
            return Err(self.not_read(image.reference().base(), image.unreadable()));
        }
        let state = live.store.data_mut();
        let about = GenerationAbout {
            component: agent.component,
            component_name: Some(agent.component_name.clone()),
            layout: crate::component::LAYOUT_VERSION,
            image: Some(image.reference().clone()),
            handles: state.table.detached(),
            monotonic: state.outside.now(),
            starts: head.starts + 1,
            next_start: Start::Upgraded,
        };
        let generation = NewGeneration { cause: Cause::Upgraded, about: journal::encode(&about)?, on: None };
        let (outcome, agent) = (journal::encode(&OutcomeRecord::Upgraded)?, journal::encode(agent)?);
        self.before_forgetting().await?;
        let commit = |done| self.disk.end_as(&outcome, Some(generation), Some(&agent), done);
        let number = await_done(&self.disk, commit).await?;
        drop(live);
        // what the old instance had open goes with the next start
        self.disk.release()?;
        self.place.forget_standing();
        self.host.flatten_later(self, number, &image, self.host.flatten_above(&image), When::Quiet);
        self.host.archive_later(&self.disk, number);
        Ok(number)
    }
}
