//! Policies and what they take, pins and what they keep; and reapings that a crash has cut short.

use super::super::model::Reaping;
use super::work::{Goes, Work};
use super::*;

/// What one reaping keeps, of whom.
#[derive(Clone, Debug)]
pub struct Reapings {
    everybody: Reaping,
    /// Somebody of whom it keeps something else.
    one: Option<(String, Reaping)>,
    /// Somebody whom no policy touches.
    spared: Option<String>,
    /// Shared zones that nobody mounts go.
    unmounted: bool,
}

impl Reapings {
    /// What it keeps of an agent, if it touches that.
    fn of(&self, name: &str) -> Option<&Reaping> {
        let own = self.one.as_ref().filter(|(one, _)| one == name).map(|(_, it)| it);
        if self.spared.as_deref() == Some(name) { None } else { own.or(Some(&self.everybody)) }
    }

    fn policy(&self, agents: &Found) -> ReapPolicy {
        let own = self.one.iter().filter_map(|(name, it)| Some((agents.get(name)?.id, it.policy())));
        let spared = self.spared.iter().filter_map(|name| Some(agents.get(name)?.id));
        ReapPolicy {
            keep: self.everybody.policy(),
            agents: own.collect(),
            budget: self.everybody.is_over_budget.then_some(1),
            remove_unmounted: self.unmounted,
            spare: spared.collect(),
        }
    }

    /// What an agent has become that this has reaped.
    fn reaped(&self, name: &str, agent: &ModelAgent, found: Option<&Seen>) -> Result<Candidate, String> {
        let by = self.of(name).map(|by| by.of(agent));
        match (by, found) {
            (Some(by), None) if by.removes => Ok(None),
            (Some(by), Some(_)) if by.removes => Err(format!("{name} was paused, and was not removed")),
            (Some(by), Some(found)) => {
                let after = agent.reaped_to(found, &by, true, |it| it);
                let wanted = |why| format!("{name}, reaped by {by:?}: {why}");
                after.map(Some).map_err(wanted)
            }
            (None, Some(found)) if agent.seen() == *found => Ok(Some(agent.clone())),
            (None, Some(_)) => Err(format!("{name} was spared, and is another")),
            (_, None) => Err(format!("{name} has gone with a reaping that keeps it")),
        }
    }

    /// Does what a crash has cut short again, in a store with these agents. Gives what is there then.
    pub fn again(&self, store: &Store, agents: &Found) -> Result<World, String> {
        let report =
            store.reap(&self.policy(agents), false).map_err(|e| format!("no reaping after one: {e}"))?;
        if !report.damage.is_empty() {
            return Err(format!("a reaping cut short has done damage: {:?}", report.damage));
        }
        let found = World::try_of(store).map_err(|e| format!("it cannot be read after a reaping: {e}"))?;
        for (name, agent) in agents {
            self.reaped(name, agent, found.agents.get(name))?;
        }
        Ok(found)
    }
}

impl Work {
    fn draw_reaping(&mut self) -> Reaping {
        let rng = &mut self.rng;
        let keep = KeepGenerations {
            turns: rng.below(4) as usize,
            sides: rng.below(3) as usize,
            pauses: if rng.one_in(2) { usize::MAX } else { rng.below(3) as usize },
        };
        Reaping {
            keep,
            thins: rng.one_in(4),
            removes: rng.one_in(12),
            versions: rng.one_in(2).then(|| rng.below(3) as usize),
            is_over_budget: false,
        }
    }

    fn draw_reapings(&mut self) -> Reapings {
        let mut everybody = self.draw_reaping();
        everybody.is_over_budget = self.rng.one_in(8);
        let somebody = |work: &mut Self| work.any_agent().0;
        let one = if self.rng.one_in(3) { Some((somebody(self), self.draw_reaping())) } else { None };
        let one = one.map(|(name, it)| (name, Reaping { is_over_budget: everybody.is_over_budget, ..it }));
        let spared = if self.rng.one_in(6) { Some(somebody(self)) } else { None };
        Reapings { everybody, one, spared, unmounted: self.rng.one_in(8) }
    }

    /// Takes what a policy does not keep, and gives back what nothing needs. A crash before it is over may bring
    /// generations back.
    pub fn reap(&mut self) -> Goes {
        let reapings = self.draw_reapings();
        self.steps.push(format!("reap {reapings:?}"));
        let at = self.device.traced();
        for (name, agent) in &self.model {
            if let Some(by) = reapings.of(name) {
                self.timeline.set_reaped(name, at, agent, by.of(agent));
            }
        }
        let is_mounted =
            |team: &Team| self.model.values().any(|it| it.mounts.iter().any(|m| Some(m.zone) == team.id));
        let mut unmounted = Vec::new();
        for (name, team) in self.teams.iter().filter(|(_, team)| reapings.unmounted && !is_mounted(team)) {
            let maybe = self.timeline.team_at(name, at).into_iter().chain([None]).collect();
            self.timeline.set_team(name, at, maybe);
            unmounted.push((name.clone(), team.id.is_some()));
        }
        self.timeline.set_reaping(at, Some(Arc::new(reapings.clone())));
        let was_due = self.begin_to_erase()?;
        let reaped = self.store().reap(&reapings.policy(&self.model), false);
        let at = self.device.traced();
        self.timeline.set_reaping(at, None);
        if self.reads_fail() {
            // what it could not read it keeps; what it has taken is looked up
            let what = reaped.as_ref().map_or_else(ToString::to_string, |it| it.damage.join(", "));
            return self.is_partly_reaped(&what, &reaped, was_due);
        }
        match reaped {
            Ok(report) if report.damage.is_empty() => {
                for (name, _) in unmounted.into_iter().filter(|(_, is_known)| *is_known) {
                    if !report.shared_zones.contains(&name) {
                        return Err(format!("nobody mounts {name}, and it was not removed"));
                    }
                    self.timeline.set_team(&name, at, vec![None]);
                    self.teams.remove(&name);
                }
                self.are_reaped(&reapings)?;
                self.has_ended(&Ok(report), (was_due, was_due), &BTreeSet::new())?;
                Ok(true)
            }
            Ok(report) => Err(format!("a sound store is damaged: {:?}", report.damage)),
            Err(e) => {
                let goes = if e.is_no_space() { Ok(false) } else { self.broken(&e) };
                self.has_ended(&Err(e), (was_due, was_due), &BTreeSet::new())?;
                goes
            }
        }
    }

    /// A read has failed while it was reaped. What is gone is so for good with a checkpoint, which no read fails any
    /// more: one that fails does so once.
    fn is_partly_reaped(
        &mut self,
        what: &str,
        reaped: &Result<ReapReport, StoreError>,
        was_due: bool,
    ) -> Goes {
        self.insist(Store::checkpoint).map_err(|e| format!("no checkpoint after a read failed: {e}"))?;
        // what is given up below was needed when it began
        let needed = forgetting::held(&self.written, &self.model, &self.teams);
        let goes = self.read_failed(what)?;
        self.has_ended(reaped, (was_due, was_due), &needed)?;
        let is_due = self.store().is_purge_due().map_err(|e| e.to_string())?;
        self.timeline.set_due(self.device.traced(), &[is_due]);
        Ok(goes)
    }

    fn are_reaped(&mut self, reapings: &Reapings) -> Result<(), String> {
        let found = self.look()?;
        for (name, agent) in std::mem::take(&mut self.model) {
            let after = reapings.reaped(&name, &agent, found.agents.get(&name))?;
            self.allow(&name, vec![after.clone()]);
            match after {
                Some(agent) => drop(self.model.insert(name, agent)),
                None => drop(self.drafts.remove(&name)),
            }
        }
        Ok(())
    }

    /// Pins a generation, or takes its pin away, or drops it by hand, whatever else the agent is at.
    pub fn pin(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        let before = self.model[&name].clone();
        let at = before.any_generation(&mut self.rng);
        let number = GenerationNumber(at);
        let mut after = before.clone();
        let is_pinned = before.is_pinned(at);
        if let Some(at) = before.any_standing(&mut self.rng).filter(|_| self.rng.one_in(3)) {
            self.steps.push(format!("complete {name}@{at}"));
            after.complete(at);
            self.allow(&name, vec![Some(before.clone()), Some(after.clone())]);
            let made = disk.complete(GenerationNumber(at), b"complete");
            return self.was_kept(&name, before, after, made);
        }
        if self.rng.one_in(4) {
            self.steps.push(format!("drop {name}@{at}"));
            let is_kept = is_pinned || before.is_head(at);
            let is_needed = before.is_needed(at);
            if !is_kept && !is_needed && before.turn.is_none() {
                after.drop_generation(at);
            }
            self.allow(&name, vec![Some(before.clone()), Some(after.clone())]);
            return match self.store().drop_generation(&disk, number) {
                Err(StoreError::GenerationKept { .. }) if is_kept => Ok(true),
                Err(StoreError::GenerationNeeded { .. }) if is_needed => Ok(true),
                Err(StoreError::Busy) if before.turn.is_some() => Ok(true),
                made => self.was_kept(&name, before, after, made),
            };
        }
        // mostly it stays pinned for a while
        let pinned = !is_pinned || !self.rng.one_in(3);
        self.steps.push(format!("{} {name}@{at}", if pinned { "pin" } else { "unpin" }));
        after.pin(at, pinned);
        self.allow(&name, vec![Some(before.clone()), Some(after.clone())]);
        match disk.pin(number, pinned) {
            Ok(is_new) if is_new == (pinned == is_pinned) => Err(format!("a pin of {name}@{at}: {is_new}")),
            made => self.was_kept(&name, before, after, made.map(drop)),
        }
    }

    fn was_kept(
        &mut self,
        name: &str,
        before: ModelAgent,
        after: ModelAgent,
        made: Result<(), StoreError>,
    ) -> Goes {
        match made {
            Ok(()) => {
                self.allow(name, vec![Some(after.clone())]);
                self.model.insert(name.to_owned(), after);
                Ok(true)
            }
            Err(e) if e.is_no_space() => {
                self.allow(name, vec![Some(before)]);
                self.device.heal_space();
                Ok(true)
            }
            Err(e) => self.broken(&e),
        }
    }
}
