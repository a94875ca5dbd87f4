//! An agent that keeps notes. What it knows is in its variables and open files, and it does nothing
//! to save them: the host pauses, resumes, forks and rewinds the memory together with the zones.
//!
//! - [`command`] reads the text of an event,
//! - [`agent`] holds the state and what each command does with it,
//! - [`handover`] is what it hands to another version of itself,
//! - [`zones`] is where its files lie,
//! - [`life`] is what the host tells about the agent,
//! - [`load`] takes memory and time, for whoever wants to measure or to test a limit.

mod agent;
mod bindings;
mod command;
mod handover;
mod life;
mod load;
mod past;
mod zones;

use std::cell::RefCell;

use bindings::{Event, Guest, Reply, StartCause};

thread_local! {
    /// The agent's whole state; it lives as long as the agent does.
    static AGENT: RefCell<agent::Agent> = RefCell::new(agent::Agent::new());
}

/// The exports of the world `dormouse:agent/upgradable-agent`.
struct Notes;

impl Guest for Notes {
    fn handle(event: Event) -> Result<Reply, String> {
        if event.kind != "message" {
            return Err(format!("events of kind {:?} are not understood", event.kind));
        }
        let text = String::from_utf8(event.payload).map_err(|_| "the payload is not UTF-8".to_string())?;
        let command = command::Command::parse(text.trim())?;
        let answer = AGENT.with_borrow_mut(|agent| agent.run(command))?;
        Ok(Reply { payload: answer.into_bytes() })
    }

    fn resumed(cause: StartCause, generation: u64) {
        AGENT.with_borrow_mut(|agent| agent.resumed(cause, generation));
    }

    fn save() -> Result<Vec<u8>, String> {
        Ok(AGENT.with_borrow(agent::Agent::save))
    }

    fn load(state: Vec<u8>) -> Result<(), String> {
        let loaded = agent::Agent::load(&state)?;
        AGENT.with_borrow_mut(|agent| *agent = loaded);
        Ok(())
    }
}

bindings::export!(Notes with_types_in bindings);
