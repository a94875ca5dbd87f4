//! How two states of zones differ, file by file.
//!
//! 1. The trees are compared, of which everything is skipped that both share: what is left names the
//!    directory entries and files to look at (`touched`).
//! 2. Those are turned into paths, and what is at each path before and after is compared (`side`, `content`).
//! 3. Of one zone, a file is the same file wherever it lies, so that a name that went and one that came are a
//!    rename (`part`).
//!
//! So the cost follows what differs. Only a file with several names that differs makes the walk go through a
//! whole tree, to find them.

mod content;
mod part;
mod side;
mod touched;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ErrorCode, Result, ZoneError, ZoneRoot};
use crate::chunks::ChunkStore;
use crate::contract::{self, Mount, Operation, Principal};
use crate::id::{Inode, Timestamp, Version};
use crate::tree::FileKind;
pub use part::DiffPart;
use part::Renames;
use side::{Found, Side};
use touched::Touched;

/// Files and names of which one comparison looks at more are too many.
pub const MAX_DIFFERENCES: usize = 1 << 18;
/// The paths that one comparison has in memory. Bytes.
pub const MAX_DIFFERENCE_BYTES: usize = 64 << 20;

/// What makes a file of one state the same as one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// Its number: for two states of one zone, where numbers are never reused.
    Number,
    /// Its path: for zones of two agents, also where one is a fork of the other.
    Path,
}

/// A file, directory or link as it is on one of the sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSide {
    /// Its number.
    pub file: Inode,
    /// What it is.
    pub is: FileKind,
    /// The length of a file or of a link's target. Bytes.
    pub size: u64,
    /// When its content last changed.
    pub modified: Timestamp,
    /// The version at which it stands, in a zone that keeps versions; `None` for a draft.
    pub version: Option<Version>,
}

/// What is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// It is there only after.
    Added,
    /// It was there only before.
    Removed,
    /// The content differs, or what it is.
    Changed,
    /// The same file or directory has another path. What lies in a directory moves with it, and is told of
    /// only where it differs itself.
    Renamed {
        /// The path before, from the zone's root.
        from: Vec<u8>,
        /// The content differs as well.
        changed: bool,
    },
    /// Only when it was changed differs. Told only of one zone, and where its contract lets times be set.
    Times,
}

/// One path at which two states of zones differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDifference {
    /// The path from the zone's root, without a slash before it: before for what was removed, otherwise after.
    pub path: Vec<u8>,
    /// What is different.
    pub kind: DifferenceKind,
    /// As it was, where it was.
    pub before: Option<FileSide>,
    /// As it is, where it is.
    pub after: Option<FileSide>,
}

impl ZoneRoot {
    /// Where the zone `after` differs from this one, in the order of paths. Drafts count as they stand. What the
    /// history holds is not compared, nor are directories beyond their names.
    ///
    /// The order of the zones makes what is removed and what is added. Both lie in `store`. More than
    /// [`MAX_DIFFERENCES`] or [`MAX_DIFFERENCE_BYTES`] are refused with `overflow`.
    pub fn compare(
        &self,
        after: &Self,
        sameness: Sameness,
        store: &Arc<dyn ChunkStore>,
    ) -> Result<Vec<FileDifference>> {
        self.compare_part(after, sameness, store, DiffPart::default())
    }

    /// As [`compare`](Self::compare), of a part, so that a long comparison can be told page by page: each begins after
    /// the last path of the one before. Which files differ is found out each time, but only what a page tells is
    /// looked at and read.
    pub fn compare_part(
        &self,
        after: &Self,
        sameness: Sameness,
        store: &Arc<dyn ChunkStore>,
        part: DiffPart<'_>,
    ) -> Result<Vec<FileDifference>> {
        let touched = Touched::between(self, after, &**store)?;
        let (before, after) = (Side::new(self, store), Side::new(after, store));
        let mut comparison = Comparison { before, after, touched, sameness, renames: None };
        let paths = comparison.paths()?;
        comparison.tell(&paths.all, part)
    }
}

struct Comparison {
    before: Side,
    after: Side,
    touched: Touched,
    sameness: Sameness,
    /// All renames, once that was asked.
    renames: Option<Renames>,
}

/// Paths, as many as may be.
#[derive(Default)]
pub(super) struct Paths {
    all: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Paths {
    /// Adds a path; whether it was new.
    pub(super) fn add(&mut self, path: Vec<u8>) -> Result<bool> {
        let len = path.len();
        if !self.all.insert(path) {
            return Ok(false);
        }
        self.bytes += len;
        if self.all.len() > MAX_DIFFERENCES || self.bytes > MAX_DIFFERENCE_BYTES {
            return Err(too_many());
        }
        Ok(true)
    }
}

#[cold]
fn too_many() -> ZoneError {
    ZoneError::rule(ErrorCode::Overflow, "more than 262,144 files, or 64 MiB of paths, differ")
}

impl Comparison {
    /// The paths at which something may differ.
    fn paths(&mut self) -> Result<Paths> {
        let mut paths = Paths::default();
        for side in [&mut self.before, &mut self.after] {
            for (directory, name) in &self.touched.names {
                if let Some(path) = side.path_in(*directory, name)? {
                    paths.add(path)?;
                }
            }
            // files with several names, or none that is known: their names are looked for together
            let mut sought = BTreeSet::new();
            for inode in self.touched.files.keys() {
                match side.only_path(*inode)? {
                    Found::Nothing => {}
                    Found::At(path) => drop(paths.add(path)?),
                    Found::Unknown => drop(sought.insert(*inode)),
                }
            }
            if !sought.is_empty() {
                side.names_of(&sought, &mut |path| paths.add(path).map(drop))?;
            }
        }
        if self.sameness == Sameness::Path {
            self.descend(&mut paths)?;
        }
        Ok(paths)
    }

    /// Adds what lies in directories that only one side has at a path, or that are not the same on both: the
    /// trees need not differ there, since nothing in them says where a directory is.
    fn descend(&mut self, paths: &mut Paths) -> Result<()> {
        let mut waiting: Vec<Vec<u8>> = paths.all.iter().cloned().collect();
        while let Some(path) = waiting.pop() {
            let before = self.before.at(&path)?.filter(|it| it.is == FileKind::Directory);
            let after = self.after.at(&path)?.filter(|it| it.is == FileKind::Directory);
            if before.map(|it| it.file) == after.map(|it| it.file) {
                continue;
            }
            for (side, directory) in [(&mut self.before, before), (&mut self.after, after)] {
                let Some(directory) = directory else { continue };
                side.children(directory.file, &mut |name| {
                    let child = [&path, name.as_bytes()].join(&b'/');
                    if paths.add(child.clone())? {
                        waiting.push(child);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Whether two files or links of one kind differ in their content.
    fn differs(&self, was: &FileSide, is: &FileSide) -> Result<bool> {
        if was.size != is.size {
            return Ok(true);
        }
        let known = (was.file == is.file).then(|| self.touched.content(was.file)).flatten();
        match known {
            Some(differs) => Ok(differs),
            None => Ok(!content::is_equal(self.before.state(), was.file, self.after.state(), is.file)?),
        }
    }

    fn tells_times(&self) -> bool {
        let host = Mount::writable(Principal::Host);
        self.sameness == Sameness::Number
            && contract::check(self.after.kind(), host, Operation::SetTimes).is_ok()
    }
}
