//! Compiled code, kept by the hash of what it was made from.
//!
//! An entry is a folder of the store that only its owner can write, named by a key over the
//! component, the rewriter's version, the engine's settings and the target. A MAC under a key of the
//! store's covers its files and is checked before code is loaded.

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use wasmtime::Engine;
use wasmtime::component::Component;

use super::compile::{ABOUT, Compiled, Compiler, code_file};
use super::{CodeError, read_regular, remove_any};
use crate::component::{REWRITER_VERSION, Variant};

/// The key of an entry; it also names the component's genesis image.
pub(crate) type CodeKey = [u8; 32];

/// Raised whenever an entry's layout changes.
const ENTRY_VERSION: u32 = 1;

/// The folder of compiled code.
#[derive(Debug)]
pub(crate) struct CodeCache {
    folder: PathBuf,
    mac_key: [u8; 32],
}

/// Code that is ready to be instantiated.
pub(crate) struct Code {
    pub restore: Component,
    pub about: Compiled,
}

/// Draws the key of the cache's MACs and keeps it.
fn new_key(path: &Path) -> Result<[u8; 32], CodeError> {
    let mut key = [0u8; 32];
    let mut filled = 0;
    while filled < key.len() {
        filled += rustix::rand::getrandom(&mut key[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| CodeError::io("drawing a key")(e.into()))?;
    }
    let io = || CodeError::io(format!("writing {}", path.display()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(io())?;
    file.write_all(&key).and_then(|()| file.sync_all()).map_err(io())?;
    Ok(key)
}

/// Removes what a compilation left that was interrupted. The store's lock is held: none is going on.
fn remove_unfinished(folder: &Path) -> Result<(), CodeError> {
    let io = || CodeError::io(format!("clearing up {}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(io())? {
        let path = entry.map_err(io())?.path();
        if path.extension().is_some_and(|e| e == "tmp") {
            remove_any(&path).map_err(io())?;
        }
    }
    Ok(())
}

impl CodeCache {
    /// Opens the folder, which is made for its owner alone when it is missing.
    pub fn open(folder: &Path) -> Result<Self, CodeError> {
        let io = |what: &str| CodeError::io(format!("{what} {}", folder.display()));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(io("making the folder"))?;
        remove_unfinished(folder)?;
        let path = folder.join("mac.key");
        let mac_key = match read_regular(&path).map(<[u8; 32]>::try_from) {
            Ok(Ok(key)) => key,
            Err(e) if e.kind() == ErrorKind::NotFound => new_key(&path)?,
            Err(e) if e.kind() != ErrorKind::InvalidInput => return Err(io("reading the key in")(e)),
            // nothing hangs on it but code that can be made again
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("{} does not hold a key: compiled code is made anew", path.display());
                remove_any(&path).map_err(io("replacing the key in"))?;
                new_key(&path)?
            }
        };
        Ok(Self { folder: folder.into(), mac_key })
    }

    /// The key of a component's code, from the component's hash. `engines` are those that will load it.
    pub fn key(component: &[u8; 32], boot: &Engine, restore: &Engine) -> CodeKey {
        struct Feed(blake3::Hasher);
        impl std::hash::Hasher for Feed {
            fn finish(&self) -> u64 {
                0
            }
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
        }
        use std::hash::Hash;
        let mut feed = Feed(blake3::Hasher::new());
        feed.0.update(component);
        feed.0.update(&REWRITER_VERSION.to_le_bytes());
        feed.0.update(&ENTRY_VERSION.to_le_bytes());
        for engine in [boot, restore] {
            engine.precompile_compatibility_hash().hash(&mut feed);
        }
        feed.0.update(std::env::consts::ARCH.as_bytes());
        feed.0.update(std::env::consts::OS.as_bytes());
        *feed.0.finalize().as_bytes()
    }

    fn entry(&self, key: &CodeKey) -> PathBuf {
        self.folder.join(blake3::Hash::from_bytes(*key).to_hex().as_str())
    }

    fn mac(&self, key: &CodeKey, file: &str, content: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.mac_key);
        hasher.update(key);
        hasher.update(&(file.len() as u64).to_le_bytes());
        hasher.update(file.as_bytes());
        hasher.update(content);
        hasher.finalize()
    }

    /// The content of a file of an entry, if its MAC is right.
    fn checked(&self, key: &CodeKey, file: &str) -> Result<Vec<u8>, CodeError> {
        let folder = self.entry(key);
        let read = |name: &str| {
            let path = folder.join(name);
            read_regular(&path).map_err(CodeError::io(format!("reading {}", path.display())))
        };
        let content = read(file)?;
        let stated: Option<[u8; 32]> = read(&format!("{file}.mac"))?.try_into().ok();
        // `blake3::Hash` compares in constant time
        match stated {
            Some(stated) if self.mac(key, file, &content) == blake3::Hash::from_bytes(stated) => Ok(content),
            _ => Err(CodeError::Cache(format!("{} does not match its MAC", folder.join(file).display()))),
        }
    }

    /// Whether there is an entry; it may still be found damaged.
    pub fn has(&self, key: &CodeKey) -> bool {
        self.entry(key).symlink_metadata().is_ok()
    }

    /// Removes every entry but these. Gives the bytes that the others take; with `dry_run` it only counts them.
    pub fn retain(&self, keep: &HashSet<CodeKey>, dry_run: bool) -> Result<u64, CodeError> {
        let keep: HashSet<PathBuf> = keep.iter().map(|key| self.entry(key)).collect();
        let io = || CodeError::io(format!("clearing up {}", self.folder.display()));
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.folder).map_err(io())? {
            let path = entry.map_err(io())?.path();
            if !path.is_dir() || keep.contains(&path) {
                continue;
            }
            for file in std::fs::read_dir(&path).map_err(io())? {
                bytes += file.and_then(|file| file.metadata()).map_err(io())?.len();
            }
            if !dry_run {
                remove_any(&path).map_err(io())?;
            }
        }
        Ok(bytes)
    }

    /// Loads an entry. One that is damaged is removed, to be made anew.
    pub fn load(&self, key: &CodeKey, restore: &Engine) -> Result<Option<Code>, CodeError> {
        if !self.has(key) {
            return Ok(None);
        }
        match self.load_entry(key, restore) {
            Ok(code) => Ok(Some(code)),
            Err(e) => {
                let folder = self.entry(key);
                tracing::warn!("{}: the code is made anew", zone_vfs::told(&e));
                remove_any(&folder).map_err(CodeError::io(format!("removing {}", folder.display())))?;
                Ok(None)
            }
        }
    }

    fn load_entry(&self, key: &CodeKey, restore: &Engine) -> Result<Code, CodeError> {
        let about = self.checked(key, ABOUT)?;
        let about: Compiled = postcard::from_bytes(&about)
            .map_err(|e| CodeError::Cache(format!("an unreadable entry: {e}")))?;
        let component = self.deserialize(key, restore, Variant::Restore)?;
        Ok(Code { restore: component, about })
    }

    fn deserialize(&self, key: &CodeKey, engine: &Engine, variant: Variant) -> Result<Component, CodeError> {
        let file = code_file(variant);
        drop(self.checked(key, file)?);
        let path = self.entry(key).join(file);
        // SAFETY: the MAC over the file has just been checked, under a key that only the store's owner
        // can read, and the file lies in a folder that only the owner can write.
        unsafe { Component::deserialize_file(engine, &path) }
            .map_err(|e| CodeError::Cache(format!("{}: {e:#}", path.display())))
    }

    /// The boot variant of an entry, which is loaded only to make a genesis image.
    pub fn boot(&self, key: &CodeKey, engine: &Engine) -> Result<Component, CodeError> {
        self.deserialize(key, engine, Variant::Boot)
    }

    /// Compiles a component and keeps the result, unless `stop` is set first.
    pub fn make(
        &self,
        key: &CodeKey,
        component: &[u8],
        compiler: &Compiler,
        stop: &AtomicBool,
    ) -> Result<(), CodeError> {
        let hex = blake3::Hash::from_bytes(*key).to_hex();
        let temporary = self.folder.join(format!("{hex}.{}.tmp", std::process::id()));
        let io = |what: &'static str| CodeError::io(format!("{what} {}", temporary.display()));
        remove_any(&temporary).map_err(io("removing"))?;
        std::fs::DirBuilder::new().mode(0o700).create(&temporary).map_err(io("making"))?;
        let made = compiler.compile(component, &temporary, stop).and_then(|()| {
            for file in [code_file(Variant::Boot), code_file(Variant::Restore), ABOUT] {
                let content = read_regular(&temporary.join(file)).map_err(io("reading"))?;
                let mac = self.mac(key, file, &content);
                std::fs::write(temporary.join(format!("{file}.mac")), mac.as_bytes())
                    .map_err(io("writing"))?;
            }
            let entry = self.entry(key);
            remove_any(&entry).map_err(io("replacing an entry by"))?;
            std::fs::rename(&temporary, &entry).map_err(io("keeping"))
        });
        if made.is_err()
            && let Err(e) = remove_any(&temporary)
        {
            tracing::warn!("removing {}: {e}", temporary.display());
        }
        made
    }
}
