//! Random commits, a crash anywhere, and what must be there afterwards.

use std::collections::BTreeMap;

use super::*;
use crate::device::simulated::{Fault, Rng};

/// What is known about one agent's stream.
#[derive(Default)]
struct Stream {
    /// Everything submitted; number n at index n - 1.
    submitted: Vec<Record>,
    /// How many of them were acknowledged.
    acknowledged: usize,
    /// How many lie before the position from which the next recovery starts.
    before: usize,
}

struct Round {
    rng: Rng,
    options: LogOptions,
    streams: BTreeMap<AgentId, Stream>,
    from: LogPosition,
}

const AGENTS: u128 = 3;
const LIVES: u64 = 4;

impl Round {
    fn new(seed: u64, planted: Planted) -> Self {
        let mut rng = Rng::new(seed ^ 0xd0e5_ed00);
        let options = LogOptions {
            file_len: 4096 * (2 + rng.below(10)),
            group_target: 1 + rng.below(16 << 10) as usize,
            share: 64 + rng.below(4096) as usize,
            barrier: None,
            planted,
        };
        let streams = (0..AGENTS).map(|of| (agent(of), Stream::default())).collect();
        Self { rng, options, streams, from: LogPosition::START }
    }

    /// Crashes again and again, and each time finds what it must.
    fn run(&mut self, seed: u64) -> Result<(), String> {
        let mut device = Simulated::new(seed);
        for life in 0..LIVES {
            if life > 0 || self.rng.one_in(2) {
                device.inject(Fault::Stop(1 + self.rng.below(40)));
            }
            if self.rng.one_in(4) {
                device.inject(Fault::Capacity(8192 + self.rng.below(200 << 10)));
            }
            match open(Arc::new(device.clone()), self.options.clone(), self.from) {
                Ok((log, records)) => {
                    self.check(&records).map_err(|what| format!("life {life}: {what}"))?;
                    self.live(&log);
                }
                Err(LogError::Io { .. }) if device.list("").is_err() => {}
                Err(error) => return Err(format!("life {life} does not open: {error}")),
            }
            // Sometimes only the process dies, and then the machine, before anything else happens.
            if self.rng.one_in(4) {
                device = device.killed();
                match open(Arc::new(device.clone()), self.options.clone(), self.from) {
                    Ok((_, records)) => self.check(&records).map_err(|what| format!("killed: {what}"))?,
                    Err(error) => return Err(format!("does not open after a kill: {error}")),
                }
            }
            device = device.crash(self.rng.bits());
        }
        let (_, records) = open(Arc::new(device), self.options.clone(), self.from)
            .map_err(|error| format!("does not open at the end: {error}"))?;
        self.check(&records)
    }

    /// Commits batches until the machine stops or enough is done.
    fn live(&mut self, log: &Log) {
        for _ in 0..self.rng.below(20) {
            let (send, receive) = mpsc::channel();
            let mut batch: Vec<(Record, Done)> = Vec::new();
            for _ in 0..=self.rng.below(6) {
                let record = self.next_record();
                let (of, send) = (record.agent, send.clone());
                batch.push((record, Box::new(move |result| send.send((of, result)).unwrap())));
            }
            drop(send);
            log.submit_all(batch);
            let mut went_on = true;
            for (of, result) in receive {
                match result {
                    Ok(_) => self.streams.get_mut(&of).unwrap().acknowledged += 1,
                    // A refused record is not in the log, and its number is free again: were it
                    // to turn up later, it would not be what was submitted under that number.
                    Err(CommitError::NoSpace) => {
                        let stream = self.streams.get_mut(&of).unwrap();
                        stream.submitted.truncate(stream.acknowledged);
                    }
                    Err(_) => went_on = false,
                }
            }
            if !went_on {
                return;
            }
            if self.rng.one_in(6) {
                // Told to all: what lies before the tail is what was acknowledged.
                let tail = loop {
                    let tail = log.tail();
                    if log.bytes_since(tail) == 0 {
                        break tail;
                    }
                    std::thread::yield_now();
                };
                self.from = tail;
                for stream in self.streams.values_mut() {
                    stream.before = stream.acknowledged;
                }
                if log.recycle_before(self.from).is_err() {
                    return;
                }
            }
        }
    }

    fn next_record(&mut self) -> Record {
        let of = agent(u128::from(self.rng.below(AGENTS as u64)));
        let len = match self.rng.below(8) {
            0 => self.rng.below(20_000),
            1 => 4096,
            _ => self.rng.below(600),
        };
        let mut body = vec![0; len as usize];
        self.rng.fill(&mut body);
        let stream = self.streams.get_mut(&of).unwrap();
        let record = Record {
            agent: of,
            epoch: Epoch(1),
            sequence: Sequence(stream.submitted.len() as u64 + 1),
            needs: vec![Hash([3; 32]); self.rng.below(3) as usize],
            body,
        };
        stream.submitted.push(record.clone());
        record
    }

    /// All acknowledged records are there, in order, unaltered; what was not acknowledged is
    /// there as a whole or not at all, without gaps.
    fn check(&mut self, records: &[Record]) -> Result<(), String> {
        for (of, stream) in &mut self.streams {
            let mut next = None;
            for record in records.iter().filter(|it| it.agent == *of) {
                let number = record.sequence.0 as usize;
                if number == 0 || next.is_some_and(|next| next != number) {
                    return Err(format!("agent {of}: {number} where {next:?} was due"));
                }
                if next.is_none() && number > stream.before + 1 {
                    return Err(format!("agent {of}: begins with {number}, {} are gone", stream.before));
                }
                if stream.submitted.get(number - 1) != Some(record) {
                    return Err(format!("agent {of}: {number} is not what was submitted"));
                }
                next = Some(number + 1);
            }
            let last = next.map_or(stream.before, |next| next - 1);
            if last < stream.acknowledged {
                return Err(format!("agent {of}: {} acknowledged, {last} found", stream.acknowledged));
            }
            // What was found now counts as committed, and the rest never was.
            stream.acknowledged = last;
            stream.submitted.truncate(last);
        }
        if records.iter().any(|it| !self.streams.contains_key(&it.agent)) {
            return Err("a record of nobody's".to_owned());
        }
        Ok(())
    }
}

fn run(seed: u64, planted: Planted) -> Result<(), String> {
    Round::new(seed, planted).run(seed)
}

#[test]
fn no_crash_loses_what_was_acknowledged() {
    for seed in 0..3000 {
        if let Err(what) = run(seed, Planted::None) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn planted_mistakes_are_caught() {
    for planted in [Planted::NoChecksum, Planted::AcknowledgeBeforeFlush] {
        let caught = (0..300).filter(|seed| run(*seed, planted).is_err()).count();
        assert!(caught > 10, "{planted:?} was caught {caught} times in 300");
    }
}
