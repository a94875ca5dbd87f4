//! Writing a backup: the frames that a catalogue leads to, and the embedder's files.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::PoisonError;

use uuid::Uuid;

use super::about::read_ends;
use super::error::bad;
use super::format::{End, FILE, FRAME, Header, MAGIC};
use super::{BackedUp, BackupReport, Files, ReadSeek, made};
use crate::chunks::FrameKind;
use crate::id::Hash;
use crate::segment::{Marks, Segments};
use crate::store::reach::{Place, Reach, Visitor};
use crate::store::stream::Through;
use crate::store::{Shared, StoreError, agents, open};

impl Shared {
    pub(super) fn write_backup(
        &self,
        catalogue: &Hash,
        to: &mut dyn Write,
        since: Option<&mut dyn ReadSeek>,
        files: Files<'_>,
    ) -> Result<BackupReport, StoreError> {
        let device = self.segments.device();
        let id = agents::random_uuid(device)?;
        let (mut have, mut have_files, mut before) = (Marks::default(), BTreeSet::new(), Uuid::nil());
        let key = open::read_key_file(device)?;
        let store = self.superblock.lock().unwrap_or_else(PoisonError::into_inner).current().store;
        let known = made::read(device).map_err(noting)?;
        if let Some(since) = since {
            let (header, end) = read_ends(since).map_err(StoreError::of_backup_before)?;
            if header.key != key || header.store != store {
                return Err(bad(format!(
                    "before it is of the store {}, and this is the store {store}: make one of everything, elsewhere",
                    header.store
                )));
            }
            if known.as_ref().is_some_and(|known| !known.contains(&header.id)) {
                return Err(bad(format!(
                    "before it, {}, was not made here: it is of a copy of the store {store} that has gone on by itself. \
                     Make one of everything, elsewhere",
                    header.id
                )));
            }
            before = header.id;
            for place in end.addresses.iter().filter_map(|hash| self.segments.locate(hash).ok()) {
                have.add(place);
            }
            have_files.extend(end.files);
        }
        // before anybody has the backup: one that is there and not noted could not be gone on from
        if let Err(e) = made::note(device, &known.unwrap_or_default(), id) {
            let e = noting(e);
            if !e.is_no_space() && !e.is_shortage() {
                self.log.poison(format!("{e}").into());
            }
            return Err(e);
        }
        let header = Header { id, since: before, store, key };
        let mut out = Through::new(to, StoreError::Backup);
        out.put(&header.encode())?;
        let mut writer = FrameWriter {
            segments: &self.segments,
            out,
            have,
            seen: Marks::default(),
            addresses: Vec::new(),
            report: BackupReport { id, ..BackupReport::default() },
        };
        Reach::new(&self.segments, &mut writer).catalogue(catalogue)?;
        let FrameWriter { mut out, addresses, mut report, .. } = writer;
        let mut listed = Vec::new();
        let is_whole = report.damage.is_empty();
        let backed_up = BackedUp { segments: &self.segments, catalogue: *catalogue, is_whole };
        for file in files(&backed_up)? {
            listed.push((file.name.clone(), file.hash));
            if !have_files.contains(&(file.name.clone(), file.hash)) {
                out.put(&[FILE])?;
                out.put_file(file)?;
                report.files += 1;
            }
        }
        let at = out.bytes;
        out.put(&End { catalogue: *catalogue, addresses, files: listed }.encode())?;
        let sum = *out.hasher.finalize().as_bytes();
        out.put(&sum)?;
        out.put(&at.to_le_bytes())?;
        out.put(MAGIC)?;
        out.flush()?;
        report.bytes = out.bytes;
        Ok(report)
    }
}

fn noting(source: std::io::Error) -> StoreError {
    StoreError::Io { what: "noting which backups the store has made".into(), source }
}

struct FrameWriter<'a, 'b, 'c> {
    segments: &'a Segments,
    out: Through<'b, dyn Write + 'c>,
    have: Marks,
    seen: Marks,
    addresses: Vec<Hash>,
    report: BackupReport,
}

impl Visitor for FrameWriter<'_, '_, '_> {
    fn visit(&mut self, _: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        let place = self.segments.locate(hash)?;
        if !self.seen.add(place) {
            return Ok(false);
        }
        if self.have.has(place) {
            self.report.earlier += 1;
        } else {
            let frame = self.segments.frame(hash)?;
            self.out.put(&[FRAME])?;
            self.out.put(&frame)?;
            self.report.frames += 1;
        }
        self.addresses.push(*hash);
        Ok(true)
    }

    fn unreadable(&mut self, place: &Place, _: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        if self.report.damage.len() < BackupReport::MAX_DAMAGE {
            self.report.damage.push(format!("{place}: {error}"));
        }
        Ok(())
    }
}
