//! Who may do what in a zone, decided in one place.
//!
//! [`check`] is asked for every operation and every open flag; nothing else in this crate decides
//! what is permitted. [`lifecycle`] says as data what a fork, a rewind or a failed turn does to a
//! zone of each kind. The tests of this module are the table of the design, written out cell by cell.

mod check;
pub mod lifecycle;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use check::{Effect, PAST_NAMES, Refusal, Rule, check, check_past, check_reserved, reserved_name};

/// What a zone is for, and thereby what its contract is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ZoneKind {
    /// What happened: append-only.
    Episodic,
    /// What is known: mutable, and a new value archives the old one.
    Semantic,
    /// What has been learned to do: as semantic, and never reaped.
    Procedural,
    /// Files being worked on, shared by the agent and its tools.
    Workspace,
    /// The audit trail: append-only, partly written by the host.
    Logs,
    /// A zone that several agents mount.
    Shared,
}

impl ZoneKind {
    /// Every kind, in the order of the contracts table.
    pub const ALL: [ZoneKind; 6] = [
        ZoneKind::Episodic,
        ZoneKind::Semantic,
        ZoneKind::Procedural,
        ZoneKind::Workspace,
        ZoneKind::Logs,
        ZoneKind::Shared,
    ];

    /// Whether what is written can never be changed.
    pub fn is_append_only(self) -> bool {
        matches!(self, ZoneKind::Episodic | ZoneKind::Logs)
    }

    /// Whether each file has versions, and a history.
    pub fn keeps_versions(self) -> bool {
        matches!(self, ZoneKind::Semantic | ZoneKind::Procedural)
    }

    /// The word for this kind on a command line.
    pub fn name(self) -> &'static str {
        match self {
            ZoneKind::Episodic => "episodic",
            ZoneKind::Semantic => "semantic",
            ZoneKind::Procedural => "procedural",
            ZoneKind::Workspace => "workspace",
            ZoneKind::Logs => "logs",
            ZoneKind::Shared => "shared",
        }
    }

    /// The kind that [`ZoneKind::name`] writes as `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How a sentence speaks of a zone of this kind.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            ZoneKind::Episodic => "episodic memory",
            ZoneKind::Semantic => "semantic memory",
            ZoneKind::Procedural => "procedural memory",
            ZoneKind::Workspace => "the workspace",
            ZoneKind::Logs => "the logs zone",
            ZoneKind::Shared => "a shared zone",
        }
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// The agent whose zone it is.
    Agent,
    /// A tool that the agent runs.
    Tool,
    /// The manager of credentials, which has no business in zones.
    Manager,
    /// The host; the operator acts as the host.
    Host,
}

impl Principal {
    /// Every principal.
    pub const ALL: [Principal; 4] = [Principal::Agent, Principal::Tool, Principal::Manager, Principal::Host];

    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Principal::Agent => "the agent",
            Principal::Tool => "a tool",
            Principal::Manager => "the credential manager",
            Principal::Host => "the host",
        }
    }
}

/// A principal and the way in which it mounted the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// Who asks.
    pub principal: Principal,
    /// Whether the mount is `:rw`. A mount that is not takes all writing away, whatever the kind.
    pub writable: bool,
}

impl Mount {
    /// A writable mount.
    pub fn writable(principal: Principal) -> Self {
        Self { principal, writable: true }
    }

    /// A mount for reading only.
    pub fn read_only(principal: Principal) -> Self {
        Self { principal, writable: false }
    }
}

/// What is asked for: every row of the contracts table and every open flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Read content, attributes or a link's target; resolve a path.
    Read,
    /// List a directory.
    List,
    /// Create a file.
    Create,
    /// Create a directory.
    CreateDirectory,
    /// Open an existing file for writing.
    OpenForWriting,
    /// Write exactly at the end of a file.
    Append,
    /// Write anywhere else.
    Overwrite,
    /// Set a file's size, also by the open flag.
    Truncate,
    /// Rename within the zone, also over an existing name.
    Rename,
    /// Remove a name.
    Unlink,
    /// Remove an empty directory.
    RemoveDirectory,
    /// Give a file one more name in the zone.
    HardLink,
    /// Create a symbolic link.
    Symlink,
    /// Set times explicitly.
    SetTimes,
    /// Rename or link into or out of another zone.
    CrossZone,
    /// Make durable what was written.
    Sync,
    /// Publish an earlier version of a file again.
    Rollback,
    /// Erase the content of a file from all of its versions.
    Forget,
    /// Give back old versions, by policy.
    ReapVersions,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 19] = [
        Operation::Read,
        Operation::List,
        Operation::Create,
        Operation::CreateDirectory,
        Operation::OpenForWriting,
        Operation::Append,
        Operation::Overwrite,
        Operation::Truncate,
        Operation::Rename,
        Operation::Unlink,
        Operation::RemoveDirectory,
        Operation::HardLink,
        Operation::Symlink,
        Operation::SetTimes,
        Operation::CrossZone,
        Operation::Sync,
        Operation::Rollback,
        Operation::Forget,
        Operation::ReapVersions,
    ];

    /// The operation as a refusal names it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::List => "list",
            Operation::Create => "create",
            Operation::CreateDirectory => "create directory",
            Operation::OpenForWriting => "open for writing",
            Operation::Append => "append",
            Operation::Overwrite => "overwrite",
            Operation::Truncate => "truncate",
            Operation::Rename => "rename",
            Operation::Unlink => "unlink",
            Operation::RemoveDirectory => "remove directory",
            Operation::HardLink => "hard link",
            Operation::Symlink => "symlink",
            Operation::SetTimes => "set times",
            Operation::CrossZone => "crossing into another zone",
            Operation::Sync => "sync",
            Operation::Rollback => "roll back",
            Operation::Forget => "forget",
            Operation::ReapVersions => "reap old versions",
        }
    }

    /// Whether it changes nothing.
    fn only_looks(self) -> bool {
        matches!(self, Operation::Read | Operation::List | Operation::Sync)
    }
}
