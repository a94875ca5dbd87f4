//! A frame, from where it lies.

use std::io;
use std::sync::Arc;

use super::frame::{self, FRAME_HEADER};
use super::sweep::{self, Unsound};
use super::{Location, MAX_OPEN, Segments, State, open, path};
use crate::chunks::{ChunkError, FrameKind};
use crate::device::{Caching, DeviceFile, is_shortage};
use crate::id::Hash;

/// Where the bytes of a frame are to be had.
pub(super) enum Source {
    Plain(Arc<[u8]>),
    Bytes(Vec<u8>),
    File(Arc<dyn DeviceFile>, Location),
}

impl Segments {
    /// Where the frame of `hash` lies.
    pub(crate) fn locate(&self, hash: &Hash) -> Result<Location, ChunkError> {
        let mut known = self.lock().index.get(hash);
        if known.is_none() && self.index_was_wrong(hash)? {
            known = self.lock().index.get(hash);
        }
        known.ok_or_else(|| self.or_unread(ChunkError::Missing(*hash)))
    }

    /// Whether something is stored under `hash`.
    pub fn contains(&self, hash: &Hash) -> bool {
        self.lock().index.get(hash).is_some()
    }

    /// What is stored under `hash`, without keeping it in the cache: for walks through everything.
    pub(crate) fn read(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        Ok(self.read_from(hash)?.0)
    }

    /// What is stored under `hash`, and whether the disk was asked. Where the index was wrong, once more.
    pub(super) fn read_from(&self, hash: &Hash) -> Result<(Arc<[u8]>, bool), ChunkError> {
        let read = match self.try_read(hash) {
            Err(error @ (ChunkError::Missing(_) | ChunkError::Damaged { .. })) => {
                if self.index_was_wrong(hash)? { self.try_read(hash) } else { Err(error) }
            }
            read => read,
        };
        read.map_err(|error| self.or_unread(error))
    }

    fn try_read(&self, hash: &Hash) -> Result<(Arc<[u8]>, bool), ChunkError> {
        match self.source(hash)? {
            Source::Plain(plain) => Ok((plain, false)),
            source => Ok((self.read_again(hash, source)?, true)),
        }
    }

    /// The plain bytes, from where they are to be had; again where they were moved meanwhile, since a purge
    /// overwrites what it has copied.
    fn read_again(&self, hash: &Hash, mut source: Source) -> Result<Arc<[u8]>, ChunkError> {
        loop {
            let place = match &source {
                Source::Plain(plain) => return Ok(plain.clone()),
                Source::Bytes(_) => None,
                Source::File(_, location) => Some(*location),
            };
            let read = Self::frame_bytes(hash, source).and_then(|frame| self.plain(hash, &frame));
            if read.is_ok() || place.is_none() {
                return read;
            }
            let now = self.lock().index.get(hash);
            if now.is_none() || now == place {
                return read;
            }
            source = self.source(hash)?;
        }
    }

    /// The frame of `hash` as it lies on the disk; not verified.
    pub(super) fn frame_bytes(hash: &Hash, source: Source) -> Result<Vec<u8>, ChunkError> {
        match source {
            Source::Plain(plain) => Ok(frame::encode(FrameKind::Chunk, &plain, hash)),
            Source::Bytes(bytes) => Ok(bytes),
            Source::File(file, location) => {
                let mut bytes = vec![0; FRAME_HEADER + location.stored as usize];
                file.read_at(location.offset, &mut bytes).map_err(|error| {
                    if error.kind() == io::ErrorKind::UnexpectedEof {
                        let reason = format!("{} is cut off", path(location.segment));
                        return ChunkError::Damaged { hash: *hash, reason };
                    }
                    ChunkError::of_device(error)
                })?;
                Ok(bytes)
            }
        }
    }

    pub(super) fn plain(&self, hash: &Hash, frame: &[u8]) -> Result<Arc<[u8]>, ChunkError> {
        let damaged = |reason: &str| ChunkError::Damaged { hash: *hash, reason: reason.to_owned() };
        let header = frame::peek(frame).map_err(damaged)?;
        if header.hash != *hash {
            return Err(damaged("another frame lies in its place"));
        }
        Ok(frame::plain(&header, frame, &self.key).map_err(damaged)?.into())
    }

    fn source(&self, hash: &Hash) -> Result<Source, ChunkError> {
        let mut state = self.lock();
        if let Some(plain) = state.cache.get(hash) {
            return Ok(Source::Plain(plain));
        }
        self.find(&mut state, hash)
    }

    /// As [`source`](Self::source), whether it was read lately or not.
    pub(super) fn source_on_disk(&self, hash: &Hash) -> Result<Source, ChunkError> {
        self.find(&mut self.lock(), hash)
    }

    fn find(&self, state: &mut State, hash: &Hash) -> Result<Source, ChunkError> {
        let location = state.index.get(hash).ok_or(ChunkError::Missing(*hash))?;
        if let Some(writer) = &state.writer
            && writer.number == location.segment
        {
            return Ok(match writer.unwritten(location) {
                Some(bytes) => Source::Bytes(bytes.to_vec()),
                None => Source::File(writer.file.clone(), location),
            });
        }
        if let Some(file) = state.readers.get(&location.segment) {
            return Ok(Source::File(file.clone(), location));
        }
        let file = self.device.open(&path(location.segment), Caching::Cached).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                let reason = format!("{} is gone", path(location.segment));
                return ChunkError::Damaged { hash: *hash, reason };
            }
            ChunkError::of_device(error)
        })?;
        if state.readers.len() >= MAX_OPEN {
            state.readers.clear();
        }
        state.readers.insert(location.segment, file.clone());
        Ok(Source::File(file, location))
    }

    /// Looks for another copy of a frame that does not read; whether there is one, which counts from here on.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Shortage`]: it is not known.
    pub(crate) fn rescue(&self, hash: &Hash) -> Result<bool, ChunkError> {
        let (known, numbers) = {
            let state = self.lock();
            let written = state.writer.as_ref().map(|it| it.number);
            let numbers: Vec<u32> = state.full.keys().copied().chain(written).collect();
            (state.index.get(hash), numbers)
        };
        for number in numbers {
            let entries = match open::read_entries(&*self.device, number, &self.key, &self.options) {
                Ok(entries) => entries,
                Err(error) if error.is_shortage() => return Err(error.into()),
                Err(_) => continue,
            };
            let copies = entries.into_iter().filter(|it| it.0 == *hash && Some(it.1) != known);
            for (_, location) in copies {
                let file = self.device.open(&path(number), Caching::Cached).map_err(Unsound::Unread);
                match file.and_then(|it| sweep::read_sound(&*it, hash, location, &self.key)) {
                    Ok(_) => {
                        tracing::warn!(%hash, file = path(number), "a damaged frame was found again");
                        self.lock().index.insert(*hash, location);
                        return Ok(true);
                    }
                    Err(Unsound::Unread(error)) if is_shortage(&error) => {
                        return Err(ChunkError::of_device(error));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(false)
    }
}
