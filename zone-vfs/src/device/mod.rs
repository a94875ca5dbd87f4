//! The one way through which every stored byte goes.
//!
//! A [`Device`] is a small flat namespace of files, with at most one level of folders, and says
//! exactly what is durable when. Three implementations:
//!
//! - [`uring`] (Linux): durable writes are one submission, write and sync linked.
//! - [`blocking`]: plain system calls, everywhere.
//! - [`simulated`]: in memory; loses, tears and reorders whatever was not flushed.

mod aligned;
pub mod blocking;
mod regular;
pub mod simulated;
#[cfg(target_os = "linux")]
pub mod uring;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use aligned::{AlignedBuf, BLOCK};
pub use regular::open_regular;

/// The longest path of a file on a device, in bytes.
pub const MAX_PATH: usize = 128;

/// Forces a kind of device in [`open_default`]: `uring` or `blocking`. Empty is as unset.
pub const DEVICE_VARIABLE: &str = "DORMOUSE_DEVICE";

/// How the bytes of an open file travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the host's page cache.
    Cached,
    /// Around the page cache where the filesystem allows it. Offsets and lengths of writes are
    /// multiples of [`BLOCK`].
    Direct,
}

/// Where a durable write failed.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// The write failed, or, on a device that writes and flushes by one request, either of the two. Nothing of it
    /// may be relied on. For want of space: nothing was flushed, and the same bytes may be written again.
    #[error("write failed: {0}")]
    Write(#[source] io::Error),
    /// The flush failed; what is durable is unknown, and the flush must not be tried again.
    #[error("flush failed: {0}")]
    Flush(#[source] io::Error),
}

impl DurableError {
    /// Whether the disk refused the write for want of space. A flush that says so is a failed
    /// flush, not a refusal.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Write(error) if is_no_space(error))
    }
}

/// Whether `error` says that the disk, or the user's share of it, is full.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether `error` says that this process, or the system, has too few file descriptors or too little memory: nothing
/// is known of the disk, and the same may go well when there is more.
pub fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
        || error.kind() == io::ErrorKind::OutOfMemory
}

/// Whether `error` says that something is lacking, room or a [resource](is_shortage): nothing is known of what is
/// stored.
pub fn is_lack(error: &io::Error) -> bool {
    is_no_space(error) || is_shortage(error)
}

/// What to do about a [shortage](is_shortage), as it follows what was tried; nothing where `error` is none.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    if is_shortage(error) {
        " (nothing is damaged: raise the limit of open files, ulimit -n, or free memory, and try again)"
    } else {
        ""
    }
}

/// What the system said, and what to do about it.
pub(crate) fn with_advice(error: &io::Error) -> String {
    format!("{error}{}", advice(error))
}

/// A folder of files. Paths are relative, of one or two parts: `superblock`, `log/00000001.log`.
///
/// Creating, renaming and removing are durable when they return. One that is interrupted by a
/// crash has happened or has not, except that an interrupted `create` may leave a shorter file
/// of zeros.
pub trait Device: Send + Sync + Debug {
    /// `uring`, `blocking` or `simulated`.
    fn kind(&self) -> &'static str;

    /// Creates `path`, which must not exist, with `len` bytes of zeros that are really allocated,
    /// and its folder where that is missing. Leaves nothing behind where it fails.
    fn create(&self, path: &str, len: u64, caching: Caching) -> io::Result<Arc<dyn DeviceFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str, caching: Caching) -> io::Result<Arc<dyn DeviceFile>>;

    /// The names of the files in `folder`, sorted; none where there is no such folder. An empty
    /// `folder` is the device itself.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Renames a file, replacing `to` where it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Open handles of it stay readable.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Bytes that can still be written, about; `None` where that is not known.
    fn free(&self) -> io::Result<Option<u64>>;

    /// Fills `bytes` with random numbers: unpredictable, except on a simulated device, where they
    /// follow from its seed.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// An open file of a [`Device`].
pub trait DeviceFile: Send + Sync + Debug {
    /// Writes all of `bytes`; a write past the end makes the file longer. Not durable before a
    /// [`flush`](Self::flush), and may be durable before it, in part and in any order.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was written, and the length, durable. After an error it is unknown what is
    /// durable, and a second flush that succeeds says nothing.
    fn flush(&self) -> io::Result<()>;

    /// Writes and flushes. `bytes` is a whole number of blocks.
    fn write_durably(&self, offset: u64, bytes: &AlignedBuf) -> Result<(), DurableError> {
        self.write_at(offset, bytes).map_err(DurableError::Write)?;
        self.flush().map_err(DurableError::Flush)
    }

    /// As [`write_durably`](Self::write_durably), and runs `meanwhile` once, whatever happens: while the bytes are
    /// on their way where the device can do both, and before otherwise.
    fn write_durably_while(
        &self,
        offset: u64,
        bytes: &AlignedBuf,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), DurableError> {
        meanwhile();
        self.write_durably(offset, bytes)
    }

    /// Fills `buf`; `UnexpectedEof` where the file is too short.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Which device [`open`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// `io_uring` where the host allows it, otherwise blocking calls, with a warning that says why.
    #[default]
    Best,
    /// `io_uring`, or an error.
    Uring,
    /// Blocking calls.
    Blocking,
}

/// Opens the folder `root`, which is created where it is missing, as a device: what
/// [`DEVICE_VARIABLE`] asks for, otherwise the best that there is.
pub fn open_default(root: &Path) -> io::Result<Arc<dyn Device>> {
    let kind = match std::env::var(DEVICE_VARIABLE) {
        Err(std::env::VarError::NotPresent) => DeviceKind::Best,
        Ok(name) if name.is_empty() => DeviceKind::Best,
        Ok(name) if name == "uring" => DeviceKind::Uring,
        Ok(name) if name == "blocking" => DeviceKind::Blocking,
        Ok(name) => return Err(unknown_kind(&name)),
        Err(std::env::VarError::NotUnicode(name)) => return Err(unknown_kind(&name.to_string_lossy())),
    };
    open(root, kind)
}

fn unknown_kind(name: &str) -> io::Error {
    let message = format!("{DEVICE_VARIABLE}={name:?} is neither \"uring\" nor \"blocking\"");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Opens the folder `root`, which is created where it is missing, as a device of this kind.
pub fn open(root: &Path, kind: DeviceKind) -> io::Result<Arc<dyn Device>> {
    match kind {
        DeviceKind::Blocking => Ok(Arc::new(blocking::Blocking::open(root)?)),
        DeviceKind::Uring => open_uring(root),
        DeviceKind::Best => match open_uring(root) {
            Ok(device) => Ok(device),
            Err(reason) => {
                let device = blocking::Blocking::open(root)?;
                static SAID: std::sync::Once = std::sync::Once::new();
                SAID.call_once(|| {
                    tracing::warn!(%reason, "io_uring cannot be used; going on with blocking calls");
                });
                Ok(Arc::new(device))
            }
        },
    }
}

#[cfg(target_os = "linux")]
fn open_uring(root: &Path) -> io::Result<Arc<dyn Device>> {
    Ok(Arc::new(uring::Uring::open(root)?))
}

#[cfg(not(target_os = "linux"))]
fn open_uring(_: &Path) -> io::Result<Arc<dyn Device>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring exists on Linux only"))
}

/// Refuses paths that are absolute, too deep, too long, or leave the device.
fn check_path(path: &str) -> io::Result<()> {
    let parts = path.split('/').count();
    let plain = path.split('/').all(|part| {
        !part.is_empty() && part != "." && part != ".." && !part.bytes().any(|b| b == 0 || b == b'\\')
    });
    if plain && parts <= 2 && path.len() <= MAX_PATH {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} is not a path of a device")))
}
