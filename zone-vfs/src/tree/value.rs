use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::past::{ChangeRecord, DraftRecord, EventRecord, NamedPlace, VersionRecord};
use super::{Key, Part, TreeError, bytes};
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::id::{Hash, Inode, Timestamp, Version};

/// Files are cut into chunks of this many bytes.
pub const CHUNK: usize = 64 << 10;

/// The largest file that is kept inside its inode record. Bytes.
pub const MAX_INLINE: usize = 2 << 10;

/// The largest piece into which the content of a version is cut. Bytes.
pub const MAX_PIECE: usize = 256 << 10;

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
    /// A file of a versioned zone that is as it was published.
    Published {
        /// Its version.
        version: Version,
        /// The version whose content that is.
        content: Version,
    },
    /// A draft over a version: where it has no chunk of its own, the version's bytes show through, as
    /// far as `kept` bytes from the beginning, and zeros after that.
    Over {
        /// The version whose content that is.
        content: Version,
        /// How much of it shows at most. Bytes.
        kept: u64,
    },
    /// The content of a version, in pieces that have keys of their own.
    Pieces,
    /// What was renamed over another file while it was open: whoever has it open has that one open.
    Alias {
        /// The other file.
        to: Inode,
    },
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
    /// Where it is. `None` for the root directory, for the content of a version, and for a file that has
    /// lost the name it was made or renamed with, also if it has others.
    pub place: Option<NamedPlace>,
    /// What it holds.
    pub body: Body,
}

impl InodeRecord {
    /// What it is.
    pub fn kind(&self) -> FileKind {
        match self.body {
            Body::Directory { .. } => FileKind::Directory,
            Body::Inline(_)
            | Body::Extents
            | Body::Published { .. }
            | Body::Over { .. }
            | Body::Pieces
            | Body::Alias { .. } => FileKind::Regular,
            Body::Symlink(_) => FileKind::Symlink,
        }
    }

    /// An upper bound of the encoded size. Bytes.
    fn weight(&self) -> usize {
        let place = self.place.as_ref().map_or(0, |place| 12 + place.name.as_bytes().len());
        let body = match &self.body {
            Body::Inline(data) | Body::Symlink(data) => data.len(),
            _ => 0,
        };
        72 + place + body
    }

    fn check(&self) -> Result<(), TreeError> {
        let sound = match &self.body {
            Body::Directory { .. } | Body::Alias { .. } => self.size == 0,
            Body::Inline(data) => data.len() <= MAX_INLINE && data.len() as u64 == self.size,
            Body::Extents | Body::Published { .. } | Body::Pieces => true,
            Body::Over { kept, .. } => *kept <= self.size,
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
    /// A chunk of at most [`CHUNK`] bytes that is not stored yet, or a piece of at most [`MAX_PIECE`].
    pub fn new(bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() <= MAX_PIECE);
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

impl ExtentValue {
    /// Its length. Bytes.
    pub fn len(&self) -> usize {
        match self {
            ExtentValue::Memory(extent) => extent.bytes().len(),
            ExtentValue::Stored { len, .. } => *len as usize,
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a tree holds under a key.
#[derive(Clone, Debug)]
pub enum Value {
    /// Under `Part::Inode` and `Part::Content`.
    Inode(InodeRecord),
    /// Under `Part::Dirent`.
    Dirent {
        /// The inode that the name stands for.
        inode: Inode,
        /// What that is.
        kind: FileKind,
    },
    /// Under `Part::Extent` and `Part::Piece`.
    Extent(ExtentValue),
    /// Under `Part::Orphan`.
    Orphan,
    /// Under `Part::Draft`.
    Draft(DraftRecord),
    /// Under `Part::Version`.
    Version(Arc<VersionRecord>),
    /// Under `Part::Named`: what the name stands for, `None` where for nothing any more.
    Named(Option<(Inode, FileKind)>),
    /// Under `Part::Event`.
    Event(EventRecord),
    /// Under `Part::Change`.
    Change(Arc<ChangeRecord>),
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
    /// See [`Value::Draft`].
    Draft(DraftRecord),
    /// See [`Value::Version`].
    Version(Box<VersionRecord>),
    /// See [`Value::Named`].
    Named(Option<(Inode, FileKind)>),
    /// See [`Value::Event`].
    Event(EventRecord),
    /// See [`Value::Change`].
    Change(Box<ChangeRecord>),
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
            Self::Inode(record) => record.weight(),
            Self::Version(record) => record.weight(),
            Self::Change(record) => record.weight(),
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
            Value::Draft(draft) => StoredValue::Draft(*draft),
            Value::Version(record) => StoredValue::Version(Box::new((**record).clone())),
            Value::Named(target) => StoredValue::Named(*target),
            Value::Event(event) => StoredValue::Event(*event),
            Value::Change(record) => StoredValue::Change(Box::new((**record).clone())),
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
            StoredValue::Extent { hash, len } => Value::Extent(ExtentValue::Stored { hash, len }),
            StoredValue::Orphan => Value::Orphan,
            StoredValue::Draft(draft) => Value::Draft(draft),
            StoredValue::Version(record) => Value::Version(record.into()),
            StoredValue::Named(target) => Value::Named(target),
            StoredValue::Event(event) => Value::Event(event),
            StoredValue::Change(record) if record.is_sound() => Value::Change(record.into()),
            StoredValue::Change(_) => return Err(TreeError::Damaged("a change has too long a path")),
        })
    }

    /// Checks that it is a value for such a key.
    pub(crate) fn check_under(&self, key: &Key) -> Result<(), TreeError> {
        let fits = match self {
            Value::Inode(_) => matches!(key.part, Part::Inode | Part::Content),
            Value::Dirent { .. } => matches!(key.part, Part::Dirent(_)),
            Value::Extent(_) => matches!(key.part, Part::Extent(_) | Part::Piece(_)),
            Value::Orphan => matches!(key.part, Part::Orphan(_)),
            Value::Draft(_) => matches!(key.part, Part::Draft(_)),
            Value::Version(_) => matches!(key.part, Part::Version(_)),
            Value::Named(_) => matches!(key.part, Part::Named(..)),
            Value::Event(_) => matches!(key.part, Part::Event(_)),
            Value::Change(_) => matches!(key.part, Part::Change(_)),
        };
        if let Value::Extent(extent) = self {
            let longest = if matches!(key.part, Part::Piece(_)) { MAX_PIECE } else { CHUNK };
            if extent.len() > longest {
                return Err(TreeError::Damaged("an extent is longer than a chunk"));
            }
        }
        fits.then_some(()).ok_or(TreeError::Damaged("a value does not fit its key"))
    }

    /// An upper bound of the encoded size. Bytes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Value::Inode(record) => record.weight(),
            Value::Version(record) => record.weight(),
            Value::Change(record) => record.weight(),
            Value::Extent(_) => 40,
            Value::Dirent { .. } | Value::Orphan => 12,
            Value::Draft(_) | Value::Named(_) | Value::Event(_) => 32,
        }
    }
}
