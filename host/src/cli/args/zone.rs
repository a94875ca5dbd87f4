//! Arguments of commands about zones.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use zone_vfs::zone::Expected;

use super::values::{expected, generation, version};
use crate::agent::QuotaOption;

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
        /// Only if the file stands at this version, or `none`: if there is nothing at the path
        #[arg(long, value_name = "VERSION|none", value_parser = expected)]
        expect: Option<Expected>,
        /// Print JSON
        #[arg(long)]
        json: bool,
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
        /// Print JSON; of what goes to standard output, on standard error
        #[arg(long)]
        json: bool,
        /// The agent and the path
        #[arg(value_name = "N[@GEN]:PATH")]
        place: String,
        /// Where to; `-` writes standard output [default: here, under its own name]
        #[arg(value_name = "LOCAL")]
        local: Option<PathBuf>,
    },
    /// Show what a zone may use, or set it
    ///
    /// What is used already stays, also where that is more: then the zone can shrink, and not grow. It holds at once and
    /// for good: no rewind takes it back, and later forks begin with it.
    Quota {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The agent and one of its zones, or a zone that agents share
        #[arg(value_name = "N:ZONE|@ZONE")]
        place: String,
        /// What to set: a size, and a number of inodes
        #[arg(value_name = "bytes=SIZE|inodes=COUNT", value_parser = crate::cli::zone::bound)]
        bounds: Vec<QuotaOption>,
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
        /// Print JSON
        #[arg(long)]
        json: bool,
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
        /// At most so many [default: 1000, and with --follow no end]
        #[arg(long, value_name = "COUNT")]
        limit: Option<usize>,
        /// Go on with what is committed from here on, until Ctrl-C or --limit. Other commands can use the store
        /// meanwhile
        #[arg(long)]
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
    /// Erase a file or a folder of files for good: from all versions, from generations, and from the store's files
    ///
    /// The file that is at the path, and those that were there last before they were deleted or replaced, of which a
    /// generation still may have something. What had the name and was moved to elsewhere stays, and is named. All generations are dropped that were made since
    /// the file was there. A copy elsewhere, in a fork or another file, stays, and is named. After an interruption,
    /// repeat the command, or run `dormouse reap`.
    Forget {
        /// All files in a folder, and in folders within it, also those that are gone from there. The folders stay
        #[arg(short, long)]
        recursive: bool,
        /// Also files that had the name and were moved to elsewhere, wherever they are now
        #[arg(long, conflicts_with = "recursive")]
        all_that_had_the_name: bool,
        /// This version alone, as `zone history` lists it: the file and its other versions stay
        #[arg(long, value_name = "VERSION", value_parser = version, conflicts_with_all = ["recursive", "all_that_had_the_name"])]
        version: Option<u64>,
        /// Erase the events and replies of these turns as well
        #[arg(long, value_name = "FIRST[-LAST]", value_parser = crate::cli::zone::turns)]
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
        /// Only if the file stands at this version
        #[arg(long, value_name = "VERSION", value_parser = version, conflicts_with = "recursive")]
        expect: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
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
