//! What a crash may find of each agent and each shared zone, by how many changes the device had seen.

use super::*;
use crate::store::tests::model::{Forgetting, Reaping};

/// What may be found of an agent; `None` where there may be no agent of that name.
pub type Candidate = Option<ModelAgent>;

/// Which operations of shared zones have to be there if this is found.
pub type Needs = BTreeMap<String, u64>;

/// A candidate, with what it shows of itself.
#[derive(Clone)]
struct Shown {
    agent: Candidate,
    seen: Option<Seen>,
    needs: Needs,
    /// What it may be found as besides, or has not become yet.
    later: Option<Later>,
}

/// What becomes of an agent, of which something is known only when it is found.
#[derive(Clone, Debug)]
enum Later {
    /// It is as a reaping leaves it that may not be over.
    Reaped(ModelAgent, Reaping),
    /// It has forgotten something.
    Forgot(ModelAgent, Forgetting),
}

impl Later {
    fn is(&self, found: &Seen) -> Option<ModelAgent> {
        match self {
            Self::Reaped(before, by) => before.reaped_to(found, by, false, reopened).ok(),
            Self::Forgot(before, what) => {
                let mut after = before.clone();
                after.forget(what, &found.past).ok()?;
                let after = reopened(after);
                (after.seen() == *found).then_some(after)
            }
        }
    }
}

impl Shown {
    fn new(agent: Candidate, needs: Needs) -> Self {
        let agent = agent.map(reopened);
        let seen = agent.as_ref().map(ModelAgent::seen);
        Self { agent, seen, needs, later: None }
    }

    /// What this is, if this is what was found.
    fn is(&self, found: Option<&Seen>) -> Option<Candidate> {
        if self.seen.as_ref() == found {
            return Some(self.agent.clone());
        }
        self.later.as_ref()?.is(found?).map(Some)
    }
}

/// From so many changes on, one of these is found.
type Spans<T> = Vec<(usize, Vec<T>)>;

/// Agents and shared zones by name.
#[derive(Default)]
pub struct Timeline {
    agents: BTreeMap<String, Spans<Shown>>,
    teams: BTreeMap<String, Spans<Option<Team>>>,
    /// Whether the store's files may hold what was forgotten.
    due: Spans<bool>,
    /// What was erased, and is in no file.
    erased: Spans<Needles>,
    /// The reaping that goes on.
    reapings: Spans<Arc<Reapings>>,
    /// All that was ever written.
    pub written: Needles,
}

fn last<T>(spans: &Spans<T>, changes: usize) -> &[T] {
    spans.iter().rev().find(|(from, _)| *from <= changes).map_or(&[], |(_, candidates)| candidates)
}

fn put<T>(lines: &mut BTreeMap<String, Spans<T>>, name: &str, at: usize, nothing: T, candidates: Vec<T>) {
    let spans = lines.entry(name.to_owned()).or_default();
    if spans.is_empty() && at > 0 {
        spans.push((0, vec![nothing]));
    }
    spans.push((at, candidates));
}

fn get<'a, T>(lines: &'a BTreeMap<String, Spans<T>>, name: &str, changes: usize) -> &'a [T] {
    lines.get(name).map_or(&[], |spans| last(spans, changes))
}

impl Timeline {
    pub fn new(model: &Found, teams: &Teams) -> Self {
        let mut timeline = Self::default();
        for (name, agent) in model {
            timeline.set(name, 0, vec![Some(agent.clone())]);
        }
        for (name, team) in teams {
            timeline.set_team(name, 0, vec![Some(team.clone())]);
        }
        timeline
    }

    /// From `at` changes on, the agent of this name is one of these.
    pub fn set(&mut self, name: &str, at: usize, candidates: Vec<Candidate>) {
        self.put(name, at, candidates.into_iter().map(|agent| Shown::new(agent, Needs::new())).collect());
    }

    /// As [`set`](Self::set), of agents that have seen something.
    pub fn set_with_needs(&mut self, name: &str, at: usize, candidates: Vec<(ModelAgent, Needs)>) {
        self.put(
            name,
            at,
            candidates.into_iter().map(|(agent, needs)| Shown::new(Some(agent), needs)).collect(),
        );
    }

    /// From `at` changes on, the agent of this name is reaped.
    pub fn set_reaped(&mut self, name: &str, at: usize, agent: &ModelAgent, by: Reaping) {
        let gone = by.removes.then(|| Shown::new(None, Needs::new()));
        let stays = Shown::new(Some(agent.clone()), Needs::new());
        let stays = Shown { later: Some(Later::Reaped(agent.clone(), by)), ..stays };
        self.put(name, at, std::iter::once(stays).chain(gone).collect());
    }

    /// From `at` changes on, the agent of this name forgets something, or has not yet.
    pub fn set_forgetting(&mut self, name: &str, at: usize, agent: &ModelAgent, what: Forgetting) {
        let stays = Shown::new(Some(agent.clone()), Needs::new());
        self.put(name, at, vec![Shown { later: Some(Later::Forgot(agent.clone(), what)), ..stays }]);
    }

    fn put(&mut self, name: &str, at: usize, candidates: Vec<Shown>) {
        put(&mut self.agents, name, at, Shown::new(None, Needs::new()), candidates);
    }

    /// From `at` changes on, what was forgotten has still to be erased, or has not, or both may be.
    pub fn set_due(&mut self, at: usize, due: &[bool]) {
        self.due.push((at, due.to_vec()));
    }

    /// What may be found of whether something has to be erased.
    pub fn due_at(&self, changes: usize) -> Vec<bool> {
        last(&self.due, changes).to_vec()
    }

    /// From `at` changes on, these are in no file.
    pub fn set_erased(&mut self, at: usize, erased: Needles) {
        self.erased.push((at, vec![erased]));
    }

    /// From `at` changes on, this goes on.
    pub fn set_reaping(&mut self, at: usize, reapings: Option<Arc<Reapings>>) {
        self.reapings.push((at, reapings.into_iter().collect()));
    }

    /// Whether it may be that something has still to be erased, or that nothing has.
    pub fn may_be_due(&self, due: bool, changes: usize) -> bool {
        last(&self.due, changes).contains(&due)
    }

    pub fn erased_at(&self, changes: usize) -> Option<&Needles> {
        last(&self.erased, changes).first()
    }

    pub fn reaping_at(&self, changes: usize) -> Option<&Arc<Reapings>> {
        last(&self.reapings, changes).first()
    }

    /// From `at` changes on, the shared zone of this name is one of these.
    pub fn set_team(&mut self, name: &str, at: usize, candidates: Vec<Option<Team>>) {
        put(&mut self.teams, name, at, None, candidates);
    }

    /// What may be found of a shared zone.
    pub fn team_at(&self, name: &str, changes: usize) -> Vec<Option<Team>> {
        get(&self.teams, name, changes).to_vec()
    }

    /// Which agents and shared zones these are, or what is wrong with them.
    pub fn explain(&self, found: &World, changes: usize) -> Result<(Found, Teams), String> {
        let mut teams = Teams::new();
        for name in self.teams.keys().chain(found.teams.keys()) {
            let candidates = get(&self.teams, name, changes);
            let is_it = |team: &Option<Team>| match (team, found.teams.get(name)) {
                (Some(team), Some(seen)) => {
                    team.id.is_none_or(|id| id == seen.id) && team.files == seen.files
                }
                (None, None) => true,
                _ => false,
            };
            // the last of those that look alike
            match (candidates.iter().rfind(|it| is_it(it)), found.teams.get(name)) {
                (Some(Some(team)), Some(seen)) => {
                    teams.insert(name.clone(), Team { id: Some(seen.id), ..team.clone() });
                }
                (Some(None), None) => {}
                (_, seen) => {
                    let text = |files: Option<&Files>| {
                        files.map_or_else(|| "nothing".into(), |it| format!("{:?}", brief_files(it)))
                    };
                    let wanted: Vec<_> =
                        candidates.iter().map(|it| text(it.as_ref().map(|it| &it.files))).collect();
                    return Err(format!(
                        "{name} stands as after no prefix of its operations that may be\nfound: {}\nallowed: {}",
                        text(seen.map(|it| &it.files)),
                        wanted.join("\nor: ")
                    ));
                }
            }
        }
        let mut model = Found::new();
        for name in self.agents.keys().chain(found.agents.keys()) {
            let candidates = get(&self.agents, name, changes);
            let found = found.agents.get(name);
            match candidates.iter().find_map(|it| Some((it.is(found)?, &it.needs))) {
                Some((Some(agent), needs)) => {
                    for (team, step) in needs {
                        if teams.get(team).is_some_and(|it| it.step < *step) {
                            return Err(format!("{name} remembers what is gone from {team}"));
                        }
                    }
                    model.insert(name.clone(), agent);
                }
                Some((None, _)) => {}
                None => {
                    let wanted: Vec<_> = candidates
                        .iter()
                        .map(|it| {
                            let later = it.later.as_ref().map(|later| match later {
                                Later::Reaped(_, by) => format!(" reaped by {by:?}"),
                                Later::Forgot(_, what) => format!(" without {what:?}"),
                            });
                            it.seen.as_ref().map_or("nothing".into(), brief) + &later.unwrap_or_default()
                        })
                        .collect();
                    let differs = candidates.first().and_then(|it| parts(found?, it.seen.as_ref()?));
                    return Err(format!(
                        "{name} is neither as it was acknowledged nor as it was about to be\nfound: {}\nallowed: {}\n{}",
                        found.map_or("nothing".into(), brief),
                        wanted.join("\nor: "),
                        differs.unwrap_or_default()
                    ));
                }
            }
        }
        Ok((model, teams))
    }
}

pub fn reopened(mut agent: ModelAgent) -> ModelAgent {
    agent.interrupt();
    agent
}

fn brief_files(files: &Files) -> Vec<String> {
    files.iter().map(|(name, bytes)| format!("{name}:{}", bytes.len())).collect()
}

/// Enough of it to see what is missing.
fn brief(seen: &Seen) -> String {
    let zones: Vec<_> = seen.zones.iter().map(brief_files).collect();
    let generations: Vec<_> = seen
        .generations
        .iter()
        .map(|(n, (cause, zones, _))| {
            format!("{n} {cause:?} {:?}", zones.iter().map(brief_files).collect::<Vec<_>>())
        })
        .collect();
    format!(
        "{} zones {zones:?} generations {generations:?} pinned {:?} on {:?} head {} next {} turn {} history {:?}",
        seen.id,
        seen.pinned,
        seen.on,
        seen.head,
        seen.next,
        seen.last_turn,
        seen.history
            .iter()
            .map(|it| (it.turn, it.event.len(), it.outcome.as_ref().map(Vec::len)))
            .collect::<Vec<_>>()
    )
}

/// What differs in the past of the zone that keeps versions, where that is what differs.
fn parts(found: &Seen, wanted: &Seen) -> Option<String> {
    if found.past != wanted.past {
        return Some(format!("its past is {:#?}\ninstead of {:#?}", found.past, wanted.past));
    }
    let differs = |(number, it): (&u64, &(Cause, Vec<Files>, Arc<Past>))| {
        let other = &wanted.generations.get(number)?.2;
        (it.2 != *other).then(|| format!("the past of {number} is {:#?}\ninstead of {other:#?}", it.2))
    };
    found.generations.iter().find_map(differs)
}

/// The first agent that differs, as it was found and as it should be.
pub fn difference(found: &BTreeMap<String, Seen>, wanted: &BTreeMap<String, Seen>) -> Option<String> {
    let name = found.keys().chain(wanted.keys()).find(|name| found.get(*name) != wanted.get(*name))?;
    let text = |seen: Option<&Seen>| seen.map_or("nothing".into(), brief);
    let parts = found.get(name).zip(wanted.get(name)).and_then(|(found, wanted)| parts(found, wanted));
    let (found, wanted) = (text(found.get(name)), text(wanted.get(name)));
    Some(format!("{name}\nfound: {found}\nwanted: {wanted}\n{}", parts.unwrap_or_default()))
}
