//! A zone's tree together with what changed in it since the last drain.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::ranges::Ranges;
use super::{ErrorCode, Result};
use crate::chunks::ChunkStore;
use crate::id::{Hash, Inode};
use crate::tree::{Extent, ExtentValue, FileKind, InodeRecord, Key, Name, Part, Tree, TreeError, Value};

/// What a change of metadata counts for in `dirty_bytes`. Bytes.
const METADATA_WEIGHT: usize = 64;

pub(super) struct State {
    pub(super) tree: Tree,
    pub(super) store: Arc<dyn ChunkStore>,
    /// The keys whose values may differ from those at the last drain.
    pub(super) pending: BTreeMap<Key, Pending>,
    /// An upper bound of what was written since the last drain. Bytes.
    pub(super) dirty_bytes: usize,
    /// Bytes of the chunks that the tree holds in memory.
    pub(super) resident_bytes: usize,
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
        Ok(self.tree.get(&*self.store, key)?)
    }

    /// Loads the paths to `keys`, so that changes there cannot fail half-way.
    pub(super) fn prepare(&self, keys: &[&Key]) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(key).map(drop))
    }

    /// The record of an inode as the tree has it.
    pub(super) fn record(&self, inode: Inode) -> Result<&InodeRecord> {
        match self.get(&Key::inode(inode))? {
            Some(Value::Inode(record)) => Ok(record),
            _ => Err(ErrorCode::NoEntry.into()),
        }
    }

    pub(super) fn dirent(&self, directory: Inode, name: &Name) -> Result<Option<(Inode, FileKind)>> {
        match self.get(&Key::dirent(directory, name.clone()))? {
            Some(Value::Dirent { inode, kind }) => Ok(Some((*inode, *kind))),
            _ => Ok(None),
        }
    }

    pub(super) fn put(&mut self, key: Key, value: Value) -> Result<()> {
        self.tree.insert(&*self.store, key.clone(), value)?;
        self.dirty_bytes += METADATA_WEIGHT;
        self.pending.insert(key, Pending::Value);
        Ok(())
    }

    pub(super) fn remove(&mut self, key: Key) -> Result<()> {
        if let Some(old) = self.tree.remove(&*self.store, &key)? {
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
