//! Agents are removed, and with them what nothing needs any more.

use std::collections::HashSet;

use zone_vfs::store::StoreError;

use super::{Host, HostShared, lock};
use crate::agent::{Agent, AgentError};
use crate::journal::{self, AgentAbout, GenerationAbout};
use crate::threads;

/// Agents whose removals wait for the disk together.
const REMOVED_AT_ONCE: usize = 64;

impl Host {
    /// Removes an agent that cannot be read.
    pub async fn remove_damaged(&self, name: &str) -> Result<(), AgentError> {
        let store = self.store()?;
        let id = store.find(name)?.ok_or_else(|| AgentError::NoAgent(name.into()))?;
        let shared = self.shared.clone();
        threads::run(move || {
            store.remove(id)?;
            shared.purge_derived(id)?;
            let _alone = shared.imaging.blocking_write();
            shared.join_flattening();
            shared.reap_images(&HashSet::new(), false)?;
            Ok(())
        })
        .await?
    }

    /// Removes an agent, and the image files that nothing needs any more.
    pub async fn remove(&self, agent: &Agent) -> Result<(), AgentError> {
        self.remove_all(std::slice::from_ref(agent)).await
    }

    /// Removes agents, and the image files that nothing needs any more.
    pub async fn remove_all(&self, agents: &[Agent]) -> Result<(), AgentError> {
        // each is a commit of its own: those that wait together are flushed together
        for some in agents.chunks(REMOVED_AT_ONCE) {
            let mut tasks = tokio::task::JoinSet::new();
            for agent in some {
                *agent.enter_wherever().await? = None;
                let (store, shared, id) = (self.store()?, self.shared.clone(), agent.id());
                tasks.spawn(threads::run(move || {
                    store.remove(id)?;
                    shared.purge_derived(id)?;
                    lock(&shared.agents).places.remove(&id);
                    Ok::<_, AgentError>(())
                }));
            }
            while let Some(removed) = tasks.join_next().await {
                removed.map_err(|e| AgentError::Task(e.to_string()))???;
            }
        }
        let shared = self.shared.clone();
        threads::run(move || {
            let _alone = shared.imaging.blocking_write();
            shared.join_flattening();
            shared.reap_images(&HashSet::new(), false)
        })
        .await??;
        Ok(())
    }
}

impl HostShared {
    /// Removes a component that is no agent's.
    pub(crate) fn forget_unused(&self, hash: &[u8; 32]) -> Result<(), AgentError> {
        let store = self.store()?;
        for (_, id) in store.agents()? {
            let agent = match store.look(id) {
                // it may be its component
                Err(StoreError::DamagedAgent { .. }) => return Ok(()),
                agent => agent?,
            };
            let about: AgentAbout = journal::decode(&store.payload(&agent.about)?)?;
            if about.component == *hash {
                return Ok(());
            }
            // an agent that was upgraded can go back
            for generation in &agent.generations {
                let bytes = store.payload(&generation.about)?;
                if !bytes.is_empty() && journal::decode::<GenerationAbout>(&bytes)?.component == *hash {
                    return Ok(());
                }
            }
        }
        lock(&self.templates).remove(hash);
        Ok(self.components.remove(hash)?)
    }
}
