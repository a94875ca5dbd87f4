//! What a finished backup says of itself, without what lies between its ends.

use std::io::{Read, SeekFrom};

use uuid::Uuid;

use super::ReadSeek;
use super::error::{bad, reading};
use super::format::{END, End, Header, MAGIC, TRAILER};
use crate::store::StoreError;
use crate::store::stream::Through;

/// What a finished backup says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupAbout {
    /// Its id.
    pub id: Uuid,
    /// The backup that it is since, unless it is of everything.
    pub since: Option<Uuid>,
    /// The store that it is of.
    pub store: Uuid,
}

impl BackupAbout {
    /// Reads it, without what lies between the backup's ends.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backup`] where it is none, or is not finished.
    pub fn read(from: &mut dyn ReadSeek) -> Result<Self, StoreError> {
        let (header, _) = read_header(from)?;
        let since = Some(header.since).filter(|since| !since.is_nil());
        Ok(Self { id: header.id, since, store: header.store })
    }
}

/// The header of a finished backup, and where its end begins.
fn read_header(from: &mut dyn ReadSeek) -> Result<(Header, u64), StoreError> {
    from.seek(SeekFrom::Start(0)).map_err(reading)?;
    let mut start = ReadOnly(from);
    let header = Header::read(&mut Through::new(&mut start as &mut dyn Read, StoreError::Backup))?;
    let mut trailer = [0; TRAILER];
    from.seek(SeekFrom::End(-(TRAILER as i64))).map_err(reading)?;
    from.read_exact(&mut trailer).map_err(reading)?;
    if trailer[8..] != *MAGIC {
        return Err(bad("is truncated, or was not finished"));
    }
    let mut at = [0; 8];
    at.copy_from_slice(&trailer[..8]);
    Ok((header, u64::from_le_bytes(at)))
}

/// The header and the end of an earlier backup, without what lies between.
pub(super) fn read_ends(from: &mut dyn ReadSeek) -> Result<(Header, End), StoreError> {
    let (header, end) = read_header(from)?;
    from.seek(SeekFrom::Start(end)).map_err(reading)?;
    let mut stream = ReadOnly(from);
    let mut through = Through::new(&mut stream as &mut dyn Read, StoreError::Backup);
    if through.take::<1>()? != [END] {
        return Err(bad("is damaged: its end is not where it says"));
    }
    Ok((header, End::read(&mut through)?))
}

struct ReadOnly<'a>(&'a mut dyn ReadSeek);

impl Read for ReadOnly<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buf)
    }
}
