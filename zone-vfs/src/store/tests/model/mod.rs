//! What the contracts say of turns, generations, forks and rewinds, in plain maps.

mod retention;

use std::collections::BTreeSet;

use super::versions::Memory;
use super::*;
use crate::contract::lifecycle::{OnFailure, OnFork, OnRewind};
use crate::device::simulated::Rng;

pub use retention::{Forgetting, Reaping};

pub const INTERRUPTED: &str = "interrupted: its host stopped";

/// What a zone holds: its files, and where it keeps versions its past.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub files: Files,
    pub memory: Memory,
}

#[derive(Clone, Debug, Default)]
pub struct ModelZone {
    working: Held,
    synced: Held,
    head: Held,
    /// Written to since the last sync.
    touched: bool,
    /// Synced, and not committed.
    ahead: bool,
}

impl ModelZone {
    fn at(held: &Held) -> Self {
        Self { working: held.clone(), synced: held.clone(), head: held.clone(), touched: false, ahead: false }
    }

    fn commit(&mut self) {
        self.working.memory.drain();
        *self = Self::at(&self.working);
    }

    /// Back at its head; no number that was given meanwhile is given again.
    fn goes_back(&mut self) {
        let memory = self.head.memory.after(&self.working.memory);
        *self = Self::at(&Held { files: self.head.files.clone(), memory });
    }
}

#[derive(Clone, Debug)]
pub struct ModelTurn {
    number: u64,
    style: TurnStyle,
    event: Vec<u8>,
    facts: Vec<Vec<u8>>,
    durable: bool,
}

#[derive(Clone, Debug)]
pub struct ModelAgent {
    pub id: AgentId,
    about: Vec<u8>,
    parent: Option<(AgentId, GenerationNumber)>,
    /// The shared zones, whatever has become of them.
    pub mounts: Vec<SharedMount>,
    zones: Vec<ModelZone>,
    pub turn: Option<ModelTurn>,
    last_turn: u64,
    history: Vec<SeenTurn>,
    /// Facts of turns that were interrupted, with the turn: some of them may have become durable.
    interrupted: Vec<(u64, Vec<u8>)>,
    pub generations: BTreeMap<u64, (Cause, Vec<Held>)>,
    /// The last turn before each generation that was ever made; of what a policy made, before the one it stands for.
    turns: BTreeMap<u64, u64>,
    pinned: BTreeSet<u64>,
    attached: BTreeMap<u64, Hash>,
    /// Those that are of no use without an earlier one, and which.
    on: BTreeMap<u64, u64>,
    next: u64,
    head: u64,
}

impl ModelAgent {
    pub fn new(id: AgentId) -> Self {
        let mut made = Self {
            id,
            about: b"about".to_vec(),
            parent: None,
            mounts: Vec::new(),
            zones: vec![ModelZone::default(); KINDS.len()],
            turn: None,
            last_turn: 0,
            history: Vec::new(),
            interrupted: Vec::new(),
            generations: BTreeMap::new(),
            turns: BTreeMap::new(),
            pinned: BTreeSet::new(),
            attached: BTreeMap::new(),
            on: BTreeMap::new(),
            next: 0,
            head: 0,
        };
        made.generation(Cause::Created);
        made
    }

    /// This new agent, with shared zones.
    #[must_use]
    pub fn mounting(self, mounts: Vec<SharedMount>) -> Self {
        Self { mounts, ..self }
    }

    pub fn fork(&self, id: AgentId, at: u64) -> Self {
        let mut child = Self::new(id).mounting(self.mounts.clone());
        child.parent = Some((self.id, GenerationNumber(at)));
        for ((zone, kind), held) in child.zones.iter_mut().zip(KINDS).zip(&self.generations[&at].1) {
            if kind.on_fork() != OnFork::NewLog {
                *zone = ModelZone::at(held);
            }
        }
        (child.next, child.generations) = (0, BTreeMap::new());
        child.generation(Cause::Forked);
        child.attached.extend(self.attached.get(&at).map(|what| (0, *what)));
        child
    }

    pub fn seen(&self) -> Seen {
        Seen {
            id: self.id,
            about: self.about.clone(),
            parent: self.parent,
            mounts: self.mounts.clone(),
            zones: self.zones.iter().map(|zone| zone.working.files.clone()).collect(),
            past: self.zones[usize::from(SEMANTIC)].working.memory.past.clone(),
            last_turn: self.last_turn,
            history: self.history.clone(),
            generations: self
                .generations
                .iter()
                .map(|(number, (cause, zones))| {
                    let files = zones.iter().map(|it| it.files.clone()).collect();
                    (*number, (cause.clone(), files, zones[usize::from(SEMANTIC)].memory.past.clone()))
                })
                .collect(),
            pinned: self.pinned.clone(),
            attached: self.attached.clone(),
            on: self.on.clone(),
            next: self.next,
            head: self.head,
        }
    }

    fn all_held(&self) -> Vec<Held> {
        self.zones.iter().map(|zone| zone.working.clone()).collect()
    }

    fn generation(&mut self, cause: Cause) {
        let zones = self.all_held();
        self.put_generation(cause, zones);
    }

    fn put_generation(&mut self, cause: Cause, zones: Vec<Held>) {
        let like = match &cause {
            Cause::Paused | Cause::Operated | Cause::Reaped { .. } => Some(self.head),
            Cause::Rewound(to) => Some(to.0),
            _ => None,
        };
        let inherited = like.and_then(|like| self.attached.get(&like).copied());
        self.attached.extend(inherited.map(|what| (self.next, what)));
        let stands_for = matches!(cause, Cause::Reaped { .. }).then(|| self.turns.get(&self.head).copied());
        if matches!(cause, Cause::Reaped { .. }) && self.on.contains_key(&self.head) {
            self.on.insert(self.next, self.head);
        }
        self.turns.insert(self.next, stands_for.flatten().unwrap_or(self.last_turn));
        if !matches!(cause, Cause::Side(_)) {
            self.head = self.next;
        }
        self.generations.insert(self.next, (cause, zones));
        self.next += 1;
        self.prune();
    }

    pub fn any_generation(&self, rng: &mut Rng) -> u64 {
        let at = rng.below(self.generations.len() as u64) as usize;
        *self.generations.keys().nth(at).unwrap()
    }

    /// What a zone holds as it stands.
    pub fn files(&self, zone: u16) -> &Files {
        &self.zones[usize::from(zone)].working.files
    }

    /// What the zone that keeps versions remembers.
    pub fn memory(&self) -> &Memory {
        &self.zones[usize::from(SEMANTIC)].working.memory
    }

    pub fn change(&mut self, zone: u16, change: impl FnOnce(&mut Files)) {
        let zone = &mut self.zones[usize::from(zone)];
        zone.touched = true;
        change(&mut zone.working.files);
    }

    /// As [`change`](Self::change), of the zone that keeps versions.
    pub fn change_semantic(
        &mut self,
        change: impl FnOnce(&mut Held) -> Result<(), String>,
    ) -> Result<(), String> {
        let zone = &mut self.zones[usize::from(SEMANTIC)];
        zone.touched = true;
        change(&mut zone.working)
    }

    /// Whether the turn is one of a process.
    pub fn is_process(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.style == TurnStyle::Process)
    }

    pub fn attach(&mut self, generation: u64, what: &[u8]) {
        self.attached.insert(generation, attachments::digest(what));
    }

    pub fn begin(&mut self, style: TurnStyle, event: &[u8]) {
        let (number, event) = (self.last_turn + 1, event.to_vec());
        self.turn = Some(ModelTurn { number, style, event, facts: Vec::new(), durable: false });
    }

    pub fn fact(&mut self, fact: &[u8]) {
        if let Some(turn) = &mut self.turn {
            turn.facts.push(fact.to_vec());
        }
    }

    /// What a crash finds of a turn of which only the beginning is durable.
    pub fn only_begun(mut self) -> Self {
        self.note_turn();
        self
    }

    fn note_turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.durable = true;
            self.last_turn = turn.number;
        }
    }

    pub fn sync(&mut self) {
        self.note_turn();
        let process = self.turn.as_ref().is_none_or(|turn| turn.style == TurnStyle::Process);
        for (zone, kind) in self.zones.iter_mut().zip(KINDS) {
            if process || kind.is_append_only() {
                zone.commit();
            } else {
                zone.working.memory.drain();
                zone.synced = zone.working.clone();
                zone.ahead |= std::mem::take(&mut zone.touched);
            }
        }
    }

    fn commit(&mut self) {
        self.zones.iter_mut().for_each(ModelZone::commit);
    }

    /// A commit tells what has happened, whether it is refused or not.
    pub fn drain(&mut self) {
        self.zones.iter_mut().for_each(|zone| zone.working.memory.drain());
    }

    pub fn end(&mut self, outcome: &[u8], generation: bool) {
        self.note_turn();
        self.commit();
        self.close(Ok(outcome.to_vec()));
        if generation {
            self.generation(Cause::Turn);
        }
    }

    /// As [`end`](Self::end), with a generation that stands on the head.
    pub fn end_on(&mut self, outcome: &[u8]) {
        // before what is too many goes
        self.on.insert(self.next, self.head);
        self.end(outcome, true);
    }

    pub fn fail(&mut self, reason: &str) {
        self.note_turn();
        self.drain();
        let left = self.all_held();
        if self.is_process() {
            self.commit();
        } else {
            let mut goes_back = false;
            for (zone, kind) in self.zones.iter_mut().zip(KINDS) {
                match kind.on_failure() {
                    OnFailure::Stays => zone.commit(),
                    OnFailure::GoesBack => goes_back |= zone.touched || zone.ahead,
                    OnFailure::SyncedAppendsStay => {}
                }
                zone.goes_back();
            }
            if goes_back {
                self.put_generation(Cause::Side(reason.into()), left);
            }
        }
        self.close(Err(reason.into()));
    }

    fn close(&mut self, outcome: Result<Vec<u8>, String>) {
        let (event, mut facts) = self.turn.take().map(|turn| (turn.event, turn.facts)).unwrap_or_default();
        if matches!(&outcome, Err(reason) if reason == INTERRUPTED) {
            self.interrupted.extend(facts.drain(..).map(|fact| (self.last_turn, fact)));
        }
        self.history.push(SeenTurn { turn: self.last_turn, event, outcome, facts });
    }

    /// What is not durable is gone: after a crash, or when it is abandoned.
    pub fn interrupt(&mut self) {
        for zone in &mut self.zones {
            zone.working = zone.synced.clone();
            zone.touched = false;
        }
        match &self.turn {
            Some(turn) if turn.durable => self.fail(INTERRUPTED),
            _ => {
                self.turn = None;
                for zone in &mut self.zones {
                    *zone = ModelZone::at(&zone.head);
                }
            }
        }
    }

    pub fn set_about(&mut self, about: &[u8]) {
        self.sync();
        self.about = about.to_vec();
    }

    pub fn mark(&mut self) {
        self.commit();
        self.generation(Cause::Paused);
    }

    pub fn rewind(&mut self, to: u64) {
        self.commit();
        let target = self.generations[&to].1.clone();
        for ((zone, kind), held) in self.zones.iter_mut().zip(KINDS).zip(&target) {
            match kind.on_rewind() {
                OnRewind::MovesBack => *zone = ModelZone::at(held),
                OnRewind::MovesBackKeepingHistory => {
                    let memory = zone.working.memory.rewound(&held.memory);
                    *zone = ModelZone::at(&Held { files: held.files.clone(), memory });
                }
                OnRewind::Stays | OnRewind::StaysAndRecords => {}
            }
        }
        self.generation(Cause::Rewound(GenerationNumber(to)));
    }
}
