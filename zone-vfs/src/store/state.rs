//! What an agent's records add up to.
//!
//! [`State::apply`] is the one place where an entry takes effect: for records that have just become
//! durable, and for those that are read back when the store is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::chain::ChainDigest;
use super::entry::{Cause, Entry, Payload, Role, SeenMount, TurnStyle, ZoneSpec};
use super::history::History;
use super::policy::KeepGenerations;
use crate::chunks::ChunkStore;
use crate::contract::lifecycle::{OnFailure, OnRewind};
use crate::id::{AgentId, Epoch, GenerationNumber, Inode, Sequence, Timestamp, Turn};
use crate::zone::{Quota, Zone, ZoneRoot};

/// Generations of ended turns that are kept, at most; those of pauses, forks and rewinds, and side
/// generations, are kept until they are removed.
pub const KEPT_TURN_GENERATIONS: usize = 256;

/// A zone of a live agent.
pub(super) struct ZoneState {
    /// What the turn sees and writes.
    pub working: Zone,
    /// What was synced last: durable, and not yet committed where the contract says so.
    pub synced: ZoneRoot,
    /// What was committed last.
    pub head: ZoneRoot,
    /// Records hold changes that `synced` does not.
    pub touched: bool,
    /// What was synced holds changes that `head` does not. Follows from the records alone, which the
    /// sameness of trees in memory does not.
    pub ahead: bool,
}

impl ZoneState {
    /// A zone of which everything is committed.
    pub fn settled(working: Zone, root: ZoneRoot) -> Self {
        Self { working, synced: root.clone(), head: root, touched: false, ahead: false }
    }

    fn commit(&mut self, root: &ZoneRoot) {
        self.synced = root.clone();
        self.head = root.clone();
        (self.touched, self.ahead) = (false, false);
    }
}

/// One generation, with a root per zone.
#[derive(Clone)]
pub struct Generation {
    /// Its number.
    pub number: GenerationNumber,
    /// Why it was made.
    pub cause: Cause,
    /// The embedder's part.
    pub about: Payload,
    /// The last turn before it; of what a policy made, before the one that it stands for.
    pub turn: Turn,
    /// When it was made.
    pub at: Timestamp,
    /// A root for each zone, in the order of the agent's zones.
    pub roots: Vec<ZoneRoot>,
    /// The root of what is attached to it.
    pub attachment: Option<Payload>,
    /// No policy drops it.
    pub is_pinned: bool,
    /// How far the agent has seen shared zones, in the order of its zones: of those that it has ever used.
    pub seen: Arc<[SeenMount]>,
    /// The earlier generation without which it is of no use, and which is kept as long; none where it stands by itself.
    pub on: Option<GenerationNumber>,
}

impl Generation {
    /// Whether it stays, whatever a policy says.
    pub(super) fn is_kept(&self) -> bool {
        #[cfg(test)]
        if super::tests::makes(super::tests::Mistake::PinsHoldNothing) {
            return false;
        }
        self.is_pinned
    }

    /// When the agent was paused, if nothing was done with it since.
    pub fn paused(&self) -> Option<Timestamp> {
        match self.cause {
            Cause::Paused => Some(self.at),
            Cause::Reaped { paused } => paused,
            _ => None,
        }
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("number", &self.number)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

/// A turn that is going on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// Its number.
    pub turn: Turn,
    /// Its style.
    pub style: TurnStyle,
    /// Its event.
    pub event: Payload,
    /// When it began.
    pub began: Timestamp,
    /// Its facts that are durable, in order.
    pub facts: Vec<Payload>,
}

impl OpenTurn {
    /// The payloads that it names.
    pub(super) fn payloads(&self) -> impl Iterator<Item = &Payload> {
        std::iter::once(&self.event).chain(&self.facts)
    }
}

/// What became of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It ended.
    Ended(Payload),
    /// It failed, for this reason.
    Failed(String),
}

/// A turn in the agent's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Its number.
    pub turn: Turn,
    /// Its event.
    pub event: Payload,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What came out.
    pub outcome: Outcome,
    /// Its facts, in order: what the embedder noted while it went on.
    pub facts: Vec<Payload>,
}

/// A file whose content was forgotten, and generations that may hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenFile {
    /// The zone.
    pub zone: u16,
    /// The file.
    pub file: Inode,
    /// Those before this one.
    pub before: GenerationNumber,
}

impl ForgottenFile {
    /// Whether a generation may hold the content: the file had its number by then.
    fn is_in(&self, generation: &Generation) -> bool {
        let root = generation.roots.get(usize::from(self.zone));
        generation.number < self.before && root.is_some_and(|root| root.has_given(self.file))
    }
}

/// The state of an agent.
pub(super) struct State {
    pub id: AgentId,
    pub role: Role,
    pub name: String,
    pub about: Payload,
    pub created: Timestamp,
    pub parent: Option<(AgentId, GenerationNumber)>,
    pub epoch: Epoch,
    pub sequence: Sequence,
    /// Of the records up to this sequence.
    pub digest: ChainDigest,
    pub specs: Vec<ZoneSpec>,
    pub zones: Vec<ZoneState>,
    pub turn: Option<OpenTurn>,
    pub last_turn: Turn,
    pub generations: BTreeMap<GenerationNumber, Generation>,
    pub next_generation: GenerationNumber,
    /// The generation that stands for the agent's head: the last that is not a side generation.
    pub head: GenerationNumber,
    pub history: History,
    /// What was forgotten and a generation may still hold.
    pub forgotten: Vec<ForgottenFile>,
    pub removed: bool,
    /// The generation for whose handles files are open although no instance runs. Follows from no record.
    pub standing_by: Option<GenerationNumber>,
    /// Of a fork that has no generation yet: what is attached to the one that it is a fork of.
    pub parents_attachment: Option<Payload>,
    pub chunks: Arc<dyn ChunkStore>,
}

impl State {
    /// A new agent. Without a generation of a parent its zones are empty; otherwise they are what the contracts
    /// give a fork of that generation, whose zones have the same order.
    pub fn new(
        id: AgentId,
        entry: &Entry,
        begins_as: Option<&Generation>,
        chunks: Arc<dyn ChunkStore>,
    ) -> Result<Self, StoreError> {
        use crate::contract::lifecycle::OnFork;
        let Entry::Created { role, name, about, zones: specs, parent, at } = entry else {
            return Err(StoreError::Inconsistent {
                agent: id,
                reason: "its first entry does not create it".into(),
            });
        };
        let mut zones = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            if spec.shared.is_some() {
                // what it holds is the shared zone's own; here an empty root keeps the place
                let root = ZoneRoot::empty(spec.kind, spec.quota);
                zones.push(ZoneState::settled(Zone::from_root(root.clone(), chunks.clone()), root));
                continue;
            }
            let inherited = begins_as.and_then(|it| it.roots.get(index));
            let mut working =
                if let (Some(root), OnFork::SharedPrefix | OnFork::CopyOnWrite | OnFork::SameMount) =
                    (inherited, spec.kind.on_fork())
                {
                    let mut zone = Zone::from_root(root.forked(), chunks.clone());
                    zone.set_quota(spec.quota);
                    zone
                } else {
                    // its root directory is part of its beginning, not a change of it
                    let root = Zone::new(spec.kind, spec.quota, *at, chunks.clone()).snapshot()?;
                    Zone::from_root(root, chunks.clone())
                };
            let root = working.snapshot()?;
            zones.push(ZoneState::settled(working, root));
        }
        Ok(Self {
            id,
            role: *role,
            name: name.clone(),
            about: about.clone(),
            created: *at,
            parent: *parent,
            epoch: Epoch(0),
            sequence: Sequence(0),
            digest: ChainDigest::default(),
            specs: specs.clone(),
            zones,
            turn: None,
            last_turn: Turn(0),
            generations: BTreeMap::new(),
            next_generation: GenerationNumber(0),
            head: GenerationNumber(0),
            history: History::default(),
            forgotten: Vec::new(),
            removed: false,
            standing_by: None,
            parents_attachment: begins_as.and_then(|it| it.attachment.clone()),
            chunks,
        })
    }

    /// The zones as they stand now.
    pub fn snapshot(&mut self) -> Result<Vec<ZoneRoot>, StoreError> {
        self.zones.iter_mut().map(|z| z.working.snapshot().map_err(Into::into)).collect()
    }

    /// Lets a durable entry take effect. `roots` are the zones as they stood when its record was
    /// made; zone changes themselves are applied before, by whoever calls.
    pub fn apply(&mut self, entry: Entry, roots: &mut [ZoneRoot]) -> Result<(), StoreError> {
        match entry {
            Entry::Opened { incarnation: _ } => self.interrupt(),
            Entry::About(about) => self.about = about,
            Entry::TurnBegan { turn, style, event, at } => {
                self.interrupt();
                self.last_turn = turn;
                self.turn = Some(OpenTurn { turn, style, event, began: at, facts: Vec::new() });
            }
            Entry::Fact(fact) => {
                if let Some(turn) = &mut self.turn {
                    turn.facts.push(fact);
                }
            }
            Entry::Created { .. } | Entry::Withdrawn => {}
            Entry::Changes(index, _) => {
                if let Some(zone) = self.zones.get_mut(usize::from(index)) {
                    zone.touched = true;
                }
            }
            Entry::Synced => {
                let process = self.turn.as_ref().is_none_or(|t| t.style == TurnStyle::Process);
                for (zone, root) in self.zones.iter_mut().zip(roots.iter()) {
                    if process || zone.working.kind().is_append_only() {
                        zone.commit(root);
                    } else {
                        zone.synced = root.clone();
                        zone.ahead |= std::mem::take(&mut zone.touched);
                    }
                }
            }
            Entry::TurnEnded { turn, outcome, at } => {
                self.commit(roots);
                self.close(turn, at, Outcome::Ended(outcome));
            }
            Entry::Operated { at: _ } => {
                self.commit(roots);
                if self.turn.is_none() {
                    self.zones.iter_mut().for_each(|zone| zone.working.end_turn());
                }
            }
            Entry::TurnFailed { turn, reason, at } => {
                self.fail(&reason, at, roots);
                self.close(turn, at, Outcome::Failed(reason));
            }
            Entry::Generation { number, cause, about, at } => {
                if number != self.next_generation {
                    return Err(
                        self.inconsistent(format!("generation {number} after {}", self.next_generation))
                    );
                }
                self.add_generation(cause, about, at, roots.to_vec());
            }
            Entry::Rewound { to, at } => {
                let back = self.rewound(to, at, roots)?;
                self.go_back(&back);
                roots.clone_from_slice(&back);
            }
            Entry::Removed => self.removed = true,
            Entry::Attached { generation, root } => {
                // one that was dropped meanwhile needs nothing
                if let Some(generation) = self.generations.get_mut(&generation) {
                    generation.attachment = Some(root);
                }
            }
            Entry::Pinned { generation, pinned } => {
                // one that was dropped meanwhile is not kept any more
                if let Some(generation) = self.generations.get_mut(&generation) {
                    generation.is_pinned = pinned;
                }
            }
            Entry::Bounded { zone, quota } => self.bound(zone, quota)?,
            Entry::StandsOn { generation, on } => {
                if on >= generation {
                    return Err(self.inconsistent(format!("generation {generation} that stands on {on}")));
                }
                if let Some(generation) = self.generations.get_mut(&generation) {
                    generation.on = Some(on);
                }
            }
            Entry::Seen { generation, mounts } => {
                if let Some(generation) = self.generations.get_mut(&generation) {
                    let mut seen: BTreeMap<_, _> = generation.seen.iter().map(|it| (it.zone, *it)).collect();
                    seen.extend(mounts.into_iter().map(|it| (it.zone, it)));
                    generation.seen = seen.into_values().collect();
                }
            }
            Entry::Completed { generation, about } => {
                // one that was dropped meanwhile needs nothing
                if let Some(generation) = self.generations.get_mut(&generation) {
                    (generation.about, generation.on) = (about, None);
                }
            }
            Entry::Forgot { zone, file, turns } => {
                if let Some((first, last)) = turns {
                    self.history.erase(first, last, &*self.chunks)?;
                }
                self.forgotten.push(ForgottenFile { zone, file, before: self.next_generation });
            }
        }
        Ok(())
    }

    /// Gives a zone other bounds, in all that a failed turn or a rewind can lead back to: they are the operator's, and
    /// nothing takes them back.
    fn bound(&mut self, index: u16, quota: Quota) -> Result<(), StoreError> {
        let at = usize::from(index);
        let (Some(spec), Some(zone)) = (self.specs.get_mut(at), self.zones.get_mut(at)) else {
            return Err(self.inconsistent(format!("bounds of zone {index}, which is not there")));
        };
        if spec.shared.is_some() {
            return Err(self.inconsistent(format!("bounds of zone {index}, which is a mount")));
        }
        spec.quota = quota;
        zone.working.set_quota(quota);
        zone.synced.set_quota(quota);
        zone.head.set_quota(quota);
        Ok(())
    }

    /// The zones as a rewind to generation `to` leaves them, where they stand at `roots` now. Reads storage and
    /// changes nothing.
    pub fn rewound(
        &self,
        to: GenerationNumber,
        at: Timestamp,
        roots: &[ZoneRoot],
    ) -> Result<Vec<ZoneRoot>, StoreError> {
        let missing = || self.inconsistent(format!("a rewind to generation {to}, which is not there"));
        let target = &self.generations.get(&to).ok_or_else(missing)?.roots;
        let mut back = roots.to_vec();
        for (index, (zone, root)) in self.zones.iter().zip(&mut back).enumerate() {
            if let (true, Some(target)) = (moves_back(&zone.working), target.get(index)) {
                // the history and the numbers that were given do not go back
                *root = target.rewound(root, at, &self.chunks)?;
            }
        }
        Ok(back)
    }

    /// Lets the zones stand where a rewind has [left](Self::rewound) them.
    pub fn go_back(&mut self, roots: &[ZoneRoot]) {
        self.standing_by = None;
        for (zone, root) in self.zones.iter_mut().zip(roots) {
            if moves_back(&zone.working) {
                zone.working = Zone::from_root(root.clone(), self.chunks.clone());
            }
            zone.commit(root);
        }
    }

    /// Lets go of what the zones have in memory.
    #[cold]
    pub fn relieve(&mut self) {
        let chunks = self.chunks.clone();
        let roots = self.generations.values_mut().flat_map(|it| it.roots.iter_mut());
        let mut done = Ok(());
        for zone in &mut self.zones {
            done = done.and(zone.working.relieve());
            done = done.and(zone.synced.relieve(&chunks)).and(zone.head.relieve(&chunks));
        }
        for root in roots {
            done = done.and(root.relieve(&chunks));
        }
        if let Err(e) = done {
            // it stays in memory, where nothing is lost
            tracing::warn!(agent = %self.id, "letting go of memory: {e}");
        }
    }

    fn inconsistent(&self, reason: String) -> StoreError {
        StoreError::Inconsistent { agent: self.id, reason }
    }

    fn commit(&mut self, roots: &[ZoneRoot]) {
        for (zone, root) in self.zones.iter_mut().zip(roots) {
            zone.commit(root);
        }
    }

    fn close(&mut self, turn: Turn, at: Timestamp, outcome: Outcome) {
        self.zones.iter_mut().for_each(|zone| zone.working.end_turn());
        if let Some(open) = self.turn.take() {
            let OpenTurn { event, began, facts, .. } = open;
            self.history.push(TurnRecord { turn, event, began, ended: at, outcome, facts });
        }
    }

    /// A turn that is still open is over: its writer is gone. What it had synced is kept beside.
    pub fn interrupt(&mut self) {
        let Some(open) = self.turn.clone() else { return };
        let reason = "interrupted: its host stopped";
        self.withdraw();
        let mut roots: Vec<_> = self.zones.iter().map(|z| z.synced.clone()).collect();
        self.fail(reason, open.began, &mut roots);
        self.close(open.turn, open.began, Outcome::Failed(reason.into()));
    }

    /// Takes the zones back as the contracts say, and keeps `roots` as a side generation where
    /// something goes back.
    fn fail(&mut self, reason: &str, at: Timestamp, roots: &mut [ZoneRoot]) {
        let process = self.turn.as_ref().is_some_and(|t| t.style == TurnStyle::Process);
        if process {
            self.commit(roots);
        } else {
            let left = roots.to_vec();
            let mut goes_back = false;
            for (zone, root) in self.zones.iter_mut().zip(roots.iter_mut()) {
                match zone.working.kind().on_failure() {
                    OnFailure::Stays => zone.commit(root),
                    OnFailure::GoesBack => goes_back |= zone.ahead || zone.touched,
                    OnFailure::SyncedAppendsStay => {}
                }
                // what goes back takes no number back that was given meanwhile
                *root = zone.head.after(root);
                zone.commit(root);
            }
            if goes_back {
                let cause = Cause::Side(reason.to_string());
                self.add_generation(cause, Payload::Inline(Vec::new()), at, left);
            }
        }
        self.standing_by = None;
        for (zone, root) in self.zones.iter_mut().zip(roots.iter()) {
            zone.working = Zone::from_root(root.clone(), self.chunks.clone());
        }
    }

    fn add_generation(&mut self, cause: Cause, about: Payload, at: Timestamp, roots: Vec<ZoneRoot>) {
        let number = self.next_generation;
        self.next_generation = number.next();
        let attachment = self.inherited(number, &cause);
        if matches!(cause, Cause::Reaped { .. }) {
            // its handles are the same
            self.standing_by = self.standing_by.map(|by| if by == self.head { number } else { by });
        }
        // what a policy makes stands for the head, also where a turn has failed since
        let stands_for = matches!(cause, Cause::Reaped { .. }).then(|| self.generations.get(&self.head));
        let stands_for = stands_for.flatten();
        let turn = stands_for.map_or(self.last_turn, |head| head.turn);
        let on = stands_for.filter(|head| head.on.is_some()).map(|head| head.number);
        // what it has seen stays seen, also where its memory goes back
        let seen = self.generations.get(&self.head).map(|head| head.seen.clone()).unwrap_or_default();
        if !matches!(cause, Cause::Side(_)) {
            self.head = number;
        }
        let made =
            Generation { number, cause, about, turn, at, roots, attachment, is_pinned: false, seen, on };
        self.generations.insert(number, made);
    }

    /// What is attached to a generation from its beginning: it was made of another without a turn between, and
    /// what the embedder attaches to it is the same.
    fn inherited(&mut self, number: GenerationNumber, cause: &Cause) -> Option<Payload> {
        let of = match cause {
            Cause::Forked if number == GenerationNumber(0) => return self.parents_attachment.take(),
            Cause::Rewound(to) => *to,
            Cause::Paused | Cause::Operated | Cause::Reaped { .. } => self.head,
            Cause::Created | Cause::Turn | Cause::Forked | Cause::Upgraded | Cause::Side(_) => return None,
        };
        self.generations.get(&of)?.attachment.clone()
    }

    /// Drops the oldest generations of ended turns where more than [`KEPT_TURN_GENERATIONS`] are kept, and those
    /// that may hold what was forgotten.
    /// Not while records are read back: a fork that comes later in the log may begin from one of them.
    pub fn prune(&mut self) {
        for number in self.superfluous(KeepGenerations::default()) {
            self.generations.remove(&number);
        }
        if self.forgotten.is_empty() {
            return;
        }
        let (head, forgotten) = (self.head, &self.forgotten);
        self.generations.retain(|number, it| *number == head || !forgotten.iter().any(|f| f.is_in(it)));
        // what stood on those is of no use any more; they come before it
        let mut there = BTreeSet::new();
        self.generations.retain(|number, it| {
            let stands = *number == head || it.on.is_none_or(|on| there.contains(&on));
            stands && there.insert(*number)
        });
        let generations = &self.generations;
        self.forgotten.retain(|it| generations.get(&head).is_some_and(|head| it.is_in(head)));
    }

    /// The generations that are too many: the oldest, and those that a policy made and that are over. Never the
    /// head, nor what is pinned, nor what one stands on that stays.
    pub fn superfluous(&self, keep: KeepGenerations) -> Vec<GenerationNumber> {
        let oldest = |kept: usize, counts: fn(&Cause) -> bool| {
            let all = self.generations.values().filter(move |g| counts(&g.cause) && !g.is_kept());
            let all: Vec<_> = all.map(|g| g.number).collect();
            let many = all.len().saturating_sub(kept);
            all.into_iter().take(many).filter(|number| *number != self.head)
        };
        let mut many: BTreeSet<_> = oldest(keep.turns, |cause| *cause == Cause::Turn)
            .chain(oldest(keep.sides, |cause| matches!(cause, Cause::Side(_))))
            .chain(oldest(keep.pauses, |cause| matches!(cause, Cause::Paused | Cause::Operated)))
            .chain(oldest(0, |cause| matches!(cause, Cause::Reaped { .. })))
            .collect();
        #[cfg(test)]
        if super::tests::makes(super::tests::Mistake::NothingIsStoodOn) {
            return many.into_iter().collect();
        }
        // the later first: what one stands on comes before it
        for generation in self.generations.values().rev() {
            if many.is_empty() {
                break;
            }
            if let Some(on) = generation.on.filter(|_| !many.contains(&generation.number)) {
                many.remove(&on);
            }
        }
        many.into_iter().collect()
    }

    /// The first of the generations that stand on this one.
    pub fn stands_on(&self, generation: GenerationNumber) -> Option<GenerationNumber> {
        self.generations.values().find(|it| it.on == Some(generation)).map(|it| it.number)
    }

    /// Forgets what is open; files without a name stay for whoever opens them again.
    pub fn release(&mut self) -> Result<(), StoreError> {
        self.standing_by = None;
        for zone in &mut self.zones {
            let usable = !zone.working.is_dirty();
            if usable {
                let root = zone.working.snapshot()?;
                zone.working = Zone::from_root(root, self.chunks.clone());
            }
        }
        Ok(())
    }

    /// Throws away what is not durable: the zones stand where they were committed last, and a turn
    /// of which something is durable is interrupted, as it will be when the log is read again.
    pub fn abandon(&mut self) {
        self.interrupt();
        self.standing_by = None;
        for zone in &mut self.zones {
            let head = zone.head.clone();
            zone.commit(&head);
            zone.working = Zone::from_root(head, self.chunks.clone());
        }
    }

    /// Takes zone changes back that records hold and nothing has promoted.
    pub fn withdraw(&mut self) {
        self.standing_by = None;
        for zone in &mut self.zones {
            if std::mem::take(&mut zone.touched) {
                zone.working = Zone::from_root(zone.synced.clone(), self.chunks.clone());
            }
        }
    }
}

/// Whether a rewind takes the zone's files back.
fn moves_back(zone: &Zone) -> bool {
    match zone.kind().on_rewind() {
        OnRewind::MovesBack | OnRewind::MovesBackKeepingHistory => true,
        OnRewind::Stays | OnRewind::StaysAndRecords => false,
    }
}
