//! Facts: what a turn asked and was told.
//!
//! A turn's facts are a list of [`Entry`], in the order of its calls. They come in pieces, one for each commit point: a
//! version byte, and the postcard of entries one behind the other. `docs/format-journal.md` is normative.

use serde::{Deserialize, Serialize};
use zone_vfs::id::{GenerationNumber, Timestamp};

use super::JournalError;
use crate::wasi::{Asked, Call, CallDigest, Start};

/// Raised whenever the layout of facts changes, or what goes into the digest of a call.
pub const FACTS_VERSION: u8 = 1;

/// Bytes of one turn's facts, at most.
pub const MAX_FACTS: usize = 16 << 20;

/// Calls of a turn that are noted one by one, at most; those behind are noted together.
pub const LISTED_CALLS: u64 = 16_384;

/// Calls behind those, of which one digest is kept.
const TOGETHER: u32 = 4096;

/// How an agent stands when a turn begins: what its calls come to depends on that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The generation that memory and handles are as in.
    pub base: GenerationNumber,
    /// The zones are as in that generation, too: nobody but the agent has written to them since.
    pub zones_as_in_base: bool,
    /// The agent has connections, or what belongs to one, from an earlier turn: a generation keeps none.
    pub has_connections: bool,
    /// The turn tells the component that its memory has come to life.
    pub tells_start: bool,
    /// Why its memory was brought to life.
    pub start: Start,
    /// What `lifecycle.generation` tells.
    pub lifecycle: u64,
    /// The agent's name.
    pub name: String,
    /// All random numbers of the turn follow from it.
    pub seed: [u8; 32],
    /// What the wall clock shows. Files are stamped with it, until the guest looks at the clock.
    pub at: Timestamp,
    /// The most linear memory. Bytes.
    pub max_memory: u64,
    /// The most elements of a table.
    pub max_table: u64,
}

/// One of a turn's facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The first: how the agent stood.
    Began(Box<Began>),
    /// A call that the agent's own zones have answered: its number, and a digest of arguments and result.
    Called(u8, [u8; 4]),
    /// A call that depends on others: its number, a digest of its arguments, and the result.
    Told(u8, [u8; 4], Vec<u8>),
    /// So many calls that its own zones have answered, and a digest of all of them.
    Together(u32, [u8; 8]),
}

impl Entry {
    /// For people.
    pub fn describe(&self) -> String {
        let named =
            |call: u8| Call::numbered(call).map_or_else(|| format!("call {call}"), |it| it.name().into());
        match self {
            Self::Began(..) => "the turn's beginning".into(),
            Self::Called(call, digest) => format!("`{}` ({})", named(*call), hex(digest)),
            Self::Told(call, digest, result) => {
                format!("`{}` ({}), which gave {} bytes", named(*call), hex(digest), result.len())
            }
            Self::Together(count, digest) => format!("{count} calls ({})", hex(digest)),
        }
    }
}

/// The name of the call of this number.
pub(crate) fn named(call: u8) -> String {
    Call::numbered(call).map_or_else(|| format!("call {call}"), |it| it.name().into())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes all
        text
    })
}

/// What a turn's facts begin with.
pub fn encode_began(began: &Began) -> Result<Vec<u8>, JournalError> {
    postcard::to_stdvec(began).map_err(|e| JournalError::Damaged(e.to_string()))
}

/// The entries of a piece, one after the other; an error is the last.
///
/// # Errors
///
/// [`JournalError`] where it is none, or one of a newer version.
pub fn entries(piece: &[u8]) -> Result<impl Iterator<Item = Result<Entry, JournalError>> + '_, JournalError> {
    let mut rest = match piece.split_first() {
        Some((&FACTS_VERSION, rest)) => rest,
        Some((&found, _)) if found > FACTS_VERSION => return Err(JournalError::Newer { found }),
        _ => return Err(JournalError::Damaged("facts without a version".into())),
    };
    Ok(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let taken = postcard::take_from_bytes(std::mem::take(&mut rest));
        Some(match taken {
            Ok((entry, behind)) => {
                rest = behind;
                Ok(entry)
            }
            Err(e) => Err(JournalError::Damaged(format!("facts: {e}"))),
        })
    }))
}

/// All entries of a piece.
///
/// # Errors
///
/// As [`entries`].
pub fn read(piece: &[u8]) -> Result<Vec<Entry>, JournalError> {
    entries(piece)?.collect()
}

/// Turns calls into entries: the same for a turn that is recorded and for one that is taken again.
#[derive(Debug, Default)]
pub(super) struct Listing {
    calls: u64,
    together: Option<(u32, CallDigest)>,
}

impl Listing {
    /// The call was answered from the agent's own zones. Gives the entry that is complete by that, if one is.
    pub fn call(&mut self, asked: Asked, digest: CallDigest) -> Option<Entry> {
        use std::hash::Hasher;
        self.calls += 1;
        let digest = digest.finish32();
        if self.calls <= LISTED_CALLS {
            return Some(Entry::Called(asked.call as u8, digest.to_le_bytes()));
        }
        let (count, all) = self.together.get_or_insert_default();
        *count += 1;
        all.write_u32(digest);
        if *count >= TOGETHER { self.flush() } else { None }
    }

    /// The entry of the calls that are noted together, which others come behind.
    pub fn flush(&mut self) -> Option<Entry> {
        use std::hash::Hasher;
        self.together.take().map(|(count, digest)| Entry::Together(count, digest.finish().to_le_bytes()))
    }

    /// Notes that a call was told its result.
    pub fn told(&mut self) {
        self.calls += 1;
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}
