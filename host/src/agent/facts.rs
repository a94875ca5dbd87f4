//! A turn's facts, on their way into its records.

use zone_vfs::id::Timestamp;

use super::{Agent, AgentError, Running};
use crate::journal::facts::Began;
use crate::journal::fresh_seed;

impl Agent {
    /// How the agent stands, for a turn that is about to begin.
    pub(super) fn begins(&self, now: &Running) -> Result<Began, AgentError> {
        let state = now.live.store.data();
        Ok(Began {
            base: self.disk.head(),
            zones_as_in_base: self.disk.stands_at_head(),
            has_connections: state.table.has_foreign(),
            tells_start: now.to_tell,
            start: state.lifecycle.start,
            lifecycle: state.lifecycle.generation,
            name: state.lifecycle.name.clone(),
            seed: fresh_seed().map_err(AgentError::Outside)?,
            at: Timestamp::now(),
            max_memory: state.limits.memory as u64,
            max_table: state.limits.table as u64,
        })
    }

    /// Puts what the turn has noted since its last commit point into the record of the next.
    pub(super) fn hand_over_facts(&self, now: &mut Running) -> Result<(), AgentError> {
        let facts = now.live.store.data_mut().outside.take_facts().map_err(AgentError::Outside)?;
        if !facts.is_empty() {
            self.disk.fact(&facts)?;
        }
        Ok(())
    }
}
