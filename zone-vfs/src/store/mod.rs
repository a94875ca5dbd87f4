//! The store: every agent's disk over one log, one set of segments and one superblock.
//!
//! - [`Store`] opens a folder, knows the agents by name, creates, forks and removes them.
//! - [`Disk`] is what one agent has: zones, turns, generations; `standby` is what it has open while it sleeps.
//! - [`SharedZone`] is a zone that several agents mount.
//! - `locks` are advisory locks among agents, in memory.
//! - `entry` is what records say, `state` what they add up to, `commit` how they become durable.
//! - `catalogue` and `checkpoint` keep the state in segments, so that the log can be used again; `recovery`
//!   puts the log back on top; `damaged` is what cannot be read of it.
//! - `mend` makes a store that does not open one that does, without what is lost.
//! - `look` tells what is known of an agent that stays out of memory.
//! - `attachment` is what an embedder attaches to a generation: an image, say.
//! - `reach` leads through everything that is stored; `reap` gives back what it does not lead to, `usage`
//!   tells who needs what, `scrub` finds what is damaged, `backup` copies it.
//! - `export` writes one agent as a file, and makes an agent of one; `stream` is what such files have in common.
//! - `diff` compares what stood at different times, `forget` erases content for good, and `left` finds where it
//!   still is.

mod agents;
mod attachment;
mod backup;
mod blob;
mod bounds;
mod catalogue;
mod chain;
mod checkpoint;
mod commit;
mod damaged;
mod diff;
mod disk;
mod entry;
mod error;
mod export;
mod forget;
mod gate;
mod history;
mod left;
mod locks;
mod look;
mod mend;
mod older;
mod open;
mod pin;
mod policy;
mod reach;
mod readers;
mod reap;
mod recovery;
mod rehearsal;
mod reserve;
mod resident;
mod restore;
mod scrub;
mod shared;
mod standby;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod usage;
mod versions;
mod watch;

use std::sync::Arc;
use std::thread::JoinHandle;

use uuid::Uuid;

use crate::log::{Log, LogPosition};
use crate::segment::Segments;

pub use self::agents::NewAgent;
pub use self::attachment::{ATTACHMENT_CHUNK, Attachment, Fill, MAX_ATTACHMENT, MAX_ATTACHMENT_ABOUT};
pub use self::backup::{
    BackedUp, BackedUpGeneration, BackupAbout, BackupReport, Files, ReadSeek, RestoreReport,
};
pub use self::blob::MAX_PAYLOAD;
pub use self::damaged::DamagedAgent;
pub use self::diff::{DiskDifferences, ZoneDifferences};
pub use self::disk::{Disk, DiskInfo, Done, MAX_REASON, NewGeneration, PoliciesOff, wait};
pub use self::entry::{Cause, Payload, RECORD_VERSION, Role, SeenMount, TurnStyle, ZoneSpec};
pub use self::error::StoreError;
pub use self::export::{
    Arrival, ArrivedAgent, ArrivedGeneration, Begin, ExportAbout, ExportReport, ExportedZone, Exporting,
    NewArrival, OfGeneration, Opened,
};
pub use self::forget::{Forget, Forgot};
pub use self::left::{Left, MAX_LEFT};
pub use self::locks::{LockDone, LockError, LockKind, LockOwner, MAX_LOCKS, MAX_WAITING};
pub use self::look::AgentLook;
pub use self::open::StoreOptions;
pub use self::policy::{KeepGenerations, KeepPolicy, ReapPolicy, VersionPolicy};
pub use self::reap::{Given, ReapReport};
pub use self::scrub::{Damage, Finding, ScrubReport};
pub use self::shared::{SharedId, SharedInfo, SharedMount, SharedZone};
pub use self::state::{Generation, KEPT_TURN_GENERATIONS, Outcome, TurnRecord};
pub use self::stream::{MAX_FILE_NAME, StreamFile};
pub use self::usage::{AgentUsage, Bytes, SegmentUsage, StoreUsage};
pub use self::versions::{OldOfZone, VersionsGiven};
pub use self::watch::{MAX_WATCHING, Watch, WatchDone};
pub use crate::log::lend;

/// Zones of one agent, at most.
pub const MAX_ZONES: usize = 64;

/// What the parts of an open store share.
pub(crate) struct Shared {
    log: Log,
    log_options: crate::log::LogOptions,
    segments: Arc<Segments>,
    superblock: std::sync::Mutex<crate::superblock::SuperblockFile>,
    /// Where the log was at the last checkpoint.
    checkpointed: std::sync::Mutex<LogPosition>,
    agents: std::sync::Mutex<agents::Agents>,
    gate: gate::Gate,
    readers: readers::Readers,
    /// Held by whoever goes through everything: one at a time.
    reaping: std::sync::Mutex<()>,
    purge: forget::PurgeDue,
    /// Starts the commits of shared zones.
    driver: Arc<shared::Driver>,
    locks: locks::LockTable,
    /// How many turns are going on.
    turns: Arc<std::sync::atomic::AtomicUsize>,
    /// The next mount's holder.
    holders: std::sync::atomic::AtomicU64,
    incarnation: Uuid,
    device: &'static str,
    checkpoint_after: u64,
    /// Bytes that are kept for whoever gives room back.
    reserve: u64,
    /// Wakes the thread that makes checkpoints.
    due: std::sync::mpsc::SyncSender<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Disks that are still held go on reading. They must not write to files that are the next
        // opening's.
        self.segments.close();
    }
}

/// An open store. One process at a time has it open.
///
/// Dropping it makes no checkpoint and loses nothing: the log has it all. [`Store::close`] leaves
/// less to read for whoever opens it next.
pub struct Store {
    shared: Option<Arc<Shared>>,
    checkpointer: Option<JoinHandle<()>>,
    /// Held for as long as the store is open.
    _lock: Option<open::Lock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    fn shared(&self) -> Result<&Arc<Shared>, StoreError> {
        self.shared.as_ref().ok_or(StoreError::Closed)
    }

    /// How bytes reach the disk: `uring`, `blocking` or `simulated`.
    pub fn device(&self) -> &'static str {
        self.shared.as_ref().map_or("closed", |s| s.device)
    }

    /// This opening of the store; every opening draws another.
    pub fn incarnation(&self) -> Result<Uuid, StoreError> {
        Ok(self.shared()?.incarnation)
    }

    /// Writes everything that the log holds into segments, so that it need not be read again.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.shared()?.checkpoint()
    }

    /// Bytes in the log since the last checkpoint.
    pub fn log_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.shared()?.log_bytes())
    }

    /// Closes the store, after a checkpoint if the log has grown.
    pub fn close(mut self) -> Result<(), StoreError> {
        let shared = self.shared()?.clone();
        let result = if shared.log_bytes() > CHECKPOINT_AT_CLOSE { shared.checkpoint() } else { Ok(()) };
        drop(shared);
        self.shut();
        result
    }

    fn shut(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        // first what shared zones still have to commit, on a thread that passes the gate
        shared.driver.close();
        shared.gate.close();
        // a full channel means that the thread is awake already; it ends when nothing is left to own
        let due = shared.due.clone();
        let segments = shared.segments.clone();
        drop(shared);
        let _ = due.try_send(());
        drop(due);
        if let Some(thread) = self.checkpointer.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
        // not left to whoever drops the last reference, which may be the committer, a moment later:
        // by then another opening could be writing to the same file
        segments.close();
    }
}

/// A log of more bytes than this is checkpointed when the store is closed.
const CHECKPOINT_AT_CLOSE: u64 = 4 << 20;

impl Drop for Store {
    fn drop(&mut self) {
        self.shut();
    }
}
