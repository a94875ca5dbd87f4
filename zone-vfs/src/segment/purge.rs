//! Erasing what nothing needs: after a forget, nothing of it may be left in a file.
//!
//! The order is that of [`sweep`](super::sweep), and each segment in which anything is not needed goes, however
//! little. Its needed frames are copied and flushed, the index forgets it, and its file is overwritten before it is
//! removed, its end first. A crash in between leaves a file without a footer, of which some does not read any more, and
//! counts as stored no more; what is needed of it has a copy in a segment with a greater number, which is the one
//! that counts at the next opening. Purging again takes the rest.

use super::sweep::Swept;
use super::{Segments, footer, open, path};
use crate::chunks::ChunkError;
use crate::device::{Caching, DeviceFile, is_no_space};

/// Bytes that are overwritten at once.
const WIPE: usize = 1 << 20;

impl Segments {
    /// Removes every segment in which anything is not marked, after what is marked was copied. Ends the marking.
    /// Those with smaller numbers than `from`, which [`hold`](Self::hold) gives, stay. Where a segment could not be
    /// copied, or the disk is too full, that is said, and the rest is done.
    pub(crate) fn purge(&self, from: u32) -> Result<Swept, ChunkError> {
        let mut swept = Swept::default();
        let result = self.purge_marked(from, &mut swept);
        self.end_marking();
        match result {
            Err(ChunkError::NoSpace) => swept.out_of_space = true,
            result => result?,
        }
        Ok(swept)
    }

    fn purge_marked(&self, from: u32, swept: &mut Swept) -> Result<(), ChunkError> {
        for it in self.candidates(from, swept, false)? {
            let found = open::look_at(&*self.device, it.number, &self.key, &self.options)?;
            if it.live_frames == it.frames && found.is_explained {
                continue;
            }
            let entries = found.entries;
            let Some(live) = self.condemn(it.number, &entries, false) else { continue };
            let Some(copied) = self.copy_frames(it.number, &live)? else {
                self.lock().condemned.remove(&it.number);
                swept.damaged_segments += 1;
                continue;
            };
            if self.is_newest(it.number) {
                // so that its number is not used again
                self.lock().begin_segment(&*self.device)?;
            }
            // the copies are durable before what they are copies of goes
            self.flush()?;
            let path = path(it.number);
            // before the index forgets it: what cannot be opened now stays, to be erased later
            let opened = self.device.open(&path, Caching::Cached);
            let file = opened.map_err(|error| self.lock().name_failed(&path, error))?;
            self.forget_segment(it.number, &entries)?;
            self.wipe(&path, &*file)?;
            self.device.remove(&path).map_err(|error| self.lock().name_failed(&path, error))?;
            swept.compacted_segments += 1;
            swept.copied_bytes += copied;
            swept.removed_bytes += it.len;
            swept.removed_frames += it.frames - live.len() as u64;
        }
        Ok(())
    }

    /// Overwrites a file that the index does not lead to any more.
    fn wipe(&self, path: &str, file: &dyn DeviceFile) -> Result<(), ChunkError> {
        let wipe = || {
            let (mut at, len) = (0, file.len()?);
            let zeros = vec![0; WIPE.min(len as usize)];
            // first what says that there are frames: what it lists is believed without reading it, so that whoever
            // opens after a crash would take what is half overwritten for stored, and not write it again
            let end = zeros.len().min(footer::trailer_len());
            file.write_at(len - end as u64, &zeros[..end])?;
            file.flush()?;
            while at < len {
                let count = zeros.len().min((len - at) as usize);
                file.write_at(at, &zeros[..count])?;
                at += count as u64;
            }
            file.flush()
        };
        match wipe() {
            // a filesystem that writes anew elsewhere: removed it is all the same
            Err(error) if is_no_space(&error) => {
                tracing::warn!(path, "no space to overwrite a file before it is removed");
                Ok(())
            }
            result => result.map_err(|error| self.lock().poison(path, &error)),
        }
    }
}
