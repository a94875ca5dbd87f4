//! What the command line takes.
//!
//! - [`Arguments`] are those of all commands, [`Command`] lists the commands.
//! - `agents` are the arguments of commands about agents and components, `zone` of those about zones, `storage` of those
//!   about the store.
//! - `values` reads numbers and times.

mod agents;
mod storage;
mod values;
mod zone;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

pub use self::agents::{
    CompileArguments, ForkArguments, GenerationArguments, InspectArguments, LimitsArguments, ListArguments,
    LogArguments, LogsArguments, NewArguments, OneAgent, RemoveArguments, ReplayArguments, RunArguments,
    SendArguments, TraceArguments, UpgradeArguments,
};
pub use self::storage::{
    BackupArguments, ExportArguments, FsckArguments, ImportArguments, ReapArguments, RestoreArguments,
    UsageArguments,
};
use self::values::{seconds, timeout};
pub use self::zone::{DiffArguments, DiffOptions, ZoneArguments, ZoneCommand};

/// Runs AI agents that sleep: WebAssembly components with durable, zoned disks.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    /// The store's folder [default: what the variable `DORMOUSE_STORE` names, or dormouse in the
    /// platform's data folder]
    // the variable is read elsewhere: an empty one counts as none
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,

    /// Wait so many seconds, or without a number for as long as it takes, while another process has the store open
    #[arg(long, value_name = "SECONDS", global = true, value_parser = seconds, num_args = 0..=1,
        require_equals = true, default_missing_value = "1e9")]
    pub wait: Option<Duration>,

    /// The most linear memory that a guest gets, all together: bytes, or a number with K, M, G or T. With `new` and
    /// `limits` the agent keeps it [default: 1G]
    #[arg(long, value_name = "SIZE", global = true, value_parser = crate::size::parse)]
    pub max_memory: Option<u64>,

    /// The most processor time that a turn or a run uses, in seconds. With `new` and `limits` the agent keeps
    /// it [default: no limit]
    #[arg(long, value_name = "SECONDS", global = true, value_parser = timeout)]
    pub max_cpu: Option<Duration>,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command component in zones; the exit status is the guest's own
    Run(RunArguments),
    /// Create an agent without a turn
    New(NewArguments),
    /// Send an agent an event and print its reply: one turn
    Send(SendArguments),
    /// List the agents
    Ps(ListArguments),
    /// Remove agents, their zones and their generations; or single generations
    Rm(RemoveArguments),
    /// Print what an agent wrote to its standard output and error
    Logs(LogsArguments),
    /// Write a generation of an agent and let it sleep
    Pause(OneAgent),
    /// Bring an agent back warm, and say how long that took
    Resume(OneAgent),
    /// Make new agents that begin as this one stands
    Fork(ForkArguments),
    /// Take an agent's memory, knowledge and workspace back to a generation
    Rewind(GenerationArguments),
    /// Give an agent another component: zones, history and name stay, memory begins anew
    ///
    /// What the old component's `save` returns is given to the new one's `load`, where they export these. All of it is
    /// one turn: where any of it fails, the agent stands as it stood. A rewind across it brings the old component back.
    Upgrade(UpgradeArguments),
    /// Show the limits that an agent has of its own, or set them with --max-memory and --max-cpu
    ///
    /// They hold from the next turn on, and forks begin with them. A line of /logs/audit says what was set.
    Limits(LimitsArguments),
    /// List an agent's generations
    Generations(OneAgent),
    /// Say what happened to an agent: its turns, and what else made generations of it
    Log(LogArguments),
    /// Say what a turn asked and was told, call by call
    Trace(TraceArguments),
    /// Take a turn again from its journal, and say whether it comes to the same
    ///
    /// Memory and zones are as they were before it, and whatever it was told comes from the journal: nothing happens
    /// outside, and nothing of the agent changes. The exit status is 1 where anything differs.
    Replay(ReplayArguments),
    /// Pin a generation, so that nothing but removing the agent, or forgetting, takes it away
    Pin(GenerationArguments),
    /// Take the pin of a generation away
    Unpin(GenerationArguments),
    /// Look into an agent's zones, and change them as the operator
    Zone(ZoneArguments),
    /// Say which files differ between two agents, or two generations of one
    ///
    /// Each is N, for how the agent stands, or N@GEN. Of one agent, a file is the same wherever it lies; of two
    /// agents, where it has the same path. A means added, D removed, M changed, R renamed, T that only times
    /// differ. Zones that agents share are left out.
    Diff(DiffArguments),
    /// Say how much agents and zones use
    Du(UsageArguments),
    /// Read everything in the store again, and say what is damaged
    Fsck(FsckArguments),
    /// Write a backup: the first is of everything, later ones of what changed
    Backup(BackupArguments),
    /// Make a store of backups, in the store's folder, which is missing or empty
    Restore(RestoreArguments),
    /// Write an agent to a file: component, memory, zones and history
    ///
    /// The file is not encrypted. It holds no environment, no compiled code, and nothing of zones that agents share.
    Export(ExportArguments),
    /// Make an agent of an export: a copy with an identity of its own
    ///
    /// Nothing that the file says is believed before it was checked, and the agent is there when all of it is.
    Import(ImportArguments),
    /// Give back storage that nothing needs, after the options have said what is not to be kept
    Reap(ReapArguments),
    /// Say what a component imports and exports, and whether it can be captured
    Inspect(InspectArguments),
    /// Compile a component (used by dormouse itself)
    #[command(name = "__compile", hide = true)]
    Compile(CompileArguments),
}
