//! What is stored: `du`, `reap`, `fsck`, `backup` and `restore`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use zone_vfs::device::open_regular;
use zone_vfs::store::{AgentUsage, BackupAbout, Bytes, Given, OldOfZone, ReapReport, StoreError};

use super::args::{BackupArguments, FsckArguments, ReapArguments, RestoreArguments, UsageArguments};
use super::finding::Fault;
use super::output::{LISTS_AGENTS, count, note, print_json, print_table, say, size, table};
use super::progress::Working;
use crate::threads;
use crate::upkeep::{AgentRules, ReapRules, Reaped};
use crate::{AgentError, Host, HostOptions};

fn rules(a: &ReapArguments) -> ReapRules {
    let everybody = AgentRules {
        keep_turns: a.keep_turns,
        keep_failed: a.keep_failed,
        keep_paused: a.keep_paused,
        thin_paused: a.thin_paused,
        remove_paused: a.remove_paused,
        versions_older_than: a.versions_older_than,
        keep_versions: a.keep_versions,
        ..AgentRules::default()
    };
    let remove_unmounted = a.remove_unmounted.then_some(true);
    ReapRules { everybody, budget: a.budget, remove_unmounted, ..ReapRules::default() }
}

pub async fn reap(host: &Host, a: &ReapArguments) -> anyhow::Result<u8> {
    if let Some(policy) = &a.policy {
        // the store's own policy may be missing, one that is named may not
        std::fs::metadata(policy).with_context(|| format!("the policy {}", policy.display()))?;
    }
    let reaped = {
        let _working = Working::on("reaping".into());
        host.reap(host.reap_policy(&rules(a), a.policy.clone())?, a.dry_run).await?
    };
    if a.json {
        print_json(&json(&reaped))?;
    } else {
        tell(&reaped)?;
    }
    let r = &reaped.store;
    Ok(u8::from(!r.damage.is_empty() || r.over_budget || r.swept.out_of_space))
}

fn json(reaped: &Reaped) -> serde_json::Value {
    let r = &reaped.store;
    let given = |g: Given| json!({ "frames": g.frames, "bytes": g.bytes });
    json!({
        "dry_run": r.dry_run,
        "agents": r.agents.iter().map(|(id, name)| json!({ "id": id.to_string(), "name": name })).collect::<Vec<_>>(),
        "generations": r.generations,
        "dropped": r.dropped.iter().map(|(name, numbers)| json!({
            "agent": name, "generations": numbers.iter().map(|it| it.0).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "versions": { "events": r.versions.events, "bytes": r.versions.bytes, "of": r.old.iter().map(of_zone).collect::<Vec<_>>() },
        "shared_zones": r.shared_zones,
        "unneeded": {
            "by_agents": given(r.from_agents), "by_generations": given(r.from_generations),
            "by_nothing": given(r.from_leftovers),
        },
        "needed_bytes": r.needed,
        "segments": {
            "removed": r.swept.removed_segments, "compacted": r.swept.compacted_segments,
            "held": r.swept.held_segments,
            "removed_bytes": r.swept.removed_bytes, "copied_bytes": r.swept.copied_bytes,
            "before_bytes": r.before.bytes, "after_bytes": r.after.bytes,
        },
        "image_bytes": reaped.image_bytes,
        "archived": reaped.archived,
        "cached_bytes": reaped.cached_bytes,
        "code_bytes": reaped.code_bytes,
        "damage": r.damage,
        "over_budget": r.over_budget,
        "out_of_space": r.swept.out_of_space,
    })
}

fn of_zone(old: &OldOfZone) -> serde_json::Value {
    let versions = old.versions.iter().map(|(version, path)| {
        json!({ "version": version.0, "path": path.as_deref().map(String::from_utf8_lossy) })
    });
    json!({
        "agent": old.agent, "mount": old.mount, "events": versions.collect::<Vec<_>>(), "more": old.is_cut_short,
    })
}

/// Numbers in their order, several that follow one another as `3-7`.
fn ranges(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges.iter().map(
        |(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        },
    );
    shown.collect::<Vec<_>>().join(", ")
}

/// Names the versions of one zone that a policy does not keep, file by file.
fn tell_old(old: &OldOfZone) -> anyhow::Result<()> {
    let mut by_path: BTreeMap<&Option<Vec<u8>>, BTreeSet<u64>> = BTreeMap::new();
    for (version, path) in &old.versions {
        by_path.entry(path).or_default().insert(version.0);
    }
    for (path, numbers) in by_path {
        let path = path.as_deref().map_or_else(|| "?".into(), String::from_utf8_lossy);
        say(format_args!("{}:{}/{path}: events {} would go", old.agent, old.mount, ranges(numbers)))?;
    }
    if old.is_cut_short {
        say(format_args!("{}:{}: and more", old.agent, old.mount))?;
    }
    Ok(())
}

/// What segments gave back, less what was written anew.
fn freed(r: &ReapReport) -> u64 {
    r.swept.removed_bytes.saturating_sub(r.swept.copied_bytes)
}

fn tell(reaped: &Reaped) -> anyhow::Result<()> {
    let r = &reaped.store;
    let would = if r.dry_run { "would be " } else { "" };
    for (_, name) in &r.agents {
        say(format_args!("{name}: {would}removed"))?;
    }
    for name in &r.shared_zones {
        say(format_args!("@{name}: {would}removed, as no agent mounts it"))?;
    }
    r.old.iter().try_for_each(tell_old)?;
    if r.versions.events > 0 {
        say(format_args!(
            "{} (old versions, deletions, renames) {would}given back, with {} of content",
            count(r.versions.events, "event"),
            size(r.versions.bytes)
        ))?;
    }
    for (name, numbers) in &r.dropped {
        let numbers = ranges(numbers.iter().map(|it| it.0));
        say(format_args!("{name}: generations {numbers} {would}dropped"))?;
    }
    if r.generations > 0 {
        say(format_args!("{} {would}dropped", count(r.generations, "generation")))?;
    }
    for (what, given) in [
        ("only removed agents needed", r.from_agents),
        ("only dropped generations needed", r.from_generations),
        ("nothing needed", r.from_leftovers),
    ] {
        if given.frames > 0 {
            say(format_args!("{} that {what}", size(given.bytes)))?;
        }
    }
    say(format_args!(
        "segments: {} of {} {would}given back; images: {}",
        size(freed(r)),
        size(r.before.bytes),
        size(reaped.image_bytes)
    ))?;
    if reaped.archived > 0 {
        say(format_args!("archived the images of {}", count(reaped.archived, "generation")))?;
    }
    if reaped.cached_bytes > 0 {
        say(format_args!("image files that the archive has too: {}", size(reaped.cached_bytes)))?;
    }
    if reaped.code_bytes > 0 {
        say(format_args!("compiled code of components that no agent has: {}", size(reaped.code_bytes)))?;
    }
    if r.swept.dead_bytes > 0 && freed(r) < r.swept.dead_bytes {
        say(format_args!("what is left unneeded lies in segments that are still more than half needed"))?;
    }
    for damage in &r.damage {
        note(format_args!("dormouse: cannot be read: {damage}"));
    }
    if r.swept.held_segments > 0 {
        note(format_args!(
            "dormouse: kept as they are: {}, where what hangs on that may lie; this ends once what is damaged is \
             repaired (`dormouse fsck --repair`) or removed (`dormouse rm`)",
            count(r.swept.held_segments, "segment")
        ));
    }
    if r.over_budget {
        note(format_args!("dormouse: {} are needed, which is more than the budget", size(r.needed)));
    }
    if r.swept.out_of_space {
        note(format_args!(
            "dormouse: there was no room to copy what is needed: free some space and reap again"
        ));
    }
    Ok(())
}

pub async fn du(host: &Host, a: &UsageArguments) -> anyhow::Result<u8> {
    let store = host.store()?;
    let mut usage = {
        let _working = Working::on("counting".into());
        threads::run(move || store.usage()).await??
    };
    let called = |agent: &AgentUsage| {
        if agent.is_shared_zone { format!("@{}", agent.name) } else { agent.name.clone() }
    };
    if let Some(missing) = a.names.iter().find(|name| !usage.agents.iter().any(|it| called(it) == **name)) {
        bail!(
            "there is no agent or shared zone `{missing}`: {LISTS_AGENTS}, `dormouse zone shared` the zones"
        );
    }
    usage.agents.retain(|agent| a.names.is_empty() || a.names.contains(&called(agent)));
    let bytes = |b: &Bytes| json!({ "logical": b.logical, "unique": b.unique, "shared": b.shared });
    if a.json {
        let agents: Vec<_> = usage
            .agents
            .iter()
            .map(|agent| {
                let zones = agent.zones.iter().map(|(name, b)| json!({ "name": name, "bytes": bytes(b) }));
                let generations =
                    agent.generations.iter().map(|(n, b)| json!({ "generation": n.0, "bytes": bytes(b) }));
                json!({
                    "name": agent.name, "id": agent.id.to_string(), "shared_zone": agent.is_shared_zone,
                    "damaged": agent.is_damaged, "bytes": bytes(&agent.all), "attachments": bytes(&agent.attachments),
                    "derived_bytes": host.derived_bytes(agent.id),
                    "zones": zones.collect::<Vec<_>>(), "generations": generations.collect::<Vec<_>>(),
                })
            })
            .collect();
        print_json(&json!({
            "agents": agents, "segments": usage.segments.len(), "segment_bytes": usage.stats.bytes,
            "needed_bytes": usage.needed, "log_bytes": usage.log,
        }))?;
        return Ok(0);
    }
    let row = |name: String, b: &Bytes| vec![name, size(b.logical), size(b.unique), size(b.shared)];
    let mut rows = Vec::new();
    for agent in &usage.agents {
        let mut name = called(agent);
        if agent.is_damaged {
            name.push_str(" (damaged)");
        }
        rows.push(row(name, &agent.all));
        if !agent.is_shared_zone {
            rows.extend(agent.zones.iter().map(|(name, b)| row(format!("  {name}"), b)));
            if agent.attachments != Bytes::default() {
                rows.push(row("  (memory)".into(), &agent.attachments));
            }
            match host.derived_bytes(agent.id) {
                0 => {}
                bytes => rows.push(vec!["  (derived)".into(), size(bytes), "-".into(), "-".into()]),
            }
            if a.generations {
                rows.extend(agent.generations.iter().map(|(number, b)| row(format!("  @{number}"), b)));
            }
        }
    }
    print_table(&table(&["NAME", "LOGICAL", "UNIQUE", "SHARED"], &[1, 2, 3], rows))?;
    say(format_args!(
        "segments: {}, of which {} are needed; log: {}",
        size(usage.stats.bytes),
        size(usage.needed),
        size(usage.log)
    ))?;
    Ok(0)
}

/// Makes a store that does not open, for this reason, one that does. What was found is told, or given for the list.
pub fn mend(options: &HostOptions, reason: &StoreError, a: &FsckArguments) -> anyhow::Result<Vec<Fault>> {
    let (mut found, mut told) = (Vec::new(), Ok(()));
    let mut tell = |fault: Fault| {
        if a.json {
            found.push(fault);
        } else if told.is_ok() {
            told = say(format_args!("{}", fault.text));
        }
    };
    tell(Fault::of_store(reason));
    Host::mend(options, &mut |it| tell(Fault::from(it)))?;
    told?;
    Ok(found)
}

/// `mended` is what was found before the store could be opened; for the list, so none where it was told.
pub async fn fsck(host: &Host, a: &FsckArguments, is_mended: bool, mended: Vec<Fault>) -> anyhow::Result<u8> {
    let store = host.store()?;
    let (repair, as_json) = (a.repair, a.json);
    let task = threads::run(move || {
        let (mut found, mut told) = (mended, Ok(()));
        let report = store.scrub(repair, &mut |it| {
            let fault = Fault::from(it);
            if as_json {
                found.push(fault);
            } else if told.is_ok() {
                told = say(format_args!("{}", fault.text));
            }
        });
        (report, found, told)
    });
    let (report, mut found, mut told) = task.await?;
    let report = report?;
    let images = host.check_images(repair).await?;
    let components = images.components.iter().map(Fault::from);
    let geneses = images.damaged_geneses.iter().flat_map(Fault::of_genesis);
    for fault in components.chain(geneses).chain(images.damage.iter().flat_map(Fault::of_image)) {
        if as_json {
            found.push(fault);
        } else if told.is_ok() {
            // what is to be repaired is, whoever listens
            told = say(format_args!("{}", fault.text));
        }
    }
    told?;
    let damaged_images = images.damage.len() + images.damaged_geneses.len();
    let findings = report.findings + (damaged_images + images.components.len()) as u64;
    if a.json {
        print_json(&json!({
            "findings": found, "frames": report.frames, "bytes": report.bytes,
            "damaged_frames": report.damaged_frames, "damaged_agents": report.damaged_agents,
            "quarantined": report.quarantined, "images": images.generations + images.geneses,
            "damaged_images": damaged_images,
        }))?;
    } else {
        let frames = size(report.bytes);
        say(format_args!(
            "read {} of {frames}, and {}",
            count(report.frames, "frame"),
            count(images.generations + images.geneses, "image")
        ))?;
        if findings > 0 {
            let agents = report.damaged_agents;
            say(format_args!("faults: {findings}; agents of which something does not read: {agents}"))?;
        }
        if findings > 0 && !a.repair {
            say(format_args!("`dormouse fsck --repair` makes whole what can be, and deletes nothing"))?;
        }
    }
    Ok(u8::from(findings > 0 || is_mended))
}

/// The backups in a folder, oldest first.
fn parts(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == EXTENSION) {
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

const EXTENSION: &str = "dormouse-backup";
/// What a backup is called until it is complete.
const UNFINISHED: &str = "unfinished";

/// What an interrupted backup has left in a folder, if anything can be seen of one.
fn unfinished(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|e| e == UNFINISHED))
}

pub async fn backup(host: &Host, a: &BackupArguments) -> anyhow::Result<u8> {
    if a.to.as_os_str() == "-" {
        if std::io::stdout().is_terminal() {
            bail!("a backup is no text: send standard output to a file or a program, or name a folder");
        }
        let report = host.backup(Box::new(std::io::stdout()), open_since(a.since.as_deref())?).await?;
        return told(&report, "-", true, false);
    }
    make_folder(&a.to)?;
    let before = parts(&a.to)?;
    if a.full && !before.is_empty() {
        bail!("{} has backups already: a full one begins in a folder of its own", a.to.display());
    }
    let newest = newest(&a.to, &before, a.since.is_some())?;
    if let (Some(since), Some((newest, id))) = (&a.since, newest)
        && about(since)?.id != id
    {
        bail!(
            "{} is not the newest backup in {}, which is {}: with one more since the older one, the folder could not \
             be restored. Leave --since out, or write to a folder of its own",
            since.display(),
            a.to.display(),
            newest.display()
        );
    }
    let since = open_since(a.since.as_deref().or(newest.map(|(path, _)| path)))?;
    let path = a.to.join(format!("{:06}.{EXTENSION}", next_number(&before)));
    let unfinished = path.with_extension(UNFINISHED);
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file =
        open_regular(&unfinished, &options).with_context(|| format!("making {}", unfinished.display()))?;
    let made = {
        let _working = Working::on("backing up".into());
        host.backup(Box::new(std::io::BufWriter::with_capacity(1 << 20, file.try_clone()?)), since).await
    };
    let report = match made {
        Ok(report) => report,
        Err(e) => {
            std::fs::remove_file(&unfinished)?;
            return Err(e.into());
        }
    };
    file.sync_all()?;
    std::fs::rename(&unfinished, &path)?;
    File::open(&a.to)?.sync_all()?;
    told(&report, &path.display().to_string(), false, a.json)
}

/// Makes the folder of backups where it is not there; not those above it, which a path that is misspelt would make.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    use std::io::ErrorKind;
    match std::fs::create_dir(folder) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => bail!(
            "{} is no folder: name a folder for backups, or write one to standard output: `dormouse backup - > FILE`",
            folder.display()
        ),
        Err(e) if e.kind() == ErrorKind::NotFound => bail!(
            "{}: there is no folder to make it in: make that first, if the path is right",
            folder.display()
        ),
        made => made.with_context(|| format!("making {}", folder.display())),
    }
}

/// What a backup says of itself. An error names its file.
fn about(path: &Path) -> anyhow::Result<BackupAbout> {
    let named = || format!("the backup {}", path.display());
    let file = File::open(path).with_context(named)?;
    if !file.metadata().with_context(named)?.is_file() {
        bail!("{} is no file", path.display());
    }
    BackupAbout::read(&mut std::io::BufReader::new(file)).map_err(|e| match e {
        StoreError::Backup(reason) => anyhow!("{} {reason}", path.display()),
        e => anyhow::Error::new(e).context(named()),
    })
}

/// The newest of the backups in a folder, each of which has to be since the one before: else there would be no
/// restoring from the folder, whatever is added. The first is of everything, unless the folder `goes_on` from elsewhere.
fn newest<'p>(
    folder: &Path,
    parts: &'p [PathBuf],
    goes_on: bool,
) -> anyhow::Result<Option<(&'p Path, uuid::Uuid)>> {
    let mut newest = None;
    for path in parts {
        let about = about(path).with_context(|| {
            format!(
                "no backup can be added in {}: move away what is none, or name another folder",
                folder.display()
            )
        })?;
        if let Some((before, id)) = newest
            && about.since != Some(id)
        {
            let before: &Path = before;
            bail!(
                "{} is not since {}, which comes before it: nothing can be restored from {} as a whole. Name another \
                 folder for the next backup, which is then of everything",
                path.display(),
                before.display(),
                folder.display()
            );
        }
        if newest.is_none() && about.since.is_some() && !goes_on {
            bail!(
                "{} is the first backup in {} and is since another: nothing can be restored from the folder alone. \
                 Name another folder for the next backup, which is then of everything; or, where those before lie \
                 elsewhere, the newest one here by --since",
                path.display(),
                folder.display()
            );
        }
        newest = Some((path.as_path(), about.id));
    }
    Ok(newest)
}

/// The number that is free behind those that are there.
fn next_number(parts: &[PathBuf]) -> u64 {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    parts.iter().filter_map(number).max().unwrap_or(0).saturating_add(1)
}

fn open_since(since: Option<&Path>) -> anyhow::Result<Option<Box<dyn crate::upkeep::ReadSeekSend>>> {
    let Some(since) = since else { return Ok(None) };
    let file = File::open(since).with_context(|| format!("the backup {}", since.display()))?;
    Ok(Some(Box::new(std::io::BufReader::new(file))))
}

fn told(r: &zone_vfs::store::BackupReport, path: &str, quiet: bool, as_json: bool) -> anyhow::Result<u8> {
    if as_json {
        print_json(&json!({
            "id": r.id.to_string(), "path": path, "bytes": r.bytes, "frames": r.frames,
            "earlier_frames": r.earlier, "files": r.files, "damage": r.damage,
        }))?;
    } else if !quiet {
        say(format_args!(
            "{path}: {}, {} and {}",
            size(r.bytes),
            count(r.frames, "frame"),
            count(r.files, "file")
        ))?;
    }
    for damage in &r.damage {
        note(format_args!("dormouse: not in the backup: {damage}"));
    }
    Ok(u8::from(!r.damage.is_empty()))
}

/// An error of one of the backups names its file.
fn of_part(e: AgentError, files: &[PathBuf]) -> anyhow::Error {
    if let AgentError::Store(StoreError::BackupPart { part, reason }) = &e
        && let Some(file) = part.checked_sub(1).and_then(|index| files.get(index))
    {
        let file = if file.as_os_str() == "-" { "standard input".into() } else { file.display().to_string() };
        return anyhow!("{file} {reason}");
    }
    e.into()
}

/// Restores into the store's folder, which is not open.
pub async fn restore(options: &HostOptions, a: &RestoreArguments) -> anyhow::Result<u8> {
    let folder = options.folder.as_path();
    let mut files = Vec::new();
    for from in &a.from {
        if from.is_dir() {
            files.extend(parts(from)?);
        } else {
            files.push(from.clone());
        }
    }
    let mut sources: Vec<Box<dyn Read>> = Vec::new();
    for from in &files {
        if from.as_os_str() == "-" {
            sources.push(Box::new(std::io::stdin()));
        } else {
            let file = File::open(from).with_context(|| format!("the backup {}", from.display()))?;
            sources.push(Box::new(std::io::BufReader::new(file)));
        }
    }
    if sources.is_empty() {
        if let Some(left) = a.from.iter().find_map(|from| unfinished(from)) {
            bail!(
                "there is no backup here, only what one that was interrupted has left, of which nothing can be restored: {}",
                left.display()
            );
        }
        bail!(
            "there is no backup in {}",
            a.from.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
        );
    }
    let mut parts: Vec<&mut dyn Read> = sources.iter_mut().map(|s| &mut **s as &mut dyn Read).collect();
    let report = {
        let _working = Working::on("restoring".into());
        let mut report = Host::restore(folder, &mut parts).map_err(|e| of_part(e, &files))?;
        // image files go as they are: whose memory is damaged is seen in the store
        let host = Host::open(options.clone())?;
        let images = host.check_images(false).await?;
        host.close()?;
        report.damage.extend(images.damage.iter().map(ToString::to_string));
        report
    };
    for damage in &report.damage {
        note(format_args!("dormouse: was damaged when the backup was made: {damage}"));
    }
    if a.json {
        print_json(
            &json!({ "frames": report.frames, "files": report.files.len(), "damage": report.damage }),
        )?;
    } else {
        say(format_args!(
            "restored {}: {} and {}",
            folder.display(),
            count(report.frames, "frame"),
            count(report.files.len() as u64, "file")
        ))?;
    }
    Ok(0)
}
