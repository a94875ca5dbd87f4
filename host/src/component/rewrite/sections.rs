//! What comes to a level with each section of the old component: counts of what it adds, and what the rewriter adds
//! before and after.

use std::rc::Rc;

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, Component, ComponentAliasSection, ComponentExportKind,
    ComponentImportSection, ComponentTypeRef, ComponentTypeSection, InstanceSection, ModuleArg,
};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ExternalKind, Payload,
};

use super::encode::{Outcome, Rewriter, lost};
use super::resources::{self, Source};
use super::scope::{Scope, State, TYPE_HOST};
use super::{accessor, glue, host, names, recode};
use crate::component::refuse::Reason;
use crate::component::scan::MemoryLimits;

impl Rewriter<'_> {
    /// Counts what an import, alias or export adds to an index space.
    pub(super) fn count(&mut self, kind: ComponentExternalKind) -> Outcome {
        let scope = self.scope()?;
        match kind {
            ComponentExternalKind::Func => scope.functions.push_old(),
            ComponentExternalKind::Type => scope.types += 1,
            ComponentExternalKind::Instance => scope.instances += 1,
            ComponentExternalKind::Component => scope.components.push(None),
            ComponentExternalKind::Module => {
                scope.modules.push(None);
                scope.core_modules.push_old();
            }
            ComponentExternalKind::Value => return Err(lost("a value")),
        }
        Ok(())
    }

    pub(super) fn open_level(&mut self, out: &mut Component) -> Outcome {
        let index = match self.scopes.last_mut() {
            Some(parent) => {
                parent.subcomponents += 1;
                parent.subcomponents - 1
            }
            None => 0,
        };
        let needs = self.levels.next().ok_or_else(|| lost("a level"))?;
        let mut types = ComponentTypeSection::new();
        self.types_in_front(&mut types, ComponentTypeSection::ty);
        out.section(&types);
        let mut scope = Scope::new(index, needs, self.shift(), u32::from(self.needs_host));
        if self.needs_host {
            let mut imports = ComponentImportSection::new();
            imports.import(host::INTERFACE, ComponentTypeRef::Instance(TYPE_HOST));
            out.section(&imports);
        }
        let references = self.recode.level(self.levels_begun);
        self.levels_begun += 1;
        recode::level::open(out, &mut scope, references);
        if needs.host {
            glue::lower_host(out, &mut scope);
        }
        self.scopes.push(scope);
        Ok(())
    }

    /// Ends a level. wasm-encoder never delivers the payload for it.
    pub(super) fn close_level(&mut self, out: &mut Component) -> Outcome<Rc<State>> {
        let scope = self.scopes.pop().ok_or_else(|| lost("the level"))?;
        accessor::close(out, &scope).map_err(Error::UserError)
    }

    pub(super) fn count_alias(&mut self, alias: &ComponentAlias<'_>) -> Outcome {
        match *alias {
            ComponentAlias::InstanceExport { kind, .. } => self.count(kind)?,
            ComponentAlias::CoreInstanceExport {
                kind: ExternalKind::Func | ExternalKind::FuncExact, ..
            } => {
                self.scope()?.core_functions.push_old();
            }
            ComponentAlias::CoreInstanceExport { kind, .. } => self.scope()?.core_items.alias(kind),
            ComponentAlias::Outer { kind, count, index } => match kind {
                ComponentOuterAliasKind::Type => self.scope()?.types += 1,
                ComponentOuterAliasKind::CoreType => {}
                ComponentOuterAliasKind::Component => {
                    let found = self.outer(count)?.components.get(index as usize);
                    let component = found.ok_or_else(|| lost("a component"))?.clone();
                    self.scope()?.components.push(component);
                }
                ComponentOuterAliasKind::CoreModule => {
                    let found = self.outer(count)?.modules.get(index as usize);
                    let module = found.ok_or_else(|| lost("a core module"))?.clone();
                    let scope = self.scope()?;
                    scope.modules.push(module);
                    scope.core_modules.push_old();
                }
            },
        }
        Ok(())
    }

    /// Aliases the functions that go with the resource types that a section uses, which must come before it.
    pub(super) fn alias_drops(&mut self, out: &mut Component, payload: &Payload<'_>) -> Outcome {
        let mut aliases = ComponentAliasSection::new();
        let mut drops = Vec::new();
        for _ in resources::uses(payload)? {
            let Some(source) = self.sources.next().ok_or_else(|| lost("a resource type"))? else {
                drops.push(None);
                continue;
            };
            let offset = u32::from(self.needs_host);
            let scope = self.scope()?;
            let function = match (scope.drops.get(&source), &source) {
                (Some(function), _) => *function,
                (None, Source::Import(_)) => return Err(lost("an imported resource type")),
                (None, Source::Defined(_)) => return Err(lost("a resource type of its own")),
                (None, Source::Instance { instance, name }) => {
                    let (instance, name) = (instance + offset, names::drop(name));
                    let kind = ComponentExportKind::Func;
                    aliases.alias(Alias::InstanceExport { instance, kind, name: &name });
                    let function = scope.functions.push_new();
                    scope.drops.insert(source.clone(), function);
                    function
                }
            };
            drops.push(Some((source, function)));
        }
        if !aliases.is_empty() {
            out.section(&aliases);
        }
        self.drops = drops.into_iter();
        Ok(())
    }

    /// The name and function that go with a type that is handed on under `name`, where that is a resource type.
    pub(super) fn drop_beside(&mut self, kind: ComponentExternalKind, name: &str) -> Option<(String, u32)> {
        if kind != ComponentExternalKind::Type {
            return None;
        }
        self.drops.next().flatten().map(|(_, function)| (names::drop(name), function))
    }

    /// Counts what a section adds, before it is written.
    pub(super) fn before(&mut self, out: &mut Component, payload: &Payload<'_>) -> Outcome {
        self.alias_drops(out, payload)?;
        match payload {
            Payload::Version { .. } => self.open_level(out)?,
            Payload::ComponentTypeSection(section) => self.scope()?.types += section.count(),
            Payload::InstanceSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, instance) = item?;
                    let scope = self.scope()?;
                    let index = scope.core_instances.count();
                    scope.core_instances.push_old();
                    let wasmparser::Instance::Instantiate { module_index, .. } = instance else { continue };
                    if let Some(Some(info)) = scope.modules.get(module_index as usize) {
                        scope.size.add_module(info).map_err(Error::UserError)?;
                    }
                    match scope.modules.get(module_index as usize) {
                        Some(Some(info)) if info.is_stateful() => {
                            let info = info.clone();
                            let memories = info.memories.iter().map(|(_, ty)| MemoryLimits::of(ty));
                            scope.add_memories(memories).map_err(Error::UserError)?;
                            scope.stateful.push((index, info));
                        }
                        Some(Some(_)) => {}
                        Some(None) => return self.refuse(Reason::ForeignModule, offset),
                        None => return Err(lost("a core module")),
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, instance) = item?;
                    let scope = self.scope()?;
                    let index = scope.instances;
                    scope.instances += 1;
                    let ComponentInstance::Instantiate { component_index, .. } = instance else { continue };
                    if let Some(Some(state)) = scope.components.get(component_index as usize) {
                        scope.size.add(state.size).map_err(Error::UserError)?;
                    }
                    match scope.components.get(component_index as usize) {
                        Some(Some(state)) if state.accessors.is_empty() => {}
                        Some(Some(state)) => {
                            let state = state.clone();
                            scope.add_memories(state.memories.iter().copied()).map_err(Error::UserError)?;
                            scope.nested.push((index, state));
                        }
                        Some(None) => return self.refuse(Reason::ForeignComponent, offset),
                        None => return Err(lost("a component")),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes a core instance, with its references where these are numbers.
    pub(super) fn core_instance(
        &mut self,
        out: &mut InstanceSection,
        instance: wasmparser::Instance<'_>,
    ) -> Outcome {
        match instance {
            wasmparser::Instance::Instantiate { module_index, args } => {
                let mut new = Vec::with_capacity(args.len() + 1);
                for arg in &args {
                    new.push((arg.name, ModuleArg::Instance(self.instance_index(arg.index))));
                }
                let scope = self.scope()?;
                let module = scope.modules.get(module_index as usize).ok_or_else(|| lost("a core module"))?;
                if module.as_ref().is_some_and(|module| module.has_references) {
                    new.push(scope.core_items.references());
                }
                out.instantiate(self.module_index(module_index), new);
            }
            wasmparser::Instance::FromExports(exports) => {
                let mut new = Vec::with_capacity(exports.len());
                for export in &exports {
                    let index = self.external_index(export.kind, export.index)?;
                    new.push((export.name, self.scope()?.core_items.kind(export.kind).into(), index));
                }
                out.export_items(new);
            }
        }
        Ok(())
    }

    /// Adds what the resource types need that a section has defined.
    pub(super) fn define_resources(
        &mut self,
        out: &mut Component,
        section: wasmparser::ComponentTypeSectionReader<'_>,
    ) -> Outcome {
        for ty in section {
            if let wasmparser::ComponentType::Resource { dtor, .. } = ty? {
                let destructor = dtor.map(|function| self.function_index(function)).transpose()?;
                let number = self.defined;
                self.defined += 1;
                glue::define_resource(out, self.scope()?, number, destructor);
            }
        }
        Ok(())
    }

    /// Writes canonical functions, and in between what those need that get handles lent or drop them.
    pub(super) fn canonical_section(
        &mut self,
        out: &mut Component,
        section: wasmparser::ComponentCanonicalSectionReader<'_>,
    ) -> Outcome {
        let mut functions = CanonicalFunctionSection::new();
        for function in section {
            let function = function?;
            match &function {
                CanonicalFunction::Lift { core_func_index, type_index, options } => {
                    let mut lifted = self.function_index(*core_func_index)?;
                    if let Some(lift) = self.lifts.next().ok_or_else(|| lost("a lifted function"))? {
                        let memory = options.iter().find_map(|option| match option {
                            CanonicalOption::Memory(memory) => Some(*memory),
                            _ => None,
                        });
                        let memory = memory.map(|memory| self.memory_index(memory)).transpose()?;
                        flush(out, &mut functions);
                        lifted = glue::stand_before(out, self.scope()?, &lift, lifted, memory);
                    }
                    let ty = self.component_type_index(*type_index);
                    let options = options.iter().map(|option| self.canonical_option(*option));
                    functions.lift(lifted, ty, options.collect::<Outcome<Vec<_>>>()?);
                    self.scope()?.functions.push_old();
                }
                CanonicalFunction::ResourceNew { .. }
                | CanonicalFunction::ResourceRep { .. }
                | CanonicalFunction::ResourceDrop { .. } => {
                    let (source, drop) =
                        self.drops.next().flatten().ok_or_else(|| lost("a resource type"))?;
                    let scope = self.scope()?;
                    let defined = match source {
                        Source::Defined(index) => scope.defined.get(index as usize).copied(),
                        _ => None,
                    };
                    let there = match (&function, defined) {
                        (CanonicalFunction::ResourceNew { .. }, Some(defined)) => defined.new,
                        (CanonicalFunction::ResourceRep { .. }, Some(defined)) => defined.rep,
                        (_, Some(defined)) => defined.drop,
                        (CanonicalFunction::ResourceDrop { .. }, None) if scope.needs.lent => {
                            flush(out, &mut functions);
                            glue::give_back(out, scope, source, drop)
                        }
                        (CanonicalFunction::ResourceDrop { .. }, None) => {
                            functions.lower(drop, []);
                            scope.core_functions.push_old();
                            continue;
                        }
                        (_, None) => return Err(lost("a resource type of its own")),
                    };
                    scope.core_functions.stand_in(there);
                }
                _ => {
                    self.parse_component_canonical(&mut functions, function)?;
                    self.scope()?.core_functions.push_old();
                }
            }
        }
        flush(out, &mut functions);
        Ok(())
    }
}

/// Writes what has come together of a section.
fn flush(out: &mut Component, functions: &mut CanonicalFunctionSection) {
    if !functions.is_empty() {
        out.section(functions);
        *functions = CanonicalFunctionSection::new();
    }
}
