//! The session's history, of an agent.

use std::ops::ControlFlow;

use zone_vfs::id::Turn;

use super::{Agent, AgentError};
use crate::journal::facts::Entry;
use crate::journal::session::{self, SessionEntry, SessionError, SessionQuery};

impl From<SessionError> for AgentError {
    fn from(e: SessionError) -> Self {
        match e {
            SessionError::Store(e) => e.into(),
            SessionError::Journal(e) => e.into(),
        }
    }
}

impl Agent {
    /// Gives `each` what happened to the agent and is asked for, oldest first, until it says that it has enough. Turns
    /// that are going on are not among it; generations are those that are kept.
    ///
    /// # Errors
    ///
    /// Those of reading the agent's records, and of `each`.
    pub fn session<E: From<SessionError>>(
        &self,
        query: &SessionQuery,
        each: impl FnMut(SessionEntry) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        session::session(&self.disk, query, each)
    }

    /// A turn that is over, and its facts in order: none of one that has none.
    ///
    /// # Errors
    ///
    /// [`AgentError::NoTurn`], and those of reading the agent's records.
    pub fn past_turn(&self, turn: Turn) -> Result<(SessionEntry, Vec<Entry>), AgentError> {
        session::past_turn(&self.disk, turn)?.ok_or(AgentError::NoTurn { turn })
    }
}
