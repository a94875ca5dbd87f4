//! Making a store of a backup and those since it.

use std::io::Read;
use std::sync::Arc;

use uuid::Uuid;

use super::error::{NO_BACKUP, bad, nothing};
use super::format::{END, End, FILE, FRAME, Header, MAGIC};
use super::{BackupReport, RestoreReport};
use crate::chunks::FrameKind;
use crate::device::Device;
use crate::id::Hash;
use crate::log::LogPosition;
use crate::segment::{Marks, SegmentOptions, Segments};
use crate::store::reach::{Place, Reach, Visitor};
use crate::store::stream::{TakeFile, Through};
use crate::store::{Store, StoreError, open};
use crate::superblock::SuperblockFile;

impl Store {
    /// As [`restore`](Self::restore), on an empty device.
    pub fn restore_on(
        device: &Arc<dyn Device>,
        parts: &mut [&mut dyn Read],
        file: &mut dyn FnMut(&str, u64, &mut dyn Read) -> std::io::Result<()>,
    ) -> Result<RestoreReport, StoreError> {
        let mut restoring = Restoring {
            device: device.clone(),
            segments: None,
            key: None,
            last: Uuid::nil(),
            report: RestoreReport::default(),
        };
        let mut end = None;
        for (index, part) in parts.iter_mut().enumerate() {
            end = Some(restoring.part(*part, file).map_err(|e| e.of_backup_part(index + 1))?);
        }
        let Some(end) = end else { return Err(nothing()) };
        restoring.finish(end)
    }
}

/// A store that is being made.
struct Restoring {
    device: Arc<dyn Device>,
    segments: Option<Arc<Segments>>,
    key: Option<[u8; 64]>,
    /// The backup before.
    last: Uuid,
    report: RestoreReport,
}

impl Restoring {
    fn part(&mut self, part: &mut dyn Read, file: TakeFile<'_>) -> Result<End, StoreError> {
        let mut from = Through::new(part, StoreError::Backup);
        let read = self.read_part(&mut from, file);
        // wherever its end was met, that is what is wrong
        if from.is_cut && !matches!(&read, Err(StoreError::Backup(reason)) if reason == NO_BACKUP) {
            return Err(from.truncated());
        }
        read
    }

    fn read_part(
        &mut self,
        from: &mut Through<'_, dyn Read + '_>,
        file: TakeFile<'_>,
    ) -> Result<End, StoreError> {
        let header = Header::read(from)?;
        if self.key.is_some_and(|key| key != header.key) {
            return Err(bad("is another store's than those before it"));
        }
        if header.since != self.last {
            return Err(bad(match (self.last.is_nil(), header.since.is_nil()) {
                (true, _) => "has only what changed since an earlier backup, which has to come before it",
                (false, true) => "is of everything, and follows no other: restore it alone",
                (false, false) => {
                    "has only what changed since another backup than the one that comes before it"
                }
            }));
        }
        self.last = header.id;
        let segments = self.segments(&header.key)?;
        let at = loop {
            match from.take::<1>()? {
                [FRAME] => {
                    let frame = segments.read_frame(&mut |bytes| {
                        from.fill(bytes).map_err(|e| std::io::Error::other(e.to_string()))
                    });
                    let frame =
                        frame.map_err(|reason| bad(format!("is damaged: a frame in it: {reason}")))?;
                    segments.put_frame(&frame)?;
                    self.report.frames += 1;
                }
                [FILE] => {
                    let failed =
                        |name: &str| format!("cannot be restored: the file {name} cannot be written");
                    from.take_file(failed, file)?;
                }
                [END] => break from.bytes - 1,
                _ => return Err(bad("is damaged: what comes next in it is nothing that a backup has")),
            }
        };
        let end = End::read(from)?;
        let sum = *from.hasher.finalize().as_bytes();
        if from.take::<32>()? != sum {
            return Err(bad("is damaged: its checksum is wrong"));
        }
        if from.take()? != at.to_le_bytes() || from.take()? != *MAGIC {
            return Err(bad("is damaged: it does not end as a backup does"));
        }
        from.end()?;
        Ok(end)
    }

    /// The segments, under the key that the first part brings.
    fn segments(&mut self, key: &[u8; 64]) -> Result<Arc<Segments>, StoreError> {
        if let Some(segments) = &self.segments {
            return Ok(segments.clone());
        }
        open::write_key_file(&*self.device, key)?;
        let plain = open::read_key(&*self.device)?;
        let segments = Arc::new(Segments::open(self.device.clone(), plain, SegmentOptions::default())?);
        self.segments = Some(segments.clone());
        self.key = Some(*key);
        Ok(segments)
    }

    /// Verifies that all is there, and only then makes the superblock: without it there is no store.
    fn finish(mut self, end: End) -> Result<RestoreReport, StoreError> {
        let Some(segments) = self.segments.take() else { return Err(nothing()) };
        for address in &end.addresses {
            segments.read(address).map_err(|e| bad(format!("is not complete: {e}")))?;
        }
        let mut checker =
            Checker { segments: &segments, seen: Marks::default(), damage: &mut self.report.damage };
        Reach::new(&segments, &mut checker).catalogue(&end.catalogue)?;
        segments.read(&end.catalogue).map_err(|e| bad(format!("is not complete: {e}")))?;
        segments.flush()?;
        segments.close();
        let mut superblock = SuperblockFile::create(&*self.device)?;
        superblock.advance(Some(end.catalogue), LogPosition::START)?;
        self.report.files = end.files.into_iter().map(|(name, _)| name).collect();
        Ok(self.report)
    }
}

struct Checker<'a> {
    segments: &'a Segments,
    seen: Marks,
    damage: &'a mut Vec<String>,
}

impl Visitor for Checker<'_> {
    fn visit(&mut self, _: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        Ok(self.seen.add(self.segments.locate(hash)?))
    }

    fn unreadable(&mut self, place: &Place, _: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        if self.damage.len() < BackupReport::MAX_DAMAGE {
            self.damage.push(format!("{place}: {error}"));
        }
        Ok(())
    }
}
