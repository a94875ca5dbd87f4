//! Reads and writes, which carry most bytes: from a zone right into the guest's memory, and back.
//!
//! The derived bindings copy each `list<u8>` into a vector; these take the place of six of theirs.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmList};
use zone_vfs::store::Disk;

use super::bindings::wasi::filesystem::types::{ErrorCode, Host as _};
use super::bindings::wasi::io::streams::{Host as _, StreamError as Told};
use crate::wasi::fs::{FsError, MAX_WRITE, Place, write_at};
use crate::wasi::state::GuestState;
use crate::wasi::streams::{Sink, StreamResult, permitted};

type Store<'a> = StoreContextMut<'a, GuestState>;
type Streamed<T> = wasmtime::Result<(Result<T, Told>,)>;
type Answer<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

const STREAMS: &str = "wasi:io/streams@0.2.12";
const FILES: &str = "wasi:filesystem/types@0.2.12";

fn streamed<T>(state: &mut GuestState, result: StreamResult<T>) -> Streamed<T> {
    match result {
        Ok(value) => Ok((Ok(value),)),
        Err(e) => Ok((Err(state.convert_stream_error(e)?),)),
    }
}

fn answer<T>(state: &mut GuestState, result: Result<T, FsError>) -> Answer<T> {
    match result {
        Ok(value) => Ok((Ok(value),)),
        Err(e) => Ok((Err(state.convert_error_code(e)?),)),
    }
}

/// Puts them in the place of the derived bindings' own.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut streams = linker.instance(STREAMS)?;
    streams.func_wrap("method-input-stream-read", |mut store: Store<'_>, (stream, len): (u32, u64)| {
        let state = store.data_mut();
        let read = state.stream_read(stream, len);
        streamed(state, read)
    })?;
    streams.func_wrap_async(
        "method-input-stream-blocking-read",
        |mut store: Store<'_>, (stream, len): (u32, u64)| {
            Box::new(async move {
                let state = store.data_mut();
                let read = state.stream_blocking_read(stream, len).await;
                streamed(state, read)
            })
        },
    )?;
    streams.func_wrap(
        "method-output-stream-write",
        |mut store: Store<'_>, (stream, bytes): (u32, WasmList<u8>)| {
            let written = if let Some(result) = write_file(&mut store, stream, &bytes) {
                result
            } else {
                let bytes = bytes.as_le_slice(&store).to_vec();
                store.data_mut().stream_write(stream, bytes)
            };
            streamed(store.data_mut(), written)
        },
    )?;
    streams.func_wrap_async(
        "method-output-stream-blocking-write-and-flush",
        |mut store: Store<'_>, (stream, bytes): (u32, WasmList<u8>)| {
            Box::new(async move {
                let written = if let Some(result) = write_file(&mut store, stream, &bytes) {
                    result
                } else {
                    let bytes = bytes.as_le_slice(&store).to_vec();
                    store.data_mut().stream_blocking_write(stream, bytes).await
                };
                streamed(store.data_mut(), written)
            })
        },
    )?;
    let mut files = linker.instance(FILES)?;
    files.func_wrap(
        "method-descriptor-read",
        |mut store: Store<'_>, (descriptor, length, offset): (u32, u64, u64)| {
            let state = store.data_mut();
            let read = state.fs_read(descriptor, length, offset);
            answer(state, read)
        },
    )?;
    files.func_wrap(
        "method-descriptor-write",
        |mut store: Store<'_>, (descriptor, bytes, offset): (u32, WasmList<u8>, u64)| {
            let written = write_descriptor(&mut store, descriptor, &bytes, offset);
            answer(store.data_mut(), written)
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Writes what lies in the guest's memory to a file: right from there, but a copy to a zone that is shared, of which is
/// known then that all of it could be read.
fn write(
    store: &mut Store<'_>,
    (disk, place): (&Disk, Place),
    position: Option<u64>,
    bytes: &WasmList<u8>,
    limit: usize,
) -> Result<u64, FsError> {
    let bytes = bytes.as_le_slice(&*store);
    let bytes = &bytes[..bytes.len().min(limit)];
    let len = bytes.len() as u64;
    if store.data().is_shared(place.zone) {
        let bytes = bytes.to_vec();
        store.data_mut().write_to(place, position, &bytes)?;
        return Ok(len);
    }
    let asked = place.write_of(position, bytes);
    let written = write_at(disk, place, position, bytes);
    store.data_mut().noted(asked, written)?;
    Ok(len)
}

/// Writes to a file's stream; `None` where the stream is another's.
fn write_file(store: &mut Store<'_>, stream: u32, bytes: &WasmList<u8>) -> Option<StreamResult<()>> {
    let sink = match store.data_mut().stream_sink(stream) {
        Ok(Some(sink)) => sink,
        Ok(None) => return None,
        Err(e) => return Some(Err(e)),
    };
    let Sink { disk, place, position } = sink;
    let len = bytes.as_le_slice(&*store).len();
    let written =
        permitted(len).and_then(|()| Ok(write(store, (&disk, place), position, bytes, usize::MAX)?));
    Some(written.and_then(|count| store.data_mut().stream_advance(stream, count)))
}

fn write_descriptor(
    store: &mut Store<'_>,
    descriptor: u32,
    bytes: &WasmList<u8>,
    offset: u64,
) -> Result<u64, FsError> {
    let (disk, place) = store.data_mut().fs_sink(descriptor)?;
    write(store, (&disk, place), Some(offset), bytes, MAX_WRITE)
}
