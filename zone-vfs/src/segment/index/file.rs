//! The index's file, a redb database.
//!
//! Whatever is wrong with it, panics of its reader included, means that it is thrown away and made anew from the
//! footers. It is written with a sync of its own, by whoever makes a checkpoint; no commit waits for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition,
};

use super::Recent;
use crate::device::{is_shortage, open_regular};
use crate::id::Hash;
use crate::segment::Location;

/// Whose it is, under [`KEY`].
const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
const KEY: &str = "key";
/// By address: segment, offset, stored length, ordinal.
const PLACES: TableDefinition<&[u8; 32], &[u8; PLACE]> = TableDefinition::new("places");
const PLACE: usize = 20;
/// By number: length, and the end of the last footer.
const COVERED: TableDefinition<u32, &[u8; COVER]> = TableDefinition::new("covered");
const COVER: usize = 24;
/// Raised with every change of these tables.
const VERSION: &str = "dormouse 2026 index 1";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::segment) enum IndexFault {
    /// Its reader says so.
    #[error("{0}")]
    Redb(String),
    /// Its reader panicked: it is damaged in a way that is not foreseen.
    #[error("it is damaged: {0}")]
    Panic(String),
    /// It is another store's, or of another version.
    #[error("it is another store's")]
    Foreign,
    /// It could not be removed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl<E: Into<redb::Error>> From<E> for IndexFault
where
    E: NotOurs,
{
    fn from(error: E) -> Self {
        Self::Redb(error.into().to_string())
    }
}

/// The errors of redb.
pub(in crate::segment) trait NotOurs {}
impl NotOurs for redb::DatabaseError {}
impl NotOurs for redb::TransactionError {}
impl NotOurs for redb::TableError {}
impl NotOurs for redb::StorageError {}
impl NotOurs for redb::CommitError {}
impl NotOurs for redb::SetDurabilityError {}

/// A full segment, as the file knows it: it is this long, and its last footer ends with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Covered {
    pub len: u64,
    pub mac: [u8; 16],
}

impl Covered {
    fn encode(self) -> [u8; COVER] {
        let mut bytes = [0; COVER];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.mac);
        bytes
    }

    fn decode(bytes: &[u8; COVER]) -> Self {
        let (mut len, mut mac) = ([0; 8], [0; 16]);
        len.copy_from_slice(&bytes[..8]);
        mac.copy_from_slice(&bytes[8..]);
        Self { len: u64::from_le_bytes(len), mac }
    }
}

fn encode(place: Location) -> [u8; PLACE] {
    let mut bytes = [0; PLACE];
    bytes[..4].copy_from_slice(&place.segment.to_le_bytes());
    bytes[4..12].copy_from_slice(&place.offset.to_le_bytes());
    bytes[12..16].copy_from_slice(&place.stored.to_le_bytes());
    bytes[16..].copy_from_slice(&place.ordinal.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; PLACE]) -> Location {
    let u32_at = |at: usize| {
        let mut field = [0; 4];
        field.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(field)
    };
    let mut offset = [0; 8];
    offset.copy_from_slice(&bytes[4..12]);
    Location {
        segment: u32_at(0),
        offset: u64::from_le_bytes(offset),
        stored: u32_at(12),
        ordinal: u32_at(16),
    }
}

/// What redb does with a damaged file it does here: a panic is an error like another.
fn guarded<R>(work: impl FnOnce() -> Result<R, IndexFault>) -> Result<R, IndexFault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(IndexFault::Panic(said(&*panic))))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

pub(in crate::segment) struct IndexFile {
    path: PathBuf,
    cache: usize,
    about: Vec<u8>,
    /// What the last write left, to be read.
    parts: Option<Parts>,
    covered: BTreeMap<u32, Covered>,
    failed: AtomicBool,
}

struct Parts {
    places: ReadOnlyTable<&'static [u8; 32], &'static [u8; PLACE]>,
    database: Arc<Database>,
}

impl IndexFile {
    /// Opens the file. It is made when it is first written to, and one that cannot be used is removed.
    pub fn open(path: &Path, cache: usize, key: &[u8; 32]) -> Result<Self, IndexFault> {
        let about = blake3::derive_key(VERSION, key).to_vec();
        let mut file = Self {
            path: path.to_owned(),
            cache,
            about,
            parts: None,
            covered: BTreeMap::new(),
            failed: AtomicBool::new(false),
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(file),
            found => found?,
        };
        match file.read() {
            Ok((parts, covered)) => {
                file.parts = Some(parts);
                file.covered = covered;
            }
            // nothing is known of it
            Err(IndexFault::Io(error)) if is_shortage(&error) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "the index of the segments is made anew");
                remove(path)?;
            }
        }
        Ok(file)
    }

    fn database_in(&self, options: &OpenOptions) -> Result<Database, IndexFault> {
        let file = FileBackend::new(open_regular(&self.path, options)?)?;
        Ok(Database::builder().set_cache_size(self.cache).create_with_backend(file)?)
    }

    fn read(&self) -> Result<(Parts, BTreeMap<u32, Covered>), IndexFault> {
        guarded(|| {
            let database = self.database_in(OpenOptions::new().read(true).write(true))?;
            let reading = database.begin_read()?;
            let is_ours = reading.open_table(ABOUT)?.get(KEY)?.is_some_and(|it| it.value() == self.about);
            if !is_ours {
                return Err(IndexFault::Foreign);
            }
            let mut covered = BTreeMap::new();
            for row in reading.open_table(COVERED)?.iter()? {
                let (number, cover) = row?;
                covered.insert(number.value(), Covered::decode(cover.value()));
            }
            Ok((Parts::of(Arc::new(database))?, covered))
        })
    }

    fn make(&self) -> Result<Parts, IndexFault> {
        guarded(|| {
            let mut options = OpenOptions::new();
            let database =
                self.database_in(options.read(true).write(true).create(true).truncate(false).mode(0o600))?;
            let writing = begin(&database)?;
            writing.open_table(ABOUT)?.insert(KEY, &*self.about)?;
            writing.open_table(PLACES)?;
            writing.open_table(COVERED)?;
            writing.commit()?;
            Parts::of(Arc::new(database))
        })
    }

    /// None in its place. What was opened is left to itself where it has failed: it may not even close without
    /// harm.
    pub fn replace(mut self) -> Result<Self, IndexFault> {
        if let Some(parts) = self.parts.take() {
            if self.has_failed() {
                std::mem::forget(parts);
            } else {
                guarded(|| {
                    drop(parts);
                    Ok(())
                })?;
            }
        }
        remove(&self.path)?;
        self.covered.clear();
        *self.failed.get_mut() = false;
        Ok(self)
    }

    /// Whether there is something to be wrong.
    pub fn is_there(&self) -> bool {
        self.parts.is_some()
    }

    /// The database to write to, which is made where there is none. None where it cannot be.
    pub fn writable(&mut self) -> Option<Arc<Database>> {
        if self.parts.is_none() {
            match self.make() {
                Ok(parts) => self.parts = Some(parts),
                Err(error) => tracing::warn!(%error, "the index of the segments stays in memory"),
            }
        }
        self.database()
    }

    pub fn covered(&self) -> &BTreeMap<u32, Covered> {
        &self.covered
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn database(&self) -> Option<Arc<Database>> {
        self.parts.as_ref().filter(|_| !self.has_failed()).map(|it| it.database.clone())
    }

    pub fn len(&self) -> u64 {
        self.ask(|parts| Ok(parts.places.len()?)).unwrap_or(0)
    }

    pub fn get(&self, hash: &Hash) -> Option<Location> {
        self.ask(|parts| Ok(parts.places.get(&hash.0)?.map(|it| decode(it.value())))).flatten()
    }

    /// What lies in a segment; looks through all.
    pub fn in_segment(&self, segment: u32) -> Vec<Hash> {
        let found = self.ask(|parts| {
            let mut found = Vec::new();
            for row in parts.places.iter()? {
                let (hash, place) = row?;
                if decode(place.value()).segment == segment {
                    found.push(Hash(*hash.value()));
                }
            }
            Ok(found)
        });
        found.unwrap_or_default()
    }

    /// Asks the file; what fails once is not asked again.
    fn ask<R>(&self, work: impl FnOnce(&Parts) -> Result<R, IndexFault>) -> Option<R> {
        let parts = self.parts.as_ref().filter(|_| !self.has_failed())?;
        match guarded(|| work(parts)) {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::warn!(%error, "the index of the segments does not read");
                self.failed.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Reads what was written, by [`write`], from here on.
    pub fn written(&mut self, covered: BTreeMap<u32, Covered>) {
        self.covered = covered;
        let Some(database) = self.database() else { return };
        match guarded(|| Parts::of(database)) {
            Ok(parts) => self.parts = Some(parts),
            Err(error) => {
                tracing::warn!(%error, "the index of the segments does not read");
                self.failed.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for IndexFile {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            if *self.failed.get_mut() {
                std::mem::forget(parts);
            } else if let Err(error) = guarded(|| {
                drop(parts);
                Ok(())
            }) {
                tracing::warn!(%error, "closing the index of the segments");
            }
        }
    }
}

impl Parts {
    fn of(database: Arc<Database>) -> Result<Self, IndexFault> {
        let places = database.begin_read()?.open_table(PLACES)?;
        Ok(Self { places, database })
    }
}

/// Writes places, and that these segments are covered. Durable when it returns.
pub(in crate::segment) fn write(
    database: &Database,
    recent: &Recent,
    before: &BTreeMap<u32, Covered>,
    covered: &BTreeMap<u32, Covered>,
) -> Result<(), IndexFault> {
    guarded(|| {
        let writing = begin(database)?;
        {
            let mut places = writing.open_table(PLACES)?;
            for (hash, place) in recent {
                match place {
                    Some(place) => drop(places.insert(&hash.0, &encode(*place))?),
                    None => drop(places.remove(&hash.0)?),
                }
            }
            let mut table = writing.open_table(COVERED)?;
            for number in before.keys().filter(|it| !covered.contains_key(it)) {
                table.remove(number)?;
            }
            for (number, cover) in covered.iter().filter(|(number, it)| before.get(number) != Some(it)) {
                table.insert(number, &cover.encode())?;
            }
        }
        Ok(writing.commit()?)
    })
}

/// A write that is durable, and after which a crash needs no look through the whole file.
fn begin(database: &Database) -> Result<redb::WriteTransaction, IndexFault> {
    let mut writing = database.begin_write()?;
    writing.set_durability(Durability::Immediate)?;
    writing.set_quick_repair(true);
    Ok(writing)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
