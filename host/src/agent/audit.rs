//! What the host writes into an agent's audit trail, `/logs/audit`: one JSON object in a line.
//!
//! Nothing is forgotten without a line that says so. The line is committed with what it tells of, and where it cannot be
//! written, nothing is forgotten. The file has room of its own beyond the quota of the logs, [`HOST_RESERVE`].

use serde_json::{Value, json};
use zone_vfs::contract::{Principal, ZoneKind, reserved_name};
use zone_vfs::id::{Inode, Timestamp, Turn};
use zone_vfs::store::{Disk, Forget, Forgot, ZoneSpec};
#[cfg(doc)]
use zone_vfs::zone::HOST_RESERVE;
use zone_vfs::zone::{Access, Erased, ErrorCode, OpenOptions, Zone, ZoneError};

use super::generation::await_done;
use super::{Agent, AgentError};

/// Bytes of a line beside its path, at most.
const MAX_LINE: u64 = 512;

/// Appends a line to the reserved file of the logs.
fn append(zone: &mut Zone, access: Access, line: &Value) -> Result<(), ZoneError> {
    let name = reserved_name(ZoneKind::Logs).ok_or(ErrorCode::NoEntry)?;
    let options = OpenOptions { create: true, write: true, ..OpenOptions::default() };
    let file = zone.open(access, Inode::ROOT, name, options)?;
    let appended = zone.append(access, file, format!("{line}\n").as_bytes());
    zone.close_writer(file)?;
    appended.map(drop)
}

/// The index of the zone that has the audit trail.
pub(crate) fn logs(zones: &[ZoneSpec]) -> Option<u16> {
    zones.iter().position(|zone| zone.kind == ZoneKind::Logs).map(|index| index as u16)
}

/// What the host writes into the audit trail of a disk, to be committed with what it tells of. Where a line is refused, the
/// caller takes back what was written.
pub(crate) fn note(disk: &Disk, lines: &[Value], now: Timestamp) -> Result<(), AgentError> {
    let access = Access::new(Principal::Host, now);
    let none = || AgentError::NoAudit("the agent has no logs".into());
    let logs = logs(&disk.zones()).ok_or_else(none)?;
    let noted = disk.zone(logs, |zone| lines.iter().try_for_each(|line| append(zone, access, line)));
    noted.ok_or_else(none)?.map_err(|e| match e.code {
        ErrorCode::Quota => AgentError::NoAudit(e.to_string()),
        _ => e.into(),
    })
}

/// The line of what an operator has forgotten.
pub(super) fn forgotten(what: &Forget, zone: &str, path: &str, would: &Forgot, now: Timestamp) -> Value {
    let turns = what.turns.map(|(Turn(first), Turn(last))| [first, last]);
    json!({
        "at": now.0, "by": "host", "what": "forget", "zone": zone, "path": path,
        "files": what.files.iter().map(|file| file.0).collect::<Vec<_>>(),
        "versions": what.versions.iter().map(|(_, version)| version.0).collect::<Vec<_>>(),
        "contents": would.content.contents, "bytes": would.content.bytes,
        "generations": would.generations.len(), "turns": turns,
    })
}

/// The line of what an agent has forgotten itself.
fn erased(erased: &Erased, zone: &ZoneSpec, turn: Turn, now: Timestamp) -> Value {
    let path = erased.path.as_deref().map(|path| format!("{}/{}", zone.mount, String::from_utf8_lossy(path)));
    json!({
        "at": now.0, "by": "agent", "what": "forget", "zone": zone.name, "path": path, "turn": turn.0,
        "files": [erased.file.0], "versions": erased.version.iter().map(|version| version.0).collect::<Vec<_>>(),
        "contents": erased.contents, "bytes": erased.bytes,
    })
}

/// Notes what the agent has forgotten in the turn that is going on. For who makes it final next.
pub(crate) fn note_erased(disk: &Disk) -> Result<(), AgentError> {
    let (now, turn) = (Timestamp::now(), disk.turn());
    let mut lines = Vec::new();
    let zones = disk.zones();
    for (index, spec) in (0u16..).zip(&zones).filter(|(_, spec)| spec.shared.is_none()) {
        let of_zone = disk.zone(index, |zone| zone.erased().to_vec()).unwrap_or_default();
        lines.extend(of_zone.iter().map(|it| erased(it, spec, turn, now)));
    }
    if lines.is_empty() {
        return Ok(());
    }
    note(disk, &lines, now)?;
    for (index, _) in (0u16..).zip(&zones).filter(|(_, spec)| spec.shared.is_none()) {
        disk.zone(index, Zone::erased_is_noted);
    }
    Ok(())
}

/// Whether an agent may forget one more file, at a path of so many bytes: the line that says so has room.
pub(crate) fn has_room(disk: &Disk, zone: u16, path: usize) -> Result<(), ZoneError> {
    // a byte of a path is told by six where it is a control character
    let line = |path: usize| MAX_LINE + 6 * path as u64;
    let waiting = disk.zone(zone, |zone| {
        let lines = zone.erased().iter().map(|it| line(it.path.as_ref().map_or(0, Vec::len)));
        lines.sum::<u64>()
    });
    let room = logs(&disk.zones()).and_then(|logs| disk.zone(logs, |zone| zone.reserved_room()));
    if waiting.unwrap_or(0) + line(path) <= room.unwrap_or(0) {
        return Ok(());
    }
    let rule = "the audit trail has no room for the record of it, and nothing is forgotten without";
    Err(ZoneError { code: ErrorCode::Quota, cause: Some(zone_vfs::zone::Cause::Rule(rule)) })
}

impl Agent {
    /// Notes a line in the agent's audit trail, durably. Waits for a turn that is going on.
    pub(crate) async fn note_now(&self, line: &Value, now: Timestamp) -> Result<(), AgentError> {
        let _running = self.enter_wherever().await?;
        let noted = match note(&self.disk, std::slice::from_ref(line), now) {
            Ok(()) => await_done(&self.disk, |done| self.disk.sync(done)).await.map_err(AgentError::from),
            Err(e) => Err(e),
        };
        if noted.is_err() {
            self.abandon().await?;
        }
        noted
    }
}
