//! An agent's disk: its zones, its turns and its generations, over the store's log.
//!
//! One writer at a time works on a disk, and one commit is under way at a time; whoever embeds the
//! store serialises the turns of an agent. Zone operations are answered in the calling thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::commit::Commit;
use super::entry::{Cause, Entry, Payload, Role, TurnStyle, ZoneSpec};
use super::shared::{Mounted, Mounts};
use super::state::{Generation, OpenTurn, State, TurnRecord, ZoneState};
use super::watch::Watchers;
use super::{Shared, StoreError, blob};
use crate::contract::Principal;
use crate::id::{AgentId, ChangeSequence, Epoch, GenerationNumber, Hash, Inode, Sequence, Timestamp, Turn};
use crate::log::lend;
use crate::tree::Changes;
use crate::zone::{Access, Zone};

/// What is called when a commit is durable, or has failed. It runs on the thread that made it, the log's or
/// one that [waits](wait), and must be quick.
pub type Done<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// What the embedder adds to a generation.
#[derive(Clone, Debug)]
pub struct NewGeneration {
    /// Why it is made.
    pub cause: Cause,
    /// The embedder's part: image, handles, position.
    pub about: Vec<u8>,
    /// The generation without which it is of no use, and which is kept as long, until it is
    /// [completed](Disk::complete). It is the one at which the agent stands, and nothing was forgotten since, with which
    /// it could go.
    pub on: Option<GenerationNumber>,
}

impl NewGeneration {
    /// The entries that make it of what stands, with what it holds stored already.
    fn entries(self, inner: &Inner, about: Payload, at: Timestamp) -> Result<Vec<Entry>, StoreError> {
        let number = inner.state.next_generation;
        let mut entries = vec![Entry::Generation { number, cause: self.cause, about, at }];
        if let Some(on) = self.on {
            if on != inner.state.head || inner.has_forgotten() {
                return Err(StoreError::NoGeneration { generation: on });
            }
            entries.push(Entry::StandsOn { generation: number, on });
        }
        Ok(entries)
    }
}

/// What is known of an agent without reading its zones.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    /// The agent.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// The embedder's data about it.
    pub about: Arc<[u8]>,
    /// When it was created.
    pub created: Timestamp,
    /// The generation that it is a fork of.
    pub parent: Option<(AgentId, GenerationNumber)>,
    /// How far its head is durable on this machine: the epoch of the writer of its last record.
    pub epoch: Epoch,
    /// And the number of that record. What is on its way to the disk counts once it is there.
    pub sequence: Sequence,
    /// Its last turn that is durable.
    pub last_turn: Turn,
    /// The generation it stands at.
    pub head: GenerationNumber,
    /// Logical bytes in its zones.
    pub bytes: u64,
    /// Its zones, in order.
    pub zones: Vec<ZoneSpec>,
}

pub(super) struct Inner {
    pub state: State,
    /// Entries that no record holds yet.
    pub pending: Vec<Entry>,
    /// The turn that is going on, durable or not.
    pub turn: Option<Underway>,
    /// A commit is under way.
    pub committing: bool,
    /// The commit that is under way is a policy's, for which whoever comes waits: they asked for nothing that it has
    /// to do with.
    pub giving: bool,
    /// How many keep policies off for now: [`PoliciesOff`].
    policies_off: usize,
    /// A record that has nothing to do with a turn is on its way, which every other commit waits for: it is under way
    /// already, and waits for nothing but the log.
    pub beside: bool,
    /// The log holds changes that are pending all the same: a commit was refused half-way.
    pub withdraw: bool,
    /// The epoch in which this opening of the store writes.
    pub writer: Epoch,
    /// The log says that this writer has begun.
    pub opened: bool,
    /// What was forgotten in zones, and no commit has made final.
    pub forgot: Vec<(u16, Inode)>,
    /// Addresses of payloads that were put lately, and that perhaps no record names yet.
    pub held: VecDeque<Hash>,
    /// Those who wait for the change feeds of its zones.
    pub watchers: Watchers,
    /// The pressure at which memory was last let go of.
    pressure: u64,
}

/// A turn that is going on, counted among those of the store.
pub(super) struct Underway {
    open: OpenTurn,
    count: Arc<AtomicUsize>,
}

impl Underway {
    fn new(open: OpenTurn, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { open, count: count.clone() }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// While it is held, no policy commits anything of the agent: its head stays where it is, unless its holder moves it.
/// A policy passes the agent over, and comes to it another time.
#[derive(Debug)]
pub struct PoliciesOff(Arc<Disk>);

impl Drop for PoliciesOff {
    fn drop(&mut self) {
        self.0.lock().policies_off -= 1;
    }
}

impl std::ops::Deref for Underway {
    type Target = OpenTurn;

    fn deref(&self) -> &OpenTurn {
        &self.open
    }
}

/// The durable part of an agent. Shared by reference; dropped with the store.
pub struct Disk {
    pub(super) id: AgentId,
    pub(super) inner: Mutex<Inner>,
    pub(super) store: Weak<Shared>,
    /// The shared zones among the agent's.
    pub(super) mounts: Mounts,
    role: Role,
    /// Its commits take effect in memory alone.
    is_rehearsal: bool,
    /// Woken when a commit is over.
    pub(super) settled: Condvar,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Disk {
    pub(super) fn new(state: State, opened: bool, store: &Arc<Shared>, mounts: Mounts) -> Arc<Self> {
        Arc::new(Self::of(state, opened, store, mounts))
    }

    /// One whose commits take effect in memory alone.
    pub(super) fn rehearsing(state: State, store: &Arc<Shared>, mounts: Mounts) -> Arc<Self> {
        Arc::new(Self { is_rehearsal: true, ..Self::of(state, true, store, mounts) })
    }

    fn of(state: State, opened: bool, store: &Arc<Shared>, mounts: Mounts) -> Self {
        let writer = state.epoch.next();
        let inner = Inner {
            state,
            pending: Vec::new(),
            turn: None,
            committing: false,
            giving: false,
            policies_off: 0,
            beside: false,
            withdraw: false,
            writer,
            opened,
            forgot: Vec::new(),
            held: VecDeque::new(),
            watchers: Watchers::default(),
            pressure: 0,
        };
        let (id, role) = (inner.state.id, inner.state.role);
        Self {
            id,
            inner: Mutex::new(inner),
            store: Arc::downgrade(store),
            mounts,
            role,
            is_rehearsal: false,
            settled: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), once nothing is committed beside it, and no commit of a policy's is under way.
    pub(super) fn lock_settled(&self) -> MutexGuard<'_, Inner> {
        let inner = self.lock();
        let settled = self.settled.wait_while(inner, |it| it.beside || it.giving);
        settled.unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), once no commit of a policy's is under way.
    pub(super) fn lock_given(&self) -> MutexGuard<'_, Inner> {
        self.settled.wait_while(self.lock(), |it| it.giving).unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps policies off for as long as what is returned is held, for who works with the head in several steps. Waits
    /// for the commit of one that is under way.
    pub fn keep_policies_off(self: &Arc<Self>) -> PoliciesOff {
        self.lock_given().policies_off += 1;
        PoliciesOff(self.clone())
    }

    pub(super) fn store(&self) -> Result<Arc<Shared>, StoreError> {
        self.store.upgrade().ok_or(StoreError::Closed)
    }

    /// The agent that it belongs to.
    pub fn id(&self) -> AgentId {
        self.id
    }

    /// Whether it is one that [rehearses](Self::rehearse).
    pub fn is_rehearsal(&self) -> bool {
        self.is_rehearsal
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// What is known of the agent.
    pub fn info(&self) -> Result<DiskInfo, StoreError> {
        let inner = self.lock();
        let state = &inner.state;
        Ok(DiskInfo {
            id: state.id,
            name: state.name.clone(),
            about: blob::get(&*state.chunks, &state.about)?,
            created: state.created,
            parent: state.parent,
            epoch: state.epoch,
            sequence: state.sequence,
            last_turn: state.last_turn,
            head: state.head,
            bytes: state.zones.iter().map(|z| z.working.usage().bytes).sum(),
            zones: state.specs.clone(),
        })
    }

    /// Its zones, in order: an index into this list names a zone in every other call.
    pub fn zones(&self) -> Vec<ZoneSpec> {
        self.lock().state.specs.clone()
    }

    /// Works on a zone as it stands now. `None` where there is no zone of this index, or one that
    /// is shared and [cannot be read](Self::mount_fault).
    ///
    /// What is done to a shared zone is seen by all who mount it when this returns, and is committed
    /// without anybody waiting for it.
    #[inline]
    pub fn zone<R>(&self, index: u16, work: impl FnOnce(&mut Zone) -> R) -> Option<R> {
        if let Some(mount) = self.mount(index) {
            return mount.zone(work);
        }
        let mut inner = self.lock();
        if self.is_rehearsal
            && inner.state.specs.get(usize::from(index)).is_some_and(|it| it.shared.is_some())
        {
            return None;
        }
        let result = inner.state.zones.get_mut(usize::from(index)).map(|z| work(&mut z.working));
        inner.relieve();
        result
    }

    /// Why a shared zone that the agent mounts cannot be used, where that is so.
    pub fn mount_fault(&self, index: u16) -> Option<Arc<StoreError>> {
        self.mount(index).and_then(Mounted::fault)
    }

    /// A zone as it stood in a generation, to be read. Not one that is shared: generations hold
    /// nothing of it.
    pub fn zone_at(&self, generation: GenerationNumber, index: u16) -> Result<Zone, StoreError> {
        let store = self.store()?;
        let inner = self.lock();
        if let Some(spec) = inner.state.specs.get(usize::from(index)).filter(|s| s.shared.is_some()) {
            return Err(StoreError::NoPast { zone: spec.name.clone() });
        }
        let found = inner.state.generations.get(&generation).and_then(|g| g.roots.get(usize::from(index)));
        let root = found.ok_or(StoreError::NoGeneration { generation })?.clone();
        // under the disk's lock, so that a reaping that drops the generation afterwards sees the reader
        let chunks = store.readers.pin(&root, inner.state.chunks.clone());
        Ok(Zone::from_root(root, chunks))
    }

    /// The entries of a zone's change feed after `after`, oldest first, at most `limit`: of what is
    /// committed. `None` where there is no zone of this index.
    pub fn changes(
        &self,
        index: u16,
        after: ChangeSequence,
        limit: usize,
    ) -> Option<Result<Changes, StoreError>> {
        if let Some(mount) = self.mount(index) {
            // each operation there is a commit of its own
            let access = Access::new(Principal::Host, Timestamp::now());
            return mount
                .zone(|zone| zone.changes(access, after, limit))
                .map(|found| found.map_err(Into::into));
        }
        let inner = self.lock();
        let head = inner.state.zones.get(usize::from(index))?.head.clone();
        let chunks = inner.state.chunks.clone();
        drop(inner);
        Some(head.changes(&*chunks, after, limit).map_err(Into::into))
    }

    /// Whether the turn that is going on has forgotten anything, which its end will make final.
    pub fn has_forgotten(&self) -> bool {
        self.lock().has_forgotten()
    }

    /// All generations that are kept, oldest first.
    pub fn generations(&self) -> Vec<Generation> {
        self.lock().state.generations.values().cloned().collect()
    }

    /// One generation.
    pub fn generation(&self, number: GenerationNumber) -> Result<Generation, StoreError> {
        self.lock()
            .state
            .generations
            .get(&number)
            .cloned()
            .ok_or(StoreError::NoGeneration { generation: number })
    }

    /// The turns that are over, oldest first: all of them, so rather [`history_after`](Self::history_after)
    /// where there can be many.
    pub fn history(&self) -> Result<Vec<TurnRecord>, StoreError> {
        self.history_after(Turn(0), usize::MAX)
    }

    /// The turns after `after` that are over, oldest first, at most `limit` of them.
    pub fn history_after(&self, after: Turn, limit: usize) -> Result<Vec<TurnRecord>, StoreError> {
        let (history, chunks) = {
            let inner = self.lock();
            (inner.state.history.clone(), inner.state.chunks.clone())
        };
        history.read(after, limit, &*chunks)
    }

    /// The last turn that is over.
    pub fn last_turn_record(&self) -> Option<TurnRecord> {
        self.lock().state.history.last().cloned()
    }

    /// The bytes of a payload that a record or generation holds.
    pub fn payload(&self, payload: &Payload) -> Result<Arc<[u8]>, StoreError> {
        Ok(blob::get(&*self.store()?.segments, payload)?)
    }

    pub(super) fn stored(&self, bytes: &[u8]) -> Result<Payload, StoreError> {
        if bytes.len() > blob::MAX_PAYLOAD {
            return Err(StoreError::PayloadTooLarge { len: bytes.len(), limit: blob::MAX_PAYLOAD });
        }
        let store = self.store()?;
        // put and noted under one lock, so that a reaping sees it before any record does
        let mut inner = self.lock();
        let payload = blob::put(&*store.segments, bytes)?;
        inner.hold(payload.needs());
        Ok(payload)
    }

    /// Begins a turn. Nothing is written before its first commit point.
    pub fn begin(&self, style: TurnStyle, event: &[u8]) -> Result<Turn, StoreError> {
        let event = self.stored(event)?;
        let store = self.store()?;
        let mut inner = self.lock_given();
        inner.idle()?;
        let turn = inner.state.last_turn.next();
        let open = OpenTurn { turn, style, event, began: Timestamp::now(), facts: Vec::new() };
        inner.pending.push(Entry::TurnBegan { turn, style, event: open.event.clone(), at: open.began });
        self.mounts.begin();
        inner.turn = Some(Underway::new(open, &store.turns));
        for zone in &mut inner.state.zones {
            zone.working.begin_turn(turn);
        }
        Ok(turn)
    }

    /// Adds a fact to the turn; it becomes durable with the next commit point.
    pub fn fact(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let payload = self.stored(bytes)?;
        let mut inner = self.lock();
        inner.in_turn()?;
        inner.pending.push(Entry::Fact(payload));
        Ok(())
    }

    /// Makes everything so far durable, also what was seen in shared zones: fsync. Between turns it
    /// commits an operator's writes.
    pub fn sync(self: &Arc<Self>, done: Done<()>) {
        let control = |inner: &Inner| {
            Ok(vec![if inner.turn.is_some() {
                Entry::Synced
            } else {
                Entry::Operated { at: Timestamp::now() }
            }])
        };
        self.commit(Box::new(control), Box::new(|result| done(result.map(|_| ()))));
    }

    /// Whether no other agent is in a turn just now, which would have to wait for a thread that blocks.
    pub fn is_alone(&self) -> bool {
        self.store.upgrade().is_some_and(|store| {
            let own = usize::from(self.is_in_turn());
            store.turns.load(Ordering::Relaxed) <= own
        })
    }

    /// As [`lend`], for a thread that other agents need too: only where the agent [is alone](Self::is_alone).
    pub fn lend<R>(&self, start: impl FnOnce() -> R) -> R {
        if self.is_alone() { lend(start) } else { start() }
    }

    /// Ends the turn and makes the generation that stands for its outcome. Durable when done, as is
    /// what the turn has seen in shared zones.
    pub fn end(
        self: &Arc<Self>,
        outcome: &[u8],
        generation: Option<NewGeneration>,
        done: Done<GenerationNumber>,
    ) {
        self.end_as(outcome, generation, None, done);
    }

    /// As [`end`](Self::end), and what the embedder keeps about the agent is `agent` from then on, where that is given:
    /// all with one commit.
    pub fn end_as(
        self: &Arc<Self>,
        outcome: &[u8],
        generation: Option<NewGeneration>,
        agent: Option<&[u8]>,
        done: Done<GenerationNumber>,
    ) {
        let stored = (|| {
            let about = generation.as_ref().map(|g| self.stored(&g.about)).transpose()?;
            let generation = generation.zip(about);
            Ok((self.stored(outcome)?, generation, agent.map(|it| self.stored(it)).transpose()?))
        })();
        let (outcome, generation, agent) = match stored {
            Ok(stored) => stored,
            Err(e) => return done(Err(e)),
        };
        let control = |inner: &Inner| {
            let turn = inner.in_turn()?.turn;
            let at = Timestamp::now();
            let mut control = vec![Entry::TurnEnded { turn, outcome, at }];
            control.extend(agent.map(Entry::About));
            if let Some((generation, about)) = generation {
                control.extend(generation.entries(inner, about, at)?);
            }
            Ok(control)
        };
        self.commit(Box::new(control), done);
    }

    /// Fails the turn: the zones go back as their contracts say, and what went back is kept beside.
    /// What the turn held open in shared zones is closed, and the agent's locks are let go.
    pub fn fail(self: &Arc<Self>, reason: &str, done: Done<GenerationNumber>) {
        self.let_go();
        let reason = reason.chars().take(MAX_REASON).collect();
        let control = |inner: &Inner| {
            Ok(vec![Entry::TurnFailed { turn: inner.in_turn()?.turn, reason, at: Timestamp::now() }])
        };
        Commit::start(self, control, None, done);
    }

    /// Makes a generation of what stands now, between turns.
    pub fn mark(self: &Arc<Self>, generation: NewGeneration, done: Done<GenerationNumber>) {
        let about = match self.stored(&generation.about) {
            Ok(about) => about,
            Err(e) => return done(Err(e)),
        };
        let control = |inner: &Inner| {
            inner.idle()?;
            generation.entries(inner, about, Timestamp::now())
        };
        self.commit(Box::new(control), done);
    }

    /// Replaces what the embedder keeps of a generation, which needs no other from then on: durable when this returns.
    /// Works beside a turn that is going on, and takes nothing from it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoGeneration`] where it is not kept any more.
    pub fn complete(self: &Arc<Self>, generation: GenerationNumber, about: &[u8]) -> Result<(), StoreError> {
        let about = self.stored(about)?;
        let needs = about.needs().to_vec();
        let entry = |inner: &Inner| {
            let is_there = inner.state.generations.contains_key(&generation);
            is_there
                .then_some(Entry::Completed { generation, about })
                .ok_or(StoreError::NoGeneration { generation })
        };
        wait(|done| Commit::beside(self, entry, &needs, done)).map(drop)
    }

    /// Takes the zones that a rewind moves back to generation `to`, and makes the generation that
    /// records it.
    pub fn rewind(self: &Arc<Self>, to: GenerationNumber, about: &[u8], done: Done<GenerationNumber>) {
        self.rewind_as(to, about, None, done);
    }

    /// As [`rewind`](Self::rewind), and what the embedder keeps about the agent is `agent` from then on, where that is
    /// given: all with one commit.
    pub fn rewind_as(
        self: &Arc<Self>,
        to: GenerationNumber,
        about: &[u8],
        agent: Option<&[u8]>,
        done: Done<GenerationNumber>,
    ) {
        let stored =
            self.stored(about).and_then(|about| Ok((about, agent.map(|it| self.stored(it)).transpose()?)));
        let (about, agent) = match stored {
            Ok(stored) => stored,
            Err(e) => return done(Err(e)),
        };
        let control = |inner: &Inner| {
            inner.idle()?;
            if !inner.state.generations.contains_key(&to) {
                return Err(StoreError::NoGeneration { generation: to });
            }
            let number = inner.state.next_generation;
            let at = Timestamp::now();
            let made = Entry::Generation { number, cause: Cause::Rewound(to), about, at };
            let mut control = vec![Entry::Rewound { to, at }];
            control.extend(agent.map(Entry::About));
            control.push(made);
            Ok(control)
        };
        Commit::start(self, control, None, done);
    }

    /// Replaces the embedder's data about the agent. What was written before is synced with it.
    pub fn set_about(self: &Arc<Self>, about: &[u8], done: Done<()>) {
        let about = match self.stored(about) {
            Ok(about) => about,
            Err(e) => return done(Err(e)),
        };
        let control = |_: &Inner| Ok(vec![Entry::About(about)]);
        Commit::start(self, control, None, Box::new(|result| done(result.map(|_| ()))));
    }

    /// Throws away what is not durable: the zones stand where they were committed last. For a turn
    /// whose commit was refused.
    pub fn abandon(&self) -> Result<(), StoreError> {
        let mut inner = self.lock_settled();
        if inner.committing {
            return Err(StoreError::Busy);
        }
        self.let_go();
        inner.abandon();
        Ok(())
    }

    /// Whether the zones stand as in the head's generation: nobody has committed to them since.
    pub fn stands_at_head(&self) -> bool {
        let inner = self.lock();
        let state = &inner.state;
        let head = state.generations.get(&state.head);
        head.is_some_and(|g| {
            g.roots.len() == state.zones.len()
                && g.roots.iter().zip(&state.zones).all(|(r, z)| r.same_as(&z.head))
        })
    }

    /// Whether a turn has begun and is not over.
    pub fn is_in_turn(&self) -> bool {
        self.lock().turn.is_some()
    }

    /// The turn that is going on; 0 for none.
    pub fn turn(&self) -> Turn {
        self.lock().turn.as_ref().map_or(Turn(0), |open| open.turn)
    }

    /// The generation that the agent stands at.
    pub fn head(&self) -> GenerationNumber {
        self.lock().state.head
    }

    /// The number of the generation that is made next.
    pub fn next_generation(&self) -> GenerationNumber {
        self.lock().state.next_generation
    }

    /// Forgets what is open in the zones, and keeps it all the same: for an instance that is dropped
    /// while its handles stay, in a generation.
    pub fn release(&self) -> Result<(), StoreError> {
        self.let_go();
        let mut inner = self.lock_given();
        if inner.turn.is_some() || inner.committing {
            return Err(StoreError::Busy);
        }
        inner.state.release()
    }

    /// Lets the agent's locks go and closes what is open in shared zones, as far as it can be: where
    /// storage fails, a file without a name takes its space until the zone is read anew.
    pub(super) fn let_go(&self) {
        // the locks of one that rehearses are those of the agent itself
        if let Some(store) = self.store.upgrade().filter(|_| !self.is_rehearsal) {
            store.locks.let_go(self.id);
        }
        if let Err(e) = self.mounts.let_go() {
            tracing::warn!("closing an agent's files in shared zones: {e}");
        }
    }
}

/// Characters of a failed turn's reason that are kept.
pub const MAX_REASON: usize = 4096;

/// Addresses that are held at once for payloads on their way into a record: eight of the largest.
const MAX_HELD: usize = 2048;

impl Inner {
    fn has_forgotten(&self) -> bool {
        let lately = |zone: &ZoneState| zone.working.forgotten_lately().next().is_some();
        !self.forgot.is_empty() || self.state.zones.iter().any(lately)
    }

    /// Lets go of memory if trees have more of it than they may.
    #[inline]
    pub fn relieve(&mut self) {
        let pressure = self.state.chunks.pressure();
        if pressure != self.pressure {
            self.pressure = pressure;
            self.state.relieve();
        }
    }

    /// Notes that these were put and that a record is to name them.
    fn hold(&mut self, addresses: &[Hash]) {
        self.held.extend(addresses);
        let many = self.held.len().saturating_sub(MAX_HELD);
        self.held.drain(..many);
    }

    /// Notes that a record names what these entries do, or that none is going to: it is held no more for them, so that
    /// a purge erases it once nothing else needs it.
    pub(super) fn release(&mut self, entries: &[Entry]) {
        for hash in entries.iter().flat_map(Entry::needs) {
            // another payload of the same content may be on its way
            if let Some(at) = self.held.iter().position(|it| it == hash) {
                self.held.remove(at);
            }
        }
    }

    /// Throws away what is not durable, between commits.
    pub(super) fn abandon(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.release(&pending);
        self.forgot.clear();
        self.turn = None;
        // the next record begins again, so that whoever reads the log throws the same away
        self.opened = false;
        self.withdraw = false;
        self.state.abandon();
    }

    pub(super) fn idle(&self) -> Result<(), StoreError> {
        if self.turn.is_some() || self.committing { Err(StoreError::Busy) } else { Ok(()) }
    }

    /// Whether there is no turn, no commit under way, nothing to be committed, and nobody who keeps policies off.
    pub(super) fn is_at_rest(&self) -> bool {
        self.idle().is_ok() && self.pending.is_empty() && self.policies_off == 0
    }

    fn in_turn(&self) -> Result<&OpenTurn, StoreError> {
        self.turn.as_deref().ok_or(StoreError::NoTurn)
    }
}

/// Waits for a call that ends with a [`Done`]. As in [`lend`], no lock may be held that a `Done` of anybody's needs.
pub fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T, StoreError> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let done: Done<T> = Box::new(move |result| {
        // the receiver waits below; it is gone only if the thread was killed
        let _ = send.send(result);
    });
    lend(|| start(done));
    receive.recv().map_err(|_| StoreError::Closed)?
}
