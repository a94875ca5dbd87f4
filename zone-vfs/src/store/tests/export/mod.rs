//! An agent goes to another store as it is, and whoever takes one in believes nothing that the file says.

mod hostile;

use std::io::Read;

use super::*;
use crate::device::simulated::Fault;
use crate::id::Turn;
use crate::tree::MAX_INLINE;

/// Takes agents in as they come, and keeps what came with them.
#[derive(Default)]
pub(super) struct Taking {
    /// Another name than it had.
    name: Option<String>,
    pub files: BTreeMap<String, Vec<u8>>,
    /// The shared zones that are here.
    shared: BTreeMap<String, SharedId>,
    heads: Vec<u64>,
    turns: Vec<(u64, Vec<u8>, Option<Vec<u8>>)>,
    facts: Vec<(u64, Vec<u8>)>,
}

impl Arrival for Taking {
    fn file(&mut self, name: &str, _: u64, content: &mut dyn Read) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        self.files.insert(name.into(), bytes);
        Ok(())
    }

    fn agent(&mut self, agent: &ArrivedAgent) -> Result<NewArrival, StoreError> {
        let zones = agent.zones.iter().map(|zone| {
            let shared = zone.shared.as_ref().map(|(name, writable)| {
                let zone = self.shared.get(name).copied().ok_or(StoreError::Export(format!("no {name}")))?;
                Ok::<_, StoreError>(SharedMount { zone, writable: *writable })
            });
            Ok(ZoneSpec {
                name: zone.name.clone(),
                mount: zone.mount.clone(),
                kind: zone.kind,
                quota: zone.quota,
                shared: shared.transpose()?,
            })
        });
        Ok(NewArrival {
            id: Store::new_id()?,
            name: self.name.clone().unwrap_or_else(|| agent.name.clone()),
            about: agent.about.clone(),
            zones: zones.collect::<Result<_, StoreError>>()?,
        })
    }

    fn turn(&mut self, turn: Turn, event: &[u8], outcome: Option<&[u8]>) -> Result<(), StoreError> {
        self.turns.push((turn.0, event.to_vec(), outcome.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn fact(&mut self, turn: Turn, fact: &[u8]) -> Result<(), StoreError> {
        self.facts.push((turn.0, fact.to_vec()));
        Ok(())
    }

    fn generation(&mut self, generation: &ArrivedGeneration<'_>) -> Result<Vec<u8>, StoreError> {
        if generation.is_head {
            self.heads.push(generation.number.0);
        }
        assert!(matches!(generation.opened(EPISODIC, Inode::ROOT)?, Opened::Is(FileKind::Directory)));
        assert_eq!(generation.opened(EPISODIC, Inode(1 << 40))?, Opened::Never);
        assert_eq!(generation.opened(99, Inode::ROOT)?, Opened::NoZone);
        Ok(generation.about.to_vec())
    }
}

fn file(name: &str, content: &[u8]) -> StreamFile {
    let bytes = content.to_vec();
    StreamFile {
        name: name.into(),
        len: content.len() as u64,
        hash: *blake3::hash(content).as_bytes(),
        open: Box::new(|| Ok(Box::new(std::io::Cursor::new(bytes)))),
    }
}

fn try_export(store: &Store, disk: &Arc<Disk>) -> Result<(Vec<u8>, ExportReport), StoreError> {
    let mut to = Vec::new();
    let about = disk.info()?.about.to_vec();
    let report = store.export(
        disk,
        &mut to,
        &mut Exporting {
            begin: &mut |_| Ok((about.clone(), vec![file("component", b"its code")])),
            generation: &mut |_, about| Ok(about.to_vec()),
            is_move: false,
        },
    )?;
    assert_eq!(report.bytes, to.len() as u64);
    Ok((to, report))
}

pub(super) fn export_of(store: &Store, disk: &Arc<Disk>) -> Vec<u8> {
    try_export(store, disk).unwrap().0
}

fn import(store: &Store, bytes: &[u8]) -> Result<Arc<Disk>, StoreError> {
    import_as(store, bytes, &mut Taking::default())
}

fn import_as(store: &Store, mut bytes: &[u8], taking: &mut Taking) -> Result<Arc<Disk>, StoreError> {
    store.import(&mut bytes, taking)
}

/// A life with everything that an export has to hold.
fn live(store: &Store, disk: &Arc<Disk>) {
    for turn in 0..8u64 {
        disk.begin(TurnStyle::Transaction, &content(turn, 17_000)).unwrap();
        disk.fact(&content(400 + turn, 60)).unwrap();
        disk.fact(&content(500 + turn, 20_000)).unwrap();
        write(disk, EPISODIC, "diary", format!("{turn} ").as_bytes());
        write(disk, EPISODIC, "long", &content(300 + turn, 70_000));
        // one that shares most of its pieces with the version before
        let large = [content(100, 60_000), content(101 + turn / 2, 90_000), vec![0; 200_000]].concat();
        write(disk, SEMANTIC, "large", &large);
        write(disk, SEMANTIC, "note", format!("note {turn}").as_bytes());
        write(disk, WORKSPACE, &format!("file{turn}"), &content(turn % 3, 100_000));
        disk.zone(WORKSPACE, |zone| {
            let _ = zone.mkdir(access(), Inode::ROOT, b"folder");
            let _ = zone.link(access(), (Inode::ROOT, b"file0"), false, (Inode::ROOT, b"folder/again"));
        });
        sync(disk).unwrap();
        match turn {
            3 => drop(fail(disk, "it broke").unwrap()),
            _ => drop(end(disk, &content(200 + turn, 18_000)).unwrap()),
        }
        if turn == 4 {
            disk.zone(SEMANTIC, |zone| zone.unlink(access(), Inode::ROOT, b"note")).unwrap().unwrap();
            mark(disk).unwrap();
        }
    }
    disk.pin(GenerationNumber(2), true).unwrap();
    rewind(disk, GenerationNumber(2)).unwrap();
    attachments::attach(disk, GenerationNumber(1), &attachments::sparse(1, 2)).unwrap();
    attachments::attach(disk, GenerationNumber(3), &attachments::sparse(2, 3)).unwrap();
    disk.begin(TurnStyle::Transaction, b"once more").unwrap();
    write(disk, SEMANTIC, "large", b"small again");
    end(disk, b"done").unwrap();
    assert!(store.log_bytes().unwrap() > 0);
}

/// The past, but for what identifies content in pieces: that is each store's own.
fn elsewhere(past: &Past) -> Arc<Past> {
    let mut past = past.clone();
    for record in past.events.values_mut().filter(|it| it.size > MAX_INLINE as u64) {
        record.hash = Hash([0; 32]);
    }
    Arc::new(past)
}

/// What it is, but for whose and where it is.
fn is(disk: &Disk) -> Seen {
    let mut seen = Seen { id: AgentId::default(), parent: None, ..see(disk) };
    seen.past = elsewhere(&seen.past);
    for (.., past) in seen.generations.values_mut() {
        *past = elsewhere(past);
    }
    seen
}

#[test]
fn an_agent_is_in_another_store_what_it_was() {
    let (there, here) = (Simulated::new(1), Simulated::new(2));
    let (from, to) = (start(&there), start(&here));
    let disk = create(&from, "a");
    live(&from, &disk);
    let (bytes, report) = try_export(&from, &disk).unwrap();
    assert_eq!((report.generations, report.turns), (disk.generations().len() as u64, 9));
    let mut taking = Taking::default();
    let came = import_as(&to, &bytes, &mut taking).unwrap();
    assert_eq!(is(&came), is(&disk));
    assert_ne!(came.id(), disk.id());
    assert_eq!(taking.files["component"], b"its code");
    assert_eq!(taking.heads, [disk.head().0]);
    let turn =
        |turn: u64| (turn + 1, content(turn, 17_000), (turn != 3).then(|| content(200 + turn, 18_000)));
    let mut turns: Vec<_> = (0..8).map(turn).collect();
    turns.push((9, b"once more".to_vec(), Some(b"done".to_vec())));
    assert!(taking.turns == turns, "each turn is shown with what it holds");
    let facts = (0..8)
        .flat_map(|turn| [content(400 + turn, 60), content(500 + turn, 20_000)].map(|it| (turn + 1, it)));
    assert!(taking.facts == facts.collect::<Vec<_>>(), "and with its facts");
    assert_eq!(to.find("a").unwrap(), Some(came.id()));
    // and what it is in the end, however it is opened
    let then = see(&came);
    drop((came, to));
    let to = start(&here);
    let came = find(&to, "a");
    assert_eq!(see(&came), then);
    assert_eq!(to.scrub(false, &mut |_| {}).unwrap().findings, 0);
    // it goes on as any other
    rewind(&came, GenerationNumber(1)).unwrap();
    assert_eq!(see(&came).zones[usize::from(SEMANTIC)], see(&disk).generations[&1].1[usize::from(SEMANTIC)]);
    live_on(&came);
    to.reap(&ReapPolicy::default(), false).unwrap();
    let then = see(&came);
    drop((came, to));
    let to = start(&here);
    assert_eq!(see(&find(&to, "a")), then);
    assert_eq!(to.scrub(false, &mut |_| {}).unwrap().findings, 0);
}

fn live_on(disk: &Arc<Disk>) {
    disk.begin(TurnStyle::Transaction, b"here").unwrap();
    write(disk, SEMANTIC, "large", &content(5, 120_000));
    write(disk, WORKSPACE, "new", b"more");
    write(disk, EPISODIC, "diary", b"here ");
    end(disk, b"done").unwrap();
}

#[test]
fn an_export_goes_round_and_stays_the_same_agent() {
    let (first, second) = (start(&Simulated::new(1)), start(&Simulated::new(2)));
    let disk = create(&first, "a");
    live(&first, &disk);
    let fork = fork(&first, &disk, GenerationNumber(1), "b").unwrap();
    live_on(&fork);
    let came = import(&second, &export_of(&first, &fork)).unwrap();
    live_on(&came);
    let (bytes, back) = (export_of(&second, &came), is(&came));
    let mut as_c = Taking { name: Some("c".into()), ..Taking::default() };
    let came = import_as(&first, &bytes, &mut as_c).unwrap();
    assert_eq!(is(&came), back);
    assert_eq!(first.find("c").unwrap(), Some(came.id()));
}

#[test]
fn content_that_two_stores_have_is_kept_once() {
    let (from, to) = (start(&Simulated::new(1)), start(&Simulated::new(2)));
    let disk = create(&from, "a");
    live(&from, &disk);
    let bytes = export_of(&from, &disk);
    import(&to, &bytes).unwrap();
    let frames = |store: &Store| store.shared().unwrap().segments.stats().frames;
    let before = frames(&to);
    import_as(&to, &bytes, &mut Taking { name: Some("b".into()), ..Taking::default() }).unwrap();
    assert!(frames(&to) - before < 20, "{} {}", before, frames(&to));
}

#[test]
fn a_turn_that_is_going_on_is_not_in_an_export() {
    let (from, to) = (start(&Simulated::new(1)), start(&Simulated::new(2)));
    let disk = create(&from, "a");
    live(&from, &disk);
    let then = is(&disk);
    disk.begin(TurnStyle::Transaction, b"not over").unwrap();
    write(&disk, WORKSPACE, "half", b"done");
    sync(&disk).unwrap();
    let came = import(&to, &export_of(&from, &disk)).unwrap();
    let came = is(&came);
    assert_eq!((&came.zones, &came.history), (&then.zones, &then.history));
    end(&disk, b"over").unwrap();
}

#[test]
fn a_name_that_is_taken_is_refused_and_nothing_is_there() {
    let (from, to) = (start(&Simulated::new(1)), start(&Simulated::new(2)));
    let disk = create(&from, "a");
    live(&from, &disk);
    let bytes = export_of(&from, &disk);
    create(&to, "a");
    let before = everything(&to);
    assert!(matches!(import(&to, &bytes), Err(StoreError::NameTaken(name)) if name == "a"));
    assert_eq!(everything(&to), before);
}

#[test]
fn a_shared_zone_is_named_and_its_content_stays_at_home() {
    let (from, to) = (start(&Simulated::new(1)), start(&Simulated::new(2)));
    let team = from.create_shared("team", Quota::default()).unwrap();
    let shared = Some(SharedMount { zone: team, writable: true });
    let mount = ZoneSpec {
        name: "team".into(),
        mount: "/team".into(),
        kind: ZoneKind::Shared,
        quota: Quota::default(),
        shared,
    };
    let zones = specs().into_iter().chain([mount]).collect();
    let disk = from.create(Store::new_id().unwrap(), &new_agent("a"), zones).unwrap();
    disk.begin(TurnStyle::Transaction, b"event").unwrap();
    write(&disk, 4, "secret", b"the needle in the team's haystack");
    end(&disk, b"reply").unwrap();
    let bytes = export_of(&from, &disk);
    assert!(!bytes.windows(10).any(|it| it == b"the needle"));
    assert!(matches!(import(&to, &bytes), Err(StoreError::Export(reason)) if reason.contains("team")));
    assert_eq!(to.find("a").unwrap(), None);
    let here = to.create_shared("team", Quota::default()).unwrap();
    let mut taking = Taking { shared: BTreeMap::from([("team".to_owned(), here)]), ..Taking::default() };
    let came = import_as(&to, &bytes, &mut taking).unwrap();
    write(&came, 4, "mine", b"here");
    assert!(matches!(to.remove_shared(here), Err(StoreError::SharedInUse { .. })));
    assert_eq!(read(&came, 4, "secret"), None);
}

#[test]
fn what_was_cut_or_changed_is_refused_and_leaves_no_agent() {
    let (from, to) = (start(&Simulated::new(1)), start(&Simulated::new(2)));
    let disk = create(&from, "a");
    live(&from, &disk);
    let bytes = export_of(&from, &disk);
    let refused = |bytes: &[u8], what: &str| {
        match import(&to, bytes) {
            Err(StoreError::Export(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!((to.find("a").unwrap(), to.agents().unwrap().len()), (None, 0), "{what}");
    };
    let mut rng = crate::device::simulated::Rng::new(7);
    for _ in 0..150 {
        let at = rng.below(bytes.len() as u64) as usize;
        let mut changed = bytes.clone();
        changed[at] ^= 1 << rng.below(8);
        refused(&changed, &format!("a bit of byte {at}"));
    }
    for cut in (0..100).chain((0..60).map(|nth| nth * bytes.len() / 60)).chain(bytes.len() - 60..bytes.len())
    {
        refused(&bytes[..cut], &format!("cut at {cut}"));
    }
    refused(&[&bytes[..], b"x"].concat(), "more at the end");
    // what was put meanwhile is nobody's, and goes
    to.reap(&ReapPolicy::default(), false).unwrap();
    assert_eq!(is(&import(&to, &bytes).unwrap()), is(&disk));
}

#[test]
fn a_full_disk_leaves_no_agent_and_the_store_goes_on() {
    let (from, device) = (start(&Simulated::new(1)), Simulated::new(2));
    let to = start(&device);
    let disk = create(&from, "a");
    live(&from, &disk);
    let bytes = export_of(&from, &disk);
    let other = create(&to, "other");
    let mut done = false;
    for room in [0, 100, 300, 600, 1000, 4000] {
        device.inject(Fault::Capacity(device.bytes() + (room << 10)));
        match import(&to, &bytes) {
            Ok(_) => done = true,
            Err(e) => assert!(e.is_no_space() && to.find("a").unwrap().is_none(), "{e}"),
        }
        device.heal_space();
        if done {
            break;
        }
    }
    let came = if done { find(&to, "a") } else { import(&to, &bytes).unwrap() };
    assert_eq!(is(&came), is(&disk));
    live_on(&other);
}

#[test]
fn a_crash_in_the_middle_leaves_all_of_the_agent_or_nothing() {
    let from = start(&Simulated::new(1));
    let disk = create(&from, "a");
    live(&from, &disk);
    let (bytes, whole) = (export_of(&from, &disk), is(&disk));
    let begun = Simulated::new(2);
    let to = start(&begun);
    create(&to, "other");
    let before = begun.operations();
    import(&to, &bytes).unwrap();
    let operations = begun.operations() - before;
    drop(to);
    let (mut there, mut missing) = (0, 0);
    for stop in 0..=operations.min(60) {
        let device = Simulated::new(3 + stop);
        let to = start(&device);
        create(&to, "other");
        // the last operations one by one, and some of those before
        let at = operations.saturating_sub(stop * if stop < 30 { 1 } else { operations / 60 });
        device.inject(Fault::Stop(device.operations() + at));
        let made = import(&to, &bytes).is_ok();
        drop(to);
        let to = start(&device.crash(stop));
        assert!(to.find("other").unwrap().is_some());
        if let Some(id) = to.find("a").unwrap() {
            assert_eq!(is(&to.disk(id).unwrap()), whole);
            there += 1;
        } else {
            assert!(!made, "it was said to be there");
            missing += 1;
        }
    }
    assert!(there > 0 && missing > 20, "{there} {missing}");
}

#[test]
fn an_export_says_whether_the_agent_was_moved_and_nothing_else_can_be_said_there() {
    let store = start(&Simulated::new(1));
    let disk = create(&store, "a");
    let about = disk.info().unwrap().about;
    let mut to = Vec::new();
    let mut exporting = Exporting {
        begin: &mut |_| Ok((about.to_vec(), Vec::new())),
        generation: &mut |_, about| Ok(about.to_vec()),
        is_move: true,
    };
    store.export(&disk, &mut to, &mut exporting).unwrap();
    assert!(ExportAbout::read(&mut &*to).unwrap().is_move);
    assert!(!ExportAbout::read(&mut &*export_of(&store, &disk)).unwrap().is_move);
    for (at, byte) in [(40, 2), (41, 1), (63, 1)] {
        let mut header = to[..64].to_vec();
        header[at] = byte;
        header[12..16].fill(0);
        let sum = crc32fast::hash(&header).to_le_bytes();
        header[12..16].copy_from_slice(&sum);
        let refused = ExportAbout::read(&mut &*header).unwrap_err().to_string();
        assert!(refused.contains("its header says what this program does not know"), "{refused}");
    }
}
