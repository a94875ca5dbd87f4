//! A backup's parts as bytes; `docs/format-backup.md` is normative.

use std::io::{Read, Write};

use uuid::Uuid;

use super::error::{bad, no_backup, reading, truncated, writing};
use crate::id::{Hash, Timestamp};
use crate::store::StoreError;

pub(super) const MAGIC: &[u8; 8] = b"dormbkup";
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: usize = 144;
pub(super) const FRAME: u8 = 1;
pub(super) const FILE: u8 = 2;
pub(super) const END: u8 = 3;
/// Bytes behind the end item: where it begins, and the magic.
pub(super) const TRAILER: usize = 16;
/// The longest name of a file in a backup. Bytes.
pub const MAX_FILE_NAME: usize = 1024;
/// Frames and files of one backup that are believed when one is read.
const MAX_ITEMS: u64 = 1 << 32;
/// Bytes behind a backup's end that are counted.
const MAX_COUNTED: u64 = 1 << 20;

pub(super) struct Header {
    pub id: Uuid,
    pub since: Uuid,
    /// The id of the store that it is of.
    pub store: Uuid,
    pub key: [u8; 64],
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.id.as_bytes());
        bytes[32..48].copy_from_slice(self.since.as_bytes());
        bytes[48..64].copy_from_slice(self.store.as_bytes());
        bytes[64..128].copy_from_slice(&self.key);
        bytes[128..136].copy_from_slice(&Timestamp::now().0.to_le_bytes());
        let sum = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn read(from: &mut Through<'_, dyn Read + '_>) -> Result<Self, StoreError> {
        let mut bytes = [0; HEADER];
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        // what does not even begin like one
        match from.fill(magic) {
            Err(_) if from.is_cut => return Err(no_backup()),
            read => read?,
        }
        if magic != MAGIC {
            return Err(no_backup());
        }
        from.fill(rest)?;
        Self::decode(bytes)
    }

    fn decode(mut bytes: [u8; HEADER]) -> Result<Self, StoreError> {
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if version > VERSION {
            return Err(bad(format!("has format {version}; this program reads up to {VERSION}")));
        }
        let stated = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        bytes[12..16].fill(0);
        if crc32fast::hash(&bytes) != stated {
            return Err(bad("is damaged: its header does not match its checksum"));
        }
        let uuid = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[at..at + 16]);
            Uuid::from_bytes(id)
        };
        let mut key = [0; 64];
        key.copy_from_slice(&bytes[64..128]);
        Ok(Self { id: uuid(16), since: uuid(32), store: uuid(48), key })
    }
}

/// Counts and hashes what goes through.
pub(super) struct Through<'a, T: ?Sized> {
    pub stream: &'a mut T,
    pub hasher: blake3::Hasher,
    pub bytes: u64,
    /// It ended before what was asked for.
    pub is_cut: bool,
}

impl<'a, T: ?Sized> Through<'a, T> {
    pub fn new(stream: &'a mut T) -> Self {
        Self { stream, hasher: blake3::Hasher::new(), bytes: 0, is_cut: false }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl Through<'_, dyn Write + '_> {
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.note(bytes);
        self.stream.write_all(bytes).map_err(writing)
    }
}

impl Through<'_, dyn Read + '_> {
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Refuses what follows where all has been read, as far as it is counted.
    pub fn end(&mut self) -> Result<(), StoreError> {
        let mut rest = [0; 8 << 10];
        let mut found = 0;
        while found < MAX_COUNTED {
            match self.stream.read(&mut rest) {
                Ok(0) => break,
                Ok(read) => found += read as u64,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(reading(e)),
            }
        }
        match found {
            0 => Ok(()),
            1 => Err(bad("is not as it was written: 1 byte follows the end")),
            MAX_COUNTED.. => {
                Err(bad(format!("is not as it was written: {MAX_COUNTED} bytes or more follow the end")))
            }
            found => Err(bad(format!("is not as it was written: {found} bytes follow the end"))),
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), StoreError> {
        if let Err(e) = self.stream.read_exact(bytes) {
            self.is_cut |= e.kind() == std::io::ErrorKind::UnexpectedEof;
            return Err(if self.is_cut { truncated() } else { reading(e) });
        }
        self.note(bytes);
        Ok(())
    }
}

/// The end item.
pub(super) struct End {
    pub catalogue: Hash,
    pub addresses: Vec<Hash>,
    pub files: Vec<(String, [u8; 32])>,
}

impl End {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.addresses.len() * 32);
        bytes.push(END);
        bytes.extend_from_slice(&self.catalogue.0);
        bytes.extend_from_slice(&(self.addresses.len() as u64).to_le_bytes());
        for address in &self.addresses {
            bytes.extend_from_slice(&address.0);
        }
        bytes.extend_from_slice(&(self.files.len() as u64).to_le_bytes());
        for (name, hash) in &self.files {
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(hash);
        }
        bytes
    }

    /// Reads what follows the tag.
    pub fn read(from: &mut Through<'_, dyn Read + '_>) -> Result<Self, StoreError> {
        let catalogue = Hash(from.take()?);
        let count = u64::from_le_bytes(from.take()?);
        if count > MAX_ITEMS {
            return Err(bad("is damaged: it names more frames than any has"));
        }
        let mut addresses = Vec::new();
        for _ in 0..count {
            addresses.push(Hash(from.take()?));
        }
        let count = u64::from_le_bytes(from.take()?);
        if count > MAX_ITEMS {
            return Err(bad("is damaged: it names more files than any has"));
        }
        let mut files = Vec::new();
        for _ in 0..count {
            files.push((read_name(from)?, from.take()?));
        }
        Ok(Self { catalogue, addresses, files })
    }
}

pub(super) fn read_name(from: &mut Through<'_, dyn Read + '_>) -> Result<String, StoreError> {
    let len = usize::from(u16::from_le_bytes(from.take()?));
    if len > MAX_FILE_NAME {
        return Err(bad("is damaged: a file in it has too long a name"));
    }
    let mut name = vec![0; len];
    from.fill(&mut name)?;
    String::from_utf8(name).map_err(|_| bad("is damaged: the name of a file in it is no text"))
}
