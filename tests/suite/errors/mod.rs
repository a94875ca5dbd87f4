//! Wrong input of every kind: each gets one clear error, and what there was stays as it was.
//!
//! - `components`: files that are no components, or ones that cannot be run.
//! - `names`: agents, generations and zones that are not there, or cannot be.
//! - `damage`: stores that are damaged, or newer than the program.
//! - `surroundings`: no permission, a full disk, a store that is open elsewhere.

mod components;
mod damage;
mod names;
mod places;
mod planted;
mod streams;
mod surroundings;
