//! Random work by several agents, machines that stop at any operation, and a model that says what
//! must then be there.

use super::model::ModelAgent;
use super::*;
use crate::device::simulated::{Fault, Rng};

type Model = BTreeMap<String, ModelAgent>;

const AGENTS: u64 = 4;

/// How one step went.
enum Step {
    Done,
    /// The device stopped. The store must be as one of these says.
    Stopped(Vec<Model>),
}

fn seen(model: &Model) -> BTreeMap<String, Seen> {
    model.iter().map(|(name, agent)| (name.clone(), agent.seen())).collect()
}

fn reopened(mut model: Model) -> Model {
    model.values_mut().for_each(ModelAgent::interrupt);
    model
}

/// A store under work, and what it should hold.
struct Work {
    device: Simulated,
    store: Option<Store>,
    model: Model,
    rng: Rng,
    count: u64,
    /// What was done, for whoever looks for the reason of a failure.
    steps: Vec<String>,
}

impl Work {
    fn new(seed: u64) -> Self {
        let device = Simulated::new(seed);
        let store = Some(start(&device));
        Self { device, store, model: Model::new(), rng: Rng::new(seed ^ 0xd0), count: 0, steps: Vec::new() }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn any_agent(&mut self) -> Option<(String, Arc<Disk>)> {
        let at = self.rng.below(self.model.len().max(1) as u64) as usize;
        let name = self.model.keys().nth(at)?.clone();
        let disk = find(self.store(), &name);
        Some((name, disk))
    }

    fn fresh(&mut self) -> Vec<u8> {
        self.count += 1;
        let len = match self.rng.below(20) {
            0..12 => self.rng.below(200),
            12..17 => self.rng.below(6_000),
            17..19 => 20_000 + self.rng.below(20_000),
            _ => 60_000 + self.rng.below(80_000),
        };
        content(self.count * 1_000_003, len as usize + 1)
    }

    /// Commits `change`, for one agent.
    fn commit<T>(
        &mut self,
        name: &str,
        result: Result<T, StoreError>,
        change: impl FnOnce(&mut ModelAgent),
    ) -> Step {
        let before = self.model.clone();
        change(self.model.get_mut(name).unwrap());
        if result.is_ok() {
            return Step::Done;
        }
        let mut begun = before.clone();
        let agent = begun.remove(name).unwrap().only_begun();
        begun.insert(name.to_owned(), agent);
        Step::Stopped(vec![before, self.model.clone(), begun])
    }

    /// Makes an agent, which is there afterwards or not.
    fn add(&mut self, name: String, agent: ModelAgent, result: Result<Arc<Disk>, StoreError>) -> Step {
        let before = self.model.clone();
        self.model.insert(name, agent);
        if result.is_ok() { Step::Done } else { Step::Stopped(vec![before, self.model.clone()]) }
    }

    fn free_name(&mut self) -> Option<String> {
        let name = format!("agent{}", self.rng.below(AGENTS));
        (!self.model.contains_key(&name)).then_some(name)
    }

    fn step(&mut self) -> Step {
        let kind = self.rng.below(100);
        if kind < 6 || self.model.is_empty() {
            let Some(name) = self.free_name() else { return Step::Done };
            let id = AgentId(Uuid::from_u128(self.rng.bits().into()));
            self.steps.push(format!("create {name} {id}"));
            let result = self.store().create(id, &new_agent(&name), specs());
            return self.add(name, ModelAgent::new(id), result);
        }
        if kind < 10 {
            let result = self.store().checkpoint();
            self.steps.push(format!("checkpoint: {}", result.is_ok()));
            return if result.is_ok() { Step::Done } else { Step::Stopped(vec![self.model.clone()]) };
        }
        let Some((name, disk)) = self.any_agent() else { return Step::Done };
        if kind < 50 {
            return self.write(&name, &disk);
        }
        let in_turn = self.model[&name].turn.is_some();
        self.steps.push(format!("{kind} {name} in turn: {in_turn}"));
        match (kind, in_turn) {
            (50..60, _) => self.commit(&name, sync(&disk), ModelAgent::sync),
            (60..82, false) => {
                let style = if self.rng.one_in(3) { TurnStyle::Process } else { TurnStyle::Transaction };
                disk.begin(style, b"event").unwrap();
                disk.fact(b"a fact").unwrap();
                self.model.get_mut(&name).unwrap().begin(style);
                Step::Done
            }
            (60..74, true) => {
                let outcome = content(self.count, 20);
                let generation = !self.rng.one_in(4);
                let new = generation.then(|| new_generation(b"turn"));
                let result = wait(|done| disk.end(&outcome, new, done));
                self.commit(&name, result, |agent| agent.end(&outcome, generation))
            }
            (74..79, true) => self.commit(&name, fail(&disk, "it broke"), |agent| agent.fail("it broke")),
            (79..82, true) => {
                disk.abandon().unwrap();
                self.model.get_mut(&name).unwrap().interrupt();
                Step::Done
            }
            (82..85, _) => {
                let about = content(self.count, 10);
                let result = wait(|done| disk.set_about(&about, done));
                self.commit(&name, result, |agent| agent.set_about(&about))
            }
            (85..88, false) => self.commit(&name, mark(&disk), ModelAgent::mark),
            (88..92, false) => {
                let to = self.any_generation(&name);
                self.commit(&name, rewind(&disk, GenerationNumber(to)), |agent| agent.rewind(to))
            }
            (92..96, _) => {
                let Some(child) = self.free_name() else { return Step::Done };
                let at = self.any_generation(&name);
                let id = AgentId(Uuid::from_u128(self.rng.bits().into()));
                let made = self.store().fork(&disk, GenerationNumber(at), &[(id, new_agent(&child))]);
                let agent = self.model[&name].fork(id, at);
                self.add(child, agent, made.map(|mut made| made.remove(0)))
            }
            (96..98, _) => {
                let before = self.model.clone();
                let id = self.model.remove(&name).unwrap().id;
                match self.store().remove(id) {
                    Ok(()) => Step::Done,
                    Err(_) => Step::Stopped(vec![before, self.model.clone()]),
                }
            }
            (98.., _) => {
                self.store = None;
                self.model = reopened(std::mem::take(&mut self.model));
                match try_start(&self.device) {
                    Ok(store) => {
                        self.store = Some(store);
                        Step::Done
                    }
                    Err(_) => Step::Stopped(vec![self.model.clone()]),
                }
            }
            _ => Step::Done,
        }
    }

    fn any_generation(&mut self, name: &str) -> u64 {
        let generations = &self.model[name].generations;
        let at = self.rng.below(generations.len() as u64) as usize;
        *generations.keys().nth(at).unwrap()
    }

    fn write(&mut self, name: &str, disk: &Disk) -> Step {
        let zone = self.rng.below(KINDS.len() as u64) as u16;
        let file = format!("file{}", self.rng.below(3));
        let agent = self.model.get_mut(name).unwrap();
        if zone == WORKSPACE && self.rng.one_in(6) {
            if agent.unlink(zone, &file) {
                let unlinked = disk.zone(zone, |z| z.unlink(access(), Inode::ROOT, file.as_bytes())).unwrap();
                // reading may meet a device that has stopped
                if unlinked.is_err() {
                    return Step::Stopped(vec![self.model.clone()]);
                }
            }
            return Step::Done;
        }
        let content = self.fresh();
        self.model.get_mut(name).unwrap().write(zone, &file, &content);
        match disk.zone(zone, |z| write_zone(z, &file, &content)).unwrap() {
            Ok(()) => Step::Done,
            Err(_) => Step::Stopped(vec![self.model.clone()]),
        }
    }

    /// Stops the machine, starts it again, and gives what is wrong with what is found.
    fn crash(&mut self, seed: u64, allowed: Vec<Model>) -> Result<(), String> {
        self.store = None;
        self.device = self.device.crash(seed);
        let store = try_start(&self.device).map_err(|e| format!("it does not open: {e}"))?;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| see_all(&store)));
        let found = found.map_err(|_| "it cannot be read".to_owned())?;
        self.store = Some(store);
        for model in allowed {
            let model = reopened(model);
            if seen(&model) == found {
                self.model = model;
                return Ok(());
            }
        }
        Err(format!(
            "what is there is neither what was acknowledged nor what was under way: {}",
            brief(&found)
        ))
    }
}

/// Enough of it to see what is missing.
fn brief(all: &BTreeMap<String, Seen>) -> String {
    let files = |files: &Files| {
        files.iter().map(|(name, bytes)| format!("{name}:{}", bytes.len())).collect::<Vec<_>>()
    };
    let agent = |(name, seen): (&String, &Seen)| {
        let zones: Vec<_> = seen.zones.iter().map(files).collect();
        let generations: Vec<_> =
            seen.generations.iter().map(|(n, (cause, _))| format!("{n} {cause:?}")).collect();
        format!("\n{name}: {zones:?} {generations:?} {:?} turn {}", seen.history.len(), seen.last_turn)
    };
    all.iter().map(agent).collect()
}

/// Two rounds of work, each with a crash in the middle or at the end.
fn run(seed: u64) -> Result<(), String> {
    let mut work = Work::new(seed);
    for round in 0..3u64 {
        let ahead = work.rng.below(160) + 1;
        work.device.inject(Fault::Stop(work.device.operations() + ahead));
        let mut stopped = None;
        for _ in 0..40 {
            if let Step::Stopped(allowed) = work.step() {
                stopped = Some(allowed);
                break;
            }
        }
        let alive = work.device.open("tenant.key", crate::device::Caching::Cached).is_ok();
        if stopped.is_none() && alive && seen(&work.model) != see_all(work.store()) {
            return Err(format!("seed {seed}, round {round}: the open store is not as it should be"));
        }
        let allowed = stopped.unwrap_or_else(|| vec![work.model.clone()]);
        work.steps.push("crash".into());
        let result = work.crash(seed + round, allowed);
        result.map_err(|e| format!("seed {seed}, round {round}: {e}\n{}", work.steps.join("\n")))?;
    }
    Ok(())
}

#[test]
fn after_any_crash_all_that_was_acknowledged_is_there_and_nothing_is_half_there() {
    for seed in 0..1000 {
        run(seed).unwrap();
    }
}

#[test]
fn the_crash_test_catches_planted_mistakes() {
    for mistake in [Planted::AcknowledgeBeforeFlush, Planted::NoBarrier] {
        PLANTED.set(mistake);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught = (0..300).find(|seed| run(*seed).is_err());
        std::panic::set_hook(hook);
        PLANTED.set(Planted::None);
        assert!(caught.is_some(), "{mistake:?} was not noticed");
    }
}
