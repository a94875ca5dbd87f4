//! The components of a store's agents, by the hash of their bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zone_vfs::device::open_regular;

use super::{CodeError, read_regular, remove_any};
use crate::component::{BinaryKind, scan, wrap_core_module};

/// The folder of components: an agent goes on when the file that it was made from is gone.
#[derive(Debug)]
pub(crate) struct Components {
    folder: PathBuf,
}

impl Components {
    /// Opens the folder, which is made for its owner alone when it is missing.
    pub fn open(folder: &Path) -> Result<Self, CodeError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(CodeError::io(format!("making the folder {}", folder.display())))?;
        let io = || CodeError::io(format!("clearing up {}", folder.display()));
        for entry in std::fs::read_dir(folder).map_err(io())? {
            let path = entry.map_err(io())?.path();
            if path.extension().is_some_and(|e| e == "tmp") {
                remove_any(&path).map_err(io())?;
            }
        }
        Ok(Self { folder: folder.into() })
    }

    fn path(&self, hash: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{}.wasm", blake3::Hash::from_bytes(*hash).to_hex()))
    }

    /// Keeps a component, durably, and gives its hash.
    pub fn keep(&self, component: &[u8]) -> Result<[u8; 32], CodeError> {
        let hash = *blake3::hash(component).as_bytes();
        let path = self.path(&hash);
        if self.read(&hash).is_ok() {
            return Ok(hash);
        }
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let io = |what: &str| CodeError::io(format!("{what} {}", temporary.display()));
        let written = (|| {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = open_regular(&temporary, &options).map_err(io("making"))?;
            file.write_all(component).and_then(|()| file.sync_all()).map_err(io("writing"))?;
            std::fs::rename(&temporary, &path).map_err(io("keeping"))?;
            File::open(&self.folder).and_then(|d| d.sync_all()).map_err(io("keeping"))
        })();
        if written.is_err()
            && temporary.exists()
            && let Err(e) = std::fs::remove_file(&temporary)
        {
            tracing::warn!("removing {}: {e}", temporary.display());
        }
        written.map(|()| hash)
    }

    /// Removes a component.
    pub fn remove(&self, hash: &[u8; 32]) -> Result<(), CodeError> {
        match std::fs::remove_file(self.path(hash)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(CodeError::io(format!("removing {}", self.path(hash).display()))(e))
            }
            _ => Ok(()),
        }
    }

    /// Removes every component but these.
    pub fn retain(&self, keep: &HashSet<[u8; 32]>) -> Result<(), CodeError> {
        let keep: HashSet<PathBuf> = keep.iter().map(|hash| self.path(hash)).collect();
        let io = || CodeError::io(format!("clearing up {}", self.folder.display()));
        for entry in std::fs::read_dir(&self.folder).map_err(io())? {
            let path = entry.map_err(io())?.path();
            if path.extension().is_some_and(|e| e == "wasm") && !keep.contains(&path) {
                std::fs::remove_file(&path).map_err(io())?;
            }
        }
        Ok(())
    }

    /// The component with this hash, checked.
    pub fn read(&self, hash: &[u8; 32]) -> Result<Vec<u8>, CodeError> {
        let missing = || CodeError::NoComponent(blake3::Hash::from_bytes(*hash).to_hex().to_string());
        let bytes = match read_regular(&self.path(hash)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
            Err(e) => return Err(CodeError::io(format!("reading {}", self.path(hash).display()))(e)),
        };
        if blake3::hash(&bytes) == blake3::Hash::from_bytes(*hash) { Ok(bytes) } else { Err(missing()) }
    }
}

/// The component that a file is, or becomes: a core module of preview 1 is wrapped.
pub(crate) fn as_component(file: &[u8]) -> Result<Cow<'_, [u8]>, CodeError> {
    match scan(file)?.kind {
        BinaryKind::Component => Ok(Cow::Borrowed(file)),
        BinaryKind::CoreModule => Ok(Cow::Owned(wrap_core_module(file)?)),
    }
}
