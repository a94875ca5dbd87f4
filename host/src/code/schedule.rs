//! Who computes next, and for how long.
//!
//! A guest that computes is interrupted at every [`TICK`](super::engine::TICK). It gives way to whatever else the
//! runtime has to do, and, where more guests compute than there are cores, waits for its turn: at each tick those go on
//! that have had least, as many as there are cores. So a short turn waits for one tick at most, or for one bulk operation on memory, which
//! nothing interrupts, however many guests spin, and those share the cores evenly. Nobody holds a core while it waits for something else: who does not come
//! back when its time is over is passed over from the next tick on, and has had that tick all the same.
//!
//! What a guest has had is counted as in Linux's CFS: in ticks, and who comes new begins where the others are.

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
    tick: u64,
    guests: BTreeMap<u64, Guest>,
    newest: u64,
    /// What whoever has had least has had: where those begin who come new.
    least: u64,
}

/// A guest that has computed up to the end of a tick.
#[derive(Debug)]
struct Guest {
    /// Ticks.
    had: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It was let go on in this tick. Where `again`, it may go on in the next one without waiting.
    Computes {
        since: u64,
        again: bool,
    },
    Waits(oneshot::Sender<()>),
}

/// The place of a guest in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    number: u64,
    had: u64,
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
        queue.tick += 1;
        let tick = queue.tick;
        queue.guests.retain(|_, guest| match &guest.state {
            // it has ended, or waits for something else
            State::Computes { since, .. } => since + 1 >= tick,
            // its call was dropped
            State::Waits(goes_on) => !goes_on.is_closed(),
        });
        let mut order: Vec<_> = queue.guests.iter().map(|(number, guest)| (guest.had, *number)).collect();
        order.sort_unstable();
        queue.least = order.first().map_or(queue.least, |(had, _)| *had);
        for (_, number) in order.into_iter().take(self.cores) {
            let Some(guest) = queue.guests.get_mut(&number) else { continue };
            guest.had += 1;
            let computes = match &guest.state {
                State::Computes { since, .. } => State::Computes { since: *since, again: true },
                State::Waits(_) => State::Computes { since: tick, again: false },
            };
            if let State::Waits(goes_on) = std::mem::replace(&mut guest.state, computes) {
                // where its call was dropped a moment ago, its time is nobody's
                let _ = goes_on.send(());
            }
        }
    }

    /// A guest has computed up to the end of a tick. Where it cannot go on at once, the receiver tells when it can.
    pub fn slice_over(&self, place: &mut Place) -> Option<oneshot::Receiver<()>> {
        let mut queue = self.queue();
        let tick = queue.tick;
        if let Some(guest) = queue.guests.get_mut(&place.number) {
            place.had = guest.had;
            if let State::Computes { since, again } = &mut guest.state
                && *again
            {
                (*since, *again) = (tick, false);
                return None;
            }
            let (sender, receiver) = oneshot::channel();
            guest.state = State::Waits(sender);
            return Some(receiver);
        }
        queue.newest += 1;
        place.number = queue.newest;
        place.had = place.had.max(queue.least) + 1;
        let computing = queue.guests.values().filter(|it| matches!(it.state, State::Computes { .. }));
        let (state, receiver) = if computing.count() < self.cores {
            (State::Computes { since: tick, again: false }, None)
        } else {
            let (sender, receiver) = oneshot::channel();
            (State::Waits(sender), Some(receiver))
        };
        queue.guests.insert(place.number, Guest { had: place.had, state });
        receiver
    }
}

/// The processor time of one guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    time: Arc<CpuTime>,
    /// What it may use in a call; as much as it likes where there is none.
    limit: Option<Duration>,
    place: Place,
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
        Ok(match fair.slice_over(&mut self.place) {
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
    /// What was used, between polls.
    pub fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed))
    }

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

    /// Guests of which each computes all the time, or a tick of every `pause` of them: the ticks that each has had.
    struct Guests {
        fair: Fair,
        places: Vec<Place>,
        waiting: Vec<Option<oneshot::Receiver<()>>>,
        slices: Vec<u64>,
    }

    impl Guests {
        fn new(cores: usize, guests: usize) -> Self {
            let waiting = (0..guests).map(|_| None).collect();
            Self {
                fair: Fair::new(cores),
                places: vec![Place::default(); guests],
                waiting,
                slices: vec![0; guests],
            }
        }

        fn tick(&mut self, computes: impl Fn(usize) -> bool) {
            self.fair.tick();
            for guest in 0..self.places.len() {
                let goes_on = self.waiting[guest].as_mut().is_none_or(|it| it.try_recv().is_ok());
                if goes_on && computes(guest) {
                    self.slices[guest] += 1;
                    self.waiting[guest] = self.fair.slice_over(&mut self.places[guest]);
                }
            }
        }
    }

    #[test]
    fn guests_that_compute_share_the_cores_evenly() {
        for (cores, guests) in [(1, 1), (2, 2), (2, 3), (2, 16), (4, 7)] {
            let mut all = Guests::new(cores, guests);
            (0..400).for_each(|_| all.tick(|_| true));
            let (least, most) = (all.slices.iter().min().unwrap(), all.slices.iter().max().unwrap());
            assert!(most - least <= 3, "{cores} cores: {:?}", all.slices);
            let expected = 400 * cores.min(guests) as u64;
            let sum: u64 = all.slices.iter().sum();
            assert!(sum + 2 * guests as u64 >= expected, "no core is idle: {sum} of {expected}");
        }
    }

    #[test]
    fn who_computes_now_and_then_costs_the_others_no_more_than_its_share() {
        let mut all = Guests::new(1, 3);
        for tick in 0..900 {
            all.tick(|guest| guest != 0 || tick % 3 == 0);
        }
        assert!(all.slices[1].abs_diff(all.slices[2]) <= 3, "{:?}", all.slices);
        assert!(all.slices[1] >= 250, "{:?}", all.slices);
    }

    #[test]
    fn who_comes_new_begins_where_the_others_are() {
        let mut all = Guests::new(1, 2);
        (0..100).for_each(|_| all.tick(|_| true));
        let mut new = Place::default();
        all.fair.slice_over(&mut new);
        assert!(new.had.abs_diff(all.places[0].had) <= 2, "{new:?} {:?}", all.places);
    }

    #[test]
    fn a_call_that_was_dropped_keeps_nobody_waiting() {
        let fair = Fair::new(1);
        fair.tick();
        assert!(fair.slice_over(&mut Place::default()).is_none());
        drop(fair.slice_over(&mut Place::default()).unwrap());
        let mut third = fair.slice_over(&mut Place::default()).unwrap();
        // the first has ended
        fair.tick();
        fair.tick();
        assert!(third.try_recv().is_ok());
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
