use super::*;
use crate::tree::{CHUNK, MAX_INLINE};

const ROOT: Inode = Inode::ROOT;

#[test]
fn files_cross_from_inline_to_chunks_and_back() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", &pattern(MAX_INLINE, 1));
    assert_eq!(zone.resident_bytes(), 0);
    zone.append(agent(3), file, b"more").unwrap();
    let mut expected = pattern(MAX_INLINE, 1);
    expected.extend(b"more");
    assert_eq!(content(&mut zone, file), expected);
    zone.snapshot().unwrap();
    assert_eq!(zone.resident_bytes(), MAX_INLINE + 4);
    for size in [MAX_INLINE, CHUNK + 1, CHUNK, MAX_INLINE + 1, 10, 0, 5] {
        zone.set_size(agent(3), file, size as u64).unwrap();
        expected.resize(size, 0);
        assert_eq!(content(&mut zone, file), expected, "{size}");
    }
    zone.snapshot().unwrap();
    assert_eq!(zone.resident_bytes(), 0);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", &vec![7; 3 * CHUNK]);
    for size in [2 * CHUNK + 10, CHUNK + 10, CHUNK, 3000, 100] {
        zone.set_size(agent(3), file, size as u64).unwrap();
        zone.set_size(agent(3), file, 3 * CHUNK as u64).unwrap();
        let found = content(&mut zone, file);
        assert!(found[..size].iter().all(|byte| *byte == 7) && found[size..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn holes_read_as_zeros_and_take_no_memory() {
    let quota = Quota { bytes: MAX_FILE_SIZE, ..Quota::default() };
    let mut zone = Zone::new(ZoneKind::Workspace, quota, Timestamp(1), store());
    let file = make(&mut zone, "f", b"start");
    zone.write(agent(3), file, MAX_FILE_SIZE - 3, b"end").unwrap();
    assert_eq!(zone.stat(agent(3), file).unwrap().size, MAX_FILE_SIZE);
    let mut bytes = [1; 10];
    assert_eq!(zone.read(agent(3), file, MAX_FILE_SIZE - 6, &mut bytes).unwrap(), 6);
    assert_eq!(&bytes[..6], b"\0\0\0end");
    assert_eq!(zone.read(agent(3), file, 1 << 35, &mut bytes).unwrap(), 10);
    assert_eq!(bytes, [0; 10]);
    let shared = zone.read_shared(agent(3), file, 1 << 35, usize::MAX).unwrap();
    assert_eq!((shared.len(), shared.iter().max()), (CHUNK, Some(&0)));
    assert_eq!(code(zone.write(agent(3), file, MAX_FILE_SIZE, b"x")), ErrorCode::FileTooLarge);
    assert_eq!(code(zone.write(agent(3), file, u64::MAX, b"x")), ErrorCode::FileTooLarge);
    assert_eq!(code(zone.set_size(agent(3), file, MAX_FILE_SIZE + 1)), ErrorCode::FileTooLarge);
    assert_eq!(zone.read(agent(3), file, u64::MAX, &mut bytes).unwrap(), 0);
    zone.snapshot().unwrap();
    assert!(zone.resident_bytes() <= 2 * CHUNK);
    zone.set_size(agent(3), file, 0).unwrap();
    assert_eq!(zone.usage().bytes, 0);
}

#[test]
fn quota_is_checked_before_anything_is_done() {
    let quota = Quota { bytes: 10, inodes: 2 };
    let mut zone = Zone::new(ZoneKind::Workspace, quota, Timestamp(1), store());
    let file = make(&mut zone, "f", b"12345678");
    let before = zone.stat(agent(3), file).unwrap();
    let full = zone.append(agent(3), file, b"9ab").unwrap_err();
    assert_eq!(full.to_string(), "quota: 8 of 10 bytes are used, and 3 more were asked for");
    assert_eq!(code(zone.set_size(agent(3), file, 11)), ErrorCode::Quota);
    assert_eq!(code(zone.symlink(agent(3), b"abc", ROOT, b"l")), ErrorCode::Quota);
    assert_eq!(zone.stat(agent(4), file).unwrap(), before);
    zone.write(agent(3), file, 6, b"789a").unwrap();
    zone.write(agent(3), file, 0, b"overwritten"[..10].into()).unwrap();
    make(&mut zone, "g", b"");
    assert_eq!(code(zone.mkdir(agent(3), ROOT, b"d")), ErrorCode::Quota);
    assert_eq!(code(zone.open(agent(3), ROOT, b"h", CREATE)), ErrorCode::Quota);
    assert_eq!(code(zone.link(agent(3), (ROOT, b"f"), true, (ROOT, b"h"))), ErrorCode::Quota);
    assert_eq!(zone.usage(), Usage { bytes: 10, inodes: 2 });
    assert_eq!(names(&zone, ROOT), ["f", "g"]);
    // A quota below what is used stops growth, and lets go of nothing.
    zone.set_quota(Quota { bytes: 1, inodes: 1 });
    assert_eq!(code(zone.append(agent(3), file, b"x")), ErrorCode::Quota);
    zone.set_size(agent(3), file, 5).unwrap();
    zone.write(agent(3), file, 0, b"x").unwrap();
    zone.unlink(agent(3), ROOT, b"g").unwrap();
    assert_eq!(content(&mut zone, file), b"xverw");
}

#[test]
fn files_are_used_only_while_they_are_open() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", b"x");
    let directory = zone.mkdir(agent(2), ROOT, b"d").unwrap();
    zone.open_inode(directory).unwrap();
    assert_eq!(code(zone.write(agent(3), directory, 0, b"x")), ErrorCode::IsDirectory);
    assert_eq!(code(zone.read(agent(3), directory, 0, &mut [0])), ErrorCode::IsDirectory);
    zone.open_inode(file).unwrap();
    zone.close(file).unwrap();
    assert_eq!(zone.references(file), 1);
    zone.append(agent(3), file, b"y").unwrap();
    zone.close(file).unwrap();
    for failed in [
        zone.read(agent(3), file, 0, &mut [0]).map(drop),
        zone.read_shared(agent(3), file, 0, 1).map(drop),
        zone.write(agent(3), file, 0, b"x").map(drop),
        zone.append(agent(3), file, b"x").map(drop),
        zone.set_size(agent(3), file, 0),
        zone.advise(agent(3), file, 0, 1),
        zone.close(file),
    ] {
        assert_eq!(code(failed), ErrorCode::BadDescriptor);
    }
    assert_eq!(zone.stat(agent(3), file).unwrap().size, 2);
    assert_eq!(code(zone.open_inode(Inode(99))), ErrorCode::NoEntry);
}

#[test]
fn times_are_those_of_the_caller() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", b"");
    let times = |zone: &Zone, inode| {
        let stat = zone.stat(agent(99), inode).unwrap();
        [stat.accessed.0, stat.modified.0, stat.changed.0]
    };
    assert_eq!(times(&zone, file), [2, 2, 2]);
    zone.append(agent(5), file, b"x").unwrap();
    assert_eq!(times(&zone, file), [2, 5, 5]);
    zone.read(agent(6), file, 0, &mut [0]).unwrap();
    assert_eq!(times(&zone, file), [2, 5, 5]);
    zone.set_times(agent(7), file, Some(Timestamp(100)), None).unwrap();
    assert_eq!(times(&zone, file), [100, 5, 7]);
    zone.set_times(agent(8), ROOT, None, Some(Timestamp(3))).unwrap();
    assert_eq!(times(&zone, ROOT), [1, 3, 8]);
    zone.rename(agent(9), (ROOT, b"f"), (ROOT, b"g")).unwrap();
    assert_eq!((times(&zone, file), times(&zone, ROOT)), ([100, 5, 9], [1, 9, 9]));
    zone.write(agent(10), file, 0, b"").unwrap();
    assert_eq!(times(&zone, file), [100, 5, 9], "writing nothing changes nothing");
}

#[test]
fn advice_is_checked_and_changes_nothing() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", b"x");
    zone.advise(agent(3), file, 0, u64::MAX).unwrap();
    assert_eq!(code(zone.advise(agent(3), file, 1, u64::MAX)), ErrorCode::Invalid);
}

#[test]
fn shared_content_stays_as_it_was_read() {
    let mut zone = zone(ZoneKind::Workspace);
    let big = make(&mut zone, "big", &pattern(CHUNK, 1));
    let small = make(&mut zone, "small", b"before");
    let held = zone.read_shared(agent(3), big, 100, 50).unwrap();
    let held_small = zone.read_shared(agent(3), small, 2, 50).unwrap();
    zone.write(agent(3), big, 0, &[0; 1000]).unwrap();
    zone.write(agent(3), small, 0, b"after!").unwrap();
    assert_eq!(*held, pattern(CHUNK, 1)[100..150]);
    assert_eq!(&*held_small, b"fore");
}
