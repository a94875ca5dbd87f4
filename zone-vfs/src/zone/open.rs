//! Opening and closing, and the files that live on without a name.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::path::{Last, Place};
use super::table::OpenFile;
use super::{Access, ErrorCode, OpenOptions, Result, Zone, new_record};
use crate::contract::Operation;
use crate::id::Inode;
use crate::tree::{Body, FileKind, Key, Part};

impl Zone {
    /// Opens the file or directory at `path`, as POSIX `open` does, and gives its inode.
    ///
    /// It stays open until [`Zone::close`] has been called as often as it was opened. Symbolic links
    /// themselves cannot be opened: without `follow` they are `loop`.
    pub fn open(&mut self, access: Access, base: Inode, path: &[u8], options: OpenOptions) -> Result<Inode> {
        if options.directory && options.create {
            return Err(ErrorCode::Invalid.into());
        }
        let follow = options.follow && !(options.create && options.exclusive);
        let last = if follow { Last::Follow } else { Last::Stay };
        let place = self.locate(access, base, path, last)?;
        let Some((inode, kind)) = place.target else {
            return self.open_new(access, &place, options);
        };
        if options.create && options.exclusive {
            return Err(ErrorCode::Exist.into());
        }
        match kind {
            FileKind::Symlink => return Err(ErrorCode::Loop.into()),
            FileKind::Directory if options.write || options.truncate || options.create => {
                return Err(ErrorCode::IsDirectory.into());
            }
            FileKind::Regular if options.directory => return Err(ErrorCode::NotDirectory.into()),
            FileKind::Directory | FileKind::Regular => {}
        }
        if options.write {
            self.check_place(access, &place, Operation::OpenForWriting)?;
        }
        if options.truncate {
            self.check_place(access, &place, Operation::Truncate)?;
        }
        self.open_place(&place, inode)?;
        if options.truncate
            && let Err(error) = self.resize(access, inode, 0)
        {
            self.close(inode)?;
            return Err(error);
        }
        Ok(inode)
    }

    fn open_new(&mut self, access: Access, place: &Place, options: OpenOptions) -> Result<Inode> {
        if !options.create {
            return Err(ErrorCode::NoEntry.into());
        }
        self.check_place(access, place, Operation::Create)?;
        if place.slash {
            return Err(ErrorCode::IsDirectory.into());
        }
        let record = new_record(Body::Inline(Arc::default()), 0, access.now);
        let inode = self.create(access, place, record)?;
        self.open_place(place, inode)?;
        Ok(inode)
    }

    fn open_place(&mut self, place: &Place, inode: Inode) -> Result<()> {
        let reserved = self.is_reserved(place)?;
        self.open_inode(inode)?;
        if let Some(file) = self.open.get_mut(&inode) {
            file.reserved |= reserved;
        }
        Ok(())
    }

    /// Opens an inode once more, for instance one that a snapshot had open.
    pub fn open_inode(&mut self, inode: Inode) -> Result<()> {
        if let Some(file) = self.open.get_mut(&inode) {
            file.references += 1;
            self.holders.opened(inode);
            return Ok(());
        }
        let mut file = OpenFile::new(self.state.record(inode)?.clone());
        file.references = 1;
        file.reserved = self.reserved_inode()? == Some(inode);
        self.open.insert(inode, file);
        self.holders.opened(inode);
        Ok(())
    }

    /// Closes an inode once. The last close of a file without a name frees it.
    pub fn close(&mut self, inode: Inode) -> Result<()> {
        self.holders.may_close(inode)?;
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        if file.references > 1 {
            file.references -= 1;
            self.holders.closed(inode);
            return Ok(());
        }
        if file.dirty {
            self.settle_file(inode)?;
            if let Some(index) = self.dirty.iter().position(|dirty| *dirty == inode) {
                self.dirty.swap_remove(index);
            }
        }
        let orphan = self.record(inode)?.links == 0;
        if orphan {
            self.destroy(inode)?;
        }
        self.open.remove(&inode);
        self.holders.closed(inode);
        Ok(())
    }

    /// How often an inode is open.
    pub fn references(&self, inode: Inode) -> u32 {
        self.open.get(&inode).map_or(0, |file| file.references)
    }

    /// Frees the files without a name that are neither open nor in `keep`. To be called once the
    /// handles of a snapshot have been opened again, or will not be.
    pub fn drop_orphans_except(&mut self, keep: &BTreeSet<Inode>) -> Result<()> {
        let mut orphans = Vec::new();
        let from = Key::orphan(Inode(0));
        for entry in self.state.tree.range(&*self.state.store, Bound::Included(&from))? {
            match entry?.0.part {
                Part::Orphan(inode) => orphans.push(inode),
                _ => break,
            }
        }
        orphans.retain(|inode| !keep.contains(inode) && !self.open.contains_key(inode));
        orphans.into_iter().try_for_each(|inode| self.destroy(inode))
    }

    /// Takes one name away from an inode, whose record has been read and, when it was the last name
    /// and the inode is not open, whose `chunks` have been listed.
    pub(super) fn release_name(&mut self, access: Access, inode: Inode, chunks: Vec<Key>) -> Result<()> {
        let links = self.record(inode)?.links;
        if links > 1 {
            self.usage.inodes = self.usage.inodes.saturating_sub(1);
        } else if self.open.contains_key(&inode) {
            self.state.put(Key::orphan(inode), crate::tree::Value::Orphan)?;
        } else {
            return self.destroy_listed(inode, chunks);
        }
        self.update(inode, |record| {
            record.links -= 1;
            record.changed = access.now;
        })
    }

    /// The chunks that go when an inode loses a name; reads what is needed to let them go.
    pub(super) fn chunks_to_release(&self, inode: Inode) -> Result<Vec<Key>> {
        self.state.prepare(&[&Key::orphan(inode)])?;
        if self.record(inode)?.links > 1 || self.open.contains_key(&inode) {
            return Ok(Vec::new());
        }
        self.state.extents_from(inode, 0)
    }

    fn destroy(&mut self, inode: Inode) -> Result<()> {
        self.state.prepare(&[&Key::orphan(inode)])?;
        let chunks = self.state.extents_from(inode, 0)?;
        self.destroy_listed(inode, chunks)
    }

    fn destroy_listed(&mut self, inode: Inode, chunks: Vec<Key>) -> Result<()> {
        let size = self.record(inode)?.size;
        for key in chunks {
            self.state.remove(key)?;
        }
        self.state.remove(Key::inode(inode))?;
        self.state.remove(Key::orphan(inode))?;
        self.usage.bytes = self.usage.bytes.saturating_sub(size);
        self.usage.inodes = self.usage.inodes.saturating_sub(1);
        Ok(())
    }
}
