//! Offsets and lengths at the edges of their types.

use test_programs::{Checks, holds, preopen, same};
use wasip2::filesystem::types::{Advice, Descriptor, DescriptorFlags, OpenFlags, PathFlags};
use wasip2::io::streams::StreamError;

const FILE: &str = "sizes.tmp";
/// Offsets that overflow when something is added to them or when they become signed.
const EDGES: [u64; 6] =
    [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, i64::MAX as u64 - 4096, u64::MAX - 65_535];

pub fn all(checks: &mut Checks, folder: &str) {
    let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let open = || {
        let flags_open = OpenFlags::CREATE | OpenFlags::TRUNCATE;
        preopen(folder)?.open_at(PathFlags::empty(), FILE, flags_open, flags).map_err(Into::into)
    };
    let file: Result<Descriptor, Box<dyn std::error::Error>> = open();
    let Ok(file) = file else {
        return checks.check("sizes: a file to work on", || Err("it could not be created".into()));
    };
    checks.check("reading far behind the end gives nothing, or an error", || {
        file.write(b"abc", 0)?;
        for offset in EDGES {
            if let Ok((bytes, _)) = file.read(4096, offset) {
                same(&bytes.len(), &0)?;
            }
        }
        Ok(())
    });
    checks.check("reading with any length gives what is there at most", || {
        for length in EDGES {
            if let Ok((bytes, _)) = file.read(length, 0) {
                holds(bytes.len() <= 3, "more bytes than the file has")?;
            }
        }
        Ok(())
    });
    checks.check("writing at the end of all offsets is refused", || {
        for offset in EDGES {
            holds(file.write(b"xyz", offset).is_err(), &format!("a write at {offset} succeeded"))?;
        }
        same(&file.stat()?.size, &3)
    });
    checks.check("sizes that no file can have are refused", || {
        for size in [u64::MAX, 1 << 63] {
            holds(file.set_size(size).is_err(), &format!("a size of {size} was taken"))?;
        }
        same(&file.stat()?.size, &3)
    });
    checks.check("streams at the end of all offsets hold nothing", || {
        for offset in EDGES {
            if let Ok(stream) = file.read_via_stream(offset) {
                let read = stream.blocking_read(u64::MAX);
                holds(!read.is_ok_and(|bytes| !bytes.is_empty()), "bytes came from nowhere")?;
            }
            if let Ok(stream) = file.write_via_stream(offset) {
                holds(stream.blocking_write_and_flush(b"xyz").is_err(), "a write succeeded")?;
            }
        }
        same(&file.stat()?.size, &3)
    });
    checks.check("a stream skips no more than there is", || {
        let stream = file.read_via_stream(0)?;
        match stream.blocking_skip(u64::MAX) {
            Ok(skipped) => holds(skipped <= 3, "it skipped more than the file has"),
            Err(StreamError::Closed) => Ok(()),
            Err(error) => Err(error.into()),
        }
    });
    checks.check("advise takes any range or refuses it", || {
        for offset in EDGES {
            for length in EDGES {
                // Either answer is right; what counts is that there is one.
                _ = file.advise(offset, length, Advice::WillNeed);
            }
        }
        same(&file.stat()?.size, &3)
    });
    drop(file);
    checks.check("the file can be removed", || preopen(folder)?.unlink_file_at(FILE).map_err(Into::into));
}

/// Asks for four exabytes of randomness at once.
pub fn read_huge() {
    println!("{} bytes", wasip2::random::random::get_random_bytes(1 << 62).len());
}
