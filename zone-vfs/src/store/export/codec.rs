//! How the frames of an export are compressed: with zstd, which takes longer than the lz4 of a store, and less room.

use std::borrow::Cow;

use crate::chunks::MAX_FRAME;
use crate::segment::{can_be, unpack};

/// Behind those of a store's frames.
const ZSTD: u8 = 2;
const PLAIN: u8 = 0;
/// What zstd itself takes where nobody says otherwise.
const LEVEL: i32 = 3;

/// Compresses one frame after the other.
pub(super) struct Packing(zstd::bulk::Compressor<'static>);

impl Packing {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(zstd::bulk::Compressor::new(LEVEL)?))
    }

    /// `plain` as it is shipped, and how: compressed where that saves at least a sixteenth.
    pub fn pack<'a>(&mut self, plain: &'a [u8]) -> std::io::Result<(u8, Cow<'a, [u8]>)> {
        let packed = self.0.compress(plain)?;
        Ok(if packed.len() <= plain.len() - plain.len().div_ceil(16) {
            (ZSTD, packed.into())
        } else {
            (PLAIN, plain.into())
        })
    }
}

/// The content of a frame, which has `plain` bytes, or why `stored` is none by this codec. `stored` is read once its length
/// is known to be one that can be.
pub(super) fn unpacked<E>(
    codec: u8,
    plain: usize,
    stored: usize,
    read: impl FnOnce() -> Result<Vec<u8>, E>,
    bad: impl Fn(&'static str) -> E,
) -> Result<Vec<u8>, E> {
    if codec != ZSTD {
        can_be(codec, plain, stored).map_err(&bad)?;
        return unpack(codec, plain, &read()?).map_err(bad);
    }
    if stored >= plain || plain > MAX_FRAME {
        return Err(bad("the frame's lengths do not add up"));
    }
    // no more room is taken than it says, whatever the content claims
    match zstd::bulk::decompress(&read()?, plain) {
        Ok(unpacked) if unpacked.len() == plain => Ok(unpacked),
        Ok(_) | Err(_) => Err(bad("the content does not unpack")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack_all(codec: u8, plain: usize, stored: &[u8]) -> Result<Vec<u8>, &'static str> {
        unpacked(codec, plain, stored.len(), || Ok(stored.to_vec()), |reason| reason)
    }

    #[test]
    fn what_is_packed_unpacks_and_takes_less_room_where_it_can() {
        let mut packing = Packing::new().unwrap();
        let mut random = vec![0; 5_000];
        crate::device::simulated::Rng::new(1).fill(&mut random);
        for (plain, codec) in [(b"again ".repeat(2_000), ZSTD), (random, PLAIN), (Vec::new(), PLAIN)] {
            let (found, packed) = packing.pack(&plain).unwrap();
            assert_eq!(found, codec);
            assert!(codec == PLAIN || packed.len() < plain.len() / 20, "{}", packed.len());
            assert_eq!(unpack_all(codec, plain.len(), &packed).unwrap(), plain);
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let mut packing = Packing::new().unwrap();
        let plain = b"again ".repeat(2_000);
        let (_, packed) = packing.pack(&plain).unwrap();
        // longer and shorter than it says, cut off, other bytes, and more than a frame may have
        for len in [plain.len() - 1, plain.len() + 1, MAX_FRAME + 1, packed.len()] {
            assert!(unpack_all(ZSTD, len, &packed).is_err(), "{len}");
        }
        assert!(unpack_all(ZSTD, plain.len(), &packed[..packed.len() - 1]).is_err());
        assert!(unpack_all(ZSTD, plain.len(), &[7; 100]).is_err());
        assert!(unpack_all(3, plain.len(), &packed).is_err());
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], LEVEL).unwrap();
        assert!(unpack_all(ZSTD, MAX_FRAME, &bomb).is_err());
    }
}
