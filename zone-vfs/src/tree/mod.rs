//! A forkable copy-on-write B+tree over content-addressed storage.

pub(crate) mod bytes;
mod error;
mod key;
mod memory;
mod value;

pub use error::TreeError;
pub use key::{Key, MAX_NAME, Name, Part};
pub use memory::MemoryChunks;
pub use value::{
    Body, CHUNK, Extent, ExtentValue, FileKind, InodeRecord, MAX_INLINE, MAX_TARGET, StoredValue, Value,
};

/// The highest level that a node can have. Leaves have level 0.
pub const MAX_LEVEL: u8 = 16;

/// A tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {}
