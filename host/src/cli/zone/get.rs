//! `zone get`. It writes nowhere outside the folder that is named, and follows no link there.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions as LocalOptions};
use rustix::fs::{Mode, OFlags, openat};
use serde_json::json;
use zone_vfs::id::Inode;
use zone_vfs::tree::FileKind;

use super::MAX_DEPTH;
use super::place::{Place, View, child, means_content};
use super::put::left_out;
use crate::Host;
use crate::cli::output::{count, note, print_json, size};
use crate::cli::terminal;

/// Copies a file or folder out of a zone.
pub fn get(host: &Host, place: &Place, local: Option<PathBuf>, as_json: bool) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    let stat = view.resolve_target()?;
    let path = view.path.clone();
    if local.as_deref() == Some(Path::new("-")) {
        if stat.kind == FileKind::Directory {
            bail!("{} is a folder: it cannot be written to standard output", view.target());
        }
        let mut bytes = 0;
        view.content(&path, stat.inode, |piece| {
            bytes += piece.len() as u64;
            terminal::print(piece)
        })?;
        if as_json {
            note(format_args!(
                "{}",
                json!({ "path": view.target(), "into": "-", "files": 1, "bytes": bytes })
            ));
        }
        return Ok(0);
    }
    let local = local.unwrap_or_else(|| PathBuf::from("."));
    let is_content = means_content(Path::new(place.path.as_deref().unwrap_or_default()));
    let is_folder = stat.kind == FileKind::Directory;
    let mut counts = (0, 0);
    // as `cp -r` decides: into a folder that is there, under its own name, or to the path itself
    let local = if local.is_dir() && !(is_folder && is_content) {
        let name = view.name().to_string();
        let shown = local.join(&name);
        // everything is done relative to a folder that was named, and leaves it by no path and no link
        let folder = open(&local)?;
        if is_folder {
            let inner = enter(&folder, &name, &shown)?;
            get_tree(&mut view, &path, stat.inode, &inner, &shown, 0, &mut counts)?;
        } else {
            get_file(&mut view, &path, stat.inode, &folder, &name, &mut counts)
                .with_context(|| shown.display().to_string())?;
        }
        shown
    } else if is_folder {
        std::fs::create_dir_all(&local).with_context(|| format!("making {}", local.display()))?;
        let folder = open(&local)?;
        get_tree(&mut view, &path, stat.inode, &folder, &local, 0, &mut counts)?;
        local
    } else {
        let name = local.file_name().ok_or_else(|| anyhow!("{} names no file", local.display()))?;
        let parent = local.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = open(parent)?;
        get_file(&mut view, &path, stat.inode, &folder, &name.to_string_lossy(), &mut counts)
            .with_context(|| local.display().to_string())?;
        local
    };
    let (files, bytes) = counts;
    if as_json {
        let into = local.display().to_string();
        print_json(&json!({ "path": view.target(), "into": into, "files": files, "bytes": bytes }))?;
        return Ok(0);
    }
    note(format_args!("got {} ({}) into {}", count(files, "file"), size(bytes), local.display()));
    Ok(0)
}

fn open(folder: &Path) -> anyhow::Result<Dir> {
    Dir::open_ambient_dir(folder, ambient_authority())
        .with_context(|| format!("opening {}", folder.display()))
}

/// The folder of this name in another, made where there is none; not one behind a link.
fn enter(folder: &Dir, name: &str, shown: &Path) -> anyhow::Result<Dir> {
    let at = || shown.display().to_string();
    match folder.create_dir(name) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(anyhow::Error::new(e).context(at()));
        }
        _ => {}
    }
    if !folder.symlink_metadata(name).with_context(at)?.is_dir() {
        bail!("{} is there, and is no folder", shown.display());
    }
    folder.open_dir(name).with_context(at)
}

/// What is there under the name of a file that is to be written.
enum There {
    /// Nothing, or a file, which is replaced.
    Room,
    /// A device, a pipe or a socket: what is got is written into it, and it stays.
    Node(std::fs::File),
}

/// As `cp` decides, but that no link is followed.
fn what_is_there(folder: &Dir, name: &str) -> anyhow::Result<There> {
    match folder.symlink_metadata(name) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(There::Room),
        Ok(found) if found.is_file() => return Ok(There::Room),
        Ok(found) if found.is_symlink() => bail!("a symbolic link is there, and none is followed"),
        Ok(found) if found.is_dir() => bail!("a folder is there"),
        found => found?,
    };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let node = std::fs::File::from(openat(folder, name, flags, Mode::empty())?);
    if node.metadata()?.is_file() {
        bail!("a file has come there meanwhile");
    }
    Ok(There::Node(node))
}

/// Writes a file beside its name and renames it.
fn get_file(
    view: &mut View,
    path: &str,
    inode: Inode,
    folder: &Dir,
    name: &str,
    counts: &mut (u64, u64),
) -> anyhow::Result<()> {
    if let There::Node(mut node) = what_is_there(folder, name)? {
        view.content(path, inode, |piece| {
            counts.1 += piece.len() as u64;
            node.write_all(piece)
        })?;
        counts.0 += 1;
        return Ok(());
    }
    let temporary = format!(".dormouse-get-{}-{}", std::process::id(), counts.0);
    let mut file = folder.open_with(&temporary, LocalOptions::new().write(true).create_new(true))?;
    let mut bytes = 0;
    let written = view.content(path, inode, |piece| {
        bytes += piece.len() as u64;
        file.write_all(piece)
    });
    drop(file);
    match written.and_then(|()| folder.rename(&temporary, folder, name).map_err(Into::into)) {
        Ok(()) => {
            counts.0 += 1;
            counts.1 += bytes;
            Ok(())
        }
        Err(e) => {
            folder.remove_file(&temporary).with_context(|| format!("removing {temporary}"))?;
            Err(e)
        }
    }
}

fn get_tree(
    view: &mut View,
    path: &str,
    inode: Inode,
    folder: &Dir,
    shown: &Path,
    depth: usize,
    counts: &mut (u64, u64),
) -> anyhow::Result<()> {
    if depth >= MAX_DEPTH {
        bail!("{} lies more than {MAX_DEPTH} folders deep", shown.display());
    }
    for (name, stat) in view.list(path, inode)? {
        let (path, shown) = (child(path, &name), shown.join(&name));
        match stat.kind {
            FileKind::Regular => get_file(view, &path, stat.inode, folder, &name, counts)
                .with_context(|| shown.display().to_string())?,
            FileKind::Directory => {
                let inner = enter(folder, &name, &shown)?;
                get_tree(view, &path, stat.inode, &inner, &shown, depth + 1, counts)?;
            }
            FileKind::Symlink => left_out(&shown, "a symbolic link"),
        }
    }
    Ok(())
}
