//! What differs between two points of an agent's, or of two agents', file by file.

use std::sync::Arc;

use super::disk::Disk;
use super::entry::ZoneSpec;
use super::{Store, StoreError};
use crate::chunks::ChunkStore;
use crate::id::GenerationNumber;
use crate::zone::{DiffPart, FileDifference, Sameness, ZoneRoot};

/// What differs in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDifferences {
    /// The zone's name.
    pub zone: String,
    /// Where it is mounted: after, or before where only that has it.
    pub mount: String,
    /// What differs, in the order of paths.
    pub files: Vec<FileDifference>,
}

/// What differs between two points, zone by zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskDifferences {
    /// Every zone that one of the two has, also those in which nothing differs, in the order of the second.
    /// Zones are the same if they have the same name; one that is missing counts as empty.
    pub zones: Vec<ZoneDifferences>,
    /// The names of zones that were left out, since they are shared: generations hold nothing of them.
    pub shared: Vec<String>,
}

/// The root of a zone, and where what it holds is read for as long as this is there.
struct Point {
    root: ZoneRoot,
    chunks: Arc<dyn ChunkStore>,
}

impl Disk {
    /// What differs in a zone between two of the agent's generations; where one is `None`, what is committed
    /// now counts. Not of a zone that is shared.
    ///
    /// The cost is that of what differs. See [`ZoneRoot::compare`] for what is told, and for its limits.
    pub fn diff(
        &self,
        index: u16,
        before: Option<GenerationNumber>,
        after: Option<GenerationNumber>,
    ) -> Result<Vec<FileDifference>, StoreError> {
        self.diff_part(index, before, after, DiffPart::default())
    }

    /// As [`diff`](Self::diff), of a part.
    pub fn diff_part(
        &self,
        index: u16,
        before: Option<GenerationNumber>,
        after: Option<GenerationNumber>,
        part: DiffPart<'_>,
    ) -> Result<Vec<FileDifference>, StoreError> {
        let (before, after) = (self.point(index, before)?, self.point(index, after)?);
        Ok(before.root.compare_part(&after.root, Sameness::Number, &after.chunks, part)?)
    }

    /// What differs between a generation and what is committed on a disk that [rehearses](Disk::rehearse), in the zones
    /// that are the agent's own.
    pub fn differences_to(
        &self,
        generation: GenerationNumber,
        rehearsal: &Self,
    ) -> Result<Vec<ZoneDifferences>, StoreError> {
        Ok(differences((self, Some(generation)), (rehearsal, None))?.zones)
    }

    fn point(&self, index: u16, at: Option<GenerationNumber>) -> Result<Point, StoreError> {
        let store = self.store()?;
        let inner = self.lock();
        let state = &inner.state;
        let at_index = usize::from(index);
        if let Some(spec) = state.specs.get(at_index).filter(|spec| spec.shared.is_some()) {
            return Err(StoreError::NoPast { zone: spec.name.clone() });
        }
        let root = match at {
            Some(generation) => {
                let found = state.generations.get(&generation).and_then(|it| it.roots.get(at_index));
                found.ok_or(StoreError::NoGeneration { generation })?.clone()
            }
            None => state.zones.get(at_index).ok_or(StoreError::NoZone { index })?.head.clone(),
        };
        // under the disk's lock, so that a reaping that drops the generation afterwards sees the reader
        let chunks = store.readers.pin(&root, state.chunks.clone());
        Ok(Point { root, chunks })
    }
}

impl Store {
    /// What differs between an agent's disk at one point and the same or another agent's at another: a
    /// generation, or `None` for what is committed now. Of two agents a file is the same where it has the same
    /// path, also if one is a fork of the other.
    pub fn diff(
        &self,
        before: (&Disk, Option<GenerationNumber>),
        after: (&Disk, Option<GenerationNumber>),
    ) -> Result<DiskDifferences, StoreError> {
        self.shared()?;
        differences(before, after)
    }
}

/// See [`Store::diff`].
fn differences(
    before: (&Disk, Option<GenerationNumber>),
    after: (&Disk, Option<GenerationNumber>),
) -> Result<DiskDifferences, StoreError> {
    let sameness = if before.0.id() == after.0.id() { Sameness::Number } else { Sameness::Path };
    let (old, new) = (before.0.zones(), after.0.zones());
    let mut found = DiskDifferences::default();
    let find = |all: &[ZoneSpec], name: &str| {
        let at = all.iter().position(|spec| spec.shared.is_none() && spec.name == name);
        at.map(|index| index as u16)
    };
    let only_old = old.iter().filter(|spec| find(&new, &spec.name).is_none());
    for spec in new.iter().chain(only_old) {
        if spec.shared.is_some() {
            if !found.shared.contains(&spec.name) {
                found.shared.push(spec.name.clone());
            }
            continue;
        }
        let point = |disk: &Disk, all: &[ZoneSpec], at| {
            find(all, &spec.name).map(|index| disk.point(index, at)).transpose()
        };
        let (was, is) = (point(before.0, &old, before.1)?, point(after.0, &new, after.1)?);
        let empty = || ZoneRoot::empty(spec.kind, spec.quota);
        let Some(chunks) = is.as_ref().or(was.as_ref()).map(|it| it.chunks.clone()) else { continue };
        let roots = (
            was.as_ref().map_or_else(empty, |it| it.root.clone()),
            is.as_ref().map_or_else(empty, |it| it.root.clone()),
        );
        let files = roots.0.compare(&roots.1, sameness, &chunks)?;
        found.zones.push(ZoneDifferences { zone: spec.name.clone(), mount: spec.mount.clone(), files });
    }
    Ok(found)
}
