//! What a log does when nothing goes wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::device::tests::every_device;

#[test]
fn commits_come_back_in_order() {
    every_device(|device| {
        let (log, records) = open(device.clone(), small(), LogPosition::START).unwrap();
        assert!(records.is_empty());
        assert_eq!(log.tail(), LogPosition::START);
        let mut all = Vec::new();
        for sequence in 1..=40 {
            let mut it =
                record(u128::from(sequence % 3), sequence, &vec![sequence as u8; sequence as usize * 100]);
            it.needs = vec![Hash([sequence as u8; 32]); sequence as usize % 4];
            let position = log.commit(it.clone()).unwrap();
            assert!(position < log.tail());
            all.push((position, it));
        }
        let tail = log.tail();
        drop(log);
        let (log, records) = open(device.clone(), small(), LogPosition::START).unwrap();
        assert_eq!(log.tail(), tail);
        assert_eq!(records, all.iter().map(|it| it.1.clone()).collect::<Vec<_>>());
        log.commit(record(9, 41, b"more")).unwrap();
        drop(log);
        // One record was committed at a time, so each position begins with its own record.
        for (at, (position, _)) in all.iter().enumerate() {
            let (_, records) = open(device.clone(), small(), *position).unwrap();
            assert_eq!(sequences(&records), (at as u64 + 1..=41).collect::<Vec<_>>());
        }
        let (log, records) = open(device, small(), tail).unwrap();
        assert_eq!(sequences(&records), [41]);
        assert_eq!(log.bytes_since(tail), 4096);
    });
}

#[test]
fn many_threads_commit_at_once() {
    every_device(|device| {
        let options = LogOptions { file_len: 1 << 20, ..LogOptions::default() };
        let (log, _) = open(device.clone(), options.clone(), LogPosition::START).unwrap();
        std::thread::scope(|scope| {
            for of in 0..8 {
                let log = &log;
                scope.spawn(move || {
                    for sequence in 1..=25 {
                        log.commit(record(of, sequence, &[of as u8; 700])).unwrap();
                    }
                });
            }
        });
        drop(log);
        let (_, records) = open(device, options, LogPosition::START).unwrap();
        for of in 0..8 {
            let own: Vec<Record> = records.iter().filter(|it| it.agent == agent(of)).cloned().collect();
            assert_eq!(sequences(&own), (1..=25).collect::<Vec<_>>());
            assert!(own.iter().all(|it| it.body == [of as u8; 700]));
        }
    });
}

#[test]
fn files_are_recycled_round_after_round() {
    every_device(|device| {
        let (mut log, _) = open(device.clone(), small(), LogPosition::START).unwrap();
        let mut from = LogPosition::START;
        for round in 0..20 {
            for sequence in 0..15 {
                log.commit(record(1, round * 15 + sequence, &[round as u8; 5000])).unwrap();
                if sequence == 7 {
                    from = log.tail();
                }
            }
            log.recycle_before(from).unwrap();
            assert!(log.bytes_since(from) >= 7 * 8192);
            if round % 5 == 4 {
                drop(log);
                let (again, records) = open(device.clone(), small(), from).unwrap();
                assert_eq!(sequences(&records), (round * 15 + 8..round * 15 + 15).collect::<Vec<_>>());
                log = again;
            }
        }
        let files = device.list("log").unwrap();
        assert!(files.len() <= 10, "reused, not added: {files:?}");
        drop(log);
        let lost = open(device, small(), LogPosition::START).unwrap_err();
        assert!(matches!(lost, LogError::Missing { .. } | LogError::Damaged { .. }), "{lost}");
    });
}

#[test]
fn a_file_grows_to_what_a_record_needs() {
    every_device(|device| {
        let (log, _) = open(device.clone(), small(), LogPosition::START).unwrap();
        log.commit(record(1, 1, b"before")).unwrap();
        log.commit(record(1, 2, &vec![5; 300_000])).unwrap();
        log.commit(record(1, 3, b"after")).unwrap();
        let limit = MAX_RECORD - format::RECORD_HEADER;
        let refused = log.commit(record(1, 4, &vec![5; limit + 1])).unwrap_err();
        assert_eq!(refused, CommitError::TooLarge { bytes: MAX_RECORD + 1, limit: MAX_RECORD });
        log.commit(record(1, 4, &vec![5; limit])).unwrap();
        drop(log);
        let (_, records) = open(device, small(), LogPosition::START).unwrap();
        assert_eq!(sequences(&records), [1, 2, 3, 4]);
        assert_eq!(records[1].body, vec![5; 300_000]);
        assert_eq!(records[3].body.len(), limit);
    });
}

#[test]
fn dropping_commits_what_is_queued() {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    let done = Arc::new(AtomicU64::new(0));
    for sequence in 1..=50 {
        let done = done.clone();
        log.submit(record(1, sequence, &[0; 500]), move |result| {
            result.unwrap();
            assert_eq!(done.fetch_add(1, Ordering::SeqCst) + 1, sequence, "acknowledged in order");
        });
    }
    drop(log);
    assert_eq!(done.load(Ordering::SeqCst), 50);
    assert_eq!(start(&device.crash(1), small()).1.len(), 50);
}

#[test]
fn an_acknowledgement_may_submit_and_may_own_the_log() {
    let device = Simulated::new(1);
    let log = Arc::new(start(&device, small()).0);
    let (send, receive) = mpsc::channel();
    let owner = log.clone();
    log.submit(record(1, 1, b"first"), move |result| {
        let position = result.unwrap();
        assert!(owner.tail() <= position, "the tail moves when all have been told");
        let send = send.clone();
        owner.submit(record(1, 2, b"second"), move |result| send.send(result).unwrap());
    });
    drop(log);
    receive.recv().unwrap().unwrap();
    assert_eq!(sequences(&start(&device.crash(1), small()).1), [1, 2]);
}

#[test]
fn a_small_agent_is_not_held_up_by_a_flood() {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = |of: u128| -> Done {
        let order = order.clone();
        Box::new(move |result| {
            result.unwrap();
            order.lock().unwrap().push(of);
        })
    };
    let flood = (0..100).map(|sequence| (record(1, sequence, &[0; 1000]), told(1)));
    log.submit_all(flood.chain([(record(2, 0, b"small"), told(2))]));
    drop(log);
    let order = order.lock().unwrap();
    let place = order.iter().position(|it| *it == 2).unwrap();
    assert!(place < 10, "100 records were queued before it, and it came as number {place}");
}

#[test]
fn needed_chunks_are_flushed_before_the_record() {
    struct Flushed(AtomicBool);
    impl Barrier for Flushed {
        fn flush(&self) -> Result<(), ChunkError> {
            self.0.store(true, Ordering::SeqCst);
            Ok(())
        }
    }
    let device = Simulated::new(1);
    let barrier = Arc::new(Flushed(AtomicBool::new(false)));
    let (log, _) = start(&device, LogOptions { barrier: Some(barrier.clone()), ..small() });
    log.commit(record(1, 1, b"needs nothing")).unwrap();
    assert!(!barrier.0.load(Ordering::SeqCst));
    log.commit(Record { needs: vec![Hash([1; 32])], ..record(1, 2, b"needs a chunk") }).unwrap();
    assert!(barrier.0.load(Ordering::SeqCst));
}

#[test]
fn a_thread_that_waits_makes_its_commit_where_nobody_else_is_at_it() {
    every_device(|device| {
        let (log, _) = open(device, small(), LogPosition::START).unwrap();
        let committed_in = |agents: u128, start: &dyn Fn(&dyn Fn())| {
            let (send, receive) = mpsc::channel();
            start(&|| {
                for agent in 0..agents {
                    let send = send.clone();
                    log.submit(record(agent, 1, b"a fact"), move |result| {
                        send.send((std::thread::current().id(), result.is_ok())).unwrap();
                    });
                }
            });
            let told: Vec<_> = receive.iter().take(agents as usize).collect();
            // whoever has told them looks for more before it is done
            while !log.works.queue.is_idle() {
                std::thread::yield_now();
            }
            assert!(told.iter().all(|it| it.1));
            told[0].0 == std::thread::current().id()
        };
        assert!(committed_in(1, &|commit| lend(commit)));
        assert!(committed_in(1, &|commit| lend(|| lend(commit))), "the outermost counts");
        assert!(!committed_in(1, &|commit| commit()), "nobody lent it");
        assert!(!committed_in(2, &|commit| lend(commit)), "several are gathered");
        assert!(!committed_in(1, &|commit| lend(commit)), "and so is who comes right after them");
        assert!(committed_in(1, &|commit| lend(commit)));
    });
}
