//! The thread that starts what shared zones and those who wait for them have to commit.
//!
//! Whoever writes to a shared zone does not wait; and what is told of a commit on the log's own thread
//! must not start another there. Both hand their work to this thread. It begins with the first
//! shared zone that is used.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::flow::{Flow, Waiter};
use crate::store::StoreError;

/// What the thread does next.
pub(super) enum Job {
    /// Commits what the zone holds.
    Commit(Arc<Flow>),
    /// Tells those who waited how it went.
    Tell(Vec<Waiter>, Result<(), Arc<StoreError>>),
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Commits that were started and are not over.
    under_way: usize,
    closing: bool,
    /// Nobody takes jobs any more.
    ended: bool,
    thread: Option<JoinHandle<()>>,
}

/// The thread and what waits for it.
#[derive(Default)]
pub(in crate::store) struct Driver {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Driver {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, where it does not run.
    pub fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut queue = self.lock();
        if queue.closing {
            return Err(StoreError::Closed);
        }
        if queue.thread.is_none() {
            let driver = self.clone();
            #[cfg(test)]
            let simulated = crate::id::clock::is_simulated();
            let spawned = std::thread::Builder::new()
                .name("dormouse-shared".into())
                .spawn(move || {
                    #[cfg(test)]
                    if simulated {
                        crate::id::clock::start();
                    }
                    driver.run();
                })
                .map_err(|source| StoreError::Io {
                    what: "starting the shared zones' thread".into(),
                    source,
                })?;
            queue.thread = Some(spawned);
        }
        Ok(())
    }

    /// Adds a job; false once the thread is gone.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut queue = self.lock();
        if queue.ended {
            return false;
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.changed.notify_one();
        true
    }

    /// A commit that this thread has started is over; it left these jobs.
    pub(super) fn is_over(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut queue = self.lock();
        queue.under_way -= 1;
        queue.jobs.extend(jobs);
        drop(queue);
        self.changed.notify_one();
    }

    fn run(&self) {
        loop {
            let mut queue = self.lock();
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.closing && queue.under_way == 0 {
                    queue.ended = true;
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            if matches!(job, Job::Commit(_)) {
                queue.under_way += 1;
            }
            drop(queue);
            match job {
                Job::Commit(flow) => flow.commit(),
                Job::Tell(waiters, result) => {
                    for waiter in waiters {
                        waiter(result.clone());
                    }
                }
            }
        }
    }

    /// Finishes what is there and ends the thread. Not to be called on the log's thread.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.closing = true;
        queue.ended |= queue.thread.is_none();
        let thread = queue.thread.take();
        drop(queue);
        self.changed.notify_all();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the shared zones' thread panicked");
        }
    }
}
