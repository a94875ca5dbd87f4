//! Files through `std`: opening, reading, writing, sizes, times.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

use test_programs::{Checks, fails, holds, same};

use crate::Place;

/// Larger than any block or chunk, and no multiple of one.
const LARGE: usize = 3 * 1024 * 1024 + 77;

pub fn all(checks: &mut Checks, place: &Place) {
    open(checks, place);
    content(checks, place);
    size(checks, place);
    life(checks, place);
    times(checks, place);
}

fn kind<T>(result: std::io::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

fn open(checks: &mut Checks, place: &Place) {
    checks
        .check("open a missing file", || fails(kind(File::open(place.path("none"))), &[ErrorKind::NotFound]));
    checks.check("create_new makes a file, once", || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        options.open(place.path("once"))?;
        fails(kind(options.open(place.path("once"))), &[ErrorKind::AlreadyExists])
    });
    checks.check("create keeps what is there", || {
        fs::write(place.path("kept"), "kept")?;
        OpenOptions::new().write(true).create(true).truncate(false).open(place.path("kept"))?;
        same(&fs::read(place.path("kept"))?.as_slice(), &b"kept".as_slice())
    });
    checks.check("truncate empties", || {
        fs::write(place.path("emptied"), "long")?;
        OpenOptions::new().write(true).truncate(true).open(place.path("emptied"))?;
        same(&fs::metadata(place.path("emptied"))?.len(), &0)
    });
    checks.check("a file opened to read cannot be written", || {
        fs::write(place.path("ro"), "ro")?;
        let wrote = File::open(place.path("ro"))?.write(b"x");
        holds(wrote.is_err(), "the write succeeded")?;
        same(&fs::read(place.path("ro"))?.as_slice(), &b"ro".as_slice())
    });
    checks.check("a file opened to write cannot be read", || {
        let mut file = File::create(place.path("wo"))?;
        holds(file.read(&mut [0]).is_err(), "the read succeeded")
    });
}

fn content(checks: &mut Checks, place: &Place) {
    checks.check("read and write move one position", || {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(place.path("rw"))?;
        file.write_all(b"hello world")?;
        same(&file.stream_position()?, &11)?;
        file.seek(SeekFrom::Start(6))?;
        let mut word = String::new();
        file.read_to_string(&mut word)?;
        same(&word.as_str(), &"world")?;
        file.seek(SeekFrom::End(-5))?;
        file.write_all(b"W")?;
        file.rewind()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        same(&text.as_str(), &"hello World")
    });
    checks.check("append always writes at the end", || {
        fs::write(place.path("log"), "one;")?;
        let mut first = OpenOptions::new().append(true).open(place.path("log"))?;
        let mut second = OpenOptions::new().append(true).open(place.path("log"))?;
        first.write_all(b"two;")?;
        second.write_all(b"three;")?;
        first.write_all(b"four;")?;
        same(&fs::read_to_string(place.path("log"))?.as_str(), &"one;two;three;four;")
    });
    checks.check("a large file comes back as written", || {
        let data: Vec<u8> = (0..LARGE).map(|at| (at * 31 + at / 4096) as u8).collect();
        fs::write(place.path("large"), &data)?;
        holds(fs::read(place.path("large"))? == data, "the content differs")?;
        let mut file = OpenOptions::new().read(true).write(true).open(place.path("large"))?;
        file.seek(SeekFrom::Start(65_530))?;
        file.write_all(b"over a border")?;
        let mut around = [0; 17];
        file.seek(SeekFrom::Start(65_528))?;
        file.read_exact(&mut around)?;
        same(&&around[2..15], &b"over a border".as_slice())?;
        same(&around[15..], &data[65_543..65_545])
    });
    checks.check("reading at the end gives nothing", || {
        let mut file = File::open(place.path("log"))?;
        file.seek(SeekFrom::Start(1 << 40))?;
        same(&file.read(&mut [0; 8])?, &0)
    });
}

fn size(checks: &mut Checks, place: &Place) {
    checks.check("set_len cuts, and extends with zeros", || {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(place.path("len"))?;
        fs::write(place.path("len"), "abcdef")?;
        file.set_len(2)?;
        file.set_len(5)?;
        same(&fs::read(place.path("len"))?.as_slice(), &b"ab\0\0\0".as_slice())
    });
    checks.check("a hole reads as zeros", || {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(place.path("hole"))?;
        file.write_all(b"x")?;
        file.seek(SeekFrom::Start(200_000))?;
        file.write_all(b"y")?;
        let data = fs::read(place.path("hole"))?;
        same(&data.len(), &200_001)?;
        holds(data[1..200_000].iter().all(|byte| *byte == 0), "the hole is not zero")?;
        same(&(data[0], data[200_000]), &(b'x', b'y'))
    });
    checks.check("cutting through a block leaves no old bytes behind", || {
        fs::write(place.path("cut"), vec![7; 100_000])?;
        let file = OpenOptions::new().write(true).open(place.path("cut"))?;
        file.set_len(70_001)?;
        file.set_len(100_000)?;
        let data = fs::read(place.path("cut"))?;
        holds(data[..70_001].iter().all(|byte| *byte == 7), "bytes before the cut changed")?;
        holds(data[70_001..].iter().all(|byte| *byte == 0), "bytes after the cut came back")
    });
}

fn life(checks: &mut Checks, place: &Place) {
    checks.check("an open file outlives its name", || {
        let path = place.path("gone");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        file.write_all(b"still ")?;
        fs::remove_file(&path)?;
        holds(!path.exists(), "the name is still there")?;
        file.write_all(b"here")?;
        file.rewind()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        same(&text.as_str(), &"still here")
    });
    checks.check("a new file of the old name is another file", || {
        let path = place.path("twin");
        fs::write(&path, "old")?;
        let mut old = File::open(&path)?;
        fs::remove_file(&path)?;
        fs::write(&path, "new")?;
        let mut text = String::new();
        old.read_to_string(&mut text)?;
        same(&text.as_str(), &"old")?;
        same(&fs::read_to_string(&path)?.as_str(), &"new")
    });
    checks.check("sync_all and sync_data succeed", || {
        let mut file = File::create(place.path("synced"))?;
        file.write_all(b"durable")?;
        file.sync_data()?;
        file.sync_all()?;
        Ok(())
    });
    checks.check("copy copies", || {
        fs::write(place.path("from"), "copied")?;
        same(&fs::copy(place.path("from"), place.path("to"))?, &6)?;
        same(&fs::read_to_string(place.path("to"))?.as_str(), &"copied")
    });
    checks.check("a folder is no file", || {
        fs::create_dir(place.path("folder"))?;
        holds(fs::read(place.path("folder")).is_err(), "a folder could be read as a file")?;
        holds(File::create(place.path("folder")).is_err(), "a folder could be opened to write")?;
        fs::remove_dir(place.path("folder"))?;
        Ok(())
    });
}

fn times(checks: &mut Checks, place: &Place) {
    checks.check("a write moves the modification time", || {
        let before = SystemTime::now() - Duration::from_hours(1);
        fs::write(place.path("timed"), "1")?;
        let modified = fs::metadata(place.path("timed"))?.modified()?;
        holds(modified > before, "the time is more than an hour ago")?;
        holds(modified < SystemTime::now() + Duration::from_hours(1), "the time is an hour ahead")
    });
    checks.check("set_times sets both times", || {
        let file = OpenOptions::new().write(true).open(place.path("timed"))?;
        let accessed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let modified = SystemTime::UNIX_EPOCH + Duration::new(1_100_000_000, 250_000_000);
        file.set_times(FileTimes::new().set_accessed(accessed).set_modified(modified))?;
        let stat = fs::metadata(place.path("timed"))?;
        same(&stat.accessed()?, &accessed)?;
        same(&stat.modified()?, &modified)
    });
    checks.check("stat tells type and size", || {
        let stat = fs::metadata(place.path("timed"))?;
        same(&(stat.is_file(), stat.is_dir(), stat.len()), &(true, false, 1))?;
        holds(fs::metadata(&place.path)?.is_dir(), "the folder is no folder")
    });
}
