//! redb: a value for each file, and values for the pieces of its content.
//!
//! As in the SQLite peer, folder and name are the key, an append is a piece of its own, and what belongs
//! together shares one transaction. Commits are durable, which is redb's default.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use ::redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::peer::{Peer, Snapshot, split, version};

/// By folder and name: the file's number, its size and when it was written.
const FILES: TableDefinition<(&str, &str), (u64, u64, u64)> = TableDefinition::new("files");
/// By the file's number and where in the file: bytes.
const PIECES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("pieces");
/// Bytes of pages that are kept in memory, as much as the others may keep.
const CACHE: usize = 64 << 20;

/// A database, and the folder that it lies in.
pub struct Redb {
    database: Rc<Database>,
    /// The number of the file that is made next.
    next: u64,
    folder: TempDir,
    place: PathBuf,
}

fn now() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?)
}

fn open(file: &Path) -> anyhow::Result<Rc<Database>> {
    Ok(Rc::new(Database::builder().set_cache_size(CACHE).create(file)?))
}

fn read_all(transaction: &ReadTransaction, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
    let found = transaction.open_table(FILES)?.get(split(file)?)?;
    let (id, _, _) = found.with_context(|| format!("there is no {file}"))?.value();
    into.clear();
    for piece in transaction.open_table(PIECES)?.range((id, 0)..=(id, u64::MAX))? {
        into.extend_from_slice(piece?.1.value());
    }
    Ok(())
}

impl Redb {
    /// An empty database in `place`.
    pub fn new(place: &Path) -> anyhow::Result<Self> {
        let folder = TempDir::new_in(place)?;
        let database = open(&folder.path().join("files.redb"))?;
        let redb = Self { database, next: 0, folder, place: place.into() };
        redb.durably(|transaction| {
            transaction.open_table(FILES)?;
            transaction.open_table(PIECES)?;
            Ok(())
        })?;
        Ok(redb)
    }

    fn durably(&self, work: impl FnOnce(&WriteTransaction) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let transaction = self.database.begin_write()?;
        work(&transaction)?;
        Ok(transaction.commit()?)
    }
}

impl Peer for Redb {
    fn name(&self) -> String {
        format!("redb {}", version("redb"))
    }

    fn make_folders(&mut self, _: &[String]) -> anyhow::Result<()> {
        Ok(()) // a folder is no more than what the paths of its files begin with
    }

    fn create(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        let first = self.next;
        self.next += files.len() as u64;
        self.durably(|transaction| {
            let mut names = transaction.open_table(FILES)?;
            let mut pieces = transaction.open_table(PIECES)?;
            for ((path, content), id) in files.iter().zip(first..) {
                let before = names.insert(split(path)?, (id, content.len() as u64, now()?))?;
                ensure!(before.is_none(), "{path} is there already");
                if !content.is_empty() {
                    pieces.insert((id, 0), content.as_slice())?;
                }
            }
            Ok(())
        })
    }

    fn overwrite(&mut self, file: &str, content: &[u8]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut names = transaction.open_table(FILES)?;
            let mut pieces = transaction.open_table(PIECES)?;
            let key = split(file)?;
            let (id, size, _) = names.get(key)?.with_context(|| format!("there is no {file}"))?.value();
            ensure!(size <= content.len() as u64, "{file} is longer than what is written over it");
            pieces.retain_in((id, 1)..=(id, u64::MAX), |_, _| false)?;
            pieces.insert((id, 0), content)?;
            names.insert(key, (id, content.len() as u64, now()?))?;
            Ok(())
        })
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut names = transaction.open_table(FILES)?;
            let key = split(file)?;
            let (id, size, _) = names.get(key)?.with_context(|| format!("there is no {file}"))?.value();
            transaction.open_table(PIECES)?.insert((id, size), bytes)?;
            names.insert(key, (id, size + bytes.len() as u64, now()?))?;
            Ok(())
        })
    }

    fn rename(&mut self, moves: &[(String, String)]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut names = transaction.open_table(FILES)?;
            for (from, to) in moves {
                let is = names.remove(split(from)?)?.with_context(|| format!("there is no {from}"))?.value();
                let before = names.insert(split(to)?, is)?;
                ensure!(before.is_none(), "{to} is there already");
            }
            Ok(())
        })
    }

    fn remove(&mut self, files: &[String]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut names = transaction.open_table(FILES)?;
            let mut pieces = transaction.open_table(PIECES)?;
            for path in files {
                let gone = names.remove(split(path)?)?;
                let (id, _, _) = gone.with_context(|| format!("there is no {path}"))?.value();
                pieces.retain_in((id, 0)..=(id, u64::MAX), |_, _| false)?;
            }
            Ok(())
        })
    }

    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        read_all(&self.database.begin_read()?, file, into)
    }

    fn size(&mut self, file: &str) -> anyhow::Result<u64> {
        let found = self.database.begin_read()?.open_table(FILES)?.get(split(file)?)?;
        Ok(found.with_context(|| format!("there is no {file}"))?.value().1)
    }

    fn list(&mut self, folder: &str, name: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        for entry in self.database.begin_read()?.open_table(FILES)?.range((folder, "")..)? {
            let (key, _) = entry?;
            let (of, found) = key.value();
            if of != folder {
                break;
            }
            name(found);
        }
        Ok(())
    }

    /// A persistent savepoint. It can be read beside the present only by the transaction that begins with it.
    fn snapshot(&mut self) -> anyhow::Result<Box<dyn Snapshot>> {
        let transaction = self.database.begin_write()?;
        let id = transaction.persistent_savepoint()?;
        transaction.commit()?;
        let past = self.database.begin_read()?;
        Ok(Box::new(Savepoint { database: self.database.clone(), id, past }))
    }

    /// By a copy of the file while nobody writes. redb takes it for what a crash left, and repairs it.
    fn fork(&mut self) -> anyhow::Result<Box<dyn Peer>> {
        let folder = TempDir::new_in(&self.place)?;
        let file = folder.path().join("files.redb");
        let writer = self.database.begin_write()?;
        std::fs::copy(self.folder.path().join("files.redb"), &file)?;
        writer.abort()?;
        File::open(&file)?.sync_all()?;
        File::open(folder.path())?.sync_all()?;
        Ok(Box::new(Self { database: open(&file)?, next: self.next, folder, place: self.place.clone() }))
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        Rc::into_inner(self.database).context("a snapshot of the fork is in use")?.close()?;
        Ok(self.folder.close()?)
    }
}

struct Savepoint {
    database: Rc<Database>,
    id: u64,
    past: ReadTransaction,
}

impl Snapshot for Savepoint {
    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        read_all(&self.past, file, into)
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        self.past.close()?;
        let transaction = self.database.begin_write()?;
        ensure!(transaction.delete_persistent_savepoint(self.id)?, "the savepoint is gone");
        Ok(transaction.commit()?)
    }
}
