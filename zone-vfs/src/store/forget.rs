//! Forgetting: content is erased from a zone, from all that its agent keeps of it, and from the store's files.
//!
//! 1. One commit erases the content in the zone, says so ([`Entry::Forgot`]), and makes a generation of what stands
//!    then. With it the generations that may hold the content are dropped. A crash before has forgotten
//!    nothing; after it, nothing that reads through the store finds the content in this agent.
//! 2. The purge erases what nothing needs from the store's files: the log goes on in another file, a checkpoint
//!    frees those before, every segment in which anything is not needed is written anew, and what is freed is
//!    overwritten. That it is due is known from the log, and then from the catalogue, until it is done: it can be
//!    repeated, and every reaping does it where it is due.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::disk::Disk;
use super::entry::{Entry, Payload};
use super::open::NOBODY;
use super::policy::ReapPolicy;
use super::reap::ReapReport;
use super::state::TurnRecord;
#[cfg(test)]
use super::tests::{self, Mistake};
use super::{NewGeneration, Shared, Store, StoreError, wait};
use crate::contract::Principal;
use crate::id::{Epoch, GenerationNumber, Inode, Sequence, Timestamp, Turn, Version};
use crate::log::Record;
use crate::zone::{Access, Cause, ContentIds, ErrorCode, ZoneError, ZoneRoot};

/// What an operator has forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forget {
    /// The zone; not one that is shared.
    pub zone: u16,
    /// The files: as they are now, or as they were in a generation.
    pub files: Vec<Inode>,
    /// Single versions of files, which stay with their other versions.
    pub versions: Vec<(Inode, Version)>,
    /// Also the events and outcomes of the turns from this one to that one.
    pub turns: Option<(Turn, Turn)>,
}

/// What was forgotten, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgot {
    /// What identified the content, and how much it was.
    pub content: ContentIds,
    /// The generations that may have held it, and are dropped.
    pub generations: Vec<GenerationNumber>,
    /// How many turns have lost their event and outcome.
    pub turns: u64,
    /// Nothing of it is left: it was forgotten before. Then no generation is dropped.
    pub is_done: bool,
    /// The generation at which the agent then stands. None where nothing was done.
    pub made: Option<GenerationNumber>,
}

/// Whether the store's files may hold what was forgotten: how often something was, and how often of that all was
/// erased.
#[derive(Debug, Default)]
pub(super) struct PurgeDue {
    wanted: AtomicU64,
    done: AtomicU64,
}

impl PurgeDue {
    pub fn new(is_due: bool) -> Self {
        Self { wanted: AtomicU64::new(is_due.into()), done: AtomicU64::new(0) }
    }

    pub fn want(&self) {
        self.wanted.fetch_add(1, Ordering::AcqRel);
    }

    pub fn is_due(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > self.done.load(Ordering::Acquire)
    }
}

/// Ends with whoever purges, however that goes: what the log frees is not overwritten any more.
pub(super) struct Wiping<'a>(pub &'a Shared);

impl Drop for Wiping<'_> {
    fn drop(&mut self) {
        self.0.log.set_wiping(false);
    }
}

impl Disk {
    /// What [`forget`](Self::forget) would do now.
    pub fn would_forget(&self, what: &Forget) -> Result<Forgot, StoreError> {
        let access = Access::new(Principal::Host, Timestamp::now());
        let named = || what.files.iter().chain(what.versions.iter().map(|(file, _)| file));
        let may = self.zone(what.zone, |zone| named().try_for_each(|file| zone.may_forget(access, *file)));
        may.unwrap_or(Ok(()))?;
        let (head, mut generations, stands_on, chunks, history) = {
            let inner = self.lock();
            let state = &inner.state;
            let index = usize::from(what.zone);
            let spec = state.specs.get(index).ok_or(StoreError::NoZone { index: what.zone })?;
            if spec.shared.is_some() {
                return Err(StoreError::NoPast { zone: spec.name.clone() });
            }
            let head = state.zones[index].head.clone();
            let generations: Vec<(GenerationNumber, ZoneRoot)> = state
                .generations
                .values()
                .filter_map(|it| Some((it.number, it.roots.get(index)?.clone())))
                .collect();
            let stands = state.generations.values().filter_map(|it| Some((it.number, it.on?)));
            let stands: Vec<_> = stands.collect();
            (head, generations, stands, state.chunks.clone(), state.history.clone())
        };
        let mut found = Forgot::default();
        // content has the number of the first version that had it
        let mut numbers = what.files.clone();
        let mut is_left = false;
        for (file, version) in &what.versions {
            match head.content_of_version(*file, *version, &chunks, &mut found.content)? {
                Some(content) => {
                    is_left = true;
                    numbers.push(content.inode());
                }
                None if head.is_forgotten(*file, *version, &chunks)? => {}
                None => {
                    let cause = Some(Cause::NoVersion(*version));
                    return Err(ZoneError { code: ErrorCode::NoEntry, cause }.into());
                }
            }
        }
        generations.retain(|(_, root)| numbers.iter().any(|file| root.has_given(*file)));
        for file in &what.files {
            let mut is_counted = false;
            // the newest first: that is what is told
            for root in std::iter::once(&head).chain(generations.iter().rev().map(|(_, root)| root)) {
                let mut content = ContentIds::default();
                if !root.content_of(*file, &chunks, &mut content)? {
                    continue;
                }
                is_left = is_left || root.holds(*file, &chunks)?;
                found.content.join(&content);
                if !std::mem::replace(&mut is_counted, true) {
                    found.content.contents += content.contents;
                    found.content.bytes += content.bytes;
                }
            }
            if !is_counted {
                return Err(StoreError::Zone(ErrorCode::NoEntry.into()));
            }
        }
        if let Some((first, last)) = what.turns {
            let after = Turn(first.0.saturating_sub(1));
            let turns = history.read(after, usize::MAX, &*chunks)?;
            let is_blank = |turn: &TurnRecord| turn.event == Payload::Inline(Vec::new());
            found.turns = turns.iter().filter(|it| it.turn <= last && !is_blank(it)).count() as u64;
        }
        if !is_left && found.turns == 0 {
            return Ok(Forgot { is_done: true, ..Forgot::default() });
        }
        let mut dropped: BTreeSet<_> = generations.into_iter().map(|(number, _)| number).collect();
        // and with them what is of no use without, which comes later
        for (number, on) in stands_on {
            if dropped.contains(&on) {
                dropped.insert(number);
            }
        }
        found.generations = dropped.into_iter().collect();
        Ok(found)
    }

    /// Erases the content of files from a zone, with all their versions, and drops the generations that may hold
    /// it: all that were made since a file had its number, whatever keeps them otherwise. `generation` is made of
    /// what stands then. Between turns, and nobody else works on the disk meanwhile; nobody reads the dropped
    /// generations, or the purge cannot erase them. Durable when it returns; [`Store::purge`] is to follow.
    ///
    /// Either all is forgotten or nothing. What was written to the agent's zones before and not committed is
    /// committed with it, or thrown away with it.
    pub fn forget(self: &Arc<Self>, what: &Forget, generation: &NewGeneration) -> Result<Forgot, StoreError> {
        self.lock_given().idle()?;
        let mut found = self.would_forget(what)?;
        if found.is_done {
            return Ok(found);
        }
        let access = Access::new(Principal::Host, Timestamp::now());
        // those of versions are content's, which is gone when all are erased
        let mut numbers = what.files.clone();
        for (file, version) in &what.versions {
            let erased = self.zone(what.zone, |zone| {
                let content = zone.content_of_version(*file, *version)?;
                zone.forget_version(access, *file, *version).map(|_| content)
            });
            match erased.ok_or(StoreError::NoZone { index: what.zone })? {
                Ok(content) => numbers.push(content.inode()),
                // another that was named had the same content
                Err(e) if e.code == ErrorCode::NoEntry => {}
                Err(e) => {
                    self.abandon()?;
                    return Err(e.into());
                }
            }
        }
        for file in &what.files {
            let erased = self.zone(what.zone, |zone| zone.forget(access, *file));
            match erased.ok_or(StoreError::NoZone { index: what.zone })? {
                Ok(_) => {}
                // only earlier generations have it
                Err(e) if e.code == ErrorCode::NoEntry => {}
                Err(e) => {
                    self.abandon()?;
                    return Err(e.into());
                }
            }
        }
        // no payload is on its way between turns, and those of turns that are forgotten must not be held
        self.lock().held.clear();
        let about = match self.stored(&generation.about) {
            Ok(about) => about,
            Err(e) => {
                self.abandon()?;
                return Err(e);
            }
        };
        let (cause, at) = (generation.cause.clone(), Timestamp::now());
        let (zone, files, mut turns) = (what.zone, numbers, what.turns);
        #[cfg(test)]
        let mut turns = turns.take_if(|_| !tests::makes(Mistake::TurnsAreRemembered));
        let control = move |inner: &super::disk::Inner| {
            inner.idle()?;
            let mut control = vec![Entry::Operated { at }];
            control.extend(files.iter().map(|file| Entry::Forgot { zone, file: *file, turns: turns.take() }));
            let number = inner.state.next_generation;
            control.push(Entry::Generation { number, cause, about, at });
            Ok(control)
        };
        match wait(|done| self.commit(Box::new(control), done)) {
            Ok(made) => found.made = Some(made),
            Err(e) => {
                self.abandon()?;
                return Err(e);
            }
        }
        Ok(found)
    }
}

impl Store {
    /// Whether the store's files may still hold something that was forgotten.
    pub fn is_purge_due(&self) -> Result<bool, StoreError> {
        Ok(self.shared()?.purge.is_due())
    }

    /// Erases everything from the store's files that nothing needs, and so what was forgotten. Works beside
    /// live agents. Costs as much as all segments in which anything is not needed have.
    ///
    /// It is not done, and [due](Self::is_purge_due) as before, where [`ReapReport::is_purged`] is false: something
    /// does not read, so that what is needed cannot be known or kept, or the disk is too full.
    pub fn purge(&self) -> Result<ReapReport, StoreError> {
        self.reap_and(&ReapPolicy::default(), false, true)
    }
}

impl Shared {
    /// Has the log go on in another file, so that the next checkpoint frees all that hold what was forgotten so
    /// far. Gives up to which forget that is.
    pub(super) fn begin_purge(&self) -> Result<u64, StoreError> {
        let wanted = self.purge.wanted.load(Ordering::Acquire);
        {
            // while no checkpoint frees files: what is freed from here on is overwritten then
            let _alone = self.superblock.lock().unwrap_or_else(PoisonError::into_inner);
            self.log.set_wiping(true);
            // the file that the log goes on in may be one of these
            self.log.wipe_spare().map_err(|e| self.log_failed(e))?;
        }
        self.log.turn_over();
        self.log.commit(Record {
            agent: NOBODY,
            epoch: Epoch(0),
            sequence: Sequence(0),
            needs: Vec::new(),
            body: Vec::new(),
        })?;
        Ok(wanted)
    }

    /// Notes that the purge is done, if the segments are.
    pub(super) fn end_purge(
        self: &Arc<Self>,
        wanted: u64,
        report: &mut ReapReport,
    ) -> Result<(), StoreError> {
        let segments = &report.swept;
        let left = segments.damaged_segments + segments.held_segments;
        if report.damage.is_empty() && left == 0 && !segments.out_of_space {
            self.purge.done.fetch_max(wanted, Ordering::AcqRel);
            // what this one leaves unneeded was written after everything was forgotten
            self.checkpoint()?;
            report.is_purged = true;
        }
        Ok(())
    }
}
