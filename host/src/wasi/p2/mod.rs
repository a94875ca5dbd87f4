//! The adapter for WASI 0.2: the derived bindings over the version-neutral core.
//!
//! `wit-derived` holds WASI's own WIT with resources as `u32`; a component that imports any 0.2.x
//! links against it by the rules of semantic versions.

mod cli;
mod clocks;
mod filesystem;
mod io;
mod transfer;

use wasmtime::component::{HasSelf, Linker};

use super::fs::FsError;
use super::state::GuestState;
use super::streams::StreamError;

#[allow(missing_docs, clippy::pedantic, unused_qualifications, reason = "generated from WIT")]
pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "wit-derived",
        world: "dormouse:host/host",
        imports: {
            "wasi:filesystem/types.method-descriptor-sync": async | trappable,
            "wasi:filesystem/types.method-descriptor-sync-data": async | trappable,
            "wasi:io/poll.poll": async | trappable,
            "wasi:io/poll.method-pollable-ready": async | trappable,
            "wasi:io/poll.method-pollable-block": async | trappable,
            "wasi:io/streams.method-input-stream-blocking-read": async | trappable,
            "wasi:io/streams.method-input-stream-blocking-skip": async | trappable,
            "wasi:io/streams.method-output-stream-blocking-write-and-flush": async | trappable,
            "wasi:io/streams.method-output-stream-blocking-flush": async | trappable,
            "wasi:io/streams.method-output-stream-blocking-write-zeroes-and-flush": async | trappable,
            "wasi:io/streams.method-output-stream-blocking-splice": async | trappable,
            "wasi:io/streams.drop-input-stream": async | trappable,
            "wasi:io/streams.drop-output-stream": async | trappable,
            default: trappable,
        },
        trappable_error_type: {
            "wasi:filesystem/types.error-code" => crate::wasi::fs::FsError,
            "wasi:io/streams.stream-error" => crate::wasi::streams::StreamError,
        },
        require_store_data_send: true,
    });
}

/// The guest asked to exit with this status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exit with status {0}")]
pub struct Exit(pub u8);

/// Adds WASI 0.2 to a linker.
pub(crate) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    bindings::Host_::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |state| state)?;
    transfer::link(linker)?;
    crate::wasi::guest::link(linker)?;
    super::delegate_generated::link(linker)
}

type Fs<T> = Result<T, FsError>;
type St<T> = Result<T, StreamError>;
type W<T> = wasmtime::Result<T>;
