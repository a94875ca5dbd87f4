//! What cannot be captured, and where it stands.
//!
//! A snapshot holds the linear memories, the mutable globals and the host's own handle table; tables that change and
//! globals that hold references are made part of that. Whatever else can change while a guest runs would be lost, so it is refused.

use std::fmt;

use serde::Serialize;

/// Where in a component something stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// From the outermost component inwards, which nested component of its parent, counted from 0 in
    /// the order of the file. Empty: the outermost itself.
    pub components: Vec<u32>,
    /// Which core module of that component, in the order of the file.
    pub module: Option<u32>,
    /// Which function of that module, imported ones included.
    pub function: Option<u32>,
    /// Byte offset in the file.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(function) = self.function {
            write!(f, "function {function}, ")?;
        }
        if let Some(module) = self.module {
            write!(f, "core module {module}, ")?;
        }
        if !self.components.is_empty() {
            f.write_str("component ")?;
            for (n, component) in self.components.iter().enumerate() {
                write!(f, "{}{component}", if n == 0 { "" } else { "/" })?;
            }
            f.write_str(", ")?;
        }
        write!(f, "offset {:#x}", self.offset)
    }
}

/// One thing that cannot be captured, at the first place where it occurs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Refusal {
    /// What it is.
    pub reason: Reason,
    /// Where it occurs first within its core module or component.
    pub place: Place,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.place)
    }
}

/// Why a component is refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// References to functions change place at run time, so that they become numbers, and a call by way of a table could
    /// then find a function of a type that is another one now.
    #[error(
        "it changes function tables, and makes calls by way of a table with a function type that differs from another \
         function's only in `funcref` and `i32`"
    )]
    AlikeTypes,
    /// Memory shared between threads.
    #[error("it has a shared memory")]
    SharedMemory,
    /// 64-bit addresses.
    #[error("it has a 64-bit memory or table")]
    Memory64,
    /// Pages that are not 64 KiB.
    #[error("it has a memory with a page size of its own")]
    PageSize,
    /// Objects on a garbage-collected heap.
    #[error("it uses garbage-collected types")]
    GarbageCollection,
    /// References to things that are not the component's own.
    #[error("it uses `externref`, references to what is outside it")]
    ExternalReference,
    /// A reference to an exception that could outlive a turn. What holds it is named.
    #[error("it has {0} for references to exceptions (`exnref`)")]
    KeptExceptions(&'static str),
    /// Exceptions as they were before WebAssembly had `exnref`.
    #[error(
        "it uses exceptions in their old form (`try`, `catch`, `rethrow`): compile it for `try_table` and `exnref`"
    )]
    LegacyExceptions,
    /// A built-in of the asynchronous component model.
    #[error("it uses the asynchronous component model (`{0}`), which is not supported yet")]
    Async(String),
    /// A built-in for threads.
    #[error("it uses threads (`{0}`)")]
    Threads(String),
    /// A start function or values at the component level.
    #[error("it uses values at the component level")]
    Values,
    /// A core module that comes from outside the component.
    #[error("it instantiates a core module that it imports or takes from an instance")]
    ForeignModule,
    /// A component that comes from outside the component.
    #[error("it instantiates a component that it imports or takes from an instance")]
    ForeignComponent,
    /// A function of a component takes borrowed handles in more than
    /// [`MAX_FUNCTION_BORROWS`](super::limits::MAX_FUNCTION_BORROWS) places of its parameters.
    #[error("it has a function that takes borrowed handles in too many places of its parameters")]
    BorrowedHandle,
    /// A resource type imported by itself rather than as part of an interface.
    #[error("it imports or drops a resource type that belongs to no interface")]
    LooseResource,
    /// Parts that pass on what they got from the host in another way than as whole interfaces.
    #[error("its parts are composed in a way that is not supported yet: {0}")]
    Composition(String),
    /// A name that the accessors need.
    #[error("it uses the reserved name `{0}`")]
    ReservedName(String),
    /// Two names that become the same name.
    #[error("two functions of one interface both become `{0}`")]
    NameCollision(String),
    /// Anything else that the validator does not accept with the supported features.
    #[error("it uses an unsupported feature of WebAssembly: {0}")]
    Unsupported(String),
}
