//! What the host keeps for an instance.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::WasiCtx;
use zone_vfs::contract::{Principal, ZoneKind};
use zone_vfs::id::Inode;
use zone_vfs::store::{Disk, DiskInfo, SharedMount, StoreError, ZoneSpec};
use zone_vfs::zone::{Access, ErrorCode, OpenedFor};

use super::fs::Listing;
use super::object::{Descriptor, Flags, Object};
use super::outside::{LiveOutside, Outside};
use super::stdio::Stdio;
use super::table::{HandleError, HandleTable};
use crate::code::Cpu;
use crate::component::limits;
use crate::image::SlotMemory;

/// Why an instance is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The agent is new.
    Created,
    /// The agent was resumed.
    Resumed,
    /// The agent is a fork that runs for the first time.
    Forked,
    /// The agent was rewound.
    Rewound,
    /// The agent has a new component, and its memory begins anew.
    Upgraded,
}

/// What `dormouse:agent/lifecycle` tells.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    /// The agent's id.
    pub id: String,
    /// The agent's name.
    pub name: String,
    /// Changes with every start.
    pub generation: u64,
    /// The id of the agent that it is a fork of.
    pub parent: Option<String>,
    /// Why this instance was started.
    pub start: Start,
}

impl Lifecycle {
    /// What an agent is told, with the number of its start.
    pub(crate) fn of(info: &DiskInfo, generation: u64, start: Start) -> Self {
        Self {
            id: info.id.to_string(),
            name: info.name.clone(),
            generation,
            parent: info.parent.map(|(id, _)| id.to_string()),
            start,
        }
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { id: String::new(), name: String::new(), generation: 0, parent: None, start: Start::Created }
    }
}

/// What a component asked about its surroundings while it was instantiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Touched {
    /// Environment or arguments.
    pub environment: bool,
    /// The preopened zones.
    pub zones: bool,
    /// A clock.
    pub clocks: bool,
    /// Random numbers.
    pub random: bool,
}

impl Touched {
    /// Whether an image that was taken after depends on what was asked.
    pub fn any(self) -> bool {
        self.environment || self.zones || self.clocks || self.random
    }
}

/// Bounds on what an instance may take of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of an instance's linear memories and tables, and of the heap of its exceptions, together; an entry of a table
    /// takes [`TABLE_ENTRY`].
    pub memory: usize,
    /// Elements of each table.
    pub table: usize,
    /// Bytes of that which the instance has.
    pub(crate) used: usize,
    /// What the last growth added, until it is known to have succeeded.
    growing: usize,
    /// Bytes of the instance's tables.
    pub(crate) tables: usize,
    /// Bytes that it would have had, where the last growth was refused for that.
    pub(crate) refused: Option<usize>,
}

/// Bytes that an entry of a table takes.
const TABLE_ENTRY: usize = 8;

impl MemoryLimits {
    /// Bounds that an instance begins under.
    pub fn new(memory: usize, table: usize) -> Self {
        Self { memory, table, used: 0, growing: 0, tables: 0, refused: None }
    }

    /// Whether so many bytes may be had; one more instance is told why where not.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = bytes <= self.memory;
        self.refused = (!has_room).then_some(bytes);
        has_room
    }

    /// The same with another bound on memory, where there is one. Bytes.
    #[must_use]
    pub fn with(self, memory: Option<u64>) -> Self {
        match memory {
            Some(memory) => Self { memory: usize::try_from(memory).unwrap_or(usize::MAX), ..self },
            None => self,
        }
    }
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self::new(1 << 30, 1 << 20)
    }
}

impl wasmtime::ResourceLimiter for MemoryLimits {
    fn memory_growing(
        &mut self,
        now: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let used = self.used.saturating_add(desired.saturating_sub(now));
        let grows = self.has_room(used.saturating_add(self.tables)) && maximum.is_none_or(|m| desired <= m);
        self.growing = if grows { used - self.used } else { 0 };
        self.used += self.growing;
        Ok(grows)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        tracing::debug!("growing a guest's memory: {error:#}");
        self.used -= std::mem::take(&mut self.growing);
        Ok(())
    }

    fn table_growing(
        &mut self,
        now: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(now).saturating_mul(TABLE_ENTRY);
        let tables = self.tables.saturating_add(more);
        let grows = desired <= self.table
            && maximum.is_none_or(|m| desired <= m)
            && self.has_room(self.used.saturating_add(tables));
        if grows {
            // none becomes smaller, and one whose growth fails after this ends the instance
            self.tables = tables;
        }
        Ok(grows)
    }

    fn instances(&self) -> usize {
        // what the rewriter adds is not counted in the component's own
        2 * limits::MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        limits::MAX_TABLES
    }
}

/// Deletes what programs have derived from an agent's zones. It blocks.
pub(crate) type BeforeForgetting = Arc<dyn Fn() -> Result<(), crate::AgentError> + Send + Sync>;

/// The data of a store: everything that a guest's calls work on.
pub struct GuestState {
    /// The guest's handles.
    pub table: HandleTable,
    /// Those that are lent to calls under way.
    pub(crate) loans: super::guest::Loans,
    /// The agent's disk; none while a genesis image is made.
    pub disk: Option<Arc<Disk>>,
    /// Where each zone is mounted, in the order of the disk's zones.
    pub mounts: Arc<[String]>,
    /// How each zone is shared, where it is.
    pub(crate) shared: Arc<[Option<SharedMount>]>,
    /// The locks that the guest has.
    pub(crate) locks: crate::wit::Locks,
    /// What is read ahead of a directory stream.
    pub(crate) listing: Listing,
    /// Arguments, the program's name first.
    pub args: Arc<[String]>,
    /// Environment.
    pub env: Arc<[(String, String)]>,
    /// Standard streams.
    pub stdio: Stdio,
    /// Clocks and random numbers.
    pub outside: Box<dyn Outside>,
    /// What the agent is told about itself.
    pub lifecycle: Lifecycle,
    /// Bounds on memory.
    pub limits: MemoryLimits,
    /// Its processor time.
    pub(crate) cpu: Cpu,
    /// A call of the turn came to an error of the host's own, a full disk say: run again, it would come to something else.
    pub(crate) has_failed: bool,
    /// The instance's memories.
    pub(crate) memories: Vec<Arc<SlotMemory>>,
    /// Called before a sync makes final what a process has forgotten; none for what forgets at its turn's end.
    pub(crate) before_forgetting: Option<BeforeForgetting>,
    /// What was asked, for genesis.
    pub touched: Touched,
    /// The index of the zone that takes standard output and error.
    pub(crate) logs: Option<(u16, LogFiles)>,
    /// wasmtime's own table, for delegated interfaces.
    pub(crate) resources: ResourceTable,
    pub(crate) wasi: Option<WasiCtx>,
    pub(crate) http: Option<wasmtime_wasi_http::WasiHttpCtx>,
    pub(crate) http_hooks: super::delegate::DenyHttp,
}

/// The open files of `/logs/stdout` and `/logs/stderr`, once something was printed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogFiles {
    pub stdout: Option<Inode>,
    pub stderr: Option<Inode>,
}

impl Default for GuestState {
    fn default() -> Self {
        Self::over(LiveOutside::new(0, false))
    }
}

/// Where an agent's zones are mounted.
#[derive(Clone, Debug)]
pub(crate) struct Mounts {
    paths: Arc<[String]>,
    /// How each is shared, where it is.
    shared: Arc<[Option<SharedMount>]>,
    /// The index of the zone that takes standard output and error.
    logs: Option<u16>,
}

impl Mounts {
    /// Those of these zones, in order.
    pub fn of(zones: &[ZoneSpec]) -> Self {
        let logs = zones.iter().position(|z| z.kind == ZoneKind::Logs);
        Self {
            paths: zones.iter().map(|z| z.mount.clone()).collect(),
            shared: zones.iter().map(|z| z.shared).collect(),
            logs: logs.map(|index| index as u16),
        }
    }
}

impl GuestState {
    /// Whether a page that the guest has used of its memory could not be read, or is not what it was, so that nothing it
    /// does may be committed.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.memories.iter().any(|memory| memory.look().is_some())
    }

    /// A state without a disk whose nondeterministic results come from `outside`.
    pub fn over(outside: impl Outside + 'static) -> Self {
        Self {
            table: HandleTable::default(),
            loans: super::guest::Loans::default(),
            disk: None,
            mounts: Arc::default(),
            shared: Arc::default(),
            locks: crate::wit::Locks::default(),
            listing: Listing::default(),
            args: Arc::default(),
            env: Arc::default(),
            stdio: Stdio::default(),
            outside: Box::new(outside),
            lifecycle: Lifecycle::default(),
            limits: MemoryLimits::default(),
            cpu: Cpu::default(),
            has_failed: false,
            memories: Vec::new(),
            before_forgetting: None,
            touched: Touched::default(),
            logs: None,
            resources: ResourceTable::new(),
            wasi: None,
            http: None,
            http_hooks: super::delegate::DenyHttp,
        }
    }

    /// Gives the instance a disk: its zones become preopens, its handles' files are opened again, but
    /// for those of its own zones where they `stand` open.
    pub(crate) fn attach(
        &mut self,
        disk: Arc<Disk>,
        mounts: &Mounts,
        stand: bool,
    ) -> Result<(), zone_vfs::zone::ZoneError> {
        self.logs = mounts.logs.map(|index| (index, LogFiles::default()));
        self.mounts = mounts.paths.clone();
        self.shared = mounts.shared.clone();
        let mut gone = Vec::new();
        if !stand || self.shared.iter().any(Option::is_some) {
            for (zone, inode, purpose) in self.table.open_files() {
                // what others share is not asked where a turn is taken again
                let is_told = self.is_shared(zone) && disk.is_rehearsal();
                if is_told || (stand && !self.is_shared(zone)) {
                    continue;
                }
                match disk.zone(zone, |z| z.open_for(inode, purpose)) {
                    // while the agent slept, another removed it, or it was forgotten: the zone refuses each use
                    Some(Err(e)) if e.code == ErrorCode::NoEntry => {}
                    Some(opened) => opened?,
                    None => match disk.mount_fault(zone) {
                        Some(fault) if !matches!(*fault, StoreError::NoSharedZone(_)) => {
                            let mount = self.mounts.get(usize::from(zone)).map_or("", String::as_str);
                            tracing::error!("the shared zone at {mount} cannot be used: {fault}");
                            return Err(ErrorCode::Io.into());
                        }
                        // the operator removed the zone: what is open there leads nowhere
                        _ => gone.push((zone, inode)),
                    },
                }
            }
        }
        if !gone.is_empty() {
            self.table.close_files(|file| gone.contains(&file));
        }
        let nothing_more = std::collections::BTreeSet::new();
        for index in 0..self.mounts.len() {
            if stand || self.is_shared(index as u16) {
                continue; // what has no name there is open elsewhere
            }
            if let Some(result) = disk.zone(index as u16, |z| z.drop_orphans_except(&nothing_more)) {
                result?;
            }
        }
        self.disk = Some(disk);
        Ok(())
    }

    /// Refuses work on a shared zone once a page of the guest's memory could not be read: what others see at once is
    /// never taken back. What it works with has been copied out of that memory by then.
    pub(crate) fn vouch(&self, zone: u16) -> Result<(), ErrorCode> {
        if self.is_shared(zone) && self.is_unreadable() { Err(ErrorCode::Io) } else { Ok(()) }
    }

    pub(super) fn is_shared(&self, zone: u16) -> bool {
        self.shared.get(usize::from(zone)).is_some_and(Option::is_some)
    }

    /// Gives back what the instance holds open in the zones. For an instance that is dropped.
    pub fn detach(&mut self) -> Option<Arc<Disk>> {
        let disk = self.disk.take()?;
        let logs = self.logs.take().map(|(zone, files)| (zone, [files.stdout, files.stderr]));
        let held = self.table.open_files();
        let log_files = logs.into_iter().flat_map(|(zone, files)| {
            files.into_iter().flatten().map(move |inode| (zone, inode, OpenedFor::Writing))
        });
        for (zone, inode, purpose) in held.chain(log_files) {
            if let Some(Err(e)) = disk.zone(zone, |z| z.close_of(inode, purpose))
                && e.code != ErrorCode::BadDescriptor
            {
                tracing::warn!("closing inode {inode} of zone {zone}: {e}");
            }
        }
        Some(disk)
    }

    /// The agent's access to its zones, now.
    #[inline]
    pub(crate) fn access(&mut self) -> Access {
        Access::new(Principal::Agent, self.outside.zone_time())
    }

    /// New handles for the preopened zones.
    pub(super) fn preopens(&mut self) -> Result<Vec<(u32, String)>, PreopenError> {
        self.touched.zones = true;
        let Some(disk) = self.disk.clone() else { return Ok(Vec::new()) };
        let mut preopens = Vec::with_capacity(self.mounts.len());
        for (zone, path) in self.mounts.clone().iter().cloned().enumerate() {
            let zone = zone as u16;
            if let Some(opened) = disk.zone(zone, |z| z.open_inode(Inode::ROOT)) {
                opened?;
            }
            let shared = self.shared.get(usize::from(zone)).copied().flatten();
            let mutate_directory = shared.is_none_or(|mount| mount.writable);
            let flags = Flags { read: true, write: false, mutate_directory };
            let descriptor = Descriptor { zone, inode: Inode::ROOT, directory: true, flags };
            preopens.push((self.table.push(Object::Descriptor(descriptor))?, path));
        }
        Ok(preopens)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PreopenError {
    #[error(transparent)]
    Handle(#[from] HandleError),
    #[error(transparent)]
    Zone(#[from] zone_vfs::zone::ZoneError),
}
