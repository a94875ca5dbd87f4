//! An open host in a folder of its own.

use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dormouse::code::{CompileLimits, Compiler};
use dormouse::wasi::MemoryLimits;
use dormouse::{Agent, AgentName, AgentOptions, Event, Host, HostOptions, ImagePolicy};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A store, opened, and a runtime to drive it. The store is deleted when this is dropped.
pub struct Bed {
    runtime: Runtime,
    host: Option<Host>,
    folder: TempDir,
    program: PathBuf,
    images: ImagePolicy,
}

impl Bed {
    /// A new store in a folder inside `place`; `program` is the one that compiles. Each turn ends with an image.
    pub fn new(place: &Path, program: &str) -> anyhow::Result<Self> {
        Self::with_images(place, program, ImagePolicy::EVERY_TURN)
    }

    /// As [`new`](Self::new), with images as this says.
    pub fn with_images(place: &Path, program: &str, images: ImagePolicy) -> anyhow::Result<Self> {
        std::fs::create_dir_all(place)?;
        let folder = tempfile::Builder::new().prefix("dormouse-bench-").tempdir_in(place)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut bed = Self { runtime, host: None, folder, program: program.into(), images };
        bed.open()?;
        Ok(bed)
    }

    /// The store's folder.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Opens the store if it is closed.
    pub fn open(&mut self) -> anyhow::Result<()> {
        if self.host.is_none() {
            self.host = Some(Host::open(self.options(self.store()))?);
        }
        Ok(())
    }

    /// How a store in this folder is opened.
    pub fn options(&self, store: PathBuf) -> HostOptions {
        let mut options = HostOptions::new(store);
        options.images = self.images;
        // slots are made where a benchmark says so
        options.warm_slots = 0;
        // for the largest agent
        options.memory = MemoryLimits::new(2 << 30, options.memory.table);
        options.compiler = Some(Compiler { program: self.program.clone(), limits: CompileLimits::default() });
        options
    }

    /// Closes the store, which finishes the work behind the turns.
    pub fn close(&mut self) -> anyhow::Result<()> {
        self.host.take().map_or(Ok(()), |host| Ok(host.close()?))
    }

    /// The host.
    pub fn host(&self) -> anyhow::Result<&Host> {
        self.host.as_ref().context("the store is closed")
    }

    /// Waits for `work`.
    pub fn wait<R>(&self, work: impl Future<Output = R>) -> R {
        self.runtime.block_on(work)
    }

    /// A new agent, to which `events` have happened.
    pub fn agent(&self, name: &str, component: &[u8], events: &[String]) -> anyhow::Result<Agent> {
        let host = self.host()?;
        self.wait(async {
            let options = AgentOptions { component_name: "agent.wasm".into(), ..AgentOptions::default() };
            let agent = host.create(&AgentName::new(name)?, component, options).await?;
            for event in events {
                send(&agent, event).await?;
            }
            Ok(agent)
        })
    }
}

/// Takes one turn, which the agent has to answer well.
pub async fn send(agent: &Agent, payload: &str) -> anyhow::Result<Vec<u8>> {
    let report = agent.send(Event::message(payload)?).await?;
    report.reply.map_err(|e| anyhow::anyhow!("{payload}: {e}"))
}
