//! From one drain to the next: what changed, as records hold it, and applying that elsewhere.

use std::sync::Arc;

use super::state::{Pending, PendingExtent, State};
use super::{Change, Counters, DrainLimits, Drained, ErrorCode, Result, Zone, ZoneError};
use crate::tree::{CHUNK, Extent, ExtentValue, Key, Part, StoredValue, Tree, TreeError, Value};

/// A zone as it stood at a drain.
pub(super) struct Standing {
    pub(super) tree: Tree,
    pub(super) history: Tree,
    pub(super) counters: Counters,
}

impl Zone {
    /// Whether anything changed since the last drain.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.state.pending.is_empty() || self.drained.counters != self.counters
    }

    /// An upper bound of what a drain would write. Bytes.
    pub fn dirty_bytes(&self) -> usize {
        self.state.dirty_bytes
    }

    /// The changes since the last drain, or since the zone was made from a root.
    ///
    /// Chunks of which more changed than `limits` allows are put into the chunk store. After an error
    /// nothing is lost: the next drain gives these changes, too.
    pub fn drain_changes(&mut self, limits: &DrainLimits) -> Result<Drained> {
        self.settle()?;
        if !self.state.pending.is_empty() {
            self.feed_drained()?;
        }
        let mut drained = Drained::default();
        let mut left = limits.total;
        for (key, pending) in &self.state.pending {
            match pending {
                Pending::Value => self.state.drain_value(key, &mut drained)?,
                Pending::Extent(extent) => {
                    let limit = limits.chunk.min(left);
                    left -= self.state.drain_extent(key, extent, limit, &mut drained)?;
                }
            }
        }
        self.counters.settle();
        if self.drained.counters != self.counters {
            drained.changes.push(Change::Counters(self.counters));
        }
        self.state.pending.clear();
        self.bounded.drained();
        self.authors.clear();
        self.forgotten.clear();
        self.state.dirty_bytes = 0;
        self.drained = self.standing();
        Ok(drained)
    }

    /// Applies the changes of a drain to a zone that is as the drained one was at the drain before,
    /// and has no changes of its own (`busy` otherwise). They count as drained.
    ///
    /// Open files go on from the new state. Damaged changes are `io`, and change nothing.
    pub fn apply(&mut self, changes: &[Change]) -> Result<()> {
        if self.is_dirty() {
            return Err(ZoneError::rule(ErrorCode::Busy, "the zone has changes of its own"));
        }
        let before = (self.standing(), self.state.resident_bytes);
        // Files refer to the tree's chunks, which then could not be changed in place.
        for file in self.open.values_mut() {
            file.chunk = None;
        }
        if let Err(error) = self.apply_all(changes) {
            let (Standing { tree, history, counters }, resident_bytes) = before;
            (self.state.tree, self.state.history, self.counters) = (tree, history, counters);
            self.state.resident_bytes = resident_bytes;
            self.state.dentries.get_mut().clear();
            return Err(error);
        }
        self.drained = self.standing();
        Ok(())
    }

    fn apply_all(&mut self, changes: &[Change]) -> Result<()> {
        for change in changes {
            match change {
                Change::Put(key, value) => {
                    let value = Value::from_stored(value.clone())?;
                    value.check_under(key)?;
                    self.state.set(key.clone(), Some(value))?;
                }
                Change::Remove(key) => self.state.set(key.clone(), None)?,
                Change::Cut { inode, chunk, len } => {
                    let len = *len as usize;
                    self.state.edit_extent(Key::extent(*inode, *chunk), |bytes| bytes.truncate(len))?;
                }
                Change::Patch { inode, offset, bytes } => {
                    let from = *offset as usize % CHUNK;
                    let to = from + bytes.len();
                    if to > CHUNK {
                        return Err(TreeError::Damaged("a patch reaches into the next chunk").into());
                    }
                    self.state.edit_extent(Key::extent(*inode, offset / CHUNK as u64), |chunk| {
                        chunk.resize(chunk.len().max(to), 0);
                        chunk[from..to].copy_from_slice(bytes);
                    })?;
                }
                Change::Counters(counters) => self.counters = *counters,
            }
        }
        let records = self.open.keys().map(|inode| Ok((*inode, self.state.record(*inode)?.clone())));
        for (inode, record) in records.collect::<Result<Vec<_>>>()? {
            if let Some(file) = self.open.get_mut(&inode) {
                file.record = record;
            }
        }
        Ok(())
    }

    /// What the next drain compares with.
    fn standing(&self) -> Standing {
        let State { tree, history, .. } = &self.state;
        Standing { tree: tree.clone(), history: history.clone(), counters: self.counters }
    }
}

impl State {
    fn drain_value(&self, key: &Key, drained: &mut Drained) -> Result<()> {
        let change = match self.get(key)? {
            None => Change::Remove(key.clone()),
            Some(value) => {
                let value = value.to_stored(&*self.store)?;
                if let StoredValue::Extent { hash, .. } = &value {
                    drained.needs.push(*hash);
                }
                Change::Put(key.clone(), value)
            }
        };
        drained.changes.push(change);
        Ok(())
    }

    /// Gives how many bytes of the chunk went into the changes: at most `limit`.
    fn drain_extent(
        &self,
        key: &Key,
        pending: &PendingExtent,
        limit: usize,
        drained: &mut Drained,
    ) -> Result<usize> {
        let Part::Extent(index) = key.part else { return Ok(0) };
        let total = pending.written.total();
        let extent = match self.get(key)? {
            Some(Value::Extent(ExtentValue::Memory(extent))) if total <= limit => extent,
            _ => {
                self.drain_value(key, drained)?;
                return Ok(0);
            }
        };
        match pending.kept {
            None => drained.changes.push(Change::Remove(key.clone())),
            Some(u32::MAX) => {}
            Some(len) => drained.changes.push(Change::Cut { inode: key.inode, chunk: index, len }),
        }
        for (from, to) in pending.written.iter() {
            drained.changes.push(Change::Patch {
                inode: key.inode,
                offset: index * CHUNK as u64 + from as u64,
                bytes: extent.bytes()[from..to].to_vec(),
            });
        }
        Ok(total)
    }

    fn edit_extent(&mut self, key: Key, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let found = match self.get(&key)? {
            Some(Value::Extent(ExtentValue::Stored { .. })) | None => None,
            Some(_) => self.take_extent(&key)?,
        };
        let mut extent = match (found, self.get(&key)?) {
            (Some(extent), _) => extent,
            (None, Some(Value::Extent(value))) => self.load_extent(value)?,
            (None, _) => Arc::new(Extent::default()),
        };
        change(Arc::make_mut(&mut extent).bytes_mut());
        self.resident_bytes += extent.bytes().len();
        self.set(key, Some(Value::Extent(ExtentValue::Memory(extent))))
    }
}
