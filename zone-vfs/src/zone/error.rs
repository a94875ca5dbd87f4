use std::sync::Arc;

use crate::chunks::ChunkError;
use crate::contract::{Refusal, Rule};
use crate::id::Version;
use crate::tree::TreeError;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $wasi:literal,)*) => {
        /// What a guest is told: the names are exactly those of `wasi:filesystem`'s `error-code`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// Every code, in the order of `wasi:filesystem`.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];

            /// The name in `wasi:filesystem`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $wasi,)*
                }
            }
        }
    };
}

error_codes! {
    /// Permission denied.
    Access = "access",
    /// Would block.
    WouldBlock = "would-block",
    /// Already in progress.
    Already = "already",
    /// Not an open descriptor, or not open for this.
    BadDescriptor = "bad-descriptor",
    /// In use.
    Busy = "busy",
    /// Would deadlock.
    Deadlock = "deadlock",
    /// Quota exceeded.
    Quota = "quota",
    /// Exists already.
    Exist = "exist",
    /// Larger than a file can be.
    FileTooLarge = "file-too-large",
    /// Not a valid byte sequence.
    IllegalByteSequence = "illegal-byte-sequence",
    /// In progress.
    InProgress = "in-progress",
    /// Interrupted.
    Interrupted = "interrupted",
    /// Invalid argument.
    Invalid = "invalid",
    /// Reading or writing storage failed.
    Io = "io",
    /// A directory, where something else is needed.
    IsDirectory = "is-directory",
    /// Too many symbolic links.
    Loop = "loop",
    /// Too many names for one file.
    TooManyLinks = "too-many-links",
    /// Message too long.
    MessageSize = "message-size",
    /// A name or path is too long.
    NameTooLong = "name-too-long",
    /// No such device.
    NoDevice = "no-device",
    /// No such file or directory.
    NoEntry = "no-entry",
    /// No lock available.
    NoLock = "no-lock",
    /// Not enough memory.
    InsufficientMemory = "insufficient-memory",
    /// No space left.
    InsufficientSpace = "insufficient-space",
    /// Not a directory.
    NotDirectory = "not-directory",
    /// A directory that is not empty.
    NotEmpty = "not-empty",
    /// State not recoverable.
    NotRecoverable = "not-recoverable",
    /// Not supported.
    Unsupported = "unsupported",
    /// Not a terminal.
    NoTty = "no-tty",
    /// No such device or address.
    NoSuchDevice = "no-such-device",
    /// Value too large.
    Overflow = "overflow",
    /// Not permitted: by a contract, or because a path leads out of its base.
    NotPermitted = "not-permitted",
    /// Broken pipe.
    Pipe = "pipe",
    /// Mounted read-only.
    ReadOnly = "read-only",
    /// Invalid seek.
    InvalidSeek = "invalid-seek",
    /// Text file busy.
    TextFileBusy = "text-file-busy",
    /// Crosses into another zone.
    CrossDevice = "cross-device",
}

/// What a quota bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of files and link targets.
    Bytes,
    /// Files, folders, links, and names beyond the first of each.
    Inodes,
    /// Bytes that versions added to the history.
    HistoryBytes,
    /// Events in the history.
    HistoryEvents,
}

impl Measure {
    /// What is counted, as it follows a number.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Inodes => "inodes",
            Self::HistoryBytes => "bytes of old versions",
            Self::HistoryEvents => "events in the history",
        }
    }
}

/// Why, beyond the code that the guest is told.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Cause {
    /// A contract refuses it.
    #[error("{0}")]
    Refused(Refusal),
    /// A rule of the filesystem refuses it.
    #[error("{0}")]
    Rule(&'static str),
    /// The quota does not allow for it.
    #[error("{used} of {quota} {} are used, and {more} more were asked for", .of.name())]
    Full {
        /// What there is no more of.
        of: Measure,
        /// How many are used and charged.
        used: u64,
        /// How many more were asked for.
        more: u64,
        /// How many may be used.
        quota: u64,
    },
    /// The file has no version of this number, or has it no more.
    #[error("no version {0}")]
    NoVersion(Version),
    /// What a conditional operation expected does not hold.
    #[error("the file has changed: {}", .found.map_or_else(
        || "it has no version".to_string(),
        |version| format!("it is at version {version}"),
    ))]
    Changed {
        /// The version at which the file stands, if it has one.
        found: Option<Version>,
    },
    /// Storage failed, or what it holds is damaged.
    #[error("{0}")]
    Storage(Arc<TreeError>),
}

/// An operation on a zone that failed. Nothing of it was done.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{}", code.name(), cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default())]
pub struct ZoneError {
    /// What the guest is told.
    pub code: ErrorCode,
    /// Why, where the code does not say all.
    pub cause: Option<Cause>,
}

impl ZoneError {
    /// An error that names the rule it follows from.
    #[cold]
    pub(crate) fn rule(code: ErrorCode, rule: &'static str) -> Self {
        Self { code, cause: Some(Cause::Rule(rule)) }
    }

    /// Whether it failed since what it expected of a file does not hold.
    pub fn is_changed(&self) -> bool {
        matches!(self.cause, Some(Cause::Changed { .. }))
    }

    /// Whether storage could not be read for want of file descriptors or memory.
    pub fn is_shortage(&self) -> bool {
        let is_it = |error: &TreeError| matches!(error, TreeError::Chunk(ChunkError::Shortage(_)));
        matches!(&self.cause, Some(Cause::Storage(error)) if is_it(error))
    }

    /// The contract's refusal, when that is the cause.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.cause {
            Some(Cause::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }
}

impl From<ErrorCode> for ZoneError {
    #[cold]
    fn from(code: ErrorCode) -> Self {
        Self { code, cause: None }
    }
}

impl From<Refusal> for ZoneError {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.rule {
            Rule::ReadOnlyMount | Rule::Past => ErrorCode::ReadOnly,
            Rule::OneZone => ErrorCode::CrossDevice,
            Rule::NoVersions => ErrorCode::Unsupported,
            Rule::NoAccess(_)
            | Rule::AppendOnly
            | Rule::Versioned
            | Rule::Reserved
            | Rule::AuditTrail
            | Rule::Forgetting
            | Rule::Policy
            | Rule::NeverReaped => ErrorCode::NotPermitted,
        };
        Self { code, cause: Some(Cause::Refused(refusal)) }
    }
}

impl From<TreeError> for ZoneError {
    #[cold]
    fn from(error: TreeError) -> Self {
        let code = match &error {
            TreeError::Chunk(ChunkError::NoSpace) => ErrorCode::InsufficientSpace,
            _ => ErrorCode::Io,
        };
        Self { code, cause: Some(Cause::Storage(Arc::new(error))) }
    }
}

impl From<ChunkError> for ZoneError {
    #[cold]
    fn from(error: ChunkError) -> Self {
        TreeError::from(error).into()
    }
}
