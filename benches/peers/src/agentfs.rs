//! AgentFS: the SDK's filesystem in a database of Turso.
//!
//! The SDK works with `synchronous=OFF`, and its `fsync` commits a transaction without any change, of which
//! Turso writes and flushes nothing. So that what is measured is durable, the database's two files are
//! flushed here after each operation. Each call of the SDK is one or more transactions of its own: several
//! files share the flush, but do not appear all or none.

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};

use agentfs_sdk::{AgentFS, AgentFSOptions, DEFAULT_FILE_MODE};
use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::peer::{Copied, Peer, Snapshot, version};

const DATABASE: &str = "agent.db";
/// KiB of pages that are kept in memory, as much as the others may keep.
const CACHE: u32 = 64 << 10;

/// An agent's filesystem, and the folder that its database lies in.
pub struct AgentFs {
    agent: AgentFS,
    runtime: Runtime,
    /// The database and its log, to be flushed. Opened once: to close a file lets go of all locks on it.
    files: [File; 2],
    folder: TempDir,
    place: PathBuf,
}

impl AgentFs {
    /// An empty filesystem in `place`.
    pub fn new(place: &Path) -> anyhow::Result<Self> {
        Self::open(TempDir::new_in(place)?, place)
    }

    fn open(folder: TempDir, place: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let database = folder.path().join(DATABASE);
        let path = database.to_str().context("the folder's name is not Unicode")?;
        let agent = runtime.block_on(async {
            let agent = AgentFS::open(AgentFSOptions::with_path(path)).await?;
            // the SDK has one connection, which it goes on using
            let connection = agent.get_connection().await?;
            connection.pragma_update("cache_size", format!("-{CACHE}")).await?;
            anyhow::Ok(agent)
        })?;
        let log = folder.path().join(format!("{DATABASE}-wal"));
        let files = [File::open(&log)?, File::open(&database)?];
        Ok(Self { agent, runtime, files, folder, place: place.into() })
    }

    fn wait<R>(&self, work: impl Future<Output = R>) -> R {
        self.runtime.block_on(work)
    }

    fn durably(&self, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        self.wait(work)?;
        Ok(self.files.iter().try_for_each(File::sync_data)?)
    }
}

impl Peer for AgentFs {
    fn name(&self) -> String {
        format!("AgentFS {}", version("agentfs-sdk"))
    }

    fn make_folders(&mut self, folders: &[String]) -> anyhow::Result<()> {
        self.durably(async {
            for folder in folders {
                self.agent.fs.mkdir(folder, 0, 0).await?;
            }
            Ok(())
        })
    }

    fn create(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        self.durably(async {
            for (path, content) in files {
                let (_, file) = self.agent.fs.create_file(path, DEFAULT_FILE_MODE, 0, 0).await?;
                file.pwrite(0, content).await?;
            }
            Ok(())
        })
    }

    fn overwrite(&mut self, file: &str, content: &[u8]) -> anyhow::Result<()> {
        self.durably(async { Ok(self.agent.fs.open(file).await?.pwrite(0, content).await?) })
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.durably(async {
            let file = self.agent.fs.open(file).await?;
            let end = u64::try_from(file.fstat().await?.size)?;
            Ok(file.pwrite(end, bytes).await?)
        })
    }

    fn rename(&mut self, moves: &[(String, String)]) -> anyhow::Result<()> {
        self.durably(async {
            for (from, to) in moves {
                self.agent.fs.rename(from, to).await?;
            }
            Ok(())
        })
    }

    fn remove(&mut self, files: &[String]) -> anyhow::Result<()> {
        self.durably(async {
            for file in files {
                self.agent.fs.remove(file).await?;
            }
            Ok(())
        })
    }

    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        *into = self.wait(async {
            let file = self.agent.fs.open(file).await?;
            let size = u64::try_from(file.fstat().await?.size)?;
            anyhow::Ok(file.pread(0, size).await?)
        })?;
        Ok(())
    }

    fn size(&mut self, file: &str) -> anyhow::Result<u64> {
        let stats = self.wait(self.agent.fs.stat(file))?;
        Ok(u64::try_from(stats.with_context(|| format!("there is no {file}"))?.size)?)
    }

    fn list(&mut self, folder: &str, name: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let names = self.wait(async {
            let stats = self.agent.fs.stat(folder).await?.with_context(|| format!("there is no {folder}"))?;
            self.agent.fs.readdir(stats.ino).await?.with_context(|| format!("there is no {folder}"))
        })?;
        for found in &names {
            name(found);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> anyhow::Result<Box<dyn Snapshot>> {
        Ok(Box::new(Copied(self.fork()?)))
    }

    /// By a copy of the database, as its documentation says, with everything in it that was in the log.
    fn fork(&mut self) -> anyhow::Result<Box<dyn Peer>> {
        self.wait(async {
            let connection = self.agent.get_connection().await?;
            let mut rows = connection.query("PRAGMA wal_checkpoint(TRUNCATE)", ()).await?;
            while rows.next().await?.is_some() {}
            anyhow::Ok(())
        })?;
        ensure!(self.files[0].metadata()?.len() == 0, "the log was not emptied");
        let folder = TempDir::new_in(&self.place)?;
        let copy = folder.path().join(DATABASE);
        std::fs::copy(self.folder.path().join(DATABASE), &copy)?;
        File::open(&copy)?.sync_all()?;
        File::open(folder.path())?.sync_all()?;
        Ok(Box::new(Self::open(folder, &self.place)?))
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        let Self { agent, runtime, files, folder, .. } = *self;
        drop((agent, files, runtime));
        Ok(folder.close()?)
    }
}
