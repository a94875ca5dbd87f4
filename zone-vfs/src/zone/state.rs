//! A zone's tree together with what changed in it since the last drain.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::dentries::Dentries;
use super::ranges::Ranges;
use super::{ErrorCode, Result};
use crate::chunks::ChunkStore;
use crate::id::{Hash, Inode, Version};
use crate::tree::{
    Body, CHUNK, DraftRecord, Extent, ExtentValue, FileKind, InodeRecord, Key, Name, Part, Tree, TreeError,
    Value,
};

/// What a change of metadata counts for in `dirty_bytes`. Bytes.
const METADATA_WEIGHT: usize = 64;

pub(super) struct State {
    /// The files as they are.
    pub(super) tree: Tree,
    /// What they were, and the change feed. Keys say in which of the two trees they lie.
    pub(super) history: Tree,
    pub(super) store: Arc<dyn ChunkStore>,
    /// The keys whose values may differ from those at the last drain.
    pub(super) pending: BTreeMap<Key, Pending>,
    /// An upper bound of what was written since the last drain. Bytes.
    pub(super) dirty_bytes: usize,
    /// Bytes of the chunks that the tree holds in memory.
    pub(super) resident_bytes: usize,
    /// Of `tree`, those that were looked up lately.
    pub(super) dentries: RefCell<Dentries>,
}

/// How a key may differ from what it was at the last drain.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// Any value, or none.
    Value,
    /// A chunk.
    Extent(PendingExtent),
}

#[derive(Clone, Debug)]
pub(super) struct PendingExtent {
    /// How much of the chunk at the last drain is still there; `None` when it was taken away.
    pub(super) kept: Option<u32>,
    /// What was written since.
    pub(super) written: Ranges,
}

impl Default for PendingExtent {
    fn default() -> Self {
        Self { kept: Some(u32::MAX), written: Ranges::default() }
    }
}

impl State {
    pub(super) fn get(&self, key: &Key) -> Result<Option<&Value>> {
        let tree = if key.part.is_history() { &self.history } else { &self.tree };
        Ok(tree.get(&*self.store, key)?)
    }

    /// Sets or removes a value without noting that it changed, and gives the old one.
    fn replace(&mut self, key: Key, value: Option<Value>) -> Result<Option<Value>> {
        if let Part::Dirent(name) = &key.part {
            self.dentries.get_mut().forget(key.inode, name);
        }
        let tree = if key.part.is_history() { &mut self.history } else { &mut self.tree };
        Ok(match value {
            Some(value) => tree.insert(&*self.store, key, value)?,
            None => tree.remove(&*self.store, &key)?,
        })
    }

    /// Sets or removes a value without noting that it changed.
    pub(super) fn set(&mut self, key: Key, value: Option<Value>) -> Result<()> {
        if let Some(old) = self.replace(key, value)? {
            self.forget(&old);
        }
        Ok(())
    }

    /// Loads the paths to `keys`, so that changes there cannot fail half-way.
    pub(super) fn prepare(&self, keys: &[&Key]) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(key).map(drop))
    }

    /// The record of an inode, or of a version's content, as the trees have it.
    pub(super) fn record(&self, inode: Inode) -> Result<&InodeRecord> {
        match self.get(&Key::inode(inode))? {
            Some(Value::Inode(record)) => Ok(record),
            _ => self.content(Version(inode.0)),
        }
    }

    /// The record of a version's content.
    #[cold]
    pub(super) fn content(&self, version: Version) -> Result<&InodeRecord> {
        match self.get(&Key::content(version))? {
            Some(Value::Inode(record)) => Ok(record),
            _ => Err(ErrorCode::NoEntry.into()),
        }
    }

    /// What is noted about the draft that the content of `inode` is, if it is one.
    pub(super) fn draft(&self, inode: Inode) -> Result<Option<DraftRecord>> {
        match self.get(&Key::draft(inode))? {
            Some(Value::Draft(draft)) => Ok(Some(*draft)),
            _ => Ok(None),
        }
    }

    /// The bytes of the chunk `index` that a version gives to a file with this record, where the file
    /// has none of its own.
    pub(super) fn shown_through(
        &self,
        inode: Inode,
        record: &InodeRecord,
        index: u64,
    ) -> Result<Option<Arc<[u8]>>> {
        let (version, kept) = match record.body {
            Body::Published { content, .. } => (content, record.size),
            Body::Over { content, kept } => (content, kept),
            Body::Pieces => (Version(inode.0), record.size),
            _ => return Ok(None),
        };
        let from = index.saturating_mul(CHUNK as u64);
        if from >= kept {
            return Ok(None);
        }
        let to = kept.min(from + CHUNK as u64);
        self.read_content(version, from, to).map(Some)
    }

    /// The bytes `from..to` of a version's content, which is at least as long.
    pub(super) fn read_content(&self, version: Version, from: u64, to: u64) -> Result<Arc<[u8]>> {
        let damaged = || TreeError::Damaged("a version is not as long as its record says");
        let Some(Value::Inode(record)) = self.get(&Key::content(version))? else {
            return Err(TreeError::Damaged("the content of a version is missing").into());
        };
        if let Body::Inline(bytes) = &record.body {
            let bytes = bytes.get(from as usize..to as usize).ok_or_else(damaged)?;
            return Ok(bytes.into());
        }
        let mut bytes = Vec::with_capacity((to - from) as usize);
        let mut at = from;
        while at < to {
            let found = self.history.last_until(&*self.store, &Key::piece(version, at))?;
            let piece = match found {
                Some((Key { inode, part: Part::Piece(offset) }, Value::Extent(piece)))
                    if *inode == version.inode() && at - offset < piece.len() as u64 =>
                {
                    Some((*offset, piece))
                }
                _ => None,
            };
            let Some((offset, piece)) = piece else {
                // a hole, up to the next piece
                let next = self.next_piece(version, at)?.unwrap_or(to).min(to);
                bytes.resize((next - from) as usize, 0);
                at = next;
                continue;
            };
            let skip = (at - offset) as usize;
            let end = piece.len().min((to - offset) as usize);
            match piece {
                ExtentValue::Memory(extent) => bytes.extend_from_slice(&extent.bytes()[skip..end]),
                ExtentValue::Stored { hash, len } => {
                    bytes.extend_from_slice(&self.read_chunk(hash, *len)?[skip..end]);
                }
            }
            at = offset + end as u64;
        }
        Ok(bytes.into())
    }

    /// Where the first piece of a version's content behind `at` begins.
    fn next_piece(&self, version: Version, at: u64) -> Result<Option<u64>> {
        let key = Key::piece(version, at);
        match self.history.range(&*self.store, Bound::Excluded(&key))?.next().transpose()? {
            Some((Key { inode, part: Part::Piece(offset) }, _)) if *inode == version.inode() => {
                Ok(Some(*offset))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn dirent(&self, directory: Inode, name: &Name) -> Result<Option<(Inode, FileKind)>> {
        if let Some(known) = self.known(directory, name.as_bytes()) {
            return Ok(Some(known));
        }
        match self.get(&Key::dirent(directory, name.clone()))? {
            Some(Value::Dirent { inode, kind }) => {
                let target = (*inode, *kind);
                self.dentries.borrow_mut().note(directory, name, target);
                Ok(Some(target))
            }
            _ => Ok(None),
        }
    }

    /// What an entry stands for, where that was looked up lately.
    pub(super) fn known(&self, directory: Inode, name: &[u8]) -> Option<(Inode, FileKind)> {
        self.dentries.borrow().get(directory, name)
    }

    pub(super) fn put(&mut self, key: Key, value: Value) -> Result<()> {
        self.replace(key.clone(), Some(value))?;
        self.dirty_bytes += METADATA_WEIGHT;
        self.pending.insert(key, Pending::Value);
        Ok(())
    }

    pub(super) fn remove(&mut self, key: Key) -> Result<()> {
        if let Some(old) = self.replace(key.clone(), None)? {
            self.dirty_bytes += METADATA_WEIGHT;
            self.forget(&old);
            if let Part::Extent(_) = key.part {
                let pending = self.pending_extent(key);
                pending.kept = None;
                pending.written.clear();
            } else {
                self.pending.insert(key, Pending::Value);
            }
        }
        Ok(())
    }

    /// Puts a chunk of which `written` was written since it was taken from the tree.
    pub(super) fn put_extent(&mut self, key: Key, extent: Arc<Extent>, written: &Ranges) -> Result<()> {
        self.resident_bytes += extent.bytes().len();
        let value = Value::Extent(ExtentValue::Memory(extent));
        if let Some(old) = self.tree.insert(&*self.store, key.clone(), value)? {
            self.forget(&old);
        }
        self.pending_extent(key).written.merge(written);
        Ok(())
    }

    /// Puts a chunk that shows through from a version, so that it can be changed.
    pub(super) fn put_shown(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        let mut written = Ranges::default();
        written.add(0, bytes.len());
        self.put_extent(key, Arc::new(Extent::new(bytes.to_vec())), &written)
    }

    /// Cuts a chunk to `len` bytes where it is longer.
    pub(super) fn cut_extent(&mut self, key: Key, len: usize) -> Result<()> {
        let Some(Value::Extent(value)) = self.get(&key)? else { return Ok(()) };
        let mut extent = self.load_extent(value)?;
        if extent.bytes().len() <= len {
            return Ok(());
        }
        Arc::make_mut(&mut extent).bytes_mut().truncate(len);
        let pending = self.pending_extent(key.clone());
        pending.kept = pending.kept.map(|kept| kept.min(len as u32));
        pending.written.clip(len);
        // The last byte is written again, so that a chunk patched from this record is as long.
        let mut last = Ranges::default();
        last.add(len - 1, len);
        self.dirty_bytes += METADATA_WEIGHT;
        self.put_extent(key, extent, &last)
    }

    /// The chunk in memory; one that is stored is read.
    pub(super) fn load_extent(&self, value: &ExtentValue) -> Result<Arc<Extent>> {
        match value {
            ExtentValue::Memory(extent) => Ok(extent.clone()),
            ExtentValue::Stored { hash, len } => {
                Ok(Arc::new(Extent::new(self.read_chunk(hash, *len)?.to_vec())))
            }
        }
    }

    /// The content of a stored chunk, which is as long as the tree says.
    pub(super) fn read_chunk(&self, hash: &Hash, len: u32) -> Result<Arc<[u8]>> {
        let frame = self.store.get(hash)?;
        if frame.len() == len as usize {
            return Ok(frame);
        }
        Err(TreeError::Damaged("a chunk is not as long as the tree says").into())
    }

    /// Takes a chunk that is only in memory out of the tree, in which an empty one stays until it is
    /// put back.
    pub(super) fn take_extent(&mut self, key: &Key) -> Result<Option<Arc<Extent>>> {
        let Some(Value::Extent(ExtentValue::Memory(extent))) = self.tree.get_mut(&*self.store, key)? else {
            return Ok(None);
        };
        let taken = std::mem::take(extent);
        self.resident_bytes -= taken.bytes().len();
        Ok(Some(taken))
    }

    /// The keys of a file's chunks from `first` on.
    pub(super) fn extents_from(&self, inode: Inode, first: u64) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        let from = Key::extent(inode, first);
        for entry in self.tree.range(&*self.store, Bound::Included(&from))? {
            match entry? {
                (key, _) if key.inode == inode && matches!(key.part, Part::Extent(_)) => {
                    keys.push(key.clone());
                }
                _ => break,
            }
        }
        Ok(keys)
    }

    pub(super) fn pending_extent(&mut self, key: Key) -> &mut PendingExtent {
        let pending = self.pending.entry(key).or_insert_with(|| Pending::Extent(PendingExtent::default()));
        if let Pending::Value = pending {
            *pending = Pending::Extent(PendingExtent { kept: None, written: Ranges::default() });
        }
        match pending {
            Pending::Extent(extent) => extent,
            Pending::Value => unreachable!("was just replaced"),
        }
    }

    /// Counts a chunk that left the tree.
    pub(super) fn forget(&mut self, old: &Value) {
        if let Value::Extent(ExtentValue::Memory(extent)) = old {
            self.resident_bytes -= extent.bytes().len();
        }
    }
}
