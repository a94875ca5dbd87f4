//! Where catalogues begin, for whoever has lost what names the newest.

use std::collections::HashSet;

use super::frame::{self, FRAME_HEADER};
use super::{Segments, open};
use crate::chunks::{ChunkError, FrameKind};
use crate::device::is_shortage;
use crate::id::Hash;

impl Segments {
    /// The addresses of frames with which catalogues begin, at most `most`, those first that lie last.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Shortage`]: nothing is known.
    pub(crate) fn roots(&self, most: usize) -> Result<Vec<Hash>, ChunkError> {
        let (mut roots, mut seen) = (Vec::new(), HashSet::new());
        let mut numbers: Vec<u32> = self.files().into_iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        for number in numbers.into_iter().rev() {
            let found = match open::look_at(&*self.device, number, &self.key, &self.options) {
                Ok(found) => found,
                Err(error) if error.is_shortage() => return Err(error.into()),
                // what lies there is found nowhere else
                Err(_) => continue,
            };
            for (hash, location) in found.entries.iter().rev() {
                let mut header = [0; FRAME_HEADER];
                match found.file.read_at(location.offset, &mut header) {
                    Err(error) if is_shortage(&error) => return Err(ChunkError::of_device(error)),
                    Ok(()) if frame::is_kind(&header, FrameKind::Root) && seen.insert(*hash) => {
                        roots.push(*hash);
                    }
                    Ok(()) | Err(_) => {}
                }
                if roots.len() >= most {
                    return Ok(roots);
                }
            }
        }
        Ok(roots)
    }
}
