//! Which pages of a memory have been written since an image was mapped under it.
//!
//! In a private file mapping, a page that is present (or swapped out) and not file-backed is a copy
//! that a write has made. Linux (6.7 and later) tells by the `PAGEMAP_SCAN` ioctl of
//! `/proc/self/pagemap`, at no cost while the guest runs. Where it is missing, every page is
//! compared with the image: right, and slower.
//! Source: Linux, Documentation/admin-guide/mm/pagemap.rst.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use super::PAGE;
use super::slot::SlotMemory;

/// How written pages are found on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyTracking {
    /// By `PAGEMAP_SCAN`.
    PagemapScan,
    /// By comparing every page with the image.
    Comparison,
}

impl DirtyTracking {
    /// What this machine offers.
    pub fn here() -> Self {
        static HERE: OnceLock<DirtyTracking> = OnceLock::new();
        *HERE.get_or_init(|| {
            let probe = [0u8; 1];
            let page = probe.as_ptr() as usize & !(PAGE - 1);
            let fault = match pagemap() {
                Err(e) => format!("{PAGEMAP} cannot be opened ({e})"),
                Ok(file) => match scan(file, page, PAGE, Wanted::Written, &mut Vec::new()) {
                    Ok(_) => return Self::PagemapScan,
                    Err(e) if is_unknown(&e) => format!("PAGEMAP_SCAN is missing ({e})"),
                    Err(e) => format!("PAGEMAP_SCAN failed ({e})"),
                },
            };
            tracing::warn!("{fault}: images are taken by comparing every page");
            Self::Comparison
        })
    }
}

/// Whether a kernel says so of a call that it does not know.
fn is_unknown(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS))
}

const PAGEMAP: &str = "/proc/self/pagemap";
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
/// Regions fetched by one call.
const REGIONS: usize = 512;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of Linux.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

fn pagemap() -> std::io::Result<&'static File> {
    static FILE: OnceLock<std::io::Result<File>> = OnceLock::new();
    FILE.get_or_init(|| File::open(PAGEMAP))
        .as_ref()
        .map_err(|e| e.raw_os_error().map_or_else(|| e.kind().into(), std::io::Error::from_raw_os_error))
}

/// Which pages are looked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// Those that are private copies.
    Written,
    /// These, and those of the file that are mapped: what somebody can have read.
    Used,
}

/// Appends the ranges of bytes, relative to `base`, that are present or swapped, and private where those are `wanted`. Gives
/// how many of the bytes are private.
fn scan(
    file: &File,
    base: usize,
    len: usize,
    wanted: Wanted,
    out: &mut Vec<std::ops::Range<usize>>,
) -> std::io::Result<usize> {
    let inverted = match wanted {
        Wanted::Written => PAGE_IS_FILE,
        Wanted::Used => 0,
    };
    let mut private = 0;
    let end = (base + len) as u64;
    let mut start = base as u64;
    let mut regions = [PageRegion::default(); REGIONS];
    while start < end {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            // not file-backed (required and inverted) where only written ones are wanted, and present or swapped
            category_inverted: inverted,
            category_mask: inverted,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            // the file's come apart from the others
            return_mask: PAGE_IS_FILE,
            ..ScanArgument::default()
        };
        // SAFETY: the argument and the vector it points to live through the call and have the
        // sizes that it states.
        let found = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        if found < 0 {
            return Err(std::io::Error::last_os_error());
        }
        for region in &regions[..found as usize] {
            let (from, to) = (region.start as usize - base, region.end as usize - base);
            if region.categories & PAGE_IS_FILE == 0 {
                private += to - from;
            }
            match out.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => out.push(from..to),
            }
        }
        if argument.walk_end <= start {
            return Err(std::io::Error::other("PAGEMAP_SCAN made no progress"));
        }
        start = argument.walk_end;
    }
    Ok(private)
}

/// The pages of `memory` that may differ from what was mapped under it, in order: exactly the
/// written ones by `PAGEMAP_SCAN`, all of them where that is missing.
pub(super) fn candidates(
    memory: &SlotMemory,
    tracking: DirtyTracking,
) -> std::io::Result<Vec<std::ops::Range<usize>>> {
    let mut ranges = Vec::new();
    match tracking {
        DirtyTracking::PagemapScan => {
            scan(pagemap()?, memory.base(), memory.len(), Wanted::Written, &mut ranges)?;
        }
        DirtyTracking::Comparison => ranges.push(0..memory.len()),
    }
    in_pages(&mut ranges);
    memory.note_written(ranges.iter().map(std::ops::Range::len).sum());
    Ok(ranges)
}

/// The pages among the first `len` bytes of `memory` that somebody can have read or written, in order: all of them
/// where the system does not tell. A page that nobody wrote to and that the system has taken back since is none. On the way
/// it counts the pages that were written, of the whole memory.
pub(super) fn used(memory: &SlotMemory, len: usize) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let found = match DirtyTracking::here() {
        DirtyTracking::PagemapScan => {
            let whole = memory.len().max(len);
            pagemap().and_then(|file| scan(file, memory.base(), whole, Wanted::Used, &mut ranges))
        }
        DirtyTracking::Comparison => Err(std::io::ErrorKind::Unsupported.into()),
    };
    memory.note_written(*found.as_ref().unwrap_or(&memory.len()) / PAGE);
    if found.is_err() {
        ranges.clear();
        ranges.push(0..len);
    }
    ranges.retain_mut(|range| {
        range.end = range.end.min(len);
        range.start < range.end
    });
    in_pages(&mut ranges);
    ranges
}

fn in_pages(ranges: &mut [std::ops::Range<usize>]) {
    for range in ranges {
        *range = range.start / PAGE..range.end / PAGE;
    }
}
