//! Agents: turns, pause, resume, fork and rewind.
//!
//! - [`Agent`] is one agent of an open [`crate::Host`].
//! - `instance` is a live wasmtime instance and how one is made and brought to where an image stood.
//! - `template` is what all agents of one component share: code, genesis image, warm slots.

mod audit;
mod behind;
mod bindings;
mod bounds;
mod error;
mod facts;
mod forget;
mod generation;
mod instance;
mod name;
mod optional;
mod quota;
mod replay;
mod run;
mod seen;
mod session;
mod standing;
mod template;
#[cfg(test)]
pub(crate) mod tests;
mod turn;
mod upgrade;
mod warm;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use zone_vfs::id::{AgentId, GenerationNumber};
use zone_vfs::store::{Disk, DiskInfo, Generation, PoliciesOff, StoreError};

use crate::host::HostShared;
use crate::image::{FlatName, Image, PageRun};
use crate::journal::{self, AgentAbout, GenerationAbout};
use crate::upkeep::InMemory;

pub(crate) use self::audit::has_room;
pub use self::bounds::AgentLimits;
pub use self::error::AgentError;
pub use self::generation::MAX_FORKS;
pub use self::name::{AgentName, InvalidName};
pub use self::quota::{InvalidQuota, QuotaOption};
pub use self::replay::{Difference, Replay};
pub use self::run::{RunOptions, RunOutcome};
pub use self::turn::{Event, MAX_EVENT_ID, MAX_PAYLOAD, TurnReport};
pub use self::upgrade::{HandOver, MAX_STATE, UpgradeOptions, Upgraded};
pub use self::zones::{MountOption, ZoneOption, ZoneOptionError, default_zones};

pub(crate) use self::behind::SinceImage;
pub(crate) use self::bindings::link_lifecycle;
pub(crate) use self::generation::await_done;
pub(crate) use self::instance::Live;
pub(crate) use self::standing::Place;
pub(crate) use self::template::{Template, world_of};
pub(crate) use self::warm::Budget;
pub(crate) use self::zones::{Mounting, ZonePlan, named_mounts, zones, zones_as};

/// A live instance, standing where `image` says. Dropped, it leaves what it holds open to the
/// generation that it came from, or to nobody.
pub(crate) struct Running {
    pub live: Live,
    pub image: Image,
    /// The file that its memories are mapped from.
    pub mapped: FlatName,
    /// What it is an instance of.
    pub component: [u8; 32],
    pub component_name: String,
    pub starts: u64,
    /// Processor time of a turn.
    pub cpu_time: Option<Duration>,
    /// It is still to be told that it has come to life: its first turn does that.
    pub to_tell: bool,
    /// Pages that its first turn is likely to write to, until it takes it.
    pub populate: Option<Arc<[PageRun]>>,
    /// The generation that it stands at, or whose turn goes on.
    pub at: GenerationNumber,
    /// It stands there: no call of it is under way, and none has failed.
    pub stands: bool,
    pub since: SinceImage,
    pub host: Arc<HostShared>,
    pub disk: Arc<Disk>,
    pub _in_memory: InMemory,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.stands && self.since.turns > 0 && self.disk.head() == self.at && !std::thread::panicking() {
            // so that nothing is run again when it comes back. Not while images are reaped, for which nobody waits here
            let host = self.host.clone();
            if let Ok(_imaging) = host.imaging.try_read()
                && let Err(e) = self.complete()
            {
                tracing::debug!("an image of an agent that falls asleep: {}", zone_vfs::told(&e));
            }
        }
        // within a turn that fails this is refused, and the zones are taken back as a whole
        match self.disk.release() {
            Ok(()) | Err(StoreError::Busy) => {}
            Err(e) => tracing::error!("letting go of open files: {}", zone_vfs::told(&e)),
        }
    }
}

/// One's turn at an agent: nobody else works with it, and no policy moves its head.
pub(crate) struct Entered<'a> {
    _policies: PoliciesOff,
    running: tokio::sync::MutexGuard<'a, Option<Running>>,
}

impl std::ops::Deref for Entered<'_> {
    type Target = Option<Running>;

    fn deref(&self) -> &Option<Running> {
        &self.running
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Option<Running> {
        &mut self.running
    }
}

/// One agent. Cheap to clone; turns are taken one after the other. When the last clone is dropped the
/// agent sleeps: its instance goes, its last turn's generation stays.
#[derive(Clone)]
pub struct Agent {
    pub(crate) host: Arc<HostShared>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) place: Arc<Place>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("id", &self.disk.id()).finish_non_exhaustive()
    }
}

/// How an agent was brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The generation that it stands at.
    pub generation: GenerationNumber,
    /// Mapping the image, loading globals and handles.
    pub took: Duration,
    /// It was in memory already.
    pub was_live: bool,
    /// An instance stood ready for it.
    pub warm: bool,
    /// Bytes of linear memory.
    pub memory: u64,
}

impl Agent {
    /// The agent's id.
    pub fn id(&self) -> AgentId {
        self.disk.id()
    }

    /// The agent's disk: zones, generations and history, for an operator.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// What the store knows of the agent.
    pub fn info(&self) -> Result<DiskInfo, AgentError> {
        Ok(self.disk.info()?)
    }

    /// What the host keeps about the agent.
    pub fn about(&self) -> Result<AgentAbout, AgentError> {
        Ok(journal::decode(&self.disk.info()?.about)?)
    }

    /// The generations that are kept, oldest first.
    pub fn generations(&self) -> Vec<Generation> {
        self.disk.generations()
    }

    pub(crate) fn generation_about(&self, generation: &Generation) -> Result<GenerationAbout, AgentError> {
        let bytes = self.disk.payload(&generation.about)?;
        if bytes.is_empty() {
            return Err(AgentError::NoMemory { generation: generation.number });
        }
        Ok(journal::decode(&bytes)?)
    }

    /// Whether an instance is in memory.
    pub async fn is_live(&self) -> bool {
        self.place.running.lock().await.is_some()
    }

    /// Refuses an agent that was moved to another store: nothing here goes on with it.
    ///
    /// # Errors
    ///
    /// [`AgentError::Moved`].
    pub fn expect_here(&self) -> Result<(), AgentError> {
        match self.about()?.moved {
            Some(at) => Err(AgentError::Moved { agent: self.disk.info()?.name, at }),
            None => Ok(()),
        }
    }

    /// Waits for its turn at the agent, to go on with it. A turn whose caller went away in the middle has failed.
    pub(crate) async fn enter(&self) -> Result<Entered<'_>, AgentError> {
        let entered = self.enter_wherever().await?;
        if !self.place.is_here() {
            self.expect_here()?;
            self.place.note_here(true);
        }
        Ok(entered)
    }

    /// As [`enter`](Self::enter), also where the agent was moved: for who does not go on with it.
    pub(crate) async fn enter_wherever(&self) -> Result<Entered<'_>, AgentError> {
        let mut running = self.place.running.lock().await;
        let on_unreadable = self.place.take_unreadable();
        if self.disk.is_in_turn() {
            // nothing that was done on memory that nobody could read may be kept, not even what a failed turn leaves
            let on_unreadable =
                on_unreadable || running.as_ref().is_some_and(|now| self.unreadable(now).is_some());
            *running = None;
            if on_unreadable {
                self.abandon().await?;
            } else {
                self.settled_fail("its caller went away in the middle of it").await?;
            }
        }
        Ok(Entered { _policies: self.disk.keep_policies_off(), running })
    }

    /// Brings the agent back into memory, where its last turn left it.
    pub async fn resume(&self) -> Result<Resumed, AgentError> {
        let mut running = self.enter().await?;
        self.ensure_running(&mut running).await
    }

    pub(crate) async fn template_of(&self, component: &[u8; 32]) -> Result<Arc<Template>, AgentError> {
        self.host.template_off_thread(component).await
    }
}
