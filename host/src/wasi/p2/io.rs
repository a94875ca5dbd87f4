use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::io::error::HostError;

use super::bindings::wasi::io;
use super::{St, W};
use crate::wasi::delegate_generated::Kind;
use crate::wasi::object::Object;
use crate::wasi::state::GuestState;
use crate::wasi::streams::StreamError;

impl io::error::Host for GuestState {
    fn method_error_to_debug_string(&mut self, handle: u32) -> W<String> {
        match self.table.get(handle)? {
            Object::Error { message, .. } => Ok(message.clone()),
            Object::Foreign(Kind::Error, rep) => {
                let error = Resource::new_borrow(*rep);
                HostError::to_debug_string(self.foreign(), error)
            }
            Object::Gone(Kind::Error) => Ok("an error from before the agent was paused".into()),
            _ => Err(self.table.wrong(handle, "an error").into()),
        }
    }

    fn drop_error(&mut self, handle: u32) -> W<()> {
        match self.table.take_as(handle, Kind::Error)? {
            Object::Foreign(Kind::Error, rep) => HostError::drop(self.foreign(), Resource::new_own(rep)),
            _ => Ok(()),
        }
    }
}

impl io::poll::Host for GuestState {
    async fn method_pollable_ready(&mut self, handle: u32) -> W<bool> {
        self.poll_ready(handle).await
    }

    async fn method_pollable_block(&mut self, handle: u32) -> W<()> {
        self.poll_any(&[handle]).await.map(|_| ())
    }

    async fn poll(&mut self, handles: Vec<u32>) -> W<Vec<u32>> {
        self.poll_any(&handles).await
    }

    fn drop_pollable(&mut self, handle: u32) -> W<()> {
        self.poll_drop(handle)
    }
}

impl io::streams::Host for GuestState {
    fn convert_stream_error(&mut self, e: StreamError) -> W<io::streams::StreamError> {
        use io::streams::StreamError as Told;
        match e {
            StreamError::Closed => Ok(Told::Closed),
            StreamError::Failed { message, code } => {
                let code = code.and_then(super::filesystem::code_index);
                Ok(Told::LastOperationFailed(self.table.push(Object::Error { message, code })?))
            }
            StreamError::Foreign(e) => {
                let rep = self.foreign().push(e)?.rep();
                Ok(Told::LastOperationFailed(self.table.push(Object::Foreign(Kind::Error, rep))?))
            }
            StreamError::Trap(e) => Err(e),
        }
    }

    fn method_input_stream_read(&mut self, handle: u32, len: u64) -> St<Vec<u8>> {
        Ok(self.stream_read(handle, len)?.into())
    }

    async fn method_input_stream_blocking_read(&mut self, handle: u32, len: u64) -> St<Vec<u8>> {
        Ok(self.stream_blocking_read(handle, len).await?.into())
    }

    fn method_input_stream_skip(&mut self, handle: u32, len: u64) -> St<u64> {
        Ok(self.stream_read(handle, len)?.len() as u64)
    }

    async fn method_input_stream_blocking_skip(&mut self, handle: u32, len: u64) -> St<u64> {
        Ok(self.stream_blocking_read(handle, len).await?.len() as u64)
    }

    fn method_input_stream_subscribe(&mut self, handle: u32) -> W<u32> {
        self.stream_input_pollable(handle)
    }

    fn method_output_stream_check_write(&mut self, handle: u32) -> St<u64> {
        self.stream_check_write(handle)
    }

    fn method_output_stream_write(&mut self, handle: u32, bytes: Vec<u8>) -> St<()> {
        self.stream_write(handle, bytes)
    }

    async fn method_output_stream_blocking_write_and_flush(&mut self, handle: u32, bytes: Vec<u8>) -> St<()> {
        self.stream_blocking_write(handle, bytes).await
    }

    fn method_output_stream_flush(&mut self, handle: u32) -> St<()> {
        self.stream_flush(handle)
    }

    async fn method_output_stream_blocking_flush(&mut self, handle: u32) -> St<()> {
        self.stream_blocking_flush(handle).await
    }

    fn method_output_stream_subscribe(&mut self, handle: u32) -> W<u32> {
        self.stream_output_pollable(handle)
    }

    fn method_output_stream_write_zeroes(&mut self, handle: u32, len: u64) -> St<()> {
        self.stream_write_zeroes(handle, len)
    }

    async fn method_output_stream_blocking_write_zeroes_and_flush(
        &mut self,
        handle: u32,
        len: u64,
    ) -> St<()> {
        self.stream_blocking_write_zeroes(handle, len).await
    }

    fn method_output_stream_splice(&mut self, handle: u32, source: u32, len: u64) -> St<u64> {
        self.stream_splice(handle, source, len)
    }

    async fn method_output_stream_blocking_splice(&mut self, handle: u32, source: u32, len: u64) -> St<u64> {
        self.stream_blocking_splice(handle, source, len).await
    }

    async fn drop_input_stream(&mut self, handle: u32) -> W<()> {
        self.stream_drop(handle, Kind::InputStream).await
    }

    async fn drop_output_stream(&mut self, handle: u32) -> W<()> {
        self.stream_drop(handle, Kind::OutputStream).await
    }
}
