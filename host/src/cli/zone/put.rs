//! `zone put`.

use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;
use zone_vfs::contract::{Operation, ZoneKind};
use zone_vfs::id::Inode;
use zone_vfs::tree::FileKind;
use zone_vfs::zone::{ErrorCode, Expected, MAX_FILE_SIZE, OpenOptions, ZoneError};

use super::MAX_DEPTH;
use super::place::{PIECE, Place, View, child, means_content};
use crate::Host;
use crate::cli::output::{count, note, print_json, size};

/// Piped input up to this size stays in memory; a larger one goes to a temporary file without a name.
/// Bytes.
const IN_MEMORY: usize = 8 << 20;

/// What came through standard input, whole.
pub struct Piped(tempfile::SpooledTempFile);

/// Reads standard input to its end.
pub fn read_input() -> anyhow::Result<Piped> {
    let mut spooled = tempfile::SpooledTempFile::new(IN_MEMORY);
    let mut input = std::io::stdin().lock().take(MAX_FILE_SIZE + 1);
    let mut piece = vec![0; PIECE];
    let mut len = 0;
    loop {
        let read = match input.read(&mut piece) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.context("reading standard input")?,
        };
        if read == 0 {
            break;
        }
        len += read as u64;
        if len > MAX_FILE_SIZE {
            bail!("standard input has more than {}: that is no file's size", size(MAX_FILE_SIZE));
        }
        spooled.write_all(&piece[..read]).context("keeping standard input in a temporary file")?;
    }
    spooled.rewind().context("keeping standard input in a temporary file")?;
    Ok(Piped(spooled))
}

/// Copies a file, a folder or standard input into a zone, as a whole or not at all. Into a shared zone each file
/// is put as a whole, and those that were put before an error stay: others have seen them.
///
/// With something `expected`, only a file, and only where what is there is that.
pub fn put(
    host: &Host,
    place: &Place,
    expected: Expected,
    local: &Path,
    piped: Option<Piped>,
    as_json: bool,
) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    view.writable()?;
    let path = destination(&mut view, local, piped.is_some())?;
    if expected != Expected::Any {
        if piped.is_none() && local.is_dir() {
            bail!("{} is a folder: --expect is about one file", local.display());
        }
        expect(&mut view, &path, expected)?;
    }
    let result = match piped {
        Some(Piped(mut input)) => put_file(&mut view, &path, &mut input).map(|bytes| (1, bytes)),
        None => put_tree(&mut view, &path, local, 0),
    };
    let (files, bytes) = match result {
        Ok(counts) => counts,
        Err(e) => {
            // nothing half done: what was written so far is not committed
            view.abandon()?;
            return Err(e);
        }
    };
    view.commit()?;
    if as_json {
        print_json(&json!({ "path": view.shown(&path), "files": files, "bytes": bytes }))?;
        return Ok(0);
    }
    note(format_args!("put {} ({}) into {}", count(files, "file"), size(bytes), view.shown(&path)));
    Ok(0)
}

/// Refuses a path at which something else is than expected. Nothing comes between this and what is written: the store is
/// this process's, and all is one commit.
pub fn expect(view: &mut View, path: &str, expected: Expected) -> anyhow::Result<()> {
    let keeps_versions = view.with(path, |z, _| Ok(z.kind().keeps_versions()))?;
    if matches!(expected, Expected::Version(_)) && !keeps_versions {
        bail!("{}: files of this zone have no versions: only `none` can be expected", view.shown(path));
    }
    let found = match view.resolve(path, true) {
        Err(e) if e.downcast_ref::<ZoneError>().is_some_and(|e| e.code == ErrorCode::NoEntry) => None,
        found => Some(found?),
    };
    let version = match &found {
        Some(stat) if keeps_versions => view.with(path, |z, _| z.current(stat.inode))?,
        _ => None,
    };
    match (expected, found, version) {
        (Expected::Version(wanted), _, Some(version)) if version == wanted => Ok(()),
        (Expected::Missing, None, _) | (Expected::Any, ..) => Ok(()),
        (_, None, _) => bail!("{}: no such file, where a version was expected", view.shown(path)),
        (_, Some(_), Some(version)) => bail!("{} has changed: it is at version {version}", view.shown(path)),
        (_, Some(_), None) => bail!("{} is there, and no version of it was expected", view.shown(path)),
    }
}

/// Where `local` goes, as `cp -r` decides: into a folder that is there, under its own name, or to the
/// path itself.
fn destination(view: &mut View, local: &Path, is_piped: bool) -> anyhow::Result<String> {
    let path = view.path.clone();
    let folder = match view.resolve(&path, true) {
        Ok(stat) => stat.kind == FileKind::Directory,
        Err(_) if view.is_folder && !local.is_dir() => {
            bail!("{}/ is no folder: there is nothing of this name", view.target())
        }
        Err(_) => false,
    };
    let is_content = !is_piped && means_content(local);
    if !folder || (is_content && local.is_dir()) {
        return Ok(path);
    }
    match local.file_name() {
        Some(name) if !is_piped => Ok(child(&path, &name.to_string_lossy())),
        _ => bail!("{} is a folder: name the file in it", view.target()),
    }
}

/// Says that something is not copied.
pub fn left_out(path: &Path, what: &str) {
    // `site/./link` is written without the dot
    let path: PathBuf = path.components().collect();
    note(format_args!("left out {}: {what}", path.display()));
}

/// The names in logs that the operator writes nothing to: what stands there tells what happened.
const OF_HOST: [&str; 3] = ["audit", "stdout", "stderr"];

/// Refuses what is the host's in logs: the operator acts as the host, and what is put there cannot be taken back.
fn refuse_of_host(view: &mut View, path: &str) -> anyhow::Result<()> {
    let top = path.trim_matches('/').split('/').next().unwrap_or_default();
    if OF_HOST.contains(&top) && view.with(path, |z, _| Ok(z.kind() == ZoneKind::Logs))? {
        let why = if top == "audit" {
            "is written by the host alone"
        } else {
            "holds what the guest has printed, which nobody else adds to"
        };
        bail!("{} is not permitted: `{top}` in logs {why}", view.shown(path));
    }
    Ok(())
}

/// Writes one file into a zone. In a shared one it gets its name when it is whole, in one step with the removal of what
/// is there: nobody sees half of it, nor another name.
fn put_file(view: &mut View, path: &str, source: &mut dyn Read) -> anyhow::Result<u64> {
    refuse_of_host(view, path)?;
    if !view.is_shared() {
        return write_file(view, path, source);
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() {
        bail!("{} is a folder: name the file in it", view.shown(path));
    }
    // a name that nobody sees: it is there within one step alone
    let temporary = child(folder, &format!(".dormouse-put-{}", std::process::id()));
    let (unseen, named) = ((Inode::ROOT, temporary.as_bytes()), (Inode::ROOT, path.as_bytes()));
    let options = OpenOptions { create: true, exclusive: true, write: true, ..OpenOptions::default() };
    let inode = view.with(path, |z, access| {
        let inode = z.open(access, unseen.0, unseen.1, options)?;
        match z.unlink(access, unseen.0, unseen.1) {
            Ok(()) => Ok(inode),
            Err(e) => z.close_writer(inode).and(Err(e)),
        }
    })?;
    let written = copy(view, inode, path, source).and_then(|bytes| {
        view.with(path, |z, access| {
            z.link_unnamed(access, inode, unseen)?;
            match z.rename(access, unseen, named) {
                Ok(()) => Ok(bytes),
                Err(e) => z.unlink(access, unseen.0, unseen.1).and(Err(e)),
            }
        })
    });
    view.with(path, |z, _| z.close_writer(inode))?;
    written
}

/// In place on zones where names can be replaced, new otherwise. Errors name `target`.
fn write_file(view: &mut View, target: &str, source: &mut dyn Read) -> anyhow::Result<u64> {
    let options =
        OpenOptions { create: true, truncate: true, write: true, follow: true, ..OpenOptions::default() };
    let append_only = view.with(target, |z, _| Ok(z.kind().is_append_only()))?;
    let options =
        if append_only { OpenOptions { truncate: false, exclusive: true, ..options } } else { options };
    let inode = view.with(target, |z, access| {
        let opened = z.open(access, Inode::ROOT, target.as_bytes(), options);
        if append_only && opened.as_ref().is_err_and(|e| e.code == ErrorCode::Exist) {
            // a file that is there would have to be overwritten: the contract says why not
            z.check(access, Operation::Overwrite)?;
        }
        opened
    })?;
    let written = copy(view, inode, target, source);
    view.with(target, |z, _| z.close_writer(inode))?;
    written
}

/// Writes all that `source` has to an open file, and gives how much that is. Errors name `target`.
fn copy(view: &mut View, inode: Inode, target: &str, source: &mut dyn Read) -> anyhow::Result<u64> {
    let mut at = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let read = source.read(&mut piece).context("reading what is to be put")?;
        if read == 0 {
            return Ok(at);
        }
        let mut rest = &piece[..read];
        while !rest.is_empty() {
            let n = view.with(target, |z, access| z.write(access, inode, at, rest))?;
            rest = &rest[n..];
            at += n as u64;
        }
    }
}

fn put_tree(view: &mut View, path: &str, local: &Path, depth: usize) -> anyhow::Result<(u64, u64)> {
    refuse_of_host(view, path)?;
    let found = std::fs::metadata(local).with_context(|| format!("reading {}", local.display()))?;
    if !found.is_dir() && !found.is_file() {
        bail!("{} is no file and no folder", local.display());
    }
    if !found.is_dir() {
        let mut file = std::fs::File::open(local).with_context(|| format!("reading {}", local.display()))?;
        return Ok((1, put_file(view, path, &mut file)?));
    }
    if depth >= MAX_DEPTH {
        bail!("{} lies more than {MAX_DEPTH} folders deep", local.display());
    }
    if !path.is_empty() {
        match view.resolve(path, true) {
            Ok(stat) if stat.kind == FileKind::Directory => {}
            Ok(_) => bail!("{} is there, and is no folder", view.shown(path)),
            Err(_) => {
                view.with(path, |z, access| z.mkdir(access, Inode::ROOT, path.as_bytes()).map(|_| ()))?;
            }
        }
    }
    let (mut files, mut bytes) = (0, 0);
    let mut entries = std::fs::read_dir(local)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("reading {}", local.display()))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if !kind.is_dir() && !kind.is_file() {
            let what = if kind.is_symlink() { "a symbolic link" } else { "no file and no folder" };
            left_out(&entry.path(), what);
            continue;
        }
        let child = child(path, &entry.file_name().to_string_lossy());
        let (f, b) = put_tree(view, &child, &entry.path(), depth + 1)?;
        files += f;
        bytes += b;
    }
    Ok((files, bytes))
}
