//! What goes into the segments, unless it is there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Segments, State, frame};
use crate::chunks::{ChunkError, ChunkStore, FrameKind, MAX_FRAME};
use crate::id::Hash;

impl Segments {
    /// As `put`; what was not there is written twice, so that one damaged place on the disk takes not both.
    pub(crate) fn put_twice(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.put_copies(kind, plain, 2)
    }

    fn put_copies(&self, kind: FrameKind, plain: &[u8], copies: u32) -> Result<Hash, ChunkError> {
        if plain.len() > MAX_FRAME {
            let message = format!("a frame of {} bytes exceeds the limit of {MAX_FRAME}", plain.len());
            return Err(ChunkError::Io(Arc::new(io::Error::new(io::ErrorKind::InvalidInput, message))));
        }
        let hash = Hash::of(&self.key, plain);
        if self.lock().holds(&hash)? {
            return Ok(hash);
        }
        let frame = frame::encode(kind, plain, &hash);
        let mut state = self.lock();
        if !state.holds(&hash)? {
            for _ in 0..copies {
                state.append(&*self.device, &self.options, hash, &frame)?;
            }
        }
        Ok(hash)
    }
}

impl ChunkStore for Segments {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        let (plain, is_new) = self.read_from(hash)?;
        if is_new {
            self.lock().cache.put(*hash, plain.clone());
        }
        Ok(plain)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.put_copies(kind, plain, 1)
    }

    fn loaded(&self, bytes: usize) {
        if self.loaded.fetch_add(bytes, Ordering::Relaxed) + bytes > self.options.nodes {
            self.loaded.store(0, Ordering::Relaxed);
            self.pressure.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pressure(&self) -> u64 {
        self.pressure.load(Ordering::Relaxed)
    }
}

impl State {
    /// Whether a frame need not be written, since it is there and stays.
    pub(super) fn holds(&mut self, hash: &Hash) -> Result<bool, ChunkError> {
        self.alive()?;
        let Some(place) = self.index.get(hash).filter(|it| !self.condemned.contains(&it.segment)) else {
            return Ok(false);
        };
        if let Some(watch) = &mut self.watch {
            watch.marks.add(place);
        }
        Ok(true)
    }
}
