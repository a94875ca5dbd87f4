//! Files, groups and records of the log as bytes. `docs/format.md` has the pictures.
//!
//! All numbers are little-endian. Every checksum begins with the log's salt, which no guest
//! knows: so a guest cannot write bytes that pass for a group when a tail is scanned.

use super::{CommitError, Record};
use crate::device::{AlignedBuf, BLOCK};
use crate::id::{AgentId, Epoch, Hash, Sequence};
use uuid::Uuid;

/// The version of the log's format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The longest record as stored, in bytes. Larger payloads go to segments.
pub const MAX_RECORD: usize = 8 << 20;
/// The most chunks that one record may need.
pub const MAX_NEEDS: usize = 1 << 16;
/// The longest payload of a group that is believed when read, in bytes: a full group and one
/// record of the greatest length.
pub(super) const MAX_GROUP: usize = MAX_TARGET + MAX_RECORD;
/// The greatest group target, in bytes.
pub(super) const MAX_TARGET: usize = 8 << 20;
/// The longest log file that is believed when read, in bytes.
pub(super) const MAX_FILE: u64 = 1 << 32;

pub(super) const SALT: usize = 16;
pub(super) type Salt = [u8; SALT];

const FILE_MAGIC: [u8; 8] = *b"dormlogF";
const GROUP_MAGIC: [u8; 8] = *b"dormlogG";
/// Where magic, version and checksum lie, in file and group headers of every format version.
const VERSION_AT: usize = 8;
const CHECKSUM_AT: usize = 12;
/// Where a group has the checksum of its header alone, by which a search goes.
const HEADER_SUM_AT: usize = 40;

/// Bytes of a group before its records.
pub(super) const GROUP_HEADER: usize = 44;
/// Bytes of a record before its needs and body.
pub(super) const RECORD_HEADER: usize = 48;

/// The first block of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub generation: u64,
    /// The number of the first group in this file.
    pub first_group: u64,
    pub salt: Salt,
    pub len: u64,
}

/// What the first block of a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundHeader {
    Valid(FileHeader),
    Newer(u32),
    /// Zeros, torn or damaged.
    Invalid,
}

impl FileHeader {
    pub fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK);
        block[..8].copy_from_slice(&FILE_MAGIC);
        block[VERSION_AT..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..32].copy_from_slice(&self.first_group.to_le_bytes());
        block[32..48].copy_from_slice(&self.salt);
        block[48..56].copy_from_slice(&self.len.to_le_bytes());
        let sum = checksum(&[], &block);
        block[CHECKSUM_AT..16].copy_from_slice(&sum.to_le_bytes());
        block
    }

    pub fn decode(block: &[u8]) -> FoundHeader {
        if block.len() != BLOCK
            || block[..8] != FILE_MAGIC
            || u32_at(block, CHECKSUM_AT) != checksum(&[], block)
        {
            return FoundHeader::Invalid;
        }
        let version = u32_at(block, VERSION_AT);
        if version != FORMAT_VERSION {
            return FoundHeader::Newer(version);
        }
        let mut salt = [0; SALT];
        salt.copy_from_slice(&block[32..48]);
        FoundHeader::Valid(Self {
            generation: u64_at(block, 16),
            first_group: u64_at(block, 24),
            salt,
            len: u64_at(block, 48),
        })
    }
}

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupHeader {
    pub generation: u64,
    pub number: u64,
    /// Bytes of records.
    pub payload: usize,
    pub records: u32,
}

impl GroupHeader {
    /// Reads a header without a look at the checksum; `None` where these bytes are none.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < GROUP_HEADER
            || bytes[..8] != GROUP_MAGIC
            || u32_at(bytes, VERSION_AT) != FORMAT_VERSION
        {
            return None;
        }
        let header = Self {
            generation: u64_at(bytes, 16),
            number: u64_at(bytes, 24),
            payload: u32_at(bytes, 32) as usize,
            records: u32_at(bytes, 36),
        };
        (header.payload <= MAX_GROUP).then_some(header)
    }

    /// Bytes of the group on disk.
    pub fn stored_len(&self) -> usize {
        (GROUP_HEADER + self.payload).next_multiple_of(BLOCK)
    }
}

/// Starts a group in `buf`; records are appended, then [`seal_group`] closes it.
pub(super) fn begin_group(buf: &mut AlignedBuf) {
    buf.clear();
    buf.extend_from_slice(&[0; GROUP_HEADER]);
}

/// Fills in the header of the group in `buf` and pads it.
pub(super) fn seal_group(buf: &mut AlignedBuf, salt: &Salt, generation: u64, number: u64, records: u32) {
    let payload = (buf.len() - GROUP_HEADER) as u32;
    buf[..8].copy_from_slice(&GROUP_MAGIC);
    buf[VERSION_AT..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    buf[CHECKSUM_AT..16].fill(0);
    buf[16..24].copy_from_slice(&generation.to_le_bytes());
    buf[24..32].copy_from_slice(&number.to_le_bytes());
    buf[32..36].copy_from_slice(&payload.to_le_bytes());
    buf[36..40].copy_from_slice(&records.to_le_bytes());
    let sum = checksum(salt, &buf[..HEADER_SUM_AT]);
    buf[HEADER_SUM_AT..GROUP_HEADER].copy_from_slice(&sum.to_le_bytes());
    let sum = checksum(salt, buf);
    buf[CHECKSUM_AT..16].copy_from_slice(&sum.to_le_bytes());
    buf.pad();
}

/// Whether a group's header alone is what its checksum says. Content that imitates headers is
/// told off by this, before its imitated length costs anything.
pub(super) fn header_is_sound(header: &[u8], salt: &Salt) -> bool {
    u32_at(header, HEADER_SUM_AT) == checksum(salt, &header[..HEADER_SUM_AT])
}

/// Whether `group`, header and payload without padding, is what its checksum says.
pub(super) fn group_is_sound(group: &[u8], salt: &Salt) -> bool {
    u32_at(group, CHECKSUM_AT) == checksum(salt, group)
}

/// The checksum of `bytes`, in which the field for it counts as zero.
fn checksum(salt: &[u8], bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(salt);
    sum.update(&bytes[..CHECKSUM_AT]);
    sum.update(&[0; 4]);
    sum.update(&bytes[CHECKSUM_AT + 4..]);
    sum.finalize()
}

/// Bytes of `record` as stored, or why it may not be.
pub(super) fn record_len(record: &Record) -> Result<usize, CommitError> {
    let bytes = RECORD_HEADER
        .saturating_add(record.needs.len().saturating_mul(size_of::<Hash>()))
        .saturating_add(record.body.len());
    if bytes > MAX_RECORD || record.needs.len() > MAX_NEEDS {
        return Err(CommitError::TooLarge { bytes, limit: MAX_RECORD });
    }
    Ok(bytes)
}

/// Appends `record` to the group in `buf`.
pub(super) fn put_record(buf: &mut AlignedBuf, record: &Record) {
    let start = buf.len();
    let len = (RECORD_HEADER + record.needs.len() * size_of::<Hash>() + record.body.len()) as u32;
    buf.extend_from_slice(&len.to_le_bytes());
    buf.extend_from_slice(&[0; 4]);
    buf.extend_from_slice(record.agent.as_bytes());
    buf.extend_from_slice(&record.epoch.0.to_le_bytes());
    buf.extend_from_slice(&record.sequence.0.to_le_bytes());
    buf.extend_from_slice(&(record.needs.len() as u32).to_le_bytes());
    buf.extend_from_slice(&(record.body.len() as u32).to_le_bytes());
    for hash in &record.needs {
        buf.extend_from_slice(&hash.0);
    }
    buf.extend_from_slice(&record.body);
    let sum = crc32fast::hash(&buf[start + 8..]);
    buf[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Takes the first record off `bytes`.
pub(super) fn take_record(bytes: &mut &[u8]) -> Result<Record, &'static str> {
    if bytes.len() < RECORD_HEADER {
        return Err("a record is cut off");
    }
    let len = u32_at(bytes, 0) as usize;
    let needs = u32_at(bytes, 40) as usize;
    let body = u32_at(bytes, 44) as usize;
    if needs > MAX_NEEDS || len > MAX_RECORD || len != RECORD_HEADER + needs * size_of::<Hash>() + body {
        return Err("a record's lengths do not add up");
    }
    let Some((record, rest)) = bytes.split_at_checked(len) else { return Err("a record is cut off") };
    if u32_at(record, 4) != crc32fast::hash(&record[8..]) {
        return Err("a record's checksum is wrong");
    }
    *bytes = rest;
    let (hashes, body) = record[RECORD_HEADER..].split_at(needs * size_of::<Hash>());
    let (hashes, _) = hashes.as_chunks::<32>();
    let mut agent = [0; 16];
    agent.copy_from_slice(&record[8..24]);
    Ok(Record {
        agent: AgentId(Uuid::from_bytes(agent)),
        epoch: Epoch(u64_at(record, 24)),
        sequence: Sequence(u64_at(record, 32)),
        needs: hashes.iter().copied().map(Hash).collect(),
        body: body.to_vec(),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
