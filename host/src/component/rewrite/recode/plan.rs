//! What is to be written anew of a component.

use std::collections::BTreeSet;

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentTypeRef, Encoding, Instance,
    Parser, Payload,
};

use super::alike::Types;
use super::sections::recode;
use super::shape::{Item, Shape};
use crate::component::code::CodeUse;
use crate::component::error::ComponentError;
use crate::component::limits;
use crate::component::module::ModuleInfo;
use crate::component::refuse::Place;

/// What is to be done with each core module and level of a component, in the order of the file.
#[derive(Default)]
pub struct Plan<'a> {
    code: &'a [CodeUse],
    references: Option<References>,
}

/// The references of a component in which they become numbers.
#[derive(Default)]
struct References {
    /// For each core module the functions that references are made of; none where it has nothing to do with any.
    modules: Vec<Option<Vec<u32>>>,
    /// For each level how many references each core instance has that has to do with them, in order.
    levels: Vec<Vec<u32>>,
}

impl<'a> Plan<'a> {
    /// Looks at a valid component, of whose core modules `code` is what they do.
    ///
    /// # Errors
    /// A component in which numbers could not stand for references is refused, and too many are a limit's error.
    pub fn new(wasm: &[u8], code: &'a [CodeUse]) -> Result<Self, ComponentError> {
        let references = if code.iter().any(|code| code.moves_references) {
            Some(References::read(wasm, code)?)
        } else {
            None
        };
        Ok(Self { code, references })
    }

    /// Core module `index`, written anew. None where that is not needed.
    pub fn recode(&self, index: usize, wasm: &[u8]) -> Result<Option<Recoded>, ComponentError> {
        let code = self.code.get(index);
        let code = code.ok_or_else(|| ComponentError::Rewriter("lost track of a core module".to_owned()))?;
        let referenced = self.references.as_ref().and_then(|it| it.modules.get(index)?.as_deref());
        if referenced.is_none() && !drops_passive(wasm, code)? {
            return Ok(None);
        }
        Ok(Some(Recoded { wasm: recode(wasm, code, referenced)?, has_references: referenced.is_some() }))
    }

    /// How many references each core instance of level `index` has that has to do with them.
    pub fn level(&self, index: usize) -> &[u32] {
        self.references.as_ref().and_then(|it| it.levels.get(index)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether code can tell of a data segment if it has been dropped. An active one is dropped from the start.
fn drops_passive(wasm: &[u8], code: &CodeUse) -> Result<bool, ComponentError> {
    let mut shown = code.data.copied.iter().filter(|segment| code.data.shows_drop(**segment)).peekable();
    if shown.peek().is_none() {
        return Ok(false);
    }
    let passive = ModuleInfo::read(wasm).map_err(|error| ComponentError::invalid(&error))?.passive_data;
    Ok(shown.any(|segment| passive.binary_search(segment).is_ok()))
}

/// A core module that has been written anew.
pub struct Recoded {
    pub wasm: Vec<u8>,
    /// Whether an instance of it needs to be given its references.
    pub has_references: bool,
}

/// One level of the walk: which core module each of its index space is, where it is the component's own.
struct Level {
    index: usize,
    path: Vec<u32>,
    modules: Vec<Option<usize>>,
    components: u32,
    own_modules: u32,
}

impl References {
    fn read(wasm: &[u8], code: &[CodeUse]) -> Result<Self, ComponentError> {
        let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
        let lost = || ComponentError::Rewriter("lost track of a core module".to_owned());
        let mut references = Self::default();
        let mut types = Types::default();
        let mut stack: Vec<Level> = Vec::new();
        let mut path = Vec::new();
        let mut in_module = false;
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload.map_err(invalid)?;
            if in_module {
                in_module = !matches!(payload, Payload::End(_));
                continue;
            }
            match payload {
                Payload::Version { encoding: Encoding::Component, .. } => {
                    let index = references.levels.len();
                    references.levels.push(Vec::new());
                    let path = std::mem::take(&mut path);
                    stack.push(Level { index, path, modules: Vec::new(), components: 0, own_modules: 0 });
                }
                Payload::Version { encoding: Encoding::Module, .. } => in_module = true,
                Payload::End(_) => {
                    stack.pop();
                }
                _ => {
                    let level = stack.len().checked_sub(1).ok_or_else(lost)?;
                    match payload {
                        Payload::ModuleSection { unchecked_range, .. } => {
                            let number = references.modules.len();
                            let module = &wasm[unchecked_range.clone()];
                            let level = &mut stack[level];
                            let place = Place {
                                components: level.path.clone(),
                                module: Some(level.own_modules),
                                function: None,
                                offset: unchecked_range.start as u64,
                            };
                            level.own_modules += 1;
                            let code = code.get(number).ok_or_else(lost)?;
                            let functions = referenced(module, code)?;
                            if let Some(functions) = &functions {
                                types.observe(module, &place, code, functions)?;
                            }
                            references.modules.push(functions);
                            level.modules.push(Some(number));
                        }
                        Payload::ComponentSection { .. } => {
                            let level = &mut stack[level];
                            path.clone_from(&level.path);
                            path.push(level.components);
                            level.components += 1;
                        }
                        Payload::InstanceSection(section) => {
                            for instance in section {
                                let Instance::Instantiate { module_index, .. } = instance.map_err(invalid)?
                                else {
                                    continue;
                                };
                                let module =
                                    stack[level].modules.get(module_index as usize).copied().flatten();
                                let functions = module.and_then(|module| references.modules[module].as_ref());
                                if let Some(functions) = functions {
                                    let count = functions.len() as u32;
                                    let counts = &mut references.levels[stack[level].index];
                                    counts.push(count);
                                    let all: usize = counts.iter().map(|count| *count as usize).sum();
                                    ComponentError::limit(
                                        "references to functions",
                                        all,
                                        limits::MAX_REFERENCES,
                                    )?;
                                }
                            }
                        }
                        Payload::ComponentAliasSection(section) => {
                            for alias in section {
                                let module = match alias.map_err(invalid)? {
                                    ComponentAlias::Outer {
                                        kind: ComponentOuterAliasKind::CoreModule,
                                        count,
                                        index,
                                    } => {
                                        let outer = level.checked_sub(count as usize).ok_or_else(lost)?;
                                        stack[outer].modules.get(index as usize).copied().flatten()
                                    }
                                    ComponentAlias::InstanceExport {
                                        kind: ComponentExternalKind::Module,
                                        ..
                                    } => None,
                                    _ => continue,
                                };
                                stack[level].modules.push(module);
                            }
                        }
                        Payload::ComponentImportSection(section) => {
                            for import in section {
                                if let ComponentTypeRef::Module(_) = import.map_err(invalid)?.ty {
                                    stack[level].modules.push(None);
                                }
                            }
                        }
                        Payload::ComponentExportSection(section) => {
                            for export in section {
                                if export.map_err(invalid)?.kind == ComponentExternalKind::Module {
                                    stack[level].modules.push(None);
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        types.check()?;
        Ok(references)
    }
}

/// The functions of a module that references are made of, in the order of their indices.
fn referenced(wasm: &[u8], code: &CodeUse) -> Result<Option<Vec<u32>>, ComponentError> {
    let shape = Shape::read(wasm, true)?;
    if !shape.has_references {
        return Ok(None);
    }
    let memories = shape.memories.len() + shape.tables.len();
    ComponentError::limit("memories and tables of a module", memories, limits::MAX_MODULE_MEMORIES)?;
    for table in &shape.tables {
        let entries = usize::try_from(table.initial).unwrap_or(usize::MAX);
        ComponentError::limit("entries of a table", entries, limits::MAX_TABLE_ENTRIES)?;
    }
    let mut functions: BTreeSet<u32> = code.referenced.clone();
    functions.extend(shape.global_references.iter().copied());
    let items = shape.elements.iter().flat_map(|elements| &elements.items);
    functions.extend(items.filter_map(|item| match item {
        Item::Function(function) => Some(*function),
        _ => None,
    }));
    Ok(Some(functions.into_iter().collect()))
}
