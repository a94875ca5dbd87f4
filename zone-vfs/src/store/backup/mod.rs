//! Backups: all that a checkpoint leads to, as a stream of frames; and from such streams a store.
//!
//! A backup can be one of what changed *since* another: frames that the other has are left out. It is consistent,
//! since it is of one checkpoint, and agents go on meanwhile: nothing that it needs is reaped before it
//! is done. `docs/format-backup.md` is normative for the stream.
//!
//! - `format`: the header and the end, as bytes; `error`: what can be wrong with them
//! - `about`: what a finished backup says of itself; `made`: which backups a store has made
//! - `write`: what goes into one
//! - `read`: a store from a backup and those since it

mod about;
mod error;
mod format;
mod made;
mod read;
mod write;

use std::io::{Read, Seek, Write};
use std::sync::PoisonError;

use uuid::Uuid;

use super::stream::StreamFile;
#[cfg(test)]
use super::tests::{self, Mistake};
use super::{Store, StoreError, blob, catalogue};
use crate::id::{AgentId, GenerationNumber, Hash};
use crate::segment::Segments;

pub use self::about::BackupAbout;

/// What a backup has of agents: asked by an embedder that decides which of its files go with it.
pub struct BackedUp<'a> {
    segments: &'a Segments,
    catalogue: Hash,
    is_whole: bool,
}

impl std::fmt::Debug for BackedUp<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackedUp").field("is_whole", &self.is_whole).finish_non_exhaustive()
    }
}

/// A generation that is in a backup.
#[derive(Clone, Copy, Debug)]
pub struct BackedUpGeneration<'a> {
    /// Whose.
    pub agent: AgentId,
    /// Which.
    pub number: GenerationNumber,
    /// The embedder's part.
    pub about: &'a [u8],
    /// Something is attached to it, which is in the backup.
    pub is_attached: bool,
}

impl BackedUp<'_> {
    /// Calls `each` with every generation of an agent that is in the backup. False where something could not be
    /// read, or has still to take effect, so that not all were told.
    pub fn generations(&self, each: &mut dyn FnMut(BackedUpGeneration<'_>)) -> Result<bool, StoreError> {
        let list = catalogue::read(self.segments, &self.catalogue)?;
        let mut all = self.is_whole;
        for agent in list.agents {
            all &= agent.carried.is_empty() && agent.state.is_some();
            let Some(payload) = &agent.state else { continue };
            let told = catalogue::read_stored(payload, self.segments).and_then(|state| {
                for generation in &state.generations {
                    let about = blob::get(self.segments, &generation.about)?;
                    let (number, is_attached) = (generation.number, generation.attachment.is_some());
                    each(BackedUpGeneration { agent: agent.id, number, about: &about, is_attached });
                }
                Ok(())
            });
            match told {
                Err(e) if e.is_of_one_agent() => all = false,
                told => told?,
            }
        }
        Ok(all)
    }
}

/// Is asked which files of the embedder's go with a backup.
pub type Files<'a> = &'a mut dyn FnMut(&BackedUp<'_>) -> Result<Vec<StreamFile>, StoreError>;

/// What a backup has.
#[derive(Clone, Debug, Default)]
pub struct BackupReport {
    /// Its id.
    pub id: Uuid,
    /// Frames that were written.
    pub frames: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Frames that the backup before has.
    pub earlier: u64,
    /// Files that were written.
    pub files: u64,
    /// What could not be read and is not in the backup, at most [`MAX_DAMAGE`](Self::MAX_DAMAGE) places.
    pub damage: Vec<String>,
}

impl BackupReport {
    /// Damaged places that are listed, at most.
    pub const MAX_DAMAGE: usize = 100;
}

/// What a restored store has.
#[derive(Clone, Debug, Default)]
pub struct RestoreReport {
    /// Frames that were read, and hash to their address.
    pub frames: u64,
    /// Files that the last backup names; others that were handed out on the way are not needed.
    pub files: Vec<String>,
    /// What was damaged when the backup was made.
    pub damage: Vec<String>,
}

/// Something that a backup can be read from again.
pub trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

impl Store {
    /// Writes a backup to `to`: of everything, or of what changed since the backup that `since` reads. `files`
    /// is asked, once it is settled what is backed up, which files of the embedder's go with it; it sees
    /// to it that they stay until the backup is done.
    ///
    /// A backup holds the tenant's key: it is as secret as the store. Takes 32 bytes of memory for each frame.
    pub fn backup(
        &self,
        to: &mut dyn Write,
        since: Option<&mut dyn ReadSeek>,
        files: Files<'_>,
    ) -> Result<BackupReport, StoreError> {
        let shared = self.shared()?;
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = shared.room();
        #[cfg(test)]
        let past = shared.superblock.lock().unwrap_or_else(PoisonError::into_inner).current().catalogue;
        let (catalogue, ()) = shared.checkpoint_with(|| Ok(()))?;
        #[cfg(test)]
        let catalogue = past.filter(|_| tests::makes(Mistake::BackupOfThePast)).unwrap_or(catalogue);
        shared.write_backup(&catalogue, to, since, files)
    }
}
