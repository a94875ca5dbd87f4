//! From a base directory and a path to a place in the zone.

use std::borrow::Cow;

use super::history::view;
use super::{
    Access, ErrorCode, MAX_DIRECTORY_DEPTH, MAX_LINKS_FOLLOWED, MAX_PATH, Result, Stat, Zone, ZoneError,
    is_directory,
};
use crate::contract::{self, Operation};
use crate::id::Inode;
use crate::tree::{Body, FileKind, MAX_NAME, MAX_TARGET, Name, NamedPlace};

/// What to do with a symbolic link that the path ends in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// Follow it.
    Follow,
    /// Stay at the link, unless a slash comes after it.
    Stay,
    /// Stay at the link; a slash after it is an error. For what makes, moves or removes names.
    Entry,
}

/// Where a path leads.
pub(super) struct Place {
    /// The directory that the last name lies in.
    pub(super) parent: Inode,
    /// The last name; `None` when the path ends in `.` or `..`.
    pub(super) name: Option<Name>,
    /// What is there.
    pub(super) target: Option<(Inode, FileKind)>,
    /// Whether a slash comes after the last name.
    pub(super) slash: bool,
}

impl Place {
    /// The directory and the name in it, where there is one.
    pub(super) fn named(&self) -> Option<NamedPlace> {
        Some(NamedPlace { parent: self.parent, name: self.name.clone()? })
    }

    /// Whether it lies in a view of the past, or is one.
    fn is_past(&self) -> bool {
        let target = self.target.map(|(inode, _)| inode);
        view::directory(self.parent).is_some() || target.and_then(view::directory).is_some()
    }

    /// What is there, or `no-entry`.
    pub(super) fn found(&self) -> Result<(Inode, FileKind)> {
        self.target.ok_or_else(|| ErrorCode::NoEntry.into())
    }
}

impl Zone {
    /// The inode that `path` leads to from the directory `base`.
    ///
    /// The path may contain `..` as long as it does not lead above `base`; an absolute path, or a link
    /// with an absolute target, is `not-permitted`. Symbolic links inside the path are followed, one
    /// at its end when `follow` is set or a slash comes after it.
    pub fn resolve(&self, access: Access, base: Inode, path: &[u8], follow: bool) -> Result<Inode> {
        let last = if follow { Last::Follow } else { Last::Stay };
        Ok(self.locate(access, base, path, last)?.found()?.0)
    }

    /// The attributes of an inode, open or not.
    #[inline]
    pub fn stat(&self, access: Access, inode: Inode) -> Result<Stat> {
        self.check(access, Operation::Read)?;
        if self.kind.keeps_versions() {
            return self.stat_versioned(access, inode);
        }
        Ok(Stat::of(inode, self.record(inode)?))
    }

    fn stat_versioned(&self, access: Access, inode: Inode) -> Result<Stat> {
        if view::directory(inode).is_some() {
            return Ok(Stat::of(inode, &self.view_record(inode)?));
        }
        let inode = self.actual(inode);
        let mut stat = Stat::of(inode, self.seen_record(access, inode)?);
        stat.links = self.record(inode)?.links;
        Ok(stat)
    }

    /// What a name in a directory stands for, as the caller sees it.
    fn child(&self, access: Access, directory: Inode, name: &Name) -> Result<Option<(Inode, FileKind)>> {
        if !self.kind.keeps_versions() {
            return self.state.dirent(directory, name);
        }
        if let Some(view) = view::directory(directory) {
            return self.view_child(view, name);
        }
        if directory == Inode::ROOT
            && let Some(view) = view::top(name)
        {
            return Ok(Some((view, FileKind::Directory)));
        }
        match self.state.dirent(directory, name)? {
            Some((inode, FileKind::Regular)) if self.is_hidden(access, inode)? => Ok(None),
            found => Ok(found),
        }
    }

    /// Asks the contract about what is or will be at `place` if that is in the past.
    pub(super) fn check_past(&self, access: Access, place: &Place, operation: Operation) -> Result<()> {
        if place.is_past() {
            contract::check_past(self.kind, access.mount, operation)?;
        }
        Ok(())
    }

    /// The attributes of what [`Zone::resolve`] finds.
    pub fn stat_at(&self, access: Access, base: Inode, path: &[u8], follow: bool) -> Result<Stat> {
        self.stat(access, self.resolve(access, base, path, follow)?)
    }

    /// The target of the symbolic link at `path`; `invalid` when something else is there.
    pub fn readlink(&self, access: Access, base: Inode, path: &[u8]) -> Result<Vec<u8>> {
        let (inode, kind) = self.locate(access, base, path, Last::Stay)?.found()?;
        if kind != FileKind::Symlink {
            return Err(ErrorCode::Invalid.into());
        }
        match &self.record(inode)?.body {
            Body::Symlink(target) => Ok(target.to_vec()),
            _ => Err(ErrorCode::Invalid.into()),
        }
    }

    pub(super) fn locate(&self, access: Access, base: Inode, path: &[u8], last: Last) -> Result<Place> {
        self.check(access, Operation::Read)?;
        check_path(path)?;
        if view::directory(base).is_some() {
            self.view_record(base)?;
        } else if base != Inode::ROOT && !is_directory(self.record(base)?.kind()) {
            return Err(ErrorCode::NotDirectory.into());
        }
        let mut above: Vec<Inode> = Vec::new();
        let mut at = base;
        let mut rest = Cow::Borrowed(path);
        let mut start = 0;
        let mut followed = 0;
        loop {
            let Some((name, next)) = next_name(&rest, start) else {
                // Only slashes are left, or nothing: the path is `a/..`, `.`, or the like.
                return Ok(Place {
                    parent: at,
                    name: None,
                    target: Some((at, FileKind::Directory)),
                    slash: true,
                });
            };
            let is_last = next_name(&rest, next).is_none();
            let slash = next < rest.len();
            if name == b"." || name == b".." {
                if name.len() == 2 {
                    at = above.pop().ok_or_else(leads_out)?;
                }
                start = next;
                continue;
            }
            if !is_last
                && !self.kind.keeps_versions()
                && let Some((directory, FileKind::Directory)) = self.state.known(at, name)
            {
                above.push(at);
                at = directory;
                start = next;
                continue;
            }
            let name = Name::new(name).ok_or(if name.len() > MAX_NAME {
                ErrorCode::NameTooLong
            } else {
                ErrorCode::Invalid
            })?;
            let target = self.child(access, at, &name)?;
            match target {
                Some((link, FileKind::Symlink)) if !is_last || last.follows(slash) => {
                    followed += 1;
                    if followed > MAX_LINKS_FOLLOWED {
                        return Err(ErrorCode::Loop.into());
                    }
                    rest = Cow::Owned(self.through_link(link, &rest[next..])?);
                    start = 0;
                }
                Some((_, FileKind::Regular | FileKind::Symlink)) if !is_last || slash => {
                    return Err(ErrorCode::NotDirectory.into());
                }
                Some((directory, FileKind::Directory)) if !is_last => {
                    above.push(at);
                    at = directory;
                    start = next;
                }
                None if !is_last => return Err(ErrorCode::NoEntry.into()),
                _ => return Ok(Place { parent: at, name: Some(name), target, slash }),
            }
        }
    }

    /// Whether `place` lies under a name that is reserved for the host.
    pub(super) fn is_reserved(&self, place: &Place) -> Result<bool> {
        let Some(reserved) = contract::reserved_name(self.kind) else { return Ok(false) };
        if place.parent == Inode::ROOT {
            return Ok(place.name.as_ref().is_some_and(|name| name.as_bytes() == reserved));
        }
        let Some(top) = self.reserved_inode()? else { return Ok(false) };
        self.lies_in(place.parent, top)
    }

    /// Whether a directory is `top`, or lies in it at any depth up to [`MAX_DIRECTORY_DEPTH`].
    pub(super) fn lies_in(&self, directory: Inode, top: Inode) -> Result<bool> {
        let mut at = directory;
        for _ in 0..MAX_DIRECTORY_DEPTH {
            if at == top {
                return Ok(true);
            }
            if at == Inode::ROOT {
                return Ok(false);
            }
            let Body::Directory { parent } = self.record(at)?.body else {
                return Err(ErrorCode::NotDirectory.into());
            };
            at = parent;
        }
        Err(ZoneError::rule(ErrorCode::Invalid, "the directory lies too deep"))
    }

    /// What has the reserved name, if this zone has one.
    pub(super) fn reserved_inode(&self) -> Result<Option<Inode>> {
        match contract::reserved_name(self.kind).and_then(Name::new) {
            Some(name) => Ok(self.state.dirent(Inode::ROOT, &name)?.map(|(inode, _)| inode)),
            None => Ok(None),
        }
    }

    /// The rest of a path after a link has been replaced by its target.
    fn through_link(&self, link: Inode, rest: &[u8]) -> Result<Vec<u8>> {
        let Body::Symlink(target) = &self.record(link)?.body else {
            return Err(ErrorCode::Io.into());
        };
        if target.first() == Some(&b'/') {
            return Err(leads_out());
        }
        Ok([target, rest].concat())
    }
}

impl Last {
    fn follows(self, slash: bool) -> bool {
        match self {
            Last::Follow => true,
            Last::Stay => slash,
            Last::Entry => false,
        }
    }
}

fn leads_out() -> ZoneError {
    ZoneError::rule(ErrorCode::NotPermitted, "a path may not lead out of its base directory")
}

fn check_path(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(ErrorCode::NoEntry.into());
    }
    if path.len() > MAX_PATH {
        return Err(ErrorCode::NameTooLong.into());
    }
    if path.contains(&0) {
        return Err(ErrorCode::Invalid.into());
    }
    if path[0] == b'/' {
        return Err(leads_out());
    }
    Ok(())
}

/// Checks the target of a link that is to be made.
pub(super) fn check_target(target: &[u8]) -> Result<()> {
    if target.len() > MAX_TARGET {
        return Err(ErrorCode::NameTooLong.into());
    }
    check_path(target)
}

/// The name at or after `start`, and where it ends.
fn next_name(path: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let begin = start + path[start..].iter().position(|byte| *byte != b'/')?;
    let len = path[begin..].iter().position(|byte| *byte == b'/').unwrap_or(path.len() - begin);
    Some((&path[begin..begin + len], begin + len))
}
