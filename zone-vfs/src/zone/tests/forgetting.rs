//! What becomes of descriptors of a file that is forgotten.

use super::*;
use crate::contract::Operation;
use crate::tree::CHUNK;

const ROOT: Inode = Inode::ROOT;

fn host(now: u64) -> Access {
    Access::new(Principal::Host, Timestamp(now))
}

/// Each use of a file that whoever calls has open leads nowhere.
fn leads_nowhere(zone: &mut Zone, file: Inode) {
    let mut byte = [0];
    assert_eq!(code(zone.append(agent(4), file, b"x")), ErrorCode::BadDescriptor);
    assert_eq!(code(zone.write(agent(4), file, 0, b"x")), ErrorCode::BadDescriptor);
    assert_eq!(code(zone.read(agent(4), file, 0, &mut byte)), ErrorCode::BadDescriptor);
    assert_eq!(code(zone.read_shared(agent(4), file, 0, 1)), ErrorCode::BadDescriptor);
    assert_eq!(code(zone.close(file)), ErrorCode::BadDescriptor);
    assert_eq!(code(zone.stat(agent(4), file)), ErrorCode::NoEntry);
    assert_eq!(code(zone.open_for(file, OpenedFor::Writing)), ErrorCode::NoEntry);
}

#[test]
fn a_descriptor_of_a_file_that_was_forgotten_leads_nowhere_in_every_zone() {
    for kind in ZoneKind::ALL {
        for size in [5, CHUNK + 7] {
            let mut zone = zone(kind);
            let before = zone.usage();
            let file = make(&mut zone, "journal", &pattern(size, 1));
            zone.open_inode(file).unwrap();
            if kind.keeps_versions() {
                zone.sync(agent(3), file).unwrap();
                zone.append(agent(3), file, b"a draft").unwrap();
            }
            zone.forget(host(4), file).unwrap();
            leads_nowhere(&mut zone, file);
            assert_eq!(zone.usage(), before, "{kind}: nothing of it is left");
            zone.drain_changes(&DrainLimits::default()).unwrap();
            // opened anew it is another file, which keeps what is written
            let anew = make(&mut zone, "journal", b"after");
            assert_ne!(anew, file);
            assert_eq!(content(&mut zone, anew), b"after");
            zone.close_writer(anew).unwrap();
            assert_eq!(names(&zone, ROOT), ["journal"]);
        }
    }
}

#[test]
fn a_file_that_was_open_under_the_number_of_what_replaced_it_is_forgotten_under_both() {
    let mut zone = zone(ZoneKind::Semantic);
    let target = make(&mut zone, "facts", b"one");
    zone.close_writer(target).unwrap();
    let new = make(&mut zone, "facts.new", b"two");
    zone.rename(agent(3), (ROOT, b"facts.new"), (ROOT, b"facts")).unwrap();
    assert_eq!(content(&mut zone, new), b"two");
    let before = zone.usage();
    zone.forget(agent(4), target).unwrap();
    leads_nowhere(&mut zone, target);
    leads_nowhere(&mut zone, new);
    assert!(zone.usage().inodes < before.inodes);
    let root = zone.snapshot().unwrap();
    let kept: Vec<_> =
        root.tree().entries(&*zone.state.store).unwrap().map(|it| it.unwrap().0.clone()).collect();
    assert!(kept.iter().all(|key| key.inode != new && key.inode != target), "{kept:?}");
}

#[test]
fn a_file_that_has_another_name_stays_open_and_empty() {
    let mut zone = zone(ZoneKind::Workspace);
    let file = make(&mut zone, "a", b"text");
    zone.link(agent(3), (ROOT, b"a"), false, (ROOT, b"b")).unwrap();
    zone.forget(host(4), file).unwrap();
    assert_eq!(zone.stat(agent(5), file).unwrap().size, 0);
    zone.append(agent(5), file, b"more").unwrap();
    let name = names(&zone, ROOT).pop().unwrap();
    assert_eq!(zone.resolve(agent(5), ROOT, name.as_bytes(), false).unwrap(), file);
    assert_eq!(content(&mut zone, file), b"more");
}

#[test]
fn each_who_holds_a_shared_file_open_has_it_no_more() {
    let mut zone = zone(ZoneKind::Shared);
    let holders = [Holder(1), Holder(2)].map(|holder| Through { holder, writable: true });
    let file = make(&mut zone, "plan", b"text");
    zone.close_writer(file).unwrap();
    for through in holders {
        zone.through(through, |zone| zone.open_writer(file)).unwrap();
    }
    zone.forget(host(4), file).unwrap();
    for through in holders {
        zone.through(through, |zone| leads_nowhere(zone, file));
        zone.close_all(through.holder).unwrap();
    }
    assert!(zone.check(host(5), Operation::Read).is_ok());
    assert_eq!(zone.references(file), 0);
}

#[test]
fn a_nameless_file_of_an_append_only_zone_that_an_older_program_left_open_is_not_opened_again() {
    let mut zone = zone(ZoneKind::Episodic);
    let file = make(&mut zone, "journal", b"text");
    zone.close_writer(file).unwrap();
    zone.state.remove(Key::dirent(ROOT, crate::tree::Name::new(b"journal").unwrap())).unwrap();
    zone.state.put(Key::orphan(file), Value::Orphan).unwrap();
    zone.update(file, |record| record.links = 0).unwrap();
    assert_eq!(code(zone.open_writer(file)), ErrorCode::NoEntry);
    zone.drop_orphans_except(&BTreeSet::new()).unwrap();
    assert_eq!(code(zone.stat(agent(5), file)), ErrorCode::NoEntry);
}

#[test]
fn the_audit_trail_is_never_forgotten_and_has_room_of_its_own() {
    let quota = Quota { bytes: 1000, inodes: 2 };
    let mut zone = Zone::new(ZoneKind::Logs, quota, Timestamp(1), store());
    let log = make(&mut zone, "log", &[1; 1000]);
    make(&mut zone, "more", b"");
    assert_eq!(code(zone.append(agent(3), log, b"x")), ErrorCode::Quota);
    assert_eq!(code(zone.open(agent(3), ROOT, b"last", CREATE)), ErrorCode::Quota);
    assert_eq!(zone.reserved_room(), HOST_RESERVE.bytes);
    let audit = zone.open(host(3), ROOT, b"audit", CREATE).unwrap();
    zone.append(host(3), audit, &[2; 1000]).unwrap();
    assert_eq!(zone.reserved_room(), HOST_RESERVE.bytes - 1000);
    assert_eq!(
        code(zone.append(host(3), log, b"x")),
        ErrorCode::Quota,
        "elsewhere the host has no more than others"
    );
    let rest = usize::try_from(HOST_RESERVE.bytes - 1000).unwrap();
    assert_eq!(code(zone.append(host(3), audit, &vec![2; rest + 1])), ErrorCode::Quota);
    zone.append(host(3), audit, &vec![2; rest]).unwrap();
    assert_eq!((zone.reserved_room(), zone.usage().bytes), (0, 1000 + HOST_RESERVE.bytes));
    assert_eq!(code(zone.forget(host(4), audit)), ErrorCode::NotPermitted);
    zone.forget(host(4), log).unwrap();
    assert_eq!(content(&mut zone, audit).len(), rest + 1000);
}
