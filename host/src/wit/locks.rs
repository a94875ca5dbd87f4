//! `dormouse:zones/locks`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use zone_vfs::contract::Principal;
use zone_vfs::id::Inode;
use zone_vfs::store::{Disk, LockDone, LockError, LockKind, StoreError};
use zone_vfs::zone::Access;

use super::generated::dormouse::zones::locks::{Host, Mode, Refusal};
use super::types;
use crate::wasi::{Asked, Call, GuestState};

/// The locks of an instance. They go with it.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    last: u32,
    held: BTreeMap<u32, (u16, Inode)>,
}

/// Ends a wait whose caller goes away in the middle of it.
struct Wait {
    disk: Arc<Disk>,
    handle: u32,
    over: bool,
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !self.over
            && let Err(e) = self.disk.end_lock_wait(self.handle)
        {
            tracing::debug!("ending a wait for a lock: {e}");
        }
    }
}

fn failed(e: &StoreError) -> Refusal {
    Refusal::Failed(types::Error::Io(e.to_string()))
}

fn refused(e: LockError) -> Refusal {
    match e {
        LockError::WouldBlock | LockError::Ended => Refusal::Held,
        LockError::Deadlock => Refusal::Deadlock,
        LockError::TooMany => Refusal::TooMany,
        LockError::OtherFile => Refusal::Failed(types::Error::Invalid(e.to_string())),
    }
}

async fn lock(
    disk: &Arc<Disk>,
    (zone, inode): (u16, Inode),
    handle: u32,
    mode: Mode,
    wait: u32,
) -> Result<(), Refusal> {
    let kind = match mode {
        Mode::Shared => LockKind::Shared,
        Mode::Exclusive => LockKind::Exclusive,
    };
    if wait == 0 {
        return disk.try_lock(zone, inode, handle, kind).map_err(|e| failed(&e))?.map_err(refused);
    }
    let (send, mut receive) = tokio::sync::oneshot::channel();
    let done: LockDone = Box::new(move |result| {
        // the receiver is gone only when the caller is, whose wait is ended below
        let _ = send.send(result);
    });
    let mut waiting = Wait { disk: disk.clone(), handle, over: false };
    disk.lock_file(zone, inode, handle, kind, done).map_err(|e| failed(&e))?;
    let told = tokio::time::timeout(Duration::from_millis(wait.into()), &mut receive).await;
    let result = if let Ok(result) = told {
        result
    } else {
        // it may have been given a moment ago: what was told counts
        disk.end_lock_wait(handle).map_err(|e| failed(&e))?;
        receive.await
    };
    waiting.over = true;
    result.unwrap_or(Err(LockError::Ended)).map_err(refused)
}

impl GuestState {
    /// A lock's number: it is of this start of the agent's memory, and of no other.
    fn lock_number(&self, handle: u32) -> u64 {
        let start = self.lifecycle.generation ^ (self.lifecycle.generation >> 32);
        (start << 32) | u64::from(handle)
    }

    /// A lock that this instance has.
    fn held(&self, lock: u64) -> Option<(u32, (u16, Inode))> {
        let handle = lock as u32;
        let file = *self.locks.held.get(&handle)?;
        (self.lock_number(handle) == lock).then_some((handle, file))
    }

    /// Exclusive locks are for those who may write.
    fn may_lock(&self, zone: u16, mode: Mode) -> Result<(), Refusal> {
        let read_only = self.shared.get(usize::from(zone)).copied().flatten().is_some_and(|m| !m.writable);
        if mode == Mode::Exclusive && read_only {
            let text = "the zone is mounted read-only: exclusive locks are not permitted";
            return Err(Refusal::Failed(types::Error::NotPermitted(text.into())));
        }
        Ok(())
    }

    async fn acquire_lock(&mut self, path: &str, mode: Mode, wait: u32) -> Result<u64, Refusal> {
        let place = self.place(path).map_err(Refusal::Failed)?;
        self.may_lock(place.zone, mode)?;
        let access = Access::new(Principal::Agent, self.outside.zone_time());
        let inode = place.zone(|z| match &place.path[..] {
            [] => Ok(Inode::ROOT),
            path => z.resolve(access, Inode::ROOT, path, true),
        });
        let file = (place.zone, inode.map_err(Refusal::Failed)?);
        let handle = self.locks.last.checked_add(1).ok_or(Refusal::TooMany)?;
        self.locks.last = handle;
        lock(&place.disk, file, handle, mode, wait).await?;
        self.locks.held.insert(handle, file);
        Ok(self.lock_number(handle))
    }

    async fn change_lock(&mut self, number: u64, mode: Mode, wait: u32) -> Result<(), Refusal> {
        let gone = || Refusal::Failed(types::Error::NoEntry("the lock is not held any more".into()));
        let (handle, file) = self.held(number).ok_or_else(gone)?;
        let disk = self.disk.clone().ok_or_else(gone)?;
        self.may_lock(file.0, mode)?;
        lock(&disk, file, handle, mode, wait).await
    }
}

impl GuestState {
    fn release_lock(&mut self, lock: u64) -> Result<bool, String> {
        let (Some((handle, _)), Some(disk)) = (self.held(lock), self.disk.clone()) else { return Ok(false) };
        self.locks.held.remove(&handle);
        disk.unlock(handle).map(|()| true).map_err(|e| e.to_string())
    }
}

fn asked(of: u64) -> Asked {
    Call::Lock.plain().with(of)
}

impl Host for GuestState {
    async fn acquire(
        &mut self,
        path: String,
        mode: Mode,
        wait: u32,
    ) -> wasmtime::Result<Result<u64, Refusal>> {
        let asked = asked(0).text(&path).with(mode as u64).with(wait.into());
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let acquired = self.acquire_lock(&path, mode, wait).await;
        self.recorded(asked, &acquired)?;
        Ok(acquired)
    }

    async fn change(&mut self, lock: u64, mode: Mode, wait: u32) -> wasmtime::Result<Result<(), Refusal>> {
        let asked = asked(1).with(lock).with(mode as u64).with(wait.into());
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let changed = self.change_lock(lock, mode, wait).await;
        self.recorded(asked, &changed)?;
        Ok(changed)
    }

    fn is_held(&mut self, lock: u64) -> wasmtime::Result<bool> {
        self.depending(asked(2).with(lock), |state| state.held(lock).is_some())
    }

    fn release(&mut self, lock: u64) -> wasmtime::Result<bool> {
        let released = self.depending(asked(3).with(lock), |state| state.release_lock(lock))?;
        released.map_err(wasmtime::Error::msg)
    }
}
