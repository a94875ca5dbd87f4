//! Pause: the pages that an instance has written become an image.

use std::io::IoSlice;
use std::sync::Arc;

use uuid::Uuid;

use super::dirty::{DirtyTracking, candidates};
use super::flatten::Page;
use super::reference::{ChangedPage, FlatName, ImageReference};
use super::slot::SlotMemory;
use super::store::{Image, ImageStore, PAGES_PER_FILE, lock};
use super::{ImageError, PAGE};

/// With more changed pages than this an image is written flat at once: 64 MiB.
const MAX_CHANGED: usize = 16_384;
/// Files that an image may lie in before it is written flat.
const MAX_FILES: usize = 8;
/// Buffers of one vectored write.
const BATCH: usize = 256;
/// Pages of the base that are read at once to be compared: 256 KiB.
const COMPARED: usize = 64;
/// Bytes of linear memory in one image, at most.
const MAX_BYTES: u64 = 64 << 30;

impl ImageStore {
    /// Writes the first image of an instance, flat and durable: every page that is not zero.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub unsafe fn capture_flat(
        &self,
        memories: &[Arc<SlotMemory>],
        name: &FlatName,
    ) -> Result<Image, ImageError> {
        let lengths: Vec<u64> = memories.iter().map(|m| m.len() as u64).collect();
        let mut pages = Vec::new();
        for (index, memory) in memories.iter().enumerate() {
            let ranges = candidates(memory, self.tracking).map_err(ImageError::Map)?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { memory.bytes() };
            for page in ranges.into_iter().flatten() {
                let content = page_of(bytes, page);
                if !is_zero(content) {
                    pages.push((index as u16, page as u32, content));
                }
            }
        }
        self.write_flat(name, &lengths, None, &pages)?;
        self.flat_image(name)
    }

    /// Takes the image of an instance over which `mapped` was mapped. The pages that changed since
    /// are appended to a file of `agent`'s and are durable when this returns; `flat` names the file
    /// that is written instead where so much has changed that a flat image is better.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub unsafe fn capture(
        &self,
        memories: &[Arc<SlotMemory>],
        mapped: &Image,
        agent: Uuid,
        flat: &FlatName,
    ) -> Result<Image, ImageError> {
        // SAFETY: the caller's promise.
        let image = unsafe { self.capture_unsynced(memories, mapped, agent, flat)? };
        image.sync()?;
        Ok(image)
    }

    /// As [`capture`](Self::capture), and what was appended is durable only after a [`sync`](Image::sync): no record may
    /// name the image before.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub unsafe fn capture_unsynced(
        &self,
        memories: &[Arc<SlotMemory>],
        mapped: &Image,
        agent: Uuid,
        flat: &FlatName,
    ) -> Result<Image, ImageError> {
        let lengths: Vec<u64> = memories.iter().map(|m| m.len() as u64).collect();
        if lengths.len() != mapped.reference.memories.len() {
            return Err(ImageError::Mismatch {
                image: mapped.reference.memories.len(),
                instance: lengths.len(),
            });
        }
        if lengths.iter().sum::<u64>() > MAX_BYTES {
            return Err(ImageError::TooLarge {
                pages: (lengths.iter().sum::<u64>() / PAGE as u64) as usize,
                limit: (MAX_BYTES / PAGE as u64) as usize,
            });
        }
        let mut files = mapped.files.clone();
        let mut known: Vec<(ChangedPage, &[u8; PAGE])> = Vec::new();
        let mut fresh: Vec<Page<'_>> = Vec::new();
        for (index, memory) in memories.iter().enumerate() {
            let index = index as u16;
            let ranges = candidates(memory, self.tracking).map_err(ImageError::Map)?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { memory.bytes() };
            let populated = memory.populated();
            let base = Base::new(mapped, index, memory.was_copied(), &populated, self.tracking);
            let mut unsure = Vec::new();
            for page in ranges.into_iter().flatten() {
                let content = page_of(bytes, page);
                let page = page as u32;
                match mapped.find(index, page) {
                    Some(changed) => known.push((*changed, content)),
                    None => match base.differs(page, content) {
                        Some(true) => fresh.push((index, page, content)),
                        Some(false) => {}
                        None => unsure.push((index, page, content)),
                    },
                }
            }
            base.compare(&unsure, &mut fresh)?;
        }
        fresh.sort_unstable_by_key(|(memory, page, _)| (*memory, *page));
        let changed = known.len() + fresh.len();
        if changed > MAX_CHANGED || files.len() >= MAX_FILES {
            let mut pages: Vec<Page<'_>> =
                known.iter().map(|(it, content)| (it.memory, it.page, *content)).collect();
            pages.extend(&fresh);
            pages.sort_unstable_by_key(|(memory, page, _)| (*memory, *page));
            self.write_flat(flat, &lengths, Some(mapped), &pages)?;
            return self.flat_image(flat);
        }
        let mut fresh: Vec<Fresh<'_>> = fresh.into_iter().map(Fresh::new).collect();
        let mut pages = mapped.changed_again(&known, &mut fresh);
        fresh.sort_unstable_by_key(Fresh::place);
        drop_unused(&mut files, &mut pages);
        for batch in fresh.chunks(PAGES_PER_FILE as usize) {
            self.append(agent, batch, &mut files, &mut pages)?;
        }
        pages.sort_unstable_by_key(ChangedPage::place);
        let reference = ImageReference {
            base: mapped.reference.base.clone(),
            memories: lengths,
            files: files.iter().map(|f| f.name).collect(),
            pages,
        };
        Ok(Image { reference, base: mapped.base.clone(), files, rebased: mapped.rebased })
    }

    /// Appends the pages that are not zero to the agent's file.
    fn append(
        &self,
        agent: Uuid,
        fresh: &[Fresh<'_>],
        files: &mut Vec<Arc<super::store::PagesFile>>,
        pages: &mut Vec<ChangedPage>,
    ) -> Result<(), ImageError> {
        let contents: Vec<&[u8]> =
            fresh.iter().filter(|page| page.check.is_some()).map(|page| &page.content[..]).collect();
        if contents.is_empty() {
            pages.extend(fresh.iter().map(|page| page.at(0, ChangedPage::ZERO)));
            return Ok(());
        }
        let target = self.pages_to_append(agent, files, contents.len() as u32)?;
        let file = if let Some(at) = files.iter().position(|f| f.name == target.name) {
            at
        } else {
            files.push(target.clone());
            files.len() - 1
        } as u16;
        let mut used = lock(&target.used);
        let mut slot = *used;
        for page in fresh {
            if page.check.is_none() {
                pages.push(page.at(0, ChangedPage::ZERO));
            } else {
                pages.push(page.at(file, slot));
                slot += 1;
            }
        }
        let mut at = (u64::from(*used) + 1) * PAGE as u64;
        for batch in contents.chunks(BATCH) {
            write_all_vectored(&target.file, batch, at).map_err(Self::io(target.name))?;
            at += (batch.len() * PAGE) as u64;
        }
        target.appended();
        *used = slot;
        Ok(())
    }
}

/// A page that is to be recorded anew.
struct Fresh<'a> {
    memory: u16,
    page: u32,
    content: &'a [u8; PAGE],
    /// Its crc32; none where it is all zeros.
    check: Option<u32>,
}

impl<'a> Fresh<'a> {
    fn new((memory, page, content): Page<'a>) -> Self {
        let check = (!is_zero(content)).then(|| crc32fast::hash(content));
        Self { memory, page, content, check }
    }

    fn place(&self) -> (u16, u32) {
        (self.memory, self.page)
    }

    /// As it is found in a file.
    fn at(&self, file: u16, slot: u32) -> ChangedPage {
        ChangedPage { memory: self.memory, page: self.page, file, slot, check: self.check.unwrap_or(0) }
    }
}

/// Drops the files that none of `pages` is in, but not the last, which is perhaps appended to.
fn drop_unused<F>(files: &mut Vec<F>, pages: &mut [ChangedPage]) {
    let mut used = vec![false; files.len()];
    if let Some(last) = used.last_mut() {
        *last = true;
    }
    for page in pages.iter().filter(|page| page.slot != ChangedPage::ZERO) {
        if let Some(used) = used.get_mut(usize::from(page.file)) {
            *used = true;
        }
    }
    let mut new = Vec::with_capacity(used.len());
    let mut count = 0u16;
    for used in &used {
        new.push(count);
        count += u16::from(*used);
    }
    let mut keeps = used.iter();
    files.retain(|_| keeps.next().is_some_and(|used| *used));
    for page in pages {
        page.file = if page.slot == ChangedPage::ZERO { 0 } else { new[usize::from(page.file)] };
    }
}

fn write_all_vectored(file: &std::fs::File, pages: &[&[u8]], at: u64) -> std::io::Result<()> {
    let total = pages.len() * PAGE;
    let mut written = 0;
    while written < total {
        let (first, within) = (written / PAGE, written % PAGE);
        let slices: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&pages[first][within..]))
            .chain(pages[first + 1..].iter().map(|p| IoSlice::new(p)))
            .collect();
        match rustix::io::pwritev(file, &slices, at + written as u64) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn page_of(bytes: &[u8], page: usize) -> &[u8; PAGE] {
    bytes[page * PAGE..].first_chunk().expect("candidates lie inside the memory")
}

fn is_zero(page: &[u8; PAGE]) -> bool {
    page.as_chunks::<16>().0.iter().all(|c| u128::from_ne_bytes(*c) == 0)
}

impl Image {
    fn find(&self, memory: u16, page: u32) -> Option<&ChangedPage> {
        let at = self.reference.pages.binary_search_by_key(&(memory, page), ChangedPage::place).ok()?;
        Some(&self.reference.pages[at])
    }

    /// Of pages that had changed, with what they hold now: adds those that have changed since to `fresh`, and gives the
    /// others. Other content mostly has another checksum; only where it has the same is the earlier content read. Pages
    /// whose earlier content does not read are taken to have changed, so that they are written anew.
    fn changed_again<'a>(
        &self,
        pages: &[(ChangedPage, &'a [u8; PAGE])],
        fresh: &mut Vec<Fresh<'a>>,
    ) -> Vec<ChangedPage> {
        let mut alike = Vec::new();
        let mut unsure = Vec::new();
        for (page, content) in pages {
            let now = Fresh::new((page.memory, page.page, content));
            match now.check {
                None if page.slot == ChangedPage::ZERO => alike.push(*page),
                Some(check) if page.slot != ChangedPage::ZERO && check == page.check => {
                    unsure.push((*page, now));
                }
                _ => fresh.push(now),
            }
        }
        let before: Vec<ChangedPage> = unsure.iter().map(|(page, _)| *page).collect();
        let mut rest = unsure.into_iter().peekable();
        let read = self.read_changed(&before, |_, before| {
            if let Some((page, now)) = rest.next() {
                if now.content == before { alike.push(page) } else { fresh.push(now) }
            }
            Ok::<_, ImageError>(())
        });
        if let Err(e) = read {
            tracing::warn!("pages are written anew: {}", zone_vfs::told(&e));
            fresh.extend(rest.map(|(_, now)| now));
        }
        alike
    }
}

/// Tells which pages differ from the base. By `PAGEMAP_SCAN` a candidate has been written, and is taken to differ; it is
/// compared where every page is a candidate, and where the instance was mapped from another file or a page was given a
/// copy beforehand.
struct Base<'a, 'p> {
    image: &'a Image,
    file: Option<(std::os::fd::BorrowedFd<'a>, u64, u64)>,
    /// What the base holds, where that was copied in; zeros follow.
    small: Option<&'a [u8]>,
    compare: bool,
    /// Pages that count as written and need not have been.
    populated: &'p [std::ops::Range<usize>],
}

impl<'a, 'p> Base<'a, 'p> {
    fn new(
        image: &'a Image,
        memory: u16,
        copied: bool,
        populated: &'p [std::ops::Range<usize>],
        tracking: DirtyTracking,
    ) -> Self {
        let memory = usize::from(memory);
        Self {
            image,
            file: image.base_memory(memory),
            small: if copied { image.base.small(memory) } else { None },
            compare: copied || image.rebased || tracking == DirtyTracking::Comparison,
            populated,
        }
    }

    /// Whether a candidate differs from the base, where that can be told without reading the file.
    fn differs(&self, page: u32, content: &[u8; PAGE]) -> Option<bool> {
        let at = u64::from(page) * PAGE as u64;
        if let Some(small) = self.small {
            let under = small.get(at as usize..).unwrap_or_default();
            let (same, rest) = content.split_at(under.len().min(PAGE));
            return Some(same != &under[..same.len()] || rest.iter().any(|b| *b != 0));
        }
        if self.file.is_none_or(|(_, _, len)| at >= len) {
            return Some(!is_zero(content));
        }
        let first = self.populated.partition_point(|pages| pages.end <= page as usize);
        let is_populated = self.populated.get(first).is_some_and(|pages| pages.contains(&(page as usize)));
        (!self.compare && !is_populated).then_some(true)
    }

    /// Adds those of `pages`, which are in order and inside the file, that differ from it to `fresh`.
    fn compare(&self, pages: &[Page<'a>], fresh: &mut Vec<Page<'a>>) -> Result<(), ImageError> {
        let Some((file, offset, _)) = self.file else { return Ok(()) };
        let name = || self.image.base.name.to_string();
        let mut buffer = Vec::new();
        for run in pages.chunk_by(|one, next| one.1 + 1 == next.1).flat_map(|run| run.chunks(COMPARED)) {
            let Some((_, first, _)) = run.first() else { continue };
            buffer.resize(COMPARED.min(pages.len()), [0; PAGE]);
            let under = &mut buffer[..run.len()];
            let mut at = offset + u64::from(*first) * PAGE as u64;
            let mut rest = under.as_flattened_mut();
            while !rest.is_empty() {
                match rustix::io::pread(file, &mut *rest, at) {
                    Ok(0) => {
                        return Err(ImageError::Damaged { file: name(), reason: "cut short".into() });
                    }
                    Ok(read) => {
                        at += read as u64;
                        rest = &mut rest[read..];
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(ImageStore::io(name())(e.into())),
                }
            }
            let differing = run.iter().zip(&*under).filter(|((_, _, content), under)| *content != *under);
            fresh.extend(differing.map(|(page, _)| *page));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(page: u32, file: u16, slot: u32) -> ChangedPage {
        ChangedPage { memory: 0, page, file, slot, check: 0 }
    }

    #[test]
    fn files_without_a_page_are_dropped_and_the_last_is_kept() {
        let mut files = vec!["a", "b", "c", "d"];
        let mut pages = [page(1, 1, 5), page(2, 0, ChangedPage::ZERO), page(3, 2, 0), page(4, 1, 6)];
        drop_unused(&mut files, &mut pages);
        assert_eq!(files, ["b", "c", "d"]);
        assert_eq!(pages.map(|it| files[usize::from(it.file)]), ["b", "b", "c", "b"]);
        let mut pages = [page(2, 0, ChangedPage::ZERO)];
        drop_unused(&mut files, &mut pages);
        assert_eq!(files, ["d"]);
        drop_unused::<&str>(&mut Vec::new(), &mut pages);
    }
}
