//! Commits of agents, made and modelled.

use std::sync::mpsc::{Receiver, sync_channel};

use super::model::ModelAgent;
use super::*;
use crate::device::simulated::Rng;

/// One commit of one agent.
#[derive(Clone, Debug)]
pub enum Commit {
    Sync,
    End(Vec<u8>, bool),
    /// With a generation that stands on the head.
    EndOn(Vec<u8>),
    Fail,
    About(Vec<u8>),
    Mark,
    Rewind(u64),
}

impl Commit {
    /// One that the agent can make as it is. `bytes` are new to it.
    pub fn draw(rng: &mut Rng, agent: &ModelAgent, bytes: &[u8]) -> Self {
        match (rng.below(10), agent.turn.is_some()) {
            (0, _) => Self::About(bytes.to_vec()),
            (1..4, _) => Self::Sync,
            (4..6, true) if rng.one_in(2) => Self::EndOn(bytes.to_vec()),
            (4..9, true) => {
                let times = if rng.one_in(6) { 17_000 / bytes.len() } else { 1 };
                Self::End(bytes.repeat(times), !rng.one_in(4))
            }
            (_, true) => Self::Fail,
            (4..7, false) => Self::Mark,
            (_, false) => Self::Rewind(agent.any_generation(rng)),
        }
    }

    /// Whether the agent's turn is over after it.
    pub fn ends_turn(&self) -> bool {
        matches!(self, Self::End(..) | Self::EndOn(_) | Self::Fail)
    }

    /// Whether nothing is open in the agent's zones after it.
    pub fn closes_files(&self) -> bool {
        matches!(self, Self::Fail | Self::Rewind(_))
    }

    /// Makes it, and waits.
    pub fn make(&self, disk: &Arc<Disk>) -> Result<(), StoreError> {
        self.start(disk).recv().unwrap()
    }

    pub fn start(&self, disk: &Arc<Disk>) -> Receiver<Result<(), StoreError>> {
        let (send, receive) = sync_channel(1);
        let done = move |result| send.send(result).unwrap();
        match self.clone() {
            Self::Sync => disk.sync(Box::new(done)),
            Self::End(outcome, generation) => {
                let generation = generation.then(|| new_generation(b"turn"));
                disk.end(&outcome, generation, Box::new(move |result| done(result.map(|_| ()))));
            }
            Self::EndOn(outcome) => {
                let on = Some(disk.head());
                let generation = NewGeneration { on, ..new_generation(b"turn") };
                disk.end(&outcome, Some(generation), Box::new(move |result| done(result.map(|_| ()))));
            }
            Self::Fail => disk.fail("it broke", Box::new(move |result| done(result.map(|_| ())))),
            Self::About(about) => disk.set_about(&about, Box::new(done)),
            Self::Mark => {
                let pause = NewGeneration { cause: Cause::Paused, about: b"pause".to_vec(), on: None };
                disk.mark(pause, Box::new(move |result| done(result.map(|_| ()))));
            }
            Self::Rewind(to) => {
                let done = Box::new(move |result: Result<_, _>| done(result.map(|_| ())));
                disk.rewind(GenerationNumber(to), b"rewound", done);
            }
        }
        receive
    }

    pub fn apply(&self, agent: &mut ModelAgent) {
        match self {
            Self::Sync => agent.sync(),
            Self::End(outcome, generation) => agent.end(outcome, *generation),
            Self::EndOn(outcome) => agent.end_on(outcome),
            Self::Fail => agent.fail("it broke"),
            Self::About(about) => agent.set_about(about),
            Self::Mark => agent.mark(),
            Self::Rewind(to) => agent.rewind(*to),
        }
    }
}
