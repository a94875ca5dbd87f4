//! Where content still is that was forgotten elsewhere: in forks, in shared zones, in files that hold the same.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use super::{Store, StoreError, catalogue};
use crate::chunks::ChunkStore;
use crate::id::{GenerationNumber, Hash};
use crate::segment::{Marks, Segments};
use crate::tree::{Content, Key, references_content};
use crate::zone::{ContentIds, StoredRoot, ZoneRoot};

/// Places that are told at most.
pub const MAX_LEFT: usize = 100;

/// A place where content still is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// The agent, or the shared zone.
    pub agent: String,
    /// It is a shared zone.
    pub is_shared_zone: bool,
    /// None for what stands now.
    pub generation: Option<GenerationNumber>,
    /// The zone's name.
    pub zone: String,
    /// The path from the zone's root, as far as it is known.
    pub path: Option<Vec<u8>>,
}

struct Search<'a> {
    segments: &'a Segments,
    ids: &'a ContentIds,
    /// Nodes below which there is nothing.
    clean: Marks,
}

impl Store {
    /// Looks for content as of the last checkpoint, in all that agents and shared zones keep: in the order of
    /// agents, at most [`MAX_LEFT`] places, of which an agent's generations count only where it has it no more
    /// now. What lies in events and outcomes of turns, or in memory, or within other content, is not looked for.
    pub fn find_left(&self, ids: &ContentIds) -> Result<Vec<Left>, StoreError> {
        let shared = self.shared()?;
        // nothing is swept meanwhile
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = shared.room();
        let hash = shared.superblock.lock().unwrap_or_else(PoisonError::into_inner).current().catalogue;
        let Some(hash) = hash.filter(|_| !ids.is_empty()) else { return Ok(Vec::new()) };
        let segments = &shared.segments;
        let chunks: Arc<dyn ChunkStore> = segments.clone();
        let list = catalogue::read(&**segments, &hash)?;
        let mut search = Search { segments, ids, clean: Marks::default() };
        let mut found = Vec::new();
        let agents = list.agents.iter().map(|agent| (agent, false));
        for (agent, is_shared_zone) in agents.chain(list.shared.iter().map(|it| (&it.stored, true))) {
            let Some(payload) = &agent.state else { continue };
            let state = catalogue::read_stored(payload, &**segments)?;
            let heads = state.zones.iter().map(|(_, head, _)| head).enumerate().map(|it| (None, it));
            let earlier = state.generations.iter().rev();
            let earlier =
                earlier.flat_map(|it| it.roots.iter().enumerate().map(|root| (Some(it.number), root)));
            let mut told = BTreeSet::new();
            for (generation, (index, stored)) in heads.chain(earlier) {
                let root = ZoneRoot::load(*stored);
                for key in search.zone(stored)? {
                    let path = root.path_of_content(&key, &chunks)?;
                    if !told.insert((index, path.clone())) {
                        continue;
                    }
                    let zone = state.specs.get(index).map(|spec| spec.name.clone()).unwrap_or_default();
                    let agent = agent.name.clone();
                    found.push(Left { agent, is_shared_zone, generation, zone, path });
                    if found.len() >= MAX_LEFT {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Search<'_> {
    /// One key of each file, or version, that has some of the content.
    fn zone(&mut self, root: &StoredRoot) -> Result<Vec<Key>, StoreError> {
        let mut found = Vec::new();
        for hash in root.trees() {
            self.tree(&hash, &mut found)?;
        }
        found.dedup_by_key(|key| (key.inode, key.part.is_history()));
        Ok(found)
    }

    /// Whether there is anything below a node. As deep as the tree.
    fn tree(&mut self, node: &Hash, found: &mut Vec<Key>) -> Result<bool, StoreError> {
        let place = self.segments.locate(node)?;
        if self.clean.has(place) || found.len() >= MAX_LEFT {
            return Ok(false);
        }
        let (mut children, before) = (Vec::new(), found.len());
        let bytes = self.segments.read(node)?;
        references_content(&bytes, &mut |child| children.push(child), &mut |key, content| {
            let is_it = match content {
                Content::Chunk(hash) => self.ids.chunks.contains(&hash),
                Content::Inline(bytes) => self.ids.inline.contains(&ContentIds::of_inline(bytes)),
            };
            if is_it && found.last().is_none_or(|last| last.inode != key.inode) {
                found.push(key.clone());
            }
        })
        .map_err(|e| StoreError::Zone(e.into()))?;
        let mut any = found.len() > before;
        for child in children {
            any |= self.tree(&child, found)?;
        }
        if !any && found.len() < MAX_LEFT {
            self.clean.add(place);
        }
        Ok(any)
    }
}
