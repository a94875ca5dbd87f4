//! Whether memories are as an image has them.

use zone_vfs::store::ATTACHMENT_CHUNK;

use super::slot::SlotMemory;
use super::store::Image;
use super::{ImageError, PAGE};
use std::sync::Arc;

/// The first page in which memories and an image differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferentPage {
    /// The memory's index.
    pub memory: usize,
    /// The page's first byte.
    pub offset: u64,
}

impl Image {
    /// The first page that `memories` have otherwise, if there is one. Where they are of another number or length, that
    /// is the first of the memory in question.
    ///
    /// # Safety
    ///
    /// The caller owns the memories' instance, and none of its code runs meanwhile.
    pub(crate) unsafe fn first_difference(
        &self,
        memories: &[Arc<SlotMemory>],
    ) -> Result<Option<DifferentPage>, ImageError> {
        let lengths = self.reference().memories();
        if let Some(memory) = (0..lengths.len().max(memories.len()))
            .find(|at| lengths.get(*at).copied() != memories.get(*at).map(|it| it.len() as u64))
        {
            return Ok(Some(DifferentPage { memory, offset: 0 }));
        }
        let mut reader = self.reader()?;
        let mut index = 0;
        let mut buffer = vec![0; ATTACHMENT_CHUNK];
        for (at, memory) in memories.iter().enumerate() {
            // SAFETY: the caller promises it.
            let bytes = unsafe { memory.bytes() };
            for (number, chunk) in bytes.chunks(ATTACHMENT_CHUNK).enumerate() {
                let here = &mut buffer[..chunk.len()];
                here.fill(0);
                let reading = |e| ImageError::Io { file: self.reference().base().to_string(), source: e };
                reader.fill(index, here).map_err(reading)?;
                index += 1;
                let pages = here.chunks(PAGE).zip(chunk.chunks(PAGE));
                if let Some(page) = { pages }.position(|(one, other)| one != other) {
                    let offset = (number * ATTACHMENT_CHUNK + page * PAGE) as u64;
                    return Ok(Some(DifferentPage { memory: at, offset }));
                }
            }
        }
        Ok(None)
    }
}
