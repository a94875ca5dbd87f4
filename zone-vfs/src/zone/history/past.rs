//! A zone as it stood at an event.

use std::collections::HashSet;
use std::ops::Bound;

use super::super::state::State;
use super::super::{ErrorCode, MAX_DIRECTORY_DEPTH, Result, Zone, ZoneError};
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{FileKind, Key, Name, Part, TreeError, Value, VersionKind, VersionRecord};

/// The events that made a zone what it was at some event: all before it, but those that a rewind took
/// back. Ranges of numbers, the latest first, both ends included.
pub(super) struct Counted(Vec<(Version, Version)>);

/// Entries of directories, then and now, that one path is sought among, at most.
const MAX_SOUGHT: usize = 1 << 14;

/// What was looked at for one path.
#[derive(Default)]
struct Search {
    entries: usize,
    /// Directories below which the last so many names of the path never led anywhere.
    failed: HashSet<(Inode, usize)>,
}

/// What a name stands for: the file, and what it is.
type Target = (Inode, FileKind);

impl Counted {
    /// The last of these events, which ascend, that counts.
    pub(super) fn last_of(
        &self,
        events: impl DoubleEndedIterator<Item = Version> + Clone,
    ) -> Option<Version> {
        self.0.iter().find_map(|(from, to)| events.clone().rev().find(|it| it <= to).filter(|it| it >= from))
    }

    /// The rewinds that lead to what counts.
    pub(super) fn moves(&self) -> impl Iterator<Item = Version> {
        self.0.iter().map(|(from, _)| *from).filter(|from| *from > Version(0))
    }
}

impl Zone {
    /// The events that count for how the zone stood at `event`.
    pub(super) fn counted(&self, event: Version) -> Result<Counted> {
        let mut ranges = Vec::new();
        let mut last = event;
        loop {
            let moved = self.state.last_event(Inode::ROOT, Version(0), last)?;
            let Some((version, record)) = moved else {
                ranges.push((Version(0), last));
                return Ok(Counted(ranges));
            };
            let VersionKind::RootMoved { to } = record.kind else {
                return Err(TreeError::Damaged("the root directory has an event that is no rewind").into());
            };
            if to >= version {
                return Err(TreeError::Damaged("a rewind leads to a later event").into());
            }
            ranges.push((version, last));
            last = to;
        }
    }

    /// The last event that was not later than `at`.
    pub(super) fn event_at(&self, at: Timestamp) -> Result<Version> {
        // numbers and times ascend together
        let (mut from, mut to) = (0, self.counters.next_inode.0);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.state.event_until(Version(middle))? {
                Some((version, time)) if time > at => to = version.0,
                _ => from = middle + 1,
            }
        }
        // all up to and without `from` are not later; the last of them that there is counts
        let last = self.state.event_until(Version(from.saturating_sub(1)))?;
        Ok(last.map_or(Version(0), |(version, _)| version))
    }

    /// When an event was.
    pub(super) fn time_of(&self, event: Version) -> Result<Timestamp> {
        Ok(self.state.event_until(event)?.map_or(Timestamp(0), |(_, at)| at))
    }

    /// The first event after `event`, and its time.
    pub(super) fn event_after(&self, event: Version) -> Result<Option<(Version, Timestamp)>> {
        let from = Key::event(event);
        let next =
            self.state.history.range(&*self.state.store, Bound::Excluded(&from))?.next().transpose()?;
        Ok(match next {
            Some((Key { part: Part::Event(version), .. }, Value::Event(event))) => Some((*version, event.at)),
            _ => None,
        })
    }

    /// What `name` in `directory` stood for.
    pub(super) fn child_then(
        &self,
        counted: &Counted,
        directory: Inode,
        name: &Name,
    ) -> Result<Option<Target>> {
        for (from, to) in &counted.0 {
            let key = Key::named(directory, name.clone(), *to);
            if let Some((Key { inode, part: Part::Named(of, version) }, Value::Named(target))) =
                self.state.history.last_until(&*self.state.store, &key)?
                && *inode == directory
                && of == name
                && version >= from
            {
                return Ok(*target);
            }
        }
        Ok(None)
    }

    /// The version whose content a file had, if it was there.
    pub(super) fn content_then(&self, counted: &Counted, file: Inode) -> Result<Option<Version>> {
        for (from, to) in &counted.0 {
            if let Some((_, record)) = self.state.last_event(file, *from, *to)? {
                return Ok(record.content);
            }
        }
        Ok(None)
    }

    /// The names in a directory after `after`, whatever they stood for at any time: each once.
    pub(super) fn name_after(&self, directory: Inode, after: Option<&Name>) -> Result<Option<Name>> {
        let last = Version(u64::MAX);
        let from = match after {
            Some(name) => Key::named(directory, name.clone(), last),
            None => Key::version(directory, last),
        };
        let next =
            self.state.history.range(&*self.state.store, Bound::Excluded(&from))?.next().transpose()?;
        Ok(match next {
            Some((Key { inode, part: Part::Named(name, _) }, _)) if *inode == directory => Some(name.clone()),
            _ => None,
        })
    }

    /// What a name stood for last, gone or not.
    pub(super) fn last_target(&self, directory: Inode, name: &Name) -> Result<Option<Target>> {
        let mut last = Version(u64::MAX);
        loop {
            let key = Key::named(directory, name.clone(), last);
            let found = self.state.history.last_until(&*self.state.store, &key)?;
            match found {
                Some((Key { inode, part: Part::Named(of, version) }, Value::Named(target)))
                    if *inode == directory && of == name =>
                {
                    match (target, version.0.checked_sub(1)) {
                        (None, Some(before)) => last = Version(before),
                        (target, _) => return Ok(*target),
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// The file or directory that is at a path from the root, or that was there last: also where a directory on the
    /// way is another than the one in which it was. Looks at so many entries of directories at most, then and now.
    pub(in super::super) fn last_at(&self, path: &[u8]) -> Result<Target> {
        let mut search = Search::default();
        let found = self.last_at_by(path, &mut search)?;
        if found.is_none() && search.entries >= MAX_SOUGHT {
            return Err(ZoneError::rule(
                ErrorCode::NoEntry,
                "the path has led to too much to look through all of it",
            ));
        }
        found.ok_or_else(|| ErrorCode::NoEntry.into())
    }

    fn last_at_by(&self, path: &[u8], search: &mut Search) -> Result<Option<Target>> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let names: Vec<Name> =
            names.map(|name| Name::new(name).ok_or(ErrorCode::Invalid)).collect::<Result<_, _>>()?;
        if names.len() > MAX_DIRECTORY_DEPTH + 1 {
            return Ok(None);
        }
        self.last_below((Inode::ROOT, FileKind::Directory), &names, search)
    }

    fn last_below(&self, at: Target, names: &[Name], search: &mut Search) -> Result<Option<Target>> {
        let Some((name, rest)) = names.split_first() else { return Ok(Some(at)) };
        if search.failed.contains(&(at.0, names.len())) {
            return Ok(None);
        }
        let mut next = self.state.dirent(at.0, name)?;
        let mut last = Some(Version(u64::MAX));
        loop {
            if search.entries >= MAX_SOUGHT {
                return Ok(None);
            }
            search.entries += 1;
            if let Some(target) = next.take()
                && let Some(found) = self.last_below(target, rest, search)?
            {
                return Ok(Some(found));
            }
            // what the name stood for before, the latest first
            let Some(until) = last else { break };
            let key = Key::named(at.0, name.clone(), until);
            match self.state.history.last_until(&*self.state.store, &key)? {
                Some((Key { inode, part: Part::Named(of, version) }, Value::Named(target)))
                    if *inode == at.0 && of == name =>
                {
                    next = *target;
                    last = version.0.checked_sub(1).map(Version);
                }
                _ => break,
            }
        }
        search.failed.insert((at.0, names.len()));
        Ok(None)
    }

    /// How many entries are looked at for a path.
    #[cfg(test)]
    pub(crate) fn entries_sought(&self, path: &[u8]) -> Result<usize> {
        let mut search = Search::default();
        self.last_at_by(path, &mut search)?;
        Ok(search.entries)
    }
}

impl State {
    /// The last event of a file in a range of numbers, both ends included.
    pub(in super::super) fn last_event(
        &self,
        file: Inode,
        from: Version,
        to: Version,
    ) -> Result<Option<(Version, &VersionRecord)>> {
        let key = Key::version(file, to);
        Ok(match self.history.last_until(&*self.store, &key)? {
            Some((Key { inode, part: Part::Version(version) }, Value::Version(record)))
                if *inode == file && *version >= from =>
            {
                Some((*version, &**record))
            }
            _ => None,
        })
    }

    /// The last event up to a number, and its time.
    fn event_until(&self, event: Version) -> Result<Option<(Version, Timestamp)>> {
        Ok(match self.history.last_until(&*self.store, &Key::event(event))? {
            Some((Key { part: Part::Event(version), .. }, Value::Event(event))) => Some((*version, event.at)),
            _ => None,
        })
    }
}
