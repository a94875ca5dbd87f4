//! How a generation's record names an image.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::format::PageRun;

/// The name of a flat image file: `genesis-KEY` or `AGENT-GENERATION`, without the ending.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FlatName {
    /// The genesis image of a component: the key of its compiled code.
    Genesis([u8; 32]),
    /// The genesis of one agent, whose component reads its surroundings while it is instantiated.
    OwnGenesis(Uuid),
    /// The image of one generation of an agent.
    Generation(Uuid, u64),
}

impl fmt::Display for FlatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Genesis(key) => write!(f, "genesis-{}.flat", blake3::Hash::from_bytes(*key).to_hex()),
            Self::OwnGenesis(agent) => write!(f, "genesis-{agent}.flat"),
            Self::Generation(agent, generation) => write!(f, "{agent}-{generation}.flat"),
        }
    }
}

/// The name of a file of changed pages: only the agent that it is named after appends to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PagesName {
    /// The agent that wrote it.
    pub agent: Uuid,
    /// Counts the agent's files.
    pub number: u32,
}

impl fmt::Display for PagesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}.pages", self.agent, self.number)
    }
}

/// A page that differs from the flat base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedPage {
    /// Index of the memory.
    pub memory: u16,
    /// Index of the page inside the memory.
    pub page: u32,
    /// Index into [`ImageReference::files`].
    pub file: u16,
    /// Index of the page inside that file, or [`ChangedPage::ZERO`].
    pub slot: u32,
    /// crc32 of the page.
    pub check: u32,
}

impl ChangedPage {
    /// The slot of a page that is all zeros, which is never stored.
    pub const ZERO: u32 = u32::MAX;

    /// Where the page belongs.
    pub fn place(&self) -> (u16, u32) {
        (self.memory, self.page)
    }
}

/// Pages, which are in order, as runs of pages that follow each other.
pub(super) fn runs(pages: &[ChangedPage]) -> impl Iterator<Item = PageRun> {
    let follows =
        |one: &ChangedPage, next: &ChangedPage| one.memory == next.memory && one.page + 1 == next.page;
    pages.chunk_by(follows).filter_map(|run| {
        run.first().map(|it| PageRun { memory: it.memory, page: it.page, count: run.len() as u32 })
    })
}

/// Everything that is needed to find an image again: the part of a generation's record that stands
/// for memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageReference {
    pub(super) base: FlatName,
    /// Bytes of each linear memory, in the order of their creation.
    pub(super) memories: Vec<u64>,
    pub(super) files: Vec<PagesName>,
    /// Sorted by place, each place once.
    pub(super) pages: Vec<ChangedPage>,
}

impl ImageReference {
    /// The flat file that the image lies on.
    pub fn base(&self) -> &FlatName {
        &self.base
    }

    /// The files that hold its changed pages.
    pub fn files(&self) -> &[PagesName] {
        &self.files
    }

    /// How many pages differ from the base.
    pub fn changed_pages(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of each memory.
    pub fn memories(&self) -> &[u64] {
        &self.memories
    }

    /// Bytes of linear memory.
    pub fn bytes(&self) -> u64 {
        self.memories.iter().sum()
    }

    /// One that says how long the memories are, and names no file that there is.
    pub(crate) fn without_files(&self) -> Self {
        Self::in_archive(FlatName::Generation(Uuid::nil(), 0), self.memories.clone())
    }

    /// Of an image that is in the archive, from which the flat file `base` is to be made.
    pub(crate) fn in_archive(base: FlatName, memories: Vec<u64>) -> Self {
        Self { base, memories, files: Vec::new(), pages: Vec::new() }
    }

    /// Names exactly this image: what a flat file that was made of it states.
    pub(crate) fn digest(&self) -> Result<[u8; 32], String> {
        Ok(*blake3::hash(&postcard::to_stdvec(self).map_err(|e| e.to_string())?).as_bytes())
    }

    /// Checks what a record from outside may have wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.memories.len() > usize::from(u16::MAX) || self.files.len() > usize::from(u16::MAX) {
            return Err("too many memories or files".into());
        }
        let mut last = None;
        for page in &self.pages {
            if last >= Some(page.place()) {
                return Err("changed pages are out of order".into());
            }
            last = Some(page.place());
            let inside = self
                .memories
                .get(usize::from(page.memory))
                .is_some_and(|bytes| (u64::from(page.page) + 1) * super::PAGE as u64 <= *bytes);
            if !inside {
                return Err(format!("page {} lies outside memory {}", page.page, page.memory));
            }
            if page.slot != ChangedPage::ZERO && usize::from(page.file) >= self.files.len() {
                return Err("a changed page names no file".into());
            }
        }
        Ok(())
    }
}
