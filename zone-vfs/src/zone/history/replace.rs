//! A rename over a file of a zone that keeps versions: one new version of that file.

use super::super::path::Place;
use super::super::table::Stage;
use super::super::{Access, Alias, ErrorCode, Result, Zone, new_record};
use super::content::NewContent;
use crate::id::{Inode, Version};
use crate::tree::{Body, FileKind, Key, NamedPlace, Value, VersionKind};

impl Zone {
    /// Gives the content of `source`, which is at `old`, to the file `target` at `new`, which stays what
    /// it is, and takes the name of `source` away. Descriptors of `source` are descriptors of `target`
    /// from here on; so are those that `target` had.
    pub(in super::super) fn replace_file(
        &mut self,
        access: Access,
        source: Inode,
        old: &Place,
        target: Inode,
        new: &Place,
    ) -> Result<()> {
        let (Some(old_place), Some(new_place)) = (old.named(), new.named()) else {
            return Err(ErrorCode::Busy.into());
        };
        self.check_draft(access, source)?;
        self.check_draft(access, target)?;
        self.afford_past()?;
        self.record(old.parent)?;
        self.record(new.parent)?;
        self.state.prepare(&[&Key::dirent(old.parent, old_place.name.clone()), &Key::orphan(source)])?;
        self.prepare_gone(source, &old_place)?;
        self.with_open(source, |zone| {
            zone.with_open(target, |zone| {
                let content = zone.content_of(source)?;
                let version = zone.take_over(access, target, &content, &new_place)?;
                let modified = zone.record(source)?.modified;
                let doomed = zone.state.extents_from(target, 0)?;
                let same = match zone.version_record(target, version)?.content {
                    Some(same) => same,
                    None => version,
                };
                zone.settled(target, doomed, version, same, modified)?;
                zone.update(target, |record| record.changed = access.now)
            })
        })?;
        self.state.remove(Key::dirent(old.parent, old_place.name.clone()))?;
        self.changed_directory(access, old.parent)?;
        self.changed_directory(access, new.parent)?;
        self.note_gone(access, source, FileKind::Regular, &old_place)?;
        self.become_alias(access, source, target)
    }

    /// What an open file holds, draft or not.
    fn content_of(&mut self, inode: Inode) -> Result<NewContent> {
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        file.write_back(&mut self.state, inode)?;
        NewContent::of_file(&self.state, inode, &file.record)
    }

    /// Publishes `content` as a version of `target`, unless it stands at that content.
    pub(super) fn take_over(
        &mut self,
        access: Access,
        target: Inode,
        content: &NewContent,
        place: &NamedPlace,
    ) -> Result<Version> {
        self.prepare_event(target, &[place])?;
        let current = self.current(target)?;
        let before = match current {
            Some(version) => Some(self.version_record(target, version)?),
            None => None,
        };
        if let (Some(version), Some(before)) = (current, &before)
            && before.hash == content.hash
            && before.size == content.size
        {
            return Ok(version);
        }
        let kind = if before.is_some() { VersionKind::Publish } else { VersionKind::Create };
        let base = before.and_then(|before| before.content);
        self.publish_content(access.mount.principal, access.now, target, kind, place, content, base)
    }

    /// Frees what was renamed over `target`, and lets its descriptors be those of `target`.
    fn become_alias(&mut self, access: Access, source: Inode, target: Inode) -> Result<()> {
        let Some(file) = self.open.get(&source) else { return self.destroy(source) };
        let (references, writers, size) = (file.references, file.writers, file.record.size);
        for key in self.state.extents_from(source, 0)? {
            self.state.remove(key)?;
        }
        let body = file.record.body.clone();
        self.free_content(source, &body)?;
        self.open.remove(&source);
        self.dirty.retain(|dirty| *dirty != source);
        let mut record = new_record(Body::Alias { to: target }, 0, access.now);
        record.links = 0;
        self.state.put(Key::inode(source), Value::Inode(record))?;
        self.state.put(Key::orphan(source), Value::Orphan)?;
        self.counters.usage.bytes = self.counters.usage.bytes.saturating_sub(size);
        for alias in self.aliases.values_mut().filter(|alias| alias.to == source) {
            alias.to = target;
        }
        self.aliases.insert(source, Alias { to: target, references });
        self.reopen(target, references, writers)
    }

    /// The same file, by the number under which it goes since something was renamed over it.
    #[inline]
    pub(in super::super) fn actual(&self, inode: Inode) -> Inode {
        if self.aliases.is_empty() {
            return inode;
        }
        self.aliases.get(&inode).map_or(inode, |alias| alias.to)
    }

    /// Opens a file so many times more.
    pub(in super::super) fn reopen(&mut self, inode: Inode, references: u32, writers: u32) -> Result<()> {
        if !self.open.contains_key(&inode) {
            self.load_open(inode)?;
        }
        if let Some(file) = self.open.get_mut(&inode) {
            file.references += references;
            file.writers += writers;
        }
        self.holders.opened(inode);
        Ok(())
    }

    /// Whether writes of an open file go into a draft of it.
    pub(in super::super) fn is_draft(&self, inode: Inode) -> bool {
        self.open.get(&inode).is_some_and(|file| matches!(file.stage, Stage::Draft(_)))
    }
}
