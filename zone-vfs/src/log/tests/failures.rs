//! Full disks, failed writes and failed flushes.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::device::simulated::Fault;

#[test]
fn a_full_disk_refuses_and_does_not_poison() {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    device.inject(Fault::Capacity(100 << 10));
    let mut kept = Vec::new();
    let mut refused = 0;
    for sequence in 1..=60 {
        match log.commit(record(1, sequence, &[1; 3000])) {
            Ok(_) => kept.push(sequence),
            Err(error) => {
                assert_eq!(error, CommitError::NoSpace);
                refused += 1;
            }
        }
    }
    // Three files of seven groups each.
    assert_eq!((kept.len(), refused), (21, 39));
    assert_eq!(log.poisoned(), None);
    let from = log.tail();
    // A checkpoint gives files back, and then there is room.
    log.recycle_before(from).unwrap();
    log.commit(record(1, 61, b"goes on")).unwrap();
    device.heal();
    log.commit(record(1, 62, &[1; 3000])).unwrap();
    drop(log);
    let (_, records) = open(Arc::new(device.crash(4)), small(), from).unwrap();
    assert_eq!(sequences(&records), [61, 62]);
}

/// What has a file to be written to goes on; what needs another waits for a descriptor.
#[test]
fn too_few_descriptors_refuse_and_do_not_poison() {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    let (mut kept, mut refused, mut from) = (Vec::new(), 0, LogPosition::START);
    for sequence in 1..=60 {
        match sequence {
            5 | 20 => device.inject(Fault::Descriptors(0)),
            15 | 45 => device.heal(),
            // from here on there is a file that waits to be used again
            18 => {
                from = log.tail();
                log.recycle_before(from).unwrap();
            }
            _ => {}
        }
        match log.commit(record(1, sequence, &[1; 3000])) {
            Ok(_) => kept.push(sequence),
            Err(error) => {
                let CommitError::Shortage(what) = &error else { panic!("{sequence}: {error}") };
                assert!(what.contains("log/") && what.contains("ulimit -n"), "{error}");
                refused += 1;
            }
        }
    }
    // seven groups a file, in each of which the lack is met
    assert_eq!((kept.len(), refused), (30, 30));
    assert_eq!(log.poisoned(), None);
    drop(log);
    let (_, records) = open(Arc::new(device.crash(4)), small(), from).unwrap();
    assert_eq!(sequences(&records), kept[kept.iter().position(|it| *it == 18).unwrap()..]);
}

#[test]
fn what_follows_a_refused_record_is_refused_too() {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    device.inject(Fault::Capacity(36 << 10));
    let (send, receive) = mpsc::channel();
    let batch = (1..=40).map(|sequence| {
        let send = send.clone();
        let done: Done = Box::new(move |result| send.send((sequence, result)).unwrap());
        (record(1, sequence, &[0; 3000]), done)
    });
    log.submit_all(batch.collect::<Vec<_>>());
    drop(send);
    let results: Vec<_> = receive.iter().collect();
    assert!(results.iter().map(|it| it.0).eq(1..=40), "told in order");
    let first = results.iter().position(|it| it.1.is_err()).unwrap();
    assert!(first > 0 && results[first..].iter().all(|it| it.1 == Err(CommitError::NoSpace)));
    drop(log);
    let (_, records) = start(&device.crash(1), small());
    assert_eq!(sequences(&records), (1..=first as u64).collect::<Vec<_>>());
}

#[test]
fn failed_writes_and_flushes_poison() {
    // The first write and flush are the file's header, the second ones the first group.
    for fault in [Fault::Write(1), Fault::Write(2), Fault::Flush(1), Fault::Flush(2)] {
        let device = Simulated::new(1);
        device.inject(fault);
        let (log, _) = start(&device, small());
        for sequence in 1..=3 {
            let error = log.commit(record(1, sequence, b"x")).unwrap_err();
            assert!(matches!(error, CommitError::Poisoned(_)), "{fault:?}: {error}");
        }
        assert!(log.poisoned().unwrap().contains("simulated"), "the reason is told");
        let (writes, flushes) = (device.writes(), device.flushes());
        drop(log);
        assert_eq!((writes, flushes), (device.writes(), device.flushes()), "nothing was tried again");
        let (log, records) = start(&device.crash(1), small());
        assert!(records.len() <= 1);
        log.commit(record(1, 9, b"opened again")).unwrap();
    }
}

#[test]
fn a_barrier_that_fails_stops_what_needs_it() {
    struct Full(AtomicBool);
    impl Barrier for Full {
        fn flush(&self) -> Result<(), ChunkError> {
            if self.0.load(Ordering::SeqCst) {
                Err(ChunkError::NoSpace)
            } else {
                Err(ChunkError::Poisoned("x".into()))
            }
        }
    }
    let device = Simulated::new(1);
    let barrier = Arc::new(Full(AtomicBool::new(true)));
    let (log, _) = start(&device, LogOptions { barrier: Some(barrier.clone()), ..small() });
    let needy = |sequence| Record { needs: vec![Hash([1; 32])], ..record(1, sequence, b"") };
    assert_eq!(log.commit(needy(1)), Err(CommitError::NoSpace));
    log.commit(record(2, 1, b"needs nothing")).unwrap();
    barrier.0.store(false, Ordering::SeqCst);
    assert!(matches!(log.commit(needy(2)), Err(CommitError::Poisoned(_))));
    assert!(matches!(log.commit(record(2, 2, b"")), Err(CommitError::Poisoned(_))));
    drop(log);
    assert_eq!(start(&device.crash(1), small()).1, [record(2, 1, b"needs nothing")]);
}

/// A group is durable, and nobody of it was told, when the barrier of the next one panics.
#[test]
fn a_panicking_barrier_leaves_nobody_in_the_dark() {
    struct Panics;
    impl Barrier for Panics {
        fn flush(&self) -> Result<(), ChunkError> {
            panic!("expected by this test");
        }
        fn poisoned(&self) -> Option<Arc<str>> {
            assert!(!PANICS.load(Ordering::SeqCst), "expected by this test");
            None
        }
    }
    static PANICS: AtomicBool = AtomicBool::new(false);
    for panics_early in [false, true] {
        PANICS.store(false, Ordering::SeqCst);
        let device = Simulated::new(1);
        let (log, _) = start(&device, LogOptions { barrier: Some(Arc::new(Panics)), ..small() });
        let (send, receive) = mpsc::channel();
        let told = |name: &'static str| {
            let send = send.clone();
            move |result| send.send((name, result)).unwrap()
        };
        // the second waits until the first is on its way, so that they are two groups
        device.hold("log/");
        log.submit(record(1, 1, b"durable"), told("first"));
        device.wait_for_held();
        // what needs nothing has those before it told while it is written, and not before
        let needs = if panics_early { Vec::new() } else { vec![Hash([1; 32])] };
        log.submit(Record { needs, ..record(2, 1, b"") }, told("second"));
        PANICS.store(panics_early, Ordering::SeqCst);
        device.release();
        drop(send);
        let results: Vec<_> = receive.iter().collect();
        assert!(
            matches!(results[..], [("first", Ok(_)), ("second", Err(CommitError::Poisoned(_)))]),
            "{results:?}"
        );
        assert!(matches!(log.commit(record(1, 2, b"")), Err(CommitError::Poisoned(_))));
        PANICS.store(false, Ordering::SeqCst);
        drop(log);
        assert_eq!(start(&device.crash(1), small()).1, [record(1, 1, b"durable")]);
    }
}

#[test]
fn a_panicking_acknowledgement_poisons() {
    let device = Simulated::new(1);
    let (log, _) = start(&device, small());
    log.submit(record(1, 1, b""), |_| panic!("expected by this test"));
    // The second one may have shared the first one's group.
    assert!(!matches!(log.commit(record(1, 2, b"")), Err(CommitError::Closed)));
    assert!(matches!(log.commit(record(1, 3, b"")), Err(CommitError::Poisoned(_))));
}
