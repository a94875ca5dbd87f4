//! Warm slots: instances of a component's restore variant that stand ready for an image.
//!
//! Some are ordered ([`Warm::order`]). Others are made ahead, by demand: where resumes follow each other and find none,
//! twice as many stand ready the next time, as far as the host's budget goes; where nobody comes for a while there are
//! half as many, and none in the end. All of them go when memory is short. What was taken never comes back: an agent's
//! instance is dropped when the agent sleeps, and where it trapped or grew.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Live;
use crate::image::Image;

/// Slots that stand ready for one component, at most; the oldest go then.
pub(super) const MAX_READY: usize = 1024;
/// A resume is followed by another where that comes so soon after.
const SOON: Duration = Duration::from_secs(10);

/// How many slots a host makes ahead, of all components.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    pub fn new(slots: usize) -> Self {
        Self { left: AtomicUsize::new(slots) }
    }

    fn take(self: &Arc<Self>) -> Option<Share> {
        let one_less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok()?;
        Some(Share(self.clone()))
    }

    fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// One slot's part of the budget.
pub(super) struct Share(Arc<Budget>);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::AcqRel);
    }
}

struct Slot {
    live: Live,
    /// It was made ahead, and not ordered.
    ahead: Option<Share>,
}

#[derive(Default)]
struct Pool {
    slots: Vec<Slot>,
    /// So many are to be made ahead.
    wanted: usize,
    /// When a slot was last asked for, or the number wanted last became less.
    asked: Option<Instant>,
    /// Somebody is making some.
    filling: bool,
}

/// The slots of one component.
pub(super) struct Warm {
    pool: Mutex<Pool>,
    budget: Arc<Budget>,
}

/// What came of asking for a slot.
pub(super) struct Taken {
    pub live: Option<Live>,
    /// More are wanted than there are: whoever asked sees to it that they are [made](Warm::next).
    pub fill: bool,
}

impl Warm {
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { pool: Mutex::default(), budget }
    }

    fn pool(&self) -> std::sync::MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many stand ready for an image like this one.
    pub fn ready(&self, image: &Image) -> usize {
        self.pool().slots.iter().filter(|slot| slot.live.fits_exactly(image)).count()
    }

    /// Adds one that was ordered.
    pub fn order(&self, live: Live) {
        self.put(Slot { live, ahead: None });
    }

    fn put(&self, slot: Slot) {
        let mut pool = self.pool();
        pool.slots.push(slot);
        let over = pool.slots.len().saturating_sub(MAX_READY);
        let dropped: Vec<_> = pool.slots.drain(..over).collect();
        drop(pool);
        drop(dropped);
    }

    /// Takes the slot that suits `image` best, if there is one that suits it.
    pub fn take(&self, image: &Image) -> Taken {
        let mut pool = self.pool();
        let last = |suits: &dyn Fn(&Live) -> bool| pool.slots.iter().rposition(|slot| suits(&slot.live));
        let best = last(&|live| live.is_ready_for(image))
            .or_else(|| last(&|live| live.fits_exactly(image)))
            .or_else(|| last(&|live| live.fits(image)));
        let now = Instant::now();
        let follows = pool.asked.replace(now).is_some_and(|before| now - before < SOON);
        if best.is_none() && follows {
            pool.wanted = (pool.wanted * 2).clamp(1, MAX_READY);
        }
        // its part of the budget is given back here
        let live = best.map(|at| pool.slots.swap_remove(at).live);
        // not each of them by itself; to start a task that can make none costs more than the whole resume
        let lacks = pool.slots.len() < pool.wanted.div_ceil(2);
        let fill = lacks && !pool.filling && !self.budget.is_used_up();
        pool.filling |= fill;
        drop(pool);
        Taken { live, fill }
    }

    /// Whether another is to be made ahead; after the answer that none is, nobody is filling any more.
    pub fn next(&self) -> Option<Share> {
        let mut pool = self.pool();
        let share = if pool.slots.len() < pool.wanted { self.budget.take() } else { None };
        pool.filling = share.is_some();
        share
    }

    /// Adds one that was made ahead.
    pub fn put_ahead(&self, live: Live, share: Share) {
        self.put(Slot { live, ahead: Some(share) });
    }

    /// Making one failed, or nobody does it any more.
    pub fn stop_filling(&self) {
        let mut pool = self.pool();
        pool.filling = false;
        pool.wanted = 0;
    }

    /// Drops what nobody has asked for lately, or everything where memory is short. Whether it has to be called again.
    pub fn trim(&self, is_short: bool) -> bool {
        let mut pool = self.pool();
        let dropped: Vec<Slot> = if is_short {
            pool.wanted = 0;
            std::mem::take(&mut pool.slots)
        } else {
            let now = Instant::now();
            if pool.asked.is_some_and(|asked| now - asked >= SOON) {
                pool.asked = Some(now);
                pool.wanted /= 2;
            }
            let ahead = pool.slots.iter().filter(|slot| slot.ahead.is_some()).count();
            let mut over = ahead.saturating_sub(pool.wanted);
            let goes = |slot: &mut Slot| {
                let goes = over > 0 && slot.ahead.is_some();
                over -= usize::from(goes);
                goes
            };
            pool.slots.extract_if(.., goes).collect()
        };
        let again = !pool.slots.is_empty() || pool.wanted > 0;
        drop(pool);
        drop(dropped);
        again
    }
}
