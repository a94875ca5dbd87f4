//! Writes the new component while reading the old one.

use std::rc::Rc;
use std::vec::IntoIter;

use wasm_encoder::reencode::component_utils as utils;
use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent};
use wasm_encoder::{
    Alias, Component, ComponentAliasSection, ComponentDefinedTypeEncoder, ComponentExportKind,
    ComponentExportSection, ComponentExternName, ComponentImportSection, ComponentInstanceSection,
    ComponentType, ComponentTypeEncoder, ComponentTypeRef, InstanceSection, InstanceType, ModuleSection,
    NestedComponentSection, PrimitiveValType, TypeBounds,
};
use wasmparser::{ComponentAlias, ComponentInstance, Payload};

use super::resources::{Lift, Needs, Plan, Source};
use super::scope::{INSTANCE_HOST, Scope, TYPE_DROP, TYPE_HANDLE, TYPE_HOST, Taken};
use super::{Rewritten, Variant, host, module, names, recode, refused};
use crate::component::error::ComponentError;
use crate::component::module::ModuleInfo;
use crate::component::refuse::{Place, Reason};

pub(super) type Outcome<T = ()> = Result<T, Error<ComponentError>>;

/// Rewrites the outermost level and all within it.
pub fn component(
    wasm: &[u8],
    variant: Variant,
    plan: Plan,
    recode: recode::Plan<'_>,
) -> Result<Rewritten, ComponentError> {
    let mut rewriter = Rewriter {
        scopes: Vec::new(),
        variant,
        needs_host: plan.needs_host(),
        levels: plan.levels.into_iter(),
        sources: plan.sources.into_iter(),
        lifts: plan.lifts.into_iter(),
        drops: Vec::new().into_iter(),
        defined: 0,
        recode,
        levels_begun: 0,
        modules_begun: 0,
    };
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
        memories: state.memories.clone(),
        globals: state.globals,
    })
}

pub(super) struct Rewriter<'a> {
    pub(super) scopes: Vec<Scope>,
    pub(super) variant: Variant,
    /// Whether all levels have the host's interface.
    pub(super) needs_host: bool,
    /// What the levels to come need.
    pub(super) levels: IntoIter<Needs>,
    /// Of all that [`resources::uses`] says of the sections to come.
    pub(super) sources: IntoIter<Option<Source>>,
    /// What is lent to the functions that are lifted in the sections to come.
    pub(super) lifts: IntoIter<Option<Lift>>,
    /// The functions that go with what the current section uses, where that is a resource type.
    pub(super) drops: IntoIter<Option<(Source, u32)>>,
    /// Resource types that have been defined at all levels.
    pub(super) defined: u32,
    /// Which core modules are written anew.
    pub(super) recode: recode::Plan<'a>,
    /// Levels and core modules that have begun.
    pub(super) levels_begun: usize,
    pub(super) modules_begun: usize,
}

pub(super) fn lost(what: &str) -> Error<ComponentError> {
    Error::UserError(ComponentError::Rewriter(format!("lost track of {what}")))
}

impl Rewriter<'_> {
    pub(super) fn scope(&mut self) -> Outcome<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| lost("the level"))
    }

    /// The level that an outer alias counts to.
    pub(super) fn outer(&self, count: u32) -> Outcome<&Scope> {
        let index =
            self.scopes.len().checked_sub(1 + count as usize).ok_or_else(|| lost("an outer level"))?;
        self.scopes.get(index).ok_or_else(|| lost("an outer level"))
    }

    pub(super) fn place(&self, offset: usize) -> Place {
        let components = self.scopes.iter().skip(1).map(|scope| scope.index).collect();
        Place { components, module: None, function: None, offset: offset as u64 }
    }

    pub(super) fn refuse<T>(&self, reason: Reason, offset: usize) -> Outcome<T> {
        Err(Error::UserError(refused(reason, self.place(offset))))
    }

    /// Notes a new name, which no other of the same interface may have become.
    pub(super) fn take(&self, taken: &mut Taken, name: &str, offset: usize) -> Outcome {
        if taken.insert(name.to_ascii_lowercase()) {
            return Ok(());
        }
        self.refuse(Reason::NameCollision(name.to_owned()), offset)
    }

    /// How many types are in front of every type space, so that all indices shift by that.
    pub(super) fn shift(&self) -> u32 {
        if self.needs_host { TYPE_HOST + 1 } else { TYPE_DROP + 1 }
    }

    /// Defines the types in front; `next` gives the encoder of the next type.
    pub(super) fn types_in_front<T>(&self, types: &mut T, next: impl Fn(&mut T) -> ComponentTypeEncoder<'_>) {
        next(types).defined_type().primitive(PrimitiveValType::U32);
        next(types).function().params([("handle", PrimitiveValType::U32)]).result(None);
        if self.needs_host {
            host::define(next(types));
        }
    }
}

/// A name of the old component as it is in the new one.
fn extern_name<'a>(name: &wasmparser::ComponentExternName<'a>) -> ComponentExternName<'a> {
    ComponentExternName { name: names::flat(name.name), ..ComponentExternName::from(*name) }
}

impl Reencode for Rewriter<'_> {
    type Error = ComponentError;

    /// Core modules are written elsewhere: this is about the core functions of a level.
    fn function_index(&mut self, index: u32) -> Outcome<u32> {
        Ok(self.scope()?.core_functions.get(index))
    }

    fn memory_index(&mut self, index: u32) -> Outcome<u32> {
        Ok(self.scope()?.core_items.memory(index))
    }

    fn table_index(&mut self, index: u32) -> Outcome<u32> {
        Ok(self.scope()?.core_items.table(index))
    }

    fn global_index(&mut self, index: u32) -> Outcome<u32> {
        Ok(self.scope()?.core_items.global(index))
    }
}

impl ReencodeComponent for Rewriter<'_> {
    fn component_type_index(&mut self, index: u32) -> u32 {
        index + self.shift()
    }

    fn component_instance_index(&mut self, index: u32) -> u32 {
        index + u32::from(self.needs_host)
    }

    fn component_func_index(&mut self, index: u32) -> u32 {
        self.scopes.last().map_or(u32::MAX, |scope| scope.functions.get(index))
    }

    fn module_index(&mut self, index: u32) -> u32 {
        self.scopes.last().map_or(u32::MAX, |scope| scope.core_modules.get(index))
    }

    fn outer_module_index(&mut self, count: u32, index: u32) -> u32 {
        self.outer(count).map_or(u32::MAX, |scope| scope.core_modules.get(index))
    }

    fn instance_index(&mut self, index: u32) -> u32 {
        self.scopes.last().map_or(u32::MAX, |scope| scope.core_instances.get(index))
    }

    fn component_alias<'b>(&mut self, alias: ComponentAlias<'b>) -> Outcome<Alias<'b>> {
        if let ComponentAlias::CoreInstanceExport { kind, instance_index, name } = alias {
            let kind = self.scope()?.core_items.kind(kind);
            let instance = self.instance_index(instance_index);
            return Ok(Alias::CoreInstanceExport { instance, kind: kind.into(), name });
        }
        utils::component_alias(self, alias)
    }

    fn parse_instance(&mut self, out: &mut InstanceSection, instance: wasmparser::Instance<'_>) -> Outcome {
        self.core_instance(out, instance)
    }

    fn type_bounds(&mut self, bounds: wasmparser::TypeBounds) -> TypeBounds {
        match bounds {
            wasmparser::TypeBounds::SubResource => TypeBounds::Eq(TYPE_HANDLE),
            wasmparser::TypeBounds::Eq(index) => TypeBounds::Eq(index + self.shift()),
        }
    }

    fn parse_component_payload(
        &mut self,
        out: &mut Component,
        payload: Payload<'_>,
        whole: &[u8],
    ) -> Outcome {
        self.before(out, &payload)?;
        match payload {
            Payload::ComponentCanonicalSection(section) => self.canonical_section(out, section),
            Payload::ComponentTypeSection(ref section) => {
                let section = section.clone();
                utils::parse_component_payload(self, out, payload, whole)?;
                self.define_resources(out, section)
            }
            _ => utils::parse_component_payload(self, out, payload, whole),
        }
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
        let recoded = self.recode.recode(self.modules_begun, wasm).map_err(Error::UserError)?;
        self.modules_begun += 1;
        let wasm = recoded.as_ref().map_or(wasm, |it| &it.wasm);
        let mut info = ModuleInfo::read(wasm)?;
        info.has_references = recoded.as_ref().is_some_and(|it| it.has_references);
        let module = module::instrument(wasm, &info, self.variant).map_err(Error::UserError)?;
        out.section(&ModuleSection(&module));
        let scope = self.scope()?;
        scope.modules.push(Some(Rc::new(info)));
        scope.core_modules.push_old();
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
                self.scope()?.functions.push_new();
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
                    instance: self.component_instance_index(instance_index),
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
                    let mut new = Vec::with_capacity(args.len() + 1);
                    if self.needs_host {
                        new.push((host::INTERFACE.into(), ComponentExportKind::Instance, INSTANCE_HOST));
                    }
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
        self.types_in_front(&mut ty, InstanceType::ty);
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
        self.types_in_front(&mut ty, ComponentType::ty);
        if self.needs_host {
            ty.import(host::INTERFACE, ComponentTypeRef::Instance(TYPE_HOST));
        }
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

    fn parse_component_type(
        &mut self,
        out: ComponentTypeEncoder<'_>,
        ty: wasmparser::ComponentType<'_>,
    ) -> Outcome {
        if let wasmparser::ComponentType::Resource { .. } = ty {
            out.defined_type().primitive(PrimitiveValType::U32);
            return Ok(());
        }
        utils::parse_component_type(self, out, ty)
    }
}

/// Whether an import or export of a type is a resource type that nothing else says more of.
fn is_resource(ty: &wasmparser::ComponentTypeRef) -> bool {
    matches!(ty, wasmparser::ComponentTypeRef::Type(wasmparser::TypeBounds::SubResource))
}
