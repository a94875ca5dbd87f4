use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};

use super::args::RunArguments;
use super::progress::Working;
use super::stop::{Why, stopped, unless};
use super::terminal::Escaping;
use super::words::Lines;
use super::{TRAPPED, output};
use crate::agent::{AgentName, RunOptions};
use crate::journal::World;
use crate::wasi::{Output, Stdio};
use crate::{Agent, AgentError, AgentOptions, Host};

/// Reads a component's file, of which no more than a component may have is read.
pub fn read_component(path: &Path) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    // opening a device can already have an effect
    let found = std::fs::metadata(path).with_context(reading)?;
    refuse_what_has_no_end(path, &found)?;
    let file = std::fs::File::open(path).with_context(reading)?;
    refuse_what_has_no_end(path, &file.metadata().with_context(reading)?)?;
    let mut bytes = Vec::new();
    let limit = crate::component::limits::MAX_BYTES as u64;
    file.take(limit + 1).read_to_end(&mut bytes).with_context(reading)?;
    if bytes.len() as u64 > limit {
        bail!("{} has more than {limit} bytes: a component has at most so many", path.display());
    }
    if is_text(&bytes) {
        return assemble(&bytes, path);
    }
    Ok(bytes)
}

/// Bytes of a component as text, at most.
const MAX_TEXT: usize = 16 << 20;

/// Whether it begins as the text of a component or module does: with a form, or with a comment.
fn is_text(bytes: &[u8]) -> bool {
    let begins = bytes.trim_ascii_start();
    [&b"("[..], b";;"].iter().any(|start| begins.starts_with(start))
}

/// The binary of a component that is written as text.
fn assemble(text: &[u8], path: &Path) -> anyhow::Result<Vec<u8>> {
    if text.len() > MAX_TEXT {
        bail!("{} has more than {MAX_TEXT} bytes: a component as text has at most so many", path.display());
    }
    // its error shows the line
    let binary = wat::parse_bytes(text).map_err(|mut e| {
        e.set_path(path);
        anyhow::Error::new(e)
    })?;
    Ok(binary.into_owned())
}

/// Refuses what is not there, or can be no component's file, without reading it.
pub fn expect_component(path: &Path) -> anyhow::Result<()> {
    let found = std::fs::metadata(path).with_context(|| format!("reading {}", path.display()))?;
    refuse_what_has_no_end(path, &found)
}

/// A component comes from a file or through a pipe.
fn refuse_what_has_no_end(path: &Path, found: &std::fs::Metadata) -> anyhow::Result<()> {
    let kind = found.file_type();
    if kind.is_dir() {
        bail!("{} is a folder, not a component", path.display());
    }
    if !kind.is_file() && !kind.is_fifo() {
        bail!("{} is neither a file nor a pipe: a component is read from one of these", path.display());
    }
    Ok(())
}

/// `K=V`, or `K` for this process's own.
pub fn environment(given: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    given
        .iter()
        .map(|text| match text.split_once('=') {
            Some(("", _)) => bail!("`{text}`: an environment variable needs a name"),
            Some((k, v)) => Ok((k.to_string(), v.to_string())),
            None => {
                let value = std::env::var(text).with_context(|| format!("--env {text}"))?;
                Ok((text.clone(), value))
            }
        })
        .collect()
}

/// Shows that a component is being compiled, where it has to be.
pub fn compiling(host: &Host, agent: &Agent, name: &str) -> anyhow::Result<Option<Working>> {
    let compiled = host.is_ready(&agent.about()?.component);
    Ok((!compiled).then(|| Working::on(format!("compiling the component of {name}"))))
}

/// The same for a component that is not an agent's yet.
pub fn compiling_new(host: &Host, component: &[u8], path: &Path) -> Option<Working> {
    (!host.is_compiled(component)).then(|| Working::on(format!("compiling {}", path.display())))
}

/// The name of a file, without its ending.
pub fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "agent".into(), |s| s.to_string_lossy().into_owned())
}

/// The agent to run: the one of this name, or a new one.
async fn find_or_create(
    host: &Host,
    a: &RunArguments,
    path: &Path,
    component: &[u8],
) -> anyhow::Result<Agent> {
    let hash = *blake3::hash(component).as_bytes();
    let options = || {
        Ok::<_, anyhow::Error>(AgentOptions {
            zones: a.zone.clone(),
            component_name: path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            ..AgentOptions::default()
        })
    };
    let store = host.store()?;
    if let Some(name) = &a.name {
        let name = AgentName::new(name)?;
        if store.find(name.as_str())?.is_none() {
            return Ok(host.create(&name, component, options()?).await?);
        }
        let agent = host.agent(name.as_str())?;
        refuse_zones(a, name.as_str())?;
        if agent.about()?.component != hash {
            host.replace_command(&agent, component, &options()?.component_name).await?;
        }
        return Ok(agent);
    }
    // without a name: the agent of this very component, or a new one beside those of other components
    let cleaned: String =
        stem(path).chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let base = AgentName::new(cleaned.trim_matches(['.', '-'])).unwrap_or(AgentName::new("agent")?);
    for number in 1..10_000 {
        let name = if number == 1 { base.to_string() } else { format!("{base}-{number}") };
        if store.find(&name)?.is_none() {
            let agent = host.create(&AgentName::new(&name)?, component, options()?).await?;
            if number > 1 {
                output::note(format_args!(
                    "dormouse: agent `{base}` is of another component: this one gets zones of its own, as `{name}` \
                     (--name {base} runs it on those of `{base}`)"
                ));
            } else if std::io::stderr().is_terminal() {
                output::note(format_args!("dormouse: its zones are kept as agent `{name}`"));
            }
            return Ok(agent);
        }
        let agent = host.agent(&name)?;
        if agent.about()?.component == hash {
            refuse_zones(a, &name)?;
            return Ok(agent);
        }
    }
    bail!("there are thousands of agents named like {base}: give one a name with --name")
}

/// Refuses what `send` is for, before anything is made of it.
fn refuse_agents(path: &Path, is_agent: bool) -> anyhow::Result<()> {
    if is_agent {
        bail!(
            "{} is an agent, not a command: make one with `dormouse new NAME`, then `dormouse send NAME`",
            path.display()
        );
    }
    Ok(())
}

/// Gets all ready that a run of the component needs.
async fn get_ready(host: &Host, path: &Path, component: &Arc<[u8]>) -> anyhow::Result<()> {
    if !host.is_compiled(component) {
        let component = component.clone();
        // reading a hostile one takes a while, which has to end with the time that the run has
        let scan = crate::threads::run(move || crate::component::scan(&component).map(|it| it.world()));
        refuse_agents(path, scan.await?? == crate::component::World::Agent)?;
    }
    // code that was compiled for somebody else says it too
    refuse_agents(path, host.warm_up(component).await? == World::Agent)
}

fn refuse_zones(a: &RunArguments, name: &str) -> anyhow::Result<()> {
    if !a.zone.is_empty() {
        bail!("agent `{name}` exists and has its zones: --zone is for new agents");
    }
    Ok(())
}

fn writer(terminal: bool, raw: bool, out: impl Write + AsFd + Send + 'static) -> Output {
    if terminal && !raw { Output::writing(Escaping::new(out)) } else { Output::writing_to(out) }
}

pub async fn run(host: &Host, a: RunArguments) -> anyhow::Result<u8> {
    let env = environment(&a.env)?;
    let Some((path, args)) = a.command.split_first() else { bail!("name a component to run") };
    let (path, args) = (Path::new(path), args.to_vec());
    let component: Arc<[u8]> = read_component(path)?.into();
    // reading it, compiling and the run together have this time
    let stop = stopped(a.timeout);
    tokio::pin!(stop);
    let late = || {
        let seconds = a.timeout.unwrap_or_default().as_secs_f64();
        anyhow::anyhow!("{} took longer than {seconds} s and was ended", path.display())
    };
    let warm = {
        let _working = compiling_new(host, &component, path);
        unless(&mut stop, get_ready(host, path, &component)).await
    };
    let named = || path.display().to_string();
    let found = match warm {
        Ok(warm) => {
            warm.with_context(named)?;
            unless(&mut stop, Box::pin(find_or_create(host, &a, path, &component))).await
        }
        Err(why) => Err(why),
    };
    let agent = match found {
        Ok(found) => found.with_context(named)?,
        Err(Why::Signal(status)) => return Ok(status),
        Err(Why::Late) => return Err(late()),
    };
    let world = agent.about()?.world;
    if world != World::Command {
        let name = agent.info()?.name;
        bail!("{} is an agent, not a command: send it events with `dormouse send {name}`", path.display());
    }
    let inherited = Stdio::inherit();
    let out = writer(inherited.stdout_terminal, a.raw, std::io::stdout());
    let err = writer(inherited.stderr_terminal, a.raw, std::io::stderr());
    let stdio = Stdio { stdout: Some(out.clone()), stderr: Some(err.clone()), ..inherited };
    let options = RunOptions { args, env, stdio, timeout: None };
    let mut why = None;
    let outcome = agent.run(options, async { why = Some((&mut stop).await) }).await;
    if err.is_held_up() {
        // standard error takes nothing more: what there is to say could not be said
        let signal = if let Some(Why::Signal(status)) = why { Some(status) } else { None };
        return Ok(signal.unwrap_or(1));
    }
    match outcome {
        Ok(outcome) => match outcome.status {
            Ok(status) => match out.untold().filter(|e| e.kind != ErrorKind::BrokenPipe) {
                Some(e) => Err(output::unwritten_by_guest(status, &e.message)),
                None => Ok(status),
            },
            Err(reason) => {
                output::report(&Lines(reason).into());
                Ok(TRAPPED)
            }
        },
        Err(AgentError::Cancelled) => match why {
            Some(Why::Signal(status)) => Ok(status),
            _ => Err(late()),
        },
        Err(e) => Err(e.into()),
    }
}
