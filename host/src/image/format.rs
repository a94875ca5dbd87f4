//! The layout of image files. `docs/format-images.md` is the normative text.
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
//! with holes where pages are zero, and from version 2 on a table of checksums (see [`super::checks`]). A pages file
//! holds raw pages, slot `n` at `(n + 1) * 4096`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ImageError, PAGE};

const PREFIX: usize = 20;
/// Bytes of a checksum in the table.
pub(super) const CHECK: u64 = 4;

// what is on disk: another value is another format
const _: () = assert!(
    PAGE == 4096 && PREFIX == 20 && CHECK == 4 && FlatHeader::VERSION == 2 && PagesHeader::VERSION == 1
);

/// What a kind of image file says at its beginning.
pub(super) trait Header: Serialize + Sized {
    /// What the file begins with.
    const MAGIC: [u8; 8];
    /// Raised whenever the layout of the file changes.
    const VERSION: u32;

    /// Reads the content of a header of `version`, which is no newer.
    fn decode(version: u32, content: &[u8]) -> Option<Self>;
}

/// The beginning of a flat file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlatHeader {
    pub memories: Vec<FlatMemory>,
    /// The digest of the image that was made flat, where it was made from one.
    pub source: Option<[u8; 32]>,
    /// Pages that the agent had written when the file was made, so that it is likely to write them again.
    pub written: Vec<PageRun>,
    /// blake3 of the table of checksums, which lies behind the memories; none in version 1, which has no table.
    pub checks: Option<[u8; 32]>,
}

/// The content of version 1.
#[derive(Serialize, Deserialize)]
struct FlatHeader1 {
    memories: Vec<FlatMemory>,
    source: Option<[u8; 32]>,
}

/// Pages of a memory that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRun {
    /// Index of the memory.
    pub memory: u16,
    /// Index of the first page inside the memory.
    pub page: u32,
    /// How many.
    pub count: u32,
}

/// Where one memory lies in a flat file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlatMemory {
    /// From the start of the file; a multiple of the page size.
    pub offset: u64,
    /// Bytes; a multiple of the page size.
    pub len: u64,
}

impl Header for FlatHeader {
    const MAGIC: [u8; 8] = *b"DORMFLAT";
    const VERSION: u32 = 2;

    fn decode(version: u32, content: &[u8]) -> Option<Self> {
        if version > 1 {
            return postcard::from_bytes(content).ok();
        }
        let FlatHeader1 { memories, source } = postcard::from_bytes(content).ok()?;
        Some(Self { memories, source, written: Vec::new(), checks: None })
    }
}

impl FlatHeader {
    /// One memory after the other, behind the header; the digest of the checksums is put in once there are any.
    pub fn of(lengths: &[u64], source: Option<[u8; 32]>, written: Vec<PageRun>) -> Self {
        let mut offset = PAGE as u64;
        let memories = lengths
            .iter()
            .map(|&len| {
                let memory = FlatMemory { offset, len };
                offset += len;
                memory
            })
            .collect();
        Self { memories, source, written, checks: None }
    }

    /// Where the memories end, and the table of checksums begins.
    pub fn table(&self) -> u64 {
        self.memories.last().map_or(PAGE as u64, |m| m.offset + m.len)
    }

    /// Pages of all memories.
    pub fn pages(&self) -> u64 {
        self.memories.iter().map(|m| m.len / PAGE as u64).sum()
    }

    /// Bytes of the whole file.
    pub fn file_len(&self) -> u64 {
        self.table() + if self.checks.is_some() { self.pages() * CHECK } else { 0 }
    }

    /// Whether the memories lie where they have to.
    pub fn is_sound(&self) -> bool {
        let lengths: Vec<u64> = self.memories.iter().map(|m| m.len).collect();
        let fits = lengths.iter().try_fold(PAGE as u64, |end, len| end.checked_add(*len)).is_some();
        fits && lengths.iter().all(|len| len % PAGE as u64 == 0)
            && self.memories == Self::of(&lengths, None, Vec::new()).memories
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PagesHeader {
    pub agent: Uuid,
    pub number: u32,
}

impl Header for PagesHeader {
    const MAGIC: [u8; 8] = *b"DORMPAGE";
    const VERSION: u32 = 1;

    fn decode(_version: u32, content: &[u8]) -> Option<Self> {
        postcard::from_bytes(content).ok()
    }
}

/// The header page for `content`.
pub(super) fn encode<T: Header>(content: &T) -> Result<Vec<u8>, String> {
    let content = postcard::to_stdvec(content).map_err(|e| e.to_string())?;
    if PREFIX + content.len() > PAGE {
        return Err("too many memories for an image".into());
    }
    let mut page = vec![0u8; PAGE];
    page[..8].copy_from_slice(&T::MAGIC);
    page[8..12].copy_from_slice(&T::VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&crc32fast::hash(&content).to_le_bytes());
    page[16..20].copy_from_slice(&(content.len() as u32).to_le_bytes());
    page[PREFIX..PREFIX + content.len()].copy_from_slice(&content);
    Ok(page)
}

fn number(page: &[u8; PAGE], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

/// Reads the header of `file`, which is called `name`.
pub(super) fn read<T: Header>(file: &File, name: &str) -> Result<T, ImageError> {
    let damaged = |reason: &str| ImageError::Damaged { file: name.into(), reason: reason.into() };
    let mut page = [0u8; PAGE];
    file.read_exact_at(&mut page, 0).map_err(|e| {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            damaged("shorter than its header")
        } else {
            ImageError::Io { file: name.into(), source: e }
        }
    })?;
    if page[..8] != T::MAGIC {
        return Err(damaged("not an image file of this kind"));
    }
    let found = number(&page, 8);
    if found > T::VERSION {
        return Err(ImageError::Newer { file: name.into(), found, supported: T::VERSION });
    }
    let len = number(&page, 16) as usize;
    let content =
        page.get(PREFIX..PREFIX + len).ok_or_else(|| damaged("its header has an impossible length"))?;
    if found == 0 || crc32fast::hash(content) != number(&page, 12) {
        return Err(damaged("its header does not match its checksum"));
    }
    T::decode(found, content).ok_or_else(|| damaged("its header cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: PageRun = PageRun { memory: 1, page: 300, count: 2 };

    /// The layout byte for byte: a change here needs a new version.
    #[test]
    fn headers_are_as_their_versions_wrote_them() {
        let header = FlatHeader {
            checks: Some([9; 32]),
            ..FlatHeader::of(&[65536, 131_072], Some([7; 32]), vec![RUN])
        };
        let flat = encode(&header).unwrap();
        assert_eq!((&flat[..8], flat[8]), (&b"DORMFLAT"[..], 2));
        assert_eq!(&flat[20..34], &[2, 0x80, 0x20, 0x80, 0x80, 4, 0x80, 0xa0, 4, 0x80, 0x80, 8, 1, 7]);
        assert_eq!(
            &flat[65..72],
            &[1, 1, 0xac, 2, 2, 1, 9],
            "runs of pages, then the digest of the checksums"
        );
        let pages = encode(&PagesHeader { agent: Uuid::nil(), number: 7 }).unwrap();
        assert_eq!((&pages[..8], pages[8]), (&b"DORMPAGE"[..], 1));
        assert_eq!(pages[16], 18, "a length-prefixed uuid and one number");
        assert_eq!(pages[20 + 17], 7);
    }

    #[test]
    fn a_flat_header_of_version_1_is_read() {
        let whole = FlatHeader::of(&[65536, 131_072], Some([7; 32]), Vec::new());
        let first = FlatHeader1 { memories: whole.memories.clone(), source: whole.source };
        let content = postcard::to_stdvec(&first).unwrap();
        assert_eq!(FlatHeader::decode(1, &content), Some(whole));
    }

    #[test]
    fn a_header_that_was_changed_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let header = FlatHeader::of(&[65536], None, vec![RUN]);
        let page = encode(&header).unwrap();
        let read_back = || read::<FlatHeader>(&file, "x");
        file.write_all_at(&page, 0).unwrap();
        assert_eq!(read_back().unwrap(), header);
        for at in [0, 8, 13, 17, 22] {
            let mut changed = page.clone();
            changed[at] ^= 0x40;
            file.write_all_at(&changed, 0).unwrap();
            assert!(read_back().is_err(), "a changed byte at {at} went unseen");
        }
    }

    #[test]
    fn memories_that_overlap_or_have_no_end_are_not_sound() {
        let header = FlatHeader::of(&[65536, 65536], None, Vec::new());
        assert!(header.is_sound());
        for (offset, len) in [(4096, 65536), (69632, 65535), (69632, u64::MAX - 4095)] {
            let memories = vec![header.memories[0], FlatMemory { offset, len }];
            assert!(!FlatHeader { memories, ..header.clone() }.is_sound());
        }
    }
}
