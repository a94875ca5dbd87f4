//! Arguments of commands about the store.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::agent::ZoneOption;

/// Arguments of `du`.
#[derive(Debug, Args)]
pub struct UsageArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// List each agent's generations too
    #[arg(long)]
    pub generations: bool,
    /// Only these agents, and zones that agents share [default: all]
    #[arg(value_name = "N|@ZONE")]
    pub names: Vec<String>,
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

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Once the file is whole, nothing here goes on with the agent any more
    #[arg(long = "move")]
    pub moves: bool,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Print JSON; to standard error where the export goes to standard output
    #[arg(long)]
    pub json: bool,
    /// The agent
    #[arg(value_name = "N")]
    pub agent: String,
    /// The file; `-` writes to standard output
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// An environment variable for the guest, since no export holds any; without a value, this process's own
    #[arg(long, value_name = "K[=V]")]
    pub env: Vec<String>,
    /// Check all of it as an import does, say what it holds, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The shared zone to mount where the agent mounts one; made when it is missing
    #[arg(long, value_name = "NAME=/MOUNT[:ro|:rw]")]
    pub zone: Vec<ZoneOption>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The file; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    /// The agent's name [default: the one that it had]
    #[arg(value_name = "N")]
    pub name: Option<String>,
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
