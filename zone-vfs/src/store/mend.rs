//! Making a store that does not open one that does, without what is lost.
//!
//! Everything hangs on three things: the superblock, the catalogue that it names, and the log behind that. Where one
//! of them does not read, what is nearest takes its place: the other slot, the newest catalogue that is found in the
//! segments, and of the log all groups that read. Agents then stand where their last record fits to all before it; what
//! is known to be lost behind that is told, and where it cannot be known, that is told too.
//!
//! The files that held it are moved to `quarantine/`, and a log without records is begun behind a new catalogue. A crash
//! on the way leaves the store as it was, or mended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::agents::{Agents, Slot};
use super::catalogue::{self, Catalogue, CatalogueZone, Frozen, StoredAgent};
use super::damaged::Damaged;
use super::entry::{self, Entry, Role};
use super::recovery::{self, Fit, Recovery};
use super::scrub::Finding;
use super::shared::SharedId;
use super::state::State;
use super::{Store, StoreError, StoreOptions, open};
use crate::device::{BLOCK, Caching, Device};
use crate::id::{AgentId, Epoch, Hash, Sequence, Turn};
use crate::log::{LogPosition, Record, Salvage};
use crate::quarantine;
use crate::segment::{SegmentError, SegmentOptions, Segments};
use crate::superblock::{self, Superblock, SuperblockFile};

/// Catalogues that are looked at, where nothing names the newest.
const MAX_ROOTS: usize = 64;
/// How far the epochs of agents are raised: what is lost was written in some that nobody knows, and none of them is
/// used again.
const EPOCH_LEAP: u64 = 1 << 20;

impl Store {
    /// Makes the store in `folder`, which [does not open](StoreError::is_mendable), one that does, and tells `report`
    /// what is lost, or may be. Nothing is deleted: the files that are given up are in `quarantine/` afterwards.
    /// What is damaged beside that is not looked for; [`scrub`](Self::scrub) finds it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoStore`] and [`StoreError::Locked`]; where the tenant's key does not read, without which
    /// nothing does; where a newer version has written something; and where the disk or the process lacks something.
    /// Nothing was changed then.
    pub fn mend(
        folder: &Path,
        options: &StoreOptions,
        report: &mut dyn FnMut(&Finding),
    ) -> Result<(), StoreError> {
        let options = StoreOptions { create: false, ..*options };
        let (_lock, device) = open::enter(folder, &options)?;
        Self::mend_device(&device, &options, report)
    }

    /// As [`mend`](Self::mend), of the store on a device that nobody has open.
    pub fn mend_device(
        device: &Arc<dyn Device>,
        options: &StoreOptions,
        report: &mut dyn FnMut(&Finding),
    ) -> Result<(), StoreError> {
        let key = open::read_key(&**device)?;
        let slots = SuperblockFile::slots(&**device)?;
        let salvage = Salvage::survey(&**device)?;
        let segments = open_segments(device, key, options, report)?;
        let mut mending = Mending { segments, salvage, torn: BTreeMap::new(), report };
        mending.tell_of_slots(&**device, &slots)?;
        let base = mending.base(&slots)?;
        let (states, agents, purge) = mending.recover(base)?;
        mending.tell_of_torn(&states);
        let catalogue = mending.write(states, agents, purge)?;
        let known = slots.iter().map(|it| it.log);
        let log = mending.salvage.begin_anew(&**device, known)?;
        keep_superblock(&**device)?;
        SuperblockFile::replace(&**device, slots.first(), catalogue, log)?;
        let failed = |source| StoreError::Io { what: "setting the old log aside".into(), source };
        let mut aside = Vec::new();
        for path in mending.salvage.paths() {
            aside.push(quarantine::set_aside(&**device, path).map_err(failed)?);
        }
        if !aside.is_empty() {
            let what = format!("the log begins anew; what it was is in {}", aside.join(", "));
            mending.found(&Finding::Repaired { what });
        }
        Ok(())
    }
}

/// Opens the segments; a file that cannot be one is set aside.
fn open_segments(
    device: &Arc<dyn Device>,
    key: [u8; 32],
    options: &StoreOptions,
    report: &mut dyn FnMut(&Finding),
) -> Result<Arc<Segments>, StoreError> {
    loop {
        let asked =
            SegmentOptions { cache: options.cache, nodes: options.nodes, ..SegmentOptions::default() };
        #[cfg(test)]
        let asked = super::tests::segment_options(asked);
        match Segments::open(device.clone(), key, asked) {
            Ok(segments) => return Ok(Arc::new(segments)),
            Err(SegmentError::Damaged { file, reason }) => {
                let failed = |source| StoreError::Io { what: format!("setting {file} aside"), source };
                let name = quarantine::set_aside(&**device, &file).map_err(failed)?;
                report(&Finding::Segment { file, reason });
                report(&Finding::Repaired { what: format!("it is {name} now") });
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A copy of a superblock that does not read, beside the log that goes with it.
fn keep_superblock(device: &dyn Device) -> Result<(), StoreError> {
    let copy = || {
        if !device.list("")?.iter().any(|name| name == superblock::FILE) {
            return Ok(());
        }
        let file = device.open(superblock::FILE, Caching::Cached)?;
        let mut bytes = vec![0; file.len()?.min(2 * BLOCK as u64) as usize];
        if file.read_at(0, &mut bytes).is_err() {
            // there is nothing to keep of it
            return Ok(());
        }
        let kept = device.create(&quarantine::free_name(device, superblock::FILE)?, 0, Caching::Cached)?;
        kept.write_at(0, &bytes)?;
        kept.flush()
    };
    copy().map_err(|source| StoreError::Io { what: "keeping the old superblock".into(), source })
}

/// Where a recovery begins.
struct Base {
    catalogue: Option<Catalogue>,
    /// The group before which the catalogue has everything.
    group: u64,
}

/// An agent of which records are lost.
struct Torn {
    name: Option<String>,
    /// The last record that counts.
    at: Sequence,
    /// The first and the last record behind that of which anything is known.
    found: (Sequence, Sequence),
    epoch: Epoch,
    /// The first and the last turn that these tell of.
    turns: Option<(Turn, Turn)>,
    /// The last turn that counts.
    stands: Turn,
}

struct Mending<'a> {
    segments: Arc<Segments>,
    salvage: Salvage,
    torn: BTreeMap<AgentId, Torn>,
    report: &'a mut dyn FnMut(&Finding),
}

impl Mending<'_> {
    fn found(&mut self, finding: &Finding) {
        (self.report)(finding);
    }

    fn lost(&mut self, what: String) {
        self.found(&Finding::Lost { what });
    }

    fn tell_of_slots(&mut self, device: &dyn Device, slots: &[Superblock]) -> Result<(), StoreError> {
        let listed = device.list("");
        let names =
            listed.map_err(|source| StoreError::Io { what: "reading the store's folder".into(), source })?;
        let reason = match slots.len() {
            0 if !names.iter().any(|name| name == superblock::FILE) => "it is gone",
            0 => "neither slot reads",
            1 => "one of its slots does not read",
            _ => return Ok(()),
        };
        self.found(&Finding::Superblock { reason: reason.into() });
        if slots.is_empty() {
            self.lost(
                "which store this is: it is another one from here on, and backups go on from none before"
                    .into(),
            );
        }
        Ok(())
    }

    /// The newest catalogue that reads, and from where on the log counts. An agent whose state does not read there is
    /// taken as the newest other catalogue has it.
    fn base(&mut self, slots: &[Superblock]) -> Result<Base, StoreError> {
        // each with the group before which it has everything, as far as a slot says
        let mut lists: Vec<(Catalogue, u64)> = Vec::new();
        let mut is_newest = slots.len() == 2;
        for slot in slots {
            let Some(hash) = &slot.catalogue else { continue };
            match recovery::read_catalogue(&self.segments, hash) {
                Ok(list) => lists.push((list, slot.log.group)),
                Err(e) if e.is_of_one_agent() => {
                    is_newest &= !lists.is_empty();
                    self.found(&Finding::Superblock { reason: format!("the list of agents: {e}") });
                }
                Err(e) => return Err(e),
            }
        }
        if !is_newest {
            for hash in self.segments.roots(MAX_ROOTS)? {
                match catalogue::read(&*self.segments, &hash) {
                    Ok(list) => lists.push((list, 0)),
                    Err(e) if e.is_of_one_agent() => {}
                    Err(e) => return Err(e),
                }
            }
            self.lost(
                "the newest list of agents, or it may be: agents that were made since the one that is used are there \
                 only if the log has their first record"
                    .into(),
            );
        }
        let mut newest = 0;
        for at in 1..lists.len() {
            if is_newer(&lists[at].0, &lists[newest].0) {
                newest = at;
            }
        }
        if lists.is_empty() {
            return Ok(Base { catalogue: None, group: 1 });
        }
        let (mut list, known) = lists.swap_remove(newest);
        let mut group = self.group_of(&list, known)?;
        let listed = list.agents.iter_mut().chain(list.shared.iter_mut().map(|it| &mut it.stored));
        for agent in listed {
            if self.reads(agent)? {
                continue;
            }
            let mut best: Option<(&StoredAgent, usize)> = None;
            for (at, (other, _)) in lists.iter().enumerate() {
                let mut all = other.agents.iter().chain(other.shared.iter().map(|it| &it.stored));
                let Some(found) = all.find(|it| it.id == agent.id) else { continue };
                let is_better = best.is_none_or(|(best, _)| found.sequence > best.sequence);
                if is_better && self.reads(found)? {
                    best = Some((found, at));
                }
            }
            if let Some((found, at)) = best {
                group = group.min(self.group_of(&lists[at].0, lists[at].1)?);
                *agent = StoredAgent { name: agent.name.clone(), ..found.clone() };
            }
        }
        Ok(Base { catalogue: Some(list), group })
    }

    /// Whether an agent's state reads.
    fn reads(&self, agent: &StoredAgent) -> Result<bool, StoreError> {
        let Some(payload) = &agent.state else { return Ok(false) };
        match catalogue::read_stored(payload, &*self.segments) {
            Ok(_) => Ok(true),
            Err(e) if e.is_of_one_agent() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The group before which a catalogue has everything: no smaller than `known`, and than one with a record that it
    /// has.
    fn group_of(&self, list: &Catalogue, known: u64) -> Result<u64, StoreError> {
        let listed = list.agents.iter().chain(list.shared.iter().map(|it| &it.stored));
        let last: HashMap<AgentId, Sequence> = listed.map(|it| (it.id, it.sequence)).collect();
        let mut group = known.max(1);
        self.salvage.read::<StoreError>(group, &mut |number, records| {
            if records.iter().any(|it| last.get(&it.agent).is_some_and(|last| it.sequence <= *last)) {
                group = number;
            }
            Ok(())
        })?;
        Ok(group)
    }

    /// Puts the records that read on top of the catalogue, as far as each fits to those before it.
    fn recover(&mut self, base: Base) -> Result<(Vec<State>, Agents, bool), StoreError> {
        let mut recovery = Recovery::new(self.segments.clone());
        let from = base.group;
        if let Some(list) = base.catalogue {
            recovery.catalogue(list, LogPosition::START)?;
        }
        for hole in self.salvage.holes(from) {
            let (first, last) = (hole.start, hole.end - 1);
            self.found(&Finding::Log { reason: format!("groups {first} to {last} do not read") });
        }
        if self.salvage.is_empty(from) {
            self.lost(format!("all that the log held from group {from} on, if there was any"));
        }
        let torn = &mut self.torn;
        self.salvage.read::<StoreError>(from, &mut |_, records| {
            for record in records {
                if let Some(torn) = torn.get_mut(&record.agent) {
                    torn.note(&record);
                    if is_removed(&record) {
                        recovery.remove(record.agent);
                    }
                    continue;
                }
                match recovery.fits(&record)? {
                    Fit::Known => {}
                    Fit::Next => recovery.record(record)?,
                    Fit::Behind { name, at, stands } => {
                        let mut found = Torn::new(name, at, stands, &record);
                        found.note(&record);
                        torn.insert(record.agent, found);
                        if is_removed(&record) {
                            recovery.remove(record.agent);
                        }
                    }
                }
            }
            Ok(())
        })?;
        if recovery.has_newly_damaged() {
            self.salvage.read::<StoreError>(from, &mut |_, records| {
                for record in records {
                    recovery.keep(record);
                }
                Ok(())
            })?;
        }
        let purge = recovery.purge;
        let (states, agents) = recovery.finish();
        Ok((states, agents, purge))
    }

    /// Says of each agent what it lost, and what may be lost of all.
    fn tell_of_torn(&mut self, states: &[State]) {
        let removed: Vec<AgentId> = states.iter().filter(|it| it.removed).map(|it| it.id).collect();
        let torn = std::mem::take(&mut self.torn);
        for (id, torn) in torn.iter().filter(|(id, _)| !removed.contains(id)) {
            self.lost(torn.told(*id));
        }
        self.torn = torn;
        self.lost(
            "what the last groups of the log held, if they were damaged, tells nobody: each agent stands at its last \
             turn that reads"
                .into(),
        );
    }

    /// Writes what there is, and gives the address of the catalogue.
    fn write(&mut self, states: Vec<State>, agents: Agents, purge: bool) -> Result<Hash, StoreError> {
        let segments = &self.segments;
        let names: HashMap<AgentId, &String> = agents.names.iter().map(|(name, id)| (*id, name)).collect();
        let zones: HashMap<AgentId, (&String, SharedId)> =
            agents.shared.names.iter().map(|(name, id)| (id.stream(), (name, *id))).collect();
        let name_of = |id: &AgentId| names.get(id).copied().or_else(|| zones.get(id).map(|it| it.0)).cloned();
        let mut stored = Vec::new();
        let in_memory: HashSet<AgentId> =
            states.iter().filter(|state| !state.removed).map(|state| state.id).collect();
        for state in states.into_iter().filter(|state| !state.removed) {
            let Some(name) = name_of(&state.id) else { continue };
            stored.push(self.write_state(name, state)?);
        }
        for (id, slot) in agents.slots.iter().filter(|(id, _)| !in_memory.contains(id)) {
            let Some(name) = name_of(id) else { continue };
            match slot {
                Slot::Stored(agent) => match catalogue::read_state(agent, segments) {
                    Ok(state) => stored.push(self.write_state(name, state)?),
                    Err(e) if e.is_of_one_agent() => stored.push(agent.clone()),
                    Err(e) => return Err(e),
                },
                Slot::Damaged(damaged) => {
                    let Damaged { stored: mut agent, records, .. } = (**damaged).clone();
                    agent.carry(&records, segments)?;
                    stored.push(agent);
                }
                // among the states
                Slot::Live(_) | Slot::Reserved => {}
            }
        }
        let mut list = Catalogue::new(Vec::new(), purge);
        for agent in stored {
            match zones.get(&agent.id) {
                Some((_, id)) => {
                    let mounts = agents.shared.mounts.get(id);
                    let mounted_by = mounts.map(|by| by.iter().copied().collect()).unwrap_or_default();
                    list.shared.push(CatalogueZone { stored: agent, mounted_by });
                }
                None => list.agents.push(agent),
            }
        }
        let hash = list.write(segments)?;
        segments.flush()?;
        Ok(hash)
    }

    fn write_state(&self, name: String, mut state: State) -> Result<StoredAgent, StoreError> {
        state.abandon();
        state.prune();
        let seen = self.torn.get(&state.id).map_or(state.epoch, |torn| torn.epoch.max(state.epoch));
        state.epoch = Epoch(seen.0.saturating_add(EPOCH_LEAP));
        let id = state.id;
        let written = Frozen::of(&state).write(&self.segments)?;
        let (epoch, sequence) = (written.epoch, written.sequence);
        Ok(StoredAgent { id, name, epoch, sequence, state: Some(written.state), carried: Vec::new() })
    }
}

/// Whether one catalogue was written after another: records are counted, agent by agent.
fn is_newer(one: &Catalogue, other: &Catalogue) -> bool {
    let stands = |list: &Catalogue| -> HashMap<AgentId, Sequence> {
        let all = list.agents.iter().chain(list.shared.iter().map(|it| &it.stored));
        all.map(|it| (it.id, it.sequence)).collect()
    };
    let (one, other) = (stands(one), stands(other));
    let both: Vec<_> = one.iter().filter_map(|(id, at)| other.get(id).map(|than| (at, than))).collect();
    let ahead = both.iter().filter(|(at, than)| at > than).count();
    let behind = both.iter().filter(|(at, than)| at < than).count();
    ahead > behind
}

fn is_removed(record: &Record) -> bool {
    entry::decode(&record.body).is_ok_and(|(_, it)| it.contains(&Entry::Removed))
}

impl Torn {
    fn new(name: Option<String>, at: Sequence, stands: Turn, record: &Record) -> Self {
        let found = (record.sequence, record.sequence);
        Self { name, at, found, epoch: record.epoch, turns: None, stands }
    }

    /// A record that cannot take effect.
    fn note(&mut self, record: &Record) {
        self.found = (self.found.0.min(record.sequence), self.found.1.max(record.sequence));
        self.epoch = self.epoch.max(record.epoch);
        let Ok((_, entries)) = entry::decode(&record.body) else { return };
        for entry in entries {
            if let Entry::Created { name, role: Role::Agent, .. } = &entry {
                self.name.get_or_insert_with(|| name.clone());
            }
            if let Entry::TurnBegan { turn, .. }
            | Entry::TurnEnded { turn, .. }
            | Entry::TurnFailed { turn, .. } = entry
            {
                let (first, last) = self.turns.unwrap_or((turn, turn));
                self.turns = Some((first.min(turn), last.max(turn)));
            }
        }
    }

    fn told(&self, id: AgentId) -> String {
        let (first, last) = (self.at.next(), self.found.1);
        let missing = if self.found.0 > first {
            format!("its records {first} to {} are gone", self.found.0.0 - 1)
        } else {
            format!("its record {first} is not the one that follows")
        };
        let turns = match self.turns {
            Some((_, to)) if to > self.stands => {
                format!("; turns {} to {to} are lost", self.stands.next())
            }
            _ => String::new(),
        };
        let Some(name) = &self.name else {
            return format!(
                "{id}: {missing}, with its name and beginning, and up to {last} nothing can be used{turns}"
            );
        };
        let stands = format!("it stands at record {}, after turn {}", self.at, self.stands);
        format!("{name}: {missing}, and up to {last} nothing can be used without them{turns}: {stands}")
    }
}
