//! Bookkeeping of one component level: the index spaces of the component model as they grow.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::recode::level::CoreItems;
use super::resources::{Needs, Source};
use crate::component::error::ComponentError;
use crate::component::limits;
use crate::component::module::ModuleInfo;
use crate::component::scan::MemoryLimits;

/// Index of `u32` in every type space.
pub const TYPE_HANDLE: u32 = 0;

/// Index of `func(handle: u32)` in every type space.
pub const TYPE_DROP: u32 = 1;

/// Index of the type of [`super::host::INTERFACE`] in every type space, where a component needs that.
pub const TYPE_HOST: u32 = 2;

/// Index of the instance of that interface at every level, where a component needs it.
pub const INSTANCE_HOST: u32 = 0;

/// An index space, to which the rewriter adds.
#[derive(Default)]
pub struct Space {
    /// Old to new indices.
    old: Vec<u32>,
    count: u32,
}

impl Space {
    /// Counts one of the old component.
    pub fn push_old(&mut self) {
        self.old.push(self.count);
        self.count += 1;
    }

    /// Counts one that the rewriter adds, and gives its index.
    pub fn push_new(&mut self) -> u32 {
        self.count += 1;
        self.count - 1
    }

    /// The next of the old component is one that is there already.
    pub fn stand_in(&mut self, new: u32) {
        self.old.push(new);
    }

    /// How many there are in the new component.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The new index of an old one. It was validated before: one that is not there cannot come up.
    pub fn get(&self, old: u32) -> u32 {
        self.old.get(old as usize).copied().unwrap_or(u32::MAX)
    }
}

/// The functions of a resource type that a level defines.
#[derive(Debug, Clone, Copy)]
pub struct Defined {
    /// The core function that makes a handle.
    pub new: u32,
    /// The core function that tells what is behind one.
    pub rep: u32,
    /// The core function that drops one.
    pub drop: u32,
}

/// The names that things of one interface have got, in lower case: they compare without case.
pub type Taken = HashSet<String>;

/// What one instance of a component consists of, with all within it, also where it has no state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Size {
    instances: usize,
    tables: usize,
    table_entries: usize,
    elements: usize,
}

impl Size {
    /// Adds an instance of a core module.
    pub fn add_module(&mut self, module: &ModuleInfo) -> Result<(), ComponentError> {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        self.add(Self {
            instances: 0,
            tables: module.tables as usize,
            table_entries: number(module.table_entries),
            elements: number(module.active_elements),
        })
    }

    /// Adds an instance of a component.
    pub fn add(&mut self, other: Self) -> Result<(), ComponentError> {
        let limit = |what, sum: &mut usize, more: usize, limit| {
            *sum = sum.saturating_add(more);
            ComponentError::limit(what, *sum, limit)
        };
        limit("instances", &mut self.instances, other.instances.saturating_add(1), limits::MAX_INSTANCES)?;
        limit("tables", &mut self.tables, other.tables, limits::MAX_TABLES)?;
        limit("table entries", &mut self.table_entries, other.table_entries, limits::MAX_ENTRIES)?;
        limit("entries of element segments", &mut self.elements, other.elements, limits::MAX_ENTRIES)
    }
}

/// The state of one instance of a component, with all within it.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The suffixes of the accessors that the component exports.
    pub accessors: Vec<String>,
    /// Linear memories, those of accessors included, in the order in which they are made.
    pub memories: Vec<MemoryLimits>,
    /// Mutable globals.
    pub globals: usize,
    /// What it consists of.
    pub size: Size,
}

/// One level while it is being rewritten. Counts are of the new component.
#[derive(Default)]
pub struct Scope {
    /// Which nested component of its parent it is.
    pub index: u32,
    /// What the rewriter has to add.
    pub needs: Needs,
    /// How many components nested in it have begun.
    pub subcomponents: u32,
    /// Component functions.
    pub functions: Space,
    /// Component types so far.
    pub types: u32,
    /// Component instances so far.
    pub instances: u32,
    /// Core functions.
    pub core_functions: Space,
    /// Core instances.
    pub core_instances: Space,
    /// Core modules.
    pub core_modules: Space,
    /// The other core items.
    pub core_items: CoreItems,
    /// Components; none for those that come from outside.
    pub components: Vec<Option<Rc<State>>>,
    /// Core modules of the old component; none for those that come from outside.
    pub modules: Vec<Option<Rc<ModuleInfo>>>,
    /// Core instances that have state of their own.
    pub stateful: Vec<(u32, Rc<ModuleInfo>)>,
    /// The memories of both, in the order in which they are made.
    pub memories: Vec<MemoryLimits>,
    /// What an instance of it consists of so far.
    pub size: Size,
    /// Component instances that have accessors.
    pub nested: Vec<(u32, Rc<State>)>,
    /// The functions that drop handles, once they have been imported or aliased.
    pub drops: HashMap<Source, u32>,
    /// The resource types that it defines.
    pub defined: Vec<Defined>,
    /// The host's core functions, in the order of [`super::host::Function::ALL`].
    pub host: Vec<u32>,
    /// Core modules that the rewriter has added for [`super::glue`], by their bytes.
    pub added: HashMap<Vec<u8>, u32>,
    /// Core functions that drop what may be lent.
    pub returning: HashMap<Source, u32>,
    /// What the level exports.
    pub exported: Taken,
    /// Resource types imported by themselves.
    resource_imports: u32,
}

impl Scope {
    /// An empty level, the given nested component of its parent, with so many types and instances in front.
    pub fn new(index: u32, needs: Needs, types: u32, instances: u32) -> Self {
        Self { index, needs, types, instances, ..Self::default() }
    }

    /// Counts memories that are made next.
    pub fn add_memories(
        &mut self,
        memories: impl IntoIterator<Item = MemoryLimits>,
    ) -> Result<(), ComponentError> {
        self.memories.extend(memories);
        ComponentError::limit("memories", self.memories.len(), limits::MAX_MEMORIES)
    }

    /// Counts the function that is imported with a resource type.
    pub fn import_drop(&mut self) {
        let function = self.functions.push_new();
        self.drops.insert(Source::Import(self.resource_imports), function);
        self.resource_imports += 1;
    }
}
