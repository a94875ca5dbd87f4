use std::path::PathBuf;

use anyhow::Context;

use super::args::InspectArguments;
use super::output::{self, print_json, say, size};
use super::run;
use super::terminal::escape;
use crate::code::Compiler;
use crate::component::{self, Inspection};
use crate::{Host, HostOptions};

/// Starts the component once, to see whether its agents can share a genesis image. What is compiled
/// for that stays in the store, for the agents to come.
async fn shared_genesis(bytes: &[u8], folder: PathBuf) -> anyhow::Result<bool> {
    let options = HostOptions { compiler: Some(Compiler::this()?), ..HostOptions::new(folder) };
    let host = Host::open(options)?;
    let shared = host.shares_genesis(bytes).await;
    host.close()?;
    Ok(shared?)
}

pub async fn inspect(a: &InspectArguments, store: Option<PathBuf>) -> anyhow::Result<u8> {
    let bytes = run::read_component(&a.component)?;
    let mut found = component::inspect(&bytes).with_context(|| a.component.display().to_string())?;
    if found.capturable && found.world != component::World::Other && !a.no_start {
        let _working = super::progress::Working::on(format!("starting {}", a.component.display()));
        let folder = store.map_or_else(super::default_store, Ok)?;
        match shared_genesis(&bytes, folder).await {
            Ok(shared) => found.shared_genesis = Some(shared),
            Err(e) => output::report(&e.context("whether its agents share a genesis image was not tried")),
        }
    }
    if a.json {
        print_json(&found)?;
    } else {
        print(&found)?;
    }
    Ok(u8::from(!found.capturable))
}

fn print(i: &Inspection) -> anyhow::Result<()> {
    let world = match i.world {
        component::World::Command => "a command: run it with `dormouse run`",
        component::World::Agent => "an agent: make one with `dormouse new`, talk to it with `dormouse send`",
        component::World::Other => {
            "of no world that dormouse drives (it exports neither wasi:cli/run nor handle)"
        }
    };
    say(format_args!("world       {world}"))?;
    say(format_args!(
        "size        {}, {} components, {} core modules",
        size(i.bytes as u64),
        i.components,
        i.modules.len()
    ))?;
    for item in &i.imports {
        say(format_args!("imports     {}", escape(&item.name)))?;
    }
    for item in &i.exports {
        say(format_args!("exports     {}", escape(&item.name)))?;
    }
    if i.capturable {
        say(format_args!("captured    yes: it can be paused, resumed, forked and rewound"))?;
    } else {
        say(format_args!("captured    no"))?;
        for refusal in &i.refusals {
            say(format_args!("            {}", escape(&refusal.to_string())))?;
        }
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
