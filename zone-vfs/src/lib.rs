//! A store of zones: copy-on-write filesystem trees with contracts, over one write-ahead log.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | agents' disks: zones, turns, generations, side generations |
//! | [`zone`] | filesystem meaning: files, directories, paths, versions to come |
//! | [`tree`] | forkable copy-on-write B+trees |
//! | [`contract`] | who may do what, decided in one place |
//! | [`log`] | the write-ahead log and its one committer |
//! | [`segment`] | content-addressed chunks and nodes |
//! | [`superblock`] | where it all begins |
//! | [`device`] | the one way to the disk |

pub mod chunks;
pub mod contract;
pub mod device;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod id;
pub mod log;
mod quarantine;
pub mod segment;
pub mod store;
pub mod superblock;
mod told;
pub mod tree;
pub mod zone;

pub use told::told;

/// The examples of the document, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
