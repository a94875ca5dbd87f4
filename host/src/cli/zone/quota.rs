//! `zone quota`.

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use zone_vfs::zone::{Quota, Usage, Zone};

use super::place::{Place, normal};
use crate::agent::QuotaOption;
use crate::cli::output::{count, print_json, say, size};
use crate::{Agent, Host};

/// `SIZE`, `bytes=SIZE` or `inodes=COUNT`.
pub fn bound(text: &str) -> Result<QuotaOption, String> {
    text.strip_prefix("bytes=").unwrap_or(text).parse().map_err(|e| format!("{e}"))
}

/// What several of these say together.
fn together(bounds: &[QuotaOption]) -> anyhow::Result<QuotaOption> {
    let mut all = QuotaOption::default();
    for bound in bounds {
        for (place, value, what) in
            [(&mut all.bytes, bound.bytes, "bytes"), (&mut all.inodes, bound.inodes, "inodes")]
        {
            if value.is_some() && std::mem::replace(place, value).is_some() {
                bail!("the number of {what} is given twice");
            }
        }
    }
    Ok(all)
}

/// The zone of an agent that is meant: by its place, or by its name.
fn zone_of(agent: &Agent, place: &Place) -> anyhow::Result<u16> {
    let zones = agent.disk().zones();
    let Some(path) = &place.path else {
        let mounts: Vec<_> = zones.iter().map(|z| z.mount.as_str()).collect();
        bail!("name a zone of {}: {}", place.name, mounts.join(", "));
    };
    let absolute = normal(path);
    let found = (0u16..).zip(&zones).find(|(_, z)| z.mount == absolute || z.name == *path);
    found.map(|(index, _)| index).ok_or_else(|| {
        let mounts: Vec<_> = zones.iter().map(|z| z.mount.as_str()).collect();
        anyhow!("{path} is no zone of {}: there are {}", place.name, mounts.join(", "))
    })
}

/// Shows the bounds of a zone, or sets those that are given.
pub fn quota(host: &Host, place: &Place, bounds: &[QuotaOption], json: bool) -> anyhow::Result<u8> {
    if place.generation.is_some() {
        bail!("bounds are of a zone as it stands, not of a generation: write N:ZONE");
    }
    let bounds = together(bounds)?;
    let is_set = bounds != QuotaOption::default();
    let see = |zone: &mut Zone| (zone.quota(), zone.charged());
    if place.is_shared {
        if place.path.as_ref().is_some_and(|path| normal(path) != "/") {
            bail!("bounds are of a whole zone: write @{}", place.name);
        }
        let store = host.store()?;
        let id = store.find_shared(&place.name)?;
        let id = id.ok_or_else(|| anyhow!("no shared zone named `{}`", place.name))?;
        let zone = store.shared_zone(id)?;
        let found = || zone.zone(see).ok_or_else(|| anyhow!("the zone is gone"));
        if is_set {
            zone.set_quota(bounds.or(found()?.0))?;
        }
        return tell(&format!("@{}", place.name), found()?, is_set, json);
    }
    let agent = host.agent(&place.name)?;
    let index = zone_of(&agent, place)?;
    let specs = agent.disk().zones();
    let spec = specs.get(usize::from(index)).ok_or_else(|| anyhow!("the zone is gone"))?;
    let shown = format!("{}:{}", place.name, spec.mount);
    if let Some(fault) = agent.disk().mount_fault(index) {
        return Err(anyhow!(fault).context(shown));
    }
    let found = || agent.disk().zone(index, see).ok_or_else(|| anyhow!("the zone is gone"));
    if is_set {
        agent.expect_here()?;
        agent.disk().set_quota(index, bounds.or(found()?.0)).with_context(|| shown.clone())?;
    }
    tell(&shown, found()?, is_set, json)
}

fn tell(zone: &str, (quota, used): (Quota, Usage), is_set: bool, json: bool) -> anyhow::Result<u8> {
    if json {
        print_json(&json!({
            "zone": zone, "set": is_set, "quota_bytes": quota.bytes, "quota_inodes": quota.inodes,
            "charged_bytes": used.bytes, "charged_inodes": used.inodes,
        }))?;
        return Ok(0);
    }
    let verb = if is_set { "may use from here on" } else { "may use" };
    say(format_args!(
        "{zone} {verb} {} and {}; {} and {} are charged",
        size(quota.bytes),
        count(quota.inodes, "inode"),
        size(used.bytes),
        count(used.inodes, "inode")
    ))?;
    if used.bytes > quota.bytes || used.inodes > quota.inodes {
        say(format_args!("that is more than it may: it can shrink, and not grow"))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_and_refused() {
        let read = |texts: &[&str]| together(&texts.iter().map(|it| bound(it).unwrap()).collect::<Vec<_>>());
        let both = QuotaOption { bytes: Some(2 << 20), inodes: Some(7) };
        for texts in [&["2M", "inodes=7"][..], &["inodes=7", "bytes=2M"], &["2M,inodes=7"]] {
            assert_eq!(read(texts).unwrap(), both);
        }
        assert_eq!(read(&[]).unwrap(), QuotaOption::default());
        assert!(read(&["1M", "bytes=2M"]).is_err());
        for wrong in ["", "x", "bytes=", "inodes=0", "files=3"] {
            assert!(bound(wrong).is_err(), "{wrong}");
        }
    }
}
