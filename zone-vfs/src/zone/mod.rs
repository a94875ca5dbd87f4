//! A zone: a filesystem in a [`Tree`](crate::tree::Tree), under a contract and a quota.
//!
//! All filesystem meaning lies here, once. Callers name files by [`Inode`] and paths by a base
//! directory and bytes; an [`Access`] says who asks and what time it is. A [`Zone`] is one writer's
//! live state; [`Zone::snapshot`] gives a [`ZoneRoot`], which never changes and from which any number
//! of zones can go on.
//!
//! Times are those that callers pass in; nothing here asks a clock. Reading does not change a
//! file's access time, which is set only explicitly.

mod changes;
mod compare;
mod dentries;
mod directory;
mod error;
mod feed;
mod file;
mod held;
mod history;
mod holders;
mod open;
mod path;
mod ranges;
mod relieve;
mod root;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod types;
mod verify;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::chunks::ChunkStore;
use crate::contract::{self, Effect, Operation, Principal, ZoneKind};
use crate::id::{Inode, Timestamp, Turn, Version};
use crate::tree::{Body, FileKind, InodeRecord, Key, Value};

pub use compare::{
    DiffPart, DifferenceKind, FileDifference, FileSide, MAX_DIFFERENCE_BYTES, MAX_DIFFERENCES, Sameness,
};
pub use error::{Cause, ErrorCode, Measure, ZoneError};
pub use feed::KEPT_CHANGES;
pub use held::{ContentIds, Whereabouts};
pub(crate) use history::content::{PiecesIdentity, pieces_in};
pub use history::view::{MAX_DIRECTORY_SHOWN, MAX_EVENT_SHOWN, MAX_SAME_PATH};
pub use history::{
    Deleted, Forgotten, HISTORY_SHARE, KeepVersions, MAX_OLD_VERSIONS, OldVersions, ReapedVersions,
    VersionEntry,
};
pub use holders::Holder;
pub(crate) use holders::Through;
pub use open::OpenedFor;
#[cfg(test)]
pub(crate) use relieve::{BOUNDS, Bounds};
pub use root::{StoredRoot, ZoneRoot};
pub use types::{
    Access, Bytes, Change, Counters, DirEntry, DrainLimits, Drained, Erased, Expected, HOST_RESERVE,
    MAX_CHANGE, MAX_DIRECTORY_DEPTH, MAX_ERASED, MAX_FILE_SIZE, MAX_LINKS_FOLLOWED, MAX_NAMES, MAX_PATH,
    OpenOptions, Quota, Stat, Usage,
};
pub(crate) use verify::{MAX_NUMBER, MAX_TIME, verify};

use changes::Standing;
use path::Place;
use state::State;
use table::{OpenFile, OpenTable};

type Result<T, E = ZoneError> = std::result::Result<T, E>;

/// The live state of a zone.
///
/// An operation that fails has changed nothing.
///
/// ```
/// use std::sync::Arc;
/// use zone_vfs::contract::{Principal, ZoneKind};
/// use zone_vfs::id::{Inode, Timestamp};
/// use zone_vfs::tree::MemoryChunks;
/// use zone_vfs::zone::{Access, ErrorCode, OpenOptions, Quota, Zone};
///
/// # fn main() -> Result<(), zone_vfs::zone::ZoneError> {
/// let chunks = Arc::new(MemoryChunks::default());
/// let mut zone = Zone::new(ZoneKind::Episodic, Quota::default(), Timestamp::now(), chunks.clone());
/// let agent = Access::new(Principal::Agent, Timestamp::now());
/// let create = OpenOptions { create: true, write: true, ..OpenOptions::default() };
///
/// let diary = zone.open(agent, Inode::ROOT, b"diary", create)?;
/// zone.append(agent, diary, b"It rained.")?;
/// let refused = zone.write(agent, diary, 0, b"It shone.").unwrap_err();
/// assert_eq!(refused.code, ErrorCode::NotPermitted);
///
/// let mut fork = Zone::from_root(zone.snapshot()?, chunks);
/// fork.open_inode(diary)?;
/// fork.append(agent, diary, b" I stayed in.")?;
/// assert_eq!(fork.stat(agent, diary)?.size, 23);
/// assert_eq!(zone.stat(agent, diary)?.size, 10);
/// # Ok(())
/// # }
/// ```
pub struct Zone {
    kind: ZoneKind,
    quota: Quota,
    counters: Counters,
    /// How it stood at the last drain.
    drained: Standing,
    state: State,
    open: OpenTable,
    holders: holders::Holders,
    /// The open files that are newer than the tree.
    dirty: Vec<Inode>,
    /// What was renamed over another file while it was open.
    aliases: BTreeMap<Inode, Alias>,
    /// Who wrote to what since the last drain, last.
    authors: BTreeMap<Inode, Principal>,
    /// What was forgotten since the last drain.
    forgotten: BTreeSet<Inode>,
    /// What the agent has forgotten, and nobody has noted yet.
    erased: Vec<Erased>,
    /// Drafts that nobody has open, since a full disk kept them from being published.
    postponed: BTreeSet<Inode>,
    /// How much of it is in memory.
    bounded: relieve::Bounded,
    /// The turn that is going on; 0 for none.
    turn: Turn,
    /// The number of the first event that can belong to this turn, or to what the operator does now.
    span: Version,
}

/// The open file that is meant by the number of one that was renamed over it.
#[derive(Clone, Copy)]
struct Alias {
    to: Inode,
    /// How often it is open by that number.
    references: u32,
}

impl Zone {
    /// An empty zone, whose root directory is made at `now`. Its first drain contains that directory.
    pub fn new(kind: ZoneKind, quota: Quota, now: Timestamp, store: Arc<dyn ChunkStore>) -> Self {
        let mut zone = Self::from_root(ZoneRoot::empty(kind, quota), store);
        let root = new_record(Body::Directory { parent: Inode::ROOT }, 0, now);
        zone.state
            .put(Key::inode(Inode::ROOT), Value::Inode(root))
            .expect("an empty tree reads no storage and is not full");
        zone.counters.next_inode = Inode::ROOT.next();
        zone
    }

    /// A zone that goes on from `root`. No file is open; orphans are still there, to be opened with
    /// [`Zone::open_inode`] or dropped with [`Zone::drop_orphans_except`].
    pub fn from_root(root: ZoneRoot, store: Arc<dyn ChunkStore>) -> Self {
        let ZoneRoot { kind, quota, counters, tree, history, resident_bytes } = root;
        let drained = Standing { tree: tree.clone(), history: history.clone(), counters };
        let pending = BTreeMap::new();
        Self {
            kind,
            quota,
            counters,
            drained,
            state: State {
                tree,
                history,
                store,
                pending,
                dirty_bytes: 0,
                resident_bytes,
                dentries: RefCell::default(),
            },
            open: OpenTable::default(),
            holders: holders::Holders::default(),
            dirty: Vec::new(),
            aliases: BTreeMap::new(),
            authors: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            erased: Vec::new(),
            postponed: BTreeSet::new(),
            bounded: relieve::Bounded::new(),
            turn: Turn(0),
            span: Version(counters.next_inode.0),
        }
    }

    /// The zone as it stands, with what was not drained yet.
    pub fn snapshot(&mut self) -> Result<ZoneRoot> {
        self.settle()?;
        Ok(ZoneRoot {
            kind: self.kind,
            quota: self.quota,
            counters: self.counters,
            tree: self.state.tree.clone(),
            history: self.state.history.clone(),
            resident_bytes: self.state.resident_bytes,
        })
    }

    /// Its kind.
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }

    /// Its quota.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Sets the quota, for the host. What is used already stays, also beyond it.
    pub fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
    }

    /// What it uses.
    pub fn usage(&self) -> Usage {
        self.counters.usage
    }

    /// What counts against its quota: all that it uses, but for what a fork began with and still has.
    pub fn charged(&self) -> Usage {
        self.counters.charged()
    }

    /// What its history uses: the bytes that each version added, and the number of events.
    pub fn past_usage(&self) -> Usage {
        self.counters.past
    }

    /// Bytes of file content that the tree holds in memory. Open files hold one chunk each beside.
    pub fn resident_bytes(&self) -> usize {
        self.state.resident_bytes
    }

    /// Moves the file content that is in memory to the chunk store. Nothing that can be seen changes.
    pub fn spill(&mut self) -> Result<()> {
        self.settle()?;
        // An open file's chunk would keep its memory, so it is read again when needed.
        for file in self.open.values_mut() {
            file.chunk = None;
        }
        self.state.tree.spill(&*self.state.store)?;
        self.state.resident_bytes = 0;
        Ok(())
    }

    /// Asks the zone's contract. Every operation here does that by itself; callers ask for what they
    /// do beside the zone: [`Operation::Sync`], and [`Operation::CrossZone`] for its error.
    #[inline]
    pub fn check(&self, access: Access, operation: Operation) -> Result<Effect> {
        Ok(contract::check(self.kind, self.holders.narrow(access), operation)?)
    }

    /// Asks the contract about what is or will be at `place`.
    fn check_place(&self, access: Access, place: &Place, operation: Operation) -> Result<Effect> {
        self.check_past(access, place, operation)?;
        if self.is_reserved(place)? {
            return Ok(contract::check_reserved(self.kind, self.holders.narrow(access), operation)?);
        }
        self.check(access, operation)
    }

    /// Asks the contract about writing to an open file.
    #[inline]
    fn check_file(&self, access: Access, file: &OpenFile, operation: Operation) -> Result<Effect> {
        if file.reserved {
            return Ok(contract::check_reserved(self.kind, self.holders.narrow(access), operation)?);
        }
        self.check(access, operation)
    }

    /// The record of an inode, as it is now.
    #[inline]
    fn record(&self, inode: Inode) -> Result<&InodeRecord> {
        match self.open.get(&inode) {
            Some(file) => Ok(&file.record),
            None => self.state.record(inode),
        }
    }

    /// Changes the record of an inode. Cannot fail when the record was read before.
    fn update(&mut self, inode: Inode, change: impl FnOnce(&mut InodeRecord)) -> Result<()> {
        if let Some(file) = self.open.get_mut(&inode) {
            change(&mut file.record);
            self.touch(inode);
            return Ok(());
        }
        let mut record = self.state.record(inode)?.clone();
        change(&mut record);
        self.state.put(Key::inode(inode), Value::Inode(record))
    }

    /// Notes that an open file is newer than the tree.
    #[inline]
    fn touch(&mut self, inode: Inode) {
        if let Some(file) = self.open.get_mut(&inode)
            && !file.dirty
        {
            file.dirty = true;
            self.dirty.push(inode);
        }
    }

    /// Brings the tree up to date with the open files.
    fn settle(&mut self) -> Result<()> {
        while let Some(inode) = self.dirty.last().copied() {
            self.settle_file(inode)?;
            self.dirty.pop();
        }
        Ok(())
    }

    /// Brings the tree up to date with one open file. The caller takes it off the list of dirty ones.
    fn settle_file(&mut self, inode: Inode) -> Result<()> {
        if let Some(file) = self.open.get_mut(&inode)
            && file.dirty
        {
            file.write_back(&mut self.state, inode)?;
            self.state.put(Key::inode(inode), Value::Inode(file.record.clone()))?;
            file.dirty = false;
        }
        Ok(())
    }

    /// Checks that so much more may be used.
    fn afford(&mut self, bytes: u64, inodes: u64) -> Result<()> {
        self.afford_of(self.quota, bytes, inodes)
    }

    /// As [`afford`](Self::afford), for what is written under a name that is reserved for the host.
    fn afford_reserved(&mut self, bytes: u64, inodes: u64) -> Result<()> {
        let Quota { bytes: of_bytes, inodes: of_inodes } = self.quota;
        let quota = Quota {
            bytes: of_bytes.saturating_add(HOST_RESERVE.bytes),
            inodes: of_inodes.saturating_add(HOST_RESERVE.inodes),
        };
        self.afford_of(quota, bytes, inodes)
    }

    /// What can be written under the name that is reserved for the host, whatever else is written to the zone. Bytes.
    pub fn reserved_room(&self) -> u64 {
        let beyond = self.charged().bytes.saturating_sub(self.quota.bytes);
        HOST_RESERVE.bytes.saturating_sub(beyond)
    }

    fn afford_of(&mut self, quota: Quota, bytes: u64, inodes: u64) -> Result<()> {
        // what went since the last check is not made up for by what comes
        self.counters.settle();
        let charged = self.counters.charged();
        let fits = |used: u64, more: u64, quota: u64| {
            more == 0 || used.checked_add(more).is_some_and(|sum| sum <= quota)
        };
        for (of, used, more, quota) in [
            (Measure::Bytes, charged.bytes, bytes, quota.bytes),
            (Measure::Inodes, charged.inodes, inodes, quota.inodes),
        ] {
            if !fits(used, more, quota) {
                let cause = Some(Cause::Full { of, used, more, quota });
                return Err(ZoneError { code: ErrorCode::Quota, cause });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone")
            .field("kind", &self.kind)
            .field("counters", &self.counters)
            .field("open", &self.open.len())
            .finish_non_exhaustive()
    }
}

fn new_record(body: Body, size: u64, now: Timestamp) -> InodeRecord {
    InodeRecord { links: 1, size, accessed: now, modified: now, changed: now, place: None, body }
}

fn is_directory(kind: FileKind) -> bool {
    kind == FileKind::Directory
}
