//! `zone changes`: the change feed.

use std::fmt::{Display, Write};
use std::time::Duration;

use serde_json::json;
use zone_vfs::id::ChangeSequence;
use zone_vfs::store::StoreError;
use zone_vfs::tree::{ChangeKind, ChangeRecord};
use zone_vfs::zone::KEPT_CHANGES;

use super::history::{principal, text};
use super::place::{Place, View};
use crate::cli::output::{column_time, expect_reader, note, of_store, print_json_line, say, size, time};
use crate::cli::stop::signalled;
use crate::wit::is_below;
use crate::{AgentError, Host, HostOptions};

/// Entries that are read at once.
const PIECE: usize = 1000;
/// Entries that are held before they are printed, at most; as many as a feed keeps.
const MAX_ENTRIES: usize = KEPT_CHANGES as usize;
/// How often a feed that is followed is looked at. The store is open only as long as that takes.
const EVERY: Duration = Duration::from_millis(500);

/// A feed that is followed.
pub struct Follow {
    pub place: Place,
    pub after: u64,
    /// At most so many entries; then it is over.
    pub limit: usize,
    pub json: bool,
}

fn kind(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Create => "create",
        ChangeKind::Publish => "publish",
        ChangeKind::Append { .. } => "append",
        ChangeKind::Write => "write",
        ChangeKind::Rename => "rename",
        ChangeKind::Tombstone => "tombstone",
        ChangeKind::Remove => "remove",
        ChangeKind::Forget => "forget",
        ChangeKind::Rollback => "rollback",
        ChangeKind::RootMoved => "root-moved",
    }
}

/// The columns but the last, which is as wide as it is.
fn row(at: &dyn Display, time: &str, by: &str, what: &str) -> String {
    format!("{at:>8}  {time:<30}  {by:<7}  {what:<9}  ")
}

fn header(json: bool) -> anyhow::Result<()> {
    if json { Ok(()) } else { say(format_args!("{}PATH", row(&"SEQUENCE", "TIME", "BY", "KIND"))) }
}

fn print(at: ChangeSequence, record: &ChangeRecord, json: bool) -> anyhow::Result<()> {
    let path = |path: &Option<Vec<u8>>| path.as_deref().map(text);
    let range = match record.kind {
        ChangeKind::Append { from, to } => Some((from, to)),
        _ => None,
    };
    if json {
        return print_json_line(&json!({
            "sequence": at.0, "kind": kind(record.kind), "file": record.file.0, "path": path(&record.path),
            "old_path": path(&record.old_path), "turn": record.turn.0, "at": time(record.at),
            "by": principal(record.by), "version": record.version.map(|v| v.0), "bytes": record.size,
            "appended": range.map(|(from, to)| json!([from, to])),
        }));
    }
    let what = match record.kind {
        // it is of no file
        ChangeKind::RootMoved => "rewound",
        other => kind(other),
    };
    let mut line = row(&at, &column_time(record.at), principal(record.by), what);
    if let Some(old) = path(&record.old_path) {
        write!(line, "{old} -> ")?;
    }
    match (path(&record.path), record.kind) {
        (_, ChangeKind::RootMoved) => line.push_str("the whole zone"),
        (Some(path), _) => line.push_str(&path),
        (None, _) => write!(line, "file {}", record.file)?,
    }
    match (range, record.version) {
        (Some((from, to)), _) => write!(line, "  bytes {from}..{to}")?,
        (None, Some(version)) => write!(line, "  version {version}, {}", size(record.size))?,
        (None, None) => {}
    }
    say(format_args!("{line}"))
}

/// Whether an entry names `folder` or something in it.
fn is_about(record: &ChangeRecord, folder: &str) -> bool {
    [&record.path, &record.old_path].into_iter().flatten().any(|path| is_below(path, folder.as_bytes()))
}

/// Whether the feed, or the history of versions, has something of the path.
fn is_known(view: &mut View) -> anyhow::Result<bool> {
    let path = view.path.clone();
    if view.with("", |z, access| Ok(z.find_past(access, path.as_bytes()).is_ok()))? {
        return Ok(true);
    }
    let mut after = ChangeSequence(0);
    loop {
        let changes = view.changes(after, PIECE)?;
        if changes.entries.iter().any(|(_, record)| is_about(record, &path)) {
            return Ok(true);
        }
        let last = changes.entries.last().map(|(at, _)| *at);
        match (last, changes.gap) {
            (Some(last), _) => after = last,
            (None, Some(gap)) if gap > after => after = gap,
            (None, _) => return Ok(false),
        }
    }
}

/// Something to print.
enum Told {
    Entry(ChangeSequence, ChangeRecord),
    /// Entries up to this one are gone.
    Gap(ChangeSequence),
}

/// What came after an entry. The store can be closed before it is printed, which may take as long as its reader likes.
struct Batch {
    told: Vec<Told>,
    /// The last entry that was looked at.
    last: u64,
}

/// What came after `after`, at most `limit` entries: no feed keeps more than [`MAX_ENTRIES`].
fn read_after(view: &mut View, after: u64, limit: usize) -> anyhow::Result<Batch> {
    let folder = view.path.clone();
    // what has no path is about the whole zone
    let inside = |record: &ChangeRecord| record.path.is_none() || is_about(record, &folder);
    let mut batch = Batch { told: Vec::new(), last: after };
    let mut left = limit.min(MAX_ENTRIES);
    while left > 0 {
        let changes = view.changes(ChangeSequence(batch.last), PIECE)?;
        if let Some(gap) = changes.gap {
            batch.told.push(Told::Gap(gap));
            batch.last = batch.last.max(gap.0);
        }
        if changes.entries.is_empty() {
            break;
        }
        for (at, record) in changes.entries {
            if left == 0 {
                break;
            }
            batch.last = at.0;
            if inside(&record) {
                batch.told.push(Told::Entry(at, record));
                left -= 1;
            }
        }
    }
    Ok(batch)
}

impl Batch {
    fn entries(&self) -> usize {
        self.told.iter().filter(|told| matches!(told, Told::Entry(..))).count()
    }

    fn print(&self, json: bool) -> anyhow::Result<()> {
        for told in &self.told {
            match told {
                Told::Entry(at, record) => print(*at, record, json)?,
                Told::Gap(gap) if json => print_json_line(&json!({ "gap": gap.0 }))?,
                Told::Gap(gap) => {
                    note(format_args!("dormouse: entries up to {gap} are gone: read the zone itself"));
                }
            }
        }
        Ok(())
    }
}

/// Lists what is there.
pub fn once(host: &Host, place: &Place, after: u64, limit: usize, json: bool) -> anyhow::Result<u8> {
    let mut view = View::open(host, place)?;
    view.told_of(is_known)?;
    header(json)?;
    read_after(&mut view, after, limit)?.print(json)?;
    Ok(0)
}

/// Lists what is there and what comes, until Ctrl-C, or nobody reads it any more. Another process that has the store open
/// is waited for.
pub async fn follow(options: HostOptions, what: Follow) -> anyhow::Result<u8> {
    let (mut after, mut left, mut begun) = (what.after, what.limit, false);
    let mut stop = std::pin::pin!(signalled());
    loop {
        match Host::open(options.clone()) {
            Ok(host) => {
                let read = View::open(&host, &what.place).and_then(|mut view| {
                    // what is not there yet can come
                    view.told_of(|_| Ok(true))?;
                    read_after(&mut view, after, left)
                });
                let closed = host.close();
                let read = read?;
                closed?;
                if !begun {
                    header(what.json)?;
                    begun = true;
                }
                read.print(what.json)?;
                after = read.last;
                left -= read.entries();
                if left == 0 {
                    return Ok(0);
                }
            }
            Err(AgentError::Store(StoreError::Locked { .. })) => {}
            Err(e) => return Err(of_store(e, &options.folder)),
        }
        tokio::select! {
            status = &mut stop => return Ok(status),
            () = tokio::time::sleep(EVERY) => expect_reader()?,
        }
    }
}
