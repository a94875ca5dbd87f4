//! Changes of a zone, made and modelled.

use std::fmt;

use super::*;
use crate::device::simulated::Rng;

#[derive(Clone, Debug)]
pub enum ZoneChange {
    /// Appends where the contract asks for it, otherwise replaces.
    Put(String, Vec<u8>),
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
            _ if kind != ZoneKind::Workspace => Some(Self::Put(path, content)),
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

    pub fn make(&self, zone: &mut Zone) -> Result<(), ZoneError> {
        match self {
            Self::Put(path, content) => write_zone(zone, path, content),
            Self::WriteAt(path, offset, content) => {
                let inode = zone.open(access(), Inode::ROOT, path.as_bytes(), WRITE)?;
                zone.write(access(), inode, *offset as u64, content)?;
                zone.close(inode)
            }
            Self::SetSize(path, size) => {
                let inode = zone.open(access(), Inode::ROOT, path.as_bytes(), WRITE)?;
                zone.set_size(access(), inode, *size as u64)?;
                zone.close(inode)
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
            Self::WriteAt(path, offset, content) => write!(f, "write {path} at {offset} ({})", content.len()),
            Self::SetSize(path, size) => write!(f, "size of {path}: {size}"),
            Self::Rename(from, to) => write!(f, "rename {from} to {to}"),
            Self::Unlink(path) | Self::Rmdir(path) => write!(f, "remove {path}"),
            Self::Mkdir(path) => write!(f, "mkdir {path}"),
        }
    }
}
