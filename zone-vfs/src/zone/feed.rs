//! The change feed: what commits did to a zone, for indexes, mirrors and watchers.
//!
//! A drain compares the zone with how it stood at the drain before, at the keys that were touched, and
//! adds one entry for each file to the history tree. So writing costs nothing, and what is in the feed of
//! a committed root is what was committed. The feed is bounded, survives a rewind, and is inherited by a
//! fork.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{Access, MAX_DIRECTORY_DEPTH, Result, Zone, ZoneRoot};
use crate::chunks::ChunkStore;
use crate::contract::{Operation, Principal};
use crate::id::{ChangeSequence, Inode, Timestamp, Turn, Version};
use crate::tree::{
    Body, ChangeKind, ChangeRecord, Changes, FileKind, InodeRecord, Key, MAX_CHANGE_PATH, Name, NamedPlace,
    Part, Tree, Value, VersionKind, VersionRecord,
};

/// Entries of a zone's change feed that are kept; older ones are dropped.
pub const KEPT_CHANGES: u64 = 1 << 16;

/// What happened to an inode's names since the drain before.
#[derive(Default)]
struct Names {
    gone: Option<NamedPlace>,
    come: Option<NamedPlace>,
}

impl Zone {
    /// The entries of the change feed after `after`, oldest first, at most `limit`. Those of this zone
    /// here may not be committed yet; [`ZoneRoot::changes`] of a committed root are.
    pub fn changes(&self, access: Access, after: ChangeSequence, limit: usize) -> Result<Changes> {
        self.check(access, Operation::List)?;
        read(&self.state.history, self.counters, &*self.state.store, after, limit)
    }

    /// Adds to the feed what changed since the drain before.
    pub(super) fn feed_drained(&mut self) -> Result<()> {
        // what an earlier drain added before it failed
        while self.counters.next_change > self.drained.counters.next_change {
            let last = ChangeSequence(self.counters.next_change.0 - 1);
            self.state.remove(Key::change(last))?;
            self.counters.next_change = last;
        }
        let records = if self.is_versioned() { self.versioned_changes()? } else { self.plain_changes()? };
        for record in records {
            self.feed(record)?;
        }
        self.drop_oldest()
    }

    /// Adds an entry to the feed.
    pub(super) fn feed(&mut self, record: ChangeRecord) -> Result<()> {
        let sequence = self.counters.next_change;
        self.state.put(Key::change(sequence), Value::Change(Arc::new(record)))?;
        self.counters.next_change = sequence.next();
        Ok(())
    }

    fn drop_oldest(&mut self) -> Result<()> {
        let Some(last) = self.counters.next_change.0.checked_sub(KEPT_CHANGES + 1) else { return Ok(()) };
        let mut old = Vec::new();
        let from = Key::change(ChangeSequence(0));
        for entry in self.state.history.range(&*self.state.store, Bound::Included(&from))? {
            match entry?.0.part {
                Part::Change(sequence) if sequence.0 <= last => old.push(sequence),
                _ => break,
            }
        }
        for sequence in old {
            self.state.remove(Key::change(sequence))?;
            self.counters.dropped = sequence;
        }
        Ok(())
    }

    /// From the events of a zone that keeps versions.
    fn versioned_changes(&self) -> Result<Vec<ChangeRecord>> {
        let mut records = Vec::new();
        for key in self.state.pending.keys() {
            let (file, Part::Version(version)) = (key.inode, &key.part) else { continue };
            let old = event(&self.drained.history, &*self.state.store, key)?;
            let new = event(&self.state.history, &*self.state.store, key)?;
            let record = match (old, new) {
                (None, Some(new)) => self.of_event(file, *version, new)?,
                // what was synced in the turn that is going on was born elsewhere, or not at all
                (Some(old), Some(new)) if old.place != new.place => {
                    let from = self.path(Some(&old.place))?;
                    let record = self.of_event(file, *version, new)?;
                    ChangeRecord { kind: ChangeKind::Rename, old_path: from, ..record }
                }
                // one version, of a file that stays
                (Some(old), Some(new)) if old.has_content() && new.kind == VersionKind::Forgotten => {
                    if self.forgotten.contains(&file) {
                        continue;
                    }
                    ChangeRecord { version: Some(*version), ..self.of_event(file, *version, new)? }
                }
                // given back by a policy, which is no news
                (Some(_), None) if *version <= self.counters.reaped => continue,
                (Some(old), None) => {
                    let record = self.of_event(file, *version, old)?;
                    ChangeRecord { kind: ChangeKind::Remove, version: None, size: 0, ..record }
                }
                _ => continue,
            };
            records.push((*version, record));
        }
        records.sort_by_key(|(version, _)| *version);
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    fn of_event(&self, file: Inode, version: Version, record: &VersionRecord) -> Result<ChangeRecord> {
        let kind = match record.kind {
            VersionKind::Create => ChangeKind::Create,
            VersionKind::Publish => ChangeKind::Publish,
            VersionKind::Rollback { .. } => ChangeKind::Rollback,
            VersionKind::Rename => ChangeKind::Rename,
            VersionKind::Tombstone => ChangeKind::Tombstone,
            VersionKind::Forgotten => ChangeKind::Forget,
            VersionKind::RootMoved { .. } => ChangeKind::RootMoved,
        };
        Ok(ChangeRecord {
            kind,
            file,
            is: record.file,
            turn: record.turn,
            at: record.at,
            by: record.by,
            path: self.path(Some(&record.place))?,
            old_path: self.path(record.from.as_ref())?,
            version: record.has_content().then_some(version),
            size: record.size,
        })
    }

    /// From a comparison with the drain before.
    fn plain_changes(&self) -> Result<Vec<ChangeRecord>> {
        let mut names: BTreeMap<Inode, Names> = BTreeMap::new();
        let store = &*self.state.store;
        for key in self.state.pending.keys() {
            match &key.part {
                Part::Dirent(name) => {
                    let place = NamedPlace { parent: key.inode, name: name.clone() };
                    let old = target(&self.drained.tree, store, key)?;
                    let new = target(&self.state.tree, store, key)?;
                    if old != new {
                        if let Some(old) = old {
                            names.entry(old).or_default().gone = Some(place.clone());
                        }
                        if let Some(new) = new {
                            names.entry(new).or_default().come = Some(place);
                        }
                    }
                }
                Part::Inode | Part::Extent(_) => {
                    names.entry(key.inode).or_default();
                }
                _ => {}
            }
        }
        let mut records = Vec::new();
        for (file, names) in names {
            let old = record(&self.drained.tree, store, file)?;
            let new = record(&self.state.tree, store, file)?;
            self.compared(file, old, new, &names, &mut records)?;
        }
        Ok(records)
    }

    fn compared(
        &self,
        file: Inode,
        old: Option<&InodeRecord>,
        new: Option<&InodeRecord>,
        names: &Names,
        records: &mut Vec<ChangeRecord>,
    ) -> Result<()> {
        let Some(known) = new.or(old) else { return Ok(()) };
        let by = self.author(file);
        let at = match (new, &names.gone) {
            (Some(new), _) => new.changed,
            (None, Some(gone)) => self.changed_above(gone.parent)?.unwrap_or(known.changed),
            (None, None) => known.changed,
        };
        let mut add = |kind, path, old_path| {
            records.push(ChangeRecord {
                kind,
                file,
                is: known.kind(),
                turn: self.turn,
                at,
                by,
                path,
                old_path,
                version: None,
                size: new.map_or(0, |new| new.size),
            });
        };
        if self.forgotten.contains(&file) {
            let place = names.gone.as_ref().or(known.place.as_ref());
            add(ChangeKind::Forget, self.path_before(place)?, None);
            return Ok(());
        }
        match (&names.gone, &names.come) {
            (Some(gone), Some(come)) => {
                add(ChangeKind::Rename, self.path(Some(come))?, self.path_before(Some(gone))?);
            }
            (None, Some(come)) => add(ChangeKind::Create, self.path(Some(come))?, None),
            (Some(gone), None) => add(ChangeKind::Remove, self.path_before(Some(gone))?, None),
            (None, None) => {}
        }
        let (Some(old), Some(new)) = (old, new) else { return Ok(()) };
        // what had no name came with what it holds
        let is_born = old.links == 0 && names.come.is_some();
        if new.kind() == FileKind::Directory
            || new.links == 0
            || is_born
            || !self.content_differs(file, old, new)
        {
            return Ok(());
        }
        let kind = if self.kind.is_append_only() {
            ChangeKind::Append { from: old.size, to: new.size }
        } else {
            ChangeKind::Write
        };
        add(kind, self.path(new.place.as_ref())?, None);
        Ok(())
    }

    /// Whether anything of a file's content was touched since the drain before.
    fn content_differs(&self, file: Inode, old: &InodeRecord, new: &InodeRecord) -> bool {
        let chunks = Key::extent(file, 0)..=Key::extent(file, u64::MAX);
        old.size != new.size || old.body != new.body || self.state.pending.range(chunks).next().is_some()
    }

    fn author(&self, file: Inode) -> Principal {
        let open = self.open.get(&file).map(|open| open.author);
        self.authors.get(&file).copied().or(open).unwrap_or(Principal::Host)
    }

    /// When the nearest directory that is still there was changed: that from which the others went.
    fn changed_above(&self, directory: Inode) -> Result<Option<Timestamp>> {
        let store = &*self.state.store;
        let mut at = directory;
        for _ in 0..=MAX_DIRECTORY_DEPTH {
            if let Some(there) = record(&self.state.tree, store, at)?.filter(|it| it.links > 0) {
                return Ok(Some(there.changed));
            }
            match record(&self.drained.tree, store, at)? {
                Some(InodeRecord { body: Body::Directory { parent }, .. }) if *parent != at => at = *parent,
                _ => break,
            }
        }
        Ok(None)
    }

    /// The path of a place as it was, also where its directories went with it.
    fn path_before(&self, place: Option<&NamedPlace>) -> Result<Option<Vec<u8>>> {
        let Some(place) = place else { return Ok(None) };
        let mut names = vec![place.name.clone()];
        let mut at = place.parent;
        while at != Inode::ROOT {
            let before = record(&self.drained.tree, &*self.state.store, at)?;
            let known = before.or(record(&self.state.tree, &*self.state.store, at)?);
            let Some(place) = known.and_then(|it| it.place.as_ref()) else { return self.path(Some(place)) };
            if names.len() > MAX_DIRECTORY_DEPTH {
                return Ok(None);
            }
            names.push(place.name.clone());
            at = place.parent;
        }
        let names: Vec<&[u8]> = names.iter().rev().map(Name::as_bytes).collect();
        Ok(Some(names.join(&b'/')).filter(|path| path.len() <= MAX_CHANGE_PATH))
    }

    fn path(&self, place: Option<&NamedPlace>) -> Result<Option<Vec<u8>>> {
        let Some(place) = place else { return Ok(None) };
        Ok(self.path_of_place(place)?.filter(|path| path.len() <= MAX_CHANGE_PATH))
    }

    /// What the turn is that entries are of.
    pub fn turn(&self) -> Turn {
        self.turn
    }
}

impl ZoneRoot {
    /// The entries of the change feed after `after`, oldest first, at most `limit`.
    pub fn changes(&self, store: &dyn ChunkStore, after: ChangeSequence, limit: usize) -> Result<Changes> {
        read(&self.history, self.counters, store, after, limit)
    }
}

fn read(
    history: &Tree,
    counters: super::Counters,
    store: &dyn ChunkStore,
    after: ChangeSequence,
    limit: usize,
) -> Result<Changes> {
    let mut changes = Changes {
        entries: Vec::new(),
        gap: (counters.dropped > after).then_some(counters.dropped),
        last: ChangeSequence(counters.next_change.0.saturating_sub(1)),
    };
    let from = Key::change(after);
    for entry in history.range(store, Bound::Excluded(&from))?.take(limit) {
        match entry? {
            (Key { part: Part::Change(sequence), .. }, Value::Change(record)) => {
                changes.entries.push((*sequence, (**record).clone()));
            }
            _ => break,
        }
    }
    Ok(changes)
}

fn event<'a>(tree: &'a Tree, store: &'a dyn ChunkStore, key: &Key) -> Result<Option<&'a VersionRecord>> {
    Ok(match tree.get(store, key)? {
        Some(Value::Version(record)) => Some(record),
        _ => None,
    })
}

fn target(tree: &Tree, store: &dyn ChunkStore, key: &Key) -> Result<Option<Inode>> {
    Ok(match tree.get(store, key)? {
        Some(Value::Dirent { inode, .. }) => Some(*inode),
        _ => None,
    })
}

fn record<'a>(tree: &'a Tree, store: &'a dyn ChunkStore, inode: Inode) -> Result<Option<&'a InodeRecord>> {
    Ok(match tree.get(store, &Key::inode(inode))? {
        Some(Value::Inode(record)) => Some(record),
        _ => None,
    })
}
