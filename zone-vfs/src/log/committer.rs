//! The thread that turns queued records into durable groups.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::files::{Current, SharedFiles};
use super::format::{begin_group, put_record, seal_group};
use super::queue::{Pending, SharedQueue, Told};
use super::{Barrier, CommitError, LogOptions, LogPosition};
use crate::chunks::ChunkError;
use crate::device::{AlignedBuf, BLOCK, DurableError};
use crate::id::AgentId;

type Outcome = Result<LogPosition, CommitError>;

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

    pub fn run(mut self) {
        self.queue.serve();
        while let Some(group) = self.queue.take_group() {
            // A panic of the barrier's ends the log, not the callers' wait.
            if catch_unwind(AssertUnwindSafe(|| self.commit(group))).is_err() {
                self.poison("a panic while committing".into());
            }
        }
    }

    fn commit(&mut self, mut group: Vec<Pending>) {
        if let Some(reason) = self.queue.poisoned() {
            return self.refuse(group, &CommitError::Poisoned(reason));
        }
        if let Err(error) = self.flush_needs(&group) {
            if error == CommitError::NoSpace {
                let needy = agents(group.iter().filter(|it| !it.record.needs.is_empty()));
                let (refused, rest) = group.into_iter().partition(|it| needy.contains(&it.record.agent));
                self.refuse_with_followers(refused, &needy);
                group = rest;
            } else {
                return self.fail(group, &error);
            }
        }
        if group.iter().all(|it| it.size.is_err()) {
            return self.refuse(group, &CommitError::Closed);
        }
        match self.write(&group) {
            Ok(position) => {
                let sleepers = self.call(group, &Ok(position));
                self.files.set_tail(self.tail());
                wake(sleepers);
            }
            Err(CommitError::NoSpace) => {
                let agents = agents(&group);
                self.refuse_with_followers(group, &agents);
            }
            Err(error) => self.fail(group, &error),
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
            other => CommitError::Poisoned(other.to_string().into()),
        })
    }

    /// Writes one group and gives the position at which it begins.
    fn write(&mut self, group: &[Pending]) -> Result<LogPosition, CommitError> {
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
        match current.file.write_durably(current.offset, &self.buf) {
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
    fn refuse_with_followers(&mut self, refused: Vec<Pending>, agents: &HashSet<AgentId>) {
        let followers = self.queue.take_all_of(agents.iter().copied());
        self.refuse(refused, &CommitError::NoSpace);
        self.refuse(followers, &CommitError::NoSpace);
    }

    fn fail(&mut self, group: Vec<Pending>, error: &CommitError) {
        if let CommitError::Poisoned(reason) = error {
            self.poison(reason.clone());
        }
        self.refuse(group, error);
    }

    fn refuse(&mut self, group: Vec<Pending>, error: &CommitError) {
        let sleepers = self.call(group, &Err(error.clone()));
        wake(sleepers);
    }

    /// Tells those who are called, in order, and gives those who are to be woken.
    fn call(&mut self, group: Vec<Pending>, result: &Outcome) -> Vec<(SyncSender<Outcome>, Outcome)> {
        let mut sleepers = Vec::new();
        for Pending { told, size, .. } in group {
            let outcome = size.and_then(|_| result.clone());
            match told {
                Told::Wake(sender) => sleepers.push((sender, outcome)),
                Told::Call(done) => {
                    // What the state of its owner now is, nobody knows; the others are told first.
                    if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
                        self.poison("an acknowledgement panicked".into());
                    }
                }
            }
        }
        sleepers
    }

    fn poison(&mut self, reason: Arc<str>) {
        tracing::error!(%reason, "the log takes no more commits until it is opened again");
        self.queue.poison(reason);
    }
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
