//! Resume: an image mapped over the memories of an instance.

use std::sync::Arc;

use super::slot::SlotMemory;
use super::store::Image;
use super::{ImageError, PAGE};

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
        Ok(true)
    }

    /// Which blocks of `block` bytes at the start of memory `memory` are not as in `before`, one bit
    /// each, the last for all that follow. Every bit where that is not known.
    ///
    /// # Safety
    ///
    /// The image was mapped over `mapped`, the caller owns the instance, and none of its code has run.
    pub(crate) unsafe fn differing_blocks(
        &self,
        before: &Self,
        memory: usize,
        mapped: &SlotMemory,
        block: usize,
    ) -> u64 {
        let (Some(old), Some(new)) = (before.base.small(memory), self.base.small(memory)) else {
            return u64::MAX;
        };
        let end = old.len().max(new.len()).next_multiple_of(PAGE).min(mapped.len());
        let beyond = |p: &super::reference::ChangedPage| {
            usize::from(p.memory) == memory && p.page as usize * PAGE >= end
        };
        if !before.reference.pages.is_empty() || self.reference.pages.iter().any(beyond) {
            return u64::MAX;
        }
        // SAFETY: the caller's promise.
        let now = unsafe { &mapped.bytes()[..end] };
        let mut blocks = 0;
        for (index, now) in now.chunks(block).enumerate() {
            let old = old.get(index * block..).unwrap_or_default();
            let (same, rest) = now.split_at(old.len().min(now.len()));
            if same != &old[..same.len()] || rest.iter().any(|b| *b != 0) {
                blocks |= 1 << index.min(63);
            }
        }
        blocks
    }

    /// Maps the image over `memories`, which belong to an instance of the restore variant that has
    /// not run yet. Afterwards the accessors load the globals.
    ///
    /// # Safety
    ///
    /// The caller owns the instance, and none of its code runs meanwhile.
    pub unsafe fn map_over(&self, memories: &[Arc<SlotMemory>]) -> Result<(), ImageError> {
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
            if let Some(small) = self.base.small(index) {
                // SAFETY: the caller's promise.
                unsafe { memory.copy_in(small, size as usize)? };
                continue;
            }
            let (file, offset, len) = match self.base_memory(index) {
                Some((file, offset, len)) => (Some(file), offset, len.min(size) as usize),
                None => (None, 0, 0),
            };
            // SAFETY: the caller's promise.
            unsafe { memory.map(file, offset, len, size as usize)? };
        }
        for page in &self.reference.pages {
            let content = self.changed(page)?;
            // SAFETY: the caller's promise; `check` has shown that the page lies inside.
            unsafe { memories[usize::from(page.memory)].write_page(page.page as usize, content) };
        }
        Ok(())
    }
}
