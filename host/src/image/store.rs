//! The folder of image files, and images that are open.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use uuid::Uuid;
use zone_vfs::device::open_regular;

use super::dirty::DirtyTracking;
use super::format::{self, FlatHeader, PageRun, PagesHeader};
use super::reference::{FlatName, ImageReference, PagesName};
use super::slot::{SMALL_CONTENT, SMALL_MEMORY};
use super::touched::Checked;
use super::{ImageError, PAGE};

/// Pages in one pages file, at most: a new one is begun then.
pub(super) const PAGES_PER_FILE: u32 = 4096;

/// The folder that holds an embedded store's image files.
///
/// Flat files appear whole, by a rename, and are never changed after; pages files are appended to
/// by the agent that they are named after.
#[derive(Debug)]
pub struct ImageStore {
    folder: PathBuf,
    flats: Mutex<Open<FlatName, FlatFile>>,
    pages: Mutex<Open<PagesName, PagesFile>>,
    flats_made: AtomicU64,
    /// Flat files of which a page could not be read or was not what it had been, and nobody has asked for since, or, of
    /// geneses, nobody has made anew.
    unreadable: Mutex<HashSet<FlatName>>,
    pub(super) tracking: DirtyTracking,
}

/// Files that are open: those in use, and some that were used lately, so that a resume need not open
/// them again.
#[derive(Debug)]
struct Open<N, F> {
    known: HashMap<N, Weak<F>>,
    recent: VecDeque<Arc<F>>,
}

/// Files of each kind that are kept open though nothing uses them.
const RECENT: usize = 64;

impl<N: Eq + std::hash::Hash, F> Open<N, F> {
    fn get(&self, name: &N) -> Option<Arc<F>> {
        self.known.get(name).and_then(Weak::upgrade)
    }

    fn put(&mut self, name: N, file: &Arc<F>) {
        self.recent.push_back(file.clone());
        if self.recent.len() > RECENT {
            self.recent.pop_front();
            self.known.retain(|_, f| f.strong_count() > 0);
        }
        self.known.insert(name, Arc::downgrade(file));
    }

    /// Forgets a file whose name is another's now, or nobody's.
    fn forget(&mut self, name: &N) {
        if let Some(file) = self.known.remove(name).and_then(|f| f.upgrade()) {
            self.recent.retain(|f| !Arc::ptr_eq(f, &file));
        }
    }
}

impl<N, F> Default for Open<N, F> {
    fn default() -> Self {
        Self { known: HashMap::new(), recent: VecDeque::new() }
    }
}

/// An open flat file.
#[derive(Debug)]
pub(super) struct FlatFile {
    pub name: FlatName,
    pub file: File,
    pub header: FlatHeader,
    written: Arc<[PageRun]>,
    /// For each memory: its content without the zeros at the end, where it is small.
    small: Vec<Option<Box<[u8]>>>,
    pub checked: Checked,
}

impl FlatFile {
    /// The content of memory `memory`, without the zeros at its end, where it is small.
    pub fn small(&self, memory: usize) -> Option<&[u8]> {
        self.small.get(memory)?.as_deref()
    }
}

fn read_small(file: &File, header: &FlatHeader) -> std::io::Result<Vec<Option<Box<[u8]>>>> {
    let read = |memory: &format::FlatMemory| {
        if memory.len > SMALL_MEMORY as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0u8; memory.len as usize];
        file.read_exact_at(&mut bytes, memory.offset)?;
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        Ok((used <= SMALL_CONTENT).then(|| bytes.into_boxed_slice()))
    };
    header.memories.iter().map(read).collect()
}

/// An open file of changed pages.
#[derive(Debug)]
pub(super) struct PagesFile {
    pub name: PagesName,
    pub file: File,
    /// Pages in the file. Those below are never written again.
    pub used: Mutex<u32>,
    written: Mutex<Written>,
}

/// How far what was appended to a file is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// All of it.
    Durable,
    /// Not all of it yet.
    Waits,
    /// It is not known what, and never will be: a sync has failed.
    Unknown,
}

impl PagesFile {
    fn new(name: PagesName, file: File, used: u32) -> Self {
        Self { name, file, used: Mutex::new(used), written: Mutex::new(Written::Durable) }
    }

    /// Notes that something was appended, which is not durable yet.
    pub fn appended(&self) {
        let mut written = lock(&self.written);
        if *written == Written::Durable {
            *written = Written::Waits;
        }
    }

    /// Makes durable what was appended. One who comes while another does waits for that.
    fn sync(&self) -> std::io::Result<()> {
        let mut written = lock(&self.written);
        match *written {
            Written::Durable => Ok(()),
            Written::Waits => {
                // a sync that failed is never tried again: the kernel may have forgotten what it was to write
                *written = Written::Unknown;
                self.file.sync_data()?;
                *written = Written::Durable;
                Ok(())
            }
            Written::Unknown => Err(std::io::Error::other("an earlier sync of it has failed")),
        }
    }

    /// Whether a sync of it has failed, so that nothing more is to be appended.
    fn is_spent(&self) -> bool {
        *lock(&self.written) == Written::Unknown
    }

    /// Pages in the file.
    pub fn used(&self) -> u32 {
        *lock(&self.used)
    }
}

/// An image whose files are open, ready to be mapped any number of times.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) reference: ImageReference,
    pub(super) base: Arc<FlatFile>,
    pub(super) files: Vec<Arc<PagesFile>>,
    /// The instance that stands here was mapped from another file of the same content, so that a page
    /// it has written need not differ from the base.
    pub(super) rebased: bool,
}

/// An image whose files may be closed meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct ClosedImage {
    reference: ImageReference,
    base: Weak<FlatFile>,
    files: Vec<Weak<PagesFile>>,
}

impl ClosedImage {
    /// True when it lies in one flat file.
    pub fn is_flat(&self) -> bool {
        self.reference.pages.is_empty()
    }

    /// The image, if its files are still open.
    pub fn open_again(&self) -> Option<Image> {
        let files = self.files.iter().map(Weak::upgrade).collect::<Option<_>>()?;
        Some(Image { reference: self.reference.clone(), base: self.base.upgrade()?, files, rebased: false })
    }
}

impl Image {
    /// That a page of it could not be read.
    pub(crate) fn unreadable(&self) -> ImageError {
        ImageError::Damaged {
            file: self.base.name.to_string(),
            reason: "a page of it could not be read".into(),
        }
    }

    /// The image without a hold on its files.
    pub(crate) fn closed(&self) -> ClosedImage {
        ClosedImage {
            reference: self.reference.clone(),
            base: Arc::downgrade(&self.base),
            files: self.files.iter().map(Arc::downgrade).collect(),
        }
    }

    /// Makes durable what was appended of it.
    pub(crate) fn sync(&self) -> Result<(), ImageError> {
        self.files.iter().try_for_each(|file| file.sync().map_err(ImageStore::io(file.name)))
    }

    /// What a generation's record keeps of it.
    pub fn reference(&self) -> &ImageReference {
        &self.reference
    }

    /// True when it lies in one flat file, so that mapping costs the same whatever its size.
    pub fn is_flat(&self) -> bool {
        self.reference.pages.is_empty()
    }

    /// The pages that had been written when the file beneath was made.
    pub(crate) fn written_before(&self) -> Arc<[PageRun]> {
        self.base.written.clone()
    }

    /// The pages that differ from the file beneath, as far as they are worth remembering.
    pub(crate) fn written(&self) -> Arc<[PageRun]> {
        super::flatten::written(&self.reference.pages).into()
    }

    /// Whether another image has the same flat file beneath it.
    pub(crate) fn lies_on_same_file(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.base, &other.base)
    }

    /// Bytes that are copied into memory `memory` when the image is mapped.
    pub(crate) fn copied(&self, memory: usize) -> usize {
        self.base.small(memory).map_or(0, <[u8]>::len)
    }

    pub(super) fn base_memory(&self, memory: usize) -> Option<(BorrowedFd<'_>, u64, u64)> {
        let m = self.base.header.memories.get(memory)?;
        Some((self.base.file.as_fd(), m.offset, m.len))
    }
}

impl ImageStore {
    /// Opens the folder, which is created for its owner alone when it is missing.
    pub fn open(folder: &Path) -> Result<Self, ImageError> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(folder_failed(folder))?;
        let store = Self {
            folder: folder.into(),
            flats: Mutex::default(),
            pages: Mutex::default(),
            flats_made: AtomicU64::new(0),
            unreadable: Mutex::default(),
            tracking: DirtyTracking::here(),
        };
        store.remove_unfinished()?;
        Ok(store)
    }

    /// The same folder, with nothing open: every file is opened anew.
    pub(crate) fn afresh(&self) -> Self {
        Self {
            folder: self.folder.clone(),
            flats: Mutex::default(),
            pages: Mutex::default(),
            flats_made: AtomicU64::new(0),
            unreadable: Mutex::default(),
            tracking: self.tracking,
        }
    }

    /// Finds written pages by `tracking` rather than by what the machine offers.
    #[cfg(test)]
    pub(crate) fn with_tracking(self, tracking: DirtyTracking) -> Self {
        Self { tracking, ..self }
    }

    pub(super) fn io(name: impl ToString) -> impl FnOnce(std::io::Error) -> ImageError {
        let file = name.to_string();
        move |source| ImageError::Io { file, source }
    }

    pub(super) fn path(&self, name: impl ToString) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Opens a file of an image. What is there and is no file is as good as lost.
    fn open_file(&self, name: impl ToString, options: &OpenOptions) -> Result<File, ImageError> {
        let name = name.to_string();
        open_regular(&self.path(&name), options).map_err(|source| match source.kind() {
            std::io::ErrorKind::InvalidInput => {
                ImageError::Damaged { file: name, reason: source.to_string() }
            }
            _ => ImageError::Io { file: name, source },
        })
    }

    /// Makes creations and renames in the folder durable.
    pub(super) fn sync_folder(&self) -> Result<(), ImageError> {
        File::open(&self.folder).and_then(|d| d.sync_all()).map_err(folder_failed(&self.folder))
    }

    /// Whether a flat file of this name is there, complete.
    pub fn has_flat(&self, name: &FlatName) -> bool {
        lock(&self.flats).get(name).is_some() || self.path(name).exists()
    }

    /// How many flat files have been made since the folder was opened.
    pub(crate) fn flats_made(&self) -> u64 {
        self.flats_made.load(Ordering::Acquire)
    }

    /// A flat file of this name has just been made: one that was open under it is another.
    pub(super) fn renewed(&self, name: &FlatName) {
        self.flats_made.fetch_add(1, Ordering::AcqRel);
        lock(&self.unreadable).remove(name);
        lock(&self.flats).forget(name);
    }

    pub(super) fn flat(&self, name: &FlatName) -> Result<Arc<FlatFile>, ImageError> {
        let damaged = |reason: &str| ImageError::Damaged { file: name.to_string(), reason: reason.into() };
        if self.is_noted_unreadable(name) {
            return Err(damaged("a page of it could not be read, or was not what it had been"));
        }
        let mut open = lock(&self.flats);
        if let Some(file) = open.get(name) {
            return Ok(file);
        }
        let file = self.open_file(name, File::options().read(true))?;
        let header: FlatHeader = format::read(&file, &name.to_string())?;
        if !header.is_sound() {
            return Err(damaged("its header places memories where none can be"));
        }
        if file.metadata().map_err(Self::io(name))?.len() != header.file_len() {
            return Err(damaged("it does not have the length that its header states"));
        }
        self.fill_holes(name, &file).map_err(Self::io(name))?;
        let small = read_small(&file, &header).map_err(Self::io(name))?;
        let flat = Arc::new(FlatFile {
            name: name.clone(),
            written: header.written.clone().into(),
            file,
            header,
            small,
            checked: Checked::default(),
        });
        open.put(name.clone(), &flat);
        Ok(flat)
    }

    /// Whether that is noted. A genesis follows from its component, and is told to be damaged until it has been made again.
    fn is_noted_unreadable(&self, name: &FlatName) -> bool {
        let mut unreadable = lock(&self.unreadable);
        match name {
            FlatName::Genesis(_) => unreadable.contains(name),
            _ => unreadable.remove(name),
        }
    }

    /// Notes that a page of this flat file could not be read, or is not what it was: whoever asks for the file next is told
    /// that it is damaged, and has it made again where it can be; whoever asks after that gets what is there then.
    pub(crate) fn note_unreadable(&self, name: &FlatName) {
        lock(&self.flats).forget(name);
        lock(&self.unreadable).insert(name.clone());
    }

    /// In memory (tmpfs), a hole is given a page when it is first read, and a mapping in which that
    /// fails for want of space ends the process. There, and only there, the space is taken beforehand.
    fn fill_holes(&self, name: &FlatName, file: &File) -> std::io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        const TMPFS: i64 = 0x0102_1994;
        let metadata = file.metadata()?;
        if metadata.blocks() * 512 >= metadata.len() || rustix::fs::fstatfs(file)?.f_type != TMPFS {
            return Ok(());
        }
        let file = open_regular(&self.path(name), File::options().write(true))?;
        Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, metadata.len())?)
    }

    fn pages_file(&self, name: PagesName) -> Result<Arc<PagesFile>, ImageError> {
        let mut open = lock(&self.pages);
        if let Some(file) = open.get(&name) {
            return Ok(file);
        }
        let file = self.open_file(name, File::options().read(true).write(true))?;
        let header: PagesHeader = format::read(&file, &name.to_string())?;
        if (header.agent, header.number) != (name.agent, name.number) {
            return Err(ImageError::Damaged {
                file: name.to_string(),
                reason: "it is another agent's file".into(),
            });
        }
        let len = file.metadata().map_err(Self::io(name))?.len();
        let used = ((len / PAGE as u64).saturating_sub(1)).min(u64::from(PAGES_PER_FILE)) as u32;
        let file = Arc::new(PagesFile::new(name, file, used));
        open.put(name, &file);
        Ok(file)
    }

    /// A file of `agent`'s with room for `pages` more, or an empty one: the last of `files` when it
    /// is the agent's own.
    pub(super) fn pages_to_append(
        &self,
        agent: Uuid,
        files: &[Arc<PagesFile>],
        pages: u32,
    ) -> Result<Arc<PagesFile>, ImageError> {
        let mut own: Vec<_> = files.iter().filter(|f| f.name.agent == agent).collect();
        own.sort_by_key(|f| f.name.number);
        if let Some(last) = own.last()
            && last.used() + pages <= PAGES_PER_FILE
            && !last.is_spent()
        {
            return Ok((*last).clone());
        }
        let mut number = own.last().map_or(0, |f| f.name.number + 1);
        loop {
            let name = PagesName { agent, number };
            let made =
                File::options().read(true).write(true).create_new(true).mode(0o600).open(self.path(name));
            match made {
                Ok(file) => {
                    let header = format::encode(&PagesHeader { agent, number })
                        .map_err(|reason| ImageError::Damaged { file: name.to_string(), reason })?;
                    file.write_all_at(&header, 0).map_err(Self::io(name))?;
                    self.sync_folder()?;
                    let file = Arc::new(PagesFile::new(name, file, 0));
                    lock(&self.pages).put(name, &file);
                    return Ok(file);
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(Self::io(name)(e)),
            }
        }
    }

    /// Opens what `reference` names. Where `flattened` is given and its flat file has been made
    /// since, that is taken instead, which is the same image: faster to map, or made again where the file beneath the
    /// reference does not read.
    pub fn image(
        &self,
        reference: &ImageReference,
        flattened: Option<&FlatName>,
    ) -> Result<Image, ImageError> {
        if let Some(name) = flattened.filter(|name| !reference.pages.is_empty() || **name != reference.base) {
            match self.flattened(reference, name) {
                Ok(Some(image)) => return Ok(image),
                Ok(None) => {}
                // what it was made of may be there
                Err(e) => tracing::warn!("{name} is not used: {}", zone_vfs::told(&e)),
            }
        }
        reference
            .check()
            .map_err(|reason| ImageError::Damaged { file: reference.base.to_string(), reason })?;
        let base = self.flat(&reference.base)?;
        let files = reference.files.iter().map(|f| self.pages_file(*f)).collect::<Result<_, _>>()?;
        Ok(Image { reference: reference.clone(), base, files, rebased: false })
    }

    /// The flat file `name`, if it was made of just this image.
    fn flattened(&self, reference: &ImageReference, name: &FlatName) -> Result<Option<Image>, ImageError> {
        if !self.has_flat(name) {
            return Ok(None);
        }
        let image = self.flat_image(name)?;
        let digest =
            reference.digest().map_err(|reason| ImageError::Damaged { file: name.to_string(), reason })?;
        Ok((image.base.header.source == Some(digest)).then_some(image))
    }

    /// The same image on a flat file that was made of it since, if there is one: for an instance over
    /// which `image` was mapped, and whose pages will be compared with the flat file from here on.
    pub fn rebase(&self, image: &Image, name: &FlatName) -> Result<Option<Image>, ImageError> {
        if image.reference.pages.is_empty() {
            return Ok(None);
        }
        match self.flattened(&image.reference, name) {
            Ok(flat) => Ok(flat.map(|flat| Image { rebased: true, ..flat })),
            Err(e) if e.is_lost() => {
                // the image goes on as it is
                tracing::warn!("{name} is not used: {}", zone_vfs::told(&e));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Whether the flat file beneath an image is still what its name stands for: none was made anew since, and every page
    /// of it that was asked for could be read.
    pub(crate) fn is_current(&self, image: &Image) -> bool {
        lock(&self.flats).get(&image.base.name).is_some_and(|file| Arc::ptr_eq(&file, &image.base))
    }

    /// Opens a flat file as an image.
    pub fn flat_image(&self, name: &FlatName) -> Result<Image, ImageError> {
        let base = self.flat(name)?;
        let memories = base.header.memories.iter().map(|m| m.len).collect();
        let reference = ImageReference { base: name.clone(), memories, files: Vec::new(), pages: Vec::new() };
        Ok(Image { reference, base, files: Vec::new(), rebased: false })
    }

    /// The file beside a flat file that says what belongs to it.
    pub(crate) fn beside(&self, name: &FlatName) -> PathBuf {
        self.path(name).with_extension("about")
    }

    /// Writes the file beside a flat file, whole and durable.
    pub(crate) fn write_beside(&self, name: &FlatName, bytes: &[u8]) -> Result<(), ImageError> {
        use std::io::Write;
        let path = self.beside(name);
        let temporary = path.with_extension("about.tmp");
        let io = || Self::io(temporary.display());
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = open_regular(&temporary, &options).map_err(io())?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io())?;
        std::fs::rename(&temporary, &path).map_err(io())?;
        self.sync_folder()
    }

    /// Removes every image file that is not named. Returns the bytes given back; with `dry_run` those
    /// that would be.
    pub fn retain(
        &self,
        flats: &HashSet<FlatName>,
        pages: &HashSet<PagesName>,
        dry_run: bool,
    ) -> Result<u64, ImageError> {
        let keep: HashSet<String> =
            flats.iter().map(ToString::to_string).chain(pages.iter().map(ToString::to_string)).collect();
        lock(&self.flats).recent.clear();
        lock(&self.pages).recent.clear();
        self.remove_where(dry_run, |name| is_image(name) && !keep.contains(name))
    }

    /// Removes what lies beside genesis images, but for those of these components' code.
    pub(crate) fn retain_geneses(&self, keep: &HashSet<[u8; 32]>) -> Result<(), ImageError> {
        let keep: HashSet<PathBuf> = keep.iter().map(|key| self.beside(&FlatName::Genesis(*key))).collect();
        for entry in std::fs::read_dir(&self.folder).map_err(folder_failed(&self.folder))? {
            let path = entry.map_err(folder_failed(&self.folder))?.path();
            let is_beside = path.extension().is_some_and(|it| it == "about");
            if is_beside && !keep.contains(&path) && !path.with_extension("flat").exists() {
                std::fs::remove_file(&path).map_err(folder_failed(&self.folder))?;
            }
        }
        Ok(())
    }

    /// The image files in the folder, those that were not changed for longest first, with the bytes that they take.
    pub(crate) fn files(&self) -> Result<Vec<(String, u64)>, ImageError> {
        use std::os::unix::fs::MetadataExt;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(folder_failed(&self.folder))? {
            let entry = entry.map_err(folder_failed(&self.folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_image(&name)
                && let Ok(metadata) = entry.metadata()
            {
                files.push((name, metadata.blocks() * 512, (metadata.mtime(), metadata.mtime_nsec())));
            }
        }
        files.sort_by_key(|(_, _, changed)| *changed);
        Ok(files.into_iter().map(|(name, bytes, _)| (name, bytes)).collect())
    }

    /// Removes files that can be made again, as long as more than `limit` bytes are taken; those that are open stay,
    /// since a turn may yet append to them. Gives the bytes that came free.
    pub(crate) fn shed(
        &self,
        files: &[(String, u64)],
        can_go: &HashSet<String>,
        limit: u64,
    ) -> Result<u64, ImageError> {
        let (mut flats, mut pages) = (lock(&self.flats), lock(&self.pages));
        flats.recent.clear();
        pages.recent.clear();
        let open = |name: &str| {
            flats.known.iter().any(|(it, file)| file.strong_count() > 0 && it.to_string() == name)
                || pages.known.iter().any(|(it, file)| file.strong_count() > 0 && it.to_string() == name)
        };
        let mut taken: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        let mut freed = 0;
        for (name, bytes) in files {
            if taken <= limit {
                break;
            }
            if can_go.contains(name) && !open(name) {
                match std::fs::remove_file(self.path(name)) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Self::io(name)(e)),
                    _ => {}
                }
                taken -= bytes;
                freed += bytes;
            }
        }
        Ok(freed)
    }

    fn remove_unfinished(&self) -> Result<(), ImageError> {
        self.remove_where(false, |name| name.ends_with(".tmp")).map(|_| ())
    }

    fn remove_where(&self, dry_run: bool, unwanted: impl Fn(&str) -> bool) -> Result<u64, ImageError> {
        use std::os::unix::fs::MetadataExt;
        let mut freed = 0;
        for entry in std::fs::read_dir(&self.folder).map_err(folder_failed(&self.folder))? {
            let entry = entry.map_err(folder_failed(&self.folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if unwanted(&name) {
                freed += entry.metadata().map_or(0, |m| m.blocks() * 512);
                if !dry_run {
                    std::fs::remove_file(entry.path()).map_err(Self::io(&name))?;
                }
            }
        }
        Ok(freed)
    }
}

fn folder_failed(folder: &Path) -> impl FnOnce(std::io::Error) -> ImageError {
    move |source| ImageError::Folder { folder: folder.display().to_string(), source }
}

fn is_image(name: &str) -> bool {
    name.ends_with(".flat") || name.ends_with(".pages")
}

pub(super) fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
