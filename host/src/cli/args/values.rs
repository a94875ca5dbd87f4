//! Numbers and times, as the command line takes them.

use std::time::Duration;

use zone_vfs::id::{Timestamp, Version};
use zone_vfs::zone::Expected;

/// The number of a generation.
pub(super) fn generation(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a generation is a number: `dormouse generations N` lists them".into())
}

/// How many forks to make.
pub(super) fn forks(text: &str) -> Result<usize, String> {
    let count = text.parse().map_err(|_| "give a number of forks".to_string())?;
    if count == 0 { Err("there is nothing to make".into()) } else { Ok(count) }
}

/// The number of a version.
pub(super) fn version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a version is a number: `dormouse zone history N:PATH` lists them".into())
}

/// What a file is expected to be: the number of a version, or `none` for no file.
pub(super) fn expected(text: &str) -> Result<Expected, String> {
    if text == "none" {
        Ok(Expected::Missing)
    } else {
        version(text).map(|it| Expected::Version(Version(it)))
    }
}

/// A time of at least zero seconds, in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "give a number of seconds, at least 0".to_string())
}

/// A time in which something has to end: with none at all it could not begin.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let time = seconds(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "give a number of seconds, more than 0".to_string())
}

/// A moment: as in RFC 3339, or so long ago.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let at = match crate::size::span(text) {
        Ok(ago) => Timestamp::now().0.checked_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)),
        Err(_) => text.parse::<jiff::Timestamp>().ok().and_then(|at| u64::try_from(at.as_nanosecond()).ok()),
    };
    at.map(Timestamp).ok_or_else(|| "give a time as 2026-11-30T10:00:00Z, or 30d, 12h, 15m or 90s ago".into())
}
