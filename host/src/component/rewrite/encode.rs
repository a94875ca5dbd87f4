//! Writes the new component while reading the old one.

use std::rc::Rc;

use wasm_encoder::reencode::component_utils as utils;
use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, Component, ComponentAliasSection, ComponentDefinedTypeEncoder,
    ComponentExportKind, ComponentExportSection, ComponentExternName, ComponentImportSection,
    ComponentInstanceSection, ComponentType, ComponentTypeEncoder, ComponentTypeRef, ComponentTypeSection,
    InstanceType, ModuleSection, NestedComponentSection, PrimitiveValType, TypeBounds,
};
use wasmparser::{
    CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind,
    ExternalKind, Payload,
};

use super::accessor;
use super::resources::{self, Source};
use super::scope::{SHIFT, Scope, State, TYPE_DROP, TYPE_HANDLE, Taken};
use super::{Rewritten, Variant, module, names, refused};
use crate::component::error::ComponentError;
use crate::component::module::ModuleInfo;
use crate::component::refuse::{Place, Reason};

type Outcome<T = ()> = Result<T, Error<ComponentError>>;

/// Rewrites the outermost level and all within it.
pub fn component(
    wasm: &[u8],
    variant: Variant,
    sources: Vec<Option<Source>>,
) -> Result<Rewritten, ComponentError> {
    let mut rewriter =
        Rewriter { scopes: Vec::new(), variant, sources: sources.into_iter(), drops: Vec::new().into_iter() };
    let mut out = Component::new();
    let result = rewriter
        .parse_component(&mut out, wasmparser::Parser::new(0), wasm)
        .and_then(|()| rewriter.close_level(&mut out));
    let state = result.map_err(|error| match error {
        Error::UserError(error) => error,
        Error::ParseError(error) => ComponentError::invalid(&error),
        other => ComponentError::Rewriter(other.to_string()),
    })?;
    Ok(Rewritten {
        wasm: out.finish(),
        accessors: state.accessors.clone(),
        memories: state.memories,
        globals: state.globals,
    })
}

struct Rewriter {
    scopes: Vec<Scope>,
    variant: Variant,
    /// Of all that [`resources::uses`] says of the sections to come.
    sources: std::vec::IntoIter<Option<Source>>,
    /// The functions that go with what the current section uses, where that is a resource type.
    drops: std::vec::IntoIter<Option<u32>>,
}

fn lost(what: &str) -> Error<ComponentError> {
    Error::UserError(ComponentError::Rewriter(format!("lost track of {what}")))
}

impl Rewriter {
    fn scope(&mut self) -> Outcome<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| lost("the level"))
    }

    /// The level that an outer alias counts to.
    fn outer(&self, count: u32) -> Outcome<&Scope> {
        let index =
            self.scopes.len().checked_sub(1 + count as usize).ok_or_else(|| lost("an outer level"))?;
        self.scopes.get(index).ok_or_else(|| lost("an outer level"))
    }

    fn place(&self, offset: usize) -> Place {
        let components = self.scopes.iter().skip(1).map(|scope| scope.index).collect();
        Place { components, module: None, function: None, offset: offset as u64 }
    }

    fn refuse<T>(&self, reason: Reason, offset: usize) -> Outcome<T> {
        Err(Error::UserError(refused(reason, self.place(offset))))
    }

    /// Notes a new name, which no other of the same interface may have become.
    fn take(&self, taken: &mut Taken, name: &str, offset: usize) -> Outcome {
        if taken.insert(name.to_ascii_lowercase()) {
            return Ok(());
        }
        self.refuse(Reason::NameCollision(name.to_owned()), offset)
    }

    /// Counts what an import, alias or export adds to an index space.
    fn count(&mut self, kind: ComponentExternalKind) -> Outcome {
        let scope = self.scope()?;
        match kind {
            ComponentExternalKind::Func => scope.old_function(),
            ComponentExternalKind::Type => scope.types += 1,
            ComponentExternalKind::Instance => scope.instances += 1,
            ComponentExternalKind::Component => scope.components.push(None),
            ComponentExternalKind::Module => scope.modules.push(None),
            ComponentExternalKind::Value => return Err(lost("a value")),
        }
        Ok(())
    }

    fn open_level(&mut self, out: &mut Component) {
        let index = match self.scopes.last_mut() {
            Some(parent) => {
                parent.subcomponents += 1;
                parent.subcomponents - 1
            }
            None => 0,
        };
        self.scopes.push(Scope::new(index));
        let mut types = ComponentTypeSection::new();
        handle_type(types.ty());
        drop_type(types.ty());
        out.section(&types);
    }

    /// Ends a level. wasm-encoder never delivers the payload for it.
    fn close_level(&mut self, out: &mut Component) -> Outcome<Rc<State>> {
        let scope = self.scopes.pop().ok_or_else(|| lost("the level"))?;
        accessor::close(out, &scope).map_err(Error::UserError)
    }

    fn count_alias(&mut self, alias: &ComponentAlias<'_>) -> Outcome {
        match *alias {
            ComponentAlias::InstanceExport { kind, .. } => self.count(kind)?,
            ComponentAlias::CoreInstanceExport {
                kind: ExternalKind::Func | ExternalKind::FuncExact, ..
            } => {
                self.scope()?.core_functions += 1;
            }
            ComponentAlias::CoreInstanceExport { .. } => {}
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
                    self.scope()?.modules.push(module);
                }
            },
        }
        Ok(())
    }

    /// Aliases the functions that go with the resource types that a section uses, which must come before it.
    fn alias_drops(&mut self, out: &mut Component, payload: &Payload<'_>) -> Outcome {
        let mut aliases = ComponentAliasSection::new();
        let mut drops = Vec::new();
        for _ in resources::uses(payload)? {
            let Some(source) = self.sources.next().ok_or_else(|| lost("a resource type"))? else {
                drops.push(None);
                continue;
            };
            let scope = self.scope()?;
            let function = match (scope.drops.get(&source), &source) {
                (Some(function), _) => *function,
                (None, Source::Import(_)) => return Err(lost("an imported resource type")),
                (None, Source::Instance { instance, name }) => {
                    let name = names::drop(name);
                    let kind = ComponentExportKind::Func;
                    aliases.alias(Alias::InstanceExport { instance: *instance, kind, name: &name });
                    let function = scope.new_function();
                    scope.drops.insert(source, function);
                    function
                }
            };
            drops.push(Some(function));
        }
        if !aliases.is_empty() {
            out.section(&aliases);
        }
        self.drops = drops.into_iter();
        Ok(())
    }

    /// The name and function that go with a type that is handed on under `name`, where that is a resource type.
    fn drop_beside(&mut self, kind: ComponentExternalKind, name: &str) -> Option<(String, u32)> {
        if kind != ComponentExternalKind::Type {
            return None;
        }
        self.drops.next().flatten().map(|function| (names::drop(name), function))
    }

    /// Counts what a section adds, before it is written.
    fn before(&mut self, out: &mut Component, payload: &Payload<'_>) -> Outcome {
        self.alias_drops(out, payload)?;
        match payload {
            Payload::Version { .. } => self.open_level(out),
            Payload::ComponentTypeSection(section) => self.scope()?.types += section.count(),
            Payload::ComponentCanonicalSection(section) => {
                let scope = self.scope()?;
                for function in section.clone() {
                    match function? {
                        CanonicalFunction::Lift { .. } => scope.old_function(),
                        _ => scope.core_functions += 1,
                    }
                }
            }
            Payload::InstanceSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, instance) = item?;
                    let scope = self.scope()?;
                    let index = scope.core_instances;
                    scope.core_instances += 1;
                    let wasmparser::Instance::Instantiate { module_index, .. } = instance else { continue };
                    match scope.modules.get(module_index as usize) {
                        Some(Some(info)) if info.is_stateful() => scope.stateful.push((index, info.clone())),
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
                    match scope.components.get(component_index as usize) {
                        Some(Some(state)) if state.accessors.is_empty() => {}
                        Some(Some(state)) => scope.nested.push((index, state.clone())),
                        Some(None) => return self.refuse(Reason::ForeignComponent, offset),
                        None => return Err(lost("a component")),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A name of the old component as it is in the new one.
fn extern_name<'a>(name: &wasmparser::ComponentExternName<'a>) -> ComponentExternName<'a> {
    ComponentExternName { name: names::flat(name.name), ..ComponentExternName::from(*name) }
}

impl Reencode for Rewriter {
    type Error = ComponentError;
}

impl ReencodeComponent for Rewriter {
    fn component_type_index(&mut self, index: u32) -> u32 {
        index + SHIFT
    }

    fn component_func_index(&mut self, index: u32) -> u32 {
        // validated before: an index that is not there cannot come up
        let scope = self.scopes.last();
        scope.and_then(|scope| scope.functions.get(index as usize)).copied().unwrap_or(u32::MAX)
    }

    fn type_bounds(&mut self, bounds: wasmparser::TypeBounds) -> TypeBounds {
        match bounds {
            wasmparser::TypeBounds::SubResource => TypeBounds::Eq(TYPE_HANDLE),
            wasmparser::TypeBounds::Eq(index) => TypeBounds::Eq(index + SHIFT),
        }
    }

    fn parse_component_payload(
        &mut self,
        out: &mut Component,
        payload: Payload<'_>,
        whole: &[u8],
    ) -> Outcome {
        self.before(out, &payload)?;
        utils::parse_component_payload(self, out, payload, whole)
    }

    fn parse_component_subcomponent(
        &mut self,
        out: &mut Component,
        parser: wasmparser::Parser,
        data: &[u8],
        whole: &[u8],
    ) -> Outcome {
        let mut nested = Component::new();
        utils::parse_component(self, &mut nested, parser, data, whole)?;
        let state = self.close_level(&mut nested)?;
        out.section(&NestedComponentSection(&nested));
        self.scope()?.components.push(Some(state));
        Ok(())
    }

    fn parse_component_submodule(
        &mut self,
        out: &mut Component,
        _: wasmparser::Parser,
        wasm: &[u8],
    ) -> Outcome {
        let info = ModuleInfo::read(wasm)?;
        let module = module::instrument(wasm, &info, self.variant).map_err(Error::UserError)?;
        out.section(&ModuleSection(&module));
        self.scope()?.modules.push(Some(Rc::new(info)));
        Ok(())
    }

    fn parse_component_custom_section(
        &mut self,
        _: &mut Component,
        _: wasmparser::CustomSectionReader<'_>,
    ) -> Outcome {
        Ok(()) // names of items by index, which have moved
    }

    fn parse_component_import_section(
        &mut self,
        imports: &mut ComponentImportSection,
        section: wasmparser::ComponentImportSectionReader<'_>,
    ) -> Outcome {
        for import in section {
            let import = import?;
            let ty = self.component_type_ref(import.ty)?;
            imports.import(extern_name(&import.name), ty);
            self.count(import.ty.kind())?;
            if is_resource(&import.ty) {
                imports.import(names::drop(import.name.name).as_str(), ComponentTypeRef::Func(TYPE_DROP));
                self.scope()?.import_drop();
            }
        }
        Ok(())
    }

    fn parse_component_export_section(
        &mut self,
        exports: &mut ComponentExportSection,
        section: wasmparser::ComponentExportSectionReader<'_>,
    ) -> Outcome {
        for item in section.into_iter_with_offsets() {
            let (offset, export) = item?;
            let ty = export.ty.map(|ty| self.component_type_ref(ty)).transpose()?;
            let index = self.component_external_index(export.kind, export.index);
            let name = extern_name(&export.name);
            let mut exported = std::mem::take(&mut self.scope()?.exported);
            self.take(&mut exported, &name.name, offset)?;
            self.scope()?.exported = exported;
            exports.export(name, export.kind.into(), index, ty);
            self.count(export.kind)?;
            if let Some((name, function)) = self.drop_beside(export.kind, export.name.name) {
                exports.export(name.as_str(), ComponentExportKind::Func, function, None);
                self.scope()?.new_function();
            }
        }
        Ok(())
    }

    fn parse_component_alias_section(
        &mut self,
        aliases: &mut ComponentAliasSection,
        section: wasmparser::ComponentAliasSectionReader<'_>,
    ) -> Outcome {
        for alias in section {
            let alias = alias?;
            self.count_alias(&alias)?;
            if let ComponentAlias::InstanceExport { kind, instance_index, name } = alias {
                let name = names::flat(name);
                aliases.alias(Alias::InstanceExport {
                    instance: instance_index,
                    kind: kind.into(),
                    name: &name,
                });
            } else {
                let alias = self.component_alias(alias)?;
                aliases.alias(alias);
            }
        }
        Ok(())
    }

    fn parse_component_instance_section(
        &mut self,
        instances: &mut ComponentInstanceSection,
        section: wasmparser::ComponentInstanceSectionReader<'_>,
    ) -> Outcome {
        for item in section.into_iter_with_offsets() {
            let (offset, instance) = item?;
            match instance {
                ComponentInstance::Instantiate { component_index, args } => {
                    let mut new = Vec::with_capacity(args.len());
                    for arg in &args {
                        let index = self.component_external_index(arg.kind, arg.index);
                        new.push((names::flat(arg.name), arg.kind.into(), index));
                        if let Some((name, function)) = self.drop_beside(arg.kind, arg.name) {
                            new.push((name.into(), ComponentExportKind::Func, function));
                        }
                    }
                    instances.instantiate(component_index, new);
                }
                ComponentInstance::FromExports(exports) => {
                    let mut new = Vec::with_capacity(exports.len());
                    let mut taken = Taken::default();
                    for export in &exports {
                        let index = self.component_external_index(export.kind, export.index);
                        let name = extern_name(&export.name);
                        self.take(&mut taken, &name.name, offset)?;
                        new.push((name, export.kind.into(), index));
                        if let Some((name, function)) = self.drop_beside(export.kind, export.name.name) {
                            new.push((name.into(), ComponentExportKind::Func, function));
                        }
                    }
                    instances.export_items(new);
                }
            }
        }
        Ok(())
    }

    fn component_instance_type(
        &mut self,
        declarations: Box<[wasmparser::InstanceTypeDeclaration<'_>]>,
    ) -> Outcome<InstanceType> {
        let mut ty = InstanceType::new();
        handle_type(ty.ty());
        drop_type(ty.ty());
        let mut exported = Taken::default();
        for declaration in Vec::from(declarations) {
            match declaration {
                wasmparser::InstanceTypeDeclaration::Export { name, ty: of } => {
                    let new = extern_name(&name);
                    // the reader keeps no offsets within types
                    self.take(&mut exported, &new.name, 0)?;
                    let of_new = self.component_type_ref(of)?;
                    ty.export(new, of_new);
                    if is_resource(&of) {
                        ty.export(names::drop(name.name).as_str(), ComponentTypeRef::Func(TYPE_DROP));
                    }
                }
                wasmparser::InstanceTypeDeclaration::Alias(ComponentAlias::InstanceExport {
                    kind,
                    instance_index: instance,
                    name,
                }) => {
                    ty.alias(Alias::InstanceExport { instance, kind: kind.into(), name: &names::flat(name) });
                }
                other => self.parse_component_instance_type_declaration(&mut ty, other)?,
            }
        }
        Ok(ty)
    }

    fn component_type(
        &mut self,
        declarations: Box<[wasmparser::ComponentTypeDeclaration<'_>]>,
    ) -> Outcome<ComponentType> {
        let mut ty = ComponentType::new();
        handle_type(ty.ty());
        drop_type(ty.ty());
        for declaration in Vec::from(declarations) {
            match declaration {
                wasmparser::ComponentTypeDeclaration::Export { name, ty: of } => {
                    let of_new = self.component_type_ref(of)?;
                    ty.export(extern_name(&name), of_new);
                    if is_resource(&of) {
                        ty.export(names::drop(name.name).as_str(), ComponentTypeRef::Func(TYPE_DROP));
                    }
                }
                wasmparser::ComponentTypeDeclaration::Import(import) => {
                    let of = self.component_type_ref(import.ty)?;
                    ty.import(extern_name(&import.name), of);
                    if is_resource(&import.ty) {
                        ty.import(names::drop(import.name.name).as_str(), ComponentTypeRef::Func(TYPE_DROP));
                    }
                }
                wasmparser::ComponentTypeDeclaration::Alias(ComponentAlias::InstanceExport {
                    kind,
                    instance_index: instance,
                    name,
                }) => {
                    ty.alias(Alias::InstanceExport { instance, kind: kind.into(), name: &names::flat(name) });
                }
                other => self.parse_component_type_declaration(&mut ty, other)?,
            }
        }
        Ok(ty)
    }

    fn parse_component_defined_type(
        &mut self,
        out: ComponentDefinedTypeEncoder<'_>,
        ty: wasmparser::ComponentDefinedType<'_>,
    ) -> Outcome {
        if let wasmparser::ComponentDefinedType::Own(_) | wasmparser::ComponentDefinedType::Borrow(_) = ty {
            out.primitive(PrimitiveValType::U32);
            return Ok(());
        }
        utils::parse_component_defined_type(self, out, ty)
    }

    fn parse_component_canonical(
        &mut self,
        out: &mut CanonicalFunctionSection,
        function: CanonicalFunction,
    ) -> Outcome {
        if let CanonicalFunction::ResourceDrop { .. } = function {
            let function = self.drops.next().flatten().ok_or_else(|| lost("a dropped resource"))?;
            out.lower(function, []);
            return Ok(());
        }
        utils::parse_component_canonical(self, out, function)
    }
}

/// Whether an import or export of a type is a resource type that nothing else says more of.
fn is_resource(ty: &wasmparser::ComponentTypeRef) -> bool {
    matches!(ty, wasmparser::ComponentTypeRef::Type(wasmparser::TypeBounds::SubResource))
}

/// Defines [`TYPE_HANDLE`], the first type of every type space.
fn handle_type(ty: ComponentTypeEncoder<'_>) {
    ty.defined_type().primitive(PrimitiveValType::U32);
}

/// Defines [`TYPE_DROP`], the second type of every type space.
fn drop_type(ty: ComponentTypeEncoder<'_>) {
    ty.function().params([("handle", PrimitiveValType::U32)]).result(None);
}
