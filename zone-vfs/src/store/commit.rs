//! A commit point: an agent's prefix becomes durable, and then takes effect.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::{Disk, Done, Inner};
use super::entry::{self, Entry};
use super::{Shared, StoreError};
use crate::id::{GenerationNumber, Hash, Sequence};
use crate::log::{CommitError, Done as LogDone, MAX_NEEDS, Record};
use crate::zone::{Change, DrainLimits, ZoneRoot};

/// Bytes of changes in one record, about; what is more goes into records before it.
const RECORD_BYTES: usize = 1 << 20;
/// Addresses in one record; what is more goes into records before it.
const RECORD_NEEDS: usize = if MAX_NEEDS < 4096 { MAX_NEEDS } else { 4096 };

pub(super) struct Commit {
    disk: Arc<Disk>,
    store: Arc<Shared>,
    /// What each record holds.
    parts: Vec<Vec<Entry>>,
    /// The zones as they stood when the records were made.
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
        match prepare(disk, &mut inner, &store, control) {
            Ok((records, parts, roots)) => {
                inner.committing = true;
                let commit = Self { disk: disk.clone(), store: store.clone(), parts, roots, done };
                // submitted under the disk's lock: an agent's records are in the log in their order
                commit.submit(&store, records);
            }
            Err(e) => {
                drop(inner);
                store.gate.leave();
                done(Err(e));
            }
        }
    }

    fn submit(self, store: &Shared, records: Vec<Record>) {
        let durable = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(Mutex::new(None::<CommitError>));
        let last = records.len() - 1;
        let mut commit = Some(self);
        store.log.submit_all(records.into_iter().enumerate().map(|(index, record)| {
            let (durable, failed) = (durable.clone(), failed.clone());
            let commit = if index == last { commit.take() } else { None };
            let done: LogDone = Box::new(move |result| {
                match result {
                    Ok(_) => {
                        durable.fetch_add(1, Ordering::AcqRel);
                    }
                    Err(e) => {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                    }
                }
                if let Some(commit) = commit {
                    let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
                    commit.finish(durable.load(Ordering::Acquire), failed);
                }
            });
            (record, done)
        }));
    }

    /// Lets the durable records take effect; what the others held stays pending, so that the next
    /// commit point covers it.
    fn finish(self, durable: usize, failed: Option<CommitError>) {
        let Self { disk, store, mut parts, mut roots, done } = self;
        let mut inner = disk.lock();
        let refused = parts.split_off(durable);
        let mut outcome = Ok(());
        if durable > 0 {
            inner.opened = true;
            inner.state.epoch = inner.writer;
            inner.state.sequence.0 += durable as u64;
        }
        for entry in parts.into_iter().flatten() {
            if matches!(entry, Entry::TurnEnded { .. } | Entry::TurnFailed { .. }) {
                inner.turn = None;
            }
            if outcome.is_ok() {
                outcome = inner.state.apply(entry, &mut roots);
            }
        }
        let mut kept: Vec<Entry> = refused
            .into_iter()
            .flatten()
            .filter(|e| matches!(e, Entry::TurnBegan { .. } | Entry::Fact(_) | Entry::Changes(..)))
            .collect();
        kept.append(&mut inner.pending);
        inner.pending = kept;
        inner.committing = false;
        let head = inner.state.head;
        drop(inner);
        store.gate.leave();
        store.checkpoint_if_due();
        done(match failed {
            Some(e) => Err(e.into()),
            None => outcome.map(|()| head),
        });
    }
}

type Prepared = (Vec<Record>, Vec<Vec<Entry>>, Vec<ZoneRoot>);

fn prepare(disk: &Disk, inner: &mut Inner, store: &Shared, control: Vec<Entry>) -> Result<Prepared, StoreError> {
    if inner.committing {
        return Err(StoreError::Busy);
    }
    let mut needs = Vec::new();
    // what was drained is kept pending until it is in a record, whatever happens below
    for index in 0..inner.state.zones.len() {
        let zone = &mut inner.state.zones[index].working;
        if zone.is_dirty() {
            let drained = zone.drain_changes(&DrainLimits::default())?;
            needs.extend(drained.needs);
            inner.pending.push(Entry::Changes(index as u16, drained.changes));
        }
    }
    inner.needs.extend(needs);
    let roots = inner.state.snapshot()?;
    let mut entries = Vec::with_capacity(inner.pending.len() + control.len() + 1);
    if !inner.opened {
        entries.push(Entry::Opened { incarnation: store.incarnation });
    }
    entries.extend(inner.pending.iter().cloned());
    entries.extend(control);
    let parts = split(entries);
    let mut needs = std::mem::take(&mut inner.needs);
    let mut records = Vec::with_capacity(parts.len());
    for part in &parts {
        needs.extend(part.iter().flat_map(Entry::needs).copied());
    }
    // chunks are durable before the first record, and so before any
    let mut needs = needs.chunks(RECORD_NEEDS).map(<[Hash]>::to_vec);
    for part in &parts {
        records.push(Record {
            agent: disk.id(),
            epoch: inner.writer,
            sequence: Sequence(inner.state.sequence.0 + records.len() as u64 + 1),
            needs: needs.next().unwrap_or_default(),
            body: entry::encode(part)?,
        });
    }
    if let Some(left) = needs.next() {
        return Err(StoreError::Inconsistent {
            agent: disk.id(),
            reason: format!("a commit that needs {} chunks more than its records can name", left.len()),
        });
    }
    inner.pending.clear();
    Ok((records, parts, roots))
}

/// Cuts the entries into records: the last holds the control entries.
fn split(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut parts = Vec::new();
    let mut part: Vec<Entry> = Vec::new();
    let (mut bytes, mut chunks) = (0, 0);
    for entry in entries {
        let Entry::Changes(zone, changes) = entry else {
            part.push(entry);
            continue;
        };
        let mut some: Vec<Change> = Vec::new();
        for change in changes {
            bytes += change.size();
            chunks += usize::from(change.names_chunk());
            some.push(change);
            if bytes > RECORD_BYTES || chunks >= RECORD_NEEDS / 2 {
                part.push(Entry::Changes(zone, std::mem::take(&mut some)));
                parts.push(std::mem::take(&mut part));
                (bytes, chunks) = (0, 0);
            }
        }
        if !some.is_empty() {
            part.push(Entry::Changes(zone, some));
        }
    }
    parts.push(part);
    parts
}
