//! All that a catalogue leads to, frame by frame, without keeping it in memory.

use std::fmt;
use std::sync::Arc;

use super::catalogue::{self, StoredAgent, StoredState};
use super::entry::Payload;
use super::history::Piece;
use super::{StoreError, TurnRecord, attachment};
use crate::chunks::{ChunkStore, FrameKind};
use crate::id::{AgentId, GenerationNumber, Hash, Inode};
use crate::segment::Segments;
use crate::tree::references;

/// What part of an agent something belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// The list of agents.
    #[default]
    Catalogue,
    /// Its state, and the embedder's data in it.
    State,
    /// Records that wait for it to be sound again.
    Carried,
    /// Turns that are over.
    History,
    /// What is attached to a generation.
    Attachment,
    /// A zone.
    Zone(u16),
}

/// Where something was met.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub agent: Option<(AgentId, Arc<str>)>,
    /// None for what stands now.
    pub generation: Option<GenerationNumber>,
    pub part: Part,
    /// The root of the tree.
    pub root: Option<Hash>,
    /// The file of a chunk.
    pub inode: Option<Inode>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.agent {
            Some((_, name)) => write!(f, "{name}")?,
            None => return f.write_str("the list of agents"),
        }
        if let Some(generation) = self.generation {
            write!(f, "@{generation}")?;
        }
        match self.part {
            Part::Catalogue | Part::State => f.write_str(": its state"),
            Part::Carried => f.write_str(": records that wait"),
            Part::History => f.write_str(": its history"),
            Part::Attachment => f.write_str(": what is attached to it"),
            Part::Zone(index) => write!(f, ": zone {index}"),
        }
    }
}

/// Is led through everything.
pub(super) trait Visitor {
    /// A frame. Where this gives false, what hangs on it is left out.
    fn visit(&mut self, place: &Place, kind: FrameKind, hash: &Hash) -> Result<bool, StoreError>;

    /// The frame, or what it holds, cannot be read. An error ends the walk.
    fn unreadable(&mut self, place: &Place, hash: &Hash, error: StoreError) -> Result<(), StoreError>;

    /// Whether to look at this generation, or at the agent where there is none.
    fn wants(&self, _agent: AgentId, _generation: Option<GenerationNumber>) -> bool {
        true
    }
}

pub(super) struct Reach<'a, V> {
    pub segments: &'a Segments,
    pub visitor: &'a mut V,
    pub place: Place,
}

/// Reads frames without keeping them: a walk through everything would push out what agents use.
pub(super) struct Uncached<'a>(pub &'a Segments);

impl ChunkStore for Uncached<'_> {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, crate::chunks::ChunkError> {
        self.0.read(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, crate::chunks::ChunkError> {
        self.0.put(kind, plain)
    }
}

impl<'a, V: Visitor> Reach<'a, V> {
    pub fn new(segments: &'a Segments, visitor: &'a mut V) -> Self {
        Self { segments, visitor, place: Place::default() }
    }

    /// Everything that the catalogue at `hash` leads to.
    pub fn catalogue(&mut self, hash: &Hash) -> Result<(), StoreError> {
        self.place = Place::default();
        if !self.frame(FrameKind::Root, hash)? {
            return Ok(());
        }
        let chunks = Uncached(self.segments);
        let Some(payload) = self.read(hash, catalogue::read_root(&chunks, hash))? else { return Ok(()) };
        self.payload(&payload)?;
        let Some(list) = self.read(hash, catalogue::read(&chunks, hash))? else { return Ok(()) };
        for agent in list.agents.iter().chain(list.shared.iter().map(|it| &it.stored)) {
            self.agent(agent)?;
        }
        Ok(())
    }

    /// All of one agent.
    pub fn agent(&mut self, agent: &StoredAgent) -> Result<(), StoreError> {
        if !self.visitor.wants(agent.id, None) {
            return Ok(());
        }
        let name: Arc<str> = agent.name.as_str().into();
        self.place = Place { agent: Some((agent.id, name)), part: Part::State, ..Place::default() };
        let chunks = Uncached(self.segments);
        if let Some(payload) = &agent.state {
            self.payload(payload)?;
            let first = payload.needs().first().copied().unwrap_or(Hash([0; 32]));
            if let Some(state) = self.read(&first, catalogue::read_stored(payload, &chunks))? {
                self.state(agent.id, &state)?;
            }
        }
        self.place.part = Part::Carried;
        for payload in &agent.carried {
            self.payload(payload)?;
            let first = payload.needs().first().copied().unwrap_or(Hash([0; 32]));
            let read = StoredAgent::read_carried(payload, &chunks);
            for record in self.read(&first, read)?.into_iter().flatten() {
                for hash in &record.needs {
                    self.frame(FrameKind::Chunk, hash)?;
                }
            }
        }
        Ok(())
    }

    fn state(&mut self, agent: AgentId, state: &StoredState) -> Result<(), StoreError> {
        self.payload(&state.about)?;
        if let Some(turn) = &state.turn {
            for payload in turn.payloads() {
                self.payload(payload)?;
            }
        }
        self.history(&state.history, state.latest.iter())?;
        for (index, (synced, head, _)) in state.zones.iter().enumerate() {
            self.place.part = Part::Zone(index as u16);
            for hash in head.trees().chain(synced.trees()) {
                self.root(&hash)?;
            }
        }
        for generation in &state.generations {
            if !self.visitor.wants(agent, Some(generation.number)) {
                continue;
            }
            self.place.generation = Some(generation.number);
            self.place.part = Part::State;
            self.payload(&generation.about)?;
            for (index, root) in generation.roots.iter().enumerate() {
                self.place.part = Part::Zone(index as u16);
                for hash in root.trees() {
                    self.root(&hash)?;
                }
            }
            if let Some(root) = &generation.attachment {
                self.attachment(root)?;
            }
        }
        self.place.generation = None;
        Ok(())
    }

    /// Turns that are over: those in pieces, and then the latest.
    pub fn history<'t>(
        &mut self,
        pieces: &[Piece],
        latest: impl Iterator<Item = &'t TurnRecord>,
    ) -> Result<(), StoreError> {
        self.place.part = Part::History;
        for piece in pieces {
            if self.payload(&piece.content)? {
                let first = piece.content.needs().first().copied().unwrap_or(Hash([0; 32]));
                let turns = piece.read(&Uncached(self.segments));
                let turns = self.read(&first, turns)?.unwrap_or_default();
                self.turns(turns.iter())?;
            }
        }
        self.turns(latest)
    }

    fn turns<'t>(&mut self, turns: impl Iterator<Item = &'t TurnRecord>) -> Result<(), StoreError> {
        for payload in turns.flat_map(TurnRecord::payloads) {
            self.payload(payload)?;
        }
        Ok(())
    }

    /// What is attached to a generation, by its root.
    pub fn attachment(&mut self, root: &Payload) -> Result<(), StoreError> {
        self.place.part = Part::Attachment;
        if !self.payload(root)? {
            return Ok(());
        }
        let first = root.needs().first().copied().unwrap_or(Hash([0; 32]));
        let leaves = attachment::leaves(root, &Uncached(self.segments));
        for leaf in self.read(&first, leaves)?.into_iter().flatten() {
            if !self.frame(FrameKind::Catalogue, &leaf)? {
                continue;
            }
            let read = self.segments.read(&leaf).map_err(StoreError::from);
            let chunks = read.and_then(|bytes| attachment::leaf_chunks(&bytes));
            for chunk in self.read(&leaf, chunks)?.into_iter().flatten() {
                self.frame(FrameKind::Chunk, &chunk)?;
            }
        }
        Ok(())
    }

    /// The pieces of a payload; whether any of them was new.
    pub fn payload(&mut self, payload: &Payload) -> Result<bool, StoreError> {
        let mut is_new = false;
        for hash in payload.needs() {
            is_new |= self.frame(FrameKind::Catalogue, hash)?;
        }
        Ok(is_new)
    }

    /// A tree, by its root.
    pub fn root(&mut self, root: &Hash) -> Result<(), StoreError> {
        self.place.root = Some(*root);
        // as deep as the tree, times what hangs on one node
        let mut waiting = vec![(FrameKind::Node, None, *root)];
        while let Some((kind, inode, hash)) = waiting.pop() {
            self.place.inode = inode;
            if !self.frame(kind, &hash)? || kind != FrameKind::Node {
                continue;
            }
            let mut below = Vec::new();
            let read = self.segments.read(&hash).map_err(StoreError::from).and_then(|node| {
                references(&node, &mut |kind, key, hash| below.push((kind, key.map(|it| it.inode), hash)))
                    .map_err(|e| StoreError::Zone(e.into()))
            });
            if self.read(&hash, read)?.is_some() {
                waiting.extend(below.into_iter().rev());
            }
        }
        self.place.root = None;
        self.place.inode = None;
        Ok(())
    }

    /// One frame; whether to go on below.
    pub fn frame(&mut self, kind: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        match self.visitor.visit(&self.place, kind, hash) {
            Ok(below) => Ok(below),
            Err(e) => self.visitor.unreadable(&self.place, hash, e).map(|()| false),
        }
    }

    fn read<T>(&mut self, hash: &Hash, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(read) => Ok(Some(read)),
            Err(e) => self.visitor.unreadable(&self.place, hash, e).map(|()| None),
        }
    }
}
