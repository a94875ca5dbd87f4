//! How a host is opened, and how an agent is made.

use std::path::PathBuf;
use std::time::Duration;

use zone_vfs::store::StoreOptions;

use crate::agent::ZoneOption;
use crate::code::Compiler;
use crate::wasi::MemoryLimits;

/// How a host is opened.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The store's folder; it is made when it is missing.
    pub folder: PathBuf,
    /// How the store is opened.
    pub store: StoreOptions,
    /// The program that compiles components; found when it is first needed, if none is given.
    pub compiler: Option<Compiler>,
    /// Bounds on a guest's memory.
    pub memory: MemoryLimits,
    /// How long a turn may take.
    pub turn_time: Duration,
    /// How much processor time a turn or a run may use; as much as it likes where there is none. It is looked at every
    /// 10 ms.
    pub cpu_time: Option<Duration>,
    /// Turns of one agent that may wait, with the one that goes on.
    pub max_waiting: usize,
    /// How long a component may take to be instantiated for its genesis image.
    pub genesis_time: Duration,
    /// An image with more changed pages than this, and than a sixteenth of all, is made flat behind the turns.
    pub flatten_at: usize,
    /// Bytes of memory that agents may take while they are in memory between turns; where they take more, those that
    /// had their turn longest ago go to sleep, which loses nothing. Half of what the process can have, by default.
    pub parked_memory: u64,
    /// Memory mappings that the process may have, where that is less than `vm.max_map_count`. From 90 % of them on, agents
    /// that had their turn longest ago go to sleep; from 97 % on, where that does not help, none is started.
    pub mappings: Option<u64>,
    /// Which turns end with an image of the agent's memory; the others are run again after a crash.
    pub images: ImagePolicy,
    /// Instances that are made ahead, of all components, where resumes follow each other. None are with 0.
    pub warm_slots: usize,
    /// Bytes of image files that are kept though the archive has them too. The files that heads need are kept
    /// in any case.
    pub image_cache: u64,
}

impl HostOptions {
    /// The defaults, for the store in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            store: StoreOptions::default(),
            compiler: None,
            memory: MemoryLimits::default(),
            turn_time: Duration::from_hours(1),
            cpu_time: None,
            max_waiting: 1024,
            genesis_time: Duration::from_mins(1),
            flatten_at: 256,
            parked_memory: super::pressure::Available::now().map_or(u64::MAX, |it| it.whole / 2),
            mappings: None,
            images: ImagePolicy::default(),
            warm_slots: 64,
            image_cache: 4 << 30,
        }
    }
}

/// When an image of an agent's memory is taken, other than where one is needed: behind the turn that comes to one of
/// these, while the agent has nothing to do. The turns since the last one are run again after a crash, each from its facts,
/// which repeats nothing outside; so this bounds how long an agent takes to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// So many turns since the last image, at most [`MAX_TURNS`](Self::MAX_TURNS). With 1, each turn ends with an image and
    /// none is run again. Where the disk does not keep up, or the agent always has something to do, up to three times as
    /// many are.
    pub turns: u32,
    /// So much processor time of the turns since the last image.
    pub replay: Duration,
}

impl ImagePolicy {
    /// Each turn ends with an image: it takes longer, and nothing is ever run again.
    pub const EVERY_TURN: Self = Self { turns: 1, replay: Duration::ZERO };
    /// The most that [`turns`](Self::turns) may say; more is as good as this.
    pub const MAX_TURNS: u32 = 128;
}

impl Default for ImagePolicy {
    fn default() -> Self {
        Self { turns: 64, replay: Duration::from_millis(100) }
    }
}

/// How an agent is made.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Zones beside the default ones, or their quotas.
    pub zones: Vec<ZoneOption>,
    /// What people call the component: its file's name.
    pub component_name: String,
    /// The most linear memory that it and its forks get, in the place of the host's
    /// [`memory`](HostOptions::memory). Bytes.
    pub max_memory: Option<u64>,
    /// The most processor time that a turn of it and its forks gets, where that is less than the host's
    /// [`cpu_time`](HostOptions::cpu_time).
    pub max_cpu: Option<Duration>,
}
