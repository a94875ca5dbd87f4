//! Putting the log's records on top of the catalogue.
//!
//! What cannot be read of one agent is that agent's damage: it is set aside with all its records, and the
//! others go on. The records are carried along in the catalogue and tried again at each opening, so that
//! nothing of theirs is lost when what is missing comes back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::StoreError;
use super::agents::{Agents, Slot};
use super::catalogue::{self, Carried, Catalogue, StoredAgent};
use super::chain::ChainDigest;
use super::damaged::Damaged;
use super::entry::{self, Entry, Role};
use super::open::NOBODY;
use super::shared::SharedId;
use super::state::{Generation, State};
use crate::chunks::ChunkError;
use crate::id::{AgentId, Epoch, Hash, Sequence, Turn};
use crate::log::{LogPosition, Record};
use crate::segment::Segments;
use crate::zone::ZoneRoot;

/// Frames of a catalogue that are looked for elsewhere, at most.
const MAX_RESCUED: usize = 1024;

/// Reads the catalogue. All hangs on it, so a damaged frame of it is looked for in all segments.
pub(super) fn read_catalogue(segments: &Segments, hash: &Hash) -> Result<Catalogue, StoreError> {
    for _ in 0..MAX_RESCUED {
        match catalogue::read(segments, hash) {
            Err(StoreError::Chunk(ChunkError::Missing(lost) | ChunkError::Damaged { hash: lost, .. }))
                if segments.rescue(&lost)? => {}
            read => return read,
        }
    }
    catalogue::read(segments, hash)
}

/// How a record fits to what is known of its agent so far.
pub(super) enum Fit {
    /// It has taken effect.
    Known,
    /// It follows the last one.
    Next,
    /// Something before it is lost.
    Behind {
        /// The agent's name, where that is known.
        name: Option<String>,
        /// Its last record that counts.
        at: Sequence,
        /// Its last turn that counts.
        stands: Turn,
    },
}

/// Puts the log's records on top of the catalogue.
pub(super) struct Recovery {
    states: Vec<State>,
    /// Where in `states` each is.
    places: HashMap<AgentId, usize>,
    agents: Agents,
    segments: Arc<Segments>,
    damaged: BTreeMap<AgentId, Damaged>,
    /// Agents whose carried records have not taken effect: their states alone are not theirs.
    waiting: BTreeSet<AgentId>,
    /// Records of damaged agents, by agent, that the catalogue does not have.
    kept: HashMap<AgentId, Vec<Carried>>,
    /// The generation that a fork begins as whose parent is not here.
    begins_as: Option<Generation>,
    /// Something was forgotten, and the store's files may still hold it.
    pub purge: bool,
}

impl Recovery {
    pub fn new(segments: Arc<Segments>) -> Self {
        Self {
            states: Vec::new(),
            places: HashMap::new(),
            agents: Agents::default(),
            segments,
            damaged: BTreeMap::new(),
            waiting: BTreeSet::new(),
            kept: HashMap::new(),
            begins_as: None,
            purge: false,
        }
    }

    /// One agent, or shared zone, alone, and whether it has forgotten anything. `begins_as` is the generation that it
    /// is a fork of, where it has no state yet.
    pub fn one(
        segments: Arc<Segments>,
        damaged: &Damaged,
        begins_as: Option<Generation>,
    ) -> Result<(State, bool), StoreError> {
        let (mut recovery, stored) = (Self::new(segments.clone()), &damaged.stored);
        let id = stored.id;
        recovery.begins_as = begins_as;
        if stored.state.is_some() {
            recovery.agents.slots.insert(id, Slot::Stored(stored.clone()));
        }
        for payload in &stored.carried {
            for record in StoredAgent::read_carried(payload, &*segments)? {
                recovery.take(&record.of(id))?;
            }
        }
        for record in &*damaged.records {
            recovery.take(&record.clone().of(id))?;
        }
        let inconsistent = |reason: &str| StoreError::Inconsistent { agent: id, reason: reason.into() };
        let at = recovery.state(id)?.ok_or_else(|| inconsistent("nothing of it is left"))?;
        let state = recovery.states.swap_remove(at);
        if state.name != stored.name {
            return Err(inconsistent("its name is another's"));
        }
        Ok((state, recovery.purge))
    }

    /// Begins with a catalogue that recovery from `log` on belongs to.
    pub fn catalogue(&mut self, catalogue: Catalogue, log: LogPosition) -> Result<(), StoreError> {
        self.purge = catalogue.purge;
        self.agents.removed = catalogue.removed.into_iter().map(|id| (id, log)).collect();
        let mut waiting = Vec::new();
        for zone in catalogue.shared {
            let id = SharedId(zone.stored.id.0);
            self.agents.shared.names.insert(zone.stored.name.clone(), id);
            if !zone.mounted_by.is_empty() {
                self.agents.shared.mounts.insert(id, zone.mounted_by.into_iter().collect());
            }
            self.listed(zone.stored, &mut waiting);
        }
        for agent in catalogue.agents {
            self.agents.names.insert(agent.name.clone(), agent.id);
            self.listed(agent, &mut waiting);
        }
        self.try_again(waiting)
    }

    fn listed(&mut self, agent: StoredAgent, waiting: &mut Vec<StoredAgent>) {
        if !agent.carried.is_empty() || agent.state.is_none() {
            waiting.push(agent.clone());
        }
        self.agents.slots.insert(agent.id, Slot::Stored(agent));
    }

    /// Lets the records take effect that damaged agents carry, for those that are sound again: parents before
    /// their forks, in as many rounds as that needs.
    fn try_again(&mut self, mut waiting: Vec<StoredAgent>) -> Result<(), StoreError> {
        self.waiting = waiting.iter().map(|agent| agent.id).collect();
        loop {
            let before = waiting.len();
            let mut left = Vec::new();
            for agent in waiting {
                self.waiting.remove(&agent.id);
                match self.take_carried(&agent) {
                    Ok(()) => {}
                    Err(e) if e.is_of_one_agent() => {
                        self.drop_state(agent.id);
                        self.waiting.insert(agent.id);
                        left.push((agent, e));
                    }
                    Err(e) => return Err(e),
                }
            }
            if left.is_empty() || left.len() == before {
                for (stored, error) in left {
                    let id = stored.id;
                    // a fork that was tried after it may have read its state again, without its records
                    self.drop_state(id);
                    self.agents.slots.remove(&id);
                    self.damaged.insert(id, Damaged::new(stored, &error));
                }
                return Ok(());
            }
            waiting = left.into_iter().map(|(agent, _)| agent).collect();
        }
    }

    fn take_carried(&mut self, agent: &StoredAgent) -> Result<(), StoreError> {
        if agent.state.is_none() {
            // it is created by its records, under its name
            self.agents.slots.remove(&agent.id);
            self.agents.names.remove(&agent.name);
        }
        let result = (|| {
            for payload in &agent.carried {
                for record in StoredAgent::read_carried(payload, &*self.segments)? {
                    self.take(&record.of(agent.id))?;
                }
            }
            if agent.carried.is_empty() {
                return Err(StoreError::Inconsistent {
                    agent: agent.id,
                    reason: "nothing of it is left".into(),
                });
            }
            Ok(())
        })();
        if result.is_err() && agent.state.is_none() {
            self.agents.slots.insert(agent.id, Slot::Stored(agent.clone()));
            self.agents.names.insert(agent.name.clone(), agent.id);
        }
        result
    }

    /// One record of the log.
    pub fn record(&mut self, record: Record) -> Result<(), StoreError> {
        let id = record.agent;
        // recovery may begin a little early, before the catalogue forgot the agent
        if id == NOBODY || self.agents.removed.contains_key(&id) {
            return Ok(());
        }
        if !self.damaged.contains_key(&id) {
            match self.take(&record) {
                Err(e) if e.is_of_one_agent() => self.set_aside(&record, &e),
                taken => return taken,
            }
        }
        self.let_go(&record);
        Ok(())
    }

    /// How a record of the log fits to what is known of its agent so far.
    pub fn fits(&mut self, record: &Record) -> Result<Fit, StoreError> {
        let id = record.agent;
        let is_settled = id == NOBODY || self.agents.removed.contains_key(&id);
        if is_settled || self.damaged.contains_key(&id) {
            return Ok(Fit::Next);
        }
        let (before, entries) = match entry::decode(&record.body) {
            Ok(decoded) => decoded,
            Err(e) if e.is_of_one_agent() => return Ok(Fit::Next),
            Err(e) => return Err(e),
        };
        let at = match self.state(id) {
            Ok(Some(at)) => at,
            Ok(None) if matches!(entries.first(), Some(Entry::Created { .. })) => return Ok(Fit::Next),
            Ok(None) => return Ok(Fit::Behind { name: None, at: Sequence(0), stands: Turn(0) }),
            // whoever takes it tells
            Err(e) if e.is_of_one_agent() => return Ok(Fit::Next),
            Err(e) => return Err(e),
        };
        let state = &self.states[at];
        if state.removed || record.sequence <= state.sequence {
            return Ok(Fit::Known);
        }
        let follows =
            record.sequence == state.sequence.next() && record.epoch >= state.epoch && before == state.digest;
        if follows {
            return Ok(Fit::Next);
        }
        Ok(Fit::Behind { name: Some(state.name.clone()), at: state.sequence, stands: state.last_turn })
    }

    /// Removes an agent, or a shared zone, of whose records some before that are lost.
    pub fn remove(&mut self, id: AgentId) {
        let Some(at) = self.places.get(&id).copied() else { return };
        let state = &mut self.states[at];
        state.removed = true;
        let (role, name) = (state.role, state.name.clone());
        self.agents.forget(id, role, &name);
    }

    /// A record of a damaged agent or shared zone: the one that removes it needs nothing else of it.
    fn let_go(&mut self, record: &Record) {
        let id = record.agent;
        let Some(damaged) = self.damaged.get(&id) else { return };
        let removed = entry::decode(&record.body).is_ok_and(|(_, it)| it.contains(&Entry::Removed));
        if removed && record.sequence > damaged.stored.sequence {
            let name = damaged.stored.name.clone();
            self.damaged.remove(&id);
            self.kept.remove(&id);
            let is_shared = self.agents.shared.names.values().any(|it| it.stream() == id);
            let role = if is_shared { Role::SharedZone } else { Role::Agent };
            self.agents.forget(id, role, &name);
            self.agents.removed.insert(id, LogPosition::START);
        }
    }

    /// From here on the agent is damaged. Its records are collected in a second reading of the log.
    fn set_aside(&mut self, record: &Record, error: &StoreError) {
        let id = record.agent;
        self.drop_state(id);
        let stored = match self.agents.slots.remove(&id) {
            Some(Slot::Stored(stored)) => stored,
            _ => self.unknown(record),
        };
        self.damaged.insert(id, Damaged::new(stored, error));
        self.kept.insert(id, Vec::new());
    }

    /// What is known of an agent that the catalogue does not have.
    fn unknown(&mut self, record: &Record) -> StoredAgent {
        let id = record.agent;
        let listed = self.agents.names.iter().find(|(_, it)| **it == id).map(|(name, _)| name.clone());
        let name = listed.unwrap_or_else(|| {
            let wanted = match entry::decode(&record.body).ok().and_then(|(_, it)| it.into_iter().next()) {
                Some(Entry::Created { name, .. }) => name,
                _ => id.to_string(),
            };
            let free = !self.agents.names.contains_key(&wanted);
            let name = if free { wanted } else { format!("{wanted}~{id}") };
            self.agents.names.insert(name.clone(), id);
            name
        });
        StoredAgent { id, name, epoch: Epoch(0), sequence: Sequence(0), state: None, carried: Vec::new() }
    }

    fn drop_state(&mut self, id: AgentId) {
        if let Some(at) = self.places.remove(&id) {
            self.states[at].removed = true;
        }
    }

    /// Whether records of agents have to be [kept](Self::keep) that were read before they were damaged.
    pub fn has_newly_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Keeps a record, which comes from a second reading, if it is of a damaged agent.
    pub fn keep(&mut self, record: Record) {
        if let Some(damaged) = self.damaged.get(&record.agent)
            && record.sequence > damaged.stored.sequence
        {
            let Record { epoch, sequence, needs, body, .. } = record;
            self.kept.entry(record.agent).or_default().push(Carried { epoch, sequence, needs, body });
        }
    }

    /// The states that the log had records of, and all the others.
    pub fn finish(mut self) -> (Vec<State>, Agents) {
        for (id, mut damaged) in std::mem::take(&mut self.damaged) {
            let kept = self.kept.remove(&id).unwrap_or_default();
            if let Some(last) = kept.last() {
                damaged.stored.epoch = last.epoch;
                damaged.stored.sequence = last.sequence;
            }
            damaged.records = Arc::new(kept);
            self.agents.slots.insert(id, Slot::Damaged(Box::new(damaged)));
        }
        (self.states, self.agents)
    }

    fn state(&mut self, id: AgentId) -> Result<Option<usize>, StoreError> {
        if let Some(at) = self.places.get(&id) {
            return Ok(Some(*at));
        }
        let Some(Slot::Stored(stored)) = self.agents.slots.get(&id) else { return Ok(None) };
        let state = catalogue::read_state(stored, &self.segments)?;
        Ok(Some(self.push(state)))
    }

    fn push(&mut self, state: State) -> usize {
        self.places.insert(state.id, self.states.len());
        self.states.push(state);
        self.states.len() - 1
    }

    fn take(&mut self, record: &Record) -> Result<(), StoreError> {
        let (before, entries) = entry::decode(&record.body)?;
        let inconsistent = |reason: String| StoreError::Inconsistent { agent: record.agent, reason };
        let at = match self.state(record.agent)? {
            Some(at) => at,
            None => self.created(record.agent, entries.first())?,
        };
        let state = &mut self.states[at];
        if state.removed {
            return Err(inconsistent("a record after its removal".into()));
        }
        if record.sequence <= state.sequence && record.epoch <= state.epoch {
            return Ok(()); // recovery may begin a little early, with records that the catalogue has
        }
        if record.sequence != state.sequence.next() {
            return Err(inconsistent(format!("record {} after {}", record.sequence, state.sequence)));
        }
        if record.epoch < state.epoch {
            return Err(inconsistent(format!("a record of epoch {} after {}", record.epoch, state.epoch)));
        }
        if before != state.digest {
            return Err(inconsistent(format!("record {} does not follow those before it", record.sequence)));
        }
        let mut roots: Option<Vec<ZoneRoot>> = None;
        for entry in entries {
            match &entry {
                Entry::Forgot { .. } => self.purge = true,
                Entry::Changes(zone, changes) => {
                    let zone = state.zones.get_mut(usize::from(*zone));
                    let zone =
                        zone.ok_or_else(|| inconsistent("changes of a zone that is not there".into()))?;
                    zone.working.apply(changes)?;
                    state.apply(entry, &mut [])?;
                    roots = None;
                    continue;
                }
                // what nothing has promoted does not count
                Entry::Opened { .. } => {
                    state.apply(entry, &mut [])?;
                    state.abandon();
                    roots = None;
                    continue;
                }
                Entry::Withdrawn => {
                    state.withdraw();
                    roots = None;
                    continue;
                }
                // these come before the changes of their record, and look at no root
                Entry::TurnBegan { .. } | Entry::Fact(_) => {
                    state.apply(entry, &mut [])?;
                    roots = None;
                    continue;
                }
                _ => {}
            }
            if roots.is_none() {
                roots = Some(state.snapshot()?);
            }
            state.apply(entry, roots.as_deref_mut().unwrap_or_default())?;
        }
        state.sequence = record.sequence;
        state.digest = ChainDigest::of(record);
        state.epoch = record.epoch;
        if state.removed {
            self.agents.forget(state.id, state.role, &state.name);
        }
        Ok(())
    }

    fn created(&mut self, id: AgentId, first: Option<&Entry>) -> Result<usize, StoreError> {
        let inconsistent = |reason: String| StoreError::Inconsistent { agent: id, reason };
        // the first record of a new agent may open it before it creates it
        let Some(created @ Entry::Created { role, name, zones, parent, .. }) = first else {
            return Err(inconsistent("records of an agent that was never created".into()));
        };
        let begins_as = match parent {
            Some(_) if self.begins_as.is_some() => self.begins_as.take(),
            Some((parent, generation)) => {
                let parent_fails = |may_pass: bool| {
                    let reason = "its parent cannot be read".into();
                    Err(StoreError::DamagedAgent { agent: *parent, reason, may_pass })
                };
                if let Some(damaged) = self.damaged.get(parent) {
                    return parent_fails(damaged.may_pass);
                }
                if self.waiting.contains(parent) {
                    // of which it is not known yet: whoever asks for this one finds out
                    return parent_fails(true);
                }
                let at =
                    self.state(*parent)?.ok_or_else(|| inconsistent("its parent is not there".into()))?;
                let parent = &mut self.states[at];
                if !parent.generations.contains_key(generation) {
                    // its writer was gone, or had thrown a turn away, which no record of its own says yet
                    parent.abandon();
                }
                let found = parent.generations.get(generation);
                let missing = || inconsistent("its parent's generation is not there".into());
                Some(found.ok_or_else(missing)?.clone())
            }
            None => None,
        };
        let state = State::new(id, created, begins_as.as_ref(), self.segments.clone())?;
        let taken = match role {
            Role::Agent => self.agents.names.contains_key(name),
            Role::SharedZone => self.agents.shared.names.contains_key(name),
        };
        if taken {
            return Err(inconsistent(format!("its name `{name}` is another's")));
        }
        match role {
            Role::Agent => self.agents.names.insert(name.clone(), id).is_some(),
            Role::SharedZone => self.agents.shared.names.insert(name.clone(), SharedId(id.0)).is_some(),
        };
        self.agents.shared.mount(id, zones);
        self.agents.slots.insert(id, Slot::Reserved);
        Ok(self.push(state))
    }
}
