//! `dormouse limits`.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use super::args::LimitsArguments;
use super::output::{OfAgent, print_json, say, size};
use crate::{AgentLimits, Host};

/// Shows an agent's limits, or sets those that are given.
pub async fn limits(
    host: &Host,
    a: &LimitsArguments,
    memory: Option<u64>,
    cpu: Option<Duration>,
) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let before = agent.own_limits()?;
    let limits = AgentLimits {
        memory: if a.no_max_memory { None } else { memory.or(before.memory) },
        cpu: if a.no_max_cpu { None } else { cpu.or(before.cpu) },
    };
    let changes = limits != before;
    if changes {
        agent.set_limits(limits).await.with_context(|| OfAgent(a.agent.clone()))?;
    }
    if a.json {
        print_json(&json!({
            "agent": a.agent, "max_memory_bytes": limits.memory,
            "max_cpu_seconds": limits.cpu.map(|it| it.as_secs_f64()), "changed": changes,
        }))?;
        return Ok(0);
    }
    let memory = limits.memory.map_or_else(|| "the host's".into(), size);
    let cpu = limits.cpu.map_or_else(|| "the host's".into(), |it| format!("{} s", it.as_secs_f64()));
    say(format_args!("{}: memory {memory}, processor time of a turn {cpu}", a.agent))?;
    Ok(0)
}

/// Two flags of which one sets a limit and the other takes it away.
pub fn conflict(
    a: &LimitsArguments,
    memory: Option<u64>,
    cpu: Option<Duration>,
) -> Option<(&'static str, &'static str)> {
    if a.no_max_memory && memory.is_some() {
        return Some(("--max-memory <SIZE>", "--no-max-memory"));
    }
    (a.no_max_cpu && cpu.is_some()).then_some(("--max-cpu <SECONDS>", "--no-max-cpu"))
}

/// Whether something is to be set.
pub fn changes(a: &LimitsArguments, memory: Option<u64>, cpu: Option<Duration>) -> bool {
    a.no_max_memory || a.no_max_cpu || memory.is_some() || cpu.is_some()
}
