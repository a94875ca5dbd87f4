//! What waits to be committed, and whose turn it is.
//!
//! Deficit round robin (Shreedhar and Varghese, 1995) by bytes over agents: whoever floods waits
//! behind itself.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};

use super::sync::thread::{self, ThreadId};
use super::sync::{Condvar, Mutex, MutexGuard};
use crate::id::AgentId;
use crate::log::format::{MAX_TARGET, record_len};
use crate::log::{CommitError, Done, LogPosition, Record};

/// An agent with more bytes queued than this waits before it may queue more.
const MAX_QUEUED: usize = 32 << 20;
/// The smallest share that gets a turn; a share of zero would never let anything through.
const MIN_SHARE: usize = 64;

/// Who is told how a commit went.
pub(super) enum Told {
    /// Called before the tail moves.
    Call(Done),
    /// Woken after the tail has moved.
    Wake(SyncSender<Result<LogPosition, CommitError>>),
}

/// A record that waits, and who is told about it.
pub(super) struct Pending {
    pub record: Record,
    pub told: Told,
    /// Bytes as stored, or why it cannot be stored: told in its turn, so that order holds.
    pub size: Result<usize, CommitError>,
}

impl Pending {
    pub fn new(mut record: Record, told: Told) -> Self {
        let size = record_len(&record);
        if size.is_err() {
            record.needs = Vec::new();
            record.body = Vec::new();
        }
        Self { record, told, size }
    }

    fn bytes(&self) -> usize {
        self.size.as_ref().map_or(0, |size| *size)
    }
}

#[derive(Default)]
struct AgentQueue {
    waiting: VecDeque<Pending>,
    bytes: usize,
    credit: usize,
}

#[derive(Default)]
struct Queue {
    agents: HashMap<AgentId, AgentQueue>,
    /// Agents with something waiting, next first.
    turns: VecDeque<AgentId>,
    work: Work,
    /// The last group was of several agents.
    crowded: bool,
    /// Threads that wait until their agent's queue is shorter.
    waiting: usize,
    closed: bool,
    poisoned: Option<Arc<str>>,
}

/// Who turns what is queued into groups: the log's thread, or one that lends itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Work {
    /// Nobody does.
    #[default]
    Idle,
    /// This thread does, and looks for more when it is done.
    By(ThreadId),
}

pub(super) struct SharedQueue {
    queue: Mutex<Queue>,
    /// Something waits that nobody works on, or the queue was closed.
    filled: Condvar,
    /// An agent's queue became shorter.
    drained: Condvar,
    target: usize,
    share: usize,
}

impl SharedQueue {
    pub fn new(target: usize, share: usize) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            target: target.clamp(1, MAX_TARGET),
            share: share.max(MIN_SHARE),
        }
    }

    /// Queues all of these, of one agent, for whoever works on the queue, now or next.
    pub fn push(&self, pending: impl IntoIterator<Item = Pending>) -> Pushed {
        let mut pending = pending.into_iter().peekable();
        let Some(agent) = pending.peek().map(|it| it.record.agent) else { return Pushed::Seen };
        let mut queue = self.lock();
        let works = queue.work == Work::By(thread::current().id());
        // Only before the first, so that a group has all or none.
        while !works && queue.agents.get(&agent).is_some_and(|it| it.bytes > MAX_QUEUED) {
            queue.waiting += 1;
            queue = self.drained.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        }
        for pending in pending {
            queue.push(pending);
        }
        if queue.work == Work::Idle { Pushed::Unseen } else { Pushed::Seen }
    }

    /// Has the log's thread look at what waits.
    pub fn call(&self) {
        self.filled.notify_one();
    }

    /// Waits for work that nobody does, and takes a group of it; `None` when closed and empty. To be followed by
    /// [`done`](Self::done).
    pub fn take_group(&self) -> Option<Vec<Pending>> {
        let mut queue = self.lock();
        while queue.work != Work::Idle || queue.turns.is_empty() {
            if queue.closed && queue.work == Work::Idle {
                return None;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Some(self.begin(queue))
    }

    /// Takes a group for a thread that lends itself, where nobody works and nobody is likely to come while it does.
    /// To be followed by [`done`](Self::done). What is left waiting is somebody's work when this returns.
    pub fn lend(&self) -> Option<Vec<Pending>> {
        let queue = self.lock();
        if queue.work != Work::Idle || queue.turns.is_empty() {
            return None;
        }
        if queue.crowded || queue.turns.len() > 1 {
            drop(queue);
            self.call();
            return None;
        }
        Some(self.begin(queue))
    }

    /// Takes another group, if there is one, for the thread that is at work.
    pub fn take_next(&self) -> Option<Vec<Pending>> {
        let queue = self.lock();
        if queue.turns.is_empty() { None } else { Some(self.begin(queue)) }
    }

    fn begin(&self, mut queue: MutexGuard<'_, Queue>) -> Vec<Pending> {
        queue.work = Work::By(thread::current().id());
        let group = queue.take_group(self.target, self.share);
        let mut agents = group.iter().map(|it| it.record.agent);
        let first = agents.next();
        queue.crowded = agents.any(|it| Some(it) != first);
        let waiting = queue.waiting > 0;
        drop(queue);
        if waiting {
            self.drained.notify_all();
        }
        group
    }

    /// A group is done with, and what came meanwhile is anybody's work.
    pub fn done(&self) {
        let mut queue = self.lock();
        queue.work = Work::Idle;
        let call = !queue.turns.is_empty() || queue.closed;
        drop(queue);
        if call {
            self.call();
        }
    }

    /// Whether the calling thread works on the queue.
    pub fn is_at_work(&self) -> bool {
        self.lock().work == Work::By(thread::current().id())
    }

    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.lock().work == Work::Idle
    }

    /// Takes everything that `agents` have queued.
    pub fn take_all_of(&self, agents: impl IntoIterator<Item = AgentId>) -> Vec<Pending> {
        let mut queue = self.lock();
        let mut taken = Vec::new();
        for agent in agents {
            if let Some(waiting) = queue.agents.remove(&agent) {
                queue.turns.retain(|it| *it != agent);
                taken.extend(waiting.waiting);
            }
        }
        drop(queue);
        self.drained.notify_all();
        taken
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.call();
    }

    pub fn poison(&self, reason: Arc<str>) {
        self.lock().poisoned.get_or_insert(reason);
    }

    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.lock().poisoned.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No foreign code runs under the lock, so a poisoned lock still guards a sound queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether somebody works on the queue, who will find what was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what nobody has seen waits until somebody is called"]
pub(super) enum Pushed {
    Seen,
    Unseen,
}

impl Queue {
    fn push(&mut self, pending: Pending) {
        let agent = pending.record.agent;
        let queue = self.agents.entry(agent).or_default();
        if queue.waiting.is_empty() {
            self.turns.push_back(agent);
        }
        queue.bytes += pending.bytes();
        queue.waiting.push_back(pending);
    }

    /// Gives each agent that waits a share, once: what needs more than that has to save it up, over several groups,
    /// so that it is not in the way of every group of the others. Where nobody else waits, or nobody has enough yet,
    /// there are more rounds.
    fn take_group(&mut self, target: usize, share: usize) -> Vec<Pending> {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut crowd = false;
        while !self.turns.is_empty() && (group.is_empty() || !crowd) {
            crowd |= self.turns.len() > 1;
            for _ in 0..self.turns.len() {
                if bytes >= target || self.take_turn(target, share, &mut group, &mut bytes) == Turn::Full {
                    return group;
                }
            }
        }
        group
    }

    /// Takes what the next agent may have.
    fn take_turn(
        &mut self,
        target: usize,
        share: usize,
        group: &mut Vec<Pending>,
        bytes: &mut usize,
    ) -> Turn {
        let Some(agent) = self.turns.pop_front() else { return Turn::Over };
        let Some(queue) = self.agents.get_mut(&agent) else { return Turn::Over };
        queue.credit += share;
        let mut full = false;
        while let Some(size) = queue.waiting.front().map(Pending::bytes) {
            if size > queue.credit {
                break;
            }
            full = *bytes > 0 && *bytes + size > target;
            if full {
                break;
            }
            queue.credit -= size;
            queue.bytes -= size;
            *bytes += size;
            group.extend(queue.waiting.pop_front());
        }
        if queue.waiting.is_empty() {
            self.agents.remove(&agent);
        } else if full {
            // It is first in the next group, with what is left of this turn.
            queue.credit = queue.credit.saturating_sub(share);
            self.turns.push_front(agent);
            return Turn::Full;
        } else {
            self.turns.push_back(agent);
        }
        Turn::Over
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Over,
    /// The group has no room for what comes next.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, Sequence};
    use uuid::Uuid;

    fn pending(agent: u128, sequence: u64, bytes: usize) -> Pending {
        let record = Record {
            agent: AgentId(Uuid::from_u128(agent)),
            epoch: Epoch(1),
            sequence: Sequence(sequence),
            needs: Vec::new(),
            body: vec![0; bytes],
        };
        Pending::new(record, Told::Call(Box::new(|_| {})))
    }

    fn drain(queue: &mut Queue, target: usize, share: usize) -> Vec<Vec<(u128, u64)>> {
        let mut groups = Vec::new();
        while !queue.turns.is_empty() {
            let group = queue.take_group(target, share);
            assert!(!group.is_empty(), "a group that takes nothing never ends");
            let names = |it: &Pending| (it.record.agent.0.as_u128(), it.record.sequence.0);
            groups.push(group.iter().map(names).collect());
        }
        assert!(queue.agents.is_empty());
        groups
    }

    #[test]
    fn a_flooder_waits_behind_itself() {
        let mut queue = Queue::default();
        for sequence in 0..1000 {
            queue.push(pending(1, sequence, 4000));
        }
        for agent in 2..12 {
            queue.push(pending(agent, 0, 100));
        }
        let groups = drain(&mut queue, 64 << 10, 8 << 10);
        for agent in 2..12 {
            assert!(groups[0].contains(&(agent, 0)), "agent {agent} is in the first group");
        }
        let flood: Vec<u64> = groups.iter().flatten().filter(|it| it.0 == 1).map(|it| it.1).collect();
        assert_eq!(flood, (0..1000).collect::<Vec<_>>(), "all of it, in order");
    }

    #[test]
    fn equal_floods_share_equally() {
        let mut queue = Queue::default();
        for sequence in 0..200 {
            queue.push(pending(1, sequence, 1000));
            queue.push(pending(2, sequence, 1000));
        }
        for group in &drain(&mut queue, 32 << 10, 4 << 10)[..5] {
            let first = group.iter().filter(|it| it.0 == 1).count() * 2;
            assert!(first.abs_diff(group.len()) <= 8, "{first} of {}", group.len());
        }
    }

    #[test]
    fn what_is_larger_than_a_share_is_not_in_every_group_of_the_others() {
        let mut queue = Queue::default();
        let large = 60 << 10;
        let mut groups = Vec::new();
        for round in 0..100 {
            for agent in 1..9 {
                queue.push(pending(agent, round, 100));
            }
            if !queue.agents.contains_key(&AgentId(Uuid::from_u128(9))) {
                queue.push(pending(9, round, large));
            }
            groups.push(queue.take_group(512 << 10, 16 << 10));
        }
        let of = |agent: u128| {
            let has = |it: &&Vec<Pending>| it.iter().any(|it| it.record.agent.0.as_u128() == agent);
            groups.iter().filter(has).count()
        };
        assert!((1..9).all(|agent| of(agent) == 100), "each of the others is in each group");
        assert_eq!(of(9), 25, "a share of 16 KiB is saved up over four groups");
        // alone it need not save
        queue.push(pending(9, 1, large));
        queue.push(pending(9, 2, large));
        assert_eq!(queue.take_group(512 << 10, 16 << 10).len(), 2);
    }

    #[test]
    fn a_record_larger_than_a_group_goes_alone() {
        let mut queue = Queue::default();
        queue.push(pending(1, 0, 1 << 20));
        queue.push(pending(2, 0, 10));
        queue.push(pending(1, 1, 10));
        let groups = drain(&mut queue, 64 << 10, 1 << 10);
        assert_eq!(groups[0], [(2, 0)]);
        assert_eq!(groups[1], [(1, 0)]);
        assert_eq!(groups[2], [(1, 1)]);
    }
}
