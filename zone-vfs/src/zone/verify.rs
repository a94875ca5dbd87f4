//! Whether a stored zone is one that could have come about: for zones that somebody else has stored.
//!
//! Trees that are well formed node by node can still say what no zone says: a directory that lies in itself, a file in
//! an append-only zone with two names, content that no chunk reaches. All of a zone is read once, and what it uses is
//! counted anew. Takes about 100 bytes of memory for each inode and version.

use std::collections::{HashMap, HashSet};

use super::history::content::{PiecesIdentity, inline_identity};
use super::{MAX_FILE_SIZE, MAX_NAMES, StoredRoot, Usage};
use crate::chunks::ChunkStore;
use crate::contract::ZoneKind;
use crate::id::{Hash, Inode, Timestamp, Version};
use crate::tree::{
    Body, CHUNK, DraftRecord, FileKind, InodeRecord, Key, Part, TreeError, Value, VersionKind, VersionRecord,
    walk,
};

/// Numbers of files, versions and changes that are believed are below this: what a zone gives on can be counted up
/// from there, and is no directory of the past.
pub(crate) const MAX_NUMBER: u64 = 1 << 60;
/// Times that are believed are before this. Nanoseconds since 1970.
pub(crate) const MAX_TIME: u64 = 1 << 63;

type Checked<T = ()> = Result<T, TreeError>;

fn expect(holds: bool, rule: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(TreeError::Damaged(rule)) }
}

/// Checks a zone that is stored, and gives it with what it uses counted anew. Chunks are not read.
///
/// # Errors
///
/// [`TreeError::Damaged`] names the rule that does not hold.
pub(crate) fn verify(root: &StoredRoot, store: &dyn ChunkStore) -> Checked<StoredRoot> {
    let mut past =
        Past { root, contents: HashMap::new(), open: None, used: Usage::default(), versions: Vec::new() };
    let counters = &root.counters;
    expect(
        counters.next_inode.0 <= MAX_NUMBER && counters.next_change.0 <= MAX_NUMBER,
        "a zone has given more numbers than there are",
    )?;
    expect(counters.dropped < counters.next_change, "changes were dropped that never were")?;
    expect(
        counters.horizon.0 < counters.next_inode.0 && counters.reaped <= counters.horizon,
        "a zone's horizon lies behind what it has given",
    )?;
    expect(counters.latest.0 < MAX_TIME, "a zone's time is none that can be")?;
    if let Some(history) = &root.history {
        walk(store, history, &mut |key, value| past.entry(key, value))?;
    }
    past.finish()?;
    let mut files = Files {
        root,
        past: &past,
        nodes: HashMap::new(),
        names: HashMap::new(),
        orphans: HashSet::new(),
        drafts: HashMap::new(),
        now: None,
        used: Usage::default(),
    };
    walk(store, &root.hash, &mut |key, value| files.entry(key, value))?;
    let used = files.finish()?;
    let mut counted = *root;
    (counted.counters.usage, counted.counters.past) = (used, past.used);
    counted.counters.inherited = counters.inherited.min(used);
    counted.counters.inherited_past = counters.inherited_past.min(past.used);
    Ok(counted)
}

fn is_time(at: Timestamp) -> Checked {
    expect(at.0 < MAX_TIME, "a time is none that can be")
}

/// What the history holds.
struct Past<'a> {
    root: &'a StoredRoot,
    /// What each content is: its size, and what identifies it.
    contents: HashMap<Version, (u64, Hash)>,
    /// The content whose pieces come.
    open: Option<Pieces>,
    used: Usage,
    /// Each content as a version names it.
    versions: Vec<(Version, u64, Hash)>,
}

struct Pieces {
    content: Version,
    size: u64,
    /// Where the last piece ends.
    end: u64,
    identity: PiecesIdentity,
}

impl Past<'_> {
    fn entry(&mut self, key: &Key, value: &Value) -> Checked {
        expect(key.part.is_history(), "a file lies in the history")?;
        expect(
            self.root.kind.keeps_versions() || matches!(key.part, Part::Change(_)),
            "a zone that keeps no versions has some",
        )?;
        if !matches!(key.part, Part::Piece(_)) {
            self.close();
        }
        let next = self.root.counters.next_inode.0;
        match (&key.part, value) {
            (Part::Change(sequence), Value::Change(record)) => {
                let (dropped, next) = (self.root.counters.dropped, self.root.counters.next_change);
                expect(key.inode.0 == 0, "a change lies under a file")?;
                expect(dropped < *sequence && *sequence < next, "a change has a number that was not given")?;
                is_time(record.at)
            }
            (Part::Event(version), Value::Event(event)) => {
                expect(key.inode.0 == 0, "an event lies under a file")?;
                expect(version.0 < next && event.file.0 < next, "an event has a number that was not given")?;
                expect(event.at <= self.root.counters.latest, "an event is later than the zone")?;
                self.used.inodes += 1;
                Ok(())
            }
            (Part::Version(version), Value::Version(record)) => self.version(key.inode, *version, record),
            (Part::Named(_, version), Value::Named(target)) => {
                let file = target.map_or(Inode(0), |(file, _)| file);
                let given = key.inode.0 < next && version.0 < next && file.0 < next;
                expect(given, "a name stands for a number that was not given")
            }
            (Part::Content, Value::Inode(record)) => self.content(Version(key.inode.0), record),
            (Part::Piece(offset), Value::Extent(piece)) => {
                let pieces = self.open.as_mut().filter(|it| it.content.inode() == key.inode);
                let pieces = pieces.ok_or(TreeError::Damaged("a piece is of no content"))?;
                let (len, hash) = (piece.len() as u64, piece.address().unwrap_or(Hash([0; 32])));
                let fits = len > 0
                    && *offset >= pieces.end
                    && offset.checked_add(len).is_some_and(|end| end <= pieces.size);
                expect(fits, "a piece lies where none can")?;
                pieces.end = offset + len;
                pieces.identity.add(*offset, len as u32, &hash);
                Ok(())
            }
            _ => expect(false, "a value does not fit its key"),
        }
    }

    fn version(&mut self, file: Inode, version: Version, record: &VersionRecord) -> Checked {
        let next = self.root.counters.next_inode.0;
        let to = match record.kind {
            VersionKind::Rollback { to } | VersionKind::RootMoved { to } => Some(to),
            _ => None,
        };
        expect(
            version.0 < next && file.0 < next && record.place.parent.0 < next,
            "a version has a number that was not given",
        )?;
        expect(to.is_none_or(|to| to < version), "a version goes back to a later one")?;
        expect(record.at <= self.root.counters.latest, "a version is later than the zone")?;
        let added = record.added <= record.size && record.size <= MAX_FILE_SIZE;
        expect(added, "a version is larger than a file can be")?;
        self.used.bytes = self.used.bytes.saturating_add(record.added);
        if let Some(content) = record.content {
            expect(content <= version, "a version has the content of a later one")?;
            self.versions.push((content, record.size, record.hash));
        }
        Ok(())
    }

    fn content(&mut self, content: Version, record: &InodeRecord) -> Checked {
        expect(content.0 < self.root.counters.next_inode.0, "content has a number that was not given")?;
        expect(record.size <= MAX_FILE_SIZE, "content is larger than a file can be")?;
        match &record.body {
            Body::Inline(bytes) => {
                self.contents.insert(content, (record.size, inline_identity(bytes)));
                Ok(())
            }
            Body::Pieces => {
                let identity = PiecesIdentity::new(record.size);
                self.open = Some(Pieces { content, size: record.size, end: 0, identity });
                Ok(())
            }
            _ => expect(false, "content is no file's"),
        }
    }

    fn close(&mut self) {
        if let Some(pieces) = self.open.take() {
            self.contents.insert(pieces.content, (pieces.size, pieces.identity.finish()));
        }
    }

    fn finish(&mut self) -> Checked {
        self.close();
        let contents = &self.contents;
        let is_there = |(content, size, hash): &(Version, u64, Hash)| {
            contents.get(content).is_some_and(|it| it == &(*size, *hash))
        };
        let holds = self.versions.iter().all(is_there);
        self.versions = Vec::new();
        expect(holds, "a version's content is not what it says")
    }

    fn size_of(&self, content: Version) -> Checked<u64> {
        let found = self.contents.get(&content).map(|(size, _)| *size);
        found.ok_or(TreeError::Damaged("the content of a file is not there"))
    }
}

/// An inode, as far as others depend on it.
#[derive(Clone, Copy)]
struct Node {
    kind: FileKind,
    links: u32,
    parent: Option<Inode>,
    /// The file that it stands for.
    alias: Option<Inode>,
}

/// The names of an inode.
#[derive(Clone, Copy)]
struct Names {
    count: u32,
    /// The directory of the first.
    parent: Inode,
    kind: FileKind,
}

struct Files<'a> {
    root: &'a StoredRoot,
    past: &'a Past<'a>,
    nodes: HashMap<Inode, Node>,
    names: HashMap<Inode, Names>,
    orphans: HashSet<Inode>,
    drafts: HashMap<Inode, DraftRecord>,
    /// The inode whose parts come: its number, what of its size chunks may reach, and whether it has entries.
    now: Option<(Inode, u64, bool)>,
    used: Usage,
}

impl Files<'_> {
    fn entry(&mut self, key: &Key, value: &Value) -> Checked {
        expect(key.inode < self.root.counters.next_inode, "a file has a number that was not given")?;
        match (&key.part, value) {
            (Part::Orphan(inode), Value::Orphan) => {
                expect(key.inode.0 == 0, "an orphan lies under a file")?;
                self.orphans.insert(*inode);
                Ok(())
            }
            (Part::Draft(inode), Value::Draft(draft)) => {
                let fits = key.inode.0 == 0 && self.root.kind.keeps_versions();
                expect(fits, "a draft is where none can be")?;
                self.drafts.insert(*inode, *draft);
                Ok(())
            }
            (Part::Inode, Value::Inode(record)) => {
                expect(key.inode.0 > 0, "a file has no number")?;
                self.inode(key.inode, record)
            }
            (Part::Dirent(_), Value::Dirent { inode, kind }) => {
                let has_entries = self.now.is_some_and(|(now, _, entries)| now == key.inode && entries);
                expect(has_entries, "a name lies in what is no directory")?;
                let names = Names { count: 0, parent: key.inode, kind: *kind };
                let names = self.names.entry(*inode).or_insert(names);
                expect(names.kind == *kind, "a file is of two kinds")?;
                names.count = names.count.saturating_add(1);
                Ok(())
            }
            (Part::Extent(index), Value::Extent(extent)) => {
                let size = self.now.filter(|(now, ..)| *now == key.inode).map_or(0, |(_, size, _)| size);
                let end = index.checked_mul(CHUNK as u64).and_then(|at| at.checked_add(extent.len() as u64));
                expect(end.is_some_and(|end| end <= size), "a chunk lies beyond the end of its file")
            }
            _ => expect(false, "a value does not fit its key"),
        }
    }

    fn inode(&mut self, inode: Inode, record: &InodeRecord) -> Checked {
        let versioned = self.root.kind.keeps_versions();
        expect(record.size <= MAX_FILE_SIZE, "a file is larger than one can be")?;
        expect(record.links <= MAX_NAMES, "a file has more names than one can have")?;
        let place = record.place.as_ref().map_or(Inode::ROOT, |place| place.parent);
        expect(place < self.root.counters.next_inode, "a file lies in a directory that never was")?;
        let (mut chunks, mut parent, mut alias) = (0, None, None);
        match &record.body {
            Body::Directory { parent: above } => parent = Some(*above),
            Body::Inline(_) => {}
            Body::Extents => chunks = record.size,
            Body::Symlink(_) => {
                let allowed = matches!(self.root.kind, ZoneKind::Workspace | ZoneKind::Shared);
                expect(allowed, "the zone's contract has no symbolic links")?;
            }
            Body::Published { content, .. } => {
                let size = self.past.size_of(*content)?;
                expect(versioned && size == record.size, "a file is not what was published")?;
            }
            Body::Over { content, kept } => {
                let size = self.past.size_of(*content)?;
                expect(versioned && *kept <= size, "a draft shows more than there is")?;
                chunks = record.size;
            }
            Body::Alias { to } => {
                expect(versioned && record.links == 0, "a file stands for another")?;
                alias = Some(*to);
            }
            Body::Pieces => expect(false, "a file is the content of a version")?,
        }
        self.now = Some((inode, chunks, parent.is_some()));
        self.nodes.insert(inode, Node { kind: record.kind(), links: record.links, parent, alias });
        if inode != Inode::ROOT {
            self.used.inodes += 1 + u64::from(record.links.saturating_sub(1));
        }
        self.used.bytes = self.used.bytes.saturating_add(record.size);
        Ok(())
    }

    fn finish(&self) -> Checked<Usage> {
        let root = self.nodes.get(&Inode::ROOT);
        let is_root = root.is_some_and(|it| it.parent == Some(Inode::ROOT));
        expect(is_root && !self.names.contains_key(&Inode::ROOT), "a zone has no root directory")?;
        let hard_links = matches!(self.root.kind, ZoneKind::Workspace | ZoneKind::Shared);
        for (inode, names) in &self.names {
            let node = self.nodes.get(inode).ok_or(TreeError::Damaged("a name stands for no file"))?;
            expect(node.kind == names.kind, "a name says that a file is of another kind")?;
            expect(node.parent.is_none_or(|it| it == names.parent), "a directory lies in two")?;
        }
        let is_file = |it: Inode| {
            self.nodes.get(&it).is_some_and(|it| it.kind == FileKind::Regular && it.alias.is_none())
        };
        for (inode, node) in &self.nodes {
            if *inode == Inode::ROOT {
                continue;
            }
            expect(node.alias.is_none_or(is_file), "a file stands for what is none")?;
            let names = self.names.get(inode).map_or(0, |it| it.count);
            expect(names == node.links, "a file does not have as many names as it says")?;
            expect(names <= 1 || (hard_links && node.kind != FileKind::Directory), "a file has two names")?;
            expect(names > 0 || self.orphans.contains(inode), "a file without a name is not known as that")?;
        }
        let nameless = |inode: &Inode| self.nodes.get(inode).is_some_and(|it| it.links == 0);
        expect(self.orphans.iter().all(nameless), "an orphan is none")?;
        for (inode, draft) in &self.drafts {
            expect(self.nodes.contains_key(inode), "a draft is of no file")?;
            if let Some((_, content)) = draft.base {
                self.past.size_of(content)?;
            }
        }
        self.no_loops()?;
        Ok(self.used)
    }

    /// Each directory with a name leads to the root directory.
    fn no_loops(&self) -> Checked {
        let mut leads_up: HashSet<Inode> = HashSet::from([Inode::ROOT]);
        for (inode, node) in &self.nodes {
            let (mut path, mut at, mut node) = (HashSet::new(), *inode, *node);
            while let Some(parent) = node.parent.filter(|_| node.links > 0 && !leads_up.contains(&at)) {
                expect(path.insert(at), "a directory lies in itself")?;
                at = parent;
                node = *self.nodes.get(&at).ok_or(TreeError::Damaged("a directory lies in none"))?;
            }
            leads_up.extend(path);
        }
        Ok(())
    }
}
