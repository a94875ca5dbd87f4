//! A device that writes durably by `io_uring` where something else is to be done meanwhile.
//!
//! One write with `RWF_DSYNC` is written and made durable by one request: nothing is handed to a thread of
//! the kernel's, as a linked `fsync` would be, and nobody has to be there between the two. Where there is
//! nothing to be done meanwhile, the same write is a plain call in the calling thread, which is quicker by what
//! a ring costs. Reads and everything else are plain calls too: a read that hits the page cache is quicker
//! that way.
//!
//! Each thread that has needed one owns a ring (`SINGLE_ISSUER` and `DEFER_TASKRUN`); in practice that is the
//! log's.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::blocking::{Blocking, BlockingFile};
use super::{AlignedBuf, BLOCK, Caching, Device, DeviceFile, DurableError};

/// Submissions that a ring has room for; one is under way at a time.
const ENTRIES: u32 = 2;
/// The longest write of one submission. Bytes.
const MAX_WRITE: usize = 1 << 30;
/// How often waiting for the kernel is tried again, a millisecond apart.
const MAX_WAIT_RETRIES: u32 = 10_000;

thread_local! {
    static RING: Cell<Option<IoUring>> = const { Cell::new(None) };
}

/// A folder of the host, with durable writes by `io_uring`.
#[derive(Debug)]
pub struct Uring {
    files: Blocking,
}

impl Uring {
    /// Opens the folder `root`, creating it where it is missing. Fails where the host forbids
    /// `io_uring` or lacks what is used of it.
    pub fn open(root: &Path) -> io::Result<Self> {
        let ring = build_ring()?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring without write"));
        }
        Ok(Self { files: Blocking::open(root)? })
    }
}

fn build_ring() -> io::Result<IoUring> {
    match IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES) {
        // Before Linux 6.1.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES),
        built => built,
    }
}

impl Device for Uring {
    fn kind(&self) -> &'static str {
        "uring"
    }

    fn create(&self, path: &str, len: u64, caching: Caching) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(UringFile(self.files.create_file(path, len, caching)?)))
    }

    fn open(&self, path: &str, caching: Caching) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(UringFile(self.files.open_file(path, caching)?)))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.remove(path)
    }

    fn free(&self) -> io::Result<Option<u64>> {
        self.files.free()
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.files.random(bytes)
    }
}

/// A file of a [`Uring`] device.
#[derive(Debug)]
pub struct UringFile(BlockingFile);

impl UringFile {
    /// Whether it was the write that found no space or the flush, of which one is a refusal and the other is not, only
    /// shows when they are done one after the other.
    fn told_apart(
        &self,
        done: Result<(), DurableError>,
        offset: u64,
        bytes: &AlignedBuf,
    ) -> Result<(), DurableError> {
        match done {
            Err(error) if error.is_no_space() => self.0.write_durably(offset, bytes),
            done => done,
        }
    }
}

impl DeviceFile for UringFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn write_durably(&self, offset: u64, bytes: &AlignedBuf) -> Result<(), DurableError> {
        let done = write_all(offset, bytes, |at, rest| Ok(write_synced(&self.0, at, rest)));
        self.told_apart(done, offset, bytes)
    }

    fn write_durably_while(
        &self,
        offset: u64,
        bytes: &AlignedBuf,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), DurableError> {
        RING.with(|slot| {
            // what runs meanwhile may come here again, and then finds none
            let mut ring = match slot.take().map_or_else(build_ring, Ok) {
                Ok(ring) => ring,
                Err(error) => {
                    tracing::debug!("without a ring: {error}");
                    meanwhile();
                    return self.write_durably(offset, bytes);
                }
            };
            let mut meanwhile = Some(meanwhile);
            let done = write_all(offset, bytes, |at, rest| {
                submit_synced(&mut ring, &self.0, at, rest, || {
                    if let Some(meanwhile) = meanwhile.take() {
                        meanwhile();
                    }
                })
            });
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
            // What an error left in the ring must not be taken for the next write's.
            if done.is_ok() {
                slot.set(Some(ring));
            }
            self.told_apart(done, offset, bytes)
        })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// Writes all of `bytes` by calls of `write`, which gives how many bytes it has written durably, or an error number.
fn write_all(
    offset: u64,
    bytes: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<i32, DurableError>,
) -> Result<(), DurableError> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..bytes.len().min(done + MAX_WRITE)];
        done += step(write(offset + done as u64, rest)?, rest.len())?;
    }
    Ok(())
}

/// How far the result of a write of `asked` bytes gets us: a whole number of blocks.
fn step(result: i32, asked: usize) -> Result<usize, DurableError> {
    match usize::try_from(result) {
        Ok(0) => Err(DurableError::Write(io::ErrorKind::WriteZero.into())),
        Ok(written) if written >= asked => Ok(asked),
        Ok(written) => Ok(written - written % BLOCK),
        Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => Ok(0),
        // It is unknown what is durable, whichever of the two it was.
        Err(_) => Err(DurableError::Write(io::Error::from_raw_os_error(-result))),
    }
}

/// One durable write in the calling thread: how many bytes are, or an error number below zero.
fn write_synced(file: &BlockingFile, offset: u64, bytes: &[u8]) -> i32 {
    let bytes = [io::IoSlice::new(bytes)];
    match rustix::io::pwritev2(&file.file, &bytes, offset, rustix::io::ReadWriteFlags::DSYNC) {
        Ok(written) => i32::try_from(written).unwrap_or(i32::MAX),
        Err(error) => -error.raw_os_error(),
    }
}

/// One durable write by the ring, and `meanwhile`, which does not run where nothing could be submitted.
fn submit_synced(
    ring: &mut IoUring,
    file: &BlockingFile,
    offset: u64,
    bytes: &[u8],
    meanwhile: impl FnOnce(),
) -> Result<i32, DurableError> {
    let write = opcode::Write::new(types::Fd(file.file.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32)
        .offset(offset)
        .rw_flags(libc::RWF_DSYNC)
        .build();
    // SAFETY: the bytes and the descriptor are borrowed until this function returns, and it returns
    // only when nothing was submitted or the kernel has completed it (or never: see the abort).
    let queued = unsafe { ring.submission().push(&write) };
    queued.map_err(|_| DurableError::Write(io::Error::other("the ring has no room")))?;
    let mut retries = 0;
    // a ring whose task work is deferred submits without waiting, too
    while let Err(error) = ring.submit() {
        retry(&error, &mut retries, ring.submission().len() == 1)?;
    }
    // the kernel has the bytes until it is done, also where this panics
    let panicked = catch_unwind(AssertUnwindSafe(meanwhile)).err();
    let result = loop {
        if let Some(completion) = ring.completion().next() {
            break completion.result();
        }
        if let Err(error) = ring.submit_and_wait(1) {
            retry(&error, &mut retries, false)?;
        }
    };
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
    Ok(result)
}

/// Waits a little after an error of submitting or waiting that passes; gives it back where the kernel has taken
/// nothing and will not.
fn retry(error: &io::Error, retries: &mut u32, untouched: bool) -> Result<(), DurableError> {
    let code = error.raw_os_error();
    if code == Some(libc::EINTR) {
        return Ok(());
    }
    if untouched && !matches!(code, Some(libc::EAGAIN | libc::EBUSY)) {
        return Err(DurableError::Write(io::Error::new(error.kind(), error.to_string())));
    }
    *retries += 1;
    if *retries > MAX_WAIT_RETRIES {
        // The kernel may still read the caller's memory, so returning is not an option.
        tracing::error!(%error, "io_uring gives no completions");
        std::process::abort();
    }
    std::thread::sleep(std::time::Duration::from_millis(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_results_are_told_apart() {
        let asked = 8192;
        assert_eq!(step(8192, asked).unwrap(), 8192);
        assert_eq!(step(4096, asked).unwrap(), 4096);
        assert_eq!(step(5000, asked).unwrap(), 4096);
        assert_eq!(step(100, asked).unwrap(), 0, "the same block again");
        assert_eq!(step(-libc::EINTR, asked).unwrap(), 0);
        assert!(step(-libc::ENOSPC, asked).unwrap_err().is_no_space());
        assert!(!step(-libc::EIO, asked).unwrap_err().is_no_space());
        assert!(matches!(step(0, asked), Err(DurableError::Write(_))));
    }
}
