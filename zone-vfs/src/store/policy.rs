//! What is kept of agents, and for how long: an operator's policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::KEPT_TURN_GENERATIONS;
use crate::id::AgentId;

/// Generations of one agent that are kept. The head, and those that are pinned, always are; so are those of
/// rewinds, of forks, and of the agent's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepGenerations {
    /// The newest so many of ended turns; more than [`KEPT_TURN_GENERATIONS`] are not kept anyway.
    pub turns: usize,
    /// The newest so many of failed turns.
    pub sides: usize,
    /// The newest so many of pauses, and of what the operator wrote.
    pub pauses: usize,
}

impl Default for KeepGenerations {
    fn default() -> Self {
        Self { turns: KEPT_TURN_GENERATIONS, sides: usize::MAX, pauses: usize::MAX }
    }
}

/// Versions of one zone's files that are kept. The default keeps all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionPolicy {
    /// What was replaced or deleted longer ago than this goes. None keeps everything.
    pub older_than: Option<Duration>,
    /// But not the newest so many versions of a file that is there.
    pub newest: usize,
}

/// What is kept of an agent. The default keeps everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepPolicy {
    /// Its generations.
    pub generations: KeepGenerations,
    /// If it has been paused for longer, it keeps no generation of a turn but its head.
    pub thin_paused: Option<Duration>,
    /// If it has been paused for longer, and no turn was begun since, it is removed, with all its memory; not while any
    /// generation of it is pinned.
    pub remove_paused: Option<Duration>,
    /// The versions in its semantic zones. Those of procedural memory are always kept.
    pub versions: VersionPolicy,
    /// Zones, by name, for which that is different.
    pub zones: BTreeMap<String, VersionPolicy>,
}

impl KeepPolicy {
    /// What holds for the zone of this name.
    pub fn versions_in(&self, zone: &str) -> VersionPolicy {
        self.zones.get(zone).copied().unwrap_or(self.versions)
    }
}

/// What is given back. The default takes only what nothing needs.
#[derive(Clone, Debug, Default)]
pub struct ReapPolicy {
    /// What agents keep.
    pub keep: KeepPolicy,
    /// Agents that keep something else.
    pub agents: BTreeMap<AgentId, KeepPolicy>,
    /// Bytes of needed frames, beyond which agents keep fewer generations of turns: half of them, and half
    /// again, down to the last.
    pub budget: Option<u64>,
    /// Shared zones that no agent mounts any more are removed.
    pub remove_unmounted: bool,
    /// Agents that no policy touches: those that are live in this process, say.
    pub spare: BTreeSet<AgentId>,
}

impl ReapPolicy {
    /// Keeps so many generations of each agent, and is the default otherwise.
    pub fn keeping(generations: KeepGenerations) -> Self {
        Self { keep: KeepPolicy { generations, ..KeepPolicy::default() }, ..Self::default() }
    }

    /// What holds for an agent.
    pub fn of(&self, agent: AgentId) -> &KeepPolicy {
        self.agents.get(&agent).unwrap_or(&self.keep)
    }
}
