//! Bookkeeping of one component level: the index spaces of the component model as they grow.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::resources::Source;
use crate::component::module::ModuleInfo;

/// Types that the rewriter puts in front of every component-level type space: `u32`, and
/// `func(handle: u32)`. All indices shift by that.
pub const SHIFT: u32 = 2;

/// Index of `u32` in every type space.
pub const TYPE_HANDLE: u32 = 0;

/// Index of `func(handle: u32)` in every type space.
pub const TYPE_DROP: u32 = 1;

/// The names that things of one interface have got, in lower case: they compare without case.
pub type Taken = HashSet<String>;

/// The state of one instance of a component, with all within it.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The suffixes of the accessors that the component exports.
    pub accessors: Vec<String>,
    /// Linear memories, those of accessors included.
    pub memories: usize,
    /// Mutable globals.
    pub globals: usize,
}

/// One level while it is being rewritten. Counts are of the new component.
#[derive(Default)]
pub struct Scope {
    /// Which nested component of its parent it is.
    pub index: u32,
    /// How many components nested in it have begun.
    pub subcomponents: u32,
    /// Old to new component function indices.
    pub functions: Vec<u32>,
    /// Component functions so far.
    pub function_count: u32,
    /// Component types so far.
    pub types: u32,
    /// Component instances so far.
    pub instances: u32,
    /// Core functions so far.
    pub core_functions: u32,
    /// Core instances so far.
    pub core_instances: u32,
    /// Components; none for those that come from outside.
    pub components: Vec<Option<Rc<State>>>,
    /// Core modules; none for those that come from outside.
    pub modules: Vec<Option<Rc<ModuleInfo>>>,
    /// Core instances that have state of their own.
    pub stateful: Vec<(u32, Rc<ModuleInfo>)>,
    /// Component instances that have accessors.
    pub nested: Vec<(u32, Rc<State>)>,
    /// The functions that drop handles, once they have been imported or aliased.
    pub drops: HashMap<Source, u32>,
    /// What the level exports.
    pub exported: Taken,
    /// Resource types imported by themselves.
    resource_imports: u32,
}

impl Scope {
    /// An empty level, the given nested component of its parent.
    pub fn new(index: u32) -> Self {
        Self { index, types: SHIFT, ..Self::default() }
    }

    /// Counts a function of the old component.
    pub fn old_function(&mut self) {
        self.functions.push(self.function_count);
        self.function_count += 1;
    }

    /// Counts the function that is imported with a resource type.
    pub fn import_drop(&mut self) {
        let function = self.new_function();
        self.drops.insert(Source::Import(self.resource_imports), function);
        self.resource_imports += 1;
    }

    /// Counts a function that the rewriter adds, and returns its index.
    pub fn new_function(&mut self) -> u32 {
        self.function_count += 1;
        self.function_count - 1
    }
}
