//! What policies and forgetting take of a zone's past, and what they leave.

use super::*;

impl Memory {
    /// This, as a policy that keeps the `newest` so many versions of each file that is there, and nothing else that
    /// is over, may have left it. Once it `is_over`, what it does not keep has gone.
    pub fn reaped_to(&self, found: &Arc<Past>, newest: usize, is_over: bool) -> Result<Self, String> {
        let (old, new) = (&*self.past, &**found);
        if (&new.feed, new.next, new.next_change) != (&old.feed, old.next, old.next_change) {
            return Err("a policy has changed the feed, or given numbers".into());
        }
        if let Some((key, _)) = new.events.iter().find(|(key, it)| old.events.get(key) != Some(*it)) {
            return Err(format!("a policy has changed event {key:?}"));
        }
        let is_there = |version: &Version, file: &Inode| new.events.contains_key(&(*version, *file));
        let numbers = old.numbers.iter().filter(|(version, file)| is_there(version, file));
        if !numbers.eq(new.numbers.iter()) {
            return Err(format!("numbers {:?} of {:?}", new.numbers, old.numbers));
        }
        let files: BTreeSet<Inode> = old.events.keys().map(|(_, file)| *file).collect();
        // without rewinds it is plain what is over
        let has_moved = old.events.values().any(|it| matches!(it.kind, VersionKind::RootMoved { .. }));
        let needed: BTreeSet<Version> = new.events.values().filter_map(|it| it.content).collect();
        for file in files {
            let base = self.bases.get(&file);
            let versions: Vec<_> = old.of(file).filter(|(_, it)| it.has_content()).map(|it| it.0).collect();
            let last = old.of(file).last().map(|it| it.0);
            let kept = if base.is_some() { newest } else { 0 };
            let kept = &versions[versions.len().saturating_sub(kept)..];
            for version in &versions {
                let stays = base == Some(version) || kept.contains(version);
                if stays && !is_there(version, &file) {
                    return Err(format!("a policy has taken version {version} of {file}, which it keeps"));
                }
                let is_over = is_over && !has_moved && last != Some(*version) && !needed.contains(version);
                if is_over && !stays && is_there(version, &file) {
                    return Err(format!("a policy has left version {version} of {file}"));
                }
            }
        }
        let horizon = old.numbers.keys().next_back().copied().unwrap_or_default();
        let reaped = self.reaped.max(horizon);
        Ok(Self { past: found.clone(), drained: found.clone(), reaped, ..self.clone() })
    }

    /// This, committed, after a file was forgotten.
    pub fn forgot(&self, file: Inode, found: &Arc<Past>) -> Result<Self, String> {
        let (old, new) = (&*self.past, &**found);
        let of_others = |past: &Past| -> Events {
            let all = past.events.iter().filter(|((_, of), _)| *of != file);
            all.map(|(key, it)| (*key, it.clone())).collect()
        };
        if of_others(old) != of_others(new) {
            return Err(format!("with {file} the past of others was forgotten"));
        }
        if new.of(file).any(|(_, it)| it.has_content()) {
            return Err(format!("{file} was forgotten, and has versions"));
        }
        let told = |past: &Past| -> Vec<_> {
            past.feed.iter().filter(|(_, it)| it.file != file).map(|(at, it)| (*at, it.clone())).collect()
        };
        if told(old) != told(new) || new.next < old.next {
            return Err(format!("with {file} something else was told as forgotten"));
        }
        let mut bases = (*self.bases).clone();
        bases.remove(&file);
        Ok(Self { past: found.clone(), drained: found.clone(), bases: Arc::new(bases), ..self.clone() })
    }

    /// The content of all versions.
    pub fn contents(&self) -> impl Iterator<Item = &Arc<Vec<u8>>> {
        self.past.events.values().filter_map(|it| self.contents.get(&it.content?))
    }
}
