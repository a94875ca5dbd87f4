//! A zone: a filesystem in a tree, under a contract and a quota.

mod error;
mod root;
mod types;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::chunks::ChunkStore;
use crate::contract::ZoneKind;
use crate::id::{Inode, Timestamp};
use crate::tree::Name;

pub use error::{Cause, ErrorCode, ZoneError};
pub use root::{StoredRoot, ZoneRoot};
pub use types::*;

type Result<T, E = ZoneError> = std::result::Result<T, E>;
fn later<T>() -> Result<T> { Err(ErrorCode::Unsupported.into()) }

/// A live zone.
pub struct Zone {}

#[allow(unused_variables, missing_docs)]
impl Zone {
    pub fn new(kind: ZoneKind, quota: Quota, now: Timestamp, store: Arc<dyn ChunkStore>) -> Self { Zone {} }
    pub fn from_root(root: ZoneRoot, store: Arc<dyn ChunkStore>) -> Self { Zone {} }
    /// Cheap. Includes what has not been drained.
    pub fn snapshot(&mut self) -> Result<ZoneRoot> { later() }
    pub fn kind(&self) -> ZoneKind { ZoneKind::Workspace }
    pub fn quota(&self) -> Quota { Quota::default() }
    pub fn set_quota(&mut self, quota: Quota) {}
    pub fn usage(&self) -> Usage { Usage::default() }

    // Open files. read, write, append, set_size need an open inode; everything else takes any.
    pub fn open(&mut self, access: Access, base: Inode, path: &[u8], options: OpenOptions) -> Result<Inode> { later() }
    pub fn open_inode(&mut self, inode: Inode) -> Result<()> { later() }
    pub fn close(&mut self, inode: Inode) -> Result<()> { later() }
    /// Orphans (unlinked, were open in the snapshot) that are neither open nor in `keep` are dropped.
    pub fn drop_orphans_except(&mut self, keep: &BTreeSet<Inode>) -> Result<()> { later() }

    pub fn resolve(&mut self, access: Access, base: Inode, path: &[u8], follow: bool) -> Result<Inode> { later() }
    pub fn stat(&self, access: Access, inode: Inode) -> Result<Stat> { later() }
    pub fn stat_at(&mut self, access: Access, base: Inode, path: &[u8], follow: bool) -> Result<Stat> { later() }
    pub fn readdir(&self, access: Access, directory: Inode, after: Option<&Name>, max: usize) -> Result<Vec<DirEntry>> { later() }
    pub fn readlink(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<Vec<u8>> { later() }

    pub fn read(&mut self, access: Access, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize> { later() }
    /// At most to the end of the chunk that holds `offset`; no copy. Empty at the end of the file.
    pub fn read_shared(&mut self, access: Access, inode: Inode, offset: u64, max: usize) -> Result<Bytes> { later() }
    pub fn write(&mut self, access: Access, inode: Inode, offset: u64, data: &[u8]) -> Result<usize> { later() }
    /// The offset at which it was written.
    pub fn append(&mut self, access: Access, inode: Inode, data: &[u8]) -> Result<u64> { later() }
    pub fn set_size(&mut self, access: Access, inode: Inode, size: u64) -> Result<()> { later() }
    pub fn set_times(&mut self, access: Access, inode: Inode, accessed: Option<Timestamp>, modified: Option<Timestamp>) -> Result<()> { later() }
    pub fn advise(&self, access: Access, inode: Inode, offset: u64, len: u64) -> Result<()> { later() }

    pub fn mkdir(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<Inode> { later() }
    pub fn rmdir(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<()> { later() }
    pub fn unlink(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<()> { later() }
    pub fn rename(&mut self, access: Access, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<()> { later() }
    pub fn link(&mut self, access: Access, from: (Inode, &[u8]), follow: bool, to: (Inode, &[u8])) -> Result<()> { later() }
    pub fn symlink(&mut self, access: Access, target: &[u8], base: Inode, path: &[u8]) -> Result<Inode> { later() }

    // The log.
    pub fn is_dirty(&self) -> bool { false }
    pub fn drain_changes(&mut self, limits: &DrainLimits) -> Result<Drained> { later() }
    pub fn apply(&mut self, changes: &[Change]) -> Result<()> { later() }
    /// An upper bound of the bytes written since the last drain.
    pub fn dirty_bytes(&self) -> usize { 0 }
    /// Bytes of file content held in memory by the tree; `spill` moves it to the store.
    pub fn resident_bytes(&self) -> usize { 0 }
    pub fn spill(&mut self) -> Result<()> { later() }
}
