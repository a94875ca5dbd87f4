use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::bytes;
use crate::id::{ChangeSequence, Inode, Version};

/// The longest name of a directory entry. Bytes.
pub const MAX_NAME: usize = 255;

/// The inode number under which the zone's own lists lie. No file has it.
const LISTS: Inode = Inode(0);

/// A valid name of a directory entry: 1 to [`MAX_NAME`] bytes without `/` and NUL, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// `bytes` as a name, when they can be one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let fits = !bytes.is_empty() && bytes.len() <= MAX_NAME;
        let plain = !bytes.contains(&b'/') && !bytes.contains(&0) && bytes != b"." && bytes != b"..";
        (fits && plain).then(|| Self(bytes.into()))
    }

    /// The bytes of the name. What a guest passes is UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = bytes::deserialize_vec(from)?;
        Self::new(&bytes).ok_or_else(|| D::Error::custom("not a valid name"))
    }
}

/// Which part of an inode a key names. The order is part of the stored format: new parts go last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// Its record.
    Inode,
    /// One entry of a directory.
    Dirent(Name),
    /// One chunk of a file, by its index.
    Extent(u64),
    /// A file that has no name and is still open.
    Orphan(Inode),
    /// A file whose content is a draft.
    Draft(Inode),
    /// History: the record of a version's content, under the version's number.
    Content,
    /// History: the piece of that content that begins at this offset. Bytes.
    Piece(u64),
    /// History: a version of a file, or another event of a file or directory.
    Version(Version),
    /// History: what a name in a directory stands for from this event on.
    Named(Name, Version),
    /// History: which file an event is of.
    Event(Version),
    /// History: an entry of the change feed.
    Change(ChangeSequence),
}

impl Part {
    /// Whether it belongs to the tree of the zone's history, and not to that of its files.
    pub fn is_history(&self) -> bool {
        match self {
            Part::Inode | Part::Dirent(_) | Part::Extent(_) | Part::Orphan(_) | Part::Draft(_) => false,
            Part::Content
            | Part::Piece(_)
            | Part::Version(_)
            | Part::Named(..)
            | Part::Event(_)
            | Part::Change(_) => true,
        }
    }
}

/// What a tree is ordered by: all parts of one inode lie together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The inode.
    pub inode: Inode,
    /// The part of it.
    pub part: Part,
}

impl Key {
    /// The key of an inode's record.
    pub fn inode(inode: Inode) -> Self {
        Self { inode, part: Part::Inode }
    }

    /// The key of the entry `name` in the directory `inode`.
    pub fn dirent(inode: Inode, name: Name) -> Self {
        Self { inode, part: Part::Dirent(name) }
    }

    /// The key of a file's chunk `index`.
    pub fn extent(inode: Inode, index: u64) -> Self {
        Self { inode, part: Part::Extent(index) }
    }

    /// The key that marks `inode` as an orphan.
    pub fn orphan(inode: Inode) -> Self {
        Self { inode: LISTS, part: Part::Orphan(inode) }
    }

    /// The key that marks the content of `inode` as a draft.
    pub fn draft(inode: Inode) -> Self {
        Self { inode: LISTS, part: Part::Draft(inode) }
    }

    /// The key of the record of a version's content.
    pub fn content(version: Version) -> Self {
        Self { inode: version.inode(), part: Part::Content }
    }

    /// The key of the piece of a version's content that begins at `offset`.
    pub fn piece(version: Version, offset: u64) -> Self {
        Self { inode: version.inode(), part: Part::Piece(offset) }
    }

    /// The key of a version, or another event, of `file`.
    pub fn version(file: Inode, version: Version) -> Self {
        Self { inode: file, part: Part::Version(version) }
    }

    /// The key of what `name` in `directory` stands for from an event on.
    pub fn named(directory: Inode, name: Name, version: Version) -> Self {
        Self { inode: directory, part: Part::Named(name, version) }
    }

    /// The key that says of which file an event is.
    pub fn event(version: Version) -> Self {
        Self { inode: LISTS, part: Part::Event(version) }
    }

    /// The key of an entry of the change feed.
    pub fn change(sequence: ChangeSequence) -> Self {
        Self { inode: LISTS, part: Part::Change(sequence) }
    }

    /// An upper bound of the encoded size. Bytes.
    pub(super) fn weight(&self) -> usize {
        match &self.part {
            Part::Dirent(name) | Part::Named(name, _) => 32 + name.as_bytes().len(),
            _ => 24,
        }
    }
}
