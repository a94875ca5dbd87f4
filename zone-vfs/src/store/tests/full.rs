//! Full disks: whatever is refused can be done when there is space again, and nothing is lost.

use super::*;
use crate::device::Caching;
use crate::device::simulated::Fault;

fn used(device: &Simulated) -> u64 {
    ["", "log", "segments"]
        .iter()
        .flat_map(|folder| {
            let path = |name| if folder.is_empty() { name } else { format!("{folder}/{name}") };
            device.list(folder).unwrap().into_iter().map(path).collect::<Vec<_>>()
        })
        .filter_map(|path| device.open(&path, Caching::Cached).ok())
        .map(|file| file.len().unwrap())
        .sum()
}

/// Does something, and again with space where it is refused for want of it; counts refusals.
fn insist<T>(device: &Simulated, refused: &mut u32, mut work: impl FnMut() -> Result<T, StoreError>) -> T {
    match work() {
        Ok(done) => done,
        Err(e) if e.is_no_space() => {
            *refused += 1;
            try_start(&device.crash(u64::from(*refused))).expect("it can be opened as it is");
            device.heal();
            work().expect("there is space again")
        }
        Err(e) => panic!("{e}"),
    }
}

fn id(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(number))
}

/// A bit of everything.
fn work(device: &Simulated, store: &Store, refused: &mut u32) {
    let a = insist(device, refused, || store.create(id(1), &new_agent("a"), specs()));
    insist(device, refused, || a.begin(TurnStyle::Transaction, &content(1, 20_000)));
    write(&a, EPISODIC, "diary", b"one ");
    write(&a, WORKSPACE, "large", &content(2, 150_000));
    insist(device, refused, || sync(&a));
    for number in 0..8 {
        write(&a, SEMANTIC, &format!("fact{number}"), &content(number, 9_000));
    }
    insist(device, refused, || end(&a, b"done"));
    let child = || fork_as(store, &a, id(2));
    let child = insist(device, refused, child);
    insist(device, refused, || store.checkpoint());
    insist(device, refused, || child.begin(TurnStyle::Transaction, b""));
    write(&child, WORKSPACE, "large", &content(3, 70_000));
    write(&child, EPISODIC, "diary", b"two");
    insist(device, refused, || fail(&child, "it broke"));
    write(&a, WORKSPACE, "operator", &content(4, 30_000));
    insist(device, refused, || mark(&a));
    insist(device, refused, || rewind(&a, GenerationNumber(1)));
    insist(device, refused, || store.remove(id(2)));
    write(&a, WORKSPACE, "last", &content(5, 100_000));
    insist(device, refused, || sync(&a));
    insist(device, refused, || store.checkpoint());
}

fn fork_as(store: &Store, parent: &Arc<Disk>, id: AgentId) -> Result<Arc<Disk>, StoreError> {
    store.fork(parent, GenerationNumber(1), &[(id, new_agent("child"))]).map(|mut made| made.remove(0))
}

#[test]
fn a_full_disk_refuses_at_any_point_and_nothing_is_lost() {
    let device = Simulated::new(1);
    let store = start(&device);
    let begun = used(&device);
    work(&device, &store, &mut 0);
    // what was refused half-way has taken numbers
    let holds = |store: &Store| -> BTreeMap<_, _> {
        see_all(store).into_iter().map(|(name, seen)| (name, seen.without_numbers())).collect()
    };
    let expected = holds(&store);
    let all = used(&device) - begun;
    let mut refusals = 0;
    let step = 4_700;
    for more in (0..all).step_by(step) {
        let device = Simulated::new(more);
        let store = start(&device);
        device.inject(Fault::Capacity(used(&device) + more));
        let mut refused = 0;
        work(&device, &store, &mut refused);
        refusals += refused;
        assert_eq!(holds(&store), expected, "with {more} bytes more");
        let (crashed, before) = (device.crash(more), see_all(&store));
        drop(store);
        assert_eq!(see_all(&start(&crashed)), before, "after a crash, with {more} bytes more");
    }
    assert!(u64::from(refusals) * step as u64 > all / 2, "{refusals} refusals in {all} bytes");
}

#[test]
fn what_is_refused_can_be_abandoned() {
    for more in (0..60_000).step_by(5_000) {
        let device = Simulated::new(more);
        let store = start(&device);
        let a = create(&store, "a");
        device.inject(Fault::Capacity(used(&device) + more));
        let mut refused = false;
        for turn in 0..30u64 {
            a.begin(TurnStyle::Transaction, b"").unwrap();
            // many records
            for file in 0..6 {
                write(&a, WORKSPACE, &format!("file{file}"), &content(turn * 10 + file, 12_000));
            }
            match end(&a, b"") {
                Ok(_) => {}
                Err(e) if e.is_no_space() => {
                    refused = true;
                    a.abandon().unwrap();
                    device.heal();
                    store.checkpoint().unwrap();
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(refused, "{more}");
        write(&a, WORKSPACE, "operator", b"x");
        mark(&a).unwrap();
        let before = everything(&store);
        let crashed = device.crash(more);
        drop(store);
        assert_eq!(everything(&start(&crashed)), before, "{more}");
    }
}
