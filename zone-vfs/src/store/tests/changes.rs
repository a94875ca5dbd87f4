//! Changes of a zone, made and modelled.

use std::fmt;

use super::model::ModelAgent;
use super::versions::{Deed, Standing};
use super::*;
use crate::device::simulated::Rng;

#[derive(Clone, Debug)]
pub enum ZoneChange {
    /// Appends where the contract asks for it, otherwise replaces.
    Put(String, Vec<u8>),
    /// Writes a temporary file, syncs it and renames it over the target.
    Replace(String, Vec<u8>),
    WriteAt(String, usize, Vec<u8>),
    SetSize(String, usize),
    Rename(String, String),
    Unlink(String),
    /// Paths of directories end with a slash.
    Mkdir(String),
    Rmdir(String),
}

const FILES: u64 = 3;
const DIRECTORIES: u64 = 2;
const TEMPORARY: &[u8] = b"temporary";

impl ZoneChange {
    /// A change that a zone of this kind with these files allows, and that changes something.
    pub fn draw(rng: &mut Rng, kind: ZoneKind, files: &Files, content: Vec<u8>) -> Option<Self> {
        let directory = format!("d{}/", rng.below(DIRECTORIES));
        let inside = if rng.one_in(3) && files.contains_key(&directory) { &directory } else { "" };
        let path = format!("{inside}f{}", rng.below(FILES));
        let there = files.get(&path);
        let drawn = rng.below(20);
        if kind.is_append_only() {
            return match (drawn, files.contains_key(&directory)) {
                (0, false) => Some(Self::Mkdir(directory)),
                _ => Some(Self::Put(path, content)),
            };
        }
        let target = format!("f{}", rng.below(FILES));
        match (drawn, there) {
            (0..3, Some(_)) => Some(Self::Unlink(path)),
            (3..7, Some(_)) if path != target => Some(Self::Rename(path, target)),
            (7, _) if !files.contains_key(&directory) => Some(Self::Mkdir(directory)),
            (15..18, _) => Some(Self::Replace(path, content)),
            _ if kind.keeps_versions() => Some(Self::Put(path, content)),
            (8..11, Some(old)) => {
                Some(Self::WriteAt(path, rng.below(old.len() as u64 + 3_000) as usize, content))
            }
            (11..13, Some(old)) => {
                let size = rng.below(old.len() as u64 + 3_000) as usize;
                (size != old.len()).then_some(Self::SetSize(path, size))
            }
            (13, _) if files.contains_key(&directory) => {
                let is_empty = !files.keys().any(|it| it.starts_with(&directory) && *it != directory);
                is_empty.then_some(Self::Rmdir(directory))
            }
            (14, _) => {
                let other = format!("d{}/", rng.below(DIRECTORIES));
                let can = files.contains_key(&directory) && !files.contains_key(&other);
                can.then_some(Self::Rename(directory, other))
            }
            _ => Some(Self::Put(path, content)),
        }
    }

    /// Whether it is about this path.
    pub fn touches(&self, path: &str) -> bool {
        match self {
            Self::Put(it, _)
            | Self::Replace(it, _)
            | Self::WriteAt(it, ..)
            | Self::SetSize(it, _)
            | Self::Unlink(it)
            | Self::Mkdir(it)
            | Self::Rmdir(it) => it == path,
            Self::Rename(from, to) => from == path || to == path,
        }
    }

    /// Whether it is made at once or not at all.
    pub fn is_one_operation(&self) -> bool {
        matches!(self, Self::Rename(..) | Self::Unlink(_) | Self::Mkdir(_) | Self::Rmdir(_))
    }

    pub fn make(&self, zone: &mut Zone) -> Result<(), ZoneError> {
        match self {
            Self::Put(path, content) => write_zone(zone, path, content),
            Self::Replace(path, content) => {
                let options = OpenOptions { exclusive: true, ..WRITE };
                let inode = zone.open(access(), Inode::ROOT, TEMPORARY, options)?;
                zone.append(access(), inode, content)?;
                zone.sync(access(), inode)?;
                zone.close_writer(inode)?;
                zone.rename(access(), (Inode::ROOT, TEMPORARY), (Inode::ROOT, path.as_bytes()))
            }
            Self::WriteAt(path, offset, content) => {
                let inode = zone.open(access(), Inode::ROOT, path.as_bytes(), WRITE)?;
                zone.write(access(), inode, *offset as u64, content)?;
                zone.close_writer(inode)
            }
            Self::SetSize(path, size) => {
                let inode = zone.open(access(), Inode::ROOT, path.as_bytes(), WRITE)?;
                zone.set_size(access(), inode, *size as u64)?;
                zone.close_writer(inode)
            }
            Self::Rename(from, to) => {
                let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
                zone.rename(access(), (Inode::ROOT, from.as_bytes()), (Inode::ROOT, to.as_bytes()))
            }
            Self::Unlink(path) => zone.unlink(access(), Inode::ROOT, path.as_bytes()),
            Self::Mkdir(path) => {
                zone.mkdir(access(), Inode::ROOT, path.trim_end_matches('/').as_bytes()).map(|_| ())
            }
            Self::Rmdir(path) => zone.rmdir(access(), Inode::ROOT, path.trim_end_matches('/').as_bytes()),
        }
    }

    pub fn model(&self, files: &mut Files, kind: ZoneKind) {
        match self {
            Self::Put(path, content) => {
                let file = Arc::make_mut(files.entry(path.clone()).or_default());
                if !kind.is_append_only() {
                    file.clear();
                }
                file.extend_from_slice(content);
            }
            Self::Replace(path, content) => drop(files.insert(path.clone(), Arc::new(content.clone()))),
            Self::WriteAt(path, offset, content) => {
                let file = Arc::make_mut(files.entry(path.clone()).or_default());
                file.resize(file.len().max(offset + content.len()), 0);
                file[*offset..offset + content.len()].copy_from_slice(content);
            }
            Self::SetSize(path, size) => {
                Arc::make_mut(files.entry(path.clone()).or_default()).resize(*size, 0);
            }
            Self::Rename(from, to) if from.ends_with('/') => {
                let moved: Vec<_> = files.keys().filter(|it| it.starts_with(from)).cloned().collect();
                for path in moved {
                    let Some(content) = files.remove(&path) else { continue };
                    files.insert(format!("{to}{}", &path[from.len()..]), content);
                }
            }
            Self::Rename(from, to) => {
                let moved = files.remove(from);
                files.extend(moved.map(|content| (to.clone(), content)));
            }
            Self::Unlink(path) | Self::Rmdir(path) => drop(files.remove(path)),
            Self::Mkdir(path) => drop(files.insert(path.clone(), Arc::default())),
        }
    }
}

impl fmt::Display for ZoneChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(path, content) => write!(f, "put {path} ({})", content.len()),
            Self::Replace(path, content) => write!(f, "replace {path} ({})", content.len()),
            Self::WriteAt(path, offset, content) => write!(f, "write {path} at {offset} ({})", content.len()),
            Self::SetSize(path, size) => write!(f, "size of {path}: {size}"),
            Self::Rename(from, to) => write!(f, "rename {from} to {to}"),
            Self::Unlink(path) | Self::Rmdir(path) => write!(f, "remove {path}"),
            Self::Mkdir(path) => write!(f, "mkdir {path}"),
        }
    }
}

/// Why a change was not made in both.
#[derive(Debug)]
pub enum Failed {
    Refused(ZoneError),
    /// It was made, and is not what it should be.
    Wrong(String),
    /// It was made, and will be published with the next commit: the disk is full.
    Postponed,
}

impl From<ZoneError> for Failed {
    fn from(error: ZoneError) -> Self {
        Self::Refused(error)
    }
}

/// Makes a change of a zone of an agent's, in the store and in the model.
pub fn change(disk: &Disk, agent: &mut ModelAgent, zone: u16, change: &ZoneChange) -> Result<(), Failed> {
    let kind = KINDS[usize::from(zone)];
    if kind.keeps_versions() {
        let made = |zone: &mut Zone| change.make(zone);
        return remember(disk, agent, &Deed::Change(change), made, |files, ()| change.model(files, kind));
    }
    disk.zone(zone, |zone| change.make(zone)).unwrap()?;
    agent.change(zone, |files| change.model(files, kind));
    Ok(())
}

/// Does something in the zone that keeps versions, and takes up what it has added to the history.
pub fn remember<T>(
    disk: &Disk,
    agent: &mut ModelAgent,
    deed: &Deed<'_>,
    make: impl FnOnce(&mut Zone) -> Result<T, ZoneError>,
    model: impl FnOnce(&mut Files, T),
) -> Result<(), Failed> {
    let made = disk.zone(SEMANTIC, |zone| {
        let before = Standing::of(zone)?;
        let made = make(zone)?;
        // a read that fails does so once
        let after = Standing::of(zone).or_else(|_| Standing::of(zone))?;
        Ok::<_, ZoneError>((before, made, after))
    });
    let (before, made, after) = made.unwrap()?;
    if disk.zone(SEMANTIC, |zone| zone.has_postponed()).unwrap_or_default() {
        return Err(Failed::Postponed);
    }
    let took = agent.change_semantic(|held| {
        held.memory.took(deed, &held.files, &before, after)?;
        model(&mut held.files, made);
        Ok(())
    });
    took.map_err(Failed::Wrong)
}
