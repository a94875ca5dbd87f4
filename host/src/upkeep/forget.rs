//! Forgetting: of one agent or shared zone, and then in the files of the store.

use std::collections::HashSet;

use zone_vfs::contract::Principal;
use zone_vfs::id::{Inode, Timestamp};
use zone_vfs::store::{Forget, Forgot, Left, ReapReport, SharedId, StoreError, wait};
use zone_vfs::zone::{Access, ContentIds, ZoneError};

use crate::agent::{Agent, AgentError};
use crate::host::{Host, HostShared};
use crate::threads;

/// What became of the store's files after a forget.
#[derive(Clone, Debug)]
pub struct Purged {
    /// What was given back. What was forgotten is erased if [`ReapReport::is_purged`]; otherwise the next purge or
    /// reaping tries again.
    pub store: ReapReport,
    /// Bytes of image files that were removed.
    pub image_bytes: u64,
    /// Where the same content still is.
    pub left: Vec<Left>,
}

impl Host {
    /// Forgets files of an agent: their content is erased from the zone with all versions, the generations that may
    /// hold it are dropped, and it is erased from the store's files, with everything else that nothing needs.
    /// `path` is what the agent's audit log says. Either the agent has forgotten it all or nothing; where the rest fails,
    /// [`purge`](Self::purge) is to be tried again.
    pub async fn forget(
        &self,
        agent: &Agent,
        what: &Forget,
        path: &str,
    ) -> Result<(Forgot, Purged), AgentError> {
        let forgot = agent.forget(what, path).await?;
        let purged = self.purge(&forgot.content).await?;
        Ok((forgot, purged))
    }

    /// Forgets files of a zone that agents share: their content is erased from the zone, and from the store's files.
    /// Gives what was erased. `path` is what the audit log of each agent that mounts the zone says, before anything is
    /// erased; a second line says so where it then failed. The zone has forgotten it or not; where the rest fails,
    /// [`purge`](Self::purge) is to be tried again.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSharedZone`], [`AgentError::NoAudit`], what the zone says of the file, and what the storage says.
    pub async fn forget_shared(
        &self,
        zone: SharedId,
        files: Vec<Inode>,
        path: &str,
    ) -> Result<(ContentIds, Purged), AgentError> {
        let mounting = self.mounting(zone)?;
        let now = Timestamp::now();
        let line = |what: &str| {
            let files: Vec<_> = files.iter().map(|file| file.0).collect();
            serde_json::json!({ "at": now.0, "by": "host", "what": what, "path": path, "files": files })
        };
        for agent in &mounting {
            agent.note_now(&line("forget"), now).await?;
        }
        let (shared, erasing) = (self.shared.clone(), files.clone());
        let erased = threads::run(move || shared.forget_shared(zone, &erasing)).await.flatten();
        match erased {
            Ok(content) => {
                let purged = self.purge(&content).await?;
                Ok((content, purged))
            }
            Err(e) => {
                for agent in &mounting {
                    agent.note_now(&line("forget-failed"), now).await?;
                }
                Err(e)
            }
        }
    }

    /// The agents that mount a shared zone. One that does not read has no log to write to.
    fn mounting(&self, zone: SharedId) -> Result<Vec<Agent>, AgentError> {
        let store = self.store()?;
        let zones = store.shared_zones()?;
        let mut agents = Vec::new();
        for (_, id) in zones.iter().filter(|it| it.id == zone).flat_map(|it| &it.mounted_by) {
            match store.disk(*id) {
                Ok(disk) => agents.push(self.shared.adopt(disk)),
                Err(e) if e.is_of_one_agent() => {
                    tracing::warn!("{e}: its audit log has no line of what is forgotten");
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(agents)
    }

    /// Erases everything from the store's files that nothing needs, and so what was forgotten, and says where
    /// content still is.
    pub async fn purge(&self, content: &ContentIds) -> Result<Purged, AgentError> {
        let (shared, content) = (self.shared.clone(), content.clone());
        threads::run(move || shared.purge(&content)).await?
    }

    /// Whether the store's files may still hold something that was forgotten.
    pub fn is_purge_due(&self) -> Result<bool, AgentError> {
        Ok(self.store()?.is_purge_due()?)
    }
}

impl HostShared {
    /// Must not be called from an async task: it waits.
    fn forget_shared(&self, id: SharedId, files: &[Inode]) -> Result<ContentIds, AgentError> {
        let store = self.store()?;
        let opened = store.shared_zone(id)?;
        let gone = || StoreError::NoSharedZone(id);
        // what was derived from the content goes before anybody is told that it is forgotten, of all who can read it
        let zones = store.shared_zones()?;
        for (_, agent) in zones.iter().filter(|it| it.id == id).flat_map(|it| &it.mounted_by) {
            self.purge_derived(*agent)?;
        }
        let access = Access::new(Principal::Host, Timestamp::now());
        let mut content = ContentIds::default();
        let erased = opened.zone(|zone| {
            let root = zone.snapshot()?;
            for file in files {
                zone.identify(&root, *file, &mut content)?;
                zone.forget(access, *file)?;
            }
            Ok::<_, ZoneError>(())
        });
        erased.ok_or_else(gone)??;
        wait(|done| opened.sync(done))?;
        Ok(content)
    }

    /// Must not be called from an async task: it waits.
    fn purge(&self, content: &ContentIds) -> Result<Purged, AgentError> {
        let image_bytes = {
            let _alone = self.imaging.blocking_write();
            self.join_flattening();
            self.reap_images(&HashSet::new(), false)?
        };
        let store = self.store()?.purge()?;
        let left = self.store()?.find_left(content)?;
        Ok(Purged { store, image_bytes, left })
    }
}
