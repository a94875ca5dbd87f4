use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Quota, Result, Usage};
use crate::chunks::ChunkStore;
use crate::contract::ZoneKind;
use crate::id::{Hash, Inode};
use crate::tree::Tree;

/// A zone as it stood. Costs a pointer to copy, and never changes.
#[derive(Clone)]
pub struct ZoneRoot {
    pub(super) kind: ZoneKind,
    pub(super) quota: Quota,
    pub(super) usage: Usage,
    pub(super) next_inode: Inode,
    pub(super) tree: Tree,
    pub(super) resident_bytes: usize,
}

/// What names a zone in the chunk store, for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRoot {
    /// The root node of its tree.
    pub hash: Hash,
    /// The inode number to be given next.
    pub next_inode: Inode,
    /// What it uses.
    pub usage: Usage,
    /// Its kind.
    pub kind: ZoneKind,
    /// Its quota.
    pub quota: Quota,
}

impl ZoneRoot {
    /// A zone with nothing in it, not even a root directory: what the first drain of a zone that
    /// [`Zone::new`](super::Zone::new) made is to be applied to. `quota` is the host's to say.
    pub fn empty(kind: ZoneKind, quota: Quota) -> Self {
        Self {
            kind,
            quota,
            usage: Usage::default(),
            next_inode: Inode::ROOT,
            tree: Tree::default(),
            resident_bytes: 0,
        }
    }

    /// Stores every node and chunk that is not stored yet. Durable when the storage below is flushed.
    pub fn store(&self, store: &dyn ChunkStore) -> Result<StoredRoot> {
        Ok(StoredRoot {
            hash: self.tree.store(store)?,
            next_inode: self.next_inode,
            usage: self.usage,
            kind: self.kind,
            quota: self.quota,
        })
    }

    /// The zone that was stored. Nothing is read before it is needed.
    pub fn load(stored: StoredRoot) -> Self {
        Self {
            kind: stored.kind,
            quota: stored.quota,
            usage: stored.usage,
            next_inode: stored.next_inode,
            tree: Tree::load(stored.hash),
            resident_bytes: 0,
        }
    }

    /// A digest of everything the zone holds, and of its counters: equal exactly for equal zones,
    /// however they came about. Reads the whole zone.
    pub fn digest(&self, store: &dyn ChunkStore) -> Result<Hash> {
        let tree = self.tree.digest(store)?;
        let all = postcard::to_stdvec(&(tree, self.next_inode, self.usage, self.kind))
            .map_err(crate::tree::TreeError::from)?;
        Ok(Hash(*blake3::hash(&all).as_bytes()))
    }

    /// Whether both are the same root, or lie at the same address: cheap, and never wrong when true.
    pub fn same_as(&self, other: &Self) -> bool {
        self.next_inode == other.next_inode && self.usage == other.usage && self.tree.same_as(&other.tree)
    }

    /// Its kind.
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }

    /// Its quota.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// What it uses.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The files, directories, links and chunks themselves.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl fmt::Debug for ZoneRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneRoot")
            .field("kind", &self.kind)
            .field("usage", &self.usage)
            .field("next_inode", &self.next_inode)
            .finish_non_exhaustive()
    }
}
