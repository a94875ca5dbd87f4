//! Reading the history.

use std::ops::Bound;

use super::super::{Access, ErrorCode, Result, Zone, ZoneError};
use crate::contract::Operation;
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{CHUNK, FileKind, Key, Name, NamedPlace, Part, Value, VersionKind, VersionRecord};

/// A version of a file, or another event in its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionEntry {
    /// Its number; later ones are greater.
    pub version: Version,
    /// The file or directory.
    pub file: Inode,
    /// Whether the file stands at it.
    pub is_current: bool,
    /// The path that the file had from here on, as far as its directories are still known.
    pub path: Option<Vec<u8>>,
    /// What happened, when, by whom, and what identifies the content.
    pub record: VersionRecord,
}

/// A name that is gone from a zone that keeps versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Where it was; also the cursor that continues after it.
    pub place: NamedPlace,
    /// The path that it was at, as far as its directories are still known.
    pub path: Option<Vec<u8>>,
    /// What it stood for.
    pub file: Inode,
    /// Whether that was a file or a directory.
    pub is: FileKind,
    /// The event with which it went, and when that was.
    pub version: Version,
    /// When.
    pub at: Timestamp,
}

impl Zone {
    /// The file or directory that is at `path` from the root, or that was there last: for
    /// [`Zone::history`] of what is gone.
    pub fn find_past(&self, access: Access, path: &[u8]) -> Result<Inode> {
        self.check_history(access)?;
        Ok(self.last_at(path)?.0)
    }

    /// The events of a file or directory after the number `after`, oldest first, at most `limit`. A file's
    /// versions are those with content; see [`VersionRecord::has_content`].
    pub fn history(
        &self,
        access: Access,
        file: Inode,
        after: Option<Version>,
        limit: usize,
    ) -> Result<Vec<VersionEntry>> {
        self.check_history(access)?;
        let file = self.actual(file);
        let current = self.state.get(&Key::inode(file))?.is_some().then(|| self.current(file)).transpose()?;
        let current = current.flatten();
        let mut entries = Vec::new();
        for event in self.events_of(file, after.map_or(Version(0), Version::next))?.take(limit) {
            let (version, record) = event?;
            entries.push(VersionEntry {
                version,
                file,
                is_current: current == Some(version),
                path: self.path_of_place(&record.place)?,
                record: record.clone(),
            });
        }
        Ok(entries)
    }

    /// One version of a file, or another event of its history.
    pub fn version(&self, access: Access, file: Inode, version: Version) -> Result<VersionEntry> {
        let before = version.0.checked_sub(1).ok_or(ErrorCode::NoEntry)?;
        let found = self.history(access, file, Some(Version(before)), 1)?.pop();
        found.filter(|entry| entry.version == version).ok_or_else(|| ErrorCode::NoEntry.into())
    }

    /// Reads from a version of a file at `offset`, and gives how much: less than asked for only at the
    /// end. The version's content can also be opened, under [`Version::inode`] of its
    /// [`VersionRecord::content`].
    pub fn read_version(
        &self,
        access: Access,
        file: Inode,
        version: Version,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        self.check_history(access)?;
        let record = self.version_record(self.actual(file), version)?;
        let content = record.content.ok_or_else(no_content)?;
        let count = record.size.saturating_sub(offset).min(into.len() as u64) as usize;
        for (index, part) in into[..count].chunks_mut(CHUNK).enumerate() {
            let from = offset + (index * CHUNK) as u64;
            let bytes = self.state.read_content(content, from, from + part.len() as u64)?;
            part.copy_from_slice(&bytes);
        }
        Ok(count)
    }

    /// The names that are gone, were not given to anything else, and whose files have no other name, in the order of their directories and
    /// bytes: those after `after`, at most `limit`. Walks the whole history.
    pub fn deleted(&self, access: Access, after: Option<&NamedPlace>, limit: usize) -> Result<Vec<Deleted>> {
        self.check_history(access)?;
        let mut found: Vec<Deleted> = Vec::new();
        let mut cursor = after.map_or(Bound::Included(Key::version(Inode::ROOT, Version(0))), |place| {
            Bound::Excluded(Key::named(place.parent, place.name.clone(), Version(u64::MAX)))
        });
        while found.len() < limit {
            let Some(place) = self.place_after(&cursor)? else { break };
            let NamedPlace { parent, name } = &place;
            if self.state.dirent(*parent, name)?.is_none()
                && let Some((file, is)) = self.last_target(*parent, name)?
                && let Some((version, at)) = self.went_with(&place, file)?
            {
                let path = self.path_of_place(&place)?;
                found.push(Deleted { place: place.clone(), path, file, is, version, at });
            }
            cursor = Bound::Excluded(Key::named(*parent, name.clone(), Version(u64::MAX)));
        }
        Ok(found)
    }

    /// Where the file was that an event is about, as its number tells: the cursor of [`Zone::deleted`] for who has only
    /// the number of the last name that it gave.
    ///
    /// # Errors
    ///
    /// `no-entry` where there is no such event, or none any more.
    pub fn place_of_event(&self, access: Access, event: Version) -> Result<NamedPlace> {
        self.check_history(access)?;
        let gone =
            || ZoneError::rule(ErrorCode::NoEntry, "there is no event of this number, or none any more");
        let Some(Value::Event(found)) = self.state.get(&Key::event(event))? else { return Err(gone()) };
        match self.state.get(&Key::version(found.file, event))? {
            Some(Value::Version(record)) => Ok(record.place.clone()),
            _ => Err(gone()),
        }
    }

    /// The event with which a name went that stood for `file` last, and its time. `None` where the file has another
    /// name since.
    fn went_with(&self, place: &NamedPlace, file: Inode) -> Result<Option<(Version, Timestamp)>> {
        let key = Key::named(place.parent, place.name.clone(), Version(u64::MAX));
        let last = match self.state.history.last_until(&*self.state.store, &key)? {
            Some((Key { inode, part: Part::Named(name, version) }, Value::Named(None)))
                if *inode == place.parent && *name == place.name =>
            {
                *version
            }
            _ => Version(u64::MAX),
        };
        let event = self.state.last_event(file, Version(0), last)?;
        Ok(event
            .filter(|(_, record)| record.kind != VersionKind::Rename)
            .map(|(version, it)| (version, it.at)))
    }

    /// The first name of any directory after a key.
    fn place_after(&self, cursor: &Bound<Key>) -> Result<Option<NamedPlace>> {
        for entry in self.state.history.range(&*self.state.store, cursor.as_ref())? {
            if let (Key { inode, part: Part::Named(name, _) }, _) = entry? {
                return Ok(Some(NamedPlace { parent: *inode, name: Name::clone(name) }));
            }
        }
        Ok(None)
    }

    /// The path of a place, from the root. `None` where a directory on the way is not known any more.
    pub(in super::super) fn path_of_place(&self, place: &NamedPlace) -> Result<Option<Vec<u8>>> {
        let mut names = vec![place.name.clone()];
        let mut at = place.parent;
        while at != Inode::ROOT {
            if names.len() > super::super::MAX_DIRECTORY_DEPTH {
                return Ok(None);
            }
            let place = match self.state.get(&Key::inode(at))? {
                Some(Value::Inode(record)) => record.place.clone(),
                _ => None,
            };
            let place = match place {
                Some(place) => place,
                None => match self.state.last_event(at, Version(0), Version(u64::MAX))? {
                    Some((_, record)) => record.place.clone(),
                    None => return Ok(None),
                },
            };
            names.push(place.name);
            at = place.parent;
        }
        let names: Vec<&[u8]> = names.iter().rev().map(Name::as_bytes).collect();
        Ok(Some(names.join(&b'/')))
    }

    fn check_history(&self, access: Access) -> Result<()> {
        self.check(access, Operation::Read)?;
        if self.is_versioned() {
            return Ok(());
        }
        Err(ZoneError::rule(ErrorCode::Unsupported, "a zone of this kind keeps no versions"))
    }
}

/// What tests look at that no caller can ask for.
#[cfg(test)]
impl Zone {
    /// Every event there is, by its number and its file.
    pub(crate) fn all_events(&self) -> Result<Vec<((Version, Inode), VersionRecord)>> {
        let mut found = Vec::new();
        for entry in self.state.history.entries(&*self.state.store)? {
            if let (Key { inode, part: Part::Version(version) }, Value::Version(record)) = entry? {
                found.push(((*version, *inode), (**record).clone()));
            }
        }
        Ok(found)
    }

    /// Of which file or directory the event of each number is.
    pub(crate) fn all_numbers(&self) -> Result<Vec<(Version, Inode)>> {
        let mut found = Vec::new();
        for entry in self.state.history.entries(&*self.state.store)? {
            if let (Key { part: Part::Event(version), .. }, Value::Event(event)) = entry? {
                found.push((*version, event.file));
            }
        }
        Ok(found)
    }

    /// The number of the event, or file, that comes next, and that of the entry of the change feed.
    pub(crate) fn next_numbers(&self) -> (Version, crate::id::ChangeSequence) {
        (self.next_event(), self.counters.next_change)
    }

    /// Whether something should have been published when it was closed, but that the disk was full.
    pub(crate) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// The first number of the present turn.
    pub(crate) fn span(&self) -> Version {
        self.span
    }
}

#[cold]
pub(super) fn no_content() -> ZoneError {
    ZoneError::rule(ErrorCode::NoEntry, "this version has no content: it is a deletion, or was forgotten")
}
