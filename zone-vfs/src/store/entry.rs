//! What a log record says: an agent's facts and zone writes as one ordered sequence.
//!
//! A record's body is one version byte, the digest of all records of its agent before it, and the postcard of its
//! entries. Entries of a record take
//! effect together. Zone changes alone promote nothing: a control entry ([`Entry::Synced`],
//! [`Entry::TurnEnded`], …) says what becomes of all that stands before it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::StoreError;
use super::chain::ChainDigest;
use super::shared::SharedMount;
use crate::contract::ZoneKind;
use crate::id::{AgentId, Epoch, GenerationNumber, Hash, Inode, Sequence, Timestamp, Turn};
use crate::zone::{Change, Quota};

/// Raised whenever an entry changes its meaning or layout.
pub const RECORD_VERSION: u8 = 1;

/// A zone of an agent, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneSpec {
    /// What the operator calls it.
    pub name: String,
    /// Where the agent finds it: an absolute path.
    pub mount: String,
    /// Its contract.
    pub kind: ZoneKind,
    /// Its bounds. A shared zone has bounds of its own, and these say nothing.
    pub quota: Quota,
    /// The shared zone that is mounted here; exactly for a zone of the kind shared. The agent's own
    /// records and generations hold nothing of it.
    pub shared: Option<SharedMount>,
}

/// How far an agent has seen the commits of a shared zone that it mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMount {
    /// The agent's zone that is the mount.
    pub zone: u16,
    /// The epoch of the shared zone's last record that can have been seen; all of it is durable.
    pub epoch: Epoch,
    /// And that record's number.
    pub sequence: Sequence,
}

/// Whose records they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// An agent's.
    Agent,
    /// A shared zone's: one zone, and no turns.
    SharedZone,
}

/// Why a generation was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The agent was created.
    Created,
    /// A turn ended.
    Turn,
    /// The operator, or a policy, paused the agent.
    Paused,
    /// The agent is a fork of another.
    Forked,
    /// The agent was rewound to this earlier generation.
    Rewound(GenerationNumber),
    /// A turn failed or was interrupted: what it left is kept beside, for this reason.
    Side(String),
    /// The operator has written to zones since the generation before.
    Operated,
    /// A policy has given back old versions since the generation before, which this one is otherwise as: it stands
    /// for it, and goes when the next is made.
    Reaped {
        /// When the agent was paused, if it is.
        paused: Option<Timestamp>,
    },
    /// The embedder has replaced what the agent is: its memory begins anew, its zones go on.
    Upgraded,
}

/// How a turn relates to what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TurnStyle {
    /// All or nothing: a turn that fails goes back.
    Transaction,
    /// As a process on any system: what was written stays.
    Process,
}

/// Bytes of any size, in the record itself or in the chunk store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// Here.
    Inline(#[serde(with = "serde_bytes_vec")] Vec<u8>),
    /// In the chunk store, under these addresses, in order.
    Stored {
        /// Bytes altogether.
        len: u64,
        /// Where they are.
        chunks: Vec<Hash>,
    },
}

/// One entry of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The first entry of an agent or a shared zone.
    Created {
        /// Which of them.
        role: Role,
        /// Its name.
        name: String,
        /// What the embedder keeps about it.
        about: Payload,
        /// Its zones.
        zones: Vec<ZoneSpec>,
        /// The generation that it is a fork of.
        parent: Option<(AgentId, GenerationNumber)>,
        /// When.
        at: Timestamp,
    },
    /// A writer has opened the agent, or begins again after it threw away what was not durable: a
    /// turn that was open is interrupted, and zone changes that nothing has promoted do not count.
    Opened {
        /// The opening of the store.
        incarnation: Uuid,
    },
    /// The embedder's own data changed.
    About(Payload),
    /// A turn begins.
    TurnBegan {
        /// Its number.
        turn: Turn,
        /// Its style.
        style: TurnStyle,
        /// What it is about: the event.
        event: Payload,
        /// When.
        at: Timestamp,
    },
    /// A fact of the turn.
    Fact(Payload),
    /// Changes of the zone with this index.
    Changes(u16, Vec<Change>),
    /// Zone changes that nothing has promoted do not count: their commit was refused half-way, and
    /// those that do count follow.
    Withdrawn,
    /// Everything before is synced.
    Synced,
    /// The turn ended.
    TurnEnded {
        /// Its number.
        turn: Turn,
        /// What came out.
        outcome: Payload,
        /// When.
        at: Timestamp,
    },
    /// The turn failed.
    TurnFailed {
        /// Its number.
        turn: Turn,
        /// Why.
        reason: String,
        /// When.
        at: Timestamp,
    },
    /// A generation: the state of the zones here, tied to what the embedder keeps with it.
    Generation {
        /// Its number.
        number: GenerationNumber,
        /// Why.
        cause: Cause,
        /// The embedder's part: image, handles, position.
        about: Payload,
        /// When.
        at: Timestamp,
    },
    /// The zones that a rewind moves go back to this generation.
    Rewound {
        /// Which.
        to: GenerationNumber,
        /// When.
        at: Timestamp,
    },
    /// The operator wrote to zones between turns: as a turn that ended.
    Operated {
        /// When.
        at: Timestamp,
    },
    /// The agent is gone, and so is its name.
    Removed,
    /// Something is attached to a generation that is kept.
    Attached {
        /// Which.
        generation: GenerationNumber,
        /// The root of what is attached; stored, whatever its length.
        root: Payload,
    },
    /// The content of a file was erased from a zone by the changes before. The generations that may hold it,
    /// those made since the file had its number, are dropped, but for the one at which the agent stands: that
    /// goes with the next. Events and outcomes of these turns, both included, are erased.
    Forgot {
        /// The zone.
        zone: u16,
        /// The file.
        file: Inode,
        /// The first and the last of the turns, if any.
        turns: Option<(Turn, Turn)>,
    },
    /// A generation that is kept is pinned, or is not any more.
    Pinned {
        /// Which.
        generation: GenerationNumber,
        /// Whether it is from here on.
        pinned: bool,
    },
    /// A zone has other bounds from here on. It concerns nothing else that is going on.
    Bounded {
        /// The zone.
        zone: u16,
        /// What it may use.
        quota: Quota,
    },
    /// A generation, made by the entry before, is of use only with an earlier one, which is kept as long.
    StandsOn {
        /// Which.
        generation: GenerationNumber,
        /// The earlier one.
        on: GenerationNumber,
    },
    /// What the embedder keeps of a generation is this from here on, and it stands by itself.
    Completed {
        /// Which.
        generation: GenerationNumber,
        /// The embedder's part.
        about: Payload,
    },
    /// What the agent has seen of shared zones by the generation that was made before.
    Seen {
        /// Which generation.
        generation: GenerationNumber,
        /// The mounts of which it has seen something since the generation before.
        mounts: Vec<SeenMount>,
    },
}

impl Payload {
    /// The addresses that it needs.
    pub fn needs(&self) -> &[Hash] {
        match self {
            Self::Inline(_) => &[],
            Self::Stored { chunks, .. } => chunks,
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Stored { len, .. } => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entry {
    fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Created { about, .. } | Self::Generation { about, .. } | Self::Completed { about, .. } => {
                Some(about)
            }
            Self::About(p) | Self::Fact(p) => Some(p),
            Self::TurnBegan { event, .. } => Some(event),
            Self::TurnEnded { outcome, .. } => Some(outcome),
            Self::Attached { root, .. } => Some(root),
            _ => None,
        }
    }

    /// The addresses that the entry's payload needs.
    pub(super) fn needs(&self) -> &[Hash] {
        self.payload().map_or(&[], Payload::needs)
    }

    /// About how many bytes an entry without changes has in a record.
    pub(super) fn size(&self) -> usize {
        const REST: usize = 64;
        REST + match self.payload() {
            Some(Payload::Inline(bytes)) => bytes.len(),
            Some(Payload::Stored { chunks, .. }) => chunks.len() * size_of::<Hash>(),
            None => 0,
        }
    }

    /// Whether it says what becomes of the zone changes before it.
    pub(super) fn promotes(&self) -> bool {
        match self {
            Self::Created { .. }
            | Self::Synced
            | Self::TurnEnded { .. }
            | Self::TurnFailed { .. }
            | Self::Rewound { .. }
            | Self::Operated { .. }
            | Self::Removed => true,
            Self::Opened { .. }
            | Self::Withdrawn
            | Self::About(_)
            | Self::TurnBegan { .. }
            | Self::Fact(_)
            | Self::Changes(..)
            | Self::Generation { .. }
            | Self::Forgot { .. }
            | Self::Pinned { .. }
            | Self::Bounded { .. }
            | Self::StandsOn { .. }
            | Self::Seen { .. }
            | Self::Completed { .. }
            | Self::Attached { .. } => false,
        }
    }
}

/// The body of a record behind those that `before` stands for.
pub(super) fn encode(before: ChainDigest, entries: &[Entry]) -> Result<Vec<u8>, StoreError> {
    let mut body = vec![RECORD_VERSION];
    body.extend_from_slice(before.as_bytes());
    postcard::to_extend(entries, body).map_err(|e| StoreError::Encoding(e.to_string()))
}

/// What stands before a record's body, and its entries.
pub(super) fn decode(body: &[u8]) -> Result<(ChainDigest, Vec<Entry>), StoreError> {
    match body.split_first() {
        Some((&RECORD_VERSION, rest)) => {
            let (before, rest) = rest
                .split_first_chunk()
                .ok_or_else(|| StoreError::Encoding("a record without a digest".into()))?;
            let entries = postcard::from_bytes(rest).map_err(|e| StoreError::Encoding(e.to_string()))?;
            Ok((ChainDigest::from(*before), entries))
        }
        Some((&found, _)) if found > RECORD_VERSION => {
            Err(StoreError::NewerRecord { found: found.into(), supported: RECORD_VERSION.into() })
        }
        _ => Err(StoreError::Encoding("a record without a version".into())),
    }
}

mod serde_bytes_vec {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Vec::<u8>::deserialize(from)
    }
}
