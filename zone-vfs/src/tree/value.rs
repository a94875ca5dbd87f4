use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::{Key, Part, TreeError, bytes};
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::id::{Hash, Inode, Timestamp};

/// Files are cut into chunks of this many bytes.
pub const CHUNK: usize = 64 << 10;

/// The largest file that is kept inside its inode record. Bytes.
pub const MAX_INLINE: usize = 2 << 10;

/// The longest target of a symbolic link. Bytes.
pub const MAX_TARGET: usize = 4096;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
}

/// What an inode holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// A directory; its entries have keys of their own.
    Directory {
        /// The directory in which it lies; the root's is itself.
        parent: Inode,
    },
    /// A file of at most [`MAX_INLINE`] bytes. As long as the file.
    Inline(#[serde(with = "bytes::shared")] Arc<Vec<u8>>),
    /// A file whose chunks have keys of their own. A chunk that is missing or short reads as zeros.
    Extents,
    /// A symbolic link and its target.
    Symlink(#[serde(with = "bytes::shared")] Arc<Vec<u8>>),
}

/// Everything about an inode except names and chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeRecord {
    /// How many names it has. A directory that has not been removed has one.
    pub links: u32,
    /// The length of a file or of a link's target, 0 for a directory. Bytes.
    pub size: u64,
    /// When it was last read, as far as that was set explicitly: reading does not change it.
    pub accessed: Timestamp,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When anything about it last changed.
    pub changed: Timestamp,
    /// What it holds.
    pub body: Body,
}

impl InodeRecord {
    /// What it is.
    pub fn kind(&self) -> FileKind {
        match self.body {
            Body::Directory { .. } => FileKind::Directory,
            Body::Inline(_) | Body::Extents => FileKind::Regular,
            Body::Symlink(_) => FileKind::Symlink,
        }
    }

    fn check(&self) -> Result<(), TreeError> {
        let sound = match &self.body {
            Body::Directory { .. } => self.size == 0,
            Body::Inline(data) => data.len() <= MAX_INLINE && data.len() as u64 == self.size,
            Body::Extents => true,
            Body::Symlink(target) => target.len() <= MAX_TARGET && target.len() as u64 == self.size,
        };
        sound.then_some(()).ok_or(TreeError::Damaged("an inode record does not fit its content"))
    }
}

/// A chunk in memory, with its address once it has one.
#[derive(Debug, Default)]
pub struct Extent {
    bytes: Vec<u8>,
    address: OnceLock<Hash>,
}

impl Extent {
    /// A chunk of at most [`CHUNK`] bytes that is not stored yet.
    pub fn new(bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() <= CHUNK);
        Self { bytes, address: OnceLock::new() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, to be changed: it is then not stored any more.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.address = OnceLock::new();
        &mut self.bytes
    }

    /// Its address, once it has been stored as it is.
    pub fn address(&self) -> Option<Hash> {
        self.address.get().copied()
    }

    /// Stores it unless that was done before, and gives its address.
    pub fn store(&self, store: &dyn ChunkStore) -> Result<Hash, ChunkError> {
        if let Some(hash) = self.address.get() {
            return Ok(*hash);
        }
        let hash = store.put(FrameKind::Chunk, &self.bytes)?;
        Ok(*self.address.get_or_init(|| hash))
    }
}

impl Clone for Extent {
    /// A copy that can be changed and stored by itself.
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), address: self.address.clone() }
    }
}

/// Where a chunk is.
#[derive(Clone, Debug)]
pub enum ExtentValue {
    /// In memory.
    Memory(Arc<Extent>),
    /// In the chunk store.
    Stored {
        /// Its address.
        hash: Hash,
        /// Its length, at most [`CHUNK`]. Bytes.
        len: u32,
    },
}

/// What a tree holds under a key.
#[derive(Clone, Debug)]
pub enum Value {
    /// Under `Part::Inode`.
    Inode(InodeRecord),
    /// Under `Part::Dirent`.
    Dirent {
        /// The inode that the name stands for.
        inode: Inode,
        /// What that is.
        kind: FileKind,
    },
    /// Under `Part::Extent`.
    Extent(ExtentValue),
    /// Under `Part::Orphan`.
    Orphan,
}

/// A value as nodes and log records hold it. The order is part of the stored format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredValue {
    /// See [`Value::Inode`].
    Inode(InodeRecord),
    /// See [`Value::Dirent`].
    Dirent {
        /// The inode that the name stands for.
        inode: Inode,
        /// What that is.
        kind: FileKind,
    },
    /// See [`ExtentValue::Stored`].
    Extent {
        /// Its address.
        hash: Hash,
        /// Its length. Bytes.
        len: u32,
    },
    /// See [`Value::Orphan`].
    Orphan,
}

impl StoredValue {
    /// Calls `visit` with the address of every chunk that the value names.
    pub(crate) fn addresses(&self, visit: &mut dyn FnMut(Hash)) {
        if let Self::Extent { hash, .. } = self {
            visit(*hash);
        }
    }

    /// About how many bytes it has when it is written down.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Inode(InodeRecord { body: Body::Inline(bytes), .. }) => 64 + bytes.len(),
            Self::Inode(InodeRecord { body: Body::Symlink(target), .. }) => 64 + target.len(),
            _ => 64,
        }
    }
}

impl Value {
    /// Calls `visit` with the address of every chunk that the value names and that is stored.
    pub(crate) fn addresses(&self, visit: &mut dyn FnMut(Hash)) {
        if let Self::Extent(extent) = self
            && let Some(hash) = extent.address()
        {
            visit(hash);
        }
    }

    /// The value as it is written down; a chunk in memory is stored first.
    pub fn to_stored(&self, store: &dyn ChunkStore) -> Result<StoredValue, ChunkError> {
        Ok(match self {
            Value::Inode(record) => StoredValue::Inode(record.clone()),
            Value::Dirent { inode, kind } => StoredValue::Dirent { inode: *inode, kind: *kind },
            Value::Extent(ExtentValue::Memory(extent)) => {
                StoredValue::Extent { hash: extent.store(store)?, len: extent.bytes().len() as u32 }
            }
            Value::Extent(ExtentValue::Stored { hash, len }) => {
                StoredValue::Extent { hash: *hash, len: *len }
            }
            Value::Orphan => StoredValue::Orphan,
        })
    }

    /// The value that was written down, checked.
    pub fn from_stored(stored: StoredValue) -> Result<Self, TreeError> {
        Ok(match stored {
            StoredValue::Inode(record) => {
                record.check()?;
                Value::Inode(record)
            }
            StoredValue::Dirent { inode, kind } => Value::Dirent { inode, kind },
            StoredValue::Extent { len, .. } if len as usize > CHUNK => {
                return Err(TreeError::Damaged("an extent is longer than a chunk"));
            }
            StoredValue::Extent { hash, len } => Value::Extent(ExtentValue::Stored { hash, len }),
            StoredValue::Orphan => Value::Orphan,
        })
    }

    /// Checks that it is a value for such a key.
    pub(crate) fn check_under(&self, key: &Key) -> Result<(), TreeError> {
        let fits = matches!(
            (&key.part, self),
            (Part::Inode, Value::Inode(_))
                | (Part::Dirent(_), Value::Dirent { .. })
                | (Part::Extent(_), Value::Extent(_))
                | (Part::Orphan(_), Value::Orphan)
        );
        fits.then_some(()).ok_or(TreeError::Damaged("a value does not fit its key"))
    }

    /// An upper bound of the encoded size. Bytes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Value::Inode(InodeRecord { body: Body::Inline(data) | Body::Symlink(data), .. }) => {
                64 + data.len()
            }
            Value::Inode(_) => 64,
            Value::Extent(_) => 40,
            Value::Dirent { .. } | Value::Orphan => 12,
        }
    }
}
