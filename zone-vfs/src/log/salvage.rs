//! What can still be read of a log that is damaged, or of which files are lost.
//!
//! A group says of itself which it is, and with the log's salt it cannot be imitated: so what reads is found wherever
//! it lies, and brought back into its order. Where no header of a file reads any more, the salt is lost too; then each
//! file is read from its beginning, group behind group as the log has written them, as far as records read. Nothing
//! is looked for in what lies between, where a guest could have put what passes for a group.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::error::LogError;
use super::files::{FIRST_FILE, FOLDER, file_number, file_path};
use super::format::{
    FORMAT_VERSION, FileHeader, FoundHeader, GROUP_HEADER, GroupHeader, MAX_FILE, SALT, Salt, take_record,
};
use super::recovery::{Reader, io_error};
use super::{LogPosition, Record};
use crate::device::{AlignedBuf, BLOCK, Caching, Device, DeviceFile, is_shortage};

/// How far the numbers of files and of groups of a log that is begun anew lie behind all that were seen: what is lost
/// had some, too.
const LEAP: u64 = 1 << 20;

/// The files of a log, and the groups in them that read.
pub(crate) struct Salvage {
    files: Vec<Found>,
    /// By number: the file, where in it, and the generation for which it was written.
    groups: BTreeMap<u64, (usize, u64, u64)>,
    last_generation: u64,
    next_name: u32,
}

struct Found {
    path: String,
    file: Patient,
    len: u64,
    header: Option<FileHeader>,
}

impl Salvage {
    /// Looks at every file of the log. Writes nothing.
    ///
    /// # Errors
    ///
    /// For want of descriptors or memory, and where a newer version of this program has written a file.
    pub fn survey(device: &dyn Device) -> Result<Self, LogError> {
        let mut found = Self { files: Vec::new(), groups: BTreeMap::new(), last_generation: 0, next_name: 1 };
        for name in device.list(FOLDER).map_err(io_error(FOLDER))? {
            let Some(number) = file_number(&name) else { continue };
            found.next_name = found.next_name.max(number.saturating_add(1));
            let path = file_path(number);
            let file = Patient(device.open(&path, Caching::Cached).map_err(io_error(&path))?);
            let len = file.len().map_err(io_error(&path))?.min(MAX_FILE);
            let mut block = AlignedBuf::zeroed(BLOCK);
            if len >= BLOCK as u64 {
                file.read_at(0, &mut block).map_err(io_error(&path))?;
            }
            let header = match FileHeader::decode(&block) {
                FoundHeader::Newer(found) => {
                    return Err(LogError::NewerFormat { file: path, found, supported: FORMAT_VERSION });
                }
                FoundHeader::Valid(header) => Some(header),
                FoundHeader::Invalid => None,
            };
            found.last_generation = found.last_generation.max(header.map_or(0, |it| it.generation));
            found.files.push(Found { path, file, len, header });
        }
        let salt = found.salt();
        for at in 0..found.files.len() {
            match salt {
                Some(salt) => found.search(at, &salt)?,
                None => found.walk(at)?,
            }
        }
        Ok(found)
    }

    /// The salt of most files; of two that are as many, the one of the newer files.
    fn salt(&self) -> Option<Salt> {
        let mut salts: BTreeMap<Salt, (usize, u64)> = BTreeMap::new();
        for header in self.files.iter().filter_map(|it| it.header) {
            let (count, newest) = salts.entry(header.salt).or_default();
            *count += 1;
            *newest = (*newest).max(header.generation);
        }
        salts.into_iter().max_by_key(|(_, which)| *which).map(|(salt, _)| salt)
    }

    fn note(&mut self, at: usize, offset: u64, header: &GroupHeader) {
        self.last_generation = self.last_generation.max(header.generation);
        let place = self.groups.entry(header.number).or_insert((at, offset, header.generation));
        // what is left of an earlier use of a file does not count
        if header.generation > place.2 {
            *place = (at, offset, header.generation);
        }
    }

    /// Finds the groups of a file by the salt.
    fn search(&mut self, at: usize, salt: &Salt) -> Result<(), LogError> {
        let mut sound = Vec::new();
        let Found { path, file, len, .. } = &self.files[at];
        let mut reader = Reader::new(path, file, *len);
        let mut offset = BLOCK as u64;
        while let Some(place) = reader.find_group(offset, Some(salt), &|_| true)? {
            let Some(header) = reader.peek(place)? else { break };
            offset = place + header.stored_len() as u64;
            sound.push((place, header));
        }
        for (offset, header) in sound {
            self.note(at, offset, &header);
        }
        Ok(())
    }

    /// Reads the groups of a file one after the other, as far as their records read.
    fn walk(&mut self, at: usize) -> Result<(), LogError> {
        let mut sound: Vec<(u64, GroupHeader)> = Vec::new();
        let Found { path, file, len, .. } = &self.files[at];
        let mut reader = Reader::new(path, file, *len);
        let mut offset = BLOCK as u64;
        while let Some(header) = reader.peek(offset)? {
            let follows = |(_, last): &(u64, GroupHeader)| {
                header.generation == last.generation && header.number == last.number.saturating_add(1)
            };
            let is_next = sound.last().is_none_or(follows);
            let records =
                reader.group(offset, &header)?.and_then(|group| records(group, header.records).ok());
            if !is_next || records.is_none() {
                break;
            }
            sound.push((offset, header));
            offset += header.stored_len() as u64;
        }
        for (offset, header) in sound {
            self.note(at, offset, &header);
        }
        Ok(())
    }

    /// The files, whatever is in them.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|it| it.path.as_str())
    }

    /// The numbers of groups from `from` on that do not read, though a later one does.
    pub fn holes(&self, from: u64) -> Vec<Range<u64>> {
        let mut next = from;
        let mut holes = Vec::new();
        for number in self.groups.range(from..).map(|(number, _)| *number) {
            if number > next {
                holes.push(next..number);
            }
            next = number + 1;
        }
        holes
    }

    /// Whether no group from `from` on reads.
    pub fn is_empty(&self, from: u64) -> bool {
        self.groups.range(from..).next().is_none()
    }

    /// Gives the records of each group from `from` on, in order.
    pub fn read<E: From<LogError>>(
        &self,
        from: u64,
        on_group: &mut dyn FnMut(u64, Vec<Record>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, (at, offset, _)) in self.groups.range(from..) {
            let Found { path, file, len, .. } = &self.files[*at];
            let mut reader = Reader::new(path, file, *len);
            let header = reader.peek(*offset)?;
            let Some(header) = header else { continue };
            let Some(group) = reader.group(*offset, &header)? else { continue };
            let found = records(group, header.records).map_err(|reason| LogError::Damaged {
                file: path.clone(),
                offset: *offset,
                reason: reason.to_owned(),
            })?;
            on_group(*number, found)?;
        }
        Ok(())
    }

    /// Begins a log without records beside these files, of which none counts any more, and gives where it begins. No
    /// number is used again that any file, or `known`, tells of.
    pub fn begin_anew(
        &self,
        device: &dyn Device,
        known: impl IntoIterator<Item = LogPosition>,
    ) -> Result<LogPosition, LogError> {
        let (mut generation, mut group) =
            (self.last_generation, self.groups.last_key_value().map_or(0, |(number, _)| *number));
        for position in known {
            generation = generation.max(position.file_generation);
            group = group.max(position.group);
        }
        let (generation, first_group) = (generation.saturating_add(LEAP), group.saturating_add(LEAP));
        let path = file_path(self.next_name);
        let make = || {
            let mut salt = [0; SALT];
            device.random(&mut salt)?;
            let file = device.create(&path, FIRST_FILE, Caching::Direct)?;
            let header = FileHeader { generation, first_group, salt, len: FIRST_FILE };
            file.write_at(0, &header.encode())?;
            file.flush()
        };
        make().map_err(io_error(&path))?;
        Ok(LogPosition { file_generation: generation, offset: BLOCK as u64, group: first_group })
    }
}

/// The records of a group, header and payload: exactly so many.
fn records(group: &[u8], count: u32) -> Result<Vec<Record>, &'static str> {
    let mut rest = &group[GROUP_HEADER..];
    let records = (0..count).map(|_| take_record(&mut rest)).collect::<Result<_, _>>()?;
    if rest.is_empty() { Ok(records) } else { Err("a group has more than its records") }
}

/// A file of which some may not read: there it reads as zeros.
#[derive(Debug)]
struct Patient(Arc<dyn DeviceFile>);

impl DeviceFile for Patient {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        if self.0.read_at(offset, buf).is_ok() {
            return Ok(());
        }
        for block in buf.chunks_mut(BLOCK) {
            match self.0.read_at(at, block) {
                Err(error) if is_shortage(&error) => return Err(error),
                Err(_) => block.fill(0),
                Ok(()) => {}
            }
            at += block.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
