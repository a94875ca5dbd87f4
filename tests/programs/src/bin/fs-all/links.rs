//! Hard links and symbolic links.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use test_programs::{Checks, fails, holds, same};
use wasip2::filesystem::types::{DescriptorFlags, DescriptorType, ErrorCode, OpenFlags, PathFlags};

use crate::Place;

pub fn all(checks: &mut Checks, place: &Place) {
    hard(checks, place);
    symbolic(checks, place);
    outward(checks, place);
}

fn kind<T>(result: std::io::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

fn hard(checks: &mut Checks, place: &Place) {
    checks.check("a hard link is the same file", || {
        fs::write(place.path("one"), "1")?;
        fs::hard_link(place.path("one"), place.path("two"))?;
        OpenOptions::new().append(true).open(place.path("two"))?.write_all(b"2")?;
        same(&fs::read_to_string(place.path("one"))?.as_str(), &"12")?;
        same(&place.folder.stat_at(PathFlags::empty(), "one")?.link_count, &2)
    });
    checks.check("the file stays until its last name goes", || {
        fs::remove_file(place.path("one"))?;
        same(&fs::read_to_string(place.path("two"))?.as_str(), &"12")?;
        same(&place.folder.stat_at(PathFlags::empty(), "two")?.link_count, &1)
    });
    checks.check("a hard link replaces nothing, and needs a file", || {
        fs::write(place.path("three"), "3")?;
        fails(kind(fs::hard_link(place.path("two"), place.path("three"))), &[ErrorKind::AlreadyExists])?;
        fails(kind(fs::hard_link(place.path("none"), place.path("four"))), &[ErrorKind::NotFound])?;
        fs::create_dir(place.path("folder"))?;
        holds(fs::hard_link(place.path("folder"), place.path("four")).is_err(), "a folder was linked")
    });
    checks.check("renaming one name of a file onto another changes nothing", || {
        fs::hard_link(place.path("two"), place.path("same"))?;
        fs::rename(place.path("two"), place.path("same"))?;
        same(&fs::read_to_string(place.path("same"))?.as_str(), &"12")?;
        same(&fs::read_to_string(place.path("two"))?.as_str(), &"12")
    });
}

fn symbolic(checks: &mut Checks, place: &Place) {
    checks.check("a symbolic link is followed, and can be read", || {
        place.folder.symlink_at("two", "link")?;
        same(&place.folder.readlink_at("link")?.as_str(), &"two")?;
        same(&fs::read_link(place.path("link"))?.as_path(), &Path::new("two"))?;
        same(&fs::read_to_string(place.path("link"))?.as_str(), &"12")?;
        holds(fs::symlink_metadata(place.path("link"))?.is_symlink(), "stat does not show the link")?;
        holds(fs::metadata(place.path("link"))?.is_file(), "stat does not follow the link")
    });
    checks.check("without symlink-follow a link is not followed", || {
        let stat = place.folder.stat_at(PathFlags::empty(), "link")?;
        same(&stat.type_, &DescriptorType::SymbolicLink)?;
        let open = place.open("link", OpenFlags::empty(), DescriptorFlags::READ);
        fails(open, &[ErrorCode::Loop])
    });
    checks.check("a link to a folder leads into it", || {
        fs::write(place.path("folder/inside"), "in")?;
        place.folder.symlink_at("folder", "door")?;
        same(&fs::read_to_string(place.path("door/inside"))?.as_str(), &"in")?;
        same(&fs::read_to_string(place.path("door/../two"))?.as_str(), &"12")
    });
    checks.check("a dangling link is there, what it names is not", || {
        place.folder.symlink_at("nowhere", "dangling")?;
        fails(kind(fs::read(place.path("dangling"))), &[ErrorKind::NotFound])?;
        holds(fs::symlink_metadata(place.path("dangling")).is_ok(), "the link itself is not there")
    });
    checks.check("creating through a dangling link creates its target", || {
        fs::write(place.path("dangling"), "made")?;
        same(&fs::read_to_string(place.path("nowhere"))?.as_str(), &"made")
    });
    checks.check("exclusive creation does not follow a link", || {
        let flags = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let open = place.folder.open_at(PathFlags::SYMLINK_FOLLOW, "dangling", flags, DescriptorFlags::WRITE);
        fails(open, &[ErrorCode::Exist])
    });
    checks.check("links in a circle end", || {
        place.folder.symlink_at("circle-b", "circle-a")?;
        place.folder.symlink_at("circle-a", "circle-b")?;
        let open = place.folder.open_at(
            PathFlags::SYMLINK_FOLLOW,
            "circle-a",
            OpenFlags::empty(),
            DescriptorFlags::READ,
        );
        fails(open, &[ErrorCode::Loop])
    });
    checks.check("unlink and rename take the link, not its target", || {
        fs::rename(place.path("link"), place.path("renamed"))?;
        same(&place.folder.readlink_at("renamed")?.as_str(), &"two")?;
        fs::remove_file(place.path("renamed"))?;
        same(&fs::read_to_string(place.path("two"))?.as_str(), &"12")
    });
    checks.check("a link replaces nothing, and readlink needs a link", || {
        fails(place.folder.symlink_at("two", "three"), &[ErrorCode::Exist])?;
        fails(place.folder.readlink_at("three"), &[ErrorCode::Invalid])?;
        fails(place.folder.readlink_at("none"), &[ErrorCode::NoEntry])
    });
}

fn outward(checks: &mut Checks, place: &Place) {
    checks.check("a link with an absolute target is not made", || {
        fails(place.folder.symlink_at("/etc/passwd", "absolute"), &[ErrorCode::NotPermitted])
    });
    checks.check("a link that leads out of the folder is not followed", || {
        place.folder.symlink_at("../../../../etc", "out")?;
        let open = |path: &str| {
            place.folder.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::empty(), DescriptorFlags::READ)
        };
        fails(open("out"), &[ErrorCode::NotPermitted])?;
        fails(open("out/passwd"), &[ErrorCode::NotPermitted])
    });
}
