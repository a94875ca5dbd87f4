//! A shared zone's changes on their way into the log.
//!
//! Each operation commits by itself, in order, without anybody waiting: it marks the zone as
//! *wanted*, and the driver commits what is there. While one commit is under way the next gathers.
//! The state of this is kept apart from the zone, so that whoever waits touches no zone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SharedId;
use super::driver::{Driver, Job};
use crate::id::Timestamp;
use crate::store::StoreError;
use crate::store::commit::Commit;
use crate::store::disk::{Disk, Done};
use crate::store::entry::Entry;
use crate::store::state::ZoneState;
#[cfg(test)]
use crate::store::tests::{self, Mistake};
use crate::zone::{Holder, Through, Zone};

/// Who waits until a zone's changes are durable. Called on the driver's thread, or at once.
pub(in crate::store) type Waiter = Box<dyn FnOnce(Result<(), Arc<StoreError>>) + Send>;

#[derive(Default)]
struct Commits {
    /// There may be changes that no commit has taken; the driver has been told, or will be when the
    /// commit that is under way is over.
    wanted: bool,
    under_way: bool,
    /// The last commit was refused, and its changes still wait.
    behind: bool,
    /// Told of the commit that is under way.
    current: Vec<Waiter>,
    /// Told of the next one.
    next: Vec<Waiter>,
}

/// A shared zone that is in memory.
pub(in crate::store) struct Flow {
    pub id: SharedId,
    pub name: String,
    pub disk: Arc<Disk>,
    commits: Mutex<Commits>,
    driver: Arc<Driver>,
}

impl Flow {
    pub fn new(disk: Arc<Disk>, name: String, driver: Arc<Driver>) -> Arc<Self> {
        let id = SharedId(disk.id().0);
        Arc::new(Self { id, name, disk, commits: Mutex::default(), driver })
    }

    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the zone through a mount; what it changes is committed without waiting.
    #[inline]
    pub fn zone<R>(self: &Arc<Self>, through: Through, work: impl FnOnce(&mut Zone) -> R) -> Option<R> {
        let mut inner = self.disk.lock();
        let state = &mut inner.state;
        let ZoneState { working, .. } = state.zones.first_mut().filter(|_| !state.removed)?;
        let result = working.through(through, work);
        if working.is_dirty() {
            // while the zone is locked, so that nobody finds it settled who sees the change
            self.want();
        }
        inner.relieve();
        Some(result)
    }

    /// Closes all that a mount holds open.
    pub fn let_go(self: &Arc<Self>, holder: Holder) -> Result<(), StoreError> {
        let mut inner = self.disk.lock();
        let Some(ZoneState { working, .. }) = inner.state.zones.first_mut() else { return Ok(()) };
        let closed = working.close_all(holder);
        if working.is_dirty() {
            self.want();
        }
        Ok(closed?)
    }

    /// Frees the files without a name: whoever had them open is gone. For a zone that was just read.
    pub fn drop_orphans(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut inner = self.disk.lock();
        let Some(ZoneState { working, .. }) = inner.state.zones.first_mut() else { return Ok(()) };
        let dropped = working.drop_orphans_except(&BTreeSet::new());
        if working.is_dirty() {
            self.want();
        }
        Ok(dropped?)
    }

    fn want(self: &Arc<Self>) {
        let mut commits = self.commits();
        if commits.wanted {
            return;
        }
        commits.wanted = true;
        let idle = !commits.under_way;
        drop(commits);
        if idle {
            self.push();
        }
    }

    fn push(self: &Arc<Self>) {
        if !self.driver.push(Job::Commit(self.clone())) {
            // the store is closed: those who wait are told, and nobody else asks
            let mut commits = self.commits();
            commits.wanted = false;
            commits.behind = true;
            let waiters = std::mem::take(&mut commits.next);
            drop(commits);
            let closed = Err(Arc::new(StoreError::Closed));
            for waiter in waiters {
                waiter(closed.clone());
            }
        }
    }

    /// Whether all that can be seen in the zone is durable.
    pub fn is_settled(&self) -> bool {
        let commits = self.commits();
        !commits.wanted && !commits.under_way && !commits.behind
    }

    /// Tells when all that can be seen in the zone now is durable.
    pub fn settle(self: &Arc<Self>, waiter: Waiter) {
        #[cfg(test)]
        if tests::makes(Mistake::SharedIsDurableAtOnce) {
            return waiter(Ok(()));
        }
        let mut commits = self.commits();
        if commits.wanted {
            commits.next.push(waiter);
        } else if commits.under_way {
            commits.current.push(waiter);
        } else if commits.behind {
            commits.wanted = true;
            commits.next.push(waiter);
            drop(commits);
            self.push();
        } else {
            drop(commits);
            waiter(Ok(()));
        }
    }

    /// Commits what the zone holds. On the driver's thread only, for one commit at a time.
    pub(super) fn commit(self: Arc<Self>) {
        {
            let mut commits = self.commits();
            // first this, then the changes are taken: an operation in between asks once more, for nothing
            commits.wanted = false;
            commits.under_way = true;
            commits.current = std::mem::take(&mut commits.next);
        }
        let clean = {
            let inner = self.disk.lock();
            inner.pending.is_empty() && inner.state.zones.iter().all(|z| !z.working.is_dirty())
        };
        if clean {
            return self.is_over(Ok(()));
        }
        let flow = self.clone();
        let control = |_: &_| Ok(vec![Entry::Operated { at: Timestamp::now() }]);
        let done = Box::new(move |result: Result<_, StoreError>| flow.is_over(result.map(|_| ())));
        Commit::start(&self.disk, control, None, done);
    }

    fn is_over(self: Arc<Self>, result: Result<(), StoreError>) {
        if let Err(e) = &result {
            tracing::warn!("changes of the shared zone `{}` are not durable yet: {e}", self.name);
        }
        let result = result.map_err(Arc::new);
        let mut commits = self.commits();
        commits.under_way = false;
        commits.behind = result.is_err();
        let again = commits.wanted;
        let waiters = std::mem::take(&mut commits.current);
        drop(commits);
        let tell = (!waiters.is_empty()).then_some(Job::Tell(waiters, result));
        let driver = self.driver.clone();
        driver.is_over(tell.into_iter().chain(again.then(|| Job::Commit(self))));
    }

    /// An error of this zone's, as its agents are told.
    pub fn named(&self, source: Arc<StoreError>) -> StoreError {
        match *source {
            StoreError::Closed => StoreError::Closed,
            _ => StoreError::Shared { zone: self.name.clone(), source },
        }
    }
}

/// Tells once all of `flows` are settled, or that one cannot be.
pub(in crate::store) fn settle_all(flows: Vec<Arc<Flow>>, done: Done<()>) {
    struct Rest {
        waiting: usize,
        failed: Option<StoreError>,
        done: Option<Done<()>>,
    }
    let rest = Arc::new(Mutex::new(Rest { waiting: flows.len(), failed: None, done: Some(done) }));
    for flow in flows {
        let (rest, of) = (rest.clone(), flow.clone());
        flow.settle(Box::new(move |result| {
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.waiting -= 1;
            if let Err(e) = result {
                rest.failed.get_or_insert_with(|| of.named(e));
            }
            if rest.waiting == 0
                && let Some(done) = rest.done.take()
            {
                let result = rest.failed.take().map_or(Ok(()), Err);
                drop(rest);
                done(result);
            }
        }));
    }
}
