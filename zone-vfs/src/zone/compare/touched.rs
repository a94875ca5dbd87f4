//! What differs between two trees: the files and the names that are to be looked at.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Result, ZoneError, ZoneRoot};
use super::{MAX_DIFFERENCES, too_many};
use crate::chunks::ChunkStore;
use crate::id::{Hash, Inode};
use crate::tree::{Body, Key, Name, Part, Value};

/// What is known of the chunks of a file that both trees have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    /// The record differs in a way that says that the content may.
    record: bool,
    /// One of them differs.
    differ: bool,
    /// Whether one of them differs is seen only when it is read.
    unsure: bool,
}

#[derive(Default)]
pub(super) struct Touched {
    pub files: BTreeMap<Inode, Chunks>,
    /// Entries of directories, in the order of directory and name.
    pub names: BTreeSet<(Inode, Name)>,
}

impl Touched {
    pub fn between(before: &ZoneRoot, after: &ZoneRoot, store: &dyn ChunkStore) -> Result<Self> {
        let mut touched = Self::default();
        before.tree.diff(&after.tree, store, &mut |(key, old, new)| {
            touched.note(key, old, new);
            if touched.files.len() + touched.names.len() > MAX_DIFFERENCES {
                return Err(too_many());
            }
            Ok::<_, ZoneError>(())
        })?;
        Ok(touched)
    }

    fn note(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        match (&key.part, old, new) {
            (Part::Inode, Some(Value::Inode(old)), Some(Value::Inode(new))) => {
                let is_directory = |body: &Body| matches!(body, Body::Directory { .. });
                if !(is_directory(&old.body) && is_directory(&new.body)) && old != new {
                    let chunks = self.files.entry(key.inode).or_default();
                    // chunks that do not differ are equal only where both files consist of chunks
                    chunks.record |= !matches!((&old.body, &new.body), (Body::Extents, Body::Extents));
                }
            }
            (Part::Inode, ..) => self.files.entry(key.inode).or_default().record = true,
            (Part::Extent(_), old, new) => {
                let chunks = self.files.entry(key.inode).or_default();
                match (old.and_then(address), new.and_then(address)) {
                    (Some(old), Some(new)) if old == new => {}
                    // of one length, so that neither ends in zeros that the other leaves out
                    (Some((_, old)), Some((_, new))) if old == new => chunks.differ = true,
                    _ => chunks.unsure = true,
                }
            }
            (Part::Dirent(name), old, new) => {
                let target = |value: Option<&Value>| match value {
                    Some(Value::Dirent { inode, kind }) => Some((*inode, *kind)),
                    _ => None,
                };
                if target(old) != target(new) {
                    self.names.insert((key.inode, name.clone()));
                }
            }
            _ => {}
        }
    }

    /// Whether the content of a file of this number, which has the same size in both trees, differs, as far as
    /// that is known without reading.
    pub fn content(&self, file: Inode) -> Option<bool> {
        match self.files.get(&file) {
            Some(chunks) if chunks.differ && !chunks.record => Some(true),
            Some(chunks) if chunks.record || chunks.unsure => None,
            None | Some(_) => Some(false),
        }
    }
}

/// The address of a chunk that has one, and its length.
fn address(value: &Value) -> Option<(Hash, usize)> {
    let Value::Extent(extent) = value else { return None };
    extent.address().map(|hash| (hash, extent.len()))
}
