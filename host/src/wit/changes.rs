//! `dormouse:zones/changes`.

use std::time::Duration;

use zone_vfs::id::ChangeSequence;
use zone_vfs::store::WatchDone;
use zone_vfs::tree::{ChangeKind, ChangeRecord};

use super::generated::dormouse::zones::changes::{Batch, Change, Host, Kind};
use super::{Answer, MAX_ENTRIES, Place, principal, types};
use crate::wasi::{Call, GuestState};

fn change(place: &Place, sequence: ChangeSequence, record: ChangeRecord) -> Change {
    Change {
        sequence: sequence.0,
        kind: match record.kind {
            ChangeKind::Create => Kind::Create,
            ChangeKind::Publish => Kind::Publish,
            ChangeKind::Append { from, to } => Kind::Append((from, to)),
            ChangeKind::Write => Kind::Write,
            ChangeKind::Rename => Kind::Rename,
            ChangeKind::Tombstone => Kind::Tombstone,
            ChangeKind::Remove => Kind::Remove,
            ChangeKind::Forget => Kind::Forget,
            ChangeKind::Rollback => Kind::Rollback,
            ChangeKind::RootMoved => Kind::RootMoved,
        },
        file: record.file.0,
        path: place.whole(record.path),
        old_path: place.whole(record.old_path),
        turn: record.turn.0,
        time: record.at.0,
        by: principal(record.by),
        version: record.version.map(|v| v.0),
        size: record.size,
    }
}

impl GuestState {
    async fn wait_for_changes(&mut self, path: &str, after: u64, wait: u32) -> Result<bool, types::Error> {
        let place = self.place(path)?;
        let (send, woken) = tokio::sync::oneshot::channel();
        let done: WatchDone = Box::new(move || {
            // the receiver is gone only when the caller is, who does not ask any more
            let _ = send.send(());
        });
        // until it is dropped, which is when this is over, however it ends
        let _watch = match place.disk.watch(place.zone, ChangeSequence(after), done) {
            Some(Ok(watch)) => watch,
            Some(Err(e)) => return Err(types::Error::Invalid(e.to_string())),
            None => return Err(none_at(path)),
        };
        let told = tokio::time::timeout(Duration::from_millis(wait.into()), woken).await;
        // it may end because the zone is gone
        let fed = place.disk.changes(place.zone, ChangeSequence(after), 1);
        Ok(told.is_ok() && fed.and_then(Result::ok).is_some_and(|it| it.last.0 > after))
    }

    fn changes_after(&mut self, path: &str, after: u64, limit: u32) -> Result<Batch, types::Error> {
        let place = self.place(path)?;
        let limit = limit.min(MAX_ENTRIES) as usize;
        let found = match place.disk.changes(place.zone, ChangeSequence(after), limit) {
            Some(Ok(found)) => found,
            Some(Err(e)) => return Err(types::Error::Io(e.to_string())),
            None => return Err(none_at(path)),
        };
        Ok(Batch {
            entries: found.entries.into_iter().map(|(at, record)| change(&place, at, record)).collect(),
            gap: found.gap.map(|gap| gap.0),
            last: found.last.0,
        })
    }
}

fn none_at(path: &str) -> types::Error {
    types::Error::NoEntry(format!("no zone is mounted at {path}"))
}

impl Host for GuestState {
    async fn wait(&mut self, path: String, after: u64, wait: u32) -> Answer<bool> {
        let asked = Call::Wait.plain().text(&path).with(after).with(wait.into());
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let found = self.wait_for_changes(&path, after, wait).await;
        self.recorded(asked, &found)?;
        Ok(found)
    }

    fn changes(&mut self, path: String, after: u64, limit: u32) -> Answer<Batch> {
        let asked = Call::Changes.plain().text(&path).with(after).with(limit.into());
        self.depending(asked, |state| state.changes_after(&path, after, limit))
    }
}
