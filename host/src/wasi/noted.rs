//! What a guest asks and is told, as its journal gets to know it.
//!
//! A call that its own zones answer is noted by a digest: taken again on the same zones, it comes to the same. One that
//! depends on others (shared zones, locks, clocks) is recorded with its result.

use std::hash::Hash;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zone_vfs::zone::{ErrorCode, Zone, ZoneError};

use super::call::Asked;
use super::fs::{FsError, FsResult};
use super::outside::OutsideError;
use super::state::GuestState;

impl From<OutsideError> for FsError {
    #[cold]
    fn from(e: OutsideError) -> Self {
        Self::Trap(e.into())
    }
}

/// An error code as it is recorded.
fn number(code: ErrorCode) -> u8 {
    ErrorCode::ALL.iter().position(|it| *it == code).map_or(u8::MAX, |at| at as u8)
}

/// Whether an error tells of the host, and not of the zone or of what was asked.
fn is_hosts(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::InsufficientSpace | ErrorCode::InsufficientMemory | ErrorCode::Io)
}

fn code(number: u8) -> ErrorCode {
    ErrorCode::ALL.get(usize::from(number)).copied().unwrap_or(ErrorCode::Io)
}

/// What was recorded cannot be read: as if it had been something else.
fn unreadable(asked: Asked) -> wasmtime::Error {
    wasmtime::Error::msg(format!("what the journal has of `{}` cannot be read", asked.call.name()))
}

impl GuestState {
    /// Notes a call that the agent's own zones have answered, and gives the result on.
    #[inline]
    pub(crate) fn noted<T: Hash>(&mut self, asked: Asked, result: FsResult<T>) -> FsResult<T> {
        if self.outside.is_noting() {
            self.note(asked, &result)?;
        }
        result
    }

    fn note<T: Hash>(&mut self, asked: Asked, result: &FsResult<T>) -> Result<(), OutsideError> {
        let mut digest = asked.digest;
        match result {
            Ok(value) => value.hash(&mut digest),
            Err(FsError::Code(code)) => {
                self.has_failed |= is_hosts(*code);
                (u8::MAX, number(*code)).hash(&mut digest);
            }
            Err(FsError::Trap(_)) => return Ok(()),
        }
        self.outside.note(asked, digest)
    }

    /// The result of a call that depends on others: the recorded one, or else what `make` comes to, which is recorded.
    pub(crate) fn depending<T: Serialize + DeserializeOwned>(
        &mut self,
        asked: Asked,
        make: impl FnOnce(&mut Self) -> T,
    ) -> wasmtime::Result<T> {
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let made = make(self);
        self.recorded(asked, &made)?;
        Ok(made)
    }

    /// The recorded result of a call that depends on others, where there is one.
    pub(crate) fn recalled<T: DeserializeOwned>(&mut self, asked: Asked) -> wasmtime::Result<Option<T>> {
        let Some(bytes) = self.outside.recall(asked)? else { return Ok(None) };
        postcard::from_bytes(&bytes).map(Some).map_err(|_| unreadable(asked))
    }

    /// Records the result of such a call.
    pub(crate) fn recorded<T: Serialize>(&mut self, asked: Asked, result: &T) -> wasmtime::Result<()> {
        if !self.outside.is_noting() {
            return Ok(());
        }
        let bytes = postcard::to_stdvec(result).map_err(|e| wasmtime::Error::msg(e.to_string()))?;
        Ok(self.outside.record(asked, &bytes)?)
    }

    /// As [`depending`](Self::depending), of what a filesystem call comes to.
    pub(crate) fn depending_fs<T: Serialize + DeserializeOwned>(
        &mut self,
        asked: Asked,
        make: impl FnOnce(&mut Self) -> FsResult<T>,
    ) -> FsResult<T> {
        if let Some(known) = self.recalled::<Result<T, u8>>(asked).map_err(FsError::Trap)? {
            return known.map_err(|known| FsError::Code(code(known)));
        }
        let made = match make(self) {
            Err(FsError::Trap(e)) => return Err(FsError::Trap(e)),
            Err(FsError::Code(refused)) => Err(refused),
            Ok(value) => Ok(value),
        };
        let made = made.map_err(number);
        self.recorded(asked, &made).map_err(FsError::Trap)?;
        made.map_err(|made| FsError::Code(code(made)))
    }

    /// Works on a zone for the agent: on its own, or on one that it shares with others.
    #[inline]
    pub(super) fn on<T>(
        &mut self,
        asked: Asked,
        work: impl FnOnce(&mut Zone, zone_vfs::zone::Access) -> Result<T, ZoneError>,
    ) -> FsResult<T>
    where
        T: Hash + Serialize + DeserializeOwned,
    {
        let access = self.access();
        let zone = asked.zone;
        if self.is_shared(zone) {
            return self.depending_fs(asked, |state| {
                state.vouch(zone)?;
                state.on_zone(zone, |z| work(z, access))
            });
        }
        let result = self.on_zone(zone, |z| work(z, access));
        self.noted(asked, result)
    }

    /// As [`on`](Self::on), through a descriptor itself: one of a file that is there no more leads nowhere.
    #[inline]
    pub(super) fn through<T>(
        &mut self,
        asked: Asked,
        work: impl FnOnce(&mut Zone, zone_vfs::zone::Access) -> Result<T, ZoneError>,
    ) -> FsResult<T>
    where
        T: Hash + Serialize + DeserializeOwned,
    {
        match self.on(asked, work) {
            Err(FsError::Code(ErrorCode::NoEntry)) => Err(ErrorCode::BadDescriptor.into()),
            result => result,
        }
    }

    #[inline]
    fn on_zone<T>(&self, zone: u16, work: impl FnOnce(&mut Zone) -> Result<T, ZoneError>) -> FsResult<T> {
        let disk = self.disk.as_deref().ok_or(FsError::Code(ErrorCode::BadDescriptor))?;
        match disk.zone(zone, work) {
            Some(result) => Ok(result?),
            None => Err(ErrorCode::BadDescriptor.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasi::{Call, LiveOutside, Outside};

    /// Notes everything, and keeps nothing.
    struct Noting(LiveOutside);

    impl Outside for Noting {
        fn wall_clock(&mut self) -> Result<zone_vfs::id::Timestamp, OutsideError> {
            self.0.wall_clock()
        }

        fn monotonic(&mut self) -> Result<u64, OutsideError> {
            self.0.monotonic()
        }

        fn now(&self) -> u64 {
            self.0.now()
        }

        fn zone_time(&mut self) -> zone_vfs::id::Timestamp {
            self.0.zone_time()
        }

        fn random(&mut self, bytes: &mut [u8]) -> Result<(), OutsideError> {
            self.0.random(bytes)
        }

        fn is_noting(&self) -> bool {
            true
        }
    }

    #[test]
    fn errors_of_the_hosts_own_are_told_from_those_of_a_zone() {
        for (code, is_hosts) in [
            (ErrorCode::NoEntry, false),
            (ErrorCode::Quota, false),
            (ErrorCode::InsufficientSpace, true),
            (ErrorCode::Io, true),
        ] {
            let mut state = GuestState::over(Noting(LiveOutside::new(0, false)));
            let noted: FsResult<u64> = state.noted(Call::Read.plain(), Err(FsError::Code(code)));
            assert!(matches!(noted, Err(FsError::Code(found)) if found == code));
            assert_eq!(state.has_failed, is_hosts, "{code:?}");
        }
    }
}
