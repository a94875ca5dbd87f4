//! The contract of a zone as its agent meets it.
//!
//! usage: `contracts zones` prints the preopened folders; `contracts KIND FOLDER OTHER` checks a
//! zone of that kind (`append-only`, `versioned` or `ordinary`), and that nothing passes between it
//! and the zone OTHER.

use std::error::Error;
use std::process::ExitCode;

use test_programs::{Checks, Outcome, fails, preopen, same};
use wasip2::clocks::wall_clock::Datetime;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags};

const DENIED: [ErrorCode; 1] = [ErrorCode::NotPermitted];

/// What a contract answers to one kind of operation.
type Rule = bool;

/// The rules of a zone, as the table of contracts names them. Creating and appending is permitted
/// everywhere.
struct Contract {
    overwrite: Rule,
    rename: Rule,
    unlink: Rule,
    links: Rule,
    set_times: Rule,
}

const APPEND_ONLY: Contract =
    Contract { overwrite: false, rename: false, unlink: false, links: false, set_times: false };
const VERSIONED: Contract =
    Contract { overwrite: true, rename: true, unlink: true, links: false, set_times: false };
const ORDINARY: Contract =
    Contract { overwrite: true, rename: true, unlink: true, links: true, set_times: true };

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["zones"] => zones(),
        ["append-only", zone, other] => check(&APPEND_ONLY, zone, other),
        ["versioned", zone, other] => check(&VERSIONED, zone, other),
        ["ordinary", zone, other] => check(&ORDINARY, zone, other),
        _ => {
            eprintln!("usage: contracts zones | contracts append-only|versioned|ordinary FOLDER OTHER");
            ExitCode::FAILURE
        }
    }
}

fn zones() -> ExitCode {
    let mut names: Vec<String> =
        wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, name)| name).collect();
    names.sort();
    for name in names {
        println!("{name}");
    }
    ExitCode::SUCCESS
}

/// A zone, and one beside it.
struct Pair {
    zone: Descriptor,
    other: Descriptor,
}

fn check(contract: &Contract, zone: &str, other: &str) -> ExitCode {
    let mut checks = Checks::new();
    let open =
        || -> Result<Pair, Box<dyn Error>> { Ok(Pair { zone: preopen(zone)?, other: preopen(other)? }) };
    match open() {
        Err(error) => checks.check("the zones are there", || Err(error)),
        Ok(pair) => {
            growing(&mut checks, &pair);
            content(&mut checks, contract, &pair);
            names(&mut checks, contract, &pair);
            crossing(&mut checks, &pair);
        }
    }
    checks.finish()
}

impl Pair {
    fn open(&self, name: &str, open: OpenFlags) -> Result<Descriptor, ErrorCode> {
        self.zone.open_at(PathFlags::empty(), name, open, DescriptorFlags::READ | DescriptorFlags::WRITE)
    }

    /// A new file with some content.
    fn file(&self, name: &str) -> Result<Descriptor, ErrorCode> {
        let file = self.open(name, OpenFlags::CREATE | OpenFlags::EXCLUSIVE)?;
        file.write(b"0123456789", 0)?;
        Ok(file)
    }
}

/// The operation does what the rule says.
fn obeys<T>(rule: Rule, result: Result<T, ErrorCode>) -> Outcome {
    match (rule, result) {
        (true, Ok(_)) => Ok(()),
        (true, Err(error)) => Err(format!("refused with {}", error.name()).into()),
        (false, result) => fails(result.map(drop), &DENIED),
    }
}

fn content_is(file: &Descriptor, want: &str) -> Outcome {
    same(&String::from_utf8(file.read(1000, 0)?.0)?.as_str(), &want)
}

fn growing(checks: &mut Checks, pair: &Pair) {
    checks.check("create file", || pair.file("grow").map(drop).map_err(Into::into));
    checks.check("create folder", || pair.zone.create_directory_at("folder").map_err(Into::into));
    checks.check("append by stream", || {
        let file = pair.open("grow", OpenFlags::empty())?;
        file.append_via_stream()?.blocking_write_and_flush(b"ab")?;
        content_is(&file, "0123456789ab")
    });
    checks.check("append by a write at exactly the end", || {
        let file = pair.open("grow", OpenFlags::empty())?;
        file.write(b"cd", 12)?;
        content_is(&file, "0123456789abcd")
    });
    checks.check("append in a folder", || {
        pair.file("folder/file")?.append_via_stream()?.blocking_write_and_flush(b"!").map_err(Into::into)
    });
    checks.check("sync", || pair.open("grow", OpenFlags::empty())?.sync().map_err(Into::into));
}

fn content(checks: &mut Checks, contract: &Contract, pair: &Pair) {
    let may = contract.overwrite;
    checks.check("a file to change", || pair.file("change").map(drop).map_err(Into::into));
    checks.check("overwrite", || {
        let file = pair.open("change", OpenFlags::empty())?;
        obeys(may, file.write(b"X", 3))?;
        content_is(&file, if may { "012X456789" } else { "0123456789" })
    });
    checks.check("overwrite over the end", || {
        let file = pair.open("change", OpenFlags::empty())?;
        obeys(may, file.write(b"Yz", 9))?;
        content_is(&file, if may { "012X45678Yz" } else { "0123456789" })
    });
    checks.check("write behind the end", || {
        let file = pair.open("change", OpenFlags::empty())?;
        obeys(may, file.write(b"!", 12))?;
        content_is(&file, if may { "012X45678Yz\0!" } else { "0123456789" })
    });
    checks.check("overwrite by stream", || {
        let file = pair.open("change", OpenFlags::empty())?;
        let wrote =
            file.write_via_stream(0).is_ok_and(|stream| stream.blocking_write_and_flush(b"S").is_ok());
        same(&wrote, &may)?;
        content_is(&file, if may { "S12X45678Yz\0!" } else { "0123456789" })
    });
    checks.check("cut", || {
        let file = pair.open("change", OpenFlags::empty())?;
        obeys(may, file.set_size(4))?;
        content_is(&file, if may { "S12X" } else { "0123456789" })
    });
    checks.check("extend", || {
        let file = pair.open("change", OpenFlags::empty())?;
        obeys(may, file.set_size(20))?;
        same(&file.stat()?.size, &if may { 20 } else { 10 })
    });
    checks.check("truncate by open", || {
        obeys(may, pair.open("change", OpenFlags::TRUNCATE))?;
        let size = pair.zone.stat_at(PathFlags::empty(), "change")?.size;
        same(&size, &if may { 0 } else { 10 })
    });
    let past = NewTimestamp::Timestamp(Datetime { seconds: 1000, nanoseconds: 0 });
    checks.check("set times", || {
        let file = pair.open("change", OpenFlags::empty())?;
        obeys(contract.set_times, file.set_times(past, past))
    });
    checks.check("set times of a path", || {
        obeys(contract.set_times, pair.zone.set_times_at(PathFlags::empty(), "change", past, past))
    });
}

fn names(checks: &mut Checks, contract: &Contract, pair: &Pair) {
    let zone = &pair.zone;
    checks.check("hard link", || {
        obeys(contract.links, zone.link_at(PathFlags::empty(), "change", zone, "hard"))
    });
    checks.check("symbolic link", || obeys(contract.links, zone.symlink_at("change", "soft")));
    checks.check("files to rename", || {
        pair.file("old")?;
        pair.file("target").map(drop).map_err(Into::into)
    });
    checks.check("rename", || obeys(contract.rename, zone.rename_at("old", zone, "new")));
    checks.check("rename over a file", || {
        let from = if contract.rename { "new" } else { "old" };
        obeys(contract.rename, zone.rename_at(from, zone, "target"))
    });
    checks.check("rename a folder", || {
        obeys(contract.rename, zone.rename_at("folder", zone, "folder2"))?;
        if contract.rename {
            zone.rename_at("folder2", zone, "folder")?;
        }
        Ok(())
    });
    checks.check("unlink", || obeys(contract.unlink, zone.unlink_file_at("folder/file")));
    checks.check("remove a folder", || {
        zone.create_directory_at("empty")?;
        obeys(contract.unlink, zone.remove_directory_at("empty"))
    });
    checks.check("what was refused has left no trace", || {
        for (name, there) in [
            ("hard", contract.links),
            ("soft", contract.links),
            ("old", !contract.rename),
            ("target", true),
            ("folder/file", !contract.unlink),
            ("empty", !contract.unlink),
        ] {
            same(&(name, zone.stat_at(PathFlags::empty(), name).is_ok()), &(name, there))?;
        }
        Ok(())
    });
}

fn crossing(checks: &mut Checks, pair: &Pair) {
    let cross = [ErrorCode::CrossDevice];
    let path = PathFlags::empty();
    checks.check("a file to carry", || {
        pair.file("carried")?;
        let flags = DescriptorFlags::WRITE;
        pair.other.open_at(path, "beside", OpenFlags::CREATE, flags).map(drop).map_err(Into::into)
    });
    checks
        .check("rename out of the zone", || fails(pair.zone.rename_at("carried", &pair.other, "x"), &cross));
    checks.check("rename into the zone", || fails(pair.other.rename_at("beside", &pair.zone, "x"), &cross));
    checks.check("link out of the zone", || {
        fails(pair.zone.link_at(path, "carried", &pair.other, "x"), &cross)
    });
    checks.check("link into the zone", || fails(pair.other.link_at(path, "beside", &pair.zone, "x"), &cross));
    checks.check("nothing has crossed", || {
        fails(pair.zone.stat_at(path, "x").map(drop), &[ErrorCode::NoEntry])?;
        fails(pair.other.stat_at(path, "x").map(drop), &[ErrorCode::NoEntry])
    });
}
