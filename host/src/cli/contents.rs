//! `import --dry-run`: what an export holds, after all the checks of an import.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use zone_vfs::id::Timestamp;
use zone_vfs::store::{StoreError, ZoneSpec};

use super::args::ImportArguments;
use super::life::{cause, hex};
use super::output::{age, count, print_json, print_table, say, size, table, time};
use super::stop::{signalled, unless};
use super::terminal::escape_line;
use super::travel::{self, Taken};
use crate::upkeep::{ExportContents, ExportedGeneration, ExportedZoneContents};
use crate::{AgentError, HostOptions};

/// Reads an export to its end, and says what is in it. Nothing of the store's is changed, and none is made.
pub async fn look(
    mut options: HostOptions,
    a: &ImportArguments,
    taken: Taken,
    limits: travel::Limits,
    wait: Option<Duration>,
) -> anyhow::Result<u8> {
    let import = travel::options(a, limits)?;
    // what it is taken into goes with this
    let scratch =
        tempfile::Builder::new().prefix("dormouse-").tempdir().context("making a temporary folder")?;
    let (path, read) = {
        let (path, from, _working) = travel::open(a, taken, "checking")?;
        let read = ExportContents::read(from, scratch.path(), &options, import);
        (path, unless(signalled(), Box::pin(read)).await)
    };
    let contents = match read {
        Ok(read) => read.map_err(|e| travel::of_file(e, &path))?,
        Err(status) => return Ok(status),
    };
    scratch.close().context("removing a temporary folder")?;
    options.store.create = false;
    expect_free(options, wait, &contents.name).await?;
    if a.json {
        print_json(&as_json(&contents))?;
        return Ok(0);
    }
    tell(&path, &contents)?;
    Ok(0)
}

/// Refuses a name that an agent of the store has. A store that is not there has none.
async fn expect_free(options: HostOptions, wait: Option<Duration>, name: &str) -> anyhow::Result<()> {
    let folder = options.folder.clone();
    let host = match super::open(options, wait).await {
        Err(AgentError::Store(StoreError::NoStore { .. })) => return Ok(()),
        opened => opened.map_err(|e| super::output::of_store(e, &folder))?,
    };
    let taken = host.store()?.find(name)?.is_some();
    host.close().context("closing the store")?;
    if taken { Err(StoreError::NameTaken(name.into()).into()) } else { Ok(()) }
}

fn tell(path: &str, it: &ExportContents) -> anyhow::Result<()> {
    let moved = if it.export.is_move { ", which was moved with it" } else { "" };
    say(format_args!("{path}: an export of {} ({}){moved}", it.name, it.about.world.name()))?;
    say(format_args!("made {} ({} ago), id {}", time(it.export.made), age(it.export.made), it.export.id))?;
    let component = escape_line(&it.about.component_name);
    say(format_args!("component {component}, blake3 {}", hex(&it.about.component)))?;
    let generations = count(it.generations.len() as u64, "generation");
    let turns = count(it.last_turn.0, "turn");
    say(format_args!(
        "stands at {}, with {generations} and {turns}; created {} ago",
        it.head,
        age(it.created)
    ))?;
    let rows = it.zones.iter().map(zone_row).collect();
    print_table(&table(&["MOUNT", "KIND", "USED", "QUOTA", "INODES"], &[2, 3, 4], rows))?;
    let rows = it.generations.iter().map(|g| generation_row(g, it.head == g.number)).collect();
    print_table(&table(&["GENERATION", "CAUSE", "TURN", "AGE", "MEMORY"], &[2, 3, 4], rows))?;
    Ok(())
}

fn zone_row(it: &ExportedZoneContents) -> Vec<String> {
    let ZoneSpec { mount, kind, quota, shared, .. } = &it.zone;
    if let (Some(name), Some(at)) = (&it.shared, shared) {
        let how = if at.writable { "rw" } else { "ro" };
        return vec![
            mount.clone(),
            format!("{kind}: --zone {name}={mount}:{how}"),
            "-".into(),
            "-".into(),
            "-".into(),
        ];
    }
    let inodes = format!("{} of {}", it.used.inodes, quota.inodes);
    vec![mount.clone(), kind.to_string(), size(it.used.bytes), size(quota.bytes), inodes]
}

fn generation_row(it: &ExportedGeneration, is_head: bool) -> Vec<String> {
    vec![
        format!("{}{}", it.number, if is_head { " *" } else { "" }),
        cause(&it.cause).chars().take(60).collect(),
        it.turn.to_string(),
        age(it.at),
        it.memory.map_or_else(|| "-".into(), size),
    ]
}

fn as_json(it: &ExportContents) -> Value {
    let seconds = |at: Timestamp| Timestamp::now().0.saturating_sub(at.0) / 1_000_000_000;
    let zones = it.zones.iter().map(|zone| {
        let spec = &zone.zone;
        json!({
            "name": spec.name, "mount": spec.mount, "kind": spec.kind.name(),
            "bytes": zone.used.bytes, "inodes": zone.used.inodes,
            "quota_bytes": spec.quota.bytes, "quota_inodes": spec.quota.inodes,
            "shared": zone.shared, "writable": spec.shared.is_none_or(|at| at.writable),
        })
    });
    let generations = it.generations.iter().map(|g| {
        json!({
            "generation": g.number.0, "cause": cause(&g.cause), "turn": g.turn.0, "made": time(g.at),
            "head": g.number == it.head, "memory_bytes": g.memory,
            "component_blake3": g.component.as_ref().map(hex),
        })
    });
    json!({
        "id": it.export.id.to_string(), "made": time(it.export.made), "age_seconds": seconds(it.export.made),
        "moved": it.export.is_move, "name": it.name, "world": it.about.world.name(),
        "component": it.about.component_name, "component_blake3": hex(&it.about.component),
        "max_memory_bytes": it.about.max_memory,
        "max_cpu_seconds": it.about.max_cpu.map(|it| it.as_secs_f64()),
        "created": time(it.created), "generation": it.head.0, "turns": it.last_turn.0,
        "zones": zones.collect::<Vec<_>>(), "generations": generations.collect::<Vec<_>>(),
    })
}
