//! One of the two states, and where things are in it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::super::state::State;
use super::super::{MAX_DIRECTORY_DEPTH, Result, Zone, ZoneRoot};
use super::FileSide;
use crate::chunks::ChunkStore;
use crate::contract::ZoneKind;
use crate::id::Inode;
use crate::tree::{Body, FileKind, InodeRecord, Key, Name, Part, TreeError, Value};

/// Directories whose paths are remembered, at most; then they are forgotten, all of them.
const REMEMBERED: usize = 16 << 10;

/// Where a file is.
pub(super) enum Found {
    /// Nowhere: it is not there, has no name, or is a directory, of which only names are compared.
    Nothing,
    /// Only there.
    At(Vec<u8>),
    /// It has several names, or one that its record does not tell.
    Unknown,
}

pub(super) struct Side {
    zone: Zone,
    /// The paths of directories, with a slash behind; empty for the root. `None` for those without a name.
    directories: HashMap<Inode, Option<Arc<[u8]>>>,
}

impl Side {
    pub fn new(root: &ZoneRoot, store: &Arc<dyn ChunkStore>) -> Self {
        Self { zone: Zone::from_root(root.clone(), store.clone()), directories: HashMap::new() }
    }

    pub fn state(&self) -> &State {
        &self.zone.state
    }

    pub fn kind(&self) -> ZoneKind {
        self.zone.kind
    }

    fn record(&self, inode: Inode) -> Result<Option<&InodeRecord>> {
        match self.state().get(&Key::inode(inode))? {
            Some(Value::Inode(record)) => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// What is at a path from the root.
    pub fn at(&self, path: &[u8]) -> Result<Option<FileSide>> {
        let mut at = Inode::ROOT;
        for name in path.split(|byte| *byte == b'/') {
            let Some(name) = Name::new(name) else { return Ok(None) };
            match self.state().dirent(at, &name)? {
                Some((inode, _)) => at = inode,
                None => return Ok(None),
            }
        }
        let Some(record) = self.record(at)? else {
            return Err(TreeError::Damaged("a name stands for an inode that is not there").into());
        };
        let version = if let Body::Published { version, .. } = record.body { Some(version) } else { None };
        let (is, size, modified) = (record.kind(), record.size, record.modified);
        Ok(Some(FileSide { file: at, is, size, modified, version }))
    }

    /// The path of a name in a directory, if that directory has one; whether or not anything has the name.
    pub fn path_in(&mut self, directory: Inode, name: &Name) -> Result<Option<Vec<u8>>> {
        let Some(directory) = self.directory(directory, 0)? else { return Ok(None) };
        Ok(Some([&directory, name.as_bytes()].concat()))
    }

    /// The path of a directory, with a slash behind.
    fn directory(&mut self, directory: Inode, depth: usize) -> Result<Option<Arc<[u8]>>> {
        if directory == Inode::ROOT {
            return Ok(Some(Arc::default()));
        }
        if let Some(known) = self.directories.get(&directory) {
            return Ok(known.clone());
        }
        if depth > MAX_DIRECTORY_DEPTH {
            return Err(TreeError::Damaged("directories lie in each other too deep").into());
        }
        let place = match self.record(directory)? {
            Some(record) if record.kind() == FileKind::Directory && record.links > 0 => record.place.clone(),
            _ => None,
        };
        let path = match place {
            Some(place) => self
                .directory(place.parent, depth + 1)?
                .map(|above| [&above, place.name.as_bytes(), b"/"].concat().into()),
            None => None,
        };
        if self.directories.len() >= REMEMBERED {
            self.directories.clear();
        }
        self.directories.insert(directory, path.clone());
        Ok(path)
    }

    /// Where a file or link is.
    pub fn only_path(&mut self, inode: Inode) -> Result<Found> {
        let Some(record) = self.record(inode)? else { return Ok(Found::Nothing) };
        if record.links == 0 || record.kind() == FileKind::Directory {
            return Ok(Found::Nothing);
        }
        let Some(place) = record.place.clone().filter(|_| record.links == 1) else {
            return Ok(Found::Unknown);
        };
        let there = self.state().dirent(place.parent, &place.name)?;
        if there.is_none_or(|(target, _)| target != inode) {
            return Ok(Found::Unknown);
        }
        Ok(self.path_in(place.parent, &place.name)?.map_or(Found::Nothing, Found::At))
    }

    /// Where a file, link or directory is.
    pub fn name_of(&mut self, inode: Inode) -> Result<Found> {
        match self.record(inode)?.map(InodeRecord::kind) {
            Some(FileKind::Directory) => Ok(match self.directory(inode, 0)? {
                Some(path) if !path.is_empty() => Found::At(path[..path.len() - 1].to_vec()),
                _ => Found::Nothing,
            }),
            _ => self.only_path(inode),
        }
    }

    /// Hands on every path of these. Goes through the whole tree.
    pub fn names_of(
        &mut self,
        sought: &BTreeSet<Inode>,
        each: &mut dyn FnMut(Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let tree = self.zone.state.tree.clone();
        let store = self.zone.state.store.clone();
        for entry in tree.entries(&*store)? {
            if let (Key { inode: directory, part: Part::Dirent(name) }, Value::Dirent { inode, .. }) = entry?
                && sought.contains(inode)
                && let Some(path) = self.path_in(*directory, name)?
            {
                each(path)?;
            }
        }
        Ok(())
    }

    /// Hands on the names in a directory.
    pub fn children(&self, directory: Inode, each: &mut dyn FnMut(&Name) -> Result<()>) -> Result<()> {
        let state = self.state();
        for entry in state.tree.range(&*state.store, Bound::Excluded(&Key::inode(directory)))? {
            match entry? {
                (Key { inode, part: Part::Dirent(name) }, _) if *inode == directory => each(name)?,
                _ => break,
            }
        }
        Ok(())
    }
}
