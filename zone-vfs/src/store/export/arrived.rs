//! What has come of an export, and where it lies here. Takes about 100 bytes of memory for each frame.

use std::collections::HashMap;
use std::sync::Arc;

use super::format::{Generation, MAX_ATTACHMENTS, MAX_FRAMES, is_time};
use super::{Opened, bad};
use crate::chunks::{ChunkStore, FrameKind};
use crate::contract::Principal;
use crate::id::{GenerationNumber, Hash, Inode, Timestamp, Turn};
use crate::segment::Segments;
use crate::store::attachment::{ATTACHMENT_CHUNK, LEAF_BYTES, Root, read_leaf, translate_leaf};
use crate::store::disk::MAX_REASON;
use crate::store::entry::{Cause, Payload, ZoneSpec};
use crate::store::reach::Uncached;
use crate::store::{StoreError, blob};
use crate::tree::{Elsewhere, PiecedContent, TreeError, translate};
use crate::zone::{Access, ErrorCode, MAX_NUMBER, StoredRoot, Zone, ZoneRoot, verify};

/// By the addresses under which things were known where they come from. These prove nothing: they are labels.
pub(super) struct Arrived {
    segments: Arc<Segments>,
    /// Chunks and pieces: where they are, and how long.
    plain: HashMap<Hash, (Hash, u32)>,
    /// Nodes: where they are, and at which level.
    nodes: HashMap<Hash, (Hash, u8)>,
    leaves: HashMap<Hash, Leaf>,
    /// What identifies contents that are cut into pieces.
    contents: HashMap<Hash, (Hash, u64)>,
    attachments: Vec<(Payload, Vec<u8>, u64)>,
    /// Zones that were checked, with what they use counted.
    checked: HashMap<Vec<u8>, StoredRoot>,
    pub frames: u64,
}

#[derive(Clone, Copy)]
struct Leaf {
    hash: Hash,
    /// The last of its chunks, and how long that is; all others are as long as a chunk is.
    last: (usize, u32),
}

/// A tree of the export that is none, as the export's fault.
fn refused(error: StoreError) -> StoreError {
    match error {
        StoreError::Zone(e) => bad(format!("is refused: {}", crate::told(&e))),
        e => e,
    }
}

fn unknown(what: &str) -> StoreError {
    bad(format!("is refused: it names {what} that has not come"))
}

impl Arrived {
    pub fn new(segments: Arc<Segments>) -> Self {
        Self {
            segments,
            plain: HashMap::new(),
            nodes: HashMap::new(),
            leaves: HashMap::new(),
            contents: HashMap::new(),
            attachments: Vec::new(),
            checked: HashMap::new(),
            frames: 0,
        }
    }

    /// Counts one frame more.
    fn count(&mut self, is_new: bool) -> Result<(), StoreError> {
        self.frames += 1;
        if !is_new {
            return Err(bad("is refused: something in it comes twice"));
        }
        if self.frames > MAX_FRAMES {
            return Err(bad(format!("is refused: it has more than {MAX_FRAMES} frames")));
        }
        Ok(())
    }

    pub fn take_plain(&mut self, label: Hash, plain: &[u8]) -> Result<(), StoreError> {
        self.count(!self.plain.contains_key(&label))?;
        let hash = self.segments.put(FrameKind::Chunk, plain)?;
        self.plain.insert(label, (hash, plain.len() as u32));
        Ok(())
    }

    pub fn take_node(&mut self, label: Hash, plain: &[u8]) -> Result<(), StoreError> {
        self.count(!self.nodes.contains_key(&label))?;
        let (level, node) = translate(plain, &mut Here(self)).map_err(refused)?;
        let hash = self.segments.put(FrameKind::Node, &node)?;
        self.nodes.insert(label, (hash, level));
        Ok(())
    }

    pub fn take_leaf(&mut self, label: Hash, plain: &[u8]) -> Result<(), StoreError> {
        self.count(!self.leaves.contains_key(&label))?;
        let named = read_leaf(plain).map_err(|e| bad(format!("is refused: {e}")))?;
        let mut last = (0, 0);
        for (nth, (at, chunk)) in named.iter().enumerate() {
            let (_, len) = self.plain(chunk)?;
            let is_last = nth + 1 == named.len();
            if len as usize > ATTACHMENT_CHUNK || len == 0 || (!is_last && len as usize != ATTACHMENT_CHUNK) {
                return Err(bad("is refused: a part of an attachment has another length than it may"));
            }
            last = (*at, len);
        }
        let leaf = translate_leaf(plain, |chunk| Ok(self.plain(chunk)?.0))?;
        let hash = self.segments.put(FrameKind::Catalogue, &leaf)?;
        self.leaves.insert(label, Leaf { hash, last });
        Ok(())
    }

    /// What is cut into pieces is identified by their addresses, and so by others here.
    pub fn take_content(&mut self, label: Hash, size: u64, here: Hash) -> Result<(), StoreError> {
        self.count(!self.contents.contains_key(&label))?;
        self.contents.insert(label, (here, size));
        Ok(())
    }

    pub fn take_attachment(&mut self, root: &[u8]) -> Result<(), StoreError> {
        if self.attachments.len() as u64 >= MAX_ATTACHMENTS {
            return Err(bad(format!("is refused: it has more than {MAX_ATTACHMENTS} attachments")));
        }
        let mut root = Root::decode(root).map_err(|e| bad(format!("is refused: {e}")))?;
        for (stretch, leaf) in root.leaves.iter_mut().enumerate() {
            let Some(label) = leaf else { continue };
            let known = *self.leaves.get(label).ok_or_else(|| unknown("a part of an attachment"))?;
            let (at, len) = known.last;
            let offset = stretch as u64 * LEAF_BYTES + (at * ATTACHMENT_CHUNK) as u64;
            if root.len.saturating_sub(offset).min(ATTACHMENT_CHUNK as u64) != u64::from(len) {
                return Err(bad("is refused: a part of an attachment lies beyond its end"));
            }
            *leaf = Some(known.hash);
        }
        let (about, len) = (root.about.clone(), root.len);
        let payload = blob::put_stored(&*self.segments, &root.encode()?)?;
        self.attachments.push((payload, about, len));
        Ok(())
    }

    pub fn attachment(&self, number: u64) -> Result<&(Payload, Vec<u8>, u64), StoreError> {
        let found = usize::try_from(number).ok().and_then(|number| self.attachments.get(number));
        found.ok_or_else(|| unknown("an attachment"))
    }

    /// Where a chunk or piece is, and how long.
    pub fn plain(&self, label: &Hash) -> Result<(Hash, u32), StoreError> {
        self.plain.get(label).copied().ok_or_else(|| unknown("content"))
    }

    /// A payload as it is here.
    pub fn payload(&self, payload: &Payload) -> Result<Payload, StoreError> {
        let wrong = || bad("is refused: a payload in it has another length than it states");
        match payload {
            Payload::Inline(bytes) if bytes.len() > blob::INLINE => Err(wrong()),
            Payload::Inline(_) => Ok(payload.clone()),
            Payload::Stored { len, chunks } => {
                let mut sum = 0;
                for (nth, piece) in chunks.iter().enumerate() {
                    let (_, len) = self.plain(piece)?;
                    let is_last = nth + 1 == chunks.len();
                    if len as usize > blob::PIECE || (!is_last && len as usize != blob::PIECE) {
                        return Err(wrong());
                    }
                    sum += u64::from(len);
                }
                if *len > blob::MAX_PAYLOAD as u64 || sum != *len || *len == 0 {
                    return Err(wrong());
                }
                let chunks = chunks.iter().map(|piece| Ok(self.plain(piece)?.0));
                Ok(Payload::Stored { len: *len, chunks: chunks.collect::<Result<_, StoreError>>()? })
            }
        }
    }

    /// What a payload holds, as it [is here](Self::payload).
    pub fn content(&self, payload: &Payload) -> Result<Arc<[u8]>, StoreError> {
        Ok(blob::get(&Uncached(&self.segments), payload)?)
    }

    /// The roots of a generation, or of how the agent stands, as they are here, each checked against the contract of its
    /// zone.
    pub fn roots(&mut self, roots: &[Option<StoredRoot>], specs: &[ZoneSpec]) -> Result<Roots, StoreError> {
        if roots.len() != specs.len() {
            return Err(bad("is refused: it has another number of zones than it states"));
        }
        let mut here = Vec::with_capacity(roots.len());
        for (root, spec) in roots.iter().zip(specs) {
            let stored = match (root, &spec.shared) {
                (Some(root), None) => self.root(root, spec)?,
                // what it holds is the shared zone's own; here an empty root keeps the place
                (None, Some(_)) => ZoneRoot::empty(spec.kind, spec.quota).store(&*self.segments)?,
                _ => return Err(bad(format!("is refused: the zone `{}` is shared, or is not", spec.name))),
            };
            here.push((stored, spec.shared.is_some()));
        }
        Ok(Roots { zones: here, segments: self.segments.clone() })
    }

    fn root(&mut self, root: &StoredRoot, spec: &ZoneSpec) -> Result<StoredRoot, StoreError> {
        if root.kind != spec.kind {
            return Err(bad(format!(
                "is refused: the zone `{}` is {}, and has a root of a zone that is {}",
                spec.name, spec.kind, root.kind
            )));
        }
        let node = |label: &Hash| self.nodes.get(label).map(|it| it.0).ok_or_else(|| unknown("a tree"));
        // the operator's bounds are those of the agent's zones
        let mut here = StoredRoot { hash: node(&root.hash)?, quota: spec.quota, ..*root };
        here.history = root.history.as_ref().map(node).transpose()?;
        let key = postcard::to_stdvec(&here).map_err(|e| StoreError::Encoding(e.to_string()))?;
        if let Some(known) = self.checked.get(&key) {
            return Ok(*known);
        }
        let counted = verify(&here, &Uncached(&self.segments)).map_err(|e| match e {
            TreeError::Chunk(e) => e.into(),
            e => bad(format!("is refused: the zone `{}`: {e}", spec.name)),
        })?;
        self.checked.insert(key, counted);
        Ok(counted)
    }
}

/// What a node names, as it is here.
struct Here<'a>(&'a Arrived);

impl Elsewhere for Here<'_> {
    type Error = StoreError;

    fn node(&mut self, label: &Hash, level: u8) -> Result<Hash, StoreError> {
        match self.0.nodes.get(label) {
            Some((hash, found)) if *found == level => Ok(*hash),
            Some(_) => Err(bad("is refused: a node in it does not belong where it is")),
            None => Err(unknown("a node")),
        }
    }

    fn chunk(&mut self, label: &Hash, len: u32) -> Result<Hash, StoreError> {
        match self.0.plain(label)? {
            (hash, found) if found == len => Ok(hash),
            _ => Err(bad("is refused: a chunk in it has another length than its tree says")),
        }
    }

    fn content(&mut self, content: PiecedContent) -> Result<Hash, StoreError> {
        match self.0.contents.get(&content.hash) {
            Some((hash, size)) if *size == content.size => Ok(*hash),
            _ => Err(unknown("the content of a version")),
        }
    }
}

/// The zones of a generation.
pub(super) struct Roots {
    /// Each, and whether it is shared.
    pub zones: Vec<(StoredRoot, bool)>,
    segments: Arc<Segments>,
}

impl Roots {
    pub fn opened(&self, zone: u16, inode: Inode) -> Result<Opened, StoreError> {
        let Some((root, is_shared)) = self.zones.get(usize::from(zone)) else { return Ok(Opened::NoZone) };
        if *is_shared {
            return Ok(Opened::Shared);
        }
        let zone = Zone::from_root(ZoneRoot::load(*root), self.segments.clone());
        match zone.stat(Access::new(Principal::Agent, Timestamp(0)), inode) {
            Ok(stat) => Ok(Opened::Is(stat.kind)),
            Err(e) if e.code == ErrorCode::NoEntry => {
                // greater numbers are places of the past, and are not given
                let never = inode.0 < MAX_NUMBER && inode >= root.counters.next_inode;
                Ok(if never { Opened::Never } else { Opened::Missing })
            }
            Err(e) => Err(e.into()),
        }
    }

    pub fn stored(&self) -> impl Iterator<Item = StoredRoot> {
        self.zones.iter().map(|(root, _)| *root)
    }
}

impl Generation {
    /// Whether it follows `before`, and belongs to an agent with so many generations and turns.
    pub fn is_after(&self, before: Option<u64>, next: u64, last_turn: u64) -> bool {
        before.is_none_or(|before| before < self.number.0) && self.number.0 < next && self.turn.0 <= last_turn
    }

    /// Whether it can have been made for this.
    pub fn check_cause(&self) -> Result<(), StoreError> {
        let number = self.number;
        let holds = match &self.cause {
            Cause::Forked => number == GenerationNumber(0),
            Cause::Rewound(to) => *to < number,
            Cause::Turn => self.turn > Turn(0),
            Cause::Side(reason) if reason.chars().count() > MAX_REASON => {
                return Err(bad("is refused: the reason of a generation is longer than one can be"));
            }
            Cause::Reaped { paused: Some(at) } => {
                return is_time(*at, format_args!("the pause of generation {number}")).map(drop);
            }
            Cause::Created
            | Cause::Paused
            | Cause::Side(_)
            | Cause::Operated
            | Cause::Reaped { paused: None }
            | Cause::Upgraded => true,
        };
        if holds {
            Ok(())
        } else {
            Err(bad(format!("is refused: generation {number} has a cause that it cannot have")))
        }
    }
}
