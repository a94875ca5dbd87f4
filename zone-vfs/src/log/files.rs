//! The files of the log: those in use, and those that wait to be used again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::LogError;
use super::format::{FileHeader, SALT, Salt};
use super::{CommitError, LogPosition};
use crate::device::{
    AlignedBuf, BLOCK, Caching, Device, DeviceFile, DurableError, is_no_space, is_shortage, with_advice,
};

/// The folder of the log on its device.
pub(super) const FOLDER: &str = "log";
/// The usual length of a log's first file in bytes. It doubles with each generation up to what was
/// asked for, so that a small store is made and opened quickly.
pub(super) const FIRST_FILE: u64 = 1 << 20;
/// Bytes that are overwritten at once; a whole number of blocks.
const WIPE: u64 = 1 << 20;
/// Files that are kept for reuse; what exceeds it is removed.
const MAX_SPARE: usize = 4;

/// A file that holds groups which a recovery may need.
#[derive(Debug)]
pub(super) struct Used {
    pub path: String,
    pub len: u64,
    pub generation: u64,
    /// Where its last group ends, in bytes.
    pub end: u64,
}

/// A file whose content nobody needs.
#[derive(Debug)]
pub(super) struct Spare {
    pub path: String,
    pub len: u64,
}

#[derive(Debug)]
pub(super) struct Files {
    /// By generation, without gaps; the last one is written.
    pub used: VecDeque<Used>,
    pub spare: Vec<Spare>,
    /// The number in the name of the next new file.
    pub next_name: u32,
    /// Drawn when the first file is made.
    pub salt: Option<Salt>,
    pub next_generation: u64,
}

/// The file that the committer writes.
#[derive(Debug)]
pub(super) struct Current {
    pub file: Arc<dyn DeviceFile>,
    pub path: String,
    pub generation: u64,
    pub salt: Salt,
    pub len: u64,
    pub offset: u64,
}

pub(super) struct SharedFiles {
    device: Arc<dyn Device>,
    file_len: u64,
    state: Mutex<(Files, LogPosition)>,
    /// The next group goes into another file.
    turn_over: AtomicBool,
    /// What is freed is overwritten before it is used again or removed.
    wiping: AtomicBool,
}

/// Why there is no file for the next group.
pub(super) enum NoFile {
    NoSpace,
    /// For want of descriptors or memory. Nothing was written.
    Shortage(String),
    Failed(String),
}

impl SharedFiles {
    pub fn new(device: Arc<dyn Device>, file_len: u64, files: Files, tail: LogPosition) -> Self {
        let (turn_over, wiping) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { device, file_len, state: Mutex::new((files, tail)), turn_over, wiping }
    }

    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    pub fn tail(&self) -> LogPosition {
        self.lock().1
    }

    pub fn set_tail(&self, tail: LogPosition) {
        self.lock().1 = tail;
    }

    /// The groups of the written file now end at `end`.
    pub fn set_end(&self, end: u64) {
        if let Some(last) = self.lock().0.used.back_mut() {
            last.end = end;
        }
    }

    pub fn bytes_since(&self, from: LogPosition) -> u64 {
        let state = self.lock();
        let used = state.0.used.iter().filter(|file| file.generation >= from.file_generation);
        used.map(|file| {
            let start = if file.generation == from.file_generation { from.offset } else { BLOCK as u64 };
            file.end.saturating_sub(start)
        })
        .sum()
    }

    pub fn recycle_before(&self, position: LogPosition) -> Result<(), LogError> {
        let mut freed = Vec::new();
        let mut state = self.lock();
        while state.0.used.len() > 1
            && let Some(file) = state.0.used.pop_front_if(|it| it.generation < position.file_generation)
        {
            freed.push(Spare { path: file.path, len: file.len });
        }
        drop(state);
        // before any of them is used again, which would keep what is behind its end
        let wiping = self.wiping.load(Ordering::Acquire);
        let wiped = if wiping { freed.iter().try_for_each(|file| self.wipe(file)) } else { Ok(()) };
        let mut state = self.lock();
        let files = &mut state.0;
        files.spare.append(&mut freed);
        // The largest are the most useful.
        files.spare.sort_by_key(|file| std::cmp::Reverse(file.len));
        let excess = files.spare.split_off(files.spare.len().min(MAX_SPARE));
        drop(state);
        for file in excess {
            self.device.remove(&file.path).map_err(|source| LogError::Io { file: file.path, source })?;
        }
        wiped
    }

    /// Has the next group go into another file.
    pub fn turn_over(&self) {
        self.turn_over.store(true, Ordering::Release);
    }

    /// Whether the next group goes into another file. Asked once for each time.
    pub fn takes_turn(&self) -> bool {
        self.turn_over.swap(false, Ordering::AcqRel)
    }

    /// Says whether files that are freed are overwritten.
    pub fn set_wiping(&self, wiping: bool) {
        self.wiping.store(wiping, Ordering::Release);
    }

    /// Overwrites the files that wait to be used again, but for their headers. Meanwhile none of them is used.
    pub fn wipe_spare(&self) -> Result<(), LogError> {
        let spare = std::mem::take(&mut self.lock().0.spare);
        let wiped = spare.iter().try_for_each(|file| self.wipe(file));
        self.lock().0.spare.extend(spare);
        wiped
    }

    fn wipe(&self, spare: &Spare) -> Result<(), LogError> {
        let wipe = || {
            let file = self.device.open(&spare.path, Caching::Direct)?;
            let mut at = BLOCK as u64;
            while at < spare.len {
                let count = (spare.len - at).min(WIPE);
                file.write_at(at, &AlignedBuf::zeroed(count as usize))?;
                at += count;
            }
            file.flush()
        };
        wipe().map_err(|source| LogError::Io { file: spare.path.clone(), source })
    }

    /// Puts a file into use that holds a group of `bytes`, the first of which has this number.
    pub fn next_file(&self, bytes: u64, first_group: u64) -> Result<Current, NoFile> {
        let need = BLOCK as u64 + bytes;
        let (spare, generation, salt) = {
            let mut state = self.lock();
            let files = &mut state.0;
            let fits = files.spare.iter().rposition(|file| file.len >= need);
            let spare = fits.map(|at| files.spare.remove(at));
            (spare, files.next_generation, files.salt)
        };
        let salt = match salt {
            Some(salt) => salt,
            None => self.draw_salt()?,
        };
        let (path, len, file) = if let Some(Spare { path, len }) = spare {
            match self.device.open(&path, Caching::Direct) {
                Ok(file) => (path, len, file),
                Err(error) => {
                    if is_shortage(&error) {
                        // for when there is one more descriptor
                        self.lock().0.spare.push(Spare { path: path.clone(), len });
                    }
                    return Err(failed(&path)(error));
                }
            }
        } else {
            let usual = self.file_len.min(FIRST_FILE << (generation - 1).min(32));
            self.create(usual.max(need).next_multiple_of(BLOCK as u64))?
        };
        let header = FileHeader { generation, first_group, salt, len };
        // The header is durable before any group: so a file with a torn header holds none.
        if let Err(error) = file.write_durably(0, &header.encode()) {
            return Err(self.give_up(&path, &error));
        }
        let mut state = self.lock();
        let files = &mut state.0;
        files.salt = Some(salt);
        files.next_generation = generation + 1;
        files.used.push_back(Used { path: path.clone(), len, generation, end: BLOCK as u64 });
        Ok(Current { file, path, generation, salt, len, offset: BLOCK as u64 })
    }

    fn draw_salt(&self) -> Result<Salt, NoFile> {
        let mut salt = [0; SALT];
        self.device.random(&mut salt).map_err(failed("random numbers"))?;
        Ok(salt)
    }

    /// Where the disk is full, spare files that are too small make room.
    fn create(&self, len: u64) -> Result<(String, u64, Arc<dyn DeviceFile>), NoFile> {
        loop {
            let mut state = self.lock();
            let path = file_path(state.0.next_name);
            state.0.next_name += 1;
            drop(state);
            match self.device.create(&path, len, Caching::Direct) {
                Ok(file) => return Ok((path, len, file)),
                Err(error) if is_no_space(&error) => {
                    let Some(spare) = self.lock().0.spare.pop() else { return Err(NoFile::NoSpace) };
                    if let Err(error) = self.device.remove(&spare.path) {
                        let told = failed(&spare.path)(error);
                        if matches!(told, NoFile::Shortage(_)) {
                            self.lock().0.spare.push(spare);
                        }
                        return Err(told);
                    }
                }
                Err(error) => return Err(failed(&path)(error)),
            }
        }
    }

    /// A file whose header was refused must not turn up later with the same generation as another.
    fn give_up(&self, path: &str, error: &DurableError) -> NoFile {
        match error {
            DurableError::Write(source)
                if (is_no_space(source) || is_shortage(source)) && self.device.remove(path).is_ok() =>
            {
                refused(source, path)
            }
            _ => NoFile::Failed(format!("{path}: {error}")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Files, LogPosition)> {
        // No foreign code runs under the lock, so a poisoned lock still guards sound lists.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(path: &str) -> impl FnOnce(std::io::Error) -> NoFile {
    let path = path.to_owned();
    move |error| refused(&error, &path)
}

/// What is to be told where a file could not be had.
fn refused(error: &std::io::Error, path: &str) -> NoFile {
    if is_no_space(error) {
        NoFile::NoSpace
    } else if is_shortage(error) {
        NoFile::Shortage(format!("{path}: {}", with_advice(error)))
    } else {
        NoFile::Failed(format!("{path}: {error}"))
    }
}

impl From<NoFile> for CommitError {
    fn from(error: NoFile) -> Self {
        match error {
            NoFile::NoSpace => Self::NoSpace,
            NoFile::Shortage(what) => Self::Shortage(what.into()),
            NoFile::Failed(reason) => Self::Poisoned(reason.into()),
        }
    }
}

pub(super) fn file_path(number: u32) -> String {
    format!("{FOLDER}/{number:08}.log")
}

/// The number in a file's name; `None` for files that are none of the log's.
pub(super) fn file_number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".log")?.parse().ok()?;
    (file_path(number).strip_prefix(FOLDER)?.strip_prefix('/')? == name).then_some(number)
}
