//! Forgetting by the operator: in zones of all kinds, with what earlier generations hold.

use std::sync::Arc;

use zone_vfs::id::Timestamp;
use zone_vfs::store::{Cause, Forget, Forgot, NewGeneration, StoreError};

use super::{Agent, AgentError, audit};
use crate::image::FlatName;
use crate::journal;
use crate::threads;
use crate::wasi::BeforeForgetting;

impl Agent {
    /// Erases the content of files from a zone, from all generations that may hold it, and where that is asked for
    /// from events and outcomes of turns; `path` is what the audit log says. Waits for a turn that is going on, and
    /// drops the instance. The agent's memory is kept as it is: it may know the content all the same. What it has open of
    /// the files leads nowhere from here on.
    ///
    /// Where nothing of it is left, nothing is done. Otherwise the audit log has a line that is committed with it.
    ///
    /// [`crate::Host::forget`] erases it from the store's files, too.
    pub(crate) async fn forget(&self, what: &Forget, path: &str) -> Result<Forgot, AgentError> {
        let mut running = self.enter().await?;
        // what memory is made of may go: generations that hold what is forgotten, and the facts of turns that are
        for generation in self.disk.generations() {
            if generation.number == self.disk.head() || what.turns.is_some() {
                self.completed_or_gone(&mut running, generation.number).await?;
            }
        }
        let _imaging = self.host.imaging.read().await;
        *running = None;
        // what else the agent has open outlives this
        self.stand_by()?;
        let (_, image) = self.newest_head().await?;
        if let Some(image) = image {
            // pages that the memory does not have any more are left behind
            let flat = FlatName::Generation(self.disk.id().0, self.disk.head().0);
            let images = self.host.images.clone();
            threads::run(move || images.flatten(&image, &flat)).await??;
        }
        let (about, _) = self.newest_head().await?;
        let would = self.disk.would_forget(what)?;
        if would.is_done {
            return Ok(would);
        }
        let generation = NewGeneration { cause: Cause::Operated, about: journal::encode(&about)?, on: None };
        // what was derived from the content goes before anybody is told that it is forgotten
        let (host, id) = (self.host.clone(), self.id());
        threads::run(move || host.purge_derived(id)).await??;
        // events of turns are looked at anew
        *self.place.seen() = None;
        if let Err(e) = self.audit(what, path, &would) {
            self.abandon().await?;
            return Err(e);
        }
        let (disk, what) = (self.disk.clone(), what.clone());
        let forgot = match threads::run(move || disk.forget(&what, &generation)).await {
            Ok(forgot) => forgot.map_err(AgentError::from),
            Err(e) => Err(e),
        };
        match forgot {
            Ok(forgot) => {
                // what stood by did so for the generation before
                self.disk.release()?;
                Ok(forgot)
            }
            Err(e) => {
                // the line in the log tells of what has not happened: no later commit may take it along
                self.abandon().await?;
                Err(e)
            }
        }
    }

    /// What was derived from what the turn has forgotten goes before a commit makes that final, and the audit log says what
    /// that is: at the end of a turn, and for a process at every commit, however it ends. What a program derives anew in
    /// between it drops when the feed tells it of the forgetting.
    pub(super) async fn before_forgetting(&self) -> Result<(), AgentError> {
        if !self.disk.has_forgotten() {
            return Ok(());
        }
        let purging = self.purging();
        threads::run(move || purging()).await?
    }

    /// The same for the commits that a process makes itself.
    pub(super) fn purging(&self) -> BeforeForgetting {
        let (host, disk) = (Arc::downgrade(&self.host), self.disk.clone());
        Arc::new(move || {
            audit::note_erased(&disk)?;
            host.upgrade().ok_or(StoreError::Closed)?.purge_derived(disk.id())
        })
    }

    /// Notes in the agent's logs what is forgotten, to be committed with it.
    fn audit(&self, what: &Forget, path: &str, would: &Forgot) -> Result<(), AgentError> {
        let zones = self.disk.zones();
        let zone = zones.get(usize::from(what.zone)).map(|zone| zone.name.as_str()).unwrap_or_default();
        let now = Timestamp::now();
        audit::note(&self.disk, &[audit::forgotten(what, zone, path, would, now)], now)
    }
}
