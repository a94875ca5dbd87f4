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
//! Where more was given back before, by a policy that keeps less or after which a rewind brought something back, the
//! horizon of the zone is a later one, and stays so: before that, how the zone stood is not told any more. What goes
//! next is found from the age of events all the same.
//!
//! What goes is found on the zone as it stood, in one walk, and taken in parts, between which others work on the zone:
//! as long as nothing else changes it, the parts are right. The horizon is noted with the first and never goes back.
//! All that goes is before it, where nothing looks any more, so what is taken in several parts is whole after each:
//! names go first, the older ones before those that say that they ended; then events, the newest first, since
//! content is an earlier event's than those that name it; and deletions last, before which something else would be
//! in effect.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::ops::Bound;

use super::super::{Access, Result, Zone};
use super::content::{self, remove_content};
use super::past::Counted;
use crate::contract::Operation;
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{Body, Key, Name, Part, Value, VersionKind, VersionRecord};

/// Events, and as many names, that one [`Zone::old_versions`] finds, at most.
pub const MAX_OLD_VERSIONS: usize = if cfg!(test) { 16 } else { 1 << 20 };

/// Which versions a zone keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepVersions {
    /// What was replaced or deleted at this time or later.
    pub since: Timestamp,
    /// The newest so many versions of every file that is there, however old; the current one always is.
    pub newest: usize,
}

/// What was taken of a zone's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReapedVersions {
    /// Versions, and deletions and renames.
    pub events: u64,
    /// Names that files had before.
    pub names: u64,
    /// What the events had added to the history. Bytes.
    pub bytes: u64,
    has_changed: bool,
}

impl ReapedVersions {
    /// Whether nothing was taken, and nothing has changed.
    pub fn is_nothing(&self) -> bool {
        !self.has_changed
    }

    pub(in super::super) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.names += other.names;
        self.bytes += other.bytes;
        self.has_changed |= other.has_changed;
    }
}

/// What a policy does not keep of a zone, as it was [found](Zone::old_versions).
#[derive(Clone, Debug, Default)]
pub struct OldVersions {
    horizon: Version,
    /// In the order of keys, the last first.
    names: Vec<Key>,
    /// In their order, of which the last go first.
    events: Vec<Old>,
    more: bool,
}

/// An event that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Old {
    is_no_deletion: bool,
    version: Version,
    file: Inode,
}

impl OldVersions {
    /// Whether all is kept.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.events.is_empty()
    }

    /// The events that are to go, with the files that they are of.
    pub fn versions(&self) -> impl Iterator<Item = (Version, Inode)> {
        self.events.iter().map(|it| (it.version, it.file))
    }

    /// Whether there is more than one look has [found](MAX_OLD_VERSIONS): when this has gone, look again.
    pub fn is_cut_short(&self) -> bool {
        self.more
    }
}

/// An event that goes.
struct Gone {
    file: Inode,
    version: Version,
    owns_content: bool,
    /// The number is this event's, and not another's that a rewind shares.
    is_counted: bool,
    added: u64,
    keys: usize,
}

/// What is found on one walk through the history.
#[derive(Default)]
struct Found {
    /// The last so many events that go, in the order of these.
    gone: BinaryHeap<Reverse<Old>>,
    names: Vec<Key>,
    /// Versions whose content something needs that is no event.
    needed: HashSet<Version>,
    more: bool,
}

impl Found {
    fn goes(&mut self, old: Old) {
        self.gone.push(Reverse(old));
        if self.gone.len() > MAX_OLD_VERSIONS {
            self.gone.pop();
            self.more = true;
        }
    }
}

/// The event after which everything is kept, and those before at which the zone's state is.
struct Horizon {
    at: Version,
    points: Vec<Counted>,
    /// The rewinds on the way to these.
    moves: BTreeSet<Version>,
}

impl Zone {
    /// What the policy does not keep; see the module's text. What is `held`, the content of versions that someone has
    /// open elsewhere, is kept. For the host alone, in semantic memory, between turns. Walks the whole zone.
    pub fn old_versions(
        &self,
        access: Access,
        keep: KeepVersions,
        held: &BTreeSet<Version>,
    ) -> Result<OldVersions> {
        self.check(access, Operation::ReapVersions)?;
        let before = Timestamp(keep.since.0.saturating_sub(1));
        let at = self.event_at(before)?;
        if at == Version(0) {
            return Ok(OldVersions::default());
        }
        let mut found = Found { needed: held.iter().copied().collect(), ..Found::default() };
        let horizon = self.horizon(at)?;
        let current = self.needed_by_files(&mut found.needed)?;
        self.find(&horizon, keep.newest, &current, &mut found)?;
        found.names.reverse();
        let events = found.gone.into_sorted_vec().into_iter().rev().map(|Reverse(it)| it).collect();
        Ok(OldVersions { horizon: at, names: found.names, events, more: found.more })
    }

    /// Takes a part of what was found on this zone, to which nothing has happened since but that the parts before were
    /// taken: so many keys of the history, at most, or one event. What is open by now stays. On an error nothing has
    /// changed; otherwise the part is in `old` no more.
    pub fn take_versions(
        &mut self,
        access: Access,
        old: &mut OldVersions,
        max_keys: usize,
    ) -> Result<ReapedVersions> {
        self.check(access, Operation::ReapVersions)?;
        // all is read before anything changes
        let names = old.names.len().saturating_sub(max_keys)..;
        self.state.prepare(&old.names[names.clone()].iter().collect::<Vec<_>>())?;
        let mut keys = old.names[names.clone()].len();
        let mut gone = Vec::new();
        let mut left = old.events.len();
        for Old { version, file, .. } in old.events.iter().rev() {
            if keys >= max_keys {
                break;
            }
            left -= 1;
            if let Some(it) = self.event_to_go(*file, *version)? {
                keys += it.keys;
                gone.push(it);
            }
        }
        let mut reaped = ReapedVersions::default();
        old.events.truncate(left);
        let names = old.names.split_off(names.start);
        if gone.is_empty() && names.is_empty() {
            return Ok(reaped);
        }
        let counters = &mut self.counters;
        counters.reaped = counters.reaped.max(old.horizon);
        counters.horizon = counters.horizon.max(old.horizon);
        (reaped.has_changed, reaped.names) = (true, names.len() as u64);
        for key in names.into_iter().rev() {
            self.state.remove(key)?;
        }
        for it in gone {
            if it.owns_content {
                remove_content(&mut self.state, it.version)?;
            }
            self.state.remove(Key::version(it.file, it.version))?;
            if it.is_counted {
                self.state.remove(Key::event(it.version))?;
                let past = &mut self.counters.past;
                past.bytes = past.bytes.saturating_sub(it.added);
                past.inodes = past.inodes.saturating_sub(1);
                reaped.events += 1;
                reaped.bytes += it.added;
            }
        }
        Ok(reaped)
    }

    /// Reads what taking an event needs. None where it is gone, or someone has its content open.
    fn event_to_go(&self, file: Inode, version: Version) -> Result<Option<Gone>> {
        let Some(Value::Version(record)) = self.state.get(&Key::version(file, version))? else {
            return Ok(None);
        };
        let (added, owns_content) = (record.added, record.content == Some(version));
        let mut keys = 2;
        if owns_content {
            if self.open.contains_key(&version.inode()) {
                return Ok(None);
            }
            keys += 1 + content::load(&self.state, version)?;
        }
        let numbered = self.state.get(&Key::event(version))?;
        let is_counted = matches!(numbered, Some(Value::Event(event)) if event.file == file);
        Ok(Some(Gone { file, version, owns_content, is_counted, added, keys }))
    }

    /// Takes all that the policy does not keep: [finds](Self::old_versions) it, and [takes](Self::take_versions) it.
    pub fn reap_versions(
        &mut self,
        access: Access,
        keep: KeepVersions,
        held: &BTreeSet<Version>,
    ) -> Result<ReapedVersions> {
        let mut reaped = ReapedVersions::default();
        loop {
            let mut old = self.old_versions(access, keep, held)?;
            let taken = self.take_versions(access, &mut old, usize::MAX)?;
            reaped.add(taken);
            if taken.is_nothing() || !old.is_cut_short() {
                return Ok(reaped);
            }
        }
    }

    /// The last event before which the history is not whole any more; 0 where all of it is there.
    pub fn horizon_of_history(&self) -> Version {
        self.counters.horizon
    }

    /// The content of versions that somebody has open, among other numbers of files.
    pub(crate) fn open_versions(&self) -> impl Iterator<Item = Version> {
        self.open.keys().map(|inode| Version(inode.0))
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
        needed.extend(self.open_versions());
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
        // the content of these, which an earlier event of the same file has
        let mut needed = HashSet::new();
        // from the newest on: what needs content comes before what has it
        for (version, record) in events.iter().rev() {
            let is_newest = record.has_content() && {
                versions += 1;
                current.is_some() && versions <= newest
            };
            let owns_content = record.content == Some(*version);
            // the horizon itself says when it was
            let stays = *version >= self.at
                || is_newest
                || current == Some(version)
                || record.kind == VersionKind::Forgotten
                || owns_content && (needed.contains(version) || found.needed.contains(version))
                || if file == Inode::ROOT {
                    self.moves.contains(version)
                } else {
                    in_effect.contains(version) && !self.is_over(record)
                };
            if stays {
                needed.extend(record.content.filter(|content| content != version));
            } else {
                let is_no_deletion = record.kind != VersionKind::Tombstone;
                found.goes(Old { is_no_deletion, version: *version, file });
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
            if stays {
                continue;
            }
            if found.names.len() < MAX_OLD_VERSIONS {
                found.names.push(Key::named(directory, name.clone(), *version));
            } else {
                found.more = true;
            }
        }
    }
}
