//! Backups hold all of a moment, leave out what an earlier one has, and are verified when they are restored.

use std::io::{Cursor, Read};

use super::*;
use crate::device::simulated::Fault;

fn turn(disk: &Arc<Disk>, seed: u64) {
    disk.begin(TurnStyle::Transaction, &content(seed, 20_000)).unwrap();
    write(disk, EPISODIC, "diary", b"line\n");
    write(disk, WORKSPACE, &format!("large{}", seed % 3), &content(seed, 150_000));
    end(disk, b"done").unwrap();
}

fn file(name: &str, content: &[u8]) -> StreamFile {
    let (bytes, hash) = (content.to_vec(), *blake3::hash(content).as_bytes());
    StreamFile {
        name: name.into(),
        len: content.len() as u64,
        hash,
        open: Box::new(|| Ok(Box::new(Cursor::new(bytes)))),
    }
}

fn back_up(store: &Store, since: Option<&[u8]>, images: &[(&str, &[u8])]) -> (Vec<u8>, BackupReport) {
    let mut to = Vec::new();
    let mut files = |_: &BackedUp<'_>| Ok(images.iter().map(|(name, content)| file(name, content)).collect());
    let mut since = since.map(Cursor::new);
    let since = since.as_mut().map(|it| it as &mut dyn ReadSeek);
    let report = store.backup(&mut to, since, &mut files).unwrap();
    assert_eq!(report.damage, [""; 0]);
    assert_eq!(report.bytes, to.len() as u64);
    (to, report)
}

type Restored = (Simulated, RestoreReport, BTreeMap<String, Vec<u8>>);

fn try_restore(parts: &[&[u8]]) -> Result<Restored, StoreError> {
    let simulated = Simulated::new(99);
    let device: Arc<dyn Device> = Arc::new(simulated.clone());
    let mut readers: Vec<&[u8]> = parts.to_vec();
    let mut readers: Vec<&mut dyn Read> = readers.iter_mut().map(|it| it as &mut dyn Read).collect();
    let mut files = BTreeMap::new();
    let report = Store::restore_on(&device, &mut readers, &mut |name, _, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        files.insert(name.to_owned(), bytes);
        Ok(())
    })?;
    Ok((simulated, report, files))
}

/// What `everything` says, without what another store has of its own.
fn holds(store: &Store) -> BTreeMap<String, Seen> {
    see_all(store)
}

#[test]
fn a_chain_of_backups_restores_each_moment() {
    let store = start(&Simulated::new(1));
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    for seed in 0..4 {
        turn(&a, seed);
        turn(&b, 100 + seed);
    }
    let (full, first) = back_up(&store, None, &[("images/1", b"an image")]);
    assert_eq!((first.files, first.earlier), (1, 0));
    let then = holds(&store);
    turn(&a, 50);
    store.remove(b.id()).unwrap();
    store.reap(&ReapPolicy::default(), false).unwrap();
    let c = fork(&store, &a, a.info().unwrap().head, "c").unwrap();
    turn(&c, 60);
    let images: [(&str, &[u8]); 2] = [("images/1", b"an image"), ("images/2", b"another")];
    let (more, second) = back_up(&store, Some(&full), &images);
    assert!(second.files == 1 && second.earlier > 10, "{second:?}");
    assert!(second.bytes < first.bytes / 2 && second.bytes > 300_000, "{} {}", first.bytes, second.bytes);
    let now = holds(&store);
    let (nothing, third) = back_up(&store, Some(&more), &images[1..]);
    assert!(third.frames <= 4 && third.files == 0, "{third:?}");

    let (device, report, files) = try_restore(&[&full]).unwrap();
    assert_eq!(report.files, ["images/1"]);
    assert_eq!(files["images/1"], b"an image");
    for _ in 0..2 {
        let restored = start(&device);
        assert_eq!(holds(&restored), then);
    }
    for parts in [vec![&full[..], &more], vec![&full, &more, &nothing]] {
        let count = parts.len();
        let (device, report, files) = try_restore(&parts).unwrap();
        assert_eq!(report.files.len(), if count == 2 { 2 } else { 1 });
        assert_eq!(files.len(), 2);
        let restored = start(&device);
        assert_eq!(holds(&restored), now);
        assert_ne!(restored.incarnation().unwrap(), store.incarnation().unwrap());
        // work goes on
        let a = find(&restored, "a");
        turn(&a, 70);
        restored.reap(&ReapPolicy::default(), false).unwrap();
        let seen = holds(&restored);
        drop((restored, a));
        assert_eq!(holds(&start(&device)), seen);
    }
}

#[test]
fn what_is_damaged_incomplete_or_out_of_order_is_refused() {
    let store = start(&Simulated::new(1));
    let a = create(&store, "a");
    turn(&a, 1);
    let (full, _) = back_up(&store, None, &[("image", b"an image")]);
    turn(&a, 2);
    let (more, _) = back_up(&store, Some(&full), &[]);
    let refused = |parts: &[&[u8]]| match try_restore(parts) {
        Err(StoreError::Backup(reason) | StoreError::BackupPart { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was restored"),
    };
    assert!(refused(&[]).contains("nothing to restore"));
    assert!(refused(&[&more]).contains("has to come before it"));
    assert!(refused(&[&full, &full]).contains("is of everything"));
    assert!(refused(&[&full, &more, &more]).contains("another backup than the one"));
    for other in [&b""[..], b"dorm", b"a note to myself, and no backup at all"] {
        assert_eq!(refused(&[other]), "is no backup");
    }
    let second = try_restore(&[&full, &more[..more.len() / 2]]).map(drop).unwrap_err();
    assert!(second.to_string().starts_with("part 2 of what is to be restored is truncated"), "{second}");
    let mut newer = full.clone();
    newer[8] = 9;
    assert!(refused(&[&newer]).contains("format 9"));
    let mut refusals = 0;
    for at in (0..full.len() - 16).step_by(full.len() / 150) {
        let mut damaged = full.clone();
        damaged[at] ^= 0x40;
        refused(&[&damaged]);
        let cut = refused(&[&full[..at]]);
        assert!(cut.starts_with("is truncated") || at < 8, "{at}: {cut}");
        refusals += 1;
    }
    assert!(refusals > 100);
    // its very end, and what is behind it
    assert!(refused(&[&full[..full.len() - 3]]).starts_with("is truncated"));
    let mut damaged = full.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(refused(&[&damaged]).contains("does not end as a backup does"));
    for (behind, said) in
        [(&b"x"[..], "1 byte follows"), (&full[..3], "3 bytes follow"), (&vec![0; 2 << 20], "or more follow")]
    {
        let followed = [&full[..], behind].concat();
        assert!(refused(&[&followed]).contains(said), "{said}");
        assert!(refused(&[&full, &[&more[..], behind].concat()]).contains(said), "{said}");
    }
    // another store's
    let other = start(&Simulated::new(2));
    create(&other, "a");
    let mut since = Cursor::new(&full[..]);
    let error = other.backup(&mut Vec::new(), Some(&mut since), &mut |_| Ok(Vec::new())).unwrap_err();
    assert!(error.to_string().contains("the backup before it is of the store"), "{error}");
    let error = store.backup(&mut Vec::new(), Some(&mut Cursor::new(&full[..200])), &mut |_| Ok(Vec::new()));
    assert!(error.unwrap_err().to_string().starts_with("the backup before it is truncated"));
    // a file that changes meanwhile
    let error = store.backup(&mut Vec::new(), None, &mut |_| {
        Ok(vec![StreamFile { hash: [0; 32], ..file("image", b"an image") }])
    });
    assert!(error.unwrap_err().to_string().contains("not what it was said to be"));
    // a folder that is in use
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), b"").unwrap();
    let mut part = &full[..];
    let error = Store::restore(folder.path(), &[], &mut [&mut part], &mut |_, _, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    let mut part = &full[..];
    let to = folder.path().join("restored");
    Store::restore(&to, &[], &mut [&mut part], &mut |_, _, content| {
        std::io::copy(content, &mut std::io::sink()).map(|_| ())
    })
    .unwrap();
    let restored = Store::open(&to, &StoreOptions::default()).unwrap();
    assert_eq!(restored.agents().unwrap().len(), 1);
}

/// `cp -r` of a store that is then used beside the first, with the same id and the same key.
#[test]
fn a_copy_of_a_store_goes_on_from_none_of_the_others_backups() {
    let device = Simulated::new(1);
    let store = start(&device);
    turn(&create(&store, "a"), 1);
    let (full, _) = back_up(&store, None, &[]);
    let copy = start(&device.killed());
    turn(&find(&store, "a"), 2);
    turn(&find(&copy, "a"), 3);
    let (more, _) = back_up(&store, Some(&full), &[]);
    let refused = copy.backup(&mut Vec::new(), Some(&mut Cursor::new(&more)), &mut |_| Ok(Vec::new()));
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("a copy of the store") && said.contains("gone on by itself"), "{said}");
    // each goes on from what was made before they parted
    let (others, _) = back_up(&copy, Some(&full), &[]);
    let seen = (holds(&store), holds(&copy));
    drop((store, copy));
    let again = start(&device.crash(1));
    let (last, _) = back_up(&again, Some(&more), &[]);
    assert_eq!(holds(&start(&try_restore(&[&full, &more, &last]).unwrap().0)), seen.0);
    assert_eq!(holds(&start(&try_restore(&[&full, &others]).unwrap().0)), seen.1);
    // one that is restored is another store, although its key is the same
    let restored = start(&try_restore(&[&full, &more]).unwrap().0);
    let refused = restored.backup(&mut Vec::new(), Some(&mut Cursor::new(&more)), &mut |_| Ok(Vec::new()));
    assert!(refused.unwrap_err().to_string().contains("the backup before it is of the store"));
}

/// The list of what was made is only so long, and what does not read of it is no reason to refuse.
#[test]
fn a_store_that_has_no_list_of_its_backups_begins_one() {
    let device = Simulated::new(1);
    let store = start(&device);
    turn(&create(&store, "a"), 1);
    let (full, _) = back_up(&store, None, &[]);
    for damage in [|bytes: &mut Vec<u8>| bytes[20] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(30)] {
        device.tamper("backups", damage).unwrap();
        let (more, _) = back_up(&store, Some(&full), &[]);
        try_restore(&[&full, &more]).unwrap();
        let refused = store.backup(&mut Vec::new(), Some(&mut Cursor::new(&full)), &mut |_| Ok(Vec::new()));
        assert!(refused.is_err(), "the list has begun anew");
    }
    device.remove("backups").unwrap();
    back_up(&store, Some(&full), &[]);
}

#[test]
fn agents_go_on_while_a_backup_is_made() {
    let store = start(&Simulated::new(1));
    let a = create(&store, "a");
    for seed in 0..3 {
        turn(&a, seed);
    }
    /// Lets the agent work each time something is written.
    struct Busy<'a>(Vec<u8>, &'a Arc<Disk>, u64);
    impl std::io::Write for Busy<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.2 += 1;
            if self.2.is_multiple_of(5) {
                turn(self.1, 1000 + self.2);
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let then = see(&a);
    let mut to = Busy(Vec::new(), &a, 0);
    store.backup(&mut to, None, &mut |_| Ok(Vec::new())).unwrap();
    let turns = to.2 / 5;
    assert!(turns > 5);
    let (device, ..) = try_restore(&[&to.0]).unwrap();
    assert_eq!(see(&find(&start(&device), "a")), then);
    assert_eq!(see(&a).last_turn, then.last_turn + turns);
}

#[test]
fn an_interrupted_restore_leaves_no_store() {
    let store = start(&Simulated::new(1));
    turn(&create(&store, "a"), 1);
    let (full, _) = back_up(&store, None, &[]);
    let seen = holds(&store);
    let (mut none, mut stop) = (0, 1);
    loop {
        let device = Simulated::new(stop);
        device.inject(Fault::Stop(stop));
        let mut part = &full[..];
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        let restored = Store::restore_on(&shared, &mut [&mut part], &mut |_, _, _| Ok(()));
        let after = device.crash(stop);
        match crate::superblock::SuperblockFile::peek(&after) {
            Err(_) => {
                assert!(restored.is_err());
                none += 1;
            }
            // either it begins without its log, or it is all there
            Ok(found) if found.catalogue.is_none() => assert!(restored.is_err()),
            Ok(_) => assert_eq!(holds(&start(&after)), seen, "stop {stop}"),
        }
        if restored.is_ok() {
            break;
        }
        stop += 1;
    }
    assert!(none > 10, "{none}");
}
