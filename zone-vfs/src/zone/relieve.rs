//! Letting go of memory: all of a zone can be read again from the chunk store.

use std::sync::Arc;

use super::{Access, ErrorCode, Result, Zone, ZoneError, ZoneRoot};
use crate::chunks::ChunkStore;
use crate::id::Timestamp;
use crate::tree::Tree;

/// What a zone has in memory before it lets go of it, however long nobody drains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of file content, before they go to the chunk store.
    pub(crate) content: usize,
    /// Keys that change before the nodes that hold them go to the chunk store.
    pub(crate) changed: usize,
    /// Keys that have changed and wait for a drain: what would add to them is refused then.
    pub(crate) waiting: usize,
}

impl Bounds {
    /// 64 MiB of content, 32,768 keys, and 4,194,304 that wait, which take some 100 bytes each: a million files and more
    /// fit into one commit.
    pub(crate) const USUAL: Self = Self { content: 64 << 20, changed: 1 << 15, waiting: 1 << 22 };
}

/// For how long nothing is tried again after memory could not be let go of, by the clock of those who write. Nanoseconds.
const PATIENCE: u64 = 1_000_000_000;

/// How memory is bounded, and how that went.
#[derive(Debug)]
pub(super) struct Bounded {
    pub(super) bounds: Bounds,
    /// The keys that had changed when nodes were last let go of.
    changed: usize,
    /// When memory could not be let go of, and why, where that was the last try.
    failed: Option<(Timestamp, ZoneError)>,
}

impl Bounded {
    pub(super) fn new() -> Self {
        Self { bounds: usual(), changed: 0, failed: None }
    }

    /// After a drain, when nothing waits.
    pub(super) fn drained(&mut self) {
        (self.changed, self.failed) = (0, None);
    }

    fn are_many(&self, changed: usize) -> bool {
        changed >= self.changed.saturating_add(self.bounds.changed)
    }
}

#[cfg(not(test))]
const fn usual() -> Bounds {
    Bounds::USUAL
}

#[cfg(test)]
std::thread_local! {
    /// What bounds zones that this thread makes from now on.
    pub(crate) static BOUNDS: std::cell::Cell<Bounds> = const { std::cell::Cell::new(Bounds::USUAL) };
}

#[cfg(test)]
fn usual() -> Bounds {
    BOUNDS.get()
}

impl Zone {
    /// Keeps what one who writes on and on has in memory within bounds, but for what one operation adds. For whoever is
    /// about to add something, and has prepared nothing yet: where it fails, nothing was changed.
    #[inline]
    pub(super) fn bound_memory(&mut self, access: Access) -> Result<()> {
        let changed = self.state.pending.len();
        let bounds = &self.bounded.bounds;
        let is_little = self.state.resident_bytes <= bounds.content && changed < bounds.waiting;
        if is_little && !self.bounded.are_many(changed) {
            return Ok(());
        }
        self.let_go(changed, access.now)
    }

    /// As [`bound_memory`](Self::bound_memory), for whoever takes something away: a full disk does not keep anybody from that.
    #[inline]
    pub(super) fn bound_memory_if_possible(&mut self, access: Access) {
        if let Err(error) = self.bound_memory(access) {
            tracing::debug!("memory stays in use: {error}");
        }
    }

    #[cold]
    fn let_go(&mut self, changed: usize, now: Timestamp) -> Result<()> {
        let are_many = self.bounded.are_many(changed);
        if are_many || self.state.resident_bytes > self.bounded.bounds.content {
            if let Some((at, error)) = &self.bounded.failed
                && at.0.abs_diff(now.0) < PATIENCE
            {
                return Err(error.clone());
            }
            let done = if are_many { self.relieve() } else { self.spill() };
            self.bounded.failed = done.as_ref().err().map(|error| (now, error.clone()));
            done?;
            if are_many {
                self.bounded.changed = changed;
            }
        }
        if changed >= self.bounded.bounds.waiting {
            let rule =
                "as many changes wait for one commit as may: a sync or the end of the turn commits them";
            return Err(ZoneError::rule(ErrorCode::InsufficientMemory, rule));
        }
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
