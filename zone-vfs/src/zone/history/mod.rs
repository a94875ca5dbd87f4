//! What the files of a zone were: versions, and names that are gone.
//!
//! Semantic and procedural zones keep versions. There, a file that is written is a *draft*, which
//! becomes a *version* when it is synced or closed; from then on that version never changes. Every
//! event of a file or directory has a number of its own from the counter that gives inode numbers, and
//! lies in the history tree three times: under the file, under the name in its directory, and in the
//! order of numbers. So a path can be followed as of any event, and numbers and times ascend together.
//!
//! - `draft`: from a descriptor's writes to a version.
//! - `content`, `cut`: how the content of a version is stored.
//! - `names`: what becomes of names, and what leaves no trace.
//! - `replace`: a rename over a file, which is one new version of it.
//! - `earlier`: files that had a name before the one that has it.
//! - `query`, `restore`: reading the history, rolling back, forgetting.
//! - `expire`: what a policy gives back.
//! - `past`: as the zone stood at an event. `view`: that, and the versions, as directories.

pub(super) mod content;
mod cut;
pub(super) mod draft;
mod earlier;
mod expire;
mod forget_version;
mod names;
mod past;
mod query;
mod replace;
mod restore;
mod rewind;
mod time;
pub(super) mod view;

pub use expire::{KeepVersions, MAX_OLD_VERSIONS, OldVersions, ReapedVersions};
pub use query::{Deleted, VersionEntry};
pub use restore::Forgotten;

use std::sync::Arc;

use super::{Cause, ErrorCode, Measure, Result, Zone, ZoneError};
use crate::contract::Principal;
use crate::id::{Inode, Timestamp, Turn, Version};
use crate::tree::{EventRecord, FileKind, Key, NamedPlace, Value, VersionKind, VersionRecord};

/// The history of a zone may use as many times the zone's quota, before changes are refused.
pub const HISTORY_SHARE: u64 = 4;

/// What an event says of itself; the zone adds when, by whom and in which turn.
pub(super) struct Event {
    pub(super) file: Inode,
    pub(super) kind: VersionKind,
    pub(super) is: FileKind,
    pub(super) place: NamedPlace,
    pub(super) from: Option<NamedPlace>,
    pub(super) size: u64,
    pub(super) hash: crate::id::Hash,
    pub(super) content: Option<Version>,
    pub(super) added: u64,
}

impl Event {
    /// An event of a directory, or one that is about no content.
    pub(super) fn without_content(file: Inode, kind: VersionKind, is: FileKind, place: NamedPlace) -> Self {
        Self {
            file,
            kind,
            is,
            place,
            from: None,
            size: 0,
            hash: crate::id::Hash([0; 32]),
            content: None,
            added: 0,
        }
    }
}

impl Zone {
    /// Tells the zone that a turn begins, in which what is born and goes again leaves no trace.
    pub fn begin_turn(&mut self, turn: Turn) {
        self.turn = turn;
        self.begin_span();
    }

    /// Tells the zone that the turn is over, or that the operator's writes are committed.
    pub fn end_turn(&mut self) {
        self.turn = Turn(0);
        self.begin_span();
    }

    fn begin_span(&mut self) {
        self.span = Version(self.counters.next_inode.0);
    }

    /// The number of the event that comes next.
    fn next_event(&self) -> Version {
        Version(self.counters.next_inode.0)
    }

    /// Checks that the history may grow by an event.
    pub(super) fn afford_past(&self) -> Result<()> {
        self.afford_events(1)
    }

    /// Checks that the history may grow by so many events.
    fn afford_events(&self, more: u64) -> Result<()> {
        let (past, quota) = (self.counters.charged_past(), self.quota);
        let bytes = quota.bytes.saturating_mul(HISTORY_SHARE);
        let events = quota.inodes.saturating_mul(HISTORY_SHARE);
        let full = |of, used, more, quota| {
            let cause = Some(Cause::Full { of, used, more, quota });
            Err(ZoneError { code: ErrorCode::Quota, cause })
        };
        // how much a version adds is known when it is cut: it may go beyond, once
        if past.bytes > bytes {
            return full(Measure::HistoryBytes, past.bytes, 0, bytes);
        }
        if past.inodes.saturating_add(more) > events {
            return full(Measure::HistoryEvents, past.inodes, more, events);
        }
        Ok(())
    }

    /// Reads what noting the next event of `file` needs.
    pub(super) fn prepare_event(&self, file: Inode, places: &[&NamedPlace]) -> Result<()> {
        let next = self.next_event();
        self.state.prepare(&[
            &Key::version(file, next),
            &Key::event(next),
            &Key::content(next),
            &Key::draft(file),
        ])?;
        places
            .iter()
            .try_for_each(|place| self.state.prepare(&[&Key::named(place.parent, place.name.clone(), next)]))
    }

    /// Notes an event, and gives its number. Cannot fail when it was prepared.
    fn note(&mut self, by: Principal, now: Timestamp, event: Event) -> Result<Version> {
        let version = self.next_event();
        let at = self.counters.latest.max(now);
        let Event { file, kind, is, place, from, size, hash, content, added } = event;
        let gone = from.clone().or_else(|| (kind == VersionKind::Tombstone).then(|| place.clone()));
        if let Some(gone) = gone {
            self.state.put(Key::named(gone.parent, gone.name, version), Value::Named(None))?;
        }
        if matches!(kind, VersionKind::Create | VersionKind::Rename) {
            let key = Key::named(place.parent, place.name.clone(), version);
            self.state.put(key, Value::Named(Some((file, is))))?;
        }
        let (turn, file_kind) = (self.turn, is);
        let record =
            VersionRecord { at, by, turn, kind, file: file_kind, place, from, size, hash, content, added };
        self.state.put(Key::version(file, version), Value::Version(Arc::new(record)))?;
        self.state.put(Key::event(version), Value::Event(EventRecord { file, at }))?;
        self.counters.next_inode = Inode(version.0).next();
        self.counters.latest = at;
        self.counters.past.inodes += 1;
        self.counters.past.bytes += added;
        Ok(version)
    }

    /// Where an inode is, of which a change was asked for through its place.
    fn place_of(&self, inode: Inode) -> Result<NamedPlace> {
        self.record(inode)?.place.clone().ok_or_else(|| ErrorCode::NoEntry.into())
    }

    pub(super) fn is_versioned(&self) -> bool {
        self.kind.keeps_versions()
    }
}
