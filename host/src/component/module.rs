//! The state of a core module: what of it can change while it runs.

use wasmparser::{DataKind, ElementItems, ElementKind, GlobalType, MemoryType, Parser, Payload, TypeRef};

/// What a core module declares that matters to a snapshot.
#[derive(Debug, Clone, Default)]
pub struct ModuleInfo {
    /// Mutable globals that the module defines, with their indices.
    pub globals: Vec<(u32, GlobalType)>,
    /// Memories that the module defines, with their indices.
    pub memories: Vec<(u32, MemoryType)>,
    /// How many tables it defines.
    pub tables: u32,
    /// Entries that these begin with.
    pub table_entries: u64,
    /// Entries of element segments that are put into tables when it is instantiated.
    pub active_elements: u64,
    /// How many tags of exceptions it defines.
    pub tags: u32,
    /// How many data segments are copied to memory when it is instantiated.
    pub active_data: usize,
    /// How many bytes these have.
    pub active_data_bytes: usize,
    /// Data segments for `memory.init`, by index.
    pub passive_data: Vec<u32>,
    /// Whether it has a start function.
    pub has_start: bool,
    /// Whether an instance has to be given its references, which are numbers.
    pub has_references: bool,
    imported_globals: u32,
    imported_memories: u32,
}

impl ModuleInfo {
    /// Reads a whole module, without its code.
    pub fn read(wasm: &[u8]) -> Result<Self, wasmparser::Error> {
        let mut info = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            info.observe(&payload?)?;
        }
        Ok(info)
    }

    /// Takes in one section. Sections must come in the order of the file.
    pub fn observe(&mut self, payload: &Payload<'_>) -> Result<(), wasmparser::Error> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    match import?.ty {
                        TypeRef::Global(_) => self.imported_globals += 1,
                        TypeRef::Memory(_) => self.imported_memories += 1,
                        _ => {}
                    }
                }
            }
            Payload::GlobalSection(section) => {
                for (index, global) in (self.imported_globals..).zip(section.clone()) {
                    let ty = global?.ty;
                    if ty.mutable {
                        self.globals.push((index, ty));
                    }
                }
            }
            Payload::MemorySection(section) => {
                for (index, memory) in (self.imported_memories..).zip(section.clone()) {
                    self.memories.push((index, memory?));
                }
            }
            Payload::TableSection(section) => {
                self.tables = section.count();
                for table in section.clone() {
                    self.table_entries = self.table_entries.saturating_add(table?.ty.initial);
                }
            }
            Payload::ElementSection(section) => {
                for element in section.clone() {
                    let element = element?;
                    let entries = match element.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    };
                    if matches!(element.kind, ElementKind::Active { .. }) {
                        self.active_elements += u64::from(entries);
                    }
                }
            }
            Payload::TagSection(section) => self.tags = section.count(),
            Payload::StartSection { .. } => self.has_start = true,
            Payload::DataSection(section) => {
                for (index, data) in (0..).zip(section.clone()) {
                    let data = data?;
                    match data.kind {
                        DataKind::Active { .. } => {
                            self.active_data += 1;
                            self.active_data_bytes += data.data.len();
                        }
                        DataKind::Passive => self.passive_data.push(index),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether an instance has anything to save.
    pub fn is_stateful(&self) -> bool {
        !self.memories.is_empty() || !self.globals.is_empty()
    }
}
