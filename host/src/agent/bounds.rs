//! An agent's limits, changed after it was made.

use std::time::Duration;

use zone_vfs::id::Timestamp;

use super::generation::await_done;
use super::{Agent, AgentError, audit};
use crate::journal::{self, World};

/// What an agent may use, where it has bounds of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentLimits {
    /// The most linear memory that it gets, in the place of the host's bound. Bytes.
    pub memory: Option<u64>,
    /// The most processor time that a turn gets, where that is less than the host's bound. More than nothing.
    pub cpu: Option<Duration>,
}

impl Agent {
    /// The agent's own limits, which forks begin with.
    pub fn own_limits(&self) -> Result<AgentLimits, AgentError> {
        let about = self.about()?;
        Ok(AgentLimits { memory: about.max_memory, cpu: about.max_cpu })
    }

    /// Gives the agent other limits, from its next turn on. Waits for a turn that is going on, and lets the agent fall
    /// asleep. Forks that there are keep theirs. A line of `/logs/audit` says it, by one commit with the limits.
    /// No rewind takes them back.
    ///
    /// # Errors
    ///
    /// [`AgentError::MemoryLimit`] where the memory that the agent has is more, [`AgentError::NoTime`] for no processor
    /// time at all; nothing was changed then.
    pub async fn set_limits(&self, limits: AgentLimits) -> Result<(), AgentError> {
        if limits.cpu.is_some_and(|it| it.is_zero()) {
            return Err(AgentError::NoTime);
        }
        let mut running = self.enter().await?;
        let mut about = self.about()?;
        (about.max_memory, about.max_cpu) = (limits.memory, limits.cpu);
        let needed = if about.world == World::Agent {
            self.completed(&mut running, self.disk.head()).await?.image.map_or(0, |image| image.bytes())
        } else {
            0
        };
        let limit = self.limits(&about).memory as u64;
        if needed > limit {
            return Err(AgentError::MemoryLimit { needed, limit });
        }
        self.fall_asleep(&mut running);
        self.note_limits(limits)?;
        let bytes = journal::encode(&about)?;
        let set = await_done(&self.disk, |done| self.disk.set_about(&bytes, done)).await;
        self.place.forget_standing();
        if let Err(e) = set {
            // no later commit may take the line along
            self.abandon().await?;
            return Err(e.into());
        }
        Ok(())
    }

    /// Notes the limits in the agent's logs, to be committed with them.
    fn note_limits(&self, limits: AgentLimits) -> Result<(), AgentError> {
        let now = Timestamp::now();
        let line = serde_json::json!({
            "at": now.0, "by": "host", "what": "limits", "max_memory": limits.memory,
            "max_cpu": limits.cpu.map(|it| it.as_secs_f64()),
        });
        let noted = audit::note(&self.disk, &[line], now);
        if noted.is_err() {
            self.disk.abandon()?;
        }
        noted
    }
}
