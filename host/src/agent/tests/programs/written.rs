//! Programs that are written by hand, for what random ones seldom get to.

use super::machines::{Bench, Ended};
use super::random::Random;
use super::shape::{Core, Level, Program};
use crate::image::DirtyTracking;

/// Calls of random functions of modules, each of which imports from the first, if `linked`, or stands alone.
fn agree(modules: &[&str], linked: bool) -> Ended {
    let first = Core::read(wat::parse_str(modules[0]).unwrap(), true);
    let mut cores = vec![(first, None)];
    for module in &modules[1..] {
        cores.push((Core::read(wat::parse_str(module).unwrap(), false), linked.then_some(0)));
    }
    let leaf = Level { nested: Vec::new(), cores };
    // once in the component itself, and twice within
    let level = Level { nested: vec![(leaf.clone(), 2)], ..leaf };
    let program = Program { level };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bench = Bench::new();
    let mut all = Ended::default();
    for seed in 0..25 {
        let mut random = Random::new(seed);
        let tracking = if seed % 4 == 0 { DirtyTracking::Comparison } else { DirtyTracking::here() };
        let ended = runtime.block_on(bench.run(&program, &mut random, tracking, None));
        let ended = ended.unwrap_or_else(|failed| panic!("seed {seed}: {failed:?}"));
        all.calls += ended.calls;
        all.traps += ended.traps;
        all.tables |= ended.tables;
    }
    assert!(all.calls > 100, "{} calls", all.calls);
    all
}

const TABLES: &str = r#"(module
    (type $r (func (result i32)))
    (table $t (export "t") 4 20 funcref)
    (table $u (export "u") 8 funcref)
    (global $g (export "g") (mut funcref) (ref.func $b))
    (global $h (export "h") (mut funcref) (ref.null func))
    (global $i (export "i") funcref (ref.func $a))
    (elem $p func $a $b $c)
    (elem $q funcref (ref.func $c) (ref.null func) (ref.func $a) (ref.func $d))
    (elem $active (table $t) (i32.const 1) func $a $b)
    (elem (table $u) (i32.add (i32.const 1) (i32.const 1)) funcref (ref.func $c) (ref.null func) (ref.func $d))
    (func $a (export "a") (result i32) i32.const 11)
    (func $b (export "b") (result i32) (i32.add (call $a) (table.size $t)))
    (func $c (result i32) i32.const 33)
    (func $d (param i32) (result i32) local.get 0)
    (func $at (export "at") (param i32) (result i32) (i32.rem_u (local.get 0) (i32.add (table.size $t) (i32.const 1))))
    (func (export "call") (param i32) (result i32)
        (call_indirect $t (type $r) (call $at (local.get 0))))
    (func (export "tail") (param i32) (result i32)
        (return_call_indirect $u (type $r) (i32.and (local.get 0) (i32.const 7))))
    (func (export "set") (param i32 i32)
        (table.set $t (call $at (local.get 0)) (table.get $u (i32.and (local.get 1) (i32.const 7)))))
    (func (export "put") (param i32)
        (table.set $u (i32.and (local.get 0) (i32.const 7)) (global.get $g)))
    (func (export "keep") (param i32) (local $old funcref)
        (local.set $old (global.get $g))
        (global.set $g (call $choose (local.get 0) (global.get $h) (global.get $i)))
        (global.set $h (local.get $old)))
    (func $choose (param i32 funcref funcref) (result funcref)
        (select (result funcref) (local.get 1) (local.get 2) (i32.and (local.get 0) (i32.const 1))))
    (func (export "null") (param i32) (result i32)
        (block $out (result i32)
            (br_if $out (i32.const 7) (ref.is_null (table.get $t (call $at (local.get 0)))))
            (drop) (i32.const 8)))
    (func (export "grow") (param i32) (result i32)
        (table.grow $t (ref.func $c) (i32.and (local.get 0) (i32.const 3))))
    (func (export "grow-more") (param i32) (result i32)
        (table.grow $u (global.get $g) (i32.and (local.get 0) (i32.const 1023))))
    (func (export "grow-beyond") (param i32) (result i32)
        (table.grow $t (ref.null func) (i32.or (local.get 0) (i32.const 0x80000000))))
    (func (export "fill") (param i32 i32)
        (table.fill $t (call $at (local.get 0)) (table.get $u (i32.const 2)) (i32.and (local.get 1) (i32.const 3))))
    (func (export "copy") (param i32 i32 i32)
        (table.copy $t $u (call $at (local.get 0)) (i32.and (local.get 1) (i32.const 7)) (i32.and (local.get 2) (i32.const 3))))
    (func (export "move") (param i32 i32 i32)
        (table.copy $t $t (call $at (local.get 0)) (call $at (local.get 1)) (i32.and (local.get 2) (i32.const 3))))
    (func (export "init") (param i32 i32 i32)
        (table.init $t $p (call $at (local.get 0)) (i32.and (local.get 1) (i32.const 3)) (i32.and (local.get 2) (i32.const 3))))
    (func (export "init-other") (param i32 i32 i32)
        (table.init $u $q (i32.and (local.get 0) (i32.const 7)) (i32.and (local.get 1) (i32.const 3)) (i32.and (local.get 2) (i32.const 3))))
    (func (export "init-gone") (param i32) (table.init $t $active (i32.const 0) (i32.const 0) (i32.and (local.get 0) (i32.const 1))))
    (func (export "drop") (param i32) (if (i32.eqz (i32.and (local.get 0) (i32.const 3))) (then (elem.drop $p))))
    (func (export "drop-other") (param i32) (if (i32.eqz (i32.and (local.get 0) (i32.const 3))) (then (elem.drop $q) (elem.drop $active))))
)"#;

#[test]
fn tables_that_change_and_globals_that_hold_references() {
    let ended = agree(&[TABLES], false);
    assert!(ended.traps > 0, "some indices are outside");
    assert!(ended.tables);
}

#[test]
fn tables_and_references_that_modules_share() {
    let shares = r#"(module
        (type $r (func (result i32)))
        (import "from" "a" (func $a (result i32)))
        (import "from" "u" (table $u 8 funcref))
        (import "from" "g" (global $g (mut funcref)))
        (import "from" "i" (global $i funcref))
        (import "from" "t" (table $t 4 20 funcref))
        (memory (export "m") 1)
        (table $own (export "own") 5 5 funcref)
        (global $mine (export "mine") funcref (global.get $i))
        (elem (table $t) (i32.const 0) funcref (ref.func $mine) (global.get $i))
        (elem $e funcref (global.get $i) (ref.func $mine) (ref.func $a) (ref.null func))
        (func $mine (result i32) (i32.load (i32.const 0)))
        (func (export "count") (param i32) (result i32)
            (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (local.get 0)))
            (table.size $u))
        (func (export "give") (param i32) (table.set $u (i32.and (local.get 0) (i32.const 7)) (ref.func $mine)))
        (func (export "take") (param i32) (table.copy $own $u (i32.and (local.get 0) (i32.const 3)) (i32.const 1) (i32.const 2)))
        (func (export "set") (param i32) (global.set $g (table.get $own (i32.rem_u (local.get 0) (i32.const 5)))))
        (func (export "init") (param i32 i32)
            (table.init $own $e (i32.and (local.get 0) (i32.const 1)) (i32.and (local.get 1) (i32.const 1)) (i32.const 3)))
        (func (export "call") (param i32) (result i32) (call_indirect $own (type $r) (i32.rem_u (local.get 0) (i32.const 5))))
        (func (export "call-other") (param i32) (result i32) (call_indirect $u (type $r) (i32.and (local.get 0) (i32.const 7))))
    )"#;
    assert!(agree(&[TABLES, shares, shares], true).tables);
}

#[test]
fn segments_that_are_dropped() {
    let ended = agree(
        &[r#"(module
        (memory $m (export "m") 1) (memory $n (export "n") 1)
        (data $a "abcdefgh") (data $b "12345678") (data $c (i32.const 64) "active") (data $unused "x")
        (func (export "init") (param i32 i32 i32)
            (memory.init $m $a (i32.and (local.get 0) (i32.const 255)) (i32.and (local.get 1) (i32.const 7)) (i32.and (local.get 2) (i32.const 3))))
        (func (export "init-other") (param i32 i32 i32)
            (memory.init $n $b (i32.and (local.get 0) (i32.const 255)) (i32.and (local.get 1) (i32.const 7)) (i32.and (local.get 2) (i32.const 3)))
            (memory.init $m $b (i32.const 300) (i32.const 0) (i32.and (local.get 2) (i32.const 1))))
        (func (export "nothing") (memory.init $m $a (i32.const 65536) (i32.const 0) (i32.const 0)))
        (func (export "gone") (param i32) (memory.init $m $c (i32.const 0) (i32.const 0) (i32.and (local.get 0) (i32.const 1))))
        (func (export "drop") (param i32) (if (i32.eqz (i32.and (local.get 0) (i32.const 3))) (then (data.drop $a) (data.drop $unused))))
        (func (export "drop-other") (param i32) (if (i32.eqz (i32.and (local.get 0) (i32.const 3))) (then (data.drop $b) (data.drop $c))))
    )"#],
        false,
    );
    assert!(ended.traps > 0, "some are used after");
}

#[test]
fn wide_globals_many_memories_start_functions_and_tail_calls() {
    let module = r#"(module
        (memory $m (export "m") 1) (memory $n (export "n") 1 4)
        (data (memory $n) (i32.const 8) "\05")
        (global $v (export "v") (mut v128) (v128.const i64x2 1 2))
        (global $f (export "f") (mut f32) (f32.const 1.5))
        (func $start (i32.store $n (i32.const 0) (i32.load8_u $n (i32.const 8))))
        (start $start)
        (func (export "add") (param i64) (result i64)
            (global.set $v (i64x2.add (global.get $v) (i64x2.splat (local.get 0))))
            (v128.store $m (i32.const 16) (global.get $v))
            (i64x2.extract_lane 1 (global.get $v)))
        (func (export "copy") (param i32) (result i32)
            (memory.copy $n $m (i32.and (local.get 0) (i32.const 255)) (i32.const 16) (i32.const 16))
            (memory.grow $n (i32.const 1)))
        (func $down (export "down") (param i32 f32) (result f32)
            (global.set $f (f32.add (global.get $f) (local.get 1)))
            (if (i32.eqz (i32.and (local.get 0) (i32.const 63))) (then (return (global.get $f))))
            (return_call $down (i32.sub (local.get 0) (i32.const 1)) (local.get 1))))"#;
    agree(&[module, module], false);
}
