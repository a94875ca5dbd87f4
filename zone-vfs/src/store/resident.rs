//! All that an agent in memory hangs on, for whoever looks and writes nothing: a catalogue would have to be written.

use std::sync::Arc;

use super::StoreError;
use super::disk::Disk;
use super::reach::{Part, Place, Reach, Visitor};
use super::state::{OpenTurn, State};
use crate::chunks::FrameKind;
use crate::id::{GenerationNumber, Hash, Inode};
use crate::tree::Tree;
use crate::zone::ZoneRoot;

/// A tree of a zone, and what says which file a part of it is of.
#[derive(Clone)]
pub(super) struct Grown {
    /// What knows the names.
    pub root: ZoneRoot,
    /// It is the tree of a history.
    pub is_history: bool,
}

/// A tree, as far as it is stored.
struct Trunk {
    grown: Grown,
    generation: Option<GenerationNumber>,
    zone: u16,
    /// The highest nodes that are stored, and the chunks of nodes that are not.
    parts: Vec<(FrameKind, Option<Inode>, Hash)>,
}

impl Trunk {
    fn of(tree: &Tree, grown: Grown, generation: Option<GenerationNumber>, zone: u16) -> Self {
        let mut parts = Vec::new();
        tree.stored_places(&mut |kind, key, hash| parts.push((kind, key.map(|key| key.inode), hash)));
        Self { grown, generation, zone, parts }
    }
}

/// Leads through all that an agent, or a shared zone, hangs on as it is in memory. `grows` is told of each tree before
/// the walk enters it, and that there is none behind it.
pub(super) fn walk<V: Visitor>(
    reach: &mut Reach<'_, V>,
    disk: &Arc<Disk>,
    mut grows: impl FnMut(&mut V, Option<&Grown>),
) -> Result<(), StoreError> {
    // looked at together; nothing is read while others wait for the disk
    let (name, about, turn, history, trunks, generations) = {
        let inner = disk.lock();
        let state = &inner.state;
        let name: Arc<str> = state.name.as_str().into();
        let generations: Vec<_> = state.generations.values().cloned().collect();
        let turn = state.turn.clone();
        (name, state.about.clone(), turn, state.history.clone(), trunks(state), generations)
    };
    let agent = Some((disk.id(), name));
    reach.place = Place { agent: agent.clone(), part: Part::State, ..Place::default() };
    for payload in std::iter::once(&about).chain(turn.iter().flat_map(OpenTurn::payloads)) {
        reach.payload(payload)?;
    }
    reach.history(&history.pieces, history.tail.iter().map(|turn| &**turn))?;
    for trunk in &trunks {
        let (generation, part) = (trunk.generation, Part::Zone(trunk.zone));
        reach.place = Place { agent: agent.clone(), generation, part, ..Place::default() };
        grows(reach.visitor, Some(&trunk.grown));
        for (kind, inode, hash) in &trunk.parts {
            if *kind == FrameKind::Node {
                reach.root(hash)?;
            } else {
                reach.place.inode = *inode;
                reach.frame(*kind, hash)?;
            }
        }
        grows(reach.visitor, None);
    }
    for generation in &generations {
        let number = Some(generation.number);
        reach.place =
            Place { agent: agent.clone(), generation: number, part: Part::State, ..Place::default() };
        reach.payload(&generation.about)?;
        if let Some(root) = &generation.attachment {
            reach.attachment(root)?;
        }
    }
    Ok(())
}

/// What stands now first: what several have is told of that.
fn trunks(state: &State) -> Vec<Trunk> {
    let mut trunks = Vec::new();
    for (index, zone) in state.zones.iter().enumerate() {
        let index = index as u16;
        for root in [&zone.head, &zone.synced] {
            trunks.extend(of_root(root, None, index));
        }
        for (at, tree) in zone.working.trees_in_use().into_iter().enumerate() {
            let grown = Grown { root: zone.synced.clone(), is_history: at % 2 == 1 };
            trunks.push(Trunk::of(tree, grown, None, index));
        }
    }
    for generation in state.generations.values() {
        for (index, root) in generation.roots.iter().enumerate() {
            trunks.extend(of_root(root, Some(generation.number), index as u16));
        }
    }
    trunks
}

fn of_root(root: &ZoneRoot, generation: Option<GenerationNumber>, zone: u16) -> [Trunk; 2] {
    [(root.tree(), false), (root.history_tree(), true)]
        .map(|(tree, is_history)| Trunk::of(tree, Grown { root: root.clone(), is_history }, generation, zone))
}
