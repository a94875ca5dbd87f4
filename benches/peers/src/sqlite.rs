//! SQLite: a row for each file, and rows for the pieces of its content.
//!
//! As its documentation advises: a write-ahead log, prepared statements, one transaction for what belongs
//! together. `synchronous=FULL` flushes the log at each commit. As with the others, no other process may open
//! the database meanwhile, which saves locking it for every statement. A path is not followed from folder to
//! folder, as a filesystem would: folder and name are the key.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tempfile::TempDir;

use crate::peer::{Copied, Peer, Snapshot, split};

/// An append is a piece of its own, so that it writes only what is new.
const SCHEMA: &str = "
    CREATE TABLE files (
        id INTEGER PRIMARY KEY, folder TEXT NOT NULL, name TEXT NOT NULL,
        size INTEGER NOT NULL, modified INTEGER NOT NULL, UNIQUE (folder, name)
    ) STRICT;
    CREATE TABLE pieces (
        file INTEGER NOT NULL, start INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (file, start)
    ) STRICT;
";
/// KiB of pages that are kept in memory, as much as the others may keep.
const CACHE: i32 = 64 << 10;
/// Bytes of the database that are mapped: content that does not fit into its page is not kept among the pages.
const MAPPED: i64 = 256 << 20;
/// Statements that stay prepared: more than there are here.
const STATEMENTS: usize = 32;

/// A database, and the folder that it lies in.
pub struct Sqlite {
    connection: Connection,
    folder: TempDir,
    place: PathBuf,
}

fn now() -> anyhow::Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?)
}

fn length(bytes: &[u8]) -> anyhow::Result<i64> {
    Ok(i64::try_from(bytes.len())?)
}

fn open(file: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    ensure!(mode == "wal", "the journal is {mode}");
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE)?;
    connection.pragma_update(None, "mmap_size", MAPPED)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn id_and_size(connection: &Connection, file: &str) -> anyhow::Result<(i64, i64)> {
    let (folder, name) = split(file)?;
    let mut found =
        connection.prepare_cached("SELECT id, size FROM files WHERE folder = ?1 AND name = ?2")?;
    let row = found.query_row(params![folder, name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    row.with_context(|| format!("there is no {file}"))
}

impl Sqlite {
    /// An empty database in `place`.
    pub fn new(place: &Path) -> anyhow::Result<Self> {
        let folder = TempDir::new_in(place)?;
        let connection = open(&folder.path().join("files.db"))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection, folder, place: place.into() })
    }

    fn durably(&mut self, work: impl FnOnce(&Transaction<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        work(&transaction)?;
        Ok(transaction.commit()?)
    }
}

impl Peer for Sqlite {
    fn name(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn make_folders(&mut self, _: &[String]) -> anyhow::Result<()> {
        Ok(()) // a folder is no more than what the paths of its files begin with
    }

    fn create(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut file = transaction
                .prepare_cached("INSERT INTO files (folder, name, size, modified) VALUES (?1, ?2, ?3, ?4)")?;
            let mut piece =
                transaction.prepare_cached("INSERT INTO pieces (file, start, bytes) VALUES (?1, 0, ?2)")?;
            for (path, content) in files {
                let (folder, name) = split(path)?;
                let id = file.insert(params![folder, name, length(content)?, now()?])?;
                if !content.is_empty() {
                    piece.execute(params![id, content])?;
                }
            }
            Ok(())
        })
    }

    fn overwrite(&mut self, file: &str, content: &[u8]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let (id, size) = id_and_size(transaction, file)?;
            ensure!(usize::try_from(size)? <= content.len(), "{file} is longer than what is written over it");
            transaction
                .prepare_cached("DELETE FROM pieces WHERE file = ?1 AND start > 0")?
                .execute(params![id])?;
            transaction
                .prepare_cached(
                    "INSERT INTO pieces (file, start, bytes) VALUES (?1, 0, ?2)
                     ON CONFLICT (file, start) DO UPDATE SET bytes = excluded.bytes",
                )?
                .execute(params![id, content])?;
            transaction
                .prepare_cached("UPDATE files SET size = ?2, modified = ?3 WHERE id = ?1")?
                .execute(params![id, length(content)?, now()?])?;
            Ok(())
        })
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let (id, size) = id_and_size(transaction, file)?;
            transaction
                .prepare_cached("INSERT INTO pieces (file, start, bytes) VALUES (?1, ?2, ?3)")?
                .execute(params![id, size, bytes])?;
            transaction
                .prepare_cached("UPDATE files SET size = size + ?2, modified = ?3 WHERE id = ?1")?
                .execute(params![id, length(bytes)?, now()?])?;
            Ok(())
        })
    }

    fn rename(&mut self, moves: &[(String, String)]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut rename = transaction
                .prepare_cached("UPDATE files SET folder = ?3, name = ?4 WHERE folder = ?1 AND name = ?2")?;
            for (from, to) in moves {
                let (from, to) = (split(from)?, split(to)?);
                let renamed = rename.execute(params![from.0, from.1, to.0, to.1])?;
                ensure!(renamed == 1, "there is no {}/{}", from.0, from.1);
            }
            Ok(())
        })
    }

    fn remove(&mut self, files: &[String]) -> anyhow::Result<()> {
        self.durably(|transaction| {
            let mut file = transaction
                .prepare_cached("DELETE FROM files WHERE folder = ?1 AND name = ?2 RETURNING id")?;
            let mut pieces = transaction.prepare_cached("DELETE FROM pieces WHERE file = ?1")?;
            for path in files {
                let (folder, name) = split(path)?;
                let id: i64 = file.query_row(params![folder, name], |row| row.get(0))?;
                pieces.execute(params![id])?;
            }
            Ok(())
        })
    }

    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        let (folder, name) = split(file)?;
        let mut pieces = self.connection.prepare_cached(
            "SELECT bytes FROM files LEFT JOIN pieces ON file = id
             WHERE folder = ?1 AND name = ?2 ORDER BY start",
        )?;
        let mut rows = pieces.query(params![folder, name])?;
        let mut found = false;
        into.clear();
        while let Some(row) = rows.next()? {
            into.extend_from_slice(row.get_ref(0)?.as_blob_or_null()?.unwrap_or_default());
            found = true;
        }
        ensure!(found, "there is no {file}");
        Ok(())
    }

    fn size(&mut self, file: &str) -> anyhow::Result<u64> {
        Ok(u64::try_from(id_and_size(&self.connection, file)?.1)?)
    }

    fn list(&mut self, folder: &str, name: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let mut names =
            self.connection.prepare_cached("SELECT name FROM files WHERE folder = ?1 ORDER BY name")?;
        let mut rows = names.query(params![folder])?;
        while let Some(row) = rows.next()? {
            name(row.get_ref(0)?.as_str()?);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> anyhow::Result<Box<dyn Snapshot>> {
        Ok(Box::new(Copied(self.fork()?)))
    }

    /// By the online backup, all pages in one step, which leaves the copy flushed.
    fn fork(&mut self) -> anyhow::Result<Box<dyn Peer>> {
        let folder = TempDir::new_in(&self.place)?;
        let file = folder.path().join("files.db");
        let mut connection = Connection::open(&file)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Backup::new(&self.connection, &mut connection)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
        drop(connection);
        Ok(Box::new(Self { connection: open(&file)?, folder, place: self.place.clone() }))
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        self.connection.close().map_err(|(_, e)| e)?;
        Ok(self.folder.close()?)
    }
}
