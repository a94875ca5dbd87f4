//! Who has what, and who waits for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::{LockDone, LockError, LockKind, LockOwner, LockedFile, MAX_LOCKS, MAX_WAITING};
use crate::id::AgentId;

/// Callbacks that are due, and what they are told.
type Told = Vec<(LockDone, Result<(), LockError>)>;

#[derive(Default)]
pub(super) struct Table {
    files: HashMap<LockedFile, Line>,
    /// Where each owner holds or waits: a handle is open on one file.
    owners: BTreeMap<LockOwner, Place>,
    waiting: usize,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    file: LockedFile,
    /// Its number in line, if it waits.
    number: Option<i64>,
}

/// A file's holders, and those who wait, first come first.
#[derive(Default)]
struct Line {
    holders: BTreeMap<LockOwner, LockKind>,
    /// Numbers rise.
    queue: VecDeque<Waiting>,
}

struct Waiting {
    number: i64,
    owner: LockOwner,
    kind: LockKind,
    done: LockDone,
}

impl Line {
    /// The holders that keep `owner` from a lock of this kind.
    fn against(&self, owner: LockOwner, kind: LockKind) -> impl Iterator<Item = LockOwner> {
        let keeps = move |held: LockKind| kind == LockKind::Exclusive || held == LockKind::Exclusive;
        let others = self.holders.iter().filter(move |(other, held)| **other != owner && keeps(**held));
        others.map(|(other, _)| *other)
    }

    fn place_of(&self, number: i64) -> Option<usize> {
        self.queue.binary_search_by_key(&number, |w| w.number).ok()
    }

    fn is_free(&self, owner: LockOwner, kind: LockKind) -> bool {
        self.against(owner, kind).next().is_none()
    }
}

impl Table {
    pub fn take_told(&mut self) -> Told {
        std::mem::take(&mut self.told)
    }

    /// Nothing held, nobody waiting, and nothing left over.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.owners.is_empty() && self.waiting == 0
    }

    /// What must hold whatever is asked.
    #[cfg(test)]
    pub fn check(&self) {
        let mut owners = BTreeMap::new();
        let mut waiting = 0;
        for (file, line) in &self.files {
            assert!(!line.holders.is_empty() || !line.queue.is_empty());
            let alone = line.holders.values().any(|kind| *kind == LockKind::Exclusive);
            assert!(!alone || line.holders.len() == 1, "an exclusive lock is shared");
            let place = |number| Place { file: *file, number };
            owners.extend(line.holders.keys().map(|owner| (*owner, place(None))));
            owners.extend(line.queue.iter().map(|w| (w.owner, place(Some(w.number)))));
            assert!(line.queue.iter().is_sorted_by(|a, b| a.number < b.number));
            waiting += line.queue.len();
            if let Some(first) = line.queue.front() {
                assert!(!line.is_free(first.owner, first.kind), "it waits for nothing");
                assert!(!self.is_circle(*file, first.owner), "nobody can go on");
            }
        }
        assert_eq!((owners, waiting), (self.owners.clone(), self.waiting));
        assert!(self.told.is_empty());
    }

    /// Gives the lock now, or says why not.
    pub fn try_lock(&mut self, file: LockedFile, owner: LockOwner, kind: LockKind) -> Result<(), LockError> {
        let known = self.owners.get(&owner);
        if known.is_some_and(|at| at.file != file || at.number.is_some()) {
            return Err(LockError::OtherFile);
        }
        if known.is_none() && self.owned_by(owner.agent).count() >= MAX_LOCKS {
            return Err(LockError::TooMany);
        }
        let line = self.files.get(&file);
        let held = line.and_then(|line| line.holders.get(&owner)).copied();
        let free = line.is_none_or(|line| {
            // who holds one already changes it where it stands; whoever comes anew stands in line
            line.is_free(owner, kind) && (held.is_some() || line.queue.is_empty())
        });
        if !free {
            return Err(LockError::WouldBlock);
        }
        self.owners.insert(owner, Place { file, number: None });
        self.files.entry(file).or_default().holders.insert(owner, kind);
        if held == Some(LockKind::Exclusive) && kind == LockKind::Shared {
            self.advance(file);
        }
        Ok(())
    }

    /// Gives the lock, or puts the owner in line; `done` is told in the one case now.
    pub fn lock(&mut self, file: LockedFile, owner: LockOwner, kind: LockKind, done: LockDone) {
        match self.try_lock(file, owner, kind) {
            Err(LockError::WouldBlock) => {}
            result => return self.told.push((done, result)),
        }
        if self.waiting >= MAX_WAITING {
            return self.told.push((done, Err(LockError::TooMany)));
        }
        let line = self.files.entry(file).or_default();
        // all others wait for the lock that it holds, so it cannot stand behind them
        let number = if line.holders.contains_key(&owner) {
            let number = line.queue.front().map_or(0, |first| first.number - 1);
            line.queue.push_front(Waiting { number, owner, kind, done });
            number
        } else {
            let number = line.queue.back().map_or(0, |last| last.number + 1);
            line.queue.push_back(Waiting { number, owner, kind, done });
            number
        };
        self.waiting += 1;
        self.owners.insert(owner, Place { file, number: Some(number) });
        if self.is_circle(file, owner)
            && let Some(waiting) = self.leave_line(file, owner)
        {
            self.told.push((waiting.done, Err(LockError::Deadlock)));
        }
    }

    /// Whether what the owner waits for waits for the owner's agent. Looks at nobody twice.
    fn is_circle(&self, file: LockedFile, owner: LockOwner) -> bool {
        let holds = self.files.get(&file).is_some_and(|line| line.holders.contains_key(&owner));
        if !holds && self.owned_by(owner.agent).nth(1).is_none() {
            return false; // it has nothing that anybody could wait for
        }
        let mut looked = HashMap::new();
        let mut seen = BTreeSet::new();
        let mut ahead = Vec::new();
        self.ahead(owner, &mut looked, &mut ahead);
        while let Some(agent) = ahead.pop() {
            if agent == owner.agent {
                return true;
            }
            if seen.insert(agent) {
                for (other, _) in self.owned_by(agent) {
                    self.ahead(*other, &mut looked, &mut ahead);
                }
            }
        }
        false
    }

    /// Adds the agents that an owner waits for, unless they were added for one behind it. `looked` has
    /// how many of each line were.
    ///
    /// Who waits waits for every holder: those that it could share with have let someone wait before it.
    fn ahead(&self, owner: LockOwner, looked: &mut HashMap<LockedFile, usize>, ahead: &mut Vec<AgentId>) {
        let Some(Place { file, number: Some(number) }) = self.owners.get(&owner) else { return };
        let Some(line) = self.files.get(file) else { return };
        let Some(at) = line.place_of(*number) else { return };
        let from = looked.get(file).copied();
        if from.is_none() {
            // the lock that an owner changes is not in its own way; it is at the front then
            ahead.extend(line.holders.keys().filter(|other| **other != owner).map(|other| other.agent));
        }
        let from = from.unwrap_or(0);
        if at > from || !looked.contains_key(file) {
            ahead.extend(line.queue.iter().take(at).skip(from).map(|w| w.owner.agent));
            looked.insert(*file, at);
        }
    }

    fn owned_by(&self, agent: AgentId) -> impl Iterator<Item = (&LockOwner, &Place)> {
        let first = LockOwner { agent, handle: 0 };
        let last = LockOwner { agent, handle: u32::MAX };
        self.owners.range(first..=last)
    }

    /// Gives the lock to those at the front of the line who can have it now.
    fn advance(&mut self, file: LockedFile) {
        let Some(line) = self.files.get_mut(&file) else { return };
        while let Some(first) = line.queue.front()
            && line.is_free(first.owner, first.kind)
            && let Some(Waiting { owner, kind, done, .. }) = line.queue.pop_front()
        {
            self.owners.insert(owner, Place { file, number: None });
            line.holders.insert(owner, kind);
            self.waiting -= 1;
            self.told.push((done, Ok(())));
        }
        if line.holders.is_empty() && line.queue.is_empty() {
            self.files.remove(&file);
        }
    }

    /// Takes an owner out of the line; it keeps what it holds.
    fn leave_line(&mut self, file: LockedFile, owner: LockOwner) -> Option<Waiting> {
        let line = self.files.get_mut(&file)?;
        let at = line.place_of(self.owners.get(&owner)?.number?)?;
        let waiting = line.queue.remove(at)?;
        self.waiting -= 1;
        if line.holders.contains_key(&owner) {
            self.owners.insert(owner, Place { file, number: None });
        } else {
            self.owners.remove(&owner);
        }
        // those behind may have waited for it alone
        self.advance(file);
        Some(waiting)
    }

    pub fn end_wait(&mut self, owner: LockOwner) {
        if let Some(Place { file, .. }) = self.owners.get(&owner).copied()
            && let Some(waiting) = self.leave_line(file, owner)
        {
            self.told.push((waiting.done, Err(LockError::Ended)));
        }
    }

    pub fn unlock(&mut self, owner: LockOwner) {
        self.end_wait(owner);
        let Some(Place { file, .. }) = self.owners.remove(&owner) else { return };
        if let Some(line) = self.files.get_mut(&file) {
            line.holders.remove(&owner);
        }
        self.advance(file);
    }

    pub fn let_go(&mut self, agent: AgentId) {
        let all: Vec<_> = self.owned_by(agent).map(|(owner, _)| *owner).collect();
        for owner in all {
            self.unlock(owner);
        }
    }
}
