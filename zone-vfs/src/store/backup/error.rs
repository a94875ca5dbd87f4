//! What can be wrong with a backup.

use crate::store::StoreError;

/// What is wrong with a backup, in words that go on after its name.
pub(super) fn bad(reason: impl Into<String>) -> StoreError {
    StoreError::Backup(reason.into())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(super) fn reading(error: std::io::Error) -> StoreError {
    bad(format!("cannot be read: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(super) fn writing(error: std::io::Error) -> StoreError {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return bad("is not whole, and cannot be restored: whoever read it has gone");
    }
    bad(format!("cannot be written: {error}"))
}

pub(super) const NO_BACKUP: &str = "is no backup";

pub(super) fn no_backup() -> StoreError {
    bad(NO_BACKUP)
}

pub(super) fn nothing() -> StoreError {
    bad("is missing: there is nothing to restore")
}

pub(super) fn truncated() -> StoreError {
    bad("is truncated: it ends in the middle")
}
