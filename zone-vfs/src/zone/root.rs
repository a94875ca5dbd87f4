use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Counters, Quota, Result, Usage};
use crate::chunks::{ChunkStore, FrameKind};
use crate::contract::ZoneKind;
use crate::id::Hash;
use crate::tree::Tree;

/// A zone as it stood. Costs a pointer to copy, and never changes.
#[derive(Clone)]
pub struct ZoneRoot {
    pub(super) kind: ZoneKind,
    pub(super) quota: Quota,
    pub(super) counters: Counters,
    pub(super) tree: Tree,
    pub(super) history: Tree,
    pub(super) resident_bytes: usize,
}

/// What names a zone in the chunk store, for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRoot {
    /// The root node of its tree.
    pub hash: Hash,
    /// The root node of the tree of its history; `None` where that is empty.
    pub history: Option<Hash>,
    /// Its counters.
    pub counters: Counters,
    /// Its kind.
    pub kind: ZoneKind,
    /// Its quota.
    pub quota: Quota,
}

impl StoredRoot {
    /// The root nodes of its trees.
    pub fn trees(&self) -> impl Iterator<Item = Hash> + use<> {
        [Some(self.hash), self.history].into_iter().flatten()
    }
}

impl ZoneRoot {
    /// A zone with nothing in it, not even a root directory: what the first drain of a zone that
    /// [`Zone::new`](super::Zone::new) made is to be applied to. `quota` is the host's to say.
    pub fn empty(kind: ZoneKind, quota: Quota) -> Self {
        Self {
            kind,
            quota,
            counters: Counters::empty(),
            tree: Tree::default(),
            history: Tree::default(),
            resident_bytes: 0,
        }
    }

    /// Whether the zone has ever given this number to a file, here or before.
    pub fn has_given(&self, file: crate::id::Inode) -> bool {
        file < self.counters.next_inode
    }

    /// Stores every node and chunk that is not stored yet. Durable when the storage below is flushed.
    pub fn store(&self, store: &dyn ChunkStore) -> Result<StoredRoot> {
        Ok(StoredRoot {
            hash: self.tree.store(store)?,
            // an empty one is the same for all, and its loss would be everyone's
            history: if self.history.is_empty() { None } else { Some(self.history.store(store)?) },
            counters: self.counters,
            kind: self.kind,
            quota: self.quota,
        })
    }

    /// The zone that was stored. Nothing is read before it is needed.
    pub fn load(stored: StoredRoot) -> Self {
        Self {
            kind: stored.kind,
            quota: stored.quota,
            counters: stored.counters,
            tree: Tree::load(stored.hash),
            history: stored.history.map_or_else(Tree::default, Tree::load),
            resident_bytes: 0,
        }
    }

    /// A digest of everything the zone holds, and of its counters: equal exactly for equal zones,
    /// however they came about. Reads the whole zone.
    pub fn digest(&self, store: &dyn ChunkStore) -> Result<Hash> {
        let trees = (self.tree.digest(store)?, self.history.digest(store)?);
        let all =
            postcard::to_stdvec(&(trees, self.counters, self.kind)).map_err(crate::tree::TreeError::from)?;
        Ok(Hash(*blake3::hash(&all).as_bytes()))
    }

    /// Calls `visit` with the address of every stored node and chunk of the zone, its history included,
    /// as [`Tree::addresses`] does.
    pub fn addresses(
        &self,
        store: &dyn ChunkStore,
        visit: &mut dyn FnMut(FrameKind, Hash) -> bool,
    ) -> Result<()> {
        self.tree.addresses(store, visit)?;
        Ok(self.history.addresses(store, visit)?)
    }

    /// Whether both hold the same, as far as that is seen from their root nodes: cheap, and never wrong
    /// when true. Numbers that one of them gave away and took back do not count.
    pub fn same_as(&self, other: &Self) -> bool {
        self.tree.same_as(&other.tree) && self.history.same_as(&other.history)
    }

    /// This root without what it has in memory, where `stored` is the [same](Self::same_as). What it counts stays: a
    /// turn that failed since then has given numbers.
    #[must_use]
    pub(crate) fn read_from(&self, stored: StoredRoot) -> Self {
        Self { counters: self.counters, quota: self.quota, ..Self::load(stored) }
    }

    /// This root, for a zone that stood at `left` and goes back to here: numbers that were given there
    /// are not given again.
    #[must_use]
    pub fn after(&self, left: &Self) -> Self {
        Self { counters: self.counters.after(&left.counters), ..self.clone() }
    }

    /// This root as a fork begins with it: it is charged for what it uses beyond this.
    #[must_use]
    pub fn forked(&self) -> Self {
        Self { counters: self.counters.forked(), ..self.clone() }
    }

    /// What counts against its quota: see [`Counters::charged`].
    pub fn charged(&self) -> Usage {
        self.counters.charged()
    }

    /// Its kind.
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }

    /// Its quota.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Sets the quota; see [`Zone::set_quota`](super::Zone::set_quota).
    pub(crate) fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
    }

    /// What it uses.
    pub fn usage(&self) -> Usage {
        self.counters.usage
    }

    /// What its history uses.
    pub fn past_usage(&self) -> Usage {
        self.counters.past
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What its files were, and its change feed.
    pub fn history_tree(&self) -> &Tree {
        &self.history
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
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
