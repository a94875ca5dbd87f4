//! Dormouse runs AI agents that sleep.
//!
//! An agent is an unmodified WebAssembly component with a disk divided into zones, each with rules
//! that the disk itself enforces. Agents are paused, resumed, forked and rewound; a crash of the host
//! loses nothing that was acknowledged.
//!
//! [`Host`] opens a store, [`Agent`] is one agent in it. The floors, lower ones first:
//!
//! | module | what it is |
//! |---|---|
//! | [`component`] | what a component is, whether it can be captured, the rewrite |
//! | [`code`] | components compiled in a child process, and kept |
//! | [`image`] | memories as pages that can be mapped |
//! | [`journal`] | what the records of turns hold |
//! | [`wasi`] | WASI on virtual handles over an agent's zones |
//! | [`agent`] | turns, pause, resume, fork, rewind |
//! | [`host`] | what a platform embeds |
//! | [`size`] | sizes as people write them |
//! | [`upkeep`] | giving storage back |
//!
//! The zones, their contracts and the store beneath are the crate `zone-vfs`.
//!
//! ```no_run
//! use dormouse::{AgentName, AgentOptions, Event, Host, HostOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::open(HostOptions::new("/var/lib/my-platform/dormouse"))?;
//! let component = std::fs::read("notes.wasm")?;
//! let notes = host.create(&AgentName::new("notes")?, &component, AgentOptions::default()).await?;
//! let report = notes.send(Event::message("note buy milk")?).await?;
//! println!("generation {}: {:?}", report.generation, report.reply);
//! let others = notes.fork(&[AgentName::new("notes-b")?, AgentName::new("notes-c")?], None).await?;
//! drop((notes, others)); // they sleep
//! host.close()?;
//! # Ok(())
//! # }
//! ```

pub mod agent;
#[cfg(feature = "cli")]
pub mod cli;
pub mod code;
pub mod component;
pub mod host;
pub mod image;
pub mod journal;
pub mod size;
mod threads;
pub mod upkeep;
pub mod wasi;
mod wit;

pub use agent::{Agent, AgentError, AgentLimits, AgentName, Event};
pub use host::{AgentOptions, Host, HostOptions, ImagePolicy, ProcessLimit};
pub use zone_vfs;

/// The examples of the documents, compiled as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/embedding.md")]
    struct Embedding;
}
