//! Giving storage back: what no head, generation, open turn, open file or reader needs.
//!
//! 1. Policy: old versions are given back, agents that were paused long ago and shared zones that nobody mounts are
//!    removed, and generations that are too many dropped. A
//!    generation that is dropped in memory is gone for good with the checkpoint that follows; a crash before
//!    brings it back, which is no harm.
//! 2. A checkpoint, while no commit is under way: the segments begin to mark, then the states are copied, and
//!    what only memory knows is listed: zones with changes, payloads on their way into a record, readers. So the
//!    catalogue and the list lead to everything there is, and whatever is put later marks itself. Records from
//!    before the checkpoint are not read again once it is durable.
//! 3. Mark, beside live agents. Where something does not read, what hangs on it cannot be known, and whatever
//!    was stored until then is held back (`segment::held`).
//! 4. Sweep, in the order that `segment::sweep` gives.
//!
//! Memory: a bit for each frame of the store, and the addresses of step 2.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::agents::Slot;
use super::catalogue;
use super::disk::{Disk, Inner};
use super::entry::Payload;
use super::policy::{KeepPolicy, ReapPolicy};
use super::reach::{Place, Reach, Visitor};
use super::state::{Generation, OpenTurn, State};
#[cfg(test)]
use super::tests::{self, Mistake};
use super::versions::{OldOfZone, VersionsGiven};
use super::{KEPT_TURN_GENERATIONS, Shared, Store, StoreError, commit};
use crate::chunks::{ChunkError, FrameKind};
use crate::id::{AgentId, GenerationNumber, Hash, Timestamp};
use crate::segment::{Marks, SegmentStats, Segments, Swept};
use crate::zone::ZoneRoot;

/// Frames, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// How many.
    pub frames: u64,
    /// Bytes, as stored.
    pub bytes: u64,
}

/// What a reaping did, or with `dry_run` would do.
#[derive(Clone, Debug, Default)]
pub struct ReapReport {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Agents that were removed.
    pub agents: Vec<(AgentId, String)>,
    /// Generations that were dropped, of agents that stay.
    pub generations: u64,
    /// Which these are, by the agent's name.
    pub dropped: BTreeMap<String, BTreeSet<GenerationNumber>>,
    /// Old versions that were given back. What they had added comes free when no generation has them any more.
    pub versions: VersionsGiven,
    /// Which these are, in a dry run: at most [`MAX_OLD`](Self::MAX_OLD) of a zone.
    pub old: Vec<OldOfZone>,
    /// Shared zones that nobody mounted, and that were removed.
    pub shared_zones: Vec<String>,
    /// What only removed agents needed.
    pub from_agents: Given,
    /// What only dropped generations needed.
    pub from_generations: Given,
    /// What nothing had needed before: replaced content, older checkpoints, what was refused half-way.
    pub from_leftovers: Given,
    /// Bytes of the frames that are needed.
    pub needed: u64,
    /// What was done about segments.
    pub swept: Swept,
    /// The segments before.
    pub before: SegmentStats,
    /// The segments after.
    pub after: SegmentStats,
    /// What could not be read, at most [`MAX_DAMAGE`](Self::MAX_DAMAGE) places. What was stored before that was
    /// first met is not given back: what hangs on it is not known. Removing what is damaged frees it.
    pub damage: Vec<String>,
    /// More is needed than the budget allows, and nothing is left to drop.
    pub over_budget: bool,
    /// The store's files hold nothing any more that nothing needed when it began: what was forgotten is erased.
    pub is_purged: bool,
}

impl ReapReport {
    /// Old versions that are listed of one zone, at most.
    pub const MAX_OLD: usize = 1000;
    /// Damaged places that are listed, at most.
    pub const MAX_DAMAGE: usize = 100;
}

/// What the policy takes.
#[derive(Default)]
pub(super) struct Plan {
    /// Agents, at the generation that they were found at.
    remove: Vec<(AgentId, String, GenerationNumber)>,
    drop: BTreeMap<AgentId, Vec<GenerationNumber>>,
    /// What the agents are called of which any are dropped.
    names: BTreeMap<AgentId, String>,
    /// What hangs on these, to say what came of it.
    removed: Parts,
    dropped: Parts,
}

/// Addresses that something hangs on.
#[derive(Default)]
struct Parts {
    frames: Vec<(FrameKind, Hash)>,
    attachments: Vec<Payload>,
}

impl Plan {
    fn takes(&self, agent: AgentId, generation: Option<GenerationNumber>) -> bool {
        self.remove.iter().any(|(id, ..)| *id == agent)
            || generation.is_some_and(|it| self.drop.get(&agent).is_some_and(|all| all.contains(&it)))
    }
}

impl Store {
    /// Gives back what nothing needs, after the policy has said what is not to be kept. Works beside live
    /// agents; with `dry_run` it changes nothing and tells what it would do. Where something was forgotten, it does
    /// what [`purge`](Self::purge) does, too.
    pub fn reap(&self, policy: &ReapPolicy, dry_run: bool) -> Result<ReapReport, StoreError> {
        let due = self.shared()?.purge.is_due();
        self.reap_and(policy, dry_run, due)
    }

    /// With `purge`, everything that nothing needs is erased, and nothing is left in segments that are mostly needed.
    pub(super) fn reap_and(
        &self,
        policy: &ReapPolicy,
        dry_run: bool,
        purge: bool,
    ) -> Result<ReapReport, StoreError> {
        let shared = self.shared()?;
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        // who only looks writes nothing, and needs no room
        let _room = (!dry_run).then(|| shared.room());
        // what the index does not point at is removed
        let unread = if dry_run { Vec::new() } else { shared.segments.verify_index()?.unread };
        let _wiping = super::forget::Wiping(shared);
        let purge = if purge && !dry_run { Some(shared.begin_purge()?) } else { None };
        let mut report = ReapReport { dry_run, before: shared.segments.stats(), ..ReapReport::default() };
        (report.versions, report.old) = shared.reap_versions(policy, dry_run)?;
        if policy.remove_unmounted {
            report.shared_zones = self.remove_unmounted(dry_run)?;
        }
        let mut limit = usize::MAX;
        let (plan, damaged) = loop {
            let mut plan = shared.plan(policy, limit)?;
            if !dry_run {
                self.remove_planned(&mut plan)?;
                for id in plan.drop.keys() {
                    match shared.disk(*id) {
                        // gone meanwhile, or damaged, which marking tells
                        Err(e) if e.is_of_one_agent() => {}
                        disk => drop(disk?),
                    }
                }
            }
            report.agents.extend(plan.remove.iter().map(|(id, name, _)| (*id, name.clone())));
            let marked = shared.mark(&mut plan, dry_run, &mut report);
            if marked.is_err() {
                shared.segments.unwatch();
            }
            let damaged = marked?;
            report.over_budget = policy.budget.is_some_and(|budget| report.needed > budget);
            let kept = limit.min(KEPT_TURN_GENERATIONS);
            if !report.over_budget || kept <= 1 || !report.damage.is_empty() {
                break (plan, damaged);
            }
            limit = kept / 2;
            if dry_run {
                report.agents.clear();
                report.generations = 0;
                report.dropped.clear();
            }
        };
        report.from_agents = report.from_agents.plus(shared.count(&plan.removed));
        report.from_generations = report.from_generations.plus(shared.count(&plan.dropped));
        let swept = shared.segments.hold(&damaged, !dry_run).and_then(|from| match purge {
            #[cfg(test)]
            Some(_) if tests::makes(Mistake::ErasedTooSoon) => shared.segments.sweep(from, dry_run),
            Some(_) => shared.segments.purge(from),
            None => shared.segments.sweep(from, dry_run),
        });
        if swept.is_err() {
            shared.segments.unwatch();
        }
        report.swept = swept?;
        let left = ReapReport::MAX_DAMAGE.saturating_sub(report.damage.len());
        report.damage.extend(unread.into_iter().take(left));
        let known = report.from_agents.plus(report.from_generations);
        report.from_leftovers = Given {
            frames: report.swept.dead_frames.saturating_sub(known.frames),
            bytes: report.swept.dead_bytes.saturating_sub(known.bytes),
        };
        if let Some(wanted) = purge {
            shared.end_purge(wanted, &mut report)?;
        }
        report.after = shared.segments.stats();
        Ok(report)
    }
}

impl Store {
    /// Removes the agents of a plan, but for those that have done something meanwhile: they stay, and leave the plan.
    pub(super) fn remove_planned(&self, plan: &mut Plan) -> Result<(), StoreError> {
        let mut removed = Vec::with_capacity(plan.remove.len());
        for (id, name, head) in plan.remove.drain(..) {
            let still_sleeps = |inner: &Inner| {
                if inner.is_at_rest() && inner.state.head == head { Ok(()) } else { Err(StoreError::Busy) }
            };
            match self.remove_where(id, still_sleeps) {
                Ok(()) => removed.push((id, name, head)),
                Err(StoreError::Busy | StoreError::NoAgent(_)) => {}
                // marking tells
                Err(e) if e.is_of_one_agent() => {}
                Err(e) => return Err(e),
            }
        }
        plan.remove = removed;
        Ok(())
    }

    /// Removes shared zones that no agent mounts, and gives their names.
    fn remove_unmounted(&self, dry_run: bool) -> Result<Vec<String>, StoreError> {
        let mut removed = Vec::new();
        for zone in self.shared_zones()?.into_iter().filter(|zone| zone.mounted_by.is_empty()) {
            let done = if dry_run { Ok(()) } else { self.remove_shared(zone.id) };
            match done {
                Ok(()) => removed.push(zone.name),
                // mounted meanwhile, or damaged, which is told elsewhere
                Err(StoreError::SharedInUse { .. }) => {}
                Err(e) if e.is_of_one_agent() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(removed)
    }
}

impl Given {
    fn plus(self, other: Self) -> Self {
        Self { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

impl Shared {
    /// What the policy takes of what stands now, where no agent keeps more than `limit` generations of turns.
    pub(super) fn plan(self: &Arc<Self>, policy: &ReapPolicy, limit: usize) -> Result<Plan, StoreError> {
        let mut plan = Plan::default();
        let agents: Vec<(String, AgentId)> =
            self.agents().names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        for (name, id) in agents.into_iter().filter(|(_, id)| !policy.spare.contains(id)) {
            let slot = match self.agents().slots.get(&id) {
                Some(Slot::Live(disk)) => Ok(disk.clone()),
                Some(Slot::Stored(stored)) => Err(stored.clone()),
                _ => continue,
            };
            let keep = policy.of(id);
            let keep = {
                let mut keep = keep.clone();
                keep.generations.turns = keep.generations.turns.min(limit);
                keep
            };
            match slot {
                Ok(disk) => {
                    let inner = disk.lock();
                    plan.take(&name, &inner.state, &keep, inner.is_at_rest());
                }
                Err(stored) => match catalogue::read_state(&stored, &self.segments) {
                    Ok(mut state) => {
                        // as it will be when it is loaded: what an open turn left is a generation then
                        state.interrupt();
                        plan.take(&name, &state, &keep, true);
                    }
                    // marking tells
                    Err(e) if e.is_of_one_agent() => {}
                    Err(e) => return Err(e),
                },
            }
        }
        // of a fork that cannot be read only its records say what it needs
        let Some(awaited) = self.awaited()? else { return Ok(Plan::default()) };
        plan.remove.retain(|(id, ..)| !awaited.iter().any(|(parent, _)| parent == id));
        for (parent, number) in awaited {
            if let Some(numbers) = plan.drop.get_mut(&parent) {
                numbers.retain(|it| *it != number);
            }
        }
        Ok(plan)
    }

    /// Applies the plan, makes a checkpoint, and marks all that is needed. Gives the frames that do not read.
    pub(super) fn mark(
        self: &Arc<Self>,
        plan: &mut Plan,
        dry_run: bool,
        report: &mut ReapReport,
    ) -> Result<BTreeSet<Hash>, StoreError> {
        let first = || {
            // in this order: what is put from here on marks itself, and what was put before is found
            self.segments.watch(!dry_run)?;
            self.spare_pinned(plan);
            let dropped = if dry_run { plan.drop.clone() } else { self.drop_generations(plan) };
            Ok((self.resident(plan)?, dropped))
        };
        let (hash, (resident, dropped)) = if dry_run {
            // the last catalogue is as good for those that memory does not have
            let superblock = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
            let made = self.gate.stopped(first)?;
            (superblock.current().catalogue, made)
        } else {
            let (hash, made) = self.checkpoint_with(first)?;
            (Some(hash), made)
        };
        for (id, numbers) in dropped.into_iter().filter(|(_, numbers)| !numbers.is_empty()) {
            report.generations += numbers.len() as u64;
            let name = plan.names.get(&id).cloned().unwrap_or_else(|| id.to_string());
            report.dropped.entry(name).or_default().extend(numbers);
        }
        let stored = dry_run.then(|| self.agents().stored());
        let mut marker = Marker {
            segments: &self.segments,
            plan,
            stored,
            needed: 0,
            damage: Vec::new(),
            damaged: BTreeSet::new(),
        };
        let mut reach = Reach::new(&self.segments, &mut marker);
        if let Some(hash) = hash {
            reach.catalogue(&hash)?;
        }
        for (kind, hash) in resident.frames {
            reach.place = Place::default();
            if kind == FrameKind::Node { reach.root(&hash)? } else { reach.frame(kind, &hash).map(|_| ())? }
        }
        for root in &resident.attachments {
            reach.place = Place::default();
            reach.attachment(root)?;
        }
        report.needed = marker.needed;
        report.damage = marker.damage;
        Ok(marker.damaged)
    }

    /// Takes out of the plan what was pinned since it was made. Nothing is pinned while commits wait.
    fn spare_pinned(&self, plan: &mut Plan) {
        let agents = self.agents();
        for (id, numbers) in &mut plan.drop {
            let Some(Slot::Live(disk)) = agents.slots.get(id) else { continue };
            let state = &disk.lock().state;
            let is_kept = |it: &GenerationNumber| state.generations.get(it).is_some_and(Generation::is_kept);
            numbers.retain(|number| *number != state.head && !is_kept(number));
            // and what one stands on that stays, also one that was made since
            let mut needed: BTreeSet<_> = BTreeSet::new();
            for it in state.generations.values().rev() {
                if let Some(on) =
                    it.on.filter(|_| !numbers.contains(&it.number) || needed.contains(&it.number))
                {
                    needed.insert(on);
                }
            }
            numbers.retain(|number| !needed.contains(number));
        }
    }

    /// Drops what the plan says, and gives what was there.
    fn drop_generations(&self, plan: &Plan) -> BTreeMap<AgentId, Vec<GenerationNumber>> {
        let mut dropped = plan.drop.clone();
        let agents = self.agents();
        dropped.retain(|id, numbers| {
            let Some(Slot::Live(disk)) = agents.slots.get(id) else { return false };
            let state = &mut disk.lock().state;
            numbers.retain(|number| state.generations.remove(number).is_some());
            true
        });
        dropped
    }

    /// The addresses that memory knows and perhaps no catalogue does.
    fn resident(&self, plan: &Plan) -> Result<Parts, StoreError> {
        let mut found = Parts::default();
        let (roots, departed) = self.readers.needed();
        for root in &roots {
            parts_of(root, &mut found);
        }
        let live: Vec<Arc<Disk>> = {
            let agents = self.agents();
            let live = agents.slots.values().filter_map(|slot| match slot {
                Slot::Live(disk) if !plan.takes(disk.id(), None) => Some(disk.clone()),
                _ => None,
            });
            live.collect()
        };
        for disk in live.iter().chain(&departed) {
            let mut inner = disk.lock();
            found
                .frames
                .extend(commit::needs(&inner.pending).into_iter().map(|hash| (FrameKind::Chunk, hash)));
            found.frames.extend(inner.held.iter().map(|hash| (FrameKind::Catalogue, *hash)));
            for zone in &mut inner.state.zones {
                // brings the trees up to date with open files
                zone.working.snapshot()?;
                for tree in zone.working.trees_in_use() {
                    tree.stored_parts(&mut |kind, hash| found.frames.push((kind, hash)));
                }
            }
            let id = disk.id();
            state_parts(&inner.state, &mut found, |number| !plan.takes(id, Some(number)));
        }
        Ok(found)
    }

    /// What hangs on these, and is not marked.
    fn count(&self, parts: &Parts) -> Given {
        let mut counter =
            Counter { segments: &self.segments, seen: Marks::default(), given: Given::default() };
        let mut reach = Reach::new(&self.segments, &mut counter);
        for (kind, hash) in &parts.frames {
            // a report is no reason to fail
            let _ = if *kind == FrameKind::Node {
                reach.root(hash)
            } else {
                reach.frame(*kind, hash).map(|_| ())
            };
        }
        for root in &parts.attachments {
            let _ = reach.attachment(root);
        }
        counter.given
    }
}

/// The addresses that are known of a root.
fn parts_of(root: &ZoneRoot, found: &mut Parts) {
    for tree in [root.tree(), root.history_tree()] {
        tree.stored_parts(&mut |kind, hash| found.frames.push((kind, hash)));
    }
}

/// The addresses that are known of a state, but for what its zones hold now.
fn state_parts(state: &State, found: &mut Parts, wants: impl Fn(GenerationNumber) -> bool) {
    let mut payloads = vec![&state.about];
    payloads.extend(state.turn.iter().flat_map(OpenTurn::payloads));
    payloads.extend(state.history.pieces.iter().map(|piece| &piece.content));
    payloads.extend(state.history.tail.iter().flat_map(|turn| turn.payloads()));
    for zone in &state.zones {
        parts_of(&zone.synced, found);
        parts_of(&zone.head, found);
    }
    for generation in state.generations.values().filter(|it| wants(it.number)) {
        payloads.push(&generation.about);
        generation.roots.iter().for_each(|root| parts_of(root, found));
        found.attachments.extend(generation.attachment.clone());
    }
    found.frames.extend(payloads.iter().flat_map(|it| it.needs()).map(|hash| (FrameKind::Catalogue, *hash)));
}

impl Plan {
    /// Adds what the policy takes of one agent.
    fn take(&mut self, name: &str, state: &State, policy: &KeepPolicy, idle: bool) {
        let head = state.generations.get(&state.head);
        // a turn that failed since has used it
        let paused = head.filter(|it| idle && it.turn >= state.last_turn).and_then(Generation::paused);
        #[cfg(test)]
        let paused = paused.or(tests::makes(Mistake::TheAwakeAreRemoved).then_some(Timestamp(0)));
        let longer = |limit: Option<Duration>| {
            limit.is_some_and(|limit| {
                paused
                    .is_some_and(|at| u128::from(Timestamp::now().0.saturating_sub(at.0)) >= limit.as_nanos())
            })
        };
        if longer(policy.remove_paused) && !state.generations.values().any(Generation::is_kept) {
            self.remove.push((state.id, name.to_owned(), state.head));
            state_parts(state, &mut self.removed, |_| true);
            return;
        }
        let mut keep = policy.generations;
        if longer(policy.thin_paused) {
            keep.turns = 0;
        }
        let numbers = state.superfluous(keep);
        for generation in numbers.iter().filter_map(|number| state.generations.get(number)) {
            generation.roots.iter().for_each(|root| parts_of(root, &mut self.dropped));
            let about = generation.about.needs().iter().map(|hash| (FrameKind::Catalogue, *hash));
            self.dropped.frames.extend(about);
            self.dropped.attachments.extend(generation.attachment.clone());
        }
        if !numbers.is_empty() {
            self.drop.insert(state.id, numbers);
            self.names.insert(state.id, name.to_owned());
        }
    }
}

/// Marks what is needed.
struct Marker<'a> {
    segments: &'a Segments,
    plan: &'a Plan,
    /// The agents that the catalogue counts of; none for all. Memory says what the others need.
    stored: Option<HashSet<AgentId>>,
    needed: u64,
    damage: Vec<String>,
    /// The frames that do not read, or say what cannot be.
    damaged: BTreeSet<Hash>,
}

impl Visitor for Marker<'_> {
    fn visit(&mut self, _: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        let bytes = self.segments.mark(hash)?;
        self.needed += bytes.unwrap_or(0);
        Ok(bytes.is_some())
    }

    fn unreadable(&mut self, place: &Place, hash: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        // the frame that does not read, which of a payload need not be the first
        self.damaged.insert(match &error {
            StoreError::Chunk(ChunkError::Missing(lost) | ChunkError::Damaged { hash: lost, .. }) => *lost,
            _ => *hash,
        });
        if self.damage.len() < ReapReport::MAX_DAMAGE {
            self.damage.push(format!("{place}: {error}"));
        }
        Ok(())
    }

    fn wants(&self, agent: AgentId, generation: Option<GenerationNumber>) -> bool {
        self.stored.as_ref().is_none_or(|it| it.contains(&agent)) && !self.plan.takes(agent, generation)
    }
}

/// Counts what is not marked.
struct Counter<'a> {
    segments: &'a Segments,
    seen: Marks,
    given: Given,
}

impl Visitor for Counter<'_> {
    fn visit(&mut self, _: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        if self.segments.is_marked(hash) {
            return Ok(false);
        }
        let place = self.segments.locate(hash)?;
        if !self.seen.add(place) {
            return Ok(false);
        }
        self.given.frames += 1;
        self.given.bytes += place.bytes();
        Ok(true)
    }

    fn unreadable(&mut self, _: &Place, _: &Hash, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Chunk(ChunkError::Poisoned(_)) => Err(error),
            _ => Ok(()),
        }
    }
}
