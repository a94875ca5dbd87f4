//! Names: making, moving, removing and listing them.

use std::ops::Bound;
use std::sync::Arc;

use super::history::{draft::another_draft, view};
use super::path::{Last, Place, check_target};
use super::{
    Access, DirEntry, ErrorCode, Expected, MAX_NAMES, Result, Zone, ZoneError, is_directory, new_record,
};
use crate::contract::Operation;
use crate::id::Inode;
use crate::tree::{Body, DraftRecord, FileKind, InodeRecord, Key, Name, Part, Value};

impl Zone {
    /// Lists a directory in the order of the names' bytes: at most `max` entries, those after the
    /// name `after`, which need not exist any more.
    pub fn readdir(
        &self,
        access: Access,
        directory: Inode,
        after: Option<&Name>,
        max: usize,
    ) -> Result<Vec<DirEntry>> {
        self.check(access, Operation::List)?;
        if let Some(view) = view::directory(directory) {
            self.view_record(directory)?;
            return self.list_view(access, view, after, max);
        }
        if !is_directory(self.record(directory)?.kind()) {
            return Err(ErrorCode::NotDirectory.into());
        }
        if !self.has_drafts()? {
            return self.entries(directory, after, max);
        }
        let mut seen = Vec::new();
        let mut after = after.cloned();
        while seen.len() < max {
            let entries = self.entries(directory, after.as_ref(), max - seen.len())?;
            let Some(last) = entries.last() else { break };
            after = Some(last.name.clone());
            for entry in entries {
                if !self.is_hidden(access, entry.inode)? {
                    seen.push(entry);
                }
            }
        }
        Ok(seen)
    }

    fn entries(&self, directory: Inode, after: Option<&Name>, max: usize) -> Result<Vec<DirEntry>> {
        let from = match after {
            Some(name) => Key::dirent(directory, name.clone()),
            None => Key::inode(directory),
        };
        let mut entries = Vec::new();
        let mut dentries = self.state.dentries.borrow_mut();
        for entry in self.state.tree.range(&*self.state.store, Bound::Excluded(&from))?.take(max) {
            match entry? {
                (Key { inode: of, part: Part::Dirent(name) }, Value::Dirent { inode, kind })
                    if *of == directory =>
                {
                    // who lists a folder goes on to what lies in it
                    dentries.note(directory, name, (*inode, *kind));
                    entries.push(DirEntry { name: name.clone(), inode: *inode, kind: *kind });
                }
                _ => break,
            }
        }
        Ok(entries)
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<Inode> {
        self.check(access, Operation::CreateDirectory)?;
        let place = self.locate_new(access, base, path)?;
        self.check_place(access, &place, Operation::CreateDirectory)?;
        self.bound_memory(access)?;
        // refuses what lies too deep
        self.lies_in(place.parent, Inode::ROOT)?;
        if let (true, Some(named)) = (self.is_versioned(), place.named()) {
            self.afford_past()?;
            self.prepare_event(self.counters.next_inode, &[&named])?;
        }
        let record = new_record(Body::Directory { parent: place.parent }, 0, access.now);
        let directory = self.create(access, &place, record)?;
        self.note_directory(access, directory)?;
        Ok(directory)
    }

    /// Makes a symbolic link that holds `target`, which need not exist but cannot be absolute.
    pub fn symlink(&mut self, access: Access, target: &[u8], base: Inode, path: &[u8]) -> Result<Inode> {
        self.check(access, Operation::Symlink)?;
        check_target(target)?;
        let place = self.locate_new(access, base, path)?;
        self.check_past(access, &place, Operation::Symlink)?;
        if place.slash {
            return Err(ErrorCode::NoEntry.into());
        }
        self.bound_memory(access)?;
        let size = target.len() as u64;
        let record = new_record(Body::Symlink(Arc::new(target.to_vec())), size, access.now);
        self.create(access, &place, record)
    }

    /// Gives the file at `from` one more name. Directories have only one.
    pub fn link(
        &mut self,
        access: Access,
        from: (Inode, &[u8]),
        follow: bool,
        to: (Inode, &[u8]),
    ) -> Result<()> {
        self.check(access, Operation::HardLink)?;
        let last = if follow { Last::Follow } else { Last::Stay };
        let (inode, kind) = self.locate(access, from.0, from.1, last)?.found()?;
        if is_directory(kind) {
            return Err(ZoneError::rule(ErrorCode::NotPermitted, "a directory has one name"));
        }
        let place = self.locate_new(access, to.0, to.1)?;
        self.check_past(access, &place, Operation::HardLink)?;
        if place.slash {
            return Err(ErrorCode::NoEntry.into());
        }
        self.bound_memory(access)?;
        if self.record(inode)?.links >= MAX_NAMES {
            return Err(ErrorCode::TooManyLinks.into());
        }
        self.afford(0, 1)?;
        self.prepare_entry(&place)?;
        self.add_entry(access, &place, inode, kind)?;
        self.counters.usage.inodes += 1;
        self.update(inode, |record| {
            record.links += 1;
            record.changed = access.now;
        })
    }

    /// Gives a file that is open and has lost its last name one again, in a zone that keeps no versions: so what is
    /// written to it is there at once, whole.
    pub fn link_unnamed(&mut self, access: Access, inode: Inode, to: (Inode, &[u8])) -> Result<()> {
        self.check(access, Operation::HardLink)?;
        if self.is_versioned() {
            return Err(ErrorCode::Unsupported.into());
        }
        let record = self.record(inode)?;
        let kind = record.kind();
        if record.links > 0 || kind != FileKind::Regular || !self.open.contains_key(&inode) {
            return Err(ErrorCode::NoEntry.into());
        }
        let place = self.locate_new(access, to.0, to.1)?;
        if place.slash {
            return Err(ErrorCode::NoEntry.into());
        }
        self.bound_memory(access)?;
        self.prepare_entry(&place)?;
        self.state.prepare(&[&Key::orphan(inode)])?;
        // it was counted all the time
        self.state.remove(Key::orphan(inode))?;
        self.add_entry(access, &place, inode, kind)?;
        self.update(inode, |record| {
            record.links = 1;
            record.changed = access.now;
            record.place = place.named();
        })
    }

    /// Removes a name of a file or link. The file goes with its last name and last close.
    pub fn unlink(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<()> {
        self.unlink_if(access, base, path, Expected::Any)
    }

    /// As [`Zone::unlink`], if the file stands at the expected version; otherwise `busy`, with
    /// [`Cause::Changed`](super::Cause::Changed).
    pub fn unlink_if(&mut self, access: Access, base: Inode, path: &[u8], expected: Expected) -> Result<()> {
        self.check(access, Operation::Unlink)?;
        let place = self.locate(access, base, path, Last::Entry)?;
        self.check_past(access, &place, Operation::Unlink)?;
        self.bound_memory_if_possible(access);
        let (inode, kind) = place.found()?;
        if is_directory(kind) {
            return Err(ErrorCode::IsDirectory.into());
        }
        if self.is_versioned() {
            self.check_draft(access, inode)?;
        }
        self.expect(Some(inode), expected)?;
        self.remove_entry(access, &place, inode, kind)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<()> {
        self.check(access, Operation::RemoveDirectory)?;
        let place = self.locate(access, base, path, Last::Entry)?;
        self.check_past(access, &place, Operation::RemoveDirectory)?;
        self.bound_memory_if_possible(access);
        let (inode, kind) = place.found()?;
        if !is_directory(kind) {
            return Err(ErrorCode::NotDirectory.into());
        }
        if place.name.is_none() {
            return Err(ErrorCode::Invalid.into());
        }
        if !self.entries(inode, None, 1)?.is_empty() {
            return Err(ErrorCode::NotEmpty.into());
        }
        self.remove_entry(access, &place, inode, kind)
    }

    /// Moves a name, and replaces what the new name stood for, in one step.
    ///
    /// A directory can replace only an empty directory, and cannot move into itself. Two names of one
    /// file both stay. Where the zone keeps versions, a file that is replaced stays the file that it is,
    /// and what replaces it is its new version.
    pub fn rename(&mut self, access: Access, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<()> {
        self.rename_if(access, from, to, Expected::Any)
    }

    /// As [`Zone::rename`], if what the new name stands for is as expected; otherwise `busy`, with
    /// [`Cause::Changed`](super::Cause::Changed).
    pub fn rename_if(
        &mut self,
        access: Access,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        expected: Expected,
    ) -> Result<()> {
        self.check(access, Operation::Rename)?;
        let old = self.locate(access, from.0, from.1, Last::Entry)?;
        self.check_past(access, &old, Operation::Rename)?;
        let (inode, kind) = old.found()?;
        let new = self.locate(access, to.0, to.1, Last::Entry)?;
        self.check_past(access, &new, Operation::Rename)?;
        self.expect(new.target.map(|(replaced, _)| replaced), expected)?;
        let (Some(old_place), Some(new_place)) = (old.named(), new.named()) else {
            return Err(ErrorCode::Busy.into());
        };
        if new.slash && !is_directory(kind) {
            return Err(ErrorCode::NotDirectory.into());
        }
        if new.target.is_some() {
            self.bound_memory_if_possible(access);
        } else {
            self.bound_memory(access)?;
        }
        let mut chunks = Vec::new();
        if let Some((replaced, replaced_kind)) = new.target {
            if replaced == inode {
                return Ok(());
            }
            match (is_directory(kind), is_directory(replaced_kind)) {
                (false, true) => return Err(ErrorCode::IsDirectory.into()),
                (true, false) => return Err(ErrorCode::NotDirectory.into()),
                (true, true) if !self.entries(replaced, None, 1)?.is_empty() => {
                    return Err(ErrorCode::NotEmpty.into());
                }
                (false, false) if self.is_versioned() => {
                    return self.replace_file(access, inode, &old, replaced, &new);
                }
                _ => {}
            }
            chunks = self.chunks_to_release(replaced)?;
            self.prepare_gone(replaced, &new_place)?;
        }
        if is_directory(kind) && self.lies_in(new.parent, inode)? {
            return Err(ZoneError::rule(ErrorCode::Invalid, "a directory cannot move into itself"));
        }
        self.record(inode)?;
        self.record(old.parent)?;
        if self.is_versioned() {
            self.check_draft(access, inode)?;
        }
        self.prepare_entry(&new)?;
        self.prepare_renamed(inode, &old_place, &new_place)?;
        self.state.remove(Key::dirent(old.parent, old_place.name.clone()))?;
        self.changed_directory(access, old.parent)?;
        if let Some((replaced, replaced_kind)) = new.target {
            self.state.remove(Key::dirent(new.parent, new_place.name.clone()))?;
            self.note_gone(access, replaced, replaced_kind, &new_place)?;
            self.release_name(access, replaced, &new_place, chunks)?;
        }
        self.add_entry(access, &new, inode, kind)?;
        self.note_renamed(access, inode, kind, &old_place, &new_place)?;
        self.update(inode, |record| {
            record.changed = access.now;
            record.place = Some(new_place);
            if let Body::Directory { parent } = &mut record.body {
                *parent = new.parent;
            }
        })
    }

    /// Where something new can be made.
    fn locate_new(&self, access: Access, base: Inode, path: &[u8]) -> Result<Place> {
        let place = self.locate(access, base, path, Last::Entry).map_err(|error| match error.code {
            // `link/` names what is there already.
            ErrorCode::NotDirectory if self.ends_in_entry(access, base, path) => ErrorCode::Exist.into(),
            _ => error,
        })?;
        if place.target.is_some() {
            return Err(ErrorCode::Exist.into());
        }
        Ok(place)
    }

    /// Whether there is something at a path when the slashes at its end are left away.
    fn ends_in_entry(&self, access: Access, base: Inode, path: &[u8]) -> bool {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        end < path.len()
            && self.locate(access, base, &path[..end], Last::Entry).is_ok_and(|place| place.target.is_some())
    }

    /// Makes an inode under a name that is free.
    pub(super) fn create(&mut self, access: Access, place: &Place, record: InodeRecord) -> Result<Inode> {
        if self.is_reserved(place)? {
            self.afford_reserved(record.size, 1)?;
        } else {
            self.afford(record.size, 1)?;
        }
        self.prepare_entry(place)?;
        let inode = self.counters.next_inode;
        self.state.prepare(&[&Key::inode(inode)])?;
        let (size, kind) = (record.size, record.kind());
        let record = InodeRecord { place: place.named(), ..record };
        if kind == FileKind::Regular && self.is_versioned() {
            // it is going to have a version, which stays when the file goes
            self.afford_past()?;
            let draft = DraftRecord { owner: access.mount.principal, base: None };
            self.state.prepare(&[&Key::draft(inode)])?;
            self.state.put(Key::draft(inode), Value::Draft(draft))?;
        }
        self.state.put(Key::inode(inode), Value::Inode(record))?;
        self.authors.insert(inode, access.mount.principal);
        self.add_entry(access, place, inode, kind)?;
        self.counters.next_inode = inode.next();
        self.counters.usage.inodes += 1;
        self.counters.usage.bytes += size;
        Ok(inode)
    }

    /// Checks that a name can be added at `place`, and reads what that needs.
    fn prepare_entry(&self, place: &Place) -> Result<()> {
        if self.record(place.parent)?.links == 0 {
            return Err(ErrorCode::NoEntry.into());
        }
        match &place.name {
            Some(name) => match self.state.dirent(place.parent, name)? {
                Some(_) if place.target.is_none() => Err(another_draft()),
                _ => Ok(()),
            },
            None => Err(ErrorCode::Exist.into()),
        }
    }

    fn add_entry(&mut self, access: Access, place: &Place, inode: Inode, kind: FileKind) -> Result<()> {
        let Some(name) = place.name.clone() else { return Err(ErrorCode::Exist.into()) };
        self.state.put(Key::dirent(place.parent, name), Value::Dirent { inode, kind })?;
        self.authors.insert(inode, access.mount.principal);
        self.changed_directory(access, place.parent)
    }

    fn remove_entry(&mut self, access: Access, place: &Place, inode: Inode, kind: FileKind) -> Result<()> {
        let Some(place) = place.named() else { return Err(ErrorCode::Invalid.into()) };
        let chunks = self.chunks_to_release(inode)?;
        self.record(place.parent)?;
        self.prepare_gone(inode, &place)?;
        self.state.remove(Key::dirent(place.parent, place.name.clone()))?;
        self.changed_directory(access, place.parent)?;
        self.authors.insert(inode, access.mount.principal);
        self.note_gone(access, inode, kind, &place)?;
        self.release_name(access, inode, &place, chunks)
    }

    pub(super) fn changed_directory(&mut self, access: Access, directory: Inode) -> Result<()> {
        self.update(directory, |record| {
            record.modified = access.now;
            record.changed = access.now;
        })
    }
}
