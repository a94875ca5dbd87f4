//! Old versions that a policy gives back.
//!
//! A *horizon* is chosen: the last event that is old enough. How the zone stood at the horizon, and at every
//! event since, can be seen as before; what was over before it goes: versions, deletions, and names that
//! had gone by then. What stays of before is what was in effect at the horizon, the newest versions of each
//! file as the policy says, and tombstones of what was forgotten.
//!
//! A rewind makes two stretches of events one after another, of which what is between does not count. So an
//! event after the horizon may lead to before it: how the zone stood there stays, too.
//!
//! The horizon is noted first and never goes back. All that goes is before it, where nothing looks any more, so
//! what is taken in several parts is whole after each.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;

use super::super::{Access, Result, Zone};
use super::content::{self, remove_content};
use super::past::Counted;
use crate::contract::Operation;
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{Body, Key, Name, Part, Value, VersionKind, VersionRecord};

/// Events that one [`Zone::reap_versions`] takes, at most.
pub const MAX_REAPED_EVENTS: usize = 1 << 14;

/// Which versions a zone keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepVersions {
    /// What was replaced or deleted at this time or later.
    pub since: Timestamp,
    /// The newest so many versions of every file that is there, however old; the current one always is.
    pub newest: usize,
}

/// What [`Zone::reap_versions`] took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReapedVersions {
    /// Versions, and deletions and renames.
    pub events: u64,
    /// Names that files had before.
    pub names: u64,
    /// What the events had added to the history. Bytes.
    pub bytes: u64,
    /// There is more that the policy does not keep: to be called again.
    pub more: bool,
}

impl ReapedVersions {
    /// Whether nothing was taken, and nothing has changed.
    pub fn is_nothing(&self) -> bool {
        self.events == 0 && self.names == 0
    }
}

/// An event that goes.
struct Gone {
    file: Inode,
    version: Version,
    owns_content: bool,
    added: u64,
}

/// What is found on one walk through the history.
#[derive(Default)]
struct Found {
    gone: Vec<Gone>,
    names: Vec<Key>,
    /// Versions whose content something needs that stays.
    needed: HashSet<Version>,
    more: bool,
}

/// The event after which everything is kept, and those before at which the zone's state is.
struct Horizon {
    at: Version,
    points: Vec<Counted>,
    /// The rewinds on the way to these.
    moves: BTreeSet<Version>,
}

impl Zone {
    /// Takes versions out of the history that the policy does not keep; see the module's text. What is `held`, the
    /// content of versions that someone has open elsewhere, stays readable. For the host alone, in semantic memory,
    /// between turns. Walks the whole zone.
    pub fn reap_versions(
        &mut self,
        access: Access,
        keep: KeepVersions,
        held: &BTreeSet<Version>,
    ) -> Result<ReapedVersions> {
        self.check(access, Operation::ReapVersions)?;
        let before = Timestamp(keep.since.0.saturating_sub(1));
        let at = self.event_at(before)?.max(self.counters.horizon);
        if at == Version(0) {
            return Ok(ReapedVersions::default());
        }
        let mut found = Found { needed: held.clone().into_iter().collect(), ..Found::default() };
        let horizon = self.horizon(at)?;
        let current = self.needed_by_files(&mut found.needed)?;
        self.find(&horizon, keep.newest, &current, &mut found)?;
        let Found { mut gone, names, needed, more } = found;
        gone.retain(|it| !it.owns_content || !needed.contains(&it.version));
        if gone.is_empty() && names.is_empty() {
            return Ok(ReapedVersions::default());
        }
        // all is read before anything changes
        for it in &gone {
            self.state.prepare(&[&Key::version(it.file, it.version), &Key::event(it.version)])?;
            if it.owns_content {
                content::load(&self.state, it.version)?;
            }
        }
        self.state.prepare(&names.iter().collect::<Vec<_>>())?;
        self.counters.horizon = at;
        let mut reaped =
            ReapedVersions { events: gone.len() as u64, names: names.len() as u64, bytes: 0, more };
        for it in gone {
            if it.owns_content {
                remove_content(&mut self.state, it.version)?;
            }
            self.state.remove(Key::version(it.file, it.version))?;
            self.state.remove(Key::event(it.version))?;
            reaped.bytes += it.added;
            let past = &mut self.counters.past;
            past.bytes = past.bytes.saturating_sub(it.added);
            past.inodes = past.inodes.saturating_sub(1);
        }
        for key in names {
            self.state.remove(key)?;
        }
        Ok(reaped)
    }

    /// The last event before which the history is not whole any more; 0 where all of it is there.
    pub fn horizon_of_history(&self) -> Version {
        self.counters.horizon
    }

    fn horizon(&self, at: Version) -> Result<Horizon> {
        let mut points = vec![self.counted(at)?];
        for event in self.events_of(Inode::ROOT, at.next())? {
            if let (_, VersionRecord { kind: VersionKind::RootMoved { to }, .. }) = event?
                && *to < at
            {
                points.push(self.counted(*to)?);
            }
        }
        let moves = points.iter().flat_map(Counted::moves).collect();
        Ok(Horizon { at, points, moves })
    }

    /// The versions at which live files stand, and into `needed` those whose content they show.
    fn needed_by_files(&self, needed: &mut HashSet<Version>) -> Result<BTreeMap<Inode, Version>> {
        let mut current = BTreeMap::new();
        // whoever has an old version open
        needed.extend(self.open.keys().map(|inode| Version(inode.0)));
        for entry in self.state.tree.entries(&*self.state.store)? {
            match entry? {
                (key, Value::Inode(record)) => match record.body {
                    Body::Published { version, content } => {
                        current.insert(key.inode, version);
                        needed.extend([version, content]);
                    }
                    Body::Over { content, .. } => {
                        needed.insert(content);
                    }
                    _ => {}
                },
                (Key { part: Part::Draft(file), .. }, Value::Draft(draft)) => {
                    if let Some((version, content)) = draft.base {
                        current.insert(*file, version);
                        needed.extend([version, content]);
                    }
                }
                _ => {}
            }
        }
        Ok(current)
    }

    fn find(
        &self,
        horizon: &Horizon,
        newest: usize,
        current: &BTreeMap<Inode, Version>,
        found: &mut Found,
    ) -> Result<()> {
        let mut events: Vec<(Version, &VersionRecord)> = Vec::new();
        let mut named: Vec<(Version, bool)> = Vec::new();
        // (file) or (directory, name) that the lists are of
        let mut file = Inode::ROOT;
        let mut name: Option<(Inode, &Name)> = None;
        for entry in self.state.history.range(&*self.state.store, Bound::Unbounded)? {
            let (key, value) = entry?;
            if key.inode != file || !matches!(key.part, Part::Version(_)) {
                horizon.sort_out(file, &events, current.get(&file), newest, found);
                events.clear();
                file = key.inode;
            }
            let of = match &key.part {
                Part::Named(of, _) => Some((key.inode, of)),
                _ => None,
            };
            if of != name {
                horizon.sort_names(name, &named, found);
                named.clear();
                name = of;
            }
            match (&key.part, value) {
                (Part::Version(version), Value::Version(record)) => events.push((*version, record)),
                (Part::Named(_, version), Value::Named(target)) => named.push((*version, target.is_some())),
                _ => {}
            }
            if found.gone.len() + found.names.len() > MAX_REAPED_EVENTS {
                found.more = true;
            }
        }
        horizon.sort_out(file, &events, current.get(&file), newest, found);
        horizon.sort_names(name, &named, found);
        Ok(())
    }
}

impl Horizon {
    /// Decides about the events of one file or directory, in their order.
    fn sort_out(
        &self,
        file: Inode,
        events: &[(Version, &VersionRecord)],
        current: Option<&Version>,
        newest: usize,
        found: &mut Found,
    ) {
        let in_effect: BTreeSet<Version> = self
            .points
            .iter()
            .filter_map(|point| point.last_of(events.iter().map(|(version, _)| *version)))
            .collect();
        let mut versions = 0;
        for (version, record) in events.iter().rev() {
            let is_newest = record.has_content() && {
                versions += 1;
                current.is_some() && versions <= newest
            };
            // the horizon itself says when it was
            let stays = *version >= self.at
                || is_newest
                || current == Some(version)
                || record.kind == VersionKind::Forgotten
                || if file == Inode::ROOT {
                    self.moves.contains(version)
                } else {
                    in_effect.contains(version) && !self.is_over(record)
                };
            if stays {
                found.needed.extend(record.content);
            } else if !found.more {
                found.gone.push(Gone {
                    file,
                    version: *version,
                    owns_content: record.content == Some(*version),
                    added: record.added,
                });
            }
        }
    }

    /// Whether it says that something is not there: which nothing says as well. Only where no rewind can bring
    /// back what came before it.
    fn is_over(&self, record: &VersionRecord) -> bool {
        self.points.len() == 1 && self.moves.is_empty() && record.kind == VersionKind::Tombstone
    }

    /// Decides about what one name in a directory stood for, in the order of events.
    fn sort_names(&self, of: Option<(Inode, &Name)>, named: &[(Version, bool)], found: &mut Found) {
        let Some((directory, name)) = of else { return };
        let in_effect: BTreeSet<Version> = self
            .points
            .iter()
            .filter_map(|point| point.last_of(named.iter().map(|(version, _)| *version)))
            .collect();
        let mut something = false;
        for (version, is_something) in named {
            let stays = *version > self.at || in_effect.contains(version) && (*is_something || something);
            something |= stays && *is_something;
            if !stays && !found.more {
                found.names.push(Key::named(directory, name.clone(), *version));
            }
        }
    }
}
