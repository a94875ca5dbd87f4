//! Commits pass a gate; a checkpoint closes it and waits until none is under way.

use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Default)]
struct Passing {
    inside: usize,
    closed: bool,
}

/// Counts who is inside; closes for a checkpoint.
#[derive(Default)]
pub(super) struct Gate {
    passing: Mutex<Passing>,
    changed: Condvar,
}

impl Gate {
    /// Waits while the gate is closed, then counts the caller in.
    pub fn enter(&self) {
        self.enter_as(1);
    }

    /// As [`enter`](Self::enter), as so many at once. Whoever is inside must not enter again: a checkpoint may be
    /// waiting for it to leave.
    pub fn enter_as(&self, many: usize) {
        let guard = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passing =
            self.changed.wait_while(guard, |p| p.closed).unwrap_or_else(PoisonError::into_inner);
        passing.inside += many;
    }

    /// Counts one out.
    pub fn leave(&self) {
        let mut passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        passing.inside -= 1;
        drop(passing);
        self.changed.notify_all();
    }

    /// Waits until nobody is inside, runs `work` while nobody enters, and opens the gate again.
    pub fn stopped<R>(&self, work: impl FnOnce() -> R) -> R {
        let guard = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passing =
            self.changed.wait_while(guard, |p| p.closed).unwrap_or_else(PoisonError::into_inner);
        passing.closed = true;
        let passing =
            self.changed.wait_while(passing, |p| p.inside > 0).unwrap_or_else(PoisonError::into_inner);
        drop(passing);
        let result = work();
        self.passing.lock().unwrap_or_else(PoisonError::into_inner).closed = false;
        self.changed.notify_all();
        result
    }

    /// Waits until nobody is inside.
    pub fn close(&self) {
        let guard = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(guard, |p| p.inside > 0).unwrap_or_else(PoisonError::into_inner));
    }
}
