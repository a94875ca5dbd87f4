//! `zone shared` and `zone rm-shared`.

use anyhow::anyhow;
use serde_json::json;

use crate::Host;
use crate::cli::output::{note, print_json, print_table, size, table};

/// Lists the shared zones, and who mounts each.
pub fn list(host: &Host, json: bool) -> anyhow::Result<u8> {
    let zones = host.store()?.shared_zones()?;
    if json {
        let rows: Vec<_> = zones
            .iter()
            .map(|zone| {
                let by: Vec<_> = zone.mounted_by.iter().map(|(name, _)| name).collect();
                match &zone.usage {
                    Ok((usage, quota)) => json!({
                        "name": zone.name, "id": zone.id.to_string(), "mounted_by": by,
                        "bytes": usage.bytes, "quota_bytes": quota.bytes,
                        "inodes": usage.inodes, "quota_inodes": quota.inodes,
                    }),
                    Err(e) => json!({
                        "name": zone.name, "id": zone.id.to_string(), "mounted_by": by, "error": zone_vfs::told(&**e),
                    }),
                }
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = zones
        .into_iter()
        .map(|zone| {
            let (used, quota, inodes) = match zone.usage {
                Ok((usage, quota)) => {
                    let inodes = format!("{} of {}", usage.inodes, quota.inodes);
                    (size(usage.bytes), size(quota.bytes), inodes)
                }
                Err(e) => (zone_vfs::told(&*e), "-".into(), "-".into()),
            };
            let by: Vec<_> = zone.mounted_by.into_iter().map(|(name, _)| name).collect();
            vec![zone.name, used, quota, inodes, if by.is_empty() { "-".into() } else { by.join(", ") }]
        })
        .collect();
    print_table(&table(&["NAME", "USED", "QUOTA", "INODES", "MOUNTED BY"], &[1, 2, 3], rows))?;
    Ok(0)
}

/// Removes a shared zone; with `force`, also one that agents mount, or that cannot be read.
pub fn remove(host: &Host, name: &str, force: bool, as_json: bool) -> anyhow::Result<u8> {
    let store = host.store()?;
    let name = name.trim_start_matches('@');
    let id = store.find_shared(name)?.ok_or_else(|| anyhow!("no shared zone named `{name}`"))?;
    let mut mounted_by = Vec::new();
    if force {
        mounted_by = store.remove_shared_by_force(id)?;
    } else {
        store.remove_shared(id)?;
    }
    if as_json {
        let by: Vec<_> = mounted_by.iter().map(|(agent, _)| agent).collect();
        print_json(&json!({ "name": name, "id": id.to_string(), "mounted_by": by }))?;
    } else {
        for (agent, _) in mounted_by {
            note(format_args!("dormouse: {agent} mounted it: that mount leads nowhere now"));
        }
    }
    Ok(0)
}
