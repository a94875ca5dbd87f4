//! Waiting for a zone's change feed to go on.
//!
//! Whoever waits is noted under the disk's lock, with which a commit takes effect: between looking at the feed and
//! being noted, none can be missed.

use std::sync::Arc;

use super::StoreError;
use super::disk::{Disk, Inner};
use crate::id::ChangeSequence;

/// Those who wait for feeds of one agent, or of one shared zone, at most.
pub const MAX_WATCHING: usize = 1024;

/// Called once when the feed has gone on, on the committer's thread, which it must not keep: it starts no commit.
/// Dropped without a call when the store is closed.
pub type WatchDone = Box<dyn FnOnce() + Send>;

/// Those who wait.
#[derive(Default)]
pub(super) struct Watchers {
    last: u64,
    waiting: Vec<Watcher>,
}

struct Watcher {
    number: u64,
    zone: usize,
    after: ChangeSequence,
    done: WatchDone,
}

/// Someone who waits, until this is dropped.
pub struct Watch {
    disk: Arc<Disk>,
    number: u64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watcher = {
            let waiting = &mut self.disk.lock().watchers.waiting;
            let at = waiting.iter().position(|it| it.number == self.number);
            at.map(|at| waiting.swap_remove(at))
        };
        // not under the lock: what it holds is anybody's
        drop(watcher);
    }
}

impl Inner {
    /// The last entry of a zone's feed that is committed. `None` where nothing comes any more.
    fn fed(&self, zone: usize) -> Option<ChangeSequence> {
        if self.state.removed {
            return None;
        }
        let next = self.state.zones.get(zone)?.head.counters().next_change;
        Some(ChangeSequence(next.0.saturating_sub(1)))
    }

    /// Those whose wait is over.
    pub(super) fn woken(&mut self) -> Vec<WatchDone> {
        if self.watchers.waiting.is_empty() {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.watchers.waiting);
        let (over, still): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|it| self.fed(it.zone).is_none_or(|last| last > it.after));
        self.watchers.waiting = still;
        over.into_iter().map(|it| it.done).collect()
    }
}

impl Disk {
    /// Calls `done` when the feed of a zone has an entry after `after`, that is committed: at once, where it has.
    /// In a shared zone too, whoever wrote it. `None` where there is no zone of this index; `None` inside where
    /// `done` was called. Fails where [`MAX_WATCHING`] wait already.
    pub fn watch(
        self: &Arc<Self>,
        index: u16,
        after: ChangeSequence,
        done: WatchDone,
    ) -> Option<Result<Option<Watch>, StoreError>> {
        if let Some(mount) = self.mount(index) {
            return Some(watch(mount.disk()?, 0, after, done));
        }
        let is_there = usize::from(index) < self.lock().state.zones.len();
        is_there.then(|| watch(self, usize::from(index), after, done))
    }
}

fn watch(
    disk: &Arc<Disk>,
    zone: usize,
    after: ChangeSequence,
    done: WatchDone,
) -> Result<Option<Watch>, StoreError> {
    let mut inner = disk.lock();
    if inner.fed(zone).is_none_or(|last| last > after) {
        drop(inner);
        done();
        return Ok(None);
    }
    let watchers = &mut inner.watchers;
    if watchers.waiting.len() >= MAX_WATCHING {
        return Err(StoreError::TooManyWatch { limit: MAX_WATCHING });
    }
    watchers.last += 1;
    let number = watchers.last;
    watchers.waiting.push(Watcher { number, zone, after, done });
    Ok(Some(Watch { disk: disk.clone(), number }))
}
