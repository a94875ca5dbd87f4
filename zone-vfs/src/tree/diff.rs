use super::node::{Child, Entries, Node};
use super::{Key, Tree, TreeError, Value};
use crate::chunks::ChunkStore;

/// An entry that differs between two trees: the key, and the value under it in the first and in the
/// second. Values are not compared: an entry that was written again is reported with equal ones.
pub type Difference<'a> = (&'a Key, Option<&'a Value>, Option<&'a Value>);

impl Tree {
    /// Calls `visit` with each entry that differs between this tree and `other`, in the order of keys.
    ///
    /// What both share is skipped as far as it is seen from links, so that the cost is that of the
    /// difference for trees of which one was made from the other.
    pub fn diff<'a, E: From<TreeError>>(
        &'a self,
        other: &'a Self,
        store: &'a dyn ChunkStore,
        visit: &mut dyn FnMut(Difference<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut left = Walk::new(&self.root, store);
        let mut right = Walk::new(&other.root, store);
        loop {
            match (left.head(), right.head()) {
                (None, None) => return Ok(()),
                (Some(Step::Link(..)), None | Some(Step::Entry(..))) => left.expand()?,
                (None | Some(Step::Entry(..)), Some(Step::Link(..))) => right.expand()?,
                (Some(Step::Entry(key, value)), None) => {
                    left.pop();
                    visit((key, Some(value), None))?;
                }
                (None, Some(Step::Entry(key, value))) => {
                    right.pop();
                    visit((key, None, Some(value)))?;
                }
                (Some(Step::Link(a, from)), Some(Step::Link(b, to))) => {
                    if a.same_as(b) {
                        left.pop();
                        right.pop();
                        continue;
                    }
                    // the one that begins first holds what the other cannot have, or both begin together
                    if from <= to {
                        left.expand()?;
                    }
                    if to <= from {
                        right.expand()?;
                    }
                }
                (Some(Step::Entry(a, value)), Some(Step::Entry(b, other))) => {
                    let order = a.cmp(b);
                    if order.is_le() {
                        left.pop();
                    }
                    if order.is_ge() {
                        right.pop();
                    }
                    match order {
                        std::cmp::Ordering::Less => visit((a, Some(value), None))?,
                        std::cmp::Ordering::Greater => visit((b, None, Some(other)))?,
                        std::cmp::Ordering::Equal => visit((a, Some(value), Some(other)))?,
                    }
                }
            }
        }
    }
}

/// What comes next in a tree: a subtree that was not looked into, with the key from which it holds
/// (`None` for the least of all), or an entry.
#[derive(Clone, Copy)]
enum Step<'a> {
    Link(&'a Child, Option<&'a Key>),
    Entry(&'a Key, &'a Value),
}

struct Walk<'a> {
    /// The nodes that were looked into, each with the index of what comes next in it.
    path: Vec<(&'a Node, usize, Option<&'a Key>)>,
    root: Option<&'a Child>,
    store: &'a dyn ChunkStore,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Child, store: &'a dyn ChunkStore) -> Self {
        Self { path: Vec::new(), root: Some(root), store }
    }

    fn head(&mut self) -> Option<Step<'a>> {
        if let Some(root) = self.root {
            return Some(Step::Link(root, None));
        }
        while let Some((node, index, from)) = self.path.last().copied() {
            match &node.entries {
                Entries::Leaf(entries) => {
                    if let Some((key, value)) = entries.get(index) {
                        return Some(Step::Entry(key, value));
                    }
                }
                Entries::Branch { keys, children } => {
                    if let Some(child) = children.get(index) {
                        let from = if index == 0 { from } else { keys.get(index - 1) };
                        return Some(Step::Link(child, from));
                    }
                }
            }
            self.path.pop();
        }
        None
    }

    fn pop(&mut self) {
        if self.root.take().is_none()
            && let Some((_, index, _)) = self.path.last_mut()
        {
            *index += 1;
        }
    }

    fn expand(&mut self) -> Result<(), TreeError> {
        let Some(Step::Link(_, from)) = self.head() else { return Ok(()) };
        let node: &'a Node = match self.root {
            Some(root) => root.root(self.store)?,
            None => match self.path.last() {
                Some((node, index, _)) => node.child(*index, self.store)?,
                None => return Ok(()),
            },
        };
        self.pop();
        self.path.push((node, 0, from));
        Ok(())
    }
}
