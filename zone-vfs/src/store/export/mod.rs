//! Exports: one agent as a stream, and an agent of such a stream in any store.
//!
//! An export holds an agent as it was committed last: zones with their history, turns, generations, and what is attached
//! to these. Content is addressed under a key of the store's own, so a store that takes an agent in addresses all of it
//! anew: whatever is named in the stream comes before what names it. `docs/format-export.md` is normative.
//!
//! Whoever takes an agent in believes nothing: each address has to have come, each zone is checked against what its
//! contract lets be, and the agent is there only when all of it is durable.
//!
//! - `format`: header, items and records, as bytes, and their limits
//! - `write`: what goes into one; `read`: an agent of one
//! - `arrived`: where what has come lies here

mod arrived;
mod codec;
mod format;
mod read;
mod write;

use std::io::{self, Read};

use uuid::Uuid;

use super::StoreError;
use super::entry::{Cause, ZoneSpec};
use super::state::Generation;
use super::stream::StreamFile;
use crate::contract::ZoneKind;
use crate::id::{AgentId, GenerationNumber, Inode, Timestamp, Turn};
use crate::tree::FileKind;
use crate::zone::Quota;

use self::arrived::Roots;
pub use self::format::ExportAbout;

/// What is wrong with an export, in words that go on after its name.
fn bad(reason: impl Into<String>) -> StoreError {
    StoreError::Export(reason.into())
}

/// Is called with the generations that are exported; gives what is said about the agent, and files.
pub type Begin<'a> = &'a mut dyn FnMut(&[Generation]) -> Result<(Vec<u8>, Vec<StreamFile>), StoreError>;

/// Is called with the embedder's part of each generation; gives what is said of it.
pub type OfGeneration<'a> = &'a mut dyn FnMut(GenerationNumber, &[u8]) -> Result<Vec<u8>, StoreError>;

/// What an embedder adds to an export.
pub struct Exporting<'a> {
    /// Is called once it is settled what is exported: the generations. From then on the agent goes on beside. Gives what
    /// is said about the agent in the export, and the files that go with it, which have to stay until it is done.
    pub begin: Begin<'a>,
    /// The embedder's part of a generation, as it is in the export.
    pub generation: OfGeneration<'a>,
    /// Whether the export says that the agent was moved with it: the embedder sees to that.
    pub is_move: bool,
}

impl std::fmt::Debug for Exporting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporting").finish_non_exhaustive()
    }
}

/// What an export has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Its id.
    pub id: Uuid,
    /// When it was made, as it says.
    pub made: Timestamp,
    /// Bytes.
    pub bytes: u64,
    /// Frames of content.
    pub frames: u64,
    /// Generations.
    pub generations: u64,
    /// Turns.
    pub turns: u64,
    /// blake3 of all but the last bytes, which say the same.
    pub digest: [u8; 32],
}

/// A zone of an agent that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedZone {
    /// What the operator calls it.
    pub name: String,
    /// Where the agent finds it.
    pub mount: String,
    /// Its contract.
    pub kind: ZoneKind,
    /// Its bounds.
    pub quota: Quota,
    /// The name of the shared zone that was mounted here, and whether the agent could write.
    pub shared: Option<(String, bool)>,
}

/// An agent that has come, as the export says.
#[derive(Clone, Debug)]
pub struct ArrivedAgent {
    /// The name that it had.
    pub name: String,
    /// What the embedder said about it.
    pub about: Vec<u8>,
    /// Its zones.
    pub zones: Vec<ExportedZone>,
}

/// What an agent that has come is here.
#[derive(Clone, Debug)]
pub struct NewArrival {
    /// Its id, never used before.
    pub id: AgentId,
    /// Its name, not yet taken.
    pub name: String,
    /// The embedder's data about it.
    pub about: Vec<u8>,
    /// Its zones: those of the export, in their order, with what is mounted here in the place of shared ones.
    pub zones: Vec<ZoneSpec>,
}

/// A generation that has come.
pub struct ArrivedGeneration<'a> {
    /// Its number.
    pub number: GenerationNumber,
    /// Why it was made.
    pub cause: &'a Cause,
    /// The embedder's part.
    pub about: &'a [u8],
    /// The agent stands at it.
    pub is_head: bool,
    /// What the embedder said about what is attached to it, and how many bytes that is.
    pub attached: Option<(&'a [u8], u64)>,
    zones: &'a Roots,
}

impl std::fmt::Debug for ArrivedGeneration<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrivedGeneration").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What a number is in a zone of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A file or directory.
    Is(FileKind),
    /// The zone is shared: nobody knows before it is opened.
    Shared,
    /// Nothing any more.
    Missing,
    /// Nothing, and there never was: the zone has not given the number.
    Never,
    /// There is no such zone.
    NoZone,
}

impl ArrivedGeneration<'_> {
    /// What has this number in the zone of this index.
    pub fn opened(&self, zone: u16, inode: Inode) -> Result<Opened, StoreError> {
        self.zones.opened(zone, inode)
    }
}

/// Says what is to become of an agent that comes, and may refuse it.
pub trait Arrival {
    /// A file of the embedder's, with its name and length: reads all of it.
    fn file(&mut self, name: &str, len: u64, content: &mut dyn Read) -> io::Result<()>;

    /// The agent, after the files.
    fn agent(&mut self, agent: &ArrivedAgent) -> Result<NewArrival, StoreError>;

    /// A turn that is over, with its event, and its outcome unless it failed; both are empty where they were forgotten.
    fn turn(&mut self, turn: Turn, event: &[u8], outcome: Option<&[u8]>) -> Result<(), StoreError>;

    /// A fact of that turn, in their order: after it, and before the next.
    fn fact(&mut self, turn: Turn, fact: &[u8]) -> Result<(), StoreError>;

    /// The embedder's part of a generation as it is here, with one that came.
    fn generation(&mut self, generation: &ArrivedGeneration<'_>) -> Result<Vec<u8>, StoreError>;
}
