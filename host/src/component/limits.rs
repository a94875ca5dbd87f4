//! What a hostile binary may make this module do. Each limit has an error that names it.

/// Bytes of a component or core module. Python with its libraries takes 20 to 60 MiB.
pub const MAX_BYTES: usize = 256 << 20;

/// How deep components may nest. The rewriter recurses once per level.
pub const MAX_DEPTH: usize = 16;

/// Core modules of a component, at all levels together.
pub const MAX_MODULES: usize = 1_000;

/// Components within a component, at all levels together.
pub const MAX_COMPONENTS: usize = 1_000;

/// Component and instance types that one type section may define within other types. wasmparser reads
/// types within types recursively, without a bound of its own.
pub const MAX_INNER_TYPES: usize = 500;

/// Component-level type definitions, at all levels together.
pub const MAX_TYPES: usize = 100_000;

/// Mutable globals that one instance of a component has, at all levels together.
pub const MAX_GLOBALS: usize = 20_000;

/// Linear memories that one instance of a component has, at all levels together.
pub const MAX_MEMORIES: usize = 500;

/// Memories of one module, with its tables where these become memories. It is the validator's own limit of memories.
pub const MAX_MODULE_MEMORIES: usize = 100;

/// Entries of a table that becomes a memory, and of a module's element segments together. A larger one is refused,
/// and none grows beyond.
pub const MAX_TABLE_ENTRIES: usize = 1 << 20;

/// Instances that one instance of a component consists of, at all levels together: of core modules and of components. A
/// component whose parts are each instantiated ten times has ten to the power of its depth.
pub const MAX_INSTANCES: usize = 10_000;

/// Tables that one instance of a component has, at all levels together.
pub const MAX_TABLES: usize = 10_000;

/// Entries that these begin with, together, and entries that element segments put into them as it is instantiated: nothing
/// ends that before it is done. 16 Mi entries take 128 MiB.
pub const MAX_ENTRIES: usize = 16 << 20;

/// Functions that references are made of, of all core instances of a level together, where references become numbers.
pub const MAX_REFERENCES: usize = MAX_TABLE_ENTRIES - 1;

/// Accessors of a component. A component that is instantiated twice at every level has two to the
/// power of its depth.
pub const MAX_ACCESSORS: usize = 200;

/// Resource types that a component defines, at all levels together.
pub const MAX_RESOURCES: usize = 1_000;

/// Places of one function's parameters that can hold borrowed handles. Code is made for each.
pub const MAX_FUNCTION_BORROWS: usize = 500;

/// The same for all functions of a component, at all levels together.
pub const MAX_BORROWS: usize = 5_000;

/// Bytes of the names of imports, exports and their functions, as reports list them, with what a list takes for each.
pub const MAX_LISTED: usize = 32 << 20;

/// Refusals that are reported; one is enough to refuse.
pub const MAX_REFUSALS: usize = 32;
