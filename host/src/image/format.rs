//! The layout of image files, version 1. `docs/format-images.md` is the normative text.
//!
//! Both kinds begin with one page of header:
//!
//! ```text
//! 0   8   magic: "DORMFLAT" or "DORMPAGE"
//! 8   4   format version (little endian, as all numbers)
//! 12  4   crc32 of the header's content
//! 16  4   length of the header's content
//! 20  ..  content: postcard of [`FlatHeader`] or [`PagesHeader`]
//! ```
//!
//! A flat file then holds each memory's bytes from the page-aligned offset that the header states,
//! with holes where pages are zero. A pages file holds raw pages, slot `n` at `(n + 1) * 4096`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ImageError, PAGE};

/// Raised whenever the layout of either file changes.
pub(super) const VERSION: u32 = 1;
const PREFIX: usize = 20;

pub(super) const FLAT: [u8; 8] = *b"DORMFLAT";
pub(super) const PAGES: [u8; 8] = *b"DORMPAGE";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlatHeader {
    pub memories: Vec<FlatMemory>,
    /// The digest of the image that was made flat, where it was made from one.
    pub source: Option<[u8; 32]>,
}

/// Where one memory lies in a flat file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlatMemory {
    /// From the start of the file; a multiple of the page size.
    pub offset: u64,
    /// Bytes; a multiple of the page size.
    pub len: u64,
}

impl FlatHeader {
    /// One memory after the other, behind the header.
    pub fn of(lengths: &[u64], source: Option<[u8; 32]>) -> Self {
        let mut offset = PAGE as u64;
        let memories = lengths
            .iter()
            .map(|&len| {
                let memory = FlatMemory { offset, len };
                offset += len;
                memory
            })
            .collect();
        Self { memories, source }
    }

    /// Bytes of the whole file.
    pub fn file_len(&self) -> u64 {
        self.memories.last().map_or(PAGE as u64, |m| m.offset + m.len)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PagesHeader {
    pub agent: Uuid,
    pub number: u32,
}

/// The header page for `content`.
pub(super) fn encode<T: Serialize>(magic: [u8; 8], content: &T) -> Result<Vec<u8>, String> {
    let content = postcard::to_stdvec(content).map_err(|e| e.to_string())?;
    if PREFIX + content.len() > PAGE {
        return Err("too many memories for an image".into());
    }
    let mut page = vec![0u8; PAGE];
    page[..8].copy_from_slice(&magic);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&crc32fast::hash(&content).to_le_bytes());
    page[16..20].copy_from_slice(&(content.len() as u32).to_le_bytes());
    page[PREFIX..PREFIX + content.len()].copy_from_slice(&content);
    Ok(page)
}

fn number(page: &[u8; PAGE], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

/// Reads the header of `file`, which is called `name`.
pub(super) fn read<T: DeserializeOwned>(magic: [u8; 8], file: &File, name: &str) -> Result<T, ImageError> {
    let damaged = |reason: &str| ImageError::Damaged { file: name.into(), reason: reason.into() };
    let mut page = [0u8; PAGE];
    file.read_exact_at(&mut page, 0).map_err(|e| {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            damaged("shorter than its header")
        } else {
            ImageError::Io { file: name.into(), source: e }
        }
    })?;
    if page[..8] != magic {
        return Err(damaged("not an image file of this kind"));
    }
    let found = number(&page, 8);
    if found > VERSION {
        return Err(ImageError::Newer { file: name.into(), found, supported: VERSION });
    }
    let len = number(&page, 16) as usize;
    let content =
        page.get(PREFIX..PREFIX + len).ok_or_else(|| damaged("its header has an impossible length"))?;
    if found != VERSION || crc32fast::hash(content) != number(&page, 12) {
        return Err(damaged("its header does not match its checksum"));
    }
    postcard::from_bytes(content).map_err(|_| damaged("its header cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout of version 1, byte for byte: a change here needs a new version.
    #[test]
    fn headers_are_as_version_1_wrote_them() {
        assert_eq!(VERSION, 1, "keep a golden of every version");
        let flat = encode(FLAT, &FlatHeader::of(&[65536, 131_072], Some([7; 32]))).unwrap();
        assert_eq!(&flat[..8], b"DORMFLAT");
        assert_eq!(&flat[20..34], &[2, 0x80, 0x20, 0x80, 0x80, 4, 0x80, 0xa0, 4, 0x80, 0x80, 8, 1, 7]);
        let pages = encode(PAGES, &PagesHeader { agent: Uuid::nil(), number: 7 }).unwrap();
        assert_eq!(&pages[..8], b"DORMPAGE");
        assert_eq!(pages[16], 18, "a length-prefixed uuid and one number");
        assert_eq!(pages[20 + 17], 7);
    }

    #[test]
    fn a_header_that_was_changed_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let page = encode(FLAT, &FlatHeader::of(&[65536], None)).unwrap();
        let read_back = || read::<FlatHeader>(FLAT, &file, "x");
        file.write_all_at(&page, 0).unwrap();
        assert_eq!(read_back().unwrap(), FlatHeader::of(&[65536], None));
        for at in [0, 8, 13, 17, 22] {
            let mut changed = page.clone();
            changed[at] ^= 0x40;
            file.write_all_at(&changed, 0).unwrap();
            assert!(read_back().is_err(), "a changed byte at {at} went unseen");
        }
    }
}
