//! Changed pages, read from the files that they were appended to.
//!
//! Pages that lie behind each other are read by one call of the system, wherever they belong. They are read rather
//! than mapped: a file costs a descriptor and no mapping, of which a process has few, and one that does not read is an
//! error here and no signal.

use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::reference::ChangedPage;
use super::slot::SlotMemory;
use super::store::{Image, PagesFile};
use super::{ImageError, PAGE};

/// Pages that are read at once where they go through a buffer: 256 KiB.
const BUFFERED: usize = 64;
/// Pages that are read at once to where they belong; the system takes up to 1,024 (`IOV_MAX`).
const SCATTERED: usize = 256;

static ZEROS: [u8; PAGE] = [0; PAGE];

impl Image {
    /// Gives `each` the content of `pages`, which are of this image, in their order, each checked.
    pub(super) fn read_changed<E: From<ImageError>>(
        &self,
        pages: &[ChangedPage],
        mut each: impl FnMut(&ChangedPage, &[u8; PAGE]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = Vec::new();
        for run in pages.chunk_by(follows).flat_map(|run| run.chunks(BUFFERED)) {
            let Some(first) = run.first() else { continue };
            if first.slot == ChangedPage::ZERO {
                run.iter().try_for_each(|page| each(page, &ZEROS))?;
                continue;
            }
            let file = self.file_of(first)?;
            buffer.resize(BUFFERED.min(pages.len()), ZEROS);
            let into = &mut buffer[..run.len()];
            read_run(file, first.slot, &mut [IoSliceMut::new(into.as_flattened_mut())])?;
            for (page, content) in run.iter().zip(into) {
                check(file, page, content)?;
                each(page, content)?;
            }
        }
        Ok(())
    }

    /// Lays the changed pages over `memories`, under which the base has been mapped.
    ///
    /// # Safety
    ///
    /// The caller owns the memories' instance, and none of its code runs meanwhile.
    pub(super) unsafe fn lay_changed(&self, memories: &[Arc<SlotMemory>]) -> Result<(), ImageError> {
        for of_memory in self.reference.pages.chunk_by(|one, next| one.memory == next.memory) {
            if let Some(memory) = of_memory.first().and_then(|page| memories.get(usize::from(page.memory))) {
                memory.note_written(of_memory.len());
            }
        }
        for run in self.reference.pages.chunk_by(follows).flat_map(|run| run.chunks(SCATTERED)) {
            let Some(first) = run.first() else { continue };
            // SAFETY: the page lies inside what is mapped writable; the caller promises that nobody else uses it, and no
            // two of these are the same, since a reference has each place once.
            let into = run
                .iter()
                .map(|page| unsafe { &mut *memories[usize::from(page.memory)].page_mut(page.page as usize) });
            if first.slot == ChangedPage::ZERO {
                into.for_each(|page| page.fill(0));
                continue;
            }
            let mut into: Vec<_> = into.collect();
            let file = self.file_of(first)?;
            let mut slices: Vec<_> = into.iter_mut().map(|page| IoSliceMut::new(&mut page[..])).collect();
            read_run(file, first.slot, &mut slices).map_err(|e| self.laid(e))?;
            run.iter().zip(&into).try_for_each(|(page, content)| check(file, page, content))?;
        }
        Ok(())
    }

    /// Where the system could not write to a page, that is because it could not read what was mapped there.
    fn laid(&self, e: ImageError) -> ImageError {
        match &e {
            ImageError::Io { source, .. } if source.raw_os_error() == Some(libc::EFAULT) => self.unreadable(),
            _ => e,
        }
    }

    fn file_of(&self, page: &ChangedPage) -> Result<&PagesFile, ImageError> {
        self.files.get(usize::from(page.file)).map(|file| &**file).ok_or_else(|| ImageError::Damaged {
            file: self.base.name.to_string(),
            reason: "a changed page names no file".into(),
        })
    }
}

/// Whether a page lies just behind another, or both are zeros.
fn follows(one: &ChangedPage, next: &ChangedPage) -> bool {
    match (one.slot, next.slot) {
        (ChangedPage::ZERO, ChangedPage::ZERO) => true,
        (ChangedPage::ZERO, _) | (_, ChangedPage::ZERO) => false,
        (slot, after) => one.file == next.file && after == slot + 1,
    }
}

fn check(file: &PagesFile, page: &ChangedPage, content: &[u8; PAGE]) -> Result<(), ImageError> {
    if crc32fast::hash(content) == page.check {
        return Ok(());
    }
    let reason = format!("page {} does not match its checksum", page.slot);
    Err(ImageError::Damaged { file: file.name.to_string(), reason })
}

/// Fills `into` with the slots from `slot` on, of which the file must have as many.
fn read_run(file: &PagesFile, slot: u32, into: &mut [IoSliceMut<'_>]) -> Result<(), ImageError> {
    let damaged = |reason| ImageError::Damaged { file: file.name.to_string(), reason };
    let pages = into.iter().map(|part| part.len()).sum::<usize>() / PAGE;
    let end = u64::from(slot) + pages as u64;
    if end > u64::from(file.used()) {
        return Err(damaged(format!("page {} lies behind its end", end - 1)));
    }
    let mut at = (u64::from(slot) + 1) * PAGE as u64;
    let mut rest = into;
    while !rest.is_empty() {
        match rustix::io::preadv(file.file.as_fd(), rest, at) {
            Ok(0) => return Err(damaged("it is shorter than it was".into())),
            Ok(read) => {
                at += read as u64;
                IoSliceMut::advance_slices(&mut rest, read);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::IO) => return Err(damaged("a page of it could not be read".into())),
            Err(e) => return Err(ImageError::Io { file: file.name.to_string(), source: e.into() }),
        }
    }
    Ok(())
}
