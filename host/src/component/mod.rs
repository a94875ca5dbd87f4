//! Components: what they are, whether they can be captured, and how they are made capturable.
//!
//! Everything here is a pure function of bytes that may be hostile. Nothing is run or compiled.
//!
//! | module | what it does |
//! |---|---|
//! | [`scan`](scan()) | reads a file: imports, exports, core modules, refusals |
//! | [`rewrite`](rewrite()) | turns handles into numbers and adds accessors for the state |
//! | [`wrap_core_module`] | makes a component of a preview 1 core module |
//! | [`inspect`](inspect()) | the report for people |
//! | [`limits`] | what a hostile binary may make all this do |

mod check;
mod code;
mod error;
mod exceptions;
mod features;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inspect;
pub mod limits;
mod listed;
mod module;
mod place;
mod refuse;
mod rewrite;
mod scan;
#[cfg(test)]
mod tests;
mod wrap;

pub use error::ComponentError;
pub use inspect::{Inspection, World, inspect};
pub use refuse::{Place, Reason, Refusal};
pub use rewrite::{
    LAYOUT_VERSION, LOAD_ALL, LOAD_BLOCK, REWRITER_VERSION, Rewritten, Variant, load_export, rewrite,
    save_export,
};
pub use scan::{BinaryKind, Item, ItemKind, MemoryLimits, Module, Scan, scan, without_version};
pub use wrap::wrap_core_module;
