//! Old versions that a policy gives back, agent by agent.
//!
//! What goes is found on the zone as it was committed last, beside whoever works with the agent: that walks the whole
//! zone. It is taken in small parts, a commit each, as long as nobody else has committed anything to the zone; otherwise
//! the next reaping finds it. An agent of which nothing is to be taken stays where it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::agents::Slot;
use super::commit::Commit;
use super::disk::{Disk, Inner};
use super::entry::{Cause, Entry};
use super::policy::{KeepPolicy, ReapPolicy, VersionPolicy};
use super::reap::ReapReport;
use super::state::State;
#[cfg(test)]
use super::tests::{self, Mistake};
use super::{Shared, StoreError, catalogue, wait};
use crate::chunks::ChunkStore;
use crate::contract::Principal;
use crate::contract::lifecycle::Reaping;
use crate::id::{AgentId, Timestamp, Version};
use crate::zone::{Access, KeepVersions, OldVersions, ReapedVersions, Zone, ZoneRoot};

/// Keys of a history that one commit takes, about: whoever wants to work with the agent waits for one.
const KEYS_AT_ONCE: usize = if cfg!(test) { 8 } else { 1 << 14 };

/// What was taken, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionsGiven {
    /// Versions, and deletions and renames.
    pub events: u64,
    /// What these had added to histories. Bytes.
    pub bytes: u64,
}

impl VersionsGiven {
    fn add(&mut self, reaped: ReapedVersions) {
        self.events += reaped.events;
        self.bytes += reaped.bytes;
    }
}

/// Old versions of a zone that a policy does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldOfZone {
    /// The agent's name.
    pub agent: String,
    /// Where it has the zone.
    pub mount: String,
    /// Versions, deletions and renames, with the path that the file had then, where that is known.
    pub versions: Vec<(Version, Option<Vec<u8>>)>,
    /// There are more.
    pub is_cut_short: bool,
}

fn keep(policy: VersionPolicy, older_than: Duration, now: Timestamp) -> KeepVersions {
    #[cfg(test)]
    let policy = VersionPolicy {
        newest: if tests::makes(Mistake::NewestIsTaken) { 0 } else { policy.newest },
        ..policy
    };
    let nanoseconds = u64::try_from(older_than.as_nanos()).unwrap_or(u64::MAX);
    KeepVersions { since: Timestamp(now.0.saturating_sub(nanoseconds)), newest: policy.newest }
}

/// The zones of an agent of which the policy takes anything, with what they keep.
fn zones_of(state: &State, policy: &KeepPolicy, now: Timestamp) -> Vec<(usize, KeepVersions)> {
    let zones = state.specs.iter().enumerate().filter_map(|(index, spec)| {
        let versions = policy.versions_in(&spec.name);
        let older_than = versions.older_than.filter(|_| spec.kind.reaping() == Reaping::OldVersions)?;
        Some((index, keep(versions, older_than, now)))
    });
    zones.collect()
}

/// Whether nothing goes on, and nothing was written that is not committed.
fn is_idle(inner: &Inner) -> bool {
    let is_clean = inner.state.zones.iter().all(|zone| !zone.working.is_dirty());
    inner.is_at_rest() && is_clean
}

/// A zone of which a policy may take something, as it was committed last.
struct Candidate {
    index: usize,
    mount: String,
    keep: KeepVersions,
    root: ZoneRoot,
    /// What somebody has open.
    held: BTreeSet<Version>,
}

impl Shared {
    /// Gives back the versions that the policy does not keep, of all agents that are idle; what goes is durable
    /// when this returns. With `dry_run` only tells.
    pub(super) fn reap_versions(
        self: &Arc<Self>,
        policy: &ReapPolicy,
        dry_run: bool,
    ) -> Result<(VersionsGiven, Vec<OldOfZone>), StoreError> {
        let (mut given, mut old) = (VersionsGiven::default(), Vec::new());
        let agents: Vec<_> = self.agents().names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        let touched = |id| {
            let keep = policy.of(id);
            let all = std::iter::once(&keep.versions).chain(keep.zones.values());
            !policy.spare.contains(&id) && all.into_iter().any(|it| it.older_than.is_some())
        };
        for (name, id) in agents.into_iter().filter(|(_, id)| touched(*id)) {
            let done = if dry_run {
                self.would_reap(&name, id, policy.of(id), &mut given, &mut old)
            } else {
                self.reap_versions_of(id, policy.of(id), &mut given)
            };
            match done {
                // it was woken meanwhile, or removed
                Ok(()) | Err(StoreError::Busy | StoreError::NoAgent(_)) => {}
                // marking tells
                Err(e) if e.is_of_one_agent() => {}
                Err(e) => return Err(e),
            }
        }
        Ok((given, old))
    }

    /// Says what is not kept of an agent's versions.
    fn would_reap(
        self: &Arc<Self>,
        name: &str,
        id: AgentId,
        policy: &KeepPolicy,
        given: &mut VersionsGiven,
        old: &mut Vec<OldOfZone>,
    ) -> Result<(), StoreError> {
        let now = Timestamp::now();
        let access = Access::new(Principal::Host, now);
        for candidate in self.candidates(id, policy, now)? {
            let Candidate { mount, keep, root, held, .. } = candidate;
            let chunks: Arc<dyn ChunkStore> = self.segments.clone();
            let mut zone = Zone::from_root(root, chunks);
            let found = zone.old_versions(access, keep, &held)?;
            let (mut versions, mut is_cut_short) = (Vec::new(), found.is_cut_short());
            for (version, file) in found.versions() {
                if versions.len() == ReapReport::MAX_OLD {
                    is_cut_short = true;
                    break;
                }
                let entry = zone.history(access, file, version.0.checked_sub(1).map(Version), 1)?;
                let path = entry.into_iter().find(|it| it.version == version).and_then(|it| it.path);
                versions.push((version, path));
            }
            given.add(zone.reap_versions(access, keep, &held)?);
            if !versions.is_empty() {
                old.push(OldOfZone { agent: name.to_owned(), mount, versions, is_cut_short });
            }
        }
        Ok(())
    }

    fn reap_versions_of(
        self: &Arc<Self>,
        id: AgentId,
        policy: &KeepPolicy,
        given: &mut VersionsGiven,
    ) -> Result<(), StoreError> {
        let now = Timestamp::now();
        let access = Access::new(Principal::Host, now);
        for candidate in self.candidates(id, policy, now)? {
            let Candidate { index, keep, root, held, .. } = candidate;
            let chunks: Arc<dyn ChunkStore> = self.segments.clone();
            let mut stands = root;
            loop {
                let old =
                    Zone::from_root(stands.clone(), chunks.clone()).old_versions(access, keep, &held)?;
                if old.is_empty() {
                    break;
                }
                let is_last = !old.is_cut_short();
                let disk = self.disk(id)?;
                let is_any = disk.take_versions(index, access, old, &mut stands, given)?;
                if is_last || !is_any {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The zones of an agent of which the policy may take something. The agent is not brought into memory for that.
    fn candidates(
        &self,
        id: AgentId,
        policy: &KeepPolicy,
        now: Timestamp,
    ) -> Result<Vec<Candidate>, StoreError> {
        let slot = match self.agents().slots.get(&id) {
            Some(Slot::Live(disk)) => Ok(disk.clone()),
            Some(Slot::Stored(stored)) => Err(stored.clone()),
            // one that is damaged, which marking tells, or is being made
            Some(Slot::Damaged(_) | Slot::Reserved) | None => return Ok(Vec::new()),
        };
        match slot {
            Ok(disk) => {
                let inner = disk.lock();
                if is_idle(&inner) { Ok(of_state(&inner.state, policy, now)) } else { Err(StoreError::Busy) }
            }
            Err(stored) => {
                let mut state = catalogue::read_state(&stored, &self.segments)?;
                // as it will be when it is loaded
                state.abandon();
                Ok(of_state(&state, policy, now))
            }
        }
    }
}

fn of_state(state: &State, policy: &KeepPolicy, now: Timestamp) -> Vec<Candidate> {
    let zones = zones_of(state, policy, now).into_iter();
    let candidates = zones.map(|(index, keep)| {
        let zone = &state.zones[index];
        let (mount, held) = (state.specs[index].mount.clone(), zone.working.open_versions().collect());
        Candidate { index, mount, keep, root: zone.head.clone(), held }
    });
    candidates.collect()
}

impl Disk {
    /// Takes old versions of a zone, which were found when it stood at `stands`, part by part, and adds to `given` what
    /// is gone; `stands` is then where the zone stands. Gives whether anything is.
    ///
    /// # Errors
    ///
    /// [`StoreError::Busy`] where the agent was woken, or something else was committed to the zone. Parts that were taken
    /// before stay so.
    fn take_versions(
        self: &Arc<Self>,
        index: usize,
        access: Access,
        mut old: OldVersions,
        stands: &mut ZoneRoot,
        given: &mut VersionsGiven,
    ) -> Result<bool, StoreError> {
        let mut is_any = false;
        while !old.is_empty() {
            let (sender, receiver) = std::sync::mpsc::channel();
            let (expected, mut rest) = (stands.clone(), std::mem::take(&mut old));
            let made = wait(|done| {
                let work = move |inner: &mut Inner| {
                    let taken = take(inner, index, access, &mut rest, &expected)?;
                    let is_nothing = taken.is_none();
                    // the receiver waits for the commit
                    let _ = sender.send((taken, rest));
                    if is_nothing { Err(StoreError::Busy) } else { Ok(control(inner, access.now)) }
                };
                Commit::of_policy(self, work, done);
            });
            let (taken, rest) = match (receiver.recv(), made) {
                // nothing of this part was left to take
                (Ok((None, rest)), _) => (None, rest),
                (Ok((taken, rest)), Ok(_)) => (taken, rest),
                (_, Err(e)) => return Err(e),
                (Err(_), Ok(_)) => return Err(StoreError::Closed),
            };
            old = rest;
            if let Some((taken, root)) = taken {
                given.add(taken);
                *stands = root;
                is_any = true;
            }
        }
        Ok(is_any)
    }
}

/// Takes a part where the zone stands as `expected`, and gives where it stands then; its changes are pending. None
/// where nothing of it was left, and on an error, nothing has changed.
fn take(
    inner: &mut Inner,
    index: usize,
    access: Access,
    old: &mut OldVersions,
    expected: &ZoneRoot,
) -> Result<Option<(ReapedVersions, ZoneRoot)>, StoreError> {
    if !is_idle(inner) {
        return Err(StoreError::Busy);
    }
    let zone = inner.state.zones.get_mut(index).ok_or(StoreError::Busy)?;
    if !zone.working.snapshot()?.same_as(expected) {
        return Err(StoreError::Busy);
    }
    let taken = zone.working.take_versions(access, old, KEYS_AT_ONCE)?;
    if taken.is_nothing() {
        return Ok(None);
    }
    match zone.working.snapshot() {
        Ok(root) => Ok(Some((taken, root))),
        Err(e) => {
            inner.abandon();
            Err(e.into())
        }
    }
}

/// What says that it happened: as what an operator writes between turns, with a generation that is as the head is and
/// stands for it.
fn control(inner: &Inner, at: Timestamp) -> Vec<Entry> {
    let state = &inner.state;
    let mut control = vec![Entry::Operated { at }];
    if let Some(head) = state.generations.get(&state.head) {
        let (number, cause) = (state.next_generation, Cause::Reaped { paused: head.paused() });
        control.push(Entry::Generation { number, cause, about: head.about.clone(), at });
    }
    control
}
