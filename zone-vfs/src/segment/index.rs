//! From an address to the place of its frame.

use std::collections::HashMap;

use super::Location;
use super::footer::Entry;
use crate::id::Hash;

/// Where every frame lies. Can be rebuilt from the segments' footers at any time.
#[derive(Default)]
pub(super) struct Index {
    places: HashMap<Hash, Location>,
}

impl Index {
    pub fn get(&self, hash: &Hash) -> Option<Location> {
        self.places.get(hash).copied()
    }

    /// Of a frame that lies in several segments, the place in the one with the greatest number
    /// counts: the others are what a reaping has left behind.
    pub fn add(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for (hash, location) in entries {
            let place = self.places.entry(hash).or_insert(location);
            if place.segment < location.segment {
                *place = location;
            }
        }
    }

    pub fn insert(&mut self, hash: Hash, location: Location) {
        self.places.insert(hash, location);
    }

    /// Forgets those of `entries` that still lie in `segment`.
    pub fn forget(&mut self, segment: u32, entries: &[Entry]) {
        for (hash, _) in entries {
            if self.places.get(hash).is_some_and(|it| it.segment == segment) {
                self.places.remove(hash);
            }
        }
    }

    /// Forgets everything that lies in `segment`.
    pub fn forget_all(&mut self, segment: u32) {
        self.places.retain(|_, it| it.segment != segment);
    }

    #[cfg(test)]
    pub fn addresses(&self) -> Vec<Hash> {
        self.places.keys().copied().collect()
    }

    pub fn len(&self) -> u64 {
        self.places.len() as u64
    }
}
