//! What identifies the content of a file, to look for it elsewhere, and where it is found.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::{ErrorCode, Result, Zone, ZoneRoot};
use crate::chunks::ChunkStore;
use crate::id::{Hash, Inode, Version};
use crate::tree::{Body, InodeRecord, Key, Part, Tree, Value, VersionKind};

/// What identifies content: nothing of it can be read from these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentIds {
    /// The addresses of its chunks and pieces.
    pub chunks: BTreeSet<Hash>,
    /// The blake3 hashes of what lies inline.
    pub inline: BTreeSet<Hash>,
    /// How many contents that was: versions, and what a file holds beside them.
    pub contents: u64,
    /// Their sizes together. Bytes.
    pub bytes: u64,
}

/// Where a file is, or was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// A path, from the zone's root, where one is known.
    pub path: Option<Vec<u8>>,
    /// Whether it is there now.
    pub is_there: bool,
}

impl ContentIds {
    /// What identifies content that lies inline.
    pub(crate) fn of_inline(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.inline.is_empty()
    }

    /// Takes the other's in, beside which this was counted already.
    pub fn join(&mut self, other: &Self) {
        self.chunks.extend(&other.chunks);
        self.inline.extend(&other.inline);
    }

    fn count(&mut self, record: &InodeRecord) {
        if record.size > 0 {
            self.contents += 1;
            self.bytes += record.size;
        }
        if let Body::Inline(bytes) | Body::Symlink(bytes) = &record.body
            && !bytes.is_empty()
        {
            self.inline.insert(Self::of_inline(bytes));
        }
    }
}

impl ZoneRoot {
    /// Adds what identifies the content of a file, and of all its versions, as far as it lies in `store`. Whether
    /// there was such a file.
    pub fn content_of(
        &self,
        file: Inode,
        store: &Arc<dyn ChunkStore>,
        into: &mut ContentIds,
    ) -> Result<bool> {
        let zone = Zone::from_root(self.clone(), store.clone());
        let mut is_there = false;
        if let Some(Value::Inode(record)) = zone.state.get(&Key::inode(file))? {
            is_there = true;
            // what was published is counted with the versions
            if !matches!(record.body, Body::Published { .. } | Body::Directory { .. }) {
                into.count(record);
            }
            parts(&self.tree, &**store, file, into)?;
        }
        let from = Key::version(file, Version(0));
        for entry in self.history.range(&**store, Bound::Included(&from))? {
            let (Key { inode, part: Part::Version(version) }, Value::Version(event)) = entry? else { break };
            if *inode != file {
                break;
            }
            is_there = true;
            if event.content == Some(*version) {
                into.count(zone.state.content(*version)?);
                parts(&self.history, &**store, version.inode(), into)?;
            }
        }
        Ok(is_there)
    }

    /// Adds what identifies the content of one version of a file. Gives the version whose content that is; none where there
    /// is no such version here, or it has none.
    pub fn content_of_version(
        &self,
        file: Inode,
        version: Version,
        store: &Arc<dyn ChunkStore>,
        into: &mut ContentIds,
    ) -> Result<Option<Version>> {
        let zone = Zone::from_root(self.clone(), store.clone());
        let content = match zone.content_of_version(file, version) {
            Err(e) if e.code == ErrorCode::NoEntry => return Ok(None),
            found => found?,
        };
        into.count(zone.state.content(content)?);
        parts(&self.history, &**store, content.inode(), into)?;
        Ok(Some(content))
    }

    /// Whether anything of a file is here: the file, or content of a version.
    pub fn holds(&self, file: Inode, store: &Arc<dyn ChunkStore>) -> Result<bool> {
        if self.tree.get(&**store, &Key::inode(file))?.is_some() {
            return Ok(true);
        }
        let from = Key::version(file, Version(0));
        for entry in self.history.range(&**store, Bound::Included(&from))? {
            let (Key { inode, part: Part::Version(_) }, Value::Version(event)) = entry? else { break };
            if *inode != file {
                break;
            }
            if event.content.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the content of one version of a file was forgotten.
    pub fn is_forgotten(&self, file: Inode, version: Version, store: &Arc<dyn ChunkStore>) -> Result<bool> {
        let found = self.history.get(&**store, &Key::version(file, version))?;
        Ok(matches!(found, Some(Value::Version(event)) if event.kind == VersionKind::Forgotten))
    }

    /// The path of the file whose content, or of whose version's content, a key names a part; `None` where that is
    /// not known.
    pub(crate) fn path_of_content(&self, key: &Key, store: &Arc<dyn ChunkStore>) -> Result<Option<Vec<u8>>> {
        let zone = Zone::from_root(self.clone(), store.clone());
        let place = if key.part.is_history() {
            match zone.state.get(&Key::event(Version(key.inode.0)))? {
                Some(Value::Event(event)) => {
                    Some(zone.version_record(event.file, Version(key.inode.0))?.place)
                }
                _ => None,
            }
        } else {
            match zone.state.get(&Key::inode(key.inode))? {
                Some(Value::Inode(record)) => record.place.clone(),
                _ => None,
            }
        };
        place.map_or(Ok(None), |place| zone.path_of_place(&place))
    }
}

/// The addresses of the chunks or pieces under an inode.
fn parts(tree: &Tree, store: &dyn ChunkStore, inode: Inode, into: &mut ContentIds) -> Result<()> {
    for entry in tree.range(store, Bound::Included(&Key::inode(inode)))? {
        let (key, value) = entry?;
        if key.inode != inode {
            break;
        }
        if let Value::Extent(extent) = value
            && let Some(hash) = extent.address()
        {
            into.chunks.insert(hash);
        }
    }
    Ok(())
}

impl Zone {
    /// As [`ZoneRoot::content_of`], of a root of this zone.
    pub fn identify(&self, root: &ZoneRoot, file: Inode, into: &mut ContentIds) -> Result<bool> {
        root.content_of(file, &self.state.store, into)
    }

    /// The files that have, or ever had, a path, in a zone that keeps versions: of others only the one that has
    /// it now. Directories are not among them.
    pub fn files_ever_at(&self, path: &[u8]) -> Result<BTreeSet<Inode>> {
        use crate::tree::{FileKind, Name};
        let mut found = BTreeSet::new();
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let Some((last, above)) = names.split_last() else { return Ok(found) };
        let Some(name) = Name::new(last) else { return Ok(found) };
        let directory = match self.last_at(&above.join(&b'/')) {
            Ok((directory, FileKind::Directory)) => directory,
            Ok(_) => return Ok(found),
            Err(e) if e.code == ErrorCode::NoEntry => return Ok(found),
            Err(e) => return Err(e),
        };
        if let Some((file, kind)) = self.state.dirent(directory, &name)?
            && kind != FileKind::Directory
        {
            found.insert(file);
        }
        let from = Key::named(directory, name.clone(), Version(0));
        for entry in self.state.history.range(&*self.state.store, Bound::Included(&from))? {
            match entry? {
                (Key { inode, part: Part::Named(of, _) }, Value::Named(target))
                    if *inode == directory && *of == name =>
                {
                    found.extend(target.filter(|it| it.1 != FileKind::Directory).map(|it| it.0));
                }
                _ => break,
            }
        }
        Ok(found)
    }

    /// The files that are in the folder of this path and in folders within it, and in a zone that keeps versions those that
    /// were there last before they were deleted. What was moved to elsewhere is not among them, nor are directories.
    /// Nothing where no folder is or was there. Stops when there are more than `limit`.
    pub fn files_ever_below(&self, path: &[u8], limit: usize) -> Result<BTreeSet<Inode>> {
        use crate::tree::FileKind;
        let mut found = BTreeSet::new();
        let at = match self.last_at(path) {
            Ok((directory, FileKind::Directory)) => directory,
            Ok(_) => return Ok(found),
            Err(e) if e.code == ErrorCode::NoEntry => return Ok(found),
            Err(e) => return Err(e),
        };
        let (mut next, mut seen) = (vec![at], BTreeSet::from([at]));
        while let Some(directory) = next.pop() {
            let mut targets = Vec::new();
            for entry in self.state.tree.range(&*self.state.store, Bound::Excluded(&Key::inode(directory)))? {
                match entry? {
                    (Key { inode, part: Part::Dirent(_) }, Value::Dirent { inode: target, kind })
                        if *inode == directory =>
                    {
                        targets.push((*target, *kind, true));
                    }
                    _ => break,
                }
            }
            let from = Key::version(directory, Version(u64::MAX));
            for entry in self.state.history.range(&*self.state.store, Bound::Excluded(&from))? {
                match entry? {
                    (Key { inode, part: Part::Named(..) }, Value::Named(target)) if *inode == directory => {
                        targets.extend(target.map(|(target, kind)| (target, kind, false)));
                    }
                    _ => break,
                }
            }
            for (target, kind, is_there) in targets {
                if !is_there && self.has_name(target)? {
                    // it is elsewhere by now, or was met under its name
                    continue;
                }
                if kind != FileKind::Directory {
                    found.insert(target);
                } else if seen.insert(target) {
                    next.push(target);
                }
                if found.len() > limit {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// Where a file is, or was last, as far as this zone knows. `None` where it never heard of the file, or has lost all
    /// trace of it.
    pub fn whereabouts(&self, file: Inode) -> Result<Option<Whereabouts>> {
        let record = match self.state.get(&Key::inode(file))? {
            Some(Value::Inode(record)) => Some(record),
            _ => None,
        };
        let is_there = record.is_some_and(|record| record.links > 0);
        let mut place = record.and_then(|record| record.place.clone());
        if place.is_none() && self.is_versioned() {
            place = self
                .state
                .last_event(file, Version(0), Version(u64::MAX))?
                .map(|(_, event)| event.place.clone());
        }
        let path = place.as_ref().map_or(Ok(None), |place| self.path_of_place(place))?;
        Ok((is_there || path.is_some()).then_some(Whereabouts { path, is_there }))
    }

    fn has_name(&self, inode: Inode) -> Result<bool> {
        Ok(matches!(self.state.get(&Key::inode(inode))?, Some(Value::Inode(record)) if record.links > 0))
    }

    /// The files that were forgotten since the last drain.
    pub(crate) fn forgotten_lately(&self) -> impl Iterator<Item = Inode> {
        self.forgotten.iter().copied()
    }
}
