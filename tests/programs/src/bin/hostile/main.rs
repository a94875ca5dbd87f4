//! What a hostile guest does. The host has to answer each with an error or a trap of this guest
//! alone, and to stay up.
//!
//! `hostile checks [FOLDER]` runs all that a guest survives, and counts failures. The others end
//! the guest, one each: `spin`, `recurse`, `memory`, `unreachable`, `wild-store`, `forged N`,
//! `dropped`, `double-drop`, `handles`, `sleep-forever`, `read-huge`.

mod handles;
mod paths;
mod sizes;

use std::hint::black_box;
use std::process::ExitCode;

use test_programs::Checks;

/// What `memory` takes in one step, in bytes.
const STEP: usize = 1 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["checks"] => return checks("/workspace"),
        ["checks", folder] => return checks(folder),
        ["spin"] => loop {
            black_box(());
        },
        ["recurse"] => println!("{}", recurse(1)),
        ["memory"] => println!("{} MiB, then no more", memory()),
        ["unreachable"] => core::arch::wasm32::unreachable(),
        ["wild-store"] => wild_store(),
        ["forged", number] => handles::forged(number.parse().unwrap_or(u32::MAX)),
        ["dropped"] => handles::dropped(),
        ["double-drop"] => handles::double_drop(),
        ["handles"] => println!("{} handles, then no more", handles::many()),
        ["sleep-forever"] => wasip2::clocks::monotonic_clock::subscribe_duration(u64::MAX).block(),
        ["read-huge"] => sizes::read_huge(),
        _ => {
            eprintln!("hostile: this is not among what it can do: {words:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn checks(folder: &str) -> ExitCode {
    let mut checks = Checks::new();
    paths::all(&mut checks, folder);
    sizes::all(&mut checks, folder);
    checks.finish()
}

/// Uses up the guest's stack.
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    match black_box(depth) {
        0 => 0,
        _ => recurse(depth + 1) + frame[depth as usize % 64],
    }
}

/// Takes memory until none is given, and says how many MiB that were.
fn memory() -> usize {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(STEP).is_err() {
            return taken.len();
        }
        block.resize(STEP, 1);
        taken.push(block);
    }
}

/// Writes to the last bytes that an address can name, where no memory is.
fn wild_store() {
    let wild = black_box(usize::MAX - 7) as *mut u64;
    // SAFETY: there is none, and that is the point: the address is outside of the memory, so the
    // store traps; it cannot change anything of this guest's.
    unsafe { wild.write_volatile(1) };
}
