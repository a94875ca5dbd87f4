use std::sync::Arc;

use super::node::{Child, Entries, Node};
use super::{Body, ExtentValue, InodeRecord, Key, Name, Part, Tree, TreeError, Value};
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::id::{Hash, Inode};

impl Tree {
    /// The tree whose root node has the address `root`. Nothing is read before it is needed.
    pub fn load(root: Hash) -> Self {
        Self { root: Child::stored(root) }
    }

    /// Stores every node and chunk that is not stored yet, and gives the address of the root.
    ///
    /// Clones of this tree know then, too, that the nodes they share are stored. Two trees of equal
    /// content can have different roots, since the form of a tree depends on how it came about.
    pub fn store(&self, store: &dyn ChunkStore) -> Result<Hash, TreeError> {
        self.root.store(store)
    }

    /// Stores the chunks that are in memory and lets go of them. Content and root stay the same.
    pub fn spill(&mut self, store: &dyn ChunkStore) -> Result<(), TreeError> {
        if let Some(root) = self.root.link_mut() {
            spill(root, store)?;
        }
        Ok(())
    }

    /// Calls `visit` with the address of every stored node and chunk of the tree, parents first.
    ///
    /// What lies below a node for which `visit` gives `false` is left out, so that what two trees
    /// share need be walked only once. Nodes and chunks that are not stored have no address.
    pub fn addresses(
        &self,
        store: &dyn ChunkStore,
        visit: &mut dyn FnMut(FrameKind, Hash) -> bool,
    ) -> Result<(), TreeError> {
        if self.root.address().is_none_or(|hash| visit(FrameKind::Node, hash)) {
            self.root.root(store)?.addresses(store, visit)?;
        }
        Ok(())
    }

    /// A digest of the content alone: equal exactly for trees that hold the same.
    ///
    /// Reads the whole tree and stores the chunks that are in memory.
    pub fn digest(&self, store: &dyn ChunkStore) -> Result<Hash, TreeError> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::new();
        for entry in self.entries(store)? {
            let (key, value) = entry?;
            buffer.clear();
            buffer = postcard::to_extend(&(key, value.to_stored(store)?), buffer)?;
            hasher.update(&(buffer.len() as u64).to_le_bytes());
            hasher.update(&buffer);
        }
        Ok(Hash(*hasher.finalize().as_bytes()))
    }
}

/// Calls `visit` with the address of every chunk and child that a node names, as it is stored; a chunk comes
/// with the key that names it.
pub(crate) fn references(
    node: &[u8],
    visit: &mut dyn FnMut(FrameKind, Option<&Key>, Hash),
) -> Result<(), TreeError> {
    match &Node::decode(node)?.entries {
        Entries::Leaf(entries) => {
            for (key, value) in entries {
                value.addresses(&mut |hash| visit(FrameKind::Chunk, Some(key), hash));
            }
        }
        Entries::Branch { children, .. } => {
            for hash in children.iter().filter_map(Child::address) {
                visit(FrameKind::Node, None, hash);
            }
        }
    }
    Ok(())
}

/// A part of a file's content, as a node holds it.
pub(crate) enum Content<'a> {
    /// The address of a chunk.
    Chunk(Hash),
    /// Bytes that lie in the record of the file, or of a version.
    Inline(&'a [u8]),
}

/// Calls `child` for every child that a stored node names, or `content` for all content that it holds or names.
pub(crate) fn references_content(
    node: &[u8],
    child: &mut dyn FnMut(Hash),
    content: &mut dyn FnMut(&Key, Content<'_>),
) -> Result<(), TreeError> {
    match &Node::decode(node)?.entries {
        Entries::Leaf(entries) => {
            for (key, value) in entries {
                if let Value::Inode(InodeRecord {
                    body: Body::Inline(bytes) | Body::Symlink(bytes), ..
                }) = value
                {
                    content(key, Content::Inline(bytes));
                }
                value.addresses(&mut |hash| content(key, Content::Chunk(hash)));
            }
        }
        Entries::Branch { children, .. } => children.iter().filter_map(Child::address).for_each(child),
    }
    Ok(())
}

/// What a node says of names.
pub(crate) enum NameOf<'a> {
    /// A directory's entry: the directory, the name, and what it stands for. Or, in a history, where a file was from
    /// some event on.
    Entry(Inode, &'a Name, Inode),
    /// In a history: what has the content of a version, and the file.
    Version(Inode, Inode),
}

/// Calls `child` for every child that a stored node names, or `name` with every name that is in it, in order.
pub(crate) fn references_names(
    node: &[u8],
    child: &mut dyn FnMut(Hash),
    name: &mut dyn FnMut(NameOf<'_>),
) -> Result<(), TreeError> {
    match &Node::decode(node)?.entries {
        Entries::Leaf(entries) => {
            for (key, value) in entries {
                match (&key.part, value) {
                    (Part::Dirent(called), Value::Dirent { inode, .. }) => {
                        name(NameOf::Entry(key.inode, called, *inode));
                    }
                    (Part::Version(version), Value::Version(record)) => {
                        name(NameOf::Entry(record.place.parent, &record.place.name, key.inode));
                        if record.content == Some(*version) {
                            name(NameOf::Version(version.inode(), key.inode));
                        }
                    }
                    _ => {}
                }
            }
        }
        Entries::Branch { children, .. } => children.iter().filter_map(Child::address).for_each(child),
    }
    Ok(())
}

#[cfg(test)]
impl Tree {
    /// How many nodes it holds in memory.
    pub(crate) fn nodes_in_memory(&self) -> usize {
        fn count(child: &Child) -> usize {
            child.in_memory().map_or(0, |node| match &node.entries {
                Entries::Leaf(_) => 1,
                Entries::Branch { children, .. } => 1 + children.iter().map(count).sum::<usize>(),
            })
        }
        count(&self.root)
    }
}

impl Tree {
    /// Calls `visit` with the addresses that are known without reading, of the highest nodes that have one
    /// and of chunks that hang on nodes that have none. What hangs on a node that is stored is stored too.
    pub(crate) fn stored_parts(&self, visit: &mut dyn FnMut(FrameKind, Hash)) {
        self.stored_places(&mut |kind, _, hash| visit(kind, hash));
    }

    /// As [`stored_parts`](Self::stored_parts); a chunk comes with the key that names it.
    pub(crate) fn stored_places(&self, visit: &mut dyn FnMut(FrameKind, Option<&Key>, Hash)) {
        fn parts(child: &Child, visit: &mut dyn FnMut(FrameKind, Option<&Key>, Hash)) {
            if let Some(hash) = child.address() {
                return visit(FrameKind::Node, None, hash);
            }
            match child.in_memory().map(|node| &node.entries) {
                Some(Entries::Leaf(entries)) => {
                    for (key, value) in entries {
                        value.addresses(&mut |hash| visit(FrameKind::Chunk, Some(key), hash));
                    }
                }
                Some(Entries::Branch { children, .. }) => children.iter().for_each(|it| parts(it, visit)),
                None => {}
            }
        }
        parts(&self.root, visit);
    }
}

impl Node {
    fn addresses(
        &self,
        store: &dyn ChunkStore,
        visit: &mut dyn FnMut(FrameKind, Hash) -> bool,
    ) -> Result<(), TreeError> {
        match &self.entries {
            Entries::Leaf(entries) => {
                for (_, value) in entries {
                    value.addresses(&mut |hash| {
                        visit(FrameKind::Chunk, hash);
                    });
                }
            }
            Entries::Branch { children, .. } => {
                for (index, child) in children.iter().enumerate() {
                    if child.address().is_none_or(|hash| visit(FrameKind::Node, hash)) {
                        self.child(index, store)?.addresses(store, visit)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether there is a chunk to let go of in what is loaded below `node`.
fn holds_chunks(node: &Node) -> bool {
    match &node.entries {
        Entries::Leaf(entries) => entries.iter().any(|(_, value)| is_in_memory(value)),
        Entries::Branch { children, .. } => {
            children.iter().filter_map(Child::in_memory).any(|child| holds_chunks(child))
        }
    }
}

fn is_in_memory(value: &Value) -> bool {
    matches!(value, Value::Extent(ExtentValue::Memory(_)))
}

fn spill(node: &mut Arc<Node>, store: &dyn ChunkStore) -> Result<(), ChunkError> {
    if !holds_chunks(node) {
        return Ok(());
    }
    // The address, if there is one, stays: the stored form names the chunk in either case.
    match &mut Arc::make_mut(node).entries {
        Entries::Leaf(entries) => {
            for (_, value) in entries {
                if let Value::Extent(extent @ ExtentValue::Memory(_)) = value {
                    extent.spill(store)?;
                }
            }
        }
        Entries::Branch { children, .. } => {
            for child in children.iter_mut().filter_map(Child::link_mut) {
                spill(child, store)?;
            }
        }
    }
    Ok(())
}

impl ExtentValue {
    /// Its address, if it has been stored as it is.
    pub(crate) fn address(&self) -> Option<Hash> {
        match self {
            ExtentValue::Memory(extent) => extent.address(),
            ExtentValue::Stored { hash, .. } => Some(*hash),
        }
    }

    fn spill(&mut self, store: &dyn ChunkStore) -> Result<(), ChunkError> {
        if let ExtentValue::Memory(extent) = self {
            *self = ExtentValue::Stored { hash: extent.store(store)?, len: extent.bytes().len() as u32 };
        }
        Ok(())
    }
}
