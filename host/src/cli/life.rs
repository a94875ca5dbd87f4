use anyhow::Context;
use serde_json::json;
use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, Generation, Outcome, StoreError, TurnRecord};

use super::args::{ForkArguments, GenerationArguments, OneAgent};
use super::output::{OfAgent, age, count, duration, print_json, print_table, say, size, table, time};
use super::stop::{signalled, unless};
use super::{run, terminal};
use crate::agent::AgentName;
use crate::{Agent, AgentError, Host};

pub async fn pause(host: &Host, a: &OneAgent) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let generation = agent.pause().await?;
    if a.json {
        print_json(&json!({ "agent": a.agent, "generation": generation.0 }))?;
    } else {
        say(format_args!("paused {} as generation {generation}", a.agent))?;
    }
    Ok(0)
}

pub async fn resume(host: &Host, a: &OneAgent) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let working = run::compiling(host, &agent, &a.agent)?;
    let resumed = async {
        host.prepare(&agent, 1).await?;
        drop(working);
        agent.resume().await
    };
    let resumed = match Box::pin(unless(signalled(), resumed)).await {
        Ok(resumed) => resumed?,
        Err(status) => return Ok(status),
    };
    if a.json {
        print_json(&json!({
            "agent": a.agent, "generation": resumed.generation.0, "memory_bytes": resumed.memory,
            "microseconds": resumed.took.as_nanos() as f64 / 1e3, "warm_slot": resumed.warm,
        }))?;
    } else {
        say(format_args!(
            "resumed {} at generation {}: {} of memory in {}",
            a.agent,
            resumed.generation,
            size(resumed.memory),
            duration(resumed.took)
        ))?;
    }
    Ok(0)
}

pub async fn pin(host: &Host, a: &GenerationArguments, pinned: bool) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let changed = agent.pin(GenerationNumber(a.generation), pinned).await;
    let changed = changed.with_context(|| OfAgent(a.agent.clone()))?;
    if a.json {
        print_json(&json!({
            "agent": a.agent, "generation": a.generation, "pinned": pinned, "changed": changed,
        }))?;
    } else {
        let how = match (pinned, changed) {
            (true, true) => "pinned",
            (true, false) => "was pinned already",
            (false, true) => "not pinned any more",
            (false, false) => "was not pinned",
        };
        say(format_args!("{}: generation {} {how}", a.agent, a.generation))?;
    }
    Ok(0)
}

pub async fn rewind(host: &Host, a: &GenerationArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    agent.expect_here()?;
    let made = agent.rewind(GenerationNumber(a.generation)).await;
    let made = made.with_context(|| OfAgent(a.agent.clone()))?;
    if a.json {
        print_json(&json!({ "agent": a.agent, "rewound_to": a.generation, "generation": made.0 }))?;
    } else {
        say(format_args!(
            "rewound {} to generation {}; it stands at generation {made}",
            a.agent, a.generation
        ))?;
    }
    Ok(0)
}

fn names(host: &Host, a: &ForkArguments) -> anyhow::Result<Vec<AgentName>> {
    if a.count > crate::agent::MAX_FORKS {
        return Err(AgentError::TooManyForks { found: a.count, limit: crate::agent::MAX_FORKS }.into());
    }
    let store = host.store()?;
    if let (Some(new), 1) = (&a.new, a.count) {
        return Ok(vec![AgentName::new(new)?]);
    }
    let base = a.new.clone().unwrap_or_else(|| format!("{}-fork", a.agent));
    let mut names = Vec::with_capacity(a.count);
    if a.count == 1 && store.find(&base)?.is_none() {
        return Ok(vec![AgentName::new(&base)?]);
    }
    let mut number = 1u64;
    while names.len() < a.count {
        let name = format!("{base}-{number}");
        if store.find(&name)?.is_none() {
            names.push(AgentName::new(&name)?);
        } else if a.new.is_some() {
            return Err(AgentError::Store(StoreError::NameTaken(name)).into());
        }
        number += 1;
    }
    Ok(names)
}

pub async fn fork(host: &Host, a: &ForkArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let names = names(host, a)?;
    let started = std::time::Instant::now();
    let forks = agent.fork(&names, a.at.map(GenerationNumber)).await.map_err(|e| match e {
        AgentError::Store(StoreError::NoGeneration { .. }) => {
            anyhow::Error::new(e).context(OfAgent(a.agent.clone()))
        }
        e => e.into(),
    })?;
    let took = started.elapsed();
    if a.json {
        let forks: Vec<_> = forks
            .iter()
            .zip(&names)
            .map(|(f, name)| json!({ "name": name.as_str(), "id": f.id().to_string(), "parent": a.agent, "generation": 0 }))
            .collect();
        print_json(&forks)?;
        return Ok(0);
    }
    for name in names.iter().take(20) {
        say(format_args!("forked {} into {name}", a.agent))?;
    }
    if names.len() > 20 {
        say(format_args!("... and {} more", names.len() - 20))?;
    }
    if names.len() > 1 {
        say(format_args!("{} in {}", count(names.len() as u64, "fork"), duration(took)))?;
    }
    Ok(0)
}

/// A digest as text.
pub fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_string()
}

/// Why a generation was made, in words.
pub fn cause(cause: &Cause) -> String {
    match cause {
        Cause::Created => "created".into(),
        Cause::Turn => "turn".into(),
        Cause::Paused => "paused".into(),
        Cause::Forked => "forked".into(),
        Cause::Rewound(to) => format!("rewound to {to}"),
        Cause::Operated => "operator".into(),
        Cause::Reaped { .. } => "reaped".into(),
        Cause::Upgraded => "upgraded".into(),
        Cause::Side(reason) => format!("side: {}", reason.lines().next().unwrap_or_default()),
    }
}

/// As [`cause`], of an agent's generation. What was made of zones between turns is not the operator's where a turn failed
/// last, whose logs and synced appends stay.
fn cause_in(agent: &Agent, generation: &Generation) -> String {
    let last = |turn: u64| agent.disk().history_after(Turn(turn - 1), 1).unwrap_or_default();
    let failed = |it: &TurnRecord| it.turn == generation.turn && matches!(it.outcome, Outcome::Failed(_));
    let is_after_failure = generation.cause == Cause::Operated
        && generation.turn > Turn(0)
        && last(generation.turn.0).iter().any(failed);
    if is_after_failure { "after a failed turn".into() } else { cause(&generation.cause) }
}

pub fn generations(host: &Host, a: &OneAgent) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let head = agent.info()?.head;
    let generations = agent.generations();
    if a.json {
        let zones: Vec<String> = agent.disk().zones().into_iter().map(|zone| zone.name).collect();
        let rows: Vec<_> = generations
            .iter()
            .map(|g| {
                let about = agent.generation_about(g).ok();
                let component = about.as_ref().map(|g| (g.component_name.clone(), hex(&g.component)));
                let (component, digest) = component.unwrap_or_default();
                let image = about.and_then(|g| g.image);
                json!({
                    "generation": g.number.0, "cause": cause_in(&agent, g), "component": component, "component_blake3": digest, "turn": g.turn.0, "made": time(g.at),
                    "head": g.number == head, "pinned": g.is_pinned, "stands_on": g.on.map(|on| on.0),
                    "shared_seen": g.seen.iter().map(|it| json!({ "zone": zones.get(usize::from(it.zone)), "epoch": it.epoch.0, "sequence": it.sequence.0 })).collect::<Vec<_>>(), "memory_bytes": image.as_ref().map(crate::image::ImageReference::bytes),
                    "changed_pages": image.as_ref().map(crate::image::ImageReference::changed_pages),
                    "file_bytes": g.roots.iter().map(|r| r.usage().bytes).sum::<u64>(),
                })
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = generations
        .iter()
        .map(|g| {
            let about = agent.generation_about(g).ok();
            let name = about.as_ref().and_then(|g| g.component_name.as_deref());
            let cause = match (&g.cause, name) {
                (Cause::Upgraded, Some(name)) => format!("upgraded to {}", terminal::escape_line(name)),
                _ => cause_in(&agent, g),
            };
            let image = about.and_then(|g| g.image);
            vec![
                format!(
                    "{}{}{}",
                    g.number,
                    if g.is_pinned { " pinned" } else { "" },
                    if g.number == head { " *" } else { "" }
                ),
                cause.chars().take(60).collect(),
                g.turn.to_string(),
                age(g.at),
                size(g.roots.iter().map(|r| r.usage().bytes).sum()),
                image.map_or_else(|| "-".into(), |i| size(i.bytes())),
            ]
        })
        .collect();
    print_table(&table(&["GENERATION", "CAUSE", "TURN", "AGE", "FILES", "MEMORY"], &[2, 3, 4, 5], rows))?;
    Ok(0)
}
