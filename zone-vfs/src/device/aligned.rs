//! Memory that direct I/O accepts.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The unit of direct I/O: addresses, offsets and lengths are multiples of it. Bytes.
pub const BLOCK: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

const ZEROS: Block = Block([0; BLOCK]);

/// A growable byte buffer that starts at a multiple of [`BLOCK`].
#[derive(Clone, Default)]
pub struct AlignedBuf {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuf {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// `len` bytes of zeros.
    pub fn zeroed(len: usize) -> Self {
        Self { blocks: vec![ZEROS; len.div_ceil(BLOCK)], len }
    }

    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.grow_to(start + bytes.len());
        self[start..].copy_from_slice(bytes);
    }

    /// Appends zeros up to the next multiple of [`BLOCK`].
    pub fn pad(&mut self) {
        let start = self.len;
        self.grow_to(start.next_multiple_of(BLOCK));
        self[start..].fill(0);
    }

    /// Bytes between the old and the new end are of any value.
    fn grow_to(&mut self, len: usize) {
        let blocks = len.div_ceil(BLOCK);
        if blocks > self.blocks.len() {
            self.blocks.resize(blocks, ZEROS);
        }
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the vector holds at least `len` initialised bytes, blocks have no padding (their
        // size is their alignment), and the borrow of `self` keeps the vector as it is.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast::<u8>(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast::<u8>(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_pads_and_stays_aligned() {
        let mut buf = AlignedBuf::new();
        buf.extend_from_slice(&[7; 5000]);
        assert_eq!(buf.len(), 5000);
        buf.pad();
        assert_eq!(buf.len(), 2 * BLOCK);
        assert!(buf[..5000].iter().all(|b| *b == 7) && buf[5000..].iter().all(|b| *b == 0));
        assert_eq!(buf.as_ptr() as usize % BLOCK, 0);
        buf.clear();
        buf.extend_from_slice(b"x");
        buf.pad();
        assert_eq!(&buf[..2], b"x\0", "what was there before must not show in the padding");
        assert_eq!(buf.len(), BLOCK);
    }
}
