use super::*;
use crate::contract::{Mount, Refusal, Rule};

const ROOT: Inode = Inode::ROOT;

fn as_principal(principal: Principal) -> Access {
    Access::new(principal, Timestamp(4))
}

/// A zone with a directory `d`, an empty directory `e` and a file `f`, written by the agent.
fn written(kind: ZoneKind) -> (Zone, Inode) {
    let mut zone = zone(kind);
    zone.mkdir(agent(2), ROOT, b"d").unwrap();
    zone.mkdir(agent(2), ROOT, b"e").unwrap();
    let file = make(&mut zone, "f", b"written");
    (zone, file)
}

fn digest(zone: &mut Zone) -> crate::id::Hash {
    let store = zone.state.store.clone();
    zone.snapshot().unwrap().digest(&*store).unwrap()
}

#[test]
fn append_only_zones_grow_and_never_change() {
    for kind in [ZoneKind::Episodic, ZoneKind::Logs] {
        for principal in [Principal::Agent, Principal::Host] {
            let access = as_principal(principal);
            let (mut zone, file) = written(kind);
            zone.append(access, file, b" more").unwrap();
            zone.write(access, file, 12, b"!").unwrap();
            let new = zone.open(access, ROOT, b"d/new", OpenOptions { truncate: true, ..CREATE }).unwrap();
            zone.write(access, new, 0, b"first").unwrap();
            zone.mkdir(access, ROOT, b"d/sub").unwrap();
            let before = digest(&mut zone);
            let truncate = OpenOptions { truncate: true, ..READ_WRITE };
            let refused = [
                zone.write(access, file, 0, b"x").map(drop),
                zone.write(access, file, 12, b"x").map(drop),
                zone.write(access, file, 14, b"x").map(drop),
                zone.set_size(access, file, 0),
                zone.set_size(access, file, 100),
                zone.open(access, ROOT, b"f", truncate).map(drop),
                zone.rename(access, (ROOT, b"f"), (ROOT, b"g")),
                zone.unlink(access, ROOT, b"f"),
                zone.rmdir(access, ROOT, b"e"),
                zone.link(access, (ROOT, b"f"), true, (ROOT, b"g")),
                zone.symlink(access, b"f", ROOT, b"g").map(drop),
                zone.set_times(access, file, Some(Timestamp(0)), None),
            ];
            for result in refused {
                let error = result.unwrap_err();
                assert_eq!(error.code, ErrorCode::NotPermitted);
                let rule = error.refusal().map(|refusal: &Refusal| refusal.rule);
                assert_eq!(rule, Some(Rule::AppendOnly), "{error}");
            }
            assert_eq!(digest(&mut zone), before);
            assert_eq!(zone.references(file), 1, "a refused open leaves nothing open");
        }
    }
}

#[test]
fn versioned_zones_change_but_take_no_links_and_times() {
    for kind in [ZoneKind::Semantic, ZoneKind::Procedural] {
        let (mut zone, file) = written(kind);
        zone.write(agent(3), file, 0, b"x").unwrap();
        zone.set_size(agent(3), file, 1).unwrap();
        zone.rename(agent(3), (ROOT, b"f"), (ROOT, b"g")).unwrap();
        for refused in [
            zone.link(agent(3), (ROOT, b"g"), true, (ROOT, b"h")),
            zone.symlink(agent(3), b"f", ROOT, b"h").map(drop),
            zone.set_times(agent(3), file, None, Some(Timestamp(1))),
        ] {
            assert_eq!(code(refused), ErrorCode::NotPermitted);
        }
        zone.close(file).unwrap();
        zone.unlink(as_principal(Principal::Host), ROOT, b"g").unwrap();
        zone.rmdir(agent(3), ROOT, b"e").unwrap();
        assert_eq!(names(&zone, ROOT), ["d"]);
    }
}

#[test]
fn tools_see_the_workspace_and_nothing_else() {
    let tool = as_principal(Principal::Tool);
    for kind in ZoneKind::ALL {
        let (mut zone, file) = written(kind);
        let allowed = matches!(kind, ZoneKind::Workspace | ZoneKind::Shared);
        let tried = [
            zone.stat(tool, file).map(drop),
            zone.resolve(tool, ROOT, b"f", true).map(drop),
            zone.readdir(tool, ROOT, None, 1).map(drop),
            zone.read(tool, file, 0, &mut [0]).map(drop),
            zone.open(tool, ROOT, b"f", READ).map(drop),
            zone.append(tool, file, b"x").map(drop),
            zone.open(tool, ROOT, b"t", CREATE).map(drop),
        ];
        for result in tried {
            assert_eq!(
                result.map_err(|error| error.code),
                if allowed { Ok(()) } else { Err(ErrorCode::NotPermitted) }
            );
        }
        assert_eq!(code(zone.stat(as_principal(Principal::Manager), file)), ErrorCode::NotPermitted);
    }
}

#[test]
fn the_audit_trail_is_written_by_the_host_alone() {
    let host = as_principal(Principal::Host);
    for name in ["audit", "audit/", "./audit", "d/../audit"] {
        let (mut zone, _) = written(ZoneKind::Logs);
        let made =
            [zone.mkdir(agent(3), ROOT, name.as_bytes()), zone.open(agent(3), ROOT, name.as_bytes(), CREATE)];
        assert!(made.into_iter().all(|made| code(made) == ErrorCode::NotPermitted), "{name}");
    }
    let refused = |error: ZoneError| {
        assert_eq!(error.refusal().map(|refusal| refusal.rule), Some(Rule::Reserved), "{error}");
    };
    let (mut zone, file) = written(ZoneKind::Logs);
    let audit = zone.open(host, ROOT, b"audit", CREATE).unwrap();
    zone.append(host, audit, b"record").unwrap();
    zone.open(agent(3), ROOT, b"audit", READ).unwrap();
    assert_eq!(content(&mut zone, audit), b"record");
    refused(zone.open(agent(3), ROOT, b"audit", READ_WRITE).unwrap_err());
    refused(zone.append(agent(3), audit, b"x").unwrap_err());
    refused(zone.write(agent(3), audit, 6, b"x").unwrap_err());
    zone.append(agent(3), file, b"x").unwrap();
    zone.open(agent(3), ROOT, b"d/audit", CREATE).unwrap();
    let mut resumed = Zone::from_root(zone.snapshot().unwrap(), zone.state.store.clone());
    resumed.open_inode(audit).unwrap();
    refused(resumed.append(agent(3), audit, b"x").unwrap_err());

    let (mut zone, _) = written(ZoneKind::Logs);
    let audit = zone.mkdir(host, ROOT, b"audit").unwrap();
    let below = zone.mkdir(host, audit, b"below").unwrap();
    zone.open(host, below, b"trail", CREATE).unwrap();
    refused(zone.open(agent(3), below, b"trail", READ_WRITE).unwrap_err());
    refused(zone.open(agent(3), below, b"new", CREATE).unwrap_err());
    refused(zone.mkdir(agent(3), audit, b"new").unwrap_err());
    zone.open(agent(3), below, b"trail", READ).unwrap();
    // Elsewhere, the name is one like any other.
    let (mut zone, _) = written(ZoneKind::Workspace);
    zone.mkdir(agent(3), ROOT, b"audit").unwrap();
}

/// Zones and roots go from thread to thread.
#[test]
fn zones_can_be_sent_and_roots_shared() {
    fn sent<T: Send>(_: &T) {}
    fn shared<T: Send + Sync>(_: &T) {}
    let (mut zone, _) = written(ZoneKind::Shared);
    sent(&zone);
    shared(&zone.snapshot().unwrap());
}

#[test]
fn a_read_only_mount_reads() {
    let (mut zone, file) = written(ZoneKind::Shared);
    let access = Access { mount: Mount::read_only(Principal::Agent), now: Timestamp(3) };
    let mut bytes = [0; 7];
    zone.open(access, ROOT, b"f", READ).unwrap();
    zone.read(access, file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"written");
    assert_eq!(code(zone.open(access, ROOT, b"f", READ_WRITE)), ErrorCode::ReadOnly);
    assert_eq!(code(zone.append(access, file, b"x")), ErrorCode::ReadOnly);
    assert_eq!(code(zone.mkdir(access, ROOT, b"x")), ErrorCode::ReadOnly);
}

#[test]
fn an_error_says_its_code_and_its_rule() {
    let (mut zone, file) = written(ZoneKind::Episodic);
    let error = zone.write(agent(3), file, 0, b"x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "not-permitted: episodic memory is append-only: overwrite is not permitted"
    );
    assert_eq!(ErrorCode::ALL.len(), 37);
    assert!(ErrorCode::ALL.iter().all(|code| !code.name().contains('_')));
}
