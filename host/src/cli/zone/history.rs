//! `zone history`, `zone rollback` and `zone deleted`.

use anyhow::anyhow;
use serde_json::json;
use zone_vfs::contract::Principal;
use zone_vfs::id::Version;
use zone_vfs::tree::VersionKind;
use zone_vfs::zone::{Cause, Expected, VersionEntry, ZoneError};

use super::place::{Place, View};
use crate::Host;
use crate::cli::output::{column_time, print_json, print_table, say, size, table, time};

/// Versions that are read at once.
const PIECE: usize = 1000;

/// How an event is called.
fn kind(kind: VersionKind) -> String {
    match kind {
        VersionKind::Create => "create".into(),
        VersionKind::Publish => "publish".into(),
        VersionKind::Rollback { to } => format!("rollback to {to}"),
        VersionKind::Rename => "rename".into(),
        VersionKind::Tombstone => "tombstone".into(),
        VersionKind::Forgotten => "forgotten".into(),
        VersionKind::RootMoved { to } => format!("rewound to {to}"),
    }
}

pub fn principal(by: Principal) -> &'static str {
    match by {
        Principal::Agent => "agent",
        Principal::Tool => "tool",
        Principal::Manager => "manager",
        Principal::Host => "host",
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn history(
    host: &Host,
    place: &Place,
    after: Option<u64>,
    limit: usize,
    json: bool,
) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    let path = view.path.clone();
    let mut after = after.map(Version);
    let mut all: Vec<VersionEntry> = Vec::new();
    while all.len() < limit {
        let count = (limit - all.len()).min(PIECE);
        let some = view.with(&path, |z, access| z.history_at(access, path.as_bytes(), after, count))?;
        let Some(last) = some.last() else { break };
        after = Some(last.version);
        all.extend(some);
    }
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|e| {
                let r = &e.record;
                json!({
                    "version": e.version.0, "file": e.file.0, "current": e.is_current, "kind": kind(r.kind),
                    "at": time(r.at), "by": principal(r.by), "turn": r.turn.0, "bytes": r.size,
                    "path": e.path.as_deref().map(text), "hash": r.has_content().then(|| r.hash.to_string()),
                })
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = all
        .into_iter()
        .map(|e| {
            let mark = if e.is_current { " *" } else { "" };
            vec![
                format!("{}{mark}", e.version),
                e.file.to_string(),
                kind(e.record.kind),
                column_time(e.record.at),
                principal(e.record.by).into(),
                e.record.turn.to_string(),
                if e.record.has_content() { size(e.record.size) } else { "-".into() },
                e.path.as_deref().map_or_else(|| "-".into(), text),
            ]
        })
        .collect();
    print_table(&table(&["VERSION", "FILE", "KIND", "TIME", "BY", "TURN", "SIZE", "PATH"], &[5, 6], rows))?;
    Ok(0)
}

pub fn rollback(host: &Host, place: &Place, to: u64, expect: Option<u64>, json: bool) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    view.writable()?;
    let path = view.path.clone();
    let expected = expect.map_or(Expected::Any, |version| Expected::Version(Version(version)));
    let made = view.with(&path, |z, access| z.rollback_at(access, path.as_bytes(), Version(to), expected));
    let made = made.map_err(|e| match e.downcast_ref::<ZoneError>() {
        Some(ZoneError { cause: Some(Cause::NoVersion(version)), .. }) => {
            anyhow!(
                "no version {version} of {}; `dormouse zone history {0}` lists them, and what is below `.versions/` can be read",
                view.target()
            )
        }
        _ => e,
    })?;
    view.commit()?;
    if json {
        print_json(&json!({ "path": view.target(), "rolled_back_to": to, "version": made.0 }))?;
    } else {
        say(format_args!("rolled back {} to version {to}; it stands at version {made}", view.target()))?;
    }
    Ok(0)
}

pub fn deleted(host: &Host, place: &Place, json: bool) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    let mut after = None;
    let mut all = Vec::new();
    loop {
        let cursor = after.take();
        let some = view.with("", |z, access| z.deleted(access, cursor.as_ref(), PIECE))?;
        let Some(last) = some.last() else { break };
        after = Some(last.place.clone());
        all.extend(some);
    }
    let folder = view.path.clone();
    let below = |path: &str| crate::wit::is_below(path.as_bytes(), folder.as_bytes());
    let named = all.into_iter().filter_map(|d| Some((text(d.path.as_deref()?), d)));
    let all: Vec<_> = named.filter(|(path, _)| below(path)).collect();
    view.told_of(|_| Ok(!all.is_empty()))?;
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|(path, d)| json!({ "path": path, "file": d.file.0, "version": d.version.0, "at": time(d.at) }))
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = all
        .into_iter()
        .map(|(path, d)| vec![d.version.to_string(), column_time(d.at), path])
        .collect::<Vec<_>>();
    print_table(&table(&["VERSION", "TIME", "PATH"], &[], rows))?;
    Ok(0)
}
