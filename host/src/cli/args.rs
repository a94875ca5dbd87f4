//! What the command line takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::agent::ZoneOption;

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

    /// The most linear memory that a guest gets, all together: bytes, or a number with K, M, G or T. With `new` the
    /// agent keeps it [default: 1G]
    #[arg(long, value_name = "SIZE", global = true, value_parser = crate::size::parse)]
    pub max_memory: Option<u64>,

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
    /// List an agent's generations
    Generations(OneAgent),
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
    /// Write a backup, while agents run: the first is of everything, later ones of what changed
    Backup(BackupArguments),
    /// Make a store of backups, in the store's folder, which is missing or empty
    Restore(RestoreArguments),
    /// Give back storage that nothing needs, after the options have said what is not to be kept
    Reap(ReapArguments),
    /// Say what a component imports and exports, and whether it can be captured
    Inspect(InspectArguments),
    /// Compile a component (used by dormouse itself)
    #[command(name = "__compile", hide = true)]
    Compile(CompileArguments),
}

/// The number of a generation.
fn generation(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a generation is a number: `dormouse generations N` lists them".into())
}

/// The number of a version.
fn version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a version is a number: `dormouse zone history N:PATH` lists them".into())
}

/// A time of at least zero seconds, in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "give a number of seconds, at least 0".to_string())
}

/// A time in which something has to end: with none at all it could not begin.
fn timeout(text: &str) -> Result<Duration, String> {
    let time = seconds(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "give a number of seconds, more than 0".to_string())
}

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
    /// The component, or a preview 1 module; whatever follows is for the guest
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
    /// The component, or a preview 1 module
    #[arg(value_name = "AGENT.wasm")]
    pub component: PathBuf,
    /// Arguments for the guest
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub struct SendArguments {
    /// What sort of event it is
    #[arg(long, default_value = "message")]
    pub kind: String,
    /// The event's id: one that was answered gets the first reply again [default: a fresh one]
    #[arg(long)]
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

/// Arguments of `du`.
#[derive(Debug, Args)]
pub struct UsageArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// List each agent's generations too
    #[arg(long)]
    pub generations: bool,
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

/// Arguments of `fork`.
#[derive(Debug, Args)]
pub struct ForkArguments {
    /// How many; more than one are numbered
    #[arg(long, value_name = "K", default_value_t = 1)]
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

/// Arguments of `zone`.
#[derive(Debug, Args)]
pub struct ZoneArguments {
    /// What to do
    #[command(subcommand)]
    pub command: ZoneCommand,
}

/// What to do with zones. A path is written N:PATH, or N@GEN:PATH for how it was in a generation, or
/// @ZONE:PATH in a zone that agents share.
#[derive(Debug, Subcommand)]
pub enum ZoneCommand {
    /// List the zones of an agent, or a folder in one
    ///
    /// Without a path, or with one above the zones (`N:/`, `N:/memory`), the zones are listed.
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Folders within folders, too
        #[arg(short = 'R', long)]
        recursive: bool,
        /// As it was in this generation
        #[arg(long, value_name = "GEN", value_parser = generation)]
        at: Option<u64>,
        /// The agent and the path
        #[arg(value_name = "N[@GEN][:PATH]")]
        place: String,
    },
    /// Print a file
    Cat {
        /// As it was in this generation
        #[arg(long, value_name = "GEN", value_parser = generation)]
        at: Option<u64>,
        /// The agent and the path
        #[arg(value_name = "N[@GEN]:PATH")]
        place: String,
    },
    /// Copy a file or folder into a zone
    ///
    /// As `cp -r LOCAL PATH` does: into PATH under its own name where PATH is a folder that is there,
    /// otherwise to PATH itself. `FOLDER/.` copies what is in the folder, and not the folder.
    Put {
        /// The agent and the path
        #[arg(value_name = "N:PATH")]
        place: String,
        /// The file or folder; `-` reads standard input
        #[arg(value_name = "LOCAL")]
        local: PathBuf,
    },
    /// Copy a file or folder out of a zone
    ///
    /// As `cp -r PATH LOCAL` does: into LOCAL under its own name where LOCAL is a folder that is there,
    /// otherwise to LOCAL itself. `N:FOLDER/.` copies what is in the folder, and not the folder.
    Get {
        /// As it was in this generation
        #[arg(long, value_name = "GEN", value_parser = generation)]
        at: Option<u64>,
        /// The agent and the path
        #[arg(value_name = "N[@GEN]:PATH")]
        place: String,
        /// Where to; `-` writes standard output [default: here, under its own name]
        #[arg(value_name = "LOCAL")]
        local: Option<PathBuf>,
    },
    /// List the zones that agents share, and who mounts them
    Shared {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a zone that agents share; refused while an agent mounts it
    RmShared {
        /// Remove it also where agents mount it or it cannot be read, and name those agents
        #[arg(long)]
        force: bool,
        /// The zone
        #[arg(value_name = "ZONE")]
        name: String,
    },
    /// List the versions of a file in semantic or procedural memory
    ///
    /// Also of one that is gone. An old version is read as a file: `zone cat N:ZONE/.versions/PATH/TIME`.
    History {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Only what came after this version
        #[arg(long, value_name = "VERSION", value_parser = version)]
        after: Option<u64>,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        limit: usize,
        /// The agent and the path
        #[arg(value_name = "N:PATH")]
        place: String,
    },
    /// Publish an earlier version of a file as its new version
    Rollback {
        /// Only if the file stands at this version
        #[arg(long, value_name = "VERSION", value_parser = version)]
        expect: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The agent and the path
        #[arg(value_name = "N:PATH")]
        place: String,
        /// The version, as `zone history` lists it
        #[arg(value_name = "VERSION", value_parser = version)]
        version: u64,
    },
    /// List the files that are gone from semantic or procedural memory, and can be rolled back
    Deleted {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The agent and a path in the zone
        #[arg(value_name = "N:PATH")]
        place: String,
    },
    /// List what commits did to a zone, oldest first
    Changes {
        /// Only what came after this entry
        #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
        after: u64,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        limit: usize,
        /// Go on with what is committed from here on, until Ctrl-C. Other commands can use the store
        /// meanwhile
        #[arg(long, conflicts_with = "limit")]
        follow: bool,
        /// Print JSON: one object in a line
        #[arg(long)]
        json: bool,
        /// The agent and a path in the zone; only what lies below it is listed
        #[arg(value_name = "N:PATH")]
        place: String,
    },
    /// Say which files of a zone differ between two generations of its agent
    ///
    /// With one generation: between that and what stands now; with none: between the last generation and the
    /// one before. Only what lies below the path is told. A means added, D removed, M changed, R renamed, T
    /// that only times differ.
    Diff {
        #[command(flatten)]
        options: DiffOptions,
        /// The agent and the path
        #[arg(value_name = "N:PATH")]
        place: String,
        /// The generation before
        #[arg(value_name = "GEN", value_parser = generation)]
        before: Option<u64>,
        /// The generation after [default: what stands now]
        #[arg(value_name = "GEN", value_parser = generation)]
        after: Option<u64>,
    },
    /// Erase a file for good: from all its versions, from generations, and from the store's files
    ///
    /// Also one that is gone and that a generation still has. All generations are dropped that were made since
    /// the file was there. A copy elsewhere, in a fork or another file, stays, and is named. After an interruption,
    /// repeat the command, or run `dormouse reap`.
    Forget {
        /// Erase the events and replies of these turns as well
        #[arg(long, value_name = "FIRST[-LAST]", value_parser = super::zone::turns)]
        turns: Option<(u64, u64)>,
        /// Change nothing, and say what would be erased
        #[arg(long)]
        dry_run: bool,
        /// Do not ask; needed where there is no terminal
        #[arg(short, long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The agent and the path
        #[arg(value_name = "N:PATH")]
        place: String,
    },
    /// Remove a file or folder from a zone
    Rm {
        /// Folders and what is in them, too
        #[arg(short, long)]
        recursive: bool,
        /// The agent and the path
        #[arg(value_name = "N:PATH")]
        place: String,
    },
}

/// How differences are told.
#[derive(Debug, Args)]
pub struct DiffOptions {
    /// End with status 1 where something differs
    #[arg(long)]
    pub exit_code: bool,
    /// Print only how many files differ
    #[arg(long, conflicts_with = "json")]
    pub summary: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArguments {
    #[command(flatten)]
    pub options: DiffOptions,
    /// The agent before
    #[arg(value_name = "A[@GEN]")]
    pub before: String,
    /// The agent after
    #[arg(value_name = "B[@GEN]")]
    pub after: String,
}

/// Arguments of `fsck`.
#[derive(Debug, Args)]
pub struct FsckArguments {
    /// Make whole what can be, and set aside what cannot. Nothing is deleted
    #[arg(long)]
    pub repair: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Only what changed since this backup [default: the newest one in the folder]
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,
    /// Everything, in a folder without a backup
    #[arg(long, conflicts_with = "since")]
    pub full: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The folder for backups; `-` writes one to standard output
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A folder of backups, or backups in their order; `-` reads one from standard input
    #[arg(value_name = "DIR|FILE", required = true)]
    pub from: Vec<PathBuf>,
}

/// Arguments of `reap`. What a fork, an open file, a pinned generation or a head needs is never taken, and
/// generations of forks and rewinds are kept as long as their agent.
#[derive(Debug, Args)]
pub struct ReapArguments {
    /// Change nothing, and say what would be given back
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the newest so many generations of turns of each agent
    #[arg(long, value_name = "COUNT")]
    pub keep_turns: Option<usize>,
    /// Keep what the newest so many failed turns of each agent left
    #[arg(long, value_name = "COUNT")]
    pub keep_failed: Option<usize>,
    /// Keep the newest so many generations of pauses, and of what the operator wrote
    #[arg(long, value_name = "COUNT")]
    pub keep_paused: Option<usize>,
    /// Give back versions in semantic memory that were replaced or deleted longer ago
    #[arg(long, value_name = "TIME", value_parser = crate::size::span)]
    pub versions_older_than: Option<Duration>,
    /// But keep the newest so many versions of each file that is there [default: the current one]
    #[arg(long, value_name = "COUNT")]
    pub keep_versions: Option<usize>,
    /// Remove shared zones that no agent mounts
    #[arg(long)]
    pub remove_unmounted: bool,
    /// What is kept, by agent and zone, where no option says it [default: policy.toml in the store's folder]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Of agents that have been paused for longer, keep no generation of a turn but the head
    #[arg(long, value_name = "TIME", value_parser = crate::size::span)]
    pub thin_paused: Option<Duration>,
    /// Remove agents that have been paused for longer, with all their memory
    #[arg(long, value_name = "TIME", value_parser = crate::size::span)]
    pub remove_paused: Option<Duration>,
    /// Keep fewer generations of turns where the store needs more than this
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub budget: Option<u64>,
    /// Leave no more than this of image files that can be made again from the archive [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub image_cache: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    /// The component, or a preview 1 module
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
