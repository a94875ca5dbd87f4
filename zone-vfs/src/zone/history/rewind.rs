//! A rewind of a zone: its files go back, its history does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::{ErrorCode, Result, Zone, ZoneError, ZoneRoot};
use super::Event;
use crate::chunks::ChunkStore;
use crate::contract::Principal;
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{
    Body, ChangeKind, ChangeRecord, FileKind, Key, Name, NamedPlace, Part, Value, VersionKind, VersionRecord,
};

impl ZoneRoot {
    /// The zone whose files are those of this root, which is an earlier one of the zone that stands at
    /// `left` now: with the history and the change feed of now, in which the rewind is noted, and without
    /// a number that was given before. A function of its arguments alone.
    ///
    /// A file that was forgotten meanwhile does not come back.
    pub fn rewound(&self, left: &Self, at: Timestamp, store: &Arc<dyn ChunkStore>) -> Result<Self> {
        let mut counters = left.counters.after(&self.counters);
        (counters.usage, counters.inherited) = (self.counters.usage, self.counters.inherited);
        let root =
            Self { tree: self.tree.clone(), counters, resident_bytes: self.resident_bytes, ..left.clone() };
        let mut zone = Zone::from_root(root, store.clone());
        if zone.is_versioned() {
            let is_whole = zone.take_history(self, left)?;
            let moved = zone.note_moved(Version(self.counters.next_inode.0.saturating_sub(1)), at)?;
            if !is_whole {
                zone.counters.horizon = moved;
            }
        }
        zone.feed_moved(at)?;
        zone.snapshot()
    }
}

/// The event of the root directory that says how far back a rewind went.
fn moved(to: Version) -> Result<Event> {
    // the root directory has no place; this one names no entry of it
    let name = Name::new(b"root").ok_or(ErrorCode::Invalid)?;
    let place = NamedPlace { parent: Inode::ROOT, name };
    Ok(Event::without_content(Inode::ROOT, VersionKind::RootMoved { to }, FileKind::Directory, place))
}

impl Zone {
    fn note_moved(&mut self, to: Version, at: Timestamp) -> Result<Version> {
        let event = moved(to)?;
        self.note(Principal::Host, at, event)
    }

    /// Notes that what came before `version` counts only up to `to`. The number may be another event's, or that
    /// of a rewind, with which what came before does not count already.
    fn put_moved(&mut self, version: Version, to: Version, at: Timestamp) -> Result<()> {
        if self.state.get(&Key::version(Inode::ROOT, version))?.is_some() {
            return Ok(());
        }
        let Event { file, kind, is, place, from, size, hash, content, added } = moved(to)?;
        let (by, turn) = (Principal::Host, self.turn);
        let record = VersionRecord { at, by, turn, kind, file: is, place, from, size, hash, content, added };
        self.state.put(Key::version(file, version), Value::Version(Arc::new(record)))
    }

    fn feed_moved(&mut self, at: Timestamp) -> Result<()> {
        let record = ChangeRecord {
            kind: ChangeKind::RootMoved,
            file: Inode::ROOT,
            is: FileKind::Directory,
            turn: self.turn,
            at,
            by: Principal::Host,
            path: None,
            old_path: None,
            version: None,
            size: 0,
        };
        self.feed(record)
    }

    /// Takes what the history of `target` has and that of now, `left`, does not: events of a turn that
    /// failed, where the rewind leads to what it left, and content that was kept for open files alone.
    /// What was forgotten meanwhile stays so, and its files go.
    ///
    /// What a policy gave back meanwhile comes back, until it is given back again, and names that an earlier rewind
    /// brought back and the target does not have go: how the zone stood at the target is whole then. How it stood
    /// between is not, where there was any of this; gives whether it is.
    fn take_history(&mut self, target: &ZoneRoot, left: &ZoneRoot) -> Result<bool> {
        let store = self.state.store.clone();
        let reaped = left.counters.reaped;
        let last = Version(target.counters.next_inode.0.saturating_sub(1)).min(reaped);
        let mut is_whole = true;
        let mut stale: Vec<Key> = Vec::new();
        let mut taken: Vec<(Key, Value)> = Vec::new();
        let mut forgotten = BTreeSet::new();
        target.history.diff(&left.history, &*store, &mut |(key, old, new)| {
            match (&key.part, old, new) {
                // the versions themselves show nowhere without a name
                (Part::Named(_, version), None, Some(_)) if *version <= last => stale.push(key.clone()),
                (Part::Change(_), ..) | (_, None, _) => {}
                (Part::Version(_), Some(_), Some(Value::Version(now)))
                    if now.kind == VersionKind::Forgotten =>
                {
                    forgotten.insert(key.inode);
                }
                (_, Some(value), None) => taken.push((key.clone(), value.clone())),
                (_, Some(_), Some(_)) => {}
            }
            Ok::<_, ZoneError>(())
        })?;
        is_whole &= stale.is_empty();
        for key in stale {
            self.state.remove(key)?;
        }
        let mut span: Option<(Version, Version)> = None;
        for (key, value) in taken {
            if let Part::Version(version) | Part::Named(_, version) | Part::Event(version) = &key.part {
                is_whole &= *version > reaped;
            }
            if matches!(key.part, Part::Content | Part::Piece(_))
                && self.is_forgotten(Version(key.inode.0))?
            {
                continue;
            }
            if let (Part::Event(version), Value::Event(event)) = (&key.part, &value) {
                // what a policy gave back counts as ever
                if *version > reaped {
                    let (first, last) = span.unwrap_or((*version, *version));
                    span = Some((first.min(*version), last.max(*version)));
                }
                self.counters.past.inodes += 1;
                if let Some(Value::Version(record)) = target
                    .history
                    .get(&*store, &Key::version(event.file, *version))
                    .map_err(ZoneError::from)?
                {
                    self.counters.past.bytes += record.added;
                }
            }
            self.state.put(key, value)?;
        }
        if let Some((first, last)) = span {
            // until this rewind, those did not count
            let to = Version(first.0.saturating_sub(1));
            self.put_moved(last.next(), to, self.time_of(last)?)?;
        }
        for file in forgotten {
            if self.has_nothing_left(file)? {
                self.drop_forgotten(file)?;
            }
        }
        Ok(is_whole)
    }

    /// Whether the version of this number was forgotten.
    fn is_forgotten(&self, version: Version) -> Result<bool> {
        let Some(Value::Event(event)) = self.state.get(&Key::event(version))? else { return Ok(false) };
        let record = self.state.get(&Key::version(event.file, version))?;
        Ok(matches!(record, Some(Value::Version(record)) if record.kind == VersionKind::Forgotten))
    }

    /// Whether a file was forgotten with all its versions, or what it shows was.
    fn has_nothing_left(&self, file: Inode) -> Result<bool> {
        let last = self.state.last_event(file, Version(0), Version(u64::MAX))?;
        if last.is_some_and(|(_, record)| record.kind == VersionKind::Forgotten) {
            return Ok(true);
        }
        let Some(Value::Inode(record)) = self.state.get(&Key::inode(file))? else { return Ok(false) };
        match record.body {
            Body::Published { content, .. } | Body::Over { content, .. } => self.is_forgotten(content),
            _ => Ok(false),
        }
    }

    /// Takes a file away whose content was forgotten.
    fn drop_forgotten(&mut self, file: Inode) -> Result<()> {
        let Some(Value::Inode(record)) = self.state.get(&Key::inode(file))? else { return Ok(()) };
        let (place, size) = (record.place.clone(), record.size);
        if let Some(place) = place {
            self.state.remove(Key::dirent(place.parent, place.name))?;
        }
        for key in self.state.extents_from(file, 0)? {
            self.state.remove(key)?;
        }
        self.state.remove(Key::draft(file))?;
        self.state.remove(Key::orphan(file))?;
        self.state.remove(Key::inode(file))?;
        let usage = &mut self.counters.usage;
        usage.bytes = usage.bytes.saturating_sub(size);
        usage.inodes = usage.inodes.saturating_sub(1);
        Ok(())
    }
}
