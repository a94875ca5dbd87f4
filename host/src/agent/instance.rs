//! A live instance.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Instance, InstancePre, TypedFunc};
use wasmtime::{Store, UpdateDeadline};

use super::AgentError;
use crate::code::{CpuTime, OutOfTime, SlotEngine};
use crate::component::{LOAD_ALL, LOAD_BLOCK, load_export, save_export};
use crate::image::{Image, ImageError, PAGE, Ready, SlotMemory, Small, with_memories};
use crate::wasi::{GuestState, MemoryLimits};

/// A wasmtime instance with the memories that are its own. Dropped, it gives them back.
pub(crate) struct Live {
    pub store: Store<GuestState>,
    pub instance: Instance,
    pub memories: Vec<Arc<SlotMemory>>,
    save: Vec<TypedFunc<(), ()>>,
    load: Vec<TypedFunc<(u64,), ()>>,
    /// The image that it was made ready for.
    ready: Option<Image>,
    /// The accessor's memory was copied in from that, and the globals were loaded from there.
    loaded: bool,
}

/// What an instance takes besides its memories, about: a fork of most agents takes less, one of the Python agent
/// ten times that (`docs/benchmarks.md`). Bytes.
const INSTANCE: u64 = 48 << 10;

fn instantiate(e: &wasmtime::Error) -> AgentError {
    if let Some(OutOfTime(limit)) = e.downcast_ref() {
        return AgentError::CpuTime(*limit);
    }
    AgentError::Instantiate(format!("{e:#}"))
}

impl Live {
    /// Makes an instance of `pre`. The restore variant runs none of the guest's code here.
    pub async fn new(
        pre: &InstancePre<GuestState>,
        engine: &SlotEngine,
        accessors: &[String],
        state: GuestState,
    ) -> Result<Self, AgentError> {
        let mut store = Store::new(&engine.engine, state);
        store.limiter(|state| &mut state.limits);
        store.set_epoch_deadline(1);
        let fair = engine.fair.clone();
        store.epoch_deadline_callback(move |mut guest| {
            Ok(UpdateDeadline::YieldCustom(1, guest.data_mut().cpu.tick(&fair)?))
        });
        let (instance, memories) = with_memories(pre.instantiate_async(&mut store)).await;
        let instance = instance.map_err(|e| match store.data().limits {
            MemoryLimits { refused: Some(needed), memory, .. } => {
                AgentError::MemoryLimit { needed: needed as u64, limit: memory as u64 }
            }
            _ => instantiate(&e),
        })?;
        let mut save = Vec::with_capacity(accessors.len());
        let mut load = Vec::with_capacity(accessors.len());
        for accessor in accessors {
            let made = instance.get_typed_func(&mut store, save_export(accessor));
            save.push(made.map_err(|e| instantiate(&e))?);
            let made = instance.get_typed_func(&mut store, load_export(accessor));
            load.push(made.map_err(|e| instantiate(&e))?);
        }
        store.data_mut().memories.clone_from(&memories);
        Ok(Self { store, instance, memories, save, load, ready: None, loaded: false })
    }

    /// Whether the memories are none larger than the image's: they never become smaller.
    pub fn fits(&self, image: &Image) -> bool {
        self.compare(image, |memory, image| memory <= image)
    }

    /// Whether the memories are as large as the image's.
    pub fn fits_exactly(&self, image: &Image) -> bool {
        self.compare(image, |memory, image| memory == image)
    }

    fn compare(&self, image: &Image, holds: impl Fn(u64, u64) -> bool) -> bool {
        let sizes = image.reference().memories();
        sizes.len() == self.memories.len()
            && self.memories.iter().zip(sizes).all(|(memory, size)| holds(memory.len() as u64, *size))
    }

    /// About what it takes by itself: pages that were written, when that was last looked at, the heap of its exceptions,
    /// and what goes with an instance. Bytes.
    pub fn private_bytes(&self) -> u64 {
        let written: u64 = self.memories.iter().map(|memory| (memory.written() * PAGE) as u64).sum();
        let tables = self.store.data().limits.tables as u64;
        INSTANCE + tables + written + self.store.gc_heap_capacity() as u64
    }

    /// Whether it was made ready for images that lie on the same file.
    pub fn is_ready_for(&self, image: &Image) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.lies_on_same_file(image)) && self.fits(image)
    }

    /// Brings a fresh instance of the restore variant to where `image` was taken.
    pub async fn restore(&mut self, image: &Image, state: GuestState) -> Result<(), AgentError> {
        let as_large = self.fits_exactly(image);
        // SAFETY: this instance is owned here, and no call of it is under way.
        let mask = unsafe { image.map_over(&self.memories, self.ready())? };
        self.surround(state)?;
        if as_large && mask == 0 {
            // sizes and globals are as they were loaded when the instance was made ready
            return Ok(());
        }
        self.load(mask).await?;
        if self.is_unreadable() { Err(AgentError::Image(image.unreadable())) } else { Ok(()) }
    }

    /// Puts it into other surroundings, as it stands.
    pub fn surround(&mut self, state: GuestState) -> Result<(), AgentError> {
        let tables = self.store.data().limits.tables;
        *self.store.data_mut() = state;
        self.store.data_mut().memories.clone_from(&self.memories);
        let used = self.memories.iter().map(|m| m.len()).sum::<usize>() + self.store.gc_heap_capacity();
        let limits = &mut self.store.data_mut().limits;
        (limits.used, limits.tables) = (used, tables);
        if let Some(needed) = limits.used.checked_add(tables).filter(|needed| *needed > limits.memory) {
            return Err(AgentError::MemoryLimit { needed: needed as u64, limit: limits.memory as u64 });
        }
        self.store.set_epoch_deadline(1);
        Ok(())
    }

    /// Whether it is known that a page of its memory could not be read, so that nothing it did may be committed.
    pub fn is_unreadable(&self) -> bool {
        self.memories.iter().any(|memory| memory.is_unreadable())
    }

    /// What is wrong with the image beneath it, as far as it was used: see [`SlotMemory::look`].
    pub fn look(&self) -> Option<ImageError> {
        self.memories.iter().find_map(|memory| memory.look())
    }

    fn ready(&self) -> Option<Ready<'_>> {
        let image = self.ready.as_ref()?;
        let loaded = self.accessor_memory().filter(|_| self.loaded);
        Some(Ready { image, small: loaded.map(|(memory, _)| Small { memory, block: LOAD_BLOCK }) })
    }

    /// Counts the processor time of a call, which may use `limit`.
    pub fn begin_call(&mut self, limit: Option<Duration>) -> Arc<CpuTime> {
        self.store.set_epoch_deadline(1);
        self.store.data_mut().cpu.begin(limit)
    }

    async fn load(&mut self, mask: u64) -> Result<(), AgentError> {
        for load in &self.load {
            load.call_async(&mut self.store, (mask,)).await.map_err(|e| instantiate(&e))?;
        }
        Ok(())
    }

    /// The memory of the accessor, where there is only one: it is made last.
    fn accessor_memory(&self) -> Option<(usize, &SlotMemory)> {
        let memory = self.memories.last().filter(|_| self.load.len() == 1)?;
        Some((self.memories.len() - 1, memory))
    }

    /// Does beforehand what a resume from an image that is like `image` would do: maps the file that it lies on, takes
    /// the faults of what will be copied in, makes the memories as large, and loads the globals, which seldom change.
    /// Memories never become smaller: it is of use for images that are no smaller.
    pub async fn make_ready(&mut self, image: &Image) -> Result<(), AgentError> {
        for (index, memory) in self.memories.iter().enumerate() {
            // SAFETY: this instance is owned here, and none of the guest's code has run.
            unsafe { memory.touch(image.copied(index)) };
        }
        if !self.fits(image) {
            return Ok(());
        }
        // SAFETY: the same.
        unsafe { image.map_base(&self.memories)? };
        self.ready = Some(image.clone());
        if let Some((index, memory)) = self.accessor_memory()
            // SAFETY: the same.
            && unsafe { image.copy_small(index, memory)? }
        {
            // the limits of whoever comes are his, and are looked at when he does
            let limits = &mut self.store.data_mut().limits;
            let tables = limits.tables;
            *limits = MemoryLimits::new(usize::MAX, usize::MAX);
            limits.tables = tables;
            self.load(LOAD_ALL).await?;
            self.loaded = true;
        }
        Ok(())
    }

    /// Copies the globals to where an image finds them, and forgets what no image has. Call it before an image is
    /// taken.
    pub async fn save(&mut self) -> Result<(), AgentError> {
        self.store.data_mut().forget_listing();
        self.store.set_epoch_deadline(1);
        for save in &self.save {
            save.call_async(&mut self.store, ()).await.map_err(|e| instantiate(&e))?;
        }
        Ok(())
    }
}
