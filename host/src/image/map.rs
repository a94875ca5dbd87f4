//! Resume: an image mapped over the memories of an instance.

use std::sync::Arc;

use super::slot::SlotMemory;
use super::store::Image;
use super::{ImageError, PAGE};

impl Image {
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
