//! Rename, and what it may replace.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};

use test_programs::{Checks, fails, holds, same};
use wasip2::filesystem::types::ErrorCode;

use crate::Place;

fn kind<T>(result: std::io::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

pub fn all(checks: &mut Checks, place: &Place) {
    let path = |name: &str| place.path(name);
    checks.check("rename moves a file", || {
        fs::write(path("a"), "a")?;
        fs::rename(path("a"), path("b"))?;
        holds(!path("a").exists(), "the old name is still there")?;
        same(&fs::read_to_string(path("b"))?.as_str(), &"a")
    });
    checks.check("rename replaces a file, which stays open", || {
        fs::write(path("target"), "old")?;
        let mut old = File::open(path("target"))?;
        fs::rename(path("b"), path("target"))?;
        let mut text = String::new();
        old.read_to_string(&mut text)?;
        same(&text.as_str(), &"old")?;
        same(&fs::read_to_string(path("target"))?.as_str(), &"a")
    });
    checks.check("rename onto itself changes nothing", || {
        fs::rename(path("target"), path("target"))?;
        same(&fs::read_to_string(path("target"))?.as_str(), &"a")
    });
    checks.check("an open file follows its new name", || {
        let mut file = File::open(path("target"))?;
        fs::rename(path("target"), path("moved"))?;
        fs::write(path("moved"), "changed")?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        same(&text.as_str(), &"changed")
    });
    checks.check("rename moves a folder with all in it", || {
        fs::create_dir_all(path("d1/sub"))?;
        fs::write(path("d1/sub/f"), "f")?;
        fs::create_dir(path("other"))?;
        fs::rename(path("d1"), path("other/d2"))?;
        same(&fs::read_to_string(path("other/d2/sub/f"))?.as_str(), &"f")?;
        same(&fs::read_to_string(path("other/d2/sub/../../../moved"))?.as_str(), &"changed")
    });
    checks.check("a folder replaces an empty folder only", || {
        fs::create_dir(path("empty"))?;
        let onto_full = place.folder.rename_at("empty", &place.folder, "other");
        fails(onto_full, &[ErrorCode::NotEmpty, ErrorCode::Exist])?;
        fs::rename(path("other"), path("empty"))?;
        same(&fs::read_to_string(path("empty/d2/sub/f"))?.as_str(), &"f")
    });
    checks.check("files and folders do not replace each other", || {
        fails(kind(fs::rename(path("moved"), path("empty"))), &[ErrorKind::IsADirectory])?;
        fails(kind(fs::rename(path("empty"), path("moved"))), &[ErrorKind::NotADirectory])
    });
    checks.check("a folder cannot go below itself", || {
        let into_itself = fs::rename(path("empty"), path("empty/d2/sub/empty"));
        fails(kind(into_itself), &[ErrorKind::InvalidInput])?;
        holds(path("empty/d2/sub/f").exists(), "the tree is torn")
    });
    checks.check("what is missing cannot be renamed", || {
        fails(kind(fs::rename(path("none"), path("x"))), &[ErrorKind::NotFound])?;
        fails(kind(fs::rename(path("moved"), path("none/x"))), &[ErrorKind::NotFound])?;
        holds(path("moved").exists(), "the file is gone")
    });
}
