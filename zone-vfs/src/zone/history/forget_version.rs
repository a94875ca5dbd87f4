//! Forgetting one version of a file.

use std::collections::HashSet;

use super::super::{Access, ErrorCode, Result, Zone, ZoneError};
use super::Forgotten;
use super::content;
use super::query::no_content;
use super::restore::chunks_of;
use crate::id::{Inode, Version};
use crate::tree::{Body, Key, Value};

impl Zone {
    /// The version whose content a version of a file has, which may be an earlier one of the file.
    pub fn content_of_version(&self, file: Inode, version: Version) -> Result<Version> {
        if !self.is_versioned() {
            return Err(ZoneError::rule(ErrorCode::Unsupported, "the zone keeps no versions"));
        }
        self.version_record(self.actual(file), version)?.content.ok_or_else(no_content)
    }

    /// Erases the content of one version of a file, of which the file and its other versions stay. Versions that have the
    /// very same content, such as a rollback to it, lose it too. The history says that it was forgotten, and the change
    /// feed, too; neither the past of the zone nor a rewind shows it any more.
    ///
    /// As for [`Zone::forget`], what generations, the log and the segments hold of it is the store's to erase.
    ///
    /// # Errors
    ///
    /// `busy` where the file stands at this content, or a draft does; `no-entry` where there is no such version, or it has
    /// no content; `unsupported` in a zone that keeps no versions.
    pub fn forget_version(&mut self, access: Access, file: Inode, version: Version) -> Result<Forgotten> {
        let content = self.may_forget_version(access, file, version)?;
        self.may_note(access)?;
        let file = self.actual(file);
        let place = self.version_record(file, version)?.place.clone();
        let path = self.path_of_place(&place)?;
        let mut same = Vec::new();
        for event in self.events_of(file, content)? {
            let (version, record) = event?;
            if record.content == Some(content) {
                same.push((version, record.clone()));
            }
        }
        // all that can fail comes before anything is changed
        content::load(&self.state, content)?;
        let mut doomed = HashSet::new();
        chunks_of(&self.state.history, &*self.state.store, content.inode(), &mut doomed)?;
        let keys: Vec<Key> = same.iter().map(|(version, _)| Key::version(file, *version)).collect();
        self.state.prepare(&keys.iter().collect::<Vec<_>>())?;
        let mut gone = Forgotten::default();
        for (version, record) in same {
            self.erase_version(file, version, record, &mut gone)?;
        }
        self.forgotten.insert(content.inode());
        self.authors.insert(file, access.mount.principal);
        self.still_named(&mut doomed)?;
        gone.chunks = doomed.into_iter().collect();
        gone.chunks.sort_unstable();
        self.note_erased(access, file, Some(version), path, &gone);
        Ok(gone)
    }

    /// Whether [`forget_version`](Self::forget_version) would have something to erase that it may: gives the version
    /// whose content that is.
    ///
    /// # Errors
    ///
    /// Those of [`forget_version`](Self::forget_version).
    pub fn may_forget_version(&self, access: Access, file: Inode, version: Version) -> Result<Version> {
        self.may_forget(access, file)?;
        let content = self.content_of_version(file, version)?;
        if self.shows(self.actual(file), content)? {
            return Err(ZoneError::rule(
                ErrorCode::Busy,
                "the file stands at the content of this version: forget the file, or write it anew before",
            ));
        }
        Ok(content)
    }

    /// Whether the file, or a draft of it, is or shows this content.
    fn shows(&self, file: Inode, content: Version) -> Result<bool> {
        if !matches!(self.state.get(&Key::inode(file))?, Some(Value::Inode(_))) {
            return Ok(false);
        }
        let shown = match &self.record(file)?.body {
            Body::Published { content, .. } | Body::Over { content, .. } => Some(*content),
            _ => None,
        };
        let base = self.draft(file)?.and_then(|draft| draft.base).map(|(_, content)| content);
        Ok(shown == Some(content) || base == Some(content))
    }
}
