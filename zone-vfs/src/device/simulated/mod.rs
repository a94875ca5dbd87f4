//! A device in memory that behaves as badly as a real one may.
//!
//! Everything follows from seeds. What was not flushed is kept, dropped, torn or reordered sector
//! by sector in [`Simulated::crash`]; [`Fault`]s make single operations fail.

mod disk;
mod hold;
mod names;
mod rng;
mod trace;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AlignedBuf, Caching, Device, DeviceFile, DurableError, check_path};
use disk::{Disk, FileId};
use hold::Hold;
pub use rng::Rng;
pub use trace::Trace;

/// The unit in which unflushed writes survive or are lost. Bytes.
pub const SECTOR: usize = 512;

/// Something that goes wrong on a [`Simulated`] device. Operations are counted from 1, over all
/// files, from the making of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th write fails with an I/O error and does nothing.
    Write(u64),
    /// The n-th flush fails; what it would have made durable may be lost.
    Flush(u64),
    /// The n-th read fails with an I/O error.
    Read(u64),
    /// The machine stops in the middle of the n-th operation that changes anything; this one and
    /// all later ones fail, reads too. What a [`crash`](Simulated::crash) then finds may hold
    /// this operation, or a part of it, or nothing of it.
    Stop(u64),
    /// Files together hold at most so many bytes; what would need more is refused as on a full
    /// disk.
    Capacity(u64),
    /// Only so many times a file can be opened or created; after that there are too few descriptors.
    Descriptors(u64),
    /// Folders are not synced when a name in them changes: the change may be lost at a crash.
    NoFolderSync,
}

/// A device in memory.
#[derive(Clone, Debug)]
pub struct Simulated {
    disk: Arc<Mutex<Disk>>,
    hold: Arc<Hold>,
}

impl Simulated {
    /// An empty device.
    pub fn new(seed: u64) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(seed))), hold: Arc::default() }
    }

    /// What a machine that lost power now would find at its next start. This device goes on as if
    /// nothing had happened, but every operation on it should be a thing of the past.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        Self::on(self.lock().crash(seed))
    }

    /// What another process would find now: everything, also what was not flushed, and no faults.
    #[must_use]
    pub fn killed(&self) -> Self {
        Self::on(self.lock().killed())
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Takes all faults away.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Takes away what makes the disk full.
    pub fn heal_space(&self) {
        self.lock().faults.retain(|fault| !matches!(fault, Fault::Capacity(_)));
    }

    /// How many bytes all files have together.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// How many operations have changed, or tried to change, anything.
    pub fn operations(&self) -> u64 {
        self.lock().counts.all
    }

    /// How many writes there were.
    pub fn writes(&self) -> u64 {
        self.lock().counts.writes
    }

    /// How many flushes there were.
    pub fn flushes(&self) -> u64 {
        self.lock().counts.flushes
    }

    /// How many reads there were.
    pub fn reads(&self) -> u64 {
        self.lock().counts.reads
    }

    /// How often a file was opened or created.
    pub fn opened(&self) -> u64 {
        self.lock().counts.opened
    }

    /// A number that is the same for devices that hold the same.
    pub fn fingerprint(&self) -> u64 {
        self.lock().fingerprint()
    }

    /// Changes stored bytes behind the owner's back: `change` gets the whole file.
    pub fn tamper(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.lock().tamper(path, change)
    }

    /// Flips one bit of a stored file.
    pub fn flip_bit(&self, path: &str, bit: u64) -> io::Result<()> {
        self.tamper(path, |bytes| {
            if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // The disk is changed by whole assignments, so a panic elsewhere leaves it usable.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Simulated {
    fn kind(&self) -> &'static str {
        "simulated"
    }

    fn create(&self, path: &str, len: u64, _: Caching) -> io::Result<Arc<dyn DeviceFile>> {
        check_path(path)?;
        self.hold.pass(path);
        let id = self.lock().create(path, len)?;
        Ok(Arc::new(SimulatedFile { device: self.clone(), path: path.to_owned(), id }))
    }

    fn open(&self, path: &str, _: Caching) -> io::Result<Arc<dyn DeviceFile>> {
        check_path(path)?;
        let id = self.lock().open(path)?;
        Ok(Arc::new(SimulatedFile { device: self.clone(), path: path.to_owned(), id }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.lock().list(folder)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_path(from)?;
        check_path(to)?;
        self.lock().rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        check_path(path)?;
        self.lock().remove(path)
    }

    fn free(&self) -> io::Result<Option<u64>> {
        Ok(self.lock().free())
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.lock().rng.fill(bytes);
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    device: Simulated,
    /// Under which it was opened.
    path: String,
    id: FileId,
}

impl DeviceFile for SimulatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.hold.pass(&self.path);
        self.device.lock().write(self.id, offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.hold.pass(&self.path);
        self.device.lock().flush(self.id)
    }

    fn write_durably_while(
        &self,
        offset: u64,
        bytes: &AlignedBuf,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), DurableError> {
        let written = self.write_at(offset, bytes);
        meanwhile();
        written.map_err(DurableError::Write)?;
        self.flush().map_err(DurableError::Flush)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.lock().read(self.id, offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.device.lock().len(self.id)
    }
}
