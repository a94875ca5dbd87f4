//! A backup's parts as bytes; `docs/format-backup.md` is normative.

use std::io::Read;

use uuid::Uuid;

use super::error::{bad, no_backup};
use crate::id::{Hash, Timestamp};
use crate::store::StoreError;
use crate::store::stream::{Through, seal};

pub(super) const MAGIC: &[u8; 8] = b"dormbkup";
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: usize = 144;
pub(super) const FRAME: u8 = 1;
pub(super) const FILE: u8 = 2;
pub(super) const END: u8 = 3;
/// Bytes behind the end item: where it begins, and the magic.
pub(super) const TRAILER: usize = 16;
/// Frames and files of one backup that are believed when one is read.
const MAX_ITEMS: u64 = 1 << 32;

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
        bytes[16..32].copy_from_slice(self.id.as_bytes());
        bytes[32..48].copy_from_slice(self.since.as_bytes());
        bytes[48..64].copy_from_slice(self.store.as_bytes());
        bytes[64..128].copy_from_slice(&self.key);
        bytes[128..136].copy_from_slice(&Timestamp::now().0.to_le_bytes());
        seal(&mut bytes, *MAGIC, VERSION);
        bytes
    }

    pub fn read(from: &mut Through<'_, dyn Read + '_>) -> Result<Self, StoreError> {
        let bytes: [u8; HEADER] = from.header(*MAGIC, VERSION, no_backup)?;
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
            files.push((from.name()?, from.take()?));
        }
        Ok(Self { catalogue, addresses, files })
    }
}
