//! Giving storage back, and keeping it: reaping by `rules`, `backup`, `export` and `import`, `forget`, `images` behind the turns, and what is `derived`.

mod archive;
mod arrived;
mod backup;
mod check;
mod contents;
mod derived;
mod export;
mod forget;
mod images;
mod import;
mod memory;
mod rules;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use zone_vfs::id::AgentId;
use zone_vfs::store::{ReapPolicy, ReapReport, VersionPolicy};

use crate::agent::AgentError;
use crate::host::{Host, HostShared};
use crate::threads;

pub(crate) use self::archive::Archiving;
pub use self::backup::ReadSeekSend;
pub use self::check::{ComponentDamage, GenesisDamage, ImageCheck, ImageDamage};
pub use self::contents::{ExportContents, ExportedGeneration, ExportedZoneContents};
pub use self::derived::MAX_DERIVED_NAME;
pub use self::forget::Purged;
pub(crate) use self::images::{Flattening, When};
pub use self::import::ImportOptions;
pub(crate) use self::memory::{InMemory, Parked};
pub use self::rules::{AgentRules, MAX_POLICY, POLICY_FILE, ReapRules, ZoneRules};

/// What a reaping did, or would do.
#[derive(Clone, Debug)]
pub struct Reaped {
    /// In the store.
    pub store: ReapReport,
    /// Bytes of image files that no generation needs any more. A dry run does not count the images of
    /// generations that would be dropped of agents that stay.
    pub image_bytes: u64,
    /// Generations whose images were archived, since that had not been done behind the turns.
    pub archived: u64,
    /// Bytes of image files that were removed though generations name them, since the archive has them:
    /// there were more than [`image_cache`](crate::HostOptions::image_cache) allows.
    pub cached_bytes: u64,
    /// Bytes of compiled code of components that no agent has any more.
    pub code_bytes: u64,
}

impl Host {
    /// Gives back what the policy does not keep and what nothing needs, beside live agents. No policy
    /// touches an agent that is in memory. With `dry_run` nothing is changed.
    pub async fn reap(&self, policy: ReapPolicy, dry_run: bool) -> Result<Reaped, AgentError> {
        let shared = self.shared.clone();
        threads::run(move || shared.reap(policy, dry_run)).await?
    }

    /// Reaps again and again, for a process that lives long, until the reaper is dropped or the host is
    /// closed. The policy is read anew each time, as [`reap_policy`](Self::reap_policy) does: agents that are made
    /// later and files that are changed count. What fails is logged, and tried again the next time.
    pub fn reap_every(
        &self,
        interval: Duration,
        rules: ReapRules,
        file: Option<PathBuf>,
    ) -> Result<Reaper, AgentError> {
        let shared: Weak<HostShared> = Arc::downgrade(&self.shared);
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let work = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let Some(shared) = shared.upgrade() else { return };
                let reaped = shared.reap_policy(&rules, file.clone()).and_then(|it| shared.reap(it, false));
                match reaped {
                    Ok(reaped) => tracing::info!(
                        segments = reaped.store.swept.removed_bytes,
                        images = reaped.image_bytes,
                        agents = reaped.store.agents.len(),
                        "reaped"
                    ),
                    Err(e) => tracing::warn!("reaping: {}", zone_vfs::told(&e)),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("dormouse-reap".into())
            .spawn(work)
            .map_err(|source| AgentError::Io { what: "starting the thread that reaps".into(), source })?;
        Ok(Reaper { stop: Some(stop), thread: Some(thread) })
    }
}

/// Reaps by a timer until it is dropped, which waits for a reaping that is under way.
#[derive(Debug)]
pub struct Reaper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reaps panicked");
        }
    }
}

impl HostShared {
    /// Must not be called from an async task: it waits.
    fn reap(self: &Arc<Self>, mut policy: ReapPolicy, dry_run: bool) -> Result<Reaped, AgentError> {
        policy.spare.extend(self.awake());
        if !dry_run {
            self.hold_what_sleepers_read(&mut policy)?;
        }
        let report = self.store()?.reap(&policy, dry_run)?;
        let gone: HashSet<AgentId> = report.agents.iter().map(|(id, _)| *id).collect();
        // damage was told: what it hid may name any image
        let (image_bytes, code_bytes) = if report.damage.is_empty() {
            let _alone = self.imaging.blocking_write();
            self.join_flattening();
            (self.reap_images(&gone, dry_run)?, self.reap_code(&gone, dry_run)?)
        } else {
            (0, 0)
        };
        if !dry_run {
            self.reap_derived();
        }
        let (mut archived, mut cached_bytes) = (0, 0);
        if !dry_run && report.damage.is_empty() {
            archived = self.archive_kept()?;
            cached_bytes = self.trim_images(self.options.image_cache)?;
        }
        Ok(Reaped { store: report, image_bytes, archived, cached_bytes, code_bytes })
    }

    /// Old versions that agents have open while they sleep are kept: whoever gives versions back must know them.
    /// An agent of which that cannot be known is spared.
    fn hold_what_sleepers_read(self: &Arc<Self>, policy: &mut ReapPolicy) -> Result<(), AgentError> {
        let store = self.store()?;
        for (name, id) in store.agents()? {
            let keep = policy.of(id);
            let takes = |it: &VersionPolicy| it.older_than.is_some();
            if policy.spare.contains(&id) || !(takes(&keep.versions) || keep.zones.values().any(takes)) {
                continue;
            }
            match store.disk(id) {
                Ok(disk) => {
                    if let Err(e) = self.adopt(disk).stand_by() {
                        tracing::warn!(
                            "nothing of {name} is reaped: what it has open cannot be found out: {e}"
                        );
                        policy.spare.insert(id);
                    }
                }
                // of a damaged agent nothing is given back
                Err(e) if e.is_of_one_agent() => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
