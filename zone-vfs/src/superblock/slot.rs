//! One slot as bytes. Magic, version and checksum lie where they lie in every version.

use uuid::Uuid;

use super::{FORMAT_VERSION, Superblock};
use crate::device::{AlignedBuf, BLOCK};
use crate::id::Hash;
use crate::log::LogPosition;

const MAGIC: [u8; 8] = *b"dormouse";

pub(super) enum Slot {
    Valid(Superblock),
    Newer(u32),
    Invalid,
}

pub(super) fn encode(superblock: &Superblock) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..8].copy_from_slice(&MAGIC);
    block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    block[16..24].copy_from_slice(&superblock.sequence.to_le_bytes());
    block[24..40].copy_from_slice(superblock.store.as_bytes());
    block[40..56].copy_from_slice(superblock.incarnation.as_bytes());
    block[56..64].copy_from_slice(&superblock.log.file_generation.to_le_bytes());
    block[64..72].copy_from_slice(&superblock.log.offset.to_le_bytes());
    block[72..80].copy_from_slice(&superblock.log.group.to_le_bytes());
    if let Some(hash) = superblock.catalogue {
        block[80] = 1;
        block[81..113].copy_from_slice(&hash.0);
    }
    let sum = checksum(&block);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
    block
}

pub(super) fn decode(block: &[u8]) -> Slot {
    if block.len() != BLOCK || block[..8] != MAGIC || block[12..16] != checksum(block).to_le_bytes() {
        return Slot::Invalid;
    }
    let version = u32::from_le_bytes(field(block, 8));
    if version > FORMAT_VERSION {
        return Slot::Newer(version);
    }
    if version != FORMAT_VERSION || block[80] > 1 {
        return Slot::Invalid;
    }
    Slot::Valid(Superblock {
        sequence: u64::from_le_bytes(field(block, 16)),
        store: Uuid::from_bytes(field(block, 24)),
        incarnation: Uuid::from_bytes(field(block, 40)),
        log: LogPosition {
            file_generation: u64::from_le_bytes(field(block, 56)),
            offset: u64::from_le_bytes(field(block, 64)),
            group: u64::from_le_bytes(field(block, 72)),
        },
        catalogue: (block[80] == 1).then(|| Hash(field(block, 81))),
    })
}

/// The checksum of a whole block, in which the field for it counts as zero.
pub(super) fn checksum(block: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&block[..12]);
    sum.update(&[0; 4]);
    sum.update(&block[16..]);
    sum.finalize()
}

fn field<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[at..at + N]);
    bytes
}
