//! What a zone should do, in the plainest way.

use std::collections::BTreeMap;

use super::super::{ErrorCode, Usage};
use crate::tree::FileKind;

#[derive(Clone, Debug)]
pub(super) enum Content {
    Directory(BTreeMap<Vec<u8>, u64>),
    File(Vec<u8>),
    Symlink(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    pub(super) parent: u64,
    pub(super) links: u32,
    pub(super) times: [u64; 3],
}

impl Node {
    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::Directory(_) => 0,
            Content::File(bytes) | Content::Symlink(bytes) => bytes.len() as u64,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match &self.content {
            Content::Directory(_) => FileKind::Directory,
            Content::File(_) => FileKind::Regular,
            Content::Symlink(_) => FileKind::Symlink,
        }
    }

    fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }
}

/// Every operation names things by a directory and one name in it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) nodes: BTreeMap<u64, Node>,
    next: u64,
    /// How often each inode is open.
    pub(super) open: BTreeMap<u64, usize>,
}

type Outcome<T> = Result<T, ErrorCode>;

impl Model {
    pub(super) fn new(now: u64) -> Self {
        let root =
            Node { content: Content::Directory(BTreeMap::new()), parent: 1, links: 1, times: [now; 3] };
        Self { nodes: BTreeMap::from([(1, root)]), next: 2, open: BTreeMap::new() }
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            bytes: self.nodes.values().map(Node::size).sum(),
            inodes: self.nodes.values().map(|node| u64::from(node.links.max(1))).sum::<u64>() - 1,
        }
    }

    fn entries(&mut self, directory: u64) -> Outcome<&mut BTreeMap<Vec<u8>, u64>> {
        match &mut self.nodes.get_mut(&directory).ok_or(ErrorCode::NoEntry)?.content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(ErrorCode::NotDirectory),
        }
    }

    pub(super) fn find(&mut self, directory: u64, name: &[u8]) -> Outcome<u64> {
        self.entries(directory)?.get(name).copied().ok_or(ErrorCode::NoEntry)
    }

    fn changed_directory(&mut self, directory: u64, now: u64) {
        let node = self.nodes.get_mut(&directory).unwrap();
        node.times[1] = now;
        node.times[2] = now;
    }

    pub(super) fn create(&mut self, directory: u64, name: &[u8], content: Content, now: u64) -> Outcome<u64> {
        if self.entries(directory)?.contains_key(name) {
            return Err(ErrorCode::Exist);
        }
        if self.nodes[&directory].links == 0 {
            return Err(ErrorCode::NoEntry);
        }
        let inode = self.next;
        self.next += 1;
        self.entries(directory)?.insert(name.to_vec(), inode);
        self.changed_directory(directory, now);
        self.nodes.insert(inode, Node { content, parent: directory, links: 1, times: [now; 3] });
        Ok(inode)
    }

    fn release(&mut self, inode: u64, now: u64) {
        let node = self.nodes.get_mut(&inode).unwrap();
        node.links -= 1;
        node.times[2] = now;
        if node.links == 0 && !self.open.contains_key(&inode) {
            self.nodes.remove(&inode);
        }
    }

    pub(super) fn remove(&mut self, directory: u64, name: &[u8], rmdir: bool, now: u64) -> Outcome<()> {
        let inode = self.find(directory, name)?;
        match (&self.nodes[&inode].content, rmdir) {
            (Content::Directory(_), false) => return Err(ErrorCode::IsDirectory),
            (Content::Directory(entries), true) if !entries.is_empty() => return Err(ErrorCode::NotEmpty),
            (Content::File(_) | Content::Symlink(_), true) => return Err(ErrorCode::NotDirectory),
            _ => {}
        }
        self.entries(directory)?.remove(name);
        self.changed_directory(directory, now);
        self.release(inode, now);
        Ok(())
    }

    pub(super) fn link(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), now: u64) -> Outcome<()> {
        let inode = self.find(from.0, from.1)?;
        if self.nodes[&inode].is_directory() {
            return Err(ErrorCode::NotPermitted);
        }
        if self.entries(to.0)?.contains_key(to.1) {
            return Err(ErrorCode::Exist);
        }
        if self.nodes[&to.0].links == 0 {
            return Err(ErrorCode::NoEntry);
        }
        self.entries(to.0)?.insert(to.1.to_vec(), inode);
        self.changed_directory(to.0, now);
        let node = self.nodes.get_mut(&inode).unwrap();
        node.links += 1;
        node.times[2] = now;
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), now: u64) -> Outcome<()> {
        let inode = self.find(from.0, from.1)?;
        let replaced = self.entries(to.0)?.get(to.1).copied();
        let moves_directory = self.nodes[&inode].is_directory();
        if let Some(replaced) = replaced {
            if replaced == inode {
                return Ok(());
            }
            match (&self.nodes[&replaced].content, moves_directory) {
                (Content::Directory(_), false) => return Err(ErrorCode::IsDirectory),
                (Content::Directory(entries), true) if !entries.is_empty() => {
                    return Err(ErrorCode::NotEmpty);
                }
                (Content::File(_) | Content::Symlink(_), true) => return Err(ErrorCode::NotDirectory),
                _ => {}
            }
        }
        if moves_directory {
            let mut at = to.0;
            while at != 1 {
                if at == inode {
                    return Err(ErrorCode::Invalid);
                }
                at = self.nodes[&at].parent;
            }
        }
        if self.nodes[&to.0].links == 0 {
            return Err(ErrorCode::NoEntry);
        }
        self.entries(from.0)?.remove(from.1);
        self.entries(to.0)?.insert(to.1.to_vec(), inode);
        self.changed_directory(from.0, now);
        self.changed_directory(to.0, now);
        if let Some(replaced) = replaced {
            self.release(replaced, now);
        }
        let node = self.nodes.get_mut(&inode).unwrap();
        node.times[2] = now;
        if moves_directory {
            node.parent = to.0;
        }
        Ok(())
    }

    fn file(&mut self, inode: u64) -> Outcome<&mut Vec<u8>> {
        match &mut self.nodes.get_mut(&inode).unwrap().content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory(_) => Err(ErrorCode::IsDirectory),
            Content::Symlink(_) => Err(ErrorCode::Invalid),
        }
    }

    pub(super) fn write(&mut self, inode: u64, offset: usize, data: &[u8], now: u64) -> Outcome<()> {
        let bytes = self.file(inode)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(data);
        self.changed_directory(inode, now);
        Ok(())
    }

    pub(super) fn set_size(&mut self, inode: u64, size: usize, now: u64) -> Outcome<()> {
        self.file(inode)?.resize(size, 0);
        self.changed_directory(inode, now);
        Ok(())
    }

    pub(super) fn open(&mut self, inode: u64) {
        *self.open.entry(inode).or_default() += 1;
    }

    pub(super) fn close(&mut self, inode: u64) {
        let count = self.open.get_mut(&inode).unwrap();
        *count -= 1;
        if *count == 0 {
            self.open.remove(&inode);
            if self.nodes[&inode].links == 0 {
                self.nodes.remove(&inode);
            }
        }
    }
}
