//! The index spaces of a core module that is written anew.

use wasmparser::{
    ConstExpr, DataKind, ElementItems, ElementKind, ElementSectionReader, MemoryType, Operator, Parser,
    Payload, TableType, TypeRef,
};

use crate::component::error::ComponentError;
use crate::component::exceptions::is_function_reference;
use crate::component::limits;

const PAGE: u64 = 65_536;

/// What a module has before it is written anew.
#[derive(Default)]
pub struct Shape<'a> {
    pub types: u32,
    pub imported_functions: u32,
    /// All functions; so with what follows.
    pub functions: u32,
    pub imported_globals: u32,
    pub globals: u32,
    pub tables: Vec<TableType>,
    pub imported_tables: usize,
    pub data: u32,
    /// Data segments for `memory.init`.
    pub passive_data: Vec<u32>,
    pub elements: Vec<Elements<'a>>,
    /// Functions whose references globals begin with.
    pub global_references: Vec<u32>,
    /// New indices of the old memories, in order, where tables become memories.
    pub memories: Vec<u32>,
    /// Indices of the memories that tables become.
    pub table_memories: Vec<u32>,
    /// Whether references occur in what it shares with others, so that it takes part when they become numbers.
    pub has_references: bool,
    imported_memories: usize,
}

/// An element segment.
pub struct Elements<'a> {
    pub kind: ElementKind<'a>,
    pub items: Vec<Item>,
}

/// What one entry of a table is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Item {
    Null,
    Function(u32),
    /// The reference that an immutable global holds.
    Global(u32),
}

impl<'a> Shape<'a> {
    /// Reads a module that is valid; its element segments only where references become numbers.
    pub fn read(wasm: &'a [u8], with_elements: bool) -> Result<Self, ComponentError> {
        let mut shape = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload.map_err(|error| ComponentError::invalid(&error))?;
            if let Payload::ElementSection(section) = payload {
                if with_elements {
                    shape.observe_elements(section)?;
                }
                continue;
            }
            shape.observe(payload).map_err(|error| ComponentError::invalid(&error))?;
        }
        shape.place_tables();
        Ok(shape)
    }

    fn observe(&mut self, payload: Payload<'a>) -> Result<(), wasmparser::Error> {
        match payload {
            Payload::TypeSection(section) => {
                for group in section {
                    for ty in group?.types() {
                        self.types += 1;
                        if let wasmparser::CompositeInnerType::Func(ty) = &ty.composite_type.inner {
                            let mut all = ty.params().iter().chain(ty.results()).copied();
                            self.has_references |= all.any(is_function_reference);
                        }
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    match import?.ty {
                        TypeRef::Func(_) | TypeRef::FuncExact(_) => self.imported_functions += 1,
                        TypeRef::Global(ty) => {
                            self.imported_globals += 1;
                            self.has_references |= is_function_reference(ty.content_type);
                        }
                        TypeRef::Memory(_) => {
                            let next = (self.memories.len() + self.tables.len()) as u32;
                            self.memories.push(next);
                        }
                        TypeRef::Table(ty) => {
                            let next = (self.memories.len() + self.tables.len()) as u32;
                            self.table_memories.push(next);
                            self.tables.push(ty);
                        }
                        TypeRef::Tag(_) => {}
                    }
                }
                self.functions = self.imported_functions;
                self.globals = self.imported_globals;
                self.imported_tables = self.tables.len();
                self.imported_memories = self.memories.len();
            }
            Payload::FunctionSection(section) => self.functions += section.count(),
            Payload::TableSection(section) => {
                for table in section {
                    self.tables.push(table?.ty);
                }
            }
            Payload::MemorySection(section) => {
                // their places follow once the tables are known
                self.memories.resize(self.memories.len() + section.count() as usize, 0);
            }
            Payload::GlobalSection(section) => {
                self.globals += section.count();
                for global in section {
                    let global = global?;
                    if is_function_reference(global.ty.content_type) {
                        self.has_references = true;
                        if let Item::Function(function) = item(&global.init_expr)? {
                            self.global_references.push(function);
                        }
                    }
                }
            }
            Payload::DataSection(section) => {
                self.data = section.count();
                for (index, data) in (0..).zip(section) {
                    if let DataKind::Passive = data?.kind {
                        self.passive_data.push(index);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn observe_elements(&mut self, section: ElementSectionReader<'a>) -> Result<(), ComponentError> {
        let mut entries = 0;
        for element in section {
            let element = element.map_err(|error| ComponentError::invalid(&error))?;
            entries += match &element.items {
                ElementItems::Functions(items) => items.count() as usize,
                ElementItems::Expressions(_, items) => items.count() as usize,
            };
            ComponentError::limit("entries of element segments", entries, limits::MAX_TABLE_ENTRIES)?;
            let items = items(element.items).map_err(|error| ComponentError::invalid(&error))?;
            self.elements.push(Elements { kind: element.kind, items });
        }
        Ok(())
    }

    /// Imported memories and tables keep their order; then come the module's own memories, then its own tables.
    fn place_tables(&mut self) {
        let imported = self.imported_tables as u32;
        for (index, place) in self.memories.iter_mut().enumerate().skip(self.imported_memories) {
            *place = index as u32 + imported;
        }
        let first = self.memories.len() + self.imported_tables;
        let own = self.tables.len() - self.imported_tables;
        self.table_memories.extend((first..first + own).map(|index| index as u32));
        self.has_references |= !self.tables.is_empty() || !self.elements.is_empty();
    }

    /// Whether a data segment is one for `memory.init`.
    pub fn is_passive_data(&self, segment: u32) -> bool {
        self.passive_data.binary_search(&segment).is_ok()
    }
}

fn items(items: ElementItems<'_>) -> Result<Vec<Item>, wasmparser::Error> {
    match items {
        ElementItems::Functions(functions) => {
            functions.into_iter().map(|function| function.map(Item::Function)).collect()
        }
        ElementItems::Expressions(_, expressions) => {
            expressions.into_iter().map(|expression| item(&expression?)).collect()
        }
    }
}

fn item(expression: &ConstExpr<'_>) -> Result<Item, wasmparser::Error> {
    // there is no other instruction that gives a reference to a function
    Ok(match expression.get_operators_reader().read()? {
        Operator::RefFunc { function_index } => Item::Function(function_index),
        Operator::GlobalGet { global_index } => Item::Global(global_index),
        _ => Item::Null,
    })
}

/// The memory that a table becomes: its header, and four bytes for each entry.
///
/// Sizes go to whole pages, larger with larger ones, so that what could be imported can be.
pub fn memory_of(table: &TableType) -> MemoryType {
    let pages = |entries: u64| {
        let bytes = super::tables::HEADER.saturating_add(entries.saturating_mul(super::tables::ENTRY));
        bytes.div_ceil(PAGE).min(PAGE)
    };
    MemoryType {
        memory64: false,
        shared: false,
        initial: pages(table.initial),
        maximum: table.maximum.map(pages),
        page_size_log2: None,
    }
}
