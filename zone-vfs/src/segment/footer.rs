//! The head of a segment, and footers: what the segment holds since the footer before.
//!
//! A footer is found through the trailer at the very end of a file. Frames may follow a footer;
//! the next footer points back to it. What it lists is believed without reading it, and a crash
//! can cut a file off in the middle of a guest's data; so a footer carries a keyed hash, which no
//! guest can make.

use super::{FORMAT_VERSION, Location};
use crate::id::Hash;

/// Bytes at the start of a segment.
pub(super) const SEGMENT_HEADER: usize = 24;
const SEGMENT_MAGIC: [u8; 8] = *b"dormsegm";

const FOOTER_MAGIC: [u8; 4] = *b"dIdx";
const FOOTER_VERSION: u32 = 1;
const FOOTER_HEADER: usize = 20;
const ENTRY: usize = 44;
const MAC: usize = 16;
const TRAILER: usize = 12 + MAC;
const TRAILER_MAGIC: [u8; 4] = *b"dEnd";

/// What is known of a frame without reading it.
pub(super) type Entry = (Hash, Location);

pub(super) fn segment_header(number: u32) -> [u8; SEGMENT_HEADER] {
    let mut header = [0; SEGMENT_HEADER];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&header[..16]);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    header
}

/// The version in a segment's header; `None` where the header does not read.
pub(super) fn segment_version(bytes: &[u8]) -> Option<u32> {
    let header = bytes.first_chunk::<SEGMENT_HEADER>()?;
    let sound = header[..8] == SEGMENT_MAGIC && u32_at(header, 16) == crc32fast::hash(&header[..16]);
    sound.then(|| u32_at(header, 8))
}

/// A footer that is to lie at `offset`, with its trailer. `before` is the footer before, 0 for none.
pub(super) fn encode(entries: &[Entry], before: u64, offset: u64, key: &[u8; 32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FOOTER_HEADER + entries.len() * ENTRY + TRAILER);
    bytes.extend_from_slice(&FOOTER_MAGIC);
    bytes.extend_from_slice(&FOOTER_VERSION.to_le_bytes());
    bytes.extend_from_slice(&before.to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for (hash, location) in entries {
        bytes.extend_from_slice(&hash.0);
        bytes.extend_from_slice(&location.offset.to_le_bytes());
        bytes.extend_from_slice(&location.stored.to_le_bytes());
    }
    bytes.extend_from_slice(&TRAILER_MAGIC);
    bytes.extend_from_slice(&offset.to_le_bytes());
    let mac = mac(&bytes, key);
    bytes.extend_from_slice(&mac);
    bytes
}

/// Bytes of a footer with its trailer, as far as its header tells; `None` where there is none.
pub(super) fn peek_len(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<FOOTER_HEADER>()?;
    let known = header[..4] == FOOTER_MAGIC && u32_at(header, 4) == FOOTER_VERSION;
    known.then(|| FOOTER_HEADER + u32_at(header, 16) as usize * ENTRY + TRAILER)
}

/// The version of a footer, by its header, where it is newer than this program knows. Every version keeps the header's first
/// eight bytes, the trailer, and the keyed hash at the end.
pub(super) fn newer_version(bytes: &[u8]) -> Option<u32> {
    let header = bytes.first_chunk::<FOOTER_HEADER>()?;
    (header[..4] == FOOTER_MAGIC).then(|| u32_at(header, 4)).filter(|version| *version > FOOTER_VERSION)
}

/// The newest version of a footer that this program knows.
pub(super) const fn known_version() -> u32 {
    FOOTER_VERSION
}

/// Whether `bytes`, a footer with its trailer, was made with `key`.
pub(super) fn is_sound(bytes: &[u8], key: &[u8; 32]) -> bool {
    let Some((content, sum)) = bytes.split_last_chunk::<MAC>() else { return false };
    bytes.len() >= FOOTER_HEADER + TRAILER && *sum == mac(content, key)
}

/// Where the last footer lies, if there is one, by what may be a trailer at the end of `bytes`.
pub(super) fn trailer_offset(bytes: &[u8]) -> Option<u64> {
    let trailer = bytes.last_chunk::<TRAILER>()?;
    (trailer[..4] == TRAILER_MAGIC).then(|| u64_at(trailer, 4))
}

/// Bytes that hold a trailer.
pub(super) const fn trailer_len() -> usize {
    TRAILER
}

/// Bytes that hold a footer's header.
pub(super) const fn header_len() -> usize {
    FOOTER_HEADER
}

/// The entries of a sound footer of `segment`, and the footer before it.
pub(super) fn decode(bytes: &[u8], segment: u32) -> (Vec<Entry>, u64) {
    let (entries, _) = bytes[FOOTER_HEADER..bytes.len() - TRAILER].as_chunks::<ENTRY>();
    let entries = entries.iter().map(|entry| {
        let mut hash = [0; 32];
        hash.copy_from_slice(&entry[..32]);
        let (offset, stored) = (u64_at(entry, 32), u32_at(entry, 40));
        (Hash(hash), Location { segment, offset, stored, ordinal: 0 })
    });
    (entries.collect(), u64_at(bytes, 8))
}

/// The start of the keyed blake3 hash of `bytes`. The key is one for footers alone, so that the
/// address of content that imitates a footer is not its hash.
fn mac(bytes: &[u8], key: &[u8; 32]) -> [u8; MAC] {
    let key = &blake3::derive_key("dormouse 2026 segment footer", key);
    let mut mac = [0; MAC];
    mac.copy_from_slice(&blake3::keyed_hash(key, bytes).as_bytes()[..MAC]);
    mac
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
