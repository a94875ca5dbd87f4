//! The operator's view of an agent's zones.
//!
//! - [`place`] is what `N[@GEN]:PATH` names, and how it is read and written.
//! - [`list`] lists zones and folders, and prints files.
//! - [`shared`] lists and removes the zones that agents share.
//! - [`history`] is about versions, [`changes`] about the change feed.
//! - [`quota`] shows and sets the bounds of a zone.
//! - [`forget`] erases files for good; [`named`] says which files a path stands for.
//! - [`put`], [`get`] and [`remove`] copy in, copy out and remove.
//!
//! Copying follows `cp -r`: what is copied onto a folder that is there goes into it, under its own
//! name; the content of a folder alone is written `FOLDER/.`.

mod changes;
mod forget;
mod get;
mod history;
mod list;
mod named;
mod place;
mod put;
mod quota;
mod remove;
mod shared;

pub use self::changes::{Follow, follow};
pub use self::forget::turns;
pub use self::place::{Place, View, of_agent, of_generation};
pub use self::put::Piped;
pub use self::quota::bound;

use super::args::{ZoneArguments, ZoneCommand};
use crate::Host;

/// Folders within folders, at most.
const MAX_DEPTH: usize = 256;

/// Does what is asked; `piped` is what [`piped`] has read.
pub async fn zone(host: &Host, a: ZoneArguments, piped: Option<Piped>) -> anyhow::Result<u8> {
    match a.command {
        ZoneCommand::Ls { json, recursive, at, place } => {
            list::list(host, &place::parse(&place, at)?, json, recursive)
        }
        ZoneCommand::Cat { at, place } => list::cat(host, &place::parse(&place, at)?),
        ZoneCommand::History { json, after, limit, place } => {
            history::history(host, &place::parse(&place, None)?, after, limit, json)
        }
        ZoneCommand::Rollback { expect, json, place, version } => {
            history::rollback(host, &place::parse(&place, None)?, version, expect, json)
        }
        ZoneCommand::Deleted { json, place } => history::deleted(host, &place::parse(&place, None)?, json),
        ZoneCommand::Changes { after, limit, follow: _, json, place } => {
            changes::once(host, &place::parse(&place, None)?, after, limit.unwrap_or(1000), json)
        }
        ZoneCommand::Diff { options, place, before, after } => {
            crate::cli::diff::of_zone(host, &place::parse(&place, None)?, (before, after), &options)
        }
        ZoneCommand::Forget {
            recursive,
            all_that_had_the_name,
            version,
            turns,
            dry_run,
            yes,
            json,
            place,
        } => {
            let options =
                forget::Options { recursive, all_that_had_the_name, version, turns, dry_run, yes, json };
            forget::forget(host, &place::parse(&place, None)?, options).await
        }
        ZoneCommand::Put { expect, json, place, local } => {
            put::put(host, &place::parse(&place, None)?, expect.unwrap_or_default(), &local, piped, json)
        }
        ZoneCommand::Get { at, json, place, local } => {
            get::get(host, &place::parse(&place, at)?, local, json)
        }
        ZoneCommand::Quota { json, place, bounds } => {
            quota::quota(host, &place::parse(&place, None)?, &bounds, json)
        }
        ZoneCommand::Shared { json } => shared::list(host, json),
        ZoneCommand::RmShared { force, json, name } => shared::remove(host, &name, force, json),
        ZoneCommand::Rm { expect, json, recursive, place } => {
            remove::remove(host, &place::parse(&place, None)?, expect, recursive, json)
        }
    }
}

/// Whether it changes something.
pub fn changes(a: &ZoneArguments) -> bool {
    match &a.command {
        ZoneCommand::Forget { dry_run, .. } => !dry_run,
        ZoneCommand::Quota { bounds, .. } => !bounds.is_empty(),
        ZoneCommand::Put { .. }
        | ZoneCommand::Rm { .. }
        | ZoneCommand::RmShared { .. }
        | ZoneCommand::Rollback { .. } => true,
        ZoneCommand::Ls { .. }
        | ZoneCommand::Cat { .. }
        | ZoneCommand::Get { .. }
        | ZoneCommand::Shared { .. }
        | ZoneCommand::History { .. }
        | ZoneCommand::Deleted { .. }
        | ZoneCommand::Changes { .. }
        | ZoneCommand::Diff { .. } => false,
    }
}

/// What is to be followed, where that is asked for: it opens the store again and again.
pub fn followed(a: &ZoneArguments) -> anyhow::Result<Option<Follow>> {
    match &a.command {
        ZoneCommand::Changes { after, limit, follow: true, json, place } => {
            let limit = limit.unwrap_or(usize::MAX);
            Ok(Some(Follow { place: place::parse(place, None)?, after: *after, limit, json: *json }))
        }
        _ => Ok(None),
    }
}

/// Reads standard input, where that is what is put. The store is not open yet: whoever writes to the
/// pipe may take long, or need the store itself.
pub fn piped(a: &ZoneArguments) -> anyhow::Result<Option<Piped>> {
    match &a.command {
        ZoneCommand::Put { local, .. } if local.as_os_str() == "-" => put::read_input().map(Some),
        _ => Ok(None),
    }
}
