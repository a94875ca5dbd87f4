//! Files of the folders of code, in which anything may have been put.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use zone_vfs::device::open_regular;

/// The content of a file. What is no file gives [`ErrorKind::InvalidInput`]; no link is followed.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, File::options().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes whatever is at `path`: a folder with all that is in it, a link and not what it leads to. Nothing there is
/// no error.
pub(super) fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
