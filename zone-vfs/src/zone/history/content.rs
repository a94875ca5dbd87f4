//! From the content of a file to that of a version.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use super::super::state::State;
use super::super::{ErrorCode, Result};
use super::cut;
use crate::chunks::{ChunkStore, FrameKind};
use crate::id::{Hash, Inode, Timestamp, Version};
use crate::tree::{
    Body, CHUNK, ExtentValue, InodeRecord, Key, MAX_INLINE, MAX_PIECE, Part, Tree, TreeError, Value,
};

/// The content of a version that is to be.
pub(in super::super) struct NewContent {
    pub(in super::super) size: u64,
    /// What identifies it: equal for equal content.
    pub(in super::super) hash: Hash,
    body: NewBody,
}

enum NewBody {
    Inline(Arc<Vec<u8>>),
    Pieces(Vec<Piece>),
}

#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    len: u32,
    hash: Hash,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// What identifies content that is cut into pieces: equal for equal content and cuts, in one store.
pub(crate) struct PiecesIdentity(blake3::Hasher);

impl PiecesIdentity {
    /// Of content of `size` bytes, without any pieces so far.
    pub(crate) fn new(size: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dormouse 2026 the pieces of a version");
        hasher.update(&size.to_le_bytes());
        Self(hasher)
    }

    /// The next piece, with its address.
    pub(crate) fn add(&mut self, offset: u64, len: u32, hash: &Hash) {
        self.0.update(&offset.to_le_bytes());
        self.0.update(&len.to_le_bytes());
        self.0.update(&hash.0);
    }

    pub(crate) fn finish(&self) -> Hash {
        Hash(*self.0.finalize().as_bytes())
    }
}

/// What identifies content that lies in its record.
pub(crate) fn inline_identity(bytes: &[u8]) -> Hash {
    Hash(*blake3::hash(bytes).as_bytes())
}

impl NewContent {
    fn inline(bytes: Arc<Vec<u8>>) -> Self {
        let hash = inline_identity(&bytes);
        Self { size: bytes.len() as u64, hash, body: NewBody::Inline(bytes) }
    }

    fn pieces(size: u64, pieces: Vec<Piece>) -> Self {
        let mut identity = PiecesIdentity::new(size);
        for piece in &pieces {
            identity.add(piece.offset, piece.len, &piece.hash);
        }
        Self { size, hash: identity.finish(), body: NewBody::Pieces(pieces) }
    }

    /// What a file with this record holds, whose chunks are all in the tree. Pieces are put into the
    /// chunk store.
    pub(in super::super) fn of_file(state: &State, inode: Inode, record: &InodeRecord) -> Result<Self> {
        match &record.body {
            Body::Inline(bytes) => return Ok(Self::inline(bytes.clone())),
            Body::Published { content, .. } => return Self::of_version(state, *content),
            _ => {}
        }
        if record.size <= MAX_INLINE as u64 {
            let mut bytes = Vec::new();
            let mut buffer = Window::default();
            if record.size > 0 {
                buffer.load(state, inode, record, 0)?;
                bytes.extend_from_slice(buffer.bytes());
            }
            return Ok(Self::inline(Arc::new(bytes)));
        }
        let mut pieces = reusable(state, inode, record)?;
        let mut cutter = Cutter { state, buffer: Vec::new(), at: pieces.last().map_or(0, Piece::end) };
        let mut window = Window::default();
        let mut next = cutter.at;
        while next < record.size {
            let index = next / CHUNK as u64;
            let Some(index) = next_with_data(state, inode, record, index)? else { break };
            if index * CHUNK as u64 > next {
                cutter.skip_to(index * CHUNK as u64, &mut pieces)?;
                next = index * CHUNK as u64;
            }
            window.load(state, inode, record, index)?;
            let skip = (next - index * CHUNK as u64) as usize;
            let bytes = &window.bytes()[skip..];
            next += bytes.len() as u64;
            if bytes.len() == CHUNK && bytes.iter().all(|byte| *byte == 0) {
                cutter.skip_to(next, &mut pieces)?;
            } else {
                cutter.push(bytes, &mut pieces)?;
            }
        }
        cutter.finish(&mut pieces)?;
        Ok(Self::pieces(record.size, pieces))
    }

    /// What a version holds.
    pub(in super::super) fn of_version(state: &State, version: Version) -> Result<Self> {
        let record = state.content(version)?;
        match &record.body {
            Body::Inline(bytes) => Ok(Self::inline(bytes.clone())),
            _ => Ok(Self::pieces(record.size, pieces_of(state, version)?)),
        }
    }

    /// The bytes that it holds and the version `base` does not.
    pub(in super::super) fn added_to(&self, state: &State, base: Option<Version>) -> Result<u64> {
        let NewBody::Pieces(pieces) = &self.body else { return Ok(self.size) };
        let known: HashSet<Hash> = match base {
            Some(base) => pieces_of(state, base)?.iter().map(|piece| piece.hash).collect(),
            None => HashSet::new(),
        };
        Ok(pieces.iter().filter(|piece| !known.contains(&piece.hash)).map(|piece| u64::from(piece.len)).sum())
    }

    /// Puts it under the number of its version. Cannot fail when the path to the key of the content has
    /// been read before and is the last of its tree's inodes.
    pub(in super::super) fn put(&self, state: &mut State, version: Version, at: Timestamp) -> Result<()> {
        let body = match &self.body {
            NewBody::Inline(bytes) => Body::Inline(bytes.clone()),
            NewBody::Pieces(pieces) => {
                for piece in pieces {
                    let value = ExtentValue::Stored { hash: piece.hash, len: piece.len };
                    state.put(Key::piece(version, piece.offset), Value::Extent(value))?;
                }
                Body::Pieces
            }
        };
        let record = InodeRecord {
            links: 1,
            size: self.size,
            accessed: at,
            modified: at,
            changed: at,
            place: None,
            body,
        };
        state.put(Key::content(version), Value::Inode(record))
    }
}

/// The pieces of a version's content.
fn pieces_of(state: &State, version: Version) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    pieces_in(&state.history, &*state.store, version, &mut |offset, len, hash| {
        pieces.push(Piece { offset, len, hash });
    })?;
    Ok(pieces)
}

/// Calls `piece` with the offset, length and address of every piece of a version's content.
pub(crate) fn pieces_in(
    history: &Tree,
    store: &dyn ChunkStore,
    version: Version,
    piece: &mut dyn FnMut(u64, u32, Hash),
) -> Result<(), TreeError> {
    for entry in history.range(store, Bound::Included(&Key::piece(version, 0)))? {
        match entry? {
            (Key { inode, part: Part::Piece(offset) }, Value::Extent(ExtentValue::Stored { hash, len }))
                if *inode == version.inode() =>
            {
                piece(*offset, *len, *hash);
            }
            _ => break,
        }
    }
    Ok(())
}

/// Reads what taking the content of a version out of the history needs. Gives of how many pieces it is.
pub(in super::super) fn load(state: &State, version: Version) -> Result<usize> {
    state.prepare(&[&Key::content(version)])?;
    Ok(pieces_of(state, version)?.len())
}

/// Takes the content of a version out of the history.
pub(in super::super) fn remove_content(state: &mut State, version: Version) -> Result<()> {
    for piece in pieces_of(state, version)? {
        state.remove(Key::piece(version, piece.offset))?;
    }
    state.remove(Key::content(version))
}

/// The pieces at the beginning of a draft's base that would come out the same again: a cut depends on
/// the bytes of its own piece, and on whether a hole follows.
fn reusable(state: &State, inode: Inode, record: &InodeRecord) -> Result<Vec<Piece>> {
    let Body::Over { content, kept } = record.body else { return Ok(Vec::new()) };
    let first = Key::extent(inode, 0);
    let mut unchanged = kept;
    if let Some(entry) = state.tree.range(&*state.store, Bound::Included(&first))?.next()
        && let (Key { inode: of, part: Part::Extent(index) }, _) = entry?
        && *of == inode
    {
        unchanged = unchanged.min(index * CHUNK as u64);
    }
    let mut pieces = pieces_of(state, content)?;
    let count = pieces.partition_point(|piece| piece.end() + CHUNK as u64 <= unchanged);
    pieces.truncate(count);
    Ok(pieces)
}

/// The first chunk from `index` on that may hold something else than zeros.
fn next_with_data(state: &State, inode: Inode, record: &InodeRecord, index: u64) -> Result<Option<u64>> {
    if let Body::Over { kept, .. } = record.body
        && index * (CHUNK as u64) < kept
    {
        return Ok(Some(index));
    }
    let from = Key::extent(inode, index);
    let next = state.tree.range(&*state.store, Bound::Included(&from))?.next().transpose()?;
    Ok(match next {
        Some((Key { inode: of, part: Part::Extent(index) }, _)) if *of == inode => Some(*index),
        _ => None,
    })
}

/// One chunk of a file, as long as the file has it.
#[derive(Default)]
struct Window(Vec<u8>);

impl Window {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn load(&mut self, state: &State, inode: Inode, record: &InodeRecord, index: u64) -> Result<()> {
        let len = record.size.saturating_sub(index * CHUNK as u64).min(CHUNK as u64) as usize;
        self.0.clear();
        match state.get(&Key::extent(inode, index))? {
            Some(Value::Extent(ExtentValue::Memory(extent))) => self.0.extend_from_slice(extent.bytes()),
            Some(Value::Extent(ExtentValue::Stored { hash, len })) => {
                self.0.extend_from_slice(&state.read_chunk(hash, *len)?);
            }
            _ => {
                if let Some(bytes) = state.shown_through(inode, record, index)? {
                    self.0.extend_from_slice(&bytes);
                }
            }
        }
        if self.0.len() > len {
            return Err(TreeError::Damaged("a chunk reaches beyond the end of its file").into());
        }
        self.0.resize(len, 0);
        Ok(())
    }
}

/// Cuts what is pushed into pieces, and stores them.
struct Cutter<'a> {
    state: &'a State,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    at: u64,
}

impl Cutter<'_> {
    fn push(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        let mut done = 0;
        while self.buffer.len() - done >= MAX_PIECE {
            let len = cut::cut(&self.buffer[done..]);
            self.store(done, len, pieces)?;
            done += len;
        }
        self.buffer.drain(..done);
        Ok(())
    }

    /// A hole follows, up to `offset`.
    fn skip_to(&mut self, offset: u64, pieces: &mut Vec<Piece>) -> Result<()> {
        self.finish(pieces)?;
        self.at = offset;
        Ok(())
    }

    fn finish(&mut self, pieces: &mut Vec<Piece>) -> Result<()> {
        let mut done = 0;
        while done < self.buffer.len() {
            let len = cut::cut(&self.buffer[done..]);
            self.store(done, len, pieces)?;
            done += len;
        }
        self.buffer.clear();
        Ok(())
    }

    fn store(&mut self, from: usize, len: usize, pieces: &mut Vec<Piece>) -> Result<()> {
        if len == 0 {
            return Err(ErrorCode::Io.into());
        }
        let hash = self.state.store.put(FrameKind::Chunk, &self.buffer[from..from + len])?;
        pieces.push(Piece { offset: self.at, len: len as u32, hash });
        self.at += len as u64;
        Ok(())
    }
}
