use super::lifecycle::{Commits, OnFailure, OnFork, OnRewind, Reaping};
use super::*;

/// One cell of the contracts table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// Permitted.
    Yes,
    /// Permitted, as a new version.
    Version,
    /// Permitted, leaving a tombstone.
    Tombstone,
    /// Permitted, and recorded.
    Recorded,
    /// `not-permitted`: written once.
    Once,
    /// `not-permitted`: versions.
    Versioned,
    /// `cross-device`.
    Cross,
    /// `unsupported`: no versions.
    None,
    /// Permitted to the operator: content is erased.
    Erase,
    /// The same, and to the agent, too.
    Own,
    /// Permitted to the operator: old versions go.
    Old,
    /// `not-permitted`: kept for ever.
    Never,
}

use Cell::{Cross, Erase, Never, None, Old, Once, Own, Recorded, Tombstone, Version, Versioned, Yes};
use ZoneKind::{Episodic, Logs, Procedural, Semantic, Shared, Workspace};

const KINDS: [ZoneKind; 6] = [Episodic, Semantic, Procedural, Workspace, Logs, Shared];

/// For a principal that may write to the zone. Columns as in `KINDS`.
#[rustfmt::skip]
const TABLE: [(Operation, [Cell; 6]); 19] = [
    //                            episodic  semantic   procedural workspace logs  shared
    (Operation::Read,            [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::List,            [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::Create,          [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::CreateDirectory, [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::OpenForWriting,  [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::Append,          [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::Overwrite,       [Once,     Version,   Version,   Yes,      Once, Yes]),
    (Operation::Truncate,        [Once,     Version,   Version,   Yes,      Once, Yes]),
    (Operation::Rename,          [Once,     Recorded,  Recorded,  Yes,      Once, Yes]),
    (Operation::Unlink,          [Once,     Tombstone, Tombstone, Yes,      Once, Yes]),
    (Operation::RemoveDirectory, [Once,     Tombstone, Tombstone, Yes,      Once, Yes]),
    (Operation::HardLink,        [Once,     Versioned, Versioned, Yes,      Once, Yes]),
    (Operation::Symlink,         [Once,     Versioned, Versioned, Yes,      Once, Yes]),
    (Operation::SetTimes,        [Once,     Versioned, Versioned, Yes,      Once, Yes]),
    (Operation::CrossZone,       [Cross,    Cross,     Cross,     Cross,    Cross, Cross]),
    (Operation::Sync,            [Yes,      Yes,       Yes,       Yes,      Yes,  Yes]),
    (Operation::Rollback,        [None,     Version,   Version,   None,     None, None]),
    (Operation::Forget,          [Erase,    Own,       Erase,     Erase,    Erase, Erase]),
    (Operation::ReapVersions,    [None,     Old,       Never,     None,     None, None]),
];

/// Who has to do with zones of a kind at all. Columns as in `KINDS`.
#[rustfmt::skip]
const WHO: [(Principal, [bool; 6]); 4] = [
    //                    episodic semantic procedural workspace logs   shared
    (Principal::Agent,   [true,    true,    true,      true,     true,  true]),
    (Principal::Tool,    [false,   false,   false,     true,     false, true]),
    (Principal::Manager, [false,   false,   false,     false,    false, false]),
    (Principal::Host,    [true,    true,    true,      true,     true,  true]),
];

fn expected(cell: Cell, principal: Principal) -> Result<Effect, Rule> {
    match cell {
        None => Err(Rule::NoVersions),
        Own if principal == Principal::Agent => Ok(Effect::Erased),
        Own | Erase | Old if principal == Principal::Host => Ok(Effect::Erased),
        Own | Erase => Err(Rule::Forgetting),
        Old => Err(Rule::Policy),
        Never => Err(Rule::NeverReaped),
        Yes => Ok(Effect::Plain),
        Version => Ok(Effect::NewVersion),
        Tombstone => Ok(Effect::Tombstone),
        Recorded => Ok(Effect::Recorded),
        Once => Err(Rule::AppendOnly),
        Versioned => Err(Rule::Versioned),
        Cross => Err(Rule::OneZone),
    }
}

fn rule(kind: ZoneKind, mount: Mount, operation: Operation) -> Result<Effect, Rule> {
    check(kind, mount, operation).map_err(|refusal| {
        assert_eq!((refusal.kind, refusal.operation), (kind, operation));
        refusal.rule
    })
}

#[test]
fn the_contracts_table_holds_cell_by_cell() {
    let mut cells = 0;
    for (operation, row) in TABLE {
        for (principal, has_access) in WHO {
            for (column, kind) in KINDS.into_iter().enumerate() {
                let found = rule(kind, Mount::writable(principal), operation);
                let wanted = if has_access[column] {
                    expected(row[column], principal)
                } else {
                    Err(Rule::NoAccess(principal))
                };
                assert_eq!(found, wanted, "{principal:?}: {operation:?} in {kind}");
                cells += 1;
            }
        }
    }
    assert_eq!(cells, Operation::ALL.len() * Principal::ALL.len() * ZoneKind::ALL.len());
}

#[test]
fn the_table_has_every_operation_kind_and_principal() {
    for operation in Operation::ALL {
        assert_eq!(TABLE.iter().filter(|row| row.0 == operation).count(), 1, "{operation:?}");
    }
    for principal in Principal::ALL {
        assert_eq!(WHO.iter().filter(|row| row.0 == principal).count(), 1, "{principal:?}");
    }
    assert_eq!(KINDS, ZoneKind::ALL);
}

#[test]
fn a_read_only_mount_takes_all_writing_away() {
    for kind in KINDS {
        for operation in Operation::ALL {
            let wanted = match operation {
                Operation::Read | Operation::List | Operation::Sync => Ok(Effect::Plain),
                Operation::CrossZone => Err(Rule::OneZone),
                _ => Err(Rule::ReadOnlyMount),
            };
            assert_eq!(rule(kind, Mount::read_only(Principal::Agent), operation), wanted);
        }
    }
}

#[test]
fn what_is_reserved_is_written_by_the_host_alone() {
    for kind in KINDS {
        assert_eq!(reserved_name(kind).is_some(), kind == Logs);
    }
    for operation in Operation::ALL {
        for principal in Principal::ALL {
            let mount = Mount::writable(principal);
            let wanted = match (principal, operation) {
                (
                    Principal::Agent,
                    Operation::Create
                    | Operation::CreateDirectory
                    | Operation::OpenForWriting
                    | Operation::Append,
                ) => Err(Rule::Reserved),
                (Principal::Host, Operation::Forget) => Err(Rule::AuditTrail),
                _ => rule(Logs, mount, operation),
            };
            let found = check_reserved(Logs, mount, operation).map_err(|refusal| refusal.rule);
            assert_eq!(found, wanted, "{principal:?}: {operation:?}");
        }
    }
}

#[test]
fn the_past_is_read_and_never_written() {
    for kind in [Semantic, Procedural] {
        for operation in Operation::ALL {
            let found = check_past(kind, Mount::writable(Principal::Agent), operation);
            let wanted = match rule(kind, Mount::writable(Principal::Agent), operation) {
                Ok(Effect::Plain) if operation.only_looks() => Ok(Effect::Plain),
                Ok(_) => Err(Rule::Past),
                refused => refused,
            };
            assert_eq!(found.map_err(|refusal| refusal.rule), wanted, "{operation:?}");
        }
    }
}

#[test]
fn a_refusal_names_its_rule() {
    let say = |kind, mount, operation| check(kind, mount, operation).unwrap_err().to_string();
    assert_eq!(
        say(Episodic, Mount::writable(Principal::Agent), Operation::Overwrite),
        "episodic memory is append-only: overwrite is not permitted"
    );
    assert_eq!(
        say(Semantic, Mount::writable(Principal::Agent), Operation::HardLink),
        "semantic memory keeps versions: hard link is not permitted"
    );
    assert_eq!(
        say(Semantic, Mount::writable(Principal::Tool), Operation::Read),
        "a tool has no access to semantic memory: read is not permitted"
    );
    assert_eq!(
        say(Shared, Mount::read_only(Principal::Agent), Operation::Append),
        "a shared zone is mounted read-only: append is not permitted"
    );
}

#[test]
fn kinds_go_by_their_names() {
    for kind in ZoneKind::ALL {
        assert_eq!(ZoneKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(ZoneKind::from_name("credentials"), Option::None);
}

#[test]
fn the_lifecycle_rows_hold_cell_by_cell() {
    #[rustfmt::skip]
    let rows = [
        (Episodic, Commits::WithTurn, OnFork::SharedPrefix, OnRewind::Stays,
            OnFailure::SyncedAppendsStay, Reaping::Never),
        (Semantic, Commits::WithTurn, OnFork::CopyOnWrite, OnRewind::MovesBackKeepingHistory,
            OnFailure::GoesBack, Reaping::OldVersions),
        (Procedural, Commits::WithTurn, OnFork::CopyOnWrite, OnRewind::MovesBackKeepingHistory,
            OnFailure::GoesBack, Reaping::Never),
        (Workspace, Commits::WithTurn, OnFork::CopyOnWrite, OnRewind::MovesBack,
            OnFailure::GoesBack, Reaping::Yes),
        (Logs, Commits::WithTurn, OnFork::NewLog, OnRewind::StaysAndRecords,
            OnFailure::Stays, Reaping::Never),
        (Shared, Commits::EachOperation, OnFork::SameMount, OnRewind::Stays,
            OnFailure::Stays, Reaping::WithLastMount),
    ];
    assert_eq!(rows.map(|row| row.0), ZoneKind::ALL);
    for (kind, commits, on_fork, on_rewind, on_failure, reaping) in rows {
        assert_eq!(kind.commits(), commits, "{kind}");
        assert_eq!(kind.on_fork(), on_fork, "{kind}");
        assert_eq!(kind.on_rewind(), on_rewind, "{kind}");
        assert_eq!(kind.on_failure(), on_failure, "{kind}");
        assert_eq!(kind.reaping(), reaping, "{kind}");
    }
}
