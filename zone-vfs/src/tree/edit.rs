//! Changing a tree along one path. Whoever calls these has loaded the path before.

use std::sync::OnceLock;

use super::node::{Child, Entries, Node, entry_weight};
use super::{Key, TreeError, Value};
use crate::chunks::ChunkStore;

/// The upper part of a node that was split, and the first key it covers.
pub(super) struct Split {
    key: Key,
    upper: Node,
}

pub(super) fn get_mut<'a>(
    node: &'a mut Node,
    store: &dyn ChunkStore,
    key: &Key,
) -> Result<Option<&'a mut Value>, TreeError> {
    match &mut node.entries {
        Entries::Leaf(entries) => {
            let found = entries.binary_search_by(|(at, _)| at.cmp(key));
            Ok(found.ok().map(|index| &mut entries[index].1))
        }
        Entries::Branch { keys, children } => {
            let index = keys.partition_point(|at| at <= key);
            get_mut(children[index].edit(store)?, store, key)
        }
    }
}

pub(super) fn insert(
    node: &mut Node,
    store: &dyn ChunkStore,
    key: Key,
    value: Value,
) -> Result<(Option<Value>, Option<Split>), TreeError> {
    let (old, at) = match &mut node.entries {
        Entries::Leaf(entries) => {
            node.weight += entry_weight(&key, &value);
            match entries.binary_search_by(|(at, _)| at.cmp(&key)) {
                Ok(index) => {
                    let (_, old) = std::mem::replace(&mut entries[index], (key, value));
                    node.weight -= entry_weight(&entries[index].0, &old);
                    (Some(old), index)
                }
                Err(index) => {
                    entries.insert(index, (key, value));
                    (None, index)
                }
            }
        }
        Entries::Branch { keys, children } => {
            let index = keys.partition_point(|at| at <= &key);
            let (old, split) = insert(children[index].edit(store)?, store, key, value)?;
            let Some(split) = split else { return Ok((old, None)) };
            node.weight += Node::link_weight(&split.key);
            keys.insert(index, split.key);
            children.insert(index + 1, Child::from(split.upper));
            (old, index + 1)
        }
    };
    let split = node.is_overfull().then(|| {
        // What grows at its end leaves full nodes behind.
        let at_end = at + 1 == node.len();
        node.split(if at_end { node.len() - node.len() / 8 - 1 } else { node.middle() })
    });
    Ok((old, split))
}

/// Puts a new root over the two parts of the old one.
pub(super) fn grow(root: &mut Node, split: Split) {
    let level = root.level + 1;
    let lower = std::mem::replace(root, Node::leaf(Vec::new()));
    *root = Node::branch(level, vec![split.key], vec![Child::from(lower), Child::from(split.upper)]);
}

pub(super) fn remove(node: &mut Node, store: &dyn ChunkStore, key: &Key) -> Result<Option<Value>, TreeError> {
    match &mut node.entries {
        Entries::Leaf(entries) => {
            let Ok(index) = entries.binary_search_by(|(at, _)| at.cmp(key)) else { return Ok(None) };
            let (key, old) = entries.remove(index);
            node.weight -= entry_weight(&key, &old);
            Ok(Some(old))
        }
        Entries::Branch { keys, children } => {
            let index = keys.partition_point(|at| at <= key);
            let child = children[index].edit(store)?;
            let old = remove(child, store, key)?;
            if child.len() == 0 {
                node.drop_child(index);
            } else if child.is_underfull() && children.len() > 1 {
                node.merge(index.saturating_sub(1), store);
            }
            Ok(old)
        }
    }
}

impl Node {
    /// Where both halves are about equally heavy.
    fn middle(&self) -> usize {
        let mut left = 0;
        let mut index = 0;
        while index + 1 < self.len() && (index == 0 || left < self.weight / 2) {
            left += match &self.entries {
                Entries::Leaf(entries) => entry_weight(&entries[index].0, &entries[index].1),
                Entries::Branch { keys, .. } => Node::link_weight(&keys[index]),
            };
            index += 1;
        }
        index
    }

    /// Keeps the first `at` entries or children, and gives the others.
    fn split(&mut self, at: usize) -> Split {
        debug_assert!(at > 0 && at < self.len());
        self.address = OnceLock::new();
        let split = match &mut self.entries {
            Entries::Leaf(entries) => {
                let key = entries[at].0.clone();
                Split { key, upper: Node::leaf(entries.split_off(at)) }
            }
            Entries::Branch { keys, children } => {
                let upper_keys = keys.split_off(at);
                let upper = Node::branch(self.level, upper_keys, children.split_off(at));
                Split { key: keys.remove(at - 1), upper }
            }
        };
        self.weight = self.weigh();
        split
    }

    fn drop_child(&mut self, index: usize) {
        let Entries::Branch { keys, children } = &mut self.entries else { return };
        children.remove(index);
        if !keys.is_empty() {
            keys.remove(index.saturating_sub(1));
        }
        self.weight = self.weigh();
    }

    /// Joins the children at `left` and after it into one, or evens them out.
    ///
    /// A neighbour that cannot be read is left alone: whoever reads it gets the error, and a small
    /// node is no damage.
    fn merge(&mut self, left: usize, store: &dyn ChunkStore) {
        if self.child(left, store).is_err() || self.child(left + 1, store).is_err() {
            return;
        }
        let Entries::Branch { keys, children } = &mut self.entries else { return };
        let (Some(upper), Ok(lower)) = (children[left + 1].in_memory().cloned(), children[left].edit(store))
        else {
            return;
        };
        join(lower, &keys[left], &upper);
        let split = lower.is_overfull().then(|| lower.split(lower.middle()));
        if let Some(split) = split {
            keys[left] = split.key;
            children[left + 1] = Child::from(split.upper);
        } else {
            keys.remove(left);
            children.remove(left + 1);
        }
        self.weight = self.weigh();
    }
}

fn join(lower: &mut Node, between: &Key, upper: &Node) {
    match (&mut lower.entries, &upper.entries) {
        (Entries::Leaf(entries), Entries::Leaf(more)) => entries.extend(more.iter().cloned()),
        (Entries::Branch { keys, children }, Entries::Branch { keys: more_keys, children: more }) => {
            keys.push(between.clone());
            keys.extend(more_keys.iter().cloned());
            children.extend(more.iter().cloned());
        }
        _ => debug_assert!(false, "neighbours have the same level"),
    }
    lower.weight = lower.weigh();
}
