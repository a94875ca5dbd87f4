//! What a random program is: core modules, and the levels of a component that instantiate them.

use std::fmt;

use arbitrary::Unstructured;
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    ComponentBuilder, ComponentExportKind, ComponentValType, ExportKind, ImportSection, Module, ModuleArg,
    PrimitiveValType, TagKind, TagType, TypeSection,
};
use wasm_smith::{Config, InstructionKind, InstructionKinds};
use wasmparser::{AbstractHeapType, ExternalKind, Parser, Payload, TypeRef, ValType};

use super::random::Random;

/// Levels of nested components, at most.
const MAX_DEPTH: usize = 3;
/// Steps that all calls of one instance may take together.
const FUEL: u32 = 10_000;
/// Bytes that a module is made of.
const SEED_BYTES: usize = 6_000;
/// What linked modules import from.
const FROM: &str = "from";

/// A core module and what it exports.
#[derive(Clone)]
pub struct Core {
    pub wasm: Vec<u8>,
    pub functions: Vec<Function>,
    /// Exported names of the memories that it defines, in order.
    pub memories: Vec<String>,
    /// The same of tables.
    pub tables: Vec<String>,
    /// Whether it has tags of exceptions.
    has_tags: bool,
    /// What another module can import of it.
    exports: Option<Vec<u8>>,
}

/// An exported function that the canonical ABI can lift.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub params: Vec<ValType>,
    pub result: Option<ValType>,
}

/// One component level.
#[derive(Clone, Default)]
pub struct Level {
    /// Nested components, each instantiated so many times.
    pub nested: Vec<(Level, usize)>,
    /// Core instances, each with the one of this level that it imports from.
    pub cores: Vec<(Core, Option<usize>)>,
}

/// What an instance of a program is made of, in the order in which it comes to be.
#[derive(Clone)]
pub enum Part {
    /// A core instance, and the part that it imports from.
    Core(Core, Option<usize>),
    /// The accessor that closes a level.
    Accessor,
}

#[derive(Clone)]
pub struct Program {
    pub level: Level,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn level(f: &mut fmt::Formatter<'_>, it: &Level, depth: usize) -> fmt::Result {
            for (nested, times) in &it.nested {
                writeln!(f, "{:1$}component, {times} times:", "", 2 * depth)?;
                level(f, nested, depth + 1)?;
            }
            for (core, from) in &it.cores {
                let (bytes, functions) = (core.wasm.len(), core.functions.len());
                writeln!(
                    f,
                    "{:1$}module of {bytes} bytes, {functions} functions, from {from:?}",
                    "",
                    2 * depth
                )?;
            }
            Ok(())
        }
        level(f, &self.level, 0)
    }
}

impl Program {
    /// The first one that can be called.
    pub fn new(random: &mut Random) -> Self {
        let has_functions = |part: &Part| matches!(part, Part::Core(core, _) if !core.functions.is_empty());
        loop {
            let program = Level::new(random, 0).map(|level| Self { level });
            if let Some(program) = program.filter(|it| it.parts().iter().any(has_functions)) {
                return program;
            }
        }
    }

    pub fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        self.level.add_parts(&mut parts);
        parts
    }

    /// Whether a module has tags of exceptions.
    pub fn has_tags(&self) -> bool {
        self.parts().iter().any(|part| matches!(part, Part::Core(core, _) if core.has_tags))
    }

    /// The component: `fN` is the Nth function of all parts, in order.
    pub fn component(&self) -> Vec<u8> {
        self.level.builder().0.finish()
    }
}

impl Level {
    fn new(random: &mut Random, depth: usize) -> Option<Self> {
        let mut level = Self::default();
        if depth + 1 < MAX_DEPTH {
            while random.once_in(3) && level.nested.len() < 2 {
                let times = 1 + random.below(2);
                level.nested.push((Self::new(random, depth + 1)?, times));
            }
        }
        let first = Core::new(random, None)?;
        level.cores.push((first.clone(), None));
        if random.once_in(3) {
            // the same module once more, with a state of its own
            level.cores.push((first.clone(), None));
        }
        if random.once_in(2) && first.exports.is_some() {
            level.cores.push((Core::new(random, first.exports.as_deref())?, Some(0)));
        }
        Some(level)
    }

    fn add_parts(&self, parts: &mut Vec<Part>) {
        for (nested, times) in &self.nested {
            for _ in 0..*times {
                nested.add_parts(parts);
            }
        }
        let first = parts.len();
        parts.extend(
            self.cores.iter().map(|(core, from)| Part::Core(core.clone(), from.map(|from| first + from))),
        );
        parts.push(Part::Accessor);
    }

    /// The level, and the types of the functions that it exports.
    fn builder(&self) -> (ComponentBuilder, Vec<Function>) {
        let mut builder = ComponentBuilder::default();
        let mut exported = Vec::new();
        for (nested, times) in &self.nested {
            let (inner, functions) = nested.builder();
            let component = builder.component(None, inner);
            for _ in 0..*times {
                let none: [(&str, ComponentExportKind, u32); 0] = [];
                let instance = builder.instantiate(None, component, none);
                for (index, function) in functions.iter().enumerate() {
                    let aliased =
                        builder.alias_export(instance, &format!("f{index}"), ComponentExportKind::Func);
                    let name = format!("f{}", exported.len());
                    builder.export(name.as_str(), ComponentExportKind::Func, aliased, None);
                    exported.push(function.clone());
                }
            }
        }
        let mut instances = Vec::new();
        for (core, from) in &self.cores {
            let module = builder.core_module_raw(None, &core.wasm);
            let arguments = from.map(|from| (FROM, ModuleArg::Instance(instances[from])));
            let instance = builder.core_instantiate(None, module, arguments.into_iter().collect::<Vec<_>>());
            instances.push(instance);
            for function in &core.functions {
                let core = builder.core_alias_export(None, instance, &function.name, ExportKind::Func);
                let (ty, mut encoder) = builder.type_function(None);
                let names: Vec<_> = (0..function.params.len()).map(|n| format!("p{n}")).collect();
                let params =
                    names.iter().map(String::as_str).zip(function.params.iter().map(|ty| lifted(*ty)));
                encoder.params(params.collect::<Vec<_>>()).result(function.result.map(lifted));
                let lift = builder.lift_func(None, core, ty, []);
                let name = format!("f{}", exported.len());
                builder.export(name.as_str(), ComponentExportKind::Func, lift, None);
                exported.push(function.clone());
            }
        }
        (builder, exported)
    }
}

fn lifted(ty: ValType) -> ComponentValType {
    ComponentValType::Primitive(match ty {
        ValType::I32 => PrimitiveValType::U32,
        ValType::I64 => PrimitiveValType::U64,
        ValType::F32 => PrimitiveValType::F32,
        ValType::F64 => PrimitiveValType::F64,
        other => unreachable!("{other} is not lifted"),
    })
}

fn is_liftable(ty: ValType) -> bool {
    matches!(ty, ValType::I32 | ValType::I64 | ValType::F32 | ValType::F64)
}

fn config(random: &mut Random, available: Option<&[u8]>) -> Config {
    use InstructionKind::{Control, Memory, Numeric, Parametric, Reference, Table, Variable, Vector};
    let references = random.once_in(2);
    let exceptions = random.once_in(if references { 4 } else { 2 });
    Config {
        available_imports: available.map(<[u8]>::to_vec),
        allowed_instructions: InstructionKinds::new(&[
            Numeric, Vector, Parametric, Variable, Memory, Control, Reference, Table,
        ]),
        allow_start_export: random.once_in(3),
        // else most would end at their first call
        disallow_traps: !random.once_in(8),
        exceptions_enabled: exceptions,
        export_everything: true,
        gc_enabled: false,
        threads_enabled: false,
        memory64_enabled: false,
        reference_types_enabled: references,
        shared_everything_threads_enabled: false,
        memory_max_size_required: true,
        max_memory32_bytes: 1 << 21,
        min_memories: u32::from(!random.once_in(8)),
        max_memories: 1 + random.below(3),
        max_tables: if references { 3 } else { 1 },
        max_table_elements: 100,
        table_max_size_required: true,
        min_funcs: 3,
        max_funcs: 12,
        min_globals: 2,
        // with references to exceptions among the types, most of more would have one
        max_globals: if references && exceptions { 6 } else { 40 },
        min_types: 2,
        max_types: 12,
        max_tags: if exceptions { 4 } else { 0 },
        max_imports: if available.is_some() { 10 } else { 0 },
        max_instructions: 80,
        max_data_segments: 6,
        max_element_segments: 4,
        max_elements: 10,
        ..Config::default()
    }
}

impl Core {
    /// None where the seed is spent before there is a module, or what comes out is refused.
    fn new(random: &mut Random, available: Option<&[u8]>) -> Option<Self> {
        let config = config(random, available);
        let bytes = random.bytes(SEED_BYTES);
        let mut module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
        module.ensure_termination(FUEL).ok()?;
        let wasm = functions_alone(&module.to_bytes());
        (!keeps_exceptions(&wasm)).then(|| Self::read(wasm, available.is_none()))
    }

    /// A module that exports all it has, from which another one can import, if that is wanted.
    pub fn read(wasm: Vec<u8>, is_importable: bool) -> Self {
        let mut types = Vec::new();
        let (mut functions, mut memories, mut globals, mut tables, mut tags) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut imported_memories, mut imported_tables, mut exports) = (0, 0, Vec::new());
        for payload in Parser::new(0).parse_all(&wasm) {
            match payload.unwrap() {
                Payload::TypeSection(section) => {
                    types.extend(section.into_iter_err_on_gc_types().map(Result::unwrap));
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import.unwrap().ty {
                            TypeRef::Func(ty) => functions.push(ty),
                            TypeRef::Memory(ty) => memories.push(ty),
                            TypeRef::Global(ty) => globals.push(ty),
                            TypeRef::Table(ty) => tables.push(ty),
                            TypeRef::Tag(ty) => tags.push(ty),
                            other @ TypeRef::FuncExact(_) => unreachable!("{other:?} is not imported"),
                        }
                    }
                    imported_memories = memories.len();
                    imported_tables = tables.len();
                }
                Payload::FunctionSection(section) => {
                    functions.extend(section.into_iter().map(Result::unwrap));
                }
                Payload::MemorySection(section) => memories.extend(section.into_iter().map(Result::unwrap)),
                Payload::TableSection(section) => tables.extend(section.into_iter().map(|it| it.unwrap().ty)),
                Payload::TagSection(section) => tags.extend(section.into_iter().map(Result::unwrap)),
                Payload::GlobalSection(section) => {
                    globals.extend(section.into_iter().map(|it| it.unwrap().ty));
                }
                Payload::ExportSection(section) => {
                    exports.extend(
                        section
                            .into_iter()
                            .map(|it| it.map(|it| (it.name.to_owned(), it.kind, it.index)).unwrap()),
                    );
                }
                _ => {}
            }
        }
        let mut liftable = Vec::new();
        let (mut all_types, mut all_imports) = (TypeSection::new(), ImportSection::new());
        for ty in &types {
            all_types.ty().func_type(&wasm_encoder::FuncType::try_from(ty.clone()).unwrap());
        }
        let mut defined = vec![None; memories.len() - imported_memories];
        let mut defined_tables = vec![None; tables.len() - imported_tables];
        for (name, kind, index) in &exports {
            let index = *index as usize;
            let entity = match kind {
                ExternalKind::Func => {
                    let ty = &types[functions[index] as usize];
                    if ty.params().iter().chain(ty.results()).all(|ty| is_liftable(*ty))
                        && ty.results().len() <= 1
                        && ty.params().len() <= 16
                    {
                        liftable.push(Function {
                            name: name.clone(),
                            params: ty.params().to_vec(),
                            result: ty.results().first().copied(),
                        });
                    }
                    wasm_encoder::EntityType::Function(functions[index])
                }
                ExternalKind::Memory => {
                    if let Some(of) = index.checked_sub(imported_memories) {
                        defined[of] = Some(name.clone());
                    }
                    wasm_encoder::EntityType::Memory(memories[index].into())
                }
                ExternalKind::Global => wasm_encoder::EntityType::Global(globals[index].try_into().unwrap()),
                ExternalKind::Table => {
                    if let Some(of) = index.checked_sub(imported_tables) {
                        defined_tables[of] = Some(name.clone());
                    }
                    wasm_encoder::EntityType::Table(tables[index].try_into().unwrap())
                }
                ExternalKind::Tag => {
                    let func_type_idx = tags[index].func_type_idx;
                    wasm_encoder::EntityType::Tag(TagType { kind: TagKind::Exception, func_type_idx })
                }
                other @ ExternalKind::FuncExact => unreachable!("{other:?} is not exported"),
            };
            all_imports.import(FROM, name, entity);
        }
        let importable = is_importable.then(|| {
            let mut module = Module::new();
            module.section(&all_types).section(&all_imports);
            module.finish()
        });
        let names = |defined: Vec<Option<String>>| -> Vec<String> {
            defined.into_iter().map(|name| name.expect("everything is exported")).collect()
        };
        let (memories, tables) = (names(defined), names(defined_tables));
        Self { wasm, functions: liftable, memories, tables, has_tags: !tags.is_empty(), exports: importable }
    }
}

/// Whether tables, globals or segments are for references to exceptions, for which a component is refused.
fn keeps_exceptions(wasm: &[u8]) -> bool {
    use wasmparser::{ElementItems, RefType};
    let is_kept = |ty: ValType| ty == ValType::EXNREF;
    Parser::new(0).parse_all(wasm).any(|payload| {
        match payload.unwrap() {
        Payload::ImportSection(section) => section.into_imports().any(|import| match import.unwrap().ty {
            TypeRef::Table(ty) => ty.element_type == RefType::EXNREF,
            TypeRef::Global(ty) => is_kept(ty.content_type),
            _ => false,
        }),
        Payload::TableSection(section) => {
            section.into_iter().any(|table| table.unwrap().ty.element_type == RefType::EXNREF)
        }
        Payload::GlobalSection(section) => {
            section.into_iter().any(|global| is_kept(global.unwrap().ty.content_type))
        }
        Payload::ElementSection(section) => section.into_iter().any(|element| {
            matches!(element.unwrap().items, ElementItems::Expressions(ty, _) if ty == RefType::EXNREF)
        }),
        _ => false,
    }
    })
}

/// The same module with references to functions in place of those to the host's objects, which the engine has not.
fn functions_alone(wasm: &[u8]) -> Vec<u8> {
    struct Functions;
    impl Reencode for Functions {
        type Error = std::convert::Infallible;

        fn abstract_heap_type(
            &mut self,
            ty: AbstractHeapType,
        ) -> Result<wasm_encoder::AbstractHeapType, Error> {
            let ty = if ty == AbstractHeapType::Extern { AbstractHeapType::Func } else { ty };
            Ok(utils::abstract_heap_type(self, ty))
        }
    }
    let mut module = Module::new();
    Functions.parse_core_module(&mut module, Parser::new(0), wasm).unwrap();
    module.finish()
}
