//! `zone rm`.

use anyhow::bail;
use serde_json::json;
use zone_vfs::id::{Inode, Version};
use zone_vfs::tree::FileKind;
use zone_vfs::zone::Expected;

use super::MAX_DEPTH;
use super::place::{Place, View, child};
use super::put;
use crate::Host;
use crate::cli::output::print_json;

/// Removes a file or folder, as a whole or not at all; in a shared zone file by file. With a version `expected`, only a file
/// that stands at it.
pub fn remove(
    host: &Host,
    place: &Place,
    expected: Option<u64>,
    recursive: bool,
    as_json: bool,
) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    view.writable()?;
    let path = view.path.clone();
    if path.is_empty() {
        bail!("{} is a zone: it goes with its agent", view.target());
    }
    if let Some(version) = expected {
        put::expect(&mut view, &path, Expected::Version(Version(version)))?;
    }
    let mut removed = Removed::default();
    if let Err(e) = remove_tree(&mut view, &path, recursive, 0, &mut removed) {
        view.abandon()?;
        return Err(e);
    }
    view.commit()?;
    if as_json {
        let Removed { files, folders } = removed;
        print_json(&json!({ "path": view.target(), "files": files, "folders": folders }))?;
    }
    Ok(0)
}

/// What was removed.
#[derive(Default)]
struct Removed {
    /// Files and links.
    files: u64,
    folders: u64,
}

fn remove_tree(
    view: &mut View,
    path: &str,
    recursive: bool,
    depth: usize,
    removed: &mut Removed,
) -> anyhow::Result<()> {
    let stat = view.resolve(path, false)?;
    if stat.kind != FileKind::Directory {
        view.with(path, |z, access| z.unlink(access, Inode::ROOT, path.as_bytes()))?;
        removed.files += 1;
        return Ok(());
    }
    if !recursive {
        bail!("{} is a folder: remove it with --recursive", view.shown(path));
    }
    if depth >= MAX_DEPTH {
        bail!("{} lies more than {MAX_DEPTH} folders deep", view.shown(path));
    }
    for (name, _) in view.list(path, stat.inode)? {
        remove_tree(view, &child(path, &name), recursive, depth + 1, removed)?;
    }
    view.with(path, |z, access| z.rmdir(access, Inode::ROOT, path.as_bytes()))?;
    removed.folders += 1;
    Ok(())
}
