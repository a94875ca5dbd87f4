//! The index's file, a redb database.
//!
//! Whatever is wrong with it, panics of its reader included, means that it is thrown away and made anew from the
//! footers. It is written with a sync of its own, by whoever makes a checkpoint; no commit waits for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition,
};

use super::Recent;
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
    /// Opens the file, or makes it where it is missing. One that cannot be used is made anew.
    pub fn open(path: &Path, cache: usize, key: &[u8; 32]) -> Result<Self, IndexFault> {
        let about = blake3::derive_key(VERSION, key).to_vec();
        let was_there = path.exists();
        match Self::try_open(path, cache, &about) {
            Ok(opened) => Ok(opened),
            Err(error) => {
                if was_there {
                    tracing::warn!(%error, "the index of the segments is made anew");
                }
                remove(path)?;
                Self::try_open(path, cache, &about)
            }
        }
    }

    fn try_open(path: &Path, cache: usize, about: &[u8]) -> Result<Self, IndexFault> {
        guarded(|| {
            let database = Database::builder().set_cache_size(cache).create(path)?;
            owner_alone(path)?;
            let writing = begin(&database)?;
            let is_new = {
                let mut table = writing.open_table(ABOUT)?;
                let found = table.get(KEY)?.map(|it| it.value().to_vec());
                if found.is_none() {
                    table.insert(KEY, about)?;
                }
                if found.as_ref().is_some_and(|it| it != about) {
                    return Err(IndexFault::Foreign);
                }
                writing.open_table(PLACES)?;
                writing.open_table(COVERED)?;
                found.is_none()
            };
            if is_new {
                writing.commit()?
            } else {
                writing.abort()?
            }
            let database = Arc::new(database);
            let mut covered = BTreeMap::new();
            for row in database.begin_read()?.open_table(COVERED)?.iter()? {
                let (number, cover) = row?;
                covered.insert(number.value(), Covered::decode(cover.value()));
            }
            let parts = Some(Parts::of(database)?);
            let (path, about) = (path.to_owned(), about.to_vec());
            Ok(Self { path, cache, about, parts, covered, failed: AtomicBool::new(false) })
        })
    }

    /// An empty file in its place. What was opened is left to itself where it has failed: it may not even
    /// close without harm.
    pub fn replace(mut self) -> Result<Self, IndexFault> {
        if let Some(parts) = self.parts.take() {
            if self.has_failed() { std::mem::forget(parts) } else { guarded(|| Ok(drop(parts)))? }
        }
        remove(&self.path)?;
        Self::try_open(&self.path, self.cache, &self.about)
    }

    pub fn covered(&self) -> &BTreeMap<u32, Covered> {
        &self.covered
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn database(&self) -> Option<Arc<Database>> {
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
            } else if let Err(error) = guarded(|| Ok(drop(parts))) {
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

fn owner_alone(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}
