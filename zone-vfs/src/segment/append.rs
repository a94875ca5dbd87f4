//! The segment that is written.

use std::sync::Arc;

use super::footer::{self, Entry, SEGMENT_HEADER};
use super::frame::FRAME_HEADER;
use super::{Location, SegmentOptions, State, path};
use crate::chunks::ChunkError;
use crate::device::{Caching, Device, DeviceFile};
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
}

impl Writer {
    pub fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
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
        let location = Location { segment: writer.number, offset: writer.len(), stored };
        writer.pending.extend_from_slice(frame);
        writer.entries.push((hash, location));
        self.index.insert(hash, location);
        Ok(())
    }

    /// Closes the written segment, where there is one, and begins the next.
    fn roll(&mut self, device: &dyn Device) -> Result<(), ChunkError> {
        self.drain()?;
        self.write_footer()?;
        let number = self.next_number;
        let path = path(number);
        let file = match device.create(&path, 0, Caching::Cached) {
            Ok(file) => file,
            Err(error) => return Err(self.write_failed(&path, &error)),
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
        };
        if let Some(full) = self.writer.replace(begun) {
            self.full_bytes += full.written;
            self.full_segments += 1;
            if full.synced < full.written {
                self.unsynced.push((full.number, full.file));
            }
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

    /// Writes a footer where there are frames that none lists. Nothing waits to be written.
    pub fn write_footer(&mut self) -> Result<(), ChunkError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if writer.entries.is_empty() {
            return Ok(());
        }
        debug_assert!(writer.pending.is_empty(), "a footer lies behind what it lists");
        let footer = footer::encode(&writer.entries, writer.last_footer, writer.written);
        match writer.file.write_at(writer.written, &footer) {
            Ok(()) => {
                writer.last_footer = writer.written;
                writer.written += footer.len() as u64;
                writer.entries.clear();
                Ok(())
            }
            Err(error) => {
                let path = path(writer.number);
                Err(self.write_failed(&path, &error))
            }
        }
    }
}
