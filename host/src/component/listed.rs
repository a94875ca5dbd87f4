//! What a file imports and exports, as reports list it.
//!
//! That is bounded by itself: many imports can have one type, and all get a list of its functions; imports of core modules
//! can share a module's name, and each gets it in its own. So there can be far more to list than the file has bytes.

use wasmparser::component_types::ComponentEntityType;
use wasmparser::types::TypesRef;
use wasmparser::{ComponentExternalKind, ComponentTypeRef, ExternalKind, Payload, TypeRef};

use super::error::ComponentError;
use super::limits;
use super::scan::{BinaryKind, Item, ItemKind, Scan};

/// Counts what is listed.
#[derive(Default)]
pub struct Listed {
    bytes: usize,
}

impl Listed {
    /// Makes room for a name of so many bytes.
    fn count(&mut self, name: usize) -> Result<(), ComponentError> {
        self.bytes = self.bytes.saturating_add(name).saturating_add(size_of::<Item>());
        let what = "bytes of names of imports, exports and their functions";
        ComponentError::limit(what, self.bytes, limits::MAX_LISTED)
    }

    fn item(&mut self, name: &str, kind: ItemKind) -> Result<Item, ComponentError> {
        self.count(name.len())?;
        Ok(Item { name: name.to_owned(), kind, functions: Vec::new() })
    }

    /// Lists the imports or exports of a section of the outermost level.
    pub fn section(&mut self, payload: &Payload<'_>, scan: &mut Scan) -> Result<(), ComponentError> {
        let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
        match payload {
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let import = import.map_err(invalid)?;
                    let kind = match import.ty {
                        ComponentTypeRef::Func(_) => ItemKind::Function,
                        ComponentTypeRef::Instance(_) => ItemKind::Instance,
                        ComponentTypeRef::Type(_) => ItemKind::Type,
                        ComponentTypeRef::Component(_) => ItemKind::Component,
                        ComponentTypeRef::Module(_) => ItemKind::Module,
                        ComponentTypeRef::Value(_) => ItemKind::Other,
                    };
                    scan.imports.push(self.item(import.name.name, kind)?);
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(invalid)?;
                    let kind = match export.kind {
                        ComponentExternalKind::Func => ItemKind::Function,
                        ComponentExternalKind::Instance => ItemKind::Instance,
                        ComponentExternalKind::Type => ItemKind::Type,
                        ComponentExternalKind::Component => ItemKind::Component,
                        ComponentExternalKind::Module => ItemKind::Module,
                        ComponentExternalKind::Value => ItemKind::Other,
                    };
                    scan.exports.push(self.item(export.name.name, kind)?);
                }
            }
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    let import = import.map_err(invalid)?;
                    let is_function = matches!(import.ty, TypeRef::Func(_));
                    let kind = if is_function { ItemKind::Function } else { ItemKind::Other };
                    self.count(import.module.len() + 1 + import.name.len())?;
                    let name = format!("{}.{}", import.module, import.name);
                    scan.imports.push(Item { name, kind, functions: Vec::new() });
                }
            }
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(invalid)?;
                    let is_function = matches!(export.kind, ExternalKind::Func);
                    let kind = if is_function { ItemKind::Function } else { ItemKind::Other };
                    scan.exports.push(self.item(export.name, kind)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Fills in the functions of imported and exported instances, from the validator's types.
    pub fn functions(&mut self, types: TypesRef<'_>, scan: &mut Scan) -> Result<(), ComponentError> {
        if scan.kind != BinaryKind::Component {
            return Ok(());
        }
        for (items, is_import) in [(&mut scan.imports, true), (&mut scan.exports, false)] {
            for item in items.iter_mut().filter(|item| item.kind == ItemKind::Instance) {
                let found = if is_import {
                    types.component_item_for_import(&item.name)
                } else {
                    types.component_item_for_export(&item.name)
                };
                let Some(ComponentEntityType::Instance(instance)) = found.map(|found| found.ty) else {
                    continue;
                };
                for (name, exported) in &types[instance].exports {
                    if matches!(exported.ty, ComponentEntityType::Func(_)) {
                        self.count(name.len())?;
                        item.functions.push(name.clone());
                    }
                }
            }
        }
        Ok(())
    }
}
