//! The bounds of zones, set anew by the operator.

use std::sync::Arc;

use super::commit::Commit;
use super::disk::{Disk, Inner};
use super::entry::Entry;
use super::{StoreError, wait};
use crate::zone::Quota;

impl Disk {
    /// Gives a zone other bounds, which hold from then on: durable when this returns. What is used already stays, also
    /// beyond them; growing is refused then. No failed turn and no rewind takes them back, and forks that are made later
    /// begin with them. Beside a turn it takes nothing from it. Of a mount they are the shared zone's, for all.
    pub fn set_quota(self: &Arc<Self>, zone: u16, quota: Quota) -> Result<(), StoreError> {
        if let Some(mount) = self.mount(zone) {
            let disk = mount.disk().cloned();
            return disk.ok_or(StoreError::NoSharedZone(mount.id()))?.set_quota(0, quota);
        }
        let entry = |inner: &Inner| {
            let is_there = inner.state.specs.len() > usize::from(zone);
            is_there.then_some(Entry::Bounded { zone, quota }).ok_or(StoreError::NoZone { index: zone })
        };
        wait(|done| Commit::beside(self, entry, &[], done)).map(drop)
    }
}
