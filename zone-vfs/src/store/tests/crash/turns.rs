//! The turns of agents: what they write, what becomes durable, and what is refused.

use super::super::changes::{self, Failed, ZoneChange};
use super::super::commits::Commit;
use super::work::{Goes, Work};
use super::*;

impl Work {
    /// An operation has failed for another reason than want of space: nothing more is taken.
    pub(super) fn broken(&mut self, what: &StoreError) -> Goes {
        if !matches!(self.trouble, Trouble::Fails(_)) {
            return Err(format!("it failed: {what}"));
        }
        if self.reads_fail() {
            return self.read_failed(&what.to_string());
        }
        for (name, id) in self.store().agents().map_err(|e| e.to_string())? {
            let disk = self.store().disk(id).map_err(|e| format!("{name} cannot be read: {e}"))?;
            if disk.abandon().is_ok() && sync(&disk).is_ok() {
                return Err(format!("{name} committed to a store that is poisoned: {what}"));
            }
        }
        Ok(false)
    }

    /// A read has failed, once. Whoever met it gives up what is not durable, and nothing else is harmed.
    pub(super) fn read_failed(&mut self, what: &str) -> Goes {
        self.steps.push(format!("a read failed: {what}"));
        self.drafts.clear();
        for (name, id) in self.insist(Store::agents).map_err(|e| e.to_string())? {
            let disk = self.insist(|store| store.disk(id)).map_err(|e| format!("{name}: {e}"))?;
            disk.abandon().map_err(|e| format!("{name}: {e}"))?;
        }
        let (found, at) = (self.look()?, self.device.traced());
        let (model, teams) = self.timeline.explain(&found, at)?;
        for (name, agent) in &model {
            self.timeline.set(name, at, vec![Some(agent.clone())]);
        }
        // a removal is durable before anybody sees it
        for name in self.model.keys().filter(|name| !model.contains_key(*name)) {
            self.timeline.set(name, at, vec![None]);
        }
        for name in self.teams.keys().filter(|name| !teams.contains_key(*name)) {
            self.timeline.set_team(name, at, vec![None]);
        }
        (self.model, self.teams) = (model, teams);
        Ok(true)
    }

    pub(super) fn begin(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        let style = if self.rng.one_in(3) { TurnStyle::Process } else { TurnStyle::Transaction };
        if self.model[&name].turn.is_some() {
            return Ok(true);
        }
        self.steps.push(format!("begin {name} {style:?}"));
        let len = if self.rng.one_in(6) { 17_000 } else { 60 };
        let event = self.new_content(len);
        let fact_len = if self.rng.one_in(8) { 9_000 } else { 40 };
        let fact = self.new_content(fact_len);
        match disk.begin(style, &event).and_then(|_| disk.fact(&fact)) {
            Ok(()) => {
                let model = self.model.get_mut(&name).unwrap();
                model.begin(style, &event);
                model.fact(&fact);
                Ok(true)
            }
            Err(e) if e.is_no_space() => Ok(false),
            Err(e) => self.broken(&e),
        }
    }

    pub(super) fn abandon(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        self.steps.push(format!("abandon {name}"));
        disk.abandon().map_err(|e| format!("{name}: {e}"))?;
        self.drafts.remove(&name);
        self.model.get_mut(&name).unwrap().interrupt();
        Ok(true)
    }

    pub(super) fn write(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        let zone = self.rng.below(KINDS.len() as u64) as u16;
        let content = self.fresh();
        let kind = KINDS[usize::from(zone)];
        let files = self.model[&name].files(zone);
        let Some(change) = ZoneChange::draw(&mut self.rng, kind, files, content) else {
            return Ok(true);
        };
        let drafted = self.drafts.get(&name).filter(|_| zone == SEMANTIC);
        if drafted.is_some_and(|draft| change.touches(&draft.path)) && !self.close_draft(&name, &disk)? {
            return Ok(false);
        }
        let agent = self.model.get_mut(&name).unwrap();
        self.steps.push(format!("{name} {zone}: {change}"));
        let made = changes::change(&disk, agent, zone, &change);
        if matches!(made, Err(Failed::Refused(_))) && change.is_one_operation() {
            let left = try_read_standing(&disk, zone)
                .map(|it| it.or_else(|e| try_read_standing(&disk, zone).unwrap_or(Err(e))));
            if left.transpose().map_err(|e| e.to_string())?.as_ref() != Some(self.model[&name].files(zone)) {
                return Err(format!("{name}: {change} failed, and is half done"));
            }
        }
        self.did(&name, &change.to_string(), made)
    }

    /// Commits of one agent or, sharing groups of the log, of several.
    pub(super) fn commit(&mut self) -> Goes {
        let several = self.trouble == Trouble::None && self.rng.one_in(3);
        let mut chosen = BTreeMap::new();
        for _ in 0..if several { 3 } else { 1 } {
            let (name, disk) = self.any_agent();
            let bytes = self.new_content(40);
            let commit = Commit::draw(&mut self.rng, &self.model[&name], &bytes);
            if commit.ends_turn() && self.model[&name].is_process() {
                // a process leaves no draft behind; here it is known what becomes of them
                if !self.close_draft(&name, &disk)? || !self.tidy(&name, &disk)? {
                    return Ok(false);
                }
            }
            chosen.entry(name).or_insert((disk, commit));
        }
        if chosen.len() > 1 {
            self.device.hold("log/");
        }
        let mut waiting = Vec::new();
        for (name, (disk, commit)) in &chosen {
            self.steps.push(format!("{name} {commit:?}").chars().take(60).collect());
            let before = self.model[name].clone();
            let mut after = before.clone();
            commit.apply(&mut after);
            let begun = before.clone().only_begun();
            self.allow(name, vec![Some(before), Some(after.clone()), Some(begun)]);
            let result = commit.start(disk);
            if waiting.is_empty() && chosen.len() > 1 {
                // the others are queued behind the first, and then go together
                self.device.wait_for_held();
            }
            waiting.push((name.clone(), disk.clone(), commit.clone(), after, result));
        }
        self.device.release();
        let mut goes = Ok(true);
        for (name, disk, commit, after, result) in waiting {
            match result.recv().map_err(|e| e.to_string())? {
                Ok(()) => {
                    self.allow(&name, vec![Some(after.clone())]);
                    self.settled(&name, &commit, after);
                }
                Err(e) if e.is_no_space() => goes = self.refused(&name, &disk, &commit, after),
                Err(e) => goes = self.broken(&e),
            }
        }
        goes
    }

    /// A commit is durable.
    pub(super) fn settled(&mut self, name: &str, commit: &Commit, after: ModelAgent) {
        if commit.closes_files() {
            self.drafts.remove(name);
        }
        self.model.insert(name.to_owned(), after);
    }

    /// A full disk has refused a commit: it is made again when there is room, or given up.
    pub(super) fn refused(
        &mut self,
        name: &str,
        disk: &Arc<Disk>,
        commit: &Commit,
        after: ModelAgent,
    ) -> Goes {
        let mut before = self.model[name].clone();
        self.allow(name, vec![Some(before.clone()), Some(before.clone().only_begun())]);
        self.device.heal_space();
        self.steps.push(format!("{name} was refused"));
        if self.rng.one_in(2) {
            self.allow(name, vec![Some(before.clone()), Some(before.only_begun()), Some(after.clone())]);
            let again = commit.start(disk).recv().map_err(|e| e.to_string())?;
            again.map_err(|e| format!("{name} does not commit with space: {e}"))?;
            self.allow(name, vec![Some(after.clone())]);
            self.settled(name, commit, after);
            return Ok(true);
        }
        // some records of the commit may be in the log, with the beginning of its turn
        let last_turn = disk.info().map_err(|e| e.to_string())?.last_turn;
        if before.turn.is_some() && before.clone().only_begun().seen().last_turn == last_turn.0 {
            before = before.only_begun();
        }
        disk.abandon().map_err(|e| format!("{name}: {e}"))?;
        self.drafts.remove(name);
        before.interrupt();
        self.allow(name, vec![Some(before.clone())]);
        self.model.insert(name.to_owned(), before);
        Ok(true)
    }
}
