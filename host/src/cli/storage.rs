//! `reap`: giving storage back.

use std::time::Duration;

use serde_json::json;
use zone_vfs::store::{Given, KeepGenerations, ReapPolicy, ReapReport};

use super::args::ReapArguments;
use super::output::{print_json, say, size};
use super::progress::Working;
use crate::Host;
use crate::upkeep::Reaped;

/// Reads a time such as `30d`, `12h`, `15m` or `90s`.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write 30d, 12h, 15m or 90s");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

fn policy(a: &ReapArguments) -> ReapPolicy {
    let default = KeepGenerations::default();
    ReapPolicy {
        keep: KeepGenerations {
            turns: a.keep_turns.unwrap_or(default.turns),
            sides: a.keep_failed.unwrap_or(default.sides),
        },
        thin_paused: a.thin_paused,
        remove_paused: a.remove_paused,
        budget: a.budget,
        ..ReapPolicy::default()
    }
}

pub async fn reap(host: &Host, a: &ReapArguments) -> anyhow::Result<u8> {
    let reaped = {
        let _working = Working::on("reaping".into());
        host.reap(policy(a), a.dry_run).await?
    };
    if a.json {
        print_json(&json(&reaped))?;
    } else {
        tell(&reaped)?;
    }
    Ok(u8::from(!reaped.store.damage.is_empty() || reaped.store.over_budget))
}

fn json(reaped: &Reaped) -> serde_json::Value {
    let r = &reaped.store;
    let given = |g: Given| json!({ "frames": g.frames, "bytes": g.bytes });
    json!({
        "dry_run": r.dry_run,
        "agents": r.agents.iter().map(|(id, name)| json!({ "id": id.to_string(), "name": name })).collect::<Vec<_>>(),
        "generations": r.generations,
        "unneeded": {
            "by_agents": given(r.from_agents), "by_generations": given(r.from_generations),
            "by_nothing": given(r.from_leftovers),
        },
        "needed_bytes": r.needed,
        "segments": {
            "removed": r.swept.removed_segments, "compacted": r.swept.compacted_segments,
            "removed_bytes": r.swept.removed_bytes, "copied_bytes": r.swept.copied_bytes,
            "before_bytes": r.before.bytes, "after_bytes": r.after.bytes,
        },
        "image_bytes": reaped.image_bytes,
        "damage": r.damage,
        "over_budget": r.over_budget,
        "out_of_space": r.swept.out_of_space,
    })
}

/// What segments gave back, less what was written anew.
fn freed(r: &ReapReport) -> u64 {
    r.swept.removed_bytes.saturating_sub(r.swept.copied_bytes)
}

fn tell(reaped: &Reaped) -> anyhow::Result<()> {
    let r = &reaped.store;
    let would = if r.dry_run { "would be " } else { "" };
    for (_, name) in &r.agents {
        say(format_args!("{name}: {would}removed"))?;
    }
    if r.generations > 0 {
        say(format_args!("{} generations {would}dropped", r.generations))?;
    }
    for (what, given) in [
        ("only removed agents needed", r.from_agents),
        ("only dropped generations needed", r.from_generations),
        ("nothing needed", r.from_leftovers),
    ] {
        if given.frames > 0 {
            say(format_args!("{} that {what}", size(given.bytes)))?;
        }
    }
    say(format_args!(
        "segments: {} of {} {would}given back; images: {}",
        size(freed(r)),
        size(r.before.bytes),
        size(reaped.image_bytes)
    ))?;
    if r.swept.dead_bytes > 0 && freed(r) < r.swept.dead_bytes {
        say(format_args!("what is left unneeded lies in segments that are still more than half needed"))?;
    }
    for damage in &r.damage {
        eprintln!("dormouse: nothing was swept: {}", super::terminal::escape(damage));
    }
    if r.over_budget {
        eprintln!("dormouse: {} are needed, which is more than the budget", size(r.needed));
    }
    if r.swept.out_of_space {
        eprintln!("dormouse: there was no room to copy what is needed: free some space and reap again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("2d"), Ok(Duration::from_hours(48)));
        for wrong in ["", "d", "5", "-1d", "1.5h", "1w", "99999999999999999999d", "5µ"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
