//! An export's parts as bytes; `docs/format-export.md` is normative.

use std::fmt;
use std::io::Read;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::bad;
use crate::contract::ZoneKind;
use crate::id::{GenerationNumber, Timestamp, Turn};
use crate::store::entry::Cause;
use crate::store::stream::{Through, seal};
use crate::store::{StoreError, blob};
use crate::zone::{MAX_TIME, Quota, StoredRoot};

pub(super) const MAGIC: &[u8; 8] = b"dormxprt";
const VERSION: u32 = 2;
/// Bytes of the header.
const HEADER: usize = 64;
/// Where the header says what became of the agent where it was exported.
const MARK: usize = 40;

pub(super) const FILE: u8 = 1;
pub(super) const AGENT: u8 = 2;
pub(super) const PLAIN: u8 = 3;
pub(super) const NODE: u8 = 4;
pub(super) const CONTENT: u8 = 5;
pub(super) const LEAF: u8 = 6;
pub(super) const ATTACHMENT: u8 = 7;
/// Turns without their facts, as version 1 has them.
pub(super) const TURNS_1: u8 = 8;
pub(super) const GENERATION: u8 = 9;
pub(super) const STANDS: u8 = 10;
pub(super) const TURNS: u8 = 11;
/// Behind a generation that stands on another: both numbers.
pub(super) const STANDS_ON: u8 = 12;

/// Frames of one export.
pub(super) const MAX_FRAMES: u64 = 1 << 26;
/// Generations of one export.
pub(super) const MAX_GENERATIONS: u64 = 1 << 20;
/// Attachments of one export.
pub(super) const MAX_ATTACHMENTS: u64 = MAX_GENERATIONS;
/// Bytes of one record.
pub(super) const MAX_RECORD: usize = blob::MAX_PAYLOAD + (1 << 20);
/// Turns in one record.
pub(super) const TURNS_IN_ONE: usize = 64;
/// Pieces of the content of one version.
pub(super) const MAX_PIECES: u32 = 1 << 26;
/// Bytes that are read at once, before there is room for more.
const STEP: usize = 1 << 20;

/// A time that can be; `of` says what has it.
pub(super) fn is_time(time: Timestamp, of: impl fmt::Display) -> Result<Timestamp, StoreError> {
    if time.0 < MAX_TIME {
        return Ok(time);
    }
    Err(bad(format!("is refused: {of} has a time that none can be, {} ns since 1970", time.0)))
}

pub(super) struct Header {
    pub id: Uuid,
    pub made: Timestamp,
    pub is_move: bool,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[16..32].copy_from_slice(self.id.as_bytes());
        bytes[32..40].copy_from_slice(&self.made.0.to_le_bytes());
        bytes[MARK] = self.is_move.into();
        seal(&mut bytes, *MAGIC, VERSION);
        bytes
    }

    pub fn read(from: &mut Through<'_, dyn Read + '_>) -> Result<Self, StoreError> {
        let none = || bad("is no export: `dormouse export` makes one");
        let bytes: [u8; HEADER] = from.header(*MAGIC, VERSION, none)?;
        let is_move = bytes[MARK] == 1;
        if bytes[MARK] > 1 || bytes[MARK + 1..].iter().any(|byte| *byte != 0) {
            return Err(bad("is refused: its header says what this program does not know"));
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        let mut made = [0; 8];
        made.copy_from_slice(&bytes[32..40]);
        let made = is_time(Timestamp(u64::from_le_bytes(made)), "its header")?;
        Ok(Self { id: Uuid::from_bytes(id), made, is_move })
    }
}

/// What an export says of itself at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportAbout {
    /// Its id.
    pub id: Uuid,
    /// When it was made.
    pub made: Timestamp,
    /// The agent was to go on nowhere but from this export. Nobody can hold it to that: whoever imports it makes a copy.
    pub is_move: bool,
}

impl ExportAbout {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Export`] where it is none.
    pub fn read(from: &mut dyn Read) -> Result<Self, StoreError> {
        let header = Header::read(&mut Through::new(from, StoreError::Export))?;
        Ok(Self { id: header.id, made: header.made, is_move: header.is_move })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Zone {
    pub name: String,
    pub mount: String,
    pub kind: ZoneKind,
    pub quota: Quota,
    /// The shared zone's name, and whether the mount was writable.
    pub shared: Option<(String, bool)>,
}

/// The item that says which agent it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Agent {
    pub name: String,
    pub about: Vec<u8>,
    pub created: Timestamp,
    pub zones: Vec<Zone>,
    pub head: GenerationNumber,
    pub last_turn: Turn,
    pub next_generation: GenerationNumber,
}

/// The item of a generation, after all that it names.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Generation {
    pub number: GenerationNumber,
    pub cause: Cause,
    pub about: Vec<u8>,
    pub turn: Turn,
    pub at: Timestamp,
    /// None for a shared zone.
    pub roots: Vec<Option<StoredRoot>>,
    /// The attachment of this number, from 0.
    pub attachment: Option<u64>,
    pub pinned: bool,
}

/// The last item: how the agent stands.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stands {
    pub roots: Vec<Option<StoredRoot>>,
    pub generations: u64,
    pub turns: u64,
}

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_stdvec(record).map_err(|e| StoreError::Encoding(e.to_string()))
}

/// Reads a record: its length, and the postcard of it. No more room is taken than bytes have come, but for a step.
pub(super) fn read_bytes(
    from: &mut Through<'_, dyn Read + '_>,
    len: usize,
    limit: usize,
) -> Result<Vec<u8>, StoreError> {
    if len > limit {
        return Err(bad(format!("is refused: a part of it has {len} bytes, where {limit} are allowed")));
    }
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let at = bytes.len();
        bytes.resize(len.min(at + STEP), 0);
        from.fill(&mut bytes[at..])?;
    }
    Ok(bytes)
}

pub(super) fn read_record<T: for<'de> Deserialize<'de>>(
    from: &mut Through<'_, dyn Read + '_>,
) -> Result<T, StoreError> {
    let len = u32::from_le_bytes(from.take()?) as usize;
    let bytes = read_bytes(from, len, MAX_RECORD)?;
    match postcard::take_from_bytes(&bytes) {
        Ok((record, [])) => Ok(record),
        Ok(_) => Err(bad("is damaged: a record in it has bytes after its end")),
        Err(e) => Err(bad(format!("is damaged: a record in it does not read: {e}"))),
    }
}
