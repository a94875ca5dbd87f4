use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::bytes;
use crate::id::Inode;

/// The longest name of a directory entry. Bytes.
pub const MAX_NAME: usize = 255;

/// The inode number under which orphans are listed. No file has it.
const ORPHANAGE: Inode = Inode(0);

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
        Self { inode: ORPHANAGE, part: Part::Orphan(inode) }
    }

    /// An upper bound of the encoded size. Bytes.
    pub(super) fn weight(&self) -> usize {
        match &self.part {
            Part::Dirent(name) => 16 + name.as_bytes().len(),
            _ => 24,
        }
    }
}
