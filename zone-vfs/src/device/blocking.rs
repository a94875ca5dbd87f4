//! A device of plain files and plain system calls.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::regular::{open_regular, open_regular_with};
use super::{AlignedBuf, BLOCK, Caching, Device, DeviceFile, check_path};

#[cfg(test)]
use watched::changed;

/// A name in `folder` has changed; tests look at whether a sync of it follows.
#[cfg(not(test))]
fn changed(_folder: &Path) {}

/// How many zeros are written at once when a file is created. Bytes.
const FILL: usize = 1 << 20;

/// A folder of the host, by blocking system calls. Files have mode 0600, folders 0700.
#[derive(Debug)]
pub struct Blocking {
    root: PathBuf,
}

impl Blocking {
    /// Opens the folder `root`, creating it where it is missing.
    pub fn open(root: &Path) -> io::Result<Self> {
        match std::fs::metadata(root) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(root)?;
                changed(root.parent().unwrap_or(root));
                if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    Folder::open(parent)?.sync()?;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(Self { root: root.to_path_buf() })
    }

    pub(super) fn create_file(&self, path: &str, len: u64, caching: Caching) -> io::Result<BlockingFile> {
        check_path(path)?;
        let full = self.root.join(path);
        self.create_folder_of(path)?;
        let folder = self.folder_of(path)?;
        let opened =
            open_file(&full, caching, true).inspect(|_| changed(full.parent().unwrap_or(&self.root)));
        let made = opened.and_then(|file| match fill(&file, len) {
            // Some filesystems take the flag and then refuse the writes.
            Err(error) if file.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                let file = open_file(&full, Caching::Cached, false)?;
                fill(&file, len)?;
                Ok(file)
            }
            filled => filled.map(|()| file),
        });
        match made.and_then(|file| folder.sync().map(|()| file)) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Err(error) => {
                // The first error is the one that tells; a leftover is dealt with by whoever lists.
                let _ = std::fs::remove_file(&full);
                Err(error)
            }
        }
    }

    pub(super) fn open_file(&self, path: &str, caching: Caching) -> io::Result<BlockingFile> {
        check_path(path)?;
        open_file(&self.root.join(path), caching, false)
    }

    fn create_folder_of(&self, path: &str) -> io::Result<()> {
        let Some((folder, _)) = path.split_once('/') else { return Ok(()) };
        if self.root.join(folder).is_dir() {
            return Ok(());
        }
        let root = Folder::open(&self.root)?;
        match DirBuilder::new().mode(0o700).create(self.root.join(folder)) {
            Ok(()) => {
                changed(&self.root);
                root.sync()
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The folder in which `path` is.
    fn folder_of(&self, path: &str) -> io::Result<Folder> {
        match path.split_once('/') {
            None => Folder::open(&self.root),
            Some((folder, _)) => Folder::open(&self.root.join(folder)),
        }
    }
}

impl Device for Blocking {
    fn kind(&self) -> &'static str {
        "blocking"
    }

    fn create(&self, path: &str, len: u64, caching: Caching) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(self.create_file(path, len, caching)?))
    }

    fn open(&self, path: &str, caching: Caching) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(self.open_file(path, caching)?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        if !folder.is_empty() {
            check_path(folder)?;
        }
        let entries = match std::fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // A name that is not UTF-8 is none of ours.
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_path(from)?;
        check_path(to)?;
        self.create_folder_of(to)?;
        let (new, old) = (self.folder_of(to)?, self.folder_of(from)?);
        std::fs::rename(self.root.join(from), self.root.join(to))?;
        changed(&new.path);
        changed(&old.path);
        new.sync()?;
        old.sync()
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        check_path(path)?;
        let folder = self.folder_of(path)?;
        std::fs::remove_file(self.root.join(path))?;
        changed(&folder.path);
        folder.sync()
    }

    fn free(&self) -> io::Result<Option<u64>> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        io::Read::read_exact(&mut File::open("/dev/urandom")?, bytes)
    }
}

/// A folder in which a name is about to change. It is opened before: without a descriptor for it nothing is changed.
struct Folder {
    path: PathBuf,
    file: File,
}

impl Folder {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), file: File::open(path)? })
    }

    /// Makes changes of names in it durable.
    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        if !watched::synced(&self.path) {
            return Ok(());
        }
        self.file.sync_all()
    }
}

fn open_file(full: &Path, caching: Caching, create: bool) -> io::Result<BlockingFile> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create).mode(0o600);
    #[cfg(target_os = "linux")]
    if caching == Caching::Direct {
        match open_regular_with(full, &options, libc::O_DIRECT) {
            Ok(file) => return Ok(BlockingFile { file, direct: true }),
            // Linux creates the file before it refuses the flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                options.create_new(false).create(create);
            }
            Err(error) => return Err(error),
        }
    }
    let _ = caching;
    let file = open_regular(full, &options)?;
    Ok(BlockingFile { file, direct: false })
}

/// Writes zeros rather than reserving space: a reserved extent is converted at its first write,
/// which turns each data sync into a commit of the filesystem's own journal.
fn fill(file: &BlockingFile, len: u64) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed(FILL.min(len as usize));
    let mut at = 0;
    while at < len {
        let part = (len - at).min(zeros.len() as u64);
        file.write_at(at, &zeros[..part as usize])?;
        at += part;
    }
    file.file.sync_all()
}

/// A file of a [`Blocking`] device.
#[derive(Debug)]
pub struct BlockingFile {
    pub(super) file: File,
    direct: bool,
}

impl DeviceFile for BlockingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.direct && !is_aligned(offset, bytes) {
            if !offset.is_multiple_of(BLOCK as u64) || !bytes.len().is_multiple_of(BLOCK) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a direct write of part of a block"));
            }
            let mut copy = AlignedBuf::new();
            copy.extend_from_slice(bytes);
            return self.file.write_all_at(&copy, offset);
        }
        self.file.write_all_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        loop {
            match self.file.sync_data() {
                // Interrupted before it began: this is no failed flush.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.direct && !is_aligned(offset, buf) {
            let start = offset - offset % BLOCK as u64;
            let skip = (offset - start) as usize;
            let mut blocks = AlignedBuf::zeroed((skip + buf.len()).next_multiple_of(BLOCK));
            let got = read_up_to(&self.file, start, &mut blocks)?;
            if got < skip + buf.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf.copy_from_slice(&blocks[skip..skip + buf.len()]);
            return Ok(());
        }
        self.file.read_exact_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

fn is_aligned(offset: u64, bytes: &[u8]) -> bool {
    offset.is_multiple_of(BLOCK as u64)
        && bytes.len().is_multiple_of(BLOCK)
        && (bytes.as_ptr() as usize).is_multiple_of(BLOCK)
}

/// Reads until `buf` is full or the file ends; gives the number of bytes read.
fn read_up_to(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                // A direct read that stops inside a block has met the end of the file.
                if !done.is_multiple_of(BLOCK) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// What tests see of folders, and the mistake that they plant: to forget to sync them.
#[cfg(test)]
pub(super) mod watched {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    thread_local! {
        static UNSYNCED: RefCell<BTreeSet<PathBuf>> = const { RefCell::new(BTreeSet::new()) };
        static FORGETFUL: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn changed(folder: &Path) {
        UNSYNCED.with_borrow_mut(|all| all.insert(folder.to_owned()));
    }

    /// Whether it is really to be synced.
    pub(super) fn synced(folder: &Path) -> bool {
        let forgetful = FORGETFUL.get();
        if !forgetful {
            UNSYNCED.with_borrow_mut(|all| all.remove(folder));
        }
        !forgetful
    }

    pub fn forget_folders(forgetful: bool) {
        FORGETFUL.set(forgetful);
    }

    /// The folders in which this thread has changed a name that no sync has made durable.
    pub fn take_unsynced() -> BTreeSet<PathBuf> {
        UNSYNCED.take()
    }
}
