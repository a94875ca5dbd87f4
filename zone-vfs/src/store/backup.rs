//! Backups: all that a checkpoint leads to, as a stream of frames; and from such streams a store.
//!
//! A backup can be one of what changed *since* another: frames that the other has are left out. It is consistent,
//! since it is of one checkpoint, and agents go on meanwhile: nothing that it needs is reaped before it
//! is done. `docs/format-backup.md` is normative for the stream.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, PoisonError};

use uuid::Uuid;

use super::reach::{Place, Reach, Visitor};
#[cfg(test)]
use super::tests::{self, Mistake};
use super::{Shared, Store, StoreError};
use super::{blob, catalogue, open};
use crate::chunks::FrameKind;
use crate::device::Device;
use crate::id::{AgentId, GenerationNumber, Hash, Timestamp};
use crate::log::LogPosition;
use crate::segment::{Marks, SegmentOptions, Segments};
use crate::superblock::SuperblockFile;

pub(super) const MAGIC: &[u8; 8] = b"dormbkup";
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: usize = 144;
const FRAME: u8 = 1;
const FILE: u8 = 2;
const END: u8 = 3;
/// Bytes behind the end item: where it begins, and the magic.
const TRAILER: usize = 16;
/// The longest name of a file in a backup. Bytes.
pub const MAX_FILE_NAME: usize = 1024;
/// Frames and files of one backup that are believed when one is read.
const MAX_ITEMS: u64 = 1 << 32;

/// A file of the embedder's that goes with a backup.
pub struct BackupFile {
    /// Its name, at most [`MAX_FILE_NAME`] bytes.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// blake3 of its content. A backup since one that has a file of this name and hash leaves it out.
    pub hash: [u8; 32],
    /// Opens it for reading.
    pub open: Box<dyn FnOnce() -> std::io::Result<Box<dyn Read>>>,
}

impl std::fmt::Debug for BackupFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupFile").field("name", &self.name).field("len", &self.len).finish_non_exhaustive()
    }
}

/// What a backup has of agents: asked by an embedder that decides which of its files go with it.
pub struct BackedUp<'a> {
    segments: &'a Segments,
    catalogue: Hash,
    is_whole: bool,
}

impl std::fmt::Debug for BackedUp<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackedUp").field("is_whole", &self.is_whole).finish_non_exhaustive()
    }
}

/// A generation that is in a backup.
#[derive(Clone, Copy, Debug)]
pub struct BackedUpGeneration<'a> {
    /// Whose.
    pub agent: AgentId,
    /// Which.
    pub number: GenerationNumber,
    /// The embedder's part.
    pub about: &'a [u8],
    /// Something is attached to it, which is in the backup.
    pub is_attached: bool,
}

impl BackedUp<'_> {
    /// Calls `each` with every generation of an agent that is in the backup. False where something could not be read, or has still to take effect, so that not all were
    /// told.
    pub fn generations(&self, each: &mut dyn FnMut(BackedUpGeneration<'_>)) -> Result<bool, StoreError> {
        let list = catalogue::read(self.segments, &self.catalogue)?;
        let mut all = self.is_whole;
        for agent in list.agents {
            all &= agent.carried.is_empty() && agent.state.is_some();
            let Some(payload) = &agent.state else { continue };
            let told = catalogue::read_stored(payload, self.segments).and_then(|state| {
                for generation in &state.generations {
                    let about = blob::get(self.segments, &generation.about)?;
                    let (number, is_attached) = (generation.number, generation.attachment.is_some());
                    each(BackedUpGeneration { agent: agent.id, number, about: &about, is_attached });
                }
                Ok(())
            });
            match told {
                Err(e) if e.is_of_one_agent() => all = false,
                told => told?,
            }
        }
        Ok(all)
    }
}

/// Is asked which files of the embedder's go with a backup.
pub type Files<'a> = &'a mut dyn FnMut(&BackedUp<'_>) -> Result<Vec<BackupFile>, StoreError>;

/// What a backup has.
#[derive(Clone, Debug, Default)]
pub struct BackupReport {
    /// Its id.
    pub id: Uuid,
    /// Frames that were written.
    pub frames: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Frames that the backup before has.
    pub earlier: u64,
    /// Files that were written.
    pub files: u64,
    /// What could not be read and is not in the backup, at most [`MAX_DAMAGE`](Self::MAX_DAMAGE) places.
    pub damage: Vec<String>,
}

impl BackupReport {
    /// Damaged places that are listed, at most.
    pub const MAX_DAMAGE: usize = 100;
}

/// What a restored store has.
#[derive(Clone, Debug, Default)]
pub struct RestoreReport {
    /// Frames that were read, and hash to their address.
    pub frames: u64,
    /// Files that the last backup names; others that were handed out on the way are not needed.
    pub files: Vec<String>,
    /// What was damaged when the backup was made.
    pub damage: Vec<String>,
}

/// Something that a backup can be read from again.
pub trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

/// What is wrong with a backup, in words that go on after its name.
fn bad(reason: impl Into<String>) -> StoreError {
    StoreError::Backup(reason.into())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn reading(error: std::io::Error) -> StoreError {
    bad(format!("cannot be read: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn writing(error: std::io::Error) -> StoreError {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return bad("is not whole, and cannot be restored: whoever read it has gone");
    }
    bad(format!("cannot be written: {error}"))
}

const NO_BACKUP: &str = "is no backup";

fn no_backup() -> StoreError {
    bad(NO_BACKUP)
}

fn nothing() -> StoreError {
    bad("is missing: there is nothing to restore")
}

fn truncated() -> StoreError {
    bad("is truncated: it ends in the middle")
}

struct Header {
    id: Uuid,
    since: Uuid,
    key: [u8; 64],
}

impl Header {
    fn encode(&self, store: Uuid) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.id.as_bytes());
        bytes[32..48].copy_from_slice(self.since.as_bytes());
        bytes[48..64].copy_from_slice(store.as_bytes());
        bytes[64..128].copy_from_slice(&self.key);
        bytes[128..136].copy_from_slice(&Timestamp::now().0.to_le_bytes());
        let sum = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(from: &mut Through<'_, dyn Read + '_>) -> Result<Self, StoreError> {
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
        Ok(Self { id: uuid(16), since: uuid(32), key })
    }
}

/// Counts and hashes what goes through.
struct Through<'a, T: ?Sized> {
    stream: &'a mut T,
    hasher: blake3::Hasher,
    bytes: u64,
    /// It ended before what was asked for.
    is_cut: bool,
}

impl<'a, T: ?Sized> Through<'a, T> {
    fn new(stream: &'a mut T) -> Self {
        Self { stream, hasher: blake3::Hasher::new(), bytes: 0, is_cut: false }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl Through<'_, dyn Write + '_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.note(bytes);
        self.stream.write_all(bytes).map_err(writing)
    }
}

impl Through<'_, dyn Read + '_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), StoreError> {
        if let Err(e) = self.stream.read_exact(bytes) {
            self.is_cut |= e.kind() == std::io::ErrorKind::UnexpectedEof;
            return Err(if self.is_cut { truncated() } else { reading(e) });
        }
        self.note(bytes);
        Ok(())
    }
}

impl Store {
    /// Writes a backup to `to`: of everything, or of what changed since the backup that `since` reads. `files`
    /// is asked, once it is settled what is backed up, which files of the embedder's go with it; it sees
    /// to it that they stay until the backup is done.
    ///
    /// A backup holds the tenant's key: it is as secret as the store. Takes 32 bytes of memory for each frame.
    pub fn backup(
        &self,
        to: &mut dyn Write,
        since: Option<&mut dyn ReadSeek>,
        files: Files<'_>,
    ) -> Result<BackupReport, StoreError> {
        let shared = self.shared()?;
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = shared.room();
        #[cfg(test)]
        let past = shared.superblock.lock().unwrap_or_else(PoisonError::into_inner).current().catalogue;
        let (catalogue, ()) = shared.checkpoint_with(|| Ok(()))?;
        #[cfg(test)]
        let catalogue = past.filter(|_| tests::makes(Mistake::BackupOfThePast)).unwrap_or(catalogue);
        shared.write_backup(&catalogue, to, since, files)
    }

    /// As [`restore`](Self::restore), on an empty device.
    pub fn restore_on(
        device: &Arc<dyn Device>,
        parts: &mut [&mut dyn Read],
        file: &mut dyn FnMut(&str, u64, &mut dyn Read) -> std::io::Result<()>,
    ) -> Result<RestoreReport, StoreError> {
        let mut restoring = Restoring {
            device: device.clone(),
            segments: None,
            key: None,
            last: Uuid::nil(),
            report: RestoreReport::default(),
        };
        let mut end = None;
        for (index, part) in parts.iter_mut().enumerate() {
            end = Some(restoring.part(*part, file).map_err(|e| e.of_backup_part(index + 1))?);
        }
        let Some(end) = end else { return Err(nothing()) };
        restoring.finish(end)
    }
}

/// The end item.
struct End {
    catalogue: Hash,
    addresses: Vec<Hash>,
    files: Vec<(String, [u8; 32])>,
}

impl End {
    fn encode(&self) -> Vec<u8> {
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
    fn read(from: &mut Through<'_, dyn Read + '_>) -> Result<Self, StoreError> {
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

fn read_name(from: &mut Through<'_, dyn Read + '_>) -> Result<String, StoreError> {
    let len = usize::from(u16::from_le_bytes(from.take()?));
    if len > MAX_FILE_NAME {
        return Err(bad("is damaged: a file in it has too long a name"));
    }
    let mut name = vec![0; len];
    from.fill(&mut name)?;
    String::from_utf8(name).map_err(|_| bad("is damaged: the name of a file in it is no text"))
}

/// What a finished backup says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupAbout {
    /// Its id.
    pub id: Uuid,
    /// The backup that it is since, unless it is of everything.
    pub since: Option<Uuid>,
}

impl BackupAbout {
    /// Reads it, without what lies between the backup's ends.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backup`] where it is none, or is not finished.
    pub fn read(from: &mut dyn ReadSeek) -> Result<Self, StoreError> {
        let (header, _) = read_header(from)?;
        Ok(Self { id: header.id, since: Some(header.since).filter(|since| !since.is_nil()) })
    }
}

/// The header of a finished backup, and where its end begins.
fn read_header(from: &mut dyn ReadSeek) -> Result<(Header, u64), StoreError> {
    from.seek(SeekFrom::Start(0)).map_err(reading)?;
    let mut start = ReadOnly(from);
    let header = Header::read(&mut Through::new(&mut start as &mut dyn Read))?;
    let mut trailer = [0; TRAILER];
    from.seek(SeekFrom::End(-(TRAILER as i64))).map_err(reading)?;
    from.read_exact(&mut trailer).map_err(reading)?;
    if trailer[8..] != *MAGIC {
        return Err(bad("is truncated, or was not finished"));
    }
    let mut at = [0; 8];
    at.copy_from_slice(&trailer[..8]);
    Ok((header, u64::from_le_bytes(at)))
}

/// The header and the end of an earlier backup, without what lies between.
fn read_ends(from: &mut dyn ReadSeek) -> Result<(Header, End), StoreError> {
    let (header, end) = read_header(from)?;
    from.seek(SeekFrom::Start(end)).map_err(reading)?;
    let mut stream = ReadOnly(from);
    let mut through = Through::new(&mut stream as &mut dyn Read);
    if through.take::<1>()? != [END] {
        return Err(bad("is damaged: its end is not where it says"));
    }
    Ok((header, End::read(&mut through)?))
}

struct ReadOnly<'a>(&'a mut dyn ReadSeek);

impl Read for ReadOnly<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buf)
    }
}

impl Shared {
    fn write_backup(
        &self,
        catalogue: &Hash,
        to: &mut dyn Write,
        since: Option<&mut dyn ReadSeek>,
        files: Files<'_>,
    ) -> Result<BackupReport, StoreError> {
        let device = self.segments.device();
        let id = super::agents::random_uuid(device)?;
        let (mut have, mut have_files, mut before) = (Marks::default(), BTreeSet::new(), Uuid::nil());
        let key = open::read_key_file(device)?;
        if let Some(since) = since {
            let (header, end) = read_ends(since).map_err(StoreError::of_backup_before)?;
            if header.key != key {
                return Err(bad("before it is another store's"));
            }
            before = header.id;
            for place in end.addresses.iter().filter_map(|hash| self.segments.locate(hash).ok()) {
                have.add(place);
            }
            have_files.extend(end.files);
        }
        let header = Header { id, since: before, key };
        let store = self.superblock.lock().unwrap_or_else(PoisonError::into_inner).current().store;
        let mut out = Through::new(to);
        out.put(&header.encode(store))?;
        let mut writer = FrameWriter {
            segments: &self.segments,
            out,
            have,
            seen: Marks::default(),
            addresses: Vec::new(),
            report: BackupReport { id, ..BackupReport::default() },
        };
        Reach::new(&self.segments, &mut writer).catalogue(catalogue)?;
        let FrameWriter { mut out, addresses, mut report, .. } = writer;
        let mut listed = Vec::new();
        let is_whole = report.damage.is_empty();
        let backed_up = BackedUp { segments: &self.segments, catalogue: *catalogue, is_whole };
        for file in files(&backed_up)? {
            if file.name.len() > MAX_FILE_NAME {
                return Err(bad(format!("cannot be made: the name of the file {} is too long", file.name)));
            }
            listed.push((file.name.clone(), file.hash));
            if !have_files.contains(&(file.name.clone(), file.hash)) {
                write_file(&mut out, file)?;
                report.files += 1;
            }
        }
        let at = out.bytes;
        out.put(&End { catalogue: *catalogue, addresses, files: listed }.encode())?;
        let sum = *out.hasher.finalize().as_bytes();
        out.put(&sum)?;
        out.put(&at.to_le_bytes())?;
        out.put(MAGIC)?;
        out.stream.flush().map_err(writing)?;
        report.bytes = out.bytes;
        Ok(report)
    }
}

fn write_file(out: &mut Through<'_, dyn Write + '_>, file: BackupFile) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| {
        bad(format!("cannot be made: the file {} cannot be read: {error}", file.name))
    };
    out.put(&[FILE])?;
    out.put(&(file.name.len() as u16).to_le_bytes())?;
    out.put(file.name.as_bytes())?;
    out.put(&file.len.to_le_bytes())?;
    out.put(&file.hash)?;
    let mut content = (file.open)().map_err(failed)?;
    let (mut left, mut buffer) = (file.len, vec![0; 64 << 10]);
    let mut hasher = blake3::Hasher::new();
    while left > 0 {
        let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        content.read_exact(&mut buffer[..part]).map_err(failed)?;
        hasher.update(&buffer[..part]);
        out.put(&buffer[..part])?;
        left -= part as u64;
    }
    if *hasher.finalize().as_bytes() != file.hash {
        return Err(bad(format!("cannot be made: the file {} is not what it was said to be", file.name)));
    }
    Ok(())
}

struct FrameWriter<'a, 'b, 'c> {
    segments: &'a Segments,
    out: Through<'b, dyn Write + 'c>,
    have: Marks,
    seen: Marks,
    addresses: Vec<Hash>,
    report: BackupReport,
}

impl Visitor for FrameWriter<'_, '_, '_> {
    fn visit(&mut self, _: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        let place = self.segments.locate(hash)?;
        if !self.seen.add(place) {
            return Ok(false);
        }
        if self.have.has(place) {
            self.report.earlier += 1;
        } else {
            let frame = self.segments.frame(hash)?;
            self.out.put(&[FRAME])?;
            self.out.put(&frame)?;
            self.report.frames += 1;
        }
        self.addresses.push(*hash);
        Ok(true)
    }

    fn unreadable(&mut self, place: &Place, _: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        if self.report.damage.len() < BackupReport::MAX_DAMAGE {
            self.report.damage.push(format!("{place}: {error}"));
        }
        Ok(())
    }
}

/// A store that is being made.
struct Restoring {
    device: Arc<dyn Device>,
    segments: Option<Arc<Segments>>,
    key: Option<[u8; 64]>,
    /// The backup before.
    last: Uuid,
    report: RestoreReport,
}

impl Restoring {
    fn part(
        &mut self,
        part: &mut dyn Read,
        file: &mut dyn FnMut(&str, u64, &mut dyn Read) -> std::io::Result<()>,
    ) -> Result<End, StoreError> {
        let mut from = Through::new(part);
        let read = self.read_part(&mut from, file);
        // wherever its end was met, that is what is wrong
        if from.is_cut && !matches!(&read, Err(StoreError::Backup(reason)) if reason == NO_BACKUP) {
            return Err(truncated());
        }
        read
    }

    fn read_part(
        &mut self,
        from: &mut Through<'_, dyn Read + '_>,
        file: &mut dyn FnMut(&str, u64, &mut dyn Read) -> std::io::Result<()>,
    ) -> Result<End, StoreError> {
        let header = Header::read(from)?;
        if self.key.is_some_and(|key| key != header.key) {
            return Err(bad("is another store's than those before it"));
        }
        if header.since != self.last {
            return Err(bad(match (self.last.is_nil(), header.since.is_nil()) {
                (true, _) => "has only what changed since an earlier backup, which has to come before it",
                (false, true) => "is of everything, and follows no other: restore it alone",
                (false, false) => {
                    "has only what changed since another backup than the one that comes before it"
                }
            }));
        }
        self.last = header.id;
        let segments = self.segments(&header.key)?;
        loop {
            match from.take::<1>()? {
                [FRAME] => {
                    let frame = segments.read_frame(&mut |bytes| {
                        from.fill(bytes).map_err(|e| std::io::Error::other(e.to_string()))
                    });
                    let frame =
                        frame.map_err(|reason| bad(format!("is damaged: a frame in it: {reason}")))?;
                    segments.put_frame(&frame)?;
                    self.report.frames += 1;
                }
                [FILE] => read_file(from, file)?,
                [END] => break,
                _ => return Err(bad("is damaged: what comes next in it is nothing that a backup has")),
            }
        }
        let end = End::read(from)?;
        let sum = *from.hasher.finalize().as_bytes();
        if from.take::<32>()? != sum {
            return Err(bad("is damaged: its checksum is wrong"));
        }
        Ok(end)
    }

    /// The segments, under the key that the first part brings.
    fn segments(&mut self, key: &[u8; 64]) -> Result<Arc<Segments>, StoreError> {
        if let Some(segments) = &self.segments {
            return Ok(segments.clone());
        }
        open::write_key_file(&*self.device, key)?;
        let plain = open::read_key(&*self.device)?;
        let segments = Arc::new(Segments::open(self.device.clone(), plain, SegmentOptions::default())?);
        self.segments = Some(segments.clone());
        self.key = Some(*key);
        Ok(segments)
    }

    /// Verifies that all is there, and only then makes the superblock: without it there is no store.
    fn finish(mut self, end: End) -> Result<RestoreReport, StoreError> {
        let Some(segments) = self.segments.take() else { return Err(nothing()) };
        for address in &end.addresses {
            segments.read(address).map_err(|e| bad(format!("is not complete: {e}")))?;
        }
        let mut checker =
            Checker { segments: &segments, seen: Marks::default(), damage: &mut self.report.damage };
        Reach::new(&segments, &mut checker).catalogue(&end.catalogue)?;
        segments.read(&end.catalogue).map_err(|e| bad(format!("is not complete: {e}")))?;
        segments.flush()?;
        segments.close();
        let mut superblock = SuperblockFile::create(&*self.device)?;
        superblock.advance(Some(end.catalogue), LogPosition::START)?;
        self.report.files = end.files.into_iter().map(|(name, _)| name).collect();
        Ok(self.report)
    }
}

fn read_file(
    from: &mut Through<'_, dyn Read + '_>,
    file: &mut dyn FnMut(&str, u64, &mut dyn Read) -> std::io::Result<()>,
) -> Result<(), StoreError> {
    let name = read_name(from)?;
    let len = u64::from_le_bytes(from.take()?);
    let hash: [u8; 32] = from.take()?;
    let mut content = Content { from, left: len, hasher: blake3::Hasher::new() };
    file(&name, len, &mut content)
        .map_err(|e| bad(format!("cannot be restored: the file {name} cannot be written: {e}")))?;
    if content.left > 0 || *content.hasher.finalize().as_bytes() != hash {
        return Err(bad(format!("is damaged: the file {name} in it, unless it was not read to its end")));
    }
    Ok(())
}

struct Content<'a, 'b, 'c> {
    from: &'a mut Through<'b, dyn Read + 'c>,
    left: u64,
    hasher: blake3::Hasher,
}

impl Read for Content<'_, '_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let part = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if part == 0 {
            return Ok(0);
        }
        self.from.fill(&mut buf[..part]).map_err(|e| std::io::Error::other(e.to_string()))?;
        self.hasher.update(&buf[..part]);
        self.left -= part as u64;
        Ok(part)
    }
}

struct Checker<'a> {
    segments: &'a Segments,
    seen: Marks,
    damage: &'a mut Vec<String>,
}

impl Visitor for Checker<'_> {
    fn visit(&mut self, _: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        Ok(self.seen.add(self.segments.locate(hash)?))
    }

    fn unreadable(&mut self, place: &Place, _: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        if self.damage.len() < BackupReport::MAX_DAMAGE {
            self.damage.push(format!("{place}: {error}"));
        }
        Ok(())
    }
}
