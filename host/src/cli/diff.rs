//! `diff` and `zone diff`.

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use zone_vfs::id::GenerationNumber;
use zone_vfs::store::{Cause, ZoneDifferences};
use zone_vfs::tree::FileKind;
use zone_vfs::zone::{DifferenceKind, FileDifference, FileSide};

use super::args::{DiffArguments, DiffOptions};
use super::output::{OfAgent, print_json, say, size};
use super::zone::{Place, View, of_agent, of_generation};
use crate::wit::is_below;
use crate::{Agent, Host};

/// `N[@GEN]`.
fn point(host: &Host, text: &str) -> anyhow::Result<(Agent, Option<GenerationNumber>)> {
    let (name, generation) = of_generation(text)?;
    let agent = host.agent(name)?;
    if let Some(number) = generation {
        agent.disk().generation(number).with_context(|| OfAgent(name.into()))?;
    }
    Ok((agent, generation))
}

/// Compares all zones of two agents, or of two generations of one.
pub fn diff(host: &Host, a: &DiffArguments) -> anyhow::Result<u8> {
    let (before, after) = (point(host, &a.before)?, point(host, &a.after)?);
    let found = host.store()?.diff((before.0.disk(), before.1), (after.0.disk(), after.1))?;
    tell(&found.zones, &found.shared, &a.options)
}

/// Compares one zone of an agent at two generations, below a path.
pub fn of_zone(
    host: &Host,
    place: &Place,
    generations: (Option<u64>, Option<u64>),
    options: &DiffOptions,
) -> anyhow::Result<u8> {
    let (agent, zone, below) = &of_agent(host, place, "diff")?;
    let (before, after) = match generations {
        (None, _) => last_two(agent)?,
        (Some(before), after) => (GenerationNumber(before), after.map(GenerationNumber)),
    };
    let zones = agent.disk().zones();
    let spec = zones.get(usize::from(*zone)).ok_or_else(|| anyhow!("the zone is gone"))?;
    let files = agent.disk().diff(*zone, Some(before), after);
    let mut files = files.with_context(|| OfAgent(place.name.clone()))?;
    let inside = |path: &[u8]| is_below(path, below.as_bytes());
    files.retain(|it| {
        let from = if let DifferenceKind::Renamed { from, .. } = &it.kind { Some(from) } else { None };
        inside(&it.path) || from.is_some_and(|from| inside(from))
    });
    let was_there = |number: GenerationNumber| {
        let then = Place { generation: Some(number.0), ..place.clone() };
        View::open(host, &then).and_then(|mut view| view.resolve_target()).is_ok()
    };
    View::open(host, place)?
        .told_of(|_| Ok(!files.is_empty() || was_there(before) || after.is_some_and(was_there)))?;
    let found = ZoneDifferences { zone: spec.name.clone(), mount: spec.mount.clone(), files };
    tell(&[found], &[], options)
}

/// The last generation but one, and the last, of those that are not kept beside.
fn last_two(agent: &Agent) -> anyhow::Result<(GenerationNumber, Option<GenerationNumber>)> {
    let generations = agent.generations();
    let mut main = generations.iter().rev().filter(|it| !matches!(it.cause, Cause::Side(_)));
    let (Some(last), Some(before)) = (main.next(), main.next()) else {
        bail!("there is no generation before the last one: nothing to compare it with");
    };
    Ok((before.number, Some(last.number)))
}

#[derive(Default)]
struct Counts {
    added: usize,
    removed: usize,
    changed: usize,
    renamed: usize,
    times: usize,
}

impl Counts {
    fn add(&mut self, kind: &DifferenceKind) {
        match kind {
            DifferenceKind::Added => self.added += 1,
            DifferenceKind::Removed => self.removed += 1,
            DifferenceKind::Changed => self.changed += 1,
            DifferenceKind::Renamed { .. } => self.renamed += 1,
            DifferenceKind::Times => self.times += 1,
        }
    }

    fn line(&self) -> String {
        let parts = [
            (self.added, "added"),
            (self.removed, "removed"),
            (self.changed, "changed"),
            (self.renamed, "renamed"),
            (self.times, "with other times"),
        ];
        let there: Vec<_> =
            parts.iter().filter(|it| it.0 > 0).map(|(count, what)| format!("{count} {what}")).collect();
        if there.is_empty() { "no differences".into() } else { there.join(", ") }
    }
}

fn tell(zones: &[ZoneDifferences], shared: &[String], options: &DiffOptions) -> anyhow::Result<u8> {
    let mut counts = Counts::default();
    zones.iter().flat_map(|zone| &zone.files).for_each(|it| counts.add(&it.kind));
    let differs = zones.iter().any(|zone| !zone.files.is_empty());
    if options.json {
        let rows: Vec<_> =
            zones.iter().flat_map(|zone| zone.files.iter().map(|it| row(&zone.mount, it))).collect();
        print_json(&json!({ "differences": rows, "left_out": shared }))?;
    } else {
        if !options.summary {
            for zone in zones {
                for it in &zone.files {
                    say(format_args!("{}", line(&zone.mount, it)))?;
                }
            }
        }
        say(format_args!("{}", counts.line()))?;
        for name in shared {
            say(format_args!("left out: the shared zone {name}, which has no generations"))?;
        }
    }
    Ok(u8::from(options.exit_code && differs))
}

fn path(mount: &str, path: &[u8], of: Option<&FileSide>) -> String {
    let slash = if of.is_some_and(|it| it.is == FileKind::Directory) { "/" } else { "" };
    format!("{mount}/{}{slash}", String::from_utf8_lossy(path))
}

/// One letter, as git writes it, the path, and the sizes.
fn line(mount: &str, it: &FileDifference) -> String {
    let (was, is) = (it.before.as_ref(), it.after.as_ref());
    let here = path(mount, &it.path, is.or(was));
    let sizes = |was: &FileSide, is: &FileSide| {
        if was.size == is.size { size(is.size) } else { format!("{} -> {}", size(was.size), size(is.size)) }
    };
    let detail = match (was, is) {
        (Some(was), Some(is)) if was.is != is.is => format!("{} -> {}", kind(was.is), kind(is.is)),
        (Some(was), Some(is)) if was.is != FileKind::Directory => sizes(was, is),
        (Some(one), None) | (None, Some(one)) if one.is != FileKind::Directory => size(one.size),
        _ => String::new(),
    };
    let (letter, here) = match &it.kind {
        DifferenceKind::Added => ("A", here),
        DifferenceKind::Removed => ("D", here),
        DifferenceKind::Changed => ("M", here),
        DifferenceKind::Renamed { from, changed } => {
            (if *changed { "RM" } else { "R" }, format!("{} -> {here}", path(mount, from, was)))
        }
        DifferenceKind::Times => ("T", here),
    };
    if detail.is_empty() { format!("{letter:<2}  {here}") } else { format!("{letter:<2}  {here}  {detail}") }
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "folder",
        FileKind::Symlink => "link",
    }
}

fn row(mount: &str, it: &FileDifference) -> Value {
    let side = |side: &Option<FileSide>| {
        side.as_ref().map(|it| {
            json!({
                "file": it.file.0, "kind": kind(it.is), "bytes": it.size,
                "modified": super::output::time(it.modified), "version": it.version.map(|v| v.0),
            })
        })
    };
    let (name, from) = match &it.kind {
        DifferenceKind::Added => ("added", None),
        DifferenceKind::Removed => ("removed", None),
        DifferenceKind::Changed => ("changed", None),
        DifferenceKind::Renamed { from, changed } => {
            (if *changed { "renamed-and-changed" } else { "renamed" }, Some(path(mount, from, None)))
        }
        DifferenceKind::Times => ("times", None),
    };
    json!({
        "difference": name, "path": path(mount, &it.path, None), "from": from,
        "before": side(&it.before), "after": side(&it.after),
    })
}
