use std::ops::Bound;

use super::node::{Entries, Node};
use super::{Key, Tree, TreeError, Value};
use crate::chunks::ChunkStore;

/// The entries of a tree in order. After an error it ends.
pub struct Range<'a> {
    /// The nodes from the root down, each with the index of what comes next in it.
    path: Vec<(&'a Node, usize)>,
    store: &'a dyn ChunkStore,
}

impl Tree {
    /// The entries from `from` on.
    pub fn range<'a>(&'a self, store: &'a dyn ChunkStore, from: Bound<&Key>) -> Result<Range<'a>, TreeError> {
        let mut path = Vec::with_capacity(4);
        let mut node: &Node = self.root.root(store)?;
        loop {
            match &node.entries {
                Entries::Leaf(entries) => {
                    path.push((node, entries.partition_point(|(at, _)| !starts_at(from, at))));
                    return Ok(Range { path, store });
                }
                Entries::Branch { keys, .. } => {
                    let index = match from {
                        Bound::Included(key) | Bound::Excluded(key) => keys.partition_point(|at| at <= key),
                        Bound::Unbounded => 0,
                    };
                    path.push((node, index + 1));
                    node = node.child(index, store)?;
                }
            }
        }
    }

    /// The entry with the greatest key that is not greater than `key`.
    pub fn last_until<'a>(
        &'a self,
        store: &'a dyn ChunkStore,
        key: &Key,
    ) -> Result<Option<(&'a Key, &'a Value)>, TreeError> {
        last_until(self.root.root(store)?, store, key)
    }

    /// All entries.
    pub fn entries<'a>(&'a self, store: &'a dyn ChunkStore) -> Result<Range<'a>, TreeError> {
        self.range(store, Bound::Unbounded)
    }
}

/// No node but the root is without entries, so at most two paths are walked.
fn last_until<'a>(
    node: &'a Node,
    store: &'a dyn ChunkStore,
    key: &Key,
) -> Result<Option<(&'a Key, &'a Value)>, TreeError> {
    match &node.entries {
        Entries::Leaf(entries) => {
            let after = entries.partition_point(|(at, _)| at <= key);
            Ok(after.checked_sub(1).map(|index| (&entries[index].0, &entries[index].1)))
        }
        Entries::Branch { keys, .. } => {
            let mut index = keys.partition_point(|at| at <= key);
            loop {
                match last_until(node.child(index, store)?, store, key)? {
                    None if index > 0 => index -= 1,
                    found => return Ok(found),
                }
            }
        }
    }
}

fn starts_at(from: Bound<&Key>, key: &Key) -> bool {
    match from {
        Bound::Included(from) => from <= key,
        Bound::Excluded(from) => from < key,
        Bound::Unbounded => true,
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<(&'a Key, &'a Value), TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((node, index)) = self.path.last_mut() {
            let node: &'a Node = node;
            let at = *index;
            *index += 1;
            match &node.entries {
                Entries::Leaf(entries) => {
                    if let Some((key, value)) = entries.get(at) {
                        return Some(Ok((key, value)));
                    }
                    self.path.pop();
                }
                Entries::Branch { children, .. } if at < children.len() => match node.child(at, self.store) {
                    Ok(child) => self.path.push((child, 0)),
                    Err(error) => {
                        self.path.clear();
                        return Some(Err(error));
                    }
                },
                Entries::Branch { .. } => {
                    self.path.pop();
                }
            }
        }
        None
    }
}
