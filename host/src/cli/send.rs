use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use serde_json::json;

use super::args::SendArguments;
use super::stop::{Why, stopped, unless};
use super::{TRAPPED, output, terminal};
use crate::agent::{Event, TurnReport};
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
    // compiling and the turn together have this time
    let stop = stopped(a.timeout);
    tokio::pin!(stop);
    let loaded = {
        let _working = super::run::compiling(host, &agent, &a.agent)?;
        unless(&mut stop, host.prepare(&agent, 0)).await
    };
    let mut why = loaded.as_ref().err().copied();
    let result = match loaded {
        Ok(loaded) => {
            loaded?;
            agent.send_until(event, async { why = Some((&mut stop).await) }).await
        }
        Err(_) => Err(AgentError::Cancelled),
    };
    let stands = format!("{} stands where it stood before", a.agent);
    let report = match result {
        Ok(report) => report,
        Err(AgentError::Cancelled) => {
            if let Some(Why::Signal(status)) = why {
                output::note(format_args!("dormouse: the turn was cancelled; {stands}"));
                return Ok(status);
            }
            let seconds = a.timeout.unwrap_or_default().as_secs_f64();
            bail!("the turn took longer than {seconds} s and was ended; {stands}")
        }
        Err(e @ (AgentError::Timeout(_) | AgentError::CpuTime(_))) => {
            return Err(anyhow::Error::new(e).context(stands));
        }
        Err(e @ AgentError::Trap { .. }) => {
            output::report(&anyhow::Error::new(e).context(stands));
            return Ok(TRAPPED);
        }
        Err(e) => return Err(e.into()),
    };
    let done = || format!("the turn is done (generation {})", report.generation);
    output::after(done, print(&a.agent, a.json, &report))
}

/// Prints what came of a turn that is durable.
fn print(agent: &str, as_json: bool, report: &TurnReport) -> anyhow::Result<u8> {
    if as_json {
        let (reply, error) = match &report.reply {
            Ok(bytes) => (Some(String::from_utf8_lossy(bytes)), None),
            Err(text) => (None, Some(text)),
        };
        output::print_json(&json!({
            "agent": agent, "turn": report.turn.0, "generation": report.generation.0,
            "reply": reply, "error": error, "microseconds": report.took.as_micros() as u64,
            "image_microseconds": report.imaging.as_micros() as u64, "repeated": report.repeated,
        }))?;
        return Ok(u8::from(report.reply.is_err()));
    }
    match &report.reply {
        Ok(bytes) => {
            terminal::print(bytes)?;
            if std::io::stdout().is_terminal() && !bytes.is_empty() && bytes.last() != Some(&b'\n') {
                output::say(format_args!(""))?;
            }
            Ok(0)
        }
        Err(text) => {
            output::note_text(&format!("{agent}: {text}"));
            Ok(1)
        }
    }
}
