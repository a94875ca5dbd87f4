//! Looking for damage: everything is read again, and what is damaged is named by agent, zone and path.
//!
//! With `repair` what can be made whole is: the superblock and the log from what is in memory, a frame from
//! another copy of it, a segment with damaged places by moving what reads in it elsewhere. The damaged file is then kept
//! under `quarantine/`, since somebody may know better how to read it. Nothing is deleted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use super::agents::Slot;
use super::catalogue;
use super::reach::{Part, Place, Reach, Visitor};
use super::resident::{self, Grown};
use super::{Shared, Store, StoreError};
use crate::chunks::{ChunkError, ChunkStore, FrameKind};
use crate::device::is_shortage;
use crate::id::{AgentId, GenerationNumber, Hash, Inode, Version};
use crate::log::LogError;
use crate::segment::{Checked, Marks, Segments};
use crate::superblock::{SuperblockError, SuperblockFile};
use crate::tree::{Key, NameOf, references_names};

/// Names of one tree, and versions, that are kept to tell paths.
const MAX_NAMES: usize = 1 << 20;
/// Damaged frames that are remembered.
const MAX_DAMAGED: usize = 1 << 16;

/// Something that a scrub found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A slot of the superblock does not say what it should.
    Superblock {
        /// What is wrong.
        reason: String,
    },
    /// The log cannot be read again. What it holds is in memory, and with a checkpoint in the segments.
    Log {
        /// What is wrong.
        reason: String,
    },
    /// A place in a segment does not read. Whether anything needs what was there, other findings say.
    Segment {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Something of an agent cannot be read.
    Agent(Damage),
    /// Something is lost, or may be, that nothing brings back.
    Lost {
        /// What, and whose.
        what: String,
    },
    /// Something was made whole, or set aside.
    Repaired {
        /// What was done.
        what: String,
    },
}

/// What a damaged or missing frame hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Whose it is; none for the list of agents.
    pub agent: Option<(AgentId, String)>,
    /// Of which generation; none for what stands now.
    pub generation: Option<GenerationNumber>,
    /// The zone, where it is in one.
    pub zone: Option<String>,
    /// The file, where it is one's content.
    pub path: Option<String>,
    /// The address that does not read. None where all of the agent reads, and its records do not fit.
    pub hash: Option<Hash>,
    /// What is wrong.
    pub reason: String,
}

/// What a scrub did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Frames that were read.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that do not read.
    pub damaged_frames: u64,
    /// Findings, but for repairs.
    pub findings: u64,
    /// Agents of which something cannot be read.
    pub damaged_agents: u64,
    /// Files that were set aside.
    pub quarantined: u64,
}

impl ScrubReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.findings == 0
    }
}

impl Store {
    /// Reads everything again, and tells `report` what is damaged, as it is found. Works beside live agents, and
    /// writes nothing. With `repair` it makes a checkpoint, and makes whole what can be; it is worth scrubbing again
    /// then, and agents that were damaged are tried anew when the store is opened the next time.
    pub fn scrub(&self, repair: bool, report: &mut dyn FnMut(&Finding)) -> Result<ScrubReport, StoreError> {
        let shared = self.shared()?;
        let _alone = shared.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let _room = repair.then(|| shared.room());
        let mut scrub = Scrub { shared, report, result: ScrubReport::default() };
        scrub.log(repair)?;
        let catalogue = if repair {
            Some(shared.checkpoint_with(|| Ok(()))?.0)
        } else {
            shared.superblock.lock().unwrap_or_else(PoisonError::into_inner).current().catalogue
        };
        scrub.superblock(repair)?;
        let damaged = scrub.segments(repair)?;
        scrub.agents(catalogue, damaged, repair)?;
        Ok(scrub.result)
    }
}

/// What does not read.
struct Unread {
    frames: HashSet<Hash>,
    /// Segments in which something does not even say what it was.
    files: HashSet<u32>,
}

struct Scrub<'a> {
    shared: &'a Arc<Shared>,
    report: &'a mut dyn FnMut(&Finding),
    result: ScrubReport,
}

impl Scrub<'_> {
    fn found(&mut self, finding: &Finding) {
        match finding {
            Finding::Repaired { .. } => {}
            _ => self.result.findings += 1,
        }
        (self.report)(finding);
    }

    fn repaired(&mut self, what: String) {
        tracing::warn!(what, "repaired");
        self.found(&Finding::Repaired { what });
    }

    /// Reads the log again. Commits go on meanwhile, and a checkpoint, which would let the log be used again,
    /// waits for the superblock. What is written during the reading can look torn: only where something looks
    /// wrong it is read once more while nobody commits, and that counts.
    fn log(&mut self, repair: bool) -> Result<(), StoreError> {
        let shared = self.shared;
        let superblock = shared.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        let from = *shared.checkpointed.lock().unwrap_or_else(PoisonError::into_inner);
        let look = || {
            let written = shared.log.tail();
            match shared.log.read(&shared.log_options, from, &mut |_| Ok(())) {
                Ok(end) if end >= written => Ok(None),
                Ok(end) => Ok(Some(format!("it ends at {end}, and was written up to {written}"))),
                Err(LogError::Io { source, .. }) if is_shortage(&source) => {
                    Err(StoreError::Io { what: "reading the log again".into(), source })
                }
                Err(LogError::Io { file, source }) => {
                    Ok(Some(format!("{file}: the device failed: {source}")))
                }
                Err(e) => Ok(Some(e.to_string())),
            }
        };
        let reason = match look()? {
            Some(_) => shared.gate.stopped(look)?,
            None => None,
        };
        drop(superblock);
        if let Some(reason) = reason {
            self.found(&Finding::Log { reason });
            if repair {
                shared.checkpoint()?;
                self.repaired("what the damaged part of the log held is in the segments now".into());
            }
        }
        Ok(())
    }

    fn superblock(&mut self, repair: bool) -> Result<(), StoreError> {
        let shared = self.shared;
        let mut superblock = shared.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        let current = *superblock.current();
        let reason = match SuperblockFile::peek(shared.segments.device()) {
            Ok(found) if found == current => None,
            Ok(_) => Some("its newest slot does not read".to_owned()),
            Err(SuperblockError::Io(source)) if is_shortage(&source) => {
                return Err(SuperblockError::Io(source).into());
            }
            Err(SuperblockError::Io(source)) => Some(format!("the device failed: {source}")),
            Err(e) => Some(e.to_string()),
        };
        let Some(reason) = reason else { return Ok(()) };
        self.found(&Finding::Superblock { reason });
        if repair {
            // both slots
            for _ in 0..2 {
                superblock.advance(current.catalogue, current.log)?;
            }
            self.repaired("the superblock was written again".into());
        }
        Ok(())
    }

    /// Reads every segment, and gives what does not read anywhere.
    fn segments(&mut self, repair: bool) -> Result<Unread, StoreError> {
        let segments = &*self.shared.segments;
        if repair {
            segments.flush()?;
            // not damage, since it is a cache: it is made anew where it is wrong. Of segments that it cannot be
            // compared with more is said below
            segments.verify_index()?;
        }
        let (mut damaged, mut unknown) = (HashSet::new(), HashSet::new());
        let mut files = BTreeSet::new();
        for (number, _) in segments.files() {
            let Checked { file, frames, bytes, unreadable, reason } = segments.check(number)?;
            self.result.frames += frames;
            self.result.bytes += bytes;
            self.result.damaged_frames += unreadable.len() as u64;
            for (hash, what) in &unreadable {
                self.found(&Finding::Segment { file: file.clone(), reason: format!("{hash} {what}") });
            }
            if let Some(reason) = &reason {
                self.found(&Finding::Segment { file: file.clone(), reason: reason.clone() });
                unknown.insert(number);
            }
            if !unreadable.is_empty() || reason.is_some() {
                files.insert(number);
            }
            let left = MAX_DAMAGED.saturating_sub(damaged.len());
            damaged.extend(unreadable.into_iter().map(|(hash, _)| hash).take(left));
        }
        // one that has a sound copy elsewhere is no loss
        let mut lost = HashSet::new();
        for hash in damaged {
            match segments.read(&hash) {
                Ok(_) => {}
                Err(e @ ChunkError::Shortage(_)) => return Err(e.into()),
                Err(_) => drop(lost.insert(hash)),
            }
        }
        let mut damaged = lost;
        if repair {
            let lost: Vec<Hash> = damaged.iter().copied().collect();
            for hash in lost {
                if segments.rescue(&hash)? {
                    damaged.remove(&hash);
                    self.repaired(format!("{hash} was found in another place"));
                }
            }
            for number in files {
                if let Some(name) = segments.quarantine(number)? {
                    self.result.quarantined += 1;
                    self.repaired(format!("what reads was copied; the rest is in {name}"));
                }
            }
        }
        Ok(Unread { frames: damaged, files: unknown })
    }

    /// Names what is hit.
    fn agents(&mut self, hash: Option<Hash>, damaged: Unread, repair: bool) -> Result<(), StoreError> {
        let segments = &self.shared.segments;
        let (live, stored): (Vec<_>, _) = {
            let agents = self.shared.agents();
            let live = agents.slots.values().filter_map(|slot| match slot {
                // otherwise the catalogue has it as it is
                Slot::Live(disk) if !repair => Some(disk.clone()),
                _ => None,
            });
            (live.collect(), agents.stored())
        };
        let mut finder = Finder {
            segments,
            damaged,
            seen: Marks::default(),
            found: Vec::new(),
            agents: BTreeSet::new(),
            names: None,
            grown: None,
            zones: HashMap::new(),
        };
        for disk in live {
            finder.begin(disk.lock().state.specs.iter().map(|spec| spec.name.clone()));
            let grows = |finder: &mut Finder<'_>, grown: Option<&Grown>| finder.grown = grown.cloned();
            resident::walk(&mut Reach::new(segments, &mut finder), &disk, grows)?;
            for damage in std::mem::take(&mut finder.found) {
                self.found(&Finding::Agent(damage));
            }
        }
        // the list itself, and then each agent by itself: what several need is told of each
        let list = match hash.map(|hash| (hash, catalogue::read(&**segments, &hash))) {
            None => Vec::new(),
            Some((_, Ok(list))) => {
                list.agents.into_iter().chain(list.shared.into_iter().map(|it| it.stored)).collect()
            }
            Some((hash, Err(e))) => {
                finder.unreadable(&Place::default(), &hash, e)?;
                finder.found.iter().for_each(|it| self.found(&Finding::Agent(it.clone())));
                return Ok(());
            }
        };
        for agent in list.iter().filter(|it| repair || stored.contains(&it.id)) {
            let state = agent.state.as_ref().map(|payload| catalogue::read_stored(payload, &**segments));
            let specs = state.and_then(Result::ok).map(|state| state.specs).unwrap_or_default();
            finder.begin(specs.into_iter().map(|spec| spec.name));
            Reach::new(segments, &mut finder).agent(agent)?;
            for damage in std::mem::take(&mut finder.found) {
                self.found(&Finding::Agent(damage));
            }
        }
        // those that could not be brought in, whose frames may all read
        let unusable: Vec<_> = {
            let agents = self.shared.agents();
            let damaged = agents.slots.iter().filter_map(|(id, slot)| match slot {
                // where only the device failed, all was read again by now
                Slot::Damaged(it) if !it.may_pass && !finder.agents.contains(id) => {
                    Some((*id, it.stored.name.clone(), it.reason.clone()))
                }
                _ => None,
            });
            damaged.collect()
        };
        for (id, name, reason) in unusable {
            finder.agents.insert(id);
            let agent = Some((id, name));
            let damage = Damage { agent, generation: None, zone: None, path: None, hash: None, reason };
            self.found(&Finding::Agent(damage));
        }
        self.result.damaged_agents = finder.agents.len() as u64;
        Ok(())
    }
}

/// What a tree says of names. That of a history knows where files were, and of which file a version is.
#[derive(Default)]
struct Names {
    /// Of each inode a directory in which it lies, and its name there.
    places: HashMap<Inode, (Inode, String)>,
    /// Of what has the content of a version, the file.
    versions: HashMap<Inode, Inode>,
}

struct Finder<'a> {
    segments: &'a Arc<Segments>,
    damaged: Unread,
    seen: Marks,
    found: Vec<Damage>,
    agents: BTreeSet<AgentId>,
    /// The names in the tree that was looked at last.
    names: Option<(Hash, Names)>,
    /// The tree that is looked at, where it is in memory.
    grown: Option<Grown>,
    zones: HashMap<u16, String>,
}

impl Finder<'_> {
    /// Begins with an agent whose zones have these names: what several need is told of each.
    fn begin(&mut self, zones: impl Iterator<Item = String>) {
        self.seen = Marks::default();
        self.zones = zones.enumerate().map(|(index, name)| (index as u16, name)).collect();
    }

    /// The path of a file in a tree that is in memory.
    fn path_in(&self, grown: &Grown, inode: Inode) -> Option<String> {
        let key = if grown.is_history { Key::content(Version(inode.0)) } else { Key::inode(inode) };
        let chunks: Arc<dyn ChunkStore> = self.segments.clone();
        // what does not read is told by whoever walks
        let path = grown.root.path_of_content(&key, &chunks).ok().flatten()?;
        Some(format!("/{}", String::from_utf8_lossy(&path)))
    }

    /// The path of a file, as far as the directories read.
    fn path(&mut self, root: Hash, inode: Inode) -> Option<String> {
        if self.names.as_ref().is_none_or(|(of, _)| *of != root) {
            self.names = Some((root, names_of(self.segments, root)));
        }
        let names = &self.names.as_ref()?.1;
        let (mut path, mut at) = (String::new(), names.versions.get(&inode).copied().unwrap_or(inode));
        for _ in 0..crate::zone::MAX_DIRECTORY_DEPTH * 4 {
            let (parent, name) = names.places.get(&at)?;
            path.insert_str(0, name);
            path.insert(0, '/');
            if *parent == Inode::ROOT {
                return Some(path);
            }
            at = *parent;
        }
        None
    }
}

/// The names in a tree; of a file that had several in turn, the last.
fn names_of(segments: &Segments, root: Hash) -> Names {
    let mut names = Names::default();
    let mut waiting = vec![root];
    while let Some(hash) = waiting.pop() {
        // what does not read is told by whoever walks
        let Ok(node) = segments.read(&hash) else { continue };
        let below = waiting.len();
        let _ = references_names(&node, &mut |child| waiting.push(child), &mut |it| match it {
            NameOf::Entry(parent, name, inode) if names.places.len() < MAX_NAMES => {
                names.places.insert(inode, (parent, name.to_string()));
            }
            NameOf::Version(content, file) if names.versions.len() < MAX_NAMES => {
                names.versions.insert(content, file);
            }
            NameOf::Entry(..) | NameOf::Version(..) => {}
        });
        // in order, so that what comes later counts
        waiting[below..].reverse();
    }
    names
}

impl Visitor for Finder<'_> {
    fn visit(&mut self, place: &Place, _: FrameKind, hash: &Hash) -> Result<bool, StoreError> {
        if self.damaged.frames.contains(hash) {
            let reason = "it does not read".to_owned();
            let is_new = self.segments.locate(hash).map_or(true, |frame| self.seen.add(frame));
            if is_new {
                self.unreadable(place, hash, ChunkError::Damaged { hash: *hash, reason }.into())?;
            }
            return Ok(false);
        }
        let frame = self.segments.locate(hash)?;
        let is_new = self.seen.add(frame);
        if is_new && self.damaged.files.contains(&frame.segment()) {
            self.segments.read(hash)?;
        }
        Ok(is_new)
    }

    fn unreadable(&mut self, place: &Place, hash: &Hash, error: StoreError) -> Result<(), StoreError> {
        if !error.is_of_one_agent() {
            return Err(error);
        }
        let path = match (self.grown.take(), place.root, place.inode) {
            (Some(grown), _, Some(inode)) => {
                let path = self.path_in(&grown, inode);
                self.grown = Some(grown);
                path
            }
            (None, Some(root), Some(inode)) => self.path(root, inode),
            (grown, ..) => {
                self.grown = grown;
                None
            }
        };
        let zone = match place.part {
            Part::Zone(index) => Some(self.zones.get(&index).cloned().unwrap_or_else(|| index.to_string())),
            _ => None,
        };
        self.agents.extend(place.agent.as_ref().map(|(id, _)| *id));
        self.found.push(Damage {
            agent: place.agent.as_ref().map(|(id, name)| (*id, name.to_string())),
            generation: place.generation,
            zone,
            path,
            hash: Some(*hash),
            reason: match place.part {
                Part::Attachment => format!("what is attached to it: {error}"),
                _ => error.to_string(),
            },
        });
        Ok(())
    }
}
