//! The journal: what an agent's records hold of its turns.
//!
//! The store keeps the order, the commit points and the history (see [`zone_vfs::store`]); here is
//! what the host puts into them. All of it is postcard behind one version byte.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::image::ImageReference;
use crate::wasi::{HandleTable, Start};

/// Raised whenever one of these types changes its layout.
pub const JOURNAL_VERSION: u8 = 1;

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Written by a newer version.
    #[error("a journal record of version {found}, this version reads up to {JOURNAL_VERSION}")]
    Newer {
        /// The version found.
        found: u8,
    },
    /// Not a record.
    #[error("a journal record cannot be read: {0}")]
    Damaged(String),
}

/// What kind of life the agent leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// `wasi:cli/command`: every turn is a whole run, memory begins from genesis.
    Command,
    /// `dormouse:agent/agent`: a sequence of turns over one memory.
    Agent,
}

impl World {
    /// The world's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "wasi:cli/command",
            Self::Agent => "dormouse:agent/agent",
        }
    }
}

/// What the host keeps about an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAbout {
    /// blake3 of the component.
    pub component: [u8; 32],
    /// What people call the component: its file's name.
    pub component_name: String,
    /// Its world.
    pub world: World,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// The name of the agent that it was forked from, as it was then.
    pub parent: Option<String>,
    /// The most linear memory that it gets; the host's limit where there is none. Bytes.
    pub max_memory: Option<u64>,
}

/// The host's part of a generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationAbout {
    /// The component that the memory belongs to.
    pub component: [u8; 32],
    /// How the rewritten component lays its state out in memories: see
    /// [`LAYOUT_VERSION`](crate::component::LAYOUT_VERSION).
    pub layout: u32,
    /// Memory; none for a command, which begins from genesis.
    pub image: Option<ImageReference>,
    /// The handles.
    pub handles: HandleTable,
    /// What the monotonic clock showed. Nanoseconds.
    pub monotonic: u64,
    /// How often the agent has been started, as far as its turns were kept: the upper half of what
    /// `lifecycle.generation` tells.
    pub starts: u64,
    /// What the next start is, other than a resume.
    pub next_start: Start,
}

/// The event of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventRecord {
    /// A run of a command, with these arguments.
    Run(Vec<String>),
    /// An event for `handle`.
    Event {
        /// Its id.
        id: String,
        /// Its kind.
        kind: String,
        /// Its content.
        payload: Vec<u8>,
    },
}

/// What came out of a turn that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeRecord {
    /// A command's exit status.
    Exit(u8),
    /// The reply.
    Reply(Vec<u8>),
    /// The guest answered with an error.
    Refused(String),
}

/// A record's bytes.
pub fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, JournalError> {
    postcard::to_extend(record, vec![JOURNAL_VERSION]).map_err(|e| JournalError::Damaged(e.to_string()))
}

/// The record that `bytes` hold.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JournalError> {
    match bytes.split_first() {
        Some((&JOURNAL_VERSION, rest)) => {
            postcard::from_bytes(rest).map_err(|e| JournalError::Damaged(e.to_string()))
        }
        Some((&found, _)) if found > JOURNAL_VERSION => Err(JournalError::Newer { found }),
        _ => Err(JournalError::Damaged("no version".into())),
    }
}
