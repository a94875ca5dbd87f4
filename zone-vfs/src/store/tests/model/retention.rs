//! What policies take, what pins keep, and what is forgotten.

use std::time::Duration;

use super::super::versions::Past;
use super::*;

/// What a policy keeps of an agent. All is old enough for it.
#[derive(Clone, Debug)]
pub struct Reaping {
    pub keep: KeepGenerations,
    /// One that is paused keeps no generation of a turn but its head.
    pub thins: bool,
    /// One that is paused is removed.
    pub removes: bool,
    /// Versions go, but for so many of the newest of each file.
    pub versions: Option<usize>,
    /// There is never room for what is needed: of generations of turns, one stays.
    pub is_over_budget: bool,
}

/// What an operator has an agent forget.
#[derive(Clone, Debug)]
pub struct Forgetting {
    pub zone: u16,
    pub file: Inode,
    /// The name that the file has now, if it has one.
    pub name: Option<String>,
    /// The generations that had its number.
    pub dropped: Vec<u64>,
    /// The first and the last of the turns that are forgotten with it.
    pub turns: Option<(u64, u64)>,
}

/// The numbers of generations of turns that a budget leaves in turn.
fn limits(is_over_budget: bool) -> impl Iterator<Item = usize> {
    let halves = std::iter::successors(Some(KEPT_TURN_GENERATIONS), |it| Some(it / 2).filter(|it| *it > 0));
    std::iter::once(usize::MAX).chain(halves.skip(1).filter(move |_| is_over_budget))
}

impl Reaping {
    pub fn policy(&self) -> KeepPolicy {
        let now = |takes: bool| takes.then_some(Duration::ZERO);
        let older_than = now(self.versions.is_some()).or(Some(Duration::MAX));
        let versions = VersionPolicy { older_than, newest: self.versions.unwrap_or_default() };
        // what is said of a zone goes before what is said of all
        let all = VersionPolicy { older_than: now(true), newest: 0 };
        KeepPolicy {
            generations: self.keep,
            thin_paused: now(self.thins),
            remove_paused: now(self.removes).or(Some(Duration::MAX)),
            versions: all,
            zones: [(format!("{:?}", KINDS[usize::from(SEMANTIC)]), versions)].into(),
        }
    }

    /// As it is for an agent as that stands.
    pub fn of(&self, agent: &ModelAgent) -> Self {
        let is_idle = agent.turn.is_none();
        let is_paused = is_idle && agent.is_paused();
        let versions = self.versions.filter(|_| is_idle && agent.is_clean());
        let removes = self.removes && is_paused && agent.pinned.is_empty();
        Self { thins: self.thins && is_paused, removes, versions, ..self.clone() }
    }
}

impl ModelAgent {
    fn is_paused(&self) -> bool {
        let used = self.turns.get(&self.head).is_some_and(|turn| *turn < self.last_turn);
        !used && self.is_called_paused()
    }

    /// Whether its head says so, whatever it did since.
    fn is_called_paused(&self) -> bool {
        matches!(self.generations[&self.head].0, Cause::Paused | Cause::Reaped { paused: Some(_) })
    }

    /// Whether all that was written is committed.
    pub fn is_clean(&self) -> bool {
        self.zones.iter().all(|zone| !zone.touched && !zone.ahead)
    }

    pub fn pin(&mut self, generation: u64, pinned: bool) {
        if pinned {
            self.pinned.insert(generation);
        } else {
            self.pinned.remove(&generation);
            self.prune();
        }
    }

    pub fn is_pinned(&self, generation: u64) -> bool {
        self.pinned.contains(&generation)
    }

    pub fn is_head(&self, generation: u64) -> bool {
        self.head == generation
    }

    pub fn drop_generation(&mut self, generation: u64) {
        self.generations.remove(&generation);
        self.attached.remove(&generation);
        self.pinned.remove(&generation);
        self.on.remove(&generation);
    }

    /// Whether another is of no use without this one.
    pub fn is_needed(&self, generation: u64) -> bool {
        self.on.values().any(|on| *on == generation)
    }

    /// One that stands on another, if any does.
    pub fn any_standing(&self, rng: &mut Rng) -> Option<u64> {
        let at = rng.below(self.on.len() as u64) as usize;
        self.on.keys().nth(at).copied()
    }

    pub fn complete(&mut self, generation: u64) {
        self.on.remove(&generation);
        self.prune();
    }

    /// The last generation that a policy made stands for those before.
    pub(super) fn prune(&mut self) {
        self.drop_but_needed(self.older_reaped());
    }

    fn older_reaped(&self) -> BTreeSet<u64> {
        self.older_than_newest(0, |cause| matches!(cause, Cause::Reaped { .. }))
    }

    /// All but the newest so many, and the head, and what is pinned.
    fn older_than_newest(&self, kept: usize, counts: impl Fn(&Cause) -> bool) -> BTreeSet<u64> {
        let all = self.generations.iter().rev();
        let all = all.filter(|(number, (cause, _))| counts(cause) && !self.pinned.contains(number));
        all.skip(kept).map(|(number, _)| *number).filter(|it| *it != self.head).collect()
    }

    /// Drops these, but for what one stands on that stays.
    fn drop_but_needed(&mut self, mut gone: BTreeSet<u64>) {
        while let Some(needed) = self
            .on
            .iter()
            .find_map(|(number, on)| (!gone.contains(number) && gone.contains(on)).then_some(*on))
        {
            gone.remove(&needed);
        }
        for number in gone {
            self.drop_generation(number);
        }
    }

    fn keep(&mut self, by: &Reaping, limit: usize) {
        let turns = if by.thins { 0 } else { by.keep.turns };
        let mut gone = self.older_than_newest(turns.min(limit), |cause| *cause == Cause::Turn);
        gone.extend(self.older_than_newest(by.keep.sides, |cause| matches!(cause, Cause::Side(_))));
        let pauses = |cause: &Cause| matches!(cause, Cause::Paused | Cause::Operated);
        gone.extend(self.older_than_newest(by.keep.pauses, pauses));
        gone.extend(self.older_reaped());
        self.drop_but_needed(gone);
    }

    /// This agent, as a reaping may have left it that is not over, or as one leaves it that is: with `lasts`, what
    /// is found after that. Or why none leaves it so.
    pub(in super::super) fn reaped_to(
        &self,
        found: &Seen,
        by: &Reaping,
        is_over: bool,
        lasts: impl Fn(Self) -> Self,
    ) -> Result<Self, String> {
        let mut agent = self.clone();
        if let Some(newest) = by.versions {
            let zone = &mut agent.zones[usize::from(SEMANTIC)];
            let memory = zone.working.memory.reaped_to(&found.past, newest, is_over)?;
            if found.next > self.next {
                *zone = ModelZone::at(&Held { memory, files: zone.working.files.clone() });
                // each part is one, and stands for those before
                agent.next = found.next - 1;
                let paused = self.is_called_paused().then_some(Timestamp(0));
                agent.generation(Cause::Reaped { paused });
            }
        }
        let limits = limits(by.is_over_budget).collect::<Vec<_>>();
        let mut kept: Vec<_> = limits
            .into_iter()
            .map(|limit| {
                let mut agent = agent.clone();
                agent.keep(by, limit);
                agent
            })
            .collect();
        if is_over {
            kept.drain(..kept.len() - 1);
        } else {
            kept.push(agent);
        }
        let mut kept = kept.into_iter().map(lasts);
        kept.find(|it| it.seen() == *found).ok_or_else(|| "no reaping leaves it so".into())
    }

    /// The names of the files in a zone.
    pub fn names(&self, zone: u16) -> Vec<String> {
        self.zones[usize::from(zone)].working.files.keys().cloned().collect()
    }

    /// What is there after a file was forgotten, and turns, and the past is this.
    pub fn forget(&mut self, what: &Forgetting, past: &Arc<Past>) -> Result<(), String> {
        self.commit();
        let of = &mut self.zones[usize::from(what.zone)];
        if let Some(name) = &what.name {
            of.working.files.remove(name);
        }
        if what.zone == SEMANTIC {
            of.working.memory = of.working.memory.forgot(what.file, past)?;
        }
        of.commit();
        self.generation(Cause::Operated);
        for number in &what.dropped {
            self.drop_generation(*number);
        }
        let Some((first, last)) = what.turns else { return Ok(()) };
        self.interrupted.retain(|(turn, _)| !(first..=last).contains(turn));
        for turn in self.history.iter_mut().filter(|it| (first..=last).contains(&it.turn)) {
            turn.event.clear();
            turn.facts.clear();
            match &mut turn.outcome {
                Ok(outcome) => outcome.clear(),
                Err(reason) => *reason = "forgotten".into(),
            }
        }
        Ok(())
    }

    /// The number of the last turn.
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Calls `each` with all content that it holds: in its zones, in generations, in events and outcomes, and about itself.
    pub fn contents(&self, each: &mut dyn FnMut(&[u8])) {
        let standing = self.zones.iter().flat_map(|zone| [&zone.working, &zone.synced, &zone.head]);
        let earlier = self.generations.values().flat_map(|(_, zones)| zones);
        let mut seen = BTreeSet::new();
        for held in standing.chain(earlier) {
            for content in held.files.values().chain(held.memory.contents()) {
                if seen.insert(Arc::as_ptr(content)) {
                    each(content);
                }
            }
        }
        each(&self.about);
        for turn in &self.history {
            each(&turn.event);
            turn.facts.iter().for_each(|fact| each(fact));
            if let Ok(outcome) = &turn.outcome {
                each(outcome);
            }
        }
        self.interrupted.iter().for_each(|(_, fact)| each(fact));
        if let Some(turn) = &self.turn {
            each(&turn.event);
            turn.facts.iter().for_each(|fact| each(fact));
        }
    }
}
