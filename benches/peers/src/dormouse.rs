//! Dormouse: a workspace zone of one agent.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use tempfile::TempDir;
use zone_vfs::contract::{Principal, ZoneKind};
use zone_vfs::id::{GenerationNumber, Inode, Timestamp};
use zone_vfs::store::{Cause, Disk, NewAgent, NewGeneration, Store, StoreOptions, ZoneSpec, wait};
use zone_vfs::zone::{Access, OpenOptions, Quota, Zone, ZoneError};

use crate::peer::{Peer, Snapshot};

/// The one zone that the agent has.
const ZONE: u16 = 0;
/// Names that are asked for at a time.
const LISTED: usize = 1024;

const READ: OpenOptions = OpenOptions {
    read: true,
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
    write: false,
    follow: false,
};
const WRITE: OpenOptions = OpenOptions { write: true, ..READ };
const CREATE: OpenOptions = OpenOptions { create: true, exclusive: true, ..WRITE };

/// The store, and the folder that it lies in.
struct Home {
    store: Store,
    _folder: TempDir,
}

/// An agent's disk in a store.
pub struct Dormouse {
    disk: Arc<Disk>,
    home: Rc<Home>,
    forks: u32,
}

fn access() -> Access {
    Access::new(Principal::Agent, Timestamp::now())
}

fn new_agent(name: String) -> NewAgent {
    NewAgent { name, about: Vec::new(), generation: Vec::new() }
}

impl Dormouse {
    /// An empty zone in a new store in `place`.
    pub fn new(place: &Path) -> anyhow::Result<Self> {
        let folder = TempDir::new_in(place)?;
        let store = Store::open(&folder.path().join("store"), &StoreOptions::default())?;
        let workspace = ZoneSpec {
            name: "workspace".into(),
            mount: "/workspace".into(),
            kind: ZoneKind::Workspace,
            quota: Quota::default(),
            shared: None,
        };
        let disk = store.create(Store::new_id()?, &new_agent("agent".into()), vec![workspace])?;
        Ok(Self { disk, home: Rc::new(Home { store, _folder: folder }), forks: 0 })
    }

    /// Works on the zone. What it does is seen at once, and durable with the next commit.
    fn zone<R>(&self, work: impl FnOnce(&mut Zone) -> Result<R, ZoneError>) -> anyhow::Result<R> {
        Ok(self.disk.zone(ZONE, work).context("there is no zone")??)
    }

    /// Works on the zone, and waits until all is durable, with one commit.
    fn durably(&self, work: impl FnOnce(&mut Zone) -> Result<(), ZoneError>) -> anyhow::Result<()> {
        self.zone(work)?;
        Ok(wait(|done| self.disk.sync(done))?)
    }

    /// Makes a generation of what stands now.
    fn mark(&self) -> anyhow::Result<GenerationNumber> {
        let generation = NewGeneration { cause: Cause::Operated, about: Vec::new(), on: None };
        Ok(wait(|done| self.disk.mark(generation, done))?)
    }
}

fn read_all(zone: &mut Zone, file: &str, into: &mut Vec<u8>) -> Result<(), ZoneError> {
    let access = access();
    let inode = zone.open(access, Inode::ROOT, file.as_bytes(), READ)?;
    let size = zone.stat(access, inode)?.size;
    into.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
    zone.read(access, inode, 0, into)?;
    zone.close(inode)
}

impl Peer for Dormouse {
    fn name(&self) -> String {
        format!("Dormouse, {}", self.home.store.device())
    }

    fn make_folders(&mut self, folders: &[String]) -> anyhow::Result<()> {
        self.durably(|zone| {
            folders.iter().try_for_each(|folder| {
                zone.mkdir(access(), Inode::ROOT, folder.as_bytes())?;
                Ok(())
            })
        })
    }

    fn create(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        self.durably(|zone| {
            files.iter().try_for_each(|(file, content)| {
                let access = access();
                let inode = zone.open(access, Inode::ROOT, file.as_bytes(), CREATE)?;
                zone.write(access, inode, 0, content)?;
                zone.close_writer(inode)
            })
        })
    }

    fn overwrite(&mut self, file: &str, content: &[u8]) -> anyhow::Result<()> {
        self.durably(|zone| {
            let access = access();
            let inode = zone.open(access, Inode::ROOT, file.as_bytes(), WRITE)?;
            zone.write(access, inode, 0, content)?;
            zone.close_writer(inode)
        })
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.durably(|zone| {
            let access = access();
            let inode = zone.open(access, Inode::ROOT, file.as_bytes(), WRITE)?;
            zone.append(access, inode, bytes)?;
            zone.close_writer(inode)
        })
    }

    fn rename(&mut self, moves: &[(String, String)]) -> anyhow::Result<()> {
        self.durably(|zone| {
            moves.iter().try_for_each(|(from, to)| {
                zone.rename(access(), (Inode::ROOT, from.as_bytes()), (Inode::ROOT, to.as_bytes()))
            })
        })
    }

    fn remove(&mut self, files: &[String]) -> anyhow::Result<()> {
        self.durably(|zone| {
            files.iter().try_for_each(|file| zone.unlink(access(), Inode::ROOT, file.as_bytes()))
        })
    }

    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        self.zone(|zone| read_all(zone, file, into))
    }

    fn size(&mut self, file: &str) -> anyhow::Result<u64> {
        self.zone(|zone| Ok(zone.stat_at(access(), Inode::ROOT, file.as_bytes(), false)?.size))
    }

    fn list(&mut self, folder: &str, name: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let access = access();
        let inode = self.zone(|zone| zone.resolve(access, Inode::ROOT, folder.as_bytes(), false))?;
        let mut after = None;
        loop {
            let entries = self.zone(|zone| zone.readdir(access, inode, after.as_ref(), LISTED))?;
            for entry in &entries {
                name(std::str::from_utf8(entry.name.as_bytes())?);
            }
            match entries.into_iter().next_back() {
                Some(last) => after = Some(last.name),
                None => return Ok(()),
            }
        }
    }

    fn snapshot(&mut self) -> anyhow::Result<Box<dyn Snapshot>> {
        let generation = self.mark()?;
        Ok(Box::new(Generation { zone: self.disk.zone_at(generation, ZONE)? }))
    }

    fn fork(&mut self) -> anyhow::Result<Box<dyn Peer>> {
        let generation = self.mark()?;
        self.forks += 1;
        let child = (Store::new_id()?, new_agent(format!("fork-{}", self.forks)));
        let disk = self.home.store.fork(&self.disk, generation, &[child])?.pop();
        let disk = disk.context("nothing was forked")?;
        Ok(Box::new(Self { disk, home: self.home.clone(), forks: 0 }))
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.home.store.remove(self.disk.id())?)
    }
}

/// The zone as it was in a generation, which the store goes on keeping.
struct Generation {
    zone: Zone,
}

impl Snapshot for Generation {
    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(read_all(&mut self.zone, file, into)?)
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}
