//! Files that an agent has open while it sleeps.
//!
//! A sleeping agent has no instance, and its handles lie in its head's generation. What they refer to is
//! open all the same: it outlives its name when that is removed meanwhile, as any open file does, and
//! a resume finds it open. In another process that is done anew, by whoever works on the agent there.

use std::collections::BTreeSet;

use super::Disk;
use crate::id::{GenerationNumber, Inode};
use crate::zone::{ErrorCode, OpenedFor, ZoneError};

impl Disk {
    /// Opens what the handles of the head's generation, `generation`, refer to; files without a name to
    /// which none refers go. Does nothing where that has been done. Zones that others share are
    /// left alone, and handles of files that were forgotten are passed over.
    ///
    /// On an error nothing is open.
    pub fn stand_by(
        &self,
        generation: GenerationNumber,
        handles: &[(u16, Inode, OpenedFor)],
    ) -> Result<(), ZoneError> {
        let mut inner = self.lock();
        let state = &mut inner.state;
        if state.standing_by == Some(generation) {
            return Ok(());
        }
        let mut opened = Ok(());
        for (index, zone) in state.zones.iter_mut().enumerate() {
            if self.mounts.get(index as u16).is_some() {
                continue;
            }
            let here = handles.iter().filter(|(zone, ..)| usize::from(*zone) == index);
            opened = opened.and_then(|()| {
                for (_, inode, purpose) in here.copied() {
                    match zone.working.open_for(inode, purpose) {
                        Err(e) if e.code == ErrorCode::NoEntry => {}
                        opened => opened?,
                    }
                }
                zone.working.drop_orphans_except(&BTreeSet::new())
            });
        }
        if opened.is_ok() {
            state.standing_by = Some(generation);
        } else if let Err(e) = state.release() {
            tracing::warn!(agent = %self.id, "letting go of open files: {e}");
        }
        opened
    }

    /// Hands over what [`stand_by`](Self::stand_by) has opened for this generation's handles, if it has:
    /// whoever runs the agent closes it.
    pub fn take_up(&self, generation: GenerationNumber) -> bool {
        let mut inner = self.lock();
        inner.state.standing_by.take_if(|by| *by == generation).is_some()
    }
}
