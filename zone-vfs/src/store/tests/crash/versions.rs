//! What agents do in the zone that keeps versions, beyond plain changes: drafts that stay open, and
//! rolling back.

use super::super::changes::{self, Failed};
use super::super::versions::{Deed, Standing};
use super::work::{Goes, Work};
use super::*;
use crate::zone::{ErrorCode, Expected};

/// A file that an agent has open for writing.
#[derive(Clone, Debug)]
pub struct Draft {
    file: Inode,
    pub path: String,
}

const OPEN: OpenOptions = OpenOptions { truncate: false, ..WRITE };

impl Work {
    /// Something with a draft, or a rollback.
    pub fn remember(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        match (self.rng.below(6), self.drafts.get(&name).cloned()) {
            (0..3, None) => self.begin_draft(&name, &disk),
            (0, Some(draft)) => self.write_draft(&name, &disk, &draft),
            (1, Some(draft)) => self.publish_draft(&name, &disk, &draft, false),
            (2, Some(_)) => self.close_draft(&name, &disk),
            _ => self.roll_back(&name, &disk),
        }
    }

    /// What has become of something that was done to an agent's zone.
    pub fn did(&mut self, name: &str, what: &str, result: Result<(), Failed>) -> Goes {
        match result {
            Ok(()) => Ok(true),
            Err(Failed::Refused(e)) if self.reads_fail() => self.read_failed(&format!("{what}: {e}")),
            Err(Failed::Postponed) if matches!(self.trouble, Trouble::Full(_)) => Ok(false),
            Err(Failed::Postponed) => Err(format!("{name}: {what} was put off")),
            Err(Failed::Refused(_)) if self.trouble != Trouble::None => Ok(false),
            Err(Failed::Refused(e)) => Err(format!("{name}: {what}: {e}")),
            Err(Failed::Wrong(wrong)) => Err(format!("{name}: {wrong}")),
        }
    }

    fn begin_draft(&mut self, name: &str, disk: &Arc<Disk>) -> Goes {
        let path = format!("f{}", self.rng.below(4));
        let bytes = self.fresh();
        self.steps.push(format!("{name} drafts {path} ({})", bytes.len()));
        let agent = self.model.get_mut(name).unwrap();
        let mut opened = None;
        let made = changes::remember(
            disk,
            agent,
            &Deed::Draft,
            |zone| {
                let file = zone.open(access(), Inode::ROOT, path.as_bytes(), OPEN)?;
                zone.append(access(), file, &bytes)?;
                Ok(file)
            },
            |files, file| {
                opened = Some(file);
                Arc::make_mut(files.entry(path.clone()).or_default()).extend_from_slice(&bytes);
            },
        );
        if let Some(file) = opened {
            self.drafts.insert(name.to_owned(), Draft { file, path: path.clone() });
        }
        self.did(name, "a draft", made)
    }

    fn write_draft(&mut self, name: &str, disk: &Arc<Disk>, draft: &Draft) -> Goes {
        let bytes = self.fresh();
        self.steps.push(format!("{name} writes to its draft ({})", bytes.len()));
        let agent = self.model.get_mut(name).unwrap();
        let made = changes::remember(
            disk,
            agent,
            &Deed::Draft,
            |zone| zone.append(access(), draft.file, &bytes),
            |files, _| Arc::make_mut(files.entry(draft.path.clone()).or_default()).extend_from_slice(&bytes),
        );
        self.did(name, "writing to a draft", made)
    }

    fn publish_draft(&mut self, name: &str, disk: &Arc<Disk>, draft: &Draft, closes: bool) -> Goes {
        self.steps.push(format!("{name} {} its draft", if closes { "closes" } else { "syncs" }));
        let agent = self.model.get_mut(name).unwrap();
        let content = agent.files(SEMANTIC)[&draft.path].clone();
        let make = |zone: &mut Zone| {
            if closes { zone.close_writer(draft.file) } else { zone.sync(access(), draft.file).map(drop) }
        };
        let made = changes::remember(disk, agent, &Deed::Published(draft.file, &content), make, |_, ()| {});
        self.did(name, "publishing a draft", made)
    }

    /// Closes the draft that an agent has open, if it has one.
    pub fn close_draft(&mut self, name: &str, disk: &Arc<Disk>) -> Goes {
        let Some(draft) = self.drafts.remove(name) else { return Ok(true) };
        self.publish_draft(name, disk, &draft, true)
    }

    /// Publishes whatever is a draft, as the end of a process does.
    pub fn tidy(&mut self, name: &str, disk: &Arc<Disk>) -> Goes {
        let agent = self.model.get_mut(name).unwrap();
        let make = |zone: &mut Zone| zone.publish_all_except(&BTreeSet::new());
        let made = changes::remember(disk, agent, &Deed::Tidied, make, |_, ()| {});
        self.did(name, "publishing all", made)
    }

    /// Publishes an earlier version again, also of a file that is gone.
    fn roll_back(&mut self, name: &str, disk: &Arc<Disk>) -> Goes {
        let goes = self.close_draft(name, disk)?;
        if !goes {
            return Ok(false);
        }
        let agent = self.model.get_mut(name).unwrap();
        let versions = agent.memory().past.versions();
        if versions.is_empty() {
            return Ok(true);
        }
        let (file, version) = versions[self.rng.below(versions.len() as u64) as usize];
        self.steps.push(format!("{name} rolls {file} back to {version}"));
        let content = agent.memory().written_as(file, version).unwrap_or_default();
        let mut refused = None;
        let made = changes::remember(
            disk,
            agent,
            &Deed::Rollback(file, version),
            |zone| {
                let made = zone.rollback(access(), file, version, Expected::Any);
                refused = made.as_ref().err().map(|e| e.code);
                made?;
                Ok(Standing::of(zone)?.path_of(file))
            },
            |files, path| {
                let Some(path) = path else { return };
                if let Some((folder, _)) = path.split_once('/') {
                    files.entry(format!("{folder}/")).or_default();
                }
                files.insert(path, content);
            },
        );
        // its place is taken, or its folder is gone, or what it is is a draft
        let may_be = [ErrorCode::Exist, ErrorCode::NoEntry, ErrorCode::Busy];
        match refused {
            Some(code) if may_be.contains(&code) => Ok(true),
            _ => self.did(name, "a rollback", made),
        }
    }
}
