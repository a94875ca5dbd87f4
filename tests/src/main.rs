//! The command `dormouse`, for the tests that start it.
//!
//! With other words as its first argument it embeds the library instead, in one process that lives until the tests kill
//! it:
//!
//! - `keep-noting STORE AGENT` sends the agent one note after the other, and prints the turn's number when one is
//!   acknowledged.
//! - `take-turns STORE AGENT TURNS` sends it each line of standard input, and prints the reply, as text in quotes; an image
//!   is taken behind so many turns.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use dormouse::{AgentError, Event, Host, HostOptions, ImagePolicy};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "keep-noting", store, agent] => keep_noting(store, agent),
        [_, "take-turns", store, agent, turns] => take_turns(store, agent, turns),
        _ => return dormouse::cli::main(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", arguments[1]);
            ExitCode::FAILURE
        }
    }
}

fn io(what: &str) -> impl Fn(std::io::Error) -> AgentError {
    move |source| AgentError::Io { what: what.into(), source }
}

fn runtime() -> Result<Runtime, AgentError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(io("starting"))
}

fn print(what: std::fmt::Arguments<'_>) -> Result<(), AgentError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).map_err(io("printing"))
}

/// Takes turns until somebody kills the process; every fourth time it pauses the agent as well.
fn keep_noting(store: &str, agent: &str) -> Result<(), AgentError> {
    let host = Host::open(HostOptions::new(store))?;
    let agent = host.agent(agent)?;
    runtime()?.block_on(async {
        for number in 1_u64.. {
            let report = agent.send(Event::message("note again and again")?).await?;
            if let Err(text) = report.reply {
                return Err(AgentError::Task(text));
            }
            print(format_args!("{}", report.turn))?;
            if number % 4 == 0 {
                agent.pause().await?;
            }
        }
        Err(AgentError::Task("numbers came to an end".into()))
    })
}

/// Takes the turns that somebody asks for.
fn take_turns(store: &str, agent: &str, turns: &str) -> Result<(), AgentError> {
    let turns = turns.parse().map_err(|_| AgentError::Task(format!("{turns} turns")))?;
    let images = ImagePolicy { turns, replay: Duration::MAX };
    let host = Host::open(HostOptions { images, ..HostOptions::new(store) })?;
    let agent = host.agent(agent)?;
    runtime()?.block_on(async {
        for line in std::io::stdin().lines() {
            let line = line.map_err(io("reading what to send"))?;
            match agent.send(Event::message(line)?).await {
                Ok(report) => {
                    let reply = report.reply.map(|it| String::from_utf8_lossy(&it).into_owned());
                    print(format_args!("{reply:?}"))?;
                }
                Err(e @ AgentError::Trap { .. }) => print(format_args!("failed: {:?}", e.to_string()))?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    })
}
