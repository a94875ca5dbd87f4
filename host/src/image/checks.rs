//! The checksums of a flat file's pages.
//!
//! A table behind the memories has four bytes for each page of them, in order: the page's CRC-32, combined by exclusive
//! or with that of a page of zeros, so that the table has holes where the memories have. The file's header has the
//! digest of the table. A page is checked when it goes on into another file or into the archive, by `fsck`, and, where
//! it is mapped, before anything is kept of what a guest did that may have used it (see [`super::touched`]).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use rustix::fs::SeekFrom;

use super::format::{CHECK, FlatHeader};
use super::reference::ChangedPage;
use super::store::FlatFile;
use super::{ImageError, PAGE};

/// Pages that are read at once.
const BATCH: usize = 64;

static OF_ZEROS: LazyLock<u32> = LazyLock::new(|| crc32fast::hash(&[0; PAGE]));

/// What the table has of a page.
fn entry(content: &[u8]) -> u32 {
    crc32fast::hash(content) ^ *OF_ZEROS
}

/// The entries of all pages of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checks {
    /// Where in `entries` each memory begins.
    starts: Vec<usize>,
    entries: Vec<u32>,
}

impl Checks {
    fn zeros(header: &FlatHeader) -> Self {
        let mut next = 0;
        let starts = header.memories.iter().map(|memory| {
            let start = next;
            next += (memory.len / PAGE as u64) as usize;
            start
        });
        let starts = starts.collect();
        Self { starts, entries: vec![0; next] }
    }

    /// Reads the table of a file; none where it is of version 1.
    pub fn read(flat: &FlatFile) -> Result<Option<Self>, ImageError> {
        let Some(digest) = &flat.header.checks else { return Ok(None) };
        let mut checks = Self::zeros(&flat.header);
        let mut bytes = vec![0; checks.entries.len() * CHECK as usize];
        flat.file
            .read_exact_at(&mut bytes, flat.header.table())
            .map_err(|source| ImageError::Io { file: flat.name.to_string(), source })?;
        if blake3::hash(&bytes) != *digest {
            let reason = "its table of checksums does not match its digest".into();
            return Err(ImageError::Damaged { file: flat.name.to_string(), reason });
        }
        for (entry, bytes) in checks.entries.iter_mut().zip(bytes.as_chunks().0) {
            *entry = u32::from_le_bytes(*bytes);
        }
        Ok(Some(checks))
    }

    /// The entries of what `file` holds, which is laid out as `header` says.
    pub fn of(file: &File, header: &FlatHeader) -> std::io::Result<Self> {
        let mut checks = Self::zeros(header);
        let mut buffer = vec![0; BATCH * PAGE];
        for (memory, start) in header.memories.iter().zip(checks.starts.clone()) {
            let (mut at, end) = (memory.offset, memory.offset + memory.len);
            while let Some((data, hole)) = next_data(file, at, end)? {
                // a file can have data up to anywhere
                let (mut from, to) = (data / PAGE as u64 * PAGE as u64, hole.next_multiple_of(PAGE as u64));
                while from < to {
                    let part = &mut buffer[..((to - from) as usize).min(BATCH * PAGE)];
                    file.read_exact_at(part, from)?;
                    let first = start + ((from - memory.offset) / PAGE as u64) as usize;
                    for (page, content) in part.chunks(PAGE).enumerate() {
                        checks.entries[first + page] = entry(content);
                    }
                    from += part.len() as u64;
                }
                at = to;
            }
        }
        Ok(checks)
    }

    /// Writes the table behind the memories, and gives its digest.
    pub fn write(&self, file: &File, header: &FlatHeader) -> std::io::Result<[u8; 32]> {
        let bytes: Vec<u8> = self.entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        for (index, part) in bytes.chunks(PAGE).enumerate() {
            if part.iter().any(|byte| *byte != 0) {
                file.write_all_at(part, header.table() + (index * PAGE) as u64)?;
            }
        }
        Ok(*blake3::hash(&bytes).as_bytes())
    }

    /// The entry of a page; that of zeros behind the end of a memory.
    fn get(&self, memory: usize, page: usize) -> u32 {
        let end = self.starts.get(memory + 1).copied().unwrap_or(self.entries.len());
        let start = self.starts.get(memory).copied().unwrap_or(end);
        if page < end - start { self.entries[start + page] } else { 0 }
    }

    /// The first page, by memory and index, that is not what `base` has there with `changed` laid over it.
    pub fn find_other(&self, base: &Self, changed: &[ChangedPage]) -> Option<(usize, usize)> {
        let mut changed = changed.iter().peekable();
        for (memory, start) in self.starts.iter().enumerate() {
            let end = self.starts.get(memory + 1).copied().unwrap_or(self.entries.len());
            for (page, entry) in self.entries[*start..end].iter().enumerate() {
                let laid = changed.next_if(|it| it.place() == (memory as u16, page as u32));
                let wanted = match laid {
                    Some(laid) if laid.slot == ChangedPage::ZERO => 0,
                    Some(laid) => laid.check ^ *OF_ZEROS,
                    None => base.get(memory, page),
                };
                if *entry != wanted {
                    return Some((memory, page));
                }
            }
        }
        None
    }

    /// Where the pages of a memory begin among those of all.
    pub fn start(&self, memory: usize) -> usize {
        self.starts.get(memory).copied().unwrap_or(self.entries.len())
    }

    /// Checks pages of a memory, from `page` on; `content` is of whole pages.
    pub fn check(
        &self,
        flat: &FlatFile,
        memory: usize,
        page: usize,
        content: &[u8],
    ) -> Result<(), ImageError> {
        for (page, content) in (page..).zip(content.chunks(PAGE)) {
            if entry(content) != self.get(memory, page) {
                return Err(damaged(flat, memory, page));
            }
        }
        Ok(())
    }

    /// Checks every page of a file.
    pub fn check_all(&self, flat: &FlatFile) -> Result<(), ImageError> {
        let found = Self::of(&flat.file, &flat.header)
            .map_err(|source| ImageError::Io { file: flat.name.to_string(), source })?;
        match found.find_other(self, &[]) {
            Some((memory, page)) => Err(damaged(flat, memory, page)),
            None => Ok(()),
        }
    }
}

/// That a page of it is not what it was.
pub(super) fn damaged(flat: &FlatFile, memory: usize, page: usize) -> ImageError {
    let reason = format!("page {page} of memory {memory} does not match its checksum");
    ImageError::Damaged { file: flat.name.to_string(), reason }
}

/// The next stretch of data of a file between two places, if there is any.
pub(super) fn next_data(file: &File, at: u64, end: u64) -> std::io::Result<Option<(u64, u64)>> {
    if at >= end {
        return Ok(None);
    }
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) if data < end => data,
        Ok(_) | Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?.min(end);
    Ok(Some((data, hole)))
}
