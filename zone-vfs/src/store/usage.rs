//! Who uses how much, and what would come free.
//!
//! Everything that a checkpoint leads to is walked through, agent by agent. For each frame two numbers are
//! kept, whose it is: of which agent's zone, and of which generation; or that it is of several. Memory: 16 bytes
//! and a bit for each frame.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use super::catalogue::{self, StoredAgent};
use super::entry::Payload;
use super::reach::{Part, Place, Reach, Visitor};
use super::{Shared, Store, StoreError, attachment};
use crate::chunks::FrameKind;
use crate::id::{AgentId, GenerationNumber, Hash};
use crate::segment::{FrameTable, Location, Marks, SegmentStats, Segments};
use crate::tree::references;
use crate::zone::StoredRoot;

/// Bytes of one thing. What is stored is compressed, and counts with the header of each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// The sizes of its files, as it sees them.
    pub logical: u64,
    /// Stored, and needed by it alone: what would come free if it went.
    pub unique: u64,
    /// Stored, and needed by others too.
    pub shared: u64,
}

/// What an agent, or a shared zone, uses.
#[derive(Clone, Debug, Default)]
pub struct AgentUsage {
    /// Which.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// It is a zone that several agents mount.
    pub is_shared_zone: bool,
    /// All of it: its zones as they stand, its generations, its history.
    pub all: Bytes,
    /// What is attached to its generations. `logical` is what is attached to the one that it stands at.
    pub attachments: Bytes,
    /// Its zones, by name, each with all that generations hold of it.
    pub zones: Vec<(String, Bytes)>,
    /// Its generations. Here `shared` counts twice what is twice in one generation.
    pub generations: Vec<(GenerationNumber, Bytes)>,
    /// Some of it cannot be read, and does not count.
    pub is_damaged: bool,
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentUsage {
    /// Its number.
    pub number: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of frames in it that a checkpoint needs.
    pub needed: u64,
}

/// What a store uses.
#[derive(Clone, Debug, Default)]
pub struct StoreUsage {
    /// Agents and shared zones, by name.
    pub agents: Vec<AgentUsage>,
    /// The segments.
    pub segments: Vec<SegmentUsage>,
    /// All segments together.
    pub stats: SegmentStats,
    /// Bytes of stored frames that anything needs.
    pub needed: u64,
    /// Bytes in the log since the last checkpoint.
    pub log: u64,
}

impl Store {
    /// Who uses how much. Makes a checkpoint, and reads every tree: it takes a while, beside live agents.
    pub fn usage(&self) -> Result<StoreUsage, StoreError> {
        let shared = self.shared()?;
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = shared.room();
        let log = shared.log_bytes();
        let (hash, ()) = shared.checkpoint_with(|| Ok(()))?;
        let mut usage = shared.count_usage(&hash)?;
        usage.log = log;
        Ok(usage)
    }
}

impl Shared {
    fn count_usage(&self, hash: &Hash) -> Result<StoreUsage, StoreError> {
        let segments = &*self.segments;
        let list = catalogue::read(segments, hash)?;
        let zones = list.shared.into_iter().map(|it| (it.stored, true));
        let all: Vec<(StoredAgent, bool)> =
            list.agents.into_iter().map(|it| (it, false)).chain(zones).collect();
        let mut counter = Counter::new(segments);
        let mut agents = Vec::with_capacity(all.len());
        for (stored, is_shared_zone) in &all {
            let first = counter.owners.len();
            counter.begin();
            Reach::new(segments, &mut counter).agent(stored)?;
            let usage = AgentUsage {
                id: stored.id,
                name: stored.name.clone(),
                is_shared_zone: *is_shared_zone,
                is_damaged: counter.is_damaged,
                ..AgentUsage::default()
            };
            agents.push((usage, first, std::mem::take(&mut counter.generation_owners)));
        }
        // only now is it known what is whose alone
        let mut usage = StoreUsage { stats: segments.stats(), ..StoreUsage::default() };
        for ((mut agent, first, generations), (stored, _)) in agents.into_iter().zip(&all) {
            counter.tell(&mut agent, first, &generations, stored);
            usage.agents.push(agent);
        }
        usage.agents.sort_by(|a, b| a.name.cmp(&b.name));
        for (number, bytes) in segments.files() {
            let needed = counter.needed.get(&number).copied().unwrap_or(0);
            usage.segments.push(SegmentUsage { number, bytes, needed });
        }
        usage.needed = counter.needed.values().sum();
        Ok(usage)
    }
}

/// Index into `owners`; 0 is nobody, 1 is several agents.
type Owner = u32;
const SEVERAL: Owner = 1;

#[derive(Clone, Copy, Default)]
struct Owned {
    unique: u64,
    reached: u64,
}

struct Counter<'a> {
    segments: &'a Segments,
    /// Which zone's of which agent a frame is.
    zone_of: FrameTable<Owner>,
    /// Which generation's it is.
    generation_of: FrameTable<Owner>,
    /// What hangs on a node, with what it has itself.
    sums: FrameTable<u64>,
    owners: Vec<Owned>,
    /// Bytes that are needed, by segment.
    needed: HashMap<u32, u64>,
    /// Of the agent that is walked through now: its first owner, what was seen, its generations.
    base: Owner,
    seen: Marks,
    generation_owners: BTreeMap<Option<GenerationNumber>, Owner>,
    is_damaged: bool,
}

/// Owners that each agent has: itself, one for each zone, and one for what is attached to its generations.
const OWNERS: u32 = 2 + super::MAX_ZONES as u32;
/// The last of them.
const ATTACHMENTS: u32 = OWNERS - 1;

impl<'a> Counter<'a> {
    fn new(segments: &'a Segments) -> Self {
        Self {
            segments,
            zone_of: FrameTable::default(),
            generation_of: FrameTable::default(),
            sums: FrameTable::default(),
            owners: vec![Owned::default(); 2],
            needed: HashMap::new(),
            base: 0,
            seen: Marks::default(),
            generation_owners: BTreeMap::new(),
            is_damaged: false,
        }
    }

    fn begin(&mut self) {
        self.base = self.owners.len() as Owner;
        self.owners.resize(self.owners.len() + OWNERS as usize, Owned::default());
        self.seen = Marks::default();
        self.generation_owners = BTreeMap::new();
        self.is_damaged = false;
    }

    fn tell(
        &mut self,
        agent: &mut AgentUsage,
        first: usize,
        generations: &BTreeMap<Option<GenerationNumber>, Owner>,
        stored: &StoredAgent,
    ) {
        let own = &self.owners[first..first + OWNERS as usize];
        agent.all.unique = own.iter().map(|it| it.unique).sum();
        agent.all.shared = own.iter().map(|it| it.reached).sum::<u64>().saturating_sub(agent.all.unique);
        let Some(Ok(state)) =
            stored.state.as_ref().map(|payload| catalogue::read_stored(payload, self.segments))
        else {
            return;
        };
        let Owned { unique, reached } = own[ATTACHMENTS as usize];
        agent.attachments = Bytes { logical: 0, unique, shared: reached.saturating_sub(unique) };
        for (index, (spec, (_, head, _))) in state.specs.iter().zip(&state.zones).enumerate() {
            let Owned { unique, reached } = own[index + 1];
            let shared = reached.saturating_sub(unique);
            agent
                .zones
                .push((spec.name.clone(), Bytes { logical: head.counters.usage.bytes, unique, shared }));
            agent.all.logical += head.counters.usage.bytes;
        }
        for generation in &state.generations {
            let unique = generations
                .get(&Some(generation.number))
                .map_or(0, |owner| self.owners[*owner as usize].unique);
            let about: u64 = generation.about.needs().iter().map(|hash| self.len(hash)).sum();
            let reached: u64 =
                generation.roots.iter().flat_map(StoredRoot::trees).map(|hash| self.sum(&hash)).sum();
            let logical = generation.roots.iter().map(|root| root.counters.usage.bytes).sum();
            let (length, attached) = self.attached(generation.attachment.as_ref());
            if generation.number == state.head {
                agent.attachments.logical = length;
            }
            let shared = (about + reached + attached).saturating_sub(unique);
            agent.generations.push((generation.number, Bytes { logical, unique, shared }));
        }
    }

    /// The length of what is attached, and the bytes of its frames, as far as it reads.
    fn attached(&mut self, root: Option<&Payload>) -> (u64, u64) {
        let Some(root) = root else { return (0, 0) };
        // what does not read was reported by the walk before
        let Ok((length, leaves)) = attachment::leaves_and_len(root, self.segments) else { return (0, 0) };
        let mut sum: u64 = root.needs().iter().map(|hash| self.len(hash)).sum();
        for leaf in leaves {
            let Ok(place) = self.segments.locate(&leaf) else { continue };
            let mut known = self.sums.get(place);
            if known == 0 {
                let read = self.segments.read(&leaf).map_err(StoreError::from);
                let chunks = read.and_then(|bytes| attachment::leaf_chunks(&bytes));
                let below: u64 = chunks.into_iter().flatten().map(|hash| self.len(&hash)).sum();
                known = place.bytes() + below;
                self.sums.set(place, known);
            }
            sum += known;
        }
        (length, sum)
    }

    fn len(&self, hash: &Hash) -> u64 {
        self.segments.locate(hash).map_or(0, Location::bytes)
    }

    /// The bytes of a tree, as far as it reads. As deep as the tree.
    fn sum(&mut self, node: &Hash) -> u64 {
        let Ok(place) = self.segments.locate(node) else { return 0 };
        let known = self.sums.get(place);
        if known > 0 {
            return known;
        }
        let mut below = Vec::new();
        if let Ok(bytes) = self.segments.read(node) {
            // what does not read was reported by the walk before
            let _ = references(&bytes, &mut |kind, _, hash| below.push((kind, hash)));
        }
        let mut sum = place.bytes();
        for (kind, hash) in below {
            sum += if kind == FrameKind::Node { self.sum(&hash) } else { self.len(&hash) };
        }
        self.sums.set(place, sum);
        sum
    }

    fn move_unique(&mut self, from: Owner, to: Owner, bytes: u64) {
        if from > SEVERAL {
            self.owners[from as usize].unique -= bytes;
        }
        if to > SEVERAL {
            self.owners[to as usize].unique += bytes;
        }
    }

    fn generation_owner(&mut self, generation: Option<GenerationNumber>) -> Owner {
        let next = self.owners.len() as Owner;
        let owner = *self.generation_owners.entry(generation).or_insert(next);
        if owner == next {
            self.owners.push(Owned::default());
        }
        owner
    }
}

impl Visitor for Counter<'_> {
    fn visit(&mut self, place: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        let frame = self.segments.locate(hash)?;
        let bytes = frame.bytes();
        let me = match place.part {
            Part::Zone(index) => self.base + u32::from(index) + 1,
            Part::Attachment => self.base + ATTACHMENTS,
            _ => self.base,
        };
        let is_new = self.seen.add(frame);
        if is_new {
            self.owners[me as usize].reached += bytes;
        }
        let was = self.zone_of.get(frame);
        let is = match was {
            0 => me,
            was if was == me || was == SEVERAL || was == self.base => was,
            // of two of this agent's
            was if was > self.base => self.base,
            _ => SEVERAL,
        };
        if was == 0 {
            *self.needed.entry(frame.segment_number()).or_default() += bytes;
        }
        if is != was {
            self.zone_of.set(frame, is);
            self.move_unique(was, is, bytes);
        }
        let now = self.generation_owner(place.generation);
        let had = self.generation_of.get(frame);
        let has = if had == 0 || had == now { now } else { SEVERAL };
        if has != had {
            self.generation_of.set(frame, has);
            self.move_unique(had, has, bytes);
        }
        Ok(is_new || is != was || has != had)
    }

    fn unreadable(&mut self, _: &Place, _: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        self.is_damaged = true;
        Ok(())
    }
}
