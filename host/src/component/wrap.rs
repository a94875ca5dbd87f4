//! Makes a component of a core module for WASI preview 1.

use std::borrow::Cow;

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CodeSection, Component, ComponentAliasSection, ComponentExportKind,
    ComponentExportSection, ComponentInstanceSection, ComponentTypeSection, ComponentValType, ExportKind,
    ExportSection, Function, FunctionSection, ImportSection, InstanceSection, Module, ModuleArg,
    ModuleSection, RawSection, TypeSection,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::error::ComponentError;
use super::scan::{BinaryKind, Scan, scan_as_it_is};

const PREVIEW1: &str = "wasi_snapshot_preview1";

/// The export that makes a core module a command.
const START: &str = "_start";

/// How a preview 1 module ends with a status, and what does the same in WASI 0.2.
const PROC_EXIT: &str = "proc_exit";
const EXIT_INTERFACE: &str = "wasi:cli/exit@0.2.12";
const EXIT_WITH_CODE: &str = "exit-with-code";

/// What a module says of itself that imports [`EXIT_WITH_CODE`].
const EXIT_WORLD: &str = "
    package dormouse:preview1;
    world exits { import wasi:cli/exit@0.2.12; }
    package wasi:cli@0.2.12 { interface exit { exit-with-code: func(status-code: u8); } }";

/// Custom sections in which toolchains say what a module's imports and exports mean.
const METADATA: &str = "component-type";

/// Wraps a core module for `wasi_snapshot_preview1` with the adapter: as a command if it exports
/// `_start`, as a reactor otherwise. Other imports and the exports must be described by WIT that its
/// toolchain has embedded.
///
/// The adapter's `proc_exit` knows success and failure only. So the module's import of it is turned to
/// `exit-with-code` of `wasi:cli/exit`, which has the same core type: its status arrives as it is,
/// modulo 256.
///
/// # Errors
/// What [`scan`](super::scan) says of the module, and [`ComponentError::Wrap`].
pub fn wrap_core_module(wasm: &[u8]) -> Result<Vec<u8>, ComponentError> {
    let (module, _) = scan_as_it_is(wasm)?;
    if module.kind != BinaryKind::CoreModule {
        return Err(ComponentError::Wrap("it is a component already".to_owned()));
    }
    module.capturable.clone().map_err(ComponentError::Refused)?;
    let is_described = describes_itself(wasm)?;
    unknown_imports(&module, is_described)?;

    let is_command = module.exports.iter().any(|export| export.name == START);
    if is_command && module.imports.is_empty() && !is_described {
        return command_without_imports(wasm);
    }
    let adapter = if is_command {
        wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER
    } else {
        wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER
    };
    let wrap = |error| ComponentError::Wrap(format!("{error:#}"));
    let exits = module.imports.iter().any(|i| i.name == format!("{PREVIEW1}.{PROC_EXIT}"));
    let wasm = if exits { Cow::Owned(exiting_with_code(wasm)?) } else { Cow::Borrowed(wasm) };
    let mut encoder = ComponentEncoder::default().validate(true).module(&wasm).map_err(wrap)?;
    if is_command || imports_preview1(&module) {
        encoder = encoder.adapter(PREVIEW1, adapter).map_err(wrap)?;
    }
    encoder.encode().map_err(wrap)
}

fn imports_preview1(module: &Scan) -> bool {
    module.imports.iter().any(|import| is_from(&import.name, PREVIEW1))
}

fn is_from(import: &str, module: &str) -> bool {
    import.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
}

fn describes_itself(wasm: &[u8]) -> Result<bool, ComponentError> {
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CustomSection(section) = payload.map_err(|e| ComponentError::invalid(&e))?
            && section.name().starts_with(METADATA)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What nobody provides deserves a plain word rather than wit-component's.
fn unknown_imports(module: &Scan, is_described: bool) -> Result<(), ComponentError> {
    let refuse = |name: &str, why: &str| Err(ComponentError::Wrap(format!("it imports `{name}`, {why}")));
    for import in &module.imports {
        if is_from(&import.name, "wasi_unstable") {
            return refuse(&import.name, "of a WASI before preview 1; build it anew");
        }
        if !is_described && !is_from(&import.name, PREVIEW1) {
            return refuse(&import.name, "which Dormouse does not provide");
        }
    }
    Ok(())
}

/// The module with its import of `proc_exit` turned to `exit-with-code`. Indices stay as they are.
fn exiting_with_code(wasm: &[u8]) -> Result<Vec<u8>, ComponentError> {
    let mut module = Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(|error| ComponentError::invalid(&error))?;
        if let Payload::ImportSection(section) = &payload {
            let mut imports = ImportSection::new();
            for import in section.clone().into_imports() {
                let import = import.map_err(|error| ComponentError::invalid(&error))?;
                let ty = RoundtripReencoder
                    .entity_type(import.ty)
                    .map_err(|error| ComponentError::Rewriter(error.to_string()))?;
                if (import.module, import.name) == (PREVIEW1, PROC_EXIT) {
                    imports.import(EXIT_INTERFACE, EXIT_WITH_CODE, ty);
                } else {
                    imports.import(import.module, import.name, ty);
                }
            }
            module.section(&imports);
        } else if let Some((id, range)) = payload.as_section() {
            module.section(&RawSection { id, data: &wasm[range] });
        }
    }
    let mut module = module.finish();
    let wrap = |error| ComponentError::Wrap(format!("{error:#}"));
    let mut resolve = Resolve::default();
    let package = resolve.push_source("preview1.wit", EXIT_WORLD).map_err(wrap)?;
    let world = resolve.select_world(&[package], Some("exits")).map_err(wrap)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).map_err(wrap)?;
    Ok(module)
}

/// A component that runs a module's `_start`, which asks nothing of anybody: it may have no memory,
/// without which there is no adapter.
fn command_without_imports(wasm: &[u8]) -> Result<Vec<u8>, ComponentError> {
    let mut component = Component::new();
    component.section(&RawSection { id: 1, data: wasm }); // a core module
    component.section(&ModuleSection(&caller_of_start()));

    let mut instances = InstanceSection::new();
    instances.instantiate(0, std::iter::empty::<(&str, ModuleArg)>());
    instances.instantiate(1, [("module", ModuleArg::Instance(0))]);
    component.section(&instances);

    let mut aliases = ComponentAliasSection::new();
    aliases.alias(Alias::CoreInstanceExport { instance: 1, kind: ExportKind::Func, name: "run" });
    component.section(&aliases);

    let mut types = ComponentTypeSection::new();
    types.defined_type().result(None, None);
    types
        .function()
        .params::<[(&str, ComponentValType); 0], ComponentValType>([])
        .result(Some(ComponentValType::Type(0)));
    component.section(&types);

    let mut functions = CanonicalFunctionSection::new();
    functions.lift(0, 1, []);
    component.section(&functions);

    let mut instances = ComponentInstanceSection::new();
    instances.export_items([("run", ComponentExportKind::Func, 0)]);
    component.section(&instances);

    let mut exports = ComponentExportSection::new();
    exports.export("wasi:cli/run@0.2.0", ComponentExportKind::Instance, 0, None);
    component.section(&exports);

    let component = component.finish();
    super::features::validate(&component).map_err(|error| {
        ComponentError::Wrap(format!("its `{START}` is no function without parameters and results: {error}"))
    })?;
    Ok(component)
}

/// A core module whose `run` calls `_start`, and tells of success when that returns.
fn caller_of_start() -> Module {
    let mut types = TypeSection::new();
    types.ty().function([], []);
    types.ty().function([], [wasm_encoder::ValType::I32]);
    let mut imports = ImportSection::new();
    imports.import("module", START, wasm_encoder::EntityType::Function(0));
    let mut functions = FunctionSection::new();
    functions.function(1);
    let mut exports = ExportSection::new();
    exports.export("run", ExportKind::Func, 1);
    let mut code = CodeSection::new();
    let mut run = Function::new([]);
    run.instructions().call(0).i32_const(0).end();
    code.function(&run);
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
    module
}
