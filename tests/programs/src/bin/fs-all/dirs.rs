//! Folders through `std`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use test_programs::{Checks, fails, holds, same};
use wasip2::filesystem::types::ErrorCode;

use crate::Place;

/// More than one page of any listing.
const MANY: usize = 500;

fn names(path: &Path) -> std::io::Result<Vec<String>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn kind<T>(result: std::io::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

pub fn all(checks: &mut Checks, place: &Place) {
    checks.check("mkdir makes a folder, once", || {
        fs::create_dir(place.path("a"))?;
        fails(kind(fs::create_dir(place.path("a"))), &[ErrorKind::AlreadyExists])?;
        fails(kind(fs::create_dir(place.path("none/b"))), &[ErrorKind::NotFound])
    });
    checks.check("create_dir_all makes what is missing", || {
        fs::create_dir_all(place.path("a/b/c/d"))?;
        fs::write(place.path("a/b/c/d/file"), "deep")?;
        same(&fs::read_to_string(place.path("a/b/../b/./c//d/file"))?.as_str(), &"deep")
    });
    checks.check("rmdir refuses what is not empty, and removes what is", || {
        fails(place.folder.remove_directory_at("a/b/c/d"), &[ErrorCode::NotEmpty])?;
        holds(fs::remove_dir(place.path("a/b/c/d")).is_err(), "std removed it")?;
        fs::remove_file(place.path("a/b/c/d/file"))?;
        fs::remove_dir(place.path("a/b/c/d"))?;
        holds(!place.path("a/b/c/d").exists(), "the folder is still there")
    });
    checks.check("rmdir removes no file, unlink no folder", || {
        fs::write(place.path("plain"), "")?;
        fails(kind(fs::remove_dir(place.path("plain"))), &[ErrorKind::NotADirectory])?;
        holds(fs::remove_file(place.path("a")).is_err(), "unlink removed a folder")?;
        holds(place.path("a").is_dir(), "the folder is gone")
    });
    checks.check("a file has nothing below it", || {
        fails(kind(fs::read(place.path("plain/below"))), &[ErrorKind::NotADirectory])?;
        fails(kind(fs::write(place.path("plain/below"), "")), &[ErrorKind::NotADirectory])?;
        holds(names(&place.path("plain")).is_err(), "a file could be listed")
    });
    checks.check("readdir lists each entry once, with its type", || {
        let folder = place.path("many");
        fs::create_dir(&folder)?;
        let mut want = BTreeSet::new();
        for number in 0..MANY {
            let name = format!("entry-{number}");
            if number.is_multiple_of(10) {
                fs::create_dir(folder.join(&name))?;
            } else {
                fs::write(folder.join(&name), "")?;
            }
            want.insert(name);
        }
        let got = names(&folder)?;
        same(&got.len(), &MANY)?;
        holds(got.into_iter().collect::<BTreeSet<_>>() == want, "the names differ")?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let number: usize = entry.file_name().to_string_lossy()[6..].parse()?;
            same(&entry.file_type()?.is_dir(), &(number.is_multiple_of(10)))?;
        }
        Ok(())
    });
    checks.check("removing while listing ends, and leaves nothing", || {
        let folder = place.path("many");
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        same(&names(&folder)?, &Vec::new())?;
        fs::remove_dir(&folder)?;
        Ok(())
    });
    checks.check("a folder that is gone is gone for its open listing", || {
        fs::create_dir(place.path("fading"))?;
        let listing = fs::read_dir(place.path("fading"))?;
        fs::remove_dir(place.path("fading"))?;
        same(&listing.filter_map(Result::ok).count(), &0)
    });
    checks.check("names may hold any letter", || {
        let name = "ünï çødé 猫 🐭\t'\"*?";
        fs::write(place.path(name), "named")?;
        holds(names(&place.path)?.iter().any(|found| found == name), "the listing has another name")?;
        same(&fs::read_to_string(place.path(name))?.as_str(), &"named")
    });
    checks.check("a name has 255 bytes at most", || {
        fs::write(place.path(&"n".repeat(255)), "")?;
        let too_long = fs::write(place.path(&"n".repeat(256)), "");
        fails(kind(too_long), &[ErrorKind::InvalidFilename])
    });
}
