//! Threads for work that blocks.
//!
//! As `tokio::task::spawn_blocking`, but that a thread which the system refuses is an error: tokio panics where
//! it can start none. Threads are kept for a while, for the work to come.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::AgentError;

/// Threads at most; what comes when all are busy waits.
const MOST: usize = 512;
/// How long a thread waits for more work.
const KEPT: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    waiting: VecDeque<Work>,
    threads: usize,
    /// Those of them that wait for work.
    idle: usize,
}

static POOL: Pool =
    Pool { state: Mutex::new(State { waiting: VecDeque::new(), threads: 0, idle: 0 }), more: Condvar::new() };

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `work` done by a thread that waits, or else by a new one that `start` starts.
    fn give(&'static self, work: Work, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        state.waiting.push_back(work);
        if state.waiting.len() <= state.idle {
            self.more.notify_one();
            return Ok(());
        }
        if state.threads >= MOST {
            return Ok(());
        }
        match start() {
            Ok(()) => state.threads += 1,
            // one that is busy takes it when it is done
            Err(_) if state.threads > 0 => {}
            Err(e) => {
                state.waiting.pop_back();
                return Err(e);
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                drop(state);
                work();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.more.wait_timeout_while(state, KEPT, |state| state.waiting.is_empty());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            if state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

fn start() -> io::Result<()> {
    std::thread::Builder::new().name("dormouse-work".into()).spawn(|| POOL.work()).map(|_| ())
}

/// Begins `work` in a thread of its own, and gives its end. The work goes on when that is dropped.
///
/// # Errors
///
/// [`AgentError::Io`] where the system gives no thread, [`AgentError::Task`] where the work panicked.
pub(crate) fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, AgentError>> + Send + 'static {
    run_with(work, start)
}

fn run_with<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    start: impl FnOnce() -> io::Result<()>,
) -> impl Future<Output = Result<T, AgentError>> + Send + 'static {
    let (done, end) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    let work = Box::new(move || {
        let _entered = runtime.as_ref().map(Handle::enter);
        let result = catch_unwind(AssertUnwindSafe(work));
        // whoever has dropped the end does not wait for it
        let _ = done.send(result);
    });
    let begun = POOL.give(work, start);
    async move {
        begun.map_err(|source| AgentError::Io { what: "starting a thread".into(), source })?;
        match end.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(AgentError::Task("it panicked".into())),
            Err(_) => Err(AgentError::Task("it was not begun".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one test, since there is one pool.
    #[tokio::test]
    async fn work_is_done_or_refused_and_never_lost() {
        // the system gives no thread, and there is none
        let refused = run_with(|| 1, || Err(io::ErrorKind::WouldBlock.into())).await;
        let Err(AgentError::Io { what, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(what, "starting a thread");
        assert!(POOL.lock().waiting.is_empty());
        // more work than threads that wait, all at once
        let meet = std::sync::Arc::new(std::sync::Barrier::new(20));
        let all: Vec<_> = (0..20)
            .map(|number| {
                let meet = meet.clone();
                run(move || {
                    meet.wait();
                    number
                })
            })
            .collect();
        for (number, work) in all.into_iter().enumerate() {
            assert_eq!(work.await.unwrap(), number);
        }
        // with threads there, none need be started, and one that cannot be is not missed
        for number in 0..50 {
            let some: Vec<_> =
                (0..40).map(|_| run_with(move || number, || Err(io::ErrorKind::WouldBlock.into()))).collect();
            for work in some {
                assert_eq!(work.await.unwrap(), number);
            }
        }
        let panicked: Result<(), _> = run(|| std::panic::resume_unwind(Box::new("on purpose"))).await;
        assert!(matches!(panicked, Err(AgentError::Task(_))), "{panicked:?}");
        // the runtime is at hand in the work, and waiting is allowed there
        assert_eq!(run(|| Handle::current().block_on(async { 7 })).await.unwrap(), 7);
    }
}
