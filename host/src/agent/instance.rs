//! A live instance.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre, TypedFunc};

use super::AgentError;
use crate::code::SlotEngine;
use crate::component::{load_export, save_export};
use crate::image::{Image, SlotMemory};
use crate::wasi::GuestState;

/// A wasmtime instance with the memories that are its own. Dropped, it gives them back.
pub(crate) struct Live {
    pub store: Store<GuestState>,
    pub instance: Instance,
    pub memories: Vec<Arc<SlotMemory>>,
    save: Vec<TypedFunc<(), ()>>,
    load: Vec<TypedFunc<(), ()>>,
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
            for (name, functions) in [(save_export(accessor), &mut save), (load_export(accessor), &mut load)]
            {
                functions.push(instance.get_typed_func(&mut store, &name).map_err(|e| instantiate(&e))?);
            }
        }
        Ok(Self { store, instance, memories, save, load })
    }

    /// Brings a fresh instance of the restore variant to where `image` was taken.
    pub async fn restore(&mut self, image: &Image, state: GuestState) -> Result<(), AgentError> {
        // SAFETY: this instance is owned here, and no call of it is under way.
        unsafe { image.map_over(&self.memories)? };
        *self.store.data_mut() = state;
        self.store.data_mut().limits.used = self.memories.iter().map(|m| m.len()).sum();
        self.store.set_epoch_deadline(1);
        for load in &self.load {
            load.call_async(&mut self.store, ()).await.map_err(|e| instantiate(&e))?;
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
