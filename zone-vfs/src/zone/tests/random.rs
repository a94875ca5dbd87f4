use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::model::{Content, Model, Node};
use super::*;
use crate::id::Hash;

/// Indices choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8),
    Mkdir(usize, u8),
    Symlink(usize, u8, usize),
    Remove(usize, u8, bool),
    Link((usize, u8), (usize, u8)),
    Rename((usize, u8), (usize, u8)),
    Open(usize),
    Close(usize),
    Write(usize, usize, usize, u8),
    Append(usize, usize, u8),
    SetSize(usize, usize),
    SetTimes(usize, Option<u64>, Option<u64>),
    Read(usize, usize, usize),
    Fork,
    Switch(usize),
    StoreAndLoad,
    Drain(usize, usize),
    Spill,
}

fn offsets() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0..3_000usize,
        2 => 60_000..70_000usize,
        1 => 0..300_000usize,
        1 => (0..5usize).prop_map(|chunk| chunk * 65_536),
    ]
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..100usize, 2 => 1_000..3_000usize, 1 => 0..150_000usize, 1 => Just(65_536)]
}

fn steps() -> impl Strategy<Value = Step> {
    let name = 0..12u8;
    let place = (any::<usize>(), name.clone());
    let index = any::<usize>();
    prop_oneof![
        6 => (index, name.clone()).prop_map(|(dir, name)| Step::Create(dir, name)),
        3 => (index, name.clone()).prop_map(|(dir, name)| Step::Mkdir(dir, name)),
        1 => (index, name.clone(), 1..100usize).prop_map(|(dir, name, len)| Step::Symlink(dir, name, len)),
        3 => (index, name.clone(), any::<bool>()).prop_map(|(dir, name, rmdir)| Step::Remove(dir, name, rmdir)),
        2 => (place.clone(), place.clone()).prop_map(|(from, to)| Step::Link(from, to)),
        4 => (place.clone(), place).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => index.prop_map(Step::Open),
        3 => index.prop_map(Step::Close),
        12 => (index, offsets(), lengths(), any::<u8>()).prop_map(|(f, at, len, seed)| Step::Write(f, at, len, seed)),
        5 => (index, lengths(), any::<u8>()).prop_map(|(file, len, seed)| Step::Append(file, len, seed)),
        4 => (index, offsets()).prop_map(|(file, size)| Step::SetSize(file, size)),
        1 => (index, any::<Option<u64>>(), any::<Option<u64>>()).prop_map(|(i, a, m)| Step::SetTimes(i, a, m)),
        5 => (index, offsets(), lengths()).prop_map(|(file, at, len)| Step::Read(file, at, len)),
        1 => Just(Step::Fork),
        1 => index.prop_map(Step::Switch),
        1 => Just(Step::StoreAndLoad),
        3 => (prop_oneof![Just(0usize), Just(16 << 10)], prop_oneof![Just(0usize), Just(256 << 10)])
            .prop_map(|(chunk, total)| Step::Drain(chunk, total)),
        1 => Just(Step::Spill),
    ]
}

/// A zone, what it should be, and a zone that follows it by its changes.
struct World {
    zone: Zone,
    twin: Zone,
    model: Model,
    now: u64,
    store: Arc<MemoryChunks>,
}

fn digest(zone: &mut Zone, store: &MemoryChunks) -> Hash {
    zone.snapshot().unwrap().digest(store).unwrap()
}

fn pick(all: impl Iterator<Item = u64>, index: usize) -> Option<u64> {
    let all: Vec<u64> = all.collect();
    (!all.is_empty()).then(|| all[index % all.len()])
}

impl World {
    fn new() -> Self {
        let store = store();
        let zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
        let mut world = Self {
            twin: Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone()),
            zone,
            model: Model::new(1),
            now: 1,
            store,
        };
        // The twin's own first directory counts as drained.
        world.twin.drain_changes(&DrainLimits::default()).unwrap();
        world
    }

    fn directory(&self, index: usize) -> u64 {
        let is_directory = |(_, node): &(&u64, &Node)| matches!(node.content, Content::Directory(_));
        pick(self.model.nodes.iter().filter(is_directory).map(|(inode, _)| *inode), index).unwrap()
    }

    fn opened(&self, index: usize) -> Option<u64> {
        pick(self.model.open.keys().copied(), index)
    }

    fn drain(&mut self, limits: &DrainLimits) {
        let drained = self.zone.drain_changes(limits).unwrap();
        assert!(!self.zone.is_dirty());
        for hash in &drained.needs {
            self.store.get(hash).unwrap();
        }
        let sent = postcard::to_stdvec(&drained.changes).unwrap();
        let received: Vec<Change> = postcard::from_bytes(&sent).unwrap();
        self.twin.apply(&received).unwrap();
        assert_eq!(digest(&mut self.zone, &self.store), digest(&mut self.twin, &self.store));
        assert!(!self.zone.is_dirty() && !self.twin.is_dirty());
    }

    /// The same zone in a new process: from its root, with the same files open.
    fn resumed(&mut self, root: ZoneRoot) -> Zone {
        let mut zone = Zone::from_root(root, self.store.clone());
        for (inode, count) in &self.model.open {
            (0..*count).for_each(|_| zone.open_inode(Inode(*inode)).unwrap());
        }
        zone.drop_orphans_except(&BTreeSet::new()).unwrap();
        zone
    }

    fn fork(&mut self) -> World {
        self.drain(&DrainLimits::default());
        let root = self.zone.snapshot().unwrap();
        let twin = Zone::from_root(self.twin.snapshot().unwrap(), self.store.clone());
        World {
            zone: self.resumed(root),
            twin,
            model: self.model.clone(),
            now: self.now,
            store: self.store.clone(),
        }
    }

    fn step(&mut self, step: &Step) {
        self.now += 1;
        let now = self.now;
        let access = agent(now);
        match *step {
            Step::Create(dir, name) => {
                let (dir, name) = (self.directory(dir), [b'a' + name]);
                let options = OpenOptions { exclusive: true, ..CREATE };
                let found = self.zone.open(access, Inode(dir), &name, options).map(|inode| inode.0);
                let wanted = self.model.create(dir, &name, Content::File(Vec::new()), now);
                if let Ok(inode) = wanted {
                    self.model.open(inode);
                }
                same(found, wanted);
            }
            Step::Mkdir(dir, name) => {
                let (dir, name) = (self.directory(dir), [b'a' + name]);
                let found = self.zone.mkdir(access, Inode(dir), &name).map(|inode| inode.0);
                same(found, self.model.create(dir, &name, Content::Directory(BTreeMap::default()), now));
            }
            Step::Symlink(dir, name, len) => {
                let (dir, name, target) = (self.directory(dir), [b'a' + name], vec![b'x'; len]);
                let found = self.zone.symlink(access, &target, Inode(dir), &name).map(|inode| inode.0);
                same(found, self.model.create(dir, &name, Content::Symlink(target), now));
            }
            Step::Remove(dir, name, rmdir) => {
                let (dir, name) = (self.directory(dir), [b'a' + name]);
                let found = if rmdir {
                    self.zone.rmdir(access, Inode(dir), &name)
                } else {
                    self.zone.unlink(access, Inode(dir), &name)
                };
                same(found, self.model.remove(dir, &name, rmdir, now));
            }
            Step::Link(from, to) => {
                let (from, to) = (self.place(from), self.place(to));
                let places = ((Inode(from.0), &from.1[..]), (Inode(to.0), &to.1[..]));
                let found = self.zone.link(access, places.0, false, places.1);
                same(found, self.model.link((from.0, &from.1), (to.0, &to.1), now));
            }
            Step::Rename(from, to) => {
                let (from, to) = (self.place(from), self.place(to));
                let found = self.zone.rename(access, (Inode(from.0), &from.1), (Inode(to.0), &to.1));
                same(found, self.model.rename((from.0, &from.1), (to.0, &to.1), now));
            }
            Step::Open(index) => {
                let inode = pick(self.model.nodes.keys().copied(), index).unwrap();
                self.zone.open_inode(Inode(inode)).unwrap();
                self.model.open(inode);
            }
            Step::Close(index) => {
                if let Some(inode) = self.opened(index) {
                    self.zone.close(Inode(inode)).unwrap();
                    self.model.close(inode);
                }
            }
            Step::Write(index, offset, len, seed) => {
                let Some(inode) = self.opened(index) else { return };
                let data = pattern(len, seed);
                let found = self.zone.write(access, Inode(inode), offset as u64, &data);
                same(found, self.model.write(inode, offset, &data, now).map(|()| len));
            }
            Step::Append(index, len, seed) => {
                let Some(inode) = self.opened(index) else { return };
                let data = pattern(len, seed);
                let end = self.model.nodes[&inode].size();
                if end > 400_000 {
                    return;
                }
                let found = self.zone.append(access, Inode(inode), &data);
                same(found, self.model.write(inode, end as usize, &data, now).map(|()| end));
            }
            Step::SetSize(index, size) => {
                let Some(inode) = self.opened(index) else { return };
                let found = self.zone.set_size(access, Inode(inode), size as u64);
                same(found, self.model.set_size(inode, size, now));
            }
            Step::SetTimes(index, accessed, modified) => {
                let inode = pick(self.model.nodes.keys().copied(), index).unwrap();
                let times = (accessed.map(Timestamp), modified.map(Timestamp));
                self.zone.set_times(access, Inode(inode), times.0, times.1).unwrap();
                let times = &mut self.model.nodes.get_mut(&inode).unwrap().times;
                *times = [accessed.unwrap_or(times[0]), modified.unwrap_or(times[1]), now];
            }
            Step::Read(index, offset, len) => {
                let Some(inode) = self.opened(index) else { return };
                if let Content::File(bytes) = &self.model.nodes[&inode].content {
                    let mut found = vec![0xaa; len];
                    let count = self.zone.read(access, Inode(inode), offset as u64, &mut found).unwrap();
                    let from = offset.min(bytes.len());
                    assert_eq!(found[..count], bytes[from..bytes.len().min(from + len)]);
                    let shared = self.zone.read_shared(access, Inode(inode), offset as u64, len).unwrap();
                    assert!(found[..count].starts_with(&shared));
                    assert_eq!(shared.is_empty(), count == 0);
                }
            }
            Step::StoreAndLoad => {
                self.drain(&DrainLimits::default());
                let stored = self.zone.snapshot().unwrap().store(&*self.store).unwrap();
                assert_eq!(verify(&stored, &*self.store).unwrap().counters, stored.counters);
                self.zone = self.resumed(ZoneRoot::load(stored));
            }
            Step::Drain(chunk, total) => self.drain(&DrainLimits { chunk, total }),
            Step::Spill => self.zone.spill().unwrap(),
            Step::Fork | Step::Switch(_) => {}
        }
        assert_eq!(self.zone.usage(), self.model.usage());
    }

    fn place(&self, (dir, name): (usize, u8)) -> (u64, [u8; 1]) {
        (self.directory(dir), [b'a' + name])
    }

    fn check_everything(&mut self) {
        self.drain(&DrainLimits::default());
        for (number, node) in &self.model.nodes {
            let inode = Inode(*number);
            let stat = self.zone.stat(agent(0), inode).unwrap();
            assert_eq!((stat.kind, stat.links, stat.size), (node.kind(), node.links, node.size()));
            assert_eq!([stat.accessed.0, stat.modified.0, stat.changed.0], node.times);
            match &node.content {
                Content::File(bytes) => {
                    self.zone.open_inode(inode).unwrap();
                    assert_eq!(&content(&mut self.zone, inode), bytes);
                    self.zone.close(inode).unwrap();
                }
                Content::Directory(entries) => {
                    let listed = self.zone.readdir(agent(0), inode, None, usize::MAX).unwrap();
                    let listed = listed.iter().map(|entry| (entry.name.as_bytes(), entry.inode.0));
                    assert!(listed.eq(entries.iter().map(|(name, inode)| (name.as_slice(), *inode))));
                }
                Content::Symlink(_) => {}
            }
        }
        // Nothing is left of what is gone.
        let resident = self.zone.resident_bytes();
        let held = held_bytes(&mut self.zone, &self.store);
        assert_eq!(resident, held);
        let records = inodes_of(&mut self.zone, &self.store);
        assert!(records.iter().eq(self.model.nodes.keys()));
    }
}

fn held_bytes(zone: &mut Zone, store: &MemoryChunks) -> usize {
    let root = zone.snapshot().unwrap();
    let lens = root.tree().entries(store).unwrap().map(|entry| match entry.unwrap().1 {
        Value::Extent(crate::tree::ExtentValue::Memory(extent)) => extent.bytes().len(),
        _ => 0,
    });
    lens.sum()
}

/// The inodes that own anything at all in the tree.
fn inodes_of(zone: &mut Zone, store: &MemoryChunks) -> BTreeSet<u64> {
    let root = zone.snapshot().unwrap();
    let inodes = root.tree().entries(store).unwrap().map(|entry| match entry.unwrap().0 {
        Key { part: crate::tree::Part::Orphan(inode), .. } => inode.0,
        key => key.inode.0,
    });
    inodes.collect()
}

#[allow(clippy::needless_pass_by_value, reason = "results are made to be compared")]
fn same<T: PartialEq + fmt::Debug>(found: Result<T>, wanted: Result<T, ErrorCode>) {
    let found = found.map_err(|error| error.code);
    assert!(found == wanted, "{found:?} instead of {wanted:?}");
}

fn run(steps: &[Step]) {
    // every second zone lets go of its memory all the time
    let little = Bounds { content: 4 << 10, changed: 8, ..Bounds::USUAL };
    BOUNDS.set(if steps.len() % 2 == 1 { little } else { Bounds::USUAL });
    let mut worlds = vec![World::new()];
    let mut current = 0;
    for step in steps {
        match step {
            Step::Fork if worlds.len() < 4 => {
                let fork = worlds[current].fork();
                worlds.push(fork);
            }
            Step::Switch(to) => current = to % worlds.len(),
            step => worlds[current].step(step),
        }
    }
    worlds.iter_mut().for_each(World::check_everything);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model(steps in vec(steps(), 1..250)) {
        run(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model_for_long(steps in vec(steps(), 4000)) {
        run(&steps);
    }
}
