//! What a sweep leaves alone while something does not read.
//!
//! What hangs on a frame that does not read is unknown. But it was all put before that frame was: whoever puts
//! a node puts its children first, and a record is written when what it names is durable. So at the moment at
//! which the damage is met, all that hangs on it lies in segments with smaller numbers than the next one. Those
//! are held: nothing in them is removed or moved while the damage is met again. What is put later is swept as
//! ever. Once nothing leads to the damaged frame any more, since whoever needed it was removed, nothing is held.
//!
//! The file `held` keeps from which number on segments are free, for each damaged frame. It can be missing,
//! damaged or old by removals only: then more is held than has to be, never less.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::Segments;
use crate::chunks::ChunkError;
use crate::device::{Caching, Device};
use crate::id::Hash;

const FILE: &str = "held";
const FRESH: &str = "held.new";
const MAGIC: [u8; 8] = *b"dormheld";
const VERSION: u32 = 1;
const HEADER: usize = 20;
const ENTRY: usize = 36;
/// Damaged frames that are remembered, at most. For those beyond, everything is held.
pub(crate) const MAX_HELD: usize = 1 << 16;

impl Segments {
    /// The number below which no segment may be swept, after a marking that met these frames, which do not
    /// read; 0 where there are none. With `note`, notes when each was met first.
    pub(crate) fn hold(&self, damaged: &BTreeSet<Hash>, note: bool) -> Result<u32, ChunkError> {
        let before = self.lock().watch.as_ref().map_or(u32::MAX, |it| it.before);
        let io = ChunkError::of_device;
        if is_newer(&*self.device) {
            // what it notes is not known here: everything is held, and the file stays as it is
            tracing::warn!(
                "{FILE} is of a newer version of this program: nothing is taken that damage may need"
            );
            return Ok(if damaged.is_empty() { 0 } else { before });
        }
        let known = read(&*self.device, &self.key);
        let since: BTreeMap<Hash, u32> = damaged
            .iter()
            .take(MAX_HELD)
            .map(|hash| {
                // of a place without an address, which zeros stand for, it is never known to be the same
                let at = known.as_ref().and_then(|it| it.get(hash)).filter(|_| *hash != Hash([0; 32]));
                (*hash, at.map_or(before, |at| (*at).min(before)))
            })
            .collect();
        let limit =
            if damaged.len() > MAX_HELD { before } else { since.values().copied().max().unwrap_or(0) };
        if !note {
            return Ok(limit);
        }
        if since.is_empty() {
            self.forget_held().map_err(io)?;
        } else if known.as_ref() != Some(&since)
            && let Err(error) = write(&*self.device, &since, &self.key)
        {
            // what is noted of a frame that nothing led to must not count when something leads to it again
            tracing::warn!(%error, "what is held back is not noted: the next sweep holds more");
            self.forget_held().map_err(io)?;
        }
        Ok(limit)
    }

    /// Forgets what is held, before frames are moved out of segments that are: the next sweep holds what there
    /// is then.
    pub(super) fn forget_held(&self) -> io::Result<()> {
        if is_newer(&*self.device) {
            return Err(io::Error::other(format!(
                "{FILE} is of a newer version of this program, which has to go on here"
            )));
        }
        match self.device.remove(FILE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a newer version of this program has noted what is held.
fn is_newer(device: &dyn Device) -> bool {
    let mut header = [0; 12];
    let read = device.open(FILE, Caching::Cached).and_then(|file| file.read_at(0, &mut header));
    let (magic, version) = header.split_at(8);
    let version = version.try_into().map_or(0, u32::from_le_bytes);
    read.is_ok() && *magic == MAGIC && version > VERSION
}

/// What is noted; none where there is no such file, or it does not read.
fn read(device: &dyn Device, key: &[u8; 32]) -> Option<BTreeMap<Hash, u32>> {
    let file = device.open(FILE, Caching::Cached).ok()?;
    let len = usize::try_from(file.len().ok()?).ok()?;
    if !(HEADER + 32..=HEADER + MAX_HELD * ENTRY + 32).contains(&len) {
        return None;
    }
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes).ok()?;
    let (content, sum) = bytes.split_last_chunk::<32>()?;
    let (header, entries) = content.split_at(HEADER);
    let version = header[8..12] == VERSION.to_le_bytes();
    if header[..8] != MAGIC || !version || *sum != seal(content, key) || entries.len() % ENTRY != 0 {
        return None;
    }
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let entries = entries.iter().map(|entry| {
        let (mut hash, mut since) = ([0; 32], [0; 4]);
        hash.copy_from_slice(&entry[..32]);
        since.copy_from_slice(&entry[32..]);
        (Hash(hash), u32::from_le_bytes(since))
    });
    Some(entries.collect())
}

fn write(device: &dyn Device, since: &BTreeMap<Hash, u32>, key: &[u8; 32]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + since.len() * ENTRY + 32);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(since.len() as u64).to_le_bytes());
    for (hash, number) in since {
        bytes.extend_from_slice(&hash.0);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&seal(&bytes, key));
    match device.remove(FRESH) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = device.create(FRESH, 0, Caching::Cached)?;
    file.write_at(0, &bytes)?;
    file.flush()?;
    device.rename(FRESH, FILE)
}

/// The keyed hash at the file's end: of this store, and whole.
fn seal(bytes: &[u8], key: &[u8; 32]) -> [u8; 32] {
    *blake3::keyed_hash(&blake3::derive_key("dormouse 2026 held segments", key), bytes).as_bytes()
}
