//! What a level gains where references are numbers, and where its core items are then.
//!
//! The first core module of such a level has the table of all functions that references of the level are made of,
//! and a global for each core instance with the number that the instance's own begin after. Each instance gets both
//! under one name.

use std::collections::VecDeque;

use wasm_encoder::{
    Alias, Component, ComponentAliasSection, ConstExpr, ExportKind, ExportSection, GlobalSection, GlobalType,
    InstanceSection, Module, ModuleArg, ModuleSection, RefType, TableSection, TableType, ValType,
};
use wasmparser::ExternalKind;

use crate::component::rewrite::names;
use crate::component::rewrite::scope::Scope;

/// The table of all functions.
pub const FUNCTIONS_NAME: &str = "functions";
/// The number that an instance's own references begin after.
pub const BASE: &str = "base";
/// The index of the table in each module: it is the only one.
pub const FUNCTIONS: u32 = 0;

/// Where the core items of a level are in the new component. By default all are where they were.
#[derive(Debug, Default)]
pub struct CoreItems {
    has_references: bool,
    /// Core globals that stand before all others.
    globals: u32,
    /// The level's memories and tables, all memories now.
    memories: Vec<u32>,
    tables: Vec<u32>,
    /// What the instances with references to come get.
    waiting: VecDeque<u32>,
}

/// Begins a level whose core instances with references have so many each. Nothing of the core may have come to it.
pub fn open(out: &mut Component, scope: &mut Scope, references: &[u32]) {
    if references.is_empty() {
        return;
    }
    out.section(&ModuleSection(&provider(references)));
    let (module, instance) = (scope.core_modules.push_new(), scope.core_instances.push_new());
    let mut instances = InstanceSection::new();
    instances.instantiate::<_, &str>(module, []);
    out.section(&instances);
    let mut aliases = ComponentAliasSection::new();
    aliases.alias(Alias::CoreInstanceExport { instance, kind: ExportKind::Table, name: FUNCTIONS_NAME });
    let names: Vec<String> = (0..references.len()).map(base).collect();
    for name in &names {
        aliases.alias(Alias::CoreInstanceExport { instance, kind: ExportKind::Global, name });
    }
    out.section(&aliases);
    let mut bundles = InstanceSection::new();
    scope.core_items =
        CoreItems { has_references: true, globals: names.len() as u32, ..CoreItems::default() };
    for index in 0..scope.core_items.globals {
        bundles.export_items([(FUNCTIONS_NAME, ExportKind::Table, 0), (BASE, ExportKind::Global, index)]);
        let bundle = scope.core_instances.push_new();
        scope.core_items.waiting.push_back(bundle);
    }
    out.section(&bundles);
}

impl CoreItems {
    /// What the next instance with references gets.
    pub fn references(&mut self) -> (&'static str, ModuleArg) {
        // as many as the level has instances with references
        let bundle = self.waiting.pop_front().unwrap_or(u32::MAX);
        (names::REFERENCES, ModuleArg::Instance(bundle))
    }

    /// Takes in an item of the old level.
    pub fn alias(&mut self, kind: ExternalKind) {
        let next = (self.memories.len() + self.tables.len()) as u32;
        match kind {
            ExternalKind::Memory => self.memories.push(next),
            ExternalKind::Table if self.has_references => self.tables.push(next),
            _ => {}
        }
    }

    /// What kind an item is of in the new level.
    pub fn kind(&self, kind: ExternalKind) -> ExternalKind {
        if kind == ExternalKind::Table && self.has_references { ExternalKind::Memory } else { kind }
    }

    /// The new index of a memory, of a table and of a global.
    pub fn memory(&self, index: u32) -> u32 {
        self.memories.get(index as usize).copied().unwrap_or(index)
    }

    pub fn table(&self, index: u32) -> u32 {
        self.tables.get(index as usize).copied().unwrap_or(index)
    }

    pub fn global(&self, index: u32) -> u32 {
        index + self.globals
    }
}

fn base(index: usize) -> String {
    format!("{BASE}{index}")
}

fn provider(references: &[u32]) -> Module {
    let all: u32 = references.iter().sum();
    let mut tables = TableSection::new();
    let size = u64::from(all) + 1;
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        minimum: size,
        maximum: Some(size),
        table64: false,
        shared: false,
    });
    let (mut globals, mut exports) = (GlobalSection::new(), ExportSection::new());
    exports.export(FUNCTIONS_NAME, ExportKind::Table, 0);
    let mut before = 0u32;
    for (index, count) in references.iter().enumerate() {
        let ty = GlobalType { val_type: ValType::I32, mutable: false, shared: false };
        globals.global(ty, &ConstExpr::i32_const(before.cast_signed()));
        exports.export(&base(index), ExportKind::Global, index as u32);
        before += count;
    }
    let mut module = Module::new();
    module.section(&tables).section(&globals).section(&exports);
    module
}
