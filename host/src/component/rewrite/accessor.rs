//! The accessor: what closes a level of the new component.
//!
//! A level's core code may not call into a nested component ("cannot enter component instance"), so
//! each level has an accessor of its own, and re-exports those of the components nested in it.
//!
//! The accessor's memory holds one cell of 16 bytes for every memory (its size in pages) and for every
//! mutable global, in the order of the level's core instances. Loading takes a mask of [`Blocks`] of
//! cells: an interpreter has hundreds of globals, and most of them stand as in the genesis image.

use std::rc::Rc;

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    Alias, BlockType, CanonicalFunctionSection, CodeSection, Component, ComponentAliasSection,
    ComponentExportKind, ComponentExportSection, ComponentTypeSection, ComponentValType, ExportKind,
    ExportSection, Function, FunctionSection, ImportSection, InstanceSection, MemArg, MemorySection,
    MemoryType, Module, ModuleArg, ModuleSection, TypeSection,
};
use wasmparser::ValType;

use super::names;
use super::scope::{Scope, State};
use crate::component::error::ComponentError;
use crate::component::limits;
use crate::component::module::ModuleInfo;
use crate::component::scan::MemoryLimits;

/// Bytes of the accessor's memory for each memory and global.
const CELL: u64 = 16;

/// Bytes of the accessor's memory for which one bit of a mask stands; the last bit stands for all the
/// rest.
pub const BLOCK: u64 = 32 * CELL;
const LAST_BIT: u64 = 63;

const PAGE: u64 = 65_536;

/// Appends the accessor and exports of a level; returns what an instance of it has.
pub fn close(out: &mut Component, scope: &Scope) -> Result<Rc<State>, ComponentError> {
    let mut state = State { memories: scope.memories.clone(), size: scope.size, ..State::default() };
    let mut functions = scope.functions.count();
    reexport(out, scope, &mut state, &mut functions)?;
    if !scope.stateful.is_empty() {
        state.memories.push(own(out, scope, functions)?);
        for (_, info) in &scope.stateful {
            state.globals += info.globals.len();
        }
        state.accessors.push(String::new());
    }
    ComponentError::limit("memories", state.memories.len(), limits::MAX_MEMORIES)?;
    ComponentError::limit("mutable globals", state.globals, limits::MAX_GLOBALS)?;
    Ok(Rc::new(state))
}

/// Re-exports the accessors of nested components under longer names.
fn reexport(
    out: &mut Component,
    scope: &Scope,
    state: &mut State,
    functions: &mut u32,
) -> Result<(), ComponentError> {
    let (mut aliases, mut exports) = (ComponentAliasSection::new(), ComponentExportSection::new());
    for (instance, inner) in &scope.nested {
        state.globals += inner.globals;
        for suffix in &inner.accessors {
            let outer = format!("-i{}{suffix}", state.accessors.len());
            for name in [names::SAVE, names::LOAD] {
                let function = *functions + aliases.len();
                let (inner, outer) = (format!("{name}{suffix}"), format!("{name}{outer}"));
                let kind = ComponentExportKind::Func;
                aliases.alias(Alias::InstanceExport { instance: *instance, kind, name: &inner });
                exports.export(outer.as_str(), kind, function, None);
            }
            state.accessors.push(outer);
            ComponentError::limit("stateful components", state.accessors.len(), limits::MAX_ACCESSORS)?;
        }
    }
    if !aliases.is_empty() {
        *functions += aliases.len() + exports.len(); // an export is a function of its own
        out.section(&aliases);
        out.section(&exports);
    }
    Ok(())
}

/// The accessor of the level's own core instances; gives its memory.
fn own(out: &mut Component, scope: &Scope, functions: u32) -> Result<MemoryLimits, ComponentError> {
    let (accessor, memory) = module(&scope.stateful)?;
    out.section(&ModuleSection(&accessor));

    let mut instances = InstanceSection::new();
    let args = scope.stateful.iter().map(|(index, _)| (argument(*index), ModuleArg::Instance(*index)));
    instances.instantiate(scope.core_modules.count(), args.collect::<Vec<_>>());
    out.section(&instances);

    let mut aliases = ComponentAliasSection::new();
    for name in ["save", "load"] {
        aliases.alias(Alias::CoreInstanceExport {
            instance: scope.core_instances.count(),
            kind: ExportKind::Func,
            name,
        });
    }
    out.section(&aliases);

    let mut types = ComponentTypeSection::new();
    types.function().params::<[(&str, ComponentValType); 0], ComponentValType>([]).result(None);
    types
        .function()
        .params([("blocks", ComponentValType::Primitive(wasm_encoder::PrimitiveValType::U64))])
        .result(None);
    out.section(&types);

    let mut lifts = CanonicalFunctionSection::new();
    lifts.lift(scope.core_functions.count(), scope.types, []);
    lifts.lift(scope.core_functions.count() + 1, scope.types + 1, []);
    out.section(&lifts);

    let mut exports = ComponentExportSection::new();
    exports.export(names::SAVE, ComponentExportKind::Func, functions, None);
    exports.export(names::LOAD, ComponentExportKind::Func, functions + 1, None);
    out.section(&exports);
    Ok(memory)
}

fn argument(instance: u32) -> String {
    format!("i{instance}")
}

/// The accessor's core module, and its memory.
fn module(stateful: &[(u32, Rc<ModuleInfo>)]) -> Result<(Module, MemoryLimits), ComponentError> {
    let memories: usize = stateful.iter().map(|(_, info)| info.memories.len()).sum();
    let mut imports = ImportSection::new();
    let (mut save, mut load) = (Function::new([]), Function::new([]));
    let mut cells = Cells { next: 0, memory: memories as u32 };
    let mut blocks = Blocks::default();

    let unsupported = |error: wasm_encoder::reencode::Error| ComponentError::Rewriter(error.to_string());
    let mut memory = 0;
    for (instance, info) in stateful {
        for (index, ty) in &info.memories {
            let ty = RoundtripReencoder.memory_type(*ty).map_err(unsupported)?;
            imports.import(&argument(*instance), &names::memory(*index), ty);
            blocks.enter(&mut load, cells.next);
            copy_size(&mut save, &mut load, memory, cells.take(2));
            memory += 1;
        }
    }
    let mut global = 0;
    for (instance, info) in stateful {
        for (index, ty) in &info.globals {
            let new = RoundtripReencoder.global_type(*ty).map_err(unsupported)?;
            imports.import(&argument(*instance), &names::global(*index), new);
            blocks.enter(&mut load, cells.next);
            copy_global(&mut save, &mut load, global, ty.content_type, &mut cells)?;
            global += 1;
        }
    }
    save.instructions().end();
    blocks.leave(&mut load);
    load.instructions().end();

    let mut types = TypeSection::new();
    types.ty().function([], []);
    types.ty().function([wasm_encoder::ValType::I64], []);
    let mut functions = FunctionSection::new();
    functions.function(0).function(1);
    let mut own_memory = MemorySection::new();
    let pages = cells.next.div_ceil(PAGE).max(1);
    own_memory.memory(MemoryType {
        minimum: pages,
        maximum: Some(pages),
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports.export("save", ExportKind::Func, 0).export("load", ExportKind::Func, 1);
    let mut code = CodeSection::new();
    code.function(&save).function(&load);

    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&own_memory)
        .section(&exports)
        .section(&code);
    Ok((module, MemoryLimits { min: pages * PAGE, max: Some(pages * PAGE) }))
}

/// The cells of the accessor's memory, given out one after another.
struct Cells {
    next: u64,
    memory: u32,
}

impl Cells {
    /// The next cell, for an access of two to the power of `align` bytes.
    fn take(&mut self, align: u32) -> MemArg {
        let offset = self.next;
        self.next += CELL;
        MemArg { offset, align, memory_index: self.memory }
    }
}

/// The parts of the load function that are skipped where their bit is not set.
#[derive(Default)]
struct Blocks {
    open: Option<u64>,
}

impl Blocks {
    /// Begins the block of the cell at `offset`, unless it has begun.
    fn enter(&mut self, load: &mut Function, offset: u64) {
        let bit = (offset / BLOCK).min(LAST_BIT);
        if self.open == Some(bit) {
            return;
        }
        self.leave(load);
        self.open = Some(bit);
        load.instructions()
            .block(BlockType::Empty)
            .local_get(0)
            .i64_const((1u64 << bit).cast_signed())
            .i64_and()
            .i64_eqz()
            .br_if(0);
    }

    fn leave(&mut self, load: &mut Function) {
        if self.open.take().is_some() {
            load.instructions().end();
        }
    }
}

/// Saves how large a memory is, and makes it at least that large. The host has mapped it at its saved
/// size already; a smaller one must not go unnoticed.
fn copy_size(save: &mut Function, load: &mut Function, memory: u32, cell: MemArg) {
    save.instructions().i32_const(0).memory_size(memory).i32_store(cell);
    load.instructions()
        .i32_const(0)
        .i32_load(cell)
        .memory_size(memory)
        .i32_gt_u()
        .if_(BlockType::Empty)
        .i32_const(0)
        .i32_load(cell)
        .memory_size(memory)
        .i32_sub()
        .memory_grow(memory)
        .i32_const(-1)
        .i32_eq()
        .if_(BlockType::Empty)
        .unreachable()
        .end()
        .end();
}

fn copy_global(
    save: &mut Function,
    load: &mut Function,
    global: u32,
    ty: ValType,
    cells: &mut Cells,
) -> Result<(), ComponentError> {
    let (mut save, mut load) = (save.instructions(), load.instructions());
    save.i32_const(0).global_get(global);
    load.i32_const(0);
    match ty {
        ValType::I32 => {
            let cell = cells.take(2);
            save.i32_store(cell);
            load.i32_load(cell);
        }
        ValType::I64 => {
            let cell = cells.take(3);
            save.i64_store(cell);
            load.i64_load(cell);
        }
        ValType::F32 => {
            let cell = cells.take(2);
            save.f32_store(cell);
            load.f32_load(cell);
        }
        ValType::F64 => {
            let cell = cells.take(3);
            save.f64_store(cell);
            load.f64_load(cell);
        }
        ValType::V128 => {
            let cell = cells.take(4);
            save.v128_store(cell);
            load.v128_load(cell);
        }
        ValType::Ref(_) => return Err(ComponentError::Rewriter("a mutable reference global".to_owned())),
    }
    load.global_set(global);
    Ok(())
}
