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
        all.thrown += ended.thrown;
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

/// Throws by what its argument says, and keeps a function that came with an exception in its table.
const THROWS: &str = r#"(module
    (type $r (func (result i32)))
    (tag $number (export "number") (param i32))
    (tag $nothing (export "nothing"))
    (tag $function (export "function") (param funcref i64))
    (memory (export "m") 1)
    (table $t (export "t") 4 4 funcref)
    (global $caught (export "caught") (mut i32) (i32.const 0))
    (elem declare func $a)
    (func $a (export "a") (result i32) (i32.const 11))
    (func $throws (export "throws") (param i32)
        (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
        (if (i32.and (local.get 0) (i32.const 1)) (then (throw $number (local.get 0))))
        (if (i32.and (local.get 0) (i32.const 2)) (then (throw $nothing)))
        (if (i32.and (local.get 0) (i32.const 4))
            (then (throw $function (table.get $t (i32.and (local.get 0) (i32.const 3))) (i64.const 5)))))
    (func (export "catches") (param i32) (result i32) (local $given funcref)
        (block $of-function (result funcref i64)
            (block $of-nothing
                (return (block $of-number (result i32)
                    (try_table (catch $number $of-number) (catch $nothing $of-nothing) (catch $function $of-function)
                        (call $throws (local.get 0)))
                    (i32.const -1))))
            (global.set $caught (i32.add (global.get $caught) (i32.const 1)))
            (ref.func $a) (i64.const 7))
        (drop) (local.set $given)
        (table.set $t (i32.and (local.get 0) (i32.const 3)) (local.get $given))
        (ref.is_null (local.get $given)))
    (func (export "by-table") (param i32) (result i32)
        (block $caught
            (try_table (catch_all $caught)
                (return (call_indirect $t (type $r) (i32.and (local.get 0) (i32.const 3))))))
        (i32.const -1))
)"#;

#[test]
fn exceptions_that_modules_throw_catch_and_hand_on() {
    let catches = r#"(module
        (import "from" "number" (tag $number (param i32)))
        (import "from" "function" (tag $function (param funcref i64)))
        (import "from" "throws" (func $throws (param i32)))
        (import "from" "catches" (func $catches (param i32) (result i32)))
        (import "from" "t" (table $t 4 4 funcref))
        (tag $own (export "own") (param exnref i32))
        (memory (export "m") 1)
        (global $depth (export "depth") (mut i32) (i32.const 0))
        (func $tries (param i32) (result exnref)
            (block $caught (result exnref)
                (try_table (catch_all_ref $caught) (call $throws (local.get 0)))
                (ref.null exn)))
        (func (export "caught") (param i32) (result i32)
            (ref.is_null (call $tries (local.get 0))))
        (func (export "again") (param i32) (local $e exnref)
            (local.set $e (call $tries (local.get 0)))
            (table.set $t (i32.const 1) (table.get $t (i32.const 2)))
            (if (ref.is_null (local.get $e)) (then (return)))
            (throw_ref (local.get $e)))
        (func $nests (export "nests") (param i32)
            (global.set $depth (i32.add (global.get $depth) (i32.const 1)))
            (throw $own (call $tries (local.get 0)) (local.get 0)))
        (func (export "unpacks") (param i32) (result i32) (local $n i32) (local $e exnref)
            (block $inner (result exnref i32)
                (try_table (catch $own $inner) (call $nests (local.get 0)))
                (unreachable))
            (local.set $n) (local.set $e)
            (if (ref.is_null (local.get $e)) (then (return (i32.const -2))))
            (block $was-number (result i32 exnref)
                (try_table (catch_ref $number $was-number) (throw_ref (local.get $e)))
                (unreachable))
            (drop)
            (i32.add (local.get $n)))
        (func (export "many") (param i32) (result i32) (local $n i32)
            (loop $again
                (drop (call $tries (local.get $n)))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br_if $again (i32.lt_u (local.get $n) (i32.and (local.get 0) (i32.const 4095)))))
            (call $catches (local.get 0)))
    )"#;
    let ended = agree(&[THROWS, catches, catches], true);
    assert!(ended.thrown > 0, "some are caught by nobody");
    assert!(ended.tables);
}
