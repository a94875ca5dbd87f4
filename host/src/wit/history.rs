//! `dormouse:zones/history`.

use zone_vfs::contract::Operation;
use zone_vfs::id::{GenerationNumber, Inode, Version};
use zone_vfs::store::StoreError;
use zone_vfs::tree::VersionKind;
use zone_vfs::zone::{
    Access, DiffPart, DifferenceKind, Expected, FileDifference, Forgotten as Erasure, OpenOptions,
    VersionEntry, Zone, ZoneError,
};

use super::generated::dormouse::zones::history::{
    Deleted, Difference, DifferenceKind as WitDifference, Forgotten, Host, Kind, Version as WitVersion,
};
use super::{Answer, MAX_ENTRIES, MAX_READ, Place, error, principal, types};
use crate::agent::has_room;
use crate::wasi::{Call, FsError, GuestState};

fn version(place: &Place, entry: VersionEntry) -> WitVersion {
    let record = entry.record;
    WitVersion {
        number: entry.version.0,
        file: entry.file.0,
        path: place.whole(entry.path),
        time: record.at.0,
        by: principal(record.by),
        turn: record.turn.0,
        kind: match record.kind {
            VersionKind::Create => Kind::Create,
            VersionKind::Publish => Kind::Publish,
            VersionKind::Rollback { to } => Kind::Rollback(to.0),
            VersionKind::Rename => Kind::Rename,
            VersionKind::Tombstone => Kind::Tombstone,
            VersionKind::Forgotten => Kind::Forgotten,
            VersionKind::RootMoved { to } => Kind::Rewound(to.0),
        },
        size: record.size,
        hash: if record.has_content() { record.hash.0.to_vec() } else { Vec::new() },
        current: entry.is_current,
    }
}

/// `None` where a path is not what a guest can name.
fn difference(place: &Place, it: FileDifference) -> Option<Difference> {
    let kind = match it.kind {
        DifferenceKind::Added => WitDifference::Added,
        DifferenceKind::Removed => WitDifference::Removed,
        DifferenceKind::Changed => WitDifference::Changed,
        DifferenceKind::Renamed { from, changed } => {
            match place.whole(Some(from)) {
                Some(from) if changed => WitDifference::RenamedAndChanged(from),
                Some(from) => WitDifference::Renamed(from),
                // from a path that the guest cannot be told
                None => WitDifference::Added,
            }
        }
        DifferenceKind::Times => WitDifference::Times,
    };
    let (before, after) = (it.before, it.after);
    Some(Difference {
        path: place.whole(Some(it.path))?,
        kind,
        file: after.or(before)?.file.0,
        size_before: before.map(|side| side.size),
        size_after: after.map(|side| side.size),
    })
}

/// An error of a comparison.
fn not_compared(e: StoreError) -> types::Error {
    match e {
        StoreError::Zone(e) => error(e),
        StoreError::NoGeneration { .. } | StoreError::NoZone { .. } => types::Error::NoEntry(e.to_string()),
        StoreError::NoPast { .. } => types::Error::Unsupported(e.to_string()),
        e => types::Error::Io(zone_vfs::told(&e)),
    }
}

fn expected(number: Option<u64>) -> Expected {
    number.map_or(Expected::Any, |number| Expected::Version(Version(number)))
}

/// Works on the file at `path` while it is open.
fn with_file<R>(
    zone: &mut Zone,
    access: Access,
    path: &[u8],
    work: impl FnOnce(&mut Zone, Inode) -> Result<R, ZoneError>,
) -> Result<R, ZoneError> {
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let file = zone.open(access, Inode::ROOT, path, options)?;
    let result = work(zone, file);
    zone.close(file)?;
    result
}

impl GuestState {
    fn at<R>(
        &mut self,
        path: &str,
        work: impl FnOnce(&Place, &mut Zone, Access) -> Result<R, ZoneError>,
    ) -> Answer<R> {
        let place = match self.place(path) {
            Ok(place) => place,
            Err(e) => return Ok(Err(e)),
        };
        let access = self.access();
        let found = place.zone(|zone| work(&place, zone, access));
        let asked = Call::History.plain().text(path).with(found.is_ok().into());
        self.noted(asked, Ok(())).map_err(|e| match e {
            FsError::Trap(e) => e,
            FsError::Code(code) => wasmtime::Error::msg(code.name()),
        })?;
        Ok(found)
    }
}

impl GuestState {
    async fn diff_of(
        &mut self,
        path: &str,
        generations: [Option<u64>; 2],
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<Difference>, types::Error> {
        let place = self.place(path)?;
        let after = match after.map(|after| Ok((self.place(&after)?, after))).transpose()? {
            None => None,
            Some((at, _)) if at.zone == place.zone => Some(at.path),
            Some((_, after)) => {
                return Err(types::Error::Invalid(format!("{after} lies in another zone than {path}")));
            }
        };
        let [old, new] = generations.map(|it| it.map(GenerationNumber));
        let limit = limit.min(MAX_ENTRIES) as usize;
        // it can read much, and must hold up nobody but this guest
        let compared = crate::threads::run(move || {
            let part = DiffPart { below: &place.path, after: after.as_deref(), utf8: true, limit };
            let found = place.disk.diff_part(place.zone, old, new, part)?.into_iter();
            Ok(found.filter_map(|it| difference(&place, it)).collect())
        });
        match compared.await {
            Ok(found) => found.map_err(not_compared),
            Err(e) => Err(types::Error::Io(zone_vfs::told(&e))),
        }
    }

    /// Has the zone forget something of a file, if the audit log can have a record of it.
    #[expect(clippy::unnecessary_wraps, reason = "it is what the generated functions answer")]
    fn erase(
        &mut self,
        path: &str,
        work: impl FnOnce(&mut Zone, Access, Inode) -> Result<Erasure, ZoneError>,
    ) -> Answer<Forgotten> {
        let place = match self.place(path) {
            Ok(place) => place,
            Err(e) => return Ok(Err(e)),
        };
        if let Err(e) = has_room(&place.disk, place.zone, path.len()) {
            return Ok(Err(error(e)));
        }
        let access = self.access();
        Ok(place.zone(|zone| {
            let file = zone.find_past(access, &place.path)?;
            let gone = work(zone, access, file)?;
            Ok(Forgotten { contents: gone.contents as u64, bytes: gone.bytes })
        }))
    }
}

impl Host for GuestState {
    fn versions(&mut self, path: String, after: Option<u64>, limit: u32) -> Answer<Vec<WitVersion>> {
        self.at(&path, |place, zone, access| {
            let limit = limit.min(MAX_ENTRIES) as usize;
            let entries = zone.history_at(access, &place.path, after.map(Version), limit)?;
            Ok(entries.into_iter().map(|entry| version(place, entry)).collect())
        })
    }

    fn read(&mut self, path: String, number: u64, offset: u64, len: u32) -> Answer<Vec<u8>> {
        self.at(&path, |place, zone, access| {
            let file = zone.holder_of(access, &place.path, Version(number))?;
            let mut bytes = vec![0; len.min(MAX_READ) as usize];
            let read = zone.read_version(access, file, Version(number), offset, &mut bytes)?;
            bytes.truncate(read);
            Ok(bytes)
        })
    }

    fn current(&mut self, path: String) -> Answer<Option<u64>> {
        self.at(&path, |place, zone, access| {
            with_file(zone, access, &place.path, |zone, file| Ok(zone.current(file)?.map(|v| v.0)))
        })
    }

    fn publish(&mut self, path: String, number: Option<u64>) -> Answer<Option<u64>> {
        self.at(&path, |place, zone, access| {
            with_file(zone, access, &place.path, |zone, file| {
                Ok(zone.publish(access, file, expected(number))?.map(|v| v.0))
            })
        })
    }

    fn rollback(&mut self, path: String, number: u64, before: Option<u64>) -> Answer<u64> {
        self.at(&path, |place, zone, access| {
            Ok(zone.rollback_at(access, &place.path, Version(number), expected(before))?.0)
        })
    }

    fn remove(&mut self, path: String, number: u64) -> Answer<()> {
        self.at(&path, |place, zone, access| {
            zone.unlink_if(access, Inode::ROOT, &place.path, expected(Some(number)))
        })
    }

    fn rename_if(&mut self, path: String, to: String, number: Option<u64>) -> Answer<()> {
        let there = match self.place(&to) {
            Ok(there) => there,
            Err(e) => return Ok(Err(e)),
        };
        let expected = number.map_or(Expected::Missing, |number| Expected::Version(Version(number)));
        self.at(&path, |place, zone, access| {
            if place.zone != there.zone {
                zone.check(access, Operation::CrossZone)?;
            }
            zone.rename_if(access, (Inode::ROOT, &place.path), (Inode::ROOT, &there.path), expected)
        })
    }

    fn removed(&mut self, path: String, after: Option<u64>, limit: u32) -> Answer<Vec<Deleted>> {
        self.at(&path, |place, zone, access| {
            let mut after = after.map(|number| zone.place_of_event(access, Version(number))).transpose()?;
            let limit = limit.min(MAX_ENTRIES) as usize;
            let mut told = Vec::new();
            // a page is empty only at the end, also where there are names that the guest cannot be told
            while told.len() < limit {
                let gone = zone.deleted(access, after.as_ref(), limit - told.len())?;
                let Some(last) = gone.last() else { break };
                after = Some(last.place.clone());
                told.extend(gone.into_iter().filter_map(|it| {
                    let path = place.whole(it.path)?;
                    Some(Deleted { path, file: it.file.0, number: it.version.0, time: it.at.0 })
                }));
            }
            Ok(told)
        })
    }

    async fn diff(
        &mut self,
        path: String,
        old: Option<u64>,
        new: Option<u64>,
        after: Option<String>,
        limit: u32,
    ) -> Answer<Vec<Difference>> {
        let number = |generation: Option<u64>| generation.unwrap_or(u64::MAX);
        let asked = Call::Diff.plain().text(&path).with(number(old)).with(number(new)).with(limit.into());
        let asked = asked.text(after.as_deref().unwrap_or_default());
        // which generations are kept is the operator's to say
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let found = self.diff_of(&path, [old, new], after, limit).await;
        self.recorded(asked, &found)?;
        Ok(found)
    }

    fn forget(&mut self, path: String) -> Answer<Forgotten> {
        self.erase(&path, Zone::forget)
    }

    fn forget_version(&mut self, path: String, number: u64) -> Answer<Forgotten> {
        self.erase(&path, |zone, access, file| zone.forget_version(access, file, Version(number)))
    }
}
