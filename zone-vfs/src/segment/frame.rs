//! One chunk or node as bytes: it describes itself, and can be copied anywhere as it is.

use std::borrow::Cow;

use crate::chunks::{FrameKind, MAX_FRAME};
use crate::id::Hash;

/// Bytes before the stored content.
pub(super) const FRAME_HEADER: usize = 84;
pub(super) const FRAME_MAGIC: [u8; 4] = *b"dFrm";
/// The version of a frame; it is in each one, since frames travel.
const FRAME_VERSION: u8 = 1;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

const CHECKSUM_AT: usize = 80;

/// A frame's header, checked as far as it goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub hash: Hash,
    codec: u8,
    plain: usize,
    /// Bytes behind the header.
    pub stored: usize,
}

impl FrameHeader {
    pub fn frame_len(&self) -> usize {
        FRAME_HEADER + self.stored
    }
}

/// `plain` as it is stored, and how: compressed where that saves at least an eighth.
fn pack(plain: &[u8]) -> (u8, Cow<'_, [u8]>) {
    let packed = lz4_flex::block::compress(plain);
    if packed.len() <= plain.len() - plain.len().div_ceil(8) {
        (LZ4, packed.into())
    } else {
        (PLAIN, plain.into())
    }
}

/// Whether content of `plain` bytes can be `stored` bytes long by this codec.
pub(crate) fn can_be(codec: u8, plain: usize, stored: usize) -> Result<(), &'static str> {
    let fits = match codec {
        PLAIN => stored == plain,
        LZ4 => stored < plain,
        _ => return Err("the frame has an unknown codec"),
    };
    if fits && plain <= MAX_FRAME { Ok(()) } else { Err("the frame's lengths do not add up") }
}

/// The `plain` bytes that `stored` are, by a codec with which they [can be](can_be) these.
pub(crate) fn unpack(codec: u8, plain: usize, stored: &[u8]) -> Result<Vec<u8>, &'static str> {
    if codec != LZ4 {
        return Ok(stored.to_vec());
    }
    let mut unpacked = vec![0; plain];
    match lz4_flex::block::decompress_into(stored, &mut unpacked) {
        Ok(len) if len == plain => Ok(unpacked),
        Ok(_) | Err(_) => Err("the content does not unpack"),
    }
}

/// The frame that holds `plain`.
pub(super) fn encode(kind: FrameKind, plain: &[u8], hash: &Hash) -> Vec<u8> {
    let (codec, stored) = pack(plain);
    let mut frame = Vec::with_capacity(FRAME_HEADER + stored.len());
    frame.extend_from_slice(&FRAME_MAGIC);
    frame.extend_from_slice(&[FRAME_VERSION, kind as u8, codec, 0]);
    frame.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    // Room for the id of an encryption key (8 bytes) and a nonce (24): none, so far.
    frame.extend_from_slice(&[0; 32]);
    frame.extend_from_slice(&hash.0);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&stored);
    let sum = checksum(&frame);
    frame[CHECKSUM_AT..FRAME_HEADER].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// The header at the start of `bytes`, or why there is none.
pub(super) fn peek(bytes: &[u8]) -> Result<FrameHeader, &'static str> {
    let Some((header, _)) = bytes.split_first_chunk::<FRAME_HEADER>() else {
        return Err("a frame is cut off");
    };
    if header[..4] != FRAME_MAGIC {
        return Err("no frame begins here");
    }
    if header[4] > FRAME_VERSION {
        return Err("the frame is of a newer version of this program");
    }
    if header[4] != FRAME_VERSION {
        return Err("the frame has an unknown version");
    }
    if !(FrameKind::Chunk as u8..=FrameKind::Root as u8).contains(&header[5]) {
        return Err("the frame has an unknown kind");
    }
    if header[7] != 0 || header[16..48] != [0; 32] {
        return Err("the frame is encrypted, or has unknown flags");
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(&header[48..80]);
    let found = FrameHeader {
        hash: Hash(hash),
        codec: header[6],
        plain: u32_at(header, 8),
        stored: u32_at(header, 12),
    };
    can_be(found.codec, found.plain, found.stored)?;
    Ok(found)
}

/// Whether a frame whose header this is says that it holds this.
pub(super) fn is_kind(header: &[u8; FRAME_HEADER], kind: FrameKind) -> bool {
    header[..4] == FRAME_MAGIC && header[5] == kind as u8
}

/// The version of the frame at the start of `bytes`, where it is newer than this program knows, and the newest that it
/// does. Every version keeps magic, version and length where they are, and the checksum.
pub(super) fn newer_version(bytes: &[u8]) -> Option<(u32, u32)> {
    let header = bytes.first_chunk::<FRAME_HEADER>()?;
    let is_newer = header[..4] == FRAME_MAGIC && header[4] > FRAME_VERSION;
    let whole = bytes.get(..FRAME_HEADER.checked_add(u32_at(header, 12))?)?;
    (is_newer && is_sound(whole)).then_some((header[4].into(), FRAME_VERSION.into()))
}

/// Whether `frame`, the whole of it, is what its checksum says.
pub(super) fn is_sound(frame: &[u8]) -> bool {
    u32_at(frame, CHECKSUM_AT) == checksum(frame) as usize
}

/// The plain content of `frame`, the whole of it, which hashes to what the header says.
pub(super) fn plain(header: &FrameHeader, frame: &[u8], key: &[u8; 32]) -> Result<Vec<u8>, &'static str> {
    let stored = frame.get(FRAME_HEADER..header.frame_len()).ok_or("a frame is cut off")?;
    let plain = unpack(header.codec, header.plain, stored)?;
    if Hash::of(key, &plain) != header.hash {
        return Err("the content does not hash to its address");
    }
    Ok(plain)
}

fn checksum(frame: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&frame[..CHECKSUM_AT]);
    sum.update(&frame[FRAME_HEADER..]);
    sum.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_content() {
        let key = [3; 32];
        let noise = blake3::hash(b"noise").as_bytes().to_vec();
        for content in [&b""[..], b"x", &vec![0; 65536], &noise, &vec![1; MAX_FRAME]] {
            let hash = Hash::of(&key, content);
            let frame = encode(FrameKind::Node, content, &hash);
            assert!(frame.len() <= FRAME_HEADER + content.len());
            let header = peek(&frame).unwrap();
            assert_eq!((header.hash, header.frame_len()), (hash, frame.len()));
            assert!(is_sound(&frame));
            assert_eq!(plain(&header, &frame, &key).unwrap(), content);
            assert!(plain(&header, &frame, &[4; 32]).is_err(), "another tenant's key");
        }
        assert!(encode(FrameKind::Chunk, &vec![0; 65536], &Hash([0; 32])).len() < 1000, "compressed");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_of_frames_panic(
            content in proptest::collection::vec(0u8..4, 0..300),
            changes in proptest::collection::vec((0..400usize, 0u8..), 0..6),
            cut in 0..500usize,
        ) {
            let key = [3; 32];
            let mut frame = encode(FrameKind::Chunk, &content, &Hash::of(&key, &content));
            for (at, byte) in changes {
                if let Some(changed) = frame.get_mut(at) {
                    *changed = byte;
                }
            }
            frame.truncate(cut);
            if let Ok(header) = peek(&frame)
                && let Ok(plain) = plain(&header, &frame, &key)
            {
                proptest::prop_assert_eq!(plain, content);
            }
        }
    }

    #[test]
    fn no_bit_of_a_frame_can_change_unnoticed() {
        let key = [3; 32];
        let content = b"some content some content some content some content".repeat(3);
        let hash = Hash::of(&key, &content);
        let sound = encode(FrameKind::Chunk, &content, &hash);
        for bit in 0..sound.len() * 8 {
            let mut frame = sound.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            let passes = peek(&frame).is_ok_and(|it| it.frame_len() == frame.len() && is_sound(&frame));
            assert!(!passes, "bit {bit}");
        }
    }
}
