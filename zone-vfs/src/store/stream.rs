//! Streams that a store writes and reads: what goes through is counted and hashed.

use std::io::{self, Read, Write};

use super::StoreError;

/// The longest name of a file in a stream. Bytes.
pub const MAX_FILE_NAME: usize = 1024;
/// Bytes behind a stream's end that are counted.
const MAX_COUNTED: u64 = 1 << 20;

/// Makes an error of what is wrong with a stream, in words that go on after its name.
pub(super) type Wrong = fn(String) -> StoreError;

/// A file of the embedder's that goes with a stream.
pub struct StreamFile {
    /// Its name, at most [`MAX_FILE_NAME`] bytes.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// blake3 of its content. A backup since one that has a file of this name and hash leaves it out.
    pub hash: [u8; 32],
    /// Opens it for reading.
    pub open: Box<dyn FnOnce() -> io::Result<Box<dyn Read>>>,
}

impl std::fmt::Debug for StreamFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamFile").field("name", &self.name).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Bytes at the beginning of a header: magic (8), version (4) and the checksum of it all, with zeros in its place (4).
const SEAL: usize = 16;

/// Writes the beginning of a header whose other bytes are there.
pub(super) fn seal(header: &mut [u8], magic: [u8; 8], version: u32) {
    header[..8].copy_from_slice(&magic);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[12..SEAL].fill(0);
    let sum = crc32fast::hash(header);
    header[12..SEAL].copy_from_slice(&sum.to_le_bytes());
}

/// Counts and hashes what goes through.
pub(super) struct Through<'a, T: ?Sized> {
    pub stream: &'a mut T,
    pub hasher: blake3::Hasher,
    pub bytes: u64,
    /// It ended before what was asked for.
    pub is_cut: bool,
    wrong: Wrong,
}

impl<'a, T: ?Sized> Through<'a, T> {
    pub fn new(stream: &'a mut T, wrong: Wrong) -> Self {
        Self { stream, hasher: blake3::Hasher::new(), bytes: 0, is_cut: false, wrong }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// What is wrong with it.
    pub fn bad(&self, reason: impl Into<String>) -> StoreError {
        (self.wrong)(reason.into())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn reading(wrong: Wrong, error: io::Error) -> StoreError {
    wrong(format!("cannot be read: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn writing(wrong: Wrong, error: io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return wrong("is not whole, and cannot be used: whoever read it has gone".into());
    }
    wrong(format!("cannot be written: {error}"))
}

impl Through<'_, dyn Write + '_> {
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.note(bytes);
        self.stream.write_all(bytes).map_err(|e| writing(self.wrong, e))
    }

    /// Hands on what is still on its way.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.stream.flush().map_err(|e| writing(self.wrong, e))
    }

    /// A file: its name's length (two bytes) and name, length, blake3 and content.
    pub fn put_file(&mut self, file: StreamFile) -> Result<(), StoreError> {
        let wrong = self.wrong;
        let failed = |error: io::Error| {
            wrong(format!("cannot be made: the file {} cannot be read: {error}", file.name))
        };
        if file.name.len() > MAX_FILE_NAME {
            return Err(wrong(format!("cannot be made: the name of the file {} is too long", file.name)));
        }
        self.put(&(file.name.len() as u16).to_le_bytes())?;
        self.put(file.name.as_bytes())?;
        self.put(&file.len.to_le_bytes())?;
        self.put(&file.hash)?;
        let mut content = (file.open)().map_err(failed)?;
        let (mut left, mut buffer) = (file.len, vec![0; 64 << 10]);
        let mut hasher = blake3::Hasher::new();
        while left > 0 {
            let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            content.read_exact(&mut buffer[..part]).map_err(failed)?;
            hasher.update(&buffer[..part]);
            self.put(&buffer[..part])?;
            left -= part as u64;
        }
        if *hasher.finalize().as_bytes() != file.hash {
            return Err(wrong(format!(
                "cannot be made: the file {} is not what it was said to be",
                file.name
            )));
        }
        Ok(())
    }
}

/// Gets each file of a stream, with its name and length, and reads all of it.
pub(super) type TakeFile<'a> = &'a mut dyn FnMut(&str, u64, &mut dyn Read) -> io::Result<()>;

impl Through<'_, dyn Read + '_> {
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a header that begins as [`seal`] has it, of this version or an older one. What does not even begin with the
    /// magic is `none` of the kind.
    pub fn header<const N: usize>(
        &mut self,
        magic: [u8; 8],
        version: u32,
        none: fn() -> StoreError,
    ) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        let (found, rest) = bytes.split_at_mut(magic.len());
        match self.fill(found) {
            Err(_) if self.is_cut => return Err(none()),
            read => read?,
        }
        if found[..] != magic {
            return Err(none());
        }
        self.fill(rest)?;
        let found = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if found > version {
            return Err(self.bad(format!("has format {found}; this program reads up to {version}")));
        }
        let stated = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        bytes[12..SEAL].fill(0);
        if crc32fast::hash(&bytes) != stated || found == 0 {
            return Err(self.bad("is damaged: its header does not match its checksum"));
        }
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
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(reading(self.wrong, e)),
            }
        }
        match found {
            0 => Ok(()),
            1 => Err(self.bad("is not as it was written: 1 byte follows the end")),
            MAX_COUNTED.. => {
                Err(self.bad(format!("is not as it was written: {MAX_COUNTED} bytes or more follow the end")))
            }
            found => Err(self.bad(format!("is not as it was written: {found} bytes follow the end"))),
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), StoreError> {
        if let Err(e) = self.stream.read_exact(bytes) {
            self.is_cut |= e.kind() == io::ErrorKind::UnexpectedEof;
            return Err(if self.is_cut { self.truncated() } else { reading(self.wrong, e) });
        }
        self.note(bytes);
        Ok(())
    }

    pub fn truncated(&self) -> StoreError {
        self.bad("is truncated: it ends in the middle")
    }

    /// The name of a file.
    pub fn name(&mut self) -> Result<String, StoreError> {
        let len = usize::from(u16::from_le_bytes(self.take()?));
        if len > MAX_FILE_NAME {
            return Err(self.bad("is damaged: a file in it has too long a name"));
        }
        let mut name = vec![0; len];
        self.fill(&mut name)?;
        String::from_utf8(name).map_err(|_| self.bad("is damaged: the name of a file in it is no text"))
    }

    /// Reads a file as [`put_file`](Through::put_file) writes it; `failed` says what it means where nobody takes it.
    pub fn take_file(&mut self, failed: fn(&str) -> String, file: TakeFile<'_>) -> Result<(), StoreError> {
        let wrong = self.wrong;
        let name = self.name()?;
        let len = u64::from_le_bytes(self.take()?);
        let hash: [u8; 32] = self.take()?;
        let mut content = Content { from: self, left: len, hasher: blake3::Hasher::new() };
        file(&name, len, &mut content).map_err(|e| wrong(format!("{}: {e}", failed(&name))))?;
        if content.left > 0 || *content.hasher.finalize().as_bytes() != hash {
            return Err(wrong(format!(
                "is damaged: the file {name} in it, unless it was not read to its end"
            )));
        }
        Ok(())
    }
}

struct Content<'a, 'b, 'c> {
    from: &'a mut Through<'b, dyn Read + 'c>,
    left: u64,
    hasher: blake3::Hasher,
}

impl Read for Content<'_, '_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let part = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if part == 0 {
            return Ok(0);
        }
        self.from.fill(&mut buf[..part]).map_err(|e| io::Error::other(e.to_string()))?;
        self.hasher.update(&buf[..part]);
        self.left -= part as u64;
        Ok(part)
    }
}
