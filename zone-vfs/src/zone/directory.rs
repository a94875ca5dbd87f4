//! Names: making, moving, removing and listing them.

use std::ops::Bound;
use std::sync::Arc;

use super::path::{Last, Place, check_target};
use super::{Access, DirEntry, ErrorCode, MAX_NAMES, Result, Zone, ZoneError, is_directory, new_record};
use crate::contract::Operation;
use crate::id::Inode;
use crate::tree::{Body, FileKind, InodeRecord, Key, Name, Part, Value};

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
        if !is_directory(self.record(directory)?.kind()) {
            return Err(ErrorCode::NotDirectory.into());
        }
        self.entries(directory, after, max)
    }

    fn entries(&self, directory: Inode, after: Option<&Name>, max: usize) -> Result<Vec<DirEntry>> {
        let from = match after {
            Some(name) => Key::dirent(directory, name.clone()),
            None => Key::inode(directory),
        };
        let mut entries = Vec::new();
        for entry in self.state.tree.range(&*self.state.store, Bound::Excluded(&from))?.take(max) {
            match entry? {
                (Key { inode: of, part: Part::Dirent(name) }, Value::Dirent { inode, kind })
                    if *of == directory =>
                {
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
        let record = new_record(Body::Directory { parent: place.parent }, 0, access.now);
        self.create(access, &place, record)
    }

    /// Makes a symbolic link that holds `target`, which need not exist but cannot be absolute.
    pub fn symlink(&mut self, access: Access, target: &[u8], base: Inode, path: &[u8]) -> Result<Inode> {
        self.check(access, Operation::Symlink)?;
        check_target(target)?;
        let place = self.locate_new(access, base, path)?;
        if place.slash {
            return Err(ErrorCode::NoEntry.into());
        }
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
        if place.slash {
            return Err(ErrorCode::NoEntry.into());
        }
        if self.record(inode)?.links >= MAX_NAMES {
            return Err(ErrorCode::TooManyLinks.into());
        }
        self.afford(0, 1)?;
        self.prepare_entry(&place)?;
        self.add_entry(access, &place, inode, kind)?;
        self.usage.inodes += 1;
        self.update(inode, |record| {
            record.links += 1;
            record.changed = access.now;
        })
    }

    /// Removes a name of a file or link. The file goes with its last name and last close.
    pub fn unlink(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<()> {
        self.check(access, Operation::Unlink)?;
        let place = self.locate(access, base, path, Last::Entry)?;
        let (inode, kind) = place.found()?;
        if is_directory(kind) {
            return Err(ErrorCode::IsDirectory.into());
        }
        self.remove_entry(access, &place, inode)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, access: Access, base: Inode, path: &[u8]) -> Result<()> {
        self.check(access, Operation::RemoveDirectory)?;
        let place = self.locate(access, base, path, Last::Entry)?;
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
        self.remove_entry(access, &place, inode)
    }

    /// Moves a name, and replaces what the new name stood for, in one step.
    ///
    /// A directory can replace only an empty directory, and cannot move into itself. Two names of one
    /// file both stay.
    pub fn rename(&mut self, access: Access, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<()> {
        self.check(access, Operation::Rename)?;
        let old = self.locate(access, from.0, from.1, Last::Entry)?;
        let (inode, kind) = old.found()?;
        let new = self.locate(access, to.0, to.1, Last::Entry)?;
        let (Some(old_name), Some(new_name)) = (&old.name, &new.name) else {
            return Err(ErrorCode::Busy.into());
        };
        if new.slash && !is_directory(kind) {
            return Err(ErrorCode::NotDirectory.into());
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
                _ => {}
            }
            chunks = self.chunks_to_release(replaced)?;
        }
        if is_directory(kind) && self.lies_in(new.parent, inode)? {
            return Err(ZoneError::rule(ErrorCode::Invalid, "a directory cannot move into itself"));
        }
        self.record(inode)?;
        self.record(old.parent)?;
        self.prepare_entry(&new)?;
        self.state.remove(Key::dirent(old.parent, old_name.clone()))?;
        self.changed_directory(access, old.parent)?;
        if let Some((replaced, _)) = new.target {
            self.state.remove(Key::dirent(new.parent, new_name.clone()))?;
            self.release_name(access, replaced, chunks)?;
        }
        self.add_entry(access, &new, inode, kind)?;
        self.update(inode, |record| {
            record.changed = access.now;
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
        self.afford(record.size, 1)?;
        self.prepare_entry(place)?;
        let inode = self.next_inode;
        self.state.prepare(&[&Key::inode(inode)])?;
        let (size, kind) = (record.size, record.kind());
        self.state.put(Key::inode(inode), Value::Inode(record))?;
        self.add_entry(access, place, inode, kind)?;
        self.next_inode = inode.next();
        self.usage.inodes += 1;
        self.usage.bytes += size;
        Ok(inode)
    }

    /// Checks that a name can be added at `place`, and reads what that needs.
    fn prepare_entry(&self, place: &Place) -> Result<()> {
        if self.record(place.parent)?.links == 0 {
            return Err(ErrorCode::NoEntry.into());
        }
        match &place.name {
            Some(name) => self.state.prepare(&[&Key::dirent(place.parent, name.clone())]),
            None => Err(ErrorCode::Exist.into()),
        }
    }

    fn add_entry(&mut self, access: Access, place: &Place, inode: Inode, kind: FileKind) -> Result<()> {
        let Some(name) = place.name.clone() else { return Err(ErrorCode::Exist.into()) };
        self.state.put(Key::dirent(place.parent, name), Value::Dirent { inode, kind })?;
        self.changed_directory(access, place.parent)
    }

    fn remove_entry(&mut self, access: Access, place: &Place, inode: Inode) -> Result<()> {
        let Some(name) = place.name.clone() else { return Err(ErrorCode::Invalid.into()) };
        let chunks = self.chunks_to_release(inode)?;
        self.record(place.parent)?;
        self.state.remove(Key::dirent(place.parent, name))?;
        self.changed_directory(access, place.parent)?;
        self.release_name(access, inode, chunks)
    }

    fn changed_directory(&mut self, access: Access, directory: Inode) -> Result<()> {
        self.update(directory, |record| {
            record.modified = access.now;
            record.changed = access.now;
        })
    }
}
