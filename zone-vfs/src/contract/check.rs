use std::fmt;

use super::lifecycle::Reaping;
use super::{Mount, Operation, Principal, ZoneKind};

/// What an operation that is permitted means for the zone's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing beyond the operation itself.
    Plain,
    /// The old state is archived; the new one is a new version.
    NewVersion,
    /// The name goes; a tombstone and the history stay.
    Tombstone,
    /// The operation is recorded in the history.
    Recorded,
    /// Content goes from the history, too; a tombstone stays.
    Erased,
}

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The principal has no business in zones of this kind.
    NoAccess(Principal),
    /// The zone is mounted read-only.
    ReadOnlyMount,
    /// What is written to the zone stays as it is.
    AppendOnly,
    /// The zone keeps versions of each name, which links and set times would falsify.
    Versioned,
    /// Names and links stay in their zone.
    OneZone,
    /// What lies under a reserved name is written by the host alone.
    Reserved,
    /// The audit trail tells what happened, and of no part of it that it did not.
    AuditTrail,
    /// What was is read, and never written.
    Past,
    /// The zone has no earlier versions.
    NoVersions,
    /// The agent may erase its semantic memory; everything else only the operator.
    Forgetting,
    /// Versions are given back by the operator's policy alone.
    Policy,
    /// Nothing of the zone is ever given back while its agent is there.
    NeverReaped,
}

/// An operation that the zone's contract does not permit. Displays the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub struct Refusal {
    /// The rule that forbids it.
    pub rule: Rule,
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// What was asked for.
    pub operation: Operation,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (zone, operation) = (self.kind.phrase(), self.operation.name());
        match self.rule {
            Rule::NoAccess(principal) => {
                write!(f, "{} has no access to {zone}: {operation} is not permitted", principal.phrase())
            }
            Rule::ReadOnlyMount => write!(f, "{zone} is mounted read-only: {operation} is not permitted"),
            Rule::AppendOnly => write!(f, "{zone} is append-only: {operation} is not permitted"),
            Rule::Versioned => write!(f, "{zone} keeps versions: {operation} is not permitted"),
            Rule::Reserved => write!(f, "a reserved name is the host's: {operation} is not permitted"),
            Rule::AuditTrail => write!(f, "the audit trail is never erased: {operation} is not permitted"),
            Rule::Past => write!(f, "the past of {zone} is read-only: {operation} is not permitted"),
            Rule::NoVersions => write!(f, "{zone} keeps no versions: {operation} is not possible"),
            Rule::Forgetting => write!(f, "only the operator may erase {zone}: {operation} is not permitted"),
            Rule::Policy => {
                write!(f, "versions in {zone} are the operator's to give back: {operation} is not permitted")
            }
            Rule::NeverReaped => write!(f, "{zone} is never reaped: {operation} is not permitted"),
            Rule::OneZone => write!(f, "files stay in their zone: {operation} is not permitted"),
        }
    }
}

/// Decides whether the holder of `mount` may do `operation` in a zone of `kind`.
///
/// The only place where that is decided.
#[inline]
pub fn check(kind: ZoneKind, mount: Mount, operation: Operation) -> Result<Effect, Refusal> {
    let refuse = |rule| Err(Refusal { rule, kind, operation });
    if !has_access(kind, mount.principal) {
        return refuse(Rule::NoAccess(mount.principal));
    }
    if operation.only_looks() {
        return Ok(Effect::Plain);
    }
    if operation == Operation::CrossZone {
        return refuse(Rule::OneZone);
    }
    if !mount.writable {
        return refuse(Rule::ReadOnlyMount);
    }
    if operation == Operation::Forget {
        let may = mount.principal == Principal::Host
            || (mount.principal, kind) == (Principal::Agent, ZoneKind::Semantic);
        return if may { Ok(Effect::Erased) } else { refuse(Rule::Forgetting) };
    }
    if matches!(operation, Operation::Rollback | Operation::ReapVersions) && !kind.keeps_versions() {
        return refuse(Rule::NoVersions);
    }
    if operation == Operation::ReapVersions {
        return match kind.reaping() {
            Reaping::OldVersions if mount.principal == Principal::Host => Ok(Effect::Erased),
            Reaping::OldVersions => refuse(Rule::Policy),
            _ => refuse(Rule::NeverReaped),
        };
    }
    match kind {
        ZoneKind::Workspace | ZoneKind::Shared => Ok(Effect::Plain),
        ZoneKind::Episodic | ZoneKind::Logs => match operation {
            Operation::Create
            | Operation::CreateDirectory
            | Operation::OpenForWriting
            | Operation::Append => Ok(Effect::Plain),
            _ => refuse(Rule::AppendOnly),
        },
        ZoneKind::Semantic | ZoneKind::Procedural => match operation {
            Operation::Overwrite | Operation::Truncate | Operation::Rollback => Ok(Effect::NewVersion),
            Operation::Unlink | Operation::RemoveDirectory => Ok(Effect::Tombstone),
            Operation::Rename => Ok(Effect::Recorded),
            Operation::HardLink | Operation::Symlink | Operation::SetTimes => refuse(Rule::Versioned),
            _ => Ok(Effect::Plain),
        },
    }
}

/// The name at the top of a zone of `kind` that is reserved for the host, which is the audit trail's.
pub fn reserved_name(kind: ZoneKind) -> Option<&'static [u8]> {
    (kind == ZoneKind::Logs).then_some(b"audit")
}

/// [`check`] for what lies under a name that [is reserved](reserved_name).
pub fn check_reserved(kind: ZoneKind, mount: Mount, operation: Operation) -> Result<Effect, Refusal> {
    let effect = check(kind, mount, operation)?;
    if operation == Operation::Forget {
        return Err(Refusal { rule: Rule::AuditTrail, kind, operation });
    }
    if mount.principal == Principal::Host || operation.only_looks() {
        return Ok(effect);
    }
    Err(Refusal { rule: Rule::Reserved, kind, operation })
}

/// The names at the top of a zone that keeps versions under which its past is read: the versions of each
/// file, and the zone as it stood at a time.
pub const PAST_NAMES: [&[u8]; 2] = [b".versions", b".asof"];

/// [`check`] for what lies in the past.
pub fn check_past(kind: ZoneKind, mount: Mount, operation: Operation) -> Result<Effect, Refusal> {
    let effect = check(kind, mount, operation)?;
    if operation.only_looks() {
        return Ok(effect);
    }
    Err(Refusal { rule: Rule::Past, kind, operation })
}

/// Agent and host see every zone, a tool only what is worked on together, the manager none.
fn has_access(kind: ZoneKind, principal: Principal) -> bool {
    match principal {
        Principal::Agent | Principal::Host => true,
        Principal::Tool => matches!(kind, ZoneKind::Workspace | ZoneKind::Shared),
        Principal::Manager => false,
    }
}
