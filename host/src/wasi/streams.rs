//! Streams, version-neutral: files, standard streams, and what is delegated.

use std::sync::Arc;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::StreamError as ForeignError;
use wasmtime_wasi::p2::bindings::io::streams::{HostInputStream, HostOutputStream};
use zone_vfs::store::Disk;
use zone_vfs::zone::ErrorCode;

use super::bytes::Blob;
use super::delegate_generated::Kind;
use super::fs::{FsError, MAX_READ, Place};
use super::object::{Object, Pollable};
use super::output::{Output, OutputError};
use super::state::GuestState;
use super::stdio::InputRead;
use super::table::HandleError;

/// Bytes that `check-write` permits. A write of more traps, as the interface says.
pub const WRITE_PERMIT: u64 = 1 << 20;

/// Why a stream operation failed.
#[derive(Debug)]
pub enum StreamError {
    /// The stream is at its end, or closed.
    Closed,
    /// It failed; the guest gets an error to look at.
    Failed {
        /// In words.
        message: String,
        /// The filesystem's code, if it came from there.
        code: Option<ErrorCode>,
    },
    /// A handle of an error that wasmtime-wasi made.
    Foreign(wasmtime::Error),
    /// The call traps.
    Trap(wasmtime::Error),
}

impl From<FsError> for StreamError {
    fn from(e: FsError) -> Self {
        match e {
            FsError::Code(code) => Self::Failed { message: code.name().into(), code: Some(code) },
            FsError::Trap(e) => Self::Trap(e),
        }
    }
}

impl From<HandleError> for StreamError {
    fn from(e: HandleError) -> Self {
        match e {
            HandleError::Gone(_) => Self::Closed,
            e => Self::Trap(e.into()),
        }
    }
}

impl From<ForeignError> for StreamError {
    fn from(e: ForeignError) -> Self {
        match e {
            ForeignError::Closed => Self::Closed,
            ForeignError::LastOperationFailed(e) => Self::Foreign(e),
            ForeignError::Trap(e) => Self::Trap(e),
        }
    }
}

impl From<OutputError> for StreamError {
    fn from(e: OutputError) -> Self {
        if e.kind == std::io::ErrorKind::BrokenPipe { Self::Closed } else { failed(e.message) }
    }
}

impl From<wasmtime::Error> for StreamError {
    fn from(e: wasmtime::Error) -> Self {
        Self::Trap(e)
    }
}

/// The result of a stream operation.
pub type StreamResult<T> = Result<T, StreamError>;

/// Where a write to a file's stream goes.
pub(super) struct Sink {
    /// The disk that the file is on.
    pub disk: Arc<Disk>,
    /// The file.
    pub place: Place,
    /// The offset; at the end where there is none.
    pub position: Option<u64>,
}

/// Refuses a write of more than `check-write` permits.
pub(super) fn permitted(len: usize) -> StreamResult<()> {
    if len as u64 > WRITE_PERMIT {
        let message = format!("a write of {len} bytes, where check-write permits {WRITE_PERMIT}");
        return Err(StreamError::Trap(wasmtime::Error::msg(message)));
    }
    Ok(())
}

fn failed(message: String) -> StreamError {
    StreamError::Failed { message, code: None }
}

impl GuestState {
    #[cold]
    fn no_input<T>(&self, handle: u32) -> StreamResult<T> {
        Err(self.table.wrong(handle, "an input-stream").into())
    }

    #[cold]
    fn no_output<T>(&self, handle: u32) -> StreamResult<T> {
        Err(self.table.wrong(handle, "an output-stream").into())
    }

    pub(super) fn stream_read(&mut self, handle: u32, length: u64) -> StreamResult<Blob> {
        match self.table.get(handle)? {
            Object::FileInput { zone, inode, position } => {
                let (zone, inode, at) = (*zone, *inode, *position);
                let bytes = self.read_at(zone, inode, at, length)?;
                if bytes.is_empty() && length > 0 {
                    return Err(StreamError::Closed);
                }
                if let Object::FileInput { position, .. } = self.table.get_mut(handle)? {
                    *position = at + bytes.len() as u64;
                }
                Ok(bytes)
            }
            Object::Stdin => {
                let Some(input) = &self.stdio.stdin else { return Err(StreamError::Closed) };
                match input.read(length.min(MAX_READ) as usize) {
                    InputRead::Bytes(bytes) => Ok(Blob::Own(bytes)),
                    InputRead::End => Err(StreamError::Closed),
                    InputRead::Failed(e) => Err(failed(format!("standard input: {e}"))),
                }
            }
            Object::Foreign(Kind::InputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                Ok(Blob::Own(HostInputStream::read(self.foreign(), stream, length)?))
            }
            _ => self.no_input(handle),
        }
    }

    pub(super) async fn stream_blocking_read(&mut self, handle: u32, length: u64) -> StreamResult<Blob> {
        match self.table.get(handle)? {
            Object::Stdin => {
                if let (Some(input), true) = (self.stdio.stdin.clone(), length > 0) {
                    input.ready().await;
                }
                self.stream_read(handle, length)
            }
            Object::Foreign(Kind::InputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                Ok(Blob::Own(HostInputStream::blocking_read(self.foreign(), stream, length).await?))
            }
            _ => self.stream_read(handle, length),
        }
    }

    pub(super) fn stream_input_pollable(&mut self, handle: u32) -> wasmtime::Result<u32> {
        let object = match self.table.get(handle)? {
            Object::FileInput { .. } | Object::Gone(Kind::InputStream) => Object::Pollable(Pollable::Ready),
            Object::Stdin => Object::Pollable(Pollable::Stdin),
            Object::Foreign(Kind::InputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                let pollable = HostInputStream::subscribe(self.foreign(), stream)?;
                Object::Foreign(Kind::Pollable, pollable.rep())
            }
            _ => return Err(self.table.wrong(handle, "an input-stream").into()),
        };
        Ok(self.table.push(object)?)
    }

    pub(super) fn stream_output_pollable(&mut self, handle: u32) -> wasmtime::Result<u32> {
        let object = match self.table.get(handle)? {
            Object::FileOutput { .. } | Object::Gone(Kind::OutputStream) => Object::Pollable(Pollable::Ready),
            Object::Stdout => Object::Pollable(Pollable::Stdout),
            Object::Stderr => Object::Pollable(Pollable::Stderr),
            Object::Foreign(Kind::OutputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                let pollable = HostOutputStream::subscribe(self.foreign(), stream)?;
                Object::Foreign(Kind::Pollable, pollable.rep())
            }
            _ => return Err(self.table.wrong(handle, "an output-stream").into()),
        };
        Ok(self.table.push(object)?)
    }

    pub(super) fn stream_check_write(&mut self, handle: u32) -> StreamResult<u64> {
        match self.table.get(handle)? {
            Object::FileOutput { .. } => Ok(WRITE_PERMIT),
            Object::Stdout => self.print_permit(false),
            Object::Stderr => self.print_permit(true),
            Object::Foreign(Kind::OutputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                Ok(HostOutputStream::check_write(self.foreign(), stream)?)
            }
            _ => self.no_output(handle),
        }
    }

    /// Writes all of `bytes`; a stream of wasmtime's is written by its own rules.
    pub(super) fn stream_write(&mut self, handle: u32, bytes: Vec<u8>) -> StreamResult<()> {
        match self.table.get(handle)? {
            Object::FileOutput { zone, inode, position } => {
                let (zone, inode, at) = (*zone, *inode, *position);
                permitted(bytes.len())?;
                let (_, place) = self.file_place(zone, inode)?;
                self.write_to(place, at, &bytes)?;
                self.stream_advance(handle, bytes.len() as u64)
            }
            Object::Stdout => {
                permitted(bytes.len())?;
                self.print(false, &bytes)
            }
            Object::Stderr => {
                permitted(bytes.len())?;
                self.print(true, &bytes)
            }
            Object::Foreign(Kind::OutputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                Ok(HostOutputStream::write(self.foreign(), stream, bytes)?)
            }
            _ => self.no_output(handle),
        }
    }

    /// Where a write to the stream goes, if that is a file of a zone.
    pub(super) fn stream_sink(&mut self, handle: u32) -> StreamResult<Option<Sink>> {
        let Object::FileOutput { zone, inode, position } = *self.table.get(handle)? else { return Ok(None) };
        let (disk, place) = self.file_place(zone, inode)?;
        Ok(Some(Sink { disk, place, position }))
    }

    /// Moves a file's stream on by what was written; one that appends stays at the end.
    pub(super) fn stream_advance(&mut self, handle: u32, by: u64) -> StreamResult<()> {
        if let Object::FileOutput { position: Some(position), .. } = self.table.get_mut(handle)? {
            *position += by;
        }
        Ok(())
    }

    /// Bytes that can be printed now.
    fn print_permit(&self, error: bool) -> StreamResult<u64> {
        match self.stdio.output(error) {
            Some(output) => Ok(output.room()? as u64),
            None => Ok(WRITE_PERMIT),
        }
    }

    fn print(&mut self, error: bool, bytes: &[u8]) -> StreamResult<()> {
        if let Some(output) = self.stdio.output(error)
            && !output.push(bytes)?
        {
            let message = format!("a write of {} bytes, which is more than check-write permits", bytes.len());
            return Err(StreamError::Trap(wasmtime::Error::msg(message)));
        }
        Ok(self.log_output(error, bytes)?)
    }

    /// The standard stream that a handle writes to, where it leads somewhere.
    fn printing(&self, handle: u32) -> StreamResult<Option<Output>> {
        let error = match self.table.get(handle)? {
            Object::Stdout => false,
            Object::Stderr => true,
            _ => return Ok(None),
        };
        Ok(self.stdio.output(error).cloned())
    }

    pub(super) fn stream_flush(&mut self, handle: u32) -> StreamResult<()> {
        match self.table.get(handle)? {
            Object::FileOutput { .. } => Ok(()),
            // it is flushed whenever something was written
            Object::Stdout | Object::Stderr => self.stream_check_write(handle).map(drop),
            Object::Foreign(Kind::OutputStream, rep) => {
                let stream = Resource::new_borrow(*rep);
                Ok(HostOutputStream::flush(self.foreign(), stream)?)
            }
            _ => self.no_output(handle),
        }
    }

    fn foreign_output(&self, handle: u32) -> StreamResult<Option<u32>> {
        match self.table.get(handle)? {
            Object::Foreign(Kind::OutputStream, rep) => Ok(Some(*rep)),
            _ => Ok(None),
        }
    }

    pub(super) async fn stream_blocking_flush(&mut self, handle: u32) -> StreamResult<()> {
        if let Some(rep) = self.foreign_output(handle)? {
            return Ok(HostOutputStream::blocking_flush(self.foreign(), Resource::new_borrow(rep)).await?);
        }
        if let Some(output) = self.printing(handle)? {
            return Ok(output.written().await?);
        }
        self.stream_flush(handle)
    }

    pub(super) async fn stream_blocking_write(&mut self, handle: u32, bytes: Vec<u8>) -> StreamResult<()> {
        if let Some(rep) = self.foreign_output(handle)? {
            let stream = Resource::new_borrow(rep);
            return Ok(HostOutputStream::blocking_write_and_flush(self.foreign(), stream, bytes).await?);
        }
        self.stream_room(handle, bytes.len()).await?;
        self.stream_write(handle, bytes)?;
        self.stream_blocking_flush(handle).await
    }

    /// Waits until a standard stream takes so many bytes.
    async fn stream_room(&mut self, handle: u32, len: usize) -> StreamResult<()> {
        match self.printing(handle)? {
            Some(output) => Ok(output.ready(len).await?),
            None => Ok(()),
        }
    }

    pub(super) async fn stream_blocking_write_zeroes(&mut self, handle: u32, len: u64) -> StreamResult<()> {
        self.stream_room(handle, usize::try_from(len).unwrap_or(usize::MAX)).await?;
        self.stream_write_zeroes(handle, len)?;
        self.stream_blocking_flush(handle).await
    }

    pub(super) fn stream_write_zeroes(&mut self, handle: u32, len: u64) -> StreamResult<()> {
        permitted(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.stream_write(handle, vec![0; len as usize])
    }

    pub(super) fn stream_splice(&mut self, handle: u32, source: u32, len: u64) -> StreamResult<u64> {
        let permit = self.stream_check_write(handle)?;
        let bytes = self.stream_read(source, len.min(permit))?;
        let moved = bytes.len() as u64;
        self.stream_write(handle, bytes.into())?;
        Ok(moved)
    }

    pub(super) async fn stream_blocking_splice(
        &mut self,
        handle: u32,
        source: u32,
        len: u64,
    ) -> StreamResult<u64> {
        let mut permit = self.stream_check_write(handle)?;
        if permit == 0 {
            self.stream_blocking_flush(handle).await?;
            permit = self.stream_check_write(handle)?;
        }
        let bytes = self.stream_blocking_read(source, len.min(permit)).await?;
        let moved = bytes.len() as u64;
        self.stream_blocking_write(handle, bytes.into()).await?;
        Ok(moved)
    }

    pub(super) async fn stream_drop(&mut self, handle: u32, kind: Kind) -> wasmtime::Result<()> {
        match self.fs_drop(handle, kind)? {
            Object::Foreign(Kind::InputStream, rep) => {
                HostInputStream::drop(self.foreign(), Resource::new_own(rep)).await
            }
            Object::Foreign(Kind::OutputStream, rep) => {
                HostOutputStream::drop(self.foreign(), Resource::new_own(rep)).await
            }
            _ => Ok(()),
        }
    }
}
