//! Tests of segments over every device, and under crashes of the simulated one.

mod crash;
mod failures;
mod functions;

use super::*;
use crate::chunks::{ChunkStore, FrameKind, MAX_FRAME};
use crate::device::Caching;
use crate::device::simulated::Simulated;
use crate::id::Hash;

const KEY: [u8; 32] = [7; 32];

fn small() -> SegmentOptions {
    SegmentOptions { segment_len: 20_000, write_buffer: 3_000, cache: 10_000, ..SegmentOptions::default() }
}

fn start(device: &Simulated) -> Segments {
    Segments::open(Arc::new(device.clone()), KEY, small()).unwrap()
}

/// Content that does not compress, different for each number.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    crate::device::simulated::Rng::new(number).fill(&mut bytes);
    bytes
}

impl Segments {
    /// What the index names.
    pub(crate) fn addresses(&self) -> Vec<Hash> {
        self.lock().index.addresses()
    }

    /// What the index names and does not read.
    pub(crate) fn unreadable(&self) -> Vec<Hash> {
        self.addresses().into_iter().filter(|hash| self.get(hash).is_err()).collect()
    }
}
