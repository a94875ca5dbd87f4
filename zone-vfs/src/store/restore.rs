//! Restoring into a folder, so that what is refused or interrupted leaves nothing that has to be understood.
//!
//! A file is put into the folder before anything else, and goes when everything is there. As long as it is, the folder is
//! no store, whatever else is in it: all of that is the restore's, since the folder was empty before.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::{RestoreReport, Store, StoreError};
use crate::device::{self, Caching, DeviceKind};

/// The file that says that a restore has begun and is not finished.
const MARK: &str = "restoring";
/// What a restore makes beside it, but for the embedder's files.
const MADE: [&str; 6] = ["segments", "log", "superblock", "superblock.new", "tenant.key", "tenant.key.new"];

impl Store {
    /// Makes a store in `folder`, which is missing or empty, or has what an unfinished restore left, of a backup and
    /// those since it, in their order. `file` gets each file of the embedder's, with its name and length, and reads
    /// all of it; a later one of the same name replaces it. `own` are the names in the folder that these files have
    /// or lie under. Everything is verified; an error leaves nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backup`] and [`StoreError::BackupPart`] where a backup cannot be used or the folder is not empty,
    /// [`StoreError::Locked`] where the folder is in use.
    pub fn restore(
        folder: &Path,
        own: &[&str],
        parts: &mut [&mut dyn Read],
        file: &mut dyn FnMut(&str, u64, &mut dyn Read) -> io::Result<()>,
    ) -> Result<RestoreReport, StoreError> {
        let io = |source| StoreError::Io { what: format!("restoring into {}", folder.display()), source };
        let is_new = !folder.try_exists().map_err(io)?;
        let device = device::open(folder, DeviceKind::Blocking).map_err(io)?;
        let lock = File::open(folder).map_err(io)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked { folder: folder.display().to_string(), holder: None });
            }
            Err(e) => tracing::debug!("locking the folder {}: {e}", folder.display()),
            Ok(()) => {}
        }
        let place = Target { folder, own };
        let is_begun = place.is_unfinished().map_err(io)?;
        if is_begun {
            // under the mark that is there: without it, what is empty would pass for a folder that nothing was done to
            place.remove_made().map_err(io)?;
        }
        if let Some(other) = place.first_entry().map_err(io)? {
            let reason =
                format!("cannot be restored into {}, which is not empty: it has {other}", folder.display());
            return Err(StoreError::Backup(reason));
        }
        if !is_begun {
            // durable before anything else is there
            device.create(MARK, 0, Caching::Cached).map_err(io)?;
        }
        let restored = Self::restore_on(&device, parts, file);
        let ended = match &restored {
            // the superblock is durable: it is a store as soon as the mark has gone
            Ok(_) => device.remove(MARK),
            Err(_) => place.clear().and_then(|()| if is_new { std::fs::remove_dir(folder) } else { Ok(()) }),
        };
        match ended {
            Err(e) if restored.is_ok() => Err(io(e)),
            // the mark is still there: the next restore begins with this
            Err(e) => {
                tracing::warn!("removing what a refused restore has made: {e}");
                restored
            }
            Ok(()) => restored,
        }
    }
}

/// Refuses a folder into which a restore was not finished.
pub(super) fn refuse_unfinished(folder: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { what: format!("reading the folder {}", folder.display()), source };
    if (Target { folder, own: &[] }).is_unfinished().map_err(io)? {
        return Err(StoreError::UnfinishedRestore { folder: folder.display().to_string() });
    }
    Ok(())
}

struct Target<'a> {
    folder: &'a Path,
    own: &'a [&'a str],
}

impl Target<'_> {
    fn is_unfinished(&self) -> io::Result<bool> {
        match self.folder.join(MARK).symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            found => Ok(found?.is_file()),
        }
    }

    /// What is in the folder beside the mark.
    fn first_entry(&self) -> io::Result<Option<String>> {
        for entry in std::fs::read_dir(self.folder)? {
            let entry = entry?;
            if entry.file_name() != MARK || !entry.file_type()?.is_file() {
                return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
            }
        }
        Ok(None)
    }

    /// Removes what a restore makes, durably, and nothing else.
    fn remove_made(&self) -> io::Result<()> {
        for name in MADE.iter().chain(self.own) {
            remove(&self.folder.join(name))?;
        }
        self.sync()
    }

    /// Removes what a restore makes, and then the mark.
    fn clear(&self) -> io::Result<()> {
        self.remove_made()?;
        remove(&self.folder.join(MARK))?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.folder).and_then(|folder| folder.sync_all())
    }
}

/// Removes a file, or a folder with all that is in it; a link, and not what it leads to.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
