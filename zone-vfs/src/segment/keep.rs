//! Keeping the index: moving it to its file, noticing that it is wrong, and making it anew from the footers.
//!
//! A wrong place does no harm to a reader, who checks what lies there by its address. Where that fails, or
//! nothing is known of an address, the footers are asked, and the index is made anew if they say something else. A
//! reaping, which removes what the index does not point at, checks all of it first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::footer::Entry;
use super::index::{self, Covered, Index};
use super::{Location, SegmentError, Segments, open, sweep};
use crate::chunks::ChunkError;
use crate::device::{Caching, is_shortage};
use crate::id::Hash;

/// What came of comparing the index with the segments.
#[derive(Debug)]
pub(crate) struct Compared {
    /// The index said what they do.
    pub is_right: bool,
    /// The segments that could not be read, each with the reason: what the index says of them was not compared.
    pub unread: Vec<String>,
}

/// Whether the device failed to read a segment that is there.
fn may_pass(error: &SegmentError) -> bool {
    let is_there = |kind| !matches!(kind, ErrorKind::NotFound | ErrorKind::UnexpectedEof);
    matches!(error, SegmentError::Io { source, .. } if is_there(source.kind()))
}

impl Segments {
    /// Whether much is known of full segments that the index's file does not have.
    pub(crate) fn index_waits(&self) -> bool {
        self.untidy.load(Ordering::Relaxed)
    }

    /// Moves what is known of full segments to the index's file, if there is one. Takes as long as the disk
    /// does; nobody who reads or puts waits for it.
    pub(crate) fn tidy_index(&self) {
        let tidying = self.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        self.untidy.store(false, Ordering::Relaxed);
        let (full, before) = {
            let state = self.lock();
            let mut full = state.full.clone();
            full.retain(|number, _| !state.unread.contains(number));
            (full, state.index.covered())
        };
        let known = |number: &u32, len: &u64| before.get(number).filter(|it| it.len == *len).copied();
        if !self.lock().index.can_have_file() {
            return;
        }
        let covered: BTreeMap<u32, Covered> = full
            .iter()
            .filter_map(|(number, len)| {
                // one that does not read now is covered another time
                let found = || open::cover(&*self.device, *number, *len).ok().flatten();
                Some((*number, known(number, len).or_else(found)?))
            })
            .collect();
        let begun = {
            let mut state = self.lock();
            if state.index.has_more_for(&covered) { state.index.begin_write(&covered) } else { None }
        };
        let Some((database, recent)) = begun else { return };
        match index::write(&database, &recent, &before, &covered) {
            Ok(()) => self.lock().index.end_write(covered),
            Err(error) => {
                tracing::warn!(%error, "the index of the segments cannot be written; it is made anew");
                drop((database, recent, tidying));
                if let Err(error) = self.rebuild_index() {
                    tracing::warn!(%error, "the index of the segments is not made anew");
                }
            }
        }
    }

    /// Makes the index anew from what the segments say of themselves.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Shortage`]: it is as it was.
    pub(crate) fn rebuild_index(&self) -> Result<(), ChunkError> {
        let _alone = self.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers: Vec<u32> = self.files().into_iter().map(|(number, _)| number).collect();
        let (mut found, mut unread) = (Vec::new(), BTreeSet::new());
        for number in numbers {
            let (entries, is_unread) = self.entries_of(number)?;
            found.extend(entries);
            if is_unread {
                unread.insert(number);
            }
        }
        let mut state = self.lock();
        state.unread = unread;
        let (mut index, recent) = std::mem::take(&mut state.index).anew();
        let there = |number| {
            state.full.contains_key(&number)
                || state.unsynced.iter().any(|it| it.number == number)
                || state.writer.as_ref().is_some_and(|it| it.number == number)
        };
        // in the file of the segment that is written there may be less, or what a crash has cut off
        index.add(found.into_iter().filter(|(_, place)| there(place.segment)));
        for (hash, place) in recent {
            if let Some(place) = place.filter(|it| there(it.segment)) {
                index.insert(hash, place);
            }
        }
        state.index = index;
        drop(state);
        self.untidy.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What a segment says that it has, and whether the device failed to read some of it.
    fn entries_of(&self, number: u32) -> Result<(Vec<Entry>, bool), ChunkError> {
        match open::look_at(&*self.device, number, &self.key, &self.options) {
            Ok(found) => Ok((found.entries, found.is_unread)),
            Err(error) if error.is_shortage() => Err(error.into()),
            // whoever needs something of it is told
            Err(error) => {
                tracing::warn!(%error, reason = error.reason(), "a segment does not read");
                Ok((Vec::new(), may_pass(&error)))
            }
        }
    }

    /// Tries the segments again of which the device failed to read something; whether any could be read.
    fn take_up_unread(&self) -> Result<bool, ChunkError> {
        let unread = self.lock().unread.clone();
        let mut is_any = false;
        for number in unread {
            let (entries, is_unread) = self.entries_of(number)?;
            let mut state = self.lock();
            if !is_unread {
                state.unread.remove(&number);
            }
            // what was put meanwhile counts, and what was removed is gone
            if state.full.contains_key(&number) {
                state.index.add(entries);
                is_any |= !is_unread;
            }
        }
        Ok(is_any)
    }

    /// As it is: that a frame is missing is not known while a segment could not be read.
    pub(super) fn or_unread(&self, error: ChunkError) -> ChunkError {
        match error {
            ChunkError::Missing(hash) if !self.lock().unread.is_empty() => {
                let message = format!("a segment could not be read, and may have {hash}");
                ChunkError::Io(Arc::new(std::io::Error::other(message)))
            }
            error => error,
        }
    }

    /// Whether the index was wrong about a frame that was not found where it says, or of which it says nothing.
    /// It is right then.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Shortage`]: it is not known.
    pub(super) fn index_was_wrong(&self, hash: &Hash) -> Result<bool, ChunkError> {
        let known = {
            let mut state = self.lock();
            if !state.unread.is_empty() {
                drop(state);
                return self.take_up_unread();
            }
            if !state.index.has_file() {
                return Ok(false);
            }
            let known = state.index.get(hash);
            let has_failed = state.index.has_failed();
            match known.filter(|_| !has_failed) {
                Some(place) if state.full.contains_key(&place.segment) => Some(place),
                Some(place) if state.is_written(place.segment) => return Ok(false),
                // that nothing is known of an address is believed after one look at the footers
                None if !has_failed && std::mem::replace(&mut state.doubted, true) => return Ok(false),
                None if !has_failed => {
                    drop(state);
                    let was_wrong = match self.verify_index() {
                        Ok(compared) => !compared.is_right,
                        Err(error) => {
                            // that was no look at all
                            self.lock().doubted = false;
                            return Err(error);
                        }
                    };
                    if was_wrong {
                        tracing::warn!(%hash, "the index of the segments was incomplete; it was made anew");
                    }
                    return Ok(was_wrong);
                }
                _ => None,
            }
        };
        if let Some(place) = known {
            let entries = open::read_entries(&*self.device, place.segment, &self.key, &self.options);
            match entries {
                Ok(entries) if entries.contains(&(*hash, place)) => return Ok(false), // it lies there, and is damaged
                Err(error) if error.is_shortage() => return Err(error.into()),
                _ => {}
            }
        }
        tracing::warn!(%hash, "the index of the segments was wrong or incomplete; it is made anew");
        self.rebuild_index()?;
        Ok(true)
    }

    /// Compares the index with what the segments say of themselves, and makes it anew where they differ.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Shortage`]: nothing is known.
    pub(crate) fn verify_index(&self) -> Result<Compared, ChunkError> {
        let mut unread = Vec::new();
        if !self.lock().index.has_file() {
            return Ok(Compared { is_right: true, unread });
        }
        let full: Vec<u32> = self.lock().full.keys().copied().collect();
        // frames that lie in several places: that the index points at one of them has to be seen there
        let mut elsewhere: HashMap<Hash, Location> = HashMap::new();
        let mut is_right = true;
        for number in full {
            let found = match open::look_at(&*self.device, number, &self.key, &self.options) {
                Ok(found) => found,
                Err(error) if error.is_shortage() => return Err(error.into()),
                Err(error) => {
                    let mut state = self.lock();
                    // one that has gone meanwhile was removed
                    if state.full.contains_key(&number) {
                        if may_pass(&error) {
                            state.unread.insert(number);
                        }
                        unread.push(format!("{}: {}", super::path(number), error.reason()));
                    }
                    continue;
                }
            };
            let mut state = self.lock();
            if !state.full.contains_key(&number) {
                continue;
            }
            if found.is_unread {
                // what else it has, the index may know
                state.unread.insert(number);
                unread.push(format!("{}: the device failed to read some of it", super::path(number)));
            }
            for (hash, location) in found.entries {
                match state.index.get(&hash) {
                    Some(place) if place == location => {}
                    Some(place) if (place.segment, place.offset) != (number, location.offset) => {
                        elsewhere.insert(hash, place);
                    }
                    _ => is_right = false,
                }
            }
            if !is_right {
                break;
            }
        }
        elsewhere.retain(|_, place| self.lock().full.contains_key(&place.segment));
        for (hash, place) in elsewhere {
            let file = self.device.open(&super::path(place.segment), Caching::Cached);
            let read = file
                .map_err(sweep::Unsound::Unread)
                .and_then(|it| sweep::read_sound(&*it, &hash, place, &self.key));
            match read {
                Err(sweep::Unsound::Unread(error)) if is_shortage(&error) => {
                    return Err(ChunkError::of_device(error));
                }
                read => is_right &= read.is_ok(),
            }
        }
        for segment in &unread {
            tracing::warn!(segment, "the index of the segments cannot be compared with it");
        }
        if !is_right || self.lock().index.has_failed() {
            tracing::warn!("the index of the segments does not say what they do; it is made anew");
            self.rebuild_index()?;
            is_right = false;
        }
        Ok(Compared { is_right, unread })
    }
}

impl super::State {
    /// Whether a segment is not durable yet.
    fn is_written(&self, number: u32) -> bool {
        self.unsynced.iter().any(|it| it.number == number)
            || self.writer.as_ref().is_some_and(|it| it.number == number)
    }
}

impl Index {
    /// Opens the index's file, where there is one, for segments that have the key.
    pub(super) fn at(file: Option<&super::IndexPlace>, key: &[u8; 32]) -> Self {
        file.map_or_else(Self::default, |it| Self::open(&it.path, it.cache, key))
    }
}
