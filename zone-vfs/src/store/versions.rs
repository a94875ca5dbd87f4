//! Old versions that a policy gives back, agent by agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::commit::Commit;
use super::disk::{Disk, Inner};
use super::entry::{Cause, Entry};
use super::policy::{KeepPolicy, ReapPolicy, VersionPolicy};
use super::{Shared, StoreError, wait};
use crate::contract::Principal;
use crate::contract::lifecycle::Reaping;
use crate::id::Timestamp;
use crate::zone::{Access, KeepVersions, ReapedVersions, Zone};

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

fn keep(policy: VersionPolicy, older_than: Duration, now: Timestamp) -> KeepVersions {
    let nanoseconds = u64::try_from(older_than.as_nanos()).unwrap_or(u64::MAX);
    KeepVersions { since: Timestamp(now.0.saturating_sub(nanoseconds)), newest: policy.newest }
}

/// The zones of an agent of which the policy takes anything, with what they keep.
fn zones_of(inner: &Inner, policy: &KeepPolicy, now: Timestamp) -> Vec<(usize, KeepVersions)> {
    let zones = inner.state.specs.iter().enumerate().filter_map(|(index, spec)| {
        let versions = policy.versions_in(&spec.name);
        let older_than = versions.older_than.filter(|_| spec.kind.reaping() == Reaping::OldVersions)?;
        Some((index, keep(versions, older_than, now)))
    });
    zones.collect()
}

/// Whether nothing goes on, and nothing was written that is not committed.
fn is_idle(inner: &Inner) -> bool {
    let is_clean = inner.state.zones.iter().all(|zone| !zone.working.is_dirty());
    inner.idle().is_ok() && inner.pending.is_empty() && is_clean
}

impl Shared {
    /// Gives back the versions that the policy does not keep, of all agents that are idle; what goes is durable
    /// when this returns. With `dry_run` only tells.
    pub(super) fn reap_versions(
        self: &Arc<Self>,
        policy: &ReapPolicy,
        dry_run: bool,
    ) -> Result<VersionsGiven, StoreError> {
        let mut given = VersionsGiven::default();
        let agents: Vec<_> = self.agents().names.values().copied().collect();
        let touched = |id| {
            let keep = policy.of(id);
            let all = std::iter::once(&keep.versions).chain(keep.zones.values());
            !policy.spare.contains(&id) && all.into_iter().any(|it| it.older_than.is_some())
        };
        for id in agents.into_iter().filter(|id| touched(*id)) {
            let disk = match self.disk(id) {
                Ok(disk) => disk,
                // marking tells
                Err(e) if e.is_of_one_agent() => continue,
                Err(e) => return Err(e),
            };
            match disk.reap_versions(policy.of(id), dry_run, &mut given) {
                // it was woken meanwhile
                Ok(()) | Err(StoreError::Busy) => {}
                // marking tells
                Err(e) if e.is_of_one_agent() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(given)
    }
}

impl Disk {
    fn reap_versions(
        self: &Arc<Self>,
        policy: &KeepPolicy,
        dry_run: bool,
        given: &mut VersionsGiven,
    ) -> Result<(), StoreError> {
        let now = Timestamp::now();
        let access = Access::new(Principal::Host, now);
        let zones = {
            let inner = self.lock();
            if !is_idle(&inner) {
                return Err(StoreError::Busy);
            }
            zones_of(&inner, policy, now)
        };
        for (index, keep) in zones {
            if dry_run {
                let (root, chunks) = {
                    let inner = self.lock();
                    (inner.state.zones[index].head.clone(), inner.state.chunks.clone())
                };
                let mut zone = Zone::from_root(root, chunks);
                loop {
                    let reaped = zone.reap_versions(access, keep, &BTreeSet::new())?;
                    given.add(reaped);
                    if !reaped.more {
                        break;
                    }
                }
                continue;
            }
            loop {
                let (sender, receiver) = std::sync::mpsc::channel();
                let made = wait(|done| {
                    let work = move |inner: &mut Inner| {
                        let reaped = take(inner, index, access, keep)?;
                        // the receiver waits for the commit
                        let _ = sender.send(reaped);
                        if reaped.is_nothing() {
                            return Err(StoreError::Busy);
                        }
                        Ok(control(inner, now))
                    };
                    Commit::start_with(self, work, done);
                });
                let Ok(reaped) = receiver.recv() else { return made.map(drop) };
                if reaped.is_nothing() {
                    break;
                }
                made?;
                given.add(reaped);
                if !reaped.more {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Takes old versions of one zone, whose changes are then pending; or changes nothing.
fn take(
    inner: &mut Inner,
    index: usize,
    access: Access,
    keep: KeepVersions,
) -> Result<ReapedVersions, StoreError> {
    if !is_idle(inner) {
        return Err(StoreError::Busy);
    }
    Ok(inner.state.zones[index].working.reap_versions(access, keep, &BTreeSet::new())?)
}

/// What says that it happened: as what an operator writes between turns, with a generation that is as the head is.
/// Whoever stands by with the head's open files does so with that one's.
fn control(inner: &mut Inner, at: Timestamp) -> Vec<Entry> {
    let state = &mut inner.state;
    let mut control = vec![Entry::Operated { at }];
    if let Some(head) = state.generations.get(&state.head) {
        let number = state.next_generation;
        if state.standing_by == Some(head.number) {
            state.standing_by = Some(number);
        }
        control.push(Entry::Generation { number, cause: Cause::Operated, about: head.about.clone(), at });
    }
    control
}
