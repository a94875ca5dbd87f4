//! A forkable copy-on-write B+tree over content-addressed storage.
//!
//! A clone of a [`Tree`] shares all nodes and costs one pointer; whichever of the two is changed
//! copies the path it changes, and changes in place what it alone has. A node that was stored has an
//! address, and a link to a stored node is followed when it is first needed. One tree holds one
//! zone: its inodes, directory entries and file chunks, ordered by [`Key`] so that the parts of one
//! inode lie together.
//!
//! The stored form is described in `docs/format-trees.md`.

pub(crate) mod bytes;
mod diff;
mod edit;
mod error;
mod key;
mod memory;
mod node;
mod past;
mod range;
mod storage;
#[cfg(test)]
mod tests;
mod travel;
mod value;

use crate::chunks::ChunkStore;

pub use diff::Difference;
pub use error::TreeError;
pub use key::{Key, MAX_NAME, Name, Part};
pub use memory::MemoryChunks;
pub use node::{MAX_ENTRIES, MAX_LEVEL, MAX_WEIGHT};
pub use past::{
    ChangeKind, ChangeRecord, Changes, DraftRecord, EventRecord, MAX_CHANGE_PATH, NamedPlace, VersionKind,
    VersionRecord,
};
pub use range::Range;
pub(crate) use storage::{Content, NameOf, references, references_content, references_names};
pub(crate) use travel::{Downward, Elsewhere, PiecedContent, translate, upward, walk};
pub use value::{
    Body, CHUNK, Extent, ExtentValue, FileKind, InodeRecord, MAX_INLINE, MAX_PIECE, MAX_TARGET, StoredValue,
    Value,
};

use node::{Child, Entries, Node};

/// A map from [`Key`] to [`Value`], cheap to clone.
///
/// Operations read nodes that are not in memory through the `store` that they are given. An
/// operation that fails has changed nothing.
#[derive(Clone, Debug)]
pub struct Tree {
    root: Child,
}

impl Default for Tree {
    fn default() -> Self {
        Self { root: Child::from(Node::leaf(Vec::new())) }
    }
}

impl Tree {
    /// Whether both share their root node, or have the same address: cheap, and never wrong when true.
    pub fn same_as(&self, other: &Self) -> bool {
        self.root.same_as(&other.root)
    }

    /// Whether it holds nothing, as far as that is known without reading: never wrong when true.
    pub fn is_empty(&self) -> bool {
        self.root.in_memory().is_some_and(|root| root.level == 0 && root.len() == 0)
    }

    /// The value under `key`.
    pub fn get(&self, store: &dyn ChunkStore, key: &Key) -> Result<Option<&Value>, TreeError> {
        let mut node = self.root.root(store)?;
        loop {
            match &node.entries {
                Entries::Leaf(entries) => {
                    let found = entries.binary_search_by(|(at, _)| at.cmp(key));
                    return Ok(found.ok().map(|index| &entries[index].1));
                }
                Entries::Branch { keys, .. } => {
                    node = node.child(keys.partition_point(|at| at <= key), store)?;
                }
            }
        }
    }

    /// The value under `key`, to be changed in place to one that is not heavier.
    ///
    /// Copies the path to it where that is shared. Meant for chunks, whose weight does not change.
    pub fn get_mut(&mut self, store: &dyn ChunkStore, key: &Key) -> Result<Option<&mut Value>, TreeError> {
        if self.get(store, key)?.is_none() {
            return Ok(None);
        }
        edit::get_mut(self.root.edit(store)?, store, key)
    }

    /// Puts `value` under `key` and gives what was there.
    pub fn insert(
        &mut self,
        store: &dyn ChunkStore,
        key: Key,
        value: Value,
    ) -> Result<Option<Value>, TreeError> {
        self.get(store, &key)?;
        let root = self.root.edit(store)?;
        if root.level >= MAX_LEVEL && root.len() >= MAX_ENTRIES {
            return Err(TreeError::TooDeep);
        }
        let (old, split) = edit::insert(root, store, key, value)?;
        if let Some(split) = split {
            edit::grow(root, split);
        }
        Ok(old)
    }

    /// Takes away what is under `key`, and gives it.
    pub fn remove(&mut self, store: &dyn ChunkStore, key: &Key) -> Result<Option<Value>, TreeError> {
        if self.get(store, key)?.is_none() {
            return Ok(None);
        }
        let old = edit::remove(self.root.edit(store)?, store, key)?;
        while let Some(only) = self.root.only_child() {
            self.root = only;
        }
        Ok(old)
    }
}
