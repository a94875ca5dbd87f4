//! The operator's view of an agent's zones.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions as LocalOptions};
use serde_json::json;
use zone_vfs::contract::{Operation, Principal};
use zone_vfs::id::{GenerationNumber, Inode, Timestamp};
use zone_vfs::store::wait;
use zone_vfs::tree::{FileKind, Name};
use zone_vfs::zone::{Access, ErrorCode, OpenOptions, Stat, Zone, ZoneError};

use super::args::{ZoneArguments, ZoneCommand};
use super::output::{print_json, print_table, size, table, time};
use super::terminal;
use crate::{Agent, Host};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// Folders within folders, at most.
const MAX_DEPTH: usize = 256;

/// `N[@GEN][:PATH]`.
struct Place {
    name: String,
    generation: Option<u64>,
    path: Option<String>,
}

fn parse(text: &str) -> anyhow::Result<Place> {
    let (agent, path) = match text.split_once(':') {
        Some((agent, path)) => (agent, Some(path.to_string())),
        None => (text, None),
    };
    let (name, generation) = match agent.split_once('@') {
        Some((name, number)) => {
            let number =
                number.parse().map_err(|_| anyhow!("`{number}` is no generation: write N@GEN:PATH"))?;
            (name, Some(number))
        }
        None => (agent, None),
    };
    Ok(Place { name: name.into(), generation, path })
}

/// A zone of an agent, now or in a generation, and a path in it.
struct View {
    agent: Agent,
    zone: u16,
    past: Option<Zone>,
    /// Relative to the zone's root; empty for the root itself.
    path: String,
    /// As it was asked for, for messages.
    shown: String,
}

impl View {
    fn open(host: &Host, place: &Place) -> anyhow::Result<Self> {
        let agent = host.agent(&place.name)?;
        let Some(path) = &place.path else {
            bail!("give a path: {}:/workspace, for example", place.name);
        };
        let absolute = format!("/{}", path.trim_start_matches('/'));
        let zones = agent.disk().zones();
        let found = zones
            .iter()
            .enumerate()
            .filter(|(_, z)| absolute == z.mount || absolute.starts_with(&format!("{}/", z.mount)))
            .max_by_key(|(_, z)| z.mount.len());
        let Some((index, spec)) = found else {
            let mounts: Vec<_> = zones.iter().map(|z| z.mount.as_str()).collect();
            bail!("{absolute} is in no zone of {}: there are {}", place.name, mounts.join(", "));
        };
        let zone = index as u16;
        let past = match place.generation {
            Some(number) => Some(agent.disk().zone_at(GenerationNumber(number), zone)?),
            None => None,
        };
        let path = absolute[spec.mount.len()..].trim_start_matches('/').to_string();
        let shown = format!("{}:{absolute}", place.name);
        Ok(Self { agent, zone, past, path, shown })
    }

    fn with<R>(&mut self, work: impl FnOnce(&mut Zone, Access) -> Result<R, ZoneError>) -> anyhow::Result<R> {
        let access = Access::new(Principal::Host, Timestamp::now());
        let result = match &mut self.past {
            Some(zone) => work(zone, access),
            None => self
                .agent
                .disk()
                .zone(self.zone, |zone| work(zone, access))
                .ok_or_else(|| anyhow!("the zone is gone"))?,
        };
        result.map_err(|e| anyhow::Error::new(e).context(self.shown.clone()))
    }

    fn writable(&self) -> anyhow::Result<()> {
        if self.past.is_some() {
            bail!("{}: a generation cannot be changed", self.shown)
        }
        Ok(())
    }

    fn resolve(&mut self, path: &str, follow: bool) -> anyhow::Result<Stat> {
        let path = path.to_string();
        self.with(|z, access| {
            let inode = if path.is_empty() {
                Inode::ROOT
            } else {
                z.resolve(access, Inode::ROOT, path.as_bytes(), follow)?
            };
            z.stat(access, inode)
        })
    }

    fn list(&mut self, inode: Inode) -> anyhow::Result<Vec<(String, Vec<u8>, Stat)>> {
        let mut all = Vec::new();
        let mut after: Option<Name> = None;
        loop {
            let last = after.clone();
            let some = self.with(|z, access| {
                let entries = z.readdir(access, inode, last.as_ref(), 1000)?;
                entries
                    .into_iter()
                    .map(|e| Ok((z.stat(access, e.inode)?, e.name)))
                    .collect::<Result<Vec<_>, ZoneError>>()
            })?;
            let Some((_, last)) = some.last() else { return Ok(all) };
            after = Some(last.clone());
            for (stat, name) in some {
                all.push((
                    String::from_utf8_lossy(name.as_bytes()).into_owned(),
                    name.as_bytes().to_vec(),
                    stat,
                ));
            }
        }
    }

    /// Hands the content of a file on, piece by piece.
    fn content(
        &mut self,
        inode: Inode,
        mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        self.with(|z, _| z.open_inode(inode))?;
        let result = (|| {
            let mut at = 0;
            let mut piece = vec![0; PIECE];
            loop {
                let read = self.with(|z, access| z.read(access, inode, at, &mut piece))?;
                if read == 0 {
                    return Ok(());
                }
                each(&piece[..read])?;
                at += read as u64;
            }
        })();
        self.with(|z, _| z.close(inode))?;
        result
    }

    /// Makes what was written durable.
    fn commit(&self) -> anyhow::Result<()> {
        Ok(wait(|done| self.agent.disk().sync(done))?)
    }
}

pub fn zone(host: &Host, a: ZoneArguments) -> anyhow::Result<u8> {
    match a.command {
        ZoneCommand::Ls { json, recursive, place } => list(host, &parse(&place)?, json, recursive),
        ZoneCommand::Cat { place } => cat(host, &parse(&place)?),
        ZoneCommand::Put { place, local } => put(host, &parse(&place)?, &local),
        ZoneCommand::Get { place, local } => get(host, &parse(&place)?, local),
        ZoneCommand::Rm { recursive, place } => remove(host, &parse(&place)?, recursive),
    }
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "folder",
        FileKind::Symlink => "link",
    }
}

fn list(host: &Host, place: &Place, json: bool, recursive: bool) -> anyhow::Result<u8> {
    if place.path.is_none() {
        return list_zones(host, place, json);
    }
    let mut view = View::open(host, place)?;
    let root = view.resolve(&view.path.clone(), true)?;
    let mut found = Vec::new();
    if root.kind == FileKind::Directory {
        let mut folders = vec![(String::new(), root.inode, 0)];
        while let Some((prefix, inode, depth)) = folders.pop() {
            for (name, _, stat) in view.list(inode)? {
                let path = format!("{prefix}{name}");
                if recursive && stat.kind == FileKind::Directory && depth < MAX_DEPTH {
                    folders.push((format!("{path}/"), stat.inode, depth + 1));
                }
                found.push((path, stat));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
    } else {
        found.push((view.path.clone(), root));
    }
    if json {
        let rows: Vec<_> = found
            .iter()
            .map(|(path, s)| {
                json!({ "path": path, "kind": kind(s.kind), "bytes": s.size, "links": s.links, "modified": time(s.modified) })
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = found
        .into_iter()
        .map(|(path, s)| {
            let mut shown = time(s.modified);
            shown.truncate(19);
            let slash = if s.kind == FileKind::Directory { "/" } else { "" };
            vec![kind(s.kind).into(), size(s.size), shown, format!("{path}{slash}")]
        })
        .collect();
    print_table(&table(&["KIND", "SIZE", "MODIFIED", "NAME"], &[1], rows))?;
    Ok(0)
}

fn list_zones(host: &Host, place: &Place, json: bool) -> anyhow::Result<u8> {
    let agent = host.agent(&place.name)?;
    let mut rows = Vec::new();
    for (index, spec) in agent.disk().zones().into_iter().enumerate() {
        let usage = match place.generation {
            Some(number) => agent.disk().zone_at(GenerationNumber(number), index as u16)?.usage(),
            None => agent.disk().zone(index as u16, |z| z.usage()).unwrap_or_default(),
        };
        rows.push((spec, usage));
    }
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(z, usage)| {
                json!({
                    "name": z.name, "mount": z.mount, "kind": z.kind.name(), "bytes": usage.bytes,
                    "quota_bytes": z.quota.bytes, "inodes": usage.inodes, "quota_inodes": z.quota.inodes,
                })
            })
            .collect();
        print_json(&rows)?;
        return Ok(0);
    }
    let rows = rows
        .into_iter()
        .map(|(z, usage)| vec![z.mount, z.kind.to_string(), size(usage.bytes), size(z.quota.bytes)])
        .collect();
    print_table(&table(&["MOUNT", "KIND", "USED", "QUOTA"], &[2, 3], rows))?;
    Ok(0)
}

fn cat(host: &Host, place: &Place) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    let stat = view.resolve(&view.path.clone(), true)?;
    if stat.kind == FileKind::Directory {
        bail!("{} is a folder", view.shown);
    }
    view.content(stat.inode, terminal::print)?;
    Ok(0)
}

/// Writes one file into a zone: in place on zones where names can be replaced, new otherwise.
fn put_file(view: &mut View, path: &str, source: &mut dyn Read) -> anyhow::Result<u64> {
    let options =
        OpenOptions { create: true, truncate: true, write: true, follow: true, ..OpenOptions::default() };
    let append_only = view.with(|z, _| Ok(z.kind().is_append_only()))?;
    let options =
        if append_only { OpenOptions { truncate: false, exclusive: true, ..options } } else { options };
    let inode = view.with(|z, access| {
        let opened = z.open(access, Inode::ROOT, path.as_bytes(), options);
        if append_only && opened.as_ref().is_err_and(|e| e.code == ErrorCode::Exist) {
            // a file that is there would have to be overwritten: the contract says why not
            z.check(access, Operation::Overwrite)?;
        }
        opened
    })?;
    let written = (|| {
        let mut at = 0;
        let mut piece = vec![0; PIECE];
        loop {
            let read = source.read(&mut piece).context("reading what is to be put")?;
            if read == 0 {
                return Ok(at);
            }
            let mut rest = &piece[..read];
            while !rest.is_empty() {
                let n = view.with(|z, access| z.write(access, inode, at, rest))?;
                rest = &rest[n..];
                at += n as u64;
            }
        }
    })();
    view.with(|z, _| z.close(inode))?;
    written
}

fn put(host: &Host, place: &Place, local: &Path) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    view.writable()?;
    let mut path = view.path.clone();
    let target = view.resolve(&path, true).ok();
    let name = local.file_name().map(|n| n.to_string_lossy().into_owned());
    if path.ends_with('/') || target.is_some_and(|t| t.kind == FileKind::Directory) {
        let Some(name) = &name else { bail!("{} is a folder: name the file in it", view.shown) };
        path = format!("{}/{name}", path.trim_end_matches('/'));
    }
    let path = path.trim_matches('/').to_string();
    let result = if local == Path::new("-") {
        put_file(&mut view, &path, &mut std::io::stdin().lock()).map(|bytes| (1, bytes))
    } else {
        put_tree(&mut view, &path, local, 0)
    };
    let (files, bytes) = match result {
        Ok(counts) => counts,
        Err(e) => {
            // nothing half done: what was written so far is not committed
            view.agent.disk().abandon()?;
            return Err(e);
        }
    };
    view.commit()?;
    eprintln!(
        "put {files} {} ({}) into {}",
        if files == 1 { "file" } else { "files" },
        size(bytes),
        view.shown
    );
    Ok(0)
}

fn put_tree(view: &mut View, path: &str, local: &Path, depth: usize) -> anyhow::Result<(u64, u64)> {
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
    if !path.is_empty() && view.resolve(path, true).is_err() {
        view.with(|z, access| z.mkdir(access, Inode::ROOT, path.as_bytes()).map(|_| ()))?;
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
            eprintln!("left out {}: {what}", entry.path().display());
            continue;
        }
        let child = format!("{path}/{}", entry.file_name().to_string_lossy());
        let (f, b) = put_tree(view, child.trim_start_matches('/'), &entry.path(), depth + 1)?;
        files += f;
        bytes += b;
    }
    Ok((files, bytes))
}

fn get(host: &Host, place: &Place, local: Option<PathBuf>) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    let stat = view.resolve(&view.path.clone(), true)?;
    if local.as_deref() == Some(Path::new("-")) {
        if stat.kind == FileKind::Directory {
            bail!("{} is a folder: it cannot be written to standard output", view.shown);
        }
        view.content(stat.inode, terminal::print)?;
        return Ok(0);
    }
    let name = view.shown.trim_end_matches('/').rsplit('/').next().unwrap_or("zone").to_string();
    let local = local.unwrap_or_else(|| PathBuf::from(&name));
    let mut counts = (0, 0);
    if stat.kind == FileKind::Directory {
        std::fs::create_dir_all(&local).with_context(|| format!("making {}", local.display()))?;
        // everything below is done relative to this folder, and leaves it by no path and no link
        let folder = Dir::open_ambient_dir(&local, ambient_authority())
            .with_context(|| format!("opening {}", local.display()))?;
        get_tree(&mut view, stat.inode, &folder, &local, 0, &mut counts)?;
    } else {
        let (parent, name) = if local.is_dir() {
            (local.clone(), name)
        } else {
            let name = local.file_name().ok_or_else(|| anyhow!("{} names no file", local.display()))?;
            let parent = local.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (parent.to_path_buf(), name.to_string_lossy().into_owned())
        };
        let folder = Dir::open_ambient_dir(&parent, ambient_authority())
            .with_context(|| format!("opening {}", parent.display()))?;
        get_file(&mut view, stat.inode, &folder, &name, &mut counts)
            .with_context(|| local.display().to_string())?;
    }
    let (files, bytes) = counts;
    eprintln!(
        "got {files} {} ({}) into {}",
        if files == 1 { "file" } else { "files" },
        size(bytes),
        local.display()
    );
    Ok(0)
}

/// Writes a file beside its name and renames it: a link of that name is replaced, never followed.
fn get_file(
    view: &mut View,
    inode: Inode,
    folder: &Dir,
    name: &str,
    counts: &mut (u64, u64),
) -> anyhow::Result<()> {
    let temporary = format!(".dormouse-get-{}-{}", std::process::id(), counts.0);
    let mut file = folder.open_with(&temporary, LocalOptions::new().write(true).create_new(true))?;
    let mut bytes = 0;
    let written = view.content(inode, |piece| {
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
    inode: Inode,
    folder: &Dir,
    shown: &Path,
    depth: usize,
    counts: &mut (u64, u64),
) -> anyhow::Result<()> {
    if depth >= MAX_DEPTH {
        bail!("{} lies more than {MAX_DEPTH} folders deep", shown.display());
    }
    for (name, _, stat) in view.list(inode)? {
        let path = shown.join(&name);
        match stat.kind {
            FileKind::Regular => get_file(view, stat.inode, folder, &name, counts)
                .with_context(|| path.display().to_string())?,
            FileKind::Directory => {
                match folder.create_dir(&name) {
                    Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(anyhow::Error::new(e).context(path.display().to_string()));
                    }
                    _ => {}
                }
                if !folder.symlink_metadata(&name).with_context(|| path.display().to_string())?.is_dir() {
                    bail!("{} is there, and is no folder", path.display());
                }
                let child = folder.open_dir(&name).with_context(|| path.display().to_string())?;
                get_tree(view, stat.inode, &child, &path, depth + 1, counts)?;
            }
            FileKind::Symlink => {
                eprintln!("left out {}: a symbolic link", terminal::escape(&path.display().to_string()));
            }
        }
    }
    Ok(())
}

fn remove(host: &Host, place: &Place, recursive: bool) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    view.writable()?;
    let path = view.path.trim_end_matches('/').to_string();
    if path.is_empty() {
        bail!("{} is a zone: it goes with its agent", view.shown);
    }
    let result = remove_tree(&mut view, &path, recursive, 0);
    if let Err(e) = result {
        view.agent.disk().abandon()?;
        return Err(e);
    }
    view.commit()?;
    Ok(0)
}

fn remove_tree(view: &mut View, path: &str, recursive: bool, depth: usize) -> anyhow::Result<()> {
    let stat = view.resolve(path, false)?;
    if stat.kind != FileKind::Directory {
        return view.with(|z, access| z.unlink(access, Inode::ROOT, path.as_bytes()));
    }
    if !recursive {
        bail!("{} is a folder: remove it with --recursive", view.shown);
    }
    if depth >= MAX_DEPTH {
        bail!("{path} lies more than {MAX_DEPTH} folders deep");
    }
    for (name, ..) in view.list(stat.inode)? {
        remove_tree(view, &format!("{path}/{name}"), recursive, depth + 1)?;
    }
    view.with(|z, access| z.rmdir(access, Inode::ROOT, path.as_bytes()))
}
