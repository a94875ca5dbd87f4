//! Reading the log back.
//!
//! Groups are written one after the other, each durable before the next begins. So the first
//! group that does not read is the torn tail if nothing valid comes behind it, and damage if
//! something does.

use super::error::LogError;
use super::files::{Current, FOLDER, Files, Spare, Used, file_number, file_path};
use super::format::{
    FORMAT_VERSION, FileHeader, FoundHeader, GROUP_HEADER, GroupHeader, MAX_FILE, Salt, group_is_sound,
    header_is_sound, take_record,
};
use super::{LogOptions, LogPosition, Record};
use crate::device::{AlignedBuf, BLOCK, Caching, Device, DeviceFile};
use std::collections::VecDeque;
use std::sync::Arc;

/// How much is read at once. Bytes.
const WINDOW: usize = 1 << 20;

pub(super) struct Recovered {
    pub files: Files,
    pub current: Option<Current>,
    pub tail: LogPosition,
    pub next_group: u64,
}

/// A file as it was found.
struct Found {
    path: String,
    file: Arc<dyn DeviceFile>,
    header: FileHeader,
}

pub(super) fn recover(
    device: &dyn Device,
    options: &LogOptions,
    from: LogPosition,
    on_record: &mut dyn FnMut(Record) -> Result<(), LogError>,
) -> Result<Recovered, LogError> {
    let first_generation = from.file_generation.max(1);
    let mut survey = survey(device, first_generation)?;
    let salt = survey.used.first().map(|it| it.header.salt).or(survey.salt);
    for (path, file, len) in std::mem::take(&mut survey.unknown) {
        require_no_groups(&path, &*file, len, salt.as_ref(), first_generation)?;
        survey.spare.push(Spare { path, len });
    }
    check_sequence(&survey.used, first_generation, from)?;

    let mut walk = Walk { options, number: from.group.max(1), tail: from };
    let mut used = VecDeque::new();
    let mut current = None;
    let count = survey.used.len();
    for (at, found) in survey.used.into_iter().enumerate() {
        let next_first = (at + 1 < count).then(|| used_first(&survey.firsts, at + 1));
        let start = if found.header.generation == from.file_generation { from.offset } else { BLOCK as u64 };
        let end = walk.file(&found, start, next_first, on_record)?;
        let Found { path, file, header } = found;
        used.push_back(Used { path: path.clone(), len: header.len, generation: header.generation, end });
        if next_first.is_none() {
            // What was read may so far be in the host's memory only, and now counts as committed.
            file.flush().map_err(io_error(&path))?;
            let file = device.open(&path, Caching::Direct).map_err(io_error(&path))?;
            current = Some(Current {
                file,
                path,
                generation: header.generation,
                salt: header.salt,
                len: header.len,
                offset: end,
            });
        }
    }
    let next_generation = used.back().map_or(first_generation, |it| it.generation + 1);
    let files = Files { used, spare: survey.spare, next_name: survey.next_name, salt, next_generation };
    Ok(Recovered { files, current, tail: walk.tail, next_group: walk.number })
}

fn used_first(firsts: &[u64], at: usize) -> u64 {
    firsts.get(at).copied().unwrap_or_default()
}

#[derive(Default)]
struct Survey {
    /// With a valid header of a generation that may be needed, in order.
    used: Vec<Found>,
    /// The first group of each of `used`.
    firsts: Vec<u64>,
    spare: Vec<Spare>,
    /// Without a valid header.
    unknown: Vec<(String, Arc<dyn DeviceFile>, u64)>,
    /// As found in files that are no longer needed.
    salt: Option<Salt>,
    next_name: u32,
}

fn survey(device: &dyn Device, first_generation: u64) -> Result<Survey, LogError> {
    let mut survey = Survey { next_name: 1, ..Survey::default() };
    for name in device.list(FOLDER).map_err(io_error(FOLDER))? {
        let Some(number) = file_number(&name) else { continue };
        survey.next_name = survey.next_name.max(number.saturating_add(1));
        let path = file_path(number);
        // Through the host's cache: most of what is searched behind the tail is the same each time.
        let file = device.open(&path, Caching::Cached).map_err(io_error(&path))?;
        let len = file.len().map_err(io_error(&path))?;
        if len > MAX_FILE {
            return Err(damaged(&path, 0, format!("a file of {len} bytes is none of the log's")));
        }
        let mut block = AlignedBuf::zeroed(BLOCK);
        if len >= BLOCK as u64 {
            file.read_at(0, &mut block).map_err(io_error(&path))?;
        }
        match FileHeader::decode(&block) {
            FoundHeader::Newer(found) => {
                return Err(LogError::NewerFormat { file: path, found, supported: FORMAT_VERSION });
            }
            FoundHeader::Valid(header) if header.generation < first_generation => {
                survey.salt = Some(header.salt);
                // A length that is wrong does not matter where the content does not.
                if header.len == len && len.is_multiple_of(BLOCK as u64) {
                    survey.spare.push(Spare { path, len });
                }
            }
            FoundHeader::Valid(header) if header.len != len || !len.is_multiple_of(BLOCK as u64) => {
                let reason = format!("the file has {len} bytes, its header says {}", header.len);
                return Err(damaged(&path, 0, reason));
            }
            FoundHeader::Valid(header) => survey.used.push(Found { path, file, header }),
            // Making this file was interrupted.
            FoundHeader::Invalid if len < 2 * BLOCK as u64 || !len.is_multiple_of(BLOCK as u64) => {
                device.remove(&path).map_err(io_error(&path))?;
            }
            FoundHeader::Invalid => survey.unknown.push((path, file, len)),
        }
    }
    survey.used.sort_by_key(|it| it.header.generation);
    survey.firsts = survey.used.iter().map(|it| it.header.first_group).collect();
    Ok(survey)
}

/// The files must be of one log, without gaps, from where the recovery begins.
fn check_sequence(used: &[Found], first_generation: u64, from: LogPosition) -> Result<(), LogError> {
    for (generation, found) in (first_generation..).zip(used) {
        if found.header.generation < generation {
            return Err(damaged(
                &found.path,
                0,
                format!("a second file of generation {}", found.header.generation),
            ));
        }
        if found.header.generation > generation {
            return Err(LogError::Missing { generation });
        }
        if found.header.salt != used[0].header.salt {
            return Err(damaged(&found.path, 0, "a file of another log".to_owned()));
        }
    }
    match used.first() {
        None if from.file_generation > 0 => Err(LogError::Missing { generation: first_generation }),
        None => Ok(()),
        Some(first) => {
            let inside = from.offset.is_multiple_of(BLOCK as u64)
                && from.offset >= BLOCK as u64
                && from.offset <= first.header.len
                && from.group >= first.header.first_group;
            if from.file_generation > 0 && !inside {
                return Err(damaged(&first.path, from.offset, format!("{from} is no position in this file")));
            }
            if from.file_generation == 0 && first.header.first_group != 1 {
                return Err(damaged(
                    &first.path,
                    0,
                    "the first file does not hold the first group".to_owned(),
                ));
            }
            Ok(())
        }
    }
}

/// A file gets its header before its groups, so groups without a header are damage. What is
/// left of an earlier use does not count.
fn require_no_groups(
    path: &str,
    file: &dyn DeviceFile,
    len: u64,
    salt: Option<&Salt>,
    first_generation: u64,
) -> Result<(), LogError> {
    let mut reader = Reader::new(path, file, len);
    let wanted = |header: &GroupHeader| header.generation >= first_generation;
    if let Some(offset) = reader.find_group(BLOCK as u64, salt, &wanted)? {
        return Err(damaged(path, 0, format!("the header does not read, but a group at byte {offset} does")));
    }
    Ok(())
}

struct Walk<'a> {
    #[cfg_attr(not(test), expect(dead_code, reason = "only planted mistakes look at it"))]
    options: &'a LogOptions,
    /// The number that the next group must have.
    number: u64,
    tail: LogPosition,
}

impl Walk<'_> {
    /// Reads the groups of one file from `start` and gives where they end. `next_first` is the
    /// first group of the file behind it, where there is one.
    fn file(
        &mut self,
        found: &Found,
        start: u64,
        next_first: Option<u64>,
        on_record: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<u64, LogError> {
        let FileHeader { generation, salt, len, .. } = found.header;
        let mut reader = Reader::new(&found.path, &*found.file, len);
        let mut offset = start;
        while let Some(header) = reader.peek(offset)? {
            if header.generation != generation || header.number != self.number {
                break;
            }
            let Some(group) = reader.group(offset, &header)? else { break };
            if !self.is_sound(group, &salt) {
                break;
            }
            let mut records = &group[GROUP_HEADER..];
            for _ in 0..header.records {
                let record = match take_record(&mut records) {
                    Ok(record) => record,
                    Err(reason) => return Err(damaged(&found.path, offset, reason.to_owned())),
                };
                on_record(record)?;
            }
            self.number += 1;
            offset += header.stored_len() as u64;
        }
        match next_first {
            Some(next) if next != self.number => {
                let reason = format!("group {} does not read, and later ones exist", self.number);
                return Err(damaged(&found.path, offset, reason));
            }
            Some(_) => {}
            None => {
                let number = self.number;
                let later = |it: &GroupHeader| it.generation == generation && it.number >= number;
                if let Some(at) = reader.find_group(offset, Some(&salt), &later)? {
                    let reason =
                        format!("group {number} does not read, but there is a later one at byte {at}");
                    return Err(damaged(&found.path, offset, reason));
                }
            }
        }
        self.tail = LogPosition { file_generation: generation, offset, group: self.number };
        Ok(offset)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "the test build looks at the options")]
    fn is_sound(&self, group: &[u8], salt: &Salt) -> bool {
        group_is_sound(group, salt)
    }

    #[cfg(test)]
    fn is_sound(&self, group: &[u8], salt: &Salt) -> bool {
        self.options.planted == super::Planted::NoChecksum || group_is_sound(group, salt)
    }
}

/// A file seen through a window.
pub(super) struct Reader<'a> {
    path: &'a str,
    file: &'a dyn DeviceFile,
    len: u64,
    window: AlignedBuf,
    start: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a str, file: &'a dyn DeviceFile, len: u64) -> Self {
        Self { path, file, len, window: AlignedBuf::new(), start: 0 }
    }

    /// `len` bytes at `offset`, a block boundary; `None` where the file ends before.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>, LogError> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        let held = self.start..self.start + self.window.len() as u64;
        if offset < held.start || offset + len as u64 > held.end {
            let rest = (self.len - offset).min(WINDOW.max(len.next_multiple_of(BLOCK)) as u64);
            self.window = AlignedBuf::zeroed(rest as usize);
            self.start = offset;
            self.file.read_at(offset, &mut self.window).map_err(io_error(self.path))?;
        }
        let at = (offset - self.start) as usize;
        Ok(Some(&self.window[at..at + len]))
    }

    pub(super) fn peek(&mut self, offset: u64) -> Result<Option<GroupHeader>, LogError> {
        Ok(self.bytes(offset, GROUP_HEADER)?.and_then(GroupHeader::peek))
    }

    /// Header and payload.
    pub(super) fn group(&mut self, offset: u64, header: &GroupHeader) -> Result<Option<&[u8]>, LogError> {
        let unpadded = GROUP_HEADER + header.payload;
        Ok(self.bytes(offset, header.stored_len())?.map(|bytes| &bytes[..unpadded]))
    }

    /// The first valid group from `offset` on that is `wanted`. Without a salt, what looks like a
    /// group counts as one.
    pub(super) fn find_group(
        &mut self,
        offset: u64,
        salt: Option<&Salt>,
        wanted: &dyn Fn(&GroupHeader) -> bool,
    ) -> Result<Option<u64>, LogError> {
        let mut at = offset;
        while at < self.len {
            let found = self.bytes(at, GROUP_HEADER)?;
            let sound = found.filter(|it| salt.is_none_or(|salt| header_is_sound(it, salt)));
            if let Some(header) = sound.and_then(GroupHeader::peek)
                && wanted(&header)
                && let Some(group) = self.group(at, &header)?
                && salt.is_none_or(|salt| group_is_sound(group, salt))
            {
                return Ok(Some(at));
            }
            at += BLOCK as u64;
        }
        Ok(None)
    }
}

pub(super) fn io_error(path: &str) -> impl FnOnce(std::io::Error) -> LogError {
    let file = path.to_owned();
    move |source| LogError::Io { file, source }
}

fn damaged(path: &str, offset: u64, reason: String) -> LogError {
    LogError::Damaged { file: path.to_owned(), offset, reason }
}
