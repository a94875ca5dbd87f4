//! What becomes of a zone when its agent commits, forks, goes back, fails or is reaped.

use super::ZoneKind;

/// When what was written becomes part of the agent's committed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Commits {
    /// With the turn.
    WithTurn,
    /// Each operation by itself, in log order.
    EachOperation,
}

/// What a fork gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnFork {
    /// What was written so far, and a continuation of its own.
    SharedPrefix,
    /// The same tree, copied where it is written.
    CopyOnWrite,
    /// An empty log, linked to the head of the parent's.
    NewLog,
    /// The very same zone.
    SameMount,
}

/// What a rewind does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnRewind {
    /// Nothing.
    Stays,
    /// Nothing, and the rewind itself is recorded there.
    StaysAndRecords,
    /// The zone goes back to the earlier root.
    MovesBack,
    /// The zone goes back to the earlier root, and the versions since stay readable.
    MovesBackKeepingHistory,
}

/// What a turn that fails does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// Appends that were synced stay, others go.
    SyncedAppendsStay,
    /// The zone goes back to the last committed turn; what was there is kept beside.
    GoesBack,
    /// Everything stays.
    Stays,
}

/// What may be given back when storage is reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaping {
    /// Nothing, ever.
    Never,
    /// Old versions, by policy.
    OldVersions,
    /// All of it, once nothing refers to it.
    Yes,
    /// All of it with its last mount, by policy.
    WithLastMount,
}

/// The lifecycle rows of the contracts table.
impl ZoneKind {
    /// When its writes commit.
    pub fn commits(self) -> Commits {
        match self {
            ZoneKind::Shared => Commits::EachOperation,
            _ => Commits::WithTurn,
        }
    }

    /// What a fork of the agent gets.
    pub fn on_fork(self) -> OnFork {
        match self {
            ZoneKind::Episodic => OnFork::SharedPrefix,
            ZoneKind::Semantic | ZoneKind::Procedural | ZoneKind::Workspace => OnFork::CopyOnWrite,
            ZoneKind::Logs => OnFork::NewLog,
            ZoneKind::Shared => OnFork::SameMount,
        }
    }

    /// What a rewind of the agent does to it.
    pub fn on_rewind(self) -> OnRewind {
        match self {
            ZoneKind::Episodic | ZoneKind::Shared => OnRewind::Stays,
            ZoneKind::Semantic | ZoneKind::Procedural => OnRewind::MovesBackKeepingHistory,
            ZoneKind::Workspace => OnRewind::MovesBack,
            ZoneKind::Logs => OnRewind::StaysAndRecords,
        }
    }

    /// What becomes of its writes when the turn fails.
    pub fn on_failure(self) -> OnFailure {
        match self {
            ZoneKind::Episodic => OnFailure::SyncedAppendsStay,
            ZoneKind::Semantic | ZoneKind::Procedural | ZoneKind::Workspace => OnFailure::GoesBack,
            ZoneKind::Logs | ZoneKind::Shared => OnFailure::Stays,
        }
    }

    /// What reaping may take.
    pub fn reaping(self) -> Reaping {
        match self {
            ZoneKind::Episodic | ZoneKind::Procedural | ZoneKind::Logs => Reaping::Never,
            ZoneKind::Semantic => Reaping::OldVersions,
            ZoneKind::Workspace => Reaping::Yes,
            ZoneKind::Shared => Reaping::WithLastMount,
        }
    }
}
