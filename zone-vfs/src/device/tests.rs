//! The same behaviour is asked of every device.

use super::simulated::{Fault, Rng, Simulated};
use super::*;

/// Every device there is, on a folder that goes with the returned guard.
pub(crate) fn every_device(mut run: impl FnMut(Arc<dyn Device>)) {
    for kind in [DeviceKind::Blocking, DeviceKind::Best] {
        let folder = tempfile::tempdir().unwrap();
        run(open(folder.path(), kind).unwrap());
    }
    run(Arc::new(Simulated::new(1)));
}

#[test]
fn the_best_device_is_uring_where_the_host_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let best = open(folder.path(), DeviceKind::Best).unwrap().kind();
    match open(folder.path(), DeviceKind::Uring) {
        Ok(device) => assert_eq!((device.kind(), best), ("uring", "uring")),
        Err(_) => assert_eq!(best, "blocking"),
    }
    assert_eq!(open(folder.path(), DeviceKind::Blocking).unwrap().kind(), "blocking");
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert_eq!(open(&file, DeviceKind::Best).unwrap_err().kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn files_hold_what_is_written() {
    every_device(|device| {
        for caching in [Caching::Cached, Caching::Direct] {
            let path = format!("log/{caching:?}");
            let file = device.create(&path, 3 * BLOCK as u64, caching).unwrap();
            assert_eq!(file.len().unwrap(), 3 * BLOCK as u64);
            assert!(!file.is_empty().unwrap());
            let mut buf = AlignedBuf::new();
            buf.extend_from_slice(&[9; 5000]);
            buf.pad();
            file.write_durably(BLOCK as u64, &buf).unwrap();
            let file = device.open(&path, caching).unwrap();
            let mut all = vec![1; 3 * BLOCK];
            file.read_at(0, &mut all).unwrap();
            assert!(all[..BLOCK].iter().all(|b| *b == 0), "{device:?}");
            assert!(all[BLOCK..BLOCK + 5000].iter().all(|b| *b == 9));
            let mut odd = [0; 10];
            file.read_at(BLOCK as u64 + 4995, &mut odd).unwrap();
            assert_eq!(odd, [9, 9, 9, 9, 9, 0, 0, 0, 0, 0]);
            let past = file.read_at(3 * BLOCK as u64 - 5, &mut odd).unwrap_err();
            assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        }
        let again = device.create("log/Cached", 0, Caching::Cached).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    });
}

#[test]
fn what_is_done_meanwhile_is_done_once() {
    every_device(|device| {
        for caching in [Caching::Cached, Caching::Direct] {
            let path = format!("log/{caching:?}");
            let file = device.create(&path, 2 * BLOCK as u64, caching).unwrap();
            let mut buf = AlignedBuf::new();
            buf.extend_from_slice(&[9; BLOCK]);
            let mut times = 0;
            file.write_durably_while(0, &buf, &mut || {
                times += 1;
                // whoever is told there may write, too
                file.write_durably_while(BLOCK as u64, &buf, &mut || times += 10).unwrap();
            })
            .unwrap();
            assert_eq!(times, 11, "{device:?}");
            let mut all = vec![0; 2 * BLOCK];
            file.read_at(0, &mut all).unwrap();
            assert!(all.iter().all(|b| *b == 9), "{device:?}");
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                file.write_durably_while(0, &buf, &mut || panic!("while the kernel has the bytes"))
            }));
            assert!(caught.is_err());
            file.write_durably(0, &buf).unwrap();
        }
    });
}

#[test]
fn cached_files_grow() {
    every_device(|device| {
        let file = device.create("grows", 0, Caching::Cached).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(0, b"abc").unwrap();
        file.write_at(3, b"def").unwrap();
        file.flush().unwrap();
        let mut buf = [0; 6];
        device.open("grows", Caching::Cached).unwrap().read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"abcdef");
    });
}

#[test]
fn names_are_listed_renamed_and_removed() {
    every_device(|device| {
        assert!(device.list("log").unwrap().is_empty());
        for name in ["log/b", "log/a", "top"] {
            device.create(name, 0, Caching::Cached).unwrap();
        }
        assert_eq!(device.list("log").unwrap(), ["a", "b"]);
        assert_eq!(device.list("").unwrap(), ["top"]);
        device.rename("log/b", "log/a").unwrap();
        assert_eq!(device.list("log").unwrap(), ["a"]);
        device.remove("log/a").unwrap();
        assert!(device.list("log").unwrap().is_empty());
        assert_eq!(device.remove("log/a").unwrap_err().kind(), io::ErrorKind::NotFound);
        let missing = device.open("log/a", Caching::Cached).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn paths_stay_inside() {
    every_device(|device| {
        for path in ["", "/etc/x", "../x", "a/../x", "a/b/c", "a//b", "a\0b", &"x".repeat(200)] {
            let refused = device.create(path, 0, Caching::Cached).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    });
}

#[test]
fn files_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("store");
    let device = open(&root, DeviceKind::Best).unwrap();
    device.create("log/1", 10, Caching::Cached).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("log")), 0o700);
    assert_eq!(mode(&root.join("log/1")), 0o600);
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    assert!(device.open("link", Caching::Cached).is_err());
}

#[test]
fn random_numbers_differ() {
    every_device(|device| {
        let (mut a, mut b) = ([0; 16], [0; 16]);
        device.random(&mut a).unwrap();
        device.random(&mut b).unwrap();
        assert_ne!(a, b);
    });
}

#[test]
fn a_crash_keeps_what_was_flushed_and_loses_some_of_the_rest() {
    let (mut kept, mut lost, mut mixed) = (0, 0, 0);
    for seed in 0..200 {
        let device = Simulated::new(seed);
        let file = device.create("f", 8192, Caching::Cached).unwrap();
        file.write_at(0, &[1; 4096]).unwrap();
        file.flush().unwrap();
        file.write_at(4096, &[2; 4096]).unwrap();
        let mut found = [0; 8192];
        device.crash(seed).open("f", Caching::Cached).unwrap().read_at(0, &mut found).unwrap();
        assert!(found[..4096].iter().all(|b| *b == 1), "seed {seed}");
        match found[4096..].iter().map(|b| usize::from(*b)).sum() {
            0 => lost += 1,
            8192 => kept += 1,
            _ => mixed += 1,
        }
        let mut all = [0; 8192];
        device.killed().open("f", Caching::Cached).unwrap().read_at(0, &mut all).unwrap();
        assert!(all[4096..].iter().all(|b| *b == 2));
    }
    assert!(kept > 10 && lost > 10 && mixed > 10, "{kept} {lost} {mixed}");
}

#[test]
fn faults_happen_when_told() {
    let device = Simulated::new(0);
    let file = device.create("f", 0, Caching::Cached).unwrap();
    device.inject(Fault::Write(2));
    device.inject(Fault::Flush(1));
    device.inject(Fault::Capacity(4));
    file.write_at(0, b"one").unwrap();
    assert!(file.write_at(0, b"two").is_err());
    assert!(file.flush().is_err());
    file.flush().unwrap();
    let full = file.write_at(0, b"three").unwrap_err();
    assert!(is_no_space(&full));
    let after = device.crash(3).open("f", Caching::Cached).unwrap();
    let mut left = vec![1; after.len().unwrap() as usize];
    after.read_at(0, &mut left).unwrap();
    assert!(left.iter().all(|byte| *byte == 0), "the failed flush lost it");
    device.heal();
    device.inject(Fault::Stop(device.operations() + 1));
    assert!(file.write_at(0, b"x").is_err());
    assert!(file.len().is_err() && device.list("").is_err(), "a stopped machine answers nothing");
}

#[test]
fn the_generator_repeats() {
    let (mut a, mut b) = (Rng::new(7), Rng::new(7));
    assert!((0..100).all(|_| a.bits() == b.bits()));
}

#[test]
fn folders_are_synced_when_a_name_in_them_changes() {
    use super::blocking::watched;
    for kind in [DeviceKind::Blocking, DeviceKind::Best] {
        for forgets in [false, true] {
            watched::forget_folders(forgets);
            let parent = tempfile::tempdir().unwrap();
            let root = parent.path().join("store");
            let expect = |changed: &[&Path]| {
                let wanted = if forgets { changed } else { &[] };
                assert!(watched::take_unsynced().iter().eq(wanted), "{kind:?}: {changed:?}");
            };
            let device = open(&root, kind).unwrap();
            expect(&[parent.path()]);
            device.create("log/a", 10, Caching::Cached).unwrap();
            expect(&[&root, &root.join("log")]);
            device.create("top", 0, Caching::Direct).unwrap();
            expect(&[&root]);
            device.rename("top", "log/b").unwrap();
            expect(&[&root, &root.join("log")]);
            device.rename("log/a", "segments/a").unwrap();
            expect(&[&root, &root.join("log"), &root.join("segments")]);
            device.remove("segments/a").unwrap();
            expect(&[&root.join("segments")]);
        }
    }
}
