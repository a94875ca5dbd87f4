//! What the operator has forgotten, files and turns, is in no byte of the store's files once that is said.

use super::super::forget::{number_now, try_number};
use super::super::model::Forgetting;
use super::super::needles::{Needle, Needles};
use super::super::versions;
use super::work::{Goes, Work};
use super::*;
use crate::id::Turn;
use crate::zone::ErrorCode;

/// What of all that was written is held: by agents, by shared zones.
pub fn held(written: &Needles, agents: &Found, teams: &Teams) -> BTreeSet<Needle> {
    written.found(|each| {
        for agent in agents.values() {
            agent.contents(each);
        }
        for content in teams.values().flat_map(|team| team.files.values()) {
            each(content);
        }
    })
}

/// Erases what is to be erased from a store that a crash has left; nothing but what is held is in any file then.
pub fn erases(
    device: &Simulated,
    store: &Store,
    written: &Needles,
    (agents, teams): (&Found, &Teams),
) -> Result<(), String> {
    let report = store.purge().map_err(|e| format!("it cannot be purged: {e}"))?;
    if !report.is_purged {
        return Err(format!("it is not purged: {report:?}"));
    }
    let erased = written.without(&held(written, agents, teams));
    let found = erased.found_on(device);
    if found.is_empty() { Ok(()) } else { Err(format!("what nothing needs is in {found:?}")) }
}

impl Work {
    /// Has an agent forget a file as it is, or as it was in a generation, in a zone of any kind, and some of its
    /// turns.
    pub fn forget(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        if !self.close_draft(&name, &disk)? {
            return Ok(false);
        }
        let zone = self.rng.below(KINDS.len() as u64) as u16;
        let path = format!("{}f{}", if self.rng.one_in(4) { "d0/" } else { "" }, self.rng.below(3));
        let file = match try_number(&disk, zone, &path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(true),
            Err(e) => return self.broken(&e),
        };
        let before = self.model[&name].clone();
        // one that was found in a generation can have another name by now
        let mut now = None;
        for other in before.names(zone) {
            match number_now(&disk, zone, &other) {
                Ok(number) if number == Some(file) => now = Some(other),
                Ok(_) => {}
                Err(e) => return self.broken(&e),
            }
        }
        let turns = (before.last_turn() > 0 && self.rng.one_in(2)).then(|| {
            let last = 1 + self.rng.below(before.last_turn());
            (1 + self.rng.below(last), last)
        });
        self.steps.push(format!("{name} forgets {path} ({file}) in {zone}, and turns {turns:?}"));
        // all that were made since it had its number
        let may_hold = |it: &Generation| it.roots[usize::from(zone)].has_given(file);
        let mut dropped: Vec<u64> = Vec::new();
        for it in disk.generations() {
            // and what is of no use without one of those
            if may_hold(&it) || it.on.is_some_and(|on| dropped.contains(&on.0)) {
                dropped.push(it.number.0);
            }
        }
        let what = Forget {
            zone,
            files: vec![file],
            versions: Vec::new(),
            turns: turns.map(|(a, b)| (Turn(a), Turn(b))),
        };
        let operated = NewGeneration { cause: Cause::Operated, about: b"forgot".to_vec(), on: None };
        let forgetting = Forgetting { zone, file, name: now, dropped: dropped.clone(), turns };
        let at = self.device.traced();
        let due = self.timeline.due_at(at);
        self.timeline.set_due(at, &[&[true], due.as_slice()].concat());
        self.timeline.set_forgetting(&name, at, &before, forgetting.clone());
        let made = disk.forget(&what, &operated);
        if made.is_err() && !matches!(self.trouble, Trouble::Fails(Fault::Write(_) | Fault::Flush(_))) {
            // all or nothing; only what was written and not flushed may be either
            let at = self.device.traced();
            self.timeline.set_due(at, &due);
            self.allow(&name, vec![Some(before.clone())]);
        }
        match made {
            Err(StoreError::Busy) if before.turn.is_some() => Ok(true),
            // it was written lately, and no commit has it
            Err(StoreError::Zone(e)) if e.code == ErrorCode::NoEntry && !before.is_clean() => Ok(true),
            Ok(forgot) => {
                let told: Vec<u64> = forgot.generations.iter().map(|it| it.0).collect();
                if told != dropped {
                    return Err(format!("{name} told of {told:?}, which is {dropped:?}"));
                }
                let read = || disk.zone(SEMANTIC, |zone| versions::try_read_past(zone)).transpose();
                let past = read().or_else(|e| if self.reads_fail() { read() } else { Err(e) });
                let past = past.map_err(|e| format!("{name} cannot be read: {e}"))?;
                let mut after = before;
                after.forget(&forgetting, &Arc::new(past.unwrap_or_default()))?;
                self.allow(&name, vec![Some(after.clone())]);
                self.model.insert(name, after);
                self.timeline.set_due(self.device.traced(), &[true]);
                if self.rng.one_in(2) { self.erase() } else { Ok(true) }
            }
            Err(e) if e.is_no_space() => {
                // all or nothing: what was written before and not committed is given up with it
                let mut before = before;
                before.interrupt();
                self.drafts.remove(&name);
                self.allow(&name, vec![Some(before.clone())]);
                self.model.insert(name, before);
                self.device.heal_space();
                Ok(true)
            }
            Err(e) => self.broken(&e),
        }
    }

    /// Erases what was forgotten from the store's files.
    pub fn erase(&mut self) -> Goes {
        self.steps.push("purge".into());
        let was_due = self.begin_to_erase()?;
        let purged = self.store().purge();
        self.has_ended(&purged, (was_due, true), &BTreeSet::new())?;
        match purged {
            Ok(report) if report.damage.is_empty() || self.reads_fail() => Ok(true),
            Ok(report) => Err(format!("a sound store is damaged: {:?}", report.damage)),
            Err(e) if e.is_no_space() => Ok(false),
            Err(e) => self.broken(&e),
        }
    }

    fn is_due(&self) -> Result<bool, String> {
        self.store().is_purge_due().map_err(|e| e.to_string())
    }

    /// What is to be erased may be from here on. Gives whether anything is.
    pub(super) fn begin_to_erase(&mut self) -> Result<bool, String> {
        // the committer holds an agent that was removed for a moment more
        let_go(self.store());
        let at = self.device.traced();
        if self.timeline.may_be_due(true, at) {
            self.timeline.set_due(at, &[true, false]);
        }
        self.is_due()
    }

    /// A reaping that `erases` is over, or has failed: what does a crash find of what has to be erased, if anything
    /// `was_due`? What is `needed` was, when it began.
    pub(super) fn has_ended(
        &mut self,
        reaped: &Result<ReapReport, StoreError>,
        (was_due, erases): (bool, bool),
        needed: &BTreeSet<Needle>,
    ) -> Result<(), String> {
        let (at, is_due) = (self.device.traced(), self.is_due()?);
        match reaped {
            Ok(report) if report.is_purged && erases => return self.is_erased(needed),
            Ok(report) if erases => {
                let is_hindered = report.swept.out_of_space || self.reads_fail();
                if is_due != was_due || !is_hindered {
                    return Err(format!("it was not purged, and is due {is_due}: {report:?}"));
                }
                self.timeline.set_due(at, &[is_due]);
            }
            // with its checkpoint
            Ok(_) => self.timeline.set_due(at, &[is_due]),
            // where it is over in memory alone, both may be
            Err(_) if is_due => self.timeline.set_due(at, &[true]),
            Err(_) => {}
        }
        Ok(())
    }

    /// It was erased: nothing but what is held is in any file.
    fn is_erased(&mut self, needed: &BTreeSet<Needle>) -> Result<(), String> {
        if self.is_due()? {
            return Err("it was purged, and is due".into());
        }
        let at = self.device.traced();
        self.timeline.set_due(at, &[false]);
        let held = held(&self.written, &self.model, &self.teams);
        let erased = self.written.without(&held.union(needed).copied().collect());
        // whatever the device fails to read
        let found = erased.found_on(&self.device.killed());
        if !found.is_empty() {
            return Err(format!("what nothing needs is in {found:?}"));
        }
        self.timeline.set_erased(at, erased);
        Ok(())
    }
}
