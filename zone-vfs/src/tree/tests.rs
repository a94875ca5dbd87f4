use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::chunks::{ChunkError, FrameKind};
use crate::id::{Hash, Inode, Timestamp};

type Model = BTreeMap<Key, StoredValue>;

fn record(size: usize) -> InodeRecord {
    InodeRecord {
        links: 1,
        size: size as u64,
        accessed: Timestamp(1),
        modified: Timestamp(u64::MAX),
        changed: Timestamp(3),
        place: None,
        body: Body::Inline(Arc::new(vec![7; size])),
    }
}

fn inode_key(number: u64) -> Key {
    Key::inode(Inode(number))
}

fn check_same(tree: &Tree, model: &Model, store: &dyn ChunkStore) {
    let walked: Vec<_> = tree
        .entries(store)
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key.clone(), value.to_stored(store).unwrap())).unwrap())
        .collect();
    let expected: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(walked, expected);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Key, usize),
    Remove(Key),
    RemoveFrom(Key, usize),
    Get(Key),
    Range(Key),
    Fork,
    Switch(usize),
    StoreAndLoad,
    Spill,
    Patch(Key),
}

fn keys() -> impl Strategy<Value = Key> {
    let number = 0..40u64;
    prop_oneof![
        number.clone().prop_map(inode_key),
        (number.clone(), vec(97..100u8, 1..60))
            .prop_map(|(inode, name)| Key::dirent(Inode(inode), Name::new(&name).unwrap())),
        (number.clone(), 0..200u64).prop_map(|(inode, index)| Key::extent(Inode(inode), index)),
        number.prop_map(|inode| Key::orphan(Inode(inode))),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (keys(), 0..=MAX_INLINE).prop_map(|(key, size)| Step::Insert(key, size)),
        5 => keys().prop_map(Step::Remove),
        1 => (keys(), 1..200usize).prop_map(|(key, count)| Step::RemoveFrom(key, count)),
        3 => keys().prop_map(Step::Get),
        1 => keys().prop_map(Step::Range),
        1 => Just(Step::Fork),
        1 => (0..5usize).prop_map(Step::Switch),
        1 => Just(Step::StoreAndLoad),
        1 => Just(Step::Spill),
        3 => keys().prop_map(Step::Patch),
    ]
}

fn value_for(key: &Key, size: usize) -> Value {
    match key.part {
        Part::Inode => Value::Inode(record(size)),
        Part::Dirent(_) => Value::Dirent { inode: Inode(size as u64), kind: FileKind::Regular },
        Part::Extent(_) => Value::Extent(ExtentValue::Memory(Arc::new(Extent::new(vec![9; size])))),
        Part::Orphan(_) => Value::Orphan,
        _ => unreachable!("no such key is made here"),
    }
}

fn stored(value: &Value, store: &dyn ChunkStore) -> StoredValue {
    value.to_stored(store).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_an_ordered_map_with_forks(steps in vec(steps(), 1..600)) {
        let store = MemoryChunks::default();
        let mut all: Vec<(Tree, Model)> = vec![Default::default()];
        let mut current = 0;
        for step in steps {
            let (forks, (tree, model)) = (all.len(), &mut all[current]);
            match step {
                Step::Insert(key, size) => {
                    let value = value_for(&key, size);
                    let old = model.insert(key.clone(), stored(&value, &store));
                    let found = tree.insert(&store, key, value).unwrap();
                    prop_assert_eq!(found.map(|value| stored(&value, &store)), old);
                }
                Step::Remove(key) => {
                    let found = tree.remove(&store, &key).unwrap();
                    prop_assert_eq!(found.map(|value| stored(&value, &store)), model.remove(&key));
                }
                Step::RemoveFrom(key, count) => {
                    let doomed: Vec<_> = model.range(key..).take(count).map(|(key, _)| key.clone()).collect();
                    for key in doomed {
                        prop_assert!(tree.remove(&store, &key).unwrap().is_some());
                        model.remove(&key);
                    }
                }
                Step::Get(key) => {
                    let found = tree.get(&store, &key).unwrap();
                    prop_assert_eq!(found.map(|value| stored(value, &store)), model.get(&key).cloned());
                }
                Step::Range(from) => {
                    let last = tree.last_until(&store, &from).unwrap();
                    let last = last.map(|(key, value)| (key.clone(), stored(value, &store)));
                    let wanted = model.range(..=from.clone()).next_back();
                    prop_assert_eq!(last, wanted.map(|(key, value)| (key.clone(), value.clone())));
                    for bound in [Bound::Included(&from), Bound::Excluded(&from)] {
                        let found = tree.range(&store, bound).unwrap().map(|entry| entry.unwrap().0.clone());
                        let expected = model.range((bound, Bound::Unbounded)).map(|(key, _)| key.clone());
                        prop_assert!(found.eq(expected));
                    }
                }
                Step::Fork => {
                    let fork = (tree.clone(), model.clone());
                    if forks < 5 {
                        all.push(fork);
                    }
                }
                Step::Switch(to) => current = to % forks,
                Step::StoreAndLoad => {
                    *tree = Tree::load(tree.store(&store).unwrap());
                }
                Step::Spill => {
                    let root = tree.store(&store).unwrap();
                    tree.spill(&store).unwrap();
                    prop_assert_eq!(tree.store(&store).unwrap(), root);
                }
                Step::Patch(key) => {
                    if let Some(Value::Extent(extent)) = tree.get_mut(&store, &key).unwrap() {
                        *extent = ExtentValue::Memory(Arc::new(Extent::new(b"patched".to_vec())));
                        let value = Value::Extent(extent.clone());
                        model.insert(key, stored(&value, &store));
                    }
                }
            }
        }
        for (other, other_model) in &all {
            let (tree, model) = &all[0];
            let mut found = Model::new();
            let mut keys = Vec::new();
            tree.diff(other, &store, &mut |(key, left, right)| {
                keys.push(key.clone());
                let [left, right] = [left, right].map(|value| value.map(|value| stored(value, &store)));
                assert_eq!(left.as_ref(), model.get(key));
                assert_eq!(right.as_ref(), other_model.get(key));
                if left != right {
                    found.extend(right.map(|value| (key.clone(), value)));
                }
                Ok::<_, TreeError>(())
            })
            .unwrap();
            prop_assert!(keys.is_sorted_by(|a, b| a < b));
            let differs = |key: &&Key| model.get(key) != other_model.get(key);
            let wanted: Vec<_> = model.keys().chain(other_model.keys()).filter(differs).collect();
            prop_assert!(wanted.iter().all(|key| keys.binary_search(key).is_ok()));
            prop_assert!(found.iter().all(|(key, value)| other_model.get(key) == Some(value)));
        }
        for (tree, model) in &all {
            check_same(tree, model, &store);
            let again = Tree::load(tree.store(&store).unwrap());
            check_same(&again, model, &store);
            prop_assert_eq!(again.digest(&store).unwrap(), tree.digest(&store).unwrap());
        }
    }

    #[test]
    fn decoding_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        let mut framed = vec![1];
        framed.extend_from_slice(&bytes);
        for bytes in [&bytes, &framed] {
            if let Ok(node) = Node::decode(bytes) {
                prop_assert!(node.level <= MAX_LEVEL);
            }
        }
    }
}

/// A permutation of 0..count that is neither ascending nor descending.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| index * 7919 % count)
}

#[test]
fn grows_deep_and_shrinks_to_nothing() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    const COUNT: u64 = 20_000;
    for number in scattered(COUNT) {
        tree.insert(&store, inode_key(number), value_for(&inode_key(number), 0)).unwrap();
    }
    let empty = Tree::default().digest(&store).unwrap();
    assert_eq!(tree.entries(&store).unwrap().count() as u64, COUNT);
    assert!(tree.root.root(&store).unwrap().level >= 2);
    let mut tree = Tree::load(tree.store(&store).unwrap());
    for number in scattered(COUNT) {
        assert!(tree.remove(&store, &inode_key(number)).unwrap().is_some());
    }
    assert_eq!(tree.digest(&store).unwrap(), empty);
    assert_eq!(tree.root.root(&store).unwrap().level, 0);
}

#[test]
fn removing_most_leaves_few_nodes() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    for number in 0..10_000 {
        tree.insert(&store, inode_key(number), value_for(&inode_key(number), 0)).unwrap();
    }
    for number in (0..10_000).filter(|number| number % 100 != 0) {
        tree.remove(&store, &inode_key(number)).unwrap();
    }
    tree.store(&store).unwrap();
    assert!(store.len() <= 10, "100 entries took {} nodes", store.len());
}

#[test]
fn ascending_inserts_fill_their_nodes() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    for number in 0..6_400 {
        tree.insert(&store, inode_key(number), value_for(&inode_key(number), 0)).unwrap();
    }
    tree.store(&store).unwrap();
    assert!(store.len() < 140, "6400 entries took {} nodes", store.len());
}

#[test]
fn heavy_entries_stay_within_the_limit() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    let target = Arc::new(vec![b'x'; MAX_TARGET]);
    for number in scattered(500) {
        let body = Body::Symlink(target.clone());
        let record = InodeRecord { size: MAX_TARGET as u64, body, ..record(0) };
        tree.insert(&store, inode_key(number), Value::Inode(record)).unwrap();
    }
    struct Limited(MemoryChunks);
    impl ChunkStore for Limited {
        fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
            self.0.get(hash)
        }
        fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
            assert!(plain.len() <= crate::chunks::MAX_FRAME / 8, "a node of {} bytes", plain.len());
            self.0.put(kind, plain)
        }
    }
    let store = Limited(store);
    let again = Tree::load(tree.store(&store).unwrap());
    assert_eq!(again.entries(&store).unwrap().count(), 500);
}

#[test]
fn storing_again_writes_only_what_changed() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    for number in 0..5_000 {
        tree.insert(&store, inode_key(number), value_for(&inode_key(number), 0)).unwrap();
    }
    let fork = tree.clone();
    fork.store(&store).unwrap();
    let before = store.len();
    tree.insert(&store, inode_key(77), value_for(&inode_key(77), 5)).unwrap();
    tree.store(&store).unwrap();
    assert!(store.len() - before <= 3, "one change stored {} nodes", store.len() - before);
}

#[test]
fn a_missing_node_is_an_error_and_changes_nothing() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    for number in 0..1_000 {
        tree.insert(&store, inode_key(number), value_for(&inode_key(number), 0)).unwrap();
    }
    let root = tree.store(&store).unwrap();
    struct RootOnly(Hash, MemoryChunks);
    impl ChunkStore for RootOnly {
        fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
            if *hash == self.0 { self.1.get(hash) } else { Err(ChunkError::Missing(*hash)) }
        }
        fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
            self.1.put(kind, plain)
        }
    }
    let broken = RootOnly(root, store);
    let mut tree = Tree::load(root);
    assert!(matches!(tree.get(&broken, &inode_key(5)), Err(TreeError::Chunk(ChunkError::Missing(_)))));
    assert!(tree.insert(&broken, inode_key(5), Value::Orphan).is_err());
    assert!(tree.remove(&broken, &inode_key(5)).is_err());
    assert!(tree.entries(&broken).is_err());
    assert_eq!(tree.store(&broken).unwrap(), root);
}

#[test]
fn nodes_that_do_not_belong_are_refused() {
    let store = MemoryChunks::default();
    let leaf = |numbers: std::ops::Range<u64>| {
        let entries = numbers.map(|number| (inode_key(number), Value::Inode(record(1)))).collect();
        Child::stored(Child::from(Node::leaf(entries)).store(&store).unwrap())
    };
    let put = |node: Node| Tree::load(Child::from(node).store(&store).unwrap());
    let good = put(Node::branch(1, vec![inode_key(10)], vec![leaf(0..10), leaf(10..20)]));
    assert!(good.get(&store, &inode_key(12)).unwrap().is_some());
    let level = put(Node::branch(2, vec![inode_key(10)], vec![leaf(0..10), leaf(10..20)]));
    let swapped = put(Node::branch(1, vec![inode_key(10)], vec![leaf(10..20), leaf(0..10)]));
    for damaged in [level, swapped] {
        assert!(matches!(damaged.get(&store, &inode_key(12)), Err(TreeError::Damaged(_))));
    }
    let impossible = Node::branch(MAX_LEVEL + 1, vec![], vec![leaf(0..1)]);
    assert!(Node::decode(&impossible.encode(&store).unwrap()).is_err());
    let backwards =
        Node::leaf(vec![(inode_key(2), value_for(&inode_key(2), 0)), (inode_key(1), Value::Orphan)]);
    assert!(Node::decode(&backwards.encode(&store).unwrap()).is_err());
    let mismatched = Node::leaf(vec![(inode_key(1), Value::Orphan)]);
    assert!(Node::decode(&mismatched.encode(&store).unwrap()).is_err());
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let store = MemoryChunks::default();
    let mut stored = Node::leaf(Vec::new()).encode(&store).unwrap();
    stored[0] = 200;
    let tree = Tree::load(store.put(FrameKind::Node, &stored).unwrap());
    assert!(matches!(tree.get(&store, &inode_key(1)), Err(TreeError::UnknownFormat(200))));
}

#[test]
fn the_addresses_are_all_that_a_tree_needs() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    for number in 0..1_000 {
        let key = Key::extent(Inode(number / 10), number);
        tree.insert(&store, key.clone(), value_for(&key, number as usize % 300)).unwrap();
    }
    let mut all = Vec::new();
    tree.addresses(&store, &mut |_, hash| {
        all.push(hash);
        true
    })
    .unwrap();
    assert!(all.is_empty(), "nothing is stored yet");
    let root = tree.store(&store).unwrap();
    let other = MemoryChunks::default();
    tree.addresses(&store, &mut |kind, hash| {
        all.push(hash);
        other.put(kind, &store.get(&hash).unwrap()).unwrap();
        true
    })
    .unwrap();
    assert_eq!(all[0], root);
    assert_eq!(Tree::load(root).digest(&other).unwrap(), tree.digest(&store).unwrap());

    let known: std::collections::HashSet<_> = all.into_iter().collect();
    let key = Key::extent(Inode(50), 500);
    tree.insert(&store, key.clone(), value_for(&key, 999)).unwrap();
    tree.store(&store).unwrap();
    let mut fresh = 0;
    tree.addresses(&store, &mut |_, hash| {
        let is_new = !known.contains(&hash);
        fresh += usize::from(is_new);
        is_new
    })
    .unwrap();
    assert_eq!(fresh, 3, "the chunk, its leaf and the root");
}

#[test]
fn a_diff_costs_what_differs() {
    let store = MemoryChunks::default();
    let mut tree = Tree::default();
    for number in scattered(20_000) {
        tree.insert(&store, inode_key(number * 2), value_for(&inode_key(0), 0)).unwrap();
    }
    let root = tree.store(&store).unwrap();
    let mut other = Tree::load(root);
    other.insert(&store, inode_key(10_001), value_for(&inode_key(0), 1)).unwrap();
    other.remove(&store, &inode_key(30_000)).unwrap();
    let other = Tree::load(other.store(&store).unwrap());
    let counting = Counting { store: &store, reads: std::sync::atomic::AtomicUsize::new(0) };
    let mut found = Vec::new();
    Tree::load(root)
        .diff(&other, &counting, &mut |(key, left, right)| {
            found.push((key.inode.0, left.is_some(), right.is_some()));
            Ok::<_, TreeError>(())
        })
        .unwrap();
    assert!(found.contains(&(10_001, false, true)) && found.contains(&(30_000, true, false)));
    assert!(found.len() < 200, "{} entries", found.len());
    let reads = counting.reads.into_inner();
    assert!(reads < 40, "{reads} nodes were read");
}

/// Storage that counts how often it is read.
struct Counting<'a> {
    store: &'a MemoryChunks,
    reads: std::sync::atomic::AtomicUsize,
}

impl ChunkStore for Counting<'_> {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.store.get(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.store.put(kind, plain)
    }
}

/// The stored form may only change together with the format byte.
#[test]
fn the_stored_form_is_what_it_was() {
    let store = MemoryChunks::default();
    let name = Name::new(b"note").unwrap();
    let directory = InodeRecord {
        links: 1,
        size: 0,
        accessed: Timestamp(1),
        modified: Timestamp(2),
        changed: Timestamp(300),
        place: None,
        body: Body::Directory { parent: Inode::ROOT },
    };
    let leaf = Node::leaf(vec![
        (Key::orphan(Inode(5)), Value::Orphan),
        (Key::inode(Inode(1)), Value::Inode(directory)),
        (Key::dirent(Inode(1), name), Value::Dirent { inode: Inode(2), kind: FileKind::Regular }),
        (Key::extent(Inode(2), 3), Value::Extent(ExtentValue::Stored { hash: Hash([8; 32]), len: 9 })),
    ]);
    let mut expected = vec![1, 0, 4];
    expected.extend([0, 3, 5, 3]);
    expected.extend([1, 0, 0, 1, 0, 1, 2, 0xac, 2, 0, 0, 1]);
    expected.extend([1, 1, 4, b'n', b'o', b't', b'e', 1, 2, 1]);
    expected.extend([2, 2, 3, 2]);
    expected.extend([8; 32]);
    expected.push(9);
    assert_eq!(leaf.encode(&store).unwrap(), expected);
    assert_eq!(Node::decode(&expected).unwrap().encode(&store).unwrap(), expected);
}
