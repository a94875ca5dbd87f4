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

pub(super) const NO_BACKUP: &str = "is no backup";

pub(super) fn no_backup() -> StoreError {
    bad(NO_BACKUP)
}

pub(super) fn nothing() -> StoreError {
    bad("is missing: there is nothing to restore")
}
