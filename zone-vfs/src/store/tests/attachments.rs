//! What is attached to a generation is found again, costs what differs, and goes with the generation.

use super::*;
use crate::chunks::{ChunkError, ChunkStore, FrameKind};

const CHUNK: usize = ATTACHMENT_CHUNK;

pub(super) fn attach(
    disk: &Arc<Disk>,
    generation: GenerationNumber,
    what: &[u8],
) -> Result<Payload, StoreError> {
    disk.attach(generation, b"what it is", what.len() as u64, &mut |index, into| {
        let from = index as usize * CHUNK;
        into.copy_from_slice(&what[from..from + into.len()]);
        Ok(true)
    })
}

fn try_read(disk: &Disk, generation: GenerationNumber) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(attachment) = disk.attachment(generation)? else { return Ok(None) };
    assert_eq!(attachment.about(), b"what it is");
    let mut bytes = vec![0; attachment.bytes() as usize];
    attachment.read(&mut |offset, chunk| {
        bytes[offset as usize..offset as usize + chunk.len()].copy_from_slice(chunk);
        Ok(())
    })?;
    Ok(Some(bytes))
}

fn read_back(disk: &Disk, generation: u64) -> Option<Vec<u8>> {
    try_read(disk, GenerationNumber(generation)).unwrap()
}

pub(super) fn digest(what: &[u8]) -> Hash {
    Hash(*blake3::hash(what).as_bytes())
}

pub(super) fn read_digest(disk: &Disk, generation: GenerationNumber) -> Result<Hash, StoreError> {
    Ok(digest(&try_read(disk, generation)?.expect("it has one")))
}

/// So many chunks and a bit, of which every third is zeros.
pub(super) fn sparse(seed: u64, chunks: u64) -> Vec<u8> {
    let mut what = Vec::new();
    for chunk in 0..chunks {
        what.extend(if chunk % 3 == 1 { vec![0; CHUNK] } else { content(seed * 1000 + chunk, CHUNK) });
    }
    what.extend(content(seed, 100));
    what
}

fn turn(disk: &Arc<Disk>) -> GenerationNumber {
    disk.begin(TurnStyle::Transaction, b"").unwrap();
    end(disk, b"").unwrap()
}

fn number(generation: u64) -> GenerationNumber {
    GenerationNumber(generation)
}

#[test]
fn what_was_attached_is_read_back_by_whoever_opens_the_store_then() {
    let device = Simulated::new(1);
    let what = sparse(1, 300);
    {
        let store = start(&device);
        let a = create(&store, "a");
        attach(&a, number(0), &what).unwrap();
        assert_eq!(read_back(&a, 0).unwrap(), what);
        // from the log, after a crash
        let crashed = start(&device.crash(1));
        assert_eq!(read_back(&find(&crashed, "a"), 0).unwrap(), what);
        store.checkpoint().unwrap();
    }
    let store = start(&device);
    let a = find(&store, "a");
    assert_eq!(read_back(&a, 0).unwrap(), what);
    // another takes its place, also one with nothing in it
    for what in [vec![0; CHUNK * 500], Vec::new(), sparse(2, 1)] {
        attach(&a, number(0), &what).unwrap();
        assert_eq!(read_back(&a, 0).unwrap(), what);
    }
    assert_eq!(read_back(&a, 0), read_back(&find(&start(&device.killed()), "a"), 0));
    assert!(matches!(attach(&a, number(7), &what), Err(StoreError::NoGeneration { .. })));
    let limit = a.attach(number(0), b"", MAX_ATTACHMENT + 1, &mut |_, _| panic!("nothing is read"));
    assert!(matches!(limit, Err(StoreError::AttachmentTooLarge { .. })));
    let failed = a.attach(number(0), b"", 1, &mut |_, _| Err(std::io::Error::other("it does not read")));
    assert!(matches!(failed, Err(StoreError::Io { .. })));
    assert_eq!(read_back(&a, 0).unwrap(), sparse(2, 1), "as before");
}

#[test]
fn it_stays_with_rewinds_pauses_and_forks_and_not_with_turns() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    let first = turn(&a);
    let what = sparse(1, 5);
    attach(&a, first, &what).unwrap();
    let paused = mark(&a).unwrap();
    let second = turn(&a);
    let back = rewind(&a, first).unwrap();
    let child = fork(&store, &a, paused, "child").unwrap();
    let check = |store: &Store| {
        let a = find(store, "a");
        for generation in [first, paused, back] {
            assert_eq!(read_back(&a, generation.0).as_ref(), Some(&what), "{generation}");
        }
        assert_eq!((read_back(&a, 0), read_back(&a, second.0)), (None, None));
        assert_eq!(read_back(&find(store, "child"), 0).unwrap(), what);
    };
    check(&store);
    check(&start(&device.killed()));
    store.remove(a.id()).unwrap();
    drop((a, child));
    let_go(&store);
    assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().damage, [""; 0]);
    assert_eq!(read_back(&find(&store, "child"), 0).unwrap(), what);
}

#[test]
fn it_waits_for_nobody_and_takes_nothing_else_along() {
    let device = Simulated::new(1);
    let store = start(&device);
    let a = create(&store, "a");
    a.begin(TurnStyle::Transaction, b"event").unwrap();
    write(&a, WORKSPACE, "draft", b"of a turn");
    attach(&a, number(0), &sparse(1, 2)).unwrap();
    let seen = see(&find(&start(&device.killed()), "a"));
    assert_eq!((seen.last_turn, seen.zones[usize::from(WORKSPACE)].len()), (0, 0), "the turn is not begun");
    assert_eq!(seen.attached.len(), 1);
    sync(&a).unwrap();
    attach(&a, number(0), &sparse(2, 2)).unwrap();
    end(&a, b"done").unwrap();
    let seen = see(&a);
    assert_eq!(see(&find(&start(&device.killed()), "a")), seen);
    let ended =
        SeenTurn { turn: 1, event: b"event".to_vec(), outcome: Ok(b"done".to_vec()), facts: Vec::new() };
    assert_eq!(seen.history, [ended]);
    // beside turns of another thread
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 0..40 {
                attach(&a, number(0), &sparse(seed % 5, 3)).unwrap();
            }
        });
        for _ in 0..40 {
            write(&a, EPISODIC, "diary", b"line\n");
            turn(&a);
            mark(&a).unwrap();
            a.release().unwrap();
        }
    });
    assert_eq!(see(&find(&start(&device.killed()), "a")), see(&a));
    store.remove(a.id()).unwrap();
    assert!(matches!(attach(&a, number(0), b"late"), Err(StoreError::NoAgent(_))));
}

#[test]
fn what_is_the_same_is_stored_once() {
    let store = start(&Simulated::new(1));
    let a = create(&store, "a");
    let mut what = sparse(1, 300);
    let mut last = number(0);
    for at in 0..50 {
        last = turn(&a);
        what[at] ^= 1;
        attach(&a, last, &what).unwrap();
    }
    let children: Vec<_> = (0..100).map(|n| fork(&store, &a, last, &format!("f{n}")).unwrap()).collect();
    assert_eq!(children.len(), 100);
    let usage = store.usage().unwrap();
    let of = |name: &str| usage.agents.iter().find(|it| it.name == name).unwrap();
    // 200 chunks that differ from each other, and for each generation one chunk, one leaf, one root
    let attached = of("a").attachments;
    let total = attached.unique + attached.shared;
    assert!((200 * CHUNK as u64..(200 + 52) * CHUNK as u64 + 50 * 6000).contains(&total), "{attached:?}");
    assert_eq!(attached.logical, what.len() as u64);
    let each = 200 * CHUNK as u64;
    assert!((each..each + 30_000).contains(&attached.shared), "what the forks need too: {attached:?}");
    for n in 0..100 {
        let fork = of(&format!("f{n}"));
        assert!(fork.attachments.unique == 0 && fork.all.unique < 4_000, "{fork:?}");
    }
    let (_, bytes) = of("a").generations.iter().find(|(number, _)| number.0 == 20).unwrap();
    assert!((CHUNK as u64..CHUNK as u64 + 8_000).contains(&bytes.unique), "{bytes:?}");
    assert!((each - CHUNK as u64..each + 20_000).contains(&bytes.shared), "{bytes:?}");
    // and it goes with the generations
    let keep = KeepGenerations { turns: 1, sides: 0, ..KeepGenerations::default() };
    let policy = ReapPolicy::keeping(keep);
    let dry = store.reap(&policy, true).unwrap();
    let report = store.reap(&policy, false).unwrap();
    assert_eq!((report.generations, report.damage.len()), (49, 0));
    assert_eq!(dry.from_generations, report.from_generations);
    assert!(report.from_generations.bytes > 49 * CHUNK as u64, "{report:?}");
    assert_eq!(read_back(&a, last.0).unwrap(), what);
    assert_eq!(read_back(&find(&store, "f99"), 0).unwrap(), what);
}

#[test]
fn the_same_is_attached_elsewhere_while_all_of_it_is_there() {
    let device = Simulated::new(1);
    let store = start(&device);
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    let what = sparse(1, 200);
    let root = attach(&a, number(0), &what).unwrap();
    assert!(b.attach_known(number(0), &root).unwrap());
    store.remove(a.id()).unwrap();
    drop(a);
    let_go(&store);
    store.reap(&ReapPolicy::default(), false).unwrap();
    assert_eq!(read_back(&b, 0).unwrap(), what);
    assert_eq!(read_back(&find(&start(&device.killed()), "b"), 0).unwrap(), what);
    store.remove(b.id()).unwrap();
    drop(b);
    let_go(&store);
    store.reap(&ReapPolicy::default(), false).unwrap();
    let c = create(&store, "c");
    assert!(!c.attach_known(number(0), &root).unwrap(), "it has gone with the last that needed it");
    assert_eq!(read_back(&c, 0), None);
}

#[test]
fn damage_is_named_and_harms_no_other() {
    let device = Simulated::new(1);
    let store = start(&device);
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    let (mine, other) = (sparse(1, 200), sparse(2, 200));
    attach(&a, number(0), &mine).unwrap();
    attach(&b, number(0), &other).unwrap();
    let second = mark(&a).unwrap();
    store.checkpoint().unwrap();
    let segments = store.shared().unwrap().segments.clone();
    let lost = segments.put(FrameKind::Chunk, &mine[..CHUNK]).unwrap();
    scrub::damage(&device, &lost);
    for generation in [number(0), second] {
        let error = try_read(&a, generation).unwrap_err();
        assert!(matches!(error, StoreError::Chunk(ChunkError::Damaged { hash, .. }) if hash == lost));
    }
    assert!(segments.get(&lost).is_err());
    assert_eq!(read_back(&b, 0).unwrap(), other);
    let mut found = Vec::new();
    store.scrub(false, &mut |it| found.push(it.clone())).unwrap();
    let told = found.iter().any(|it| {
        matches!(it, Finding::Agent(d) if d.hash == Some(lost) && d.agent.as_ref().is_some_and(|it| it.1 == "a")
            && d.generation == Some(number(0)) && d.reason.contains("attached"))
    });
    assert!(told, "{found:?}");
    // one that is attached again is written again where it was found damaged
    store.scrub(true, &mut |_| {}).unwrap();
    attach(&a, second, &mine).unwrap();
    assert_eq!(read_back(&a, second.0).unwrap(), mine);
}

#[test]
fn a_backup_has_it() {
    let store = start(&Simulated::new(1));
    let a = create(&store, "a");
    let what = sparse(3, 260);
    attach(&a, number(0), &what).unwrap();
    let mut bytes = Vec::new();
    store.backup(&mut bytes, None, &mut |_| Ok(Vec::new())).unwrap();
    let device = Simulated::new(2);
    let there: Arc<dyn Device> = Arc::new(device.clone());
    let report = Store::restore_on(&there, &mut [&mut &bytes[..]], &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(report.damage, [""; 0]);
    assert_eq!(read_back(&find(&start(&device), "a"), 0).unwrap(), what);
}
