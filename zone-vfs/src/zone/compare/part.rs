//! The part of a comparison that is asked for, and what became of a file's name.

use std::collections::{BTreeMap, BTreeSet};

use super::side::Found;
use super::{Comparison, DifferenceKind, FileDifference, FileSide, Result, Sameness};
use crate::id::Inode;
use crate::tree::FileKind;

/// The part of a comparison that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct DiffPart<'a> {
    /// Only what lies at this path or below, from the zone's root and without a slash before it, and what was renamed
    /// out of there. Empty for the whole zone.
    pub below: &'a [u8],
    /// Only paths after this one.
    pub after: Option<&'a [u8]>,
    /// Only paths that are UTF-8.
    pub utf8: bool,
    /// At most so many. Where a directory has taken another's place, that is two, which are told together: one more
    /// than this, if nothing else would be told.
    pub limit: usize,
}

impl Default for DiffPart<'_> {
    fn default() -> Self {
        Self { below: b"", after: None, utf8: false, limit: usize::MAX }
    }
}

/// Where the same file was and is: of several names that went and came, the first each.
pub(super) type Renames = BTreeMap<Inode, (Vec<u8>, Vec<u8>)>;

pub(super) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory);
    directory.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl FileDifference {
    fn is_from_below(&self, directory: &[u8]) -> bool {
        matches!(&self.kind, DifferenceKind::Renamed { from, .. } if is_below(from, directory))
    }
}

/// What is at a path on both sides; `None` where nothing is.
struct Sides {
    before: Option<FileSide>,
    after: Option<FileSide>,
}

impl Sides {
    /// Whether one directory has taken another's place.
    fn are_other_directories(&self) -> bool {
        let directory = |side: &FileSide| side.is == FileKind::Directory;
        matches!((&self.before, &self.after), (Some(was), Some(is))
            if directory(was) && directory(is) && was.file != is.file)
    }

    /// What had this name and lost it.
    fn gone(&self) -> Option<FileSide> {
        self.before.filter(|_| self.after.is_none() || self.are_other_directories())
    }

    /// What has this name and did not have it.
    fn come(&self) -> Option<FileSide> {
        self.after.filter(|_| self.before.is_none() || self.are_other_directories())
    }
}

impl Comparison {
    /// What differs in a part of these paths, in their order. Only what is told is looked at more closely.
    pub(super) fn tell(
        &mut self,
        paths: &BTreeSet<Vec<u8>>,
        part: DiffPart<'_>,
    ) -> Result<Vec<FileDifference>> {
        let mut asked: Vec<&Vec<u8>> = paths.iter().filter(|path| is_below(path, part.below)).collect();
        if self.sameness == Sameness::Number && asked.len() < paths.len() {
            let out = self.renamed_out(&asked, paths, part.below)?;
            asked.extend(paths.iter().filter(|path| out.contains(*path)));
            asked.sort_unstable();
        }
        let begin = part.after.map_or(0, |after| asked.partition_point(|path| path.as_slice() <= after));
        let mut told = Vec::new();
        for path in &asked[begin..] {
            if told.len() >= part.limit {
                break;
            }
            if part.utf8 && str::from_utf8(path).is_err() {
                continue;
            }
            let before = told.len();
            self.classify(path, paths, &mut told)?;
            if !is_below(path, part.below) {
                let here = told.split_off(before);
                told.extend(here.into_iter().filter(|it| it.is_from_below(part.below)));
            }
            if told.len() > part.limit && before > 0 {
                told.truncate(before);
                break;
            }
        }
        Ok(told)
    }

    /// The paths outside a directory to which something from inside it was renamed.
    fn renamed_out(
        &mut self,
        inside: &[&Vec<u8>],
        paths: &BTreeSet<Vec<u8>>,
        below: &[u8],
    ) -> Result<BTreeSet<Vec<u8>>> {
        let mut out = BTreeSet::new();
        for path in inside {
            let Some(was) = self.sides(path)?.gone() else { continue };
            if let Some((from, to)) = self.renamed(was.file, paths)?
                && from == **path
                && !is_below(&to, below)
            {
                out.insert(to);
            }
        }
        Ok(out)
    }

    fn sides(&self, path: &[u8]) -> Result<Sides> {
        Ok(Sides { before: self.before.at(path)?, after: self.after.at(path)? })
    }

    /// Adds what differs at a path.
    fn classify(
        &mut self,
        path: &[u8],
        paths: &BTreeSet<Vec<u8>>,
        told: &mut Vec<FileDifference>,
    ) -> Result<()> {
        let sides = self.sides(path)?;
        let mut tell = |kind, before, after| {
            told.push(FileDifference { path: path.to_vec(), kind, before, after });
        };
        if let (Some(was), Some(is)) = (&sides.before, &sides.after) {
            if was.is != is.is {
                tell(DifferenceKind::Changed, sides.before, sides.after);
                return Ok(());
            }
            if is.is != FileKind::Directory {
                if self.differs(was, is)? {
                    tell(DifferenceKind::Changed, sides.before, sides.after);
                } else if was.modified != is.modified && self.tells_times() {
                    tell(DifferenceKind::Times, sides.before, sides.after);
                }
                return Ok(());
            }
            if self.sameness == Sameness::Path {
                return Ok(());
            }
        }
        if let Some(was) = sides.gone() {
            let renamed = self.renamed(was.file, paths)?;
            if renamed.is_none_or(|(from, _)| from != path) {
                tell(DifferenceKind::Removed, Some(was), None);
            }
        }
        if let Some(is) = sides.come() {
            let from = self.renamed(is.file, paths)?.filter(|(_, to)| to == path).map(|(from, _)| from);
            let was = from.as_deref().map(|from| self.before.at(from)).transpose()?.flatten();
            match (from, was.filter(|was| was.is == is.is)) {
                (Some(from), Some(was)) => {
                    let changed = is.is != FileKind::Directory && self.differs(&was, &is)?;
                    tell(DifferenceKind::Renamed { from, changed }, Some(was), Some(is));
                }
                _ => tell(DifferenceKind::Added, None, Some(is)),
            }
        }
        Ok(())
    }

    /// Where a file was whose name went, and where it is since a name came: that is a rename. Of one zone only, where
    /// a file is the same file wherever it lies.
    fn renamed(&mut self, file: Inode, paths: &BTreeSet<Vec<u8>>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.sameness == Sameness::Path {
            return Ok(None);
        }
        let (from, to) = match (self.before.name_of(file)?, self.after.name_of(file)?) {
            (Found::Nothing, _) | (_, Found::Nothing) => return Ok(None),
            (Found::At(from), Found::At(to)) => (from, to),
            (Found::Unknown, _) | (_, Found::Unknown) => {
                if self.renames.is_none() {
                    self.renames = Some(self.all_renames(paths)?);
                }
                return Ok(self.renames.as_ref().and_then(|all| all.get(&file).cloned()));
            }
        };
        let is_it = |side: Option<FileSide>| side.is_some_and(|side| side.file == file);
        let is_renamed = paths.contains(&from)
            && paths.contains(&to)
            && is_it(self.sides(&from)?.gone())
            && is_it(self.sides(&to)?.come());
        Ok(is_renamed.then_some((from, to)))
    }

    /// Every rename: looks at all paths, for files with several names.
    fn all_renames(&self, paths: &BTreeSet<Vec<u8>>) -> Result<Renames> {
        let (mut gone, mut all) = (BTreeMap::new(), Renames::new());
        for path in paths {
            if let Some(was) = self.sides(path)?.gone() {
                gone.entry(was.file).or_insert(path);
            }
        }
        for path in paths {
            if let Some(is) = self.sides(path)?.come()
                && let Some(from) = gone.remove(&is.file)
            {
                all.insert(is.file, (from.clone(), path.clone()));
            }
        }
        Ok(all)
    }
}
