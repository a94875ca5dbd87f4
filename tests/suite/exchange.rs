//! Where exports are written to, and what imports are read from.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::bed::{Bed, PROGRAM, guest, run};

fn bed() -> Bed {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "note one");
    bed
}

fn export(bed: &Bed, to: &Path) {
    bed.ok(["export".as_ref(), "a".as_ref(), to.as_os_str()]);
}

fn imports(bed: &Bed, file: &Path) {
    let to = Bed::empty();
    to.ok(["import".as_ref(), file.as_os_str()]);
    assert_eq!(to.send("a", "list"), bed.send("a", "list"));
}

#[test]
fn an_export_is_its_makers_alone_and_touches_no_other_file() {
    let bed = bed();
    let others = bed.file("a.export.unfinished", b"another's");
    fs::set_permissions(&others, fs::Permissions::from_mode(0o666)).expect("a mode");
    let file = bed.path("a.export");
    export(&bed, &file);
    assert_eq!(fs::metadata(&file).expect("the export").mode() & 0o777, 0o600);
    assert_eq!(fs::read(&others).expect("the file"), b"another's");
    imports(&bed, &file);
}

#[test]
fn an_export_follows_a_link_and_leaves_it() {
    let bed = bed();
    let (file, link) = (bed.file("target", b"old"), bed.path("link"));
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    bed.refused(
        ["export".as_ref(), "a".as_ref(), link.as_os_str()],
        &["is there already: --force replaces it"],
    );
    bed.ok(["export".as_ref(), "--force".as_ref(), "a".as_ref(), link.as_os_str()]);
    assert!(link.is_symlink());
    imports(&bed, &file);
}

#[test]
fn an_export_goes_into_a_pipe_or_a_device_that_is_there() {
    let bed = bed();
    let (pipe, copy) = (bed.path("pipe"), bed.path("copy"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    let reader = {
        let (pipe, copy) = (pipe.clone(), copy.clone());
        std::thread::spawn(move || {
            let (mut pipe, mut copy) = (File::open(pipe).expect("it"), File::create(copy).expect("a file"));
            std::io::copy(&mut pipe, &mut copy).expect("copied");
        })
    };
    export(&bed, &pipe);
    reader.join().expect("the reader");
    assert!(!fs::metadata(&pipe).expect("the pipe").is_file());
    imports(&bed, &copy);
    export(&bed, Path::new("/dev/null"));
    bed.refused(["export", "a", "/dev/full"], &["No space left on device"]);
}

#[test]
fn an_agent_is_copied_through_a_pipe_in_one_store() {
    let bed = bed();
    // more than a pipe holds
    bed.send("a", "grow 4");
    let store = bed.store();
    let program = || {
        let mut command = Command::new(PROGRAM);
        command.arg("--store").arg(&store).arg("--wait=100");
        command
    };
    let mut from = program().args(["export", "a", "-"]).stdout(Stdio::piped()).spawn().expect("an export");
    let mut to = program();
    to.args(["import", "-", "b"]).stdin(from.stdout.take().expect("its output"));
    let came = to.output().expect("an import");
    assert!(came.status.success(), "{}", String::from_utf8_lossy(&came.stderr));
    assert!(from.wait().expect("an end").success());
    assert_eq!(bed.send("b", "list"), "1. one");
}

#[test]
fn no_store_is_made_for_a_file_that_is_not_there() {
    for arguments in [&["import", "none.export"][..], &["new", "a", "none.wasm"], &["run", "none.wasm"]] {
        let bed = Bed::empty();
        let ran = run(&mut bed.command(arguments), b"");
        assert_eq!(ran.status, Some(1), "{ran}");
        ran.assert_one_message(&["none.", "No such file"]);
        assert!(!bed.store().exists(), "{arguments:?}");
    }
}

#[test]
fn what_is_no_export_is_not_taken_in_and_makes_no_store() {
    let bed = Bed::empty();
    let file = bed.file(
        "words",
        b"a note to myself, and more than a header has, so that nothing but what it says is wrong with it",
    );
    let ran = bed.run(["import".as_ref(), file.as_os_str()]);
    ran.assert_one_message(&["words is no export"]);
    // what has no end is not waited for
    let mut import = bed.command(["import", "-"]);
    let ran = import.stdin(File::open("/dev/zero").expect("zeros")).output().expect("an import");
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("standard input is no export"));
    assert!(!bed.store().exists());
}

#[test]
fn whoever_imports_can_set_limits_of_his_own() {
    let (from, to) = (bed(), Bed::empty());
    let file = from.path("a.export");
    export(&from, &file);
    to.ok([
        "--max-memory".as_ref(),
        "8M".as_ref(),
        "--max-cpu=5".as_ref(),
        "import".as_ref(),
        file.as_os_str(),
    ]);
    assert_eq!(to.agent("a")["max_memory_bytes"], 8 << 20);
    assert_eq!(to.agent("a")["max_cpu_seconds"], 5.0);
    let ran = to.run(["send", "a", "grow 50"]);
    assert!(ran.status == Some(1) && ran.err.contains("there is no memory for 50 MiB"), "{ran}");
    assert_eq!(to.send("a", "list"), "1. one");
    let ran = run(
        Command::new(PROGRAM).args(["import"]).arg(guest("notes")).env("DORMOUSE_STORE", to.store()),
        b"",
    );
    ran.assert_one_message(&["is no export"]);
}
