//! Rolling back, and forgetting.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::table::Stage;
use super::super::{Access, Erased, ErrorCode, Expected, MAX_ERASED, Result, Zone, ZoneError, new_record};
use super::Event;
use super::content::remove_content;
use super::query::no_content;
use crate::contract::{self, Operation, Principal};
use crate::id::{Hash, Inode, Version};
use crate::tree::{Body, FileKind, Key, Name, NamedPlace, Tree, Value, VersionKind, VersionRecord};

/// What [`Zone::forget`] has erased.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Chunks that held the content and that nothing in this zone names any more. Other zones,
    /// generations and agents may.
    pub chunks: Vec<Hash>,
    /// The versions whose content is gone, and the live content, if there was any.
    pub contents: usize,
    /// Their sizes together. Bytes.
    pub bytes: u64,
}

impl Zone {
    /// Publishes the content of an earlier version of a file as its new version, if it stands at the
    /// expected one (otherwise `busy`). A file that was deleted comes back where it was, as the same file.
    /// A draft of the file has to be published or dropped before. No content is copied.
    pub fn rollback(
        &mut self,
        access: Access,
        file: Inode,
        to: Version,
        expected: Expected,
    ) -> Result<Version> {
        self.check(access, Operation::Rollback)?;
        let file = self.actual(file);
        let record = self.version_record(file, to)?;
        let content = record.content.ok_or_else(no_content)?;
        let there = self.state.get(&Key::inode(file))?.is_some() && self.record(file)?.links > 0;
        self.expect(there.then_some(file), expected)?;
        if there && self.draft(file)?.is_some() {
            return Err(ZoneError::rule(
                ErrorCode::Busy,
                "the file has a draft, which is to be published first",
            ));
        }
        self.bound_memory(access)?;
        self.afford_past()?;
        let old = if there { self.record(file)?.size } else { 0 };
        self.afford(record.size.saturating_sub(old), u64::from(!there))?;
        // what is to be read of the file itself, before a directory is made for it
        self.state.prepare(&[
            &Key::inode(file),
            &Key::version(file, self.next_event()),
            &Key::draft(file),
        ])?;
        let place = if there { self.place_of(file)? } else { self.place_to_return(access, file)? };
        self.prepare_event(file, &[&place])?;
        let event = Event {
            file,
            kind: VersionKind::Rollback { to },
            is: FileKind::Regular,
            place: place.clone(),
            from: None,
            size: record.size,
            hash: record.hash,
            content: Some(content),
            added: 0,
        };
        if there {
            return self.with_open(file, |zone| {
                let version = zone.note(access.mount.principal, access.now, event)?;
                zone.settled(file, Vec::new(), version, content, access.now)?;
                zone.update(file, |record| record.changed = access.now)?;
                Ok(version)
            });
        }
        let version = self.note(access.mount.principal, access.now, event)?;
        let target = Value::Named(Some((file, FileKind::Regular)));
        self.state.put(Key::named(place.parent, place.name.clone(), version), target)?;
        let dirent = Value::Dirent { inode: file, kind: FileKind::Regular };
        self.state.put(Key::dirent(place.parent, place.name.clone()), dirent)?;
        let mut live = new_record(Body::Published { version, content }, record.size, access.now);
        live.place = Some(place.clone());
        self.state.put(Key::inode(file), Value::Inode(live))?;
        self.changed_directory(access, place.parent)?;
        self.counters.usage.bytes += record.size;
        self.counters.usage.inodes += 1;
        Ok(version)
    }

    /// Where a deleted file comes back: where it was, if the name is free. Directories of its path that are not
    /// there any more are made again.
    fn place_to_return(&mut self, access: Access, file: Inode) -> Result<NamedPlace> {
        if self.open.contains_key(&file) {
            return Err(ZoneError::rule(ErrorCode::Busy, "the deleted file is still open"));
        }
        let last = self.state.last_event(file, Version(0), Version(u64::MAX))?;
        let place = last.map(|(_, record)| record.place.clone()).ok_or(ErrorCode::NoEntry)?;
        let parent = match self.state.get(&Key::inode(place.parent))? {
            Some(Value::Inode(record)) if record.links > 0 => place.parent,
            _ => self.directories_again(access, &place)?,
        };
        if self.state.dirent(parent, &place.name)?.is_some() {
            return Err(ErrorCode::Exist.into());
        }
        Ok(NamedPlace { parent, name: place.name })
    }

    /// The directory at the path that a place had, for the file that comes back there. What is not there is made; a
    /// name that something else has now is refused, and so is what there is no room for, before anything is made.
    fn directories_again(&mut self, access: Access, place: &NamedPlace) -> Result<Inode> {
        let path = self.path_of_place(place)?.ok_or(ErrorCode::NoEntry)?;
        let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        names.pop();
        let mut at = Inode::ROOT;
        let mut missing = names.len();
        for (index, name) in names.iter().enumerate() {
            let name = Name::new(name).ok_or(ErrorCode::Invalid)?;
            match self.state.dirent(at, &name)? {
                Some((directory, FileKind::Directory)) => at = directory,
                Some(_) => return Err(ErrorCode::NotDirectory.into()),
                None => {
                    missing = index;
                    break;
                }
            }
        }
        self.check(access, Operation::CreateDirectory)?;
        // none can lie too deep: `path_of_place` gives no such path. With the file itself
        let more = (names.len() - missing) as u64 + 1;
        self.afford(0, more)?;
        self.afford_events(more)?;
        for name in &names[missing..] {
            at = self.mkdir(access, at, name)?;
        }
        Ok(at)
    }

    /// Erases the content of a file: what it holds now, and in a zone that keeps versions also every
    /// version of it. Its name goes, and a tombstone says that it was forgotten; its path stays known. Whoever has it
    /// open has nothing any more: each use is `bad-descriptor`, unless the file has another name.
    ///
    /// The agent may do this in semantic memory, the operator anywhere. What is erased here is gone from
    /// the zone as it stands; what generations, the log and the segments hold of it is the store's
    /// to erase, which a commit of this asks for. Walks the whole zone.
    pub fn forget(&mut self, access: Access, file: Inode) -> Result<Forgotten> {
        self.may_forget(access, file)?;
        let file = self.actual(file);
        let events: Vec<_> = self
            .events_of(file, Version(0))?
            .map(|event| event.map(|(version, record)| (version, record.clone())))
            .collect::<Result<_>>()?;
        let live = match self.state.get(&Key::inode(file))? {
            Some(_) => Some(self.record(file)?.clone()),
            None => None,
        };
        if live.as_ref().is_some_and(|record| record.kind() == FileKind::Directory) {
            return Err(ErrorCode::IsDirectory.into());
        }
        if live.is_none() && events.is_empty() {
            return Err(ErrorCode::NoEntry.into());
        }
        self.may_note(access)?;
        let mut gone = Forgotten::default();
        let mut doomed = HashSet::new();
        for (version, record) in &events {
            if record.content == Some(*version) {
                super::content::load(&self.state, *version)?;
                chunks_of(&self.state.history, &*self.state.store, version.inode(), &mut doomed)?;
            }
        }
        chunks_of(&self.state.tree, &*self.state.store, file, &mut doomed)?;
        let place = live.as_ref().and_then(|record| record.place.clone());
        let last = place.clone().or_else(|| events.last().map(|(_, record)| record.place.clone()));
        self.prepare_event(file, &last.iter().collect::<Vec<_>>())?;
        let path = last.as_ref().map_or(Ok(None), |place| self.path_of_place(place))?;
        if let Some(record) = &live {
            // what was published is counted with the versions
            if !matches!(record.body, Body::Published { .. }) {
                gone.contents += 1;
                gone.bytes += record.size;
            }
            self.erase_live(access, file, place.as_ref())?;
        }
        for (version, record) in events {
            self.erase_version(file, version, record, &mut gone)?;
        }
        if let (true, Some(last)) = (self.is_versioned(), last) {
            let key = Key::named(last.parent, last.name.clone(), self.next_event());
            if place.is_some() {
                self.state.put(key, Value::Named(None))?;
            }
            let event = Event::without_content(file, VersionKind::Forgotten, FileKind::Regular, last);
            self.note(access.mount.principal, access.now, event)?;
        }
        self.forgotten.insert(file);
        self.authors.insert(file, access.mount.principal);
        self.still_named(&mut doomed)?;
        gone.chunks = doomed.into_iter().collect();
        gone.chunks.sort_unstable();
        self.note_erased(access, file, None, path, &gone);
        Ok(gone)
    }

    /// Refuses an agent that forgets more than its host is going to note at once.
    pub(super) fn may_note(&self, access: Access) -> Result<()> {
        if access.mount.principal == Principal::Agent && self.erased.len() >= MAX_ERASED {
            let rule = "an agent forgets at most 1,000 files and versions before they are committed";
            return Err(ZoneError::rule(ErrorCode::Quota, rule));
        }
        Ok(())
    }

    pub(super) fn note_erased(
        &mut self,
        access: Access,
        file: Inode,
        version: Option<Version>,
        path: Option<Vec<u8>>,
        gone: &Forgotten,
    ) {
        if access.mount.principal == Principal::Agent {
            let Forgotten { contents, bytes, .. } = *gone;
            self.erased.push(Erased { file, version, path, contents, bytes });
        }
    }

    /// What the agent has forgotten since this was [noted](Self::erased_is_noted), also what a commit has made final.
    pub fn erased(&self) -> &[Erased] {
        &self.erased
    }

    /// The host has noted all that the agent has forgotten.
    pub fn erased_is_noted(&mut self) {
        self.erased.clear();
    }

    /// Whether a file may be forgotten: not one of the audit trail.
    pub fn may_forget(&self, access: Access, file: Inode) -> Result<()> {
        if let Some(top) = self.reserved_inode()? {
            let is_reserved = match &self.state.get(&Key::inode(file))? {
                _ if file == top => true,
                Some(Value::Inode(record)) => match &record.place {
                    Some(place) => self.lies_in(place.parent, top)?,
                    None => false,
                },
                _ => false,
            };
            if is_reserved {
                let mount = self.holders.narrow(access);
                return Ok(contract::check_reserved(self.kind, mount, Operation::Forget).map(drop)?);
            }
        }
        self.check(access, Operation::Forget).map(drop)
    }

    /// Empties a live file and takes its name away. With its last name the file itself goes, also where it is open:
    /// what is written to it from then on would be acknowledged, and nowhere to be found.
    fn erase_live(&mut self, access: Access, file: Inode, place: Option<&NamedPlace>) -> Result<()> {
        let chunks = self.state.extents_from(file, 0)?;
        self.state.prepare(&[&Key::orphan(file)])?;
        let aliases: Vec<Inode> =
            self.aliases.iter().filter(|(_, alias)| alias.to == file).map(|(number, _)| *number).collect();
        for number in &aliases {
            self.state.prepare(&[&Key::inode(*number), &Key::orphan(*number)])?;
        }
        let size = self.record(file)?.size;
        self.state.remove(Key::draft(file))?;
        for key in chunks {
            self.state.remove(key)?;
        }
        if let Some(open) = self.open.get_mut(&file) {
            open.chunk = None;
            open.stage = Stage::Plain;
        }
        self.update(file, |record| {
            record.body = Body::Inline(Arc::default());
            record.size = 0;
            record.modified = access.now;
            record.changed = access.now;
        })?;
        self.counters.usage.bytes = self.counters.usage.bytes.saturating_sub(size);
        if let Some(place) = place {
            self.state.remove(Key::dirent(place.parent, place.name.clone()))?;
            self.changed_directory(access, place.parent)?;
            self.release_name(access, file, place, Vec::new())?;
        }
        if self.open.get(&file).is_some_and(|open| open.record.links == 0) {
            self.destroy(file)?;
            self.open.remove(&file);
            self.dirty.retain(|dirty| *dirty != file);
            self.postponed.remove(&file);
            self.holders.forget(file);
            for number in aliases {
                self.aliases.remove(&number);
                self.destroy(number)?;
                self.holders.forget(number);
            }
        }
        Ok(())
    }

    pub(super) fn erase_version(
        &mut self,
        file: Inode,
        version: Version,
        mut record: VersionRecord,
        gone: &mut Forgotten,
    ) -> Result<()> {
        if record.content == Some(version) {
            remove_content(&mut self.state, version)?;
            gone.contents += 1;
            gone.bytes += record.size;
        }
        if record.content.take().is_some() {
            let past = &mut self.counters.past;
            past.bytes = past.bytes.saturating_sub(record.added);
            (record.size, record.added, record.hash) = (0, 0, Hash([0; 32]));
            record.kind = VersionKind::Forgotten;
            self.state.put(Key::version(file, version), Value::Version(Arc::new(record)))?;
        }
        Ok(())
    }

    /// Takes those out of `doomed` that something in the zone names.
    pub(super) fn still_named(&mut self, doomed: &mut HashSet<Hash>) -> Result<()> {
        for tree in [&self.state.tree, &self.state.history] {
            for entry in tree.entries(&*self.state.store)? {
                if let Value::Extent(extent) = entry?.1
                    && let Some(hash) = extent.address()
                {
                    doomed.remove(&hash);
                }
            }
        }
        Ok(())
    }
}

/// The addresses of the chunks or pieces under an inode.
pub(super) fn chunks_of(
    tree: &Tree,
    store: &dyn crate::chunks::ChunkStore,
    inode: Inode,
    found: &mut HashSet<Hash>,
) -> Result<()> {
    for entry in tree.range(store, std::ops::Bound::Included(&Key::inode(inode)))? {
        let (key, value) = entry?;
        if key.inode != inode {
            break;
        }
        if let Value::Extent(extent) = value
            && let Some(hash) = extent.address()
        {
            found.insert(hash);
        }
    }
    Ok(())
}
