//! Whether two files hold the same, with as little reading as that needs.

use std::borrow::Cow;

use super::super::Result;
use super::super::state::State;
use crate::id::{Hash, Inode, Version};
use crate::tree::{Body, CHUNK, ExtentValue, InodeRecord, Key, Value};

/// Whether two files of the same size, or two links, hold the same.
pub(super) fn is_equal(left: &State, a: Inode, right: &State, b: Inode) -> Result<bool> {
    let (first, second) = (left.record(a)?, right.record(b)?);
    match (&first.body, &second.body) {
        (Body::Inline(a), Body::Inline(b)) | (Body::Symlink(a), Body::Symlink(b)) => return Ok(a == b),
        (Body::Published { version: one, .. }, Body::Published { version: other, .. }) => {
            if let (Some(one), Some(other)) = (hash_of(left, a, *one)?, hash_of(right, b, *other)?) {
                return Ok(one == other);
            }
        }
        _ => {}
    }
    for index in 0..first.size.div_ceil(CHUNK as u64) {
        let (one, other) = (Piece::of(left, a, first, index)?, Piece::of(right, b, second, index)?);
        if !one.is_equal(left, &other, right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What identifies the content of a version.
fn hash_of(state: &State, file: Inode, version: Version) -> Result<Option<Hash>> {
    match state.get(&Key::version(file, version))? {
        Some(Value::Version(record)) if record.content.is_some() => Ok(Some(record.hash)),
        _ => Ok(None),
    }
}

/// One chunk of a file, or nothing, which reads as zeros.
enum Piece<'a> {
    Nothing,
    Bytes(Cow<'a, [u8]>),
    Extent(&'a ExtentValue),
}

impl<'a> Piece<'a> {
    fn of(state: &'a State, inode: Inode, record: &'a InodeRecord, index: u64) -> Result<Self> {
        if let Body::Inline(bytes) = &record.body {
            return Ok(if index == 0 { Self::Bytes(Cow::Borrowed(bytes)) } else { Self::Nothing });
        }
        if let Some(Value::Extent(extent)) = state.get(&Key::extent(inode, index))? {
            return Ok(Self::Extent(extent));
        }
        let shown = state.shown_through(inode, record, index)?;
        Ok(shown.map_or(Self::Nothing, |bytes| Self::Bytes(Cow::Owned(bytes.to_vec()))))
    }

    fn bytes(&self, state: &State) -> Result<Cow<'_, [u8]>> {
        Ok(match self {
            Self::Nothing => Cow::Borrowed(&[]),
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Extent(ExtentValue::Memory(extent)) => Cow::Borrowed(extent.bytes()),
            Self::Extent(ExtentValue::Stored { hash, len }) => {
                Cow::Owned(state.read_chunk(hash, *len)?.to_vec())
            }
        })
    }

    fn is_equal(&self, state: &State, other: &Piece<'_>, others: &State) -> Result<bool> {
        if let (Self::Nothing, Piece::Nothing) = (self, other) {
            return Ok(true);
        }
        if let (Self::Extent(one), Piece::Extent(other)) = (self, other)
            && one.address().is_some()
            && one.address() == other.address()
        {
            return Ok(true);
        }
        let (one, other) = (self.bytes(state)?, other.bytes(others)?);
        let common = one.len().min(other.len());
        let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        Ok(one[..common] == other[..common] && zeros(&one[common..]) && zeros(&other[common..]))
    }
}
