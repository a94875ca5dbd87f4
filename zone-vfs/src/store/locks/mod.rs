//! Advisory locks: whole files, shared or exclusive, among the agents of a store.
//!
//! They live in memory. An agent's locks are let go when their handle is closed, and all of them when
//! the agent pauses, fails its turn or is removed; a fork begins with none. A lock keeps nobody
//! from reading or writing: it is for those who ask.
//!
//! Whoever waits waits in line: nobody overtakes, so a writer is not kept out by readers that keep
//! coming. A wait that would close a circle of agents is refused at once.

mod table;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::disk::Disk;
use super::shared::SharedId;
use super::{Shared, StoreError};
use crate::id::{AgentId, Inode};
use crate::zone::ErrorCode;

use table::Table;

/// Locks that an agent holds, at most.
pub const MAX_LOCKS: usize = 1024;
/// Agents and handles that wait for locks of one store, at most.
pub const MAX_WAITING: usize = 4096;

/// What a lock keeps away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Exclusive locks.
    Shared,
    /// Every other lock.
    Exclusive,
}

/// Whose a lock is: a handle of an agent's. Two handles of one agent are two owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// The agent.
    pub agent: AgentId,
    /// Its handle.
    pub handle: u32,
}

/// Why a lock was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// It would have to be waited for.
    #[error("the file is locked")]
    WouldBlock,
    /// Those that would have to let go first wait for this agent.
    #[error("waiting for this lock would never end: its holder waits for a lock of this agent's")]
    Deadlock,
    /// The agent holds [`MAX_LOCKS`], or [`MAX_WAITING`] wait.
    #[error("too many locks")]
    TooMany,
    /// The wait was given up, or the agent's locks were let go.
    #[error("the wait for the lock was ended")]
    Ended,
    /// The handle's lock is on another file: let that go first.
    #[error("the handle has a lock on another file, or waits for one")]
    OtherFile,
}

impl LockError {
    /// What a guest is told.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::WouldBlock => ErrorCode::WouldBlock,
            Self::Deadlock => ErrorCode::Deadlock,
            Self::TooMany => ErrorCode::NoLock,
            Self::Ended => ErrorCode::Interrupted,
            Self::OtherFile => ErrorCode::Busy,
        }
    }
}

/// Told when a lock is there, or that it will not be. Called once, on the thread of whoever let go, and
/// must be quick.
pub type LockDone = Box<dyn FnOnce(Result<(), LockError>) + Send>;

/// Which file of which zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LockedFile {
    zone: LockedZone,
    inode: Inode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum LockedZone {
    Own(AgentId, u16),
    Shared(SharedId),
}

/// The locks of a store.
#[derive(Default)]
pub(super) struct LockTable {
    table: Mutex<Table>,
}

impl LockTable {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self, file: LockedFile, owner: LockOwner, kind: LockKind) -> Result<(), LockError> {
        let (result, told) = {
            let mut table = self.table();
            let result = table.try_lock(file, owner, kind);
            (result, table.take_told())
        };
        tell(told);
        result
    }

    fn lock(&self, file: LockedFile, owner: LockOwner, kind: LockKind, done: LockDone) {
        let told = {
            let mut table = self.table();
            table.lock(file, owner, kind, done);
            table.take_told()
        };
        tell(told);
    }

    fn unlock(&self, owner: LockOwner) {
        let told = {
            let mut table = self.table();
            table.unlock(owner);
            table.take_told()
        };
        tell(told);
    }

    fn end_wait(&self, owner: LockOwner) {
        let told = {
            let mut table = self.table();
            table.end_wait(owner);
            table.take_told()
        };
        tell(told);
    }

    pub fn let_go(&self, agent: AgentId) {
        let told = {
            let mut table = self.table();
            table.let_go(agent);
            table.take_told()
        };
        tell(told);
    }
}

/// Outside the table's lock: whoever is told may ask for the next lock.
fn tell(told: Vec<(LockDone, Result<(), LockError>)>) {
    for (done, result) in told {
        done(result);
    }
}

impl Disk {
    fn locked(&self, zone: u16, inode: Inode, handle: u32) -> (LockedFile, LockOwner) {
        let zone = match self.mounts.get(zone) {
            Some(mount) => LockedZone::Shared(mount.id()),
            None => LockedZone::Own(self.id, zone),
        };
        (LockedFile { zone, inode }, LockOwner { agent: self.id, handle })
    }

    fn with_locks<R>(&self, work: impl FnOnce(&Shared) -> R) -> Result<R, StoreError> {
        Ok(work(&*self.store()?))
    }

    /// Takes a lock for a handle, if nobody has one that keeps it away and nobody waits. A handle that has one
    /// already changes its kind.
    ///
    /// The caller checks that the handle is open on this file.
    pub fn try_lock(
        &self,
        zone: u16,
        inode: Inode,
        handle: u32,
        kind: LockKind,
    ) -> Result<Result<(), LockError>, StoreError> {
        let (file, owner) = self.locked(zone, inode, handle);
        self.with_locks(|store| store.locks.try_lock(file, owner, kind))
    }

    /// Takes a lock for a handle, and waits for it in line. `done` may be called before this returns.
    ///
    /// A shared lock becomes exclusive without being let go: it goes to the front of the line.
    pub fn lock_file(
        &self,
        zone: u16,
        inode: Inode,
        handle: u32,
        kind: LockKind,
        done: LockDone,
    ) -> Result<(), StoreError> {
        let (file, owner) = self.locked(zone, inode, handle);
        self.with_locks(|store| store.locks.lock(file, owner, kind, done))
    }

    /// Lets a handle's lock go, and ends its wait. To be called when the handle is closed, too.
    pub fn unlock(&self, handle: u32) -> Result<(), StoreError> {
        let owner = LockOwner { agent: self.id, handle };
        self.with_locks(|store| store.locks.unlock(owner))
    }

    /// Ends a handle's wait for a lock, with [`LockError::Ended`]; a lock that it has stays.
    pub fn end_lock_wait(&self, handle: u32) -> Result<(), StoreError> {
        let owner = LockOwner { agent: self.id, handle };
        self.with_locks(|store| store.locks.end_wait(owner))
    }
}
