use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contract::{Mount, Principal};
use crate::id::{ChangeSequence, Hash, Inode, Timestamp, Version};
use crate::tree::{CHUNK, Extent, FileKind, InodeRecord, Key, Name, Part, StoredValue, bytes};

/// The longest path. Bytes.
pub const MAX_PATH: usize = 4096;
/// How many symbolic links one path may lead through.
pub const MAX_LINKS_FOLLOWED: usize = 40;
/// The largest size of a file. Bytes.
pub const MAX_FILE_SIZE: u64 = 1 << 40;
/// How many names a file can have.
pub const MAX_NAMES: u32 = 65_000;
/// How deep a directory can lie that a directory is made in or moved into, or in logs anything is made in.
pub const MAX_DIRECTORY_DEPTH: usize = 1024;

/// No change is longer than this when encoded. Bytes.
pub const MAX_CHANGE: usize = CHUNK + 64;

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Who asks, and how the zone is mounted for it.
    pub mount: Mount,
    /// The time that changes are stamped with.
    pub now: Timestamp,
}

impl Access {
    /// Access through a writable mount.
    pub fn new(principal: Principal, now: Timestamp) -> Self {
        Self { mount: Mount::writable(principal), now }
    }
}

/// How to open a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Create a file that does not exist.
    pub create: bool,
    /// With `create`: fail when it exists.
    pub exclusive: bool,
    /// Cut an existing file to no bytes.
    pub truncate: bool,
    /// Fail unless it is a directory.
    pub directory: bool,
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Follow a symbolic link at the end of the path.
    pub follow: bool,
}

/// What a zone may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The sum of the sizes of files and link targets, holes counted. Bytes.
    pub bytes: u64,
    /// Inodes, and names beyond the first of each.
    pub inodes: u64,
}

impl Default for Quota {
    /// 1 GiB and a million inodes.
    fn default() -> Self {
        Self { bytes: 1 << 30, inodes: 1 << 20 }
    }
}

/// What the host may write under its [reserved name](crate::contract::reserved_name) beyond a zone's quota: nobody who fills
/// the zone keeps the host from telling what happened.
pub const HOST_RESERVE: Quota = Quota { bytes: 64 << 10, inodes: 8 };

/// Files and versions that an agent forgets before its host has noted them, at most.
pub const MAX_ERASED: usize = 1000;

/// What an agent has forgotten, for the host to note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erased {
    /// The file.
    pub file: Inode,
    /// The version, where it was one alone.
    pub version: Option<Version>,
    /// Where the file was, from the zone's root, where that is known.
    pub path: Option<Vec<u8>>,
    /// Versions whose content is gone, and the live content.
    pub contents: usize,
    /// Their sizes together. Bytes.
    pub bytes: u64,
}

/// What a zone uses, counted as its [`Quota`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes.
    pub bytes: u64,
    /// Inodes, and names beyond the first of each.
    pub inodes: u64,
}

impl Usage {
    /// What of this is not in `other`, by count alone.
    fn beyond(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    pub(super) fn min(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), inodes: self.inodes.min(other.inodes) }
    }
}

/// What a zone counts, beside its trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The inode or version number to be given next.
    pub next_inode: Inode,
    /// What the zone's files use.
    pub usage: Usage,
    /// What its history uses: the bytes that each version added, and the number of events.
    pub past: Usage,
    /// The change feed's entry that comes next.
    pub next_change: ChangeSequence,
    /// The last entry of the change feed that was dropped.
    pub dropped: ChangeSequence,
    /// The time of the last event in the history. Times there never go back.
    pub latest: Timestamp,
    /// What of `usage` came from the zone that this is a fork's of, and is still there; it is not charged.
    /// Where a fork has files of its own too, what goes first is its own.
    pub inherited: Usage,
    /// What of `past` came from there.
    pub inherited_past: Usage,
    /// The event from which on the history is whole: how the zone stood before it is not told.
    pub horizon: Version,
    /// The event up to which old versions were given back. At most the horizon, which a rewind to before this
    /// one moves on alone: what it brings back is not whole, and no older for that.
    pub reaped: Version,
}

impl Counters {
    /// Of a zone without anything in it.
    pub(crate) fn empty() -> Self {
        Self { next_inode: Inode::ROOT, next_change: ChangeSequence(1), ..Self::default() }
    }

    /// What counts against the quota: what the zone has used beyond what it began with.
    pub fn charged(&self) -> Usage {
        self.usage.beyond(self.inherited)
    }

    /// What counts against the quota of the history.
    pub(super) fn charged_past(&self) -> Usage {
        self.past.beyond(self.inherited_past)
    }

    /// What was inherited and is gone is not inherited any more: what comes in its stead is charged.
    pub(super) fn settle(&mut self) {
        self.inherited = self.inherited.min(self.usage);
        self.inherited_past = self.inherited_past.min(self.past);
    }

    /// These, for a fork: all that is there is inherited.
    pub(super) fn forked(self) -> Self {
        Self { inherited: self.usage, inherited_past: self.past, ..self }
    }

    /// These, with numbers that `other` has given and times that it has seen given and seen.
    pub(super) fn after(self, other: &Self) -> Self {
        Self {
            next_inode: self.next_inode.max(other.next_inode),
            next_change: self.next_change.max(other.next_change),
            latest: self.latest.max(other.latest),
            ..self
        }
    }
}

/// What a conditional operation expects a file to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Anything.
    #[default]
    Any,
    /// Nothing of this name.
    Missing,
    /// At this version; see [`Zone::current`](super::Zone::current).
    Version(Version),
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stat {
    /// Which one.
    pub inode: Inode,
    /// What it is.
    pub kind: FileKind,
    /// How many names it has; 1 for a directory, 0 when it is removed and still open.
    pub links: u32,
    /// Bytes; 0 for a directory.
    pub size: u64,
    /// When it was last read, as far as that was set explicitly.
    pub accessed: Timestamp,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When anything about it last changed.
    pub changed: Timestamp,
}

impl Stat {
    pub(super) fn of(inode: Inode, record: &InodeRecord) -> Self {
        Self {
            inode,
            kind: record.kind(),
            links: record.links,
            size: record.size,
            accessed: record.accessed,
            modified: record.modified,
            changed: record.changed,
        }
    }
}

/// One entry of a directory. `.` and `..` are not listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name; also the cursor that continues after it.
    pub name: Name,
    /// The inode it stands for.
    pub inode: Inode,
    /// What that is.
    pub kind: FileKind,
}

/// Content that is shared with the zone, not copied out of it.
#[derive(Clone, Debug)]
pub struct Bytes {
    pub(super) source: Source,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Extent(Arc<Extent>),
    Frame(Arc<[u8]>),
    Inline(Arc<Vec<u8>>),
    Zeros(&'static [u8]),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.source {
            Source::Extent(extent) => extent.bytes(),
            Source::Frame(frame) => frame,
            Source::Inline(data) => data,
            Source::Zeros(zeros) => zeros,
        };
        &all[self.range.clone()]
    }
}

/// What a drain writes inline; more goes to the chunk store and travels as an address.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimits {
    /// Changed bytes of one chunk.
    pub chunk: usize,
    /// Changed bytes of all chunks together.
    pub total: usize,
}

impl Default for DrainLimits {
    /// 16 KiB of a chunk, 256 KiB altogether.
    fn default() -> Self {
        Self { chunk: 16 << 10, total: 256 << 10 }
    }
}

/// One step from a zone's state at one drain to its state at the next. Order matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// The key has this value.
    Put(Key, StoredValue),
    /// The key is gone.
    Remove(Key),
    /// A chunk is cut to `len` bytes where it is longer.
    Cut {
        /// The file.
        inode: Inode,
        /// The chunk's index.
        chunk: u64,
        /// Its new length. Bytes.
        len: u32,
    },
    /// Bytes of one chunk, which is made, and filled up with zeros, as needed.
    Patch {
        /// The file.
        inode: Inode,
        /// Where in the file.
        offset: u64,
        /// What is written there; does not reach into the next chunk.
        #[serde(with = "bytes::vec")]
        bytes: Vec<u8>,
    },
    /// The zone's counters.
    Counters(Counters),
}

impl Change {
    /// About how many bytes it has in a record.
    pub fn size(&self) -> usize {
        const KEY: usize = 32;
        match self {
            Change::Put(key, value) => {
                let name = match &key.part {
                    Part::Dirent(name) | Part::Named(name, _) => name.as_bytes().len(),
                    _ => 0,
                };
                KEY + name + value.size()
            }
            Change::Patch { bytes, .. } => KEY + bytes.len(),
            Change::Remove(_) | Change::Cut { .. } | Change::Counters(_) => KEY + 255,
        }
    }

    /// Whether it names a chunk, which has to be durable before the record is.
    pub fn names_chunk(&self) -> bool {
        matches!(self, Change::Put(_, StoredValue::Extent { .. }))
    }
}

/// What a drain gives.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// The changes since the last drain, in order, none longer than [`MAX_CHANGE`] encoded.
    /// They may be split over several records, which must take effect together.
    pub changes: Vec<Change>,
    /// The chunks that the changes name, which must be durable before the record that holds them.
    pub needs: Vec<Hash>,
}
