//! `dormouse upgrade`.

use anyhow::{Context, bail};
use serde_json::json;

use super::args::UpgradeArguments;
use super::output::{OfAgent, print_json, report, say, size};
use super::stop::{Why, stopped, unless};
use super::{TRAPPED, output, run};
use crate::agent::{HandOver, UpgradeOptions};
use crate::{AgentError, Host};

pub async fn upgrade(host: &Host, a: &UpgradeArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    agent.expect_here()?;
    let component = run::read_component(&a.component)?;
    let name = a.component.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    // compiling and the upgrade together have this time
    let stop = stopped(a.timeout);
    tokio::pin!(stop);
    let loaded = {
        let _working = run::compiling_new(host, &component, &a.component);
        unless(&mut stop, Box::pin(host.warm_up(&component))).await
    };
    let mut why = loaded.as_ref().err().copied();
    let result = match loaded {
        Ok(loaded) => {
            loaded.with_context(|| a.component.display().to_string())?;
            let options = UpgradeOptions { fresh: a.fresh };
            let cancel = async { why = Some((&mut stop).await) };
            host.upgrade(&agent, &component, &name, options, cancel).await
        }
        Err(_) => Err(AgentError::Cancelled),
    };
    let stands = format!("{} stands where it stood before", a.agent);
    let upgraded = match result {
        Ok(upgraded) => upgraded,
        Err(AgentError::Cancelled) => {
            if let Some(Why::Signal(status)) = why {
                output::note(format_args!("dormouse: the upgrade was cancelled; {stands}"));
                return Ok(status);
            }
            let seconds = a.timeout.unwrap_or_default().as_secs_f64();
            bail!("the upgrade took longer than {seconds} s and was ended; {stands}")
        }
        Err(e @ AgentError::Trap { .. }) => {
            report(&anyhow::Error::new(e).context(stands));
            return Ok(TRAPPED);
        }
        Err(
            e @ (AgentError::Upgrade { .. }
            | AgentError::StateTooLarge { .. }
            | AgentError::Timeout(_)
            | AgentError::CpuTime(_)),
        ) => {
            return Err(anyhow::Error::new(e).context(stands));
        }
        Err(e @ AgentError::UpgradeWorld { .. }) => {
            return Err(anyhow::Error::new(e).context(a.component.display().to_string()));
        }
        Err(e) => return Err(anyhow::Error::new(e).context(OfAgent(a.agent.clone()))),
    };
    if a.json {
        print_json(&json!({
            "agent": a.agent, "component": name, "changed": upgraded.is_some(),
            "turn": upgraded.map(|it| it.turn.0),
            "generation": upgraded.map_or(agent.info()?.head.0, |it| it.generation.0),
            "handed_over_bytes": upgraded.and_then(|it| match it.handed_over {
                HandOver::Bytes(bytes) => Some(bytes),
                _ => None,
            }),
        }))?;
        return Ok(0);
    }
    match upgraded {
        None => say(format_args!("{} has this component already: nothing was changed", a.agent))?,
        Some(done) => {
            let handed = match done.handed_over {
                HandOver::Bytes(bytes) => format!("{} handed over", size(bytes)),
                HandOver::NoSave => "nothing handed over, its old component exports no `save`".into(),
                HandOver::NoLoad => "nothing handed over, its new component exports no `load`".into(),
                HandOver::Fresh => "nothing handed over".into(),
            };
            say(format_args!("upgraded {} to {name} as generation {}: {handed}", a.agent, done.generation))?;
        }
    }
    Ok(0)
}
