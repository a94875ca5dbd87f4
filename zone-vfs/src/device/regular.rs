//! Files of a store, opened by path.
//!
//! Whoever can write to a store's folder can put anything there under the name of a file. So no link is followed,
//! and what is no file is refused, without waiting for whoever is at the other end of a pipe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Opens the regular file at `path`, or makes it, as `options` say. Flags that they have of their own are replaced.
///
/// # Errors
///
/// Those of the system; and [`io::ErrorKind::InvalidInput`] where a link, a folder, a pipe, a device or a socket is there.
pub fn open_regular(path: &Path, options: &OpenOptions) -> io::Result<File> {
    open_regular_with(path, options, 0)
}

/// As [`open_regular`], with more flags of `open(2)`.
pub(super) fn open_regular_with(path: &Path, options: &OpenOptions, flags: i32) -> io::Result<File> {
    let mut options = options.clone();
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | flags);
    let file = match options.open(path) {
        Ok(file) => file,
        // a link, a pipe or a socket is refused before it can be looked at
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        Err(error) => {
            let is_other = path.symlink_metadata().is_ok_and(|found| !found.is_file());
            return Err(if is_other { refused(path) } else { error });
        }
    };
    if !file.metadata()?.is_file() {
        return Err(refused(path));
    }
    // of a file that is not to wait, io_uring gives up reads and writes that would have to
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn refused(path: &Path) -> io::Error {
    let reason = format!("{} is a link, or no file: nothing of a store is that", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn files_are_opened_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (mut reading, mut writing, mut making) =
            (OpenOptions::new(), OpenOptions::new(), OpenOptions::new());
        reading.read(true);
        writing.write(true).truncate(true);
        making.write(true).create(true).truncate(true);
        open_regular(&path("file"), &making).unwrap().write_all(b"content").unwrap();
        let mut content = String::new();
        let mut file = open_regular(&path("file"), &reading).unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
        assert_eq!(open_regular(&path("none"), &reading).unwrap_err().kind(), io::ErrorKind::NotFound);

        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("none"), path("dangling")).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(fifo.success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["link", "dangling", "folder", "fifo", "socket"] {
            for options in [&reading, &writing, &making] {
                let error = open_regular(&path(name), options).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
                assert!(error.to_string().contains(name), "{error}");
            }
        }
        assert_eq!(std::fs::read(path("file")).unwrap(), b"content");
        assert!(!path("none").exists());
    }
}
