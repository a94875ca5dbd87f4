//! The one place where a store begins: which store it is, its newest checkpoint, and where in the
//! log its recovery starts.
//!
//! Two slots of one block each in one file are written alternately, so that a torn write leaves
//! the one before.

mod slot;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use uuid::Uuid;

use crate::device::{BLOCK, Caching, Device, DeviceFile, DurableError};
use crate::id::Hash;
use crate::log::LogPosition;
use slot::{Slot, decode, encode};

/// The version of the whole store's format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The name of the file.
pub const FILE: &str = "superblock";
/// What the file is called until it is complete.
const UNFINISHED: &str = "superblock.new";

/// What the newest valid slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Counts the writes of the superblock.
    pub sequence: u64,
    /// Which store this is, for as long as it exists.
    pub store: Uuid,
    /// Drawn at each opening, so that two openings, or two copies of a store, are told apart.
    pub incarnation: Uuid,
    /// The newest checkpoint; none before the first.
    pub catalogue: Option<Hash>,
    /// Where recovery begins to read the log.
    pub log: LogPosition,
}

/// Why a superblock could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SuperblockError {
    /// There is none: no store was ever made here.
    #[error("there is no store here: no file {FILE:?}")]
    Missing,
    /// There is one already.
    #[error("there is a store here already")]
    Exists,
    /// Neither slot can be read.
    #[error("both slots of {FILE:?} are damaged")]
    Damaged,
    /// The store was written by a newer version of this program.
    #[error("the store has format {found}; this program reads up to {supported}")]
    NewerFormat {
        /// The version found.
        found: u32,
        /// The newest version that this program knows.
        supported: u32,
    },
    /// The disk is full. The superblock is as it was.
    #[error("no space left for {FILE:?}")]
    NoSpace,
    /// The device failed.
    #[error("{FILE}{}", crate::device::advice(.0))]
    Io(#[source] io::Error),
    /// A write or flush failed, now or earlier; the store has to be opened again.
    #[error("the superblock is poisoned by a failed write: {0}")]
    Poisoned(Arc<str>),
}

/// The open superblock of a store. One owner writes it.
#[derive(Debug)]
pub struct SuperblockFile {
    file: Arc<dyn DeviceFile>,
    current: Superblock,
    /// The slot that `current` does not lie in.
    next_slot: u64,
    poisoned: Option<Arc<str>>,
}

impl SuperblockFile {
    /// Makes the superblock of a new store. Interrupted, it leaves no store.
    pub fn create(device: &dyn Device) -> Result<Self, SuperblockError> {
        let names = device.list("").map_err(io_error)?;
        if names.iter().any(|name| name == FILE) {
            return Err(SuperblockError::Exists);
        }
        if names.iter().any(|name| name == UNFINISHED) {
            device.remove(UNFINISHED).map_err(io_error)?;
        }
        let file = device.create(UNFINISHED, 2 * BLOCK as u64, Caching::Direct).map_err(io_error)?;
        let current = Superblock {
            sequence: 1,
            store: draw_uuid(device)?,
            incarnation: draw_uuid(device)?,
            catalogue: None,
            log: LogPosition::START,
        };
        file.write_durably(0, &encode(&current)).map_err(|error| match error {
            DurableError::Write(error) | DurableError::Flush(error) => io_error(error),
        })?;
        device.rename(UNFINISHED, FILE).map_err(io_error)?;
        Ok(Self { file, current, next_slot: 1, poisoned: None })
    }

    /// Opens the superblock of an existing store, and records a fresh incarnation.
    pub fn open(device: &dyn Device) -> Result<Self, SuperblockError> {
        let file = match device.open(FILE, Caching::Direct) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(SuperblockError::Missing),
            Err(error) => return Err(io_error(error)),
        };
        let (current, slot) = newest(&*file)?;
        let mut opened = Self { file, current, next_slot: 1 - slot, poisoned: None };
        opened.write(Superblock { incarnation: draw_uuid(device)?, ..current })?;
        Ok(opened)
    }

    /// Reads the superblock without opening the store.
    pub fn peek(device: &dyn Device) -> Result<Superblock, SuperblockError> {
        match device.open(FILE, Caching::Cached) {
            Ok(file) => Ok(newest(&*file)?.0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SuperblockError::Missing),
            Err(error) => Err(io_error(error)),
        }
    }

    /// What the slots say that read, the newest first; none where there is no file.
    pub(crate) fn slots(device: &dyn Device) -> Result<Vec<Superblock>, SuperblockError> {
        match device.open(FILE, Caching::Cached) {
            Ok(file) => {
                let mut slots: Vec<Superblock> = valid(&*file)?.into_iter().map(|(found, _)| found).collect();
                slots.sort_by_key(|it| std::cmp::Reverse(it.sequence));
                Ok(slots)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(io_error(error)),
        }
    }

    /// Makes the superblock anew, in the place of a damaged or lost one: with this checkpoint, and recovery from `log`
    /// on. It is of the store that `known` is of, if anything of the old one is known, else of a new one.
    pub(crate) fn replace(
        device: &dyn Device,
        known: Option<&Superblock>,
        catalogue: Hash,
        log: LogPosition,
    ) -> Result<(), SuperblockError> {
        if device.list("").map_err(io_error)?.iter().any(|name| name == UNFINISHED) {
            device.remove(UNFINISHED).map_err(io_error)?;
        }
        let file = device.create(UNFINISHED, 2 * BLOCK as u64, Caching::Direct).map_err(io_error)?;
        let next = Superblock {
            sequence: known.map_or(0, |it| it.sequence) + 1,
            store: known.map_or_else(|| draw_uuid(device), |it| Ok(it.store))?,
            incarnation: draw_uuid(device)?,
            catalogue: Some(catalogue),
            log,
        };
        file.write_durably(0, &encode(&next)).map_err(|error| match error {
            DurableError::Write(error) | DurableError::Flush(error) => io_error(error),
        })?;
        device.rename(UNFINISHED, FILE).map_err(io_error)
    }

    /// What is durable.
    pub fn current(&self) -> &Superblock {
        &self.current
    }

    /// Durably makes `catalogue` the newest checkpoint, and `log` the place where recovery begins.
    pub fn advance(&mut self, catalogue: Option<Hash>, log: LogPosition) -> Result<(), SuperblockError> {
        self.write(Superblock { catalogue, log, ..self.current })
    }

    fn write(&mut self, next: Superblock) -> Result<(), SuperblockError> {
        if let Some(reason) = &self.poisoned {
            return Err(SuperblockError::Poisoned(reason.clone()));
        }
        let next = Superblock { sequence: self.current.sequence + 1, ..next };
        match self.file.write_durably(self.next_slot * BLOCK as u64, &encode(&next)) {
            Ok(()) => {
                self.current = next;
                self.next_slot = 1 - self.next_slot;
                Ok(())
            }
            Err(error) if error.is_no_space() => Err(SuperblockError::NoSpace),
            Err(error) => {
                let reason: Arc<str> = error.to_string().into();
                self.poisoned = Some(reason.clone());
                Err(SuperblockError::Poisoned(reason))
            }
        }
    }
}

/// The newest valid slot and its number.
fn newest(file: &dyn DeviceFile) -> Result<(Superblock, u64), SuperblockError> {
    valid(file)?.into_iter().max_by_key(|(found, _)| found.sequence).ok_or(SuperblockError::Damaged)
}

/// The slots that are valid, each with its number. A newer format in either one wins over everything: its writer knew
/// what the other slot holds.
fn valid(file: &dyn DeviceFile) -> Result<Vec<(Superblock, u64)>, SuperblockError> {
    let mut all = Vec::new();
    let len = file.len().map_err(io_error)?;
    for number in 0..2 {
        let mut block = vec![0; BLOCK];
        let offset = number * BLOCK as u64;
        if offset + BLOCK as u64 <= len {
            file.read_at(offset, &mut block).map_err(io_error)?;
        }
        match decode(&block) {
            Slot::Valid(found) => all.push((found, number)),
            Slot::Newer(found) => {
                return Err(SuperblockError::NewerFormat { found, supported: FORMAT_VERSION });
            }
            Slot::Invalid => {}
        }
    }
    Ok(all)
}

fn draw_uuid(device: &dyn Device) -> Result<Uuid, SuperblockError> {
    let mut bytes = [0; 16];
    device.random(&mut bytes).map_err(io_error)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

fn io_error(error: io::Error) -> SuperblockError {
    if crate::device::is_no_space(&error) { SuperblockError::NoSpace } else { SuperblockError::Io(error) }
}
