//! Random numbers. With the argument `print` it prints one number and does nothing else, so that
//! a test can compare those of several starts.

use std::collections::{HashSet, hash_map::RandomState};
use std::hash::BuildHasher;
use std::process::ExitCode;

use test_programs::{Checks, holds, same};
use wasip2::random::{insecure, insecure_seed, random};

/// More than one call of any operating system gives.
const LARGE: u64 = 100_000;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("print") {
        println!("{:016x}", random::get_random_u64());
        return ExitCode::SUCCESS;
    }
    let mut checks = Checks::new();
    checks.check("as many bytes come as were asked for", || {
        for length in [0, 1, 7, 8, 255, 4096, LARGE] {
            same(&(random::get_random_bytes(length).len() as u64), &length)?;
            same(&(insecure::get_insecure_random_bytes(length).len() as u64), &length)?;
        }
        Ok(())
    });
    checks.check("a thousand numbers are all different", || {
        let numbers: HashSet<u64> = (0..1000).map(|_| random::get_random_u64()).collect();
        same(&numbers.len(), &1000)?;
        let insecure: HashSet<u64> = (0..1000).map(|_| insecure::get_insecure_random_u64()).collect();
        same(&insecure.len(), &1000)
    });
    checks.check("each bit is set about half the time", || {
        let bytes = random::get_random_bytes(LARGE);
        for bit in 0..8 {
            let set = bytes.iter().filter(|byte| (**byte >> bit) & 1 == 1).count() as u64;
            // Twenty standard deviations around the half.
            let off = set.abs_diff(LARGE / 2);
            holds(off < 3200, &format!("bit {bit} is off by {off} of {LARGE}"))?;
        }
        Ok(())
    });
    checks.check("each byte occurs", || {
        let seen: HashSet<u8> = random::get_random_bytes(LARGE).into_iter().collect();
        same(&seen.len(), &256)
    });
    checks.check("there is a seed for hash tables", || {
        let (low, high) = insecure_seed::insecure_seed();
        holds((low, high) != (0, 0), "the seed is zero")?;
        let hash = |state: &RandomState| state.hash_one("word");
        holds(hash(&RandomState::new()) != hash(&RandomState::new()), "two hash tables hash alike")
    });
    checks.finish()
}
