use super::*;
use crate::tree::Name;

const ROOT: Inode = Inode::ROOT;

fn mkdir(zone: &mut Zone, path: &str) -> Inode {
    zone.mkdir(agent(2), ROOT, path.as_bytes()).unwrap()
}

#[test]
fn rename_follows_posix() {
    let mut zone = zone(ZoneKind::Workspace);
    mkdir(&mut zone, "d");
    mkdir(&mut zone, "d/in");
    mkdir(&mut zone, "empty");
    make(&mut zone, "f", b"f");
    make(&mut zone, "g", b"g");
    let mut rename =
        |from: &str, to: &str| zone.rename(agent(5), (ROOT, from.as_bytes()), (ROOT, to.as_bytes()));
    assert_eq!(code(rename("missing", "x")), ErrorCode::NoEntry);
    assert_eq!(code(rename("f", "missing/x")), ErrorCode::NoEntry);
    assert_eq!(code(rename("f", "d")), ErrorCode::IsDirectory);
    assert_eq!(code(rename("d", "f")), ErrorCode::NotDirectory);
    assert_eq!(code(rename("empty", "d")), ErrorCode::NotEmpty);
    assert_eq!(code(rename("d", "d/in/x")), ErrorCode::Invalid);
    assert_eq!(code(rename("d", "d/x")), ErrorCode::Invalid);
    assert_eq!(code(rename("f", "x/")), ErrorCode::NotDirectory);
    assert_eq!(code(rename("f/", "x")), ErrorCode::NotDirectory);
    assert_eq!(code(rename(".", "x")), ErrorCode::Busy);
    assert_eq!(code(rename("d", "d/in/..")), ErrorCode::Busy);
    rename("f", "f").unwrap();
    rename("d", "empty/").unwrap();
    rename("f", "g").unwrap();
    rename("empty", "fresh/").unwrap();
    assert_eq!(names(&zone, ROOT), ["fresh", "g"]);
    let g = zone.open(agent(5), ROOT, b"g", READ).unwrap();
    assert_eq!(content(&mut zone, g), b"f");
    assert_eq!(zone.usage(), Usage { bytes: 1 + 1, inodes: 3 + 1 }, "the replaced `g` is still open");
}

#[test]
fn a_moved_directory_cannot_move_into_what_it_now_contains() {
    let mut zone = zone(ZoneKind::Workspace);
    mkdir(&mut zone, "a");
    mkdir(&mut zone, "b");
    mkdir(&mut zone, "b/c");
    zone.rename(agent(3), (ROOT, b"b"), (ROOT, b"a/b")).unwrap();
    assert_eq!(code(zone.rename(agent(3), (ROOT, b"a"), (ROOT, b"a/b/c/a"))), ErrorCode::Invalid);
}

#[test]
fn directories_move_only_so_deep() {
    let mut zone = zone(ZoneKind::Workspace);
    mkdir(&mut zone, "moved");
    let mut at = ROOT;
    for depth in 1..=MAX_DIRECTORY_DEPTH {
        at = zone.mkdir(agent(2), at, b"d").unwrap();
        if depth == MAX_DIRECTORY_DEPTH - 1 {
            zone.rename(agent(3), (ROOT, b"moved"), (at, b"moved")).unwrap();
            zone.rename(agent(3), (at, b"moved"), (ROOT, b"moved")).unwrap();
        }
    }
    assert_eq!(code(zone.rename(agent(3), (ROOT, b"moved"), (at, b"moved"))), ErrorCode::Invalid);
    make(&mut zone, "f", b"");
    zone.rename(agent(3), (ROOT, b"f"), (at, b"f")).unwrap();
}

#[test]
fn removing_follows_posix() {
    let mut zone = zone(ZoneKind::Workspace);
    mkdir(&mut zone, "d");
    mkdir(&mut zone, "d/in");
    make(&mut zone, "f", b"");
    zone.symlink(agent(2), b"d", ROOT, b"l").unwrap();
    let mut rmdir = |path: &str| zone.rmdir(agent(3), ROOT, path.as_bytes());
    assert_eq!(code(rmdir("d")), ErrorCode::NotEmpty);
    assert_eq!(code(rmdir("f")), ErrorCode::NotDirectory);
    assert_eq!(code(rmdir("l")), ErrorCode::NotDirectory);
    assert_eq!(code(rmdir("l/")), ErrorCode::NotDirectory);
    assert_eq!(code(rmdir(".")), ErrorCode::Invalid);
    assert_eq!(code(rmdir("missing")), ErrorCode::NoEntry);
    rmdir("d/in/").unwrap();
    rmdir("d").unwrap();
    let mut unlink = |path: &str| zone.unlink(agent(3), ROOT, path.as_bytes());
    assert_eq!(code(unlink("f/")), ErrorCode::NotDirectory);
    assert_eq!(code(unlink(".")), ErrorCode::IsDirectory);
    unlink("l").unwrap();
    unlink("f").unwrap();
    assert_eq!(code(unlink("f")), ErrorCode::NoEntry);
    assert!(names(&zone, ROOT).is_empty());
}

#[test]
fn making_what_exists_fails() {
    let mut zone = zone(ZoneKind::Workspace);
    mkdir(&mut zone, "d/");
    make(&mut zone, "f", b"");
    zone.symlink(agent(2), b"d", ROOT, b"l").unwrap();
    for path in ["d", "d/", "f", "f/", "l", "l/", ".", "d/.."] {
        assert_eq!(code(zone.mkdir(agent(3), ROOT, path.as_bytes())), ErrorCode::Exist, "{path}");
    }
    assert_eq!(code(zone.mkdir(agent(3), ROOT, b"f/x")), ErrorCode::NotDirectory);
    assert_eq!(code(zone.symlink(agent(3), b"d", ROOT, b"x/")), ErrorCode::NoEntry);
    assert_eq!(code(zone.symlink(agent(3), &[b'x'; 4097], ROOT, b"x")), ErrorCode::NameTooLong);
    assert_eq!(code(zone.symlink(agent(3), b"", ROOT, b"x")), ErrorCode::NoEntry);
}

#[test]
fn a_file_can_have_several_names() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "f", b"shared");
    zone.symlink(agent(2), b"f", ROOT, b"l").unwrap();
    zone.link(agent(3), (ROOT, b"f"), false, (ROOT, b"g")).unwrap();
    zone.link(agent(3), (ROOT, b"l"), false, (ROOT, b"l2")).unwrap();
    zone.link(agent(3), (ROOT, b"l"), true, (ROOT, b"h")).unwrap();
    assert_eq!(zone.stat(agent(3), file).unwrap().links, 3);
    assert_eq!(zone.stat_at(agent(3), ROOT, b"l2", false).unwrap().kind, FileKind::Symlink);
    assert_eq!(zone.usage().inodes, 5);
    mkdir(&mut zone, "d");
    assert_eq!(code(zone.link(agent(3), (ROOT, b"d"), false, (ROOT, b"e"))), ErrorCode::NotPermitted);
    zone.rename(agent(4), (ROOT, b"f"), (ROOT, b"g")).unwrap();
    assert_eq!(names(&zone, ROOT), ["d", "f", "g", "h", "l", "l2"], "two names of one file both stay");
    for name in ["f", "g", "h"] {
        zone.unlink(agent(5), ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(content(&mut zone, file), b"shared");
    zone.close(file).unwrap();
    assert_eq!(code(zone.stat(agent(5), file)), ErrorCode::NoEntry);
}

#[test]
fn a_removed_directory_that_is_open_takes_nothing_in() {
    let mut zone = zone(ZoneKind::Workspace);
    let directory = mkdir(&mut zone, "d");
    zone.open_inode(directory).unwrap();
    zone.rmdir(agent(3), ROOT, b"d").unwrap();
    assert_eq!(zone.stat(agent(3), directory).unwrap().links, 0);
    assert!(names(&zone, directory).is_empty());
    assert_eq!(code(zone.mkdir(agent(3), directory, b"x")), ErrorCode::NoEntry);
    assert_eq!(code(zone.open(agent(3), directory, b"x", CREATE)), ErrorCode::NoEntry);
    make(&mut zone, "f", b"");
    assert_eq!(code(zone.rename(agent(3), (ROOT, b"f"), (directory, b"f"))), ErrorCode::NoEntry);
    zone.close(directory).unwrap();
    assert_eq!(zone.usage().inodes, 1);
}

#[test]
fn listing_goes_on_after_a_name_whatever_changed() {
    let mut zone = zone(ZoneKind::Workspace);
    let directory = mkdir(&mut zone, "d");
    for name in ["b", "d", "f", "h"] {
        let file = make(&mut zone, &format!("d/{name}"), b"");
        zone.close(file).unwrap();
    }
    let list = |zone: &Zone, after: Option<&str>, max| -> Vec<String> {
        let after = after.map(|name| Name::new(name.as_bytes()).unwrap());
        let entries = zone.readdir(agent(3), directory, after.as_ref(), max).unwrap();
        entries.iter().map(|entry| entry.name.to_string()).collect()
    };
    assert_eq!(list(&zone, None, 2), ["b", "d"]);
    zone.unlink(agent(3), directory, b"d").unwrap();
    make(&mut zone, "d/a", b"");
    make(&mut zone, "d/e", b"");
    assert_eq!(list(&zone, Some("d"), 2), ["e", "f"]);
    assert_eq!(list(&zone, Some("f"), 2), ["h"]);
    assert!(list(&zone, Some("h"), 2).is_empty());
    assert!(list(&zone, None, 0).is_empty());
    let file = zone.resolve(agent(3), directory, b"a", false).unwrap();
    assert_eq!(code(zone.readdir(agent(3), file, None, 1)), ErrorCode::NotDirectory);
}

#[test]
fn an_orphan_outlives_the_process_that_had_it_open() {
    let store = store();
    let mut zone = Zone::new(ZoneKind::Workspace, Quota::default(), Timestamp(1), store.clone());
    let kept = make(&mut zone, "kept", &pattern(100_000, 1));
    let lost = make(&mut zone, "lost", b"lost");
    for name in ["kept", "lost"] {
        zone.unlink(agent(2), ROOT, name.as_bytes()).unwrap();
    }
    let stored = zone.snapshot().unwrap().store(&*store).unwrap();
    let mut resumed = Zone::from_root(ZoneRoot::load(stored), store);
    resumed.open_inode(kept).unwrap();
    resumed.drop_orphans_except(&[kept].into()).unwrap();
    assert_eq!(code(resumed.stat(agent(3), lost)), ErrorCode::NoEntry);
    assert_eq!(content(&mut resumed, kept), pattern(100_000, 1));
    assert_eq!(resumed.usage(), Usage { bytes: 100_000, inodes: 1 });
    resumed.close(kept).unwrap();
    assert_eq!(resumed.usage(), Usage::default());
    assert_eq!(content(&mut zone, lost), b"lost", "the zone it came from has not changed");
}
