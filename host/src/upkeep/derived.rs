//! What is derived from an agent's zones: indexes, mirrors, and how far each has followed the change feed.
//!
//! Every agent has a folder for it beside the store's own files, `derived/AGENT-ID/`. It lies outside zones, quotas,
//! generations and backups: a fork begins without, a rewind leaves it, and it can be deleted at any time, after which
//! whoever made it makes it anew. When something is forgotten it is deleted before that is acknowledged, since
//! nobody knows what of it holds the content. It goes with its agent.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;
use zone_vfs::id::AgentId;

use crate::agent::{Agent, AgentError};
use crate::host::{Host, HostShared};

/// The folder in the store's.
const FOLDER: &str = "derived";
/// The longest name of what is derived. Bytes.
pub const MAX_DERIVED_NAME: usize = 64;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> AgentError {
    let what = format!("the derived area {}", path.display());
    |source| AgentError::Io { what, source }
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= MAX_DERIVED_NAME && !name.starts_with('.') && name.bytes().all(plain)
}

/// Deletes a folder with all that is in it, durably. One that is missing is no error.
fn delete(folder: &Path) -> io::Result<bool> {
    match fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    }
    if let Some(parent) = folder.parent() {
        fs::File::open(parent)?.sync_all()?;
    }
    Ok(true)
}

/// The bytes of the files in a folder; links are not followed, and what cannot be looked at does not count.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let bytes = entries.filter_map(Result::ok).map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    });
    bytes.sum()
}

impl Agent {
    /// The folder in which a program keeps what it derives from this agent's zones under `name`: letters, digits,
    /// `.`, `-` and `_`, at most [`MAX_DERIVED_NAME`]. It is made when it is missing, for this user alone, and may be
    /// deleted whenever no program works in it; see the module's text for when Dormouse deletes it.
    ///
    /// # Errors
    ///
    /// [`AgentError::DerivedName`], and what the filesystem says.
    pub fn derived(&self, name: &str) -> Result<PathBuf, AgentError> {
        if !is_name(name) {
            return Err(AgentError::DerivedName(name.into()));
        }
        let folder = self.host.derived(self.id()).join(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed(&folder))?;
        Ok(folder)
    }
}

impl Host {
    /// Bytes that programs have [derived](Agent::derived) from an agent's zones.
    pub fn derived_bytes(&self, agent: AgentId) -> u64 {
        bytes_in(&self.shared.derived(agent))
    }
}

impl HostShared {
    fn derived(&self, agent: AgentId) -> PathBuf {
        self.options.folder.join(FOLDER).join(agent.0.to_string())
    }

    /// Deletes what is derived from an agent's zones.
    pub(crate) fn purge_derived(&self, agent: AgentId) -> Result<(), AgentError> {
        let folder = self.derived(agent);
        delete(&folder).map(drop).map_err(failed(&folder))
    }

    /// Deletes what is derived from the zones of agents that are gone. What fails is logged, and tried again the next
    /// time: nothing hangs on it.
    pub(crate) fn reap_derived(&self) {
        let folder = self.options.folder.join(FOLDER);
        let found = match fs::read_dir(&folder) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>(),
            Err(e) => Err(e),
        };
        let entries = match found {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            Err(e) => return tracing::warn!("{}", zone_vfs::told(&failed(&folder)(e))),
        };
        // after the folders: of one that an agent has made since, the agent is among these
        let agents = self.store().and_then(|store| Ok(store.agents()?));
        let there: HashSet<AgentId> = match agents {
            Ok(agents) => agents.into_iter().map(|(_, id)| id).collect(),
            Err(e) => return tracing::warn!("what is derived: {}", zone_vfs::told(&e)),
        };
        for entry in entries {
            // what has another name is not Dormouse's
            let id = entry.file_name().to_str().and_then(|name| Uuid::try_parse(name).ok()).map(AgentId);
            if id.is_some_and(|id| !there.contains(&id))
                && let Err(e) = delete(&entry.path())
            {
                tracing::warn!("{}", zone_vfs::told(&failed(&entry.path())(e)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder() {
        for name in ["index", "words-2.db", "A_b"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(MAX_DERIVED_NAME + 1);
        for name in ["", ".", "..", ".hidden", "a/b", "../x", "a\0", "ü", " ", &long] {
            assert!(!is_name(name), "{name}");
        }
    }
}
