//! The fuzz target's corpus and random changes of it, and components of wasm-smith, so that every run of the tests goes
//! through what the fuzzer does.
//!
//! `DORMOUSE_FUZZ_RUNS` asks for another number of inputs. `DORMOUSE_FUZZ_CORPUS=1` writes the seeds into the corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arbitrary::Unstructured;
use wasmtime::Engine;

use super::wat;
use crate::agent::tests::programs::random::Random;
use crate::code::config;
use crate::component::Variant;
use crate::component::fuzzing::{MAX_INPUT, components};

const USUAL_RUNS: u64 = 1_500;
/// Of so many that are accepted one is compiled.
const COMPILED: u64 = 20;

/// Sound components, which meet most of what the rewriter does.
const SEEDS: [&str; 4] = [
    super::rewriting::WITH_RESOURCE,
    // tables that change, segments that are dropped, exceptions, and a part that is there twice
    r#"(component
        (component $part
            (core module $m
                (type $r (func (result i32)))
                (tag $t (export "t") (param i32 funcref))
                (memory (export "m") 1 2) (table $f (export "f") 2 4 funcref)
                (global (mut i64) (i64.const 1)) (global $g (mut funcref) (ref.null func))
                (data $d "abc") (data (i32.const 8) "x") (elem $e func $a) (elem (table $f) (i32.const 0) func $a)
                (func $a (result i32) (i32.const 1))
                (func $start (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d))
                (start $start)
                (func (export "run") (param i32) (result i32) (local $x exnref)
                    (table.init $f $e (i32.const 1) (i32.const 0) (i32.const 1)) (elem.drop $e)
                    (global.set $g (table.get $f (local.get 0)))
                    (block $caught (result i32 funcref exnref)
                        (try_table (catch_ref $t $caught) (throw $t (i32.const 3) (global.get $g)))
                        (unreachable))
                    (local.set $x) (ref.is_null) (drop) (drop)
                    (if (ref.is_null (local.get $x)) (then (unreachable)))
                    (call_indirect $f (type $r) (local.get 0))))
            (core instance $i (instantiate $m))
            (func (export "run") (param "x" u32) (result u32) (canon lift (core func $i "run"))))
        (instance $a (instantiate $part)) (instance $b (instantiate $part))
        (export "a" (func $a "run")) (export "b" (func $b "run")))"#,
    // a resource type of its own, lent in a list
    r#"(component
        (core module $m (memory (export "m") 1) (global (mut f32) (f32.const 0))
            (func (export "f") (param i32 i32)) (func (export "d") (param i32))
            (func (export "r") (param i32 i32 i32 i32) (result i32) i32.const 0))
        (core instance $k (instantiate $m))
        (type $r (resource (rep i32) (dtor (core func $k "d"))))
        (core func (canon resource.new $r)) (core func (canon resource.rep $r)) (core func (canon resource.drop $r))
        (export $e "r" (type $r))
        (func (export "f") (param "a" (list (borrow $e)))
            (canon lift (core func $k "f") (memory $k "m") (realloc (func $k "r")))))"#,
    // linked modules, many memories, a tail call
    r#"(component
        (core module $a (memory (export "m") 1) (memory (export "n") 1) (global (export "g") (mut v128) (v128.const i64x2 1 2))
            (func $f (export "f") (param i32) (result i32) (return_call $f (local.get 0))))
        (core module $b (import "a" "m" (memory 1)) (import "a" "g" (global (mut v128)))
            (import "a" "f" (func (param i32) (result i32))) (memory 1) (data (memory 1) (i32.const 0) "x"))
        (core instance $i (instantiate $a))
        (core instance (instantiate $b (with "a" (instance $i))))
        (core instance (instantiate $b (with "a" (instance $i)))))"#,
];

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/components");
    let seeds = SEEDS.map(wat);
    if std::env::var_os("DORMOUSE_FUZZ_CORPUS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (number, bytes) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), bytes).unwrap();
        }
    }
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let stored = names.iter().map(|path| std::fs::read(path).unwrap());
    seeds.into_iter().chain(stored).collect()
}

fn change(random: &mut Random, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = random.below(input.len() + 1);
    match random.below(6) {
        0 => input.insert(at, random.next() as u8),
        1 => drop(input.drain(at..(at + random.below(9)).min(input.len()))),
        2 => {
            let other = &corpus[random.below(corpus.len())];
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        3 => {
            let copy = input[at..(at + random.below(40)).min(input.len())].to_vec();
            input.splice(at..at, copy);
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte = match random.below(3) {
                    0 => *byte ^ 1 << random.below(8),
                    1 => [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                    _ => random.next() as u8,
                };
            }
        }
    }
}

/// A component of the generator's, which is valid and mostly types.
fn generated(random: &mut Random) -> Option<Vec<u8>> {
    let config = wasm_smith::Config {
        gc_enabled: false,
        threads_enabled: false,
        memory64_enabled: false,
        max_modules: 10,
        max_components: 5,
        max_instances: 10,
        ..wasm_smith::Config::default()
    };
    let bytes = random.bytes(3_000);
    let component = wasm_smith::Component::new(config, &mut Unstructured::new(&bytes)).ok()?;
    Some(component.to_bytes()).filter(|wasm| wasm.len() <= MAX_INPUT)
}

#[test]
fn components_of_any_bytes_do_no_harm() {
    let engine = Engine::new(&config(Variant::Boot)).unwrap();
    let corpus = corpus();
    let runs = std::env::var("DORMOUSE_FUZZ_RUNS").map_or(USUAL_RUNS, |text| text.parse().unwrap());
    let tried = |input: &[u8]| {
        let passes = catch_unwind(AssertUnwindSafe(|| components(input)));
        passes.unwrap_or_else(|_| panic!("it fails with the input {input:02x?}"))
    };
    let compiled = |input: &[u8], wasm: &[u8]| {
        let compiled = engine.precompile_component(wasm);
        assert!(compiled.is_ok(), "{:?} with the input {input:02x?}", compiled.err());
    };
    for input in &corpus {
        if let Some(wasm) = tried(input) {
            compiled(input, &wasm);
        }
    }
    assert!(corpus[..SEEDS.len()].iter().all(|seed| components(seed).is_some()), "the seeds are sound");
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..runs {
        let mut random = Random::new(seed);
        let generated = if random.once_in(4) { generated(&mut random) } else { None };
        let mut input = match generated {
            Some(wasm) => wasm,
            None => corpus[random.below(corpus.len())].clone(),
        };
        for _ in 0..random.below(6) {
            change(&mut random, &mut input, &corpus);
        }
        match tried(&input) {
            Some(wasm) => {
                accepted += 1;
                if accepted % COMPILED == 0 {
                    compiled(&input, &wasm);
                }
            }
            None => refused += 1,
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 0 && refused > 0);
}
