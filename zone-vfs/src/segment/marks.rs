//! One bit for each frame: which are needed.

use std::collections::HashMap;

use super::Location;

/// A set of frames by where they lie: a bit for each frame of each segment, so a store of a million frames
/// takes 125 KB.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    bits: HashMap<u32, Vec<u64>>,
}

impl Marks {
    /// Adds a frame; whether it was not in yet.
    pub fn add(&mut self, frame: Location) -> bool {
        let bits = self.bits.entry(frame.segment).or_default();
        let (at, bit) = (frame.ordinal as usize / 64, 1 << (frame.ordinal % 64));
        if at >= bits.len() {
            bits.resize(at + 1, 0);
        }
        let is_new = bits[at] & bit == 0;
        bits[at] |= bit;
        is_new
    }

    /// Whether a frame is in.
    pub fn has(&self, frame: Location) -> bool {
        let bits = self.bits.get(&frame.segment).and_then(|bits| bits.get(frame.ordinal as usize / 64));
        bits.is_some_and(|bits| bits & (1 << (frame.ordinal % 64)) != 0)
    }

    /// How many frames of a segment are in.
    pub fn count(&self, segment: u32) -> u64 {
        self.bits.get(&segment).map_or(0, |bits| bits.iter().map(|it| u64::from(it.count_ones())).sum())
    }
}

/// Something about each frame, by where it lies.
#[derive(Debug)]
pub(crate) struct FrameTable<T> {
    rows: HashMap<u32, Vec<T>>,
}

impl<T> Default for FrameTable<T> {
    fn default() -> Self {
        Self { rows: HashMap::new() }
    }
}

impl<T: Copy + Default> FrameTable<T> {
    /// What was noted; the default where nothing was.
    pub fn get(&self, frame: Location) -> T {
        let row = self.rows.get(&frame.segment);
        row.and_then(|row| row.get(frame.ordinal as usize)).copied().unwrap_or_default()
    }

    /// Notes something.
    pub fn set(&mut self, frame: Location, value: T) {
        let row = self.rows.entry(frame.segment).or_default();
        let at = frame.ordinal as usize;
        if at >= row.len() {
            row.resize(at + 1, T::default());
        }
        row[at] = value;
    }
}
