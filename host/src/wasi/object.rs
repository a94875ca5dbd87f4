//! What a handle can stand for.

use serde::{Deserialize, Serialize};
use zone_vfs::id::Inode;
use zone_vfs::zone::OpenedFor;

use super::delegate_generated::Kind;

/// An object behind a handle. All but [`Object::Foreign`] survive a pause, in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Object {
    /// An open file or directory.
    Descriptor(Descriptor),
    /// A directory that is being listed.
    DirectoryStream {
        /// Index of the zone.
        zone: u16,
        /// The directory.
        inode: Inode,
        /// The last name that was given.
        after: Option<Vec<u8>>,
    },
    /// A stream that reads a file.
    FileInput {
        /// Index of the zone.
        zone: u16,
        /// The file.
        inode: Inode,
        /// The offset of the next byte.
        position: u64,
    },
    /// A stream that writes a file.
    FileOutput {
        /// Index of the zone.
        zone: u16,
        /// The file.
        inode: Inode,
        /// The offset of the next byte; at the end where there is none.
        position: Option<u64>,
    },
    /// Standard input.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Standard input is a terminal.
    TerminalInput,
    /// Standard output or error is a terminal.
    TerminalOutput,
    /// Something to wait for.
    Pollable(Pollable),
    /// An error that a stream reported.
    Error {
        /// In words.
        message: String,
        /// The filesystem's code, as its index in `wasi:filesystem`.
        code: Option<u8>,
    },
    /// A resource in wasmtime's table, under this number: dies with the process.
    Foreign(Kind, u32),
    /// What was foreign when the agent was paused.
    Gone(Kind),
    /// A resource of the component's own.
    Guest {
        /// The number of its type, as the rewriter counts them.
        ty: u32,
        /// What it is to the component.
        rep: u32,
    },
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Index of the zone.
    pub zone: u16,
    /// What is open.
    pub inode: Inode,
    /// Whether it is a directory.
    pub directory: bool,
    /// What it was opened for.
    pub flags: Flags,
}

/// What a descriptor was opened for. The names are those of `descriptor-flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// `read`.
    pub read: bool,
    /// `write`.
    pub write: bool,
    /// `mutate-directory`.
    pub mutate_directory: bool,
}

impl Flags {
    pub(super) fn bits(self) -> u64 {
        u64::from(self.read) | u64::from(self.write) << 1 | u64::from(self.mutate_directory) << 2
    }
}

/// Something to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pollable {
    /// It is ready now, always.
    Ready,
    /// The monotonic clock reaches this number of nanoseconds.
    At(u64),
    /// Standard input has bytes, or is at its end.
    Stdin,
    /// Standard output takes bytes.
    Stdout,
    /// Standard error takes bytes.
    Stderr,
}

impl Object {
    /// The type's name, for errors.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Descriptor(_) => "a descriptor",
            Self::DirectoryStream { .. } => "a directory-entry-stream",
            Self::FileInput { .. } | Self::Stdin => "an input-stream",
            Self::FileOutput { .. } | Self::Stdout | Self::Stderr => "an output-stream",
            Self::TerminalInput => "a terminal-input",
            Self::TerminalOutput => "a terminal-output",
            Self::Pollable(_) => "a pollable",
            Self::Error { .. } => "an error",
            Self::Foreign(..) => "a connection or body",
            Self::Gone(_) => "closed since the pause",
            Self::Guest { .. } => "a resource of the component's own",
        }
    }

    /// The type of resource that the object is, of those that the host has.
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Self::Descriptor(_) => Kind::Descriptor,
            Self::DirectoryStream { .. } => Kind::DirectoryEntryStream,
            Self::FileInput { .. } | Self::Stdin => Kind::InputStream,
            Self::FileOutput { .. } | Self::Stdout | Self::Stderr => Kind::OutputStream,
            Self::TerminalInput => Kind::TerminalInput,
            Self::TerminalOutput => Kind::TerminalOutput,
            Self::Pollable(_) => Kind::Pollable,
            Self::Error { .. } => Kind::Error,
            Self::Foreign(kind, _) | Self::Gone(kind) => *kind,
            Self::Guest { .. } => return None,
        })
    }

    /// What the object keeps a file open for. A draft in a zone that keeps versions belongs to those that
    /// write: the last of them that goes publishes it, whoever still reads.
    pub fn opened_for(&self) -> OpenedFor {
        match self {
            Self::Descriptor(d) if d.flags.write && !d.directory => OpenedFor::Writing,
            Self::FileOutput { .. } => OpenedFor::Writing,
            _ => OpenedFor::Reading,
        }
    }

    /// The inode that the object keeps open, if any.
    pub fn keeps_open(&self) -> Option<(u16, Inode)> {
        match self {
            Self::Descriptor(d) => Some((d.zone, d.inode)),
            Self::DirectoryStream { zone, inode, .. }
            | Self::FileInput { zone, inode, .. }
            | Self::FileOutput { zone, inode, .. } => Some((*zone, *inode)),
            _ => None,
        }
    }
}
