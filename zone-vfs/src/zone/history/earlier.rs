//! Files that had a path before the one that is there, or was there last.
//!
//! A name that was deleted and written again stands for another file. What the earlier ones were is in the history all
//! the same, and is reached by the path that they had.

use std::collections::BTreeSet;

use super::super::{Access, ErrorCode, Expected, Result, Zone, ZoneError};
use super::VersionEntry;
use super::content::NewContent;
use super::query::no_content;
use crate::contract::Operation;
use crate::id::{Inode, Version};
use crate::tree::{FileKind, Key};

/// Files of one path whose events are told, at most: the newest.
pub const MAX_HOLDERS: usize = 1000;

impl Zone {
    /// The files that had a path, the one that has it, or had it last, after all others.
    fn holders_of(&self, access: Access, path: &[u8]) -> Result<Vec<Inode>> {
        let last = self.find_past(access, path)?;
        let earlier: BTreeSet<Inode> = self.files_ever_at(path)?;
        let skipped = earlier.len().saturating_sub(MAX_HOLDERS);
        let mut all: Vec<Inode> = earlier.into_iter().skip(skipped).filter(|file| *file != last).collect();
        all.push(last);
        Ok(all)
    }

    /// The events at a path after the number `after`, oldest first, at most `limit`: all of the file that is there, or was
    /// there last, and of those that had the path before what happened to them there.
    pub fn history_at(
        &self,
        access: Access,
        path: &[u8],
        after: Option<Version>,
        limit: usize,
    ) -> Result<Vec<VersionEntry>> {
        let holders = self.holders_of(access, path)?;
        let Some((last, earlier)) = holders.split_last() else { return Ok(Vec::new()) };
        let mut all = self.history(access, *last, after, limit)?;
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let path = names.collect::<Vec<_>>().join(&b'/');
        for file in earlier {
            for event in self.events_of(*file, after.map_or(Version(0), Version::next))? {
                let (version, record) = event?;
                let left = record.from.as_ref().map_or(Ok(None), |place| self.path_of_place(place))?;
                let at = self.path_of_place(&record.place)?;
                if at.as_ref() == Some(&path) || left.as_ref() == Some(&path) {
                    let record = record.clone();
                    all.push(VersionEntry { version, file: *file, is_current: false, path: at, record });
                }
            }
        }
        all.sort_by_key(|entry| entry.version);
        all.truncate(limit);
        Ok(all)
    }

    /// The file of which this is a version with content, or an event, among those that had a path.
    pub fn holder_of(&self, access: Access, path: &[u8], version: Version) -> Result<Inode> {
        let holders = self.holders_of(access, path)?;
        for file in holders.iter().rev() {
            if self.state.get(&Key::version(*file, version))?.is_some() {
                return Ok(*file);
            }
        }
        // what there is of the file that is meant says which error it is
        holders.last().copied().ok_or_else(|| ErrorCode::NoEntry.into())
    }

    /// As [`Zone::rollback`], of the file at a path. Where the version is one of a file that had the path before, its content
    /// is published as a new version of the file that is there now; where none is, that file comes back.
    pub fn rollback_at(
        &mut self,
        access: Access,
        path: &[u8],
        to: Version,
        expected: Expected,
    ) -> Result<Version> {
        self.check(access, Operation::Rollback)?;
        let source = self.holder_of(access, path, to)?;
        let now = match self.resolve(access, Inode::ROOT, path, false) {
            Ok(file) => Some(file),
            Err(e) if e.code == ErrorCode::NoEntry => None,
            Err(e) => return Err(e),
        };
        match now {
            Some(target) if target != source && self.record(target)?.kind() == FileKind::Regular => {
                self.publish_of_another(access, target, source, to, expected)
            }
            _ => self.rollback(access, source, to, expected),
        }
    }

    /// Publishes the content of a version of `source` as a new version of `target`.
    fn publish_of_another(
        &mut self,
        access: Access,
        target: Inode,
        source: Inode,
        to: Version,
        expected: Expected,
    ) -> Result<Version> {
        let record = self.version_record(source, to)?;
        let content = record.content.ok_or_else(no_content)?;
        self.expect(Some(target), expected)?;
        if self.draft(target)?.is_some() {
            return Err(ZoneError::rule(
                ErrorCode::Busy,
                "the file has a draft, which is to be published first",
            ));
        }
        self.bound_memory(access)?;
        self.afford_past()?;
        self.afford(record.size.saturating_sub(self.record(target)?.size), 0)?;
        let place = self.place_of(target)?;
        let content = NewContent::of_version(&self.state, content)?;
        self.with_open(target, |zone| {
            let version = zone.take_over(access, target, &content, &place)?;
            let same = zone.version_record(target, version)?.content.unwrap_or(version);
            zone.settled(target, Vec::new(), version, same, access.now)?;
            zone.update(target, |record| record.changed = access.now)?;
            Ok(version)
        })
    }
}
