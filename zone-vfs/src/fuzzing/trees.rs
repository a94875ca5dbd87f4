//! Trees: operations against a plain map, and nodes of any bytes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{Input, use_all};
use crate::chunks::{ChunkStore, FrameKind};
use crate::contract::ZoneKind;
use crate::id::{Hash, Inode, Timestamp};
use crate::tree::{FileKind, Key, MemoryChunks, Name, Tree, Value};
use crate::zone::{Quota, StoredRoot, Zone, ZoneRoot};

/// Changes trees and their forks beside plain maps, or uses a zone whose tree has nodes of these
/// bytes.
pub fn trees(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(3) {
        0 => beside_maps(&mut input),
        1 => hostile(&[input.rest()]),
        _ => {
            let mut nodes = Vec::new();
            while !input.is_empty() {
                let len = usize::from(input.u16() % 700);
                nodes.push(input.take(len));
            }
            hostile(&nodes);
        }
    }
}

fn beside_maps(input: &mut Input) {
    let store = MemoryChunks::default();
    let mut all: Vec<(Tree, BTreeMap<Key, u64>)> = vec![Default::default()];
    while !input.is_empty() {
        let at = input.below(all.len());
        let (tree, map) = &mut all[at];
        // many keys at once, so that nodes split and merge
        let (from, count) = (u64::from(input.u16()) % 3000, input.below(130) as u64);
        let long = usize::from(input.byte() % 4) * 60 + 1;
        let key = |number: u64| {
            let name = Name::new(&[vec![b'n'; long], number.to_string().into_bytes()].concat());
            Key::dirent(Inode(number % 7), name.expect("a name"))
        };
        match input.below(6) {
            0..3 => {
                for number in from..from + count {
                    let value = Value::Dirent { inode: Inode(number), kind: FileKind::Regular };
                    let old = tree.insert(&store, key(number), value).expect("an insertion");
                    assert_eq!(old.is_some(), map.insert(key(number), number).is_some());
                }
            }
            3 => {
                for number in from..from + count {
                    let old = tree.remove(&store, &key(number)).expect("a removal");
                    assert_eq!(old.is_some(), map.remove(&key(number)).is_some());
                }
            }
            4 => {
                let hash = tree.store(&store).expect("it is stored");
                *tree = Tree::load(hash);
            }
            _ => {
                let copy = (tree.clone(), map.clone());
                if all.len() < 4 {
                    all.push(copy);
                }
            }
        }
    }
    for (tree, map) in &all {
        let entries =
            tree.range(&store, Bound::Unbounded).expect("a tree").map(|it| match it.expect("an entry") {
                (key, Value::Dirent { inode, .. }) => (key.clone(), inode.0),
                _ => panic!("a value that was not put there"),
            });
        assert!(
            entries.eq(map.iter().map(|(key, number)| (key.clone(), *number))),
            "the tree is not the map"
        );
    }
}

/// A tree with these nodes under one branch, or with the one node.
fn hostile(nodes: &[&[u8]]) {
    let store = Arc::new(MemoryChunks::default());
    let mut sound = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let base = sound.snapshot().and_then(|root| root.store(&*store)).expect("a root");
    let put = |bytes: &[u8]| store.put(FrameKind::Node, bytes).expect("it is stored");
    let hash = if let [node] = nodes {
        put(node)
    } else {
        // the version and the mark of a leaf are as they are at present
        let leaf = store.get(&base.hash).expect("it was stored")[..2].to_vec();
        let children: Vec<Hash> = nodes.iter().map(|node| put(&[&leaf[..], *node].concat())).collect();
        let keys: Vec<Key> = (1..children.len() as u64).map(|inode| Key::inode(Inode(inode))).collect();
        // a branch of level 1, as `docs/format-trees.md` has it
        put(&postcard::to_extend(&(1u8, 1u8, keys, children), vec![leaf[0]]).expect("it is encoded"))
    };
    let tree = Tree::load(hash);
    if let Ok(range) = tree.range(&*store, Bound::Unbounded) {
        let _ = range.take(10_000).flatten().count();
    }
    let _ = tree.addresses(&*store, &mut |_, _| true);
    let mut zone = Zone::from_root(ZoneRoot::load(StoredRoot { hash, ..base }), store);
    use_all(&mut zone);
}
