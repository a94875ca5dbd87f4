//! The catalogue: every agent's state as a checkpoint keeps it in segments.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chain::ChainDigest;
use super::entry::{Cause, Payload, Role, SeenMount, ZoneSpec};
use super::history::{History, Piece};
use super::older::{OpenTurn1, StoredGeneration1, TurnRecord1};
use super::state::{ForgottenFile, Generation, OpenTurn, State, TurnRecord, ZoneState};
use super::{StoreError, blob};
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::id::{AgentId, Epoch, GenerationNumber, Hash, Sequence, Timestamp, Turn};
use crate::log::Record;
use crate::segment::Segments;
use crate::zone::{StoredRoot, Zone, ZoneRoot};

/// Raised whenever the layout of the catalogue changes.
const VERSION: u16 = 2;

/// The list of agents and shared zones.
#[derive(Serialize, Deserialize)]
pub(super) struct Catalogue {
    version: u16,
    pub agents: Vec<StoredAgent>,
    /// Agents whose records may still be met at the beginning of the log, and count no more.
    pub removed: Vec<AgentId>,
    pub shared: Vec<CatalogueZone>,
    /// Something was forgotten, and the store's files may still hold it.
    pub purge: bool,
}

/// An agent, or a shared zone, in the list: enough to know it by name and to remove it where nothing else of
/// it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredAgent {
    pub id: AgentId,
    pub name: String,
    /// The epoch of its last record.
    pub epoch: Epoch,
    /// The number of its last record.
    pub sequence: Sequence,
    /// Its state; none where it was damaged before it had one.
    pub state: Option<Payload>,
    /// Lists of records that come after the state and could not take effect, since it is damaged.
    pub carried: Vec<Payload>,
}

/// A shared zone in the list.
#[derive(Serialize, Deserialize)]
pub(super) struct CatalogueZone {
    pub stored: StoredAgent,
    /// The agents that mount it.
    pub mounted_by: Vec<AgentId>,
}

/// A record of a damaged agent, as the log had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    pub epoch: Epoch,
    pub sequence: Sequence,
    pub needs: Vec<Hash>,
    pub body: Vec<u8>,
}

impl Carried {
    /// The record, as one of this agent's.
    pub fn of(self, agent: AgentId) -> Record {
        let Self { epoch, sequence, needs, body } = self;
        Record { agent, epoch, sequence, needs, body }
    }
}

impl StoredAgent {
    /// Writes records of its that could not take effect.
    pub fn carry(&mut self, records: &[Carried], segments: &Segments) -> Result<(), StoreError> {
        if !records.is_empty() {
            let bytes = postcard::to_stdvec(records).map_err(encoding)?;
            self.carried.push(blob::put_stored(segments, &bytes)?);
        }
        Ok(())
    }

    /// One list of the records that it carries.
    pub fn read_carried(payload: &Payload, chunks: &dyn ChunkStore) -> Result<Vec<Carried>, StoreError> {
        postcard::from_bytes(&blob::get(chunks, payload)?).map_err(encoding)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredGeneration {
    pub number: GenerationNumber,
    pub cause: Cause,
    pub about: Payload,
    pub turn: Turn,
    pub at: Timestamp,
    pub roots: Vec<StoredRoot>,
    pub attachment: Option<Payload>,
    pub is_pinned: bool,
    pub on: Option<GenerationNumber>,
    pub seen: Vec<SeenMount>,
}

/// An agent's state, with an open turn, turns that are over and generations as the catalogue's version has them.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredStateOf<O, R, G> {
    version: u16,
    role: Role,
    name: String,
    pub about: Payload,
    pub created: Timestamp,
    parent: Option<(AgentId, GenerationNumber)>,
    epoch: Epoch,
    sequence: Sequence,
    digest: ChainDigest,
    pub specs: Vec<ZoneSpec>,
    /// What was synced, what was committed, and whether the first has changes that the second has not.
    pub zones: Vec<(StoredRoot, StoredRoot, bool)>,
    pub turn: Option<O>,
    pub last_turn: Turn,
    pub generations: Vec<G>,
    pub next_generation: GenerationNumber,
    pub head: GenerationNumber,
    /// The turns that are over, but for the latest.
    pub history: Vec<Piece>,
    /// The latest turns that are over.
    pub latest: Vec<R>,
    /// What was forgotten and the head may still hold.
    pub forgotten: Vec<ForgottenFile>,
}

/// As it is written.
pub(super) type StoredState = StoredStateOf<OpenTurn, TurnRecord, StoredGeneration>;

/// As version 1 wrote it.
type StoredState1 = StoredStateOf<OpenTurn1, TurnRecord1, StoredGeneration1>;

impl From<StoredState1> for StoredState {
    fn from(old: StoredState1) -> Self {
        Self {
            version: VERSION,
            role: old.role,
            name: old.name,
            about: old.about,
            created: old.created,
            parent: old.parent,
            epoch: old.epoch,
            sequence: old.sequence,
            digest: old.digest,
            specs: old.specs,
            zones: old.zones,
            turn: old.turn.map(OpenTurn::from),
            last_turn: old.last_turn,
            generations: old.generations.into_iter().map(StoredGeneration::from).collect(),
            next_generation: old.next_generation,
            head: old.head,
            history: old.history,
            latest: old.latest.into_iter().map(TurnRecord::from).collect(),
            forgotten: old.forgotten,
        }
    }
}

impl StoredState {
    /// Of an agent that has no record yet, and no generation or turn.
    pub fn of_new(name: String, about: Payload, created: Timestamp, specs: Vec<ZoneSpec>) -> Self {
        Self {
            version: VERSION,
            role: Role::Agent,
            name,
            about,
            created,
            parent: None,
            epoch: Epoch(0),
            sequence: Sequence(0),
            digest: ChainDigest::default(),
            specs,
            zones: Vec::new(),
            turn: None,
            last_turn: Turn(0),
            generations: Vec::new(),
            next_generation: GenerationNumber(0),
            head: GenerationNumber(0),
            history: Vec::new(),
            latest: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// Writes it, for an agent of this id.
    pub fn write(&self, id: AgentId, segments: &Segments) -> Result<StoredAgent, StoreError> {
        let state = blob::put_stored(segments, &postcard::to_stdvec(self).map_err(encoding)?)?;
        let (name, epoch, sequence) = (self.name.clone(), self.epoch, self.sequence);
        Ok(StoredAgent { id, name, epoch, sequence, state: Some(state), carried: Vec::new() })
    }
}

/// A generation's payload of more bytes than this is written once, not with the state each time.
const LARGE_ABOUT: u64 = 512;

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn encoding(e: postcard::Error) -> StoreError {
    StoreError::Encoding(e.to_string())
}

/// Decodes what begins with a version, at which it looks first: as `T`, or as `Old` where that is version 1.
fn decode<'a, T, Old>(bytes: &'a [u8]) -> Result<T, StoreError>
where
    T: Deserialize<'a> + From<Old>,
    Old: Deserialize<'a>,
{
    let (found, _) = postcard::take_from_bytes::<u16>(bytes).map_err(encoding)?;
    match found {
        VERSION => postcard::from_bytes(bytes).map_err(encoding),
        1 => postcard::from_bytes::<Old>(bytes).map(T::from).map_err(encoding),
        0 => Err(StoreError::Encoding("a catalogue of version 0".into())),
        _ => Err(StoreError::NewerRecord { found, supported: VERSION }),
    }
}

/// A frozen copy of a state: cheap to take, written at leisure.
pub(super) struct Frozen {
    stored: StoredState,
    roots: Vec<(ZoneRoot, ZoneRoot, bool)>,
    generations: Vec<Generation>,
    history: History,
}

/// What a frozen state became, from which the state itself learns what it need not keep in memory.
pub(super) struct Written {
    pub state: Payload,
    pub epoch: Epoch,
    pub sequence: Sequence,
    history: History,
    pieces: Vec<Piece>,
    zones: Vec<(StoredRoot, StoredRoot, bool)>,
    generations: Vec<StoredGeneration>,
}

impl Frozen {
    pub fn of(state: &State) -> Self {
        Self {
            stored: StoredState {
                version: VERSION,
                role: state.role,
                name: state.name.clone(),
                about: state.about.clone(),
                created: state.created,
                parent: state.parent,
                epoch: state.epoch,
                sequence: state.sequence,
                digest: state.digest,
                specs: state.specs.clone(),
                zones: Vec::new(),
                turn: state.turn.clone(),
                last_turn: state.last_turn,
                generations: Vec::new(),
                next_generation: state.next_generation,
                head: state.head,
                history: Vec::new(),
                latest: Vec::new(),
                forgotten: state.forgotten.clone(),
            },
            roots: state.zones.iter().map(|z| (z.synced.clone(), z.head.clone(), z.ahead)).collect(),
            generations: state.generations.values().cloned().collect(),
            history: state.history.clone(),
        }
    }

    /// Writes every node and chunk that is not in a segment yet, and the state itself.
    pub fn write(mut self, segments: &Segments) -> Result<Written, StoreError> {
        for (synced, head, ahead) in &self.roots {
            self.stored.zones.push((synced.store(segments)?, head.store(segments)?, *ahead));
        }
        for g in self.generations {
            let about = match g.about {
                Payload::Inline(bytes) if bytes.len() as u64 > LARGE_ABOUT => {
                    blob::put_stored(segments, &bytes)?
                }
                about => about,
            };
            self.stored.generations.push(StoredGeneration {
                number: g.number,
                cause: g.cause,
                about,
                turn: g.turn,
                at: g.at,
                roots: g.roots.iter().map(|r| r.store(segments)).collect::<Result<_, _>>()?,
                attachment: g.attachment,
                is_pinned: g.is_pinned,
                on: g.on,
                seen: g.seen.to_vec(),
            });
        }
        let pieces = self.history.page(segments)?;
        self.stored.history.clone_from(&self.history.pieces);
        self.stored.latest = self.history.tail.iter().map(|turn| TurnRecord::clone(turn)).collect();
        let state = blob::put_stored(segments, &postcard::to_stdvec(&self.stored).map_err(encoding)?)?;
        let StoredState { epoch, sequence, zones, generations, .. } = self.stored;
        let history = self.history;
        Ok(Written { state, epoch, sequence, history, pieces, zones, generations })
    }
}

impl Written {
    /// Lets go of what `state`, from which this was taken, need not keep in memory: it is read again where it
    /// is needed.
    pub fn relieve(&self, state: &mut State) {
        state.history.take_over(&self.history, &self.pieces);
        for (zone, (synced, head, _)) in state.zones.iter_mut().zip(&self.zones) {
            for (root, stored) in [(&mut zone.synced, synced), (&mut zone.head, head)] {
                if root.same_as(&ZoneRoot::load(*stored)) {
                    *root = root.read_from(*stored);
                }
            }
        }
        for stored in &self.generations {
            if let Some(generation) = state.generations.get_mut(&stored.number) {
                generation.about = stored.about.clone();
                generation.roots = stored.roots.iter().copied().map(ZoneRoot::load).collect();
            }
        }
    }
}

/// Reads an agent's state as it is stored.
pub(super) fn read_stored(payload: &Payload, chunks: &dyn ChunkStore) -> Result<StoredState, StoreError> {
    decode::<_, StoredState1>(&blob::get(chunks, payload)?)
}

/// Reads an agent's state; its trees are read as they are used.
pub(super) fn read_state(agent: &StoredAgent, segments: &Arc<Segments>) -> Result<State, StoreError> {
    let id = agent.id;
    let Some(payload) = &agent.state else {
        return Err(StoreError::Inconsistent { agent: id, reason: "it never had a state".into() });
    };
    let stored = read_stored(payload, &**segments)?;
    let chunks: Arc<dyn ChunkStore> = segments.clone();
    let zones = stored
        .zones
        .iter()
        .map(|(synced, head, ahead)| {
            let (synced, head) = (ZoneRoot::load(*synced), ZoneRoot::load(*head));
            let working = Zone::from_root(synced.clone(), chunks.clone());
            ZoneState { working, synced, head, touched: false, ahead: *ahead }
        })
        .collect();
    let generations = stored
        .generations
        .into_iter()
        .map(|g| {
            let roots = g.roots.into_iter().map(ZoneRoot::load).collect();
            let StoredGeneration { number, cause, about, turn, at, attachment, is_pinned, on, seen, .. } =
                StoredGeneration { roots: Vec::new(), ..g };
            let seen = seen.into();
            (number, Generation { number, cause, about, turn, at, roots, attachment, is_pinned, seen, on })
        })
        .collect();
    let tail = stored.latest.into_iter().map(Arc::new).collect();
    let history = History::new(stored.history, tail);
    let state = State {
        id,
        role: stored.role,
        name: stored.name,
        about: stored.about,
        created: stored.created,
        parent: stored.parent,
        epoch: stored.epoch,
        sequence: stored.sequence,
        digest: stored.digest,
        specs: stored.specs,
        zones,
        turn: stored.turn,
        last_turn: stored.last_turn,
        generations,
        next_generation: stored.next_generation,
        head: stored.head,
        history,
        forgotten: stored.forgotten,
        removed: false,
        standing_by: None,
        parents_attachment: None,
        chunks,
    };
    let stands = |it: &Generation| it.on.is_none_or(|on| on < it.number);
    if state.zones.len() != state.specs.len()
        || !state.generations.contains_key(&state.head)
        || !state.generations.values().all(stands)
    {
        return Err(StoreError::Inconsistent {
            agent: id,
            reason: "its catalogue entry is incomplete".into(),
        });
    }
    Ok(state)
}

impl Catalogue {
    pub fn new(removed: Vec<AgentId>, purge: bool) -> Self {
        Self { version: VERSION, agents: Vec::new(), removed, shared: Vec::new(), purge }
    }

    /// Writes the list, twice since all hangs on it, and gives what the superblock names.
    pub fn write(mut self, segments: &Segments) -> Result<Hash, StoreError> {
        self.agents.sort_by_key(|agent| agent.id);
        self.shared.sort_by_key(|zone| zone.stored.id);
        let bytes = postcard::to_stdvec(&self).map_err(encoding)?;
        let payload = blob::put_stored(&Twice(segments), &bytes)?;
        let payload = postcard::to_stdvec(&payload).map_err(encoding)?;
        Ok(segments.put_twice(FrameKind::Root, &payload)?)
    }
}

struct Twice<'a>(&'a Segments);

impl ChunkStore for Twice<'_> {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        self.0.get(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.0.put_twice(kind, plain)
    }
}

/// Reads what a catalogue's address stands for: where the list is.
pub(super) fn read_root(chunks: &dyn ChunkStore, hash: &Hash) -> Result<Payload, StoreError> {
    postcard::from_bytes(&chunks.get(hash)?).map_err(encoding)
}

/// Reads the list of agents.
pub(super) fn read(chunks: &dyn ChunkStore, hash: &Hash) -> Result<Catalogue, StoreError> {
    // the list itself is as it was in version 1
    decode::<_, Catalogue>(&blob::get(chunks, &read_root(chunks, hash)?)?)
}
