//! A commit point: an agent's prefix becomes durable, and then takes effect.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chain::{Chain, ChainDigest};
use super::disk::{Disk, Done, Inner};
use super::entry::{self, Entry, TurnStyle};
use super::{Shared, StoreError};
use crate::id::{GenerationNumber, Hash, Inode, Timestamp};
use crate::log::{CommitError, Done as LogDone, LogPosition, MAX_NEEDS, MAX_RECORD, Record};
use crate::zone::{Change, DrainLimits, ZoneRoot};

/// Bytes of changes in one record, about; what is more goes into records before it.
const RECORD_BYTES: usize = if cfg!(test) { 16 << 10 } else { 1 << 20 };
/// Addresses in one record; what is more goes into records before it.
const RECORD_NEEDS: usize = 2048;
/// Addresses in one record of those that attach something.
const ATTACHED_NEEDS: usize = if cfg!(test) { 64 } else { 1 << 14 };
const _: () = assert!(ATTACHED_NEEDS <= MAX_NEEDS);
const _: () = assert!(RECORD_NEEDS * 4 < MAX_NEEDS && RECORD_BYTES * 4 < MAX_RECORD);

/// What the store notes about a commit, told whether it succeeded, while checkpoints still wait.
pub(super) type Settle = Box<dyn FnOnce(&Shared, bool) + Send>;

/// What a commit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Whatever is pending on the disk.
    Disk,
    /// It has nothing to do with what else is pending.
    Beside,
    /// What a policy takes from an agent that is idle: nothing else is pending.
    Policy,
}

pub(super) struct Commit {
    disk: Arc<Disk>,
    store: Arc<Shared>,
    /// What each record holds.
    parts: Vec<Vec<Entry>>,
    /// The digest of the agent's records with each of them.
    digests: Vec<ChainDigest>,
    /// The zones as they stood when the records were made.
    roots: Vec<ZoneRoot>,
    /// And as they stand after the rewind that is among the entries.
    rewound: Option<Vec<ZoneRoot>>,
    of: Of,
    settle: Option<Settle>,
    done: Done<GenerationNumber>,
}

/// A commit of which there is no record, and who is to be told: once the disk is not locked any more.
struct Refused {
    error: StoreError,
    settle: Option<Settle>,
    done: Done<GenerationNumber>,
}

impl Refused {
    fn tell(self, store: &Arc<Shared>) {
        if let Some(settle) = self.settle {
            settle(store, false);
        }
        store.gate.leave();
        (self.done)(Err(self.error));
    }
}

impl Commit {
    /// Puts the disk's pending entries, the changes of its zones and what `control` gives into the
    /// log. `control` sees the disk as it is when the records are made.
    pub fn start(
        disk: &Arc<Disk>,
        control: impl FnOnce(&Inner) -> Result<Vec<Entry>, StoreError>,
        settle: Option<Settle>,
        done: Done<GenerationNumber>,
    ) {
        let store = match disk.store() {
            Ok(store) => store,
            Err(e) => return done(Err(e)),
        };
        store.gate.enter();
        Self::start_inside(disk, &store, control, settle, done);
    }

    /// As [`start`](Self::start), on a disk that keeps other commits away for this one.
    pub fn start_reserved(
        disk: &Arc<Disk>,
        control: impl FnOnce(&Inner) -> Result<Vec<Entry>, StoreError>,
        done: Done<GenerationNumber>,
    ) {
        let store = match disk.store() {
            Ok(store) => store,
            Err(e) => {
                disk.lock().committing = false;
                disk.settled.notify_all();
                return done(Err(e));
            }
        };
        store.gate.enter();
        let mut inner = disk.lock_settled();
        inner.committing = false;
        Self::start_locked(disk, inner, &store, control, None, done);
    }

    /// As [`start`](Self::start), for whoever has passed the gate already, which is left here.
    pub fn start_inside(
        disk: &Arc<Disk>,
        store: &Arc<Shared>,
        control: impl FnOnce(&Inner) -> Result<Vec<Entry>, StoreError>,
        settle: Option<Settle>,
        done: Done<GenerationNumber>,
    ) {
        Self::start_locked(disk, disk.lock_settled(), store, control, settle, done);
    }

    /// As [`start`](Self::start), where `work` also changes the disk, which is idle and has nothing pending, and which no
    /// turn and no other commit can come between: whoever wants to begin one meanwhile waits for this. Where
    /// `work` fails it has changed nothing; where the commit is refused, its changes are taken back.
    pub fn of_policy(
        disk: &Arc<Disk>,
        work: impl FnOnce(&mut Inner) -> Result<Vec<Entry>, StoreError>,
        done: Done<GenerationNumber>,
    ) {
        let store = match disk.store() {
            Ok(store) => store,
            Err(e) => return done(Err(e)),
        };
        store.gate.enter();
        let mut inner = disk.lock_settled();
        let refused = match inner.idle().and_then(|()| work(&mut inner)) {
            Ok(control) => {
                match Self::prepared(disk, &mut inner, &store, Of::Policy, |_| Ok(control), None, done) {
                    Ok(records) => return store.log.submit_all(records),
                    Err(refused) => {
                        inner.abandon();
                        refused
                    }
                }
            }
            Err(error) => Refused { error, settle: None, done },
        };
        drop(inner);
        refused.tell(&store);
    }

    fn start_locked(
        disk: &Arc<Disk>,
        mut inner: MutexGuard<'_, Inner>,
        store: &Arc<Shared>,
        control: impl FnOnce(&Inner) -> Result<Vec<Entry>, StoreError>,
        settle: Option<Settle>,
        done: Done<GenerationNumber>,
    ) {
        let refused = match Self::prepared(disk, &mut inner, store, Of::Disk, control, settle, done) {
            Ok(records) if disk.is_rehearsal() => {
                drop(inner);
                for (_, done) in records {
                    done(Ok(LogPosition::START));
                }
                return;
            }
            // submitted under the disk's lock: an agent's records are in the log in their order
            Ok(records) => return store.log.submit_all(records),
            Err(refused) => refused,
        };
        drop(inner);
        disk.settled.notify_all();
        refused.tell(store);
    }

    /// The records of the first commit of a disk that nobody else has yet, for whoever has passed the gate already:
    /// to be submitted with those of others, so that one group of the log has them all. None where that failed, of
    /// which `done` was told.
    pub fn first(
        disk: &Arc<Disk>,
        store: &Arc<Shared>,
        control: Vec<Entry>,
        settle: Settle,
        done: Done<GenerationNumber>,
    ) -> Vec<(Record, LogDone)> {
        let (inner, control) = (&mut disk.lock_settled(), |_: &Inner| Ok(control));
        let prepared = Self::prepared(disk, inner, store, Of::Disk, control, Some(settle), done);
        prepared.unwrap_or_else(|refused| {
            refused.tell(store);
            Vec::new()
        })
    }

    fn prepared(
        disk: &Arc<Disk>,
        inner: &mut Inner,
        store: &Arc<Shared>,
        of: Of,
        control: impl FnOnce(&Inner) -> Result<Vec<Entry>, StoreError>,
        settle: Option<Settle>,
        done: Done<GenerationNumber>,
    ) -> Result<Vec<(Record, LogDone)>, Refused> {
        match prepare(disk, inner, store, control) {
            Ok(Prepared { chain, parts, roots, rewound }) => {
                inner.committing = true;
                inner.giving = of == Of::Policy;
                let (disk, kept) = (disk.clone(), store.clone());
                let Chain { records, digests, .. } = chain;
                let commit = Self { disk, store: kept, parts, digests, roots, rewound, of, settle, done };
                Ok(commit.pending(records))
            }
            Err(error) => Err(Refused { error, settle, done }),
        }
    }

    /// Commits what has nothing to do with a turn, and needs `needs`, in records of their own: nothing else that is
    /// pending becomes durable by it, and a turn goes on beside it. `entry` sees the disk as it is when the records are
    /// made. Waits for a commit that is under way.
    pub fn beside(
        disk: &Arc<Disk>,
        entry: impl FnOnce(&Inner) -> Result<Entry, StoreError>,
        needs: &[Hash],
        done: Done<GenerationNumber>,
    ) {
        let store = match disk.store() {
            _ if disk.is_rehearsal() => {
                let reason = "what only rehearses keeps no records".into();
                return done(Err(StoreError::Inconsistent { agent: disk.id(), reason }));
            }
            Ok(store) => store,
            Err(e) => return done(Err(e)),
        };
        let mut inner = loop {
            store.gate.enter();
            let inner = disk.lock();
            if !inner.committing && !inner.beside {
                break inner;
            }
            // not inside the gate, which a commit that is reserved still has to pass
            store.gate.leave();
            drop(disk.settled.wait_while(inner, |it| it.committing || it.beside));
        };
        match entry(&inner).and_then(|entry| beside(disk, &inner, &store, entry, needs)) {
            Ok((Chain { records, digests, .. }, parts)) => {
                inner.beside = true;
                let (disk, kept) = (disk.clone(), store.clone());
                let (roots, rewound) = (Vec::new(), None);
                let (of, settle) = (Of::Beside, None);
                let commit = Self { disk, store: kept, parts, digests, roots, rewound, of, settle, done };
                store.log.submit_all(commit.pending(records));
            }
            Err(e) => {
                drop(inner);
                store.gate.leave();
                done(Err(e));
            }
        }
    }

    /// Each record, and what is called when it is durable or has failed.
    fn pending(self, records: Vec<Record>) -> Vec<(Record, LogDone)> {
        let durable = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(Mutex::new(None::<CommitError>));
        let last = records.len() - 1;
        let mut commit = Some(self);
        let pending = records.into_iter().enumerate().map(|(index, record)| {
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
        });
        pending.collect()
    }

    /// Lets the records take effect where all are durable. Otherwise all zone changes stay pending, and
    /// the facts that no record holds, so that the next commit point covers them; it begins with
    /// [`Entry::Withdrawn`] where some of the changes are in the log already.
    fn finish(self, durable: usize, failed: Option<CommitError>) {
        let Self { disk, store, mut parts, digests, mut roots, mut rewound, of, settle, done } = self;
        let mut inner = disk.lock();
        let whole = durable == parts.len();
        // what is tried again is pending, which is as good
        for part in &parts {
            inner.release(part);
        }
        let refused = parts.split_off(durable);
        let mut outcome = Ok(());
        let mut kept = Vec::new();
        if durable > 0 {
            inner.opened = true;
            if of != Of::Beside {
                inner.withdraw = !whole;
            }
            inner.state.epoch = inner.writer;
            inner.state.sequence.0 += durable as u64;
            inner.state.digest = digests[durable - 1];
        }
        for entry in parts.into_iter().flatten() {
            if !whole && matches!(entry, Entry::Changes(..)) {
                kept.push(entry);
                continue;
            }
            if matches!(entry, Entry::TurnEnded { .. } | Entry::TurnFailed { .. }) {
                inner.turn = None;
            }
            if let Entry::TurnFailed { .. } = entry {
                // what a failed turn has forgotten came back, or was told before this entry
                inner.forgot.clear();
            }
            if let Entry::Forgot { zone, file, .. } = &entry {
                if !disk.is_rehearsal() {
                    store.purge.want();
                }
                inner.forgot.retain(|it| it != &(*zone, *file));
            }
            if let Entry::Rewound { .. } = entry
                && let Some(back) = rewound.take()
            {
                inner.state.go_back(&back);
                roots = back;
                continue;
            }
            if outcome.is_ok() {
                outcome = inner.state.apply(entry, &mut roots);
            }
        }
        inner.state.prune();
        let again = |e: &Entry| matches!(e, Entry::TurnBegan { .. } | Entry::Fact(_) | Entry::Changes(..));
        kept.extend(refused.into_iter().flatten().filter(again));
        kept.append(&mut inner.pending);
        inner.pending = kept;
        if of == Of::Beside {
            inner.beside = false;
        } else {
            (inner.committing, inner.giving) = (false, false);
        }
        if of == Of::Policy && !whole && !inner.state.zones.iter().any(|zone| zone.working.is_dirty()) {
            // so that the next reaping finds it idle. What an operator has written since then would go with it
            inner.abandon();
        }
        let head = inner.state.head;
        let woken = inner.woken();
        drop(inner);
        disk.settled.notify_all();
        for done in woken {
            done();
        }
        // before anybody is told: one that is removed is held by nobody then
        drop(disk);
        if let Some(settle) = settle {
            settle(&store, failed.is_none());
        }
        store.gate.leave();
        store.checkpoint_if_due();
        done(match failed {
            Some(e) => Err(e.into()),
            None => outcome.map(|()| head),
        });
    }
}

struct Prepared {
    chain: Chain,
    parts: Vec<Vec<Entry>>,
    roots: Vec<ZoneRoot>,
    rewound: Option<Vec<ZoneRoot>>,
}

fn prepare(
    disk: &Disk,
    inner: &mut Inner,
    store: &Shared,
    control: impl FnOnce(&Inner) -> Result<Vec<Entry>, StoreError>,
) -> Result<Prepared, StoreError> {
    if inner.committing {
        return Err(StoreError::Busy);
    }
    if inner.state.removed {
        return Err(StoreError::NoAgent(disk.id()));
    }
    let mut control = control(inner)?;
    let ends = |e: &Entry| matches!(e, Entry::TurnEnded { .. } | Entry::TurnFailed { .. });
    if inner.turn.as_ref().is_some_and(|t| t.style == TurnStyle::Process) && control.iter().any(ends) {
        // a process leaves no descriptor behind that a draft could belong to
        for zone in &mut inner.state.zones {
            zone.working.publish_all_except(&std::collections::BTreeSet::new())?;
        }
    }
    for zone in &mut inner.state.zones {
        zone.working.publish_postponed()?;
    }
    // what was drained is kept pending until it is in a record, whatever happens below
    for index in 0..inner.state.zones.len() {
        let zone = &mut inner.state.zones[index].working;
        inner.forgot.extend(zone.forgotten_lately().map(|file| (index as u16, file)));
        if zone.is_dirty() {
            let changes = zone.drain_changes(&DrainLimits::default())?.changes;
            #[cfg(test)]
            let changes = super::tests::with_mistake(changes);
            inner.pending.push(Entry::Changes(index as u16, changes));
        }
    }
    // no commit leaves changes behind of which nothing says what becomes of them
    if !control.iter().any(Entry::promotes) && inner.pending.iter().any(|e| matches!(e, Entry::Changes(..))) {
        let promotion =
            if inner.turn.is_some() { Entry::Synced } else { Entry::Operated { at: Timestamp::now() } };
        control.insert(0, promotion);
    }
    tell_forgotten(inner, &mut control);
    let roots = inner.state.snapshot()?;
    // what a rewind, or forgetting turns, reads is read before there is a record of it: one that is durable takes
    // effect, come what may
    let mut rewound = None;
    for entry in &control {
        if let Entry::Rewound { to, at } = entry {
            rewound = Some(inner.state.rewound(*to, *at, &roots)?);
        }
        if let Entry::Forgot { turns: Some((first, _)), .. } = entry {
            let chunks = inner.state.chunks.clone();
            inner.state.history.recall(*first, &*chunks)?;
        }
    }
    let mut entries = Vec::with_capacity(inner.pending.len() + 2);
    if !inner.opened {
        entries.push(Entry::Opened { incarnation: store.incarnation });
    }
    if inner.withdraw {
        entries.push(Entry::Withdrawn);
    }
    entries.extend(inner.pending.iter().cloned());
    let parts = split(entries, control);
    let mut chain = Chain::behind(disk.id(), inner);
    for part in &parts {
        let (needs, body) = (needs(part), entry::encode(chain.before(), part)?);
        let bytes = body.len() + needs.len() * size_of::<Hash>();
        // one that the log refuses must not leave a gap before those behind it
        if bytes > MAX_RECORD / 2 || needs.len() > MAX_NEEDS {
            return Err(CommitError::TooLarge { bytes, limit: MAX_RECORD / 2 }.into());
        }
        chain.push(needs, body);
    }
    inner.pending.clear();
    Ok(Prepared { chain, parts, roots, rewound })
}

/// The records of an entry that is committed beside a turn: together they list all that it needs, the last one has it.
fn beside(
    disk: &Disk,
    inner: &Inner,
    store: &Shared,
    entry: Entry,
    needs: &[Hash],
) -> Result<(Chain, Vec<Vec<Entry>>), StoreError> {
    if inner.state.removed {
        return Err(StoreError::NoAgent(disk.id()));
    }
    let mut listed: Vec<&[Hash]> = needs.chunks(ATTACHED_NEEDS).collect();
    if listed.is_empty() {
        listed.push(&[]);
    }
    let mut parts = vec![Vec::new(); listed.len()];
    if !inner.opened {
        parts[0].push(Entry::Opened { incarnation: store.incarnation });
    }
    let last = parts.len() - 1;
    parts[last].push(entry);
    let mut chain = Chain::behind(disk.id(), inner);
    for (part, needs) in parts.iter().zip(listed) {
        let body = entry::encode(chain.before(), part)?;
        chain.push(needs.to_vec(), body);
    }
    Ok((chain, parts))
}

/// Adds what was forgotten, where these entries commit it: before the generation, which does not hold it any more.
fn tell_forgotten(inner: &Inner, control: &mut Vec<Entry>) {
    let process = inner.turn.as_ref().is_some_and(|turn| turn.style == TurnStyle::Process);
    let commits = control.iter().any(|entry| match entry {
        Entry::TurnEnded { .. } | Entry::Operated { .. } => true,
        Entry::Synced | Entry::TurnFailed { .. } => process,
        _ => false,
    });
    if !commits {
        return;
    }
    let told = |zone: u16, file: Inode, control: &[Entry]| {
        control
            .iter()
            .any(|it| matches!(it, Entry::Forgot { zone: z, file: f, .. } if (*z, *f) == (zone, file)))
    };
    for (zone, file) in &inner.forgot {
        if !told(*zone, *file, control) {
            let at = control.iter().position(|entry| matches!(entry, Entry::Generation { .. }));
            control
                .insert(at.unwrap_or(control.len()), Entry::Forgot { zone: *zone, file: *file, turns: None });
        }
    }
}

/// The addresses that a record names, which are durable before it is.
pub(super) fn needs(part: &[Entry]) -> Vec<Hash> {
    let mut needs = Vec::new();
    for entry in part {
        needs.extend_from_slice(entry.needs());
        if let Entry::Changes(_, changes) = entry {
            for change in changes {
                if let Change::Put(_, value) = change {
                    value.addresses(&mut |hash| needs.push(hash));
                }
            }
        }
    }
    needs
}

/// Cuts the entries into records; the last one holds all of `control`.
fn split(entries: Vec<Entry>, control: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut parts = Vec::new();
    let mut part: Vec<Entry> = Vec::new();
    let (mut bytes, mut chunks) = (0, 0);
    for entry in entries {
        let Entry::Changes(zone, changes) = entry else {
            bytes += entry.size();
            chunks += entry.needs().len();
            part.push(entry);
            if bytes > RECORD_BYTES || chunks >= RECORD_NEEDS {
                parts.push(std::mem::take(&mut part));
                (bytes, chunks) = (0, 0);
            }
            continue;
        };
        let mut some: Vec<Change> = Vec::new();
        for change in changes {
            bytes += change.size();
            chunks += usize::from(change.names_chunk());
            some.push(change);
            if bytes > RECORD_BYTES || chunks >= RECORD_NEEDS {
                part.push(Entry::Changes(zone, std::mem::take(&mut some)));
                parts.push(std::mem::take(&mut part));
                (bytes, chunks) = (0, 0);
            }
        }
        if !some.is_empty() {
            part.push(Entry::Changes(zone, some));
        }
    }
    part.extend(control);
    parts.push(part);
    parts
}
