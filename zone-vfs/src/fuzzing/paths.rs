//! Operations by path, in every kind of zone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Input;
use crate::contract::{Principal, ZoneKind};
use crate::id::{Inode, Timestamp};
use crate::tree::{FileKind, MemoryChunks};
use crate::zone::{Access, DrainLimits, OpenOptions, Quota, Zone, ZoneError, ZoneRoot};

/// Pieces of paths: few names, so that operations meet.
const TOKENS: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c",
    b"/",
    b"/",
    b"//",
    b"..",
    b".",
    b"../",
    b"\0",
    b"\xff\xfe",
    b"...",
    b"a/b",
    &[b'n'; 256],
    &[b'n'; 255],
    b"\\",
];

fn path(input: &mut Input) -> Vec<u8> {
    let mut path = Vec::new();
    for _ in 0..input.below(7) {
        path.extend_from_slice(TOKENS[input.below(TOKENS.len())]);
    }
    path
}

fn digest(zone: &mut Zone, store: &MemoryChunks) -> crate::id::Hash {
    let root = zone.snapshot().expect("a snapshot");
    root.digest(store).expect("a digest")
}

/// Drives a zone by paths and checks that what fails does nothing, that links and directories stay
/// sound, and that the zone's changes make another zone the same.
pub fn paths(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = ZoneKind::ALL[input.below(ZoneKind::ALL.len())];
    let store = Arc::new(MemoryChunks::default());
    let quota = Quota { bytes: 1 << 20, inodes: 40 };
    let mut zone = Zone::new(kind, quota, Timestamp(1), store.clone());
    let mut twin = Zone::from_root(ZoneRoot::empty(kind, quota), store.clone());
    let mut open: Vec<Inode> = Vec::new();
    while !input.is_empty() {
        let before = digest(&mut zone, &store);
        let was_dirty = zone.is_dirty();
        let done = step(&mut zone, &mut input, &mut open);
        if done.is_err() {
            assert_eq!(digest(&mut zone, &store), before, "a failed operation did something");
            assert_eq!(zone.is_dirty(), was_dirty);
        }
        if input.byte().is_multiple_of(8) {
            let changes =
                zone.drain_changes(&DrainLimits { chunk: 100, total: 1000 }).expect("a drain").changes;
            twin.apply(&changes).expect("changes apply");
            assert_eq!(digest(&mut twin, &store), digest(&mut zone, &store), "the twin differs");
        }
    }
    check(&zone);
}

fn step(zone: &mut Zone, input: &mut Input, open: &mut Vec<Inode>) -> Result<(), ZoneError> {
    let access = Access::new(Principal::Agent, Timestamp(2));
    let base = match open.get(input.below(8)) {
        Some(inode) if input.byte() > 200 => *inode,
        _ => Inode::ROOT,
    };
    let chosen = open.get(input.below(8)).copied().unwrap_or(Inode(u64::from(input.byte())));
    match input.below(14) {
        0 => zone.resolve(access, base, &path(input), input.byte() > 99).map(|_| ()),
        1 => zone.stat_at(access, base, &path(input), input.byte() > 99).map(|_| ()),
        2 => zone.readlink(access, base, &path(input)).map(|_| ()),
        3 => zone.mkdir(access, base, &path(input)).map(|_| ()),
        4 => zone.rmdir(access, base, &path(input)),
        5 => zone.unlink(access, base, &path(input)),
        6 => {
            let target = path(input);
            zone.symlink(access, &target, base, &path(input)).map(|_| ())
        }
        7 => {
            let from = path(input);
            zone.rename(access, (base, &from), (Inode::ROOT, &path(input)))
        }
        8 => {
            let from = path(input);
            zone.link(access, (base, &from), input.byte() > 99, (Inode::ROOT, &path(input)))
        }
        9 | 10 => {
            let bits = input.byte();
            let options = OpenOptions {
                create: bits & 1 != 0,
                exclusive: bits & 2 != 0,
                truncate: bits & 4 != 0,
                directory: bits & 8 != 0,
                read: bits & 16 != 0,
                write: bits & 32 != 0,
                follow: bits & 64 != 0,
            };
            let inode = zone.open(access, base, &path(input), options)?;
            if open.len() < 8 {
                open.push(inode);
                return Ok(());
            }
            zone.close(inode)
        }
        11 => {
            let offset = u64::from(input.u16());
            let len = input.below(50);
            zone.write(access, chosen, offset, input.take(len)).map(|_| ())
        }
        12 => zone.set_size(access, chosen, u64::from(input.u16())),
        _ => {
            let Some(inode) = open.pop() else { return Ok(()) };
            zone.close(inode)
        }
    }
}

/// Every directory is in the one that it calls its parent, and every inode has as many names as it
/// says.
fn check(zone: &Zone) {
    let access = Access::new(Principal::Host, Timestamp(2));
    let mut names: BTreeMap<Inode, u32> = BTreeMap::new();
    let mut directories = vec![Inode::ROOT];
    while let Some(directory) = directories.pop() {
        for entry in zone.readdir(access, directory, None, usize::MAX).expect("a directory reads") {
            *names.entry(entry.inode).or_default() += 1;
            if entry.kind == FileKind::Directory {
                assert_eq!(names[&entry.inode], 1, "a directory has one name");
                let back = [entry.name.as_bytes(), b"/.."].concat();
                assert_eq!(zone.resolve(access, directory, &back, false).expect("a parent"), directory);
                directories.push(entry.inode);
            }
        }
    }
    for (inode, count) in names {
        assert_eq!(zone.stat(access, inode).expect("an inode reads").links, count);
    }
}
