//! Times single host calls from the guest's side, to compare runtimes.
//!
//! usage: `hostcalls OP N [FOLDER]` with OP one of get-flags, stat, read, read-64k, write, now, random, all.
//! It prints `OP NANOSECONDS` for each: the mean cost of one call, by the monotonic clock. `empty`
//! is the loop without a call.

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;

use test_programs::preopen;
use wasip2::clocks::monotonic_clock;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};
use wasip2::random::random::get_random_u64;

const NAME: &str = "hostcalls.tmp";
const OPS: [&str; 8] = ["empty", "get-flags", "stat", "read", "read-64k", "write", "now", "random"];
const READ_BYTES: u64 = 64;
/// Bytes of the file, all of which `read-64k` reads.
const LARGE: usize = 64 << 10;
const WRITTEN: &[u8; 13] = b"thirteen byte";
/// The most calls that are made, so that a typing error ends.
const MAX_CALLS: u32 = 100_000_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostcalls: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let (op, calls, folder) = match args {
        [op, calls] => (op, calls.parse()?, "/workspace"),
        [op, calls, folder] => (op, calls.parse()?, folder.as_str()),
        _ => return Err("usage: hostcalls OP N [FOLDER]".into()),
    };
    if !(1..=MAX_CALLS).contains(&calls) {
        return Err(format!("N is 1 to {MAX_CALLS}").into());
    }
    let ops: Vec<&str> = OPS.into_iter().filter(|known| op == "all" || op == known).collect();
    if ops.is_empty() {
        return Err(format!("OP is all or one of {OPS:?}").into());
    }
    let folder = preopen(folder)?;
    let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let file = folder.open_at(PathFlags::empty(), NAME, OpenFlags::CREATE | OpenFlags::TRUNCATE, flags)?;
    file.write(&vec![7; LARGE], 0)?;
    for op in ops {
        bench(op, calls / 10 + 1, &file)?;
        let elapsed = bench(op, calls, &file)?;
        println!("{op} {:.1}", elapsed as f64 / f64::from(calls));
    }
    drop(file);
    folder.unlink_file_at(NAME)?;
    Ok(())
}

/// Makes a number of calls and returns how long they took, in nanoseconds.
fn bench(op: &str, calls: u32, file: &Descriptor) -> Result<u64, Box<dyn Error>> {
    let started = monotonic_clock::now();
    match op {
        "get-flags" => repeat(calls, || file.get_flags().map(drop))?,
        "stat" => repeat(calls, || file.stat().map(drop))?,
        "read" => repeat(calls, || file.read(READ_BYTES, 512).map(drop))?,
        "read-64k" => repeat(calls, || {
            let (bytes, _) = file.read(LARGE as u64, 0)?;
            if bytes.len() == LARGE { Ok(()) } else { Err(ErrorCode::Io) }
        })?,
        "write" => repeat(calls, || file.write(WRITTEN, 1024).map(drop))?,
        "now" => repeat(calls, || {
            black_box(monotonic_clock::now());
            Ok(())
        })?,
        "random" => repeat(calls, || {
            black_box(get_random_u64());
            Ok(())
        })?,
        _ => repeat(calls, || Ok(()))?,
    }
    Ok(monotonic_clock::now() - started)
}

fn repeat(calls: u32, mut call: impl FnMut() -> Result<(), ErrorCode>) -> Result<(), ErrorCode> {
    for number in 0..calls {
        black_box(number);
        call()?;
    }
    Ok(())
}
