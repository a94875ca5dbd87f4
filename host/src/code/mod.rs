//! Code: components compiled, in a child process, and kept by content.
//!
//! | module | what it does |
//! |---|---|
//! | [`engine`] | the settings under which code is compiled and runs |
//! | [`compile`] | the child process that rewrites and compiles, and its bounds |
//! | [`cache`] | compiled code on disk, under a MAC |
//! | [`components`] | the components themselves, by hash |
//! | [`schedule`] | who computes next, and for how long |
//! | [`files`] | reading and removing what may be anything |

mod cache;
mod compile;
mod components;
mod engine;
mod error;
mod files;
mod schedule;

pub use self::compile::{COMPILE_COMMAND, COMPILER_VARIABLE, CompileLimits, Compiler, compile_child};
pub use self::error::CodeError;

pub(crate) use self::cache::{Code, CodeCache, CodeKey};
pub(crate) use self::components::{Components, as_component};
pub(crate) use self::engine::{SlotEngine, Ticker};
#[cfg(test)]
pub(crate) use self::engine::{config, plain_config};
pub(crate) use self::files::read_regular;
use self::files::remove_any;
pub use self::schedule::OutOfTime;
pub(crate) use self::schedule::{Cpu, CpuTime, Fair, metered};
