//! What has to be known of resources before a component is rewritten: which function drops the handles of each that a
//! level drops or hands on, and which lifted functions get handles lent.
//!
//! Wherever a resource type `r` is imported, exported, put into an instance or given to a nested component, a function
//! `drop-r` goes with it. So the first thing at a level that has a resource type also has its function: an instance
//! that exports it, an import of the type by itself, or the definition of the type.

use std::collections::HashMap;

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType, ResourceId};
use wasmparser::types::TypesRef;
use wasmparser::{
    CanonicalFunction, ComponentExternalKind, ComponentInstance, ComponentType, ComponentTypeRef, Encoding,
    Parser, Payload, TypeBounds, Validator,
};

use super::adapter::{self, Signature};
use super::borrows::{Borrows, Lender, Reader, Shape};
use super::refused;
use crate::component::error::ComponentError;
use crate::component::refuse::{Place, Reason};
use crate::component::{features, limits};

/// Where the function comes from that drops the handles of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// An instance of the level exports the type.
    Instance {
        /// Its index.
        instance: u32,
        /// Name of the type there.
        name: String,
    },
    /// The type is the level's import: so many resource types were imported by themselves before it.
    Import(u32),
    /// The level defines the type: so many were defined before it.
    Defined(u32),
}

/// What the rewriter has to add to a level.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    /// It calls the host.
    pub host: bool,
    /// Handles of others' resources are lent to its functions.
    pub lent: bool,
}

/// A lifted function to which handles are lent.
#[derive(Debug, Clone)]
pub struct Lift {
    /// Where its parameters hold them.
    pub borrows: Borrows,
    /// The type of the core function that is lifted.
    pub signature: Signature,
}

/// What has to be known of a component.
#[derive(Default)]
pub struct Plan {
    /// For everything of all levels that [`uses`] types, in the order of the file, where the function that drops it
    /// comes from: none where it is not a resource type.
    pub sources: Vec<Option<Source>>,
    /// For every lifted function of all levels, in the order of the file, what is lent to it.
    pub lifts: Vec<Option<Lift>>,
    /// What levels need, in the order in which they begin.
    pub levels: Vec<Needs>,
    /// Resource types that levels define.
    types: usize,
    /// Places in which lifted functions get handles.
    places: usize,
}

impl Plan {
    /// Whether any level calls the host.
    pub fn needs_host(&self) -> bool {
        self.levels.iter().any(|needs| needs.host)
    }
}

/// The sources of resource types at one level, found as instances and imports come up.
#[derive(Default)]
struct Level {
    path: Vec<u32>,
    /// Which level of the plan it is.
    number: usize,
    subcomponents: u32,
    sources: HashMap<ResourceId, Source>,
    /// Instances that have been looked at.
    instances: u32,
    /// Resource types imported by themselves.
    imports: u32,
    reader: Reader,
}

impl Level {
    /// Looks at the instances that have come up, of `count` that there are.
    fn observe_instances(&mut self, types: TypesRef<'_>, count: u32) {
        while self.instances < count {
            let instance = self.instances;
            self.instances += 1;
            for (name, item) in &types[types.component_instance_at(instance)].exports {
                if let ComponentEntityType::Type { created: ComponentAnyTypeId::Resource(id), .. } = item.ty {
                    let source = Source::Instance { instance, name: name.clone() };
                    self.sources.entry(id.resource()).or_insert(source);
                }
            }
        }
    }

    /// Looks at the imports of a section in their order; `type_index` is the first type that they made.
    fn observe_imports(
        &mut self,
        types: TypesRef<'_>,
        section: &wasmparser::ComponentImportSectionReader<'_>,
        mut type_index: u32,
    ) -> Result<(), wasmparser::Error> {
        for import in section.clone() {
            match import?.ty {
                ComponentTypeRef::Instance(_) => self.observe_instances(types, self.instances + 1),
                ComponentTypeRef::Type(bounds) => {
                    if let TypeBounds::SubResource = bounds {
                        if let ComponentAnyTypeId::Resource(id) = types.component_any_type_at(type_index) {
                            self.sources.entry(id.resource()).or_insert(Source::Import(self.imports));
                        }
                        self.imports += 1;
                    }
                    type_index += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks at the resource types that a section has defined, of which there were `before` in all levels.
    fn observe_definitions(
        &mut self,
        types: TypesRef<'_>,
        section: &wasmparser::ComponentTypeSectionReader<'_>,
        before: usize,
    ) -> Result<usize, wasmparser::Error> {
        let mut found = 0;
        for (index, ty) in (types.component_type_count() - section.count()..).zip(section.clone()) {
            if let ComponentType::Resource { .. } = ty?
                && let ComponentAnyTypeId::Resource(id) = types.component_any_type_at(index)
            {
                let own = &mut self.reader.own;
                let source = Source::Defined(own.len() as u32);
                self.sources.insert(id.resource(), source);
                own.insert(id.resource(), (before + found) as u32);
                found += 1;
            }
        }
        Ok(found)
    }

    /// What is lent to a lifted function.
    fn lift(&mut self, types: TypesRef<'_>, function: u32, ty: u32) -> Result<Option<Lift>, Reason> {
        let ComponentAnyTypeId::Func(ty) = types.component_any_type_at(ty) else { return Ok(None) };
        let Some(borrows) = self.reader.read(types, ty) else { return Ok(None) };
        if borrows.places > limits::MAX_FUNCTION_BORROWS {
            return Err(Reason::BorrowedHandle);
        }
        let core = types[types.core_function_at(function)].unwrap_func();
        let numbers = |of: &[wasmparser::ValType]| -> Option<Vec<wasm_encoder::ValType>> {
            of.iter().map(|ty| RoundtripReencoder.val_type(*ty).ok()).collect()
        };
        match (numbers(core.params()), numbers(core.results())) {
            (Some(params), Some(results)) => {
                Ok(Some(Lift { borrows, signature: Signature { params, results } }))
            }
            _ => Err(Reason::BorrowedHandle),
        }
    }

    fn source(&self, types: TypesRef<'_>, type_index: u32) -> Option<&Source> {
        match types.component_any_type_at(type_index) {
            ComponentAnyTypeId::Resource(id) => self.sources.get(&id.resource()),
            _ => None,
        }
    }
}

/// Reads what has to be known of a component.
///
/// # Errors
/// A component is refused for a resource type that is dropped and comes from nowhere, and for a function that gets
/// handles in too many places; [`ComponentError::Limit`].
pub fn plan(wasm: &[u8]) -> Result<Plan, ComponentError> {
    let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
    let mut validator = Validator::new_with_features(features::supported());
    let mut levels: Vec<Level> = Vec::new();
    let mut path = Vec::new();
    let mut plan = Plan::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(invalid)?;
        walk_levels(&payload, &mut levels, &mut path);
        if let (Payload::Version { encoding: Encoding::Component, .. }, Some(level)) =
            (&payload, levels.last_mut())
        {
            level.number = plan.levels.len();
            plan.levels.push(Needs::default());
        }
        let used = uses(&payload).map_err(invalid)?;
        let is_import = matches!(payload, Payload::ComponentImportSection(_));
        let mut first_type = 0;
        if (is_import || is_canonical(&payload) || !used.is_empty())
            && let (Some(types), Some(level)) = (validator.types(0), levels.last_mut())
        {
            first_type = types.component_type_count();
            level.observe_instances(types, types.component_instance_count());
        }
        // function bodies have been validated before
        validator.payload(&payload).map_err(invalid)?;
        // an export can name what the same section exports, so that this is asked afterwards
        let (Some(types), Some(level)) = (validator.types(0), levels.last_mut()) else {
            if used.is_empty() {
                continue;
            }
            return Err(ComponentError::Rewriter("types are used outside a component".to_owned()));
        };
        match &payload {
            Payload::ComponentImportSection(section) => {
                level.observe_imports(types, section, first_type).map_err(invalid)?;
            }
            Payload::ComponentTypeSection(section) => {
                let found = level.observe_definitions(types, section, plan.types).map_err(invalid)?;
                plan.types += found;
                ComponentError::limit("resource types of its own", plan.types, limits::MAX_RESOURCES)?;
                plan.levels[level.number].host |= found > 0;
            }
            Payload::ComponentCanonicalSection(section) => plan.lifts(section, types, level)?,
            _ => {}
        }
        plan.sources.extend(used.into_iter().map(|index| level.source(types, index).cloned()));
    }
    Ok(plan)
}

impl Plan {
    /// Reads a section of canonical functions.
    fn lifts(
        &mut self,
        section: &wasmparser::ComponentCanonicalSectionReader<'_>,
        types: TypesRef<'_>,
        level: &mut Level,
    ) -> Result<(), ComponentError> {
        for item in section.clone().into_iter_with_offsets() {
            let (offset, function) = item.map_err(|error| ComponentError::invalid(&error))?;
            let place = || {
                let components = level.path.clone();
                Place { components, module: None, function: None, offset: offset as u64 }
            };
            match function {
                CanonicalFunction::ResourceDrop { resource } if level.source(types, resource).is_none() => {
                    return Err(refused(Reason::LooseResource, place()));
                }
                CanonicalFunction::Lift { core_func_index, type_index, .. } => {
                    let place = place();
                    let found = level.lift(types, core_func_index, type_index);
                    let lift = found.map_err(|reason| refused(reason, place))?;
                    if let Some(lift) = &lift {
                        self.places += lift.borrows.places;
                        ComponentError::limit(
                            "borrowed handles in parameters",
                            self.places,
                            limits::MAX_BORROWS,
                        )?;
                        let needs = &mut self.levels[level.number];
                        needs.host = true;
                        needs.lent |= adapter::any(&lift.borrows.shape, &mut |shape| {
                            *shape == Shape::Handle(Lender::Other)
                        });
                    }
                    self.lifts.push(lift);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_canonical(payload: &Payload<'_>) -> bool {
    matches!(payload, Payload::ComponentCanonicalSection(_))
}

/// The types that a section makes, reads or drops handles of or hands on, in order.
pub fn uses(payload: &Payload<'_>) -> Result<Vec<u32>, wasmparser::Error> {
    let mut used = Vec::new();
    let mut hand_on = |kind, index| {
        if kind == ComponentExternalKind::Type {
            used.push(index);
        }
    };
    match payload {
        Payload::ComponentCanonicalSection(section) => {
            for function in section.clone() {
                if let CanonicalFunction::ResourceNew { resource }
                | CanonicalFunction::ResourceRep { resource }
                | CanonicalFunction::ResourceDrop { resource } = function?
                {
                    used.push(resource);
                }
            }
        }
        Payload::ComponentInstanceSection(section) => {
            for instance in section.clone() {
                match instance? {
                    ComponentInstance::Instantiate { args, .. } => {
                        args.iter().for_each(|arg| hand_on(arg.kind, arg.index));
                    }
                    ComponentInstance::FromExports(exports) => {
                        exports.iter().for_each(|export| hand_on(export.kind, export.index));
                    }
                }
            }
        }
        Payload::ComponentExportSection(section) => {
            for export in section.clone() {
                let export = export?;
                hand_on(export.kind, export.index);
            }
        }
        _ => {}
    }
    Ok(used)
}

/// Where a resource type is first handed on by itself, rather than as part of an interface: exported, or put into
/// an instance. The start of the file where it is not.
pub fn handed_on(wasm: &[u8]) -> Result<Place, ComponentError> {
    let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
    let mut validator = Validator::new_with_features(features::supported());
    let mut levels: Vec<Level> = Vec::new();
    let mut path = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(invalid)?;
        walk_levels(&payload, &mut levels, &mut path);
        let mut types_of = Vec::new();
        match &payload {
            Payload::ComponentInstanceSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, ComponentInstance::FromExports(exports)) = item.map_err(invalid)? else {
                        continue;
                    };
                    types_of.extend(exports.iter().map(|export| (offset, export.kind, export.index)));
                }
            }
            Payload::ComponentExportSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, export) = item.map_err(invalid)?;
                    types_of.push((offset, export.kind, export.index));
                }
            }
            _ => {}
        }
        // an export can name another of its own section
        validator.payload(&payload).map_err(invalid)?;
        let Some(types) = validator.types(0) else { continue };
        for (offset, kind, index) in types_of {
            if kind == ComponentExternalKind::Type
                && let ComponentAnyTypeId::Resource(_) = types.component_any_type_at(index)
            {
                let components = levels.last().map(|level| level.path.clone()).unwrap_or_default();
                return Ok(Place { components, module: None, function: None, offset: offset as u64 });
            }
        }
    }
    Ok(Place::default())
}

/// Notes the beginning and end of components.
fn walk_levels(payload: &Payload<'_>, levels: &mut Vec<Level>, path: &mut Vec<u32>) {
    match payload {
        Payload::ComponentSection { .. } => {
            if let Some(level) = levels.last_mut() {
                path.clone_from(&level.path);
                path.push(level.subcomponents);
                level.subcomponents += 1;
            }
        }
        Payload::Version { encoding: Encoding::Component | Encoding::Module, .. } => {
            levels.push(Level { path: std::mem::take(path), ..Level::default() });
        }
        Payload::End(_) => {
            levels.pop();
        }
        _ => {}
    }
}
