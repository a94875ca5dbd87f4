//! Rewrites a component so that its whole state can be saved and restored.
//!
//! wasmtime keeps a guest's resource handles in a table that no API reads or fills. So, before
//! compiling:
//!
//! - resources of imported interfaces become `u32` (the core ABI is the same), `[method]r.f` becomes
//!   `method-r-f`, and each interface gains `drop-r` for every resource that it defines; wherever a
//!   resource is handed on, between parts, that function is too. The handles that a guest holds are then plain numbers in
//!   its memory, and in a table of the host's own;
//! - resource types that a component defines become `u32` too, and what makes, reads and drops their handles goes to
//!   the same table through [`host::INTERFACE`]. A lifted function that handles are lent to gets a core module in front
//!   of it, which has the loan noted and settled;
//! - every level with state gains a core module, its *accessor*, that copies all mutable globals to
//!   and from a memory of its own; nested components re-export their children's accessors;
//! - core modules that drop data segments or move references to functions are first written anew, so that these are
//!   in memories and globals of numbers, too: see [`recode`];
//! - in the restore variant active data segments are empty and start functions are gone, because
//!   memories and globals are about to be replaced.
//!
//! [`resources`] reads what has to be known before, [`scope`] holds the bookkeeping of one level, [`encode`] and
//! [`sections`] write it, [`glue`] puts the modules of [`adapter`] into it, and [`accessor`] closes it.

mod accessor;
mod adapter;
mod borrows;
mod encode;
mod glue;
mod host;
mod merge;
mod module;
pub(super) mod names;
mod recode;
mod resources;
mod scope;
mod sections;

use super::code::CodeUse;
use super::error::ComponentError;
use super::refuse::{Place, Reason, Refusal};
use super::scan::MemoryLimits;
use super::{features, scan};

/// Part of the key of compiled code in the cache. Raise it when the output changes, be it for components that
/// were refused before.
pub const REWRITER_VERSION: u32 = 6;

/// What images and tables of handles depend on: which memories an instance has, in which order, what lies where in
/// those of accessors, and which numbers its own resource types have. Raise it only when that changes for a component
/// that was accepted before: an agent whose image is of another layout keeps its files, and its memory cannot be used.
pub const LAYOUT_VERSION: u32 = 2;

/// The two forms of a component that are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Runs as the original does. Needed once, for the genesis image.
    Boot,
    /// Instantiates without running guest code and without initial data: for images.
    Restore,
}

/// A component whose state can be saved and restored.
#[derive(Debug, Clone)]
pub struct Rewritten {
    /// The new component, validated.
    pub wasm: Vec<u8>,
    /// Suffixes of the accessors, in the order in which they are to be called. For each suffix `s` the
    /// component exports `dormouse-save{s}`, a function without parameters and result, and
    /// `dormouse-load{s}`, which takes a mask. To save: call every save, then copy all memories. To
    /// restore: put all memories in place, then call every load with [`LOAD_ALL`]. Both variants have
    /// the same.
    ///
    /// An accessor keeps everything in a memory of its own, which is the last of its level. Bit `n` of
    /// the mask stands for the bytes of that memory from `n` times [`LOAD_BLOCK`], the last bit for all
    /// that follow: where they are what was loaded before, the bit can be left out.
    pub accessors: Vec<String>,
    /// The linear memories of an instance, those of accessors included, in the order in which they are made: the same in
    /// both variants.
    pub memories: Vec<MemoryLimits>,
    /// How many mutable globals an instance has.
    pub globals: usize,
}

/// A mask for which everything is loaded.
pub const LOAD_ALL: u64 = u64::MAX;
/// Bytes of an accessor's memory for which a bit of the mask stands.
pub const LOAD_BLOCK: usize = accessor::BLOCK as usize;

/// The name of the export that saves one level's globals.
pub fn save_export(suffix: &str) -> String {
    format!("{}{suffix}", names::SAVE)
}

/// The name of the export that loads one level's globals.
pub fn load_export(suffix: &str) -> String {
    format!("{}{suffix}", names::LOAD)
}

/// Rewrites a component, and validates what comes out.
///
/// # Errors
/// Whatever [`super::scan`] says, [`ComponentError::Refused`] for a component that cannot be captured,
/// also for one whose rewritten form would be invalid.
pub fn rewrite(wasm: &[u8], variant: Variant) -> Result<Rewritten, ComponentError> {
    let code = scan::admit(wasm)?;
    valid(wasm, rewrite_admitted(wasm, &code, variant)?)
}

/// Refuses what came out invalid of `wasm`: it was composed in a way that the rewriter does not follow.
pub(super) fn valid(wasm: &[u8], rewritten: Rewritten) -> Result<Rewritten, ComponentError> {
    match features::validate(&rewritten.wasm) {
        Ok(_) => Ok(rewritten),
        Err(error) => Err(refused(Reason::Composition(error.to_string()), resources::handed_on(wasm)?)),
    }
}

/// Rewrites a component that has been validated and checked, without validating the outcome. `code` is what its core
/// modules do.
pub(super) fn rewrite_admitted(
    wasm: &[u8],
    code: &[CodeUse],
    variant: Variant,
) -> Result<Rewritten, ComponentError> {
    if !wasmparser::Parser::is_component(wasm) {
        return Err(ComponentError::Rewriter("a core module must be wrapped first".to_owned()));
    }
    encode::component(wasm, variant, resources::plan(wasm)?, recode::Plan::new(wasm, code)?)
}

fn refused(reason: Reason, place: Place) -> ComponentError {
    ComponentError::Refused(vec![Refusal { reason, place }])
}
