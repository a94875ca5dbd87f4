//! `replay`: a turn taken again, and compared.

use anyhow::Context;
use serde_json::{Value, json};
use zone_vfs::id::Turn;

use super::args::ReplayArguments;
use super::output::{OfAgent, count, duration, print_json, say};
use super::run;
use super::stop::{signalled, unless};
use crate::agent::{Difference, Replay};
use crate::{AgentError, Host};

pub async fn replay(host: &Host, a: &ReplayArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let turn = match a.turn {
        Some(turn) => Turn(turn),
        None => agent.info()?.last_turn,
    };
    let working = run::compiling(host, &agent, &a.agent)?;
    let replayed = async {
        host.prepare(&agent, 0).await?;
        drop(working);
        agent.replay(turn, std::future::pending()).await
    };
    let replayed: Result<Replay, AgentError> = match Box::pin(unless(signalled(), replayed)).await {
        Ok(replayed) => replayed,
        Err(status) => return Ok(status),
    };
    let replay = replayed.with_context(|| OfAgent(a.agent.clone()))?;
    print(&a.agent, a.json, &replay)?;
    Ok(u8::from(!replay.differences.is_empty()))
}

fn print(agent: &str, as_json: bool, replay: &Replay) -> anyhow::Result<()> {
    if as_json {
        return print_json(&json!({
            "agent": agent, "turn": replay.turn.0, "from_generation": replay.base.0, "calls": replay.calls,
            "facts": replay.facts, "compared": replay.compared, "matches": replay.differences.is_empty(),
            "differences": replay.differences.iter().map(difference).collect::<Vec<_>>(),
            "microseconds": replay.took.as_micros() as u64,
        }));
    }
    let Replay { turn, base, calls, facts, compared, differences, took } = replay;
    let how = format!(
        "turn {turn} of {agent}, from generation {base}: {}, {} from the journal, {}",
        count(*calls, "call"),
        count(*facts, "result"),
        duration(*took)
    );
    if differences.is_empty() {
        let beside = if *compared { "; memory and files are the same" } else { "" };
        say(format_args!("{how}"))?;
        return say(format_args!("matches{beside}"));
    }
    say(format_args!("{how}"))?;
    say(format_args!("differs"))?;
    differences.iter().try_for_each(|it| say(format_args!("  {it}")))
}

fn difference(it: &Difference) -> Value {
    match it {
        Difference::Call(at) => json!({
            "of": "call", "call": at.call, "recorded": at.recorded, "replayed": at.replayed,
        }),
        Difference::Outcome { recorded, replayed } => {
            json!({ "of": "outcome", "recorded": recorded, "replayed": replayed })
        }
        Difference::Zone { zone, files, first } => {
            json!({ "of": "zone", "zone": zone, "files": files, "first": first })
        }
        Difference::Memory { memory, offset } => {
            json!({ "of": "memory", "memory": memory, "offset": offset })
        }
    }
}
