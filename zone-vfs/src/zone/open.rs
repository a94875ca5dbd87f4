//! Opening and closing, and the files that live on without a name.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::history::view;
use super::path::{Last, Place};
use super::table::OpenFile;
use super::{Access, Alias, ErrorCode, OpenOptions, Result, Zone, new_record};
use crate::contract::Operation;
use crate::id::Inode;
use crate::tree::{Body, FileKind, Key, NamedPlace, Part};

/// What a descriptor was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedFor {
    /// It reads, or is a directory's.
    Reading,
    /// It writes, and perhaps reads too. Drafts belong to these.
    Writing,
}

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
        if self.is_versioned() && (options.write || options.truncate) {
            self.check_draft(access, inode)?;
        }
        self.open_place(&place, inode, options.write)?;
        if options.truncate
            && let Err(error) = self.resize(access, inode, 0)
        {
            self.close_one(inode, options.write)?;
            return Err(error);
        }
        Ok(inode)
    }

    fn open_new(&mut self, access: Access, place: &Place, options: OpenOptions) -> Result<Inode> {
        if !options.create {
            return Err(ErrorCode::NoEntry.into());
        }
        self.check_place(access, place, Operation::Create)?;
        self.bound_memory(access)?;
        if place.slash {
            return Err(ErrorCode::IsDirectory.into());
        }
        let record = new_record(Body::Inline(Arc::default()), 0, access.now);
        let inode = self.create(access, place, record)?;
        self.open_place(place, inode, options.write)?;
        Ok(inode)
    }

    fn open_place(&mut self, place: &Place, inode: Inode, writes: bool) -> Result<()> {
        let reserved = self.is_reserved(place)?;
        self.reopen(inode, 1, u32::from(writes))?;
        if let Some(file) = self.open.get_mut(&inode) {
            file.reserved |= reserved;
        }
        Ok(())
    }

    /// Opens an inode once more, for instance one that a snapshot had open, to read it.
    pub fn open_inode(&mut self, inode: Inode) -> Result<()> {
        self.open_again(inode, false)
    }

    /// As [`Zone::open_inode`], for a descriptor that writes. Where the zone keeps versions, a draft is
    /// published when the last of these is closed with [`Zone::close_writer`].
    pub fn open_writer(&mut self, inode: Inode) -> Result<()> {
        self.open_again(inode, true)
    }

    /// Opens an inode once more, for a descriptor that reads or one that writes.
    pub fn open_for(&mut self, inode: Inode, purpose: OpenedFor) -> Result<()> {
        self.open_again(inode, purpose == OpenedFor::Writing)
    }

    /// Closes what was opened for reading or for writing, once.
    pub fn close_of(&mut self, inode: Inode, purpose: OpenedFor) -> Result<()> {
        self.close_one(inode, purpose == OpenedFor::Writing)
    }

    fn open_again(&mut self, inode: Inode, writes: bool) -> Result<()> {
        if let Some(alias) = self.aliases.get_mut(&inode) {
            alias.references += 1;
            let to = alias.to;
            return self.reopen(to, 1, u32::from(writes));
        }
        // a directory of the past has no record of its own
        if !self.open.contains_key(&inode)
            && view::directory(inode).is_none()
            && let Body::Alias { to } = self.record(inode)?.body
        {
            self.reopen(to, 1, u32::from(writes))?;
            self.aliases.insert(inode, Alias { to, references: 1 });
            return Ok(());
        }
        self.reopen(inode, 1, u32::from(writes))
    }

    /// Puts an inode among the open ones.
    pub(super) fn load_open(&mut self, inode: Inode) -> Result<()> {
        let record = match view::directory(inode) {
            Some(_) => self.view_record(inode)?,
            None => self.state.record(inode)?.clone(),
        };
        if record.links == 0 && self.kind.is_append_only() {
            // nothing is unlinked here: it was forgotten, by a version of this program that left it open
            return Err(ErrorCode::NoEntry.into());
        }
        let mut file = OpenFile::new(record);
        file.reserved = self.reserved_inode()? == Some(inode);
        file.stage = self.stage_of(inode, &file.record)?;
        self.open.insert(inode, file);
        Ok(())
    }

    /// Closes an inode once. The last close of a file without a name frees it; that of a draft
    /// publishes it, with the time of its last write. Where that fails, the file stays open.
    pub fn close(&mut self, inode: Inode) -> Result<()> {
        self.close_one(inode, false)
    }

    /// As [`Zone::close`], for a descriptor that writes: the last of them publishes the draft, also where
    /// others still read.
    pub fn close_writer(&mut self, inode: Inode) -> Result<()> {
        self.close_one(inode, true)
    }

    fn close_one(&mut self, inode: Inode, writes: bool) -> Result<()> {
        if let Some(alias) = self.aliases.get(&inode).copied() {
            self.close_one(alias.to, writes)?;
            if alias.references > 1 {
                self.aliases.insert(inode, Alias { references: alias.references - 1, ..alias });
                return Ok(());
            }
            self.aliases.remove(&inode);
            return self.destroy(inode);
        }
        self.holders.may_close(inode)?;
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let (is_last, before) = (file.references <= 1, file.writers);
        let writers =
            if writes { before.saturating_sub(1) } else { before.min(file.references.saturating_sub(1)) };
        if (is_last || (writers == 0 && before > 0)) && self.is_draft(inode) {
            let at = self.record(inode)?.modified;
            match self.settle_draft(inode, at) {
                // a full disk must not keep a file open: the next commit publishes it, or is refused
                Err(error) if error.code == ErrorCode::InsufficientSpace => {
                    self.postponed.insert(inode);
                }
                settled => settled?,
            }
        }
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        if !is_last {
            file.references -= 1;
            file.writers = writers;
            self.holders.closed(inode);
            return Ok(());
        }
        if file.dirty {
            self.authors.insert(inode, file.author);
            self.settle_file(inode)?;
            if let Some(index) = self.dirty.iter().position(|dirty| *dirty == inode) {
                self.dirty.swap_remove(index);
            }
        }
        let orphan = view::directory(inode).is_none() && self.record(inode)?.links == 0;
        if orphan {
            self.destroy(inode)?;
        }
        self.open.remove(&inode);
        self.holders.closed(inode);
        Ok(())
    }

    /// How often an inode is open.
    pub fn references(&self, inode: Inode) -> u32 {
        match self.aliases.get(&inode) {
            Some(alias) => alias.references,
            None => self.open.get(&inode).map_or(0, |file| file.references),
        }
    }

    /// Frees the files without a name that are neither open nor in `keep`, and publishes such drafts. To
    /// be called once the handles of a snapshot have been opened again, or will not be.
    pub fn drop_orphans_except(&mut self, keep: &BTreeSet<Inode>) -> Result<()> {
        let mut orphans = Vec::new();
        let from = Key::orphan(Inode(0));
        for entry in self.state.tree.range(&*self.state.store, Bound::Included(&from))? {
            match entry?.0.part {
                Part::Orphan(inode) => orphans.push(inode),
                _ => break,
            }
        }
        orphans.retain(|inode| {
            !keep.contains(inode) && !self.open.contains_key(inode) && !self.aliases.contains_key(inode)
        });
        orphans.into_iter().try_for_each(|inode| self.destroy(inode))?;
        let held: BTreeSet<Inode> = keep.iter().chain(self.open.keys()).copied().collect();
        self.publish_all_except(&held)
    }

    /// Takes one name away from an inode, whose record has been read and, when it was the last name
    /// and the inode is not open, whose `chunks` have been listed.
    pub(super) fn release_name(
        &mut self,
        access: Access,
        inode: Inode,
        place: &NamedPlace,
        chunks: Vec<Key>,
    ) -> Result<()> {
        let links = self.record(inode)?.links;
        if links > 1 {
            self.counters.usage.inodes = self.counters.usage.inodes.saturating_sub(1);
        } else if self.open.contains_key(&inode) {
            self.state.put(Key::orphan(inode), crate::tree::Value::Orphan)?;
        } else {
            return self.destroy_listed(inode, chunks);
        }
        self.update(inode, |record| {
            record.links -= 1;
            record.changed = access.now;
            if record.links == 0 || record.place.as_ref() == Some(place) {
                record.place = None;
            }
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

    pub(super) fn destroy(&mut self, inode: Inode) -> Result<()> {
        self.state.prepare(&[&Key::orphan(inode)])?;
        let chunks = self.state.extents_from(inode, 0)?;
        self.destroy_listed(inode, chunks)
    }

    fn destroy_listed(&mut self, inode: Inode, chunks: Vec<Key>) -> Result<()> {
        let record = self.record(inode)?;
        let (size, body) = (record.size, record.body.clone());
        if self.is_versioned() {
            self.free_content(inode, &body)?;
        }
        for key in chunks {
            self.state.remove(key)?;
        }
        self.state.remove(Key::inode(inode))?;
        self.state.remove(Key::orphan(inode))?;
        self.counters.usage.bytes = self.counters.usage.bytes.saturating_sub(size);
        self.counters.usage.inodes = self.counters.usage.inodes.saturating_sub(1);
        Ok(())
    }
}
