use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn link_to(zone: &mut Zone, path: &str, target: &str) -> Inode {
    zone.symlink(agent(2), target.as_bytes(), Inode::ROOT, path.as_bytes()).unwrap()
}

fn mkdir(zone: &mut Zone, path: &str) -> Inode {
    zone.mkdir(agent(2), Inode::ROOT, path.as_bytes()).unwrap()
}

/// `a/b/file`, and links in `a`.
fn tree() -> (Zone, Inode, Inode, Inode) {
    let mut zone = zone(ZoneKind::Workspace);
    let a = mkdir(&mut zone, "a");
    let b = mkdir(&mut zone, "a/b");
    let file = make(&mut zone, "a/b/file", b"content");
    link_to(&mut zone, "a/to-file", "b/file");
    link_to(&mut zone, "a/to-b", "b");
    link_to(&mut zone, "a/to-b-slash", "b/");
    link_to(&mut zone, "a/to-b/up", "../b/../to-file");
    link_to(&mut zone, "a/dangling", "nothing");
    (zone, a, b, file)
}

#[test]
fn paths_lead_where_they_say() {
    let (zone, a, b, file) = tree();
    let find = |path: &str| zone.resolve(agent(3), Inode::ROOT, path.as_bytes(), true).unwrap();
    for path in ["a", "a/", "a//", "./a", "a/.", "a/b/..", "a/to-b/../", "a/./b/../../a"] {
        assert_eq!(find(path), a, "{path}");
    }
    for path in ["a/b", "a/to-b", "a/to-b/", "a/to-b-slash", "a/to-b/."] {
        assert_eq!(find(path), b, "{path}");
    }
    for path in ["a/b/file", "a//b///file", "a/to-b/file", "a/to-b-slash/file", "a/to-file", "a/b/up"] {
        assert_eq!(find(path), file, "{path}");
    }
    for path in [".", "./", "a/..", "a/b/../.."] {
        assert_eq!(find(path), Inode::ROOT, "{path}");
    }
    assert_eq!(zone.resolve(agent(3), a, b"b/file", true).unwrap(), file);
}

#[test]
fn a_link_at_the_end_is_followed_when_asked_or_before_a_slash() {
    let (zone, _, b, file) = tree();
    let stat = |path: &str, follow| zone.stat_at(agent(3), Inode::ROOT, path.as_bytes(), follow);
    assert_eq!(stat("a/to-file", true).unwrap().inode, file);
    assert_eq!(stat("a/to-file", false).unwrap().kind, FileKind::Symlink);
    assert_eq!(stat("a/to-b", false).unwrap().kind, FileKind::Symlink);
    assert_eq!(stat("a/to-b/", false).unwrap().inode, b);
    assert_eq!(stat("a/dangling", false).unwrap().size, 7);
    assert_eq!(code(stat("a/dangling", true)), ErrorCode::NoEntry);
    assert_eq!(zone.readlink(agent(3), Inode::ROOT, b"a/to-file").unwrap(), b"b/file");
    assert_eq!(code(zone.readlink(agent(3), Inode::ROOT, b"a/b")), ErrorCode::Invalid);
}

#[test]
fn wrong_paths_have_their_own_errors() {
    let (zone, ..) = tree();
    let long_name = format!("a/{}", "n".repeat(256));
    let long_path = "a/../".repeat(900) + "a";
    let cases = [
        ("", ErrorCode::NoEntry),
        ("missing", ErrorCode::NoEntry),
        ("missing/", ErrorCode::NoEntry),
        ("missing/..", ErrorCode::NoEntry),
        ("a/missing/file", ErrorCode::NoEntry),
        ("a/b/file/", ErrorCode::NotDirectory),
        ("a/b/file/.", ErrorCode::NotDirectory),
        ("a/b/file/..", ErrorCode::NotDirectory),
        ("a/b/file/x", ErrorCode::NotDirectory),
        ("a/to-file/", ErrorCode::NotDirectory),
        ("a/\0", ErrorCode::Invalid),
        (&long_name, ErrorCode::NameTooLong),
        (&long_path, ErrorCode::NameTooLong),
    ];
    for (path, wanted) in cases {
        let found = zone.resolve(agent(3), Inode::ROOT, path.as_bytes(), true);
        assert_eq!(code(found), wanted, "{path:?}");
    }
    let longest = format!("a/{}", "n".repeat(255));
    assert_eq!(code(zone.resolve(agent(3), Inode::ROOT, longest.as_bytes(), true)), ErrorCode::NoEntry);
}

#[test]
fn no_path_leads_out_of_its_base() {
    let (mut zone, a, b, _) = tree();
    link_to(&mut zone, "a/out", "../..");
    link_to(&mut zone, "a/b/above", "../to-file");
    for path in ["..", "../a", "a/../..", "./../a/b", "/", "/a", "//a", "a/b/../../../a"] {
        let found = zone.resolve(agent(3), Inode::ROOT, path.as_bytes(), true);
        assert_eq!(code(found), ErrorCode::NotPermitted, "{path}");
    }
    assert_eq!(code(zone.resolve(agent(3), Inode::ROOT, b"a/out", true)), ErrorCode::NotPermitted);
    assert_eq!(code(zone.resolve(agent(3), a, b"../a", true)), ErrorCode::NotPermitted);
    // The same link is inside for one base and leads out of another.
    assert!(zone.resolve(agent(3), a, b"b/above", true).is_ok());
    assert_eq!(code(zone.resolve(agent(3), b, b"above", true)), ErrorCode::NotPermitted);
    assert_eq!(code(zone.symlink(agent(3), b"/etc/passwd", a, b"l")), ErrorCode::NotPermitted);
    for made in [
        zone.mkdir(agent(3), a, b"../x").map(drop),
        zone.open(agent(3), a, b"../x", CREATE).map(drop),
        zone.rename(agent(3), (a, b"b"), (a, b"../x")),
        zone.link(agent(3), (a, b"to-file"), false, (a, b"../x")),
        zone.unlink(agent(3), b, b"../to-file"),
        zone.rmdir(agent(3), b, b"../b"),
    ] {
        assert_eq!(code(made), ErrorCode::NotPermitted);
    }
}

#[test]
fn chains_of_links_end() {
    let mut zone = zone(ZoneKind::Workspace);
    make(&mut zone, "l0", b"");
    for step in 1..=41 {
        link_to(&mut zone, &format!("l{step}"), &format!("l{}", step - 1));
    }
    assert!(zone.resolve(agent(3), Inode::ROOT, b"l40", true).is_ok());
    assert_eq!(code(zone.resolve(agent(3), Inode::ROOT, b"l41", true)), ErrorCode::Loop);
    link_to(&mut zone, "self", "self/self");
    assert_eq!(code(zone.resolve(agent(3), Inode::ROOT, b"self", true)), ErrorCode::Loop);
}

#[test]
fn opening_follows_posix() {
    let (mut zone, ..) = tree();
    let mut open = |path: &str, options| zone.open(agent(3), Inode::ROOT, path.as_bytes(), options);
    let exclusive = OpenOptions { exclusive: true, ..CREATE };
    let directory = OpenOptions { directory: true, ..READ };
    let truncate = OpenOptions { truncate: true, ..READ_WRITE };
    assert_eq!(code(open("new", READ_WRITE)), ErrorCode::NoEntry);
    assert_eq!(code(open("new/", CREATE)), ErrorCode::IsDirectory);
    assert_eq!(code(open("a/b/file", exclusive)), ErrorCode::Exist);
    assert_eq!(code(open("a/dangling", exclusive)), ErrorCode::Exist);
    assert_eq!(code(open("a", CREATE)), ErrorCode::IsDirectory);
    assert_eq!(code(open("a", READ_WRITE)), ErrorCode::IsDirectory);
    assert_eq!(code(open("a", truncate)), ErrorCode::IsDirectory);
    assert_eq!(code(open("a/b/file", directory)), ErrorCode::NotDirectory);
    assert_eq!(code(open("a", OpenOptions { directory: true, ..CREATE })), ErrorCode::Invalid);
    assert_eq!(code(open("a/to-file", OpenOptions { follow: false, ..READ })), ErrorCode::Loop);
    assert!(open("a", directory).is_ok());
    assert!(open("a/to-b", directory).is_ok());
    // A link to nothing is a name for a file that can be made.
    let made = open("a/dangling", CREATE).unwrap();
    assert_eq!(zone.resolve(agent(3), Inode::ROOT, b"a/nothing", false).unwrap(), made);
}

/// A plain resolver to compare with: `place` holds the names from the base to where the path has led.
fn walk(
    entries: &BTreeMap<Vec<&'static str>, Entry>,
    place: &mut Vec<&'static str>,
    path: &[&'static str],
    follow: bool,
    links: &mut usize,
) -> Result<(), ErrorCode> {
    let is_name = |token: &&str| !token.is_empty();
    let slash = path.last() == Some(&"") && path.iter().any(is_name);
    let names: Vec<&'static str> = path.iter().copied().filter(|token| is_name(token)).collect();
    for (index, name) in names.iter().enumerate() {
        let goes_on = index + 1 < names.len() || slash;
        match *name {
            "." => {}
            ".." => drop(place.pop().ok_or(ErrorCode::NotPermitted)?),
            _ => {
                place.push(name);
                match entries.get(place) {
                    None => return Err(ErrorCode::NoEntry),
                    Some(Entry::Directory) => {}
                    Some(Entry::Link(target)) if goes_on || follow => {
                        *links += 1;
                        if *links > MAX_LINKS_FOLLOWED {
                            return Err(ErrorCode::Loop);
                        }
                        place.pop();
                        walk(entries, place, target, true, links)?;
                    }
                    Some(_) if goes_on => return Err(ErrorCode::NotDirectory),
                    Some(_) => {}
                }
                let is_directory = place.is_empty() || entries.get(place) == Some(&Entry::Directory);
                if goes_on && !is_directory {
                    return Err(ErrorCode::NotDirectory);
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Directory,
    File,
    Link(Vec<&'static str>),
}

fn tokens() -> impl Strategy<Value = Vec<&'static str>> {
    let token = prop_oneof![Just("a"), Just("b"), Just("c"), Just("."), Just(".."), Just("")];
    // A path that begins with a slash is another matter.
    vec(token, 1..8).prop_map(|mut path| {
        while path.first() == Some(&"") {
            path.remove(0);
        }
        if path.is_empty() { vec!["a"] } else { path }
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![3 => Just(Entry::Directory), 1 => Just(Entry::File), 3 => tokens().prop_map(Entry::Link)]
}

proptest! {
    #[test]
    fn paths_resolve_as_a_plain_resolver_does(
        made in vec((vec(prop_oneof![Just("a"), Just("b"), Just("c")], 1..4), entry()), 1..25),
        paths in vec((tokens(), any::<bool>()), 1..40),
    ) {
        let mut zone = zone(ZoneKind::Workspace);
        let mut entries = BTreeMap::new();
        for (place, entry) in made {
            let lies_in_directory = place.len() == 1
                || entries.get(&place[..place.len() - 1]) == Some(&Entry::Directory);
            if !lies_in_directory || entries.contains_key(&place) {
                continue;
            }
            let path = place.join("/");
            match &entry {
                Entry::Directory => drop(mkdir(&mut zone, &path)),
                Entry::File => drop(make(&mut zone, &path, b"")),
                Entry::Link(target) => drop(link_to(&mut zone, &path, &target.join("/"))),
            }
            entries.insert(place, entry);
        }
        for (path, follow) in paths {
            let text = path.join("/");
            let mut place = Vec::new();
            let wanted = walk(&entries, &mut place, &path, follow, &mut 0);
            let found = zone.resolve(agent(3), Inode::ROOT, text.as_bytes(), follow);
            if let Err(wanted) = wanted {
                prop_assert_eq!(code(found), wanted, "{}", text);
                continue;
            }
            let direct = if place.is_empty() { ".".to_owned() } else { place.join("/") };
            let direct = zone.resolve(agent(3), Inode::ROOT, direct.as_bytes(), false).unwrap();
            prop_assert_eq!(found.unwrap(), direct, "{}", text);
        }
    }
}
