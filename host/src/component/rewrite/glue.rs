//! Puts core modules of the rewriter's own into a level: see [`super::adapter`].

use wasm_encoder::{
    Alias, CanonicalFunctionSection, Component, ComponentAliasSection, ComponentExportKind, ExportKind,
    InstanceSection, Module, ModuleArg, ModuleSection,
};

use super::adapter::{self, BEHIND, FROM, MEMORY};
use super::host::Function;
use super::resources::{Lift, Source};
use super::scope::{Defined, INSTANCE_HOST, Scope, TYPE_DROP};

/// Lowers the host's functions, at the beginning of a level that needs them.
pub fn lower_host(out: &mut Component, scope: &mut Scope) {
    let (mut aliases, mut lowers) = (ComponentAliasSection::new(), CanonicalFunctionSection::new());
    for function in Function::ALL {
        let (instance, kind) = (INSTANCE_HOST, ComponentExportKind::Func);
        aliases.alias(Alias::InstanceExport { instance, kind, name: function.name() });
        lowers.lower(scope.functions.push_new(), []);
        let lowered = scope.core_functions.push_new();
        scope.host.push(lowered);
    }
    out.section(&aliases);
    out.section(&lowers);
}

/// A core function of the level's, for a module.
type Given<'a> = (&'a str, ExportKind, u32);

/// Instantiates a module over the host's functions and what is `given`; the core functions that it exports under
/// these names.
fn instantiate<const N: usize>(
    out: &mut Component,
    scope: &mut Scope,
    module: &Module,
    given: &[Given<'_>],
    exports: [&str; N],
) -> [u32; N] {
    let index = scope.added.get(module.as_slice()).copied().unwrap_or_else(|| {
        out.section(&ModuleSection(module));
        scope.core_modules.push_new()
    });
    scope.added.insert(module.as_slice().to_vec(), index);
    let host = Function::ALL.iter().zip(&scope.host).map(|(it, index)| (it.name(), ExportKind::Func, *index));
    let mut instances = InstanceSection::new();
    instances.export_items(host.chain(given.iter().copied()).collect::<Vec<_>>());
    let from = scope.core_instances.push_new();
    instances.instantiate(index, [(FROM, ModuleArg::Instance(from))]);
    let instance = scope.core_instances.push_new();
    out.section(&instances);
    let mut aliases = ComponentAliasSection::new();
    let functions = exports.map(|name| {
        aliases.alias(Alias::CoreInstanceExport { instance, kind: ExportKind::Func, name });
        scope.core_functions.push_new()
    });
    out.section(&aliases);
    functions
}

/// What a resource type of the level's own needs, after its definition: the number of the type, and the core function
/// that is its destructor.
pub fn define_resource(out: &mut Component, scope: &mut Scope, number: u32, destructor: Option<u32>) {
    let module = adapter::of_resource(number, destructor.is_some());
    let given: Vec<Given<'_>> =
        destructor.iter().map(|function| (BEHIND, ExportKind::Func, *function)).collect();
    let [new, rep, drop] = instantiate(out, scope, &module, &given, ["new", "rep", "drop"]);
    let mut lifts = CanonicalFunctionSection::new();
    lifts.lift(drop, TYPE_DROP, []);
    out.section(&lifts);
    let lifted_drop = scope.functions.push_new();
    let source = Source::Defined(scope.defined.len() as u32);
    scope.drops.insert(source, lifted_drop);
    scope.defined.push(Defined { new, rep, drop });
}

/// The core function that drops a resource of somebody else's, by this component function, or gives it back where it
/// was lent.
pub fn give_back(out: &mut Component, scope: &mut Scope, source: Source, drop: u32) -> u32 {
    if let Some(known) = scope.returning.get(&source) {
        return *known;
    }
    let mut lowers = CanonicalFunctionSection::new();
    lowers.lower(drop, []);
    out.section(&lowers);
    let lowered = scope.core_functions.push_new();
    let given = [(BEHIND, ExportKind::Func, lowered)];
    let [function] = instantiate(out, scope, &adapter::of_drop(), &given, ["drop"]);
    scope.returning.insert(source, function);
    function
}

/// The core function that is lifted in the place of another.
pub fn stand_before(
    out: &mut Component,
    scope: &mut Scope,
    lift: &Lift,
    function: u32,
    memory: Option<u32>,
) -> u32 {
    let module = adapter::of_lift(&lift.signature, &lift.borrows);
    let mut given = vec![(BEHIND, ExportKind::Func, function)];
    if adapter::needs_memory(&lift.borrows) {
        given.extend(memory.map(|memory| (MEMORY, ExportKind::Memory, memory)));
    }
    let [function] = instantiate(out, scope, &module, &given, ["lifted"]);
    function
}
