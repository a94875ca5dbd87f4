//! An agent's records as a chain: each holds the digest of all before it.
//!
//! So the last digest stands for all of an agent's records, wherever they have been taken, and none can be left
//! out, changed or moved without the next one telling.

use serde::{Deserialize, Serialize};

use super::disk::Inner;
use crate::id::{AgentId, Epoch, Hash, Sequence};
use crate::log::Record;

/// The digest of all records of an agent up to one of them: zeros before the first, then the blake3 of each record,
/// in which the digest before it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChainDigest([u8; 32]);

impl ChainDigest {
    const CONTEXT: &str = "dormouse 2026 the records of an agent";

    /// With a record more, whose body holds the digest before it.
    pub fn of(record: &Record) -> Self {
        let Record { agent, epoch, sequence, needs, body } = record;
        let mut hasher = blake3::Hasher::new_derive_key(Self::CONTEXT);
        hasher.update(agent.0.as_bytes());
        hasher.update(&epoch.0.to_le_bytes());
        hasher.update(&sequence.0.to_le_bytes());
        hasher.update(&(needs.len() as u64).to_le_bytes());
        for hash in needs {
            hasher.update(&hash.0);
        }
        hasher.update(body);
        Self(*hasher.finalize().as_bytes())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for ChainDigest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Records that go on where an agent stands.
pub(super) struct Chain {
    agent: AgentId,
    epoch: Epoch,
    next: Sequence,
    before: ChainDigest,
    pub records: Vec<Record>,
    /// The digest with each record.
    pub digests: Vec<ChainDigest>,
}

impl Chain {
    pub fn behind(agent: AgentId, inner: &Inner) -> Self {
        let state = &inner.state;
        Self {
            agent,
            epoch: inner.writer,
            next: state.sequence.next(),
            before: state.digest,
            records: Vec::new(),
            digests: Vec::new(),
        }
    }

    /// What the body of the next record has to hold.
    pub fn before(&self) -> ChainDigest {
        self.before
    }

    pub fn push(&mut self, needs: Vec<Hash>, body: Vec<u8>) {
        let record = Record { agent: self.agent, epoch: self.epoch, sequence: self.next, needs, body };
        self.before = ChainDigest::of(&record);
        self.digests.push(self.before);
        self.records.push(record);
        self.next = self.next.next();
    }
}
