//! Writes a core module anew, section by section.

use std::collections::HashSet;
use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Elements, Encode, EntityType,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection, MemorySection,
    Module, NameMap, NameSection, RefType, StartSection, TableSection, TableType, TagSection, TypeSection,
};
use wasmparser::{ElementKind, KnownCustom, Name, Parser, Payload};

use super::added::{Added, Task};
use super::level;
use super::operators::Recoder;
use super::shape::{Shape, memory_of};
use super::tables;
use crate::component::code::CodeUse;
use crate::component::error::ComponentError;
use crate::component::exceptions;
use crate::component::rewrite::names;

type Outcome<T = ()> = Result<T, Error<Infallible>>;

/// Writes a valid module anew, of which `code` is what its functions do. `referenced` are the functions that
/// references are made of, in order, where references become numbers.
pub fn recode(wasm: &[u8], code: &CodeUse, referenced: Option<&[u32]>) -> Result<Vec<u8>, ComponentError> {
    let shape = Shape::read(wasm, referenced.is_some())?;
    let added = Added::new(&shape, code, referenced);
    let exception_tests = if added.has_references() && code.tests_null {
        exceptions::null_tests(wasm).map_err(|error| ComponentError::invalid(&error))?
    } else {
        HashSet::new()
    };
    let mut sections = Sections::new(Recoder { shape: &shape, added, exception_tests });
    let done = sections.read(wasm).and_then(|()| sections.add(referenced));
    done.map_err(|error| match error {
        Error::ParseError(error) => ComponentError::invalid(&error),
        other => ComponentError::Rewriter(other.to_string()),
    })?;
    Ok(sections.finish())
}

/// The new module's sections.
struct Sections<'a> {
    recoder: Recoder<'a>,
    types: TypeSection,
    imports: ImportSection,
    functions: FunctionSection,
    tables: TableSection,
    memories: MemorySection,
    tags: TagSection,
    globals: GlobalSection,
    exports: ExportSection,
    start: Option<u32>,
    elements: ElementSection,
    code: CodeSection,
    data: DataSection,
    module_name: Option<String>,
    function_names: NameMap,
}

impl<'a> Sections<'a> {
    fn new(recoder: Recoder<'a>) -> Self {
        Self {
            recoder,
            types: TypeSection::new(),
            imports: ImportSection::new(),
            functions: FunctionSection::new(),
            tables: TableSection::new(),
            memories: MemorySection::new(),
            tags: TagSection::new(),
            globals: GlobalSection::new(),
            exports: ExportSection::new(),
            start: None,
            elements: ElementSection::new(),
            code: CodeSection::new(),
            data: DataSection::new(),
            module_name: None,
            function_names: NameMap::new(),
        }
    }

    /// Translates what the module has.
    fn read(&mut self, wasm: &[u8]) -> Outcome {
        let recoder = &mut self.recoder;
        let has_references = recoder.added.has_references();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(it) => recoder.parse_type_section(&mut self.types, it)?,
                Payload::ImportSection(it) => recoder.parse_import_section(&mut self.imports, it)?,
                Payload::FunctionSection(it) => recoder.parse_function_section(&mut self.functions, it)?,
                Payload::TableSection(it) if !has_references => {
                    recoder.parse_table_section(&mut self.tables, it)?;
                }
                Payload::MemorySection(it) => recoder.parse_memory_section(&mut self.memories, it)?,
                Payload::TagSection(it) => recoder.parse_tag_section(&mut self.tags, it)?,
                Payload::GlobalSection(it) => recoder.parse_global_section(&mut self.globals, it)?,
                Payload::ExportSection(it) => recoder.parse_export_section(&mut self.exports, it)?,
                Payload::StartSection { func, .. } => self.start = Some(func),
                Payload::ElementSection(it) if !has_references => {
                    recoder.parse_element_section(&mut self.elements, it)?;
                }
                Payload::CodeSectionEntry(body) => {
                    self.code.function(&recoder.body(&body)?);
                }
                Payload::DataSection(it) => recoder.parse_data_section(&mut self.data, it)?,
                Payload::CustomSection(it) => {
                    // offsets of instructions have moved: of what is there for debugging, only names stay true
                    if let KnownCustom::Name(names) = it.as_known() {
                        (self.module_name, self.function_names) = names_of(names);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends what the module gains.
    fn add(&mut self, referenced: Option<&[u32]>) -> Outcome {
        if let Some(referenced) = referenced {
            self.add_references(referenced);
            self.add_start()?;
        }
        let Recoder { shape, added, .. } = &mut self.recoder;
        for _ in 0..added.flags {
            let ty = GlobalType { val_type: Added::TYPE, mutable: true, shared: false };
            self.globals.global(ty, &ConstExpr::i32_const(0));
        }
        for (params, results) in added.types() {
            let types = |count: usize| std::iter::repeat_n(Added::TYPE, count);
            self.types.ty().function(types(*params), types(*results));
        }
        for (index, (ty, body, name)) in (shape.functions..).zip(&added.functions) {
            self.functions.function(*ty);
            self.code.function(body);
            self.function_names.append(index, name);
        }
        for bytes in &added.data {
            self.data.passive(bytes.iter().copied());
        }
        Ok(())
    }

    /// The level's table, with this module's functions in it, and a memory for each table.
    fn add_references(&mut self, referenced: &[u32]) {
        let Recoder { shape, added, .. } = &self.recoder;
        let ty = GlobalType { val_type: Added::TYPE, mutable: false, shared: false };
        self.imports.import(names::REFERENCES, level::BASE, EntityType::Global(ty));
        self.imports.import(
            names::REFERENCES,
            level::FUNCTIONS_NAME,
            EntityType::Table(TableType {
                element_type: RefType::FUNCREF,
                minimum: 0,
                maximum: None,
                table64: false,
                shared: false,
            }),
        );
        if !referenced.is_empty() {
            let offset = ConstExpr::global_get(added.base()).with_i32_const(1).with_i32_add();
            self.elements.active(None, &offset, Elements::Functions(referenced.into()));
        }
        for (table, index) in shape.tables.iter().zip(&shape.table_memories).skip(shape.imported_tables) {
            self.memories.memory(memory_of(table).into());
            self.data.active(*index, &ConstExpr::i32_const(0), tables::header(table));
        }
    }

    /// What active segments put into tables is put there by the start function, before anything else.
    fn add_start(&mut self) -> Outcome {
        let recoder = &mut self.recoder;
        let shape = recoder.shape;
        let mut start = Vec::new();
        for (elements, segment) in (0..).zip(&shape.elements) {
            let ElementKind::Active { table_index, offset_expr } = &segment.kind else { continue };
            let mut reader = offset_expr.get_operators_reader();
            while !reader.is_end_then_eof() {
                recoder.operator(reader.read()?, &mut |instruction| instruction.encode(&mut start))?;
            }
            let table = table_index.unwrap_or(0);
            let copy = recoder.added.task(Task::Start { elements, table });
            let mut to = wasm_encoder::InstructionSink::new(&mut start);
            to.i32_const(0).i32_const(segment.items.len() as i32).call(copy);
        }
        if start.is_empty() {
            return Ok(());
        }
        let mut function = Function::new([]);
        function.raw(start);
        if let Some(start) = self.start {
            function.instructions().call(start);
        }
        function.instructions().end();
        let ty = recoder.added.start_type();
        self.start = Some(recoder.added.function(ty, function, "dormouse:start"));
        Ok(())
    }

    fn finish(self) -> Vec<u8> {
        let mut module = Module::new();
        module
            .section(&self.types)
            .section(&self.imports)
            .section(&self.functions)
            .section(&self.tables)
            .section(&self.memories)
            .section(&self.tags)
            .section(&self.globals)
            .section(&self.exports);
        if let Some(function_index) = self.start {
            module.section(&StartSection { function_index });
        }
        module.section(&self.elements);
        module.section(&DataCountSection { count: self.data.len() });
        module.section(&self.code).section(&self.data);
        let mut names = NameSection::new();
        if let Some(name) = &self.module_name {
            names.module(name);
        }
        names.functions(&self.function_names);
        module.section(&names);
        module.finish()
    }
}

/// The names of a module and its functions, as far as they can be read.
fn names_of(names: wasmparser::NameSectionReader<'_>) -> (Option<String>, NameMap) {
    let (mut module, mut functions) = (None, NameMap::new());
    for part in names {
        match part {
            Ok(Name::Module { name, .. }) => module = Some(name.to_owned()),
            Ok(Name::Function(map)) => {
                for naming in map.into_iter().map_while(Result::ok) {
                    functions.append(naming.index, naming.name);
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    (module, functions)
}
