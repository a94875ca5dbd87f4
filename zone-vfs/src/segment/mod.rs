//! Append-only files of content-addressed frames.
//!
//! - `frame`: one chunk or node as bytes, valid wherever it lies
//! - `footer`: what a file holds, so that opening need not read it all
//! - `open`: finding out what is there, also after a crash
//! - `append`: the file that is written
//! - `index`: where each frame lies, `keep`: what is done that it stays right
//! - `cache`: frames read lately
//! - `marks`, `sweep`: giving back what nothing needs; `purge`: erasing it
//! - `held`: what is not given back while something does not read
//! - `verify`: reading everything again

mod append;
mod cache;
mod footer;
mod frame;
mod held;
mod index;
mod keep;
mod marks;
mod open;
mod purge;
mod sweep;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chunks::{ChunkError, ChunkStore, FrameKind, MAX_FRAME};
use crate::device::{Caching, Device, DeviceFile, is_no_space};
use crate::id::Hash;
use crate::log::Barrier;
use append::{Full, Writer};
use cache::Cache;
use frame::FRAME_HEADER;
use index::{Index, MANY_RECENT};
pub(crate) use marks::{FrameTable, Marks};
pub use sweep::Swept;
use sweep::Watch;
pub(crate) use verify::Checked;

/// The version of the format of segments that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The folder of the segments on their device.
const FOLDER: &str = "segments";
/// The greatest length of a segment that may be asked for, in bytes.
pub const MAX_SEGMENT: u64 = 256 << 20;
/// The longest file that is believed when read, in bytes.
const MAX_SEGMENT_FILE: u64 = 2 * MAX_SEGMENT;
/// Segments that are kept open for reading.
const MAX_OPEN: usize = 256;

/// The name of the index's file in a store's folder.
pub(crate) const INDEX_FILE: &str = "index.redb";

/// Where the index has a file. It is no part of the device, since it can be lost at any time.
#[derive(Clone, Debug)]
pub(crate) struct IndexPlace {
    /// The file.
    pub path: std::path::PathBuf,
    /// Bytes of it that are kept in memory.
    pub cache: usize,
}

/// How segments are kept.
#[derive(Clone, Copy, Debug)]
pub struct SegmentOptions {
    /// A segment takes no further frame beyond this length in bytes; at most [`MAX_SEGMENT`].
    pub segment_len: u64,
    /// Frames are gathered until so many bytes can be written at once.
    pub write_buffer: usize,
    /// Bytes of plain frames that are kept after reading.
    pub cache: usize,
    /// Bytes of tree nodes, as they are stored, that trees keep in memory before they let go of them.
    pub nodes: usize,
    /// A mistake to make, for tests that must notice it.
    #[cfg(test)]
    pub(crate) planted: Planted,
}

/// Mistakes that the crash tests have to catch.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    None,
    NoChecksum,
    FooterBeforeData,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            segment_len: 64 << 20,
            write_buffer: 1 << 20,
            cache: 32 << 20,
            nodes: 32 << 20,
            #[cfg(test)]
            planted: Planted::None,
        }
    }
}

impl SegmentOptions {
    /// Never, but where a test plants the mistake.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "the test build looks at it"))]
    fn skips_checksums(&self) -> bool {
        #[cfg(test)]
        return self.planted == Planted::NoChecksum;
        #[cfg(not(test))]
        false
    }
}

/// Why segments could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The device failed.
    #[error("{file}")]
    Io {
        /// Which file.
        file: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A file is not a segment, and no crash makes such a one.
    #[error("{file} is damaged: {reason}")]
    Damaged {
        /// Which file.
        file: String,
        /// What was found.
        reason: String,
    },
    /// A segment was written by a newer version of this program.
    #[error("{file} has format {found}; this program reads up to {supported}")]
    NewerFormat {
        /// Which file.
        file: String,
        /// The version found.
        found: u32,
        /// The newest version that this program knows.
        supported: u32,
    },
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentStats {
    /// Files.
    pub segments: u64,
    /// Distinct frames.
    pub frames: u64,
    /// Bytes of all files, with what is still to be written.
    pub bytes: u64,
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    segment: u32,
    offset: u64,
    /// Bytes behind the frame's header.
    stored: u32,
    /// How many frames of the segment come before it.
    ordinal: u32,
}

impl Location {
    /// Bytes of the whole frame.
    pub(crate) fn bytes(self) -> u64 {
        FRAME_HEADER as u64 + u64::from(self.stored)
    }

    /// The number of its segment.
    pub(crate) fn segment(self) -> u32 {
        self.segment
    }
}

/// The content-addressed store of one tenant. Clones of the `Arc` around it may be used by many
/// threads.
pub struct Segments {
    device: Arc<dyn Device>,
    key: [u8; 32],
    options: SegmentOptions,
    state: Mutex<State>,
    /// Held during a flush, so that whoever comes second finds its work done.
    flushing: Mutex<()>,
    /// Held while the index's file is written or the index made anew.
    tidying: Mutex<()>,
    /// Much is known of full segments that the index's file does not have.
    untidy: AtomicBool,
    /// Bytes of nodes that trees have loaded since they last let go.
    loaded: AtomicUsize,
    pressure: AtomicU64,
}

struct State {
    index: Index,
    writer: Option<Writer>,
    next_number: u32,
    /// Full segments that no flush has reached yet.
    unsynced: Vec<Arc<Full>>,
    readers: HashMap<u32, Arc<dyn DeviceFile>>,
    cache: Cache,
    /// Full segments that are durable, with their bytes.
    full: BTreeMap<u32, u64>,
    /// What is needed is being marked.
    watch: Option<Watch>,
    /// Segments on their way out: what lies in them does not count as stored when it is put.
    condemned: BTreeSet<u32>,
    poisoned: Option<Arc<str>>,
    closed: bool,
    /// That nothing is known of an address was doubted once, and the index made anew.
    doubted: bool,
    /// Segments of which more than the end was read when they were opened.
    looked_at: u32,
}

/// Where the bytes of a frame are to be had.
enum Source {
    Plain(Arc<[u8]>),
    Bytes(Vec<u8>),
    File(Arc<dyn DeviceFile>, Location),
}

impl Segments {
    /// Opens the segments on `device`, of which there may be none. Addresses are keyed by `key`.
    ///
    /// Frames that a crash tore were never acknowledged as durable and are left aside.
    pub fn open(
        device: Arc<dyn Device>,
        key: [u8; 32],
        options: SegmentOptions,
    ) -> Result<Self, SegmentError> {
        Self::open_indexed(device, key, options, None)
    }

    /// As [`open`](Self::open), with an index that has a file: segments that it covers need not be read.
    pub(crate) fn open_indexed(
        device: Arc<dyn Device>,
        key: [u8; 32],
        options: SegmentOptions,
        place: Option<&IndexPlace>,
    ) -> Result<Self, SegmentError> {
        let options = SegmentOptions { segment_len: options.segment_len.min(MAX_SEGMENT), ..options };
        let state = open::open(&*device, &key, &options, Index::at(place, &key))?;
        tracing::debug!(read = state.looked_at, segments = state.full.len(), "segments are open");
        let untidy = state.index.waiting() > MANY_RECENT;
        let segments = Self {
            device,
            key,
            options,
            state: Mutex::new(state),
            flushing: Mutex::new(()),
            tidying: Mutex::new(()),
            untidy: AtomicBool::new(untidy),
            loaded: AtomicUsize::new(0),
            pressure: AtomicU64::new(0),
        };
        if untidy {
            segments.tidy_index();
        }
        Ok(segments)
    }

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

    /// How much is stored.
    pub fn stats(&self) -> SegmentStats {
        let state = self.lock();
        let written = state.writer.as_ref().map_or(0, Writer::len);
        let full = state.full.values().sum::<u64>() + state.unsynced.iter().map(|it| it.len).sum::<u64>();
        let segments = state.full.len() + state.unsynced.len() + usize::from(state.writer.is_some());
        SegmentStats { segments: segments as u64, frames: state.index.len(), bytes: full + written }
    }

    /// Where the frame of `hash` lies.
    pub(crate) fn locate(&self, hash: &Hash) -> Result<Location, ChunkError> {
        let known = self.lock().index.get(hash);
        let known =
            known.or_else(|| self.index_was_wrong(hash).then(|| self.lock().index.get(hash)).flatten());
        known.ok_or(ChunkError::Missing(*hash))
    }

    /// Segments of which more than the end was read when they were opened.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u32 {
        self.lock().looked_at
    }

    /// Whether something is stored under `hash`.
    pub fn contains(&self, hash: &Hash) -> bool {
        self.lock().index.get(hash).is_some()
    }

    fn source(&self, hash: &Hash) -> Result<Source, ChunkError> {
        let mut state = self.lock();
        if let Some(plain) = state.cache.get(hash) {
            return Ok(Source::Plain(plain));
        }
        self.find(&mut state, hash)
    }

    /// As [`source`](Self::source), whether it was read lately or not.
    fn source_on_disk(&self, hash: &Hash) -> Result<Source, ChunkError> {
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
            ChunkError::Io(Arc::new(error))
        })?;
        if state.readers.len() >= MAX_OPEN {
            state.readers.clear();
        }
        state.readers.insert(location.segment, file.clone());
        Ok(Source::File(file, location))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is changed only after what can fail, so a panic elsewhere leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Segments {
    /// What is stored under `hash`, without keeping it in the cache: for walks through everything.
    pub(crate) fn read(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        Ok(self.read_from(hash)?.0)
    }

    /// What is stored under `hash`, and whether the disk was asked. Where the index was wrong, once more.
    fn read_from(&self, hash: &Hash) -> Result<(Arc<[u8]>, bool), ChunkError> {
        match self.try_read(hash) {
            Err(ChunkError::Missing(_) | ChunkError::Damaged { .. }) if self.index_was_wrong(hash) => {
                self.try_read(hash)
            }
            read => read,
        }
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
    fn frame_bytes(hash: &Hash, source: Source) -> Result<Vec<u8>, ChunkError> {
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
                    ChunkError::Io(Arc::new(error))
                })?;
                Ok(bytes)
            }
        }
    }

    fn plain(&self, hash: &Hash, frame: &[u8]) -> Result<Arc<[u8]>, ChunkError> {
        let damaged = |reason: &str| ChunkError::Damaged { hash: *hash, reason: reason.to_owned() };
        let header = frame::peek(frame).map_err(damaged)?;
        if header.hash != *hash {
            return Err(damaged("another frame lies in its place"));
        }
        Ok(frame::plain(&header, frame, &self.key).map_err(damaged)?.into())
    }

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

    /// Looks for another copy of a frame that does not read; whether there is one, which counts from here on.
    pub(crate) fn rescue(&self, hash: &Hash) -> bool {
        let (known, numbers) = {
            let state = self.lock();
            let written = state.writer.as_ref().map(|it| it.number);
            let numbers: Vec<u32> = state.full.keys().copied().chain(written).collect();
            (state.index.get(hash), numbers)
        };
        for number in numbers {
            let Ok(entries) = open::read_entries(&*self.device, number, &self.key, &self.options) else {
                continue;
            };
            let copies = entries.into_iter().filter(|it| it.0 == *hash && Some(it.1) != known);
            for (_, location) in copies {
                let file = self.device.open(&path(number), Caching::Cached);
                if file.is_ok_and(|it| sweep::read_sound(&*it, hash, location, &self.key).is_some()) {
                    tracing::warn!(%hash, file = path(number), "a damaged frame was found again");
                    self.lock().index.insert(*hash, location);
                    return true;
                }
            }
        }
        false
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
    fn alive(&self) -> Result<(), ChunkError> {
        if self.closed {
            return Err(ChunkError::Closed);
        }
        match &self.poisoned {
            Some(reason) => Err(ChunkError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    /// Whether a frame need not be written, since it is there and stays.
    fn holds(&mut self, hash: &Hash) -> Result<bool, ChunkError> {
        self.alive()?;
        let Some(place) = self.index.get(hash).filter(|it| !self.condemned.contains(&it.segment)) else {
            return Ok(false);
        };
        if let Some(watch) = &mut self.watch {
            watch.marks.add(place);
        }
        Ok(true)
    }

    fn has_unsynced(&self) -> Result<bool, ChunkError> {
        self.alive()?;
        Ok(!self.unsynced.is_empty() || self.writer.as_ref().is_some_and(|it| it.synced < it.len()))
    }

    /// A failed write: refused for want of space, or the end of this store.
    fn write_failed(&mut self, path: &str, error: &io::Error) -> ChunkError {
        if is_no_space(error) { ChunkError::NoSpace } else { self.poison(path, error) }
    }

    fn poison(&mut self, path: &str, error: &io::Error) -> ChunkError {
        tracing::error!(path, %error, "segments take nothing more until they are opened again");
        let reason = self.poisoned.get_or_insert_with(|| format!("{path}: {error}").into());
        ChunkError::Poisoned(reason.clone())
    }
}

fn path(number: u32) -> String {
    format!("{FOLDER}/{number:08}.seg")
}

/// The number in a file's name; `None` for files that are none of ours.
fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".seg")?.parse().ok()?;
    (path(number).strip_prefix(FOLDER)?.strip_prefix('/')? == name).then_some(number)
}
