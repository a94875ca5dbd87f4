//! The open files of a zone, with what the hot path needs at hand.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::Result;
use super::ranges::Ranges;
use super::state::State;
use crate::contract::Principal;
use crate::id::Inode;
use crate::tree::{DraftRecord, Extent, ExtentValue, InodeRecord, Key, Value};

/// Open inodes by number.
pub(super) type OpenTable = HashMap<Inode, OpenFile, BuildHasherDefault<InodeHasher>>;

/// Spreads inode numbers, which the zone gives out itself, so that no guest can choose them.
#[derive(Default)]
pub(super) struct InodeHasher(u64);

impl Hasher for InodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(super) struct OpenFile {
    /// The record; newer than the tree's when `dirty`.
    pub(super) record: InodeRecord,
    /// How often it is open.
    pub(super) references: u32,
    /// How often it is open for writing, of those.
    pub(super) writers: u32,
    /// Whether it lies under a name that is reserved for the host.
    pub(super) reserved: bool,
    /// What writing to it has to look at first.
    pub(super) stage: Stage,
    /// Who wrote to it last.
    pub(super) author: Principal,
    /// Whether record or chunk are newer than the tree's. The zone lists such files.
    pub(super) dirty: bool,
    /// The chunk last used.
    pub(super) chunk: Option<CachedChunk>,
}

/// How far the content of an open file has come on its way to becoming a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The zone keeps no versions of it.
    Plain,
    /// It is as it was published.
    Settled,
    /// It is a draft.
    Draft(DraftRecord),
    /// It lies in the past and is never written.
    Past,
}

pub(super) struct CachedChunk {
    pub(super) index: u64,
    pub(super) data: ChunkData,
    /// What was written here and is not yet in the tree. Where this is empty, the tree has the same.
    pub(super) written: Ranges,
}

pub(super) enum ChunkData {
    Hole,
    Memory(Arc<Extent>),
    Frame(Arc<[u8]>),
    /// Bytes of a version that show through.
    Shown(Arc<[u8]>),
}

impl ChunkData {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            ChunkData::Hole => &[],
            ChunkData::Memory(extent) => extent.bytes(),
            ChunkData::Frame(frame) | ChunkData::Shown(frame) => frame,
        }
    }
}

impl OpenFile {
    pub(super) fn new(record: InodeRecord) -> Self {
        Self {
            record,
            references: 0,
            writers: 0,
            reserved: false,
            stage: Stage::Plain,
            author: Principal::Host,
            dirty: false,
            chunk: None,
        }
    }

    /// Whether its content is a draft that `principal` does not see.
    #[inline]
    pub(super) fn hides_from(&self, principal: Principal) -> bool {
        matches!(self.stage, Stage::Draft(draft) if draft.owner != principal)
    }

    /// The chunk `index` of this file, `inode`.
    #[inline]
    pub(super) fn chunk(&mut self, state: &mut State, inode: Inode, index: u64) -> Result<&mut CachedChunk> {
        if self.chunk.as_ref().is_none_or(|chunk| chunk.index != index) {
            self.load_chunk(state, inode, index)?;
        }
        match &mut self.chunk {
            Some(chunk) => Ok(chunk),
            None => unreachable!("was just loaded"),
        }
    }

    #[cold]
    fn load_chunk(&mut self, state: &mut State, inode: Inode, index: u64) -> Result<()> {
        let data = match state.get(&Key::extent(inode, index))? {
            Some(Value::Extent(ExtentValue::Memory(extent))) => ChunkData::Memory(extent.clone()),
            Some(Value::Extent(ExtentValue::Stored { hash, len })) => {
                ChunkData::Frame(state.read_chunk(hash, *len)?)
            }
            _ => match state.shown_through(inode, &self.record, index)? {
                Some(bytes) => ChunkData::Shown(bytes),
                None => ChunkData::Hole,
            },
        };
        self.write_back(state, inode)?;
        self.chunk = Some(CachedChunk { index, data, written: Ranges::default() });
        Ok(())
    }

    /// Puts what was written to the cached chunk into the tree. The chunk stays cached.
    pub(super) fn write_back(&mut self, state: &mut State, inode: Inode) -> Result<()> {
        if let Some(chunk) = &mut self.chunk
            && !chunk.written.is_empty()
            && let ChunkData::Memory(extent) = &chunk.data
        {
            state.put_extent(Key::extent(inode, chunk.index), extent.clone(), &chunk.written)?;
            chunk.written.clear();
        }
        Ok(())
    }
}

impl CachedChunk {
    /// Writes `data` at `at` within the chunk.
    #[inline]
    pub(super) fn write(&mut self, state: &mut State, inode: Inode, at: usize, data: &[u8]) -> Result<()> {
        let bytes = self.bytes_mut(state, inode)?;
        let end = at + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(data);
        self.written.add(at, end);
        Ok(())
    }

    #[inline]
    fn bytes_mut(&mut self, state: &mut State, inode: Inode) -> Result<&mut Vec<u8>> {
        let mine = match &mut self.data {
            ChunkData::Memory(extent) => Arc::get_mut(extent).is_some(),
            ChunkData::Hole | ChunkData::Frame(_) | ChunkData::Shown(_) => false,
        };
        if !mine {
            self.make_mine(state, inode)?;
        }
        match &mut self.data {
            ChunkData::Memory(extent) => Ok(Arc::make_mut(extent).bytes_mut()),
            ChunkData::Hole | ChunkData::Frame(_) | ChunkData::Shown(_) => {
                unreachable!("was just made an extent")
            }
        }
    }

    /// Makes the chunk one that nobody else holds, by copying it unless only the tree holds it.
    #[cold]
    fn make_mine(&mut self, state: &mut State, inode: Inode) -> Result<()> {
        let extent = match std::mem::replace(&mut self.data, ChunkData::Hole) {
            ChunkData::Hole => Arc::default(),
            ChunkData::Frame(frame) => Arc::new(Extent::new(frame.to_vec())),
            ChunkData::Shown(bytes) => {
                // the file has no chunk here that what is written could be patched into
                self.written.add(0, bytes.len());
                Arc::new(Extent::new(bytes.to_vec()))
            }
            ChunkData::Memory(extent) if self.written.is_empty() => {
                let taken = match state.take_extent(&Key::extent(inode, self.index)) {
                    Ok(taken) => taken,
                    Err(error) => {
                        self.data = ChunkData::Memory(extent);
                        return Err(error);
                    }
                };
                taken.unwrap_or(extent)
            }
            ChunkData::Memory(extent) => extent,
        };
        self.data = ChunkData::Memory(extent);
        Ok(())
    }
}
