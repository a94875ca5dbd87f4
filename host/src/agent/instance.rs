//! A live instance.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre, TypedFunc};

use super::AgentError;
use crate::code::SlotEngine;
use crate::component::{LOAD_ALL, LOAD_BLOCK, load_export, save_export};
use crate::image::{Image, Ready, SlotMemory};
use crate::wasi::GuestState;

/// A wasmtime instance with the memories that are its own. Dropped, it gives them back.
pub(crate) struct Live {
    pub store: Store<GuestState>,
    pub instance: Instance,
    pub memories: Vec<Arc<SlotMemory>>,
    save: Vec<TypedFunc<(), ()>>,
    load: Vec<TypedFunc<(u64,), ()>>,
    /// The image from which the globals were loaded when the instance was made ready.
    loaded: Option<Image>,
}

fn instantiate(e: &wasmtime::Error) -> AgentError {
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
        store.epoch_deadline_async_yield_and_update(1);
        let (instance, memories) = {
            let _alone = engine.instantiating.lock().await;
            let instance = pre.instantiate_async(&mut store).await;
            let memories = engine.slots.take_made();
            (instance.map_err(|e| instantiate(&e))?, memories)
        };
        let mut save = Vec::with_capacity(accessors.len());
        let mut load = Vec::with_capacity(accessors.len());
        for accessor in accessors {
            let made = instance.get_typed_func(&mut store, save_export(accessor));
            save.push(made.map_err(|e| instantiate(&e))?);
            let made = instance.get_typed_func(&mut store, load_export(accessor));
            load.push(made.map_err(|e| instantiate(&e))?);
        }
        Ok(Self { store, instance, memories, save, load, loaded: None })
    }

    /// Brings a fresh instance of the restore variant to where `image` was taken.
    pub async fn restore(&mut self, image: &Image, state: GuestState) -> Result<(), AgentError> {
        // SAFETY: this instance is owned here, and no call of it is under way.
        let mask = unsafe { image.map_over(&self.memories, self.ready())? };
        *self.store.data_mut() = state;
        self.store.data_mut().limits.used = self.memories.iter().map(|m| m.len()).sum();
        self.store.set_epoch_deadline(1);
        self.load(mask).await
    }

    fn ready(&self) -> Option<Ready<'_>> {
        let (memory, _) = self.accessor_memory()?;
        Some(Ready { image: self.loaded.as_ref()?, memory, block: LOAD_BLOCK })
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

    /// Does beforehand what a resume from an image that is near `genesis` would do: takes the faults of
    /// what will be copied in, and loads the globals, which seldom change. Only for a genesis image
    /// that every agent of the component begins with, since memories never become smaller.
    pub async fn make_ready(&mut self, genesis: &Image) -> Result<(), AgentError> {
        let Some((index, memory)) = self.accessor_memory() else { return Ok(()) };
        // SAFETY: this instance is owned here, and no call of it is under way.
        if unsafe { genesis.copy_small(index, memory)? } {
            self.load(LOAD_ALL).await?;
            self.loaded = Some(genesis.clone());
        }
        Ok(())
    }

    /// Copies the globals to where an image finds them. Call it before an image is taken.
    pub async fn save(&mut self) -> Result<(), AgentError> {
        self.store.set_epoch_deadline(1);
        for save in &self.save {
            save.call_async(&mut self.store, ()).await.map_err(|e| instantiate(&e))?;
        }
        Ok(())
    }
}
