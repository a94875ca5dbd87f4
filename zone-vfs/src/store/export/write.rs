//! Writing an export: what is named first, then what names it.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::{Arc, PoisonError};

use super::codec::Packing;
use super::format::{
    AGENT, ATTACHMENT, Agent, CONTENT, FILE, GENERATION, Generation, Header, LEAF, MAGIC, MAX_ATTACHMENTS,
    MAX_FRAMES, MAX_GENERATIONS, MAX_PIECES, MAX_RECORD, NODE, PLAIN, STANDS, STANDS_ON, Stands, TURNS,
    TURNS_IN_ONE, Zone, encode,
};
use super::{ExportReport, Exporting, bad};
use crate::chunks::FrameKind;
use crate::id::{Hash, Timestamp};
use crate::segment::{Marks, Segments};
use crate::store::attachment::{Root, leaf_chunks};
use crate::store::catalogue::{self, Frozen, StoredGeneration, StoredState};
use crate::store::disk::Disk;
use crate::store::entry::Payload;
use crate::store::reach::Uncached;
use crate::store::state::TurnRecord;
use crate::store::stream::Through;
use crate::store::{Store, StoreError, agents, blob};
use crate::tree::{Downward, PiecedContent, Tree, upward};
use crate::zone::{StoredRoot, pieces_in};

impl Store {
    /// Writes an agent to `to`, as it was committed last; it may go on beside. What cannot be read ends it: an export
    /// lacks nothing. Waits while the store is reaped, scrubbed or backed up, and these wait for it.
    ///
    /// It holds no key and no content of shared zones, and is not encrypted. Takes a bit of memory for each frame, and
    /// 32 bytes for each version of more than one piece.
    pub fn export(
        &self,
        disk: &Arc<Disk>,
        to: &mut dyn Write,
        exporting: &mut Exporting<'_>,
    ) -> Result<ExportReport, StoreError> {
        let shared = self.shared()?;
        // what is written of the state now, nothing leads to
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = shared.room();
        let segments = &shared.segments;
        let (frozen, generations) = {
            let inner = disk.lock();
            if inner.state.removed {
                return Err(StoreError::NoAgent(disk.id));
            }
            if !inner.state.forgotten.is_empty() {
                return Err(bad(
                    "cannot be made now: the generation at which the agent stands may hold what was forgotten; \
                     pause the agent first",
                ));
            }
            (Frozen::of(&inner.state), inner.state.generations.values().cloned().collect::<Vec<_>>())
        };
        let state = catalogue::read_stored(&frozen.write(segments)?.state, &Uncached(segments))?;
        let name = disk.lock().state.name.clone();
        let names = shared.agents().shared.names.clone();
        let zones = state.specs.iter().map(|spec| {
            let named = |id| names.iter().find(|(_, it)| **it == id).map(|(name, _)| name.clone());
            Zone {
                name: spec.name.clone(),
                mount: spec.mount.clone(),
                kind: spec.kind,
                quota: spec.quota,
                shared: spec.shared.map(|mount| (named(mount.zone).unwrap_or_default(), mount.writable)),
            }
        });
        let zones = zones.collect();
        let (about, files) = (exporting.begin)(&generations)?;
        drop(generations);
        let id = agents::random_uuid(segments.device())?;
        let mut out = Through::new(to, StoreError::Export);
        let made = Timestamp::now();
        out.put(&Header { id, made, is_move: exporting.is_move }.encode())?;
        for file in files {
            out.put(&[FILE])?;
            out.put_file(file)?;
        }
        let mut writer = Writer {
            segments,
            out,
            packing: Packing::new().map_err(compressing)?,
            plain: Marks::default(),
            nodes: Marks::default(),
            leaves: Marks::default(),
            contents: HashSet::new(),
            attachments: HashMap::new(),
            report: ExportReport { id, made, ..ExportReport::default() },
        };
        let agent = Agent {
            name,
            about,
            created: state.created,
            zones,
            head: state.head,
            last_turn: state.last_turn,
            next_generation: state.next_generation,
        };
        writer.record(AGENT, &agent)?;
        writer.state(&state, exporting)?;
        writer.finish()
    }
}

struct Writer<'a, 'b, 'c> {
    segments: &'a Segments,
    out: Through<'b, dyn Write + 'c>,
    packing: Packing,
    plain: Marks,
    nodes: Marks,
    leaves: Marks,
    /// What identifies the contents that were written.
    contents: HashSet<Hash>,
    /// The numbers of attachments, by the addresses of their roots.
    attachments: HashMap<Vec<Hash>, u64>,
    report: ExportReport,
}

impl Writer<'_, '_, '_> {
    fn record<T: serde::Serialize>(&mut self, tag: u8, record: &T) -> Result<(), StoreError> {
        let bytes = encode(record)?;
        if bytes.len() > MAX_RECORD {
            return Err(bad(format!(
                "cannot be made: a record of the agent has {} bytes, where {MAX_RECORD} are allowed",
                bytes.len()
            )));
        }
        self.out.put(&[tag])?;
        self.out.put(&(bytes.len() as u32).to_le_bytes())?;
        self.out.put(&bytes)
    }

    fn frame(&mut self, tag: u8, hash: &Hash, plain: &[u8]) -> Result<(), StoreError> {
        if self.report.frames >= MAX_FRAMES {
            return Err(bad(format!(
                "cannot be made: the agent has more than {MAX_FRAMES} frames of content"
            )));
        }
        self.report.frames += 1;
        let (codec, stored) = self.packing.pack(plain).map_err(compressing)?;
        self.out.put(&[tag])?;
        self.out.put(&hash.0)?;
        self.out.put(&[codec])?;
        self.out.put(&(plain.len() as u32).to_le_bytes())?;
        self.out.put(&(stored.len() as u32).to_le_bytes())?;
        self.out.put(&stored)
    }

    /// A chunk, or a piece of a payload: it names nothing.
    fn plain(&mut self, hash: &Hash) -> Result<(), StoreError> {
        if self.plain.add(self.segments.locate(hash)?) {
            let plain = self.segments.read(hash)?;
            self.frame(PLAIN, hash, &plain)?;
        }
        Ok(())
    }

    fn state(&mut self, state: &StoredState, exporting: &mut Exporting<'_>) -> Result<(), StoreError> {
        for piece in &state.history {
            self.turns(&piece.read(&Uncached(self.segments))?)?;
        }
        self.turns(&state.latest)?;
        let is_shared: Vec<bool> = state.specs.iter().map(|spec| spec.shared.is_some()).collect();
        if state.generations.len() as u64 > MAX_GENERATIONS {
            return Err(bad(format!(
                "cannot be made: the agent has more than {MAX_GENERATIONS} generations"
            )));
        }
        for generation in &state.generations {
            self.generation(generation, &is_shared, exporting)?;
        }
        let heads: Vec<StoredRoot> = state.zones.iter().map(|(_, head, _)| *head).collect();
        let roots = self.roots(&heads, &is_shared)?;
        let (generations, turns) = (self.report.generations, self.report.turns);
        self.record(STANDS, &Stands { roots, generations, turns })
    }

    fn turns(&mut self, turns: &[TurnRecord]) -> Result<(), StoreError> {
        for some in turns.chunks(TURNS_IN_ONE) {
            for payload in some.iter().flat_map(TurnRecord::payloads) {
                payload.needs().iter().try_for_each(|piece| self.plain(piece))?;
            }
            self.record(TURNS, &some)?;
            self.report.turns += some.len() as u64;
        }
        Ok(())
    }

    fn generation(
        &mut self,
        it: &StoredGeneration,
        is_shared: &[bool],
        exporting: &mut Exporting<'_>,
    ) -> Result<(), StoreError> {
        let about = blob::get(&Uncached(self.segments), &it.about)?;
        let about = (exporting.generation)(it.number, &about)?;
        let attachment = it.attachment.as_ref().map(|root| self.attachment(root)).transpose()?;
        let roots = self.roots(&it.roots, is_shared)?;
        self.report.generations += 1;
        self.record(
            GENERATION,
            &Generation {
                number: it.number,
                cause: it.cause.clone(),
                about,
                turn: it.turn,
                at: it.at,
                roots,
                attachment,
                pinned: it.is_pinned,
            },
        )?;
        it.on.map_or(Ok(()), |on| self.record(STANDS_ON, &(it.number, on)))
    }

    fn roots(
        &mut self,
        roots: &[StoredRoot],
        is_shared: &[bool],
    ) -> Result<Vec<Option<StoredRoot>>, StoreError> {
        let mut written = Vec::with_capacity(roots.len());
        for (root, is_shared) in roots.iter().zip(is_shared) {
            if *is_shared {
                written.push(None);
                continue;
            }
            for tree in root.trees() {
                upward(&tree, &mut Climbing { writer: self, tree: Tree::load(tree) })?;
            }
            written.push(Some(*root));
        }
        Ok(written)
    }

    /// Gives its number.
    fn attachment(&mut self, root: &Payload) -> Result<u64, StoreError> {
        if let Some(known) = self.attachments.get(root.needs()) {
            return Ok(*known);
        }
        let number = self.attachments.len() as u64;
        if number >= MAX_ATTACHMENTS {
            return Err(bad(format!(
                "cannot be made: the agent has more than {MAX_ATTACHMENTS} attachments"
            )));
        }
        let attached = Root::read(root, &Uncached(self.segments))?;
        for leaf in attached.leaves.iter().flatten() {
            if !self.leaves.add(self.segments.locate(leaf)?) {
                continue;
            }
            let bytes = self.segments.read(leaf)?;
            for chunk in leaf_chunks(&bytes)? {
                self.plain(&chunk)?;
            }
            self.frame(LEAF, leaf, &bytes)?;
        }
        self.record(ATTACHMENT, &attached)?;
        self.attachments.insert(root.needs().to_vec(), number);
        Ok(number)
    }

    fn finish(mut self) -> Result<ExportReport, StoreError> {
        let sum = *self.out.hasher.finalize().as_bytes();
        self.out.put(&sum)?;
        self.out.put(MAGIC)?;
        self.out.flush()?;
        self.report.bytes = self.out.bytes;
        self.report.digest = sum;
        Ok(self.report)
    }
}

fn compressing(source: std::io::Error) -> StoreError {
    StoreError::Io { what: "compressing an export".into(), source }
}

/// One tree, on the way from its leaves up.
struct Climbing<'w, 'a, 'b, 'c> {
    writer: &'w mut Writer<'a, 'b, 'c>,
    /// The same tree, in which pieces are looked up.
    tree: Tree,
}

impl Downward for Climbing<'_, '_, '_, '_> {
    type Error = StoreError;

    fn is_new(&mut self, kind: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        match kind {
            FrameKind::Node => Ok(self.writer.nodes.add(self.writer.segments.locate(hash)?)),
            // `plain` sees to it
            FrameKind::Chunk | FrameKind::Catalogue | FrameKind::Root => Ok(true),
        }
    }

    fn read(&mut self, hash: &Hash) -> Result<Arc<[u8]>, StoreError> {
        Ok(self.writer.segments.read(hash)?)
    }

    fn chunk(&mut self, hash: &Hash) -> Result<(), StoreError> {
        self.writer.plain(hash)
    }

    fn content(&mut self, content: &PiecedContent) -> Result<(), StoreError> {
        if !self.writer.contents.insert(content.hash) {
            return Ok(());
        }
        let mut pieces = Vec::new();
        let chunks = Uncached(self.writer.segments);
        pieces_in(&self.tree, &chunks, content.content, &mut |offset, len, hash| {
            pieces.push((offset, len, hash));
        })?;
        if pieces.len() as u64 > u64::from(MAX_PIECES) {
            return Err(bad(format!("cannot be made: a version in it has more than {MAX_PIECES} pieces")));
        }
        for (_, _, hash) in &pieces {
            self.writer.plain(hash)?;
        }
        let out = &mut self.writer.out;
        out.put(&[CONTENT])?;
        out.put(&content.hash.0)?;
        out.put(&content.size.to_le_bytes())?;
        out.put(&(pieces.len() as u32).to_le_bytes())?;
        for (offset, len, hash) in pieces {
            out.put(&offset.to_le_bytes())?;
            out.put(&len.to_le_bytes())?;
            out.put(&hash.0)?;
        }
        Ok(())
    }

    fn node(&mut self, hash: &Hash, node: &[u8]) -> Result<(), StoreError> {
        self.writer.frame(NODE, hash, node)
    }
}
