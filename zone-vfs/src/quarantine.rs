//! Where files go that are damaged: nobody reads them there, and nobody removes them but the operator.

use std::io;

use crate::device::Device;

/// The folder.
pub(crate) const FOLDER: &str = "quarantine";

/// Moves a file aside, and gives what it is called then.
pub(crate) fn set_aside(device: &dyn Device, path: &str) -> io::Result<String> {
    let name = free_name(device, path)?;
    device.rename(path, &name)?;
    Ok(name)
}

/// A free name under which a file can be set aside.
pub(crate) fn free_name(device: &dyn Device, path: &str) -> io::Result<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, extension) = match name.split_once('.') {
        Some((stem, extension)) => (stem, format!(".{extension}")),
        None => (name, String::new()),
    };
    let taken = device.list(FOLDER)?;
    // each name is free or counted, so one of these is free
    let mut names = (0..=taken.len()).map(|n| format!("{stem}-{n}{extension}"));
    let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
    Ok(format!("{FOLDER}/{name}"))
}
