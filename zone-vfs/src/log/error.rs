//! What can go wrong with the log.

use std::io;
use std::sync::Arc;

/// Why a log could not be opened or recycled.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The device failed.
    #[error("{file}{}", crate::device::advice(source))]
    Io {
        /// Which file.
        file: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// Records that had been acknowledged cannot be read.
    #[error("the log is damaged: {file} at byte {offset}: {reason}")]
    Damaged {
        /// Which file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What was found.
        reason: String,
    },
    /// A whole file of the log is gone.
    #[error("the log is damaged: no file of generation {generation} in log/")]
    Missing {
        /// The generation of the missing file.
        generation: u64,
    },
    /// The log was written by a newer version of this program.
    #[error("{file} has format {found}; this program reads up to {supported}")]
    NewerFormat {
        /// Which file.
        file: String,
        /// The version found.
        found: u32,
        /// The newest version that this program knows.
        supported: u32,
    },
    /// Whoever was given the records could not use one.
    #[error("a record of the log could not be applied: {0}")]
    Record(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a record was not committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The disk is full. The record is not in the log, and the log goes on.
    #[error("no space left for the log")]
    NoSpace,
    /// The log needs another file, and this process, or the system, has too few file descriptors or too little
    /// memory for it. The record is not in the log, and the log goes on.
    #[error("a file for the log: {0}")]
    Shortage(Arc<str>),
    /// A write or sync failed, now or earlier. Whether the record is durable shows when the store
    /// is opened again; until then nothing more is taken.
    #[error("the store is poisoned by a failed write: {0}")]
    Poisoned(Arc<str>),
    /// The record is larger than a record may be.
    #[error("a record of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

impl CommitError {
    /// Whether nothing was written, so that the log goes on, and the same record may go well later.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::NoSpace | Self::Shortage(_))
    }
}
