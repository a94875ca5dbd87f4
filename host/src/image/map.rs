//! Resume: an image mapped over the memories of an instance.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::format::PageRun;
use super::reference::runs;
use super::slot::SlotMemory;
use super::store::Image;
use super::{ImageError, PAGE};

/// An instance was made ready for images near this one: the file beneath it has been mapped.
#[derive(Clone, Copy)]
pub(crate) struct Ready<'a> {
    /// The image.
    pub image: &'a Image,
    /// The small memory that was copied in, and has been loaded from.
    pub small: Option<Small>,
}

/// A small memory that was copied in.
#[derive(Clone, Copy)]
pub(crate) struct Small {
    /// Its index.
    pub memory: usize,
    /// Bytes of it for which a bit stands.
    pub block: usize,
}

impl Image {
    /// Copies the small memory `memory` in, so that what lies there can be loaded before an agent comes.
    ///
    /// # Safety
    ///
    /// The caller owns the memory's instance, and none of its code runs meanwhile.
    pub(crate) unsafe fn copy_small(&self, memory: usize, into: &SlotMemory) -> Result<bool, ImageError> {
        let Some(small) = self.base.small(memory) else { return Ok(false) };
        // SAFETY: the caller's promise.
        unsafe { into.copy_in(small, into.len())? };
        into.lies_on(&self.base, memory, std::iter::empty());
        Ok(true)
    }

    /// Maps what lies beneath the image over `memories`, so that an agent that comes finds it. Small memories are left
    /// alone. The image must fit them, and none of the guest's code may have run.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub(crate) unsafe fn map_base(&self, memories: &[Arc<SlotMemory>]) -> Result<(), ImageError> {
        for (index, memory) in
            memories.iter().enumerate().filter(|(index, _)| self.base.small(*index).is_none())
        {
            let (file, offset, len) = self.mapping(index);
            // SAFETY: the caller's promise.
            unsafe { memory.map(file, offset, len, len.max(memory.len()))? };
            memory.lies_on(&self.base, index, std::iter::empty());
        }
        Ok(())
    }

    /// Gives pages copies of their own that are likely to be written to soon. A page that does not read is left as it is.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub(crate) unsafe fn populate(&self, memories: &[Arc<SlotMemory>], pages: &[PageRun]) {
        for run in pages {
            let index = usize::from(run.memory);
            let Some(memory) = memories.get(index).filter(|_| self.base.small(index).is_none()) else {
                continue;
            };
            // SAFETY: the caller's promise.
            if let Err(e) = unsafe { memory.populate(run.page as usize, run.count as usize) } {
                // the guest's own writes do it
                tracing::debug!("pages of memory {index} were not populated: {e}");
                return;
            }
        }
    }

    /// The pages that it has of memory `index` besides what lies beneath.
    fn laid_over(&self, index: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        runs(&self.reference.pages)
            .filter(move |run| usize::from(run.memory) == index)
            .map(|run| run.page as usize..(run.page + run.count) as usize)
    }

    /// Where in which file memory `index` lies, and how much of it.
    fn mapping(&self, index: usize) -> (Option<BorrowedFd<'_>>, u64, usize) {
        let size = self.reference.memories.get(index).copied().unwrap_or_default();
        match self.base_memory(index) {
            Some((file, offset, len)) => (Some(file), offset, len.min(size) as usize),
            None => (None, 0, 0),
        }
    }

    /// Maps the image over `memories`, which belong to an instance of the restore variant that has
    /// not run yet. Afterwards the accessors load the globals.
    ///
    /// Says which blocks of the memory that was made ready are not as they were then: one bit each from
    /// its start, the last bit for all that follow, and every bit where that is not known.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub(crate) unsafe fn map_over(
        &self,
        memories: &[Arc<SlotMemory>],
        ready: Option<Ready<'_>>,
    ) -> Result<u64, ImageError> {
        let mut differing = u64::MAX;
        if memories.len() != self.reference.memories.len() {
            return Err(ImageError::Mismatch {
                image: self.reference.memories.len(),
                instance: memories.len(),
            });
        }
        for (index, (memory, &size)) in memories.iter().zip(&self.reference.memories).enumerate() {
            if size > memory.capacity() as u64 || size % PAGE as u64 != 0 || size < memory.len() as u64 {
                return Err(ImageError::Damaged {
                    file: self.base.name.to_string(),
                    reason: format!("memory {index} of {size} bytes does not fit the component's"),
                });
            }
            memory.lies_on(&self.base, index, self.laid_over(index));
            if let Some(small) = self.base.small(index) {
                if let Some((ready, part)) = ready.and_then(|it| Some((it, it.small?)))
                    && part.memory == index
                    && size == memory.len() as u64
                    && let Some(before) = ready.image.base.small(index)
                {
                    // SAFETY: the caller's promise; `before` was copied in when it was made ready.
                    differing = unsafe { memory.copy_differing(before, small, size as usize, part.block) };
                    continue;
                }
                // SAFETY: the caller's promise.
                unsafe { memory.copy_in(small, size as usize)? };
                continue;
            }
            let (file, offset, len) = self.mapping(index);
            let is_there = ready.is_some_and(|ready| {
                Arc::ptr_eq(&ready.image.base, &self.base) && ready.image.mapping(index).2 == len
            });
            if is_there {
                memory.keep_mapped(size as usize)?;
                continue;
            }
            // SAFETY: the caller's promise.
            unsafe { memory.map(file, offset, len, size as usize)? };
        }
        // SAFETY: the caller's promise; `check` has shown that the pages lie inside.
        unsafe { self.lay_changed(memories)? };
        let small = ready.and_then(|ready| ready.small);
        let laid =
            |small: Small| self.reference.pages.iter().any(|it| usize::from(it.memory) == small.memory);
        Ok(if small.is_some_and(laid) { u64::MAX } else { differing })
    }
}
