//! What is in memory between turns: parked agents and warm slots.
//!
//! An agent that has taken a turn stays in memory, *parked*: its next turn finds it as it is. Every turn ends with a
//! durable image, so that letting it sleep loses nothing. Where parked agents take more than the host's budget, or
//! memory is short, those that had their turn longest ago go to sleep.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use zone_vfs::id::AgentId;
use zone_vfs::store::Disk;

use super::images::lock;
use crate::agent::{Agent, AgentError, Place};
use crate::host::{HostShared, Pressure};
use crate::threads;

/// How often it is looked whether memory is short, and whether slots stand ready that nobody asks for.
const EVERY: Duration = Duration::from_secs(1);

/// So many agents fewer in memory are reason to give back what the allocator has free: those of Python leave 0.4 MiB each.
const MANY: usize = 32;

/// The agents in memory, by when they were last used.
pub(crate) struct Parked {
    budget: u64,
    agents: Mutex<Order<(Arc<Disk>, Weak<Place>)>>,
    tide: Tide,
    /// Somebody looks after what is in memory.
    kept: AtomicBool,
    pub pressure: Pressure,
}

/// How many agents were in memory at once, at most, since much of their memory was last given back.
#[derive(Default)]
struct Tide(AtomicUsize);

impl Tide {
    fn rises_to(&self, agents: usize) {
        self.0.fetch_max(agents, Ordering::Relaxed);
    }

    /// Whether now that there are so many, the allocator has much to give back. Begins anew where it has.
    fn has_fallen_to(&self, agents: usize) -> bool {
        let fallen = self.0.load(Ordering::Relaxed).saturating_sub(agents) >= MANY;
        if fallen {
            self.0.store(agents, Ordering::Relaxed);
        }
        fallen
    }
}

/// Things by when they were last used, with the bytes that they take.
struct Order<T> {
    known: HashMap<AgentId, Entry<T>>,
    by_use: BTreeMap<u64, AgentId>,
    bytes: u64,
    clock: u64,
}

struct Entry<T> {
    used: u64,
    bytes: u64,
    what: T,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, clock: 0 }
    }
}

impl<T> Order<T> {
    fn remove(&mut self, id: AgentId) {
        if let Some(entry) = self.known.remove(&id) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    /// Notes that this is used now.
    fn put(&mut self, id: AgentId, bytes: u64, what: T) {
        self.remove(id);
        self.clock += 1;
        self.bytes += bytes;
        self.by_use.insert(self.clock, id);
        self.known.insert(id, Entry { used: self.clock, bytes, what });
    }

    /// Those that were used longest ago, as many as take what is over `budget`; but not `but`.
    fn over(&self, budget: u64, but: Option<AgentId>) -> Vec<AgentId> {
        let mut over = self.bytes.saturating_sub(budget);
        let goes = |id: &AgentId| {
            let goes = over > 0;
            over = over.saturating_sub(self.known.get(id).map_or(0, |entry| entry.bytes));
            goes
        };
        self.by_use.values().copied().filter(|id| Some(*id) != but).take_while(goes).collect()
    }
}

/// An agent's place among those in memory, as long as it is there.
pub(crate) struct InMemory {
    parked: Arc<Parked>,
    id: AgentId,
}

impl Drop for InMemory {
    fn drop(&mut self) {
        lock(&self.parked.agents).remove(self.id);
    }
}

impl Parked {
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            agents: Mutex::default(),
            tide: Tide::default(),
            kept: AtomicBool::new(false),
            pressure: Pressure::default(),
        }
    }

    /// An agent comes into memory.
    pub fn enter(self: &Arc<Self>, agent: &Agent, bytes: u64) -> InMemory {
        let agents = self.note(agent, bytes);
        self.tide.rises_to(agents);
        InMemory { parked: self.clone(), id: agent.id() }
    }

    /// An agent has been used, and takes so many bytes now. Gives how many are in memory.
    fn note(&self, agent: &Agent, bytes: u64) -> usize {
        let mut agents = lock(&self.agents);
        agents.put(agent.id(), bytes, (agent.disk.clone(), Arc::downgrade(&agent.place)));
        agents.known.len()
    }

    /// Agents in memory and the bytes that they take.
    pub fn taken(&self) -> (usize, u64) {
        let agents = lock(&self.agents);
        (agents.known.len(), agents.bytes)
    }
}

/// Has the allocator give back the memory that is free: that of instances which are gone lies between what is in use, and
/// the GNU allocator keeps all of it otherwise, as long as the process lives. It takes about a millisecond for 10 MiB.
fn give_back_free() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Says that nobody looks after what is in memory any more, also where the runtime has gone.
struct Keeper(Arc<Parked>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.kept.store(false, Ordering::Release);
    }
}

impl HostShared {
    /// An agent has come to the end of its turn, and takes so many bytes. Others go to sleep where these are too many.
    pub fn note_parked(self: &Arc<Self>, agent: &Agent, bytes: u64) {
        self.parked.note(agent, bytes);
        let over = lock(&self.parked.agents).over(self.parked.budget, Some(agent.id()));
        if !over.is_empty() {
            let shared = self.clone();
            tokio::spawn(async move { shared.let_sleep(&over).await });
        }
    }

    /// Sees to it that somebody looks after what is in memory.
    pub fn keep_watch(self: &Arc<Self>) {
        if self.parked.kept.swap(true, Ordering::AcqRel) {
            return;
        }
        let (keeper, shared) = (Keeper(self.parked.clone()), Arc::downgrade(self));
        tokio::spawn(async move {
            let _keeper = keeper;
            loop {
                tokio::time::sleep(EVERY).await;
                let Some(shared) = shared.upgrade() else { return };
                if !shared.look_after_memory().await {
                    return;
                }
            }
        });
    }

    /// Lets agents sleep and drops slots where memory is short, and slots that nobody asks for. Whether anything is left
    /// to look after.
    pub(crate) async fn look_after_memory(self: &Arc<Self>) -> bool {
        let is_short = self.parked.pressure.is_high();
        let templates: Vec<_> = lock(&self.templates).values().cloned().collect();
        let mut again = false;
        for template in templates {
            again |= template.trim(is_short);
        }
        if is_short {
            let (agents, bytes) = self.parked.taken();
            if agents > 0 {
                tracing::info!("memory is short: half of what {agents} parked agents take is given back");
            }
            let over = lock(&self.parked.agents).over(bytes / 2, None);
            self.let_sleep(&over).await;
        }
        if self.parked.tide.has_fallen_to(self.parked.taken().0)
            && let Err(e) = threads::run(give_back_free).await
        {
            tracing::debug!("what is free was not given back: {}", zone_vfs::told(&e));
        }
        again || self.parked.taken().0 > 0
    }

    /// Lets half of what is parked sleep and drops warm slots, since the process has nearly as many mappings as it may
    /// have. Refuses whoever comes in where that does not help.
    pub async fn make_room(self: &Arc<Self>) -> Result<(), AgentError> {
        let templates: Vec<_> = lock(&self.templates).values().cloned().collect();
        for template in templates {
            template.trim(true);
        }
        let (agents, bytes) = self.parked.taken();
        if agents > 0 {
            tracing::info!("memory mappings are short: half of {agents} parked agents go to sleep");
        }
        let over = lock(&self.parked.agents).over(bytes.div_ceil(2), None);
        self.let_sleep(&over).await;
        self.headroom.now().refused()
    }

    async fn let_sleep(self: &Arc<Self>, agents: &[AgentId]) {
        for id in agents {
            let found = lock(&self.parked.agents).known.get(id).map(|entry| entry.what.clone());
            let Some((disk, place)) = found else { continue };
            let Some(place) = place.upgrade() else { continue };
            Agent { host: self.clone(), disk, place }.sleep_unless_busy();
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> AgentId {
        AgentId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn what_is_free_is_given_back_where_many_sleep_and_not_where_some_come_and_go() {
        let tide = Tide::default();
        for _ in 0..3 {
            tide.rises_to(MANY - 1);
            assert!(!tide.has_fallen_to(0));
        }
        tide.rises_to(10 * MANY);
        assert!(!tide.has_fallen_to(9 * MANY + 1));
        // little by little counts too
        assert!(tide.has_fallen_to(9 * MANY));
        assert!(!tide.has_fallen_to(8 * MANY + 1), "what was there before was given back");
        assert!(tide.has_fallen_to(0));
    }

    #[test]
    fn those_that_were_used_longest_ago_go_first() {
        let mut order = Order::default();
        for n in 0..5 {
            order.put(id(n), 10, ());
        }
        let over = |order: &Order<()>, budget, but| order.over(budget, but);
        assert_eq!(over(&order, 50, None), []);
        assert_eq!(over(&order, 49, None), [id(0)]);
        assert_eq!(over(&order, 30, None), [id(0), id(1)]);
        order.put(id(0), 25, ());
        assert_eq!(order.bytes, 65);
        assert_eq!(over(&order, 50, None), [id(1), id(2)]);
        assert_eq!(over(&order, 50, Some(id(1))), [id(2), id(3)]);
        order.remove(id(1));
        order.remove(id(1));
        assert_eq!((order.bytes, order.by_use.len(), order.known.len()), (55, 4, 4));
        assert_eq!(over(&order, 0, None), [id(2), id(3), id(4), id(0)]);
    }
}
