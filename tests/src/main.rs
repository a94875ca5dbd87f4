//! The command `dormouse`, for the tests that start it.
//!
//! With `keep-noting STORE AGENT` as its arguments it embeds the library instead: it sends the agent
//! one note after the other, in one process, and prints the turn's number when one is acknowledged.
//! The tests kill it while it does.

use std::io::Write;
use std::process::ExitCode;

use dormouse::{AgentError, Event, Host, HostOptions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.as_slice() {
        [_, what, store, agent] if what == "keep-noting" => match keep_noting(store, agent) {
            Ok(never) => match never {},
            Err(e) => {
                eprintln!("keep-noting: {e}");
                ExitCode::FAILURE
            }
        },
        _ => dormouse::cli::main(),
    }
}

/// Takes turns until somebody kills the process; every fourth time it pauses the agent as well.
fn keep_noting(store: &str, agent: &str) -> Result<std::convert::Infallible, AgentError> {
    let io = |source| AgentError::Io { what: "starting".into(), source };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(io)?;
    let host = Host::open(HostOptions::new(store))?;
    let agent = host.agent(agent)?;
    runtime.block_on(async {
        for number in 1_u64.. {
            let report = agent.send(Event::message("note again and again")?).await?;
            if let Err(text) = report.reply {
                return Err(AgentError::Task(text));
            }
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}", report.turn).and_then(|()| out.flush()).map_err(io)?;
            drop(out);
            if number % 4 == 0 {
                agent.pause().await?;
            }
        }
        Err(AgentError::Task("numbers came to an end".into()))
    })
}
