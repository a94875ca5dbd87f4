//! The catalogue: every agent's state as a checkpoint keeps it in segments.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::{Cause, Payload, Role, ZoneSpec};
use super::shared::SharedId;
use super::state::{Generation, OpenTurn, State, TurnRecord, ZoneState};
use super::{StoreError, blob};
use crate::chunks::{ChunkStore, FrameKind};
use crate::id::{AgentId, Epoch, GenerationNumber, Hash, Sequence, Timestamp, Turn};
use crate::segment::Segments;
use crate::zone::{StoredRoot, Zone, ZoneRoot};

/// Raised whenever the layout of the catalogue changes.
const VERSION: u16 = 1;

/// The list of agents and shared zones.
#[derive(Serialize, Deserialize)]
pub(super) struct Catalogue {
    version: u16,
    pub agents: Vec<(AgentId, String, Payload)>,
    /// Agents whose records may still be met at the beginning of the log, and count no more.
    pub removed: Vec<AgentId>,
    pub shared: Vec<CatalogueZone>,
}

/// A shared zone in the list.
#[derive(Serialize, Deserialize)]
pub(super) struct CatalogueZone {
    pub id: SharedId,
    pub name: String,
    pub state: Payload,
    /// The agents that mount it.
    pub mounted_by: Vec<AgentId>,
}

#[derive(Serialize, Deserialize)]
struct StoredGeneration {
    number: GenerationNumber,
    cause: Cause,
    about: Payload,
    turn: Turn,
    at: Timestamp,
    roots: Vec<StoredRoot>,
}

#[derive(Serialize, Deserialize)]
struct StoredState {
    version: u16,
    role: Role,
    name: String,
    about: Payload,
    created: Timestamp,
    parent: Option<(AgentId, GenerationNumber)>,
    epoch: Epoch,
    sequence: Sequence,
    specs: Vec<ZoneSpec>,
    /// What was synced, what was committed, and whether the first has changes that the second has not.
    zones: Vec<(StoredRoot, StoredRoot, bool)>,
    turn: Option<OpenTurn>,
    last_turn: Turn,
    generations: Vec<StoredGeneration>,
    next_generation: GenerationNumber,
    head: GenerationNumber,
    /// The turns that are over, [`TURNS`] in each but the last.
    history: Vec<Payload>,
}

/// Turns in one piece of a stored history.
const TURNS: usize = 1024;

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn encoding(e: postcard::Error) -> StoreError {
    StoreError::Encoding(e.to_string())
}

/// Decodes what begins with a version, at which it looks first.
fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, StoreError> {
    let (found, _) = postcard::take_from_bytes::<u16>(bytes).map_err(encoding)?;
    match found {
        VERSION => postcard::from_bytes(bytes).map_err(encoding),
        0 => Err(StoreError::Encoding("a catalogue of version 0".into())),
        _ => Err(StoreError::NewerRecord { found, supported: VERSION }),
    }
}

/// A frozen copy of a state: cheap to take, written at leisure.
pub(super) struct Frozen {
    stored: StoredState,
    roots: Vec<(ZoneRoot, ZoneRoot, bool)>,
    generations: Vec<Generation>,
    history: Vec<TurnRecord>,
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
                specs: state.specs.clone(),
                zones: Vec::new(),
                turn: state.turn.clone(),
                last_turn: state.last_turn,
                generations: Vec::new(),
                next_generation: state.next_generation,
                head: state.head,
                history: Vec::new(),
            },
            roots: state.zones.iter().map(|z| (z.synced.clone(), z.head.clone(), z.ahead)).collect(),
            generations: state.generations.values().cloned().collect(),
            history: state.history.clone(),
        }
    }

    /// Writes every node and chunk that is not in a segment yet, and the state itself.
    pub fn write(mut self, segments: &Segments) -> Result<Payload, StoreError> {
        for (synced, head, ahead) in &self.roots {
            self.stored.zones.push((synced.store(segments)?, head.store(segments)?, *ahead));
        }
        for g in self.generations {
            self.stored.generations.push(StoredGeneration {
                number: g.number,
                cause: g.cause,
                about: g.about,
                turn: g.turn,
                at: g.at,
                roots: g.roots.iter().map(|r| r.store(segments)).collect::<Result<_, _>>()?,
            });
        }
        for turns in self.history.chunks(TURNS) {
            self.stored.history.push(put(segments, &postcard::to_stdvec(turns).map_err(encoding)?)?);
        }
        put(segments, &postcard::to_stdvec(&self.stored).map_err(encoding)?)
    }
}

fn put(segments: &Segments, bytes: &[u8]) -> Result<Payload, StoreError> {
    Ok(blob::put(segments, bytes)?)
}

/// Reads an agent's state; its trees are read as they are used.
pub(super) fn read_state(
    id: AgentId,
    payload: &Payload,
    segments: &Arc<Segments>,
) -> Result<State, StoreError> {
    let bytes = blob::get(&**segments, payload)?;
    let stored: StoredState = decode(&bytes)?;
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
            let StoredGeneration { number, cause, about, turn, at, .. } =
                StoredGeneration { roots: Vec::new(), ..g };
            (number, Generation { number, cause, about, turn, at, roots })
        })
        .collect();
    let mut history: Vec<TurnRecord> = Vec::new();
    for turns in &stored.history {
        let turns: Vec<TurnRecord> = postcard::from_bytes(&blob::get(&*chunks, turns)?).map_err(encoding)?;
        history.extend(turns);
    }
    let state = State {
        id,
        role: stored.role,
        name: stored.name,
        about: stored.about,
        created: stored.created,
        parent: stored.parent,
        epoch: stored.epoch,
        sequence: stored.sequence,
        specs: stored.specs,
        zones,
        turn: stored.turn,
        last_turn: stored.last_turn,
        generations,
        next_generation: stored.next_generation,
        head: stored.head,
        history,
        removed: false,
        chunks,
    };
    if state.zones.len() != state.specs.len() || !state.generations.contains_key(&state.head) {
        return Err(StoreError::Inconsistent {
            agent: id,
            reason: "its catalogue entry is incomplete".into(),
        });
    }
    Ok(state)
}

impl Catalogue {
    pub fn new(removed: Vec<AgentId>) -> Self {
        Self { version: VERSION, agents: Vec::new(), removed, shared: Vec::new() }
    }

    /// Writes the list, and gives what the superblock names.
    pub fn write(mut self, segments: &Segments) -> Result<Hash, StoreError> {
        self.agents.sort_by_key(|(id, ..)| *id);
        self.shared.sort_by_key(|zone| zone.id);
        let bytes = postcard::to_stdvec(&self).map_err(encoding)?;
        let payload = postcard::to_stdvec(&put(segments, &bytes)?).map_err(encoding)?;
        Ok(segments.put(FrameKind::Catalogue, &payload)?)
    }
}

/// Reads the list of agents.
pub(super) fn read(segments: &Segments, hash: &Hash) -> Result<Catalogue, StoreError> {
    let payload: Payload = postcard::from_bytes(&segments.get(hash)?).map_err(encoding)?;
    decode(&blob::get(segments, &payload)?)
}
