//! Inputs to begin with: sound structures of the present format, and operations that meet.

use std::sync::Arc;

use super::{exports, records, segments};
use crate::chunks::ChunkStore;
use crate::contract::{Principal, ZoneKind};
use crate::device::simulated::Simulated;
use crate::device::{Caching, Device};
use crate::id::{Inode, Timestamp};
use crate::log::{Log, LogOptions, LogPosition};
use crate::segment::Segments;
use crate::tree::MemoryChunks;
use crate::zone::{Access, OpenOptions, Quota, Zone};

pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    let seeds = match target {
        "exports" => of_exports(),
        "paths" => of_paths(),
        "records" => of_records(),
        "segments" => of_segments(),
        "trees" => of_trees(),
        _ => Vec::new(),
    };
    seeds.into_iter().enumerate().map(|(number, seed)| (format!("seed-{number}"), seed)).collect()
}

/// The input of one operation of the target: its number, without an open file, on these tokens.
fn operation(number: u8, paths: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![7, 7, 9, number];
    for path in paths {
        bytes.push(path.len() as u8);
        bytes.extend_from_slice(path);
    }
    bytes
}

fn of_exports() -> Vec<Vec<u8>> {
    let sound = exports::sound();
    let items = &sound[exports::HEADER..sound.len() - exports::END];
    let changes = vec![2, 100, 1, 3, 0, 0, 2, 0, 60, 5, 1, 9, 0];
    vec![[&[0], sound].concat(), [&[1], items].concat(), changes, vec![2]]
}

fn of_paths() -> Vec<Vec<u8>> {
    const SLASH: u8 = 3;
    let tree = [
        operation(3, &[&[0]]),
        vec![1],
        operation(3, &[&[0, SLASH, 1]]),
        vec![1],
        operation(6, &[&[6, SLASH, 1], &[0, SLASH, 2]]),
        vec![1],
        operation(1, &[&[0, SLASH, 2, SLASH, 6, SLASH, 0]]),
        vec![200, 0],
        operation(7, &[&[0, SLASH, 1], &[1]]),
        vec![1],
        operation(7, &[&[0], &[1, SLASH, 0]]),
        vec![8],
        operation(4, &[&[0, SLASH, 1]]),
        vec![1],
        operation(5, &[&[0, SLASH, 2]]),
        vec![8],
    ]
    .concat();
    let files = |kind: u8| {
        let mut bytes = vec![kind];
        bytes.extend([7, 7, 9, 9, 0x71, 1, 0, 1]);
        bytes.extend([0, 0, 0, 0, 11, 0, 0, 20]);
        bytes.extend_from_slice(b"twenty bytes content");
        bytes.push(8);
        bytes.extend(operation(8, &[&[0]]));
        bytes.extend([200, 1, 1, 8]);
        bytes.extend(operation(5, &[&[0]]));
        bytes.push(1);
        bytes.extend([0, 0, 0, 0, 12, 5, 0, 8]);
        bytes.extend([7, 7, 9, 13, 8]);
        bytes
    };
    (0..6).flat_map(|kind| [[&[kind], &tree[..]].concat(), files(kind)]).collect()
}

fn of_records() -> Vec<Vec<u8>> {
    let (device, from, ..) = records::base();
    let mut behind = vec![3];
    let mut raw = vec![1];
    Log::open(Arc::new(device.killed()), LogOptions::default(), LogPosition::START, &mut |record| {
        if let Some(body) = record.body.get(1..).filter(|body| body.len() < 4_000) {
            behind.extend_from_slice(&(body.len() as u16).to_le_bytes());
            behind.push(0);
            behind.extend_from_slice(body);
        }
        Ok(())
    })
    .unwrap();
    let file = device.open("log/00000001.log", Caching::Cached).unwrap();
    let mut bytes = vec![0; from.offset as usize + 4096];
    file.read_at(0, &mut bytes).unwrap();
    raw.extend_from_slice(&bytes[4096..]);
    let whole = [&[0], &bytes[..]].concat();
    let made =
        [vec![2, 2], vec![1, 30, 0], vec![5; 30], vec![1, 1, 1, 0, 10, 0], vec![6; 10], vec![2; 40]].concat();
    vec![behind, raw, whole, made]
}

fn of_segments() -> Vec<Vec<u8>> {
    let device = Simulated::new(1);
    let segments: Segments = segments::open(&device).unwrap();
    for content in segments::contents() {
        segments.put(crate::chunks::FrameKind::Chunk, &content).unwrap();
    }
    segments.flush().unwrap();
    drop(segments);
    let file = device.open(segments::PATH, Caching::Cached).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    let raw = [&[0], &bytes[..]].concat();
    let frames =
        [vec![1], vec![1, 0, 50], vec![3; 50], vec![99, 0, 1, 1, 20], vec![4; 20], vec![99; 9]].concat();
    vec![raw, frames, vec![2, 100, 0, 3, 1, 200, 0, 0], vec![2, 44, 1, 2, 255]]
}

fn of_trees() -> Vec<Vec<u8>> {
    let store = Arc::new(MemoryChunks::default());
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let access = Access::new(Principal::Agent, Timestamp(2));
    let write = OpenOptions { create: true, write: true, ..OpenOptions::default() };
    zone.mkdir(access, Inode::ROOT, b"dir").unwrap();
    for (path, len) in [("a", 10), ("dir/b", 5_000), ("dir/c", 70_000)] {
        let inode = zone.open(access, Inode::ROOT, path.as_bytes(), write).unwrap();
        zone.write(access, inode, 0, &vec![7; len]).unwrap();
        zone.close(inode).unwrap();
    }
    zone.symlink(access, b"dir/b", Inode::ROOT, b"link").unwrap();
    let root = zone.snapshot().unwrap().store(&*store).unwrap();
    let node = store.get(&root.hash).unwrap();
    let leaf = [&[1], &node[..]].concat();
    // without the bytes that say that it is a leaf
    let several =
        [vec![2, (node.len() - 2) as u8, ((node.len() - 2) >> 8) as u8], node[2..].to_vec(), vec![1, 0, 0]]
            .concat();
    let operations =
        [vec![0], [0, 0, 0, 120, 1, 0].repeat(9), vec![0, 5, 0, 100, 0, 3, 0, 0, 0, 5, 0, 4, 9]].concat();
    vec![leaf, several, operations]
}
