use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bed::{Bed, PROGRAM, Ran, Running, run};

#[test]
fn a_store_that_is_open_elsewhere_is_left_alone() {
    let bed = Bed::new(&["stdio", "notes"]);
    bed.create("n", "notes");
    bed.send("n", "note kept");
    let mut holder = Running::start(&mut bed.guest_command("stdio", ["upper"]));
    let input = holder.input.as_mut().expect("its input");
    input.write_all(b"begun\n").expect("a line for it");
    assert_eq!(holder.line().as_deref(), Some("BEGUN"));
    for arguments in
        [&["ps"][..], &["send", "n", "note lost"], &["rm", "n"], &["fork", "n"], &["zone", "ls", "n"]]
    {
        bed.refused(arguments, &["is open in another process", &holder.id().to_string()]);
    }
    let input = holder.input.as_mut().expect("its input");
    input.write_all(b"still here\n").expect("a line for it");
    assert_eq!(holder.line().as_deref(), Some("STILL HERE"));
    let ran = holder.end();
    assert_eq!(ran.status, Some(0), "{ran}");
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 semantic=1 logs=1 "));
}

#[test]
fn a_folder_that_is_no_store_is_left_alone() {
    let bed = Bed::empty();
    fs::create_dir(bed.store()).expect("a folder");
    fs::write(bed.store().join("letter"), "dear").expect("a file");
    bed.refused(["ps"], &["is not a Dormouse store"]);
    assert_eq!(fs::read_dir(bed.store()).expect("the folder").count(), 1);
    let bed = Bed::empty();
    fs::write(bed.store(), "a file").expect("a file");
    bed.refused(["ps"], &[bed.store().to_str().expect("a path in UTF-8")]);
    assert_eq!(fs::read_to_string(bed.store()).expect("the file"), "a file");
}

#[test]
fn a_store_is_made_where_none_is_for_its_owner_alone() {
    let bed = Bed::empty();
    assert_eq!(bed.guest("hello-command", []).status, Some(0));
    let mode = |path: PathBuf| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(bed.store()), 0o700);
    for file in ["superblock", "tenant.key", "lock", "cache/mac.key"] {
        assert_eq!(mode(bed.store().join(file)), 0o600, "{file}");
    }
}

/// A user other than the owner of files, to whom they say no. Root may read everything, so it becomes
/// somebody else.
fn as_another(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command
}

/// Everybody may enter the folder of a bed, and run a copy of the program in it.
fn opened(bed: &Bed) -> Command {
    let folder = bed.path("program");
    let program = folder.join("dormouse");
    fs::create_dir_all(&folder).expect("a folder");
    if fs::hard_link(PROGRAM, &program).is_err() {
        fs::copy(PROGRAM, &program).expect("a copy of the program");
    }
    for path in [bed.path(""), folder, program.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    let mut command = Command::new(program);
    command.arg("--store").arg(bed.store()).env("DORMOUSE_LOG", "error").current_dir("/");
    command
}

#[test]
fn without_permission_nothing_is_done() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note kept");
    // its owner is somebody else, or has shut it
    let folder = bed.store();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).expect("permissions");
    let shut = if rustix::process::geteuid().is_root() { Vec::new() } else { vec!["superblock", "lock"] };
    for file in &shut {
        fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o000)).expect("permissions");
    }
    let ran = run(as_another(opened(&bed).args(["send", "n", "note lost"])), b"");
    ran.assert_refused(&["ermission denied"]);
    for file in shut {
        fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o600)).expect("permissions");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("permissions");
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 semantic=1 logs=1 "));
    // nor can a store be made where nobody may
    let bed = Bed::empty();
    let mut command = opened(&bed);
    fs::set_permissions(bed.path(""), fs::Permissions::from_mode(0o555)).expect("permissions");
    run(as_another(command.arg("run").arg(crate::bed::guest("hello-command"))), b"")
        .assert_refused(&["ermission denied"]);
    assert!(!bed.store().exists());
    fs::set_permissions(bed.path(""), fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Whether a small file system can be mounted in a namespace of one's own.
fn can_mount() -> bool {
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a script in which `dormouse ARGUMENTS` works on a store with room for `mebibytes`: on a small
/// file system if one can be mounted, else with a limit on the size of files (`$LIMITED` is yes, and
/// only a large file meets it). The store that it leaves is brought back to `bed`.
fn with_little_room(bed: &Bed, mebibytes: u32, script: &str) -> Ran {
    let small = bed.path("small");
    fs::create_dir_all(&small).expect("a folder");
    let mut command = Command::new(if can_mount() { "unshare" } else { "sh" });
    let prelude = if can_mount() {
        command.args(["-rm", "sh"]);
        format!(
            "mount -t tmpfs -o size={mebibytes}m tmpfs \"$SMALL\" && cp -a \"$STORE\" \"$SMALL/store\" || exit 99\n"
        )
    } else {
        format!("cp -a \"$STORE\" \"$SMALL/store\" && ulimit -f {} || exit 99\n", mebibytes * 2048)
    };
    let finish = "ulimit -f unlimited 2>/dev/null; rm -rf \"$STORE\" && cp -a \"$SMALL/store\" \"$STORE\" || exit 99\n";
    let dormouse = "dormouse() { \"$PROGRAM\" --store \"$SMALL/store\" \"$@\"; }\n";
    command.arg("-c").arg(format!("{prelude}{dormouse}{script}\n{finish}"));
    command
        .env("SMALL", &small)
        .env("STORE", bed.store())
        .env("PROGRAM", PROGRAM)
        .env("DORMOUSE_LOG", "error");
    command.env("LIMITED", if can_mount() { "no" } else { "yes" });
    let ran = run(command.current_dir(bed.path("")), b"");
    assert_ne!(ran.status, Some(99), "{ran}");
    ran
}

/// Bytes of a folder's files.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    entries.map(|p| if p.is_dir() { size(&p) } else { fs::metadata(&p).map_or(0, |m| m.len()) }).sum()
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note one");
    bed.send("n", "grow 1");
    bed.create("fresh", "notes");
    // what cannot be packed smaller than it is
    let mut noise = vec![0; 12 << 20];
    let mut random = fs::File::open("/dev/urandom").expect("random bytes");
    std::io::Read::read_exact(&mut random, &mut noise).expect("random bytes");
    bed.file("noise", noise);
    let room = (size(&bed.store()) >> 20) as u32 + 6;
    let ran = with_little_room(
        &bed,
        room,
        "dormouse zone put n:/workspace/noise noise >&2; echo put $?
         dormouse send fresh status >out 2>&1; echo fresh $?
         count=0; status=unknown
         while [ $LIMITED = no ] && [ $count -lt 2000 ]; do
           dormouse send n \"write /workspace/file-$count x\" >out 2>sent; status=$?
           [ $status = 0 ] || break
           count=$((count + 1))
           dormouse send n 'touch-pages 100' >out 2>sent; status=$?
           [ $status = 0 ] || break
         done
         echo sent $count; echo ended $status; [ $LIMITED = yes ] || cat sent >&2",
    );
    assert!(ran.out.starts_with("put 1\n"), "{ran}");
    // a first turn from the genesis image finds no room, or needs none
    assert!(ran.out.contains("fresh 0\n") || ran.out.contains("fresh 1\n"), "{ran}");
    // the disk is full for turns as well, and that is an error like any other
    let ended = if can_mount() { "ended 1\n" } else { "ended unknown\n" };
    assert!(ran.out.ends_with(ended), "{ran}");
    assert!(ran.err.contains("dormouse: ") && !ran.err.contains("panicked"), "{ran}");
    let last = ran.err.rsplit("dormouse: ").next().unwrap_or_default();
    assert!(!can_mount() || last.contains("space"), "{ran}");
    // with room again, everything that was acknowledged is there, and it goes on
    assert_eq!(bed.send("n", "list"), "1. one");
    assert!(bed.run(["zone", "cat", "n:/workspace/noise"]).status == Some(1));
    let written: usize =
        ran.out.lines().find_map(|l| l.strip_prefix("sent ")).and_then(|n| n.parse().ok()).expect("a count");
    let files = bed.json(["zone", "ls", "n:/workspace"]).as_array().map_or(0, Vec::len);
    assert!((written..=written + 1).contains(&files), "{files} of {written}");
    bed.send("n", "note two");
    assert!(bed.send("n", "status").starts_with("memory=2 journal=2 semantic=2 logs=2 "));
}

#[test]
fn only_what_makes_agents_makes_a_store() {
    let bed = Bed::empty();
    let component = crate::bed::guest("hello-command");
    let component = component.to_str().expect("a path in UTF-8");
    let commands = [
        &["ps"][..],
        &["ps", "--json"],
        &["logs", "n"],
        &["send", "n", "x"],
        &["pause", "n"],
        &["resume", "n"],
        &["fork", "n"],
        &["rewind", "n", "0"],
        &["generations", "n"],
        &["pin", "n", "0"],
        &["rm", "n"],
        &["diff", "a", "b"],
        &["du"],
        &["fsck"],
        &["fsck", "--repair"],
        &["backup", "backups"],
        &["reap"],
        &["zone", "ls", "n"],
        &["zone", "shared"],
        &["zone", "put", "n:/workspace/x", component],
        &["zone", "changes", "--follow", "n:/workspace"],
    ];
    let store = bed.store();
    let store = store.to_str().expect("a path in UTF-8");
    for command in commands {
        bed.refused(command, &["no store at", store, "--store DIR"]);
        // named by the variable
        let mut named = Command::new(PROGRAM);
        named.env("DORMOUSE_STORE", store).current_dir(bed.path("")).args(command);
        run(&mut named, b"").assert_refused(&["no store at", store]);
        assert!(!bed.store().exists(), "{command:?}");
    }
    // a component is looked at all the same, and nothing stays
    bed.ok(["inspect", "--no-start", component]);
    assert!(bed.ok(["inspect", component]).contains("genesis "));
    assert!(!bed.store().exists());
    // a folder that is there is no store either
    fs::create_dir(bed.store()).expect("a folder");
    bed.refused(["ps"], &["no store at"]);
    assert_eq!(fs::read_dir(bed.store()).expect("a folder").count(), 0);
    // in the usual place there is nothing before the first agent: that is no mistake
    let usual = |command: &[&str]| {
        let mut usual = Command::new(PROGRAM);
        usual.env_remove("DORMOUSE_STORE").env("XDG_DATA_HOME", bed.path("data"));
        run(usual.current_dir(bed.path("")).args(command), b"")
    };
    let ran = usual(&["ps"]);
    assert_eq!((ran.status, ran.out.lines().count()), (Some(0), 1), "{ran}");
    usual(&["fsck"]).assert_refused(&["no store at", "data/dormouse"]);
    assert!(!bed.path("data").exists());
    // and then it is made
    assert_eq!(usual(&["run", component]).status, Some(0));
    assert_eq!(usual(&["ps"]).out.lines().count(), 2);
}

#[test]
fn empty_variables_count_as_none() {
    let bed = Bed::empty();
    let mut command = Command::new(PROGRAM);
    command.env("DORMOUSE_STORE", "").env("DORMOUSE_DEVICE", "").env("DORMOUSE_LOG", "");
    command.env("XDG_DATA_HOME", bed.path("data")).current_dir(bed.path(""));
    let ran = run(command.args(["ps", "--json"]), b"");
    assert_eq!((ran.status, ran.out.trim()), (Some(0), "[]"), "{ran}");
    assert!(!bed.path("data").exists());
    let bed = Bed::new(&[]);
    let mut command = bed.command(["ps"]);
    run(command.env("DORMOUSE_DEVICE", "tape"), b"").assert_refused(&["DORMOUSE_DEVICE"]);
}
