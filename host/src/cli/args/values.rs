//! Numbers and times, as the command line takes them.

use std::time::Duration;

use zone_vfs::id::Version;
use zone_vfs::zone::Expected;

/// The number of a generation.
pub(super) fn generation(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a generation is a number: `dormouse generations N` lists them".into())
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
