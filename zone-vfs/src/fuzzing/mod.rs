//! What the fuzz targets call, in a build with the feature `fuzzing`; tests call the same.
//!
//! Each function takes any bytes. It panics where the store would do what it must never do: panic
//! itself, take damage for content, leave a half-done operation, or disagree with a plain model.
//! `fuzz/` holds the targets and how they are run.

mod exports;
mod input;
mod paths;
mod records;
#[cfg(test)]
mod seeds;
mod segments;
#[cfg(test)]
mod tests;
mod trees;

pub use exports::exports;
pub use paths::paths;
pub use records::records;
pub use segments::segments;
pub use trees::trees;

use crate::zone::Zone;
use input::Input;

/// The longest input that is looked at; more teaches nothing. Bytes.
pub const MAX_INPUT: usize = 16 << 10;

/// Uses everything in a zone that may be damaged: errors are as good as answers.
fn use_all(zone: &mut Zone) {
    use crate::contract::Principal;
    use crate::id::{Inode, Timestamp};
    use crate::tree::FileKind;
    use crate::zone::{Access, OpenOptions};

    /// A damaged zone can be a loop of directories.
    const MAX_VISITED: usize = 200;
    let access = Access::new(Principal::Agent, Timestamp(3));
    let write = OpenOptions { create: true, read: true, write: true, ..OpenOptions::default() };
    let mut directories = vec![Inode::ROOT];
    let mut visited = 0;
    while let Some(directory) = directories.pop() {
        for entry in zone.readdir(access, directory, None, 50).unwrap_or_default() {
            visited += 1;
            if visited > MAX_VISITED {
                return;
            }
            let name = entry.name.as_bytes().to_vec();
            let _ = zone.stat(access, entry.inode);
            let _ = zone.resolve(access, directory, &name, true);
            let _ = zone.readlink(access, directory, &name);
            if entry.kind == FileKind::Directory {
                directories.push(entry.inode);
                let _ = zone.resolve(access, entry.inode, b"../..", true);
                let _ = zone.open(access, entry.inode, b"new", write);
                continue;
            }
            if let Ok(inode) = zone.open(access, directory, &name, write) {
                let mut buffer = [0; 300];
                let _ = zone.read(access, inode, 0, &mut buffer);
                let _ = zone.write(access, inode, 70_000, b"more");
                let _ = zone.append(access, inode, b"more");
                let _ = zone.set_size(access, inode, 10);
                let _ = zone.close(inode);
            }
            if visited % 3 == 0 {
                let _ = zone.unlink(access, directory, &name);
                let _ = zone.rmdir(access, directory, &name);
            } else if visited % 3 == 1 {
                let _ = zone.rename(access, (directory, &name), (Inode::ROOT, b"moved"));
            }
        }
    }
    let _ = zone.drain_changes(&crate::zone::DrainLimits::default());
    let _ = zone.snapshot();
}
