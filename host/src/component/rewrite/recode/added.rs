//! The functions, globals and data segments that a module gains. All stand behind its own, so that indices stay.

use std::collections::HashMap;

use wasm_encoder::{BlockType, Function, ValType};

use super::shape::{Item, Shape};
use super::tables;
use crate::component::code::CodeUse;

/// The bit of a word that tells the index of a global that holds the reference.
const OF_GLOBAL: u32 = 1 << 31;

/// What a function does in place of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// `memory.init` of a segment that can have been dropped.
    CopyData {
        data: u32,
        memory: u32,
    },
    /// `table.get`, and so on.
    Get(u32),
    Set(u32),
    Grow(u32),
    Fill(u32),
    Copy {
        to: u32,
        from: u32,
    },
    /// `table.init`.
    Init {
        elements: u32,
        table: u32,
    },
    /// What an active segment does while the module is instantiated.
    Start {
        elements: u32,
        table: u32,
    },
    /// Makes a reference of the word that stands for an entry of a segment.
    Resolve,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Self::CopyData { .. } => "dormouse:memory.init",
            Self::Get(_) => "dormouse:table.get",
            Self::Set(_) => "dormouse:table.set",
            Self::Grow(_) => "dormouse:table.grow",
            Self::Fill(_) => "dormouse:table.fill",
            Self::Copy { .. } => "dormouse:table.copy",
            Self::Init { .. } | Self::Start { .. } => "dormouse:table.init",
            Self::Resolve => "dormouse:reference",
        }
    }

    fn parameters_and_results(self) -> (usize, usize) {
        match self {
            Self::Get(_) | Self::Resolve => (1, 1),
            Self::Grow(_) => (2, 1),
            Self::Set(_) => (2, 0),
            Self::CopyData { .. }
            | Self::Fill(_)
            | Self::Copy { .. }
            | Self::Init { .. }
            | Self::Start { .. } => (3, 0),
        }
    }
}

/// All of it, given out as code needs it.
pub struct Added<'a> {
    shape: &'a Shape<'a>,
    references: Option<References>,
    /// Globals that say whether a segment has been dropped.
    data_flags: HashMap<u32, u32>,
    element_flags: HashMap<u32, u32>,
    pub flags: u32,
    tasks: HashMap<Task, u32>,
    /// Each with the index of its type and its name.
    pub functions: Vec<(u32, Function, &'static str)>,
    types: Vec<(usize, usize)>,
    /// Data segments behind the module's own.
    pub data: Vec<Vec<u8>>,
    empty_data: Option<u32>,
    /// Headers of the module's own tables come before the others.
    headers: u32,
    element_data: HashMap<u32, u32>,
}

/// How references become numbers.
struct References {
    words: HashMap<u32, u32>,
    /// The global with the number that the instance's own begin after.
    base: u32,
}

impl<'a> Added<'a> {
    /// `referenced` are the functions that references are made of, in order, where these become numbers.
    pub fn new(shape: &'a Shape<'a>, code: &CodeUse, referenced: Option<&[u32]>) -> Self {
        let references = referenced.map(|functions| References {
            words: functions.iter().copied().zip(1..).collect(),
            base: shape.imported_globals,
        });
        let mut flags = 0;
        let mut flag = || {
            flags += 1;
            shape.globals + u32::from(references.is_some()) + flags - 1
        };
        let shown = code.data.copied.iter().copied();
        let shown = shown.filter(|segment| code.data.shows_drop(*segment) && shape.is_passive_data(*segment));
        let data_flags = shown.map(|segment| (segment, flag())).collect();
        let is_passive = |segment: u32| {
            let elements = shape.elements.get(segment as usize);
            elements.is_some_and(|elements| matches!(elements.kind, wasmparser::ElementKind::Passive))
        };
        let shown = code.elements.copied.iter().copied();
        let shown = shown.filter(|segment| code.elements.shows_drop(*segment) && is_passive(*segment));
        let element_flags = if references.is_some() {
            shown.map(|segment| (segment, flag())).collect()
        } else {
            HashMap::new()
        };
        let own_tables = shape.tables.len() - shape.imported_tables;
        let headers = if references.is_some() { own_tables as u32 } else { 0 };
        Self {
            shape,
            references,
            data_flags,
            element_flags,
            flags,
            tasks: HashMap::new(),
            functions: Vec::new(),
            types: Vec::new(),
            data: Vec::new(),
            empty_data: None,
            headers,
            element_data: HashMap::new(),
        }
    }

    /// Whether references become numbers.
    pub fn has_references(&self) -> bool {
        self.references.is_some()
    }

    /// The global with the number that the instance's own references begin after.
    pub fn base(&self) -> u32 {
        self.references.as_ref().map_or(0, |references| references.base)
    }

    /// The number of a function's reference, counted from the base.
    pub fn word(&self, function: u32) -> u32 {
        let found = self.references.as_ref().and_then(|references| references.words.get(&function));
        found.copied().unwrap_or_default()
    }

    /// The global that says whether a data segment has been dropped, where code can tell.
    pub fn data_flag(&self, segment: u32) -> Option<u32> {
        self.data_flags.get(&segment).copied()
    }

    /// The same of an element segment.
    pub fn element_flag(&self, segment: u32) -> Option<u32> {
        self.element_flags.get(&segment).copied()
    }

    /// A global's index in the new module.
    pub fn global(&self, index: u32) -> u32 {
        index + u32::from(self.references.is_some() && index >= self.shape.imported_globals)
    }

    /// The memory that a table has become.
    pub fn table_memory(&self, table: u32) -> u32 {
        // validated before: an index that is not there cannot come up
        self.shape.table_memories.get(table as usize).copied().unwrap_or(u32::MAX)
    }

    /// The types of the functions, all of `i32`: how many parameters and results each has.
    pub fn types(&self) -> &[(usize, usize)] {
        &self.types
    }

    /// The index of the type of a function without parameters and results.
    pub fn start_type(&mut self) -> u32 {
        self.ty((0, 0))
    }

    fn ty(&mut self, ty: (usize, usize)) -> u32 {
        let at = self.types.iter().position(|other| *other == ty).unwrap_or_else(|| {
            self.types.push(ty);
            self.types.len() - 1
        });
        self.shape.types + at as u32
    }

    /// The index of the function that does something.
    pub fn task(&mut self, task: Task) -> u32 {
        if let Some(function) = self.tasks.get(&task) {
            return *function;
        }
        let body = self.body(task);
        let ty = self.ty(task.parameters_and_results());
        let function = self.function(ty, body, task.name());
        self.tasks.insert(task, function);
        function
    }

    /// Adds a function; returns its index.
    pub fn function(&mut self, ty: u32, body: Function, name: &'static str) -> u32 {
        self.functions.push((ty, body, name));
        self.shape.functions + self.functions.len() as u32 - 1
    }

    fn body(&mut self, task: Task) -> Function {
        match task {
            Task::CopyData { data, memory } => self.copy_data(data, memory),
            Task::Get(table) => tables::get(self.table_memory(table)),
            Task::Set(table) => tables::set(self.table_memory(table)),
            Task::Grow(table) => tables::grow(self.table_memory(table)),
            Task::Fill(table) => tables::fill(self.table_memory(table)),
            Task::Copy { to, from } => tables::copy(self.table_memory(to), self.table_memory(from)),
            Task::Init { elements, table } => {
                // all others have been dropped from the start
                let shape = self.shape;
                let segment = shape.elements.get(elements as usize);
                let is_passive =
                    segment.is_some_and(|it| matches!(it.kind, wasmparser::ElementKind::Passive));
                let source = is_passive.then(|| self.source(elements, self.element_flag(elements)));
                tables::init(self.table_memory(table), source.as_ref())
            }
            Task::Start { elements, table } => {
                let source = self.source(elements, None);
                tables::init(self.table_memory(table), Some(&source))
            }
            Task::Resolve => self.resolve(),
        }
    }

    /// Copies from an empty segment once the real one has been dropped: what that does is for `memory.init` to say.
    fn copy_data(&mut self, data: u32, memory: u32) -> Function {
        let empty = match self.empty_data {
            Some(empty) => empty,
            None => self.add_data(Vec::new()),
        };
        self.empty_data = Some(empty);
        let mut function = Function::new([]);
        let mut to = function.instructions();
        to.global_get(self.data_flag(data).unwrap_or(u32::MAX)).if_(BlockType::Empty);
        to.local_get(0).local_get(1).local_get(2).memory_init(memory, empty);
        to.else_().local_get(0).local_get(1).local_get(2).memory_init(memory, data).end().end();
        function
    }

    fn add_data(&mut self, bytes: Vec<u8>) -> u32 {
        self.data.push(bytes);
        self.shape.data + self.headers + self.data.len() as u32 - 1
    }

    fn source(&mut self, elements: u32, dropped: Option<u32>) -> tables::Source {
        let shape = self.shape;
        let items = shape.elements.get(elements as usize).map(|it| it.items.as_slice()).unwrap_or_default();
        let known = self.element_data.get(&elements).copied();
        let data = known.unwrap_or_else(|| {
            let word = |item: &Item| match *item {
                Item::Null => 0,
                Item::Function(function) => self.word(function),
                Item::Global(global) => OF_GLOBAL | self.global(global),
            };
            let bytes = items.iter().flat_map(|item| word(item).to_le_bytes()).collect();
            self.add_data(bytes)
        });
        self.element_data.insert(elements, data);
        let resolve = self.task(Task::Resolve);
        tables::Source { data, length: items.len() as u32, dropped, resolve }
    }

    fn resolve(&self) -> Function {
        let items = self.shape.elements.iter().flat_map(|elements| &elements.items);
        let globals: std::collections::BTreeSet<u32> = items
            .filter_map(|item| match item {
                Item::Global(global) => Some(self.global(*global)),
                _ => None,
            })
            .collect();
        let mut function = Function::new([]);
        let mut to = function.instructions();
        to.local_get(0).i32_eqz().if_(BlockType::Empty).i32_const(0).return_().end();
        for global in globals {
            to.local_get(0).i32_const((OF_GLOBAL | global).cast_signed()).i32_eq();
            to.if_(BlockType::Empty).global_get(global).return_().end();
        }
        to.local_get(0).global_get(self.base()).i32_add().end();
        function
    }

    /// All types of added functions are of this alone.
    pub const TYPE: ValType = ValType::I32;
}
