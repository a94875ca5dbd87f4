//! The files that a path stands for, or stood for: where each is by now.

use std::collections::BTreeSet;

use anyhow::anyhow;
use serde_json::{Value, json};
use zone_vfs::id::Inode;
use zone_vfs::zone::Zone;

use crate::Agent;

/// Files of which people are told, of each sort.
const MAX_TOLD: usize = 20;

/// A file, and where it is or was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    pub file: Inode,
    /// As it is written in commands, where it is known.
    pub path: Option<Vec<u8>>,
    /// Whether it is there now.
    pub is_there: bool,
}

impl NamedFile {
    fn path(&self) -> Option<String> {
        self.path.as_deref().map(|path| String::from_utf8_lossy(path).into_owned())
    }

    pub fn told(&self) -> String {
        match (self.path(), self.is_there) {
            (Some(path), true) => format!("file {} at {path}", self.file),
            (Some(path), false) => format!("file {}, last at {path}", self.file),
            (None, _) => format!("file {}", self.file),
        }
    }

    pub fn json(&self) -> Value {
        json!({ "file": self.file.0, "path": self.path(), "is_there": self.is_there })
    }
}

/// What a path stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// What goes.
    pub go: Vec<NamedFile>,
    /// What had the name, and is not meant by it.
    pub stay: Vec<NamedFile>,
}

impl Named {
    /// All of these go.
    pub fn of(go: Vec<NamedFile>) -> Self {
        Self { go, stay: Vec::new() }
    }

    /// For people: what becomes of a file, and which it is.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, String)> {
        [("goes:", &self.go), ("had the name, and stays:", &self.stay)].into_iter().flat_map(
            |(what, files)| {
                let told = files.iter().take(MAX_TOLD).map(NamedFile::told);
                let more = files.len().checked_sub(MAX_TOLD + 1).map(|more| format!("{} more", more + 1));
                told.chain(more).map(move |file| (what, file)).collect::<Vec<_>>()
            },
        )
    }
}

/// Where files of an agent's zone are.
pub struct Places<'a> {
    pub agent: &'a Agent,
    pub zone: u16,
    pub mount: &'a str,
}

impl Places<'_> {
    /// A path in the zone as the agent knows it.
    pub fn whole(&self, path: &[u8]) -> Vec<u8> {
        [self.mount.as_bytes(), b"/", path].concat()
    }

    /// Where these are, or were when a generation was made that is kept, the newest that has one.
    pub fn of(&self, files: BTreeSet<Inode>) -> anyhow::Result<Vec<NamedFile>> {
        let mut known = Vec::new();
        let mut left = Vec::new();
        for file in files {
            let found = self.agent.disk().zone(self.zone, |z| z.whereabouts(file));
            match found.ok_or_else(|| anyhow!("the zone is gone"))?? {
                Some(at) => {
                    let path = at.path.map(|path| self.whole(&path));
                    known.push(NamedFile { file, path, is_there: at.is_there });
                }
                None => left.push(file),
            }
        }
        for generation in self.agent.generations().iter().rev() {
            if left.is_empty() {
                break;
            }
            let then: Zone = self.agent.disk().zone_at(generation.number, self.zone)?;
            let mut missing = Vec::new();
            for file in left {
                match then.whereabouts(file)? {
                    Some(at) => {
                        let path = at.path.map(|path| self.whole(&path));
                        known.push(NamedFile { file, path, is_there: false });
                    }
                    None => missing.push(file),
                }
            }
            left = missing;
        }
        known.extend(left.into_iter().map(|file| NamedFile { file, path: None, is_there: false }));
        known.sort_unstable_by_key(|it| it.file);
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_of_a_bounded_number_of_files() {
        let file =
            |number| NamedFile { file: Inode(number), path: Some(b"/x".to_vec()), is_there: number == 1 };
        let named = Named { go: (1..=22).map(file).collect(), stay: vec![file(30)] };
        let lines: Vec<_> = named.lines().collect();
        assert_eq!(lines.len(), MAX_TOLD + 2);
        assert_eq!(lines[0], ("goes:", "file 1 at /x".into()));
        assert_eq!(lines[MAX_TOLD], ("goes:", "2 more".into()));
        assert_eq!(lines[MAX_TOLD + 1], ("had the name, and stays:", "file 30, last at /x".into()));
    }
}
