//! What an embedder attaches to a generation: a sparse sequence of bytes, in chunks of its own size.
//!
//! A *root* lists *leaves*, and each leaf lists the chunks of one stretch; what is all zeros is left out. So two
//! attachments that differ in one chunk share everything but that chunk, its leaf and the root. All of it is
//! named by address alone. `docs/format-store.md` is normative.
//!
//! Frames are put first, then the record that names them is written, and until it has taken effect nothing
//! leads to them: whoever attaches keeps reaping away meanwhile.

use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};

use super::commit::Commit;
use super::disk::{Disk, Done, wait};
use super::entry::{Entry, Payload};
use super::state::Generation;
use super::{Shared, StoreError, blob};
use crate::chunks::{ChunkStore, FrameKind};
use crate::id::{GenerationNumber, Hash};
use crate::segment::Segments;

/// Bytes of one chunk of an attachment; the last may be shorter.
pub const ATTACHMENT_CHUNK: usize = 16 << 10;
/// The longest attachment. Bytes.
pub const MAX_ATTACHMENT: u64 = 128 << 30;
/// The most that an embedder says about one. Bytes.
pub const MAX_ATTACHMENT_ABOUT: usize = 64 << 10;
/// Chunks that one leaf stands for.
const LEAF: usize = 128;
/// Bytes of the bits at the beginning of a leaf, which say which chunks there are.
const LEAF_BITS: usize = LEAF / 8;
const VERSION: u8 = 1;
/// Bytes that one leaf stands for.
pub(super) const LEAF_BYTES: u64 = (LEAF * ATTACHMENT_CHUNK) as u64;

/// What an attachment is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Root {
    version: u8,
    pub len: u64,
    pub about: Vec<u8>,
    /// One for each stretch; none where all of it is zeros.
    pub leaves: Vec<Option<Hash>>,
}

impl Root {
    pub fn read(payload: &Payload, chunks: &dyn ChunkStore) -> Result<Self, StoreError> {
        Self::decode(&blob::get(chunks, payload)?)
    }

    pub fn encode(&self) -> Result<Vec<u8>, StoreError> {
        postcard::to_stdvec(self).map_err(|e| StoreError::Encoding(e.to_string()))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let wrong = |reason: &str| StoreError::Encoding(format!("an attachment: {reason}"));
        match bytes.first() {
            Some(&VERSION) => {}
            Some(&found) if found > VERSION => {
                return Err(StoreError::NewerRecord { found: found.into(), supported: VERSION.into() });
            }
            _ => return Err(wrong("it has no version")),
        }
        let root: Self = postcard::from_bytes(bytes).map_err(|e| wrong(&e.to_string()))?;
        let leaves = root.len.div_ceil(LEAF_BYTES);
        if root.len > MAX_ATTACHMENT
            || root.leaves.len() as u64 != leaves
            || root.about.len() > MAX_ATTACHMENT_ABOUT
        {
            return Err(wrong("it has more or less than it may"));
        }
        Ok(root)
    }
}

/// A leaf with other addresses, which `chunk` gives.
pub(super) fn translate_leaf(
    leaf: &[u8],
    mut chunk: impl FnMut(&Hash) -> Result<Hash, StoreError>,
) -> Result<Vec<u8>, StoreError> {
    let mut translated = leaf.get(..LEAF_BITS).unwrap_or_default().to_vec();
    for (_, hash) in read_leaf(leaf)? {
        translated.extend_from_slice(&chunk(&hash)?.0);
    }
    Ok(translated)
}

/// The chunks of a leaf: which of the stretch, and the address.
pub(super) fn read_leaf(bytes: &[u8]) -> Result<Vec<(usize, Hash)>, StoreError> {
    let wrong = || StoreError::Encoding("a part of an attachment has another length than it states".into());
    let (bits, addresses) = bytes.split_at_checked(LEAF_BITS).ok_or_else(wrong)?;
    let set = (0..LEAF).filter(|at| bits[at / 8] & (1 << (at % 8)) != 0);
    let (addresses, rest) = addresses.as_chunks::<{ size_of::<Hash>() }>();
    let found: Vec<_> = set.zip(addresses.iter().map(|it| Hash(*it))).collect();
    let stated: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    if !rest.is_empty() || stated as usize != addresses.len() || found.is_empty() {
        return Err(wrong());
    }
    Ok(found)
}

/// The leaves of an attachment whose root is `payload`.
pub(super) fn leaves(
    payload: &Payload,
    chunks: &dyn ChunkStore,
) -> Result<impl Iterator<Item = Hash> + use<>, StoreError> {
    Ok(leaves_and_len(payload, chunks)?.1)
}

/// The length of an attachment and its leaves.
pub(super) fn leaves_and_len(
    payload: &Payload,
    chunks: &dyn ChunkStore,
) -> Result<(u64, impl Iterator<Item = Hash> + use<>), StoreError> {
    let root = Root::read(payload, chunks)?;
    Ok((root.len, root.leaves.into_iter().flatten()))
}

/// The addresses that a leaf lists.
pub(super) fn leaf_chunks(leaf: &[u8]) -> Result<impl Iterator<Item = Hash> + use<>, StoreError> {
    Ok(read_leaf(leaf)?.into_iter().map(|(_, hash)| hash))
}

/// Says what is attached, chunk by chunk: fills the bytes of the chunk with this index, which are zeros before,
/// and says whether there may be anything but zeros in it. Is asked for each index once, in order.
pub type Fill<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> std::io::Result<bool>;

/// What is attached to a generation, to be read.
pub struct Attachment {
    store: Arc<Segments>,
    root: Root,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attachment").field("bytes", &self.root.len).finish_non_exhaustive()
    }
}

impl Attachment {
    pub(super) fn of(generation: &Generation, segments: &Arc<Segments>) -> Result<Option<Self>, StoreError> {
        let Some(payload) = &generation.attachment else { return Ok(None) };
        let root = Root::read(payload, &**segments)?;
        Ok(Some(Self { store: segments.clone(), root }))
    }

    /// What the embedder said about it.
    pub fn about(&self) -> &[u8] {
        &self.root.about
    }

    /// Bytes, with those that are zeros.
    pub fn bytes(&self) -> u64 {
        self.root.len
    }

    /// Gives every chunk that is not all zeros to `chunk`, with its offset, in order, each verified.
    pub fn read(&self, chunk: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>) -> Result<(), StoreError> {
        let failed = |source| StoreError::Io { what: "writing what was attached".into(), source };
        for (stretch, leaf) in self.root.leaves.iter().enumerate() {
            let Some(leaf) = leaf else { continue };
            for (at, hash) in read_leaf(&self.store.read(leaf)?)? {
                let offset = stretch as u64 * LEAF_BYTES + (at * ATTACHMENT_CHUNK) as u64;
                let bytes = self.store.read(&hash)?;
                let len = self.root.len.saturating_sub(offset).min(ATTACHMENT_CHUNK as u64);
                if bytes.len() as u64 != len {
                    return Err(StoreError::Encoding("a chunk of an attachment has another length".into()));
                }
                chunk(offset, &bytes).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// What was put of an attachment: its root, and all that a record lists.
struct Put {
    root: Payload,
    needs: Vec<Hash>,
}

fn put(segments: &Segments, about: &[u8], len: u64, fill: Fill<'_>) -> Result<Put, StoreError> {
    if len > MAX_ATTACHMENT || about.len() > MAX_ATTACHMENT_ABOUT {
        return Err(StoreError::AttachmentTooLarge { bytes: len, limit: MAX_ATTACHMENT });
    }
    let failed = |source| StoreError::Io { what: "reading what is to be attached".into(), source };
    let (mut leaves, mut needs) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; ATTACHMENT_CHUNK];
    for stretch in 0..len.div_ceil(LEAF_BYTES) {
        let (mut bits, mut addresses) = ([0u8; LEAF_BITS], Vec::new());
        for at in 0..LEAF {
            let index = stretch * LEAF as u64 + at as u64;
            let left = len.saturating_sub(index * ATTACHMENT_CHUNK as u64);
            let chunk = &mut buffer[..left.min(ATTACHMENT_CHUNK as u64) as usize];
            if chunk.is_empty() {
                break;
            }
            chunk.fill(0);
            if !fill(index, chunk).map_err(failed)? || chunk.iter().all(|byte| *byte == 0) {
                continue;
            }
            let hash = segments.put(FrameKind::Chunk, chunk)?;
            bits[at / 8] |= 1 << (at % 8);
            addresses.extend_from_slice(&hash.0);
            needs.push(hash);
        }
        if addresses.is_empty() {
            leaves.push(None);
            continue;
        }
        let leaf = segments.put(FrameKind::Catalogue, &[&bits[..], &addresses].concat())?;
        leaves.push(Some(leaf));
        needs.push(leaf);
    }
    let root = Root { version: VERSION, len, about: about.to_vec(), leaves };
    let root = blob::put_stored(segments, &root.encode()?)?;
    needs.extend_from_slice(root.needs());
    Ok(Put { root, needs })
}

impl Shared {
    /// All that an attachment leads to, if all of it is stored.
    fn all_of(&self, root: &Payload) -> Result<Vec<Hash>, StoreError> {
        let mut needs = root.needs().to_vec();
        for leaf in leaves(root, &*self.segments)? {
            needs.extend(leaf_chunks(&self.segments.read(&leaf)?)?);
            needs.push(leaf);
        }
        for hash in &needs {
            self.segments.locate(hash)?;
        }
        Ok(needs)
    }
}

impl Disk {
    /// Attaches `len` bytes to a generation, in the place of what was attached to it, and says so in the
    /// agent's log: durable when this returns. Works beside a turn that is going on, which waits for no more
    /// than the record at the end. At most [`MAX_ATTACHMENT`] bytes, and [`MAX_ATTACHMENT_ABOUT`] about them.
    ///
    /// Waits while the store is reaped, scrubbed or backed up, and these wait for it. Gives the root, with which
    /// the same can be [attached elsewhere](Self::attach_known).
    pub fn attach(
        self: &Arc<Self>,
        generation: GenerationNumber,
        about: &[u8],
        len: u64,
        fill: Fill<'_>,
    ) -> Result<Payload, StoreError> {
        let store = self.store()?;
        // nothing leads to what is put before the record has taken effect
        let _no_reaping = store.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation(generation)?;
        let Put { root, needs } = put(&store.segments, about, len, fill)?;
        self.attached(generation, &root, needs)?;
        Ok(root)
    }

    /// Attaches to a generation what has this root. Whether it was all there, and was attached.
    pub fn attach_known(
        self: &Arc<Self>,
        generation: GenerationNumber,
        root: &Payload,
    ) -> Result<bool, StoreError> {
        let store = self.store()?;
        let _no_reaping = store.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation(generation)?;
        match store.all_of(root) {
            Ok(needs) => self.attached(generation, root, needs).map(|()| true),
            Err(e) if e.is_of_one_agent() => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn attached(
        self: &Arc<Self>,
        generation: GenerationNumber,
        root: &Payload,
        needs: Vec<Hash>,
    ) -> Result<(), StoreError> {
        wait(|done: Done<()>| {
            let done = Box::new(|result: Result<_, _>| done(result.map(|_| ())));
            let entry = Entry::Attached { generation, root: root.clone() };
            Commit::beside(self, |_| Ok(entry), &needs, done);
        })
    }

    /// What is attached to a generation.
    pub fn attachment(&self, generation: GenerationNumber) -> Result<Option<Attachment>, StoreError> {
        let found = self.generation(generation)?;
        Attachment::of(&found, &self.store()?.segments)
    }
}
