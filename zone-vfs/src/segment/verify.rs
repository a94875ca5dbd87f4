//! Reading everything again, moving frames as they are, and setting damaged files aside.

use std::io;

use super::append::Writer;
use super::frame::{self, FRAME_HEADER};
use super::sweep::{Unsound, read_sound};
use super::{Location, Segments, State, open, path};
use crate::chunks::ChunkError;
use crate::device::{Caching, Device, is_shortage};
use crate::id::Hash;
use crate::quarantine;

/// What was found in a segment.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub file: String,
    /// Frames that read.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that do not, and why.
    pub unreadable: Vec<(Hash, Unsound)>,
    /// What is wrong beside frames.
    pub reason: Option<String>,
}

impl Segments {
    /// The device that they are on.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The segments, with the bytes of each file.
    pub(crate) fn files(&self) -> Vec<(u32, u64)> {
        let state = self.lock();
        let written = state.writer.as_ref().map(|it| (it.number, it.len()));
        let full = state.full.iter().map(|(number, len)| (*number, *len));
        full.chain(state.unsynced.iter().map(|it| (it.number, it.len))).chain(written).collect()
    }

    /// The frame of `hash` as it lies on the disk, verified.
    pub(crate) fn frame(&self, hash: &Hash) -> Result<Vec<u8>, ChunkError> {
        let bytes = Self::frame_bytes(hash, self.source_on_disk(hash)?)?;
        self.plain(hash, &bytes)?;
        Ok(bytes)
    }

    /// A frame as `fill` gives its bytes, or why that is none.
    pub(crate) fn read_frame(
        &self,
        fill: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; FRAME_HEADER];
        fill(&mut bytes).map_err(|e| e.to_string())?;
        let header = frame::peek(&bytes)?;
        bytes.resize(header.frame_len(), 0);
        fill(&mut bytes[FRAME_HEADER..]).map_err(|e| e.to_string())?;
        if !frame::is_sound(&bytes) {
            return Err("its checksum is wrong".into());
        }
        frame::plain(&header, &bytes, &self.key)?;
        Ok(bytes)
    }

    /// Stores a frame as it is, which [`read_frame`](Self::read_frame) has given.
    pub(crate) fn put_frame(&self, bytes: &[u8]) -> Result<Hash, ChunkError> {
        let damaged = |reason: &str| ChunkError::Damaged { hash: Hash([0; 32]), reason: reason.to_owned() };
        let hash = frame::peek(bytes).map_err(damaged)?.hash;
        let mut state = self.lock();
        if !state.holds(&hash)? {
            state.append(&*self.device, &self.options, hash, bytes)?;
        }
        Ok(hash)
    }

    /// Reads every frame of a segment. Of the segment that is written, only what the file is known to have: behind
    /// that a write goes on, or was refused half-way. Where something looks wrong in it, it is read once more while
    /// nobody writes, and that counts.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Shortage`]: nothing is known.
    pub(crate) fn check(&self, number: u32) -> Result<Checked, ChunkError> {
        let known = self.lock().known_of(number);
        let checked = self.check_file(number, known)?;
        if known.is_full || (checked.unreadable.is_empty() && checked.reason.is_none()) {
            return Ok(checked);
        }
        let state = self.lock();
        self.check_file(number, state.known_of(number))
    }

    fn check_file(&self, number: u32, known: Known) -> Result<Checked, ChunkError> {
        let mut checked = Checked { file: path(number), ..Checked::default() };
        if known.written == Some(0) {
            return Ok(checked);
        }
        let limit = known.written.unwrap_or(u64::MAX);
        let found = match open::look_at_start(&*self.device, number, limit, &self.key, &self.options) {
            Ok(found) => found,
            Err(e) if e.is_shortage() => return Err(e.into()),
            Err(e) => {
                checked.reason = Some(e.reason());
                return Ok(checked);
            }
        };
        for (hash, location) in &found.entries {
            match read_sound(&*found.file, hash, *location, &self.key) {
                Ok(_) => {
                    checked.frames += 1;
                    checked.bytes += location.bytes();
                }
                Err(Unsound::Unread(error)) if is_shortage(&error) => {
                    return Err(ChunkError::of_device(error));
                }
                Err(what) => checked.unreadable.push((*hash, what)),
            }
        }
        let is_less = known.frames.is_some_and(|frames| frames > found.entries.len() as u64);
        checked.reason = if found.is_unread {
            Some("the device failed to read some of it".into())
        } else if known.is_unsealed && !is_less {
            // what a crash has torn off was never acknowledged
            None
        } else if known.is_full && !found.has_footer && found.is_torn {
            Some("its footer does not read".into())
        } else if found.is_torn || is_less {
            Some("some of it does not read".into())
        } else {
            // without a footer, for which there was no space, it is read whole, and is sound
            None
        };
        Ok(checked)
    }

    /// Copies what reads in a segment to another, and moves its file aside; gives what it is called then. None
    /// where that is the newest and nothing comes after it.
    ///
    /// The copies are durable before the file is moved, and the index forgets it in between: a crash leaves
    /// frames twice, or the file where it was.
    pub(crate) fn quarantine(&self, number: u32) -> Result<Option<String>, ChunkError> {
        {
            let mut state = self.lock();
            state.alive()?;
            if state.writer.as_ref().is_some_and(|it| it.number == number) {
                state.close_writer()?;
            }
        }
        self.flush()?;
        let io = ChunkError::of_device;
        let file = self.device.open(&path(number), Caching::Cached).map_err(io)?;
        let found = open::look_at(&*self.device, number, &self.key, &self.options)?;
        // copies lie in segments that are not held
        self.forget_held().map_err(io)?;
        self.lock().condemned.insert(number);
        let copied = found.entries.iter().try_for_each(|(hash, location)| {
            let bytes = match read_sound(&*file, hash, *location, &self.key) {
                Ok(bytes) => bytes,
                Err(Unsound::Unread(error)) if is_shortage(&error) => {
                    return Err(ChunkError::of_device(error));
                }
                Err(_) => return Ok(()),
            };
            let mut state = self.lock();
            if state.index.get(hash).is_some_and(|it| it.segment == number) {
                state.append(&*self.device, &self.options, *hash, &bytes)?;
            }
            Ok(())
        });
        let copied = copied.and_then(|()| self.flush());
        self.lock().condemned.remove(&number);
        copied?;
        if self.lock().writer.is_none() && self.lock().full.keys().next_back() == Some(&number) {
            return Ok(None);
        }
        {
            let mut state = self.lock();
            state.index.forget_all(number);
            state.readers.remove(&number);
            state.full.remove(&number);
            state.unsealed.remove(&number);
        }
        Ok(Some(quarantine::set_aside(&*self.device, &path(number)).map_err(io)?))
    }
}

/// What is known of a segment that is checked.
#[derive(Clone, Copy)]
struct Known {
    is_full: bool,
    /// It was torn by a crash, and there was no room to write a footer that says what reads.
    is_unsealed: bool,
    /// How many bytes the file has, where it is the one that is written.
    written: Option<u64>,
    /// How many frames it has at least.
    frames: Option<u64>,
}

impl State {
    fn known_of(&self, number: u32) -> Known {
        let writer = self.writer.as_ref().filter(|it| it.number == number);
        let unsealed = self.unsealed.get(&number).copied();
        Known {
            is_full: self.full.contains_key(&number),
            is_unsealed: unsealed.is_some(),
            written: writer.map(|it| it.written),
            frames: writer.map(Writer::frames_in_file).or(unsealed),
        }
    }
}

impl Location {
    /// Which segment it lies in.
    pub(crate) fn segment_number(self) -> u32 {
        self.segment
    }
}
