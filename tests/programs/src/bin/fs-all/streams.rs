//! Streams of files.

use test_programs::{Checks, fails, holds, same};
use wasip2::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags};
use wasip2::io::streams::{InputStream, OutputStream, StreamError};

use crate::Place;

/// Several times what one call takes.
const LARGE: usize = 300_000;

pub fn all(checks: &mut Checks, place: &Place) {
    input(checks, place);
    output(checks, place);
    both(checks, place);
}

/// Reads to the end of a stream.
fn rest(stream: &InputStream) -> Result<Vec<u8>, StreamError> {
    let mut all = Vec::new();
    loop {
        match stream.blocking_read(64 * 1024) {
            Ok(piece) => all.extend(piece),
            Err(StreamError::Closed) => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

/// Writes as the standard's pseudo-code has it: check, write, flush.
fn write_all(stream: &OutputStream, mut content: &[u8]) -> Result<(), StreamError> {
    while !content.is_empty() {
        let permitted = match stream.check_write()? {
            0 => {
                stream.subscribe().block();
                continue;
            }
            permitted => content.len().min(permitted as usize),
        };
        stream.write(&content[..permitted])?;
        content = &content[permitted..];
    }
    stream.blocking_flush()
}

fn input(checks: &mut Checks, place: &Place) {
    checks.check("read-via-stream starts at its offset and ends with the file", || {
        let file = place.file("in", b"0123456789")?;
        same(&rest(&file.read_via_stream(4)?)?, &b"456789".to_vec())?;
        same(&rest(&file.read_via_stream(10)?)?, &Vec::new())?;
        same(&rest(&file.read_via_stream(1 << 40)?)?, &Vec::new())
    });
    checks.check("skip skips", || {
        let file = place.open("in", OpenFlags::empty(), DescriptorFlags::READ)?;
        let stream = file.read_via_stream(0)?;
        let mut skipped = 0;
        while skipped < 7 {
            skipped += stream.blocking_skip(7 - skipped)?;
        }
        same(&rest(&stream)?, &b"789".to_vec())
    });
    checks.check("a stream outlives its descriptor", || {
        let stream = place.open("in", OpenFlags::empty(), DescriptorFlags::READ)?.read_via_stream(0)?;
        same(&rest(&stream)?, &b"0123456789".to_vec())
    });
    checks.check("a file's stream is always ready", || {
        let file = place.open("in", OpenFlags::empty(), DescriptorFlags::READ)?;
        let stream = file.read_via_stream(0)?;
        let ready = stream.subscribe();
        ready.block();
        holds(ready.ready(), "not ready after block")?;
        drop(ready);
        holds(!stream.blocking_read(1)?.is_empty(), "ready, and nothing to read")
    });
    checks.check("a large file comes through a stream whole", || {
        let content: Vec<u8> = (0..LARGE).map(|at| (at * 7 + at / 1000) as u8).collect();
        let file = place.file("large", &content)?;
        holds(rest(&file.read_via_stream(0)?)? == content, "the content differs")
    });
}

fn output(checks: &mut Checks, place: &Place) {
    checks.check("write-via-stream writes from its offset on", || {
        let file = place.file("out", b"0123456789")?;
        let stream = file.write_via_stream(3)?;
        write_all(&stream, b"ab")?;
        write_all(&stream, b"c")?;
        same(&file.read(100, 0)?.0, &b"012abc6789".to_vec())
    });
    checks.check("append-via-stream writes at the end, wherever that is", || {
        let file = place.file("end", b"1;")?;
        let stream = file.append_via_stream()?;
        write_all(&stream, b"2;")?;
        file.write(b"3;", 4)?;
        write_all(&stream, b"4;")?;
        same(&file.read(100, 0)?.0, &b"1;2;3;4;".to_vec())
    });
    checks.check("a large piece goes through a stream whole", || {
        let content: Vec<u8> = (0..LARGE).map(|at| (at * 13 + at / 999) as u8).collect();
        let file = place.file("large-out", b"")?;
        write_all(&file.write_via_stream(0)?, &content)?;
        holds(rest(&file.read_via_stream(0)?)? == content, "the content differs")
    });
    checks.check("blocking-write-and-flush writes its most in one call", || {
        let file = place.file("most", b"")?;
        file.write_via_stream(0)?.blocking_write_and_flush(&[9; 4096])?;
        same(&file.stat()?.size, &4096)
    });
    checks.check("write-zeroes writes zeros", || {
        let file = place.file("zeroes", b"abcdefgh")?;
        let stream = file.write_via_stream(2)?;
        stream.blocking_write_zeroes_and_flush(3)?;
        same(&file.read(100, 0)?.0, &b"ab\0\0\0fgh".to_vec())
    });
}

fn both(checks: &mut Checks, place: &Place) {
    checks.check("splice moves bytes from file to file", || {
        let from = place.file("from", b"spliced content")?;
        let to = place.file("to", b"")?;
        let (input, output) = (from.read_via_stream(0)?, to.write_via_stream(0)?);
        let mut moved = 0;
        while moved < 15 {
            moved += output.blocking_splice(&input, 15 - moved)?;
        }
        output.blocking_flush()?;
        same(&to.read(100, 0)?.0, &b"spliced content".to_vec())
    });
    checks.check("a folder has no streams", || {
        let not_a_file = [ErrorCode::IsDirectory, ErrorCode::BadDescriptor];
        fails(place.folder.read_via_stream(0).map(drop), &not_a_file)?;
        fails(place.folder.write_via_stream(0).map(drop), &not_a_file)?;
        fails(place.folder.append_via_stream().map(drop), &not_a_file)
    });
}
