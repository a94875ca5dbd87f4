//! The same components, as they are, on plain wasmtime with wasmtime-wasi.
//!
//! The settings are wasmtime's defaults: memories on demand, their first content copied on write
//! from a file that the module shares.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentType, InstancePre, Lift, Linker, Lower, TypedFunc};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi::p2::bindings::Command;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{FsPerms, ResourceTable, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

/// Places of the pooling allocator.
const POOL: u32 = 200;
/// Bytes of output that a command may print.
const MAX_OUTPUT: usize = 1 << 20;

/// What wasmtime-wasi keeps for an instance.
pub struct PeerState {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for PeerState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// Defines the functions that are not WASI's. (`define_unknown_imports_as_traps` would replace those
/// of WASI too, where the component asks for a newer 0.2.x than wasmtime-wasi has.)
fn trap_beside_wasi(linker: &mut Linker<PeerState>, component: &Component) -> anyhow::Result<()> {
    let engine = component.engine();
    for (name, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        if name.starts_with("wasi:") {
            continue;
        }
        let mut linker = linker.instance(name).map_err(anyhow::Error::from)?;
        for (function, export) in instance.exports(engine) {
            if matches!(export.ty, ComponentItem::ComponentFunc(_)) {
                let trap = || wasmtime::Error::msg("plain wasmtime has no such function");
                linker.func_new(function, move |_, _, _, _| Err(trap())).map_err(anyhow::Error::from)?;
            }
        }
    }
    Ok(())
}

/// An event, as an agent's `handle` takes it.
#[derive(ComponentType, Lower)]
#[component(record)]
struct PeerEvent {
    id: String,
    kind: String,
    payload: Vec<u8>,
}

/// What it answers.
#[derive(ComponentType, Lift)]
#[component(record)]
struct PeerReply {
    payload: Vec<u8>,
}

/// An agent's component that remembers what it has been told for as long as its process lives.
pub struct PeerAgent {
    store: Store<PeerState>,
    handle: TypedFunc<(PeerEvent,), (Result<PeerReply, String>,)>,
}

impl PeerAgent {
    /// Calls `handle`, which has to answer well.
    pub async fn turn(&mut self, text: &str) -> anyhow::Result<Vec<u8>> {
        let event = PeerEvent { id: text.into(), kind: "message".into(), payload: text.into() };
        let called = self.handle.call_async(&mut self.store, (event,)).await.map_err(anyhow::Error::from)?;
        called.0.map(|reply| reply.payload).map_err(|text| anyhow::anyhow!(text))
    }
}

/// A component, compiled and linked.
pub struct Peer {
    engine: Engine,
    linker: Linker<PeerState>,
    component: Component,
    pre: InstancePre<PeerState>,
}

impl Peer {
    /// Compiles a component. What it imports beside WASI traps when it is called.
    pub fn new(component: &[u8]) -> anyhow::Result<Self> {
        Self::on(Engine::default(), component)
    }

    /// As [`new`](Self::new), with wasmtime's pooling allocator: instances lie in places that were set aside.
    pub fn pooling(component: &[u8]) -> anyhow::Result<Self> {
        let mut pool = PoolingAllocationConfig::default();
        pool.total_core_instances(POOL)
            .total_component_instances(POOL)
            .total_memories(POOL)
            .total_tables(POOL);
        pool.table_elements(1 << 18).max_core_instance_size(16 << 20).max_component_instance_size(16 << 20);
        pool.max_memories_per_component(POOL).max_tables_per_component(POOL);
        pool.max_core_instances_per_component(POOL);
        let mut config = Config::new();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        Self::on(Engine::new(&config).map_err(anyhow::Error::from)?, component)
    }

    fn on(engine: Engine, component: &[u8]) -> anyhow::Result<Self> {
        let component = Component::new(&engine, component).map_err(anyhow::Error::from)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(anyhow::Error::from)?;
        trap_beside_wasi(&mut linker, &component)?;
        let pre = linker.instantiate_pre(&component).map_err(anyhow::Error::from)?;
        Ok(Self { engine, linker, component, pre })
    }

    /// Makes an instance: a WASI context, a store and the instance, which is gone with it.
    pub async fn keep(&self) -> anyhow::Result<Store<PeerState>> {
        let state = PeerState { wasi: WasiCtxBuilder::new().build(), table: ResourceTable::new() };
        let mut store = Store::new(&self.engine, state);
        let instance = self.pre.instantiate_async(&mut store).await.map_err(anyhow::Error::from)?;
        std::hint::black_box(instance);
        Ok(store)
    }

    /// Makes an instance of an agent's component, to take turns. What an agent finds as zones are folders in `folder`,
    /// and file calls are answered in the calling thread.
    pub async fn agent(&self, folder: &Path) -> anyhow::Result<PeerAgent> {
        let mut wasi = WasiCtxBuilder::new();
        wasi.allow_blocking_current_thread(true);
        for zone in ["memory/episodic", "memory/semantic", "memory/procedural", "workspace", "logs"] {
            let place = folder.join(zone);
            std::fs::create_dir_all(&place)?;
            wasi.preopened_dir(place, format!("/{zone}"), FsPerms::ReadWrite).map_err(anyhow::Error::from)?;
        }
        let state = PeerState { wasi: wasi.build(), table: ResourceTable::new() };
        let mut store = Store::new(&self.engine, state);
        let instance = self.pre.instantiate_async(&mut store).await.map_err(anyhow::Error::from)?;
        let handle = instance.get_typed_func(&mut store, "handle").map_err(anyhow::Error::from)?;
        Ok(PeerAgent { store, handle })
    }

    /// Makes an instance, and says how long that took.
    pub async fn instantiate(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let kept = self.keep().await?;
        let took = begun.elapsed();
        drop(kept);
        Ok(took)
    }

    /// Runs a command with `folder` as `/workspace`, and gives what it prints.
    ///
    /// `blocking` answers file calls in the calling thread, which wasmtime-wasi offers and does not
    /// do by default.
    pub async fn run(&self, args: &[String], folder: &Path, blocking: bool) -> anyhow::Result<String> {
        let output = MemoryOutputPipe::new(MAX_OUTPUT);
        let mut wasi = WasiCtxBuilder::new();
        wasi.allow_blocking_current_thread(blocking).args(args).stdout(output.clone()).inherit_stderr();
        wasi.preopened_dir(folder, "/workspace", FsPerms::ReadWrite).map_err(anyhow::Error::from)?;
        let mut store =
            Store::new(&self.engine, PeerState { wasi: wasi.build(), table: ResourceTable::new() });
        let command = Command::instantiate_async(&mut store, &self.component, &self.linker)
            .await
            .map_err(anyhow::Error::from)?;
        let status = command.wasi_cli_run().call_run(&mut store).await.map_err(anyhow::Error::from)?;
        status.ok().context("the command failed")?;
        Ok(String::from_utf8(output.contents().to_vec())?)
    }
}
