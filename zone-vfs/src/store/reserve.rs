//! Room on the disk that is kept for giving room back.
//!
//! On a full disk nothing could be reaped, forgotten or backed up otherwise: each of these begins with a checkpoint,
//! which writes. So a file of zeros stands by, and is removed for as long as one of them works. It is made again
//! afterwards, or when the store is opened the next time, as soon as there is room.

use super::Shared;
use crate::device::{Caching, Device};

/// The file.
const FILE: &str = "reserve";

/// Makes the file, if it is not there and there is room: nothing hangs on it.
pub(super) fn make(device: &dyn Device, bytes: u64) {
    let made = device.list("").and_then(|names| {
        if bytes == 0 || names.iter().any(|name| name == FILE) {
            return Ok(());
        }
        device.create(FILE, bytes, Caching::Cached).map(drop)
    });
    if let Err(e) = made {
        tracing::debug!("keeping {bytes} bytes of room: {e}");
        remove(device);
    }
}

fn remove(device: &dyn Device) {
    let removed = device
        .list("")
        .and_then(|names| if names.iter().any(|name| name == FILE) { device.remove(FILE) } else { Ok(()) });
    if let Err(e) = removed {
        tracing::debug!("giving the room that is kept: {e}");
    }
}

/// The room is there for as long as this is.
pub(super) struct Room<'a>(&'a Shared);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        make(self.0.segments.device(), self.0.reserve);
    }
}

impl Shared {
    /// Gives the room that is kept to whoever gives room back, or saves what there is.
    pub(super) fn room(&self) -> Room<'_> {
        if self.reserve > 0 {
            remove(self.segments.device());
        }
        Room(self)
    }
}
