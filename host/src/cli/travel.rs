//! Agents that go to other stores: `export` and `import`.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use zone_vfs::device::open_regular;
use zone_vfs::store::{ExportReport, StoreError};

use super::args::{ExportArguments, ImportArguments};
use super::output::{OfAgent, count, print_json, say, size};
use super::progress::{Counted, Working};
use super::run;
use crate::agent::AgentName;
use crate::upkeep::ImportOptions;
use crate::{Agent, AgentError, Host};

/// Bytes that are written or read at once.
const BUFFER: usize = 1 << 20;

/// A file that is none before it is whole.
struct Unfinished {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    is_finished: AtomicBool,
}

impl Unfinished {
    fn new(path: &Path) -> anyhow::Result<Self> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let mut options = File::options();
        // an export is nobody else's business
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = open_regular(&unfinished, &options)
            .with_context(|| format!("making {}", unfinished.display()))?;
        Ok(Self { path: path.into(), temporary: unfinished, file, is_finished: AtomicBool::new(false) })
    }

    /// It is there, durably, under its name.
    fn finish(&self) -> std::io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.temporary, &self.path)?;
        self.is_finished.store(true, Ordering::Release);
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// Removes it, unless it has its name.
    fn remove(&self) {
        if self.is_finished() {
            return;
        }
        if let Err(e) = std::fs::remove_file(&self.temporary) {
            tracing::warn!("removing {}: {e}", self.temporary.display());
        }
    }
}

async fn export_file(host: &Host, agent: &Agent, a: &ExportArguments) -> anyhow::Result<ExportReport> {
    if !a.force && a.to.symlink_metadata().is_ok() {
        bail!("{} is there already: --force replaces it", a.to.display());
    }
    if a.moves {
        agent.expect_here()?;
    }
    let unfinished = Arc::new(Unfinished::new(&a.to)?);
    let to = Counted::new(unfinished.file.try_clone()?);
    let _working = Working::on_bytes(format!("exporting {}", a.agent), to.count(), None);
    let to = Box::new(BufWriter::with_capacity(BUFFER, to));
    let finished = if a.moves {
        let whole = unfinished.clone();
        let moved = host.export_move(agent, to, move || whole.finish()).await;
        moved.map_err(|e| {
            let e = anyhow::Error::new(e);
            if unfinished.is_finished() {
                let path = a.to.display();
                return e.context(format!("{path} is written, and {} was not marked as moved", a.agent));
            }
            e.context(OfAgent(a.agent.clone()))
        })
    } else {
        let made = host.export(agent, to).await.with_context(|| OfAgent(a.agent.clone()));
        made.and_then(|report| {
            unfinished.finish().with_context(|| format!("writing {}", a.to.display()))?;
            Ok(report)
        })
    };
    if finished.is_err() {
        unfinished.remove();
    }
    finished
}

pub async fn export(host: &Host, a: &ExportArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    if a.to.as_os_str() == "-" {
        if std::io::stdout().is_terminal() {
            bail!("an export is no text: send standard output to a file or a program, or name a file");
        }
        let to = Box::new(std::io::stdout());
        // what is flushed has been taken: more is not to be known of who reads
        let made = if a.moves {
            host.export_move(&agent, to, || Ok(())).await
        } else {
            host.export(&agent, to).await
        };
        made.with_context(|| OfAgent(a.agent.clone()))?;
        return Ok(0);
    }
    let report = export_file(host, &agent, a).await?;
    let digest = blake3::Hash::from_bytes(report.digest).to_hex();
    if a.json {
        print_json(&json!({
            "id": report.id.to_string(), "path": a.to.display().to_string(), "bytes": report.bytes,
            "frames": report.frames, "generations": report.generations, "turns": report.turns,
            "digest": digest.as_str(), "moved": a.moves,
        }))?;
    } else {
        let (generations, turns) = (count(report.generations, "generation"), count(report.turns, "turn"));
        say(format_args!("{}: {}, {generations} and {turns}", a.to.display(), size(report.bytes)))?;
        say(format_args!("digest {digest}"))?;
        if a.moves {
            let name = &a.agent;
            say(format_args!(
                "{name} was moved: nothing here goes on with it, and `dormouse rm {name}` removes what is left"
            ))?;
        }
    }
    Ok(0)
}

/// An error of the file's names it.
fn of_file(e: AgentError, path: &str) -> anyhow::Error {
    match e {
        AgentError::Store(StoreError::Export(reason)) => anyhow!("{path} {reason}"),
        e => e.into(),
    }
}

pub async fn import(host: &Host, a: &ImportArguments) -> anyhow::Result<u8> {
    let options = ImportOptions {
        name: a.name.as_deref().map(AgentName::new).transpose()?,
        env: run::environment(&a.env)?,
        zones: a.zone.clone(),
    };
    let is_piped = a.from.as_os_str() == "-";
    let path = if is_piped { "standard input".to_owned() } else { a.from.display().to_string() };
    let (from, len): (Box<dyn Read + Send>, _) = if is_piped {
        (Box::new(std::io::stdin()), None)
    } else {
        let file = File::open(&a.from).with_context(|| format!("the export {path}"))?;
        let found = file.metadata().with_context(|| format!("the export {path}"))?;
        if found.is_dir() {
            bail!("{path} is a folder: an export is a file");
        }
        (Box::new(file), Some(found.len()))
    };
    let from = Counted::new(from);
    let imported = {
        let _working = Working::on_bytes(format!("importing {path}"), from.count(), len);
        host.import(Box::new(BufReader::with_capacity(BUFFER, from)), options).await
    };
    let agent = imported.map_err(|e| of_file(e, &path))?;
    let info = agent.info()?;
    if a.json {
        print_json(&json!({
            "name": info.name, "id": info.id.to_string(), "generation": info.head.0,
            "generations": agent.generations().len(), "turns": info.last_turn.0,
        }))?;
    } else {
        let generations = count(agent.generations().len() as u64, "generation");
        say(format_args!(
            "imported {} ({}): {generations}, stands at {}",
            info.name,
            agent.about()?.world.name(),
            info.head
        ))?;
    }
    Ok(0)
}
