//! What the benchmarks share.
//!
//! | module | what it is |
//! |---|---|
//! | [`bench`] | criterion, with every sample kept beside it |
//! | [`report`] | p50 and p99 of the samples, as a table and as JSON |
//! | [`plot`] | pictures of a report |
//! | [`machine`] | what was measured on |
//! | [`guests`] | the components that are measured |
//! | [`bed`] | an open host in a folder of its own, with a runtime |
//! | [`output`] | what a guest prints |
//! | [`peer`] | the same components on plain wasmtime and wasmtime-wasi |

pub mod bed;
pub mod bench;
pub mod guests;
pub mod machine;
pub mod output;
pub mod peer;
pub mod plot;
pub mod report;
