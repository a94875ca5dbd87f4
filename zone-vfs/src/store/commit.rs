//! A commit point: an agent's prefix becomes durable, and then takes effect.

use std::sync::Arc;

use super::disk::{Disk, Done};
use super::entry::{self, Entry};
use super::state::State;
use super::{Shared, StoreError};
use crate::id::{GenerationNumber, Hash};
use crate::log::{CommitError, Record};
use crate::zone::{Change, DrainLimits, ZoneRoot};

/// Bytes of changes in one record, about; what is more goes into records before it.
const RECORD_BYTES: usize = 2 << 20;

pub(super) struct Commit {
    disk: Arc<Disk>,
    store: Arc<Shared>,
    entries: Vec<Entry>,
    roots: Vec<ZoneRoot>,
    done: Done<GenerationNumber>,
}

impl Commit {
    /// Puts the disk's pending entries, the changes of its zones and `control` into the log.
    pub fn start(disk: &Arc<Disk>, control: Vec<Entry>, done: Done<GenerationNumber>) {
        let store = match disk.store() {
            Ok(store) => store,
            Err(e) => return done(Err(e)),
        };
        store.gate.enter();
        let mut inner = disk.lock();
        if inner.committing {
            drop(inner);
            store.gate.leave();
            return done(Err(StoreError::Busy));
        }
        let prepared = (|| {
            let mut entries = Vec::new();
            if !inner.opened {
                entries.push(Entry::Opened { incarnation: store.incarnation });
            }
            let mut needs = Vec::new();
            let mut changes = Vec::new();
            for (index, zone) in inner.state.zones.iter_mut().enumerate() {
                if zone.working.is_dirty() {
                    let drained = zone.working.drain_changes(&DrainLimits::default())?;
                    needs.extend(drained.needs);
                    changes.push((index as u16, drained.changes));
                }
            }
            let roots = inner.state.snapshot()?;
            Ok::<_, StoreError>((entries, needs, changes, roots))
        })();
        let (mut entries, needs, changes, roots) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                drop(inner);
                store.gate.leave();
                return done(Err(e));
            }
        };
        entries.append(&mut inner.pending);
        entries.extend(changes.into_iter().map(|(zone, changes)| Entry::Changes(zone, changes)));
        entries.extend(control);
        let records = match split(disk, &inner.state, &entries, needs) {
            Ok(records) => records,
            Err(e) => {
                inner.pending = without_control(entries);
                drop(inner);
                store.gate.leave();
                return done(Err(e));
            }
        };
        inner.committing = true;
        let commit = Self { disk: disk.clone(), store: store.clone(), entries, roots, done };
        // submitted under the disk's lock: an agent's records are in the log in their order
        let last = records.len() - 1;
        let mut commit = Some(commit);
        let failed = Arc::new(std::sync::Mutex::new(None::<CommitError>));
        for (index, record) in records.into_iter().enumerate() {
            let failed = failed.clone();
            if index < last {
                store.log.submit(record, move |result| {
                    if let Err(e) = result {
                        failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(e);
                    }
                });
            } else if let Some(commit) = commit.take() {
                store.log.submit(record, move |result| {
                    let before = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                    commit.finish(before.map_or(result.map(|_| last + 1), Err));
                });
            }
        }
    }

    fn finish(self, result: Result<usize, CommitError>) {
        let Self { disk, store, entries, mut roots, done } = self;
        let mut inner = disk.lock();
        inner.committing = false;
        let outcome = match result {
            Ok(records) => {
                inner.opened = true;
                inner.state.sequence.0 += records as u64;
                inner.state.epoch = disk.epoch(&store, &inner.state);
                let ends = entries.iter().any(|e| matches!(e, Entry::TurnEnded { .. } | Entry::TurnFailed { .. }));
                let applied = entries.into_iter().try_for_each(|entry| inner.state.apply(entry, &mut roots));
                if ends {
                    inner.turn = None;
                }
                applied.map(|()| inner.state.head)
            }
            Err(e) => {
                // the prefix stays pending, so that the next commit point covers it
                let mut kept = without_control(entries);
                kept.append(&mut inner.pending);
                inner.pending = kept;
                Err(e.into())
            }
        };
        drop(inner);
        store.gate.leave();
        store.maybe_checkpoint();
        done(outcome);
    }
}

impl Disk {
    /// The epoch in which this opening of the store writes.
    fn epoch(&self, store: &Shared, state: &State) -> crate::id::Epoch {
        store.epochs.of(self.id, state.epoch)
    }
}

/// What a refused commit keeps for the next: all but what would have taken effect.
fn without_control(entries: Vec<Entry>) -> Vec<Entry> {
    entries
        .into_iter()
        .filter(|e| matches!(e, Entry::TurnBegan { .. } | Entry::Fact(_) | Entry::Changes(..)))
        .collect()
}

/// Cuts the entries into records: the last holds the control entries.
fn split(disk: &Disk, state: &State, entries: &[Entry], needs: Vec<Hash>) -> Result<Vec<Record>, StoreError> {
    let store = disk.store()?;
    let epoch = disk.epoch(&store, state);
    let mut records: Vec<Record> = Vec::new();
    let mut needs = needs;
    needs.extend(entries.iter().flat_map(Entry::needs).copied());
    let mut push = |part: &[Entry]| -> Result<(), StoreError> {
        records.push(Record {
            agent: disk.id,
            epoch,
            sequence: crate::id::Sequence(state.sequence.0 + records.len() as u64 + 1),
            needs: std::mem::take(&mut needs),
            body: entry::encode(part)?,
        });
        Ok(())
    };
    let mut part: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        if let Entry::Changes(zone, changes) = entry {
            let mut some: Vec<Change> = Vec::new();
            for change in changes {
                bytes += change.size();
                some.push(change.clone());
                if bytes > RECORD_BYTES {
                    part.push(Entry::Changes(*zone, std::mem::take(&mut some)));
                    push(&std::mem::take(&mut part))?;
                    bytes = 0;
                }
            }
            if !some.is_empty() {
                part.push(Entry::Changes(*zone, some));
            }
        } else {
            part.push(entry.clone());
        }
    }
    push(&part)?;
    Ok(records)
}
