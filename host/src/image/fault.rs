//! Pages of a mapped image that cannot be read.
//!
//! Where the system cannot read a page of a mapped file (a bad block, or a file that somebody has made shorter),
//! it sends `SIGBUS` to the thread that touched it, which ends a process. Here a handler puts a page of zeros in the
//! place and notes that the memory is *unreadable*: the guest goes on for the moment, with what its memory never
//! held, and nothing that it does is committed. wasmtime handles `SIGSEGV`, `SIGILL` and `SIGFPE`, and
//! leaves `SIGBUS` alone on Linux. One that has nothing to do with a guest's memory goes where it went before.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use super::PAGE;

/// Memories that are looked after at once; those beyond it are not.
const MAX_MEMORIES: usize = 1 << 16;

/// A range of addresses, read by the handler: no lock can be taken there.
struct Entry {
    /// Zero for an entry that is free.
    base: AtomicUsize,
    len: AtomicUsize,
    unreadable: AtomicBool,
}

static ENTRIES: [Entry; MAX_MEMORIES] = [const {
    Entry { base: AtomicUsize::new(0), len: AtomicUsize::new(0), unreadable: AtomicBool::new(false) }
}; MAX_MEMORIES];
/// Entries from here on have never been used.
static END: AtomicU32 = AtomicU32::new(0);
/// Entries below the end that are free.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// What was there before the handler; written once, before it is installed.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// A range of memory that is looked after, until it is released.
#[derive(Debug)]
pub(super) struct Watched {
    index: Option<u32>,
    released: AtomicBool,
    /// What was known when it was released.
    was_unreadable: AtomicBool,
}

impl Watched {
    /// Looks after `len` bytes from `base`, which images are mapped over.
    pub fn new(base: usize, len: usize) -> Self {
        install();
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.pop().or_else(|| {
            let end = END.load(Ordering::Relaxed);
            ((end as usize) < MAX_MEMORIES).then(|| {
                END.store(end + 1, Ordering::Release);
                end
            })
        });
        drop(free);
        if let Some(entry) = index.and_then(|index| ENTRIES.get(index as usize)) {
            entry.unreadable.store(false, Ordering::Relaxed);
            entry.len.store(len, Ordering::Relaxed);
            // the handler looks at the rest only when it finds this
            entry.base.store(base, Ordering::Release);
        }
        Self { index, released: AtomicBool::new(false), was_unreadable: AtomicBool::new(false) }
    }

    fn entry(&self) -> Option<&'static Entry> {
        self.index.and_then(|index| ENTRIES.get(index as usize))
    }

    /// Ends it: the range is going to be another's.
    pub fn release(&self) {
        let (Some(index), Some(entry)) = (self.index, self.entry()) else { return };
        if self.released.load(Ordering::Acquire) {
            return;
        }
        self.was_unreadable.store(entry.unreadable.load(Ordering::Acquire), Ordering::Release);
        if !self.released.swap(true, Ordering::AcqRel) {
            entry.base.store(0, Ordering::Release);
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(index);
        }
    }

    /// Whether the range may be another's.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Whether a page of it could not be read, so that what it holds, or held, is not what the image holds.
    pub fn is_unreadable(&self) -> bool {
        if self.released.load(Ordering::Acquire) {
            return self.was_unreadable.load(Ordering::Acquire);
        }
        self.entry().is_some_and(|entry| entry.unreadable.load(Ordering::Acquire))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.release();
    }
}

/// Installs the handler, once in a process.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the two structures are valid for these calls; nothing reads `BEFORE` before the handler is installed,
        // and nothing writes it after.
        let done = unsafe {
            let mut new: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
            new.sa_sigaction = handler as usize;
            // on the thread's signal stack, where it has one: a guest's stack may be nearly full
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut new.sa_mask);
            let before = (&raw mut BEFORE).cast::<libc::sigaction>();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), before) == 0
                && libc::sigaction(libc::SIGBUS, &raw const new, std::ptr::null_mut()) == 0
        };
        if !done {
            let error = std::io::Error::last_os_error();
            tracing::warn!(
                "no handler for SIGBUS: an image that cannot be read will end the process: {error}"
            );
        }
    });
}

/// Only what may be called in a signal handler: system calls and atomics.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure, and an address with this signal.
    let address = unsafe { (*info).si_addr() } as usize;
    let end = (END.load(Ordering::Acquire) as usize).min(MAX_MEMORIES);
    let found = ENTRIES[..end].iter().find(|entry| {
        let base = entry.base.load(Ordering::Acquire);
        let len = entry.len.load(Ordering::Acquire);
        // the same before and after: an entry that becomes another's meanwhile is none
        base != 0
            && address.checked_sub(base).is_some_and(|at| at < len)
            && entry.base.load(Ordering::Acquire) == base
    });
    if let Some(entry) = found
        && replace(address - address % PAGE)
    {
        entry.unreadable.store(true, Ordering::Release);
        return;
    }
    // SAFETY: it was written before this handler was installed.
    let before = unsafe { *(&raw const BEFORE).cast::<libc::sigaction>() };
    if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
        // the instruction is run again, and ends the process as it would have without this
        // SAFETY: a valid signal and disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the flag says that it is a function of this type.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it is a function of this type.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal);
    }
}

/// Puts a page of zeros at `page`.
fn replace(page: usize) -> bool {
    // SAFETY: the page lies in memory that is looked after, which is mapped, and its owner touches it now. errno is
    // the interrupted code's, and given back.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let mapped = libc::mmap(
            page as *mut _,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        *errno = before;
        mapped != libc::MAP_FAILED
    }
}
