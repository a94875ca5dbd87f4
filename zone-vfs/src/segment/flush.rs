//! When what was put is durable.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

#[cfg(test)]
use super::Planted;
use super::append::Full;
use super::index::MANY_RECENT;
use super::{Segments, State, path};
use crate::chunks::ChunkError;
use crate::device::{is_no_space, is_shortage};
use crate::log::Barrier;

impl Segments {
    /// Makes everything durable that was put so far. Cheap where there is nothing new.
    pub fn flush(&self) -> Result<(), ChunkError> {
        if !self.lock().has_unsynced()? {
            return Ok(());
        }
        let _one_at_a_time = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if !state.has_unsynced()? {
            return Ok(());
        }
        state.drain()?;
        let full = state.unsynced.clone();
        let current = state.writer.as_ref().filter(|it| it.synced < it.written);
        let current = current.map(|it| (it.number, it.file.clone(), it.written));
        drop(state);
        let mut sealed = Vec::with_capacity(full.len());
        for it in &full {
            #[cfg(test)]
            let footer = match self.options.planted {
                Planted::FooterBeforeData => it.seal(&self.key).and_then(|len| it.file.flush().map(|()| len)),
                _ => it.file.flush().and_then(|()| it.seal(&self.key)),
            };
            #[cfg(not(test))]
            let footer = it.file.flush().and_then(|()| it.seal(&self.key));
            match footer {
                Ok(footer) => sealed.push((it.number, it.len + footer)),
                Err(error) => return Err(self.lock().poison(&path(it.number), &error)),
            }
        }
        if let Some((number, file, _)) = &current
            && let Err(error) = file.flush()
        {
            return Err(self.lock().poison(&path(*number), &error));
        }
        let mut state = self.lock();
        if !sealed.is_empty() && state.index.waiting() > MANY_RECENT {
            self.untidy.store(true, Ordering::Relaxed);
        }
        state.full.extend(sealed);
        // The written segment may have become full meanwhile, with more than was flushed.
        state.unsynced.retain(|it| full.iter().all(|flushed| flushed.number != it.number));
        if let (Some(writer), Some((number, _, written))) = (&mut state.writer, current)
            && writer.number == number
        {
            writer.synced = written;
        }
        Ok(())
    }

    /// Writes what waits and takes nothing more; reading goes on. From here on another opening may
    /// write to the segments. Dropping closes too.
    pub fn close(&self) {
        if self.lock().closed {
            return;
        }
        // Only saves the next opening from reading the whole segment.
        let flushed = self.flush();
        if flushed.is_ok() {
            self.tidy_index();
        }
        let mut state = self.lock();
        state.closed = true;
        let writer = if flushed.is_ok() { state.writer.take() } else { None };
        drop(state);
        let sealed = writer.map_or(Ok(0), |writer| Full::new(writer).seal(&self.key));
        if let Some(error) = flushed.err().map(|it| it.to_string()).or(sealed.err().map(|it| it.to_string()))
        {
            tracing::warn!(%error, "the last segment was left without a footer");
        }
    }
}

impl Barrier for Segments {
    fn flush(&self) -> Result<(), ChunkError> {
        Segments::flush(self)
    }

    fn poisoned(&self) -> Option<Arc<str>> {
        self.lock().poisoned.clone()
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn has_unsynced(&self) -> Result<bool, ChunkError> {
        self.alive()?;
        Ok(!self.unsynced.is_empty() || self.writer.as_ref().is_some_and(|it| it.synced < it.len()))
    }

    /// A file could not be opened, made or removed: refused where nothing was tried on the disk, or the end of this
    /// store.
    pub(super) fn name_failed(&mut self, path: &str, error: io::Error) -> ChunkError {
        if is_shortage(&error) { ChunkError::of_device(error) } else { self.write_failed(path, &error) }
    }

    /// A failed write: refused for want of space, or the end of this store.
    pub(super) fn write_failed(&mut self, path: &str, error: &io::Error) -> ChunkError {
        if is_no_space(error) { ChunkError::NoSpace } else { self.poison(path, error) }
    }
}
