//! The write-ahead log: one committer, groups of all agents' records, acknowledged when durable.
//!
//! - `format`: files, groups and records as bytes
//! - `queue`: what waits, whose turn it is, and who works on it
//! - `committer`: what writes groups and acknowledges
//! - `lend`: a thread that waits for its own commit makes it, where nobody else is at it
//! - `files`: preallocated files, recycled with a raised generation
//! - `recovery`: reading it all back, and telling a torn tail from damage
//! - `salvage`: what can still be read where that is damage

mod committer;
mod error;
mod files;
mod format;
mod lend;
mod queue;
mod recovery;
mod salvage;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

/// What `queue` needs of threads; its tests of schedules give it another.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use std::thread;
}

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use crate::chunks::ChunkError;
use crate::device::Device;
use crate::id::{AgentId, Epoch, Hash, Sequence};
use committer::{Committer, Works};
pub use error::{CommitError, LogError};
use files::SharedFiles;
pub use format::{FORMAT_VERSION, MAX_NEEDS, MAX_RECORD};
pub use lend::lend;
use queue::{Pending, Pushed, SharedQueue, Told};
pub(crate) use salvage::Salvage;

/// One entry of an agent's ordered stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose entry this is.
    pub agent: AgentId,
    /// Under which of the agent's writers it was made.
    pub epoch: Epoch,
    /// The agent's own count. The log keeps an agent's records in the order in which they were
    /// submitted and does not look at the number.
    pub sequence: Sequence,
    /// Chunks that the body refers to. They are made durable before the record. At most
    /// [`MAX_NEEDS`].
    pub needs: Vec<Hash>,
    /// What happened. With `needs`, at most [`MAX_RECORD`] bytes.
    pub body: Vec<u8>,
}

/// A boundary between groups of records. Later ones compare greater. Means something to this log
/// only, so it belongs into the superblock and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogPosition {
    /// The generation of the file.
    pub file_generation: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The number of the group that begins here.
    pub group: u64,
}

impl LogPosition {
    /// Before everything in a log that has never been recycled.
    pub const START: Self = Self { file_generation: 0, offset: 0, group: 0 };
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file_generation, self.offset, self.group)
    }
}

/// What has to be durable before records that need it are written.
pub trait Barrier: Send + Sync {
    /// Makes every chunk stored so far durable; cheap where there is nothing new.
    fn flush(&self) -> Result<(), ChunkError>;

    /// Why nothing more is stored, where a write or flush has failed. The log then takes no more
    /// either, whatever a record needs.
    fn poisoned(&self) -> Option<Arc<str>> {
        None
    }
}

/// How a log is kept.
#[derive(Clone)]
pub struct LogOptions {
    /// The length of a new file in bytes. The first few are shorter, and a larger one is made where
    /// a group needs it.
    pub file_len: u64,
    /// A group takes no further record beyond this many bytes.
    pub group_target: usize,
    /// The bytes that one agent gets in a group before the next agent has its turn.
    pub share: usize,
    /// Flushed before a group with records that need chunks.
    pub barrier: Option<Arc<dyn Barrier>>,
    /// A mistake to make, for tests that must notice it.
    #[cfg(test)]
    pub(crate) planted: Planted,
}

/// Mistakes that the crash tests have to catch.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    None,
    NoChecksum,
    AcknowledgeBeforeFlush,
    NoBarrier,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            file_len: 16 << 20,
            group_target: 512 << 10,
            share: 32 << 10,
            barrier: None,
            #[cfg(test)]
            planted: Planted::None,
        }
    }
}

/// Told how a commit went, on the thread that made it: the log's, or one that [lends](lend) itself.
pub type Done = Box<dyn FnOnce(Result<LogPosition, CommitError>) + Send>;

/// An open log. Dropping it commits what is queued and ends its thread.
///
/// ```
/// use std::sync::Arc;
/// use uuid::Uuid;
/// use zone_vfs::device::simulated::Simulated;
/// use zone_vfs::id::{AgentId, Epoch, Sequence};
/// use zone_vfs::log::{Log, LogOptions, LogPosition, Record};
///
/// let device = Simulated::new(1);
/// let log = Log::open(Arc::new(device.clone()), LogOptions::default(), LogPosition::START, &mut |_| Ok(()))?;
/// let agent = AgentId(Uuid::from_u128(1));
/// let body = b"a fact".to_vec();
/// log.commit(Record { agent, epoch: Epoch(1), sequence: Sequence(1), needs: Vec::new(), body })?;
///
/// // The machine loses power, and what was acknowledged is there.
/// let after = Arc::new(device.crash(7));
/// let mut found = Vec::new();
/// Log::open(after, LogOptions::default(), LogPosition::START, &mut |record| {
///     found.push(record.body);
///     Ok(())
/// })?;
/// assert_eq!(found, [b"a fact"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Log {
    works: Arc<Works>,
    files: Arc<SharedFiles>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens the log on `device`, or begins one, and hands every record from `from` on to
    /// `on_record`, in order. `from` is [`LogPosition::START`], or an earlier
    /// [`tail`](Self::tail) or commit's position.
    ///
    /// A tail that was torn by a crash was never acknowledged and is dropped. Anything else that
    /// cannot be read is [`LogError::Damaged`]; nothing is ever skipped.
    pub fn open(
        device: Arc<dyn Device>,
        options: LogOptions,
        from: LogPosition,
        on_record: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<Self, LogError> {
        let recovered = recovery::recover(&*device, &options, from, on_record)?;
        let queue = Arc::new(SharedQueue::new(options.group_target, options.share));
        let files = Arc::new(SharedFiles::new(device, options.file_len, recovered.files, recovered.tail));
        let committer =
            Committer::new(queue, files.clone(), options, recovered.current, recovered.next_group);
        let works = Arc::new(Works::new(committer));
        let runs = works.clone();
        let thread = std::thread::Builder::new()
            .name("dormouse-log".to_owned())
            .spawn(move || runs.run())
            .map_err(|source| LogError::Io { file: "the log's thread".to_owned(), source })?;
        Ok(Self { works, files, thread: Some(thread) })
    }

    /// Reads every record from `from` on again, and gives where the log ends. Nobody may commit meanwhile.
    pub(crate) fn read(
        &self,
        options: &LogOptions,
        from: LogPosition,
        on_record: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<LogPosition, LogError> {
        Ok(recovery::recover(self.files.device(), options, from, on_record)?.tail)
    }

    /// Queues `record`. `done` runs on the thread that commits, once: with a position when the
    /// record is durable, with an error when it was refused or its fate is unknown. For one agent,
    /// records are acknowledged in the order in which they were queued, and when one is refused
    /// for want of space, so are those already queued behind it.
    ///
    /// Recovery from the position gives this record and everything later, and perhaps records
    /// that shared its group.
    ///
    /// Waits while the agent has too much queued already, except in a `done`.
    pub fn submit(
        &self,
        record: Record,
        done: impl FnOnce(Result<LogPosition, CommitError>) + Send + 'static,
    ) {
        self.push([Pending::new(record, Told::Call(Box::new(done)))]);
    }

    /// Queues several records at once, so that the committer sees all or none of them. Each
    /// `done` is as in [`submit`](Self::submit).
    pub fn submit_all(&self, records: impl IntoIterator<Item = (Record, Done)>) {
        self.push(records.into_iter().map(|(record, done)| Pending::new(record, Told::Call(done))));
    }

    fn push(&self, pending: impl IntoIterator<Item = Pending>) {
        if self.works.queue.push(pending) == Pushed::Unseen && !lend::promise(&self.works) {
            self.works.queue.call();
        }
    }

    /// Queues `record` and waits until it is durable and the [`tail`](Self::tail) has moved past
    /// it. Not to be called in a `done`.
    pub fn commit(&self, record: Record) -> Result<LogPosition, CommitError> {
        let (send, receive) = mpsc::sync_channel(1);
        lend(|| self.push([Pending::new(record, Told::Wake(send))]));
        receive.recv().unwrap_or(Err(CommitError::Closed))
    }

    /// Where the next group goes. Every record before it is durable, and if it was submitted with
    /// a `done`, that has returned; so a checkpoint that takes the tail first and then looks at the state that
    /// the `done`s left covers everything before it.
    pub fn tail(&self) -> LogPosition {
        self.files.tail()
    }

    /// How many bytes of log lie between `from` and the end: what a recovery would read.
    pub fn bytes_since(&self, from: LogPosition) -> u64 {
        self.files.bytes_since(from)
    }

    /// Gives files that lie wholly before `position` back for reuse. Call it only when the next
    /// recovery is durably known to start at `position` or later.
    pub fn recycle_before(&self, position: LogPosition) -> Result<(), LogError> {
        self.files.recycle_before(position)
    }

    /// Has the next group go into another file, so that a checkpoint after it frees all files before.
    pub(crate) fn turn_over(&self) {
        self.files.turn_over();
    }

    /// Says whether files that are freed are overwritten, before they are used again or removed.
    pub(crate) fn set_wiping(&self, wiping: bool) {
        self.files.set_wiping(wiping);
    }

    /// Overwrites the files that are free.
    pub(crate) fn wipe_spare(&self) -> Result<(), LogError> {
        self.files.wipe_spare()
    }

    /// Takes no more commits, for this reason, until it is opened again.
    pub fn poison(&self, reason: Arc<str>) {
        tracing::error!(%reason, "the log takes no more commits until it is opened again");
        self.works.queue.poison(reason);
    }

    /// Why the log takes no more commits, where that is so.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.works.queue.poisoned()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.works.queue.close();
        // The last owner can be a `done`: whoever commits goes on by itself then, and the thread ends when all is done.
        if let Some(thread) = self.thread.take().filter(|_| !self.works.queue.is_at_work())
            && thread.join().is_err()
        {
            tracing::error!("the log's thread panicked");
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("tail", &self.tail()).finish_non_exhaustive()
    }
}
