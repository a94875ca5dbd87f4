//! From an address to the place of its frame.
//!
//! Where every frame lies is known from the segments' footers, so the index can be deleted at any time. With a
//! file (`file`) it need not be read from them at each opening, nor kept in memory: what was added or forgotten
//! lately is here, and is moved to the file when a checkpoint has been made. Only places in segments that the
//! file *covers* are in it: those that are full and durable, which it knows by their length and the hash that
//! ends their last footer. So it never says of a frame that it is there when a crash has taken it.

mod file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::Location;
use super::footer::Entry;
use crate::id::Hash;
use file::IndexFile;
pub(super) use file::{Covered, write};

/// Places, and `None` for what was forgotten.
pub(super) type Recent = HashMap<Hash, Option<Location>>;

/// So many recent places are worth a write to the file.
pub(super) const MANY_RECENT: usize = 1 << 16;

/// Where every frame lies. Can be rebuilt from the segments' footers at any time.
#[derive(Default)]
pub(super) struct Index {
    /// What the file does not say; without a file, everything.
    recent: Recent,
    /// What is being written to the file.
    writing: Option<Arc<Recent>>,
    file: Option<IndexFile>,
    /// How many frames there are.
    len: u64,
}

impl Index {
    /// An index in the file at `path`, which takes up to `cache` bytes of memory for it. Where the file is
    /// missing, damaged or another store's, it is empty. Without a usable file it is in memory alone.
    pub fn open(path: &Path, cache: usize, key: &[u8; 32]) -> Self {
        match IndexFile::open(path, cache, key) {
            Ok(file) => {
                let len = file.len();
                Self { len, file: Some(file), ..Self::default() }
            }
            Err(error) => {
                tracing::warn!(%error, "the index of the segments is kept in memory alone");
                Self::default()
            }
        }
    }

    /// An empty index in a file of the same name, for one whose file was wrong; and what memory had.
    pub fn anew(self) -> (Self, Recent) {
        let Some(file) = self.file else { return (Self::default(), self.recent) };
        let anew = match file.replace() {
            Ok(file) => Self { file: Some(file), ..Self::default() },
            Err(error) => {
                tracing::warn!(%error, "the index of the segments is kept in memory alone");
                Self::default()
            }
        };
        (anew, self.recent)
    }

    /// The segments of which the file has all.
    pub fn covered(&self) -> BTreeMap<u32, Covered> {
        self.file.as_ref().map(|it| it.covered().clone()).unwrap_or_default()
    }

    /// Whether there is a file, which may be wrong.
    pub fn has_file(&self) -> bool {
        self.file.as_ref().is_some_and(IndexFile::is_there)
    }

    /// Whether it is kept in a file, once there is something for it.
    pub fn can_have_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether a file that covers these segments would say more than the file that there is.
    pub fn has_more_for(&self, covered: &BTreeMap<u32, Covered>) -> bool {
        let Some(file) = &self.file else { return false };
        file.covered() != covered
            || self.recent.values().any(|it| it.is_none_or(|it| covered.contains_key(&it.segment)))
    }

    /// Whether the file has failed: what it should say is not known.
    pub fn has_failed(&self) -> bool {
        self.file.as_ref().is_some_and(IndexFile::has_failed)
    }

    #[inline]
    pub fn get(&self, hash: &Hash) -> Option<Location> {
        if let Some(place) = self.recent.get(hash) {
            return *place;
        }
        let file = self.file.as_ref()?;
        if let Some(place) = self.writing.as_ref().and_then(|it| it.get(hash)) {
            return *place;
        }
        file.get(hash)
    }

    /// Of a frame that lies in several segments, the place in the one with the greatest number
    /// counts: the others are what a reaping has left behind.
    pub fn add(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for (hash, location) in entries {
            if self.get(&hash).is_none_or(|place| place.segment < location.segment) {
                self.insert(hash, location);
            }
        }
    }

    pub fn insert(&mut self, hash: Hash, location: Location) {
        self.len += u64::from(self.get(&hash).is_none());
        self.recent.insert(hash, Some(location));
    }

    fn remove(&mut self, hash: &Hash) {
        self.len = self.len.saturating_sub(u64::from(self.get(hash).is_some()));
        if self.file.is_some() {
            self.recent.insert(*hash, None);
        } else {
            self.recent.remove(hash);
        }
    }

    /// Forgets those of `entries` that still lie in `segment`.
    pub fn forget(&mut self, segment: u32, entries: &[Entry]) {
        for (hash, _) in entries {
            if self.get(hash).is_some_and(|it| it.segment == segment) {
                self.remove(hash);
            }
        }
    }

    /// Forgets everything that lies in `segment`.
    pub fn forget_all(&mut self, segment: u32) {
        let mut found: Vec<Hash> = self.file.as_ref().map(|it| it.in_segment(segment)).unwrap_or_default();
        let memory = self.writing.iter().flat_map(|it| it.iter()).chain(&self.recent);
        found.extend(
            memory.filter(|(_, it)| it.is_some_and(|it| it.segment == segment)).map(|(hash, _)| *hash),
        );
        for hash in found {
            if self.get(&hash).is_some_and(|it| it.segment == segment) {
                self.remove(&hash);
            }
        }
    }

    /// Takes what is to be written to a file that then covers these segments; none where there is no file.
    pub fn begin_write(
        &mut self,
        covered: &BTreeMap<u32, Covered>,
    ) -> Option<(Arc<redb::Database>, Arc<Recent>)> {
        let database = self.file.as_mut()?.writable()?;
        let goes = |place: &Option<Location>| place.is_none_or(|it| covered.contains_key(&it.segment));
        let writing: Recent = self.recent.extract_if(|_, place| goes(place)).collect();
        let writing = Arc::new(writing);
        self.writing = Some(writing.clone());
        Some((database, writing))
    }

    /// What was taken has been written.
    pub fn end_write(&mut self, covered: BTreeMap<u32, Covered>) {
        if let Some(file) = &mut self.file {
            file.written(covered);
        }
        self.writing = None;
    }

    /// How many places wait to be written to a file.
    pub fn waiting(&self) -> usize {
        if self.file.is_some() { self.recent.len() } else { 0 }
    }

    #[cfg(test)]
    pub fn addresses(&self) -> Vec<Hash> {
        self.recent.keys().copied().collect()
    }

    pub fn len(&self) -> u64 {
        self.len
    }
}
