//! Bytes of any size over chunks of limited size.

use std::sync::Arc;

use crate::chunks::{ChunkError, ChunkStore, FrameKind, MAX_FRAME};
use crate::id::Hash;

use super::entry::Payload;

/// Payloads up to this size ride in the record. Bytes.
pub const INLINE: usize = 16 << 10;
/// A larger payload of an embedder's is refused. Bytes.
pub const MAX_PAYLOAD: usize = 64 << 20;
/// Bytes of one piece.
pub(super) const PIECE: usize = MAX_FRAME / 4;

/// Stores what is too large for a record.
pub(super) fn put(chunks: &dyn ChunkStore, bytes: &[u8]) -> Result<Payload, ChunkError> {
    if bytes.len() <= INLINE {
        return Ok(Payload::Inline(bytes.to_vec()));
    }
    put_stored(chunks, bytes)
}

/// Stores bytes of any size, so that whoever names them stays small.
pub(super) fn put_stored(chunks: &dyn ChunkStore, bytes: &[u8]) -> Result<Payload, ChunkError> {
    if bytes.is_empty() {
        return Ok(Payload::Inline(Vec::new()));
    }
    let stored =
        bytes.chunks(PIECE).map(|piece| chunks.put(FrameKind::Catalogue, piece)).collect::<Result<_, _>>()?;
    Ok(Payload::Stored { len: bytes.len() as u64, chunks: stored })
}

/// The bytes of a payload.
pub(super) fn get(chunks: &dyn ChunkStore, payload: &Payload) -> Result<Arc<[u8]>, ChunkError> {
    match payload {
        Payload::Inline(bytes) => Ok(bytes.as_slice().into()),
        Payload::Stored { len, chunks: pieces } => {
            let damaged =
                |hash: Hash| ChunkError::Damaged { hash, reason: "a payload of another length".into() };
            let first = *pieces.first().ok_or(ChunkError::Missing(Hash([0; 32])))?;
            if pieces.len() as u64 != len.div_ceil(PIECE as u64) {
                return Err(damaged(first));
            }
            let mut bytes = Vec::new();
            for piece in pieces {
                bytes.extend_from_slice(&chunks.get(piece)?);
            }
            if bytes.len() as u64 == *len { Ok(bytes.into()) } else { Err(damaged(first)) }
        }
    }
}
