//! Finding out what is there.
//!
//! A segment that ends with a footer is known from it. One that does not was being written when
//! the process or the machine stopped, and is read frame by frame. Where a frame does not read,
//! what was written later may have reached the disk all the same; it is searched for, and from
//! there on content is believed only by its keyed hash, so that no guest's data pass for a frame.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::append::Writer;
use super::cache::Cache;
use super::footer::{self, Entry, SEGMENT_HEADER};
use super::frame::{self, FRAME_HEADER, FRAME_MAGIC};
use super::index::{Covered, Index};
use super::{
    FOLDER, FORMAT_VERSION, Location, MAX_SEGMENT_FILE, SegmentError, SegmentOptions, State, number_of, path,
};
use crate::device::{BLOCK, Caching, Device, DeviceFile, is_no_space, is_shortage};

/// Bytes that are looked at in a segment behind what does not read. Frames there were not durable,
/// or the disk is rotten, so this is a rescue; the limit keeps content that is full of what looks
/// like frames from holding up the opening.
const RESCUE_WORK: usize = 2 << 30;

pub(super) fn open(
    device: &dyn Device,
    key: &[u8; 32],
    options: &SegmentOptions,
    index: Index,
) -> Result<State, SegmentError> {
    let mut state = State {
        index,
        writer: None,
        next_number: 1,
        unsynced: Vec::new(),
        readers: HashMap::new(),
        cache: Cache::new(options.cache),
        full: BTreeMap::new(),
        watch: None,
        condemned: BTreeSet::new(),
        poisoned: None,
        closed: false,
        doubted: false,
        unread: BTreeSet::new(),
        unsealed: BTreeMap::new(),
        looked_at: 0,
    };
    let names = device.list(FOLDER).map_err(io_error(FOLDER))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    let mut covered = state.index.covered();
    let is_there = |number: &u32| numbers.binary_search(number).is_ok();
    let mut is_intact = true;
    for (number, cover) in &covered {
        is_intact = is_intact && is_there(number) && still_covers(device, *number, *cover)?;
    }
    if !is_intact {
        tracing::warn!("the index of the segments is of another time; it is made anew");
        state.index = std::mem::take(&mut state.index).anew().0;
        covered.clear();
    }
    for number in &numbers {
        state.next_number = state.next_number.max(number.saturating_add(1));
        // the last one may be written on, and is looked at for that
        if let Some(cover) = covered.get(number).filter(|_| Some(number) != numbers.last())
            && len_of(device, *number)? == cover.len
        {
            state.full.insert(*number, cover.len);
            continue;
        }
        state.looked_at += 1;
        let found = look_at(device, *number, key, options)?;
        if found.len == 0 {
            // Begun, and then nothing reached the disk.
            device.remove(&found.path).map_err(io_error(&found.path))?;
            continue;
        }
        let frames = found.entries.len() as u32;
        state.index.add(found.entries.iter().copied());
        // An earlier process may have ended before a flush: what is now believed becomes durable.
        let is_last = Some(number) == numbers.last();
        // one that was torn, and sealed by an earlier opening, would look torn again with more behind the footer
        let resumes = is_last && found.is_explained && found.len < options.segment_len;
        found.file.flush().map_err(io_error(&found.path))?;
        if found.is_unread {
            // what the device failed to read may be sound: no footer says that it is not there
            state.unread.insert(*number);
        }
        let is_as_it_was = resumes || found.has_footer || found.is_unread;
        let len = if is_as_it_was { found.len } else { seal(&found, key)? };
        if !is_as_it_was && len == found.len {
            state.unsealed.insert(*number, u64::from(frames));
        }
        if resumes {
            state.writer = Some(Writer {
                number: *number,
                file: found.file,
                written: len,
                synced: len,
                pending: Vec::new(),
                entries: if found.has_footer { Vec::new() } else { found.entries },
                last_footer: found.last_footer,
                frames,
            });
        } else {
            state.full.insert(*number, len);
        }
    }
    Ok(state)
}

fn len_of(device: &dyn Device, number: u32) -> Result<u64, SegmentError> {
    let path = path(number);
    let file = device.open(&path, Caching::Cached).map_err(io_error(&path))?;
    file.len().map_err(io_error(&path))
}

/// How the index knows a segment again that is `len` long and ends with a footer; none where it does not.
pub(super) fn cover(device: &dyn Device, number: u32, len: u64) -> std::io::Result<Option<Covered>> {
    let file = device.open(&path(number), Caching::Cached)?;
    let mut end = vec![0; footer::trailer_len()];
    let Some(at) = len.checked_sub(end.len() as u64) else { return Ok(None) };
    file.read_at(at, &mut end)?;
    let mac = footer::trailer_offset(&end).and_then(|_| end.last_chunk());
    Ok(mac.map(|mac| Covered { len, mac: *mac }))
}

/// Whether a segment is what the index covers, perhaps with more behind it: segments only grow. One that does not
/// read is not.
fn still_covers(device: &dyn Device, number: u32, known: Covered) -> Result<bool, SegmentError> {
    let covers = || {
        let is_long_enough = len_of(device, number)? >= known.len;
        let found = cover(device, number, known.len).map_err(io_error(&path(number)))?;
        Ok(is_long_enough && found == Some(known))
    };
    match covers() {
        Err(error @ SegmentError::Io { .. }) if error.is_shortage() => Err(error),
        covers => Ok(covers.unwrap_or_default()),
    }
}

pub(super) struct Found {
    path: String,
    pub file: std::sync::Arc<dyn DeviceFile>,
    len: u64,
    pub entries: Vec<Entry>,
    pub has_footer: bool,
    /// Where the footer lies that ends the file; 0 for none.
    last_footer: u64,
    /// Some of it does not read.
    pub is_torn: bool,
    /// It holds nothing but these frames, and footers.
    pub is_explained: bool,
    /// The device failed to read some of it.
    pub is_unread: bool,
}

pub(super) fn look_at(
    device: &dyn Device,
    number: u32,
    key: &[u8; 32],
    options: &SegmentOptions,
) -> Result<Found, SegmentError> {
    look_at_start(device, number, u64::MAX, key, options)
}

/// As [`look_at`], as if the file ended at `limit` bytes.
pub(super) fn look_at_start(
    device: &dyn Device,
    number: u32,
    limit: u64,
    key: &[u8; 32],
    options: &SegmentOptions,
) -> Result<Found, SegmentError> {
    let path = path(number);
    let file = device.open(&path, Caching::Cached).map_err(io_error(&path))?;
    let len = file.len().map_err(io_error(&path))?.min(limit);
    if len > MAX_SEGMENT_FILE {
        return Err(SegmentError::Damaged {
            file: path,
            reason: format!("{len} bytes are too many for a segment"),
        });
    }
    let mut head = [0; SEGMENT_HEADER];
    if len >= SEGMENT_HEADER as u64 {
        match file.read_at(0, &mut head) {
            Err(error) if is_shortage(&error) => return Err(io_error(&path)(error)),
            // as good as damaged: the frames behind it can be sound
            Err(_) => head.fill(0),
            Ok(()) => {}
        }
    }
    if let Some(found) = footer::segment_version(&head)
        && found > FORMAT_VERSION
    {
        return Err(SegmentError::NewerFormat { file: path, found, supported: FORMAT_VERSION });
    }
    let newer = newer_footer(&*file, len, key).map_err(io_error(&path))?;
    if let Some(found) = newer {
        let (file, supported) = (format!("the footer of {path}"), footer::known_version());
        return Err(SegmentError::NewerFormat { file, found, supported });
    }
    let footers = match read_footers(&*file, number, len, key) {
        Err(error) if is_shortage(&error) => return Err(io_error(&path)(error)),
        // footers that the device cannot read are as good as none
        footers => footers.ok().flatten(),
    };
    if let Some((entries, last_footer, footers)) = footers {
        let entries = numbered(entries);
        let frames: u64 = entries.iter().map(|(_, location)| location.bytes()).sum();
        let is_explained = SEGMENT_HEADER as u64 + frames + footers == len;
        return Ok(Found {
            path,
            file,
            len,
            entries,
            has_footer: true,
            last_footer,
            is_torn: false,
            is_explained,
            is_unread: false,
        });
    }
    let (bytes, is_whole) = read_what_reads(&*file, len).map_err(io_error(&path))?;
    let (entries, is_torn) = match scan(&bytes, number, key, options) {
        Ok(scanned) => scanned,
        Err((at, found, supported)) => {
            return Err(SegmentError::NewerFormat {
                file: format!("{path}, the frame at {at},"),
                found,
                supported,
            });
        }
    };
    let entries = numbered(entries);
    let is_torn = is_torn || !is_whole;
    let (has_footer, last_footer, is_explained, is_unread) = (false, 0, !is_torn, !is_whole);
    Ok(Found { path, file, len, entries, has_footer, last_footer, is_torn, is_explained, is_unread })
}

/// The version of the last footer, where it is newer than this program knows. That nothing is written behind it, and that it
/// is no guest's imitation, its keyed hash tells. What does not read is told elsewhere.
fn newer_footer(file: &dyn DeviceFile, len: u64, key: &[u8; 32]) -> std::io::Result<Option<u32>> {
    let mut end = vec![0; footer::trailer_len()];
    let Some(trailer) = len.checked_sub(end.len() as u64) else { return Ok(None) };
    let read = |at: u64, into: &mut [u8]| match file.read_at(at, into) {
        Err(error) if is_shortage(&error) => Err(error),
        read => Ok(read.is_ok()),
    };
    if !read(trailer, &mut end)? {
        return Ok(None);
    }
    let Some(at) = footer::trailer_offset(&end).filter(|at| *at != 0 && *at < trailer) else {
        return Ok(None);
    };
    let mut bytes = vec![0; (len - at) as usize];
    if !read(at, &mut bytes)? {
        return Ok(None);
    }
    Ok(footer::newer_version(&bytes).filter(|_| footer::is_sound(&bytes, key)))
}

/// In the order in which they lie, each with its ordinal.
fn numbered(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_unstable_by_key(|(_, location)| location.offset);
    for (ordinal, (_, location)) in entries.iter_mut().enumerate() {
        location.ordinal = ordinal as u32;
    }
    entries
}

/// The whole file; zeros where the device reads nothing, and whether there is such a place. An error is a shortage.
fn read_what_reads(file: &dyn DeviceFile, len: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = vec![0; len as usize];
    if file.read_at(0, &mut bytes).is_ok() {
        return Ok((bytes, true));
    }
    let mut is_whole = true;
    for (at, block) in bytes.chunks_mut(BLOCK).enumerate() {
        match file.read_at((at * BLOCK) as u64, block) {
            Err(error) if is_shortage(&error) => return Err(error),
            Err(_) => {
                block.fill(0);
                is_whole = false;
            }
            Ok(()) => {}
        }
    }
    Ok((bytes, is_whole))
}

/// The frames of a segment, in the order in which they lie.
pub(super) fn read_entries(
    device: &dyn Device,
    number: u32,
    key: &[u8; 32],
    options: &SegmentOptions,
) -> Result<Vec<Entry>, SegmentError> {
    Ok(look_at(device, number, key, options)?.entries)
}

/// All entries by the chain of footers that begins at the file's end, where the last footer lies, and how many
/// bytes they have; `None` where any part of
/// it does not read.
fn read_footers(
    file: &dyn DeviceFile,
    number: u32,
    len: u64,
    key: &[u8; 32],
) -> std::io::Result<Option<(Vec<Entry>, u64, u64)>> {
    let mut end = vec![0; footer::trailer_len()];
    let Some(trailer) = len.checked_sub(end.len() as u64) else { return Ok(None) };
    file.read_at(trailer, &mut end)?;
    // No footer lies at 0, where a segment's header is; a torn trailer may say so.
    let Some(last) = footer::trailer_offset(&end).filter(|last| *last != 0) else { return Ok(None) };
    let (mut all, mut at, mut limit, mut footers) = (Vec::new(), last, len, 0);
    while at != 0 {
        // Each footer lies before the one that names it, so the chain ends.
        let mut header = vec![0; footer::header_len()];
        if at.checked_add(header.len() as u64).is_none_or(|end| end > limit) {
            return Ok(None);
        }
        file.read_at(at, &mut header)?;
        let Some(footer_len) = footer::peek_len(&header) else { return Ok(None) };
        if at + footer_len as u64 > limit || (at == last && at + footer_len as u64 != len) {
            return Ok(None);
        }
        let mut bytes = vec![0; footer_len];
        file.read_at(at, &mut bytes)?;
        if !footer::is_sound(&bytes, key) {
            return Ok(None);
        }
        let (entries, before) = footer::decode(&bytes, number);
        let inside = |it: &Entry| {
            it.1.offset.checked_add(FRAME_HEADER as u64 + u64::from(it.1.stored)).is_some_and(|end| end <= at)
        };
        if before >= at || !entries.iter().all(inside) {
            return Ok(None);
        }
        all.extend(entries);
        footers += footer_len as u64;
        limit = at;
        at = before;
    }
    Ok(Some((all, last, footers)))
}

/// The frames in `bytes`, a whole segment, and whether some of it does not read. An error is a frame of a newer version, where
/// it lies, and which version is known.
fn scan(
    bytes: &[u8],
    segment: u32,
    key: &[u8; 32],
    options: &SegmentOptions,
) -> Result<(Vec<Entry>, bool), (usize, u32, u32)> {
    let mut entries = Vec::new();
    let mut rescue = RESCUE_WORK;
    let mut is_torn = footer::segment_version(bytes).is_none();
    let mut at = if is_torn { 0 } else { SEGMENT_HEADER };
    while at < bytes.len() && rescue > 0 {
        let rest = &bytes[at..];
        if is_torn {
            rescue = rescue.saturating_sub(frame::peek(rest).map_or(1, |it| it.frame_len()));
        }
        if let Some((entry, len)) = sound_frame(rest, segment, at, is_torn.then_some(key), options) {
            entries.push(entry);
            at += len;
        } else if let Some(len) = sound_footer(rest, key).filter(|_| !is_torn) {
            at += len;
        } else if let Some((found, supported)) = frame::newer_version(rest).filter(|_| !is_torn) {
            return Err((at, found, supported));
        } else {
            is_torn = true;
            at += 1 + next_magic(&rest[1..]);
        }
    }
    Ok((entries, is_torn))
}

/// The frame at the start of `bytes`. With a key, its content is hashed too.
fn sound_frame(
    bytes: &[u8],
    segment: u32,
    at: usize,
    key: Option<&[u8; 32]>,
    options: &SegmentOptions,
) -> Option<(Entry, usize)> {
    let header = frame::peek(bytes).ok()?;
    let whole = bytes.get(..header.frame_len())?;
    let is_sound = frame::is_sound(whole) || options.skips_checksums();
    if !is_sound || key.is_some_and(|key| frame::plain(&header, whole, key).is_err()) {
        return None;
    }
    let location = Location { segment, offset: at as u64, stored: header.stored as u32, ordinal: 0 };
    Some(((header.hash, location), whole.len()))
}

fn sound_footer(bytes: &[u8], key: &[u8; 32]) -> Option<usize> {
    let len = footer::peek_len(bytes)?;
    footer::is_sound(bytes.get(..len)?, key).then_some(len)
}

/// How many bytes come before the next place where a frame could begin.
fn next_magic(bytes: &[u8]) -> usize {
    bytes.windows(FRAME_MAGIC.len()).position(|it| it == FRAME_MAGIC).unwrap_or(bytes.len())
}

/// Ends a torn segment, flushed, with a footer that lists what reads, and gives its length. A full disk is
/// no reason not to open: the segment is then read whole the next time too.
fn seal(found: &Found, key: &[u8; 32]) -> Result<u64, SegmentError> {
    let footer = footer::encode(&found.entries, 0, found.len, key);
    match found.file.write_at(found.len, &footer) {
        Ok(()) => Ok(found.len + footer.len() as u64),
        Err(error) if is_no_space(&error) => {
            tracing::warn!(file = found.path, "no space for the footer of a torn segment");
            Ok(found.len)
        }
        Err(error) => Err(io_error(&found.path)(error)),
    }
}

fn io_error(path: &str) -> impl FnOnce(std::io::Error) -> SegmentError {
    let file = path.to_owned();
    move |source| SegmentError::Io { file, source }
}
