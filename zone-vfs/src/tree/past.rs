//! What the history tree of a zone holds beside content: versions, and the change feed.

use serde::{Deserialize, Serialize};

use super::{FileKind, Name, bytes};
use crate::contract::Principal;
use crate::id::{ChangeSequence, Hash, Inode, Timestamp, Turn, Version};

/// The longest path that a feed entry states. Bytes.
pub const MAX_CHANGE_PATH: usize = 4096;

/// A place in a zone: a directory, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPlace {
    /// The directory.
    pub parent: Inode,
    /// The name.
    pub name: Name,
}

/// What an event in the history of a file or directory was. The order is part of the stored format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VersionKind {
    /// A new file with its first content, or a new directory.
    Create,
    /// New content.
    Publish,
    /// The content of an earlier version, again.
    Rollback {
        /// Which.
        to: Version,
    },
    /// A new name; the content is the same.
    Rename,
    /// The name went. What was there before stays readable.
    Tombstone,
    /// The content was erased from this version.
    Forgotten,
    /// Only of the root directory: a rewind took the zone back to where it stood at this event.
    RootMoved {
        /// The last event that counts, of those before this one.
        to: Version,
    },
}

/// One event in the history of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// When. Never before the event before.
    pub at: Timestamp,
    /// By whom.
    pub by: Principal,
    /// In which turn; 0 where it was between turns.
    pub turn: Turn,
    /// What happened.
    pub kind: VersionKind,
    /// Whether it is a file or a directory.
    pub file: FileKind,
    /// Where it is from here on; where it was, for a tombstone.
    pub place: NamedPlace,
    /// Where it was before, for a rename.
    pub from: Option<NamedPlace>,
    /// The length of the content. Bytes.
    pub size: u64,
    /// What identifies the content; see `docs/format-trees.md`. Zeros where there is none.
    pub hash: Hash,
    /// The version whose content it is; itself, unless it is a rollback or has none of its own.
    pub content: Option<Version>,
    /// The bytes that it holds and the version before did not.
    pub added: u64,
}

/// Of which file an event is, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// The file or directory.
    pub file: Inode,
    /// When.
    pub at: Timestamp,
}

/// A file whose content is a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftRecord {
    /// Whose it is: everyone else sees the last published version.
    pub owner: Principal,
    /// The last published version and the one whose content that is; `None` for a new file.
    pub base: Option<(Version, Version)>,
}

/// What a commit did to a file. The order is part of the stored format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChangeKind {
    /// It is new, with all of its content. Also a further name of a file.
    Create,
    /// A new version of it was published.
    Publish,
    /// Bytes were added at its end, and nothing else was changed.
    Append {
        /// Its size before. Bytes.
        from: u64,
        /// Its size now. Bytes.
        to: u64,
    },
    /// It was written to, or cut.
    Write,
    /// It has another name.
    Rename,
    /// Its name went; its versions stay.
    Tombstone,
    /// Its name went.
    Remove,
    /// Its content was erased, also from its versions.
    Forget,
    /// An earlier version of it was published again.
    Rollback,
    /// A rewind took the zone's files back: what was known of any of them may not hold.
    RootMoved,
}

/// One entry of a zone's change feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// What happened.
    pub kind: ChangeKind,
    /// Which file, directory or link.
    pub file: Inode,
    /// What that is.
    pub is: FileKind,
    /// In which turn; 0 where it was between turns.
    pub turn: Turn,
    /// When.
    pub at: Timestamp,
    /// By whom; where several wrote to it since the commit before, the last of them.
    pub by: Principal,
    /// The path from the zone's root, without a slash before it. `None` where it is longer than
    /// [`MAX_CHANGE_PATH`], or where the file has lost the name that it was made with and has others.
    #[serde(with = "bytes::optional")]
    pub path: Option<Vec<u8>>,
    /// For a rename: the path before.
    #[serde(with = "bytes::optional")]
    pub old_path: Option<Vec<u8>>,
    /// The version that was published.
    pub version: Option<Version>,
    /// The size now. Bytes.
    pub size: u64,
}

/// How far the feed was read, and what came after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Entries after the one that was asked for, oldest first.
    pub entries: Vec<(ChangeSequence, ChangeRecord)>,
    /// Set where entries after the one that was asked for are gone, up to this one: whoever follows
    /// the feed has missed them, and reads the zone anew.
    pub gap: Option<ChangeSequence>,
    /// The last entry there is.
    pub last: ChangeSequence,
}

impl VersionRecord {
    /// An upper bound of the encoded size. Bytes.
    pub(super) fn weight(&self) -> usize {
        let from = self.from.as_ref().map_or(0, |from| from.name.as_bytes().len());
        160 + self.place.name.as_bytes().len() + from
    }

    /// Whether a reader can be given content.
    pub fn has_content(&self) -> bool {
        self.content.is_some() && !matches!(self.kind, VersionKind::Rename)
    }
}

impl ChangeRecord {
    /// An upper bound of the encoded size. Bytes.
    pub(super) fn weight(&self) -> usize {
        let len = |path: &Option<Vec<u8>>| path.as_ref().map_or(0, Vec::len);
        112 + len(&self.path) + len(&self.old_path)
    }

    pub(super) fn is_sound(&self) -> bool {
        let fits = |path: &Option<Vec<u8>>| path.as_ref().is_none_or(|path| path.len() <= MAX_CHANGE_PATH);
        fits(&self.path) && fits(&self.old_path)
    }
}
