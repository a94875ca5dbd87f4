//! Backups: the store's own frames, and beside them image files and components.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use zone_vfs::device::open_regular;
use zone_vfs::store::{BackedUp, BackupReport, ReadSeek, RestoreReport, Store, StoreError, StreamFile};

use crate::agent::AgentError;
use crate::host::{Host, HostShared};
use crate::image::FlatName;
use crate::journal::{self, GenerationAbout};
use crate::threads;

/// The folders of a store whose files go with a backup.
const FOLDERS: [&str; 2] = [IMAGES, "components"];
const IMAGES: &str = "images";

impl Host {
    /// Writes a backup to `to`, consistent while agents run: of everything, or of what changed since the
    /// backup that `since` reads. It holds the key of the store and is as secret as that.
    pub async fn backup(
        &self,
        mut to: Box<dyn Write + Send>,
        since: Option<Box<dyn ReadSeekSend>>,
    ) -> Result<BackupReport, AgentError> {
        let shared = self.shared.clone();
        threads::run(move || {
            let mut since = since;
            let report = shared.backup(&mut *to, since.as_mut().map(|s| &mut **s as &mut dyn ReadSeek))?;
            to.flush().map_err(|source| AgentError::Io { what: "writing the backup".into(), source })?;
            Ok(report)
        })
        .await?
    }

    /// Makes a store in `folder`, which is missing or empty, of a backup and those since it, in their
    /// order; what an unfinished restore left there goes first. Everything is verified; an error leaves nothing.
    pub fn restore(folder: &Path, parts: &mut [&mut dyn Read]) -> Result<RestoreReport, AgentError> {
        let mut made = Vec::new();
        let report = Store::restore(folder, &FOLDERS, parts, &mut |name, _, content| {
            let path = place(folder, name)?;
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = open_regular(&path, &options)?;
            std::io::copy(content, &mut file)?;
            file.sync_all()?;
            // its name is durable before a superblock makes the folder a store
            for above in path.ancestors().skip(1).take(2) {
                File::open(above)?.sync_all()?;
            }
            made.push((name.to_string(), path));
            Ok(())
        })?;
        for (name, path) in made {
            if !report.files.contains(&name) && path.exists() {
                std::fs::remove_file(&path)
                    .map_err(|source| AgentError::Io { what: format!("removing {name}"), source })?;
            }
        }
        Ok(report)
    }
}

/// What an earlier backup is read from.
pub trait ReadSeekSend: ReadSeek + Send {}
impl<T: ReadSeek + Send> ReadSeekSend for T {}

/// Where a file of a backup belongs: in one of the folders, under a plain name.
fn place(folder: &Path, name: &str) -> std::io::Result<PathBuf> {
    let plain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    match name.split_once('/') {
        Some((inside, name)) if FOLDERS.contains(&inside) && plain(name) => {
            Ok(folder.join(inside).join(name))
        }
        _ => Err(std::io::Error::other(format!("a backup has no business with a file `{name}`"))),
    }
}

impl HostShared {
    /// Must not be called from an async task: it waits.
    fn backup(
        &self,
        to: &mut dyn Write,
        since: Option<&mut dyn ReadSeek>,
    ) -> Result<BackupReport, AgentError> {
        let store = self.store()?;
        // files that a generation names are not reaped meanwhile; turns go on
        let _files_stay = self.imaging.blocking_read();
        // what goes as files: the others' memory goes with the store's own frames
        let images = self.look_at_images(&|generation| generation.attachment.is_none(), true)?;
        let folder = self.options.folder.clone();
        let mut report = store.backup(to, since, &mut |backed_up| files(&folder, &archived(backed_up)?))?;
        let lost = images.damage.iter().filter(|it| !it.repaired).map(ToString::to_string);
        report.damage.extend(lost.take(BackupReport::MAX_DAMAGE));
        let damaged = self.damaged_components()?;
        report.damage.extend(damaged.into_iter().map(|it| format!("{} (of {})", it.reason, it.agent)));
        Ok(report)
    }
}

/// The image files that only generations need whose images the backup has in the store's own frames.
fn archived(backed_up: &BackedUp<'_>) -> Result<HashSet<String>, StoreError> {
    let (mut can_go, mut needed) = (HashSet::new(), HashSet::new());
    let mut readable = true;
    let all = backed_up.generations(&mut |it| {
        if it.about.is_empty() {
            return;
        }
        let Ok(about) = journal::decode::<GenerationAbout>(it.about) else {
            readable = false;
            return;
        };
        let Some(image) = about.image else { return };
        let names = if it.is_attached { &mut can_go } else { &mut needed };
        names.insert(FlatName::Generation(it.agent.0, it.number.0).to_string());
        names.insert(image.base().to_string());
        names.extend(image.files().iter().map(ToString::to_string));
    })?;
    if !all || !readable {
        // what cannot be read may need any file
        return Ok(HashSet::new());
    }
    can_go.retain(|name| !needed.contains(name));
    Ok(can_go)
}

/// The files as they are now, but for those of `left_out`. Those of images are only ever appended to, or replaced
/// by a rename.
fn files(folder: &Path, left_out: &HashSet<String>) -> Result<Vec<StreamFile>, StoreError> {
    let failed = |what: &Path| {
        let what = format!("reading {}", what.display());
        move |source| StoreError::Io { what, source }
    };
    let mut found = Vec::new();
    for inside in FOLDERS {
        let place = folder.join(inside);
        for entry in std::fs::read_dir(&place).map_err(failed(&place))? {
            let path = entry.map_err(failed(&place))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
            if Path::new(&name).extension().is_none_or(|e| e == "tmp")
                || (inside == IMAGES && left_out.contains(&name))
            {
                continue;
            }
            let file = open_regular(&path, File::options().read(true)).map_err(failed(&path))?;
            let len = file.metadata().map_err(failed(&path))?.len();
            let mut hasher = blake3::Hasher::new();
            std::io::copy(&mut file.take(len), &mut hasher).map_err(failed(&path))?;
            let hash = *hasher.finalize().as_bytes();
            let open = Box::new(move || {
                let file = open_regular(&path, File::options().read(true))?;
                Ok(Box::new(file.take(len)) as Box<dyn Read>)
            });
            found.push(StreamFile { name: format!("{inside}/{name}"), len, hash, open });
        }
    }
    Ok(found)
}
