use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uuid::Uuid;

use super::*;
use crate::device::simulated::Rng;

fn owner(agent: u128, handle: u32) -> LockOwner {
    LockOwner { agent: AgentId(Uuid::from_u128(agent)), handle }
}

fn file(number: u64) -> LockedFile {
    LockedFile { zone: LockedZone::Own(AgentId(Uuid::nil()), 0), inode: Inode(number) }
}

/// A wait, and what it was told.
type Told = Arc<Mutex<Option<Result<(), LockError>>>>;

fn wait(table: &LockTable, file: LockedFile, owner: LockOwner, kind: LockKind) -> Told {
    let told = Told::default();
    let tell = told.clone();
    table.lock(
        file,
        owner,
        kind,
        Box::new(move |result| assert!(tell.lock().unwrap().replace(result).is_none())),
    );
    told
}

fn told(wait: &Told) -> Option<Result<(), LockError>> {
    *wait.lock().unwrap()
}

use LockKind::{Exclusive, Shared};

#[test]
fn shared_locks_go_together_and_an_exclusive_one_goes_alone() {
    let table = LockTable::default();
    table.try_lock(file(1), owner(1, 1), Shared).unwrap();
    table.try_lock(file(1), owner(2, 1), Shared).unwrap();
    assert_eq!(table.try_lock(file(1), owner(3, 1), Exclusive), Err(LockError::WouldBlock));
    table.try_lock(file(2), owner(3, 1), Exclusive).unwrap();
    assert_eq!(table.try_lock(file(2), owner(1, 2), Shared), Err(LockError::WouldBlock));
    assert_eq!(table.try_lock(file(2), owner(3, 2), Shared), Err(LockError::WouldBlock), "another handle");
    assert_eq!(table.try_lock(file(1), owner(3, 1), Shared), Err(LockError::OtherFile));
    table.unlock(owner(3, 1));
    table.try_lock(file(2), owner(3, 2), Shared).unwrap();
    table.let_go(owner(1, 0).agent);
    table.let_go(owner(2, 0).agent);
    table.try_lock(file(1), owner(3, 1), Exclusive).unwrap();
    table.let_go(owner(3, 0).agent);
    assert!(table.table().is_empty());
}

#[test]
fn a_writer_in_line_is_not_overtaken() {
    let table = LockTable::default();
    table.try_lock(file(1), owner(1, 1), Shared).unwrap();
    let writer = wait(&table, file(1), owner(2, 1), Exclusive);
    assert_eq!(table.try_lock(file(1), owner(3, 1), Shared), Err(LockError::WouldBlock));
    let readers = [wait(&table, file(1), owner(3, 1), Shared), wait(&table, file(1), owner(4, 1), Shared)];
    assert_eq!(told(&writer), None);
    table.unlock(owner(1, 1));
    assert_eq!(told(&writer), Some(Ok(())));
    assert_eq!(readers.each_ref().map(told), [None, None]);
    table.unlock(owner(2, 1));
    assert_eq!(readers.each_ref().map(told), [Some(Ok(())), Some(Ok(()))], "both at once");
}

#[test]
fn one_that_gives_up_lets_those_behind_it_pass() {
    let table = LockTable::default();
    table.try_lock(file(1), owner(1, 1), Shared).unwrap();
    let writer = wait(&table, file(1), owner(2, 1), Exclusive);
    let reader = wait(&table, file(1), owner(3, 1), Shared);
    table.end_wait(owner(2, 1));
    assert_eq!((told(&writer), told(&reader)), (Some(Err(LockError::Ended)), Some(Ok(()))));
    table.end_wait(owner(3, 1));
    assert_eq!(table.try_lock(file(1), owner(4, 1), Exclusive), Err(LockError::WouldBlock), "its lock stays");
    let paused = wait(&table, file(1), owner(4, 1), Exclusive);
    table.let_go(owner(4, 0).agent);
    assert_eq!(told(&paused), Some(Err(LockError::Ended)));
}

#[test]
fn kinds_change_without_letting_go() {
    let table = LockTable::default();
    table.try_lock(file(1), owner(1, 1), Exclusive).unwrap();
    let reader = wait(&table, file(1), owner(2, 1), Shared);
    table.try_lock(file(1), owner(1, 1), Shared).unwrap();
    assert_eq!(told(&reader), Some(Ok(())), "let in by the change");
    let upgrade = wait(&table, file(1), owner(1, 1), Exclusive);
    let third = wait(&table, file(1), owner(3, 1), Exclusive);
    table.unlock(owner(2, 1));
    assert_eq!((told(&upgrade), told(&third)), (Some(Ok(())), None), "it was in front");
    table.unlock(owner(1, 1));
    assert_eq!(told(&third), Some(Ok(())));
}

#[test]
fn a_circle_is_refused_at_once() {
    let table = LockTable::default();
    // over two files and three agents
    for agent in 1..=3 {
        table.try_lock(file(agent), owner(agent.into(), 1), Exclusive).unwrap();
    }
    let first = wait(&table, file(2), owner(1, 2), Exclusive);
    let second = wait(&table, file(3), owner(2, 2), Shared);
    let third = wait(&table, file(1), owner(3, 2), Exclusive);
    assert_eq!((told(&first), told(&second), told(&third)), (None, None, Some(Err(LockError::Deadlock))));
    table.unlock(owner(3, 1));
    assert_eq!(told(&second), Some(Ok(())));
    // an agent and itself
    table.try_lock(file(9), owner(5, 1), Exclusive).unwrap();
    assert_eq!(told(&wait(&table, file(9), owner(5, 2), Shared)), Some(Err(LockError::Deadlock)));
    // two that both want more
    table.try_lock(file(8), owner(6, 1), Shared).unwrap();
    table.try_lock(file(8), owner(7, 1), Shared).unwrap();
    let upgrade = wait(&table, file(8), owner(6, 1), Exclusive);
    assert_eq!(told(&wait(&table, file(8), owner(7, 1), Exclusive)), Some(Err(LockError::Deadlock)));
    assert_eq!(told(&upgrade), None);
    table.unlock(owner(7, 1));
    assert_eq!(told(&upgrade), Some(Ok(())));
}

#[test]
fn locks_are_counted() {
    let table = LockTable::default();
    for handle in 0..MAX_LOCKS as u32 {
        table.try_lock(file(handle.into()), owner(1, handle), Shared).unwrap();
    }
    assert_eq!(table.try_lock(file(1 << 20), owner(1, u32::MAX), Shared), Err(LockError::TooMany));
    table.try_lock(file(3), owner(1, 3), Exclusive).unwrap();
    table.try_lock(file(1 << 20), owner(2, 1), Exclusive).unwrap();
    for handle in 0..MAX_WAITING as u128 {
        assert_eq!(told(&wait(&table, file(1 << 20), owner(3 + handle, 1), Shared)), None);
    }
    assert_eq!(told(&wait(&table, file(1 << 20), owner(1 << 100, 1), Shared)), Some(Err(LockError::TooMany)));
}

#[test]
fn whatever_is_asked_nobody_shares_what_is_exclusive_and_nothing_is_left_behind() {
    for seed in 0..200 {
        let table = LockTable::default();
        let mut rng = Rng::new(seed);
        let mut waits: Vec<(LockOwner, Told)> = Vec::new();
        for _ in 0..200 {
            let owner = owner(rng.below(5).into(), rng.below(3) as u32);
            let file = file(rng.below(3));
            let kind = if rng.below(2) == 0 { Shared } else { Exclusive };
            match rng.below(8) {
                0..2 => drop(table.try_lock(file, owner, kind)),
                2..5 => waits.push((owner, wait(&table, file, owner, kind))),
                5 => table.end_wait(owner),
                6 => table.unlock(owner),
                _ => table.let_go(owner.agent),
            }
            table.table().check();
        }
        for agent in 0..5 {
            table.let_go(owner(agent, 0).agent);
        }
        assert!(table.table().is_empty(), "seed {seed}");
        assert!(waits.iter().all(|(_, wait)| told(wait).is_some()), "seed {seed}: all were told");
    }
}

#[test]
fn threads_take_turns() {
    let table = LockTable::default();
    let inside = AtomicUsize::new(0);
    let mut counted = 0;
    let shared = Mutex::new(&mut counted);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (table, inside, shared) = (&table, &inside, &shared);
            scope.spawn(move || {
                for _ in 0..200 {
                    let (send, receive) = std::sync::mpsc::sync_channel(1);
                    let done: LockDone = Box::new(move |result| send.send(result).unwrap());
                    table.lock(file(1), owner(thread, 1), Exclusive, done);
                    receive.recv().unwrap().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    **shared.try_lock().expect("nobody else is here") += 1;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    table.unlock(owner(thread, 1));
                }
            });
        }
    });
    assert_eq!(counted, 8 * 200);
}
