//! Which interface each dropped handle belongs to, and whether handles are only ever owned by guests.

use std::collections::HashMap;

use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType, ResourceId};
use wasmparser::{
    CanonicalFunction, ComponentExternalKind, ComponentInstance, Encoding, Parser, Payload, Validator,
};

use super::borrows::takes_borrow;
use super::refused;
use crate::component::error::ComponentError;
use crate::component::features;
use crate::component::refuse::{Place, Reason};

/// A resource type as one component instance exports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Exported {
    /// Index of the instance at its level.
    pub instance: u32,
    /// Name of the type there.
    pub name: String,
}

/// The exporters of resource types at one level, found as its instances come up.
#[derive(Default)]
struct Level {
    path: Vec<u32>,
    subcomponents: u32,
    exporters: HashMap<ResourceId, Exported>,
    known: u32,
}

/// For every `resource.drop` of all levels, in the order of the file, the first instance that exports
/// the type: the one that defines it.
///
/// # Errors
/// A component is refused for a resource type that no instance exports, and for a function that takes
/// a borrowed handle.
pub fn dropped(wasm: &[u8]) -> Result<Vec<Exported>, ComponentError> {
    let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
    let mut validator = Validator::new_with_features(features::supported());
    let mut levels: Vec<Level> = Vec::new();
    let mut path = Vec::new();
    let mut out = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(invalid)?;
        walk_levels(&payload, &mut levels, &mut path);
        if let Payload::ComponentCanonicalSection(section) = &payload {
            let (Some(types), Some(level)) = (validator.types(0), levels.last_mut()) else {
                return Err(ComponentError::Rewriter("a canonical section outside a component".to_owned()));
            };
            while level.known < types.component_instance_count() {
                let instance = level.known;
                level.known += 1;
                for (name, item) in &types[types.component_instance_at(instance)].exports {
                    if let ComponentEntityType::Type { created: ComponentAnyTypeId::Resource(id), .. } =
                        item.ty
                    {
                        let exported = Exported { instance, name: name.clone() };
                        level.exporters.entry(id.resource()).or_insert(exported);
                    }
                }
            }
            for item in section.clone().into_iter_with_offsets() {
                let (offset, function) = item.map_err(invalid)?;
                let refuse = |reason| {
                    let components = level.path.clone();
                    refused(reason, Place { components, module: None, function: None, offset: offset as u64 })
                };
                match function {
                    CanonicalFunction::ResourceDrop { resource } => {
                        let exported = match types.component_any_type_at(resource) {
                            ComponentAnyTypeId::Resource(id) => level.exporters.get(&id.resource()),
                            _ => None,
                        };
                        out.push(exported.ok_or_else(|| refuse(Reason::LooseResource))?.clone());
                    }
                    CanonicalFunction::Lift { type_index, .. } if takes_borrow(types, type_index) => {
                        return Err(refuse(Reason::BorrowedHandle));
                    }
                    _ => {}
                }
            }
        }
        // function bodies have been validated before
        validator.payload(&payload).map_err(invalid)?;
    }
    Ok(out)
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
