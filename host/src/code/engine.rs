//! The engines: how components are compiled and how their memories are made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use wasmtime::{Collector, Config, Engine, OptLevel};

use super::schedule::Fair;
use crate::component::Variant;
use crate::image::{Creator, EXCEPTION_HEAP, Slots};

/// How often a guest that computes gives way to others.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Bytes of a guest's stack.
const GUEST_STACK: usize = 1 << 20;
/// Bytes of the stack that guest and host calls run on.
const FIBER_STACK: usize = GUEST_STACK + (1 << 20);

/// Bytes without access behind the heap of a store's exceptions.
const GUARD: u64 = 64 << 10;

/// The settings of a variant's engine. The boot variant runs once, so that it is compiled fast; the
/// restore variant is compiled to run fast. Results do not depend on the machine: NaNs are canonical
/// and relaxed SIMD is deterministic, for replay.
pub(crate) fn config(variant: Variant) -> Config {
    let mut config = Config::new();
    exceptions(&mut config);
    config
        .memory_init_cow(false)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .max_wasm_stack(GUEST_STACK)
        .async_stack_size(FIBER_STACK)
        .cranelift_opt_level(match variant {
            Variant::Boot => OptLevel::None,
            Variant::Restore => OptLevel::Speed,
        });
    config
}

/// Exceptions, and of all that lives on the heap of a garbage collector nothing else. A store gets such a heap when a
/// module that throws or catches by reference is instantiated in it, and at no other time. No object can hold one that is
/// younger, so that counting references finds all that nobody holds.
fn exceptions(config: &mut Config) {
    config
        .wasm_exceptions(true)
        .wasm_gc(false)
        .wasm_function_references(false)
        .collector(Collector::DeferredReferenceCounting)
        .gc_heap_reservation(EXCEPTION_HEAP as u64)
        .gc_heap_guard_size(GUARD)
        .gc_heap_may_move(false);
}

/// The same results from wasmtime as it is without Dormouse: no slots, no epochs.
#[cfg(test)]
pub(crate) fn plain_config() -> Config {
    let mut config = Config::new();
    exceptions(&mut config);
    config.cranelift_nan_canonicalization(true).relaxed_simd_deterministic(true).max_wasm_stack(GUEST_STACK);
    config
}

/// An engine whose linear memories lie in slots.
#[derive(Clone)]
pub(crate) struct SlotEngine {
    pub engine: Engine,
    pub fair: Arc<Fair>,
}

impl SlotEngine {
    /// Its guests share the processor by `fair`.
    pub fn new(variant: Variant, fair: Arc<Fair>) -> wasmtime::Result<Self> {
        let mut config = config(variant);
        config.with_host_memory(Arc::new(Creator(Arc::new(Slots::default()))));
        Ok(Self { engine: Engine::new(&config)?, fair })
    }
}

/// Advances the engines' epoch, so that guests that compute give way and can be stopped; the next tick of `fair`
/// begins with it.
pub(crate) struct Ticker {
    stop: Arc<AtomicBool>,
}

impl Ticker {
    pub fn start(engines: Vec<wasmtime::EngineWeak>, fair: Arc<Fair>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped: Weak<AtomicBool> = Arc::downgrade(&stop);
        std::thread::Builder::new().name("dormouse-epoch".into()).spawn(move || {
            while stopped.upgrade().is_some_and(|s| !s.load(Ordering::Relaxed)) {
                std::thread::sleep(TICK);
                fair.tick();
                for engine in engines.iter().filter_map(wasmtime::EngineWeak::upgrade) {
                    engine.increment_epoch();
                }
            }
        })?;
        Ok(Self { stop })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
