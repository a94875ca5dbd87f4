//! Links, pipes and folders where a store has its files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bed::Bed;

const VICTIM: &str = "what somebody else has written";

/// What is put in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plant {
    Link,
    Dangling,
    Pipe,
    Folder,
}

impl Plant {
    const ALL: [Self; 4] = [Self::Link, Self::Dangling, Self::Pipe, Self::Folder];

    /// Puts it where `path` was. What it must not touch lies beside the store.
    fn put(self, bed: &Bed, path: &Path) {
        if path.symlink_metadata().is_ok() {
            fs::remove_file(path).expect("the file goes");
        }
        match self {
            Self::Link => symlink(bed.file("victim", VICTIM), path).expect("a link"),
            Self::Dangling => symlink(bed.path("nothing"), path).expect("a link"),
            Self::Pipe => assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success()),
            Self::Folder => fs::create_dir(path).expect("a folder"),
        }
    }

    /// Nothing outside the store was changed or made.
    fn assert_harmless(self, bed: &Bed, what: &Path) {
        if self == Self::Link {
            let victim = fs::read_to_string(bed.path("victim")).expect("the victim");
            assert_eq!(victim, VICTIM, "{}", what.display());
        }
        assert!(!bed.path("nothing").exists(), "{}", what.display());
    }
}

fn agent() -> Bed {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    bed.send("n", "note one");
    bed
}

/// The files in a folder of the store, but for folders in it.
fn files(bed: &Bed, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(bed.store().join(folder)).expect("a folder");
    let paths = entries.map(|e| e.expect("an entry").path());
    paths.filter(|path| path.is_file()).collect()
}

#[test]
fn what_is_planted_for_a_file_of_the_store_is_neither_followed_nor_waited_for() {
    let whole = agent();
    let mut names: Vec<PathBuf> =
        ["superblock", "tenant.key", "lock", "index.redb"].map(PathBuf::from).into();
    for folder in ["log", "segments", "images", "components"] {
        let in_folder = files(&whole, folder);
        assert!(folder == "segments" || !in_folder.is_empty(), "{folder}");
        names.extend(in_folder.iter().map(|path| path.strip_prefix(whole.store()).expect("in it").into()));
    }
    for plant in Plant::ALL {
        for name in &names {
            let bed = Bed::empty();
            let copied = Command::new("cp").arg("-a").arg(whole.store()).arg(bed.store()).status();
            assert!(copied.expect("cp").success());
            plant.put(&bed, &bed.store().join(name));
            for command in
                [&["ps"][..], &["send", "n", "status"], &["backup", "backups"], &["fsck", "--repair"]]
            {
                let ran = bed.run(command);
                assert!(matches!(ran.status, Some(0 | 1)) && !ran.err.contains("panicked"), "{ran}");
                plant.assert_harmless(&bed, name);
            }
        }
    }
}

#[test]
fn a_key_of_compiled_code_that_is_none_is_replaced() {
    for plant in Plant::ALL {
        let bed = agent();
        let key = bed.store().join("cache/mac.key");
        plant.put(&bed, &key);
        bed.ok(["ps"]);
        plant.assert_harmless(&bed, &key);
        let found = key.symlink_metadata().expect("a key");
        assert!(found.is_file() && found.len() == 32, "{plant:?}");
        // what was compiled under another key is made anew
        if plant == Plant::Link {
            assert!(bed.send("n", "status").starts_with("memory=1 journal=1 "));
        }
    }
}

#[test]
fn what_is_planted_for_compiled_code_is_replaced() {
    let bed = agent();
    let entry = || {
        let entries = fs::read_dir(bed.store().join("cache")).expect("a folder");
        let mut folders = entries.map(|e| e.expect("an entry").path()).filter(|path| path.is_dir());
        folders.next().expect("compiled code")
    };
    // a file of it
    let file = fs::read_dir(entry()).expect("a folder").next().expect("a file").expect("a file").path();
    Plant::Pipe.put(&bed, &file);
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 "));
    // and all of it
    let folder = entry();
    fs::remove_dir_all(&folder).expect("it goes");
    Plant::Dangling.put(&bed, &folder);
    assert!(bed.send("n", "status").starts_with("memory=1 journal=1 "));
    Plant::Dangling.assert_harmless(&bed, &folder);
    assert!(folder.symlink_metadata().expect("an entry").is_dir());
}
