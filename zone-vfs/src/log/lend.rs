//! A thread that is going to wait for its own commit makes it.
//!
//! From a thread to another and back takes as long as a small part of a flush. Whoever commits alone need
//! not go there; where several do, the log's thread gathers them.

use std::cell::RefCell;
use std::sync::Arc;

use super::committer::Works;

thread_local! {
    /// Where the calling thread has queued what nobody has seen yet; none outside of [`lend`].
    static PROMISED: RefCell<Option<Vec<Arc<Works>>>> = const { RefCell::new(None) };
}

/// Runs `start`, which queues commits for which the calling thread then waits; makes them before it returns
/// where nobody else commits at that time. What is told how they went then runs in this thread, after `start`,
/// so no lock that it needs may be held around this.
pub fn lend<R>(start: impl FnOnce() -> R) -> R {
    let outermost = PROMISED.with_borrow_mut(|it| {
        let none = it.is_none();
        it.get_or_insert_default();
        none
    });
    // kept also where `start` panics, since others' records may wait behind what it has queued
    let _kept = outermost.then(|| Promises);
    start()
}

/// Keeps what was promised when it is dropped.
struct Promises;

impl Drop for Promises {
    fn drop(&mut self) {
        for works in PROMISED.take().unwrap_or_default() {
            works.lend();
        }
    }
}

/// Whether the calling thread will see to what it has queued.
pub(super) fn promise(works: &Arc<Works>) -> bool {
    PROMISED.with_borrow_mut(|it| match it {
        Some(promised) => {
            if !promised.iter().any(|it| Arc::ptr_eq(it, works)) {
                promised.push(works.clone());
            }
            true
        }
        None => false,
    })
}
