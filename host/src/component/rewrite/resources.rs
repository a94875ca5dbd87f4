//! Which function drops the handles of each resource that a level drops or hands on, and whether handles are only
//! ever owned by guests.
//!
//! Wherever a resource type `r` is imported, exported, put into an instance or given to a nested component, a function
//! `drop-r` goes with it. So the first thing at a level that has a resource type also has its function: an instance
//! that exports it, or an import of the type by itself.

use std::collections::HashMap;

use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType, ResourceId};
use wasmparser::types::TypesRef;
use wasmparser::{
    CanonicalFunction, ComponentExternalKind, ComponentInstance, ComponentTypeRef, Encoding, Parser, Payload,
    TypeBounds, Validator,
};

use super::borrows::takes_borrow;
use super::refused;
use crate::component::error::ComponentError;
use crate::component::features;
use crate::component::refuse::{Place, Reason};

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
}

/// The sources of resource types at one level, found as instances and imports come up.
#[derive(Default)]
struct Level {
    path: Vec<u32>,
    subcomponents: u32,
    sources: HashMap<ResourceId, Source>,
    /// Instances that have been looked at.
    instances: u32,
    /// Resource types imported by themselves.
    imports: u32,
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

    fn source(&self, types: TypesRef<'_>, type_index: u32) -> Option<&Source> {
        match types.component_any_type_at(type_index) {
            ComponentAnyTypeId::Resource(id) => self.sources.get(&id.resource()),
            _ => None,
        }
    }
}

/// For everything of all levels that [`uses`] types, in the order of the file, where the function that goes with it
/// comes from: none where it is not a resource type.
///
/// # Errors
/// A component is refused for a resource type that is dropped and comes from nowhere, and for a function that takes
/// a borrowed handle.
pub fn sources(wasm: &[u8]) -> Result<Vec<Option<Source>>, ComponentError> {
    let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
    let mut validator = Validator::new_with_features(features::supported());
    let mut levels: Vec<Level> = Vec::new();
    let mut path = Vec::new();
    let mut out = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(invalid)?;
        walk_levels(&payload, &mut levels, &mut path);
        let used = uses(&payload).map_err(invalid)?;
        let is_import = matches!(payload, Payload::ComponentImportSection(_));
        let mut first_type = 0;
        if (is_import || is_canonical(&payload) || !used.is_empty())
            && let (Some(types), Some(level)) = (validator.types(0), levels.last_mut())
        {
            first_type = types.component_type_count();
            level.observe_instances(types, types.component_instance_count());
            if let Payload::ComponentCanonicalSection(section) = &payload {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, function) = item.map_err(invalid)?;
                    let reason = match function {
                        CanonicalFunction::ResourceDrop { resource }
                            if level.source(types, resource).is_none() =>
                        {
                            Reason::LooseResource
                        }
                        CanonicalFunction::Lift { type_index, .. } if takes_borrow(types, type_index) => {
                            Reason::BorrowedHandle
                        }
                        _ => continue,
                    };
                    let components = level.path.clone();
                    let place = Place { components, module: None, function: None, offset: offset as u64 };
                    return Err(refused(reason, place));
                }
            }
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
        if let Payload::ComponentImportSection(section) = &payload {
            level.observe_imports(types, section, first_type).map_err(invalid)?;
        }
        out.extend(used.into_iter().map(|index| level.source(types, index).cloned()));
    }
    Ok(out)
}

fn is_canonical(payload: &Payload<'_>) -> bool {
    matches!(payload, Payload::ComponentCanonicalSection(_))
}

/// The types that a section drops handles of or hands on, in order.
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
                if let CanonicalFunction::ResourceDrop { resource } = function? {
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
