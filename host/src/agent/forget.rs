//! Forgetting by the operator: in zones of all kinds, with what earlier generations hold.

use std::sync::Arc;

use zone_vfs::contract::{Principal, ZoneKind, reserved_name};
use zone_vfs::id::{Inode, Timestamp, Turn};
use zone_vfs::store::{Cause, Forget, Forgot, NewGeneration, StoreError};
use zone_vfs::zone::{Access, ErrorCode, OpenOptions, Zone, ZoneError};

use super::{Agent, AgentError};
use crate::image::FlatName;
use crate::journal;
use crate::threads;
use crate::wasi::BeforeForgetting;

/// What became of a forget.
#[derive(Clone, Debug)]
pub struct AgentForgot {
    /// What was erased and dropped.
    pub forgot: Forgot,
    /// Why it is not in the agent's audit log, where that is so: the agent has no logs, or their quota is used up.
    pub not_in_audit: Option<String>,
}

/// A line of the audit log.
fn audit_line(what: &Forget, zone: &str, path: &str, would: &Forgot, now: Timestamp) -> Vec<u8> {
    let turns = what.turns.map(|(Turn(first), Turn(last))| [first, last]);
    let line = serde_json::json!({
        "at": now.0, "by": "host", "what": "forget", "zone": zone, "path": path,
        "files": what.files.iter().map(|file| file.0).collect::<Vec<_>>(),
        "versions": what.versions.iter().map(|(_, version)| version.0).collect::<Vec<_>>(),
        "contents": would.content.contents, "bytes": would.content.bytes,
        "generations": would.generations.len(), "turns": turns,
    });
    format!("{line}\n").into_bytes()
}

/// Appends to the reserved file of the logs.
pub(super) fn append(zone: &mut Zone, access: Access, line: &[u8]) -> Result<(), ZoneError> {
    let name = reserved_name(ZoneKind::Logs).ok_or(ErrorCode::NoEntry)?;
    let options = OpenOptions { create: true, write: true, ..OpenOptions::default() };
    let file = zone.open(access, Inode::ROOT, name, options)?;
    let appended = zone.append(access, file, line);
    zone.close_writer(file)?;
    appended.map(drop)
}

impl Agent {
    /// Erases the content of files from a zone, from all generations that may hold it, and where that is asked for
    /// from events and outcomes of turns; `path` is what the audit log says. Waits for a turn that is going on, and
    /// drops the instance. The agent's memory is kept as it is: it may know the content all the same.
    ///
    /// [`crate::Host::forget`] erases it from the store's files, too.
    pub(crate) async fn forget(&self, what: &Forget, path: &str) -> Result<AgentForgot, AgentError> {
        let mut running = self.enter().await?;
        let _imaging = self.host.imaging.read().await;
        *running = None;
        // what the agent has open is empty from here on, and not gone
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
        let generation = NewGeneration { cause: Cause::Operated, about: journal::encode(&about)? };
        // what was derived from the content goes before anybody is told that it is forgotten
        let (host, id) = (self.host.clone(), self.id());
        threads::run(move || host.purge_derived(id)).await??;
        // events of turns are looked at anew
        *self.place.seen() = None;
        let not_in_audit = self.audit(what, path, &would)?;
        let (disk, what) = (self.disk.clone(), what.clone());
        let forgot = match threads::run(move || disk.forget(&what, &generation)).await {
            Ok(forgot) => forgot.map_err(AgentError::from),
            Err(e) => Err(e),
        };
        match forgot {
            Ok(forgot) => Ok(AgentForgot { forgot, not_in_audit }),
            Err(e) => {
                // the line in the log tells of what has not happened: no later commit may take it along
                self.abandon().await?;
                Err(e)
            }
        }
    }

    /// What was derived from what the turn has forgotten goes before a commit makes that final: the end of a turn,
    /// and for a process every commit, however it ends. What a program derives anew in between it drops when the
    /// feed tells it of the forgetting.
    pub(super) async fn before_forgetting(&self) -> Result<(), AgentError> {
        if !self.disk.has_forgotten() {
            return Ok(());
        }
        let (host, id) = (self.host.clone(), self.id());
        threads::run(move || host.purge_derived(id)).await?
    }

    /// The same for the commits that a process makes itself.
    pub(super) fn purging(&self) -> BeforeForgetting {
        let (host, id) = (Arc::downgrade(&self.host), self.id());
        Arc::new(move || host.upgrade().ok_or(StoreError::Closed)?.purge_derived(id))
    }

    /// Notes in the agent's logs what is forgotten, to be committed with it. Gives why not, where that is so.
    fn audit(&self, what: &Forget, path: &str, would: &Forgot) -> Result<Option<String>, AgentError> {
        let zones = self.disk.zones();
        let logs = (0u16..).zip(&zones).find(|(_, zone)| zone.kind == ZoneKind::Logs);
        let Some((logs, _)) = logs else { return Ok(Some("the agent has no logs".into())) };
        let zone = zones.get(usize::from(what.zone)).map(|zone| zone.name.as_str()).unwrap_or_default();
        let now = Timestamp::now();
        let line = audit_line(what, zone, path, would, now);
        let access = Access::new(Principal::Host, now);
        match self.disk.zone(logs, |zone| append(zone, access, &line)) {
            Some(Ok(())) => Ok(None),
            // no reason to keep what is to be forgotten
            Some(Err(e)) if e.code == ErrorCode::Quota => Ok(Some(e.to_string())),
            Some(Err(e)) => {
                self.disk.abandon()?;
                Err(e.into())
            }
            None => Ok(Some("the agent has no logs".into())),
        }
    }
}
