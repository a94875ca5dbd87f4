//! Giving back what nothing needs: mark, then sweep.
//!
//! The order is what makes it safe, at every crash and beside whoever puts and gets:
//!
//! 1. [`Segments::watch`] begins a set of marks. The segments before it are candidates; the written one is
//!    closed, so that it is one too. From here on an address that is put and found marks its frame.
//! 2. Whoever reaps makes a checkpoint of the same moment durable, so that no recovery reads older records, and
//!    marks what it finds reachable.
//! 3. [`Segments::sweep`] condemns segments. The decision and the marks of those who put are under one lock; a
//!    frame of a condemned segment does not count as found any more, and is written again.
//! 4. Marked frames of condemned segments are copied, and the copies are flushed.
//! 5. Only then the index forgets the segment, and then its file is removed. A crash before leaves frames
//!    twice, which is no harm; whoever had the file open reads on.
//!
//! The newest segment is never removed, so that no number is used twice.

use super::footer::Entry;
use super::frame::{self, FRAME_HEADER};
use super::marks::Marks;
use super::{Location, Segments, open, path};
use crate::chunks::ChunkError;
use crate::device::{Caching, DeviceFile, is_shortage};
use crate::id::Hash;

/// Segments with less than this share of a full segment are small, and are joined when there are
/// [`MANY_SMALL`].
const SMALL: u64 = 4;
const MANY_SMALL: usize = 8;

/// Marking is going on.
pub(super) struct Watch {
    /// What is needed.
    pub marks: Marks,
    /// What of it whoever marks has come by. Not what was put meanwhile: that says nothing of what hangs on it
    /// for others.
    pub walked: Marks,
    /// Segments with smaller numbers are candidates.
    pub before: u32,
}

/// What a sweep did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Frames that nothing needs, in all segments that were looked at.
    pub dead_frames: u64,
    /// Their bytes.
    pub dead_bytes: u64,
    /// Bytes of frames that are needed.
    pub live_bytes: u64,
    /// Segments that were removed because nothing in them was needed.
    pub removed_segments: u64,
    /// Segments that were removed after what was needed of them was copied.
    pub compacted_segments: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes that the removed files had.
    pub removed_bytes: u64,
    /// Frames that went with them.
    pub removed_frames: u64,
    /// Segments that were left as they are because a needed frame in them does not read.
    pub damaged_segments: u64,
    /// Segments that were left as they are because what hangs on something that does not read may lie in them.
    pub held_segments: u64,
    /// The disk was too full to copy all that should be.
    pub out_of_space: bool,
}

/// A segment that may go.
pub(super) struct Candidate {
    pub number: u32,
    pub len: u64,
    live_bytes: u64,
    pub live_frames: u64,
    pub frames: u64,
}

impl Segments {
    /// Begins to mark. With `closing`, the written segment is closed, so that it can be swept as well.
    pub(crate) fn watch(&self, closing: bool) -> Result<(), ChunkError> {
        let mut state = self.lock();
        state.alive()?;
        if closing {
            state.close_writer()?;
        }
        let before = state.next_number;
        state.watch = Some(Watch { marks: Marks::default(), walked: Marks::default(), before });
        Ok(())
    }

    /// Ends marking without a sweep.
    pub(crate) fn unwatch(&self) {
        self.lock().watch = None;
    }

    /// Marks what lies under `hash`, and gives its bytes; none where this was called for it before.
    pub(crate) fn mark(&self, hash: &Hash) -> Result<Option<u64>, ChunkError> {
        let place = self.locate(hash)?;
        let mut state = self.lock();
        let is_new = state.watch.as_mut().is_some_and(|watch| {
            watch.marks.add(place);
            watch.walked.add(place)
        });
        Ok(is_new.then(|| place.bytes()))
    }

    /// Whether it is marked.
    pub(crate) fn is_marked(&self, hash: &Hash) -> bool {
        let state = self.lock();
        let place = state.index.get(hash);
        place.is_some_and(|place| state.watch.as_ref().is_some_and(|watch| watch.marks.has(place)))
    }

    /// Removes the segments of which nothing is marked, and copies what is marked of those of which little
    /// is. Those with smaller numbers than `from`, which [`hold`](Self::hold) gives, stay. `dry_run` only counts.
    /// Ends the marking.
    pub(crate) fn sweep(&self, from: u32, dry_run: bool) -> Result<Swept, ChunkError> {
        let mut swept = Swept::default();
        let found = self.candidates(from, &mut swept, dry_run);
        let result = match found {
            Ok(candidates) if !dry_run => self.remove_dead(candidates, &mut swept),
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        self.end_marking();
        match result {
            Err(ChunkError::NoSpace) => swept.out_of_space = true,
            result => result?,
        }
        Ok(swept)
    }

    pub(super) fn end_marking(&self) {
        let mut state = self.lock();
        state.watch = None;
        // what was not removed is as good as any other
        state.condemned.clear();
    }

    /// The segments from `from` on that may go, and what they hold; with `written`, also of the one that is
    /// written.
    pub(super) fn candidates(
        &self,
        from: u32,
        swept: &mut Swept,
        written: bool,
    ) -> Result<Vec<Candidate>, ChunkError> {
        let mut numbers: Vec<(u32, u64)> = {
            let state = self.lock();
            let Some(before) = state.watch.as_ref().map(|it| it.before) else { return Ok(Vec::new()) };
            let written = state.writer.as_ref().filter(|_| written).map(|it| (it.number, it.written));
            let full = state.full.iter().filter(|(number, _)| **number < before).map(|(n, len)| (*n, *len));
            full.chain(written).collect()
        };
        let all = numbers.len();
        numbers.retain(|(number, _)| *number >= from);
        swept.held_segments = (all - numbers.len()) as u64;
        let mut candidates = Vec::new();
        for (number, len) in numbers {
            let entries = self.entries(number)?;
            let state = self.lock();
            let mut found = Candidate { number, len, live_bytes: 0, live_frames: 0, frames: 0 };
            for entry in &entries {
                found.frames += 1;
                if state.needs(number, entry) {
                    found.live_frames += 1;
                    found.live_bytes += entry.1.bytes();
                } else {
                    swept.dead_bytes += entry.1.bytes();
                }
            }
            let marked = state.watch.as_ref().map_or(0, |it| it.marks.count(number));
            swept.dead_frames += found.frames - found.live_frames;
            swept.live_bytes += found.live_bytes;
            if marked == found.live_frames {
                candidates.push(found);
            } else {
                // something that is needed cannot be seen in the file
                swept.damaged_segments += 1;
            }
        }
        Ok(candidates)
    }

    /// The frames of a full segment.
    fn entries(&self, number: u32) -> Result<Vec<Entry>, ChunkError> {
        Ok(open::read_entries(&*self.device, number, &self.key, &self.options)?)
    }

    fn remove_dead(&self, candidates: Vec<Candidate>, swept: &mut Swept) -> Result<(), ChunkError> {
        let small = self.options.segment_len / SMALL;
        let joins = candidates.iter().filter(|it| it.len < small && it.live_frames > 0).count() >= MANY_SMALL;
        // the dead ones first: they make room for the copies
        let (dead, other): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|it| it.live_frames == 0);
        for it in &dead {
            self.remove_if_dead(it, swept)?;
        }
        for it in other {
            let is_sparse = it.live_bytes < it.len / 2;
            let is_joined = joins && it.len < small;
            if !(is_sparse || is_joined) {
                continue;
            }
            let entries = self.entries(it.number)?;
            let Some(live) = self.condemn(it.number, &entries, false) else { continue };
            let Some(copied) = self.copy_frames(it.number, &live)? else {
                self.lock().condemned.remove(&it.number);
                swept.damaged_segments += 1;
                continue;
            };
            // the copies are durable before what they are copies of goes
            self.flush()?;
            if self.is_newest(it.number) {
                self.lock().condemned.remove(&it.number);
                continue;
            }
            self.remove_segment(it.number, &entries)?;
            swept.compacted_segments += 1;
            swept.copied_bytes += copied;
            swept.removed_bytes += it.len;
            swept.removed_frames += it.frames - live.len() as u64;
        }
        // the newest may go now that copies come after it
        dead.last().map_or(Ok(()), |it| self.remove_if_dead(it, swept))
    }

    fn remove_if_dead(&self, it: &Candidate, swept: &mut Swept) -> Result<(), ChunkError> {
        if self.is_newest(it.number) || !self.lock().full.contains_key(&it.number) {
            return Ok(());
        }
        let entries = self.entries(it.number)?;
        if self.condemn(it.number, &entries, true).is_some() {
            self.remove_segment(it.number, &entries)?;
            swept.removed_segments += 1;
            swept.removed_bytes += it.len;
            swept.removed_frames += it.frames;
        }
        Ok(())
    }

    /// Whether no segment has a greater number.
    pub(super) fn is_newest(&self, number: u32) -> bool {
        let state = self.lock();
        state.writer.is_none() && state.full.keys().next_back() == Some(&number)
    }

    /// Decides that a segment goes, and gives what is needed of it; `None` where it has to be `dead` and is
    /// needed after all.
    pub(super) fn condemn(&self, number: u32, entries: &[Entry], dead: bool) -> Option<Vec<Entry>> {
        let mut state = self.lock();
        let live: Vec<Entry> = entries.iter().filter(|it| state.needs(number, it)).copied().collect();
        if dead && !live.is_empty() {
            return None;
        }
        state.condemned.insert(number);
        Some(live)
    }

    /// Copies frames as they are, and gives their bytes; `None` where one of them does not read.
    pub(super) fn copy_frames(&self, number: u32, live: &[Entry]) -> Result<Option<u64>, ChunkError> {
        let file = self.device.open(&path(number), Caching::Cached).map_err(ChunkError::of_device)?;
        let mut copied = 0;
        for (hash, location) in live {
            let bytes = match read_sound(&*file, hash, *location, &self.key) {
                Ok(bytes) => bytes,
                Err(Unsound::Unread(error)) if is_shortage(&error) => {
                    return Err(ChunkError::of_device(error));
                }
                Err(what) => {
                    tracing::error!(file = path(number), %hash, "a frame {what}; the segment is kept");
                    return Ok(None);
                }
            };
            let mut state = self.lock();
            state.alive()?;
            // whoever put it meanwhile has written it already
            if state.index.get(hash).is_some_and(|it| it.segment == number) {
                state.append(&*self.device, &self.options, *hash, &bytes)?;
                copied += bytes.len() as u64;
            }
        }
        Ok(Some(copied))
    }

    fn remove_segment(&self, number: u32, entries: &[Entry]) -> Result<(), ChunkError> {
        self.forget_segment(number, entries)?;
        let path = path(number);
        self.device.remove(&path).map_err(|error| self.lock().name_failed(&path, error))
    }

    /// Takes a segment out of the index.
    pub(super) fn forget_segment(&self, number: u32, entries: &[Entry]) -> Result<(), ChunkError> {
        let mut state = self.lock();
        state.alive()?;
        state.index.forget(number, entries);
        state.readers.remove(&number);
        state.full.remove(&number);
        state.unsealed.remove(&number);
        Ok(())
    }
}

/// Why the bytes of a frame are not to be had, in words that go on after its address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsound {
    /// What was read is not what its address says.
    #[error("does not read")]
    Damaged,
    /// Nothing was read.
    #[error("cannot be read: the device failed: {0}")]
    Unread(std::io::Error),
}

/// The bytes of a frame, if they are what its address says.
pub(super) fn read_sound(
    file: &dyn DeviceFile,
    hash: &Hash,
    location: Location,
    key: &[u8; 32],
) -> Result<Vec<u8>, Unsound> {
    let mut bytes = vec![0; FRAME_HEADER + location.stored as usize];
    file.read_at(location.offset, &mut bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Unsound::Damaged,
        _ => Unsound::Unread(error),
    })?;
    let header = frame::peek(&bytes).map_err(|_| Unsound::Damaged)?;
    let is_it = header.hash == *hash && frame::is_sound(&bytes);
    if is_it && frame::plain(&header, &bytes, key).is_ok() { Ok(bytes) } else { Err(Unsound::Damaged) }
}

impl super::State {
    /// Whether a frame in this segment is marked, and the one that counts.
    fn needs(&self, segment: u32, (hash, location): &Entry) -> bool {
        let place = self.index.get(hash).filter(|it| it.segment == segment && it.offset == location.offset);
        let marks = self.watch.as_ref().map(|it| &it.marks);
        place.is_some_and(|place| marks.is_some_and(|it| it.has(place)))
    }
}
