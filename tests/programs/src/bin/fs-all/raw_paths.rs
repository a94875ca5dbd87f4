//! Paths and folders through the raw calls: how a path is read, and where it may lead.

use std::collections::BTreeSet;

use test_programs::{Checks, fails, holds, same};
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, ErrorCode, OpenFlags, PathFlags,
};

use crate::Place;

pub fn all(checks: &mut Checks, place: &Place) {
    reading(checks, place);
    leaving(checks, place);
    folders(checks, place);
}

fn stat(place: &Place, path: &str) -> Result<DescriptorType, ErrorCode> {
    place.folder.stat_at(PathFlags::empty(), path).map(|stat| stat.type_)
}

fn reading(checks: &mut Checks, place: &Place) {
    checks.check("dots and double slashes are read as on any system", || {
        place.folder.create_directory_at("d")?;
        place.file("d/f", b"f")?;
        for path in ["d/f", "./d/f", "d//f", "d/./f", "d/../d/f", "d/../d/.././d/f"] {
            same(&stat(place, path)?, &DescriptorType::RegularFile)?;
        }
        for path in [".", "d", "d/", "d/.", "d/..", "./"] {
            same(&stat(place, path)?, &DescriptorType::Directory)?;
        }
        Ok(())
    });
    checks.check("a slash at the end asks for a folder", || {
        fails(stat(place, "d/f/"), &[ErrorCode::NotDirectory])?;
        fails(place.open("d/f/", OpenFlags::empty(), DescriptorFlags::READ), &[ErrorCode::NotDirectory])
    });
    checks.check("an empty path names nothing", || {
        fails(stat(place, ""), &[ErrorCode::NoEntry, ErrorCode::Invalid])?;
        fails(place.folder.create_directory_at(""), &[ErrorCode::NoEntry, ErrorCode::Invalid])?;
        fails(place.folder.unlink_file_at(""), &[ErrorCode::NoEntry, ErrorCode::Invalid])
    });
    checks.check("a name with a zero byte is refused", || {
        let refused = [ErrorCode::Invalid, ErrorCode::IllegalByteSequence, ErrorCode::NoEntry];
        fails(stat(place, "d\0f"), &refused)?;
        fails(place.folder.create_directory_at("d\0f"), &refused)
    });
    checks.check("what is missing in the middle is missing", || {
        fails(stat(place, "none/f"), &[ErrorCode::NoEntry])?;
        fails(stat(place, "none/../d/f"), &[ErrorCode::NoEntry])?;
        fails(stat(place, "d/f/../f"), &[ErrorCode::NotDirectory])
    });
}

fn leaving(checks: &mut Checks, place: &Place) {
    checks.check("an absolute path is refused by each call", || {
        let denied = [ErrorCode::NotPermitted];
        fails(stat(place, "/"), &denied)?;
        fails(stat(place, "/workspace"), &denied)?;
        fails(place.open("/etc/passwd", OpenFlags::empty(), DescriptorFlags::READ), &denied)?;
        fails(place.folder.create_directory_at("/x"), &denied)?;
        fails(place.folder.unlink_file_at("/x"), &denied)?;
        fails(place.folder.remove_directory_at("/x"), &denied)?;
        fails(place.folder.readlink_at("/x"), &denied)?;
        fails(place.folder.symlink_at("x", "/x"), &denied)?;
        fails(place.folder.rename_at("/x", &place.folder, "x"), &denied)?;
        fails(place.folder.rename_at("d/f", &place.folder, "/x"), &denied)?;
        fails(place.folder.link_at(PathFlags::empty(), "d/f", &place.folder, "/x"), &denied)
    });
    checks.check("no call leaves its folder by ..", || {
        let denied = [ErrorCode::NotPermitted];
        for path in ["..", "../", "../x", "d/../../x", "./../x", "d/../d/../../x"] {
            fails(stat(place, path), &denied)?;
            fails(place.open(path, OpenFlags::CREATE, DescriptorFlags::WRITE), &denied)?;
        }
        fails(place.folder.create_directory_at("../x"), &denied)?;
        fails(place.folder.unlink_file_at("../x"), &denied)?;
        fails(place.folder.remove_directory_at("../x"), &denied)?;
        fails(place.folder.readlink_at("../x"), &denied)?;
        fails(place.folder.symlink_at("x", "../x"), &denied)?;
        fails(place.folder.rename_at("../x", &place.folder, "x"), &denied)?;
        fails(place.folder.rename_at("d/f", &place.folder, "../x"), &denied)?;
        fails(place.folder.link_at(PathFlags::empty(), "d/f", &place.folder, "../x"), &denied)
    });
    checks.check("a folder opened below is a root of its own", || {
        let flags = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
        let below = place.open("d", OpenFlags::DIRECTORY, flags)?;
        same(&below.stat_at(PathFlags::empty(), "f")?.type_, &DescriptorType::RegularFile)?;
        fails(below.stat_at(PathFlags::empty(), "../d/f").map(drop), &[ErrorCode::NotPermitted])?;
        below.rename_at("f", &place.folder, "f")?;
        place.folder.rename_at("f", &below, "f")?;
        below.link_at(PathFlags::empty(), "f", &place.folder, "linked")?;
        place.folder.unlink_file_at("linked")?;
        Ok(())
    });
}

fn list(folder: &Descriptor) -> Result<Vec<(String, DescriptorType)>, ErrorCode> {
    let stream = folder.read_directory()?;
    let mut entries = Vec::new();
    while let Some(entry) = stream.read_directory_entry()? {
        entries.push((entry.name, entry.type_));
    }
    Ok(entries)
}

fn folders(checks: &mut Checks, place: &Place) {
    checks.check("read-directory lists types, and no dots", || {
        place.folder.create_directory_at("list")?;
        place.file("list/file", b"")?;
        place.folder.create_directory_at("list/folder")?;
        place.folder.symlink_at("file", "list/link")?;
        let folder = place.open("list", OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
        let got: BTreeSet<(String, u8)> =
            list(&folder)?.into_iter().map(|(name, kind)| (name, kind as u8)).collect();
        let want = [
            ("file", DescriptorType::RegularFile),
            ("folder", DescriptorType::Directory),
            ("link", DescriptorType::SymbolicLink),
        ];
        same(&got, &want.map(|(name, kind)| (name.to_string(), kind as u8)).into())
    });
    checks.check("two listings of a folder do not disturb each other", || {
        let folder = place.open("list", OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
        let (first, second) = (folder.read_directory()?, folder.read_directory()?);
        let mut pairs = 0;
        while let (Some(a), Some(b)) = (first.read_directory_entry()?, second.read_directory_entry()?) {
            same(&a.name, &b.name)?;
            pairs += 1;
        }
        same(&pairs, &3)?;
        holds(first.read_directory_entry()?.is_none(), "the end is not the end")
    });
    checks.check("a listing outlives the descriptor it came from", || {
        let folder = place.open("list", OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
        let stream = folder.read_directory()?;
        drop(folder);
        holds(stream.read_directory_entry()?.is_some(), "the listing is empty")
    });
    checks.check("a stream that has the number of one that is gone lists its own folder", || {
        let folder = place.open("list", OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
        let empty = place.open("list/folder", OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
        let stream = folder.read_directory()?;
        let number = stream.handle();
        holds(stream.read_directory_entry()?.is_some(), "the listing is empty")?;
        drop(stream);
        // a number comes again once its place was used often enough
        for _ in 0..1 << 11 {
            let stream = empty.read_directory()?;
            if stream.handle() == number {
                return holds(stream.read_directory_entry()?.is_none(), "it lists another folder");
            }
        }
        holds(false, "the number did not come again")
    });
    checks.check("unlink-file-at and remove-directory-at tell apart", || {
        let not_a_file = [ErrorCode::IsDirectory, ErrorCode::NotPermitted];
        fails(place.folder.unlink_file_at("list/folder"), &not_a_file)?;
        fails(place.folder.remove_directory_at("list/file"), &[ErrorCode::NotDirectory])?;
        fails(place.folder.remove_directory_at("list"), &[ErrorCode::NotEmpty])?;
        fails(place.folder.remove_directory_at("none"), &[ErrorCode::NoEntry])?;
        fails(place.folder.unlink_file_at("none"), &[ErrorCode::NoEntry])?;
        place.folder.remove_directory_at("list/folder").map_err(Into::into)
    });
}
