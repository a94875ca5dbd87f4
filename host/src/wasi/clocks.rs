//! Clocks and random numbers, version-neutral.

use zone_vfs::id::Timestamp;

use super::object::{Object, Pollable};
use super::state::GuestState;

/// Random bytes that one call gives, at most. More ends the instance.
pub const MAX_RANDOM: u64 = 1 << 20;

impl GuestState {
    pub(super) fn wall_clock(&mut self) -> wasmtime::Result<Timestamp> {
        self.touched.clocks = true;
        Ok(self.outside.wall_clock()?)
    }

    pub(super) fn monotonic_clock(&mut self) -> wasmtime::Result<u64> {
        self.touched.clocks = true;
        Ok(self.outside.monotonic()?)
    }

    /// A pollable that is ready when the monotonic clock shows `at`.
    pub(super) fn subscribe_at(&mut self, at: u64) -> wasmtime::Result<u32> {
        Ok(self.table.push(Object::Pollable(Pollable::At(at)))?)
    }

    pub(super) fn random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.touched.random = true;
        if len > MAX_RANDOM {
            return Err(wasmtime::Error::msg(format!("{len} random bytes: at most {MAX_RANDOM} at once")));
        }
        let mut bytes = vec![0; len as usize];
        self.outside.random(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn random_number(&mut self) -> wasmtime::Result<u64> {
        self.touched.random = true;
        let mut bytes = [0; 8];
        self.outside.random(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
