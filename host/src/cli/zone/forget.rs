//! `zone forget`.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use zone_vfs::contract::Principal;
use zone_vfs::id::{Inode, Timestamp, Turn, Version};
use zone_vfs::store::{Forget, Forgot, Left, MAX_LEFT, SharedId};
use zone_vfs::tree::{FileKind, VersionKind};
use zone_vfs::zone::{Access, ContentIds, ErrorCode, Zone, ZoneError};

use super::named::{Named, NamedFile, Places};
use super::place::{self, Place};
use crate::cli::output::{count, note, print_json, say, size};
use crate::cli::progress::Working;
use crate::cli::terminal::escape_line;
use crate::upkeep::Purged;
use crate::{Agent, Host};

/// Files that are forgotten at once. The whole zone is looked through for each.
const MAX_FILES: usize = 1000;

/// What is asked for, beside the place.
pub struct Options {
    pub recursive: bool,
    pub all_that_had_the_name: bool,
    pub version: Option<u64>,
    pub turns: Option<(u64, u64)>,
    pub dry_run: bool,
    pub yes: bool,
    pub json: bool,
}

/// `FIRST` or `FIRST-LAST`.
pub fn turns(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse().map_err(|_| "give a turn, or two as 3-7".to_string());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    if first == 0 || first > last {
        Err("turns count from 1, the first before the last".into())
    } else {
        Ok((first, last))
    }
}

pub async fn forget(host: &Host, place: &Place, options: Options) -> anyhow::Result<u8> {
    if place.is_shared {
        let id = host.store()?.find_shared(&place.name)?;
        let id = id.ok_or_else(|| anyhow!("no shared zone named `{}`", place.name))?;
        let path = place::normal(place.path.as_deref().unwrap_or("/"));
        return shared(host, id, &format!("@{}:", place.name), path.trim_start_matches('/'), &options).await;
    }
    let (agent, zone, path) = place::of_agent(host, place, "forget")?;
    let specs = agent.disk().zones();
    let spec = specs.get(usize::from(zone)).ok_or_else(|| anyhow!("the zone is gone"))?;
    if let Some(mount) = &spec.shared {
        return shared(host, mount.zone, &format!("@{}:", spec.name), &path, &options).await;
    }
    let target = format!("{}:{}/{path}", place.name, spec.mount);
    expect_path(&path, &target)?;
    let turns = options.turns.map(|(first, last)| (Turn(first), Turn(last)));
    let places = Places { agent: &agent, zone, mount: &spec.mount };
    let (what, named) = if let Some(version) = options.version {
        let file = version_at(&agent, zone, &path, &target, Version(version))?;
        let versions = vec![(file, Version(version))];
        (Forget { zone, versions, turns, ..Forget::default() }, Named::of(places.of(BTreeSet::from([file]))?))
    } else {
        let named = if options.recursive {
            Named::of(places.of(files_below(&agent, zone, &path, &target)?)?)
        } else {
            files(&places, &path, &target, options.all_that_had_the_name)?
        };
        if named.go.is_empty() {
            return finish(host, &target, &named, &options).await;
        }
        let files = named.go.iter().map(|it| it.file).collect();
        (Forget { zone, files, turns, ..Forget::default() }, named)
    };
    if !options.dry_run {
        agent.expect_here()?;
    }
    let would = agent.disk().would_forget(&what)?;
    if would.is_done {
        return finish(host, &target, &named, &options).await;
    }
    // what would be refused is not promised either
    let access = Access::new(Principal::Host, Timestamp::now());
    for (file, version) in &what.versions {
        let may = agent.disk().zone(zone, |z| z.may_forget_version(access, *file, *version));
        may.ok_or_else(|| anyhow!("the zone is gone"))?
            .map_err(|e| anyhow!("{target}: version {version}: {e}"))?;
    }
    if options.dry_run || !confirmed(&target, &named, &would.content, would.generations.len(), &options)? {
        return tell(&target, &named, &would, None, None, &options);
    }
    let (forgot, purged) = {
        let _working = Working::on("erasing".into());
        host.forget(&agent, &what, &target).await?
    };
    tell(&target, &named, &forgot, Some(&purged), Some(&agent), &options)
}

/// Refuses a whole zone.
fn expect_path(path: &str, target: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!path.is_empty(), "{target} is a zone: name a file or a folder in it");
    Ok(())
}

/// Which of the files that have or had a path go, and where all of them are.
fn files(places: &Places<'_>, path: &str, target: &str, all: bool) -> anyhow::Result<Named> {
    let (agent, zone) = (places.agent, places.zone);
    let access = Access::new(Principal::Host, Timestamp::now());
    let at = |z: &Zone| match z.stat_at(access, Inode::ROOT, path.as_bytes(), false) {
        Ok(stat) => Ok(Some(stat)),
        Err(e) if matches!(e.code, ErrorCode::NoEntry | ErrorCode::NotDirectory) => Ok(None),
        Err(e) => Err(e),
    };
    let now = agent.disk().zone(zone, |z| Ok::<_, ZoneError>((at(z)?, z.files_ever_at(path.as_bytes())?)));
    let (now, mut files) = now.ok_or_else(|| anyhow!("the zone is gone"))??;
    if now.is_some_and(|it| it.kind == FileKind::Directory) {
        bail!("{target} is a folder: -r erases all files in it");
    }
    let now = now.map(|it| it.inode);
    files.extend(now);
    for generation in agent.generations() {
        let then = at(&agent.disk().zone_at(generation.number, zone)?)?;
        files.extend(then.filter(|it| it.kind != FileKind::Directory).map(|it| it.inode));
    }
    let known = places.of(files)?;
    let wanted = places.whole(path.as_bytes());
    // what was moved to elsewhere is not what is meant, whatever became of it there
    let goes = |it: &NamedFile| {
        all || Some(it.file) == now || (!it.is_there && it.path.as_ref().is_none_or(|at| *at == wanted))
    };
    let (go, stay) = known.into_iter().partition(goes);
    Ok(Named { go, stay })
}

/// The file of which this is a version, among those that a path ever stood for; also where the version was forgotten.
fn version_at(agent: &Agent, zone: u16, path: &str, target: &str, version: Version) -> anyhow::Result<Inode> {
    let access = Access::new(Principal::Host, Timestamp::now());
    let found = agent.disk().zone(zone, |z| {
        for file in z.files_ever_at(path.as_bytes())? {
            match z.version(access, file, version) {
                Ok(it) if it.record.has_content() || it.record.kind == VersionKind::Forgotten => {
                    return Ok(Some(file));
                }
                Err(e) if e.code != ErrorCode::NoEntry => return Err(e),
                _ => {}
            }
        }
        Ok(None)
    });
    let found = found.ok_or_else(|| anyhow!("the zone is gone"))??;
    found.ok_or_else(|| {
        anyhow!("{target} has no version {version} with content: `dormouse zone history` lists them")
    })
}

/// The files in a folder, now or in a generation, but for those that were moved to elsewhere.
fn files_below(agent: &Agent, zone: u16, path: &str, target: &str) -> anyhow::Result<BTreeSet<Inode>> {
    let too_many = || {
        anyhow!(
            "{target} has more than {MAX_FILES} files, more than are forgotten at once: name folders in it"
        )
    };
    let below = |z: &Zone| {
        let found = z.files_ever_below(path.as_bytes(), MAX_FILES)?;
        if found.len() > MAX_FILES { Err(too_many()) } else { Ok(found) }
    };
    let mut files = agent.disk().zone(zone, |z| below(z)).ok_or_else(|| anyhow!("the zone is gone"))??;
    for generation in agent.generations() {
        for file in below(&agent.disk().zone_at(generation.number, zone)?)? {
            if files.contains(&file) {
                continue;
            }
            let access = Access::new(Principal::Host, Timestamp::now());
            let now = agent.disk().zone(zone, |z| z.stat(access, file));
            let is_elsewhere = matches!(now, Some(Ok(stat)) if stat.links > 0);
            if !is_elsewhere {
                files.insert(file);
            }
        }
        if files.len() > MAX_FILES {
            return Err(too_many());
        }
    }
    Ok(files)
}

/// Where there is nothing to forget: an earlier forget may not have come to its end.
async fn finish(host: &Host, target: &str, named: &Named, options: &Options) -> anyhow::Result<u8> {
    let is_due = host.is_purge_due()?;
    if named.go.is_empty() && !named.stay.is_empty() {
        let stay: Vec<_> = named.stay.iter().map(NamedFile::told).collect();
        bail!(
            "{target}: no such file; what had the name is {} by now: name that, or give --all-that-had-the-name",
            stay.join(", ")
        );
    }
    if named.go.is_empty() && (options.dry_run || !is_due) {
        bail!("{target}: no such file, now or in a generation");
    }
    let done = Forgot { is_done: true, ..Forgot::default() };
    if options.dry_run || !is_due {
        return tell(target, named, &done, None, None, options);
    }
    let purged = host.purge(&ContentIds::default()).await?;
    tell(target, named, &done, Some(&purged), None, options)
}

/// Forgets a file of a zone that agents share, which has no generations.
async fn shared(host: &Host, id: SharedId, zone: &str, path: &str, options: &Options) -> anyhow::Result<u8> {
    let target = format!("{zone}/{path}");
    expect_path(path, &target)?;
    if options.turns.is_some() {
        bail!("{target}: a shared zone has no turns");
    }
    if options.version.is_some() {
        bail!("{target}: a shared zone keeps no versions");
    }
    let opened = host.store()?.shared_zone(id)?;
    let access = Access::new(Principal::Host, Timestamp::now());
    let found = opened.zone(|z| {
        let file = z.resolve(access, Inode::ROOT, path.as_bytes(), false)?;
        let root = z.snapshot()?;
        Ok::<_, ZoneError>((file, root, z.stat(access, file)?.kind))
    });
    let gone = || anyhow!("the zone is gone");
    let (file, root, kind) = match found.ok_or_else(gone)? {
        Err(e) if e.code == ErrorCode::NoEntry => {
            return finish(host, &target, &Named::default(), options).await;
        }
        found => found?,
    };
    let files: Vec<Inode> = match (kind, options.recursive) {
        (FileKind::Directory, false) => bail!("{target} is a folder: -r erases all files in it"),
        (FileKind::Directory, true) => {
            let below = opened.zone(|z| z.files_ever_below(path.as_bytes(), MAX_FILES));
            below.ok_or_else(gone)??.into_iter().collect()
        }
        _ => vec![file],
    };
    if files.len() > MAX_FILES {
        bail!(
            "{target} has more than {MAX_FILES} files, more than are forgotten at once: name folders in it"
        );
    }
    if files.is_empty() {
        return finish(host, &target, &Named::default(), options).await;
    }
    let mut would = Forgot::default();
    let identified = opened
        .zone(|z| files.iter().try_for_each(|file| z.identify(&root, *file, &mut would.content).map(drop)));
    identified.ok_or_else(gone)??;
    let of = |file: &Inode| {
        let path = opened.zone(|z| z.whereabouts(*file)).transpose()?.flatten().and_then(|it| it.path);
        let path = path.map(|path| [zone.as_bytes(), b"/", &path].concat());
        Ok::<_, ZoneError>(NamedFile { file: *file, path, is_there: true })
    };
    let named = Named::of(files.iter().map(of).collect::<Result<_, _>>()?);
    if options.dry_run || !confirmed(&target, &named, &would.content, 0, options)? {
        return tell(&target, &named, &would, None, None, options);
    }
    // what is held here would not be erased from the store's files
    drop((opened, root));
    let (content, purged) = {
        let _working = Working::on("erasing".into());
        host.forget_shared(id, files, &target).await?
    };
    would.content = content;
    tell(&target, &named, &would, Some(&purged), None, options)
}

/// Asks whether it is to be done. Where nobody can be asked, it has to be said.
fn confirmed(
    target: &str,
    named: &Named,
    content: &ContentIds,
    generations: usize,
    options: &Options,
) -> anyhow::Result<bool> {
    if options.yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        bail!(
            "{target}: what is forgotten cannot be brought back; give --yes, or --dry-run to see what it would be"
        );
    }
    let mut out = std::io::stderr();
    for (what, file) in named.lines() {
        writeln!(out, "{what} {}", escape_line(&file))?;
    }
    write!(
        out,
        "{}: erase {} of {} for good, and drop {}? [y/N] ",
        escape_line(target),
        count(content.contents, "content"),
        size(content.bytes),
        count(generations as u64, "generation")
    )?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(true) } else { bail!("nothing was forgotten") }
}

/// What is said where it was forgotten before.
fn nothing_left(target: &str, is_purged: Option<bool>) -> anyhow::Result<u8> {
    let and = match is_purged {
        Some(true) => ": now it is erased from the store's files, too",
        _ => "",
    };
    say(format_args!("{target}: nothing is left of it to forget{and}"))?;
    if is_purged == Some(false) {
        still_there();
    }
    Ok(u8::from(is_purged == Some(false)))
}

fn still_there() {
    note(format_args!(
        "dormouse: the store's files still hold it: `dormouse fsck` says what does not read; then repeat this"
    ));
}

fn left_at(left: &Left) -> String {
    let agent = if left.is_shared_zone { format!("@{}", left.agent) } else { left.agent.clone() };
    let agent = left.generation.map_or(agent.clone(), |it| format!("{agent}@{it}"));
    let path =
        left.path.as_deref().map_or_else(|| "?".into(), |path| String::from_utf8_lossy(path).into_owned());
    format!("{agent}: {} {path}", left.zone)
}

fn tell(
    target: &str,
    named: &Named,
    forgot: &Forgot,
    purged: Option<&Purged>,
    agent: Option<&Agent>,
    options: &Options,
) -> anyhow::Result<u8> {
    let content = &forgot.content;
    let is_purged = purged.map(|it| it.store.is_purged);
    let left: Vec<String> = purged.iter().flat_map(|it| it.left.iter().map(left_at)).collect();
    if options.json {
        let generations: Vec<Value> = forgot.generations.iter().map(|it| json!(it.0)).collect();
        print_json(&json!({
            "path": target, "files": named.go.iter().map(NamedFile::json).collect::<Vec<_>>(),
            "stay": named.stay.iter().map(NamedFile::json).collect::<Vec<_>>(),
            "dry_run": options.dry_run, "already_forgotten": forgot.is_done, "contents": content.contents, "bytes": content.bytes,
            "generations": generations, "turns": forgot.turns, "generation": forgot.made.map(|it| it.0),
            "erased_from_files": is_purged, "not_reached": left,
        }))?;
    } else {
        if forgot.is_done {
            return nothing_left(target, is_purged);
        }
        let verb = if options.dry_run { "would forget" } else { "forgot" };
        let (contents, generations) = (count(content.contents, "content"), forgot.generations.len());
        say(format_args!("{verb} {target}: {contents}, {}", size(content.bytes)))?;
        for (what, file) in named.lines() {
            say(format_args!("{what} {}", escape_line(&file)))?;
        }
        if generations > 0 {
            say(format_args!("generations dropped that may have held it: {generations}"))?;
        }
        if forgot.turns > 0 {
            say(format_args!("turns without event and reply from here on: {}", forgot.turns))?;
        }
        for place in &left {
            say(format_args!("not reached, the same content: {place}"))?;
        }
        if left.len() >= MAX_LEFT {
            say(format_args!("not reached: perhaps more, of which {MAX_LEFT} are told"))?;
        }
        if agent.is_some() {
            say(format_args!(
                "not reached: the agent's memory, messages and other files that quote it, backups"
            ))?;
        }
    }
    if is_purged == Some(false) {
        still_there();
    }
    Ok(u8::from(is_purged == Some(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_read_and_refused() {
        assert_eq!(turns("3"), Ok((3, 3)));
        assert_eq!(turns("3-7"), Ok((3, 7)));
        for wrong in ["", "0", "7-3", "-3", "3-", "a"] {
            assert!(turns(wrong).is_err(), "{wrong}");
        }
    }
}
