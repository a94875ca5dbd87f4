//! Nodes on their way to another store, in which the same content has other addresses.

use super::node::{Child, Entries, MAX_LEVEL, Node};
use super::{ExtentValue, Key, MAX_INLINE, TreeError, Value};
use crate::chunks::{ChunkStore, FrameKind};
use crate::id::{Hash, Version};

/// The content of a version that is cut into pieces, as a version names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PiecedContent {
    /// The version whose content it is.
    pub content: Version,
    /// Bytes.
    pub size: u64,
    /// What identifies it, which depends on the addresses of the pieces.
    pub hash: Hash,
}

/// What a stored node names.
#[derive(Debug, Default)]
pub(crate) struct NodeParts {
    /// 0 for a leaf.
    pub level: u8,
    pub children: Vec<Hash>,
    pub chunks: Vec<Hash>,
    pub contents: Vec<PiecedContent>,
}

/// Gives what an address, or what identifies the content of a version, is elsewhere.
pub(crate) trait Elsewhere {
    type Error: From<TreeError>;

    /// A child of a node of the level above.
    fn node(&mut self, hash: &Hash, level: u8) -> Result<Hash, Self::Error>;

    /// A chunk or piece of so many bytes.
    fn chunk(&mut self, hash: &Hash, len: u32) -> Result<Hash, Self::Error>;

    /// The content of a version.
    fn content(&mut self, content: PiecedContent) -> Result<Hash, Self::Error>;
}

/// The content of a version that is in pieces, where the value names such.
fn pieced(value: &Value) -> Option<PiecedContent> {
    let Value::Version(version) = value else { return None };
    let content = version.content.filter(|_| version.size > MAX_INLINE as u64)?;
    Some(PiecedContent { content, size: version.size, hash: version.hash })
}

/// What a node names, as it is stored.
pub(crate) fn parts(node: &[u8]) -> Result<NodeParts, TreeError> {
    let node = Node::decode(node)?;
    let mut parts = NodeParts { level: node.level, ..NodeParts::default() };
    match &node.entries {
        Entries::Leaf(entries) => {
            for (_, value) in entries {
                value.addresses(&mut |hash| parts.chunks.push(hash));
                parts.contents.extend(pieced(value));
            }
        }
        Entries::Branch { children, .. } => parts.children.extend(children.iter().filter_map(Child::address)),
    }
    Ok(parts)
}

/// A node with everything that it names as it is elsewhere, and its level.
pub(crate) fn translate<T: Elsewhere>(node: &[u8], elsewhere: &mut T) -> Result<(u8, Vec<u8>), T::Error> {
    let mut node = Node::decode(node)?;
    let level = node.level;
    match &mut node.entries {
        Entries::Leaf(entries) => {
            for (_, value) in entries {
                if let Some(content) = pieced(value)
                    && let Value::Version(version) = value
                {
                    std::sync::Arc::make_mut(version).hash = elsewhere.content(content)?;
                }
                if let Value::Extent(ExtentValue::Stored { hash, len }) = value {
                    *hash = elsewhere.chunk(hash, *len)?;
                }
            }
        }
        Entries::Branch { children, .. } => {
            for child in children {
                let hash = child.address().ok_or(TreeError::Damaged("a node is not stored"))?;
                *child = Child::stored(elsewhere.node(&hash, level - 1)?);
            }
        }
    }
    // all that it names is stored: nothing is put
    Ok((level, node.encode(&super::MemoryChunks::default())?))
}

/// Calls `visit` with everything in the tree whose root node is at `root`, in order, and refuses a node that does not
/// belong where it is. Keeps one path of nodes in memory.
pub(crate) fn walk<E: From<TreeError>>(
    store: &dyn ChunkStore,
    root: &Hash,
    visit: &mut dyn FnMut(&Key, &Value) -> Result<(), E>,
) -> Result<(), E> {
    let root = read(store, root)?;
    below(store, &root, visit)
}

fn read(store: &dyn ChunkStore, hash: &Hash) -> Result<Node, TreeError> {
    Node::decode(&store.get(hash)?)
}

/// As deep as levels go, of which there are at most [`MAX_LEVEL`]: each node has one less than the one above.
fn below<E: From<TreeError>>(
    store: &dyn ChunkStore,
    node: &Node,
    visit: &mut dyn FnMut(&Key, &Value) -> Result<(), E>,
) -> Result<(), E> {
    match &node.entries {
        Entries::Leaf(entries) => entries.iter().try_for_each(|(key, value)| visit(key, value)),
        Entries::Branch { keys, children } => {
            for (index, child) in children.iter().enumerate() {
                let hash = child.address().ok_or(TreeError::Damaged("a node is not stored"))?;
                let child = read(store, &hash)?;
                let above = index.checked_sub(1).map(|before| &keys[before]);
                if child.level + 1 != node.level
                    || child.len() == 0
                    || !child.lies_between(above, keys.get(index))
                {
                    return Err(TreeError::Damaged("a node does not belong where it is").into());
                }
                below(store, &child, visit)?;
            }
            Ok(())
        }
    }
}

/// Calls `visit` with everything in a stored tree that a walk through it needs, each after what it names itself, unless
/// `is_new` says that it came before. `contents` is called before a leaf with what is cut into pieces.
pub(crate) trait Downward {
    type Error: From<TreeError>;

    /// Whether to go into what is stored here.
    fn is_new(&mut self, kind: FrameKind, hash: &Hash) -> Result<bool, Self::Error>;

    /// Reads a node.
    fn read(&mut self, hash: &Hash) -> Result<std::sync::Arc<[u8]>, Self::Error>;

    /// A chunk.
    fn chunk(&mut self, hash: &Hash) -> Result<(), Self::Error>;

    /// What the leaf that comes next names.
    fn content(&mut self, content: &PiecedContent) -> Result<(), Self::Error>;

    /// A node, of which everything below has come.
    fn node(&mut self, hash: &Hash, node: &[u8]) -> Result<(), Self::Error>;
}

/// Walks a tree from its leaves up. Keeps one path of nodes in memory.
pub(crate) fn upward<T: Downward>(root: &Hash, of: &mut T) -> Result<(), T::Error> {
    upward_below(root, MAX_LEVEL + 1, of)
}

fn upward_below<T: Downward>(hash: &Hash, above: u8, of: &mut T) -> Result<(), T::Error> {
    if !of.is_new(FrameKind::Node, hash)? {
        return Ok(());
    }
    let node = of.read(hash)?;
    let parts = parts(&node)?;
    if parts.level >= above {
        return Err(TreeError::Damaged("a node does not belong where it is").into());
    }
    for child in &parts.children {
        upward_below(child, parts.level, of)?;
    }
    for chunk in &parts.chunks {
        if of.is_new(FrameKind::Chunk, chunk)? {
            of.chunk(chunk)?;
        }
    }
    for content in &parts.contents {
        of.content(content)?;
    }
    of.node(hash, &node)
}
