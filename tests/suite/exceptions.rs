//! An agent that throws: what it catches it goes on from, and what nobody catches costs the turn.

use std::path::{Path, PathBuf};

use crate::bed::Bed;
use crate::differential::assert_agent_is_the_same;

/// The agent, with what comes before `handle` in its module and what runs as it is instantiated. The first letter of an
/// event says what it does:
///
/// - `c`: a library throws, and it catches: the number of such turns is the reply
/// - `x`: it throws what nobody catches
/// - `m`: it throws 300,000 times, and catches each
/// - `h`: it holds as many exceptions as it can
/// - `p`: it replies, and throws when the reply has been taken
/// - `r`: from now on it throws where memory is asked of it
fn throws(start: &str) -> String {
    format!(
        r#"(component
  (import "dormouse:agent/types@0.1.0" (instance $types
    (type $event (record (field "id" string) (field "kind" string) (field "payload" (list u8))))
    (export "event" (type (eq $event)))
    (type $reply (record (field "payload" (list u8))))
    (export "reply" (type (eq $reply)))))
  (alias export $types "event" (type $event))
  (alias export $types "reply" (type $reply))
  (core module $library
    (tag $told (export "told") (param i32))
    (global $times (mut i32) (i32.const 0))
    (func (export "throw")
      (global.set $times (i32.add (global.get $times) (i32.const 1)))
      (throw $told (global.get $times))))
  (core module $agent
    (import "library" "told" (tag $told (param i32)))
    (import "library" "throw" (func $throw))
    (tag $holds (param exnref i64))
    (memory (export "memory") 1)
    (global $refuses (mut i32) (i32.const 0))
    {start}
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (if (global.get $refuses) (then (throw $told (i32.const 1))))
      (i32.const 4096))
    (func $catch (result i32)
      (block $caught (result i32)
        (try_table (catch $told $caught) (call $throw))
        (unreachable)))
    (func $many (local $n i32)
      (loop $again
        (block $caught (try_table (catch_all $caught) (throw $told (local.get $n))))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (i32.const 300000)))))
    (func $hold (local $e exnref)
      (loop $again
        (block $caught (result exnref)
          (try_table (catch_all_ref $caught) (throw $holds (local.get $e) (i64.const 1)))
          (unreachable))
        (local.set $e)
        (br $again)))
    (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32) (local $what i32)
      (local.set $what (i32.load8_u (local.get 4)))
      (i32.store8 (i32.const 1040) (i32.const 48))
      (if (i32.eq (local.get $what) (i32.const 99))
        (then (i32.store8 (i32.const 1040) (i32.add (i32.const 48) (call $catch)))))
      (if (i32.eq (local.get $what) (i32.const 120)) (then (call $throw)))
      (if (i32.eq (local.get $what) (i32.const 109)) (then (call $many)))
      (if (i32.eq (local.get $what) (i32.const 104)) (then (call $hold)))
      (if (i32.eq (local.get $what) (i32.const 114)) (then (global.set $refuses (i32.const 1))))
      (i32.store8 (i32.const 1041) (local.get $what))
      (i32.store8 (i32.const 1024) (i32.const 0))
      (i32.store (i32.const 1028) (i32.const 1040))
      (i32.store (i32.const 1032) (i32.const 1))
      (i32.const 1024))
    (func (export "after") (param i32)
      (if (i32.eq (i32.load8_u (i32.const 1041)) (i32.const 112)) (then (call $throw)))))
  (core instance $l (instantiate $library))
  (core instance $i (instantiate $agent (with "library" (instance $l))))
  (func $handle (param "event" $event) (result (result $reply (error string)))
    (canon lift (core func $i "handle") (memory $i "memory") (realloc (func $i "realloc"))
      (post-return (func $i "after"))))
  (export "handle" (func $handle)))"#
    )
}

fn bed(start: &str) -> (Bed, PathBuf) {
    let bed = Bed::new(&[]);
    let component = bed.file("throws.wasm", wat::parse_str(throws(start)).expect("a component"));
    (bed, component)
}

fn create(bed: &Bed, component: &Path) {
    bed.ok(["new".as_ref(), "n".as_ref(), component.as_os_str()]);
}

/// The turn traps, and the program says why.
fn assert_costs_the_turn(bed: &Bed, arguments: &[&str], reason: &str) {
    let ran = bed.run(arguments);
    assert_eq!((ran.status, ran.out.as_str()), (Some(134), ""), "{ran}");
    ran.assert_one_message(&[reason, "n stands where it stood before"]);
}

const UNCAUGHT: &str = "thrown Wasm exception, which nobody caught";

#[test]
fn an_agent_that_throws_is_resumed_forked_and_rewound() {
    let (bed, component) = bed("");
    let report = bed.json(["inspect".as_ref(), component.as_os_str()]);
    assert_eq!((&report["capturable"], &report["modules"][0]["tags"]), (&true.into(), &1.into()));
    let text = bed.ok(["inspect".as_ref(), component.as_os_str()]);
    assert!(text.contains("exceptions  2 tags\n"), "{text}");
    create(&bed, &component);
    // each command is a process of its own
    assert_eq!([bed.send("n", "c"), bed.send("n", "c")], ["1", "2"]);
    assert_costs_the_turn(&bed, &["send", "n", "x"], UNCAUGHT);
    bed.ok(["fork", "n", "forked"]);
    assert_eq!([bed.send("n", "c"), bed.send("forked", "c")], ["3", "3"]);
    bed.ok(["rewind", "n", "1"]);
    assert_eq!(bed.send("n", "c"), "2");
}

#[test]
fn an_agent_that_throws_answers_what_it_answers_on_plain_wasmtime() {
    let (bed, component) = bed("");
    assert_agent_is_the_same(&bed, &component, &["c", "m", "c", "nothing", "c"]);
}

#[test]
fn exceptions_that_are_gone_take_no_memory_and_those_that_are_held_end_the_turn() {
    let (bed, component) = bed("");
    create(&bed, &component);
    assert_eq!(bed.run(["--max-memory", "2M", "send", "n", "m"]).out.trim_end(), "0");
    assert_costs_the_turn(&bed, &["send", "n", "h"], "the exceptions that it holds take more than 64 MiB");
    assert_costs_the_turn(&bed, &["--max-memory", "2M", "send", "n", "h"], "or than is left of its memory");
    assert_eq!(bed.send("n", "c"), "1");
}

#[test]
fn exceptions_that_leave_what_the_host_calls_cost_the_turn() {
    let (bed, component) = bed("");
    create(&bed, &component);
    assert_eq!(bed.send("n", "c"), "1");
    assert_costs_the_turn(&bed, &["send", "n", "p"], UNCAUGHT);
    assert_eq!(bed.send("n", "r"), "0");
    assert_costs_the_turn(&bed, &["send", "n", "c"], UNCAUGHT);
    bed.ok(["rewind", "n", "1"]);
    assert_eq!(bed.send("n", "c"), "2");
}

#[test]
fn an_exception_while_it_starts_says_so() {
    let start = "(func $start (throw $told (i32.const 3))) (start $start)";
    let (bed, component) = bed(start);
    bed.refused(
        ["new".as_ref(), "n".as_ref(), component.as_os_str()],
        &["cannot be started", "thrown Wasm exception"],
    );
    // one that is caught is as good as none
    let start = "(func $start (if (i32.ne (call $catch) (i32.const 1)) (then (unreachable)))) (start $start)";
    let (bed, component) = self::bed(start);
    create(&bed, &component);
    assert_eq!(bed.send("n", "c"), "2");
}
