use zone_vfs::id::Timestamp;

use super::W;
use super::bindings::wasi::{clocks, random};
use crate::wasi::state::GuestState;
use clocks::wall_clock::Datetime;

/// A timestamp in the form of `wasi:clocks`.
pub(super) fn datetime(t: Timestamp) -> Datetime {
    Datetime { seconds: t.seconds(), nanoseconds: t.nanoseconds() }
}

impl clocks::wall_clock::Host for GuestState {
    fn now(&mut self) -> W<Datetime> {
        Ok(datetime(self.wall_clock()?))
    }

    fn resolution(&mut self) -> W<Datetime> {
        Ok(Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl clocks::monotonic_clock::Host for GuestState {
    fn now(&mut self) -> W<u64> {
        self.monotonic_clock()
    }

    fn resolution(&mut self) -> W<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: u64) -> W<u32> {
        self.subscribe_at(when)
    }

    fn subscribe_duration(&mut self, duration: u64) -> W<u32> {
        let at = self.monotonic_clock()?.saturating_add(duration);
        self.subscribe_at(at)
    }
}

impl random::random::Host for GuestState {
    fn get_random_bytes(&mut self, len: u64) -> W<Vec<u8>> {
        self.random_bytes(len)
    }

    fn get_random_u64(&mut self) -> W<u64> {
        self.random_number()
    }
}

impl random::insecure::Host for GuestState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> W<Vec<u8>> {
        self.random_bytes(len)
    }

    fn get_insecure_random_u64(&mut self) -> W<u64> {
        self.random_number()
    }
}

impl random::insecure_seed::Host for GuestState {
    fn insecure_seed(&mut self) -> W<(u64, u64)> {
        Ok((self.random_number()?, self.random_number()?))
    }
}
