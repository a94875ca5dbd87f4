use serde::{Deserialize, Serialize};

use super::{Quota, Usage, ZoneError};
use crate::chunks::ChunkStore;
use crate::contract::ZoneKind;
use crate::id::{Hash, Inode};

/// A zone as it stood: a value that costs a pointer to copy, and never changes.
#[derive(Clone)]
pub struct ZoneRoot {}

/// What names a stored zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRoot {
    /// The root node of its tree.
    pub hash: Hash,
    /// The inode number to be given next.
    pub next_inode: Inode,
    /// What it uses.
    pub usage: Usage,
    /// Its kind.
    pub kind: ZoneKind,
    /// Its quota.
    pub quota: Quota,
}

#[allow(unused_variables)]
impl ZoneRoot {
    /// Stores every node and chunk that is not stored yet. Not durable before the storage is flushed.
    pub fn store(&self, store: &dyn ChunkStore) -> Result<StoredRoot, ZoneError> {
        Err(super::ErrorCode::Unsupported.into())
    }

    /// The zone that was stored; it is read as it is used.
    pub fn load(stored: StoredRoot) -> Self {
        Self {}
    }
}
