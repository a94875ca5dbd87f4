//! What becomes of names in a zone that keeps versions.
//!
//! What was born in the present turn and goes again leaves no trace, whatever was synced meanwhile.
//! What is older leaves a tombstone, and its versions stay.

use std::ops::Bound;
use std::sync::Arc;

use super::super::table::Stage;
use super::super::{Access, Result, Zone};
use super::Event;
use super::content::remove_content;
use crate::id::{Inode, Version};
use crate::tree::{Body, FileKind, Key, NamedPlace, Part, Value, VersionKind, VersionRecord};

impl Zone {
    /// The events of a file or directory from `from` on, oldest first.
    pub(super) fn events_of(
        &self,
        file: Inode,
        from: Version,
    ) -> Result<impl Iterator<Item = Result<(Version, &VersionRecord)>>> {
        let from = Key::version(file, from);
        let range = self.state.history.range(&*self.state.store, Bound::Included(&from))?;
        Ok(range
            .map(move |entry| match entry {
                Ok((Key { inode, part: Part::Version(version) }, Value::Version(record)))
                    if *inode == file =>
                {
                    Ok(Some((*version, &**record)))
                }
                Ok(_) => Ok(None),
                Err(error) => Err(error.into()),
            })
            .map_while(Result::transpose))
    }

    /// What has become of a file's name, as far as the present turn goes.
    fn trace(&self, file: Inode) -> Result<Trace> {
        match self.events_of(file, Version(0))?.next().transpose()? {
            None => Ok(Trace::None),
            Some((version, _)) if version >= self.span => Ok(Trace::OfThisTurn),
            Some(_) => Ok(Trace::Lasting),
        }
    }

    /// Reads what noting that a name goes needs, in a zone that keeps versions.
    pub(in super::super) fn prepare_gone(&self, file: Inode, place: &NamedPlace) -> Result<()> {
        if !self.is_versioned() {
            return Ok(());
        }
        for event in self.events_of(file, self.span)? {
            let (version, record) = event?;
            self.prepare_erasure(file, version, record)?;
        }
        self.prepare_event(file, &[place])
    }

    /// Notes that a directory was made.
    pub(in super::super) fn note_directory(&mut self, access: Access, directory: Inode) -> Result<()> {
        if !self.is_versioned() {
            return Ok(());
        }
        let place = self.place_of(directory)?;
        let event = Event::without_content(directory, VersionKind::Create, FileKind::Directory, place);
        self.note(access.mount.principal, access.now, event).map(drop)
    }

    /// Notes that the name of a file or directory goes, for which [`Zone::prepare_gone`] was called.
    pub(in super::super) fn note_gone(
        &mut self,
        access: Access,
        file: Inode,
        is: FileKind,
        place: &NamedPlace,
    ) -> Result<()> {
        if !self.is_versioned() {
            return Ok(());
        }
        // a draft of it stays with the descriptors that have it open, and is never published
        self.state.remove(Key::draft(file))?;
        if let Some(open) = self.open.get_mut(&file)
            && matches!(open.stage, Stage::Draft(_))
        {
            open.stage = Stage::Plain;
        }
        match self.trace(file)? {
            Trace::None => Ok(()),
            Trace::OfThisTurn => {
                // as long as it is open, its content is still read
                let body = self.open.get(&file).map(|open| &open.record.body);
                let kept = body.and_then(content_in);
                self.erase(file, kept)
            }
            Trace::Lasting => {
                let event = Event::without_content(file, VersionKind::Tombstone, is, place.clone());
                self.note(access.mount.principal, access.now, event).map(drop)
            }
        }
    }

    /// Takes the events of a file that was born in this turn out of the history, and all content but
    /// that of `kept`.
    pub(super) fn erase(&mut self, file: Inode, kept: Option<Version>) -> Result<()> {
        let events: Vec<_> = self
            .events_of(file, Version(0))?
            .map(|event| event.map(|(version, record)| (version, record.clone())))
            .collect::<Result<_>>()?;
        for (version, record) in events {
            if record.content == Some(version) && kept != Some(version) {
                remove_content(&mut self.state, version)?;
            }
            let VersionRecord { place, from, added, .. } = record;
            for place in from.into_iter().chain([place]) {
                self.state.remove(Key::named(place.parent, place.name, version))?;
            }
            self.state.remove(Key::version(file, version))?;
            self.state.remove(Key::event(version))?;
            let past = &mut self.counters.past;
            past.inodes = past.inodes.saturating_sub(1);
            past.bytes = past.bytes.saturating_sub(added);
        }
        Ok(())
    }

    fn prepare_erasure(&self, file: Inode, version: Version, record: &VersionRecord) -> Result<()> {
        for place in record.from.iter().chain([&record.place]) {
            self.state.prepare(&[&Key::named(place.parent, place.name.clone(), version)])?;
        }
        self.state.prepare(&[&Key::version(file, version), &Key::event(version)])?;
        super::content::load(&self.state, version).map(drop)
    }

    /// Reads what noting a rename needs.
    pub(in super::super) fn prepare_renamed(
        &self,
        file: Inode,
        old: &NamedPlace,
        new: &NamedPlace,
    ) -> Result<()> {
        if !self.is_versioned() {
            return Ok(());
        }
        match self.trace(file)? {
            Trace::None => Ok(()),
            Trace::OfThisTurn if !self.keeps_its_birth(file, new)? => {
                for event in self.events_of(file, Version(0))? {
                    let (version, record) = event?;
                    self.prepare_erasure(file, version, record)?;
                    self.state.prepare(&[&Key::named(new.parent, new.name.clone(), version)])?;
                }
                Ok(())
            }
            Trace::OfThisTurn | Trace::Lasting => {
                self.afford_past()?;
                self.prepare_event(file, &[old, new])
            }
        }
    }

    /// Notes that a file or directory has another name, for which [`Zone::prepare_renamed`] was called.
    pub(in super::super) fn note_renamed(
        &mut self,
        access: Access,
        file: Inode,
        is: FileKind,
        old: &NamedPlace,
        new: &NamedPlace,
    ) -> Result<()> {
        if !self.is_versioned() {
            return Ok(());
        }
        match self.trace(file)? {
            Trace::None => Ok(()),
            Trace::OfThisTurn if !self.keeps_its_birth(file, new)? => self.move_birth(file, new),
            Trace::OfThisTurn | Trace::Lasting => {
                let mut event = Event::without_content(file, VersionKind::Rename, is, new.clone());
                event.from = Some(old.clone());
                if let Some(version) = self.current(file)? {
                    let record = self.version_record(file, version)?;
                    (event.size, event.hash, event.content) = (record.size, record.hash, record.content);
                }
                self.note(access.mount.principal, access.now, event).map(drop)
            }
        }
    }

    /// Whether a file that was born in this turn cannot have been born at `place`: something else gave that
    /// name up after, or the file has been renamed since in a way that was noted.
    fn keeps_its_birth(&self, file: Inode, place: &NamedPlace) -> Result<bool> {
        let mut events = self.events_of(file, Version(0))?;
        let Some((born, _)) = events.next().transpose()? else { return Ok(false) };
        for event in events {
            if event?.1.kind == VersionKind::Rename {
                return Ok(true);
            }
        }
        let from = Key::named(place.parent, place.name.clone(), born);
        let later =
            self.state.history.range(&*self.state.store, Bound::Included(&from))?.next().transpose()?;
        Ok(later.is_some_and(|(key, _)| {
            key.inode == place.parent && matches!(&key.part, Part::Named(name, _) if *name == place.name)
        }))
    }

    /// Lets a file that was born in this turn have been born in another place.
    fn move_birth(&mut self, file: Inode, new: &NamedPlace) -> Result<()> {
        let events: Vec<_> = self
            .events_of(file, Version(0))?
            .map(|event| event.map(|(version, record)| (version, record.clone())))
            .collect::<Result<_>>()?;
        for (version, mut record) in events {
            if record.kind == VersionKind::Create {
                let NamedPlace { parent, name } = record.place;
                self.state.remove(Key::named(parent, name, version))?;
                let target = Value::Named(Some((file, record.file)));
                self.state.put(Key::named(new.parent, new.name.clone(), version), target)?;
            }
            record.place = new.clone();
            self.state.put(Key::version(file, version), Value::Version(Arc::new(record)))?;
        }
        Ok(())
    }

    /// Takes the content of a file that is freed out of the history where no version has it: it was
    /// kept for those who had the file open.
    pub(in super::super) fn free_content(&mut self, file: Inode, body: &Body) -> Result<()> {
        if let Some(content) = content_in(body)
            && self.state.get(&Key::version(file, content))?.is_none()
        {
            remove_content(&mut self.state, content)?;
        }
        Ok(())
    }
}

enum Trace {
    /// It was never published.
    None,
    /// It was born in this turn.
    OfThisTurn,
    /// It is older.
    Lasting,
}

/// The version whose content a file's body shows.
fn content_in(body: &Body) -> Option<Version> {
    match body {
        Body::Published { content, .. } | Body::Over { content, .. } => Some(*content),
        _ => None,
    }
}
