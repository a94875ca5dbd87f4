//! Who computes next, and for how long.
//!
//! A guest that computes is interrupted at every [`TICK`](super::engine::TICK). It gives way to whatever else the
//! runtime has to do, and, where more guests compute than there are cores, waits for its turn: at each tick so many go
//! on as there are cores, those first that have had least. So a short turn waits for one tick at most, however many
//! guests spin, and those share the cores evenly. Nobody holds a core while it waits for something else.
//!
//! What a guest has had is counted as in Linux's CFS: virtual time, and who comes new begins where the others are.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

/// The guest has computed for longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it used more than {0:?} of processor time")]
pub struct OutOfTime(pub Duration);

/// What guests of one host share of the processor.
#[derive(Debug)]
pub(crate) struct Fair {
    queue: Mutex<Queue>,
    cores: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many more may go on in this tick.
    tokens: usize,
    /// What those who were let go on last have had. Ticks.
    reached: u64,
    /// Who waits, by what it has had, and in order of arrival.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    arrivals: u64,
}

impl Default for Fair {
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl Fair {
    fn new(cores: usize) -> Self {
        Self { queue: Mutex::default(), cores }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tick begins: those who have had least go on.
    pub fn tick(&self) {
        let mut queue = self.queue();
        queue.tokens = self.cores;
        while queue.tokens > 0
            && let Some(((had, _), goes_on)) = queue.waiting.pop_first()
        {
            // one whose call was dropped meanwhile takes nothing
            if goes_on.send(()).is_ok() {
                queue.tokens -= 1;
                queue.reached = queue.reached.max(had);
            }
        }
    }

    /// A guest has computed up to the end of a tick, and had `had` before. Where it cannot go on at once, the receiver
    /// tells when it can.
    pub fn slice_over(&self, had: &mut u64) -> Option<oneshot::Receiver<()>> {
        let mut queue = self.queue();
        *had = (*had).max(queue.reached) + 1;
        if queue.tokens > 0 && queue.waiting.is_empty() {
            queue.tokens -= 1;
            queue.reached = queue.reached.max(*had - 1);
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        queue.arrivals += 1;
        let place = (*had, queue.arrivals);
        queue.waiting.insert(place, sender);
        Some(receiver)
    }
}

/// The processor time of one guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    time: Arc<CpuTime>,
    /// What it may use in a call; as much as it likes where there is none.
    limit: Option<Duration>,
    /// See [`Fair::slice_over`].
    had: u64,
}

impl Cpu {
    /// A call begins, which may use `limit`. Its future belongs into [`metered`].
    pub fn begin(&mut self, limit: Option<Duration>) -> Arc<CpuTime> {
        self.limit = limit;
        self.time.used.store(0, Ordering::Relaxed);
        self.time.clone()
    }

    /// A tick is over while the guest computes: it goes on when the future is ready.
    pub fn tick(&mut self, fair: &Fair) -> Result<Pin<Box<dyn Future<Output = ()> + Send>>, OutOfTime> {
        if let Some(limit) = self.limit.filter(|limit| self.time.now() > *limit) {
            return Err(OutOfTime(limit));
        }
        Ok(match fair.slice_over(&mut self.had) {
            None => Box::pin(tokio::task::yield_now()),
            Some(turn) => Box::pin(async {
                // the sender goes with the host alone, and then nobody need wait
                let _ = turn.await;
            }),
        })
    }
}

/// Processor time that polls of a future have taken. Nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct CpuTime {
    used: AtomicU64,
    /// What the thread's clock showed when the poll that is going on began.
    since: AtomicU64,
}

impl CpuTime {
    /// What was used up to now, within a poll.
    fn now(&self) -> Duration {
        let here = thread_time().saturating_sub(self.since.load(Ordering::Relaxed));
        Duration::from_nanos(self.used.load(Ordering::Relaxed) + here)
    }
}

/// Counts the processor time of a call.
pub(crate) fn metered<F: Future>(time: Arc<CpuTime>, call: F) -> Metered<F> {
    Metered { time, call: Box::pin(call) }
}

/// See [`metered`].
pub(crate) struct Metered<F> {
    time: Arc<CpuTime>,
    call: Pin<Box<F>>,
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.time.since.store(thread_time(), Ordering::Relaxed);
        let polled = self.call.as_mut().poll(context);
        let used = thread_time().saturating_sub(self.time.since.load(Ordering::Relaxed));
        self.time.used.fetch_add(used, Ordering::Relaxed);
        polled
    }
}

/// The processor time of this thread. Nanoseconds.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guests that all compute all the time: what each has had after some ticks.
    fn compute(cores: usize, guests: usize, ticks: usize) -> Vec<u64> {
        let fair = Fair::new(cores);
        let mut had = vec![0; guests];
        let mut slices = vec![0; guests];
        let mut waiting: Vec<Option<oneshot::Receiver<()>>> = (0..guests).map(|_| None).collect();
        for _ in 0..ticks {
            fair.tick();
            for guest in 0..guests {
                let goes_on = match &mut waiting[guest] {
                    Some(receiver) => receiver.try_recv().is_ok(),
                    None => true,
                };
                if goes_on {
                    slices[guest] += 1;
                    waiting[guest] = fair.slice_over(&mut had[guest]);
                }
            }
        }
        slices
    }

    #[test]
    fn guests_that_compute_share_the_cores_evenly() {
        for (cores, guests) in [(1, 1), (2, 2), (2, 3), (2, 16), (4, 7)] {
            let slices = compute(cores, guests, 400);
            let (least, most) = (slices.iter().min().unwrap(), slices.iter().max().unwrap());
            assert!(most - least <= 2, "{cores} cores: {slices:?}");
            let expected = 400 * cores.min(guests) as u64;
            let all: u64 = slices.iter().sum();
            assert!(all + 2 * guests as u64 >= expected, "no core is idle: {all} of {expected}");
        }
    }

    #[test]
    fn who_comes_new_waits_for_nobody_and_gains_nothing() {
        let fair = Fair::new(1);
        let mut old = [0, 0];
        let mut waiting = [None, None];
        for _ in 0..100 {
            fair.tick();
            for guest in 0..2 {
                let goes_on = waiting[guest]
                    .as_mut()
                    .is_none_or(|it: &mut oneshot::Receiver<()>| it.try_recv().is_ok());
                if goes_on {
                    waiting[guest] = fair.slice_over(&mut old[guest]);
                }
            }
        }
        let mut new = 0;
        fair.tick();
        let _first = fair.slice_over(&mut new);
        assert!(new.abs_diff(old[0].max(old[1])) <= 2, "it begins where the others are: {new} {old:?}");
    }

    #[test]
    fn a_call_that_was_dropped_keeps_nobody_waiting() {
        let fair = Fair::new(1);
        fair.tick();
        assert!(fair.slice_over(&mut 0).is_none());
        drop(fair.slice_over(&mut 0).unwrap());
        let mut second = fair.slice_over(&mut 0).unwrap();
        fair.tick();
        assert!(second.try_recv().is_ok());
    }

    #[tokio::test]
    async fn only_what_a_call_computes_is_counted() {
        let mut cpu = Cpu::default();
        let fair = Fair::new(1);
        let limit = Duration::from_millis(30);
        let time = cpu.begin(Some(limit));
        metered(time, tokio::time::sleep(Duration::from_millis(60))).await;
        assert!(cpu.tick(&fair).is_ok(), "it slept");
        let time = cpu.begin(Some(limit));
        let computed = metered(time, async {
            loop {
                if let Err(e) = cpu.tick(&fair) {
                    return e;
                }
            }
        });
        assert_eq!(computed.await, OutOfTime(limit));
    }
}
