//! Backups, restores, `fsck` and `du`: a store that is lost comes back, and damage is named.

use std::path::Path;
use std::process::Stdio;

use crate::bed::{Bed, run};

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
