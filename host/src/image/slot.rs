//! Slots: recyclable address space for linear memories.
//!
//! wasmtime asks a [`wasmtime::MemoryCreator`] for linear memories. [`Slots`] is one whose memories
//! lie in ranges of address space that are kept and used again, and over which an image can be
//! mapped (`MAP_PRIVATE | MAP_FIXED`) while the instance that owns the memory stands still.
//!
//! `Config::memory_init_cow(false)` is mandatory with it, and the pooling allocator ignores it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use super::dirty;
use super::fault::Watched;
use super::store::FlatFile;
use super::{ImageError, PAGE, map_hint};

/// Ranges that are kept for use again, at most; what is over is given back to the system.
const MAX_FREE: usize = 4096;

/// Memories of at most this many bytes are taken to be small: one WebAssembly page.
pub(super) const SMALL_MEMORY: usize = 64 << 10;
/// An image of a small memory is copied in, instead of being mapped, where no more than so many bytes
/// of it are not zero. A mapping and its first fault cost as much as copying this a few times.
pub(super) const SMALL_CONTENT: usize = 4 * PAGE;

const NOT_COPIED: usize = usize::MAX;

/// One linear memory: a range of reserved address space of which a prefix can be read and written.
///
/// The memory belongs to one instance. Whoever maps over it or reads it must own that instance and
/// must not be inside a call of it.
#[derive(Debug)]
pub struct SlotMemory {
    base: usize,
    /// Bytes that the memory may grow to.
    capacity: usize,
    /// Bytes of the range, guard included.
    reserved: usize,
    /// What the guest sees as the memory's size, in bytes.
    size: AtomicUsize,
    /// Bytes from `base` that can be accessed; at least `size`.
    accessible: AtomicUsize,
    /// Bytes that were copied in, instead of being mapped under, or [`NOT_COPIED`].
    copied: AtomicUsize,
    /// Bytes from `base` under which a file is mapped.
    mapped: AtomicUsize,
    /// Pages that were given a copy of their own before anybody wrote to them, in order.
    populated: Mutex<Vec<std::ops::Range<usize>>>,
    /// Pages that had been written when that was last looked at.
    written: AtomicUsize,
    watched: Watched,
    /// What lies beneath it, or was copied in.
    under: Mutex<Option<Under>>,
    /// What is wrong with a page of that file which was used.
    wrong: OnceLock<String>,
}

/// A memory of a flat file, with what an image laid over it.
#[derive(Clone, Debug)]
struct Under {
    file: Arc<FlatFile>,
    memory: usize,
    /// Pages of which nothing of the file was left, in order.
    laid: Arc<[std::ops::Range<usize>]>,
}

impl SlotMemory {
    /// The memory's size as the guest sees it, in bytes.
    pub fn len(&self) -> usize {
        self.size.load(Ordering::Acquire)
    }

    /// Whether the memory has no pages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is known that a page of the image that is mapped here could not be read, or was not what it had been:
    /// what the memory holds is not to be relied on, and nothing may be committed of what was done with it.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.watched.is_unreadable() || self.wrong.get().is_some()
    }

    /// Notes that a memory of `file`, by index, lies beneath it, or was copied in, and that pages are laid over that, in
    /// order.
    pub(super) fn lies_on(
        &self,
        file: &Arc<FlatFile>,
        memory: usize,
        laid: impl Iterator<Item = std::ops::Range<usize>>,
    ) {
        *lock(&self.under) = Some(Under { file: file.clone(), memory, laid: laid.collect() });
    }

    /// What is wrong with the file beneath, where a page of it could not be read, or one that was used is not what it
    /// had been. Pages that have not been looked at are read for that: it may wait for the disk.
    ///
    /// No guest code may run on the memory meanwhile: what it uses then is not looked at.
    pub(crate) fn look(&self) -> Option<ImageError> {
        let under = lock(&self.under).clone();
        let Under { file, memory, laid } = under?;
        if !self.is_unreadable() && !self.watched.is_released() {
            let pages = if self.was_copied() {
                let pages = file.header.memories.get(memory).map_or(0, |it| it.len as usize / PAGE);
                std::iter::once(0..pages).collect()
            } else {
                dirty::used(self, self.mapped.load(Ordering::Acquire))
            };
            match file.check_once(memory, &pages, &laid) {
                Ok(()) => {}
                Err(ImageError::Damaged { reason, .. }) => drop(self.wrong.set(reason)),
                Err(e) => drop(self.wrong.set(zone_vfs::told(&e))),
            }
        }
        let reason = match self.wrong.get() {
            Some(reason) => reason.clone(),
            None if self.watched.is_unreadable() => "a page of it could not be read".into(),
            None => return None,
        };
        Some(ImageError::Damaged { file: file.name.to_string(), reason })
    }

    /// Pages that had been written when that was last looked at.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// Notes how many pages have been written.
    pub(super) fn note_written(&self, pages: usize) {
        self.written.store(pages, Ordering::Relaxed);
    }

    /// Bytes that the memory may grow to.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The address at which it begins.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// The memory's bytes.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory while the slice lives.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: `size` bytes from `base` are mapped readable (an invariant of this type), and the
        // caller promises that nothing writes to them.
        unsafe { std::slice::from_raw_parts(self.base as *const u8, self.len()) }
    }

    /// Page `page`, to be written.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory while it is used, and nobody else may use the page.
    pub(crate) unsafe fn page_mut(&self, page: usize) -> *mut [u8; PAGE] {
        // the guest sees the size only once the accessor has grown the memory
        assert!((page + 1) * PAGE <= self.accessible.load(Ordering::Acquire), "page outside the memory");
        (self.base + page * PAGE) as *mut [u8; PAGE]
    }

    /// Maps `len` bytes of `file` from `offset` over the start of the memory, copy on write, and
    /// makes `size` bytes accessible, of which those after `len` read as zeros.
    ///
    /// The guest learns of the size by the accessor's `memory.grow`, which finds it done.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory meanwhile.
    pub(super) unsafe fn map(
        &self,
        file: Option<BorrowedFd<'_>>,
        offset: u64,
        len: usize,
        size: usize,
    ) -> Result<(), ImageError> {
        assert!(len <= size && size <= self.capacity, "an image larger than the memory's capacity");
        let len = if file.is_some() { len } else { 0 };
        if let (Some(file), true) = (file, len > 0) {
            // SAFETY: the range lies inside this slot's reservation and belongs to it alone.
            unsafe {
                rustix::mm::mmap(
                    self.base as *mut _,
                    len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                    file,
                    offset,
                )
            }
            .map_err(|e| ImageError::Map(e.into()))?;
            self.accessible.fetch_max(len, Ordering::AcqRel);
        }
        let before = self.mapped.swap(len, Ordering::AcqRel);
        if before > len {
            // SAFETY: the caller's promise; the range was mapped here before.
            unsafe { self.zero(len, before)? };
        }
        self.reach(size).map_err(ImageError::Map)
    }

    /// As [`map`](Self::map), where just this part of the file has been mapped before and nobody has written to it.
    pub(super) fn keep_mapped(&self, size: usize) -> Result<(), ImageError> {
        assert!(size <= self.capacity, "an image larger than the memory's capacity");
        self.reach(size).map_err(ImageError::Map)
    }

    /// Makes `size` bytes accessible.
    fn reach(&self, size: usize) -> std::io::Result<()> {
        let accessible = self.accessible.load(Ordering::Acquire);
        if size > accessible {
            self.make_accessible(accessible, size)?;
            self.accessible.store(size, Ordering::Release);
        }
        Ok(())
    }

    /// Puts zeros in the place of what is mapped from `from` to `to`.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory meanwhile, and the range must be accessible.
    unsafe fn zero(&self, from: usize, to: usize) -> Result<(), ImageError> {
        // SAFETY: the range lies inside this slot's reservation; the caller promises that nobody looks at it.
        unsafe {
            rustix::mm::mmap_anonymous(
                (self.base + from) as *mut _,
                to - from,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        }
        .map(|_| ())
        .map_err(|e| ImageError::Map(e.into()))
    }

    /// Gives the pages from `page` on copies of their own, before they are written to: many at once cost less than a fault
    /// for each. What they hold stays, and they count as written from now on.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory meanwhile.
    pub(super) unsafe fn populate(&self, page: usize, count: usize) -> std::io::Result<()> {
        let end = (self.len() / PAGE).min(page.saturating_add(count));
        if page >= end {
            return Ok(());
        }
        // SAFETY: the range is accessible memory of this slot; its content stays.
        unsafe {
            rustix::mm::madvise(
                (self.base + page * PAGE) as *mut _,
                (end - page) * PAGE,
                rustix::mm::Advice::LinuxPopulateWrite,
            )
        }?;
        lock(&self.populated).push(page..end);
        Ok(())
    }

    /// The pages that were [populated](Self::populate), in order.
    pub(super) fn populated(&self) -> std::sync::MutexGuard<'_, Vec<std::ops::Range<usize>>> {
        lock(&self.populated)
    }

    /// Copies `content` to the start of the memory, of which nothing else was written, and makes `size` bytes
    /// accessible. For an image of so few bytes that a mapping costs more.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory meanwhile.
    pub(super) unsafe fn copy_in(&self, content: &[u8], size: usize) -> Result<(), ImageError> {
        assert!(content.len() <= size && size <= self.capacity, "an image larger than the memory's capacity");
        let mapped = self.mapped.swap(0, Ordering::AcqRel);
        if mapped > 0 {
            // SAFETY: the caller's promise; the range was mapped here before.
            unsafe { self.zero(0, mapped)? };
        }
        self.reach(size).map_err(ImageError::Map)?;
        // SAFETY: at least `size` bytes from `base` are mapped writable, and the caller promises that
        // nobody else looks at them.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.base as *mut u8, content.len()) };
        let before = self.copied.swap(content.len(), Ordering::AcqRel);
        if before != NOT_COPIED && before > content.len() {
            let rest = before - content.len();
            // SAFETY: what was copied in before lies inside the accessible prefix.
            unsafe { std::ptr::write_bytes((self.base + content.len()) as *mut u8, 0, rest) };
        }
        Ok(())
    }

    /// Copies in what differs between `before`, which was copied in last, and `content`. Says which blocks
    /// of `block` bytes differ, the last bit for all from the 64th on. Touches no other block.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory meanwhile.
    pub(super) unsafe fn copy_differing(
        &self,
        before: &[u8],
        content: &[u8],
        size: usize,
        block: usize,
    ) -> u64 {
        let end = before.len().max(content.len());
        assert!(self.copied.load(Ordering::Acquire) == before.len(), "another image was made ready");
        assert!(end <= size && size == self.len(), "an image of another size");
        let mut differing = 0;
        for (index, at) in (0..end).step_by(block).enumerate() {
            let old = before.get(at..end.min(at + block)).or(before.get(at..)).unwrap_or_default();
            let new = content.get(at..end.min(at + block)).or(content.get(at..)).unwrap_or_default();
            let same = old.len().min(new.len());
            let longer = if old.len() > same { &old[same..] } else { &new[same..] };
            if old[..same] == new[..same] && longer.iter().all(|b| *b == 0) {
                continue;
            }
            differing |= 1 << index.min(63);
            // SAFETY: `old` and `new` end inside the memory, which is mapped writable, and the caller
            // promises that nobody else looks at it.
            unsafe {
                let to = (self.base + at) as *mut u8;
                std::ptr::copy_nonoverlapping(new.as_ptr(), to, new.len());
                std::ptr::write_bytes(to.add(new.len()), 0, old.len().saturating_sub(new.len()));
            }
        }
        self.copied.store(content.len(), Ordering::Release);
        differing
    }

    /// Whether an image was copied in, so that every page of it counts as written.
    pub(super) fn was_copied(&self) -> bool {
        self.copied.load(Ordering::Acquire) != NOT_COPIED
    }

    /// Takes the faults of the first `len` bytes now, where an image is going to be copied in. They are
    /// zeros before and after.
    ///
    /// # Safety
    ///
    /// No guest code may run on the memory meanwhile, and none has run.
    pub(crate) unsafe fn touch(&self, len: usize) {
        for at in (0..len.min(self.len())).step_by(PAGE) {
            // SAFETY: the byte is inside the accessible prefix; the caller promises the rest.
            unsafe { std::ptr::write_volatile((self.base + at) as *mut u8, 0) };
        }
    }

    fn make_accessible(&self, from: usize, to: usize) -> std::io::Result<()> {
        // SAFETY: the range lies inside this slot's reservation, which is mapped.
        unsafe {
            rustix::mm::mprotect(
                (self.base + from) as *mut _,
                to - from,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .map_err(Into::into)
    }

    fn grow(&self, size: usize) -> std::io::Result<()> {
        if size > self.capacity {
            return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
        }
        self.reach(size)?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }
}

/// Address space for linear memories, and the creator that wasmtime asks for them.
#[derive(Debug, Default)]
pub struct Slots {
    free: Mutex<Vec<Range>>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    base: usize,
    reserved: usize,
}

impl Slots {
    fn range(&self, reserved: usize) -> std::io::Result<Range> {
        let mut free = lock(&self.free);
        if let Some(at) = free.iter().rposition(|r| r.reserved == reserved) {
            return Ok(free.swap_remove(at));
        }
        drop(free);
        // SAFETY: a new anonymous mapping that replaces none.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Range { base: base as usize, reserved })
    }

    fn give_back(&self, memory: &SlotMemory) {
        memory.watched.release();
        let range = Range { base: memory.base, reserved: memory.reserved };
        let accessible = memory.accessible.load(Ordering::Acquire);
        // SAFETY: the range is this memory's own, and its instance is gone.
        let emptied = accessible == 0
            || unsafe {
                rustix::mm::mmap_anonymous(
                    range.base as *mut _,
                    accessible,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                )
            }
            .is_ok();
        let mut free = lock(&self.free);
        if emptied && free.len() < MAX_FREE {
            free.push(range);
        } else {
            drop(free);
            unmap(range);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for range in lock(&self.free).drain(..) {
            unmap(range);
        }
    }
}

fn unmap(range: Range) {
    // SAFETY: nothing refers to the range any more.
    if let Err(e) = unsafe { rustix::mm::munmap(range.base as *mut _, range.reserved) } {
        tracing::warn!("giving back {} bytes of address space: {e}", range.reserved);
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Bytes to which the heap of a store's exceptions grows at most. wasmtime asks for its memory as for a guest's, and
/// nothing but the size that it reserves tells them apart: linear memories reserve more.
pub(crate) const EXCEPTION_HEAP: usize = 64 << 20;

/// The creator that is given to `Config::with_host_memory`.
#[derive(Debug)]
pub(crate) struct Creator(pub(crate) Arc<Slots>);

struct Memory {
    slot: Arc<SlotMemory>,
    slots: Arc<Slots>,
}

// SAFETY: the memory is zero-filled (fresh or remapped), reserves what was asked for, never moves,
// and everything after the accessible prefix, guard included, has no access rights.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        if ty.is_shared() {
            return Err("shared memory cannot be captured in an image".into());
        }
        let capacity = reserved.ok_or("this memory has no bound on its size")?;
        let range = self
            .0
            .range(capacity + guard)
            .map_err(|e| format!("reserving {capacity} bytes of address space{}: {e}", map_hint(&e)))?;
        let slot = Arc::new(SlotMemory {
            base: range.base,
            capacity,
            reserved: range.reserved,
            size: AtomicUsize::new(0),
            accessible: AtomicUsize::new(0),
            copied: AtomicUsize::new(NOT_COPIED),
            mapped: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            populated: Mutex::default(),
            watched: Watched::new(range.base, capacity),
            under: Mutex::default(),
            wrong: OnceLock::new(),
        });
        if let Err(e) = slot.grow(minimum) {
            self.0.give_back(&slot);
            return Err(format!("making {minimum} bytes of memory accessible{}: {e}", map_hint(&e)));
        }
        // no exception outlives a turn: no image has anything of it
        if capacity != EXCEPTION_HEAP {
            super::made::note(&slot);
        }
        Ok(Box::new(Memory { slot, slots: self.0.clone() }))
    }
}

// SAFETY: `base` never moves, `size` bytes from it are accessible.
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.slot.len()
    }

    fn byte_capacity(&self) -> usize {
        self.slot.capacity
    }

    fn grow_to(&mut self, size: usize) -> wasmtime::Result<()> {
        self.slot.grow(size).map_err(wasmtime::Error::from)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.slot.base as *mut u8
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.slots.give_back(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_blocks_that_differ_are_copied_and_told() {
        const BLOCK: usize = 512;
        let slots = Arc::new(Slots::default());
        let creator = Creator(slots.clone());
        let size = SMALL_MEMORY;
        let ty = MemoryType::new(1, Some(1));
        let made = async { creator.new_memory(ty, size, Some(size), Some(size), PAGE).unwrap() };
        let (_owner, mut memories) = crate::image::with_memories(made).await;
        let memory = memories.pop().unwrap();
        let mut before: Vec<u8> = Vec::new();
        // SAFETY: no guest runs here.
        unsafe { memory.copy_in(&before, size).unwrap() };
        let contents: [(Vec<u8>, u64); 6] = [
            (vec![1; 1300], 0b111),
            (vec![1; 1300], 0),
            ([vec![1; 600], vec![2; 1], vec![1; 699]].concat(), 0b10),
            (vec![1; 600], 0b110),
            (vec![], 0b11),
            (vec![7; 16 << 10], u64::from(u32::MAX)),
        ];
        for (content, blocks) in contents {
            // SAFETY: no guest runs here.
            let told = unsafe { memory.copy_differing(&before, &content, size, BLOCK) };
            assert_eq!(told, blocks);
            // SAFETY: the same.
            let bytes = unsafe { memory.bytes() };
            assert_eq!(bytes[..content.len()], content);
            assert!(bytes[content.len()..].iter().all(|b| *b == 0));
            before = content;
        }
    }
}
