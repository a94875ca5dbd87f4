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
pub fn remove(host: &Host, name: &str, force: bool) -> anyhow::Result<u8> {
    let store = host.store()?;
    let name = name.trim_start_matches('@');
    let id = store.find_shared(name)?.ok_or_else(|| anyhow!("no shared zone named `{name}`"))?;
    if force {
        for (agent, _) in store.remove_shared_by_force(id)? {
            note(format_args!("dormouse: {agent} mounted it: that mount leads nowhere now"));
        }
    } else {
        store.remove_shared(id)?;
    }
    Ok(0)
}
