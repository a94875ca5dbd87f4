//! What happened to a simulated disk, to be gone through again: every point of it is a place where
//! the machine may stop, and one run of a workload yields as many crashes as one likes.

use std::io;
use std::sync::{Arc, Mutex};

use super::Simulated;
use super::disk::{Disk, FileId};
use super::rng::Rng;

/// One change.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
    Write(FileId, u64, Arc<[u8]>),
    Flush(FileId),
    /// A flush failed.
    Lose(FileId),
}

/// A disk as it was, and what has changed since.
#[derive(Debug)]
pub struct Trace {
    pub(super) disk: Disk,
    pub(super) events: std::vec::IntoIter<Event>,
    pub(super) done: usize,
}

impl Trace {
    /// How many of the changes have happened so far.
    pub fn at(&self) -> usize {
        self.done
    }

    /// Lets the next change happen; false where there is none.
    pub fn step(&mut self) -> io::Result<bool> {
        let Some(event) = self.events.next() else { return Ok(false) };
        self.done += 1;
        match event {
            Event::Create(path, len) => {
                self.disk.make(&path, len);
            }
            Event::Rename(from, to) => self.disk.rename(&from, &to)?,
            Event::Remove(path) => self.disk.remove(&path)?,
            Event::Write(id, offset, bytes) => self.disk.put(id, offset, &bytes)?,
            Event::Flush(id) => self.disk.settle(id)?,
            Event::Lose(id) => self.disk.lose(id)?,
        }
        Ok(true)
    }

    /// Whether a crash here can go in one way only.
    pub fn is_settled(&self) -> bool {
        self.disk.is_settled() && !matches!(self.events.as_slice().first(), Some(Event::Create(..)))
    }

    /// What a machine that lost power here would find. What comes next may have begun.
    pub fn crash(&self, seed: u64) -> Simulated {
        let mut rng = Rng::new(seed);
        let found = match self.events.as_slice().first() {
            Some(Event::Create(path, len)) if rng.one_in(4) => {
                let mut begun = self.disk.clone();
                begun.make(path, rng.below(len + 1));
                begun.crash(rng.bits())
            }
            _ => self.disk.crash(rng.bits()),
        };
        Simulated::on(found)
    }
}

impl Simulated {
    pub(super) fn on(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), ..Self::new(0) }
    }

    /// From here on, remembers every change, for [`take_trace`](Self::take_trace).
    pub fn start_trace(&self) -> Trace {
        let mut disk = self.lock();
        disk.trace = Some(Vec::new());
        Trace { disk: disk.beginning(), events: Vec::new().into_iter(), done: 0 }
    }

    /// How many changes were remembered.
    pub fn traced(&self) -> usize {
        self.lock().trace.as_ref().map_or(0, Vec::len)
    }

    /// Gives `trace`, which [`start_trace`](Self::start_trace) began, what has happened since.
    pub fn end_trace(&self, trace: &mut Trace) {
        trace.events = self.lock().trace.take().unwrap_or_default().into_iter();
    }
}
