//! Lets a test stop whoever changes certain files, so that what several threads do together has an
//! order that can be repeated.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Simulated;

#[derive(Debug, Default)]
struct State {
    /// Files whose path begins so are held.
    prefix: Option<String>,
    waiting: usize,
}

#[derive(Debug, Default)]
pub(super) struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

impl Hold {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `path` is held.
    pub fn pass(&self, path: &str) {
        let mut state = self.lock();
        if !state.holds(path) {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |it| it.holds(path)).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }
}

impl State {
    fn holds(&self, path: &str) -> bool {
        self.prefix.as_ref().is_some_and(|prefix| path.starts_with(prefix))
    }
}

impl Simulated {
    /// Holds everybody who is about to change a file whose path begins with `prefix`, until
    /// [`release`](Self::release).
    pub fn hold(&self, prefix: &str) {
        self.hold.lock().prefix = Some(prefix.to_owned());
    }

    /// Waits until somebody is held.
    pub fn wait_for_held(&self) {
        let state = self.hold.lock();
        let waited = self.hold.changed.wait_while(state, |it| it.waiting == 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets everybody go on.
    pub fn release(&self) {
        self.hold.lock().prefix = None;
        self.hold.changed.notify_all();
    }
}
