use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use zone_vfs::contract::{Principal, ZoneKind};
use zone_vfs::id::{Inode, Timestamp};
use zone_vfs::store::{Outcome, StoreError, ZoneSpec};
use zone_vfs::zone::Access;

use super::args::{ListArguments, LogsArguments, NewArguments, RemoveArguments};
use super::output::{
    LISTS_AGENTS, OfAgent, age, note, print_json, print_json_line, print_table, say, size, table, time,
};
use super::stop::{signalled, unless};
use super::zone::of_generation;
use super::{run, terminal};
use crate::agent::AgentName;
use crate::journal::World;
use crate::wasi::Start;
use crate::{Agent, AgentError, AgentOptions, Host};

/// Refuses options of `new` behind the guest's first argument, which would be the guest's without a word: after `--`
/// they are meant so.
fn refuse_own_options(args: &[String]) -> anyhow::Result<()> {
    let own = ["--zone", "--env", "--json", "--store", "--max-memory", "--wait"];
    let is_own = |arg: &&String| own.iter().any(|it| arg.split('=').next() == Some(it));
    match args.iter().find(is_own) {
        Some(arg) if !std::env::args_os().any(|it| it == "--") => bail!(
            "{arg} stands behind the guest's arguments, and would be one: put it before AGENT.wasm, or `--` before \
             the guest's arguments"
        ),
        _ => Ok(()),
    }
}

pub async fn new(
    host: &Host,
    a: NewArguments,
    max_memory: Option<u64>,
    max_cpu: Option<Duration>,
) -> anyhow::Result<u8> {
    let name = AgentName::new(&a.name)?;
    refuse_own_options(&a.args)?;
    let component = run::read_component(&a.component)?;
    let options = AgentOptions {
        args: a.args,
        env: run::environment(&a.env)?,
        zones: a.zone,
        component_name: a.component.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        max_memory,
        max_cpu,
    };
    if host.store()?.find(name.as_str())?.is_some() {
        return Err(StoreError::NameTaken(name.to_string()).into());
    }
    // all of it can be stopped, and leaves nothing behind
    let made = async {
        let working = run::compiling_new(host, &component, &a.component);
        host.warm_up(&component).await?;
        drop(working);
        host.create(&name, &component, options).await
    };
    let made = match unless(signalled(), Box::pin(made)).await {
        Ok(made) => made,
        Err(status) => return Ok(status),
    };
    let agent = made.map_err(|e| match e {
        AgentError::Store(_) => anyhow::Error::new(e),
        e => anyhow::Error::new(e).context(a.component.display().to_string()),
    })?;
    if a.json {
        print_json(&json!({ "name": a.name, "id": agent.id().to_string(), "generation": 0 }))?;
    } else {
        say(format_args!("created {} ({})", a.name, agent.about()?.world.name()))?;
    }
    Ok(0)
}

pub async fn remove(host: &Host, a: RemoveArguments) -> anyhow::Result<u8> {
    let mut names = a.agents;
    names.sort();
    names.dedup();
    let (mut agents, mut damaged, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let generations: Vec<String> = names.extract_if(.., |name| name.contains('@')).collect();
    for name in &names {
        match host.agent(name) {
            Err(AgentError::Store(StoreError::DamagedAgent { .. })) => damaged.push(name),
            Err(AgentError::NoAgent(name)) => missing.push(format!("`{name}`")),
            agent => agents.push(agent?),
        }
    }
    let (mut dropped, mut kept) = (Vec::new(), None);
    for text in &generations {
        let (name, number) = of_generation(text)?;
        let agent = match host.agent(name) {
            Err(AgentError::NoAgent(name)) => {
                missing.push(format!("`{name}`"));
                continue;
            }
            agent => agent?,
        };
        let number = number.ok_or_else(|| anyhow!("{text}: no generation is named"))?;
        let found = agent.disk().generation(number).with_context(|| OfAgent(name.into()))?;
        let is_head = number == agent.disk().head();
        if is_head || found.is_pinned {
            let error = AgentError::from(StoreError::GenerationKept { generation: number, is_head });
            kept = kept.or(Some(anyhow::Error::new(error).context(OfAgent(name.into()))));
        }
        dropped.push((agent, number));
    }
    // all of them are there, and can go, before any goes
    if !missing.is_empty() {
        bail!("no agent named {}: nothing was removed; {LISTS_AGENTS}", missing.join(", "));
    }
    if let Some(kept) = kept {
        return Err(kept);
    }
    // all is done before it is told: a reader that has gone leaves nothing half done
    let mut removed = Vec::new();
    for (agent, number) in dropped {
        let name = agent.info()?.name;
        agent.drop_generation(number).await.with_context(|| OfAgent(name.clone()))?;
        removed.push((name, number));
    }
    host.remove_all(&agents).await?;
    for name in damaged {
        host.remove_damaged(name).await?;
    }
    if a.json {
        let generations: Vec<_> =
            removed.iter().map(|(name, number)| json!({ "agent": name, "generation": number.0 })).collect();
        print_json(&json!({ "agents": names, "generations": generations }))?;
        return Ok(0);
    }
    for (name, number) in removed {
        say(format_args!("removed generation {number} of {name}"))?;
    }
    for name in names {
        say(format_args!("removed {name}"))?;
    }
    Ok(0)
}

struct Row {
    name: String,
    state: &'static str,
    world: World,
    generation: u64,
    turns: u64,
    created: Timestamp,
    files: u64,
    memory: u64,
    parent: Option<String>,
    component: String,
    max_memory: Option<u64>,
    max_cpu: Option<Duration>,
    id: String,
    /// How far it is durable: the epoch and the number of its last record.
    durable: (u64, u64),
    /// The mounts of shared zones.
    shared: Vec<serde_json::Value>,
}

fn row(agent: &Agent) -> anyhow::Result<Row> {
    let info = agent.info()?;
    let about = agent.about()?;
    let generation = agent.disk().generation(info.head)?;
    let kept = agent.generation_about(&generation)?;
    let memory = kept.image.as_ref().map_or(0, crate::image::ImageReference::bytes);
    let failed = agent
        .disk()
        .last_turn_record()
        .is_some_and(|t| matches!(t.outcome, Outcome::Failed(_)) && t.turn > generation.turn);
    let state = if about.moved.is_some() {
        "moved"
    } else if failed {
        "failed"
    } else if generation.paused().is_some() {
        "paused"
    } else {
        // not by the cause: what the operator or a policy did may have made another generation of it since
        match kept.next_start {
            Start::Created => "new",
            Start::Forked => "forked",
            Start::Rewound => "rewound",
            Start::Upgraded => "upgraded",
            Start::Resumed if about.world == World::Command => "ended",
            Start::Resumed => "asleep",
        }
    };
    Ok(Row {
        name: info.name,
        state,
        world: about.world,
        generation: info.head.0,
        turns: info.last_turn.0,
        created: info.created,
        files: info.bytes,
        memory,
        parent: about.parent,
        component: about.component_name,
        max_memory: about.max_memory,
        max_cpu: about.max_cpu,
        id: info.id.to_string(),
        durable: (info.epoch.0, info.sequence.0),
        shared: info.zones.iter().filter_map(mount).collect(),
    })
}

/// A mount of a shared zone.
fn mount(zone: &ZoneSpec) -> Option<serde_json::Value> {
    let shared = zone.shared?;
    Some(json!({
        "name": zone.name, "mount": zone.mount, "id": shared.zone.to_string(), "writable": shared.writable,
    }))
}

const HEADER: [&str; 8] = ["NAME", "STATE", "GENERATION", "TURNS", "AGE", "FILES", "MEMORY", "PARENT"];

/// Lists the agents where there is no store yet: none.
pub fn list_none(a: &ListArguments) -> anyhow::Result<u8> {
    if a.json { print_json(&json!([])) } else { print_table(&table(&HEADER, &[], Vec::new())) }?;
    Ok(0)
}

pub fn list(host: &Host, a: &ListArguments) -> anyhow::Result<u8> {
    let rows = host.agents()?.iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
    let damaged = host.damaged()?;
    if a.json {
        let mut rows: Vec<_> = rows
            .iter()
            .map(|r| {
                json!({
                    "name": r.name, "id": r.id, "state": r.state, "world": r.world.name(),
                    "generation": r.generation, "turns": r.turns, "created": time(r.created),
                    "file_bytes": r.files, "memory_bytes": r.memory, "parent": r.parent, "component": r.component,
                    "max_memory_bytes": r.max_memory, "max_cpu_seconds": r.max_cpu.map(|time| time.as_secs_f64()),
                    "shared_zones": r.shared, "durable": { "epoch": r.durable.0, "sequence": r.durable.1 },
                })
            })
            .collect();
        rows.extend(damaged.iter().map(
            |d| json!({ "name": d.name, "id": d.id.to_string(), "state": "damaged", "reason": d.reason }),
        ));
        print_json(&rows)?;
        return Ok(0);
    }
    let mut rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|r| {
            vec![
                r.name,
                r.state.into(),
                r.generation.to_string(),
                r.turns.to_string(),
                age(r.created),
                size(r.files),
                if r.world == World::Command { "-".into() } else { size(r.memory) },
                r.parent.unwrap_or_else(|| "-".into()),
            ]
        })
        .collect();
    for d in &damaged {
        let mut row = vec!["-".to_string(); HEADER.len()];
        row[0].clone_from(&d.name);
        row[1] = "damaged".into();
        rows.push(row);
    }
    print_table(&table(&HEADER, &[2, 3, 4, 5, 6], rows))?;
    for d in damaged {
        note(format_args!("dormouse: {} is damaged: {}; `dormouse rm` removes it", d.name, d.reason));
    }
    Ok(0)
}

pub fn logs(host: &Host, a: &LogsArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let disk = agent.disk();
    let logs = disk.zones().iter().position(|z| z.kind == ZoneKind::Logs);
    let Some(zone) = logs.map(|z| z as u16) else { anyhow::bail!("{} has no logs zone", a.agent) };
    for (name, wanted, error) in [("stdout", !a.stderr, false), ("stderr", !a.stdout, true)] {
        if !wanted {
            continue;
        }
        let access = Access::new(Principal::Host, Timestamp::now());
        let found = disk.zone(zone, |z| z.resolve(access, Inode::ROOT, name.as_bytes(), false));
        let Some(Ok(inode)) = found else { continue };
        disk.zone(zone, |z| z.open_inode(inode)).transpose()?;
        let mut lines = Lines::new(name);
        let mut at = 0;
        loop {
            let mut piece = vec![0; 64 << 10];
            let read = disk.zone(zone, |z| z.read(access, inode, at, &mut piece)).transpose()?.unwrap_or(0);
            if read == 0 {
                break;
            }
            at += read as u64;
            if a.json {
                lines.add(&piece[..read])?;
                continue;
            }
            // a piece may end within a character: on a terminal that shows as an escape
            if error { terminal::print_error(&piece[..read])? } else { terminal::print(&piece[..read])? }
        }
        disk.zone(zone, |z| z.close(inode)).transpose()?;
        lines.end()?;
    }
    Ok(0)
}

/// A longer line of what a guest has written is told in several. Bytes.
const MAX_LOG_LINE: usize = 1 << 20;

/// What a guest has written to one of its outputs, as lines of JSON.
struct Lines {
    stream: &'static str,
    /// The line that has not ended yet.
    open: Vec<u8>,
}

impl Lines {
    fn new(stream: &'static str) -> Self {
        Self { stream, open: Vec::new() }
    }

    fn add(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(part);
            if self.open.ends_with(b"\n") || self.open.len() >= MAX_LOG_LINE {
                self.tell()?;
            }
        }
        Ok(())
    }

    /// Tells what came last, without the end of a line.
    fn end(&mut self) -> anyhow::Result<()> {
        if self.open.is_empty() { Ok(()) } else { self.tell() }
    }

    fn tell(&mut self) -> anyhow::Result<()> {
        let text = String::from_utf8_lossy(self.open.strip_suffix(b"\n").unwrap_or(&self.open));
        print_json_line(&json!({ "stream": self.stream, "text": text }))?;
        self.open.clear();
        Ok(())
    }
}
