//! What the agents do, step by step, and what the model says of it.

use super::super::attachments;
use super::super::changes::ZoneChange;
use super::super::commits::Commit;
use super::*;
use crate::device::simulated::Trace;

const AGENTS: u64 = 4;

/// What goes wrong in a round besides the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    Fails(Fault),
    Full(u64),
}

impl Trouble {
    pub fn draw(rng: &mut Rng, device: &Simulated) -> Self {
        match rng.below(4) {
            0 => Self::Fails(Fault::Write(device.writes() + 1 + rng.below(60))),
            1 => Self::Fails(Fault::Flush(device.flushes() + 1 + rng.below(40))),
            _ => Self::Full(device.bytes() + rng.below(150_000)),
        }
    }
}

/// Whether a round goes on.
type Goes = Result<bool, String>;

/// A store under work, and what it should hold.
pub struct Work {
    pub device: Simulated,
    store: Option<Store>,
    model: Found,
    timeline: Timeline,
    trouble: Trouble,
    rng: Rng,
    count: u64,
    /// What was done, for whoever looks for the reason of a failure.
    pub steps: Vec<String>,
}

impl Work {
    pub fn new(seed: u64, device: Simulated) -> Self {
        Self {
            device,
            store: None,
            model: Found::new(),
            timeline: Timeline::default(),
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
        self.timeline = Timeline::new(&self.model);
        self.trouble = Trouble::None;
        self.store = Some(try_start(&self.device).map_err(|e| format!("it does not open: {e}"))?);
        self.trouble = trouble;
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
            let seen =
                try_see_all(self.store()).map_err(|e| format!("the open store cannot be read: {e}"))?;
            if let Some(what) = timeline::difference(&seen, &wanted) {
                return Err(format!("the open store is not as it should be: {what}"));
            }
        }
        if self.rng.one_in(3) {
            self.store = None;
        }
        self.device.end_trace(&mut trace);
        self.store = None;
        Ok((trace, std::mem::take(&mut self.timeline)))
    }

    /// The machine has stopped and starts again with this device, on which this was found.
    pub fn go_on(&mut self, device: Simulated, found: Found) {
        self.steps.push("crash".into());
        self.device = device;
        self.model = found;
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn any_agent(&mut self) -> (String, Arc<Disk>) {
        let at = self.rng.below(self.model.len() as u64) as usize;
        let name = self.model.keys().nth(at).unwrap().clone();
        let disk = find(self.store(), &name);
        (name, disk)
    }

    /// Often new; sometimes what has been there before.
    fn fresh(&mut self) -> Vec<u8> {
        self.count += 1;
        let len = match self.rng.below(40) {
            0..28 => self.rng.below(200),
            28..35 => self.rng.below(6_000),
            35..39 => 17_000 + self.rng.below(8_000),
            _ => 60_000 + self.rng.below(40_000),
        };
        if len > 6_000 && self.rng.one_in(2) {
            return content(self.rng.below(10), 17_000);
        }
        content(self.count * 1_000_003, len as usize + 1)
    }

    fn free_name(&mut self) -> Option<String> {
        let name = format!("agent{}", self.rng.below(AGENTS));
        (!self.model.contains_key(&name)).then_some(name)
    }

    fn step(&mut self) -> Goes {
        let kind = self.rng.below(100);
        self.settle();
        match kind {
            _ if self.model.is_empty() => self.create(),
            0..5 => self.create(),
            5..9 => self.checkpoint(),
            9..11 => self.reopen(),
            11..16 => self.fork(),
            16..18 => self.remove(),
            18..58 => self.write(),
            58..68 => self.begin(),
            68..71 => self.abandon(),
            71..75 => self.reap(),
            75..79 => self.attach(),
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

    fn allow(&mut self, name: &str, candidates: Vec<timeline::Candidate>) {
        self.timeline.set(name, self.device.traced(), candidates);
    }

    /// An operation has failed for another reason than want of space: nothing more is taken.
    fn broken(&self, what: &StoreError) -> Goes {
        if !matches!(self.trouble, Trouble::Fails(_)) {
            return Err(format!("it failed: {what}"));
        }
        for (name, id) in self.store().agents().map_err(|e| e.to_string())? {
            let disk = self.store().disk(id).map_err(|e| format!("{name} cannot be read: {e}"))?;
            if disk.abandon().is_ok() && sync(&disk).is_ok() {
                return Err(format!("{name} committed to a store that is poisoned: {what}"));
            }
        }
        Ok(false)
    }

    fn create(&mut self) -> Goes {
        let Some(name) = self.free_name() else { return Ok(true) };
        let id = AgentId(Uuid::from_u128(self.rng.bits().into()));
        self.steps.push(format!("create {name} {id}"));
        self.allow(&name, vec![None, Some(ModelAgent::new(id))]);
        let made = self.store().create(id, &new_agent(&name), specs());
        self.made(vec![(name, ModelAgent::new(id))], made.map(|_| ()))
    }

    fn fork(&mut self) -> Goes {
        let (parent, disk) = self.any_agent();
        let at = self.model[&parent].any_generation(&mut self.rng);
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
                Ok(true)
            }
            Err(e) if e.is_no_space() => {
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

    /// Drops generations and gives back what nothing needs. A crash before it is over may bring the
    /// generations back.
    fn reap(&mut self) -> Goes {
        let keep = KeepGenerations {
            turns: self.rng.below(4) as usize,
            sides: self.rng.below(3) as usize,
            ..KeepGenerations::default()
        };
        self.steps.push(format!("reap {keep:?}"));
        let mut reaped = self.model.clone();
        for (name, agent) in &mut reaped {
            let before = agent.clone();
            agent.reap(keep.turns, keep.sides);
            self.allow(name, vec![Some(before), Some(agent.clone())]);
        }
        match self.store().reap(&ReapPolicy::keeping(keep), false) {
            Ok(report) if report.damage.is_empty() => {
                for (name, agent) in &reaped {
                    self.allow(name, vec![Some(agent.clone())]);
                }
                self.model = reaped;
                Ok(true)
            }
            Ok(report) => Err(format!("a sound store is damaged: {:?}", report.damage)),
            Err(e) if e.is_no_space() => Ok(false),
            Err(e) => self.broken(&e),
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
        for agent in self.model.values_mut() {
            agent.interrupt();
        }
        match try_start(&self.device) {
            Ok(store) => {
                self.store = Some(store);
                Ok(true)
            }
            Err(_) if matches!(self.trouble, Trouble::Fails(_)) => Ok(false),
            Err(e) => Err(format!("it does not open: {e}")),
        }
    }

    fn begin(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        let style = if self.rng.one_in(3) { TurnStyle::Process } else { TurnStyle::Transaction };
        if self.model[&name].turn.is_some() {
            return Ok(true);
        }
        self.steps.push(format!("begin {name} {style:?}"));
        let event = if self.rng.one_in(6) { content(self.count, 17_000) } else { b"event".to_vec() };
        match disk.begin(style, &event).and_then(|_| disk.fact(b"a fact")) {
            Ok(()) => {
                self.model.get_mut(&name).unwrap().begin(style);
                Ok(true)
            }
            Err(e) if e.is_no_space() => Ok(false),
            Err(e) => self.broken(&e),
        }
    }

    fn abandon(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        self.steps.push(format!("abandon {name}"));
        disk.abandon().map_err(|e| format!("{name}: {e}"))?;
        self.model.get_mut(&name).unwrap().interrupt();
        Ok(true)
    }

    fn write(&mut self) -> Goes {
        let (name, disk) = self.any_agent();
        let zone = self.rng.below(KINDS.len() as u64) as u16;
        let content = self.fresh();
        let agent = self.model.get_mut(&name).unwrap();
        let kind = KINDS[usize::from(zone)];
        let Some(change) = ZoneChange::draw(&mut self.rng, kind, agent.files(zone), content) else {
            return Ok(true);
        };
        self.steps.push(format!("{name} {zone}: {change}"));
        match disk.zone(zone, |zone| change.make(zone)).unwrap() {
            Ok(()) => {
                agent.change(zone, |files| change.model(files, kind));
                Ok(true)
            }
            Err(_) if self.trouble != Trouble::None => Ok(false),
            Err(e) => Err(format!("{name}: {change}: {e}")),
        }
    }

    /// Commits of one agent or, sharing groups of the log, of several.
    fn commit(&mut self) -> Goes {
        let several = self.trouble == Trouble::None && self.rng.one_in(3);
        let mut chosen = BTreeMap::new();
        for _ in 0..if several { 3 } else { 1 } {
            let (name, disk) = self.any_agent();
            let commit = Commit::draw(&mut self.rng, &self.model[&name], &content(self.count, 20));
            chosen.entry(name).or_insert((disk, commit));
        }
        if chosen.len() > 1 {
            self.device.hold("log/");
        }
        let mut waiting = Vec::new();
        for (name, (disk, commit)) in &chosen {
            self.steps.push(format!("{name} {commit:?}").chars().take(60).collect());
            let before = self.model[name].clone();
            let mut after = before.clone();
            commit.apply(&mut after);
            let begun = before.clone().only_begun();
            self.allow(name, vec![Some(before), Some(after.clone()), Some(begun)]);
            let result = commit.start(disk);
            if waiting.is_empty() && chosen.len() > 1 {
                // the others are queued behind the first, and then go together
                self.device.wait_for_held();
            }
            waiting.push((name.clone(), disk.clone(), commit.clone(), after, result));
        }
        self.device.release();
        let mut goes = Ok(true);
        for (name, disk, commit, after, result) in waiting {
            match result.recv().map_err(|e| e.to_string())? {
                Ok(()) => {
                    self.allow(&name, vec![Some(after.clone())]);
                    self.model.insert(name, after);
                }
                Err(e) if e.is_no_space() => goes = self.refused(&name, &disk, &commit, after),
                Err(e) => goes = self.broken(&e),
            }
        }
        goes
    }

    /// A full disk has refused a commit: it is made again when there is room, or given up.
    fn refused(&mut self, name: &str, disk: &Arc<Disk>, commit: &Commit, after: ModelAgent) -> Goes {
        let mut before = self.model[name].clone();
        self.allow(name, vec![Some(before.clone()), Some(before.clone().only_begun())]);
        self.device.heal_space();
        self.steps.push(format!("{name} was refused"));
        if self.rng.one_in(2) {
            self.allow(name, vec![Some(before.clone()), Some(before.only_begun()), Some(after.clone())]);
            let again = commit.start(disk).recv().map_err(|e| e.to_string())?;
            again.map_err(|e| format!("{name} does not commit with space: {e}"))?;
            self.allow(name, vec![Some(after.clone())]);
            self.model.insert(name.to_owned(), after);
            return Ok(true);
        }
        // some records of the commit may be in the log, with the beginning of its turn
        let last_turn = disk.info().map_err(|e| e.to_string())?.last_turn;
        if before.turn.is_some() && before.clone().only_begun().seen().last_turn == last_turn.0 {
            before = before.only_begun();
        }
        disk.abandon().map_err(|e| format!("{name}: {e}"))?;
        before.interrupt();
        self.allow(name, vec![Some(before.clone())]);
        self.model.insert(name.to_owned(), before);
        Ok(true)
    }
}
