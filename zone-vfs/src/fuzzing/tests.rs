//! The fuzz targets' corpus, and random changes of it, so that every run of the tests goes through
//! what the fuzzer does.
//!
//! `ZONE_VFS_FUZZ_RUNS` asks for another number of inputs a target. `ZONE_VFS_FUZZ_CORPUS=1` writes
//! what the seeds are now into the corpus, after a change of the format.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::*;
use crate::device::simulated::Rng;

const USUAL_RUNS: u64 = 1_500;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let seeds = seeds::of(target);
    if std::env::var_os("ZONE_VFS_FUZZ_CORPUS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in &seeds {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(!names.is_empty(), "{} is empty", folder.display());
    let stored = names.iter().map(|path| std::fs::read(path).unwrap());
    stored.chain(seeds.into_iter().map(|(_, bytes)| bytes)).collect()
}

fn change(rng: &mut Rng, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.below(input.len() as u64 + 1) as usize;
    match rng.below(7) {
        0 => input.insert(at, rng.bits() as u8),
        1 => drop(input.drain(at..(at + rng.below(9) as usize).min(input.len()))),
        2 => {
            let other = &corpus[rng.below(corpus.len() as u64) as usize];
            let from = rng.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        3 => {
            let mut noise = vec![0; rng.below(200) as usize];
            rng.fill(&mut noise);
            input.splice(at..at, noise);
        }
        4 => {
            let copy = input[at..(at + 40).min(input.len())].to_vec();
            input.splice(at..at, copy);
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte = match rng.below(4) {
                    0 => *byte ^ 1 << rng.below(8),
                    1 => [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
                    _ => rng.bits() as u8,
                };
            }
        }
    }
}

fn run(name: &str, target: fn(&[u8])) {
    let corpus = corpus(name);
    let runs = std::env::var("ZONE_VFS_FUZZ_RUNS").map_or(USUAL_RUNS, |text| text.parse().unwrap());
    let tried = |input: &[u8]| {
        let passes = catch_unwind(AssertUnwindSafe(|| target(input))).is_ok();
        assert!(passes, "{name} fails with the input {input:02x?}");
    };
    for input in &corpus {
        tried(input);
    }
    for seed in 0..runs {
        let mut rng = Rng::new(seed);
        let mut input = corpus[rng.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=rng.below(12) {
            change(&mut rng, &mut input, &corpus);
        }
        tried(&input);
    }
}

#[test]
fn exports_of_any_bytes_do_no_harm() {
    run("exports", exports);
}

#[test]
fn paths_are_resolved_without_harm() {
    run("paths", paths);
}

#[test]
fn records_of_any_bytes_do_no_harm() {
    run("records", records);
}

#[test]
fn segments_of_any_bytes_do_no_harm() {
    run("segments", segments);
}

#[test]
fn trees_of_any_bytes_do_no_harm() {
    run("trees", trees);
}
