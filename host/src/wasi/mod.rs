//! WASI on virtual handles.
//!
//! A version-neutral core ([`fs`], [`streams`], [`poll`], [`clocks`], [`stdio`],
//! [`output`]) works on the
//! [`HandleTable`] and the agent's disk; thin adapters ([`p2`]) translate. What wasmtime-wasi(-http)
//! implements well (sockets, http) is delegated to it by generated glue ([`delegate`]).
//!
//! Resources that a component defines itself are behind handles of the same table ([`guest`]).
//!
//! Every nondeterministic result is asked of an [`Outside`].

pub(crate) mod bytes;
pub mod call;
pub mod clocks;
pub(crate) mod delegate;
#[rustfmt::skip]
pub(crate) mod delegate_generated;
pub(crate) mod fs;
pub(crate) mod guest;
mod noted;
pub(crate) mod object;
pub mod output;
pub mod outside;
pub(crate) mod p2;
pub(crate) mod poll;
mod provided;
mod state;
pub mod stdio;
pub(crate) mod streams;
pub mod table;

pub use self::call::{Asked, Call, CallDigest};
pub use self::output::{Output, OutputError};
pub use self::outside::{Divergence, LiveOutside, Outside, OutsideError};
pub use self::provided::not_provided;
pub use self::state::{GuestState, Lifecycle, MemoryLimits, Start, Touched};
pub use self::stdio::{Input, Stdio};
pub use self::table::{HandleError, HandleTable};

pub(crate) use self::fs::FsError;
#[cfg(test)]
pub(crate) use self::guest::link as link_resources;
pub(crate) use self::outside::system_random;
pub(crate) use self::p2::{Exit, link};
pub(crate) use self::state::{BeforeForgetting, Mounts};
