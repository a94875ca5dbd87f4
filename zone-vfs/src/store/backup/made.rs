//! Which backups a store has made: whatever is to go on since one has to be in the store's own past.
//!
//! A copy of a store's folder has the same id and key, and goes on by itself. What it makes since a backup that
//! the other has made after they parted could be restored, and be of neither. So each store notes the ids of its
//! backups, in a file that a copy has as it was.

use std::io;

use uuid::Uuid;

use crate::device::{Caching, Device};

/// The file.
const FILE: &str = "backups";
const FRESH: &str = "backups.new";
const MAGIC: [u8; 8] = *b"dormbkid";
const VERSION: u32 = 1;
/// Bytes of magic, version and how many there are.
const HEADER: usize = 16;
const ID: usize = 16;
/// Backups that are known again: the newest.
pub(super) const MAX_KNOWN: usize = 4096;
/// Bytes of the hash that ends the file.
const SUM: usize = 32;

/// The ids of the store's backups, the oldest first. None where nothing is noted: by a version that noted nothing,
/// or the file is gone or damaged.
pub(super) fn read(device: &dyn Device) -> io::Result<Option<Vec<Uuid>>> {
    let file = match device.open(FILE, Caching::Cached) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut start = [0; 12];
    if file.read_at(0, &mut start).is_ok() && start[..8] == MAGIC {
        let found = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if found > VERSION {
            let newer = format!("{FILE} has format {found}; this program reads up to {VERSION}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, newer));
        }
    }
    let Some(len) = usize::try_from(file.len()?).ok().filter(|len| is_a_length(*len)) else {
        return Ok(None);
    };
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes)?;
    let (content, sum) = bytes.split_at(len - SUM);
    let (header, ids) = content.split_at(HEADER);
    let is_sound = header[..8] == MAGIC
        && header[8..12] == VERSION.to_le_bytes()
        && header[12..] == ((ids.len() / ID) as u32).to_le_bytes()
        && *sum == *blake3::hash(content).as_bytes();
    if !is_sound {
        tracing::warn!("the list of the store's backups is damaged, and begins anew");
        return Ok(None);
    }
    let (ids, _) = ids.as_chunks::<ID>();
    Ok(Some(ids.iter().map(|id| Uuid::from_bytes(*id)).collect()))
}

fn is_a_length(len: usize) -> bool {
    let rest = len.checked_sub(HEADER + SUM);
    rest.is_some_and(|rest| rest.is_multiple_of(ID) && rest / ID <= MAX_KNOWN)
}

/// Notes one more, durably, and forgets the oldest that are too many.
pub(super) fn note(device: &dyn Device, known: &[Uuid], id: Uuid) -> io::Result<()> {
    let kept = &known[known.len().saturating_sub(MAX_KNOWN - 1)..];
    let mut bytes = Vec::with_capacity(HEADER + (kept.len() + 1) * ID + SUM);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(kept.len() as u32 + 1).to_le_bytes());
    for id in kept.iter().chain([&id]) {
        bytes.extend_from_slice(id.as_bytes());
    }
    let sum = *blake3::hash(&bytes).as_bytes();
    bytes.extend_from_slice(&sum);
    match device.remove(FRESH) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = device.create(FRESH, 0, Caching::Cached)?;
    file.write_at(0, &bytes)?;
    file.flush()?;
    device.rename(FRESH, FILE)
}
