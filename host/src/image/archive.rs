//! Images in the archive: what they are as a sequence of chunks, and flat files made of that again.
//!
//! The memories follow each other, each from the beginning of a chunk. The store keeps chunks that are not all
//! zeros, and what several images have in common once; see [`zone_vfs::store::Attachment`].

use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use serde::{Deserialize, Serialize};
use zone_vfs::store::{ATTACHMENT_CHUNK, Attachment, StoreError};

use super::checks::Checks;
use super::flatten::written;
use super::format::FlatHeader;
use super::reference::{ChangedPage, FlatName, ImageReference};
use super::store::{Image, ImageStore};
use super::{ImageError, PAGE};

/// Raised whenever what an archived image says about itself changes its layout.
const VERSION: u8 = 1;

/// What is kept with an archived image: enough to find its memories in it.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    version: u8,
    /// Bytes of each memory.
    memories: Vec<u64>,
}

/// Memories grow by so many bytes.
const WASM_PAGE: u64 = 64 << 10;

/// Where each memory begins in an archived image, and where the last one ends.
fn starts(memories: &[u64]) -> Option<(Vec<u64>, u64)> {
    let (mut starts, mut end) = (Vec::with_capacity(memories.len()), 0u64);
    for len in memories {
        let start = end.checked_next_multiple_of(ATTACHMENT_CHUNK as u64)?;
        starts.push(start);
        end = start.checked_add(*len)?;
    }
    Some((starts, end))
}

/// Reads an image chunk by chunk, in order.
pub(crate) struct Reader<'a> {
    image: &'a Image,
    starts: Vec<u64>,
    len: u64,
    /// The memory that is read now.
    memory: usize,
    /// In its flat file there is no data from the first of these places to the second.
    hole: (u64, u64),
    /// Of its flat file.
    checks: Option<Checks>,
}

impl Image {
    /// The image as the archive takes it.
    pub(crate) fn reader(&self) -> Result<Reader<'_>, ImageError> {
        let (starts, len) = starts(&self.reference.memories).ok_or_else(|| ImageError::Damaged {
            file: self.reference.base.to_string(),
            reason: "its memories are longer than any can be".into(),
        })?;
        Ok(Reader { image: self, starts, len, memory: 0, hole: (0, 0), checks: Checks::read(&self.base)? })
    }
}

impl Image {
    /// Checks the changed pages against their checksums.
    pub(crate) fn check_changed(&self) -> Result<(), ImageError> {
        self.read_changed(&self.reference.pages, |_, _| Ok(()))
    }

    /// Checks all pages against their checksums.
    pub(crate) fn check_pages(&self) -> Result<(), ImageError> {
        self.check_changed()?;
        match Checks::read(&self.base)? {
            Some(checks) => checks.check_all(&self.base),
            None => Ok(()),
        }
    }

    /// Where the image begins to differ from what was archived of it, if it does. An image that does not read is
    /// [`StoreError::Io`].
    pub(crate) fn differs(&self, archived: &Attachment) -> Result<Option<u64>, StoreError> {
        let reading = |e: io::Error| StoreError::Io { what: "reading the image".into(), source: e };
        let mut reader = self.reader().map_err(|e| reading(io::Error::other(e)))?;
        if reader.len() != archived.bytes() {
            return Ok(Some(reader.len().min(archived.bytes())));
        }
        let (len, mut next, mut found) = (reader.len(), 0, None);
        let mut buffer = vec![0; ATTACHMENT_CHUNK];
        let mut compare = |index: u64, wanted: Option<&[u8]>| -> io::Result<()> {
            let offset = index * ATTACHMENT_CHUNK as u64;
            let here = &mut buffer[..(len - offset).min(ATTACHMENT_CHUNK as u64) as usize];
            here.fill(0);
            reader.fill(index, here)?;
            let same = wanted.map_or_else(|| here.iter().all(|byte| *byte == 0), |wanted| wanted == here);
            if !same {
                found.get_or_insert(offset);
            }
            Ok(())
        };
        archived.read(&mut |offset, chunk| {
            let index = offset / ATTACHMENT_CHUNK as u64;
            (next..index).try_for_each(|between| compare(between, None))?;
            next = index + 1;
            compare(index, Some(chunk))
        })?;
        (next..len.div_ceil(ATTACHMENT_CHUNK as u64))
            .try_for_each(|behind| compare(behind, None))
            .map_err(reading)?;
        Ok(found)
    }
}

impl Reader<'_> {
    /// Bytes of the whole.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What is kept about it.
    pub fn about(&self) -> Result<Vec<u8>, ImageError> {
        let about = About { version: VERSION, memories: self.image.reference.memories.clone() };
        postcard::to_stdvec(&about).map_err(|e| ImageError::Damaged {
            file: self.image.reference.base.to_string(),
            reason: e.to_string(),
        })
    }

    /// Fills `into`, which is all zeros, with chunk `index`; whether there may be anything but zeros in it.
    pub fn fill(&mut self, index: u64, into: &mut [u8]) -> io::Result<bool> {
        let offset = index * ATTACHMENT_CHUNK as u64;
        while self.starts.get(self.memory + 1).is_some_and(|next| *next <= offset) {
            self.memory += 1;
            self.hole = (0, 0);
        }
        let Some(start) = self.starts.get(self.memory) else { return Ok(false) };
        let (at, len) = (offset - start, self.image.reference.memories[self.memory]);
        let part = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..part];
        let from_base = self.base(at, into)?;
        let changed = self.pages(at, into.len());
        let lay = |page: &ChangedPage, content: &[u8; PAGE]| {
            let place = (u64::from(page.page) * PAGE as u64 - at) as usize;
            into[place..place + PAGE].copy_from_slice(content);
            Ok::<_, ImageError>(())
        };
        self.image.read_changed(changed, lay).map_err(io::Error::other)?;
        Ok(from_base || !changed.is_empty())
    }

    /// What the flat file has from `at` on in the memory; whether it has anything.
    fn base(&mut self, at: u64, into: &mut [u8]) -> io::Result<bool> {
        let Some((_, offset, len)) = self.image.base_memory(self.memory) else { return Ok(false) };
        let part = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(into.len());
        let (from, to) = (offset + at, offset + at + part as u64);
        if part == 0 || (self.hole.0 <= from && to <= self.hole.1) {
            return Ok(false);
        }
        let file = &self.image.base.file;
        let data = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => u64::MAX,
            Err(e) => return Err(e.into()),
        };
        if data >= to {
            self.hole = (from, data);
            return Ok(false);
        }
        file.read_exact_at(&mut into[..part], from)?;
        if let Some(checks) = &self.checks {
            let page = (at / PAGE as u64) as usize;
            checks.check(&self.image.base, self.memory, page, &into[..part]).map_err(io::Error::other)?;
        }
        Ok(true)
    }

    /// The changed pages among `len` bytes from `at` on in the memory.
    fn pages(&self, at: u64, len: usize) -> &[ChangedPage] {
        let pages = &self.image.reference.pages;
        let place = |bytes: u64| (self.memory as u16, (bytes / PAGE as u64) as u32);
        let first = pages.partition_point(|page| page.place() < place(at));
        let end = pages.partition_point(|page| page.place() < place(at + len as u64));
        &pages[first..end]
    }
}

/// Checks what was archived of an image against the lengths of its memories: `about` is what it says, `len` how long it
/// is. Gives what is wrong.
pub(crate) fn check_archived(memories: &[u64], about: &[u8], len: u64) -> Result<(), String> {
    let stated: About = match about.first() {
        Some(&VERSION) => postcard::from_bytes(about).map_err(|e| format!("its beginning: {e}"))?,
        found => return Err(format!("it is of version {found:?}, this one reads {VERSION}")),
    };
    if stated.memories != memories {
        return Err("it has other memories than the generation".into());
    }
    match starts(memories) {
        Some((_, end)) if end == len => {}
        _ => return Err("it has another length than its memories".into()),
    }
    if memories.iter().any(|len| !len.is_multiple_of(WASM_PAGE)) {
        return Err("a memory is no whole number of pages".into());
    }
    // a flat file of it can be made
    super::format::encode(&FlatHeader::of(memories, Some([0; 32]), Vec::new())).map(drop)
}

impl ImageStore {
    /// Makes the flat file `name` of the archived image of `reference`, each chunk verified. It appears whole
    /// and durable, or not at all.
    pub(crate) fn materialise(
        &self,
        name: &FlatName,
        reference: &ImageReference,
        archived: &Attachment,
    ) -> Result<(), ImageError> {
        let refused = |reason: String| ImageError::Archive { file: name.to_string(), reason };
        let memories = &reference.memories;
        check_archived(memories, archived.about(), archived.bytes()).map_err(refused)?;
        let digest = reference.digest().map_err(refused)?;
        let header = FlatHeader::of(memories, Some(digest), written(&reference.pages));
        self.write_archived(name, header, archived, memories)
    }

    /// Writes the flat file anew that `reference` lies on, and no page besides: what it holds is what the archive
    /// has of the image.
    pub(crate) fn rewrite_base(
        &self,
        reference: &ImageReference,
        archived: &Attachment,
    ) -> Result<(), ImageError> {
        let name = &reference.base;
        let header = self.flat(name)?.header.clone();
        let refused = |reason: &str| ImageError::Archive { file: name.to_string(), reason: reason.into() };
        let lengths = header.memories.iter().map(|memory| memory.len);
        if !reference.pages.is_empty() || header.memories.len() != reference.memories.len() {
            return Err(refused("it holds another image"));
        }
        if lengths.zip(&reference.memories).any(|(here, there)| here > *there) {
            return Err(refused("its memories are longer than those that were archived"));
        }
        // no shorter than what other images that lie on it state: behind its end there are zeros
        self.write_archived(name, header, archived, &reference.memories)
    }

    fn write_archived(
        &self,
        name: &FlatName,
        header: FlatHeader,
        archived: &Attachment,
        memories: &[u64],
    ) -> Result<(), ImageError> {
        let refused = |reason: String| ImageError::Archive { file: name.to_string(), reason };
        let starts = match starts(memories) {
            Some((starts, len)) if len == archived.bytes() => starts,
            _ => return Err(refused("it has another length than its memories".into())),
        };
        self.write_whole(name, header, |file, header| {
            let mut memory = 0;
            let read = archived.read(&mut |offset, chunk| {
                while starts.get(memory + 1).is_some_and(|next| *next <= offset) {
                    memory += 1;
                }
                let place = header.memories.get(memory).ok_or(io::ErrorKind::InvalidData)?;
                let at = offset - starts[memory];
                // behind a memory's end there are zeros up to the next chunk
                let part =
                    usize::try_from(place.len.saturating_sub(at)).unwrap_or(usize::MAX).min(chunk.len());
                write_data(file, &chunk[..part], place.offset + at)
            });
            read.map_err(|e| match e {
                StoreError::Io { source, .. } => Self::io(name)(source),
                e => refused(zone_vfs::told(&e)),
            })
        })
    }
}

/// Writes the pages that are not zeros: the others stay holes.
fn write_data(file: &std::fs::File, bytes: &[u8], at: u64) -> io::Result<()> {
    for (index, page) in bytes.chunks(PAGE).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            file.write_all_at(page, at + (index * PAGE) as u64)?;
        }
    }
    Ok(())
}
