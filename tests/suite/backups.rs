//! Backups, restores, `fsck` and `du`: a store that is lost comes back, and damage is named.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::bed::{Bed, Running, run};

fn two_agents() -> Bed {
    let bed = Bed::new(&["notes"]);
    for name in ["a", "b"] {
        bed.create(name, "notes");
        bed.send(name, &format!("note of {name}"));
    }
    bed
}

#[test]
fn a_store_comes_back_from_its_backups_with_all_that_agents_remember() {
    let bed = two_agents();
    let backups = bed.path("backups");
    let made = bed.json(["backup".as_ref(), backups.as_os_str()]);
    assert!(made["files"].as_u64() > Some(1), "{made}");
    bed.send("a", "note second");
    let later = bed.json(["backup".as_ref(), backups.as_os_str()]);
    assert!(later["bytes"].as_u64() < made["bytes"].as_u64(), "{later} after {made}");
    assert!(later["earlier_frames"].as_u64() > Some(0), "{later}");
    let expected: Vec<String> = ["a", "b"].iter().map(|n| bed.send(n, "list")).collect();
    let everything = bed.json(["ps"]);

    // the first alone, all of them, and through a pipe
    let first = backups.join("000001.dormouse-backup");
    bed.refused(["restore".as_ref(), first.as_os_str()], &["not empty"]);
    std::fs::remove_dir_all(bed.store()).expect("the store goes");
    bed.ok(["restore".as_ref(), first.as_os_str()]);
    assert_eq!(bed.send("a", "list"), "1. of a");
    std::fs::remove_dir_all(bed.store()).expect("the store goes");
    bed.ok(["restore".as_ref(), backups.as_os_str()]);
    assert_eq!(bed.json(["ps"]).as_array().map(Vec::len), everything.as_array().map(Vec::len));
    for (name, expected) in ["a", "b"].iter().zip(&expected) {
        assert_eq!(&bed.send(name, "list"), expected);
    }
    let piped = bed.command(["backup", "-"]).stdout(Stdio::piped()).output().expect("the program");
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    std::fs::remove_dir_all(bed.store()).expect("the store goes");
    let ran = run(&mut bed.command(["restore", "-"]), &piped.stdout);
    assert_eq!(ran.status, Some(0), "{ran}");
    assert_eq!(bed.send("b", "list"), "1. of b");
}

#[test]
fn damaged_and_missing_backups_leave_no_store() {
    let bed = two_agents();
    let backups = bed.path("backups");
    bed.ok(["backup".as_ref(), backups.as_os_str()]);
    bed.ok(["backup".as_ref(), backups.as_os_str()]);
    std::fs::remove_dir_all(bed.store()).expect("the store goes");
    let refused = |from: &Path, why: &str| {
        let ran = bed.run(["restore".as_ref(), from.as_os_str()]);
        ran.assert_refused(&[&from.display().to_string(), why]);
        let left = std::fs::read_dir(bed.store())
            .map_or(0, |entries| entries.flatten().filter(|e| e.file_name() == "superblock").count());
        assert_eq!(left, 0, "a store is left after\n{ran}");
        if bed.store().exists() {
            std::fs::remove_dir_all(bed.store()).expect("what is left goes");
        }
    };
    refused(&backups.join("000002.dormouse-backup"), "has to come before it");
    refused(&bed.path("nothing"), "No such file");
    refused(&bed.file("note", b"a note to myself"), "is no backup");
    let first = std::fs::read(backups.join("000001.dormouse-backup")).expect("the backup");
    refused(&bed.file("cut", &first[..first.len() / 2]), "is truncated");
    let mut flipped = first.clone();
    flipped[first.len() / 2] ^= 1;
    refused(&bed.file("flipped", &flipped), "is damaged");
    bed.ok(["restore".as_ref(), backups.as_os_str()]);
    assert_eq!(bed.send("a", "list"), "1. of a");
}

#[test]
fn fsck_finds_nothing_in_a_sound_store_and_names_what_is_damaged() {
    let bed = two_agents();
    let noise: Vec<u8> =
        (0..400_000_u32).map(|n| (n.wrapping_mul(n).wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let local = bed.file("local", &noise);
    let put = bed.run(["zone".as_ref(), "put".as_ref(), "a:/workspace/large".as_ref(), local.as_os_str()]);
    assert_eq!(put.status, Some(0), "{put}");
    let sound = bed.json(["fsck"]);
    assert!(
        sound["findings"].as_array().is_some_and(Vec::is_empty) && sound["frames"].as_u64() > Some(3),
        "{sound}"
    );
    // one byte in the middle of the largest segment is that file's
    let largest = std::fs::read_dir(bed.store().join("segments"))
        .expect("segments")
        .map(|e| e.expect("an entry").path())
        .max_by_key(|p| p.metadata().map_or(0, |m| m.len()))
        .expect("a segment");
    let mut bytes = std::fs::read(&largest).expect("the segment");
    let middle = bytes.windows(64).position(|w| *w == noise[200_000..200_064]).expect("the file's bytes");
    bytes[middle] ^= 1;
    std::fs::write(&largest, bytes).expect("damage");
    let ran = bed.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran}");
    assert!(ran.out.contains("a:workspace/large"), "{ran}");
    assert_eq!(bed.send("b", "list"), "1. of b");
}

#[test]
fn du_tells_what_is_whose() {
    let bed = two_agents();
    bed.ok(["fork", "a", "c"]);
    let usage = bed.json(["du"]);
    let agents = usage["agents"].as_array().expect("agents");
    assert_eq!(agents.len(), 3, "{usage}");
    for agent in agents {
        assert!(agent["bytes"]["logical"].as_u64() > Some(0), "{agent}");
        assert_eq!(agent["zones"].as_array().map(Vec::len), Some(5), "{agent}");
    }
    let table = bed.ok(["du"]);
    assert!(table.starts_with("NAME") && table.contains("  workspace"), "{table}");
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_is_added_only_where_the_folder_can_be_restored_afterwards() {
    let bed = two_agents();
    let folder = bed.path("backups");
    let part = |number: u32| folder.join(format!("00000{number}.dormouse-backup"));
    for note in ["one", "two"] {
        bed.ok(["backup".as_ref(), folder.as_os_str()]);
        bed.send("a", &format!("note {note}"));
    }
    // since the first, where there is a second
    let since = |since: &Path, to: &Path| {
        bed.run(["backup".as_ref(), "--since".as_ref(), since.as_os_str(), to.as_os_str()])
    };
    since(&part(1), &folder).assert_refused(&["000001", "not the newest", "000002", "of its own"]);
    since(&bed.path("nothing"), &folder).assert_refused(&["nothing"]);
    assert_eq!(names(&folder), ["000001.dormouse-backup", "000002.dormouse-backup"]);
    // elsewhere it may be, and the newest may be named under another name
    assert_eq!(since(&part(1), &bed.path("elsewhere")).status, Some(0));
    let linked = bed.path("linked");
    std::fs::hard_link(part(2), &linked).expect("a link");
    assert_eq!(since(&linked, &folder).status, Some(0));
    assert!(part(3).exists());
    // what is no backup, or none that follows, is named
    for (name, content) in [("000009", ""), ("000000", "something else"), ("notes", "DORMBKUP")] {
        let stray = folder.join(name).with_extension("dormouse-backup");
        std::fs::write(&stray, content).expect("a file");
        bed.refused(["backup".as_ref(), folder.as_os_str()], &[name, "is no backup", "move away"]);
        let new = Bed::empty();
        new.refused(["restore".as_ref(), folder.as_os_str()], &[name, "is no backup"]);
        assert!(!new.store().exists());
        std::fs::remove_file(stray).expect("the file goes");
    }
    std::fs::rename(part(2), bed.path("away")).expect("a backup goes");
    bed.refused(["backup".as_ref(), folder.as_os_str()], &["000003", "not since", "000001", "another"]);
    std::fs::rename(bed.path("away"), part(2)).expect("it comes back");
    std::fs::rename(part(1), bed.path("away")).expect("the first goes");
    bed.refused(["backup".as_ref(), folder.as_os_str()], &["000002", "the first backup", "--since"]);
    std::fs::rename(bed.path("away"), part(1)).expect("it comes back");
    // numbers go on behind the last
    std::fs::rename(part(3), part(7)).expect("another number");
    bed.ok(["backup".as_ref(), folder.as_os_str()]);
    assert!(part(8).exists());
    let expected = bed.send("a", "list");
    std::fs::remove_dir_all(bed.store()).expect("the store goes");
    bed.ok(["restore".as_ref(), folder.as_os_str()]);
    assert_eq!(bed.send("a", "list"), expected);
}

#[test]
fn a_restore_that_is_refused_or_killed_leaves_nothing_in_the_way() {
    let bed = two_agents();
    let backups = bed.path("backups");
    bed.ok(["backup".as_ref(), backups.as_os_str()]);
    let first = backups.join("000001.dormouse-backup");
    let whole = std::fs::read(&first).expect("the backup");
    let cut = bed.file("cut", &whole[..whole.len() - 40]);
    std::fs::remove_dir_all(bed.store()).expect("the store goes");
    // refused: a folder that was there is as empty as before, one that was not is not
    bed.refused(["restore".as_ref(), cut.as_os_str()], &["truncated"]);
    assert!(!bed.store().exists());
    std::fs::create_dir(bed.store()).expect("a folder");
    bed.refused(["restore".as_ref(), cut.as_os_str()], &["truncated"]);
    assert_eq!(names(&bed.store()), [""; 0]);

    // killed in the middle, while it waits for more
    let kill = || {
        let mut running = Running::start(&mut bed.command(["restore", "-"]));
        let input = running.input.as_mut().expect("its input");
        input.write_all(&whole[..whole.len() - 40]).expect("most of the backup");
        while !bed.store().join("components").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        bed.refused(["restore".as_ref(), first.as_os_str()], &["open in another process"]);
        running.signal(rustix::process::Signal::KILL);
        running.end();
    };
    kill();
    let left = names(&bed.store());
    assert!(left.contains(&"restoring".into()) && left.contains(&"tenant.key".into()), "{left:?}");
    for command in [&["ps"][..], &["send", "a", "list"], &["fsck"]] {
        bed.refused(command, &["a restore", "not finished", "dormouse restore"]);
    }
    assert_eq!(names(&bed.store()), left);
    // what is somebody else's is not taken for a part of it
    std::fs::write(bed.store().join("mine"), "mine").expect("a file");
    bed.refused(["restore".as_ref(), first.as_os_str()], &["not empty", "mine"]);
    assert_eq!(names(&bed.store()), ["mine", "restoring"], "what was begun is still not finished");
    std::fs::remove_file(bed.store().join("mine")).expect("the file goes");
    kill();
    bed.ok(["restore".as_ref(), first.as_os_str()]);
    assert!(!names(&bed.store()).contains(&"restoring".into()));
    assert_eq!(bed.send("a", "list"), "1. of a");
    // a store is never taken for what a restore left
    bed.refused(["restore".as_ref(), first.as_os_str()], &["not empty"]);
    assert_eq!(bed.send("a", "list"), "1. of a");
}

/// `cp -r` of a store that is then used beside the first.
#[test]
fn a_copy_of_a_store_does_not_go_on_in_the_folder_of_the_other() {
    let bed = two_agents();
    let folder = bed.path("backups");
    bed.ok(["backup".as_ref(), folder.as_os_str()]);
    let (store, copy) = (bed.store(), bed.path("copy"));
    let copied = std::process::Command::new("cp").arg("-r").args([&store, &copy]).status().expect("cp");
    assert!(copied.success());
    bed.send("a", "note here");
    bed.ok(["backup".as_ref(), folder.as_os_str()]);
    std::fs::rename(&store, bed.path("away")).expect("the store goes");
    std::fs::rename(&copy, &store).expect("its copy takes its place");
    bed.send("a", "note there");
    let before = names(&folder);
    bed.refused(["backup".as_ref(), folder.as_os_str()], &["copy of the store", "gone on by itself"]);
    assert_eq!(names(&folder), before);
    bed.ok(["backup".as_ref(), bed.path("elsewhere").as_os_str()]);
}
