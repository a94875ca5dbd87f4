//! Errors in plain words.
//!
//! A guest is told codes of WASI, and the library's errors carry them. People are told what they
//! would be told on any system, and the rule of a zone where one is behind it.

use std::error::Error;

use zone_vfs::store::StoreError;
use zone_vfs::zone::{Cause, ErrorCode, Measure, ZoneError};

use super::output::size;
use super::terminal::escape_line;
use crate::AgentError;
use crate::code::CodeError;

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

/// Whether an error has lines of its own: what a guest or a compiler said, and where a policy does not read.
fn has_lines(e: &(dyn Error + 'static)) -> bool {
    let agent = e.downcast_ref::<AgentError>();
    let is_code = |e: &CodeError| matches!(e, CodeError::Compile(_));
    e.is::<Lines>()
        || e.downcast_ref::<CodeError>().is_some_and(is_code)
        || agent.is_some_and(|e| match e {
            AgentError::Trap { .. } | AgentError::Instantiate(_) | AgentError::Policy { .. } => true,
            AgentError::Code(e) => is_code(e),
            _ => false,
        })
}

/// What is told as it is, in as many lines as it has.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Lines(pub String);

/// A whole chain of errors: what was tried, and what came of it. It is one line, in which breaks that paths and names
/// have are escapes, unless an error has lines of its own.
pub fn told(e: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in e.chain() {
        let (said, is_last) = match zone_error(cause) {
            // it has said all that is behind it
            Some(e) => (of_zone(e), true),
            None => (cause.to_string(), false),
        };
        let said = if has_lines(cause) { said } else { escape_line(&said).into_owned() };
        // one that says what is behind it has told that
        if text.is_empty() {
            text = said;
        } else if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        if is_last {
            break;
        }
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

    #[test]
    fn an_error_is_one_line_and_tells_each_cause_once() {
        let forged = anyhow::anyhow!("a\nb").context("n:/x\ndormouse: all is well\u{1b}[2J");
        assert_eq!(told(&forged), "n:/x\\ndormouse: all is well\\u{1b}[2J: a\\nb");
        let source = std::sync::Arc::new(StoreError::Closed);
        let shared = StoreError::Shared { zone: "team".into(), source };
        assert_eq!(told(&shared.into()), "the shared zone `team`: the store is closed");
        let trap = AgentError::Trap { reason: "unreachable\nat f".into() };
        assert_eq!(told(&trap.into()), "the turn failed: unreachable\nat f");
    }
}
