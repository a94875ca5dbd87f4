//! Compiled code, kept between tests.
//!
//! For each guest there is a store in `target/tmp/compiled`, filled once under a lock. What it has
//! compiled is linked into the stores of the tests, which share its key. No test may change those
//! files; the program itself only ever replaces them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use zone_vfs::store::{Store, StoreOptions};

use super::{PROGRAM, guest, run};

/// The key over compiled code, which all stores of the tests have.
const KEY: &str = "mac.key";

/// Makes an empty store, so that code can be put into it.
pub fn create(store: &Path) {
    let made = Store::open(store, &StoreOptions::default()).and_then(Store::close);
    made.expect("a new store");
}

/// Puts a guest's code into a store, and compiles it first if that was not done before.
pub fn provide(name: &str, store: &Path) {
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    fs::create_dir_all(&shelf).expect("a folder for compiled code");
    // the lock goes with the file, when this returns
    let lock = File::create(shelf.join(format!("{name}.lock"))).expect("a lock on compiled code");
    lock.lock().expect("a lock on compiled code");
    let made = shelf.join(name);
    fill(name, &made, &key(&shelf));
    link(&made.join("cache"), &store.join("cache"));
}

/// The key, drawn by the first store that is made.
fn key(shelf: &Path) -> PathBuf {
    let lock = File::create(shelf.join("key.lock")).expect("a lock on the key");
    lock.lock().expect("a lock on the key");
    let key = shelf.join(KEY);
    if !key.exists() {
        let first = tempfile::tempdir_in(shelf).expect("a temporary folder");
        create(first.path());
        let ran = run(Command::new(PROGRAM).arg("--store").arg(first.path()).arg("ps"), b"");
        assert_eq!(ran.status, Some(0), "{ran}");
        fs::copy(first.path().join("cache").join(KEY), &key).expect("a copy of the key");
    }
    key
}

/// What a file is known by: its length, and when it was changed.
fn stamp(path: &Path) -> String {
    let about = fs::metadata(path).expect("a file that is there");
    let time = about.modified().ok().and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
    format!("{} {:?}", about.len(), time)
}

/// Compiles a guest in a store of its own. One that is compiled already costs a glance.
fn fill(name: &str, made: &Path, key: &Path) {
    let component = guest(name);
    let (of_guest, of_program) = (stamp(&component), stamp(Path::new(PROGRAM)));
    let path = made.join("filled-from");
    let known = fs::read_to_string(&path).unwrap_or_default();
    let mut known = known.lines();
    let same_guest = known.next() == Some(&of_guest);
    if same_guest && known.next() == Some(&of_program) {
        return;
    }
    if !same_guest {
        if made.exists() {
            fs::remove_dir_all(made).expect("what was compiled before goes");
        }
        create(made);
        let cache = made.join("cache");
        fs::create_dir(&cache).expect("a folder for compiled code");
        fs::copy(key, cache.join(KEY)).expect("a copy of the key");
    }
    let ran = run(Command::new(PROGRAM).arg("--store").arg(made).arg("inspect").arg(component), b"");
    assert_eq!(ran.status, Some(0), "{ran}");
    fs::write(path, format!("{of_guest}\n{of_program}\n")).expect("a stamp on compiled code");
}

/// Links files, or copies them where that cannot be done.
fn link(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder for compiled code");
    for entry in fs::read_dir(from).expect("compiled code") {
        let entry = entry.expect("compiled code");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            link(&path, &to);
        } else if !to.exists() && fs::hard_link(&path, &to).is_err() {
            fs::copy(&path, &to).expect("a copy of compiled code");
        }
    }
}
