//! What is checked of an agent that comes in an export: turns, handles, clocks.

use zone_vfs::id::{GenerationNumber, Inode, Turn};
use zone_vfs::store::{ArrivedGeneration, Opened, StoreError};
use zone_vfs::tree::FileKind;
use zone_vfs::zone::ErrorCode;

use crate::agent::{MAX_EVENT_ID, MAX_PAYLOAD};
use crate::journal::{self, EventRecord, GenerationAbout, OutcomeRecord, World, facts};
use crate::wasi::HandleTable;
use crate::wasi::object::Object;

/// Starts that are believed to have been: one can go on counting from there.
const MAX_STARTS: u64 = 1 << 32;
/// What people call a component. Bytes.
const MAX_COMPONENT_NAME: usize = 1024;
/// Where a directory stream goes on: a name. Bytes.
const MAX_AFTER: usize = 255;
/// The words of an error that a stream reported. Bytes.
const MAX_MESSAGE: usize = 64 << 10;
/// What a monotonic clock can have shown is less: it can go on from there. Nanoseconds.
const MAX_CLOCK: u64 = 1 << 63;

pub(super) fn refused(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Export(format!("is refused: {reason}"))
}

pub(super) fn told(error: &(dyn std::error::Error + 'static)) -> StoreError {
    refused(zone_vfs::told(error))
}

pub(super) fn is_name(name: &str) -> Result<(), StoreError> {
    if name.len() <= MAX_COMPONENT_NAME {
        Ok(())
    } else {
        Err(refused("what its component is called is too long"))
    }
}

/// Checks a turn of an agent of this world. Whatever looks back on turns reads them.
pub(super) fn turn(
    number: Turn,
    event: &[u8],
    outcome: Option<&[u8]>,
    world: World,
) -> Result<(), StoreError> {
    let wrong = |reason: &str| refused(format!("turn {number}: {reason}"));
    let unread = |e: &dyn std::fmt::Display| wrong(&e.to_string());
    if event.is_empty() {
        let forgotten = outcome.is_none_or(<[u8]>::is_empty);
        return if forgotten { Ok(()) } else { Err(wrong("it has an outcome, and no event")) };
    }
    let event: EventRecord = journal::decode(event).map_err(|e| unread(&e))?;
    match &event {
        EventRecord::Event { id, .. } if id.len() > MAX_EVENT_ID => {
            return Err(wrong("the id of its event is longer than one can be"));
        }
        EventRecord::Event { payload, .. } if payload.len() > MAX_PAYLOAD => {
            return Err(wrong("its event is larger than one can be"));
        }
        EventRecord::Event { .. } | EventRecord::Run(_) => {}
        EventRecord::Upgrade { component_name, .. } => is_name(component_name)?,
    }
    let outcome = outcome.map(journal::decode::<OutcomeRecord>).transpose().map_err(|e| unread(&e))?;
    let can_be = match (world, &event, &outcome) {
        (World::Command, EventRecord::Run(_), None | Some(OutcomeRecord::Exit(_)))
        // what an agent of this world ran was its own genesis
        | (World::Agent, EventRecord::Run(_), None | Some(OutcomeRecord::Reply(_)))
        | (World::Agent, EventRecord::Event { .. }, None | Some(OutcomeRecord::Reply(_) | OutcomeRecord::Refused(_)))
        | (World::Agent, EventRecord::Upgrade { .. }, None | Some(OutcomeRecord::Upgraded)) => true,
        _ => false,
    };
    if can_be { Ok(()) } else { Err(wrong("its outcome is none that such an event can have")) }
}

/// Checks a piece of a turn's facts.
pub(super) fn fact(number: Turn, piece: &[u8]) -> Result<(), StoreError> {
    let wrong = |reason: &dyn std::fmt::Display| refused(format!("turn {number}: {reason}"));
    if piece.len() > facts::MAX_FACTS + 1 {
        return Err(wrong(&"its facts are more than a turn can have"));
    }
    facts::entries(piece).and_then(|mut all| all.try_for_each(|entry| entry.map(drop))).map_err(|e| wrong(&e))
}

/// Checks counts and clock of a generation.
pub(super) fn generation(about: &GenerationAbout, number: GenerationNumber) -> Result<(), StoreError> {
    if about.starts >= MAX_STARTS {
        return Err(refused(format!("generation {number} was started more often than can be")));
    }
    if about.monotonic >= MAX_CLOCK {
        return Err(refused(format!("the clock of generation {number} shows what none can")));
    }
    is_name(about.component_name.as_deref().unwrap_or_default())
}

/// Checks what handles stand for. Offsets are believed: a guest may ask for any. What was open and is not there any more is closed, as it is when an agent is resumed;
/// so is what was open in shared zones, which are others here.
pub(super) fn handles(mut table: HandleTable, it: &ArrivedGeneration<'_>) -> Result<HandleTable, StoreError> {
    let wrong = |reason: &str| refused(format!("a handle of generation {}: {reason}", it.number));
    table.check().map_err(|reason| wrong(&reason))?;
    let mut gone = Vec::new();
    for (_, object) in table.iter() {
        match object {
            Object::Foreign(..) => return Err(wrong("it stands for what no other process has")),
            Object::DirectoryStream { after: Some(after), .. } if after.len() > MAX_AFTER => {
                return Err(wrong("it goes on behind a name that none can have"));
            }
            Object::Error { message, code } => {
                let is_code = code.is_none_or(|code| usize::from(code) < ErrorCode::ALL.len());
                if message.len() > MAX_MESSAGE || !is_code {
                    return Err(wrong("it stands for an error that there is not"));
                }
            }
            _ => {}
        }
        let Some((zone, inode)) = object.keeps_open() else { continue };
        let is_directory = match object {
            Object::Descriptor(descriptor) => descriptor.directory,
            Object::DirectoryStream { .. } => true,
            _ => false,
        };
        match it.opened(zone, inode)? {
            Opened::Is(FileKind::Directory) if is_directory => {}
            Opened::Is(FileKind::Regular) if !is_directory => {}
            Opened::Shared if inode == Inode::ROOT && is_directory => {}
            Opened::Is(_) => return Err(wrong("it stands for a file that is of another kind")),
            Opened::NoZone => return Err(wrong("it stands for a file of a zone that there is not")),
            Opened::Never => return Err(wrong("it stands for a file that there never was")),
            Opened::Missing | Opened::Shared => gone.push((zone, inode)),
        }
    }
    table.close_files(|file| gone.contains(&file));
    Ok(table)
}
