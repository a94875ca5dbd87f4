//! Arguments of commands about agents and components.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use zone_vfs::id::Timestamp;

use super::values::{forks, generation, moment, timeout};
use crate::agent::ZoneOption;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(override_usage = "dormouse run [OPTIONS] AGENT.wasm [ARGS]...")]
pub struct RunArguments {
    /// The agent's name: its zones are kept under it, also for what is built anew [default: from the
    /// component's file name]
    #[arg(long, value_name = "N")]
    pub name: Option<String>,
    /// An environment variable for the guest; without a value, this process's own
    #[arg(long, value_name = "K[=V]")]
    pub env: Vec<String>,
    /// One more zone, the quota of a default one, or the mount of a zone that agents share, which is
    /// made when it is missing: NAME=/MOUNT[:ro|:rw][:QUOTA]. A quota is a size, inodes=COUNT, or both:
    /// 64M,inodes=10000
    #[arg(long, value_name = "NAME=KIND[:QUOTA]")]
    pub zone: Vec<ZoneOption>,
    /// End the run after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Let control characters of the guest's reach the terminal
    #[arg(long)]
    pub raw: bool,
    /// The component, or a preview 1 module, as text too; whatever follows is for the guest
    #[arg(value_name = "AGENT.wasm", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// Arguments of `new`.
#[derive(Debug, Args)]
pub struct NewArguments {
    /// An environment variable for the guest; without a value, this process's own
    #[arg(long, value_name = "K[=V]")]
    pub env: Vec<String>,
    /// One more zone, the quota of a default one, or the mount of a zone that agents share, which is
    /// made when it is missing: NAME=/MOUNT[:ro|:rw][:QUOTA]. A quota is a size, inodes=COUNT, or both:
    /// 64M,inodes=10000
    #[arg(long, value_name = "NAME=KIND[:QUOTA]")]
    pub zone: Vec<ZoneOption>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent's name
    #[arg(value_name = "N")]
    pub name: String,
    /// The component, or a preview 1 module, as text too
    #[arg(value_name = "AGENT.wasm")]
    pub component: PathBuf,
    /// Arguments for the guest
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeArguments {
    /// Hand nothing over: the old component's `save` is not called
    #[arg(long)]
    pub fresh: bool,
    /// Fail the upgrade after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Print JSON: turn, generation, bytes handed over
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
    /// The component
    #[arg(value_name = "NEW.wasm")]
    pub component: PathBuf,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub struct SendArguments {
    /// What sort of event it is
    #[arg(long, default_value = "message")]
    pub kind: String,
    /// The event's id, which is not empty: one that was answered gets the first reply again [default: a fresh one]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub id: Option<String>,
    /// Fail the turn after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Print JSON: turn, generation, reply
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
    /// The event's content; `-` reads standard input
    #[arg(value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub payload: Option<String>,
}

/// Arguments of `limits`.
#[derive(Debug, Args)]
pub struct LimitsArguments {
    /// Take the agent's own limit of memory away: the host's holds
    #[arg(long)]
    pub no_max_memory: bool,
    /// Take the agent's own limit of processor time away: the host's holds
    #[arg(long)]
    pub no_max_cpu: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
}

/// Arguments of a listing.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub struct RemoveArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agents, or generations N@GEN of agents that stay
    #[arg(value_name = "N", required = true)]
    pub agents: Vec<String>,
}

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// Only what was written to standard output
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Only what was written to standard error
    #[arg(long)]
    pub stderr: bool,
    /// Print JSON: one object in a line, for each line that was written
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
}

/// Arguments that name one agent.
#[derive(Debug, Args)]
pub struct OneAgent {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
}

/// Arguments of `log`.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// What began at this time or later: as in RFC 3339, or 30d, 12h, 15m or 90s ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// What began at this time or earlier
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Timestamp>,
    /// Entries of this kind: that of an event (`message`), run, upgrade, forgotten, created, paused, forked, rewound,
    /// operator, reaped or side. Can be given several times
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<String>,
    /// Entries in whose event, reply or reason this text is
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// The last so many of them
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "follow")]
    pub last: Option<usize>,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
}

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
    /// The turn
    #[arg(value_name = "TURN")]
    pub turn: u64,
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Which turn [default: the last]
    #[arg(long, value_name = "T")]
    pub turn: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
}

/// Arguments of `fork`.
#[derive(Debug, Args)]
pub struct ForkArguments {
    /// How many; more than one are numbered
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = forks)]
    pub count: usize,
    /// The generation to begin from [default: as the agent stands]
    #[arg(long, value_name = "GEN", value_parser = generation)]
    pub at: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
    /// The name of the fork [default: N-fork, numbered where that is taken]
    #[arg(value_name = "NEW")]
    pub new: Option<String>,
}

/// Arguments of `rewind`, `pin` and `unpin`.
#[derive(Debug, Args)]
pub struct GenerationArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
    /// The generation
    #[arg(value_name = "GEN", value_parser = generation)]
    pub generation: u64,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Do not start it to see whether its agents can share a genesis image
    #[arg(long)]
    pub no_start: bool,
    /// The component, or a preview 1 module, as text too
    #[arg(value_name = "AGENT.wasm")]
    pub component: PathBuf,
}

/// Arguments of the compiler.
#[derive(Debug, Args)]
pub struct CompileArguments {
    /// Bytes of address space
    #[arg(long)]
    pub memory: u64,
    /// Seconds
    #[arg(long)]
    pub seconds: u64,
    /// Where the parts go
    pub folder: PathBuf,
}
