//! The names on a simulated disk: as they are seen, and as a crash leaves them.

use std::collections::BTreeMap;

use super::disk::FileId;
use super::rng::Rng;

/// A change of a folder.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create(String, FileId),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    seen: BTreeMap<String, FileId>,
    durable: BTreeMap<String, FileId>,
    /// Changes that no sync of their folder has reached, oldest first.
    pending: Vec<NameChange>,
}

impl Names {
    pub fn find(&self, path: &str) -> Option<FileId> {
        self.seen.get(path).copied()
    }

    pub fn seen(&self) -> &BTreeMap<String, FileId> {
        &self.seen
    }

    pub fn change(&mut self, change: NameChange) {
        apply(&mut self.seen, &change);
        self.pending.push(change);
    }

    /// All changes are durable now.
    pub fn sync(&mut self) {
        for change in self.pending.drain(..) {
            apply(&mut self.durable, &change);
        }
    }

    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Some of what was not synced has reached the disk, in order.
    pub fn after_crash(&self, rng: &mut Rng) -> Self {
        let mut durable = self.durable.clone();
        let kept_in_four = rng.below(5);
        for change in &self.pending {
            if rng.below(4) < kept_in_four {
                apply(&mut durable, change);
            }
        }
        Self { seen: durable.clone(), durable, pending: Vec::new() }
    }
}

fn apply(names: &mut BTreeMap<String, FileId>, change: &NameChange) {
    match change {
        NameChange::Create(path, id) => {
            names.insert(path.clone(), *id);
        }
        NameChange::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}
