//! Letting go of memory: all of a zone can be read again from the chunk store.

use std::sync::Arc;

use super::{Result, Zone, ZoneRoot};
use crate::chunks::ChunkStore;
use crate::tree::Tree;

/// Bytes of file content that a zone keeps in memory before they go to the chunk store.
pub(super) const MAX_RESIDENT: usize = 64 << 20;
/// Keys that change before the nodes that hold them go to the chunk store, in a zone that nobody drains meanwhile.
pub(super) const MAX_CHANGED: usize = 1 << 15;

impl Zone {
    /// Keeps what one who writes on and on has in memory within bounds, however long nothing is drained. For whoever is
    /// about to change something, and has prepared nothing yet: where it fails, nothing was changed.
    #[inline]
    pub(super) fn bound_memory(&mut self) -> Result<()> {
        let changed = self.state.pending.len();
        if self.state.resident_bytes <= MAX_RESIDENT && changed < self.bounded + MAX_CHANGED {
            return Ok(());
        }
        self.let_go(changed)
    }

    #[cold]
    fn let_go(&mut self, changed: usize) -> Result<()> {
        if changed < self.bounded + MAX_CHANGED {
            return self.spill();
        }
        self.relieve()?;
        self.bounded = changed;
        Ok(())
    }

    /// Stores everything that is in memory, and lets go of it: nodes and chunks are read again when they are
    /// needed. Nothing that can be seen changes, nor what the next drain gives.
    pub fn relieve(&mut self) -> Result<()> {
        self.settle()?;
        // an open file's chunk would keep its memory
        for file in self.open.values_mut() {
            file.chunk = None;
        }
        let store = self.state.store.clone();
        let drained = [&mut self.drained.tree, &mut self.drained.history];
        for tree in [&mut self.state.tree, &mut self.state.history].into_iter().chain(drained) {
            if !tree.is_empty() {
                *tree = Tree::load(tree.store(&*store)?);
            }
        }
        self.state.resident_bytes = 0;
        self.state.dentries.get_mut().clear();
        Ok(())
    }

    /// The trees that it reads from. What they hold is needed, also where no root names it.
    pub(crate) fn trees_in_use(&self) -> [&Tree; 4] {
        [&self.state.tree, &self.state.history, &self.drained.tree, &self.drained.history]
    }
}

impl ZoneRoot {
    /// As [`Zone::relieve`].
    pub(crate) fn relieve(&mut self, store: &Arc<dyn ChunkStore>) -> Result<()> {
        *self = Self::load(self.store(&**store)?);
        Ok(())
    }
}
