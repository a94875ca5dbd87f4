use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use zone_vfs::store::StoreError;

use super::args::InspectArguments;
use super::output::{self, count, print_json, say, size};
use super::run;
use super::stop::{signalled, unless};
use crate::code::Compiler;
use crate::component::{self, BinaryKind, Inspection};
use crate::{AgentError, HostOptions};

/// Starts the component once, to see whether its agents can share a genesis image. What is compiled
/// for that stays in the store, for the agents to come; where there is no store, nothing stays.
async fn shared_genesis(bytes: &[u8], folder: PathBuf, wait: Option<Duration>) -> anyhow::Result<bool> {
    let mut options = HostOptions { compiler: Some(Compiler::this()?), ..HostOptions::new(folder) };
    options.store.create = false;
    let mut for_now = None;
    let host = match super::open(options.clone(), wait).await {
        Err(AgentError::Store(StoreError::NoStore { .. })) => {
            let folder = for_now.insert(tempfile::tempdir().context("making a folder to try it in")?);
            options.folder = folder.path().into();
            options.store.create = true;
            super::open(options, wait).await?
        }
        opened => opened?,
    };
    let shared = host.shares_genesis(bytes).await;
    host.close()?;
    Ok(shared?)
}

/// What keeps a file from being run here, other than that it cannot be captured.
fn obstacles(found: &Inspection, bytes: &[u8]) -> Vec<String> {
    let missing = crate::wasi::not_provided(found.kind, &found.imports);
    let mut obstacles: Vec<String> =
        missing.iter().map(|name| format!("it imports `{name}`, which Dormouse does not provide")).collect();
    if found.capturable && found.kind == BinaryKind::CoreModule {
        match component::wrap_core_module(bytes) {
            Ok(_) => {}
            Err(e) => obstacles.push(e.to_string()),
        }
    }
    if found.world == component::World::Other {
        let exports = "it exports neither wasi:cli/run nor handle of dormouse:agent/agent";
        obstacles.push(format!("it is neither a command nor an agent: {exports}"));
    }
    obstacles
}

#[derive(serde::Serialize)]
struct Report {
    #[serde(flatten)]
    inspection: Inspection,
    /// Whether `dormouse run` or `dormouse new` takes it.
    runnable: bool,
    /// If not, why, apart from the refusals.
    obstacles: Vec<String>,
}

pub async fn inspect(
    a: &InspectArguments,
    store: Option<PathBuf>,
    wait: Option<Duration>,
) -> anyhow::Result<u8> {
    let bytes = run::read_component(&a.component)?;
    let mut found = component::inspect(&bytes).with_context(|| a.component.display().to_string())?;
    let mut obstacles = obstacles(&found, &bytes);
    let mut runnable = found.capturable && obstacles.is_empty();
    if runnable && !a.no_start {
        let folder = store.map_or_else(super::default_store, Ok)?;
        let tried = {
            let _working = super::progress::Working::on(format!("starting {}", a.component.display()));
            unless(signalled(), shared_genesis(&bytes, folder, wait)).await
        };
        match tried {
            Ok(Ok(shared)) => found.shared_genesis = Some(shared),
            Ok(Err(e)) if is_obstacle(&e) => {
                obstacles.push(e.to_string());
                runnable = false;
            }
            Ok(Err(e)) => {
                output::report(&e.context("whether its agents share a genesis image was not tried"));
            }
            Err(status) => return Ok(status),
        }
    }
    let report = Report { inspection: found, runnable, obstacles };
    if a.json {
        print_json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(u8::from(!report.runnable))
}

/// Whether `run` and `new` would fail in the same way: it lies in the component.
fn is_obstacle(e: &anyhow::Error) -> bool {
    matches!(
        e.downcast_ref(),
        Some(AgentError::Instantiate(_) | AgentError::GenesisTime(_) | AgentError::MemoryLimit { .. })
    )
}

fn print(report: &Report) -> anyhow::Result<()> {
    let i = &report.inspection;
    let world = match i.world {
        component::World::Command => "a command: run it with `dormouse run`",
        component::World::Agent => "an agent: make one with `dormouse new`, talk to it with `dormouse send`",
        component::World::Other => "neither a command nor an agent",
    };
    say(format_args!("world       {world}"))?;
    say(format_args!(
        "size        {}, {}, {}",
        size(i.bytes as u64),
        count(i.components as u64, "component"),
        count(i.modules.len() as u64, "core module")
    ))?;
    let tags: u64 = i.modules.iter().map(|module| u64::from(module.tags)).sum();
    if tags > 0 {
        say(format_args!("exceptions  {}", count(tags, "tag")))?;
    }
    for item in &i.imports {
        say(format_args!("imports     {}", item.name))?;
    }
    for item in &i.exports {
        say(format_args!("exports     {}", item.name))?;
    }
    if i.capturable {
        say(format_args!("captured    yes: it can be paused, resumed, forked and rewound"))?;
    } else {
        say(format_args!("captured    no"))?;
        for refusal in &i.refusals {
            say(format_args!("            {refusal}"))?;
        }
    }
    for (at, obstacle) in report.obstacles.iter().enumerate() {
        let label = if at == 0 { "cannot run" } else { "" };
        say(format_args!("{label:11} {obstacle}"))?;
    }
    match i.shared_genesis {
        Some(true) => say(format_args!("genesis     one image for all its agents"))?,
        Some(false) => say(format_args!(
            "genesis     one image for each agent: it asks about its surroundings as it starts"
        ))?,
        None => {}
    }
    Ok(())
}
