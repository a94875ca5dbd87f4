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
            let copied = memory.was_copied();
            let populated = memory.populated();
            let before = BaseReader::new(mapped, usize::from(index), copied, &populated, self.tracking);
            for page in ranges.into_iter().flatten() {
                let content = page_of(bytes, page);
                let page = page as u32;
                match mapped.find(index, page) {
                    Some(changed) => known.push((*changed, content)),
                    None if before.differs(page, content)? => fresh.push((index, page, content)),
                    None => {}
                }
            }
        }
        let changed = known.len() + fresh.len();
        let mut kept = Vec::new();
        for ((page, content), again) in known.iter().zip(mapped.changed_again(&known)) {
            if again {
                fresh.push((page.memory, page.page, content));
            } else {
                kept.push(*page);
            }
        }
        fresh.sort_unstable_by_key(|(memory, page, _)| (*memory, *page));
        drop_unused(&mut files, &mut kept);
        if changed > MAX_CHANGED || files.len() >= MAX_FILES {
            let mut pages: Vec<Page<'_>> =
                known.iter().map(|(it, content)| (it.memory, it.page, *content)).collect();
            pages.extend(fresh.iter().filter(|(memory, page, _)| mapped.find(*memory, *page).is_none()));
            pages.sort_unstable_by_key(|(memory, page, _)| (*memory, *page));
            self.write_flat(flat, &lengths, Some(mapped), &pages)?;
            return self.flat_image(flat);
        }
        let mut pages = kept;
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

    /// Appends the pages that are not zero to the agent's file and makes them durable.
    fn append(
        &self,
        agent: Uuid,
        fresh: &[Page<'_>],
        files: &mut Vec<Arc<super::store::PagesFile>>,
        pages: &mut Vec<ChangedPage>,
    ) -> Result<(), ImageError> {
        let stored = fresh.iter().filter(|p| !is_zero(p.2)).count() as u32;
        let zero =
            |p: &Page<'_>| ChangedPage { memory: p.0, page: p.1, file: 0, slot: ChangedPage::ZERO, check: 0 };
        if stored == 0 {
            pages.extend(fresh.iter().map(zero));
            return Ok(());
        }
        let target = self.pages_to_append(agent, files, stored)?;
        let file = if let Some(at) = files.iter().position(|f| f.name == target.name) {
            at
        } else {
            files.push(target.clone());
            files.len() - 1
        } as u16;
        let mut used = lock(&target.used);
        let mut slot = *used;
        for page in fresh {
            if is_zero(page.2) {
                pages.push(zero(page));
            } else {
                let check = crc32fast::hash(page.2);
                pages.push(ChangedPage { memory: page.0, page: page.1, file, slot, check });
                slot += 1;
            }
        }
        let contents: Vec<&[u8]> = fresh.iter().filter(|p| !is_zero(p.2)).map(|p| &p.2[..]).collect();
        let mut at = (u64::from(*used) + 1) * PAGE as u64;
        for batch in contents.chunks(BATCH) {
            write_all_vectored(&target.file, batch, at).map_err(Self::io(target.name))?;
            at += (batch.len() * PAGE) as u64;
        }
        target.file.sync_data().map_err(Self::io(target.name))?;
        *used = slot;
        Ok(())
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

    /// Of pages that had changed, with what they hold now: whether each has changed since. One whose earlier content
    /// does not read is taken to have, and all that follow it, so that they are written anew.
    fn changed_again(&self, pages: &[(ChangedPage, &[u8; PAGE])]) -> Vec<bool> {
        let known: Vec<ChangedPage> = pages.iter().map(|(page, _)| *page).collect();
        let mut again = Vec::with_capacity(known.len());
        let read = self.read_changed(&known, |_, before| {
            again.push(pages.get(again.len()).is_none_or(|(_, now)| *now != before));
            Ok::<_, ImageError>(())
        });
        if let Err(e) = read {
            tracing::warn!("pages are written anew: {}", zone_vfs::told(&e));
            again.resize(known.len(), true);
        }
        again
    }
}

/// Tells whether a page differs from the base. By `PAGEMAP_SCAN` a candidate has been written, and is
/// taken to differ; it is compared where every page is a candidate, and where the instance was mapped
/// from another file or a page was given a copy beforehand.
struct BaseReader<'a> {
    base: Option<(std::os::fd::BorrowedFd<'a>, u64, u64)>,
    /// What the base holds, where that was copied in; zeros follow.
    small: Option<&'a [u8]>,
    compare: bool,
    /// Pages that count as written and need not have been.
    populated: &'a [std::ops::Range<usize>],
    name: String,
}

impl<'a> BaseReader<'a> {
    fn new(
        image: &'a Image,
        memory: usize,
        copied: bool,
        populated: &'a [std::ops::Range<usize>],
        tracking: DirtyTracking,
    ) -> Self {
        Self {
            base: image.base_memory(memory),
            small: if copied { image.base.small(memory) } else { None },
            compare: copied || image.rebased || tracking == DirtyTracking::Comparison,
            populated,
            name: image.base.name.to_string(),
        }
    }

    fn differs(&self, page: u32, content: &[u8; PAGE]) -> Result<bool, ImageError> {
        let at = u64::from(page) * PAGE as u64;
        if let Some(small) = self.small {
            let under = small.get(at as usize..).unwrap_or_default();
            let (same, rest) = content.split_at(under.len().min(PAGE));
            return Ok(same != &under[..same.len()] || rest.iter().any(|b| *b != 0));
        }
        match self.base {
            Some((file, offset, len)) if at < len => {
                let first = self.populated.partition_point(|pages| pages.end <= page as usize);
                let is_populated =
                    self.populated.get(first).is_some_and(|pages| pages.contains(&(page as usize)));
                if !self.compare && !is_populated {
                    return Ok(true);
                }
                let mut under = [0u8; PAGE];
                let mut read = 0;
                while read < PAGE {
                    let n = rustix::io::pread(file, &mut under[read..], offset + at + read as u64)
                        .map_err(|e| ImageStore::io(&self.name)(e.into()))?;
                    if n == 0 {
                        return Err(ImageError::Damaged {
                            file: self.name.clone(),
                            reason: "cut short".into(),
                        });
                    }
                    read += n;
                }
                Ok(under != *content)
            }
            _ => Ok(!is_zero(content)),
        }
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
