//! Agents that go to other stores: `export` and `import`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use zone_vfs::store::{ExportAbout, ExportReport, Store, StoreError};

use super::args::{ExportArguments, ImportArguments};
use super::output::{self, OfAgent, count, note, print_json, say, size};
use super::progress::{Counted, Working};
use super::run;
use super::stop::{signalled, unless};
use crate::agent::AgentName;
use crate::upkeep::ImportOptions;
use crate::{Agent, AgentError, Host};

/// Bytes that are written or read at once.
const BUFFER: usize = 1 << 20;
/// What an error calls what comes through a pipe.
const STANDARD_INPUT: &str = "standard input";

/// A file that is none before it is whole.
struct Unfinished {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    is_finished: AtomicBool,
}

impl Unfinished {
    /// A link is followed, as by everything that writes to a file.
    fn new(path: &Path) -> anyhow::Result<Self> {
        let path = if path.is_symlink() {
            path.canonicalize().with_context(|| path.display().to_string())?
        } else {
            path.to_owned()
        };
        let Some(name) = path.file_name() else { bail!("{} names no file", path.display()) };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", Store::new_id()?.0));
        let temporary = path.with_file_name(hidden);
        let mut options = File::options();
        // an export is nobody else's business: the file is new, and its maker's alone
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&temporary).with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path, temporary, file, is_finished: AtomicBool::new(false) })
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

/// A device or a pipe that is there under a name: an export is written into it, and it stays.
fn node(path: &Path) -> anyhow::Result<Option<File>> {
    let Ok(found) = path.metadata() else { return Ok(None) };
    if found.is_file() {
        return Ok(None);
    }
    if found.is_dir() {
        bail!("{} is a folder", path.display());
    }
    Ok(Some(File::options().write(true).open(path).with_context(|| path.display().to_string())?))
}

/// Where an export goes that is no file.
fn stream(a: &ExportArguments) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
    let (stream, is_terminal): (Box<dyn Write + Send>, _) = if a.to.as_os_str() == "-" {
        (Box::new(std::io::stdout()), std::io::stdout().is_terminal())
    } else if let Some(node) = node(&a.to)? {
        let is_terminal = node.is_terminal();
        (Box::new(node), is_terminal)
    } else {
        return Ok(None);
    };
    if is_terminal {
        bail!("an export is no text: send it to a file or a program, or name a file");
    }
    Ok(Some(stream))
}

pub async fn export(host: &Host, a: &ExportArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let Some(stream) = stream(a)? else {
        let report = export_file(host, &agent, a).await?;
        return told(a, &report);
    };
    let to = Box::new(BufWriter::with_capacity(BUFFER, stream));
    // what is flushed has been taken: more is not to be known of who reads
    let made =
        if a.moves { host.export_move(&agent, to, || Ok(())).await } else { host.export(&agent, to).await };
    let report = made.map_err(|e| {
        let e = anyhow::Error::new(e);
        let e = if a.moves { e.context("it was not moved, and goes on here") } else { e };
        e.context(OfAgent(a.agent.clone()))
    })?;
    if a.to.as_os_str() != "-" {
        return told(a, &report);
    }
    // standard output has the export
    if a.json {
        note(format_args!("{}", summary(a, &report)));
        return Ok(0);
    }
    let digest = blake3::Hash::from_bytes(report.digest).to_hex();
    note(format_args!("exported {} ({}), digest {digest}", a.agent, size(report.bytes)));
    if a.moves {
        note(format_args!("{}", moved(&a.agent)));
    }
    Ok(0)
}

fn summary(a: &ExportArguments, report: &ExportReport) -> serde_json::Value {
    json!({
        "id": report.id.to_string(), "path": a.to.display().to_string(), "bytes": report.bytes,
        "frames": report.frames, "generations": report.generations, "turns": report.turns,
        "digest": blake3::Hash::from_bytes(report.digest).to_hex().as_str(), "moved": a.moves,
    })
}

fn moved(name: &str) -> String {
    format!("{name} was moved: nothing here goes on with it, and `dormouse rm {name}` removes what is left")
}

fn told(a: &ExportArguments, report: &ExportReport) -> anyhow::Result<u8> {
    if a.json {
        print_json(&summary(a, report))?;
        return Ok(0);
    }
    let digest = blake3::Hash::from_bytes(report.digest).to_hex();
    let (generations, turns) = (count(report.generations, "generation"), count(report.turns, "turn"));
    say(format_args!("{}: {}, {generations} and {turns}", a.to.display(), size(report.bytes)))?;
    say(format_args!("digest {digest}"))?;
    if a.moves {
        say(format_args!("{}", moved(&a.agent)))?;
    }
    Ok(0)
}

/// An error of the file's names it.
pub fn of_file(e: AgentError, path: &str) -> anyhow::Error {
    match e {
        AgentError::Store(StoreError::Export(reason)) => anyhow!("{path} {reason}"),
        e => e.into(),
    }
}

/// Reads from one, and keeps what was read in the other.
struct Keeping<'a, R>(R, &'a mut File);

impl<R: Read> Read for Keeping<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buf)?;
        self.1.write_all(&buf[..read])?;
        Ok(read)
    }
}

/// What came through standard input, where it comes from there.
pub type Taken = Option<File>;
/// The agent's limits from here on, where there are any: bytes of memory, and processor time of a turn.
pub type Limits = (Option<u64>, Option<Duration>);

/// Looks at the beginning of what is to be imported, so that no store is made for what is none; and takes it in where it
/// comes through standard input, before the store is opened: whoever writes to the pipe may have the same store open.
/// None where it is a file of its own.
pub fn spool(path: &Path) -> anyhow::Result<Taken> {
    let begins =
        |from: &mut dyn Read, path: &str| ExportAbout::read(from).map_err(|e| of_file(e.into(), path));
    if path.as_os_str() != "-" {
        let shown = path.display().to_string();
        let reading = || format!("the export {shown}");
        let found = path.metadata().with_context(reading)?;
        if found.is_dir() {
            bail!("{shown} is a folder: an export is a file");
        }
        if found.is_file() {
            begins(&mut File::open(path).with_context(reading)?, &shown)?;
        }
        return Ok(None);
    }
    let folder = std::env::temp_dir();
    let taking = || format!("taking in standard input, in a file without a name in {}", folder.display());
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = File::from(rustix::fs::open(&folder, flags, mode).with_context(taking)?);
    let mut from = std::io::stdin().lock();
    // what has no end is none, and is not waited for
    begins(&mut Keeping(&mut from, &mut file), STANDARD_INPUT)?;
    std::io::copy(&mut from, &mut file).with_context(taking)?;
    file.rewind().with_context(taking)?;
    Ok(Some(file))
}

/// What the options of an import say.
pub fn options(a: &ImportArguments, (max_memory, max_cpu): Limits) -> anyhow::Result<ImportOptions> {
    Ok(ImportOptions {
        name: a.name.as_deref().map(AgentName::new).transpose()?,
        env: run::environment(&a.env)?,
        zones: a.zone.clone(),
        max_memory,
        max_cpu,
    })
}

/// What was [taken in](spool), or the file that is named: what errors call it, its bytes, and a bar that says that so
/// many of them were read.
pub fn open(
    a: &ImportArguments,
    taken: Taken,
    doing: &str,
) -> anyhow::Result<(String, Box<dyn Read + Send>, Working)> {
    let (from, path) = if let Some(file) = taken {
        (file, STANDARD_INPUT.to_owned())
    } else {
        let path = a.from.display().to_string();
        (File::open(&a.from).with_context(|| format!("the export {path}"))?, path)
    };
    let found = from.metadata().with_context(|| path.clone())?;
    let len = found.is_file().then_some(found.len());
    let from = Counted::new(from);
    let working = Working::on_bytes(format!("{doing} {path}"), from.count(), len);
    Ok((path, Box::new(BufReader::with_capacity(BUFFER, from)), working))
}

/// Imports what was [taken in](spool), or the file that is named.
pub async fn import(host: &Host, a: &ImportArguments, taken: Taken, limits: Limits) -> anyhow::Result<u8> {
    let options = options(a, limits)?;
    let (path, imported) = {
        let (path, from, _working) = open(a, taken, "importing")?;
        (path, host.import(from, options).await)
    };
    let agent = imported.map_err(|e| of_file(e, &path))?;
    let info = agent.info()?;
    // the agent is there: its first turn compiles what is not compiled now
    let compiled = {
        let _working = run::compiling(host, &agent, &info.name)?;
        unless(signalled(), host.prepare(&agent, 0)).await
    };
    if let Ok(Err(e)) = compiled {
        output::report(&anyhow::Error::new(e).context("its component was not compiled"));
    }
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
