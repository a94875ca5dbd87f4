//! Errors in plain words.
//!
//! A guest is told codes of WASI, and the library's errors carry them. People are told what they
//! would be told on any system, and the rule of a zone where one is behind it.

use std::error::Error;

use zone_vfs::store::StoreError;
use zone_vfs::zone::{Cause, ErrorCode, Measure, ZoneError};

use super::output::size;
use crate::AgentError;

/// What a code of a zone's means, as other systems say it.
pub fn meaning(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Access => "permission denied",
        ErrorCode::WouldBlock => "it would have to wait",
        ErrorCode::Already | ErrorCode::InProgress => "it is under way already",
        ErrorCode::BadDescriptor => "not an open file, or not open for this",
        ErrorCode::Busy => "it is in use",
        ErrorCode::Deadlock => "it would wait for itself",
        ErrorCode::Quota => "the zone's quota is used up",
        ErrorCode::Exist => "file exists",
        ErrorCode::FileTooLarge => "the file would be too large",
        ErrorCode::IllegalByteSequence => "the name is not valid text",
        ErrorCode::Interrupted => "interrupted",
        ErrorCode::Invalid => "invalid argument",
        ErrorCode::Io => "reading or writing storage failed",
        ErrorCode::IsDirectory => "is a directory",
        ErrorCode::Loop => "too many symbolic links",
        ErrorCode::TooManyLinks => "the file has too many names",
        ErrorCode::MessageSize => "message too long",
        ErrorCode::NameTooLong => "the name or path is too long",
        ErrorCode::NoDevice | ErrorCode::NoSuchDevice => "no such device",
        ErrorCode::NoEntry => "no such file or directory",
        ErrorCode::NoLock => "no lock is to be had",
        ErrorCode::InsufficientMemory => "not enough memory",
        ErrorCode::InsufficientSpace => "no space left on the disk",
        ErrorCode::NotDirectory => "not a directory",
        ErrorCode::NotEmpty => "directory not empty",
        ErrorCode::NotRecoverable => "it cannot be recovered",
        ErrorCode::Unsupported => "not supported",
        ErrorCode::NoTty => "not a terminal",
        ErrorCode::Overflow => "the number is too large",
        ErrorCode::NotPermitted => "not permitted",
        ErrorCode::Pipe => "broken pipe",
        ErrorCode::ReadOnly => "read-only",
        ErrorCode::InvalidSeek => "invalid seek",
        ErrorCode::TextFileBusy => "the program file is in use",
        ErrorCode::CrossDevice => "files stay in their zone",
    }
}

fn kept_in(of: Measure) -> &'static str {
    if of == Measure::HistoryBytes { "for old versions " } else { "" }
}

/// An error of a zone's: its meaning, then the rule or the fault behind it.
fn of_zone(e: &ZoneError) -> String {
    let what = meaning(e.code);
    match &e.cause {
        None => what.into(),
        // a refusal says what is not permitted, and by which rule
        Some(Cause::Refused(refusal)) => refusal.to_string(),
        // the code of these says less, or something else
        Some(cause @ (Cause::Changed { .. } | Cause::NoVersion(_))) => cause.to_string(),
        Some(Cause::Full { of: of @ (Measure::Bytes | Measure::HistoryBytes), used, more, quota }) => {
            let (used, more, quota) = (size(*used), size(*more), size(*quota));
            format!("{what}: {used} of {quota} {}are used, {more} more would be", kept_in(*of))
        }
        Some(cause) => format!("{what}: {cause}"),
    }
}

/// The zone's error that `e` is, wrapped or not.
fn zone_error<'e>(e: &'e (dyn Error + 'static)) -> Option<&'e ZoneError> {
    if let Some(e) = e.downcast_ref::<ZoneError>() {
        return Some(e);
    }
    let store = match e.downcast_ref::<AgentError>() {
        Some(AgentError::Zone(e)) => return Some(e),
        Some(AgentError::Store(e)) => Some(e),
        _ => e.downcast_ref::<StoreError>(),
    };
    match store {
        Some(StoreError::Zone(e)) => Some(e),
        _ => None,
    }
}

/// A whole chain of errors in one line: what was tried, and what came of it.
pub fn told(e: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in e.chain() {
        if !text.is_empty() {
            text.push_str(": ");
        }
        if let Some(e) = zone_error(cause) {
            // it has said all that is behind it
            text.push_str(&of_zone(e));
            break;
        }
        text.push_str(&cause.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use zone_vfs::id::Version;

    use super::*;

    #[test]
    fn no_code_of_wasi_is_told() {
        for code in ErrorCode::ALL {
            let words = meaning(*code);
            assert!(!words.contains('-') || *code == ErrorCode::ReadOnly, "{words}");
        }
    }

    #[test]
    fn what_is_behind_a_code_is_told_once() {
        let told = |code, cause| of_zone(&ZoneError { code, cause: Some(cause) });
        let full = Cause::Full { of: Measure::Bytes, used: 1 << 20, more: 512, quota: 1 << 20 };
        assert_eq!(
            told(ErrorCode::Quota, full),
            "the zone's quota is used up: 1.0 MiB of 1.0 MiB are used, 512 B more would be"
        );
        let full = Cause::Full { of: Measure::Inodes, used: 7, more: 1, quota: 7 };
        assert_eq!(
            told(ErrorCode::Quota, full),
            "the zone's quota is used up: 7 of 7 inodes are used, and 1 more were asked for"
        );
        let changed = Cause::Changed { found: Some(Version(8)) };
        assert_eq!(told(ErrorCode::Busy, changed), "the file has changed: it is at version 8");
        assert_eq!(told(ErrorCode::NoEntry, Cause::NoVersion(Version(999))), "no version 999");
    }

    #[test]
    fn an_error_is_found_however_it_is_wrapped() {
        let zone = || ZoneError::from(ErrorCode::NoEntry);
        for e in [
            anyhow::Error::new(zone()),
            anyhow::Error::new(StoreError::from(zone())),
            anyhow::Error::new(AgentError::from(zone())),
            anyhow::Error::new(AgentError::from(StoreError::from(zone()))),
        ] {
            assert_eq!(told(&e.context("a:/x")), "a:/x: no such file or directory");
        }
        let other = anyhow::anyhow!("inner").context("outer");
        assert_eq!(told(&other), "outer: inner");
    }
}
