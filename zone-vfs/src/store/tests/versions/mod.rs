//! What a zone that keeps versions remembers, read whole; and a plain model of what each change and
//! each commit adds to it.
//!
//! Numbers are taken from the zone, and checked: none is given twice. Everything else is said by the model.

mod taken;

use std::collections::{BTreeMap, BTreeSet};

use super::changes::ZoneChange;
use super::*;
use crate::id::{ChangeSequence, Turn, Version};
use crate::tree::{ChangeKind, Name, NamedPlace, VersionKind, VersionRecord};

type Events = BTreeMap<(Version, Inode), VersionRecord>;

/// All that a zone says of its past, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// By number and file.
    pub events: Events,
    /// Whose event a number is. A rewind notes what did not count under another event's number.
    pub numbers: BTreeMap<Version, Inode>,
    /// The change feed.
    pub feed: BTreeMap<ChangeSequence, Told>,
    next: Version,
    next_change: ChangeSequence,
}

/// An entry of the change feed, without its path, which directories decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    kind: ChangeKind,
    file: Inode,
    turn: Turn,
    version: Option<Version>,
    size: u64,
}

impl Default for Past {
    /// Of an empty zone.
    fn default() -> Self {
        Self {
            events: Events::new(),
            numbers: BTreeMap::new(),
            feed: BTreeMap::new(),
            next: Version(Inode::ROOT.next().0),
            next_change: ChangeSequence(1),
        }
    }
}

pub fn try_read_past(zone: &Zone) -> Result<Past, ZoneError> {
    let events = zone.all_events()?.into_iter();
    let feed = zone.changes(access(), ChangeSequence(0), usize::MAX)?.entries.into_iter();
    let (next, next_change) = zone.next_numbers();
    Ok(Past {
        events: events.map(|(key, record)| (key, VersionRecord { at: Timestamp(0), ..record })).collect(),
        numbers: zone.all_numbers()?.into_iter().collect(),
        feed: feed
            .map(|(sequence, it)| {
                let crate::tree::ChangeRecord { kind, file, turn, version, size, .. } = it;
                (sequence, Told { kind, file, turn, version, size })
            })
            .collect(),
        next,
        next_change,
    })
}

impl Past {
    fn of(&self, file: Inode) -> impl Iterator<Item = (Version, &VersionRecord)> {
        self.events.iter().filter(move |((_, of), _)| *of == file).map(|((version, _), it)| (*version, it))
    }

    /// Versions that can be rolled back to.
    pub fn versions(&self) -> Vec<(Inode, Version)> {
        let all = self.events.iter().filter(|(_, it)| it.has_content());
        all.map(|((version, file), _)| (*file, *version)).collect()
    }
}

fn moved(to: Version) -> VersionRecord {
    let name = Name::new(b"root").unwrap();
    VersionRecord {
        at: Timestamp(0),
        by: Principal::Host,
        turn: Turn(0),
        kind: VersionKind::RootMoved { to },
        file: FileKind::Directory,
        place: NamedPlace { parent: Inode::ROOT, name },
        from: None,
        size: 0,
        hash: Hash([0; 32]),
        content: None,
        added: 0,
    }
}

fn told(file: Inode, version: Version, record: &VersionRecord) -> Told {
    let kind = match record.kind {
        VersionKind::Create => ChangeKind::Create,
        VersionKind::Publish => ChangeKind::Publish,
        VersionKind::Rollback { .. } => ChangeKind::Rollback,
        VersionKind::Rename => ChangeKind::Rename,
        VersionKind::Tombstone => ChangeKind::Tombstone,
        VersionKind::Forgotten => ChangeKind::Forget,
        VersionKind::RootMoved { .. } => ChangeKind::RootMoved,
    };
    let version = record.has_content().then_some(version);
    Told { kind, file, turn: record.turn, version, size: record.size }
}

/// The past of a zone, as the model has it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub past: Arc<Past>,
    /// What had happened when the last commit was made.
    drained: Arc<Past>,
    /// What was written as each version.
    contents: Arc<BTreeMap<Version, Arc<Vec<u8>>>>,
    /// The version that each file stands at, which is not the last one after a rewind.
    bases: Arc<BTreeMap<Inode, Version>>,
    /// The last event at which a policy has given any back.
    reaped: Version,
}

impl Memory {
    /// A commit tells what has happened since the one before.
    pub fn drain(&mut self) {
        if Arc::ptr_eq(&self.past, &self.drained) {
            return;
        }
        let (old, new) = (&self.drained.events, &self.past.events);
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let mut feed = self.past.feed.clone();
        let mut next = self.past.next_change;
        for key @ (version, file) in keys {
            let told = match (old.get(key), new.get(key)) {
                (None, Some(now)) => told(*file, *version, now),
                (Some(was), Some(now)) if was.place != now.place => {
                    Told { kind: ChangeKind::Rename, ..told(*file, *version, now) }
                }
                (Some(was), None) => {
                    let gone = told(*file, *version, was);
                    Told { kind: ChangeKind::Remove, version: None, size: 0, ..gone }
                }
                _ => continue,
            };
            feed.insert(next, told);
            next = next.next();
        }
        self.past = Arc::new(Past { feed, next_change: next, ..(*self.past).clone() });
        self.drained = self.past.clone();
    }

    /// This one, which gives no number that `left` has given.
    #[must_use]
    pub fn after(&self, left: &Self) -> Self {
        let (next, next_change) =
            (self.past.next.max(left.past.next), self.past.next_change.max(left.past.next_change));
        let past = Arc::new(Past { next, next_change, ..(*self.past).clone() });
        Self { drained: past.clone(), past, ..self.clone() }
    }

    /// What stands now, and has just been committed, after its files went back to those of `target`.
    #[must_use]
    pub fn rewound(&self, target: &Self) -> Self {
        let mut past = (*self.after(target).past).clone();
        let taken = target.past.events.iter().filter(|(key, _)| !self.past.events.contains_key(key));
        past.events.extend(taken.map(|(key, record)| (*key, record.clone())));
        let taken: Vec<_> = target
            .past
            .numbers
            .iter()
            .filter(|(number, _)| !self.past.numbers.contains_key(number))
            .collect();
        // what a policy has given back counts as ever
        let mut failed = taken.iter().filter(|(number, _)| **number > self.reaped);
        if let Some((first, _)) = failed.next() {
            let last = failed.next_back().map_or(*first, |(last, _)| *last);
            // until now, those did not count
            let at = (last.next(), Inode::ROOT);
            past.events.entry(at).or_insert_with(|| moved(Version(first.0 - 1)));
        }
        past.numbers.extend(taken);
        let (number, entry) = (past.next, past.next_change);
        let record = moved(Version(target.past.next.0 - 1));
        past.feed.insert(entry, told(Inode::ROOT, number, &record));
        past.events.insert((number, Inode::ROOT), record);
        past.numbers.insert(number, Inode::ROOT);
        (past.next, past.next_change) = (number.next(), entry.next());
        let mut contents = (*self.contents).clone();
        contents.extend(target.contents.iter().map(|(version, it)| (*version, it.clone())));
        let past = Arc::new(past);
        let (contents, bases) = (Arc::new(contents), target.bases.clone());
        Self { drained: past.clone(), past, contents, bases, reaped: self.reaped }
    }

    /// What was written as a version of a file.
    pub fn written_as(&self, file: Inode, version: Version) -> Option<Arc<Vec<u8>>> {
        self.contents.get(&self.past.events.get(&(version, file))?.content?).cloned()
    }

    /// What a file stands at, but for a draft.
    fn content(&self, file: Inode) -> Option<Arc<Vec<u8>>> {
        self.written_as(file, *self.bases.get(&file)?)
    }

    /// Whether a zone gives every version as it was written.
    pub fn reads_in(&self, zone: &Zone) -> Result<(), String> {
        for ((version, file), record) in self.past.events.iter().filter(|(_, it)| it.has_content()) {
            let Some(wanted) = record.content.and_then(|it| self.contents.get(&it)) else {
                return Err(format!("nothing was written as version {version} of {file}"));
            };
            let mut found = vec![0; record.size as usize + 1];
            let read = zone.read_version(access(), *file, *version, 0, &mut found);
            let read = read.map_err(|e| format!("version {version} of {file}: {e}"))?;
            if found[..read] != wanted[..] {
                return Err(format!("version {version} of {file} is not what was written"));
            }
        }
        Ok(())
    }
}

/// A zone, as one sees it before and after a change.
pub struct Standing {
    past: Past,
    names: BTreeMap<String, Inode>,
    span: Version,
}

impl Standing {
    pub fn of(zone: &Zone) -> Result<Self, ZoneError> {
        let mut names = BTreeMap::new();
        let mut directories = vec![(Inode::ROOT, String::new())];
        while let Some((directory, path)) = directories.pop() {
            for entry in zone.readdir(access(), directory, None, usize::MAX)? {
                let mut path = format!("{path}{}", entry.name);
                if entry.kind == FileKind::Directory {
                    path.push('/');
                    directories.push((entry.inode, path.clone()));
                }
                names.insert(path, entry.inode);
            }
        }
        Ok(Self { past: try_read_past(zone)?, names, span: zone.span() })
    }

    pub fn path_of(&self, file: Inode) -> Option<String> {
        self.names.iter().find(|(_, it)| **it == file).map(|(path, _)| path.clone())
    }

    /// Whether anything of a file is older than the turn, so that it leaves a trace.
    fn lasts(&self, file: Inode) -> bool {
        self.past.of(file).next().is_some_and(|(version, _)| version < self.span)
    }
}

/// What was done to a zone that keeps versions.
#[derive(Debug)]
pub enum Deed<'a> {
    Change(&'a ZoneChange),
    Rollback(Inode, Version),
    /// A draft was begun, or written to.
    Draft,
    /// A file's draft was synced or closed, and this was in it.
    Published(Inode, &'a Arc<Vec<u8>>),
    /// What was left of drafts was published.
    Tidied,
}

impl Memory {
    /// Takes up what a change has added to the history, if that is what it should have added. `files` are
    /// those before it.
    pub fn took(
        &mut self,
        deed: &Deed<'_>,
        files: &Files,
        before: &Standing,
        after: Standing,
    ) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{:.200}: {what}", format!("{deed:?}")));
        if before.past != *self.past {
            let (found, wanted) = (&before.past, &self.past);
            return wrong(&format!("the history was another before: {found:#?}\ninstead of {wanted:#?}"));
        }
        let (old, new) = (&before.past, &after.past);
        if new.feed != old.feed || new.next_change != old.next_change {
            return wrong("what is not committed was told");
        }
        for (key @ (_, file), was) in &old.events {
            let same_content =
                |now: &VersionRecord| (now.content, now.size, now.hash) == (was.content, was.size, was.hash);
            match new.events.get(key) {
                Some(now) if now == was => {}
                // what was born in this turn has been elsewhere, or was not at all
                Some(now) if !before.lasts(*file) && same_content(now) => {}
                None if !before.lasts(*file) => {}
                _ => return wrong("an event of earlier changed"),
            }
        }
        let added: Vec<_> = new.events.iter().filter(|(key, _)| !old.events.contains_key(key)).collect();
        if added.iter().any(|((version, _), _)| *version < old.next || *version >= new.next) {
            return wrong("a number was given twice");
        }
        let kinds: Vec<_> = added.iter().map(|((_, file), it)| (*file, it.kind)).collect();
        // a file that is a draft as it stands is published by whoever comes next
        let is_draft = |path: &String| {
            let file = before.names.get(path);
            file.is_some_and(|file| self.content(*file).as_ref() != files.get(path))
        };
        let mut written: Option<(Inode, Arc<Vec<u8>>)> = None;
        let publishes = |file: Inode, content: &[u8]| -> Vec<(Inode, VersionKind)> {
            match self.content(file) {
                Some(was) if was[..] == *content => Vec::new(),
                Some(_) => vec![(file, VersionKind::Publish)],
                None => vec![(file, VersionKind::Create)],
            }
        };
        let goes = |file: Inode| -> Vec<(Inode, VersionKind)> {
            if before.lasts(file) { vec![(file, VersionKind::Tombstone)] } else { Vec::new() }
        };
        let wanted = match deed {
            Deed::Change(ZoneChange::Put(path, content) | ZoneChange::Replace(path, content)) => {
                let Some(file) = after.names.get(path) else { return wrong("it is not there") };
                if before.names.get(path).is_some_and(|was| was != file) {
                    return wrong("it is another file");
                }
                written = Some((*file, Arc::new(content.clone())));
                publishes(*file, content)
            }
            Deed::Change(ZoneChange::Unlink(path)) => goes(before.names[path]),
            Deed::Change(ZoneChange::Mkdir(path)) => vec![(after.names[path], VersionKind::Create)],
            Deed::Change(ZoneChange::Rename(from, to)) => {
                let source = before.names[from];
                match before.names.get(to) {
                    Some(target) => {
                        if after.names.get(to) != Some(target) {
                            return wrong("the target is another file");
                        }
                        let content = &files[from];
                        written = Some((*target, content.clone()));
                        publishes(*target, content).into_iter().chain(goes(source)).collect()
                    }
                    None if before.lasts(source) => vec![(source, VersionKind::Rename)],
                    None => kinds.iter().copied().filter(|it| *it == (source, VersionKind::Rename)).collect(),
                }
            }
            Deed::Change(other) => return wrong(&format!("{other} is no change of such a zone")),
            Deed::Rollback(file, to) => {
                // the folder that it was in comes back with it
                let folders = added.iter().filter(|(_, it)| it.file == FileKind::Directory);
                let folders = folders.map(|((_, folder), it)| (*folder, it.kind));
                folders.chain([(*file, VersionKind::Rollback { to: *to })]).collect()
            }
            Deed::Draft => Vec::new(),
            Deed::Published(file, content) => {
                written = Some((*file, (*content).clone()));
                publishes(*file, content)
            }
            Deed::Tidied => kinds.clone(),
        };
        let paths: Vec<&String> = match deed {
            Deed::Change(ZoneChange::Rename(from, to)) => vec![from, to],
            Deed::Change(ZoneChange::Put(path, _) | ZoneChange::Replace(path, _)) => vec![path],
            _ => Vec::new(),
        };
        let same = |a: &[(Inode, VersionKind)], b: &[(Inode, VersionKind)]| {
            a.len() == b.len() && a.iter().all(|it| b.contains(it))
        };
        if !same(&kinds, &wanted) && !paths.into_iter().any(is_draft) {
            return wrong(&format!("events {kinds:?} instead of {wanted:?}"));
        }
        let mut contents = (*self.contents).clone();
        let mut bases = (*self.bases).clone();
        for ((version, file), record) in added {
            if record.has_content() {
                bases.insert(*file, *version);
            } else if record.kind == VersionKind::Tombstone {
                bases.remove(file);
            }
            if record.content != Some(*version) || !record.has_content() {
                continue;
            }
            let content = match &written {
                Some((of, content)) if of == file => content.clone(),
                // a draft, as it stood
                _ => match before.path_of(*file).and_then(|path| files.get(&path)) {
                    Some(content) => content.clone(),
                    None => return wrong("a version of what was not there"),
                },
            };
            contents.insert(*version, content);
        }
        self.contents = Arc::new(contents);
        self.bases = Arc::new(bases);
        self.past = Arc::new(after.past);
        Ok(())
    }
}
