//! `log` and `trace`: what happened to an agent.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use zone_vfs::id::Turn;
use zone_vfs::store::Cause;

use super::args::{LogArguments, TraceArguments};
use super::output::{
    LISTS_AGENTS, OfAgent, column_time, count, duration, of_store, print_json, print_json_line, say, time,
};
use super::stop::signalled;
use crate::journal::facts::Entry;
use crate::journal::session::{Happened, PastTurn, Place, SessionEntry, SessionQuery};
use crate::journal::{EventRecord, OutcomeRecord};
use crate::{Agent, AgentError, Host, HostOptions};

/// Entries that are held before they are printed, at most: the store is open no longer than that takes.
const MAX_ENTRIES: usize = 10_000;
/// How often a log that is followed is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Characters of an event or a reply that a line shows.
const SHOWN: usize = 60;

impl LogArguments {
    fn query(&self) -> SessionQuery {
        SessionQuery {
            after: None,
            since: self.since,
            until: self.until,
            kinds: self.kind.clone(),
            text: self.text.clone(),
        }
    }
}

pub fn log(host: &Host, a: &LogArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    header(a.json)?;
    let mut query = a.query();
    if let Some(last) = a.last {
        let mut kept = std::collections::VecDeque::new();
        agent.session(&query, |entry| {
            kept.push_back(entry);
            if kept.len() > last {
                kept.pop_front();
            }
            Ok::<_, anyhow::Error>(ControlFlow::Continue(()))
        })?;
        kept.iter().try_for_each(|entry| print(entry, a.json))?;
        return Ok(0);
    }
    loop {
        let some = some(&agent, &query)?;
        some.iter().try_for_each(|entry| print(entry, a.json))?;
        match some.last() {
            Some(last) if some.len() == MAX_ENTRIES => query.after = Some(last.place),
            _ => return Ok(0),
        }
    }
}

/// The next entries.
fn some(agent: &Agent, query: &SessionQuery) -> anyhow::Result<Vec<SessionEntry>> {
    let mut some = Vec::new();
    agent.session(query, |entry| {
        some.push(entry);
        let full = some.len() >= MAX_ENTRIES;
        Ok::<_, anyhow::Error>(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(some)
}

/// Lists what there is and what comes, until Ctrl-C. Another process that has the store open is waited for.
pub async fn follow(options: HostOptions, a: &LogArguments) -> anyhow::Result<u8> {
    let mut query = a.query();
    let mut begun = false;
    let mut stop = std::pin::pin!(signalled());
    loop {
        match Host::open(options.clone()) {
            Ok(host) => {
                let read = host.agent(&a.agent).map_err(anyhow::Error::from).and_then(|it| some(&it, &query));
                let closed = host.close();
                let read = read.with_context(|| LISTS_AGENTS)?;
                closed?;
                if !std::mem::replace(&mut begun, true) {
                    header(a.json)?;
                }
                read.iter().try_for_each(|entry| print(entry, a.json))?;
                if let Some(last) = read.last() {
                    query.after = Some(last.place);
                }
            }
            Err(AgentError::Store(zone_vfs::store::StoreError::Locked { .. })) => {}
            Err(e) => return Err(of_store(e, &options.folder)),
        }
        tokio::select! {
            status = &mut stop => return Ok(status),
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

fn row(place: &str, time: &str, kind: &str, rest: &str) -> String {
    format!("{place:>6}  {time:<30}  {kind:<10}  {rest}")
}

fn header(as_json: bool) -> anyhow::Result<()> {
    if as_json { Ok(()) } else { say(format_args!("{}", row("TURN", "TIME", "KIND", "WHAT"))) }
}

fn print(entry: &SessionEntry, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return print_json_line(&json_of(entry));
    }
    let Place { turn, generation } = entry.place;
    let (place, what) = match &entry.what {
        Happened::Turn(turn_of) => (turn.to_string(), told(turn_of, entry)),
        Happened::Generation(cause) => {
            let number = generation.map_or_else(String::new, |number| format!("generation {number}"));
            let what = match cause {
                Cause::Rewound(to) => format!("{number}, to generation {to}"),
                Cause::Side(reason) => {
                    format!("{number}, what a failed turn left: {}", shortened(reason.as_bytes()))
                }
                _ => number,
            };
            ("-".to_owned(), what)
        }
    };
    say(format_args!("{}", row(&place, &column_time(entry.at), entry.kind(), &what)))
}

fn told(turn: &PastTurn, entry: &SessionEntry) -> String {
    let event = match &turn.event {
        Some(EventRecord::Event { payload, .. }) => shortened(payload),
        Some(EventRecord::Run(args)) => shortened(args.join(" ").as_bytes()),
        Some(EventRecord::Upgrade { component_name, .. }) => format!("to {component_name}"),
        None => String::new(),
    };
    let outcome = match &turn.outcome {
        Some(Ok(OutcomeRecord::Reply(reply))) => shortened(reply),
        Some(Ok(OutcomeRecord::Refused(text))) => format!("error {}", shortened(text.as_bytes())),
        Some(Ok(OutcomeRecord::Exit(status))) => format!("exit {status}"),
        Some(Ok(OutcomeRecord::Upgraded)) => "done".into(),
        Some(Err(reason)) => format!("failed: {}", reason.lines().next().unwrap_or_default()),
        None => "forgotten".into(),
    };
    let took = Duration::from_nanos(turn.ended.0.saturating_sub(entry.at.0));
    format!("{event} -> {outcome} ({})", duration(took))
}

/// The beginning of a text, in quotes, on one line.
fn shortened(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let begin: String = text.chars().take(SHOWN).collect();
    let more = if begin.len() < text.len() { "…" } else { "" };
    format!("{begin:?}{more}")
}

fn json_of(entry: &SessionEntry) -> Value {
    let mut object = json!({ "turn": entry.place.turn.0, "at": time(entry.at), "kind": entry.kind() });
    match &entry.what {
        Happened::Generation(cause) => {
            object["generation"] = entry.place.generation.map(|it| it.0).into();
            match cause {
                Cause::Rewound(to) => object["rewound_to"] = to.0.into(),
                Cause::Side(reason) => object["reason"] = reason.as_str().into(),
                _ => {}
            }
        }
        Happened::Turn(turn) => {
            object["ended"] = time(turn.ended).into();
            object["generation"] = turn.generation.map(|it| it.0).into();
            match &turn.event {
                Some(EventRecord::Event { id, payload, .. }) => {
                    object["id"] = id.as_str().into();
                    object["payload"] = String::from_utf8_lossy(payload).into();
                }
                Some(EventRecord::Run(args)) => object["args"] = args.clone().into(),
                Some(EventRecord::Upgrade { component, component_name }) => {
                    object["component"] = component_name.as_str().into();
                    object["component_blake3"] = blake3::Hash::from_bytes(*component).to_string().into();
                }
                None => {}
            }
            match &turn.outcome {
                Some(Ok(OutcomeRecord::Reply(reply))) => {
                    object["reply"] = String::from_utf8_lossy(reply).into();
                }
                Some(Ok(OutcomeRecord::Refused(text))) => object["error"] = text.as_str().into(),
                Some(Ok(OutcomeRecord::Exit(status))) => object["status"] = (*status).into(),
                Some(Err(reason)) => object["failed"] = reason.as_str().into(),
                Some(Ok(OutcomeRecord::Upgraded)) | None => {}
            }
        }
    }
    object
}

pub fn trace(host: &Host, a: &TraceArguments) -> anyhow::Result<u8> {
    let agent = host.agent(&a.agent)?;
    let (entry, facts) = agent.past_turn(Turn(a.turn)).with_context(|| OfAgent(a.agent.clone()))?;
    if a.json {
        let mut object = json_of(&entry);
        object["agent"] = a.agent.as_str().into();
        object["facts"] = facts.iter().map(fact).collect::<Vec<_>>().into();
        print_json(&object)?;
        return Ok(0);
    }
    header(false)?;
    print(&entry, false)?;
    for fact in &facts {
        match fact {
            Entry::Began(began) => say(format_args!(
                "    began at generation {}, {}",
                began.base,
                if began.tells_start {
                    "and is told why its memory came to life"
                } else {
                    "in the memory of the turn before"
                }
            ))?,
            fact => say(format_args!("    {}", fact.describe()))?,
        }
    }
    say(format_args!("    {}", count(facts.len() as u64, "fact")))?;
    Ok(0)
}

fn fact(entry: &Entry) -> Value {
    match entry {
        Entry::Began(began) => json!({
            "of": "began", "generation": began.base.0, "at": time(began.at),
            "tells_start": began.tells_start, "lifecycle_generation": began.lifecycle,
        }),
        Entry::Called(call, _) => json!({ "of": "call", "call": crate::journal::facts::named(*call) }),
        Entry::Told(call, _, result) => {
            json!({ "of": "result", "call": crate::journal::facts::named(*call), "bytes": result.len() })
        }
        Entry::Together(calls, _) => json!({ "of": "calls", "calls": calls }),
    }
}
