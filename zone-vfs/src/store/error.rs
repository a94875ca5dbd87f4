use std::sync::Arc;

use super::shared::SharedId;
use crate::chunks::ChunkError;
use crate::id::{AgentId, GenerationNumber};
use crate::log::{CommitError, LogError};
use crate::segment::SegmentError;
use crate::superblock::SuperblockError;
use crate::tree::TreeError;
use crate::zone::{Cause, ZoneError};

/// What can go wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error("the store {folder} is open in another process{}", holder.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Locked {
        /// The store's folder.
        folder: String,
        /// What that process wrote about itself.
        holder: Option<String>,
    },
    /// The folder holds something, and it is not a store.
    #[error("{folder} is not a Dormouse store, and it is not empty")]
    NotAStore {
        /// The folder.
        folder: String,
    },
    /// There is no store in the folder, and none is to be made.
    #[error("no store at {folder}")]
    NoStore {
        /// The folder.
        folder: String,
    },
    /// The folder could not be opened or made.
    #[error("{what}{}", crate::device::advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The superblock cannot be read.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The log cannot be read or used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The segments cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Content is missing, damaged, or could not be stored.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A zone's tree is damaged, or storage failed.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// A commit failed: nothing of it took effect.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A record or catalogue cannot be read.
    #[error("a record cannot be read: {0}")]
    Encoding(String),
    /// A record was written by a newer version.
    #[error("the store holds records of version {found}, this version reads up to {supported}")]
    NewerRecord {
        /// The version found.
        found: u16,
        /// The newest that this version reads.
        supported: u16,
    },
    /// Records that do not fit together.
    #[error("the records of agent {agent} do not fit together: {reason}")]
    Inconsistent {
        /// The agent.
        agent: AgentId,
        /// In what way.
        reason: String,
    },
    /// An agent whose state cannot be read. Others are not touched by it; it can be removed.
    #[error("the agent {agent} {}: {reason}", if *may_pass { "could not be read this time" } else { "is damaged" })]
    DamagedAgent {
        /// Which.
        agent: AgentId,
        /// What is wrong.
        reason: String,
        /// The device failed, which says nothing of what is stored: the next call tries again. Otherwise what was
        /// read does not verify, and nothing is tried until the store is opened again.
        may_pass: bool,
    },
    /// A backup cannot be written, read, or used, for a reason that goes on after its name.
    #[error("the backup {0}")]
    Backup(String),
    /// One of the backups that a store is restored from cannot be used.
    #[error("part {part} of what is to be restored {reason}")]
    BackupPart {
        /// Which of them, counted from 1.
        part: usize,
        /// Why not, in words that go on after its name.
        reason: String,
    },
    /// An export cannot be written, read, or used, for a reason that goes on after its name.
    #[error("the export {0}")]
    Export(String),
    /// A restore into the folder has begun and is not finished: it is no store yet.
    #[error("a restore into {folder} is not finished: there is no store yet")]
    UnfinishedRestore {
        /// The folder.
        folder: String,
    },
    /// No agent of this id.
    #[error("no agent {0}")]
    NoAgent(AgentId),
    /// The id is, or was, another agent's.
    #[error("the id {0} is, or was, another agent's")]
    IdTaken(AgentId),
    /// Another agent has the name.
    #[error("an agent named `{0}` exists")]
    NameTaken(String),
    /// Another shared zone has the name.
    #[error("a shared zone named `{0}` exists")]
    SharedNameTaken(String),
    /// No shared zone of this id, or it is being removed.
    #[error("no shared zone {0}")]
    NoSharedZone(SharedId),
    /// A zone of the kind shared is a mount of one, and no other zone is.
    #[error("the zone `{zone}`: zones of the kind shared, and only those, are mounts of a shared zone")]
    NotAMount {
        /// The zone's name.
        zone: String,
    },
    /// A shared zone is removed only when nobody mounts it.
    #[error("the shared zone `{zone}` is mounted by {}", by.join(", "))]
    SharedInUse {
        /// Its name.
        zone: String,
        /// The agents that mount it.
        by: Vec<String>,
    },
    /// What was asked for waits for changes of a shared zone that cannot be made durable.
    #[error("the shared zone `{zone}`: {source}")]
    Shared {
        /// Its name.
        zone: String,
        /// Why.
        source: Arc<StoreError>,
    },
    /// Generations hold nothing of shared zones, which are never taken back.
    #[error("the zone `{zone}` is shared: it has no generations, only what it holds now")]
    NoPast {
        /// Its name.
        zone: String,
    },
    /// The agent has no zone of this index.
    #[error("the agent has no zone {index}")]
    NoZone {
        /// The index asked for.
        index: u16,
    },
    /// The agent keeps no such generation.
    #[error("no generation {generation}")]
    NoGeneration {
        /// The number asked for.
        generation: GenerationNumber,
    },
    /// More zones than an agent can have.
    #[error("an agent has at most {limit} zones, {found} were asked for")]
    TooManyZones {
        /// How many were asked for.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A payload over the limit.
    #[error("a payload of {len} bytes: at most {limit} are accepted")]
    PayloadTooLarge {
        /// Its size.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// More than can be attached to a generation.
    #[error("an attachment of {bytes} bytes: at most {limit} are accepted")]
    AttachmentTooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A turn or a commit of the agent is going on.
    #[error("the agent is busy with a turn")]
    Busy,
    /// A generation that cannot be dropped.
    #[error("generation {generation} {}", if *is_head { "is where the agent stands" } else { "is pinned" })]
    GenerationKept {
        /// Which.
        generation: GenerationNumber,
        /// Whether the agent stands at it; otherwise it is pinned.
        is_head: bool,
    },
    /// A generation that cannot be dropped before another.
    #[error("generation {generation} is needed by generation {by}, whose memory is made from it")]
    GenerationNeeded {
        /// Which.
        generation: GenerationNumber,
        /// The first that stands on it.
        by: GenerationNumber,
    },
    /// Too many wait for the change feeds of one agent or shared zone.
    #[error("{limit} wait for this change feed already")]
    TooManyWatch {
        /// The most that may.
        limit: usize,
    },
    /// No turn is going on.
    #[error("no turn is going on")]
    NoTurn,
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl From<TreeError> for StoreError {
    fn from(error: TreeError) -> Self {
        Self::Zone(error.into())
    }
}

impl StoreError {
    /// Whether what is wrong is something of one agent: the others can go on.
    pub fn is_of_one_agent(&self) -> bool {
        match self {
            Self::Encoding(_) | Self::Inconsistent { .. } | Self::DamagedAgent { .. } => true,
            Self::Chunk(e) => {
                matches!(e, ChunkError::Missing(_) | ChunkError::Damaged { .. } | ChunkError::Io(_))
            }
            Self::Zone(e) => e.code == crate::zone::ErrorCode::Io && !e.is_shortage(),
            _ => false,
        }
    }

    /// Whether this process, or the system, has too few file descriptors or too little memory: nothing is known of
    /// what is stored, and the same may go well later.
    pub fn is_shortage(&self) -> bool {
        use crate::device::is_shortage;
        match self {
            Self::Chunk(ChunkError::Shortage(_)) | Self::Commit(CommitError::Shortage(_)) => true,
            Self::Zone(e) => e.is_shortage(),
            Self::Shared { source, .. } => source.is_shortage(),
            Self::Superblock(SuperblockError::Io(source))
            | Self::Io { source, .. }
            | Self::Log(LogError::Io { source, .. })
            | Self::Segment(SegmentError::Io { source, .. }) => is_shortage(source),
            _ => false,
        }
    }

    /// Whether something is lacking, on the disk or to this process: nothing is known of what is stored.
    pub fn is_lack(&self) -> bool {
        self.is_no_space() || self.is_shortage()
    }

    /// Whether something is damaged or lost on which the whole store hangs, so that it does not open until it was
    /// [mended](super::Store::mend).
    pub fn is_mendable(&self) -> bool {
        matches!(
            self,
            Self::Superblock(SuperblockError::Missing | SuperblockError::Damaged)
                | Self::Log(LogError::Damaged { .. } | LogError::Missing { .. } | LogError::Record(_))
                | Self::Segment(SegmentError::Damaged { .. })
                | Self::Chunk(ChunkError::Missing(_) | ChunkError::Damaged { .. })
                | Self::Encoding(_)
                | Self::Inconsistent { .. }
        )
    }

    /// Whether the device failed to read, so that nothing is known of what is stored: it may pass.
    pub fn may_pass(&self) -> bool {
        let is_io = |e: &ChunkError| matches!(e, ChunkError::Io(_));
        match self {
            _ if self.is_shortage() => true,
            Self::DamagedAgent { may_pass, .. } => *may_pass,
            Self::Chunk(e) => is_io(e),
            Self::Zone(ZoneError { cause: Some(Cause::Storage(e)), .. }) => {
                matches!(&**e, TreeError::Chunk(e) if is_io(e))
            }
            _ => false,
        }
    }

    /// This, of the backup since which another is made.
    pub(super) fn of_backup_before(self) -> Self {
        match self {
            Self::Backup(reason) => Self::Backup(format!("before it {reason}")),
            other => other,
        }
    }

    /// This, of one of the backups that are restored; counted from 1.
    pub(super) fn of_backup_part(self, part: usize) -> Self {
        match self {
            Self::Backup(reason) => Self::BackupPart { part, reason },
            other => other,
        }
    }

    /// True when the disk is full: the operation was refused, and the store goes on.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Commit(CommitError::NoSpace)
            | Self::Chunk(ChunkError::NoSpace)
            | Self::Superblock(SuperblockError::NoSpace) => true,
            Self::Shared { source, .. } => source.is_no_space(),
            Self::Zone(e) => e.code == crate::zone::ErrorCode::InsufficientSpace,
            Self::Io { source, .. }
            | Self::Log(LogError::Io { source, .. })
            | Self::Segment(SegmentError::Io { source, .. }) => crate::device::is_no_space(source),
            _ => false,
        }
    }
}
