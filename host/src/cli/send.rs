use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use serde_json::json;

use super::args::SendArguments;
use super::{INTERRUPTED, TRAPPED, output, terminal};
use crate::agent::Event;
use crate::{AgentError, Host};

/// The event's content. Standard input is read to its end, or until it is more than an event may hold.
pub fn payload(a: &SendArguments) -> anyhow::Result<Vec<u8>> {
    let limit = crate::agent::MAX_PAYLOAD;
    let bytes = match a.payload.as_deref() {
        None => Vec::new(),
        Some("-") => {
            let mut bytes = Vec::new();
            let mut input = std::io::stdin().take(limit as u64 + 1);
            input.read_to_end(&mut bytes).context("reading standard input")?;
            bytes
        }
        Some(text) => text.as_bytes().to_vec(),
    };
    if bytes.len() > limit {
        bail!("the payload has more than {limit} bytes: an event has at most so many");
    }
    Ok(bytes)
}

pub async fn send(host: &Host, a: SendArguments, payload: Vec<u8>) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let mut event = Event::message(payload)?;
    event.kind = a.kind;
    if let Some(id) = a.id {
        event.id = id;
    }
    let working = super::run::compiling(host, &agent, &a.agent)?;
    let timeout = a.timeout;
    let stop = async {
        tokio::select! {
            r = tokio::signal::ctrl_c() => r.is_ok(),
            () = super::run::wait(timeout) => false,
        }
    };
    let result = agent
        .send_until(event, async {
            stop.await;
        })
        .await;
    drop(working);
    let report = match result {
        Ok(report) => report,
        Err(AgentError::Cancelled) if timeout.is_none() => {
            eprintln!("dormouse: the turn was cancelled; {} stands where it stood", a.agent);
            return Ok(INTERRUPTED);
        }
        Err(AgentError::Cancelled) => {
            anyhow::bail!(
                "the turn took longer than {} s and was ended",
                timeout.unwrap_or_default().as_secs_f64()
            )
        }
        Err(e @ AgentError::Trap { .. }) => {
            output::report(
                &anyhow::Error::new(e).context(format!("{} stands where it stood before", a.agent)),
            );
            return Ok(TRAPPED);
        }
        Err(e) => return Err(e.into()),
    };
    if a.json {
        let (reply, error) = match &report.reply {
            Ok(bytes) => (Some(String::from_utf8_lossy(bytes)), None),
            Err(text) => (None, Some(text)),
        };
        output::print_json(&json!({
            "agent": a.agent, "turn": report.turn.0, "generation": report.generation.0,
            "reply": reply, "error": error, "microseconds": report.took.as_micros() as u64,
        }))?;
        return Ok(u8::from(report.reply.is_err()));
    }
    match report.reply {
        Ok(bytes) => {
            terminal::print(&bytes)?;
            if std::io::stdout().is_terminal() && !bytes.is_empty() && bytes.last() != Some(&b'\n') {
                output::say(format_args!(""))?;
            }
            Ok(0)
        }
        Err(text) => {
            anstream::eprintln!("{}: {}", a.agent, terminal::escape(&text));
            Ok(1)
        }
    }
}
