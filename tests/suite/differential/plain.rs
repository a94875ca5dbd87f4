//! Plain wasmtime with wasmtime-wasi, as the reference: components run there as their toolchains made them.

use std::path::Path;
use std::process::Command;

use dormouse::component::{BinaryKind, scan, wrap_core_module};
use tempfile::TempDir;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Instance, Linker, Val};
use wasmtime::{Config, Engine, OptLevel, Store};
use wasmtime_wasi::p2::bindings::sync::Command as Runs;
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{FsPerms, I32Exit, ResourceTable, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

/// Where zones are mounted, which are plain folders here.
const FOLDERS: [&str; 5] =
    ["/logs", "/memory/episodic", "/memory/procedural", "/memory/semantic", "/workspace"];
/// Bytes of each output that are kept.
const MAX_OUTPUT: usize = 16 << 20;
/// The status of a process that aborts, as `dormouse run` has it for a trap.
const TRAPPED: i32 = 134;
const LIFECYCLE: &str = "dormouse:agent/lifecycle@0.1.0";

struct State {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// What came of a run, there or here.
pub struct Outcome {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A component with folders of its own.
pub struct Plain {
    engine: Engine,
    component: Component,
    linker: Linker<State>,
    folder: TempDir,
    name: String,
}

impl Plain {
    /// Compiles a component, or a core module of preview 1.
    pub fn new(path: &Path) -> Self {
        let mut wasm = std::fs::read(path).expect("a guest's file");
        if scan(&wasm).expect("a guest").kind == BinaryKind::CoreModule {
            wasm = wrap_core_module(&wasm).expect("a module of preview 1");
        }
        let mut config = Config::new();
        config.cranelift_opt_level(OptLevel::None);
        let engine = Engine::new(&config).expect("an engine");
        let component = Component::new(&engine, wasm).expect("a component that wasmtime runs");
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_sync(&mut linker).expect("WASI");
        link_others(&mut linker, &component);
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in FOLDERS {
            std::fs::create_dir_all(folder.path().join(&name[1..])).expect("a folder for a zone");
        }
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        Self { engine, component, linker, folder, name }
    }

    fn store(
        &self,
        args: &[&str],
        input: &[u8],
        out: &MemoryOutputPipe,
        err: &MemoryOutputPipe,
    ) -> Store<State> {
        let mut wasi = WasiCtxBuilder::new();
        wasi.arg(&self.name).args(args).stdin(MemoryInputPipe::new(input.to_vec()));
        wasi.stdout(out.clone()).stderr(err.clone());
        for name in FOLDERS {
            wasi.preopened_dir(self.folder.path().join(&name[1..]), name, FsPerms::ReadWrite)
                .expect("a folder for a zone");
        }
        Store::new(&self.engine, State { wasi: wasi.build(), table: ResourceTable::new() })
    }

    /// Runs it as a command.
    pub fn run(&self, args: &[&str], input: &[u8]) -> Outcome {
        let (out, err) = (MemoryOutputPipe::new(MAX_OUTPUT), MemoryOutputPipe::new(MAX_OUTPUT));
        let mut store = self.store(args, input, &out, &err);
        let command = Runs::instantiate(&mut store, &self.component, &self.linker).expect("an instance");
        let status = match command.wasi_cli_run().call_run(&mut store) {
            Ok(result) => i32::from(result.is_err()),
            Err(error) => error.downcast_ref::<I32Exit>().map_or(TRAPPED, |exit| exit.0),
        };
        let text = |pipe: &MemoryOutputPipe| String::from_utf8_lossy(&pipe.contents()).into_owned();
        Outcome { status: Some(status), out: text(&out), err: text(&err) }
    }

    /// Starts it as an agent.
    pub fn start(&self) -> PlainAgent {
        let out = MemoryOutputPipe::new(MAX_OUTPUT);
        let mut store = self.store(&[], b"", &out, &MemoryOutputPipe::new(MAX_OUTPUT));
        let instance = self.linker.instantiate(&mut store, &self.component).expect("an instance");
        let mut agent = PlainAgent { store, instance, out };
        if let Some(resumed) = agent.instance.get_func(&mut agent.store, "resumed") {
            let arguments = [Val::Enum("created".into()), Val::U64(1)];
            resumed.call(&mut agent.store, &arguments, &mut []).expect("an agent that comes to life");
        }
        agent
    }
}

/// A live instance of an agent's component.
pub struct PlainAgent {
    store: Store<State>,
    instance: Instance,
    out: MemoryOutputPipe,
}

impl PlainAgent {
    /// One turn; the error is the agent's answer.
    pub fn send(&mut self, payload: &str) -> Result<String, String> {
        let handle = self.instance.get_func(&mut self.store, "handle").expect("an agent");
        let bytes = |text: &str| Val::List(text.bytes().map(Val::U8).collect());
        let event = Val::Record(vec![
            ("id".into(), Val::String("1".into())),
            ("kind".into(), Val::String("message".into())),
            ("payload".into(), bytes(payload)),
        ]);
        let mut results = [Val::Bool(false)];
        handle.call(&mut self.store, &[event], &mut results).expect("a turn that ends");
        match &results[0] {
            Val::Result(Ok(Some(reply))) => Ok(payload_of(reply)),
            Val::Result(Err(Some(text))) => match &**text {
                Val::String(text) => Err(text.clone()),
                other => panic!("{other:?} is no error of an agent"),
            },
            other => panic!("{other:?} is no answer of an agent"),
        }
    }

    /// All that it has printed.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&self.out.contents()).into_owned()
    }
}

fn payload_of(reply: &Val) -> String {
    let Val::Record(fields) = reply else { panic!("{reply:?} is no reply") };
    let [(_, Val::List(bytes))] = fields.as_slice() else { panic!("{fields:?} are no reply") };
    let bytes = bytes.iter().map(|byte| match byte {
        Val::U8(byte) => *byte,
        other => panic!("{other:?} is no byte"),
    });
    String::from_utf8(bytes.collect()).expect("a reply as text")
}

/// Defines `lifecycle`, and traps for what else is not WASI's.
fn link_others(linker: &mut Linker<State>, component: &Component) {
    let engine = component.engine().clone();
    for (name, import) in component.component_type().imports(&engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        if name.starts_with("wasi:") {
            continue;
        }
        let mut linker = linker.instance(name).expect("an interface");
        for (function, export) in instance.exports(&engine) {
            if !matches!(export.ty, ComponentItem::ComponentFunc(_)) {
                continue;
            }
            let answer = match (name, function) {
                (LIFECYCLE, "identity") => Val::Record(vec![
                    ("id".into(), Val::String("an id".into())),
                    ("name".into(), Val::String("a name".into())),
                ]),
                (LIFECYCLE, "generation") => Val::U64(1),
                (LIFECYCLE, "parent") => Val::Option(None),
                (LIFECYCLE, "cause") => Val::Enum("created".into()),
                _ => {
                    let trap = || wasmtime::Error::msg("plain wasmtime has no such function");
                    linker.func_new(function, move |_, _, _, _| Err(trap())).expect("a function");
                    continue;
                }
            };
            linker
                .func_new(function, move |_, _, _, results| {
                    results[0] = answer.clone();
                    Ok(())
                })
                .expect("a function");
        }
    }
}

/// What came of a run of the program.
pub fn of_program(command: &mut Command, input: &[u8]) -> Outcome {
    let ran = crate::bed::run(command, input);
    Outcome { status: ran.status, out: ran.out, err: ran.err }
}
