//! From a descriptor's writes to a version.

use std::ops::Bound;
use std::sync::Arc;

use super::super::table::Stage;
use super::super::types::Source;
use super::super::{Access, Bytes, Cause, ErrorCode, Expected, Result, Zone, ZoneError};
use super::Event;
use super::content::NewContent;
use crate::contract::{self, Operation, Principal};
use crate::id::{Inode, Timestamp, Version};
use crate::tree::{
    Body, CHUNK, DraftRecord, FileKind, InodeRecord, Key, NamedPlace, Part, Value, VersionKind, VersionRecord,
};

impl Zone {
    /// The version at which a file stands: that of its last publication, whatever the draft over it
    /// holds. `None` for a file that was not published yet, and in zones that keep no versions.
    pub fn current(&self, inode: Inode) -> Result<Option<Version>> {
        let inode = self.actual(inode);
        match self.record(inode)?.body {
            Body::Published { version, .. } => Ok(Some(version)),
            _ => Ok(self.draft(inode)?.and_then(|draft| draft.base).map(|(version, _)| version)),
        }
    }

    /// Checks that a file stands at the version that the caller has seen.
    pub(in super::super) fn expect(&self, inode: Option<Inode>, expected: Expected) -> Result<()> {
        let found = match inode {
            Some(inode) if expected != Expected::Any => self.current(inode)?,
            _ => None,
        };
        let holds = match expected {
            Expected::Any => true,
            Expected::Missing => inode.is_none(),
            Expected::Version(version) => found == Some(version),
        };
        if holds {
            return Ok(());
        }
        Err(ZoneError { code: ErrorCode::Busy, cause: Some(Cause::Changed { found }) })
    }

    /// Publishes the draft that the caller has of a file, if there is one and it differs from the
    /// version before. Gives the version at which the file then stands. For descriptors that are synced.
    ///
    /// A file in a zone that keeps no versions has none, and nothing is done.
    pub fn sync(&mut self, access: Access, inode: Inode) -> Result<Option<Version>> {
        self.publish(access, inode, Expected::Any)
    }

    /// As [`Zone::sync`], if the file stands at the expected version; otherwise `busy`, with
    /// [`Cause::Changed`], and the draft stays.
    pub fn publish(&mut self, access: Access, inode: Inode, expected: Expected) -> Result<Option<Version>> {
        self.check(access, Operation::Sync)?;
        let inode = self.actual(inode);
        self.expect(Some(inode), expected)?;
        match self.draft(inode)? {
            Some(draft) if draft.owner == access.mount.principal => {
                self.with_open(inode, |zone| zone.settle_draft(inode, access.now))?;
            }
            _ => {}
        }
        self.current(inode)
    }

    /// Publishes every draft there is, each as its owner's: for a process that ends and leaves files
    /// open. Those in `keep` stay drafts.
    pub fn publish_all_except(&mut self, keep: &std::collections::BTreeSet<Inode>) -> Result<()> {
        if !self.is_versioned() {
            return Ok(());
        }
        let mut drafts = Vec::new();
        let from = Key::draft(Inode(0));
        for entry in self.state.tree.range(&*self.state.store, Bound::Included(&from))? {
            match entry?.0.part {
                Part::Draft(inode) => drafts.push(inode),
                _ => break,
            }
        }
        drafts.retain(|inode| !keep.contains(inode));
        for inode in drafts {
            let at = self.record(inode)?.modified;
            self.with_open(inode, |zone| zone.settle_draft(inode, at))?;
        }
        Ok(())
    }

    /// Publishes what should have been published when it was closed, but that the disk was full. To be
    /// called before a commit.
    pub fn publish_postponed(&mut self) -> Result<()> {
        while let Some(inode) = self.postponed.first().copied() {
            if self.draft(inode)?.is_some() {
                let at = self.record(inode)?.modified;
                self.with_open(inode, |zone| zone.settle_draft(inode, at))?;
            }
            self.postponed.remove(&inode);
        }
        Ok(())
    }

    /// Works on a file that is open meanwhile, whether it was or not.
    pub(super) fn with_open<R>(
        &mut self,
        inode: Inode,
        work: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        if self.open.contains_key(&inode) {
            return work(self);
        }
        self.open_inode(inode)?;
        let result = work(self);
        self.settle_file(inode)?;
        self.dirty.retain(|dirty| *dirty != inode);
        self.open.remove(&inode);
        result
    }

    /// What is noted about the draft that a file's content is.
    pub(in super::super) fn draft(&self, inode: Inode) -> Result<Option<DraftRecord>> {
        match self.open.get(&inode).map(|file| file.stage) {
            Some(Stage::Draft(draft)) => Ok(Some(draft)),
            Some(_) => Ok(None),
            None => self.state.draft(inode),
        }
    }

    /// What writing to a file with this record has to look at first.
    pub(in super::super) fn stage_of(&self, inode: Inode, record: &InodeRecord) -> Result<Stage> {
        if !self.is_versioned() || record.kind() != FileKind::Regular {
            return Ok(Stage::Plain);
        }
        if self.state.get(&Key::inode(inode))?.is_none() {
            return Ok(Stage::Past);
        }
        Ok(match (&record.body, self.state.draft(inode)?) {
            (_, Some(draft)) => Stage::Draft(draft),
            (Body::Published { .. }, None) => Stage::Settled,
            (_, None) => Stage::Plain,
        })
    }

    /// Whether the content of any file is a draft.
    pub(in super::super) fn has_drafts(&self) -> Result<bool> {
        if !self.is_versioned() {
            return Ok(false);
        }
        let from = Key::draft(Inode(0));
        let next = self.state.tree.range(&*self.state.store, Bound::Included(&from))?.next().transpose()?;
        Ok(matches!(next, Some((Key { part: Part::Draft(_), .. }, _))))
    }

    /// Whether a file cannot be seen, since it is a new file's draft of someone else.
    pub(in super::super) fn is_hidden(&self, access: Access, inode: Inode) -> Result<bool> {
        let draft = self.draft(inode)?;
        Ok(draft.is_some_and(|draft| draft.owner != access.mount.principal && draft.base.is_none()))
    }

    /// Checks that the caller can write to a file: nobody else has a draft of it.
    pub(in super::super) fn check_draft(&self, access: Access, inode: Inode) -> Result<()> {
        match self.draft(inode)? {
            Some(draft) if draft.owner != access.mount.principal => Err(another_draft()),
            _ => Ok(()),
        }
    }

    /// What comes before the first write of a descriptor, and of another writer.
    #[cold]
    pub(in super::super) fn begin_writing(&mut self, access: Access, inode: Inode) -> Result<()> {
        let principal = access.mount.principal;
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        match file.stage {
            Stage::Past => {
                contract::check_past(self.kind, access.mount, Operation::Overwrite)?;
            }
            Stage::Draft(draft) if draft.owner != principal => return Err(another_draft()),
            Stage::Plain | Stage::Draft(_) => {}
            Stage::Settled => self.begin_draft(principal, inode)?,
        }
        if let Some(file) = self.open.get_mut(&inode) {
            file.author = principal;
        }
        self.authors.insert(inode, principal);
        Ok(())
    }

    /// Makes a draft of a file that is as it was published. No content is copied.
    fn begin_draft(&mut self, owner: Principal, inode: Inode) -> Result<()> {
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let Body::Published { version, content } = file.record.body else { return Ok(()) };
        self.afford_past()?;
        self.state.prepare(&[&Key::draft(inode), &Key::extent(inode, 0)])?;
        let body = match &self.state.content(content)?.body {
            Body::Inline(bytes) => Body::Inline(bytes.clone()),
            _ => Body::Over { content, kept: file.record.size },
        };
        let draft = DraftRecord { owner, base: Some((version, content)) };
        // what has no name is never published again
        let is_draft = file.record.links > 0;
        if is_draft {
            self.state.put(Key::draft(inode), Value::Draft(draft))?;
        }
        if let Some(file) = self.open.get_mut(&inode) {
            file.record.body = body;
            file.chunk = None;
            file.stage = if is_draft { Stage::Draft(draft) } else { Stage::Plain };
        }
        self.touch(inode);
        Ok(())
    }

    /// Publishes the draft of an open file, unless its content is that of the version before.
    ///
    /// Pieces go to the chunk store before anything is changed; after an error the draft is what it was.
    pub(in super::super) fn settle_draft(&mut self, inode: Inode, now: Timestamp) -> Result<()> {
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let Stage::Draft(draft) = file.stage else { return Ok(()) };
        file.write_back(&mut self.state, inode)?;
        let record = file.record.clone();
        let content = NewContent::of_file(&self.state, inode, &record)?;
        let base = match draft.base {
            Some((version, _)) => Some((version, self.version_record(inode, version)?)),
            None => None,
        };
        let place = self.place_of(inode)?;
        let doomed = self.state.extents_from(inode, 0)?;
        self.prepare_event(inode, &[&place])?;
        if let (Some((version, before)), Some((_, same))) = (&base, draft.base)
            && before.hash == content.hash
            && before.size == content.size
        {
            let at = before.at;
            self.settled(inode, doomed, *version, same, at)?;
            return Ok(());
        }
        let base_content = draft.base.map(|(_, content)| content);
        let kind = if base.is_some() { VersionKind::Publish } else { VersionKind::Create };
        let version = self.publish_content(draft.owner, now, inode, kind, &place, &content, base_content)?;
        self.settled(inode, doomed, version, version, record.modified)
    }

    /// Adds content to the history as a new version of `file`.
    #[expect(clippy::too_many_arguments, reason = "they are what a version states")]
    pub(super) fn publish_content(
        &mut self,
        by: Principal,
        now: Timestamp,
        file: Inode,
        kind: VersionKind,
        place: &NamedPlace,
        content: &NewContent,
        base: Option<Version>,
    ) -> Result<Version> {
        let version = self.next_event();
        let added = content.added_to(&self.state, base)?;
        content.put(&mut self.state, version, self.counters.latest.max(now))?;
        let event = Event {
            file,
            kind,
            is: FileKind::Regular,
            place: place.clone(),
            from: None,
            size: content.size,
            hash: content.hash,
            content: Some(version),
            added,
        };
        self.note(by, now, event)
    }

    /// Makes an open file one that is as it was published. `doomed` are the draft's chunks.
    pub(super) fn settled(
        &mut self,
        inode: Inode,
        doomed: Vec<Key>,
        version: Version,
        content: Version,
        modified: Timestamp,
    ) -> Result<()> {
        for key in doomed {
            self.state.remove(key)?;
        }
        self.state.remove(Key::draft(inode))?;
        let size = self.state.content(content)?.size;
        if let Some(file) = self.open.get_mut(&inode) {
            let old = file.record.size;
            file.record.body = Body::Published { version, content };
            file.record.size = size;
            file.record.modified = modified;
            file.chunk = None;
            file.stage = Stage::Settled;
            let usage = &mut self.counters.usage;
            usage.bytes = (usage.bytes + size).saturating_sub(old);
        }
        self.touch(inode);
        Ok(())
    }

    /// The record of a version of a file, or of another event.
    pub(in super::super) fn version_record(&self, file: Inode, version: Version) -> Result<VersionRecord> {
        match self.state.get(&Key::version(file, version))? {
            Some(Value::Version(record)) => Ok((**record).clone()),
            _ => Err(ZoneError { code: ErrorCode::NoEntry, cause: Some(Cause::NoVersion(version)) }),
        }
    }

    /// Where what the caller sees of a file is the last published version, and not its draft.
    fn published(&self, inode: Inode) -> Result<(Version, u64)> {
        let base = self.draft(inode)?.and_then(|draft| draft.base).ok_or(ErrorCode::NoEntry)?;
        Ok((base.1, self.state.content(base.1)?.size))
    }

    /// [`Zone::read`] for someone who does not see the draft.
    #[cold]
    pub(in super::super) fn read_published(
        &self,
        inode: Inode,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let (content, size) = self.published(inode)?;
        let count = size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let from = offset + done as u64;
            let to = (from + CHUNK as u64).min(offset + count as u64);
            let bytes = self.state.read_content(content, from, to)?;
            into[done..done + bytes.len()].copy_from_slice(&bytes);
            done += bytes.len();
        }
        Ok(count)
    }

    /// [`Zone::read_shared`] for someone who does not see the draft.
    #[cold]
    pub(in super::super) fn share_published(&self, inode: Inode, offset: u64, max: usize) -> Result<Bytes> {
        let (content, size) = self.published(inode)?;
        let to = size.min(offset.saturating_add(max.min(CHUNK) as u64));
        let bytes: Arc<[u8]> =
            if offset < to { self.state.read_content(content, offset, to)? } else { Arc::default() };
        let range = 0..bytes.len();
        Ok(Bytes { source: Source::Frame(bytes), range })
    }

    /// The record that the caller sees of a file.
    pub(in super::super) fn seen_record(&self, access: Access, inode: Inode) -> Result<&InodeRecord> {
        if self.is_versioned()
            && let Some(draft) = self.draft(inode)?
            && draft.owner != access.mount.principal
        {
            let (_, content) = draft.base.ok_or(ErrorCode::NoEntry)?;
            return self.state.content(content);
        }
        self.record(inode)
    }
}

#[cold]
pub(in super::super) fn another_draft() -> ZoneError {
    ZoneError::rule(ErrorCode::Busy, "someone else has a draft of the file open")
}
