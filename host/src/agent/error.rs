use zone_vfs::id::{GenerationNumber, Timestamp, Turn};
use zone_vfs::store::StoreError;
use zone_vfs::zone::ZoneError;

use super::{InvalidName, ZoneOptionError};
use crate::code::CodeError;
use crate::component::ComponentError;
use crate::image::ImageError;
use crate::journal::JournalError;
use crate::wasi::OutsideError;

/// What can go wrong with an agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No agent has this name.
    #[error("no agent named `{0}`")]
    NoAgent(String),
    /// The name cannot be an agent's.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The component is refused, or could not be compiled.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The component could not be compiled, or its code not be loaded.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A zone that was asked for is refused.
    #[error(transparent)]
    ZoneOption(#[from] ZoneOptionError),
    /// Reading or making an image failed.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A zone refused or failed.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// What the store holds about the agent cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What is to be done is done only with a record of it in the agent's audit log, which cannot be written.
    #[error("the audit log cannot have a record of it, and without one nothing is done: {0}")]
    NoAudit(String),
    /// The component could not be linked or instantiated.
    #[error("the component cannot be started: {0}")]
    Instantiate(String),
    /// The component imports what there is not.
    #[error("{}", not_provided(.0))]
    Imports(Vec<String>),
    /// The guest trapped: the turn failed, and the agent stands where it stood before.
    #[error("the turn failed: {reason}")]
    Trap {
        /// What happened, with the guest's own backtrace where there is one.
        reason: String,
    },
    /// The turn ran longer than it may: it failed, and the agent stands where it stood before.
    #[error("the turn failed: it ran longer than {0:?}")]
    Timeout(std::time::Duration),
    /// The turn used more processor time than it may: it failed, and the agent stands where it stood before.
    #[error("the turn failed: {}", crate::code::OutOfTime(*.0))]
    CpuTime(std::time::Duration),
    /// The component did not come to an end of its own instantiation.
    #[error("the component was still starting after {0:?}: what it does as it is instantiated does not end")]
    GenesisTime(std::time::Duration),
    /// A call of the guest's could not be answered: the turn failed, and the agent stands where it stood before.
    #[error("the turn failed: {0}")]
    Outside(#[source] OutsideError),
    /// The agent has no such turn that is over.
    #[error("the agent has no turn {turn} that is over")]
    NoTurn {
        /// Which.
        turn: Turn,
    },
    /// The turn cannot be taken again.
    #[error("turn {turn} cannot be replayed: {reason}")]
    NoReplay {
        /// Which.
        turn: Turn,
        /// Why not.
        reason: String,
    },
    /// As many wait for their turn as may.
    #[error("{limit} wait for the agent's turns already, and no more may: send it again later")]
    TooManyWaiting {
        /// How many may.
        limit: usize,
    },
    /// The turn was cancelled: the agent stands where it stood before.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The agent itself would not be upgraded: it stands where it stood before.
    #[error("the upgrade failed: `{of}` of the {} component answered: {text}", if *.of == "save" { "old" } else { "new" })]
    Upgrade {
        /// The export that was called.
        of: &'static str,
        /// Its answer.
        text: String,
    },
    /// What `save` returned is over the limit: the agent stands where it stood before.
    #[error(
        "the upgrade failed: `save` of the old component returned {len} bytes, and at most {limit} are handed over"
    )]
    StateTooLarge {
        /// Its length.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A component of another world than the agent it was meant for.
    #[error("the component is of the world {found}, and agent `{agent}` of {wanted}")]
    UpgradeWorld {
        /// The agent's name.
        agent: String,
        /// The component's world.
        found: &'static str,
        /// The agent's.
        wanted: &'static str,
    },
    /// What was asked needs another world.
    #[error("agent `{agent}` is of the world {found}: {wanted}")]
    World {
        /// The agent's name.
        agent: String,
        /// The world it has.
        found: &'static str,
        /// What would be right.
        wanted: &'static str,
    },
    /// A generation that has no memory to go back to.
    #[error("generation {generation} keeps files only, no memory: it can be read, not resumed")]
    NoMemory {
        /// Which.
        generation: GenerationNumber,
    },
    /// The memory of a generation is that of an earlier one with the turns since run again, and these come to something
    /// else: it cannot be had. The agent stands where it stood.
    #[error(
        "the memory of generation {generation} cannot be made again from that of generation {last}: turn {turn} does not \
         come to what it did: {reason}; `dormouse rewind AGENT {last}` goes back to where it can be had"
    )]
    NotMadeAgain {
        /// Which.
        generation: GenerationNumber,
        /// The first turn that differs.
        turn: Turn,
        /// How.
        reason: String,
        /// The generation before these turns, whose memory is kept.
        last: GenerationNumber,
    },
    /// A page of the memory image could not be read while the guest ran, or was not what it had been. Nothing of the turn
    /// took effect.
    #[error(
        "the memory of `{agent}`, as of generation {generation}, could not be read from its image, and nothing of the \
         turn took effect"
    )]
    ImageRead {
        /// The agent's name.
        agent: String,
        /// Its head.
        generation: GenerationNumber,
        /// The file, and what is wrong with it.
        #[source]
        source: ImageError,
    },
    /// An image file is missing or damaged, and there is nothing to make it of.
    #[error("generation {generation} cannot be brought back: {reason}")]
    ImageLost {
        /// Which.
        generation: GenerationNumber,
        /// Why not.
        reason: &'static str,
        /// What is wrong with the file.
        #[source]
        source: ImageError,
    },
    /// The agent was moved to another store: nothing here goes on with it.
    #[error(
        "{agent} was moved to another store (exported {}): `dormouse rm {agent}` removes what is left of it, and \
         `dormouse import` of that file makes a copy",
        crate::size::time(*at)
    )]
    Moved {
        /// The agent's name.
        agent: String,
        /// When.
        at: Timestamp,
    },
    /// More forks than one call makes.
    #[error("{found} forks: at most {limit} are made at once")]
    TooManyForks {
        /// How many were asked for.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The image is of another layout.
    #[error(
        "its memory was captured in layout {found}, this program has layout {supported}: use the version of dormouse that made it"
    )]
    OtherLayout {
        /// The version that took it.
        found: u32,
        /// The version here.
        supported: u32,
    },
    /// The agent's memory is larger than it may be here.
    #[error("it needs {needed} bytes of memory, and {limit} are allowed: raise --max-memory")]
    MemoryLimit {
        /// Bytes of its memories.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// A limit of processor time under which no turn could begin.
    #[error("a turn needs some processor time: give more than 0 seconds")]
    NoTime,
    /// The process has nearly as many memory mappings as it may have, and no agent is left that could go to sleep.
    #[error(
        "the process has {used} of {limit} memory mappings, and an agent in memory takes about eight: raise the limit \
         with `sysctl vm.max_map_count=N`, or let agents sleep"
    )]
    Mappings {
        /// Mappings that there are.
        used: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A payload over the limit.
    #[error("the payload has {len} bytes, an event at most {limit}")]
    PayloadTooLarge {
        /// Its bytes.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// An event's id over the limit.
    #[error("the event's id has {len} bytes, at most {limit} are accepted")]
    EventIdTooLong {
        /// Its bytes.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// Something of the host's own failed.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Not a name for what is derived from an agent's zones.
    #[error(
        "`{0}` is no name for something derived: letters, digits, `.`, `-` and `_`, at most 64, not first a dot"
    )]
    DerivedName(String),
    /// A policy for reaping cannot be read.
    #[error("{}: {reason}", file.display())]
    Policy {
        /// Where it is.
        file: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A task of the host's own did not end.
    #[error("a task of the host's failed: {0}")]
    Task(String),
}

/// Imports that are named in an error, at most.
const NAMED: usize = 8;

fn not_provided(imports: &[String]) -> String {
    let named: Vec<_> = imports.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let more = imports.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the component imports {}{more}, which Dormouse does not provide", named.join(", "))
}

impl AgentError {
    /// True when a file of an image is missing or damaged.
    pub(crate) fn is_lost_image(&self) -> bool {
        matches!(self, Self::ImageLost { .. }) || matches!(self, Self::Image(e) if e.is_lost())
    }

    /// True when something is lacking, on the disk or to this process: nothing is known of what is stored.
    pub(crate) fn is_lack(&self) -> bool {
        match self {
            Self::Store(e) => e.is_lack(),
            Self::Image(e) => e.is_lack(),
            Self::Code(CodeError::Io { source, .. }) | Self::Io { source, .. } => {
                zone_vfs::device::is_lack(source)
            }
            _ => false,
        }
    }

    /// True when the disk is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Store(e) => e.is_no_space(),
            Self::Image(e) => e.is_no_space(),
            Self::Zone(e) => e.code == zone_vfs::zone::ErrorCode::InsufficientSpace,
            _ => false,
        }
    }
}
