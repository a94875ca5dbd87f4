//! A device whose durable writes are one `io_uring` submission: write, then data sync, linked.
//!
//! Each thread that writes durably owns a ring (`SINGLE_ISSUER` and `DEFER_TASKRUN`); in practice
//! that is the log's committer and whoever writes the superblock. Reads and everything else are
//! plain calls in the calling thread: a read that hits the page cache is quicker that way.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::blocking::{Blocking, BlockingFile};
use super::{AlignedBuf, BLOCK, Caching, Device, DeviceFile, DurableError};

/// Submissions that a ring has room for; a durable write takes two.
const ENTRIES: u32 = 4;
/// The longest write of one submission. Bytes.
const MAX_WRITE: usize = 1 << 30;
/// How often waiting for the kernel is tried again, a millisecond apart.
const MAX_WAIT_RETRIES: u32 = 10_000;

const WRITE: u64 = 1;
const FLUSH: u64 = 2;

thread_local! {
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
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
        if !probe.is_supported(opcode::Write::CODE) || !probe.is_supported(opcode::Fsync::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring without write or fsync"));
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

impl DeviceFile for UringFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn write_durably(&self, offset: u64, bytes: &AlignedBuf) -> Result<(), DurableError> {
        RING.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = Some(build_ring().map_err(DurableError::Write)?);
            }
            let Some(ring) = slot.as_mut() else { unreachable!("the ring was made above") };
            let done = write_and_flush(ring, &self.0, offset, bytes);
            if done.is_err() {
                // What an error left in the ring must not be taken for the next write's.
                *slot = None;
            }
            done
        })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

fn write_and_flush(
    ring: &mut IoUring,
    file: &BlockingFile,
    offset: u64,
    bytes: &[u8],
) -> Result<(), DurableError> {
    let mut done = 0;
    loop {
        let rest = &bytes[done..bytes.len().min(done + MAX_WRITE)];
        let (write, flush) = submit_pair(ring, file, offset + done as u64, rest)?;
        match step(write, flush, rest.len(), bytes.len() - done) {
            Step::Done => return Ok(()),
            Step::Flush => return file.flush().map_err(DurableError::Flush),
            Step::Again { written } => done += written,
            Step::Failed(error) => return Err(error),
        }
    }
}

/// What the two results of a linked write and flush ask for.
#[derive(Debug)]
enum Step {
    Done,
    /// All is written, and the flush was not attempted.
    Flush,
    /// The write stopped early; go on behind `written` bytes, a whole number of blocks.
    Again {
        written: usize,
    },
    Failed(DurableError),
}

/// `asked` bytes were submitted, of `left` that remain.
fn step(write: i32, flush: i32, asked: usize, left: usize) -> Step {
    if write < 0 {
        return match -write {
            libc::EINTR | libc::EAGAIN => Step::Again { written: 0 },
            code => Step::Failed(DurableError::Write(io::Error::from_raw_os_error(code))),
        };
    }
    let written = write as usize;
    if written == 0 && asked > 0 {
        return Step::Failed(DurableError::Write(io::ErrorKind::WriteZero.into()));
    }
    // A flush that ran and failed counts, however much was written before it.
    if flush < 0 && !matches!(-flush, libc::ECANCELED | libc::EINTR) {
        return Step::Failed(DurableError::Flush(io::Error::from_raw_os_error(-flush)));
    }
    if written < left {
        return Step::Again { written: written - written % BLOCK };
    }
    if flush < 0 { Step::Flush } else { Step::Done }
}

/// Submits a write with a data sync linked behind it, waits for both, and gives both results.
fn submit_pair(
    ring: &mut IoUring,
    file: &BlockingFile,
    offset: u64,
    bytes: &[u8],
) -> Result<(i32, i32), DurableError> {
    let fd = types::Fd(file.file.as_raw_fd());
    let write = opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32)
        .offset(offset)
        .build()
        .flags(squeue::Flags::IO_LINK)
        .user_data(WRITE);
    let flush = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build().user_data(FLUSH);
    // SAFETY: the bytes and the descriptor are borrowed until this function returns, and it returns
    // only when nothing was submitted or the kernel has completed both (or never: see the abort).
    let queued = unsafe { ring.submission().push_multiple(&[write, flush]) };
    queued.map_err(|_| DurableError::Write(io::Error::other("the ring has no room")))?;

    let (mut write_result, mut flush_result) = (None, None);
    let mut retries = 0;
    loop {
        if let Err(error) = ring.submit_and_wait(1) {
            let code = error.raw_os_error();
            if code != Some(libc::EINTR) {
                let untouched = ring.submission().len() == 2;
                if untouched && !matches!(code, Some(libc::EAGAIN | libc::EBUSY)) {
                    return Err(DurableError::Write(error));
                }
                retries += 1;
                if retries > MAX_WAIT_RETRIES {
                    // The kernel may still read the caller's memory, so returning is not an option.
                    tracing::error!(%error, "io_uring gives no completions");
                    std::process::abort();
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        for completion in ring.completion() {
            match completion.user_data() {
                WRITE => write_result = Some(completion.result()),
                _ => flush_result = Some(completion.result()),
            }
        }
        if let (Some(write), Some(flush)) = (write_result, flush_result) {
            return Ok((write, flush));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_results_are_told_apart() {
        let full = 8192;
        assert!(matches!(step(8192, 0, full, full), Step::Done));
        assert!(matches!(step(8192, -libc::ECANCELED, full, full), Step::Flush));
        assert!(matches!(step(4096, -libc::ECANCELED, full, full), Step::Again { written: 4096 }));
        assert!(matches!(step(5000, -libc::ECANCELED, full, full), Step::Again { written: 4096 }));
        assert!(matches!(step(-libc::EINTR, -libc::ECANCELED, full, full), Step::Again { written: 0 }));
        let Step::Failed(error) = step(-libc::ENOSPC, -libc::ECANCELED, full, full) else { panic!() };
        assert!(error.is_no_space());
        let Step::Failed(error) = step(8192, -libc::ENOSPC, full, full) else { panic!() };
        assert!(matches!(error, DurableError::Flush(_)) && !error.is_no_space());
        assert!(matches!(step(8192, -libc::EIO, full, full), Step::Failed(DurableError::Flush(_))));
        assert!(matches!(step(0, -libc::ECANCELED, full, full), Step::Failed(DurableError::Write(_))));
    }
}
