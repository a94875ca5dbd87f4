//! Random work on several threads, each with agents of its own, beside checkpoints and readers; with
//! a machine that stops in the middle of it; against a model of each agent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::changes::{Failed, ZoneChange};
use super::commits::Commit;

use super::crash::timeline::{Candidate, Timeline, difference};
use super::model::ModelAgent;
use super::*;
use crate::device::simulated::{Fault, Rng};

const THREADS: u64 = 3;
const STEPS: u64 = 50;

/// What all threads see.
struct World {
    store: Store,
    /// Agents as they were after a commit, for others to fork.
    parents: Mutex<Vec<(Arc<Disk>, ModelAgent)>>,
    over: AtomicBool,
    ids: AtomicU64,
}

impl World {
    fn id(&self) -> AgentId {
        AgentId(Uuid::from_u128(self.ids.fetch_add(1, Ordering::Relaxed).into()))
    }

    fn parent(&self, rng: &mut Rng) -> Option<(Arc<Disk>, ModelAgent)> {
        let parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        parents.get(rng.below(parents.len() as u64) as usize).cloned()
    }

    fn publish(&self, disk: &Arc<Disk>, agent: &ModelAgent) {
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        parents.retain(|(other, _)| other.id() != disk.id());
        parents.push((disk.clone(), agent.clone()));
    }
}

/// One thread's agents, and what may be found of those that it had once.
struct Worker<'a> {
    world: &'a World,
    number: u64,
    rng: Rng,
    agents: BTreeMap<String, (Arc<Disk>, ModelAgent)>,
    found: BTreeMap<String, Vec<Candidate>>,
    count: u64,
}

impl Worker<'_> {
    /// Works until all is done or the machine has stopped, and gives whether it has.
    fn work(&mut self) -> bool {
        (0..STEPS).any(|_| !self.step())
    }

    fn settle(&mut self, name: String, disk: Arc<Disk>, agent: ModelAgent) -> bool {
        self.world.publish(&disk, &agent);
        self.found.insert(name.clone(), vec![Some(agent.clone())]);
        self.agents.insert(name, (disk, agent));
        true
    }

    fn new_name(&mut self) -> String {
        self.count += 1;
        format!("agent{}-{}", self.number, self.count)
    }

    fn make(&mut self) -> bool {
        let (name, id) = (self.new_name(), self.world.id());
        let (agent, made) = match self.world.parent(&mut self.rng) {
            Some((disk, parent)) if self.rng.one_in(2) => {
                let at = parent.any_generation(&mut self.rng);
                let child = (id, new_agent(&name));
                let made = self.world.store.fork(&disk, GenerationNumber(at), &[child]);
                (parent.fork(id, at), made.map(|mut made| made.remove(0)))
            }
            _ => (ModelAgent::new(id), self.world.store.create(id, &new_agent(&name), specs())),
        };
        self.found.insert(name.clone(), vec![None, Some(agent.clone())]);
        match made {
            Ok(disk) => self.settle(name, disk, agent),
            Err(_) => false,
        }
    }

    fn step(&mut self) -> bool {
        let kind = self.rng.below(100);
        let at = self.rng.below(self.agents.len() as u64) as usize;
        let Some(name) = self.agents.keys().nth(at).cloned() else { return self.make() };
        if kind < 6 {
            return self.make();
        }
        let (disk, mut agent) = self.agents[&name].clone();
        match kind {
            6..50 => {
                let zone = self.rng.below(KINDS.len() as u64) as u16;
                let kind = KINDS[usize::from(zone)];
                self.count += 1;
                let len = if self.rng.one_in(8) { 18_000 } else { self.rng.below(900) + 1 };
                let bytes = content(self.count * 31 + self.number, len as usize);
                let Some(change) = ZoneChange::draw(&mut self.rng, kind, agent.files(zone), bytes) else {
                    return true;
                };
                match changes::change(&disk, &mut agent, zone, &change) {
                    Ok(()) => {}
                    Err(Failed::Refused(_)) => return false,
                    Err(failed) => panic!("{name}: {failed:?}"),
                }
                self.agents.insert(name, (disk, agent));
                true
            }
            50..60 if agent.turn.is_none() => {
                let style = if self.rng.one_in(3) { TurnStyle::Process } else { TurnStyle::Transaction };
                if disk.begin(style, b"event").is_err() {
                    return false;
                }
                agent.begin(style, b"event");
                self.agents.insert(name, (disk, agent));
                true
            }
            _ => {
                let commit = Commit::draw(&mut self.rng, &agent, &content(self.count, 20));
                let before = agent.clone();
                let begun = agent.clone().only_begun();
                commit.apply(&mut agent);
                self.found.insert(name.clone(), vec![Some(before), Some(begun), Some(agent.clone())]);
                match commit.make(&disk) {
                    Ok(()) => self.settle(name, disk, agent),
                    Err(_) => false,
                }
            }
        }
    }
}

/// Runs one seed and gives whether the machine stopped in the middle.
fn run(seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let device = Simulated::new(seed);
    let options = StoreOptions { checkpoint_after: 60 << 10, ..options() };
    let store = Store::on_device(Arc::new(device.clone()), &options).unwrap();
    let stops = rng.one_in(2);
    if stops {
        device.inject(Fault::Stop(device.operations() + 20 + rng.below(250)));
    }
    let world =
        World { store, parents: Mutex::default(), over: AtomicBool::new(false), ids: AtomicU64::new(1) };
    let mut workers: Vec<Worker> = (0..THREADS)
        .map(|number| Worker {
            world: &world,
            number,
            rng: Rng::new(seed * 100 + number),
            agents: BTreeMap::new(),
            found: BTreeMap::new(),
            count: 0,
        })
        .collect();
    let stopped = std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| {
            let mut rng = Rng::new(seed);
            while !world.over.load(Ordering::Acquire) {
                let is_sound = |what: &dyn std::fmt::Debug, sound: bool| {
                    // a machine that has stopped reads nothing
                    assert!(sound || device.list("").is_err(), "seed {seed}: {what:?}");
                };
                let went = if rng.one_in(4) {
                    let mut found = Vec::new();
                    let scrubbed = world.store.scrub(rng.one_in(2), &mut |it| found.push(it.clone()));
                    is_sound(&found, found.is_empty());
                    scrubbed.map(drop)
                } else if rng.one_in(3) {
                    let reaped = world.store.reap(&ReapPolicy::default(), false);
                    reaped.map(|report| is_sound(&report.damage, report.damage.is_empty()))
                } else {
                    world.store.checkpoint()
                };
                if went.is_err() {
                    return;
                }
                std::thread::yield_now();
            }
        });
        let reader = scope.spawn(|| {
            let mut rng = Rng::new(seed);
            while !world.over.load(Ordering::Acquire) {
                // what has been committed is read alike at any time, by anybody
                if let Some((disk, agent)) = world.parent(&mut rng) {
                    let at = agent.any_generation(&mut rng);
                    let wanted = &agent.generations[&at].1;
                    let read =
                        disk.zone_at(GenerationNumber(at), SEMANTIC).map(|mut zone| try_read_zone(&mut zone));
                    if let Ok(Ok(found)) = read {
                        assert_eq!(found, wanted[usize::from(SEMANTIC)].files, "seed {seed}");
                    }
                }
                std::thread::yield_now();
            }
        });
        let working: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.work())).collect();
        let stopped = working.into_iter().map(|it| it.join().unwrap()).fold(false, |a, b| a | b);
        world.over.store(true, Ordering::Release);
        checkpoints.join().unwrap();
        reader.join().unwrap();
        stopped
    });
    assert!(stops || !stopped, "seed {seed}: something failed by itself");
    if !stopped && !stops {
        let live =
            workers.iter().flat_map(|it| &it.agents).map(|(name, (_, agent))| (name.clone(), agent.seen()));
        let differs = difference(&see_all(&world.store), &live.collect());
        assert!(differs.is_none(), "seed {seed}, still open: {}", differs.unwrap_or_default());
    }
    let mut timeline = Timeline::default();
    for (name, candidates) in workers.iter_mut().flat_map(|it| std::mem::take(&mut it.found)) {
        timeline.set(&name, 0, candidates);
    }
    drop(workers);
    let crashed = device.crash(seed);
    drop(world);
    let store = start(&crashed);
    timeline
        .explain(&crash::World::try_of(&store).unwrap(), 0)
        .unwrap_or_else(|what| panic!("seed {seed}, after a crash: {what}"));
    stopped
}

#[test]
fn threads_do_not_get_into_each_others_way() {
    let seeds = std::env::var("ZONE_VFS_THREAD_SEEDS").map_or(60, |text| text.parse().unwrap());
    let stopped = (0..seeds).filter(|seed| run(*seed)).count() as u64;
    assert!(stopped > seeds / 10 && stopped < seeds, "{stopped} of {seeds} stopped");
}
