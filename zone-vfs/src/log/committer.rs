//! What turns queued records into durable groups: the log's own thread, or one that lends itself.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use super::files::{Current, SharedFiles};
use super::format::{begin_group, put_record, seal_group};
use super::queue::{Pending, SharedQueue, Told};
use super::{Barrier, CommitError, LogOptions, LogPosition};
use crate::chunks::ChunkError;
use crate::device::{AlignedBuf, BLOCK, DurableError, with_advice};
use crate::id::AgentId;

type Outcome = Result<LogPosition, CommitError>;

/// The queue, and what works on it. The queue sees to it that one thread at a time does.
pub(super) struct Works {
    pub queue: Arc<SharedQueue>,
    committer: Mutex<Committer>,
}

impl Works {
    pub fn new(committer: Committer) -> Self {
        Self { queue: committer.queue.clone(), committer: Mutex::new(committer) }
    }

    /// What the log's thread does until the log is closed. Those whose records are durable are told while the next
    /// group is on its way to the disk.
    pub fn run(&self) {
        while let Some(group) = self.queue.take_group() {
            let mut committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut durable = committer.commit_caught(group, None);
            while let Some(group) = self.queue.take_next() {
                durable = committer.commit_caught(group, durable);
            }
            committer.tell(durable);
            drop(committer);
            self.queue.done();
        }
    }

    /// Commits in the calling thread, which is going to wait for what it has queued: where nobody else commits
    /// meanwhile, that spares the way to another thread and back. Leaves it to the log's thread otherwise.
    pub fn lend(&self) {
        if let Some(group) = self.queue.lend() {
            let mut committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner);
            let durable = committer.commit_caught(group, None);
            committer.tell(durable);
            drop(committer);
            self.queue.done();
        }
    }
}

/// A group that is durable, of which nobody was told.
struct Durable {
    group: Vec<Pending>,
    position: LogPosition,
    /// Where the log ends behind it.
    tail: LogPosition,
}

pub(super) struct Committer {
    queue: Arc<SharedQueue>,
    files: Arc<SharedFiles>,
    barrier: Option<Arc<dyn Barrier>>,
    current: Option<Current>,
    /// The number of the next group.
    number: u64,
    buf: AlignedBuf,
    #[cfg(test)]
    planted: super::Planted,
}

impl Committer {
    pub fn new(
        queue: Arc<SharedQueue>,
        files: Arc<SharedFiles>,
        options: LogOptions,
        current: Option<Current>,
        number: u64,
    ) -> Self {
        Self {
            queue,
            files,
            #[cfg(test)]
            planted: options.planted,
            barrier: options.barrier,
            current,
            number,
            buf: AlignedBuf::new(),
        }
    }

    /// As [`commit`](Self::commit). A panic, of the barrier's or the device's, ends the log and nobody's wait: those
    /// before it are told that they are durable, and those of `group` that it is not known whether they are.
    fn commit_caught(&mut self, mut group: Vec<Pending>, mut before: Option<Durable>) -> Option<Durable> {
        catch_unwind(AssertUnwindSafe(|| self.commit(&mut group, &mut before))).unwrap_or_else(|_| {
            let reason: Arc<str> = "a panic while committing".into();
            self.poison(reason.clone());
            self.tell(before.take());
            self.refuse(std::mem::take(&mut group), &CommitError::Poisoned(reason));
            None
        })
    }

    /// Makes `group` durable, and tells those `before` it that they are: before anybody of `group` is told. Whom it
    /// has told it has taken out of these.
    fn commit(&mut self, group: &mut Vec<Pending>, before: &mut Option<Durable>) -> Option<Durable> {
        if let Some(reason) = self.queue.poisoned() {
            self.tell(before.take());
            self.refuse(std::mem::take(group), &CommitError::Poisoned(reason));
            return None;
        }
        if group.iter().any(|it| !it.record.needs.is_empty()) {
            // a flush of its own, for which they need not wait
            self.tell(before.take());
        }
        if let Err(error) = self.flush_needs(group) {
            self.tell(before.take());
            if error.is_refusal() {
                let needy = agents(group.iter().filter(|it| !it.record.needs.is_empty()));
                let all = std::mem::take(group).into_iter();
                let (refused, rest) = all.partition(|it| needy.contains(&it.record.agent));
                *group = rest;
                self.refuse_with_followers(refused, &needy, &error);
            } else {
                self.fail(std::mem::take(group), &error);
                return None;
            }
        }
        if group.iter().all(|it| it.size.is_err()) {
            self.tell(before.take());
            self.refuse(std::mem::take(group), &CommitError::Closed);
            return None;
        }
        let written = self.write(group, before);
        self.tell(before.take());
        let group = std::mem::take(group);
        match written {
            Ok(position) => return Some(Durable { group, position, tail: self.tail() }),
            Err(error) if error.is_refusal() => {
                let agents = agents(&group);
                self.refuse_with_followers(group, &agents, &error);
            }
            Err(error) => self.fail(group, &error),
        }
        None
    }

    /// Tells those of a durable group, if there is one.
    fn tell(&self, durable: Option<Durable>) {
        if let Some(durable) = durable {
            tell(&self.queue, &self.files, durable);
        }
    }

    /// Makes the chunks durable that the group's records need.
    fn flush_needs(&self, group: &[Pending]) -> Result<(), CommitError> {
        #[cfg(test)]
        if self.planted == super::Planted::NoBarrier {
            return Ok(());
        }
        let Some(barrier) = &self.barrier else { return Ok(()) };
        if let Some(reason) = barrier.poisoned() {
            return Err(CommitError::Poisoned(reason));
        }
        if group.iter().all(|it| it.record.needs.is_empty()) {
            return Ok(());
        }
        barrier.flush().map_err(|error| match error {
            ChunkError::NoSpace => CommitError::NoSpace,
            ChunkError::Shortage(error) => CommitError::Shortage(with_advice(&error).into()),
            other => CommitError::Poisoned(other.to_string().into()),
        })
    }

    /// Writes one group and gives the position at which it begins. Takes and tells those before it meanwhile, if
    /// it comes so far.
    fn write(&mut self, group: &[Pending], before: &mut Option<Durable>) -> Result<LogPosition, CommitError> {
        begin_group(&mut self.buf);
        let mut records = 0;
        for pending in group.iter().filter(|it| it.size.is_ok()) {
            put_record(&mut self.buf, &pending.record);
            records += 1;
        }
        let bytes = self.buf.len().next_multiple_of(BLOCK) as u64;
        let turns_over = self.files.takes_turn();
        let current = match self.current.take() {
            Some(current) if !turns_over && current.offset + bytes <= current.len => current,
            full => match self.files.next_file(bytes, self.number) {
                Ok(next) => next,
                Err(error) => {
                    if turns_over {
                        // still to be done
                        self.files.turn_over();
                    }
                    self.current = full;
                    return Err(error.into());
                }
            },
        };
        let current = self.current.insert(current);
        seal_group(&mut self.buf, &current.salt, current.generation, self.number, records);
        #[cfg(test)]
        if self.planted == super::Planted::AcknowledgeBeforeFlush {
            let written = current.file.write_at(current.offset, &self.buf);
            written.map_err(|error| CommitError::Poisoned(error.to_string().into()))?;
            return Ok(self.advance(bytes));
        }
        let written = if before.is_none() {
            current.file.write_durably(current.offset, &self.buf)
        } else {
            let (queue, files) = (&self.queue, &self.files);
            current.file.write_durably_while(current.offset, &self.buf, &mut || {
                if let Some(durable) = before.take() {
                    tell(queue, files, durable);
                }
            })
        };
        match written {
            Ok(()) => Ok(self.advance(bytes)),
            // The next group takes the same place and number.
            Err(error @ DurableError::Write(_)) if error.is_no_space() => Err(CommitError::NoSpace),
            Err(error) => Err(CommitError::Poisoned(format!("{}: {error}", current.path).into())),
        }
    }

    fn advance(&mut self, bytes: u64) -> LogPosition {
        let position = self.tail();
        self.number += 1;
        if let Some(current) = &mut self.current {
            current.offset += bytes;
            self.files.set_end(current.offset);
        }
        position
    }

    fn tail(&self) -> LogPosition {
        self.current.as_ref().map_or(LogPosition::START, |current| LogPosition {
            file_generation: current.generation,
            offset: current.offset,
            group: self.number,
        })
    }

    /// An agent's later records build on its earlier ones, so they go with them.
    fn refuse_with_followers(&self, refused: Vec<Pending>, agents: &HashSet<AgentId>, error: &CommitError) {
        let followers = self.queue.take_all_of(agents.iter().copied());
        self.refuse(refused, error);
        self.refuse(followers, error);
    }

    fn fail(&self, group: Vec<Pending>, error: &CommitError) {
        if let CommitError::Poisoned(reason) = error {
            self.poison(reason.clone());
        }
        self.refuse(group, error);
    }

    fn refuse(&self, group: Vec<Pending>, error: &CommitError) {
        let sleepers = call(&self.queue, group, &Err(error.clone()));
        wake(sleepers);
    }

    fn poison(&self, reason: Arc<str>) {
        poison(&self.queue, reason);
    }
}

/// Tells those whose records are durable. The tail moves when those have been that are called.
fn tell(queue: &SharedQueue, files: &SharedFiles, durable: Durable) {
    let sleepers = call(queue, durable.group, &Ok(durable.position));
    files.set_tail(durable.tail);
    wake(sleepers);
}

/// Tells those who are called, in order, and gives those who are to be woken.
fn call(queue: &SharedQueue, group: Vec<Pending>, result: &Outcome) -> Vec<(SyncSender<Outcome>, Outcome)> {
    let mut sleepers = Vec::new();
    for Pending { told, size, .. } in group {
        let outcome = size.and_then(|_| result.clone());
        match told {
            Told::Wake(sender) => sleepers.push((sender, outcome)),
            Told::Call(done) => {
                // What the state of its owner now is, nobody knows; the others are told first.
                if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
                    poison(queue, "an acknowledgement panicked".into());
                }
            }
        }
    }
    sleepers
}

fn poison(queue: &SharedQueue, reason: Arc<str>) {
    tracing::error!(%reason, "the log takes no more commits until it is opened again");
    queue.poison(reason);
}

fn agents<'a>(pending: impl IntoIterator<Item = &'a Pending>) -> HashSet<AgentId> {
    pending.into_iter().map(|it| it.record.agent).collect()
}

fn wake(sleepers: Vec<(SyncSender<Outcome>, Outcome)>) {
    for (sender, outcome) in sleepers {
        // Whoever waits goes only with its thread.
        let _ = sender.send(outcome);
    }
}
