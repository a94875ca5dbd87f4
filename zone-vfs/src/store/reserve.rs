//! Room on the disk that is kept for giving room back.
//!
//! On a full disk nothing could be reaped, forgotten or backed up otherwise: each of these begins with a checkpoint,
//! which writes. So a file of zeros stands by, and is removed for as long as one of them works. It is made again
//! afterwards, or when the store is opened the next time, where there is room for as much again: to write until
//! the disk is full would have commits refused meanwhile.

use std::io;

use super::Shared;
use crate::device::{Caching, Device};

/// The file.
const FILE: &str = "reserve";

/// Makes the file, if it is not there as it should be and there is room: nothing hangs on it. One of another length
/// is what a crash has left, or another opening wanted.
pub(super) fn make(device: &dyn Device, bytes: u64) {
    if let Err(e) = try_make(device, bytes) {
        tracing::debug!("keeping {bytes} bytes of room: {e}");
        remove(device);
    }
}

fn try_make(device: &dyn Device, bytes: u64) -> io::Result<()> {
    if is_there(device)? {
        let found = device.open(FILE, Caching::Cached).and_then(|file| file.len());
        if bytes > 0 && found.is_ok_and(|found| found == bytes) {
            return Ok(());
        }
        device.remove(FILE)?;
    }
    let is_room = device.free()?.is_none_or(|free| free >= bytes.saturating_mul(2));
    if bytes > 0 && is_room {
        device.create(FILE, bytes, Caching::Cached)?;
    }
    Ok(())
}

fn is_there(device: &dyn Device) -> io::Result<bool> {
    Ok(device.list("")?.iter().any(|name| name == FILE))
}

fn remove(device: &dyn Device) {
    let removed = is_there(device).and_then(|there| if there { device.remove(FILE) } else { Ok(()) });
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
