//! A store and a backup of every format of images and components, as they were written, are gone on with. Nothing is
//! released: until then those of format 1 are written anew when their layout changes, or what a guest's memory holds
//! after rewriting does.
//!
//! `DORMOUSE_GOLDEN=FOLDER` makes `a_store_as_it_is_written_now_is_gone_on_with` leave one of the current format there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use dormouse::zone_vfs::store::StoreOptions;
use dormouse::{AgentName, AgentOptions, Event, Host, HostOptions};

use crate::bed::{Bed, options};

/// An agent that counts its events, in its memory and in a global, and replies with both numbers.
const COUNTS: &str = r#"(component
  (import "dormouse:agent/types@0.1.0" (instance $types
    (type $event (record (field "id" string) (field "kind" string) (field "payload" (list u8))))
    (export "event" (type (eq $event)))
    (type $reply (record (field "payload" (list u8))))
    (export "reply" (type (eq $reply)))))
  (alias export $types "event" (type $event))
  (alias export $types "reply" (type $reply))
  (core module $agent
    (memory (export "memory") 1)
    (global $count (mut i32) (i32.const 48))
    (data (i32.const 60000) "0")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 4096)
    (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32)
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (i32.store8 (i32.const 60000) (i32.add (i32.load8_u (i32.const 60000)) (i32.const 1)))
      (i32.store8 (i32.const 1040) (i32.load8_u (i32.const 60000)))
      (i32.store8 (i32.const 1041) (global.get $count))
      (i32.store8 (i32.const 1024) (i32.const 0))
      (i32.store (i32.const 1028) (i32.const 1040))
      (i32.store (i32.const 1032) (i32.const 2))
      (i32.const 1024)))
  (core instance $i (instantiate $agent))
  (func $handle (param "event" $event) (result (result $reply (error string)))
    (canon lift (core func $i "handle") (memory $i "memory") (realloc (func $i "realloc"))))
  (export "handle" (func $handle)))"#;

/// Of flat images 1 and 2.
const FORMATS: &[&str] = &["v1", "v2"];

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Writes `store`, with an agent that was paused after its second turn and a fork of it, and `backup`, one file.
fn write(into: &Path) {
    let component = wat::parse_str(COUNTS).expect("a component");
    let folder = into.join("store");
    let store = StoreOptions { log_file: 64 << 10, reserve: 0, ..StoreOptions::default() };
    let options = HostOptions { store, ..options(&folder) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let host = Host::open(options).expect("the host");
        let name = |name: &str| AgentName::new(name).expect("a name");
        let options = AgentOptions { component_name: "counts.wasm".into(), ..AgentOptions::default() };
        let agent = host.create(&name("n"), &component, options).await.expect("an agent");
        for count in [b"11", b"22"] {
            let report = agent.send(Event::message("count").expect("an event")).await.expect("a turn");
            assert_eq!(report.reply.as_deref(), Ok(&count[..]));
        }
        agent.pause().await.expect("paused");
        let forks = agent.fork(&[name("forked")], None).await.expect("a fork");
        // all that is kept is in the archive, too
        host.trim_images(u64::MAX).await.expect("archived");
        let backup = File::create(into.join("backup")).expect("a file");
        host.backup(Box::new(backup), None).await.expect("a backup");
        drop((agent, forks));
        host.close().expect("closed");
    });
    // what can be made again, and is this machine's alone
    fs::remove_dir_all(folder.join("cache")).expect("removed");
    if let Err(e) = fs::remove_file(folder.join("index.redb")) {
        assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{e}");
    }
}

/// What is in the store of a bed is as it was written, and goes on.
fn check(bed: &Bed) {
    assert_eq!(bed.agent("n")["state"], "paused");
    assert_eq!(bed.agent("forked")["state"], "forked");
    let found = bed.json(["fsck"]);
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found}");
    assert_eq!(bed.send("n", "count"), "33");
    assert_eq!(bed.send("forked", "count"), "33");
    bed.ok(["rewind", "n", "1"]);
    assert_eq!(bed.send("n", "count"), "22");
}

fn check_all(golden: &Path) {
    let bed = Bed::empty();
    copy(&golden.join("store"), &bed.store());
    check(&bed);
    // by what the archive has
    let bed = Bed::empty();
    copy(&golden.join("store"), &bed.store());
    let images = bed.store().join("images");
    let files = || fs::read_dir(&images).expect("a folder").map(|entry| entry.expect("an entry").path());
    assert!(files().count() > 1);
    files().for_each(|file| fs::remove_file(file).expect("removed"));
    assert_eq!(bed.send("n", "count"), "33");
    assert_eq!(bed.send("forked", "count"), "33");
    let bed = Bed::empty();
    bed.ok(["restore".as_ref(), golden.join("backup").as_os_str()]);
    check(&bed);
}

#[test]
fn stores_and_backups_of_every_format_are_gone_on_with() {
    for version in FORMATS {
        check_all(&goldens().join(version));
    }
}

#[test]
fn a_store_as_it_is_written_now_is_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let into = std::env::var_os("DORMOUSE_GOLDEN").map_or(folder.path().into(), PathBuf::from);
    fs::create_dir_all(&into).expect("a folder");
    write(&into);
    check_all(&into);
}
