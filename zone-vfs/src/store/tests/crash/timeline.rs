//! What a crash may find of each agent, by how many changes the device had seen.

use super::*;

/// What may be found of an agent; `None` where there may be no agent of that name.
pub type Candidate = Option<ModelAgent>;

/// With what it shows of itself.
type Shown = (Candidate, Option<Seen>);

#[derive(Default)]
struct Line {
    /// From so many changes on, one of these is found.
    spans: Vec<(usize, Vec<Shown>)>,
}

/// By name.
#[derive(Default)]
pub struct Timeline {
    lines: BTreeMap<String, Line>,
}

impl Timeline {
    pub fn new(model: &BTreeMap<String, ModelAgent>) -> Self {
        let mut timeline = Self::default();
        for (name, agent) in model {
            timeline.set(name, 0, vec![Some(agent.clone())]);
        }
        timeline
    }

    /// From `at` changes on, the agent of this name is one of these.
    pub fn set(&mut self, name: &str, at: usize, candidates: Vec<Candidate>) {
        let line = self.lines.entry(name.to_owned()).or_default();
        if line.spans.is_empty() && at > 0 {
            line.spans.push((0, vec![(None, None)]));
        }
        let with_seen = |agent: Candidate| {
            let agent = agent.map(reopened);
            let seen = agent.as_ref().map(ModelAgent::seen);
            (agent, seen)
        };
        line.spans.push((at, candidates.into_iter().map(with_seen).collect()));
    }

    fn at(&self, name: &str, changes: usize) -> &[Shown] {
        let Some(line) = self.lines.get(name) else { return &[] };
        line.spans.iter().rev().find(|(from, _)| *from <= changes).map_or(&[], |(_, candidates)| candidates)
    }

    /// Which agents these are, or what is wrong with them.
    pub fn explain(
        &self,
        found: &BTreeMap<String, Seen>,
        changes: usize,
    ) -> Result<BTreeMap<String, ModelAgent>, String> {
        let mut model = BTreeMap::new();
        for name in self.lines.keys().chain(found.keys()) {
            let candidates = self.at(name, changes);
            let one = candidates.iter().find(|(_, seen)| seen.as_ref() == found.get(name));
            match one {
                Some((Some(agent), _)) => drop(model.insert(name.clone(), agent.clone())),
                Some((None, _)) => {}
                None => {
                    let wanted: Vec<_> = candidates
                        .iter()
                        .map(|(_, seen)| seen.as_ref().map_or("nothing".into(), brief))
                        .collect();
                    return Err(format!(
                        "{name} is neither as it was acknowledged nor as it was about to be\nfound: {}\nallowed: {}",
                        found.get(name).map_or("nothing".into(), brief),
                        wanted.join("\nor: ")
                    ));
                }
            }
        }
        Ok(model)
    }
}

pub fn reopened(mut agent: ModelAgent) -> ModelAgent {
    agent.interrupt();
    agent
}

/// Enough of it to see what is missing.
fn brief(seen: &Seen) -> String {
    let files = |files: &Files| {
        files.iter().map(|(name, bytes)| format!("{name}:{}", bytes.len())).collect::<Vec<_>>()
    };
    let zones: Vec<_> = seen.zones.iter().map(files).collect();
    let generations: Vec<_> = seen
        .generations
        .iter()
        .map(|(n, (cause, zones))| format!("{n} {cause:?} {:?}", zones.iter().map(files).collect::<Vec<_>>()))
        .collect();
    format!(
        "{} zones {zones:?} generations {generations:?} head {} turn {} history {}",
        seen.id,
        seen.head,
        seen.last_turn,
        seen.history.len()
    )
}

/// The first agent that differs, as it was found and as it should be.
pub fn difference(found: &BTreeMap<String, Seen>, wanted: &BTreeMap<String, Seen>) -> Option<String> {
    let name = found.keys().chain(wanted.keys()).find(|name| found.get(*name) != wanted.get(*name))?;
    let text = |seen: Option<&Seen>| seen.map_or("nothing".into(), brief);
    Some(format!("{name}\nfound: {}\nwanted: {}", text(found.get(name)), text(wanted.get(name))))
}
