//! The state behind a simulated device: what is seen, what is durable, what lies between.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::names::{NameChange, Names};
use super::rng::Rng;
use super::trace::Event;
use super::{Fault, SECTOR};

/// Names an inode of the simulated disk; stays valid when the file is renamed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(u64);

/// Content is shared with copies of the disk until one of them changes it.
#[derive(Clone, Debug, Default)]
struct Inode {
    /// What a crash cannot take away.
    durable: Arc<Vec<u8>>,
    /// What readers see.
    live: Arc<Vec<u8>>,
    /// Writes since the last flush, oldest first.
    pending: Vec<(u64, Arc<[u8]>)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub all: u64,
    pub writes: u64,
    pub flushes: u64,
    pub reads: u64,
    pub opened: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub rng: Rng,
    pub faults: Vec<Fault>,
    pub counts: Counts,
    /// What has changed, in order, since somebody asked for it.
    pub trace: Option<Vec<Event>>,
    stopped: bool,
    names: Names,
    inodes: BTreeMap<FileId, Inode>,
    next: u64,
}

/// What becomes of an operation that is about to begin.
enum Fate {
    Goes,
    /// The machine stops now; a part of the operation may still happen.
    Interrupted,
}

impl Disk {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            faults: Vec::new(),
            counts: Counts::default(),
            trace: None,
            stopped: false,
            names: Names::default(),
            inodes: BTreeMap::new(),
            next: 0,
        }
    }

    fn alive(&self) -> io::Result<()> {
        if self.stopped { Err(stopped()) } else { Ok(()) }
    }

    fn begin(&mut self) -> io::Result<Fate> {
        self.alive()?;
        self.counts.all += 1;
        if self.faults.contains(&Fault::Stop(self.counts.all)) {
            self.stopped = true;
            return Ok(Fate::Interrupted);
        }
        Ok(Fate::Goes)
    }

    fn note(&mut self, event: impl FnOnce() -> Event) {
        if let Some(trace) = &mut self.trace {
            trace.push(event());
        }
    }

    /// Bytes of the files that have a name.
    pub fn bytes(&self) -> u64 {
        let named = self.names.seen().values().filter_map(|id| self.inodes.get(id));
        named.map(|inode| inode.live.len() as u64).sum()
    }

    /// What a fault of capacity leaves.
    pub fn free(&self) -> Option<u64> {
        let used = self.bytes();
        let left = self.faults.iter().filter_map(|fault| match fault {
            Fault::Capacity(bytes) => Some(bytes.saturating_sub(used)),
            _ => None,
        });
        left.min()
    }

    fn room_for(&self, more: u64) -> io::Result<()> {
        let used = self.bytes();
        let full = self.faults.iter().any(|fault| match fault {
            Fault::Capacity(bytes) => more > 0 && used + more > *bytes,
            _ => false,
        });
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Changes a name, and syncs the folder as devices do, unless this one forgets to.
    fn change_name(&mut self, change: NameChange) {
        self.names.change(change);
        if !self.faults.contains(&Fault::NoFolderSync) {
            self.names.sync();
        }
    }

    pub fn create(&mut self, path: &str, len: u64) -> io::Result<FileId> {
        if self.names.find(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.take_descriptor()?;
        let fate = self.begin()?;
        self.room_for(len)?;
        let len = match fate {
            Fate::Goes => len,
            Fate::Interrupted if self.rng.one_in(2) => return Err(stopped()),
            Fate::Interrupted => self.rng.below(len + 1),
        };
        let id = self.make(path, len);
        self.note(|| Event::Create(path.to_owned(), len));
        self.alive().map(|()| id)
    }

    pub fn make(&mut self, path: &str, len: u64) -> FileId {
        self.next += 1;
        let id = FileId(self.next);
        let zeros = Arc::new(vec![0; len as usize]);
        self.inodes.insert(id, Inode { durable: zeros.clone(), live: zeros, pending: Vec::new() });
        self.change_name(NameChange::Create(path.to_owned(), id));
        id
    }

    pub fn find(&self, path: &str) -> io::Result<FileId> {
        self.alive()?;
        self.names.find(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn open(&mut self, path: &str) -> io::Result<FileId> {
        let found = self.find(path)?;
        self.take_descriptor().map(|()| found)
    }

    fn take_descriptor(&mut self) -> io::Result<()> {
        self.counts.opened += 1;
        let many =
            |fault: &Fault| matches!(fault, Fault::Descriptors(allowed) if self.counts.opened > *allowed);
        if self.faults.iter().any(many) { Err(rustix::io::Errno::MFILE.into()) } else { Ok(()) }
    }

    pub fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.alive()?;
        let inside = |path: &String| match path.split_once('/') {
            Some((parent, name)) => (parent == folder).then(|| name.to_owned()),
            None => folder.is_empty().then(|| path.clone()),
        };
        Ok(self.names.seen().keys().filter_map(inside).collect())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.find(from)?;
        if matches!(self.begin()?, Fate::Interrupted) && self.rng.one_in(2) {
            return Err(stopped());
        }
        self.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        self.note(|| Event::Rename(from.to_owned(), to.to_owned()));
        self.alive()
    }

    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        self.find(path)?;
        if matches!(self.begin()?, Fate::Interrupted) && self.rng.one_in(2) {
            return Err(stopped());
        }
        self.change_name(NameChange::Remove(path.to_owned()));
        self.note(|| Event::Remove(path.to_owned()));
        self.alive()
    }

    pub fn write(&mut self, id: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.alive()?;
        self.counts.writes += 1;
        if self.faults.contains(&Fault::Write(self.counts.writes)) {
            self.counts.all += 1;
            return Err(io::Error::other("simulated: the write failed"));
        }
        // An interrupted write is one that was never flushed.
        self.begin()?;
        let end = offset + bytes.len() as u64;
        let more = end.saturating_sub(self.inode(id)?.live.len() as u64);
        self.room_for(more)?;
        let bytes: Arc<[u8]> = bytes.into();
        self.put(id, offset, &bytes)?;
        self.note(|| Event::Write(id, offset, bytes));
        self.alive()
    }

    pub fn put(&mut self, id: FileId, offset: u64, bytes: &Arc<[u8]>) -> io::Result<()> {
        let inode = self.inode_mut(id)?;
        put(Arc::make_mut(&mut inode.live), offset, bytes);
        inode.pending.push((offset, bytes.clone()));
        Ok(())
    }

    pub fn flush(&mut self, id: FileId) -> io::Result<()> {
        self.alive()?;
        self.counts.flushes += 1;
        if self.faults.contains(&Fault::Flush(self.counts.flushes)) {
            self.counts.all += 1;
            self.lose(id)?;
            self.note(|| Event::Lose(id));
            return Err(io::Error::other("simulated: the flush failed"));
        }
        if matches!(self.begin()?, Fate::Goes) {
            self.settle(id)?;
            self.note(|| Event::Flush(id));
        }
        self.alive()
    }

    /// What was written is durable now.
    pub fn settle(&mut self, id: FileId) -> io::Result<()> {
        let inode = self.inode_mut(id)?;
        let pending = std::mem::take(&mut inode.pending);
        let durable = Arc::make_mut(&mut inode.durable);
        for (offset, bytes) in pending {
            put(durable, offset, &bytes);
        }
        Ok(())
    }

    /// A flush failed. The kernel forgets that the pages were dirty: no later flush makes them
    /// durable, so from here on they are lost at a crash. Readers still see them.
    pub fn lose(&mut self, id: FileId) -> io::Result<()> {
        self.inode_mut(id)?.pending.clear();
        Ok(())
    }

    pub fn read(&mut self, id: FileId, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.alive()?;
        self.counts.reads += 1;
        if self.faults.contains(&Fault::Read(self.counts.reads)) {
            return Err(io::Error::other("simulated: the read failed"));
        }
        let live = &self.inode(id)?.live;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(live.len());
        let found = live.get(start..start + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(found);
        Ok(())
    }

    pub fn len(&self, id: FileId) -> io::Result<u64> {
        self.alive()?;
        Ok(self.inode(id)?.live.len() as u64)
    }

    pub fn tamper(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let id = self.find(path)?;
        let inode = self.inode_mut(id)?;
        change(Arc::make_mut(&mut inode.live));
        inode.durable = inode.live.clone();
        inode.pending.clear();
        Ok(())
    }

    /// A copy without faults and counts, and with another generator.
    fn copy(&self, rng: Rng) -> Self {
        let mut copy = Self::new(0);
        copy.rng = rng;
        copy.names = self.names.clone();
        copy.inodes.clone_from(&self.inodes);
        copy.next = self.next;
        copy
    }

    pub fn killed(&self) -> Self {
        self.copy(Rng::new(self.rng.clone().bits()))
    }

    /// As it is now, for a replay of what comes later.
    pub fn beginning(&self) -> Self {
        let mut copy = self.copy(self.rng.clone());
        copy.faults = self.faults.iter().filter(|it| **it == Fault::NoFolderSync).copied().collect();
        copy
    }

    pub fn crash(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut found = Self::new(rng.bits());
        found.next = self.next;
        found.names = self.names.after_crash(&mut rng);
        for id in found.names.seen().values() {
            if let Some(inode) = self.inodes.get(id) {
                let left = inode.after_crash(&mut rng);
                found.inodes.insert(*id, Inode { durable: left.clone(), live: left, pending: Vec::new() });
            }
        }
        found
    }

    /// Whether a crash now could go in more than one way.
    pub fn is_settled(&self) -> bool {
        self.names.is_settled() && self.inodes.values().all(|it| it.pending.is_empty())
    }

    /// The same for disks that hold the same.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        for (path, id) in self.names.seen() {
            path.hash(&mut hasher);
            if let Some(inode) = self.inodes.get(id) {
                (inode.live.len(), crc32fast::hash(&inode.live)).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn inode(&self, id: FileId) -> io::Result<&Inode> {
        self.inodes.get(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn inode_mut(&mut self, id: FileId) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Inode {
    /// How a crash goes differs from file to file: everything kept, everything lost, or a mixture.
    fn after_crash(&self, rng: &mut Rng) -> Arc<Vec<u8>> {
        if self.pending.is_empty() && self.live.len() <= self.durable.len() {
            return self.durable.clone();
        }
        let mut content = self.durable.to_vec();
        let lost_in_ten = match rng.below(4) {
            0 => 0,
            1 => 10,
            2 => 1,
            _ => 5,
        };
        let mut sectors: Vec<(u64, &[u8])> = Vec::new();
        for (offset, bytes) in &self.pending {
            for range in sectors_of(*offset, bytes.len()) {
                if rng.below(10) >= lost_in_ten {
                    let (start, end) = ((range.start - offset) as usize, (range.end - offset) as usize);
                    let torn = if rng.one_in(16) { rng.below((end - start) as u64) as usize } else { 0 };
                    sectors.push((range.start, &bytes[start..end - torn]));
                }
            }
        }
        if rng.one_in(2) {
            rng.shuffle(&mut sectors);
        }
        for (offset, bytes) in sectors {
            put(&mut content, offset, bytes);
        }
        // The length is metadata, and can be durable without the content, or without its end.
        if self.live.len() > content.len() && rng.one_in(3) {
            let more = rng.below((self.live.len() - content.len()) as u64 + 1) as usize;
            content.resize(content.len() + more, 0);
        }
        Arc::new(content)
    }
}

/// The parts of `offset..offset + len` that lie in different sectors.
fn sectors_of(offset: u64, len: usize) -> impl Iterator<Item = Range<u64>> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let next = (at - at % SECTOR as u64 + SECTOR as u64).min(end);
        let range = at..next;
        at = next;
        Some(range)
    })
}

fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

fn stopped() -> io::Error {
    io::Error::other("simulated: the machine has stopped")
}
