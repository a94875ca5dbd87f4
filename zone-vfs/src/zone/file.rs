//! The content of files: reading, writing, size and times.
//!
//! A small file lies in its inode record; a larger one in chunks, of which any can be missing or
//! short and then reads as zeros.

use std::sync::Arc;

use super::ranges::Ranges;
use super::state::State;
use super::table::{CachedChunk, ChunkData, OpenFile, Stage};
use super::types::Source;
use super::{Access, Bytes, ErrorCode, MAX_FILE_SIZE, Result, Zone, ZoneError};
use crate::contract::Operation;
use crate::id::{Inode, Timestamp};
use crate::tree::{Body, CHUNK, Extent, ExtentValue, Key, MAX_INLINE, Value};

static ZEROS: [u8; CHUNK] = [0; CHUNK];

impl Zone {
    /// Reads an open file at `offset` and gives how much: less than asked for only at the end.
    #[inline]
    pub fn read(&mut self, access: Access, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.check(access, Operation::Read)?;
        let inode = self.actual(inode);
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        if file.hides_from(access.mount.principal) {
            return self.read_published(inode, offset, into);
        }
        let left = readable(file, offset)?;
        let count = into.len().min(left.try_into().unwrap_or(usize::MAX));
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let (bytes, from, end) = if let Body::Inline(data) = &file.record.body {
                (data.as_slice(), at as usize, count)
            } else {
                let chunk = file.chunk(&mut self.state, inode, at / CHUNK as u64)?;
                let from = at as usize % CHUNK;
                (chunk.data.bytes(), from, count.min(done + CHUNK - from))
            };
            let into = &mut into[done..end];
            let there = bytes.get(from..).unwrap_or_default();
            let there = &there[..there.len().min(into.len())];
            into[..there.len()].copy_from_slice(there);
            into[there.len()..].fill(0);
            done = end;
        }
        Ok(count)
    }

    /// Reads an open file at `offset` without a copy: at most `max` bytes, and at most to the end of
    /// a chunk. Empty only at the end of the file, or for a `max` of 0.
    pub fn read_shared(&mut self, access: Access, inode: Inode, offset: u64, max: usize) -> Result<Bytes> {
        self.check(access, Operation::Read)?;
        let inode = self.actual(inode);
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        if file.hides_from(access.mount.principal) {
            return self.share_published(inode, offset, max);
        }
        let left = readable(file, offset)?;
        let max = max.min(left.try_into().unwrap_or(usize::MAX));
        if max == 0 {
            return Ok(Bytes { source: Source::Zeros(&[]), range: 0..0 });
        }
        if let Body::Inline(data) = &file.record.body {
            let from = offset as usize;
            return Ok(Bytes { source: Source::Inline(data.clone()), range: from..from + max });
        }
        let from = offset as usize % CHUNK;
        let chunk = file.chunk(&mut self.state, inode, offset / CHUNK as u64)?;
        let there = chunk.data.bytes().len().saturating_sub(from);
        if there == 0 {
            return Ok(Bytes { source: Source::Zeros(&ZEROS), range: 0..max.min(CHUNK - from) });
        }
        let source = match &chunk.data {
            ChunkData::Memory(extent) => Source::Extent(extent.clone()),
            ChunkData::Frame(frame) | ChunkData::Shown(frame) => Source::Frame(frame.clone()),
            ChunkData::Hole => Source::Zeros(&[]),
        };
        Ok(Bytes { source, range: from..from + there.min(max) })
    }

    /// Writes all of `data` to an open file at `offset`, or nothing.
    ///
    /// Exactly at the end this is an append, anywhere else it overwrites, also beyond the end.
    #[inline]
    pub fn write(&mut self, access: Access, inode: Inode, offset: u64, data: &[u8]) -> Result<usize> {
        let inode = self.actual(inode);
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let at_end = offset == file.record.size;
        self.check_file(access, file, if at_end { Operation::Append } else { Operation::Overwrite })?;
        self.write_checked(access, inode, offset, data)?;
        Ok(data.len())
    }

    /// Writes `data` at the end of an open file, and gives the offset at which it was written.
    pub fn append(&mut self, access: Access, inode: Inode, data: &[u8]) -> Result<u64> {
        let inode = self.actual(inode);
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let end = file.record.size;
        self.check_file(access, file, Operation::Append)?;
        self.write_checked(access, inode, end, data)?;
        Ok(end)
    }

    fn write_checked(&mut self, access: Access, inode: Inode, offset: u64, data: &[u8]) -> Result<()> {
        self.bound_memory(access)?;
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let (size, reserved) = (file.record.size, file.reserved);
        check_regular(file)?;
        let is_known = file.author == access.mount.principal && file.stage == Stage::Plain;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).ok_or(ErrorCode::FileTooLarge)?;
        if end > MAX_FILE_SIZE {
            return Err(ErrorCode::FileTooLarge.into());
        }
        let growth = end.saturating_sub(size);
        if reserved {
            self.afford_reserved(growth, 0)?;
        } else {
            self.afford(growth, 0)?;
        }
        if !is_known {
            self.begin_writing(access, inode)?;
        }
        let state = &mut self.state;
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        let first = offset / CHUNK as u64;
        match &mut file.record.body {
            Body::Inline(inline) if end <= MAX_INLINE as u64 => {
                let (from, to) = (offset as usize, end as usize);
                let inline = Arc::make_mut(inline);
                if inline.len() < to {
                    inline.resize(to, 0);
                }
                inline[from..to].copy_from_slice(data);
            }
            _ => {
                if first != (end - 1) / CHUNK as u64 || matches!(file.record.body, Body::Inline(_)) {
                    prepare_chunks(state, file, inode, offset, end)?;
                    file.leave_inline(state, inode)?;
                }
                file.write_chunks(state, inode, offset, data)?;
            }
        }
        state.dirty_bytes += data.len();
        let record = &mut file.record;
        record.size = record.size.max(end);
        record.modified = access.now;
        record.changed = access.now;
        self.counters.usage.bytes += growth;
        self.touch(inode);
        Ok(())
    }

    /// Sets the size of an open file. What is added reads as zeros, and takes no space but quota.
    pub fn set_size(&mut self, access: Access, inode: Inode, size: u64) -> Result<()> {
        let inode = self.actual(inode);
        if let Some(file) = self.open.get(&inode) {
            self.check_file(access, file, Operation::Truncate)?;
        }
        self.check(access, Operation::Truncate)?;
        self.resize(access, inode, size)
    }

    pub(super) fn resize(&mut self, access: Access, inode: Inode, size: u64) -> Result<()> {
        let file = self.open.get(&inode).ok_or(ErrorCode::BadDescriptor)?;
        check_regular(file)?;
        let old = file.record.size;
        if size > MAX_FILE_SIZE {
            return Err(ErrorCode::FileTooLarge.into());
        }
        let is_known = file.author == access.mount.principal && file.stage == Stage::Plain;
        if size < old {
            self.bound_memory_if_possible(access);
        } else {
            self.bound_memory(access)?;
        }
        self.afford(size.saturating_sub(old), 0)?;
        if !is_known {
            self.begin_writing(access, inode)?;
        }
        let file = self.open.get_mut(&inode).ok_or(ErrorCode::BadDescriptor)?;
        match &mut file.record.body {
            Body::Inline(inline) if size <= MAX_INLINE as u64 => {
                Arc::make_mut(inline).resize(size as usize, 0);
            }
            Body::Inline(_) => {
                self.state.prepare(&[&Key::extent(inode, 0)])?;
                file.leave_inline(&mut self.state, inode)?;
            }
            _ if size < old => shrink(&mut self.state, file, inode, size)?,
            _ => {}
        }
        file.record.size = size;
        file.record.modified = access.now;
        file.record.changed = access.now;
        self.counters.usage.bytes = (self.counters.usage.bytes + size).saturating_sub(old);
        self.touch(inode);
        Ok(())
    }

    /// Sets the times that are given, of any inode.
    pub fn set_times(
        &mut self,
        access: Access,
        inode: Inode,
        accessed: Option<Timestamp>,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        let inode = self.actual(inode);
        self.check(access, Operation::SetTimes)?;
        self.bound_memory(access)?;
        self.record(inode)?;
        self.update(inode, |record| {
            record.accessed = accessed.unwrap_or(record.accessed);
            record.modified = modified.unwrap_or(record.modified);
            record.changed = access.now;
        })
    }

    /// Takes note of how a part of an open file is going to be used, which changes nothing.
    pub fn advise(&self, access: Access, inode: Inode, offset: u64, len: u64) -> Result<()> {
        self.check(access, Operation::Read)?;
        let file = self.open.get(&self.actual(inode)).ok_or(ErrorCode::BadDescriptor)?;
        check_regular(file)?;
        offset.checked_add(len).map(drop).ok_or_else(|| ErrorCode::Invalid.into())
    }
}

/// How much of a file lies at and after `offset`. Bytes.
#[inline]
fn readable(file: &OpenFile, offset: u64) -> Result<u64> {
    check_regular(file)?;
    Ok(file.record.size.saturating_sub(offset))
}

#[inline]
fn check_regular(file: &OpenFile) -> Result<()> {
    match file.record.body {
        Body::Inline(_) | Body::Extents | Body::Published { .. } | Body::Over { .. } | Body::Pieces => Ok(()),
        Body::Directory { .. } => Err(ErrorCode::IsDirectory.into()),
        Body::Symlink(_) | Body::Alias { .. } => {
            Err(ZoneError::rule(ErrorCode::Invalid, "a symbolic link has no content"))
        }
    }
}

/// Reads what writing `offset..end` needs into memory, so that it cannot fail half-way.
fn prepare_chunks(state: &mut State, file: &OpenFile, inode: Inode, offset: u64, end: u64) -> Result<()> {
    let chunk = CHUNK as u64;
    state.prepare(&[&Key::extent(inode, 0)])?;
    for index in offset / chunk..=(end - 1) / chunk {
        let key = Key::extent(inode, index);
        let whole = offset <= index * chunk && (index + 1) * chunk <= end;
        match state.get(&key)? {
            Some(Value::Extent(value @ ExtentValue::Stored { .. })) if !whole => {
                let extent = state.load_extent(value)?;
                state.resident_bytes += extent.bytes().len();
                state.set(key, Some(Value::Extent(ExtentValue::Memory(extent))))?;
            }
            None if !whole => {
                if let Some(bytes) = state.shown_through(inode, &file.record, index)? {
                    state.put_shown(key, &bytes)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Cuts a file that lies in chunks to `size`.
fn shrink(state: &mut State, file: &mut OpenFile, inode: Inode, size: u64) -> Result<()> {
    file.write_back(state, inode)?;
    file.chunk = None;
    let (whole, part) = (size / CHUNK as u64, size as usize % CHUNK);
    if size <= MAX_INLINE as u64 {
        let mut inline = match state.get(&Key::extent(inode, 0))? {
            _ if size == 0 => Vec::new(),
            Some(Value::Extent(value)) => state.load_extent(value)?.bytes().to_vec(),
            _ => state.shown_through(inode, &file.record, 0)?.map_or_else(Vec::new, |bytes| bytes.to_vec()),
        };
        inline.resize(size as usize, 0);
        let doomed = state.extents_from(inode, 0)?;
        doomed.into_iter().try_for_each(|key| state.remove(key))?;
        file.record.body = Body::Inline(Arc::new(inline));
        return Ok(());
    }
    let doomed = state.extents_from(inode, size.div_ceil(CHUNK as u64))?;
    if part > 0 {
        state.cut_extent(Key::extent(inode, whole), part)?;
    }
    if let Body::Over { kept, .. } = &mut file.record.body {
        *kept = (*kept).min(size);
    }
    doomed.into_iter().try_for_each(|key| state.remove(key))
}

impl OpenFile {
    /// Turns a file that lies in its record into one that lies in chunks.
    fn leave_inline(&mut self, state: &mut State, inode: Inode) -> Result<()> {
        let Body::Inline(inline) = &self.record.body else { return Ok(()) };
        if !inline.is_empty() {
            let mut written = Ranges::default();
            written.add(0, inline.len());
            let extent = Arc::new(Extent::new(inline.to_vec()));
            state.put_extent(Key::extent(inode, 0), extent, &written)?;
        }
        self.chunk = None;
        self.record.body = Body::Extents;
        Ok(())
    }

    #[inline]
    fn write_chunks(&mut self, state: &mut State, inode: Inode, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let from = at as usize % CHUNK;
            let end = data.len().min(done + CHUNK - from);
            let index = at / CHUNK as u64;
            let chunk = if end - done == CHUNK {
                self.whole_chunk(state, inode, index)?
            } else {
                self.chunk(state, inode, index)?
            };
            chunk.write(state, inode, from, &data[done..end])?;
            done = end;
        }
        Ok(())
    }

    /// The chunk `index` for writing all of it, without reading what is stored.
    fn whole_chunk(&mut self, state: &mut State, inode: Inode, index: u64) -> Result<&mut CachedChunk> {
        if self.chunk.as_ref().is_none_or(|chunk| chunk.index != index) {
            self.write_back(state, inode)?;
            let data = ChunkData::Memory(Arc::new(Extent::new(Vec::with_capacity(CHUNK))));
            self.chunk = Some(CachedChunk { index, data, written: Ranges::default() });
        }
        self.chunk(state, inode, index)
    }
}
