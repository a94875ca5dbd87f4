use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::{Key, StoredValue, TreeError, Value};
use crate::chunks::{ChunkStore, MAX_FRAME};
use crate::id::Hash;

/// The highest level a node can have; leaves have level 0. Bounds every recursion over a tree.
pub const MAX_LEVEL: u8 = 16;

/// The most entries or children of a node.
pub const MAX_ENTRIES: usize = 64;

/// A node heavier than this is split. One entry weighs under 9 KiB, so no node is stored in more
/// than an eighth of a frame. Bytes.
pub const MAX_WEIGHT: usize = 48 << 10;

const _: () = assert!(MAX_WEIGHT + (9 << 10) < MAX_FRAME / 8);

/// A node with fewer entries than this, which is also light, is merged with a neighbour.
const FEW_ENTRIES: usize = MAX_ENTRIES / 4;

/// The version of the stored form, its first byte.
const FORMAT: u8 = 1;

/// What a link to a child adds to the weight of a branch. Bytes.
const CHILD_WEIGHT: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// 0 for a leaf, one more than its children's for a branch.
    pub(super) level: u8,
    /// An upper bound of the encoded size. Bytes.
    pub(super) weight: usize,
    pub(super) entries: Entries,
    /// Set once the node is stored as it is.
    pub(super) address: OnceLock<Hash>,
}

#[derive(Debug)]
pub(super) enum Entries {
    Leaf(Vec<(Key, Value)>),
    /// `children[i]` holds the keys from `keys[i - 1]` up to, and without, `keys[i]`.
    Branch {
        keys: Vec<Key>,
        children: Vec<Child>,
    },
}

impl Clone for Entries {
    /// A node is copied to be changed, mostly by one entry more.
    fn clone(&self) -> Self {
        fn with_room<T: Clone>(all: &[T]) -> Vec<T> {
            let mut copy = Vec::with_capacity(all.len() + 4);
            copy.extend_from_slice(all);
            copy
        }
        match self {
            Self::Leaf(entries) => Self::Leaf(with_room(entries)),
            Self::Branch { keys, children } => {
                Self::Branch { keys: with_room(keys), children: with_room(children) }
            }
        }
    }
}

/// A link to a node.
#[derive(Clone, Debug)]
pub(super) enum Child {
    Memory(Arc<Node>),
    /// A stored node, and the node itself once it was needed.
    Stored {
        hash: Hash,
        node: OnceLock<Arc<Node>>,
    },
}

/// A node as it is stored, after the format byte.
#[derive(Serialize, Deserialize)]
enum StoredNode {
    Leaf(Vec<(Key, StoredValue)>),
    Branch { level: u8, keys: Vec<Key>, children: Vec<Hash> },
}

pub(super) fn entry_weight(key: &Key, value: &Value) -> usize {
    key.weight() + value.weight()
}

impl Node {
    pub(super) fn leaf(entries: Vec<(Key, Value)>) -> Self {
        Self::new(0, Entries::Leaf(entries))
    }

    pub(super) fn branch(level: u8, keys: Vec<Key>, children: Vec<Child>) -> Self {
        debug_assert_eq!(keys.len() + 1, children.len());
        Self::new(level, Entries::Branch { keys, children })
    }

    fn new(level: u8, entries: Entries) -> Self {
        let mut node = Self { level, weight: 0, entries, address: OnceLock::new() };
        node.weight = node.weigh();
        node
    }

    /// What a link and the key before it add to the weight of a branch. Bytes.
    pub(super) fn link_weight(key: &Key) -> usize {
        key.weight() + CHILD_WEIGHT
    }

    /// The weight, counted anew.
    pub(super) fn weigh(&self) -> usize {
        match &self.entries {
            Entries::Leaf(entries) => entries.iter().map(|(key, value)| entry_weight(key, value)).sum(),
            Entries::Branch { keys, .. } => CHILD_WEIGHT + keys.iter().map(Self::link_weight).sum::<usize>(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match &self.entries {
            Entries::Leaf(entries) => entries.len(),
            Entries::Branch { children, .. } => children.len(),
        }
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.len() > MAX_ENTRIES || self.weight > MAX_WEIGHT
    }

    pub(super) fn is_underfull(&self) -> bool {
        self.len() < FEW_ENTRIES && self.weight < MAX_WEIGHT / 4
    }

    /// The child at `index` of a branch.
    pub(super) fn child(&self, index: usize, store: &dyn ChunkStore) -> Result<&Arc<Node>, TreeError> {
        let Entries::Branch { keys, children } = &self.entries else {
            return Err(TreeError::Damaged("a leaf has no children"));
        };
        children[index].load(store, |node| {
            let above = index.checked_sub(1).map(|before| &keys[before]);
            node.level + 1 == self.level && node.lies_between(above, keys.get(index))
        })
    }

    pub(super) fn lies_between(&self, from: Option<&Key>, to: Option<&Key>) -> bool {
        let (first, last) = match &self.entries {
            Entries::Leaf(entries) => (entries.first().map(|e| &e.0), entries.last().map(|e| &e.0)),
            Entries::Branch { keys, .. } => (keys.first(), keys.last()),
        };
        let after = |first: &Key| from.is_none_or(|from| from <= first);
        let before = |last: &Key| to.is_none_or(|to| last < to);
        first.is_none_or(after) && last.is_none_or(before)
    }

    /// The stored form. Its chunks and children are stored already, or are now.
    pub(super) fn encode(&self, store: &dyn ChunkStore) -> Result<Vec<u8>, TreeError> {
        let stored = match &self.entries {
            Entries::Leaf(entries) => {
                let pairs = entries.iter().map(|(key, value)| Ok((key.clone(), value.to_stored(store)?)));
                StoredNode::Leaf(pairs.collect::<Result<_, TreeError>>()?)
            }
            Entries::Branch { keys, children } => StoredNode::Branch {
                level: self.level,
                keys: keys.clone(),
                children: children.iter().map(|child| child.store(store)).collect::<Result<_, _>>()?,
            },
        };
        Ok(postcard::to_extend(&stored, vec![FORMAT])?)
    }

    /// Reads what [`Node::encode`] wrote, and checks everything that operations rely on.
    pub(super) fn decode(stored: &[u8]) -> Result<Self, TreeError> {
        let (format, rest) = stored.split_first().ok_or(TreeError::Damaged("a node is empty"))?;
        if *format != FORMAT {
            return Err(TreeError::UnknownFormat(*format));
        }
        let (node, rest) =
            postcard::take_from_bytes(rest).map_err(|_| TreeError::Damaged("a node does not decode"))?;
        if !rest.is_empty() {
            return Err(TreeError::Damaged("a node has bytes after its end"));
        }
        match node {
            StoredNode::Leaf(entries) => {
                if !entries.is_sorted_by(|a, b| a.0 < b.0) {
                    return Err(TreeError::Damaged("keys are out of order"));
                }
                let pairs = entries.into_iter().map(|(key, value)| {
                    let value = Value::from_stored(value)?;
                    value.check_under(&key)?;
                    Ok((key, value))
                });
                Ok(Self::leaf(pairs.collect::<Result<_, TreeError>>()?))
            }
            StoredNode::Branch { level, keys, children } => {
                if level == 0 || level > MAX_LEVEL {
                    return Err(TreeError::Damaged("a branch has an impossible level"));
                }
                if keys.len() + 1 != children.len() || !keys.is_sorted_by(|a, b| a < b) {
                    return Err(TreeError::Damaged("a branch's keys do not fit its children"));
                }
                let children = children.into_iter().map(Child::stored).collect();
                Ok(Self::branch(level, keys, children))
            }
        }
    }
}

impl Child {
    pub(super) fn stored(hash: Hash) -> Self {
        Child::Stored { hash, node: OnceLock::new() }
    }

    /// Whether both lead to the same node, as far as that is known without reading.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        let address = |child: &Self| match child {
            Child::Stored { hash, .. } => Some(*hash),
            Child::Memory(node) => node.address.get().copied(),
        };
        match (self, other) {
            (Child::Memory(a), Child::Memory(b)) if Arc::ptr_eq(a, b) => true,
            _ => address(self).is_some_and(|hash| address(other) == Some(hash)),
        }
    }

    /// The node of a tree's root.
    pub(super) fn root(&self, store: &dyn ChunkStore) -> Result<&Arc<Node>, TreeError> {
        self.load(store, |_| true)
    }

    fn load(
        &self,
        store: &dyn ChunkStore,
        fits: impl FnOnce(&Node) -> bool,
    ) -> Result<&Arc<Node>, TreeError> {
        match self {
            Child::Memory(node) => Ok(node),
            Child::Stored { hash, node } => {
                if let Some(node) = node.get() {
                    return Ok(node);
                }
                let stored = store.get(hash)?;
                let loaded = Node::decode(&stored)?;
                store.loaded(stored.len());
                if !fits(&loaded) {
                    return Err(TreeError::Damaged("a node does not belong where it is"));
                }
                loaded.address.get_or_init(|| *hash);
                Ok(node.get_or_init(|| Arc::new(loaded)))
            }
        }
    }

    /// The node, which was loaded before, if it is in memory.
    pub(super) fn in_memory(&self) -> Option<&Arc<Node>> {
        match self {
            Child::Memory(node) => Some(node),
            Child::Stored { node, .. } => node.get(),
        }
    }

    /// The link to the node, to be changed by way of `Arc::make_mut`.
    pub(super) fn link_mut(&mut self) -> Option<&mut Arc<Node>> {
        match self {
            Child::Memory(node) => Some(node),
            Child::Stored { node, .. } => node.get_mut(),
        }
    }

    /// The node for changing it: copied if it is shared, and without an address from here on.
    pub(super) fn edit(&mut self, store: &dyn ChunkStore) -> Result<&mut Node, TreeError> {
        if let Child::Stored { .. } = self {
            *self = Child::Memory(self.root(store)?.clone());
        }
        let Child::Memory(node) = self else { return Err(TreeError::Damaged("a node is not in memory")) };
        let node = Arc::make_mut(node);
        node.address = OnceLock::new();
        Ok(node)
    }

    /// The address of the node, if it is stored as it is.
    pub(super) fn address(&self) -> Option<Hash> {
        match self {
            Child::Memory(node) => node.address.get().copied(),
            Child::Stored { hash, .. } => Some(*hash),
        }
    }

    /// The only child of this branch, if it has but one.
    pub(super) fn only_child(&self) -> Option<Child> {
        match &self.in_memory()?.entries {
            Entries::Branch { children, .. } if children.len() == 1 => children.first().cloned(),
            _ => None,
        }
    }

    /// Stores what hangs on this link unless it is stored, and gives its address.
    pub(super) fn store(&self, store: &dyn ChunkStore) -> Result<Hash, TreeError> {
        match self {
            Child::Stored { hash, .. } => Ok(*hash),
            Child::Memory(node) => {
                if let Some(hash) = node.address.get() {
                    return Ok(*hash);
                }
                let hash = store.put(crate::chunks::FrameKind::Node, &node.encode(store)?)?;
                Ok(*node.address.get_or_init(|| hash))
            }
        }
    }
}

impl From<Node> for Child {
    fn from(node: Node) -> Self {
        Child::Memory(Arc::new(node))
    }
}
