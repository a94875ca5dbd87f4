//! The queue under many schedules of its threads: nobody waits for ever, one thread works at a time, and each
//! agent's records are committed in their order, once.

mod sync {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use shuttle::thread;
}

#[path = "queue.rs"]
#[allow(clippy::duplicate_mod, reason = "this one is built on threads whose schedule is chosen")]
#[allow(dead_code, reason = "what these schedules leave alone is tested with the log")]
mod queue;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex, mpsc};
use uuid::Uuid;

use super::{LogPosition, Record};
use crate::id::{AgentId, Epoch, Sequence};
use queue::{Pending, Pushed, SharedQueue, Told};

/// Schedules of each test. Shuttle tells the seed of one that fails.
const SCHEDULES: usize = 2_000;
/// Records of each agent: those behind them hide what becomes of the last.
const RECORDS: [u64; 2] = [1, 3];
/// Bytes of a record's body.
const BODY: usize = 100;

/// What was committed, in order, by whoever worked.
struct Committed {
    queue: SharedQueue,
    at_work: AtomicUsize,
    records: Mutex<Vec<(AgentId, Sequence)>>,
}

impl Committed {
    fn new() -> Arc<Self> {
        // a group takes two records, and an agent's share is one
        let queue = SharedQueue::new(2 * BODY, BODY);
        Arc::new(Self { queue, at_work: AtomicUsize::new(0), records: Mutex::default() })
    }

    fn commit(&self, group: Vec<Pending>) {
        for pending in group {
            self.records.lock().unwrap().push((pending.record.agent, pending.record.sequence));
            let Told::Call(done) = pending.told else { unreachable!("all are called") };
            done(Ok(LogPosition::START));
        }
    }

    fn work(&self, group: Vec<Pending>) {
        assert_eq!(self.at_work.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
        self.commit(group);
        while let Some(group) = self.queue.take_next() {
            self.commit(group);
        }
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.queue.done();
    }

    fn lend(&self, group: Vec<Pending>) {
        assert_eq!(self.at_work.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
        self.commit(group);
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.queue.done();
    }

    /// The log's own thread.
    fn run(&self) {
        while let Some(group) = self.queue.take_group() {
            self.work(group);
        }
    }

    /// Queues a record, lends this thread where `lends`, and waits.
    fn write(&self, agent: AgentId, sequence: u64, lends: bool) {
        let (send, receive) = mpsc::channel();
        let record = Record {
            agent,
            epoch: Epoch(1),
            sequence: Sequence(sequence),
            needs: Vec::new(),
            body: vec![0; BODY],
        };
        let told = Told::Call(Box::new(move |result| send.send(result).unwrap()));
        match (self.queue.push([Pending::new(record, told)]), lends) {
            (Pushed::Seen, _) => {}
            (Pushed::Unseen, true) => {
                if let Some(group) = self.queue.lend() {
                    self.lend(group);
                }
            }
            (Pushed::Unseen, false) => self.queue.call(),
        }
        receive.recv().unwrap().unwrap();
    }
}

/// `lends` says of each agent whether it lends its thread.
fn all_are_committed(lends: &'static [bool]) {
    for each in RECORDS {
        all_of(each, lends);
    }
}

fn all_of(each: u64, lends: &'static [bool]) {
    shuttle::check_random(
        move || {
            let committed = Committed::new();
            let own = committed.clone();
            let log = shuttle::thread::spawn(move || own.run());
            let writers = lends.iter().enumerate().map(|(number, lends)| {
                let committed = committed.clone();
                shuttle::thread::spawn(move || {
                    let agent = AgentId(Uuid::from_u128(number as u128));
                    (0..each).for_each(|sequence| committed.write(agent, sequence, *lends));
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.join().unwrap();
            }
            committed.queue.close();
            log.join().unwrap();
            let records = committed.records.lock().unwrap();
            for number in 0..lends.len() {
                let agent = AgentId(Uuid::from_u128(number as u128));
                let of: Vec<u64> = records.iter().filter(|it| it.0 == agent).map(|it| it.1.0).collect();
                assert_eq!(of, (0..each).collect::<Vec<_>>());
            }
        },
        SCHEDULES,
    );
}

#[test]
fn one_that_lends_itself_and_the_logs_thread() {
    all_are_committed(&[true]);
}

#[test]
fn several_that_lend_themselves() {
    all_are_committed(&[true, true, true]);
}

#[test]
fn some_that_lend_themselves_and_some_that_call() {
    all_are_committed(&[true, false, true, false]);
}
