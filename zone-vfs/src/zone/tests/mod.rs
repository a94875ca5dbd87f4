//! Behaviour by example, and random operations against a plain model.

mod changes;
mod compare;
mod contracts;
mod expire;
mod files;
mod forgetting;
mod found;
mod memory;
mod model;
mod names;
mod past;
mod paths;
mod quota;
mod random;
mod versions;

use std::sync::Arc;

use super::*;
use crate::contract::Principal;
use crate::tree::MemoryChunks;

fn agent(now: u64) -> Access {
    Access::new(Principal::Agent, Timestamp(now))
}

fn store() -> Arc<MemoryChunks> {
    Arc::new(MemoryChunks::default())
}

fn zone(kind: ZoneKind) -> Zone {
    Zone::new(kind, Quota::default(), Timestamp(1), store())
}

fn code<T: fmt::Debug>(result: Result<T>) -> ErrorCode {
    result.expect_err("an error").code
}

const READ_WRITE: OpenOptions = OpenOptions {
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
    read: true,
    write: true,
    follow: true,
};
const CREATE: OpenOptions = OpenOptions { create: true, ..READ_WRITE };
const READ: OpenOptions = OpenOptions { write: false, ..READ_WRITE };

/// Makes a file with this content, and leaves it open.
fn make(zone: &mut Zone, path: &str, content: &[u8]) -> Inode {
    let inode = zone.open(agent(2), Inode::ROOT, path.as_bytes(), CREATE).unwrap();
    if !content.is_empty() {
        assert_eq!(zone.append(agent(2), inode, content).unwrap(), 0);
    }
    inode
}

/// All of an open file.
fn content(zone: &mut Zone, inode: Inode) -> Vec<u8> {
    let size = zone.stat(agent(9), inode).unwrap().size as usize;
    let mut bytes = vec![0xff; size + 1];
    assert_eq!(zone.read(agent(9), inode, 0, &mut bytes).unwrap(), size);
    bytes.truncate(size);
    bytes
}

fn names(zone: &Zone, directory: Inode) -> Vec<String> {
    let entries = zone.readdir(agent(9), directory, None, usize::MAX).unwrap();
    entries.iter().map(|entry| entry.name.to_string()).collect()
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}
