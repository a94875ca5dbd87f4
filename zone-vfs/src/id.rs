//! The names that durable records use.
//!
//! None of them is a position in a file or a number that only one host knows, so that what names
//! something here names it on every host.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A durable identity that owns zones and a stream of records. Never reused.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentId(pub Uuid);

impl AgentId {
    /// The id as 16 bytes, as records hold it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// The one after this. There is none after the greatest, which is never given.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// Counts the writers that an agent has had; whoever opens the agent's head raises it, and a
    /// writer of an older epoch is fenced.
    Epoch
}
number! {
    /// An agent's own count of its records. Starts at 1; never reused within an epoch or across.
    Sequence
}
number! {
    /// Names a file, directory or symlink inside one zone. Never reused in that zone; 1 is the root.
    Inode
}
number! {
    /// Counts an agent's generations. Starts at 0 with the one it was created with.
    GenerationNumber
}
number! {
    /// Counts an agent's turns. Starts at 1.
    Turn
}

number! {
    /// Names one event in a zone's history: a version of a file, a rename, a deletion. Drawn from the
    /// same counter as inode numbers, so that the content of a version can be opened as an [`Inode`]
    /// of this number. Never reused in that zone; greater ones are later.
    Version
}
number! {
    /// Counts the entries of a zone's change feed. Starts at 1; never reused in that zone.
    ChangeSequence
}

impl Version {
    /// The number under which the version's content can be opened.
    pub fn inode(self) -> Inode {
        Inode(self.0)
    }
}

impl Inode {
    /// The root directory of every zone.
    pub const ROOT: Inode = Inode(1);
}

/// The content address of a chunk or tree node: blake3 of its plain bytes, keyed per tenant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The address of `plain` under the tenant's `key`.
    pub fn of(key: &[u8; 32], plain: &[u8]) -> Self {
        Self(*blake3::keyed_hash(key, plain).as_bytes())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&blake3::Hash::from_bytes(self.0).to_hex(), f)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A moment in nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The host's clock now.
    pub fn now() -> Self {
        #[cfg(test)]
        if let Some(now) = clock::tick() {
            return now;
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(since.as_nanos() as u64)
    }

    /// Whole seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The nanoseconds within the second.
    pub fn nanoseconds(self) -> u32 {
        (self.0 % 1_000_000_000) as u32
    }
}

/// A clock that always goes alike, for tests that must.
#[cfg(test)]
pub(crate) mod clock {
    use std::cell::Cell;

    use super::Timestamp;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    /// In this thread, time begins anew and passes by being asked for.
    pub(crate) fn start() {
        NOW.set(1_800_000_000_000_000_000);
    }

    /// Whether that is so.
    pub(crate) fn is_simulated() -> bool {
        NOW.get() > 0
    }

    pub(super) fn tick() -> Option<Timestamp> {
        let now = NOW.get();
        (now > 0).then(|| {
            NOW.set(now + 1_000);
            Timestamp(now)
        })
    }
}
