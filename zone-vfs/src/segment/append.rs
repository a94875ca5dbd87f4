//! The segment that is written.

use std::io;
use std::sync::Arc;

use super::footer::{self, Entry, SEGMENT_HEADER};
use super::frame::FRAME_HEADER;
use super::{Location, SegmentOptions, State, path};
use crate::chunks::ChunkError;
use crate::device::{Caching, Device, DeviceFile, is_no_space};
use crate::id::Hash;

pub(super) struct Writer {
    pub number: u32,
    pub file: Arc<dyn DeviceFile>,
    /// Bytes that the file has.
    pub written: u64,
    /// Bytes that are durable.
    pub synced: u64,
    /// What comes behind `written`.
    pub pending: Vec<u8>,
    /// What no footer lists yet.
    pub entries: Vec<Entry>,
    /// Where the last footer lies; 0 for none.
    pub last_footer: u64,
    /// How many frames it has.
    pub frames: u32,
}

impl Writer {
    pub fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// How many of its frames the file has.
    pub fn frames_in_file(&self) -> u64 {
        let waiting = self.entries.iter().rev().take_while(|(_, it)| it.offset >= self.written).count();
        u64::from(self.frames) - waiting as u64
    }

    /// The frame at `location`, where it is not in the file yet.
    pub fn unwritten(&self, location: Location) -> Option<&[u8]> {
        let start = location.offset.checked_sub(self.written)? as usize;
        self.pending.get(start..start + FRAME_HEADER + location.stored as usize)
    }
}

impl State {
    /// Appends a frame and remembers where it lies. Where it fails for want of space, nothing has
    /// changed, and frames that wait to be written go on waiting.
    pub fn append(
        &mut self,
        device: &dyn Device,
        options: &SegmentOptions,
        hash: Hash,
        frame: &[u8],
    ) -> Result<(), ChunkError> {
        let is_full = |it: &Writer| {
            it.len() > SEGMENT_HEADER as u64 && it.len() + frame.len() as u64 > options.segment_len
        };
        if self.writer.as_ref().is_none_or(is_full) {
            self.roll(device)?;
        }
        if self.writer.as_ref().is_some_and(|it| it.pending.len() + frame.len() > options.write_buffer) {
            self.drain()?;
        }
        let Some(writer) = &mut self.writer else { unreachable!("a segment was begun above") };
        let stored = (frame.len() - FRAME_HEADER) as u32;
        let location =
            Location { segment: writer.number, offset: writer.len(), stored, ordinal: writer.frames };
        writer.frames += 1;
        writer.pending.extend_from_slice(frame);
        writer.entries.push((hash, location));
        self.index.insert(hash, location);
        Ok(())
    }

    /// Closes the written segment, where there is one, and begins the next.
    fn roll(&mut self, device: &dyn Device) -> Result<(), ChunkError> {
        self.drain()?;
        let number = self.next_number;
        let path = path(number);
        let file = match device.create(&path, 0, Caching::Cached) {
            Ok(file) => file,
            Err(error) => return Err(self.name_failed(&path, error)),
        };
        self.next_number += 1;
        let begun = Writer {
            number,
            file,
            written: 0,
            synced: 0,
            pending: footer::segment_header(number).to_vec(),
            entries: Vec::new(),
            last_footer: 0,
            frames: 0,
        };
        if let Some(full) = self.writer.replace(begun) {
            self.unsynced.push(Arc::new(Full::new(full)));
        }
        Ok(())
    }

    /// Begins a segment where none is written, and makes its number taken once it is flushed.
    pub fn begin_segment(&mut self, device: &dyn Device) -> Result<(), ChunkError> {
        self.alive()?;
        if self.writer.is_none() {
            self.roll(device)?;
        }
        Ok(())
    }

    /// Closes the written segment if anything is in it. The next frame begins another.
    pub fn close_writer(&mut self) -> Result<(), ChunkError> {
        self.drain()?;
        if let Some(full) = self.writer.take_if(|it| it.frames > 0) {
            self.unsynced.push(Arc::new(Full::new(full)));
        }
        Ok(())
    }

    /// Writes what waits.
    pub fn drain(&mut self) -> Result<(), ChunkError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if writer.pending.is_empty() {
            return Ok(());
        }
        match writer.file.write_at(writer.written, &writer.pending) {
            Ok(()) => {
                writer.written += writer.pending.len() as u64;
                writer.pending.clear();
                Ok(())
            }
            Err(error) => {
                let path = path(writer.number);
                Err(self.write_failed(&path, &error))
            }
        }
    }
}

/// A segment that is full and not yet durable.
pub(super) struct Full {
    pub number: u32,
    pub file: Arc<dyn DeviceFile>,
    pub len: u64,
    entries: Vec<Entry>,
    last_footer: u64,
}

impl Full {
    pub fn new(writer: Writer) -> Self {
        let Writer { number, file, written, entries, last_footer, .. } = writer;
        Self { number, file, len: written, entries, last_footer }
    }

    /// Writes a footer where there are frames that none lists, and gives its length in bytes.
    ///
    /// What a footer lists is believed without reading it, so all of it is durable before. The
    /// footer need not be: without it the segment is read whole. So a full disk does not matter.
    pub fn seal(&self, key: &[u8; 32]) -> io::Result<u64> {
        if self.entries.is_empty() {
            return Ok(0);
        }
        let footer = footer::encode(&self.entries, self.last_footer, self.len, key);
        match self.file.write_at(self.len, &footer) {
            Ok(()) => Ok(footer.len() as u64),
            Err(error) if is_no_space(&error) => {
                tracing::warn!(file = path(self.number), "no space for the footer of a segment");
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}
