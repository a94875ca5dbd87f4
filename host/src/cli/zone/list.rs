//! `zone ls` and `zone cat`.

use anyhow::{Context, bail};
use serde_json::json;
use zone_vfs::id::GenerationNumber;
use zone_vfs::store::ZoneSpec;
use zone_vfs::tree::FileKind;
use zone_vfs::zone::Stat;

use super::MAX_DEPTH;
use super::place::{Place, View, child, normal};
use crate::Host;
use crate::cli::output::{OfAgent, print_json, print_table, size, table, time};
use crate::cli::terminal;

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "folder",
        FileKind::Symlink => "link",
    }
}

/// Lists a folder or file, or the zones that lie below a path.
pub fn list(host: &Host, place: &Place, json: bool, recursive: bool) -> anyhow::Result<u8> {
    if place.is_shared {
        return list_folder(View::open(host, place)?, json, recursive);
    }
    let agent = host.agent(&place.name)?;
    let above = normal(place.path.as_deref().unwrap_or("/"));
    let below = |z: &ZoneSpec| above == "/" || z.mount.starts_with(&format!("{above}/"));
    let zones: Vec<_> = (0u16..).zip(agent.disk().zones()).filter(|(_, z): &(u16, _)| below(z)).collect();
    if zones.is_empty() {
        return list_folder(View::open(host, place)?, json, recursive);
    }
    if !recursive {
        return list_zones(host, place, zones, json);
    }
    let mut found = Vec::new();
    for (index, zone) in zones {
        let mut view = View::of_zone(agent.clone(), place, index, &zone.mount, "")?;
        let root = view.resolve_target()?;
        found.push((zone.mount.clone(), root));
        gather(&mut view, "", &zone.mount, root, true, 0, &mut found)?;
    }
    files(found, json)
}

fn list_folder(mut view: View, json: bool, recursive: bool) -> anyhow::Result<u8> {
    let stat = view.resolve_target()?;
    let mut found = Vec::new();
    if stat.kind == FileKind::Directory {
        let folder = view.path.clone();
        gather(&mut view, &folder, "", stat, recursive, 0, &mut found)?;
    } else {
        found.push((view.path.clone(), stat));
    }
    files(found, json)
}

/// Adds what is in a folder, and in those within it. `shown` is how the folder's own path begins.
fn gather(
    view: &mut View,
    folder: &str,
    shown: &str,
    stat: Stat,
    recursive: bool,
    depth: usize,
    found: &mut Vec<(String, Stat)>,
) -> anyhow::Result<()> {
    for (name, stat) in view.list(folder, stat.inode)? {
        let path = child(shown, &name);
        found.push((path.clone(), stat));
        if recursive && stat.kind == FileKind::Directory {
            if depth >= MAX_DEPTH {
                bail!("{} lies more than {MAX_DEPTH} folders deep", view.shown(&child(folder, &name)));
            }
            gather(view, &child(folder, &name), &path, stat, true, depth + 1, found)?;
        }
    }
    Ok(())
}

fn files(mut found: Vec<(String, Stat)>, json: bool) -> anyhow::Result<u8> {
    found.sort_by(|a, b| a.0.cmp(&b.0));
    if json {
        let rows: Vec<_> = found
            .iter()
            .map(|(path, s)| {
                json!({ "path": path, "kind": kind(s.kind), "bytes": s.size, "links": s.links, "modified": time(s.modified) })
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = found
        .into_iter()
        .map(|(path, s)| {
            let mut shown = time(s.modified);
            // whole seconds
            if shown.len() > 20 {
                shown.replace_range(19.., "Z");
            }
            let slash = if s.kind == FileKind::Directory { "/" } else { "" };
            vec![kind(s.kind).into(), size(s.size), shown, format!("{path}{slash}")]
        })
        .collect();
    print_table(&table(&["KIND", "SIZE", "MODIFIED", "NAME"], &[1], rows))?;
    Ok(0)
}

fn list_zones(host: &Host, place: &Place, zones: Vec<(u16, ZoneSpec)>, json: bool) -> anyhow::Result<u8> {
    let agent = host.agent(&place.name)?;
    let mut rows = Vec::new();
    for (index, spec) in zones {
        let usage = match place.generation {
            Some(number) => {
                let zone = agent.disk().zone_at(GenerationNumber(number), index);
                let zone = zone.with_context(|| OfAgent(place.name.clone()))?;
                (zone.usage(), zone.charged())
            }
            None => agent.disk().zone(index, |z| (z.usage(), z.charged())).unwrap_or_default(),
        };
        let mut spec = spec;
        if spec.shared.is_some() {
            // a mount's bounds are the zone's own
            spec.quota = agent.disk().zone(index, |z| z.quota()).unwrap_or(spec.quota);
        }
        rows.push((spec, usage));
    }
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(z, (usage, charged))| {
                json!({
                    "name": z.name, "mount": z.mount, "kind": z.kind.name(), "bytes": usage.bytes,
                    "charged_bytes": charged.bytes, "charged_inodes": charged.inodes,
                    "quota_bytes": z.quota.bytes, "inodes": usage.inodes, "quota_inodes": z.quota.inodes,
                    "writable": z.shared.is_none_or(|mount| mount.writable),
                })
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = rows
        .into_iter()
        .map(|(z, (usage, charged))| {
            let inodes = format!("{} of {}", charged.inodes, z.quota.inodes);
            let (used, charged) = (size(usage.bytes), size(charged.bytes));
            vec![z.mount, z.kind.to_string(), used, charged, size(z.quota.bytes), inodes]
        })
        .collect();
    print_table(&table(&["MOUNT", "KIND", "USED", "CHARGED", "QUOTA", "INODES"], &[2, 3, 4, 5], rows))?;
    Ok(0)
}

/// Prints a file.
pub fn cat(host: &Host, place: &Place) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    let stat = view.resolve_target()?;
    if stat.kind == FileKind::Directory {
        bail!("{} is a folder", view.target());
    }
    view.content(&view.path.clone(), stat.inode, terminal::print)?;
    Ok(0)
}
