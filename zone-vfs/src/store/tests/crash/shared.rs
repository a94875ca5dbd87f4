//! What agents and the operator do in zones that several mount.
//!
//! Each operation is a commit of its own, in order, for which nobody waits. So after a crash such a zone stands
//! as after a prefix of its operations: one that holds all that somebody waited for, and all that an agent had
//! seen whose own commit was acknowledged.

use super::super::changes::ZoneChange;
use super::super::commits::Commit;
use super::timeline::Needs;
use super::work::{Goes, Work};
use super::*;

/// Zones at once, at most.
const TEAMS: u64 = 2;

/// A shared zone after one of its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Unknown where its making was not acknowledged.
    pub id: Option<SharedId>,
    /// How many operations there were.
    pub step: u64,
    pub files: Files,
}

/// The shared zones, by name.
pub type Teams = BTreeMap<String, Team>;

/// What is found of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTeam {
    pub id: SharedId,
    pub files: Files,
    pub mounted_by: Vec<String>,
}

impl World {
    /// Whoever mounts a shared zone is known as one who does.
    pub fn check_mounts(&self) -> Result<(), String> {
        for (name, team) in &self.teams {
            let mounts = |seen: &Seen| seen.mounts.iter().any(|it| it.zone == team.id);
            let wanted: Vec<_> =
                self.agents.iter().filter(|(_, seen)| mounts(seen)).map(|(n, _)| n).collect();
            if !team.mounted_by.iter().eq(wanted.iter().copied()) {
                return Err(format!("{name} is mounted by {wanted:?}, not by {:?}", team.mounted_by));
            }
        }
        Ok(())
    }
}

pub fn try_see_teams(store: &Store) -> Result<BTreeMap<String, SeenTeam>, StoreError> {
    let infos = store.shared_zones()?;
    infos
        .into_iter()
        .map(|info| {
            let files = store.shared_zone(info.id)?.zone(try_read_zone).transpose()?.unwrap_or_default();
            let mounted_by = info.mounted_by.into_iter().map(|(name, _)| name).collect();
            Ok((info.name, SeenTeam { id: info.id, files, mounted_by }))
        })
        .collect()
}

/// Whoever works on a shared zone.
enum Actor {
    Operator,
    Agent(String, Arc<Disk>, u16),
}

impl Work {
    /// The zones of a new agent, with shared ones, each mounted in one way or the other.
    pub fn with_mounts(&mut self) -> Vec<ZoneSpec> {
        let mut specs = specs();
        for (name, team) in &self.teams {
            let (Some(zone), false) = (team.id, self.rng.one_in(4)) else { continue };
            let mount = SharedMount { zone, writable: !self.rng.one_in(4) };
            specs.push(ZoneSpec {
                name: name.clone(),
                mount: format!("/{name}"),
                kind: ZoneKind::Shared,
                quota: Quota::default(),
                shared: Some(mount),
            });
        }
        specs
    }

    /// Whether all that an agent mounts is still there.
    pub fn can_be_forked(&self, name: &str) -> bool {
        self.model[name]
            .mounts
            .iter()
            .all(|mount| self.teams.values().any(|team| team.id == Some(mount.zone)))
    }

    /// Something with a shared zone.
    pub fn share(&mut self) -> Goes {
        let name = format!("team{}", self.rng.below(TEAMS));
        match (self.teams.contains_key(&name), self.rng.below(16)) {
            (false, _) => self.create_team(&name),
            (true, 0) => self.remove_team(&name),
            (true, 1..3) => self.try_to_write_through_a_mount_for_reading(&name),
            (true, _) => self.work_together(&name),
        }
    }

    fn create_team(&mut self, name: &str) -> Goes {
        self.steps.push(format!("create {name}"));
        let made = Team { id: None, step: 0, files: Files::new() };
        self.timeline.set_team(name, self.device.traced(), vec![None, Some(made.clone())]);
        match self.store().create_shared(name, Quota::default()) {
            Ok(id) => {
                let made = Team { id: Some(id), ..made };
                self.timeline.set_team(name, self.device.traced(), vec![Some(made.clone())]);
                self.teams.insert(name.to_owned(), made);
                Ok(true)
            }
            Err(e) if e.is_no_space() => {
                self.timeline.set_team(name, self.device.traced(), vec![None]);
                self.device.heal_space();
                Ok(true)
            }
            Err(e) => self.broken(&e),
        }
    }

    fn remove_team(&mut self, name: &str) -> Goes {
        let team = self.teams[name].clone();
        let Some(id) = team.id else { return Ok(true) };
        let is_mounted = self.model.values().any(|agent| agent.mounts.iter().any(|it| it.zone == id));
        let force = self.rng.one_in(3);
        self.steps.push(format!("remove {name}{}", if force { " by force" } else { "" }));
        let before = self.timeline.team_at(name, self.device.traced());
        if force || !is_mounted {
            let maybe = before.iter().cloned().chain([None]).collect();
            self.timeline.set_team(name, self.device.traced(), maybe);
        }
        let removed = if force {
            self.store().remove_shared_by_force(id).map(drop)
        } else {
            self.store().remove_shared(id)
        };
        match removed {
            Ok(()) if is_mounted && !force => Err(format!("{name} is mounted, and was removed")),
            Err(StoreError::SharedInUse { .. }) if is_mounted && !force => Ok(true),
            Ok(()) => {
                self.timeline.set_team(name, self.device.traced(), vec![None]);
                self.teams.remove(name);
                Ok(true)
            }
            Err(e) if e.is_no_space() => {
                self.timeline.set_team(name, self.device.traced(), before);
                self.device.heal_space();
                Ok(true)
            }
            Err(e) => self.broken(&e),
        }
    }

    /// Those who mount a zone, and where.
    fn mounts_of(&self, name: &str, writable: bool) -> Vec<Actor> {
        let id = self.teams[name].id;
        let mut actors = Vec::new();
        for (agent, model) in &self.model {
            for (index, mount) in model.mounts.iter().enumerate() {
                if Some(mount.zone) == id && mount.writable == writable {
                    let index = (KINDS.len() + index) as u16;
                    actors.push(Actor::Agent(agent.clone(), self.disk(agent), index));
                }
            }
        }
        actors
    }

    fn try_to_write_through_a_mount_for_reading(&mut self, name: &str) -> Goes {
        for actor in self.mounts_of(name, false) {
            let Actor::Agent(agent, disk, index) = actor else { continue };
            self.steps.push(format!("{agent} tries to write to {name}"));
            let written = disk.zone(index, |zone| zone.mkdir(access(), Inode::ROOT, b"d9").map(drop));
            match written.transpose() {
                Err(e) if e.code == crate::zone::ErrorCode::ReadOnly => {}
                other => return Err(format!("{agent} writes to {name}: {other:?}")),
            }
        }
        Ok(true)
    }

    /// One operation, which is seen by all from here on.
    fn operate(&mut self, name: &str, actor: &Actor) -> Goes {
        let content = self.fresh();
        let team = &self.teams[name];
        let Some(change) = ZoneChange::draw(&mut self.rng, ZoneKind::Workspace, &team.files, content) else {
            return Ok(true);
        };
        let mut after = Team { step: team.step + 1, ..team.clone() };
        change.model(&mut after.files, ZoneKind::Workspace);
        let by = if let Actor::Agent(agent, ..) = actor { agent } else { "the operator" };
        self.steps.push(format!("{by} in {name}: {change}"));
        // with what went before and nobody has waited for
        let at = self.device.traced();
        let mut candidates = self.timeline.team_at(name, at);
        candidates.push(Some(after.clone()));
        self.timeline.set_team(name, at, candidates);
        let made = match actor {
            Actor::Operator => {
                let zone = self.team(name)?;
                zone.zone(|zone| change.make(zone))
            }
            Actor::Agent(_, disk, index) => disk.zone(*index, |zone| change.make(zone)),
        };
        match made {
            Some(Ok(())) => {
                self.teams.insert(name.to_owned(), after);
                Ok(true)
            }
            Some(Err(e)) if self.trouble != Trouble::None => {
                // a change can be several operations: those that were done stay
                let files = self.look()?.teams.remove(name).map(|it| it.files).unwrap_or_default();
                let left = Team { files, ..after };
                let mut candidates = self.timeline.team_at(name, self.device.traced());
                candidates.push(Some(left.clone()));
                self.timeline.set_team(name, at, candidates);
                self.teams.insert(name.to_owned(), left);
                if self.reads_fail() { self.read_failed(&e.to_string()) } else { Ok(false) }
            }
            Some(Err(e)) => Err(format!("{by} in {name}: {change}: {e}")),
            None => Err(format!("{by} has no {name}")),
        }
    }

    fn team(&self, name: &str) -> Result<SharedZone, String> {
        let id = self.teams[name].id.ok_or("a zone without an id")?;
        self.insist(|store| store.shared_zone(id)).map_err(|e| format!("{name}: {e}"))
    }

    /// Several work on a zone, and then one of them waits: for the zone, or for a commit of its own.
    fn work_together(&mut self, name: &str) -> Goes {
        let mut actors = self.mounts_of(name, true);
        actors.push(Actor::Operator);
        let quiet = self.trouble == Trouble::None;
        let operations = if quiet { 1 + self.rng.below(4) } else { 1 };
        let first = self.teams[name].step;
        let mut last = None;
        for number in 0..operations {
            if quiet && number == 0 {
                // the others are gathered behind the first, in an order that can be repeated
                self.device.hold("log/");
            }
            let actor = &actors[self.rng.below(actors.len() as u64) as usize];
            let before = self.teams[name].step;
            let goes = self.operate(name, actor);
            if !matches!(goes, Ok(true)) {
                self.device.release();
                return goes;
            }
            if self.teams[name].step == before {
                continue;
            }
            if quiet && before == first {
                self.device.wait_for_held();
            }
            last = Some(actor);
        }
        if last.is_none() {
            self.device.release();
            return Ok(true);
        }
        match last {
            Some(Actor::Agent(agent, disk, _)) if self.rng.one_in(2) => {
                self.commit_what_was_seen(name, agent, disk)
            }
            _ => self.wait_for_team(name),
        }
    }

    fn wait_for_team(&mut self, name: &str) -> Goes {
        self.steps.push(format!("wait for {name}"));
        let zone = self.team(name)?;
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        zone.sync(Box::new(move |result| send.send(result).unwrap()));
        self.device.release();
        match receive.recv().map_err(|e| e.to_string())? {
            Ok(()) => Ok(self.team_is_durable(name)),
            Err(e) if e.is_no_space() => {
                self.device.heal_space();
                let again = wait(|done| zone.sync(done));
                again.map_err(|e| format!("{name} does not commit with space: {e}"))?;
                Ok(self.team_is_durable(name))
            }
            Err(e) => self.broken(&e),
        }
    }

    fn team_is_durable(&mut self, name: &str) -> bool {
        let team = self.teams[name].clone();
        self.timeline.set_team(name, self.device.traced(), vec![Some(team)]);
        true
    }

    /// An agent's commit, which is acknowledged when what it saw is durable too: if the one is there after a crash,
    /// so is the other.
    fn commit_what_was_seen(&mut self, name: &str, agent: &str, disk: &Arc<Disk>) -> Goes {
        let before = self.model[agent].clone();
        let commit = if before.turn.is_some() && !before.is_process() && self.rng.one_in(2) {
            Commit::End(b"seen".to_vec(), true)
        } else {
            Commit::Sync
        };
        self.steps.push(format!("{agent} {commit:?} with what it saw in {name}"));
        let mut after = before.clone();
        commit.apply(&mut after);
        let needs: Needs = [(name.to_owned(), self.teams[name].step)].into();
        let begun = before.clone().only_begun();
        let candidates = [(before, Needs::new()), (after.clone(), needs), (begun, Needs::new())];
        self.timeline.set_with_needs(agent, self.device.traced(), candidates.into());
        let result = commit.start(disk);
        self.device.release();
        match result.recv().map_err(|e| e.to_string())? {
            Ok(()) => {
                self.team_is_durable(name);
                self.allow(agent, vec![Some(after.clone())]);
                self.settled(agent, &commit, after);
                Ok(true)
            }
            Err(e) if e.is_no_space() => self.refused(agent, disk, &commit, after),
            Err(e) => self.broken(&e),
        }
    }
}
