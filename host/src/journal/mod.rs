//! The journal: what an agent's records hold of its turns.
//!
//! The store keeps the order, the commit points and the history (see [`zone_vfs::store`]); here is
//! what the host puts into them. All of it is postcard behind one version byte.

pub mod facts;
mod recording;
pub mod session;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zone_vfs::id::Timestamp;

use crate::image::ImageReference;
use crate::wasi::{HandleTable, Start};

pub(crate) use self::recording::{Recording, Replaying, fresh_seed};

/// Raised whenever one of these types changes its layout.
pub const JOURNAL_VERSION: u8 = 4;

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
    /// The most processor time that a turn gets, where that is less than the host's limit.
    pub max_cpu: Option<Duration>,
    /// When it was moved to another store, where it was: nothing here goes on with it.
    pub moved: Option<Timestamp>,
}

/// The host's part of a generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationAbout {
    /// The component that the memory belongs to.
    pub component: [u8; 32],
    /// What people called the component; none in a record of version 1.
    pub component_name: Option<String>,
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
    /// The agent got another component.
    Upgrade {
        /// blake3 of the component.
        component: [u8; 32],
        /// What people call it.
        component_name: String,
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
    /// The agent has its new component.
    Upgraded,
}

/// What a record of the journal holds.
pub trait Record: Serialize + DeserializeOwned {
    /// Reads what a version wrote that is older than [`JOURNAL_VERSION`]: as it is written now, where that has not
    /// changed since.
    fn decode_older(_version: u8, bytes: &[u8]) -> Result<Self, JournalError> {
        read(bytes)
    }
}

impl Record for AgentAbout {
    fn decode_older(version: u8, bytes: &[u8]) -> Result<Self, JournalError> {
        #[derive(Deserialize)]
        struct Version1 {
            component: [u8; 32],
            component_name: String,
            world: World,
            args: Vec<String>,
            env: Vec<(String, String)>,
            parent: Option<String>,
            max_memory: Option<u64>,
        }
        /// No agent had been moved before version 4, and none had a limit of processor time before version 2.
        #[derive(Deserialize)]
        struct Version3(Version1, Option<Duration>);
        let Version3(old, max_cpu) = if version > 1 { read(bytes)? } else { Version3(read(bytes)?, None) };
        Ok(Self {
            component: old.component,
            component_name: old.component_name,
            world: old.world,
            args: old.args,
            env: old.env,
            parent: old.parent,
            max_memory: old.max_memory,
            max_cpu,
            moved: None,
        })
    }
}

impl Record for EventRecord {}
impl Record for OutcomeRecord {}

impl Record for GenerationAbout {
    fn decode_older(version: u8, bytes: &[u8]) -> Result<Self, JournalError> {
        if version > 1 {
            // handles of resources that guests define have come since
            return read(bytes);
        }
        /// Version 1 had no name.
        #[derive(Deserialize)]
        struct Version1 {
            component: [u8; 32],
            layout: u32,
            image: Option<ImageReference>,
            handles: HandleTable,
            monotonic: u64,
            starts: u64,
            next_start: Start,
        }
        let old: Version1 = read(bytes)?;
        Ok(Self {
            component: old.component,
            component_name: None,
            layout: old.layout,
            image: old.image,
            handles: old.handles,
            monotonic: old.monotonic,
            starts: old.starts,
            next_start: old.next_start,
        })
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JournalError> {
    postcard::from_bytes(bytes).map_err(|e| JournalError::Damaged(e.to_string()))
}

/// A record's bytes.
pub fn encode<T: Record>(record: &T) -> Result<Vec<u8>, JournalError> {
    postcard::to_extend(record, vec![JOURNAL_VERSION]).map_err(|e| JournalError::Damaged(e.to_string()))
}

/// The record that `bytes` hold.
pub fn decode<T: Record>(bytes: &[u8]) -> Result<T, JournalError> {
    match bytes.split_first() {
        Some((&JOURNAL_VERSION, rest)) => read(rest),
        Some((&version, rest)) if (1..JOURNAL_VERSION).contains(&version) => T::decode_older(version, rest),
        Some((&found, _)) if found > JOURNAL_VERSION => Err(JournalError::Newer { found }),
        _ => Err(JournalError::Damaged("no version".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Since version 2 handles may stand for a component's own resources, and since version 3 an agent may have been
    /// moved.
    #[test]
    fn records_of_versions_2_and_3_are_read_and_newer_ones_are_told() {
        let about = AgentAbout {
            component: [7; 32],
            component_name: "a".into(),
            world: World::Agent,
            args: vec!["b".into()],
            env: Vec::new(),
            parent: None,
            max_memory: Some(5),
            max_cpu: Some(Duration::from_secs(3)),
            moved: None,
        };
        let generation = GenerationAbout {
            component: [7; 32],
            component_name: Some("a".into()),
            layout: 2,
            image: None,
            handles: HandleTable::default(),
            monotonic: 11,
            starts: 3,
            next_start: Start::Resumed,
        };
        let of_version = |mut bytes: Vec<u8>, version: u8| {
            bytes[0] = version;
            bytes
        };
        let mut older = encode(&about).unwrap();
        // the place of what has come since
        assert_eq!(older.pop(), Some(0));
        for version in [2, 3] {
            assert_eq!(decode::<AgentAbout>(&of_version(older.clone(), version)).as_ref(), Ok(&about));
        }
        let moved = AgentAbout { moved: Some(Timestamp(1)), ..about };
        assert_eq!(decode(&encode(&moved).unwrap()), Ok(moved));
        let older = of_version(encode(&generation).unwrap(), 2);
        let read: GenerationAbout = decode(&older).unwrap();
        assert_eq!((read.monotonic, read.starts, read.component_name), (11, 3, Some("a".into())));
        let newer = of_version(encode(&generation).unwrap(), JOURNAL_VERSION + 1);
        let told = decode::<GenerationAbout>(&newer).map(|_| ());
        assert_eq!(told, Err(JournalError::Newer { found: JOURNAL_VERSION + 1 }));
    }
}
