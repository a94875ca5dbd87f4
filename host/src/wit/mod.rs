//! What agents import besides WASI: `dormouse:zones`, over the zones of the agent's disk, and `dormouse:session`, over
//! its records.
//!
//! - `history`: versions, rollback, forgetting.
//! - `changes`: the change feed.
//! - `locks`: advisory locks.

mod changes;
mod history;
mod locks;
mod session;

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker};
use zone_vfs::contract::Principal;
use zone_vfs::store::Disk;
use zone_vfs::zone::{ErrorCode, Zone, ZoneError};

use crate::wasi::GuestState;

pub(crate) use self::locks::Locks;

#[allow(missing_docs, clippy::pedantic, unused_qualifications, reason = "generated from WIT")]
mod generated {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "dormouse:zones/imports",
        imports: {
            "dormouse:zones/changes.wait": async | trappable,
            "dormouse:zones/history.diff": async | trappable,
            "dormouse:zones/locks.acquire": async | trappable,
            "dormouse:zones/locks.change": async | trappable,
            default: trappable,
        },
        require_store_data_send: true,
        // what depends on others is kept in the journal
        additional_derives: [serde::Serialize, serde::Deserialize],
    });
}

use self::generated::dormouse::zones::types;

/// Entries that one call gives, at most.
const MAX_ENTRIES: u32 = 1_000;
/// Bytes that one call reads, at most.
const MAX_READ: u32 = 1 << 20;

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

impl types::Host for GuestState {}

/// Adds `dormouse:zones` and `dormouse:session` to a linker.
pub(crate) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    session::link(linker)?;
    generated::Imports::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |state| state)
}

fn error(e: ZoneError) -> types::Error {
    // the variant says the code
    let text = match (&e.cause, e.code) {
        (Some(cause), _) => cause.to_string(),
        (None, ErrorCode::NoEntry) => "there is nothing of this name".into(),
        (None, ErrorCode::NotDirectory) => "something on the way is no folder".into(),
        (None, code) => code.name().into(),
    };
    match e.code {
        _ if e.is_changed() => types::Error::Changed(text),
        ErrorCode::NoEntry | ErrorCode::NotDirectory => types::Error::NoEntry(text),
        ErrorCode::NotPermitted | ErrorCode::ReadOnly | ErrorCode::Access => types::Error::NotPermitted(text),
        ErrorCode::Unsupported => types::Error::Unsupported(text),
        ErrorCode::Busy => types::Error::Changed(text),
        ErrorCode::Quota | ErrorCode::InsufficientSpace => types::Error::Quota(text),
        ErrorCode::Io => types::Error::Io(text),
        _ => types::Error::Invalid(text),
    }
}

fn principal(by: Principal) -> types::Principal {
    match by {
        Principal::Agent => types::Principal::Agent,
        Principal::Tool => types::Principal::Tool,
        Principal::Manager => types::Principal::Manager,
        Principal::Host => types::Principal::Host,
    }
}

/// Whether `path` is `folder` or lies in it, both from the zone's root.
pub(crate) fn is_below(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    folder.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn text(path: Option<Vec<u8>>) -> Option<String> {
    path.and_then(|path| String::from_utf8(path).ok())
}

/// A zone of the guest's, and a path inside it.
struct Place {
    disk: Arc<Disk>,
    zone: u16,
    mount: String,
    path: Vec<u8>,
}

impl Place {
    /// Works on the zone.
    fn zone<R>(&self, work: impl FnOnce(&mut Zone) -> Result<R, ZoneError>) -> Result<R, types::Error> {
        match self.disk.zone(self.zone, work) {
            Some(result) => result.map_err(error),
            None => Err(types::Error::NoEntry("the zone is gone".into())),
        }
    }

    /// A path as the guest knows it.
    fn whole(&self, path: Option<Vec<u8>>) -> Option<String> {
        text(path).map(|path| format!("{}/{path}", self.mount))
    }
}

impl GuestState {
    /// Finds the zone in which an absolute path lies: the one with the longest mount.
    fn place(&mut self, path: &str) -> Result<Place, types::Error> {
        self.touched.zones = true;
        let none = || types::Error::NoEntry(format!("no zone is mounted at {path}"));
        let disk = self.disk.clone().ok_or_else(none)?;
        let inside = |mount: &String| {
            path.strip_prefix(mount.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found =
            self.mounts.iter().enumerate().filter_map(|(zone, mount)| Some((zone, mount, inside(mount)?)));
        let (zone, mount, rest) = found.max_by_key(|(_, mount, _)| mount.len()).ok_or_else(none)?;
        let path = rest.trim_matches('/').as_bytes().to_vec();
        self.vouch(zone as u16)
            .map_err(|_| types::Error::Io("the guest's memory could not be read".into()))?;
        Ok(Place { disk, zone: zone as u16, mount: mount.clone(), path })
    }
}
