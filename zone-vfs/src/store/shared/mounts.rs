//! An agent's mounts of shared zones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::SharedId;
use super::flow::{Flow, settle_all};
use crate::id::GenerationNumber;
use crate::store::commit::Commit;
use crate::store::disk::{Disk, Done, Inner};
use crate::store::entry::{Entry, SeenMount};
#[cfg(test)]
use crate::store::tests::{self, Mistake};
use crate::store::{Shared, StoreError};
use crate::zone::{Through, Zone};

/// A shared zone where an agent mounts it.
pub(in crate::store) struct Mounted {
    id: SharedId,
    /// The zone, once it could be read.
    flow: OnceLock<Arc<Flow>>,
    /// Why it could not be.
    fault: Mutex<Option<Arc<StoreError>>>,
    through: Through,
    /// Something was read or written here since the turn began.
    used: AtomicBool,
}

/// For each of an agent's zones the mount, where it is a shared one; nothing for an agent without.
#[derive(Default)]
pub(in crate::store) struct Mounts(pub Box<[Option<Mounted>]>);

impl Mounted {
    pub fn new(id: SharedId, flow: Result<Arc<Flow>, StoreError>, through: Through) -> Self {
        let (flow, fault) = match flow {
            Ok(flow) => (OnceLock::from(flow), None),
            Err(e) => (OnceLock::new(), Some(Arc::new(e))),
        };
        Self { id, flow, fault: Mutex::new(fault), through, used: AtomicBool::new(false) }
    }

    /// Reads the zone where that failed for a reason that may have passed. For whoever holds no lock of the store's.
    #[cold]
    fn read_again(&self, store: &Arc<Shared>) {
        if !self.fault().is_some_and(|fault| fault.may_pass()) {
            return;
        }
        let found = store.flow(&mut store.agents(), self.id);
        let fault = match found {
            Ok(flow) => {
                // whoever has tried at the same time has found the same
                let _ = self.flow.set(flow);
                None
            }
            Err(e) => Some(Arc::new(e)),
        };
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    pub fn id(&self) -> SharedId {
        self.id
    }

    /// Works on the zone. `None` where it could not be read.
    #[inline]
    pub fn zone<R>(&self, work: impl FnOnce(&mut Zone) -> R) -> Option<R> {
        self.used.store(true, Ordering::Relaxed);
        self.flow.get()?.zone(self.through, work)
    }

    /// What the zone lies on. `None` where it could not be read.
    pub fn disk(&self) -> Option<&Arc<Disk>> {
        self.flow.get().map(|flow| &flow.disk)
    }

    /// Why the zone cannot be used, where that is so.
    pub fn fault(&self) -> Option<Arc<StoreError>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Mounts {
    #[inline]
    pub fn get(&self, index: u16) -> Option<&Mounted> {
        self.0.get(usize::from(index))?.as_ref()
    }

    fn iter(&self) -> impl Iterator<Item = &Mounted> {
        self.0.iter().flatten()
    }

    /// A turn begins: nothing has been seen yet.
    pub fn begin(&self) {
        for mount in self.iter() {
            mount.used.store(false, Ordering::Relaxed);
        }
    }

    /// The zones of which something was seen that is not durable.
    fn unsettled(&self) -> Vec<Arc<Flow>> {
        #[cfg(test)]
        if tests::makes(Mistake::TurnWaitsForNothing) {
            return Vec::new();
        }
        let used = self.iter().filter(|m| m.used.load(Ordering::Relaxed));
        used.filter_map(|m| m.flow.get()).filter(|f| !f.is_settled()).cloned().collect()
    }

    /// How far the zones have come of which something was seen since the turn began. They are settled, and none of their
    /// disks is locked.
    fn seen(&self) -> Vec<SeenMount> {
        let used = (0..).zip(&self.0).filter_map(|(zone, mount)| Some((zone, mount.as_ref()?)));
        let used = used.filter(|(_, mount)| mount.used.load(Ordering::Relaxed));
        let seen = used.filter_map(|(zone, mount)| {
            let inner = mount.flow.get()?.disk.lock();
            Some(SeenMount { zone, epoch: inner.state.epoch, sequence: inner.state.sequence })
        });
        seen.collect()
    }

    /// Closes all that the agent holds open in shared zones.
    pub fn let_go(&self) -> Result<(), StoreError> {
        let mut first = Ok(());
        for mount in self.iter() {
            if let Some(flow) = mount.flow.get() {
                first = first.and(flow.let_go(mount.through.holder));
            }
        }
        first
    }
}

/// What a commit point adds to the records.
pub(in crate::store) type Control = Box<dyn FnOnce(&Inner) -> Result<Vec<Entry>, StoreError> + Send>;

/// Adds what was seen behind the generation that a commit point makes.
fn with_seen(control: Control, mounts: Vec<SeenMount>) -> Control {
    if mounts.is_empty() {
        return control;
    }
    Box::new(move |inner| {
        let mut entries = control(inner)?;
        let made = entries.iter().find_map(|it| match it {
            Entry::Generation { number, .. } => Some(*number),
            _ => None,
        });
        entries.extend(made.map(|generation| Entry::Seen { generation, mounts }));
        Ok(entries)
    })
}

impl Disk {
    /// The mount of this index, where the zone is a shared one.
    #[inline]
    pub(in crate::store) fn mount(&self, index: u16) -> Option<&Mounted> {
        let mount = self.mounts.get(index)?;
        if mount.flow.get().is_none()
            && let Some(store) = self.store.upgrade()
        {
            mount.read_again(&store);
        }
        Some(mount)
    }

    /// A commit point that counts only once all that the agent has seen in shared zones is durable:
    /// after a crash, nobody remembers what is gone.
    ///
    /// The shared zones come first. Were the turn's end durable before them, a crash in between would
    /// leave an agent that has written what is nowhere.
    pub(in crate::store) fn commit(self: &Arc<Self>, control: Control, done: Done<GenerationNumber>) {
        let unsettled = self.mounts.unsettled();
        if unsettled.is_empty() {
            let control = with_seen(control, self.mounts.seen());
            return Commit::start(self, control, None, done);
        }
        if let Err(e) = self.reserve() {
            return done(Err(e));
        }
        let disk = self.clone();
        settle_all(
            unsettled,
            Box::new(move |settled| match settled {
                Ok(()) => {
                    let control = with_seen(control, disk.mounts.seen());
                    Commit::start_reserved(&disk, control, done);
                }
                Err(e) => {
                    disk.unreserve();
                    done(Err(e));
                }
            }),
        );
    }

    /// Keeps every other commit of this disk away until one is started, or it is given up.
    fn reserve(&self) -> Result<(), StoreError> {
        let mut inner = self.lock_given();
        if std::mem::replace(&mut inner.committing, true) { Err(StoreError::Busy) } else { Ok(()) }
    }

    fn unreserve(&self) {
        self.lock().committing = false;
        self.settled.notify_all();
    }
}
