//! An agent that changes its function table at every turn goes on from where it stood.

use crate::bed::Bed;

/// At every turn its table, which a library of its own has, grows by a function: by the library's or its own, in turn. It
/// replies with the table's size, what the new entry says, and what a global says that holds the one before.
const GROWS: &str = r#"(component
  (import "dormouse:agent/types@0.1.0" (instance $types
    (type $event (record (field "id" string) (field "kind" string) (field "payload" (list u8))))
    (export "event" (type (eq $event)))
    (type $reply (record (field "payload" (list u8))))
    (export "reply" (type (eq $reply)))))
  (alias export $types "event" (type $event))
  (alias export $types "reply" (type $reply))
  (core module $library
    (table (export "table") 0 8 funcref)
    (elem declare func $b)
    (func $b (result i32) (i32.const 98))
    (func (export "reference") (result funcref) (ref.func $b)))
  (core module $agent
    (type $says (func (result i32)))
    (import "library" "reference" (func $b (result funcref)))
    (import "library" "table" (table $table 0 8 funcref))
    (memory (export "memory") 1)
    (global $before (mut funcref) (ref.null func))
    (data $once "-")
    (elem declare func $a)
    (func $a (result i32) (i32.const 97))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 4096)
    (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (table.size $table))
      (drop (table.grow $table
        (select (result funcref) (ref.func $a) (call $b) (i32.and (local.get $at) (i32.const 1)))
        (i32.const 1)))
      (i32.store8 (i32.const 1040) (i32.add (i32.const 48) (table.size $table)))
      (i32.store8 (i32.const 1041) (call_indirect $table (type $says) (local.get $at)))
      (if (ref.is_null (global.get $before))
        (then (memory.init $once (i32.const 1042) (i32.const 0) (i32.const 1)) (data.drop $once))
        (else
          (table.set $table (i32.const 0) (global.get $before))
          (i32.store8 (i32.const 1042) (call_indirect $table (type $says) (i32.const 0)))))
      (global.set $before (table.get $table (local.get $at)))
      (i32.store8 (i32.const 1024) (i32.const 0))
      (i32.store (i32.const 1028) (i32.const 1040))
      (i32.store (i32.const 1032) (i32.const 3))
      (i32.const 1024)))
  (core instance $l (instantiate $library))
  (core instance $i (instantiate $agent (with "library" (instance $l))))
  (func $handle (param "event" $event) (result (result $reply (error string)))
    (canon lift (core func $i "handle") (memory $i "memory") (realloc (func $i "realloc"))))
  (export "handle" (func $handle)))"#;

#[test]
fn tables_that_change_are_resumed_forked_and_rewound() {
    let bed = Bed::new(&[]);
    let component = bed.file("grows.wasm", wat::parse_str(GROWS).expect("a component"));
    assert_eq!(bed.json(["inspect".as_ref(), component.as_os_str()])["capturable"], true);
    bed.ok(["new".as_ref(), "n".as_ref(), component.as_os_str()]);
    // each command is a process of its own
    assert_eq!([bed.send("n", "go"), bed.send("n", "go")], ["1b-", "2ab"]);
    bed.ok(["fork", "n", "forked"]);
    assert_eq!([bed.send("n", "go"), bed.send("n", "go")], ["3ba", "4ab"]);
    assert_eq!(bed.send("forked", "go"), "3ba");
    bed.ok(["rewind", "n", "1"]);
    assert_eq!(bed.send("n", "go"), "2ab");
}
