//! Core modules whose state is more than memories and numbers in globals are written anew as modules whose is not.
//!
//! - A passive data segment that is both copied from and dropped gets a global that says whether it has been
//!   dropped. The segment itself stays.
//! - Where references to functions change place while a component runs, by tables that change or globals that can be
//!   set, they become numbers, in all of its core modules: no instruction can make one of anything but a function
//!   of these, and none of the modules' functions is called with any from outside. Each level has one table of all
//!   functions that references are made of ([`level`]), which is filled while it is instantiated and never changes.
//!   A reference is an index of that table, 0 is null, and an instance gets the number that its own begin after as
//!   a global, so that a module can be instantiated many times. A table of the guest's is a memory of such numbers
//!   ([`tables`]), with its size in front, and is shared between modules as memories are. `call_indirect` looks up
//!   the number and calls by way of the level's table.
//!
//! What comes out has memories and globals that are captured as those of any module. Indices of functions and of
//! the guest's own segments stay; a module that needs nothing of this is not touched.

mod added;
mod alike;
pub mod level;
mod operators;
mod plan;
mod sections;
mod shape;
mod tables;

pub use plan::Plan;
