use crate::chunks::ChunkError;

/// Why a tree could not be read or stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TreeError {
    /// The storage below failed.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A node was written by a version of this software that this one does not know.
    #[error("a tree node of format {0} cannot be read: it needs a newer version")]
    UnknownFormat(u8),
    /// A node, or a change, is not well formed.
    #[error("a tree is damaged: {0}")]
    Damaged(&'static str),
    /// A node cannot be encoded.
    #[error("a tree node cannot be encoded: {0}")]
    Encode(#[from] postcard::Error),
    /// The tree would be deeper than [`MAX_LEVEL`](super::MAX_LEVEL).
    #[error("the tree has reached its largest depth")]
    TooDeep,
}
