//! What the agents do, step by step, and what the model says of it.

use std::rc::Rc;

use super::super::attachments;
use super::super::needles::Needles;
use super::versions::Draft;
use super::*;
use crate::device::simulated::Trace;

const AGENTS: u64 = 4;
/// The first seed of content that is written again and again.
const SHARED: u64 = 7_000_000_000;

/// What goes wrong in a round besides the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    Fails(Fault),
    Full(u64),
}

impl Trouble {
    pub fn draw(rng: &mut Rng, device: &Simulated) -> Self {
        match rng.below(6) {
            0 => Self::Fails(Fault::Write(device.writes() + 1 + rng.below(60))),
            1 => Self::Fails(Fault::Flush(device.flushes() + 1 + rng.below(40))),
            2 => Self::Fails(Fault::Read(device.reads() + 1 + rng.below(100))),
            _ => Self::Full(device.bytes() + rng.below(150_000)),
        }
    }
}

/// Whether a round goes on.
pub type Goes = Result<bool, String>;

/// A store under work, and what it should hold.
pub struct Work {
    pub device: Simulated,
    pub(super) store: Option<Rc<Store>>,
    pub(super) model: Found,
    pub(super) teams: Teams,
    /// What agents have open for writing in the zone that keeps versions.
    pub(super) drafts: BTreeMap<String, Draft>,
    pub(super) timeline: Timeline,
    /// The backups that were acknowledged last, each since the one before, and how many changes the device had
    /// seen by then.
    pub(super) backups: Vec<(usize, Vec<u8>)>,
    /// All that was ever written to files, events and outcomes.
    pub(super) written: Needles,
    /// Little is kept in memory, so that much is read.
    has_little_memory: bool,
    pub(super) trouble: Trouble,
    pub(super) rng: Rng,
    pub(super) count: u64,
    /// What was done, for whoever looks for the reason of a failure.
    pub steps: Vec<String>,
}

impl Work {
    pub fn new(seed: u64, device: Simulated) -> Self {
        Self {
            device,
            store: None,
            model: Found::new(),
            teams: Teams::new(),
            drafts: BTreeMap::new(),
            timeline: Timeline::default(),
            backups: Vec::new(),
            written: Needles::default(),
            has_little_memory: seed.is_multiple_of(3),
            trouble: Trouble::None,
            rng: Rng::new(seed ^ 0xd0),
            count: 0,
            steps: Vec::new(),
        }
    }

    /// Opens the store and works for a while. Gives what happened to the device, and what a crash
    /// may find at every point of it.
    pub fn round(&mut self, trouble: Trouble) -> Result<(Trace, Timeline), String> {
        let mut trace = self.device.start_trace();
        self.timeline = Timeline::new(&self.model, &self.teams);
        self.trouble = Trouble::None;
        self.store = Some(self.start().map_err(|e| format!("it does not open: {e}"))?);
        self.trouble = trouble;
        let is_due = self.store().is_purge_due().map_err(|e| e.to_string())?;
        self.timeline.set_due(0, &[is_due]);
        match trouble {
            Trouble::None => {}
            Trouble::Fails(fault) => self.device.inject(fault),
            Trouble::Full(bytes) => self.device.inject(Fault::Capacity(bytes)),
        }
        self.steps.push(format!("round with {trouble:?}"));
        let mut goes = true;
        for _ in 0..15 + self.rng.below(30) {
            goes = self.step()?;
            if !goes {
                break;
            }
        }
        if goes {
            let wanted = self.model.iter().map(|(name, it)| (name.clone(), it.seen())).collect();
            let seen = self.look()?;
            if let Some(what) = timeline::difference(&seen.agents, &wanted) {
                return Err(format!("the open store is not as it should be: {what}"));
            }
            let files = |name: &String| seen.teams.get(name).map(|it| &it.files);
            if self.teams.iter().any(|(name, it)| files(name) != Some(&it.files)) {
                return Err("the open store's shared zones are not as they should be".into());
            }
        }
        if self.rng.one_in(3) {
            self.store = None;
        }
        self.device.end_trace(&mut trace);
        self.store = None;
        self.timeline.written = self.written.clone();
        Ok((trace, std::mem::take(&mut self.timeline)))
    }

    /// The machine has stopped after so many changes and starts again with this device, on which this was found.
    pub fn go_on(&mut self, at: usize, device: Simulated, (found, teams): (Found, Teams)) {
        self.steps.push("crash".into());
        // those made later have never been
        self.backups.retain(|(made, _)| *made <= at);
        self.backups.iter_mut().for_each(|(made, _)| *made = 0);
        self.device = device;
        self.model = found;
        self.teams = teams;
        self.drafts.clear();
    }

    pub(super) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn start(&self) -> Result<Rc<Store>, StoreError> {
        let plenty = options();
        let little = StoreOptions { cache: 4 << 10, nodes: 16 << 10, ..plenty };
        let options = if self.has_little_memory { little } else { plenty };
        Store::on_device(Arc::new(self.device.clone()), &options).map(Rc::new)
    }

    /// What the open store holds. A read that fails does so once.
    pub(super) fn look(&self) -> Result<World, String> {
        let again = |e: StoreError| if self.reads_fail() { World::try_of(self.store()) } else { Err(e) };
        let seen = World::try_of(self.store()).or_else(again);
        seen.map_err(|e| format!("the open store cannot be read: {e}"))
    }

    pub(super) fn reads_fail(&self) -> bool {
        matches!(self.trouble, Trouble::Fails(Fault::Read(_)))
    }

    /// The same, of one thing that is asked for.
    pub(super) fn insist<T>(&self, ask: impl Fn(&Store) -> Result<T, StoreError>) -> Result<T, StoreError> {
        ask(self.store())
            .or_else(|e| if self.reads_fail() && e.may_pass() { ask(self.store()) } else { Err(e) })
    }

    pub(super) fn disk(&self, name: &str) -> Arc<Disk> {
        let id = self.model[name].id;
        self.insist(|store| store.disk(id)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(super) fn any_agent(&mut self) -> (String, Arc<Disk>) {
        let at = self.rng.below(self.model.len() as u64) as usize;
        let name = self.model.keys().nth(at).unwrap().clone();
        let disk = self.disk(&name);
        (name, disk)
    }

    /// Often new; sometimes what has been there before.
    pub(super) fn fresh(&mut self) -> Vec<u8> {
        let len = match self.rng.below(40) {
            0..28 => self.rng.below(200),
            28..35 => self.rng.below(6_000),
            35..39 => 17_000 + self.rng.below(8_000),
            _ => 60_000 + self.rng.below(40_000),
        };
        if len > 6_000 && self.rng.one_in(2) {
            // what is erased may be written again, and is not followed
            return content(SHARED + self.rng.below(10), 17_000);
        }
        self.new_content(len as usize + 1)
    }

    /// What was never written before.
    pub(super) fn new_content(&mut self, len: usize) -> Vec<u8> {
        self.count += 1;
        let content = content(self.count * 1_000_003, len);
        self.written.add(&content);
        content
    }

    fn free_name(&mut self) -> Option<String> {
        let name = format!("agent{}", self.rng.below(AGENTS));
        (!self.model.contains_key(&name)).then_some(name)
    }

    fn step(&mut self) -> Goes {
        let kind = self.rng.below(130);
        self.settle();
        match kind {
            _ if self.model.is_empty() => self.create(),
            0..2 => self.reopen(),
            2..5 => self.reap(),
            5..7 => self.back_up(),
            7..9 => self.scrub(),
            9..11 => self.remove(),
            11..14 => self.attach(),
            14..19 => self.pin(),
            19..22 => self.forget(),
            22..23 => self.erase(),
            _ => self.step_beside(),
        }
    }

    /// A step that can be taken while a backup is made: one that waits for no reaping.
    pub(super) fn step_beside(&mut self) -> Goes {
        self.settle();
        match self.rng.below(100) {
            _ if self.model.is_empty() => self.create(),
            0..5 => self.create(),
            5..9 => self.checkpoint(),
            9..14 => self.fork(),
            14..52 => self.write(),
            52..61 => self.begin(),
            61..64 => self.abandon(),
            64..70 => self.remember(),
            70..77 => self.share(),
            _ => self.commit(),
        }
    }

    /// Waits until the committer has nothing to do, so that everything has its order.
    fn settle(&self) {
        if let Ok(shared) = self.store().shared() {
            while shared.log.bytes_since(shared.log.tail()) > 0 {
                std::thread::yield_now();
            }
        }
    }

    pub(super) fn allow(&mut self, name: &str, candidates: Vec<Candidate>) {
        self.timeline.set(name, self.device.traced(), candidates);
    }

    fn create(&mut self) -> Goes {
        let Some(name) = self.free_name() else { return Ok(true) };
        let id = AgentId(Uuid::from_u128(self.rng.bits().into()));
        self.steps.push(format!("create {name} {id}"));
        let specs = self.with_mounts();
        let mounts = specs.iter().filter_map(|spec| spec.shared).collect();
        let agent = ModelAgent::new(id).mounting(mounts);
        self.allow(&name, vec![None, Some(agent.clone())]);
        let made = self.store().create(id, &new_agent(&name), specs);
        self.made(vec![(name, agent)], made.map(|_| ()))
    }

    fn fork(&mut self) -> Goes {
        let (parent, disk) = self.any_agent();
        let at = self.model[&parent].any_generation(&mut self.rng);
        if !self.can_be_forked(&parent) {
            return Ok(true);
        }
        let mut children = BTreeMap::new();
        for _ in 0..=self.rng.below(2) {
            if let Some(name) = self.free_name() {
                children.insert(name, AgentId(Uuid::from_u128(self.rng.bits().into())));
            }
        }
        self.steps.push(format!("fork {parent} at {at}: {:?}", children.keys()));
        let models: Vec<_> =
            children.iter().map(|(name, id)| (name.clone(), self.model[&parent].fork(*id, at))).collect();
        for (name, agent) in &models {
            self.allow(name, vec![None, Some(agent.clone())]);
        }
        let children: Vec<_> = children.into_iter().map(|(name, id)| (id, new_agent(&name))).collect();
        let made = self.store().fork(&disk, GenerationNumber(at), &children);
        self.made(models, made.map(|_| ()))
    }

    /// Agents were made, or some of them, or may have been.
    fn made(&mut self, agents: Vec<(String, ModelAgent)>, result: Result<(), StoreError>) -> Goes {
        match result {
            Err(e) if !e.is_no_space() => return self.broken(&e),
            _ => {}
        }
        for (name, agent) in agents {
            let is_there = self.store().find(&name).map_err(|e| e.to_string())?.is_some();
            if !is_there && result.is_ok() {
                return Err(format!("{name} was made and is not there"));
            }
            let agent = is_there.then_some(agent);
            self.allow(&name, vec![agent.clone()]);
            self.model.extend(agent.map(|agent| (name, agent)));
        }
        Ok(true)
    }

    fn remove(&mut self) -> Goes {
        let (name, _) = self.any_agent();
        self.steps.push(format!("remove {name}"));
        let agent = self.model[&name].clone();
        let id = agent.id;
        self.allow(&name, vec![Some(agent.clone()), None]);
        match self.store().remove(id) {
            Ok(()) => {
                self.allow(&name, vec![None]);
                self.model.remove(&name);
                self.drafts.remove(&name);
                Ok(true)
            }
            Err(e) if e.is_no_space() => {
                let agent = self.model.get_mut(&name).unwrap();
                agent.drain();
                let agent = agent.clone();
                self.allow(&name, vec![Some(agent)]);
                self.device.heal_space();
                Ok(true)
            }
            Err(e) => self.broken(&e),
        }
    }

    fn checkpoint(&mut self) -> Goes {
        self.steps.push("checkpoint".into());
        match self.store().checkpoint() {
            Err(e) if !e.is_no_space() => self.broken(&e),
            _ => Ok(true),
        }
    }

    /// Attaches something to a generation, whatever else the agent is at.
    fn attach(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        let at = self.model[&name].any_generation(&mut self.rng);
        let what = attachments::sparse(self.rng.below(6), self.rng.below(5));
        self.steps.push(format!("attach {} to {name}@{at}", what.len()));
        let before = self.model[&name].clone();
        let mut after = before.clone();
        after.attach(at, &what);
        self.allow(&name, vec![Some(before.clone()), Some(after.clone())]);
        match attachments::attach(&disk, GenerationNumber(at), &what) {
            Ok(_) => {
                self.allow(&name, vec![Some(after.clone())]);
                self.model.insert(name, after);
                Ok(true)
            }
            Err(e) if e.is_no_space() => {
                self.allow(&name, vec![Some(before)]);
                self.device.heal_space();
                Ok(true)
            }
            Err(e) => self.broken(&e),
        }
    }

    fn reopen(&mut self) -> Goes {
        self.steps.push("reopen".into());
        self.store = None;
        self.drafts.clear();
        for agent in self.model.values_mut() {
            agent.interrupt();
        }
        match self.start() {
            Ok(store) => {
                self.store = Some(store);
                if self.trouble != Trouble::None {
                    // what nobody has waited for may be lost
                    let found = self.look()?;
                    self.teams = self.timeline.explain(&found, self.device.traced())?.1;
                }
                Ok(true)
            }
            Err(_) if matches!(self.trouble, Trouble::Fails(_)) => Ok(false),
            Err(e) => Err(format!("it does not open: {e}")),
        }
    }
}
