//! Who reads what stood earlier: a reaping takes nothing that somebody is looking at.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::disk::Disk;
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::id::Hash;
use crate::zone::ZoneRoot;

/// Zones that were handed out for reading, and disks of agents that are gone.
#[derive(Default)]
pub(super) struct Readers {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    roots: Vec<(Weak<dyn ChunkStore>, ZoneRoot)>,
    disks: Vec<Weak<Disk>>,
    /// Those that nobody holds any more are looked for when there are so many.
    sweep_at: usize,
}

/// The chunks of a zone that is read; what it holds is needed for as long as this is there.
struct Pinned(Arc<dyn ChunkStore>);

impl ChunkStore for Pinned {
    fn get(&self, hash: &Hash) -> Result<Arc<[u8]>, ChunkError> {
        self.0.get(hash)
    }

    fn put(&self, kind: FrameKind, plain: &[u8]) -> Result<Hash, ChunkError> {
        self.0.put(kind, plain)
    }

    fn loaded(&self, bytes: usize) {
        self.0.loaded(bytes);
    }
}

impl Readers {
    /// The chunks for a zone that is made of `root`.
    pub fn pin(&self, root: &ZoneRoot, chunks: Arc<dyn ChunkStore>) -> Arc<dyn ChunkStore> {
        let pinned: Arc<dyn ChunkStore> = Arc::new(Pinned(chunks));
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.roots.len() >= held.sweep_at {
            held.forget_gone();
        }
        held.roots.push((Arc::downgrade(&pinned), root.clone()));
        pinned
    }

    /// Notes that an agent is gone, whose disk somebody may still hold.
    pub fn departed(&self, disk: &Arc<Disk>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.disks.push(Arc::downgrade(disk));
    }

    /// What is being read now.
    pub fn needed(&self) -> (Vec<ZoneRoot>, Vec<Arc<Disk>>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.forget_gone();
        let roots = held.roots.iter().map(|(_, root)| root.clone()).collect();
        (roots, held.disks.iter().filter_map(Weak::upgrade).collect())
    }
}

impl Held {
    fn forget_gone(&mut self) {
        self.roots.retain(|(pinned, _)| pinned.strong_count() > 0);
        self.disks.retain(|disk| disk.strong_count() > 0);
        self.sweep_at = 16 + 2 * self.roots.len();
    }
}
