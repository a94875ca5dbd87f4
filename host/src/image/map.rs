//! Resume: an image mapped over the memories of an instance.

use std::sync::Arc;

use super::slot::SlotMemory;
use super::store::Image;
use super::{ImageError, PAGE};

/// An instance was made ready for images near this one.
#[derive(Clone, Copy)]
pub(crate) struct Ready<'a> {
    /// The image whose small memory was copied in.
    pub image: &'a Image,
    /// The index of that memory.
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
        Ok(true)
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
            if let Some(small) = self.base.small(index) {
                if let Some(ready) =
                    ready.filter(|ready| ready.memory == index && size == memory.len() as u64)
                    && let Some(before) = ready.image.base.small(index)
                {
                    // SAFETY: the caller's promise; `before` was copied in when it was made ready.
                    differing = unsafe { memory.copy_differing(before, small, size as usize, ready.block) };
                    continue;
                }
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
            if ready.is_some_and(|ready| ready.memory == usize::from(page.memory)) {
                differing = u64::MAX;
            }
        }
        Ok(differing)
    }
}
