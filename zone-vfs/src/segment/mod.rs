//! Append-only files of content-addressed frames.
//!
//! - `frame`: one chunk or node as bytes, valid wherever it lies
//! - `footer`: what a file holds, so that opening need not read it all
//! - `open`: finding out what is there, also after a crash
//! - `append`: the file that is written; `put`: what goes into it; `flush`: when it is durable
//! - `read`: a frame from where it lies
//! - `index`: where each frame lies, `keep`: what is done that it stays right
//! - `cache`: frames read lately
//! - `marks`, `sweep`: giving back what nothing needs; `purge`: erasing it
//! - `held`: what is not given back while something does not read
//! - `verify`: reading everything again; `roots`: finding catalogues that nothing names any more

mod append;
mod cache;
mod error;
mod flush;
mod footer;
mod frame;
mod held;
mod index;
mod keep;
mod marks;
mod open;
mod options;
mod purge;
mod put;
mod read;
mod roots;
mod sweep;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chunks::ChunkError;
use crate::device::{Device, DeviceFile};
use append::{Full, Writer};
use cache::Cache;
pub use error::SegmentError;
use frame::FRAME_HEADER;
pub(crate) use frame::{can_be, unpack};
use index::{Index, MANY_RECENT};
pub(crate) use marks::{FrameTable, Marks};
#[cfg(test)]
pub(crate) use options::Planted;
pub use options::SegmentOptions;
pub(crate) use options::{INDEX_FILE, IndexPlace};
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
    /// Segments of which the device failed to read something: what else they have is not known.
    unread: BTreeSet<u32>,
    /// Torn segments for whose footer there was no room when they were opened, with the frames that were found then.
    unsealed: BTreeMap<u32, u64>,
    /// Segments of which more than the end was read when they were opened.
    looked_at: u32,
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

    /// How much is stored.
    pub fn stats(&self) -> SegmentStats {
        let state = self.lock();
        let written = state.writer.as_ref().map_or(0, Writer::len);
        let full = state.full.values().sum::<u64>() + state.unsynced.iter().map(|it| it.len).sum::<u64>();
        let segments = state.full.len() + state.unsynced.len() + usize::from(state.writer.is_some());
        SegmentStats { segments: segments as u64, frames: state.index.len(), bytes: full + written }
    }

    /// Segments of which more than the end was read when they were opened.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u32 {
        self.lock().looked_at
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is changed only after what can fail, so a panic elsewhere leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
