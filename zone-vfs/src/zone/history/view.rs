//! The past as directories at the root of a zone that keeps versions: `.versions` and `.asof`.
//!
//! `.versions/PATH/TIME` is a version of the file that is or was last at `PATH`, or of one that was there
//! before; two of one time are told apart as `TIME.NUMBER`. `.asof/TIME/PATH` is what was at `PATH` at
//! that time. Both can be listed, and neither can be written. A directory in them has a number that says
//! all there is to know of it, so it can be opened again in any process, also by a fork.

use super::super::{Access, DirEntry, ErrorCode, Result, Zone, ZoneError, new_record};
use super::time;
use crate::contract::PAST_NAMES;
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{Body, FileKind, InodeRecord, Key, Name, Part, Value};

/// A directory of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum View {
    /// `.versions`, or a directory in it: that with this number.
    Directory(Inode),
    /// `.versions/PATH`: the versions of what is at the path of this file.
    Versions(Inode),
    /// `.asof`.
    Times,
    /// A directory as it stood at an event.
    Then(Version, Inode),
}

/// Numbers from here on are directories of the past: two bits say which, the others of what.
const MARK: u64 = 1 << 63;
const KIND_SHIFT: u32 = 61;
const PAYLOAD: u64 = (1 << KIND_SHIFT) - 1;
const DIRECTORY_BITS: u32 = 30;
/// Events that `.asof` can show have numbers below this.
pub const MAX_EVENT_SHOWN: u64 = 1 << (KIND_SHIFT - DIRECTORY_BITS);
/// Directories that `.asof` can show have numbers below this.
pub const MAX_DIRECTORY_SHOWN: u64 = 1 << DIRECTORY_BITS;
/// Files that had one path, one after another, whose versions are listed together: the newest.
pub const MAX_SAME_PATH: usize = 64;

/// The directory of the past that has this number.
#[inline]
pub(in super::super) fn directory(inode: Inode) -> Option<View> {
    (inode.0 & MARK != 0).then(|| {
        let payload = inode.0 & PAYLOAD;
        match inode.0 >> KIND_SHIFT & 3 {
            0 => View::Directory(Inode(payload)),
            1 => View::Versions(Inode(payload)),
            2 => View::Times,
            _ => View::Then(Version(payload >> DIRECTORY_BITS), Inode(payload & (MAX_DIRECTORY_SHOWN - 1))),
        }
    })
}

/// What a name at the root of a zone that keeps versions stands for, if it is a view's.
pub(in super::super) fn top(name: &Name) -> Option<Inode> {
    let view = match PAST_NAMES.iter().position(|reserved| name.as_bytes() == *reserved)? {
        0 => View::Directory(Inode::ROOT),
        _ => View::Times,
    };
    view.inode().ok()
}

impl View {
    fn inode(self) -> Result<Inode> {
        let (kind, payload) = match self {
            View::Directory(directory) => (0, directory.0),
            View::Versions(file) => (1, file.0),
            View::Times => (2, 0),
            View::Then(event, directory) => {
                if event.0 >= MAX_EVENT_SHOWN || directory.0 >= MAX_DIRECTORY_SHOWN {
                    return Err(ZoneError::rule(
                        ErrorCode::Overflow,
                        "the zone has had more files than its past can be shown of",
                    ));
                }
                (3, event.0 << DIRECTORY_BITS | directory.0)
            }
        };
        Ok(Inode(MARK | kind << KIND_SHIFT | payload & PAYLOAD))
    }
}

impl Zone {
    /// The record of a directory of the past.
    pub(in super::super) fn view_record(&self, inode: Inode) -> Result<InodeRecord> {
        let view = directory(inode).ok_or(ErrorCode::NoEntry)?;
        let known = match view {
            _ if !self.is_versioned() => false,
            View::Times => true,
            View::Directory(of) | View::Then(_, of) => {
                of == Inode::ROOT || self.last_kind(of)? == Some(FileKind::Directory)
            }
            View::Versions(of) => self.last_kind(of)? == Some(FileKind::Regular),
        };
        if !known {
            return Err(ErrorCode::NoEntry.into());
        }
        let at = match view {
            View::Then(event, _) => {
                self.within_history(event)?;
                self.time_of(event)?
            }
            _ => self.counters.latest,
        };
        Ok(new_record(Body::Directory { parent: inode }, 0, at))
    }

    /// Checks that how the zone stood at an event was not given back.
    fn within_history(&self, event: Version) -> Result<()> {
        if event >= self.counters.horizon {
            return Ok(());
        }
        Err(ZoneError::rule(ErrorCode::NoEntry, "what the zone was then has been reaped"))
    }

    fn last_kind(&self, of: Inode) -> Result<Option<FileKind>> {
        Ok(self.state.last_event(of, Version(0), Version(u64::MAX))?.map(|(_, record)| record.file))
    }

    /// What a name in a directory of the past stands for.
    pub(in super::super) fn view_child(&self, view: View, name: &Name) -> Result<Option<(Inode, FileKind)>> {
        match view {
            View::Directory(directory) => match self.last_target(directory, name)? {
                Some(target) => versions_of(target),
                None => Ok(None),
            },
            View::Versions(file) => self.version_named(file, name.as_bytes()),
            View::Times => match time::parse(name.as_bytes()) {
                Some(at) => {
                    let event = self.event_at(at)?;
                    self.within_history(event)?;
                    Ok(Some((View::Then(event, Inode::ROOT).inode()?, FileKind::Directory)))
                }
                None => Ok(None),
            },
            View::Then(event, directory) => {
                self.within_history(event)?;
                let counted = self.counted(event)?;
                match self.child_then(&counted, directory, name)? {
                    Some(target) => self.shown_then(event, &counted, target),
                    None => Ok(None),
                }
            }
        }
    }

    fn shown_then(
        &self,
        event: Version,
        counted: &super::past::Counted,
        (file, kind): (Inode, FileKind),
    ) -> Result<Option<(Inode, FileKind)>> {
        if kind == FileKind::Directory {
            return Ok(Some((View::Then(event, file).inode()?, kind)));
        }
        Ok(self.content_then(counted, file)?.map(|content| (content.inode(), kind)))
    }

    /// Lists a directory of the past.
    pub(in super::super) fn list_view(
        &self,
        access: Access,
        view: View,
        after: Option<&Name>,
        max: usize,
    ) -> Result<Vec<DirEntry>> {
        self.check(access, crate::contract::Operation::List)?;
        match view {
            View::Directory(directory) => {
                self.list_names(directory, after, max, |name| match self.last_target(directory, name)? {
                    Some(target) => versions_of(target),
                    None => Ok(None),
                })
            }
            View::Then(event, directory) => {
                self.within_history(event)?;
                let counted = self.counted(event)?;
                self.list_names(directory, after, max, |name| {
                    match self.child_then(&counted, directory, name)? {
                        Some(target) => self.shown_then(event, &counted, target),
                        None => Ok(None),
                    }
                })
            }
            View::Versions(file) => self.list_versions(file, after, max),
            View::Times => self.list_times(after, max),
        }
    }

    fn list_names(
        &self,
        directory: Inode,
        after: Option<&Name>,
        max: usize,
        shown: impl Fn(&Name) -> Result<Option<(Inode, FileKind)>>,
    ) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        let mut after = after.cloned();
        while entries.len() < max {
            let Some(name) = self.name_after(directory, after.as_ref())? else { break };
            if let Some((inode, kind)) = shown(&name)? {
                entries.push(DirEntry { name: name.clone(), inode, kind });
            }
            after = Some(name);
        }
        Ok(entries)
    }

    /// The times at which anything happened.
    fn list_times(&self, after: Option<&Name>, max: usize) -> Result<Vec<DirEntry>> {
        let mut last = match after.map(|name| time::parse(name.as_bytes())) {
            None => None,
            Some(Some(at)) => Some(at),
            Some(None) => return Err(ErrorCode::Invalid.into()),
        };
        let mut event = last.map_or(Ok(Version(0)), |at| self.event_at(at))?;
        // what was before the horizon is not listed
        event = event.max(Version(self.counters.horizon.0.saturating_sub(1)));
        let mut entries = Vec::new();
        while entries.len() < max {
            let Some((next, at)) = self.event_after(event)? else { break };
            // the last of those of one time stands for all of them
            event = self.event_at(at)?.max(next);
            if last.replace(at) != Some(at) {
                let name = named(time::format(at))?;
                let inode = View::Then(event, Inode::ROOT).inode()?;
                entries.push(DirEntry { name, inode, kind: FileKind::Directory });
            }
        }
        Ok(entries)
    }

    /// The files that had the path that `file` has or had last, and `file` itself.
    fn of_same_path(&self, file: Inode) -> Result<Vec<Inode>> {
        let Some((_, record)) = self.state.last_event(file, Version(0), Version(u64::MAX))? else {
            return Ok(vec![file]);
        };
        let place = record.place.clone();
        let mut files = vec![file];
        let mut last = Version(u64::MAX);
        while files.len() < MAX_SAME_PATH {
            let key = Key::named(place.parent, place.name.clone(), last);
            match self.state.history.last_until(&*self.state.store, &key)? {
                Some((Key { inode, part: Part::Named(name, version) }, Value::Named(target)))
                    if *inode == place.parent && *name == place.name =>
                {
                    if let Some((other, FileKind::Regular)) = target
                        && !files.contains(other)
                    {
                        files.push(*other);
                    }
                    let Some(before) = version.0.checked_sub(1) else { break };
                    last = Version(before);
                }
                _ => break,
            }
        }
        Ok(files)
    }

    /// The first version after `after` of any of `files`: its number, its time, and whose content it is.
    fn version_after(
        &self,
        files: &[Inode],
        after: Version,
    ) -> Result<Option<(Version, Timestamp, Version)>> {
        let mut first: Option<(Version, Timestamp, Version)> = None;
        for file in files {
            for event in self.events_of(*file, after.next())? {
                let (version, record) = event?;
                if first.is_some_and(|(found, ..)| found < version) {
                    break;
                }
                if let (true, Some(content)) = (record.has_content(), record.content) {
                    first = Some((version, record.at, content));
                    break;
                }
            }
        }
        Ok(first)
    }

    fn list_versions(&self, file: Inode, after: Option<&Name>, max: usize) -> Result<Vec<DirEntry>> {
        let files = self.of_same_path(file)?;
        let mut last = match after {
            None => None,
            Some(name) => {
                let found = self.find_version(&files, name.as_bytes())?.ok_or(ErrorCode::NoEntry)?;
                Some((found.0, found.1))
            }
        };
        let mut entries = Vec::new();
        while entries.len() < max {
            let from = last.map_or(Version(0), |(version, _)| version);
            let Some((version, at, content)) = self.version_after(&files, from)? else { break };
            let same_time = last.is_some_and(|(_, before)| before == at);
            let mut name = time::format(at);
            if same_time {
                name = format!("{name}.{version}");
            }
            entries.push(DirEntry { name: named(name)?, inode: content.inode(), kind: FileKind::Regular });
            last = Some((version, at));
        }
        Ok(entries)
    }

    fn version_named(&self, file: Inode, name: &[u8]) -> Result<Option<(Inode, FileKind)>> {
        let files = self.of_same_path(file)?;
        let found = self.find_version(&files, name)?;
        Ok(found.map(|(_, _, content)| (content.inode(), FileKind::Regular)))
    }

    /// The version that goes by `TIME`, which is the first of that time, or by `TIME.NUMBER`.
    fn find_version(&self, files: &[Inode], name: &[u8]) -> Result<Option<(Version, Timestamp, Version)>> {
        let end = name.iter().position(|byte| *byte == b'Z').map_or(name.len(), |at| at + 1);
        let (at, number) = name.split_at(end);
        let Some(at) = time::parse(at) else { return Ok(None) };
        let before = match number {
            [] => match at.0.checked_sub(1) {
                Some(before) => self.event_at(Timestamp(before))?,
                None => Version(0),
            },
            [b'.', number @ ..] => {
                let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<u64>().ok());
                let Some(before) = number.and_then(|number| number.checked_sub(1)) else { return Ok(None) };
                Version(before)
            }
            _ => return Ok(None),
        };
        let found = self.version_after(files, before)?;
        Ok(found.filter(|(version, time, _)| *time == at && (number.is_empty() || version.0 == before.0 + 1)))
    }
}

fn named(name: String) -> Result<Name> {
    Name::new(name.as_bytes()).ok_or_else(|| ErrorCode::Io.into())
}

/// The directory in which the versions of a file are, or of what lies in a directory.
fn versions_of((file, kind): (Inode, FileKind)) -> Result<Option<(Inode, FileKind)>> {
    let view = if kind == FileKind::Directory { View::Directory(file) } else { View::Versions(file) };
    Ok(Some((view.inode()?, FileKind::Directory)))
}
