//! What trees and files need of content-addressed storage, and no more.

use std::sync::Arc;

use crate::id::Hash;

/// The largest plain frame: no chunk, node or catalogue part is larger. Bytes.
pub const MAX_FRAME: usize = 1 << 20;

/// Why content could not be read or stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChunkError {
    /// Nothing is stored under this address.
    #[error("chunk {0} is not in the store")]
    Missing(Hash),
    /// What is stored under this address does not hash to it.
    #[error("chunk {hash} is damaged: {reason}")]
    Damaged {
        /// The address asked for.
        hash: Hash,
        /// What was found instead.
        reason: String,
    },
    /// The disk is full. Nothing was stored; the store goes on.
    #[error("no space left for chunks")]
    NoSpace,
    /// Reading or writing failed.
    #[error("chunk storage: {0}")]
    Io(Arc<std::io::Error>),
    /// This process, or the system, has too few file descriptors or too little memory. Nothing is known of what is
    /// stored.
    #[error("chunk storage: {}", crate::device::with_advice(.0))]
    Shortage(Arc<std::io::Error>),
    /// A write or sync failed earlier, and this store takes no more until it is opened again.
    #[error("the store is poisoned by an earlier failed write: {0}")]
    Poisoned(Arc<str>),
    /// The storage is closed: it can be read and takes nothing more.
    #[error("chunk storage is closed")]
    Closed,
}

impl ChunkError {
    /// What a device said.
    pub(crate) fn of_device(error: std::io::Error) -> Self {
        if crate::device::is_shortage(&error) {
            Self::Shortage(Arc::new(error))
        } else {
            Self::Io(Arc::new(error))
        }
    }
}

/// What a frame holds. Part of the frame's header, not of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// File content.
    Chunk = 1,
    /// A tree node.
    Node = 2,
    /// A part of a checkpoint's catalogue.
    Catalogue = 3,
    /// What a checkpoint's catalogue begins with. Nothing that a guest has stored is of this kind.
    Root = 4,
}

/// Content-addressed storage.
pub trait ChunkStore: Send + Sync {
    /// The plain bytes stored under `hash`, verified.
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError>;

    /// Stores `plain` unless it is there already, and gives its address. Not durable before the
    /// storage below is flushed. At most [`MAX_FRAME`] bytes.
    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError>;

    /// Is told that a tree keeps a node in memory, of so many bytes as it is stored.
    fn loaded(&self, _bytes: usize) {}

    /// Counts how often trees had loaded as much as they may keep. Whoever keeps some lets go of it when this
    /// has changed.
    fn pressure(&self) -> u64 {
        0
    }
}
