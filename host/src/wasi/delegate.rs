//! What the generated glue needs of the host to serve sockets and http from wasmtime-wasi(-http).
//!
//! Nothing is granted yet: wasmtime-wasi answers `access-denied` to every use of the network, and
//! requests are answered with `HTTP-request-denied`.

use std::future::Future;

use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi::sockets::WasiSocketsCtxView;
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView};

use super::delegate_generated::Kind;
use super::object::{Object, Pollable};
use super::state::GuestState;
use super::table::HandleError;

/// The object behind a handle did not survive a pause.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("closed when the agent was paused")]
pub struct Gone;

/// What the generated glue asks of a store's data.
pub trait Delegated: Send + 'static {
    /// wasmtime-wasi's sockets.
    fn sockets(&mut self) -> WasiSocketsCtxView<'_>;
    /// wasmtime-wasi-http.
    fn http(&mut self) -> WasiHttpCtxView<'_>;
    /// A new handle for a resource of wasmtime's table.
    fn put<R: 'static>(&mut self, kind: Kind, resource: Resource<R>) -> wasmtime::Result<u32>;
    /// Borrows a resource; [`Gone`] where it did not survive a pause.
    fn borrow<R: 'static>(&self, kind: Kind, handle: u32) -> wasmtime::Result<Resource<R>>;
    /// Takes a resource; [`Gone`] where it did not survive a pause.
    fn take<R: 'static>(&mut self, kind: Kind, handle: u32) -> wasmtime::Result<Resource<R>>;
    /// Borrows the error behind a handle; none where it is not one of wasmtime's.
    fn borrow_error<R: 'static>(&self, handle: u32) -> wasmtime::Result<Option<Resource<R>>>;
    /// A handle for a pollable that is ready.
    fn ready_pollable(&mut self) -> wasmtime::Result<u32>;
}

impl Delegated for GuestState {
    fn sockets(&mut self) -> WasiSocketsCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(|| WasiCtx::builder().build());
        WasiSocketsCtxView { ctx: ctx.sockets(), table: &mut self.resources }
    }

    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.http_hooks,
            table: &mut self.resources,
            ctx: self.http.get_or_insert_with(WasiHttpCtx::new),
        }
    }

    fn put<R: 'static>(&mut self, kind: Kind, resource: Resource<R>) -> wasmtime::Result<u32> {
        Ok(self.table.put(kind, resource)?)
    }

    fn borrow<R: 'static>(&self, kind: Kind, handle: u32) -> wasmtime::Result<Resource<R>> {
        self.table.borrow(kind, handle).map_err(gone)
    }

    fn take<R: 'static>(&mut self, kind: Kind, handle: u32) -> wasmtime::Result<Resource<R>> {
        match self.table.own(kind, handle) {
            Err(HandleError::Gone(_)) => {
                self.table.take(handle)?;
                Err(Gone.into())
            }
            result => result.map_err(gone),
        }
    }

    fn borrow_error<R: 'static>(&self, handle: u32) -> wasmtime::Result<Option<Resource<R>>> {
        match self.table.get(handle)? {
            Object::Foreign(Kind::Error, rep) => Ok(Some(Resource::new_borrow(*rep))),
            Object::Error { .. } | Object::Gone(Kind::Error) => Ok(None),
            _ => Err(self.table.wrong(handle, "an error").into()),
        }
    }

    fn ready_pollable(&mut self) -> wasmtime::Result<u32> {
        Ok(self.table.push(Object::Pollable(Pollable::Ready))?)
    }
}

#[cold]
fn gone(e: HandleError) -> wasmtime::Error {
    match e {
        HandleError::Gone(_) => Gone.into(),
        e => e.into(),
    }
}

impl GuestState {
    pub(super) fn foreign(&mut self) -> &mut ResourceTable {
        &mut self.resources
    }
}

/// Denies every request.
#[derive(Debug)]
pub struct DenyHttp;

type Sent = (
    http::Response<wasmtime_wasi_http::WasiBody>,
    Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>,
);

impl wasmtime_wasi_http::WasiHttpHooks for DenyHttp {
    fn send_request(
        &mut self,
        _request: http::Request<wasmtime_wasi_http::WasiBody>,
        _options: Option<wasmtime_wasi_http::RequestOptions>,
        _sent: Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, wasmtime_wasi_http::Error>> + Send> {
        Box::new(async { Err(wasmtime_wasi_http::Error::HttpRequestDenied) })
    }
}
