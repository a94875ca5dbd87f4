//! Pins: generations that no policy drops.

use std::sync::Arc;

use super::commit::Commit;
use super::disk::{Disk, Done, Inner};
use super::entry::Entry;
use super::{StoreError, wait};
use crate::id::GenerationNumber;

impl Disk {
    /// Pins a generation, or takes the pin away: durable when this returns. A pinned generation stays until its
    /// agent is removed, or what it holds is forgotten. Whether anything changed.
    pub fn pin(self: &Arc<Self>, generation: GenerationNumber, pinned: bool) -> Result<bool, StoreError> {
        if self.generation(generation)?.is_pinned == pinned {
            return Ok(false);
        }
        let control = move |inner: &Inner| {
            if !inner.state.generations.contains_key(&generation) {
                return Err(StoreError::NoGeneration { generation });
            }
            Ok(vec![Entry::Pinned { generation, pinned }])
        };
        wait(|done: Done<()>| {
            Commit::start(self, control, None, Box::new(|result| done(result.map(|_| ()))));
        })?;
        Ok(true)
    }
}
