//! Files through the raw calls: what `std` does not reach, and what it hides.

use test_programs::{Checks, fails, holds, same};
use wasip2::clocks::wall_clock::Datetime;
use wasip2::filesystem::types::{
    Advice, DescriptorFlags, DescriptorType, ErrorCode, NewTimestamp, OpenFlags, PathFlags,
};

use crate::Place;

/// What a descriptor without the right answers.
const NO_RIGHT: [ErrorCode; 2] = [ErrorCode::BadDescriptor, ErrorCode::NotPermitted];

pub fn all(checks: &mut Checks, place: &Place) {
    flags(checks, place);
    read_write(checks, place);
    metadata(checks, place);
    times(checks, place);
}

fn flags(checks: &mut Checks, place: &Place) {
    checks.check("get-flags tells what was asked for", || {
        let file = place.file("flags", b"content")?;
        same(&file.get_flags()?, &(DescriptorFlags::READ | DescriptorFlags::WRITE))?;
        let reader = place.open("flags", OpenFlags::empty(), DescriptorFlags::READ)?;
        same(&reader.get_flags()?, &DescriptorFlags::READ)?;
        holds(place.folder.get_flags()?.contains(DescriptorFlags::READ), "the folder cannot be read")
    });
    checks.check("get-type tells file and folder", || {
        let file = place.open("flags", OpenFlags::empty(), DescriptorFlags::READ)?;
        same(&file.get_type()?, &DescriptorType::RegularFile)?;
        same(&place.folder.get_type()?, &DescriptorType::Directory)
    });
    // A stream may be refused when it is asked for or when it is used.
    checks.check("a read-only descriptor writes nothing", || {
        let file = place.open("flags", OpenFlags::empty(), DescriptorFlags::READ)?;
        fails(file.write(b"x", 0), &NO_RIGHT)?;
        for stream in [file.write_via_stream(0), file.append_via_stream()] {
            let wrote = stream.is_ok_and(|stream| stream.blocking_write_and_flush(b"x").is_ok());
            holds(!wrote, "a stream could be written")?;
        }
        same(&file.stat()?.size, &7)
    });
    checks.check("a read-only descriptor cuts nothing", || {
        let file = place.open("flags", OpenFlags::empty(), DescriptorFlags::READ)?;
        holds(file.set_size(0).is_err(), "set-size succeeded")?;
        same(&file.stat()?.size, &7)
    });
    checks.check("a write-only descriptor reads nothing", || {
        let file = place.open("flags", OpenFlags::empty(), DescriptorFlags::WRITE)?;
        fails(file.read(1, 0), &NO_RIGHT)?;
        let read = file.read_via_stream(0).is_ok_and(|stream| stream.blocking_read(1).is_ok());
        holds(!read, "a stream could be read")
    });
    // wasmtime-wasi permits this; a zone does not, since it would be a write without the right.
    checks.check("truncate needs the right to write", || {
        let open = place.open("flags", OpenFlags::TRUNCATE, DescriptorFlags::READ);
        holds(open.is_err(), "the file could be opened")?;
        same(&place.folder.stat_at(PathFlags::empty(), "flags")?.size, &7)
    });
    checks.check("exclusive and directory are honoured", || {
        let exclusive = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        fails(place.open("flags", exclusive, DescriptorFlags::WRITE), &[ErrorCode::Exist])?;
        place.open("fresh", exclusive, DescriptorFlags::WRITE)?;
        fails(place.open("flags", OpenFlags::DIRECTORY, DescriptorFlags::READ), &[ErrorCode::NotDirectory])
    });
}

fn read_write(checks: &mut Checks, place: &Place) {
    checks.check("read takes a piece, and says when it is the last", || {
        let file = place.file("piece", b"0123456789")?;
        same(&file.read(4, 3)?.0, &b"3456".to_vec())?;
        same(&file.read(100, 8)?.0, &b"89".to_vec())?;
        same(&file.read(1, 10)?, &(Vec::new(), true))?;
        same(&file.read(1, u64::from(u32::MAX) * 4)?, &(Vec::new(), true))
    });
    checks.check("write at an offset overwrites, and fills with zeros", || {
        let file = place.file("offset", b"abc")?;
        same(&file.write(b"X", 1)?, &1)?;
        same(&file.write(b"end", 6)?, &3)?;
        same(&file.read(100, 0)?.0, &b"aXc\0\0\0end".to_vec())
    });
    checks.check("an empty read or write does nothing", || {
        let file = place.file("offset2", b"abc")?;
        same(&file.write(b"", 100)?, &0)?;
        same(&file.read(0, 1)?.0, &Vec::new())?;
        same(&file.stat()?.size, &3)
    });
    checks.check("set-size cuts and extends", || {
        let file = place.file("size", b"abcdef")?;
        file.set_size(2)?;
        file.set_size(4)?;
        same(&file.read(100, 0)?.0, &b"ab\0\0".to_vec())
    });
    checks.check("two descriptors see each other's writes", || {
        let first = place.file("shared", b"----")?;
        let second = place.open("shared", OpenFlags::empty(), DescriptorFlags::READ)?;
        first.write(b"++", 1)?;
        same(&second.read(100, 0)?.0, &b"-++-".to_vec())
    });
    checks.check("sync, sync-data and advise succeed", || {
        let file = place.file("synced", b"abc")?;
        file.sync_data()?;
        file.sync()?;
        place.folder.sync()?;
        for advice in [
            Advice::Normal,
            Advice::Sequential,
            Advice::Random,
            Advice::WillNeed,
            Advice::DontNeed,
            Advice::NoReuse,
        ] {
            file.advise(0, 3, advice)?;
        }
        Ok(())
    });
    checks.check("calls for the other type of descriptor fail", || {
        let file = place.file("kind", b"abc")?;
        fails(file.read_directory().map(drop), &[ErrorCode::NotDirectory, ErrorCode::BadDescriptor])?;
        fails(
            file.stat_at(PathFlags::empty(), "x").map(drop),
            &[ErrorCode::NotDirectory, ErrorCode::BadDescriptor],
        )?;
        fails(place.folder.read(1, 0), &[ErrorCode::IsDirectory, ErrorCode::BadDescriptor])?;
        fails(place.folder.write(b"x", 0), &[ErrorCode::IsDirectory, ErrorCode::BadDescriptor])
    });
}

fn metadata(checks: &mut Checks, place: &Place) {
    checks.check("stat and stat-at agree", || {
        let file = place.file("stat", b"12345")?;
        let (here, there) = (file.stat()?, place.folder.stat_at(PathFlags::empty(), "stat")?);
        same(&(here.type_, here.size, here.link_count), &(DescriptorType::RegularFile, 5, 1))?;
        same(&(there.type_, there.size, there.link_count), &(here.type_, here.size, here.link_count))
    });
    checks.check("is-same-object follows the object, not the name", || {
        let file = place.file("object", b"")?;
        let again = place.open("object", OpenFlags::empty(), DescriptorFlags::READ)?;
        let other = place.file("other", b"")?;
        holds(file.is_same_object(&again), "two openings of a file differ")?;
        holds(!file.is_same_object(&other), "two files are one")?;
        place.folder.rename_at("object", &place.folder, "object2")?;
        let moved = place.open("object2", OpenFlags::empty(), DescriptorFlags::READ)?;
        holds(file.is_same_object(&moved), "a renamed file is another")
    });
    checks.check("metadata-hash is one for one object", || {
        let file = place.file("hash", b"")?;
        let other = place.file("hash2", b"")?;
        let pair = |hash: wasip2::filesystem::types::MetadataHashValue| (hash.lower, hash.upper);
        let of_file = pair(file.metadata_hash()?);
        same(&pair(file.metadata_hash()?), &of_file)?;
        same(&pair(place.folder.metadata_hash_at(PathFlags::empty(), "hash")?), &of_file)?;
        holds(pair(other.metadata_hash()?) != of_file, "two files have one hash")?;
        fails(place.folder.metadata_hash_at(PathFlags::empty(), "none").map(drop), &[ErrorCode::NoEntry])
    });
}

fn times(checks: &mut Checks, place: &Place) {
    let at = |seconds| NewTimestamp::Timestamp(Datetime { seconds, nanoseconds: 500_000_000 });
    let seconds = |stat: wasip2::filesystem::types::DescriptorStat| {
        let second = |time: Option<Datetime>| time.map(|time| time.seconds);
        (second(stat.data_access_timestamp), second(stat.data_modification_timestamp))
    };
    checks.check("set-times sets one time and leaves the other", || {
        let file = place.file("times", b"")?;
        file.set_times(at(1000), at(2000))?;
        same(&seconds(file.stat()?), &(Some(1000), Some(2000)))?;
        file.set_times(NewTimestamp::NoChange, at(3000))?;
        same(&seconds(file.stat()?), &(Some(1000), Some(3000)))?;
        file.set_times(at(4000), NewTimestamp::NoChange)?;
        same(&seconds(file.stat()?), &(Some(4000), Some(3000)))
    });
    checks.check("set-times-at sets the times of a path", || {
        place.folder.set_times_at(PathFlags::empty(), "times", at(5000), at(6000))?;
        same(&seconds(place.folder.stat_at(PathFlags::empty(), "times")?), &(Some(5000), Some(6000)))
    });
    checks.check("now is now", || {
        place.folder.set_times_at(
            PathFlags::SYMLINK_FOLLOW,
            "times",
            NewTimestamp::Now,
            NewTimestamp::Now,
        )?;
        let (_, modified) = seconds(place.folder.stat_at(PathFlags::empty(), "times")?);
        let now = wasip2::clocks::wall_clock::now().seconds;
        holds(modified.is_some_and(|time| time.abs_diff(now) < 3600), "the time is more than an hour away")
    });
}
