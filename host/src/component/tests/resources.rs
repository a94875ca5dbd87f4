//! Resource types of components' own, and handles that are lent between parts: rewritten, over the host's table, they
//! do what they do as they are.

use wasmtime::component::{Component, Instance, Linker};
use wasmtime::{Engine, Store};

use super::wat;
use crate::component::{Variant, rewrite};
use crate::wasi::{GuestState, link_resources};

/// A component that runs, as it is or rewritten.
struct Running {
    store: Store<GuestState>,
    instance: Instance,
}

impl Running {
    fn start(wasm: &[u8]) -> Self {
        let engine = Engine::default();
        let mut linker = Linker::new(&engine);
        link_resources(&mut linker).unwrap();
        let component = Component::new(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, GuestState::default());
        let instance = linker.instantiate(&mut store, &component).unwrap();
        Self { store, instance }
    }

    /// None where it traps.
    fn call(&mut self, name: &str, of: u32) -> Option<u32> {
        let function = self.instance.get_typed_func::<(u32,), (u32,)>(&mut self.store, name).unwrap();
        function.call(&mut self.store, (of,)).ok().map(|(result,)| result)
    }

    fn handles(&self) -> usize {
        self.store.data().table.len()
    }
}

/// Calls one after the other: each rewritten variant gives what the original does, and holds no handle in the end.
fn assert_same(wasm: &[u8], calls: &[(&str, u32)]) -> Vec<Option<u32>> {
    let run =
        |running: &mut Running| calls.iter().map(|(name, of)| running.call(name, *of)).collect::<Vec<_>>();
    let expected = run(&mut Running::start(wasm));
    for variant in [Variant::Boot, Variant::Restore] {
        let mut running = Running::start(&rewrite(wasm, variant).unwrap().wasm);
        assert_eq!(run(&mut running), expected, "{variant:?} {calls:?}");
        if !expected.contains(&None) {
            assert_eq!(running.handles(), 0);
        }
    }
    expected
}

/// The functions over `$r` of all that follow.
const FUNCTIONS: &str = r#"
    (export "make" (func (param "of" u32) (result (own $r))))
    (export "get" (func (param "it" (borrow $r)) (result u32)))
    (export "take" (func (param "it" (own $r)) (result u32)))
    (export "sum" (func (param "all" (list (tuple u8 (borrow $r)))) (result u32)))
    (export "either" (func (param "it" (result u64 (error (borrow $r)))) (result u32)))
    (export "maybe" (func (param "it" (option (borrow $r))) (result u32)))
    (export "many" (func (param "all" (tuple
        u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u8
        (option (borrow $r)) (list (borrow $r)))) (result u32)))
    (export "dropped" (func (param "nothing" u32) (result u32)))"#;

/// A component that has resources whose representation is a number. What `dropped` gives has a digit for each that was
/// dropped.
const KEEPER: &str = r#"(component $keeper
    (core module $d
        (global $dropped (mut i32) (i32.const 0))
        (func (export "destroy") (param i32)
            (global.set $dropped (i32.add (i32.mul (global.get $dropped) (i32.const 10)) (local.get 0))))
        (func (export "dropped") (param i32) (result i32) (global.get $dropped)))
    (core instance $d (instantiate $d))
    (type $r (resource (rep i32) (dtor (core func $d "destroy"))))
    (core func $new (canon resource.new $r))
    (core func $rep (canon resource.rep $r))
    (core func $drop (canon resource.drop $r))
    (core module $m
        (import "h" "new" (func $new (param i32) (result i32)))
        (import "h" "rep" (func $rep (param i32) (result i32)))
        (import "h" "drop" (func $drop (param i32)))
        (memory (export "memory") 1)
        (global $free (mut i32) (i32.const 1024))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.set $free (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        (func (export "make") (param i32) (result i32) (call $new (local.get 0)))
        (func (export "get") (param i32) (result i32) (local.get 0))
        (func (export "take") (param i32) (result i32)
            (call $rep (local.get 0))
            (call $drop (local.get 0)))
        (func $sum (export "sum") (param $at i32) (param $left i32) (result i32) (local $sum i32)
            (block (loop
                (br_if 1 (i32.eqz (local.get $left)))
                (local.set $sum (i32.add (local.get $sum)
                    (i32.mul (i32.load8_u (local.get $at)) (i32.load offset=4 (local.get $at)))))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                (br 0)))
            (local.get $sum))
        (func (export "either") (param i32 i64) (result i32)
            (i32.add (i32.mul (local.get 0) (i32.const 1000)) (i32.wrap_i64 (local.get 1))))
        (func (export "maybe") (param i32 i32) (result i32)
            (i32.add (i32.mul (local.get 0) (i32.const 1000)) (local.get 1)))
        (func (export "many") (param $at i32) (result i32) (local $list i32)
            (local.set $list (i32.load offset=132 (local.get $at)))
            (i32.add
                (i32.mul (i32.load8_u offset=124 (local.get $at)) (i32.load offset=128 (local.get $at)))
                (i32.add
                    (i32.load (local.get $list))
                    (i32.mul (i32.load offset=136 (local.get $at)) (i32.load offset=4 (local.get $list)))))))
    (core instance $k (instantiate $m (with "h" (instance
        (export "new" (func $new)) (export "rep" (func $rep)) (export "drop" (func $drop))))))
    (func $make (param "of" u32) (result (own $r)) (canon lift (core func $k "make")))
    (func $get (param "it" (borrow $r)) (result u32) (canon lift (core func $k "get")))
    (func $take (param "it" (own $r)) (result u32) (canon lift (core func $k "take")))
    (func $sum (param "all" (list (tuple u8 (borrow $r)))) (result u32) (canon lift (core func $k "sum")
        (memory $k "memory") (realloc (func $k "realloc"))))
    (func $either (param "it" (result u64 (error (borrow $r)))) (result u32) (canon lift (core func $k "either")))
    (func $maybe (param "it" (option (borrow $r))) (result u32) (canon lift (core func $k "maybe")))
    (func $many (param "all" (tuple
        u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u8
        (option (borrow $r)) (list (borrow $r)))) (result u32) (canon lift (core func $k "many")
        (memory $k "memory") (realloc (func $k "realloc"))))
    (func $dropped (param "nothing" u32) (result u32) (canon lift (core func $d "dropped")))
    (instance $x
        (export "r" (type $r)) (export "make" (func $make)) (export "get" (func $get)) (export "take" (func $take))
        (export "sum" (func $sum)) (export "either" (func $either)) (export "maybe" (func $maybe))
        (export "many" (func $many)) (export "dropped" (func $dropped)))
    (export "x" (instance $x)))"#;

/// The functions of `x` as core functions, and what drops `$r`, for a part that imports `x` as `$x`.
fn lowered() -> (String, String) {
    let names = ["make", "get", "take", "sum", "either", "maybe", "many", "dropped"];
    let lowers = names.map(|name| {
        format!(r#"(core func ${name} (canon lower (func $x "{name}") (memory $mem "memory")))"#)
    });
    let given = names.map(|name| format!(r#"(export "{name}" (func ${name}))"#));
    (
        format!(
            r#"(alias export $x "r" (type $r))
            (core module $mem (memory (export "memory") 1))
            (core instance $mem (instantiate $mem))
            (core func $drop (canon resource.drop $r)) {}"#,
            lowers.concat()
        ),
        format!(
            r#"(export "memory" (memory $mem "memory")) (export "drop" (func $drop)) {}"#,
            given.concat()
        ),
    )
}

/// What a part's core module imports for that.
const IMPORTS: &str = r#"
    (import "h" "memory" (memory 1))
    (import "h" "drop" (func $drop (param i32)))
    (import "h" "make" (func $make (param i32) (result i32)))
    (import "h" "get" (func $get (param i32) (result i32)))
    (import "h" "take" (func $take (param i32) (result i32)))
    (import "h" "sum" (func $sum (param i32 i32) (result i32)))
    (import "h" "either" (func $either (param i32 i64) (result i32)))
    (import "h" "maybe" (func $maybe (param i32 i32) (result i32)))
    (import "h" "many" (func $many (param i32) (result i32)))
    (import "h" "dropped" (func $dropped (param i32) (result i32)))"#;

/// Uses resources of `x` in every way.
fn user() -> String {
    let (lowered, given) = lowered();
    let go = [
        "get", "take", "sum", "either", "maybe", "many", "dropped", "keep", "kept", "let-go", "forged",
        "twice",
    ];
    let lifts = go.map(|name| {
        format!(
            r#"(func (export "{name}") (param "of" u32) (result u32) (canon lift (core func $k "{name}")))"#
        )
    });
    format!(
        r#"(component $user
        (import "x" (instance $x (export "r" (type $r (sub resource))) {FUNCTIONS}))
        {lowered}
        (core module $m {IMPORTS}
            (global $kept (mut i32) (i32.const 0))
            (func (export "get") (param i32) (result i32) (local $h i32)
                (call $get (local.tee $h (call $make (local.get 0))))
                (call $drop (local.get $h)))
            (func (export "take") (param i32) (result i32) (call $take (call $make (local.get 0))))
            (func (export "sum") (param i32) (result i32) (local $one i32) (local $two i32)
                (i32.store8 (i32.const 64) (i32.const 2))
                (i32.store (i32.const 68) (local.tee $one (call $make (local.get 0))))
                (i32.store8 (i32.const 72) (i32.const 3))
                (i32.store (i32.const 76) (local.tee $two (call $make (i32.const 7))))
                (call $sum (i32.const 64) (i32.const 2))
                (drop (call $sum (i32.const 64) (i32.const 0)))
                (call $drop (local.get $two))
                (call $drop (local.get $one)))
            (func (export "either") (param i32) (result i32) (local $h i32)
                (call $either (i32.const 1) (i64.extend_i32_u (local.tee $h (call $make (local.get 0)))))
                (i32.add (call $either (i32.const 0) (i64.const 500)))
                (call $drop (local.get $h)))
            (func (export "maybe") (param i32) (result i32) (local $h i32)
                (call $maybe (i32.const 1) (local.tee $h (call $make (local.get 0))))
                (i32.add (call $maybe (i32.const 0) (i32.const 0)))
                (call $drop (local.get $h)))
            (func (export "many") (param i32) (result i32) (local $one i32) (local $two i32)
                (i32.store8 (i32.const 252) (i32.const 1))
                (i32.store (i32.const 256) (local.tee $one (call $make (local.get 0))))
                (i32.store (i32.const 260) (i32.const 512))
                (i32.store (i32.const 264) (i32.const 2))
                (i32.store (i32.const 512) (local.get $one))
                (i32.store (i32.const 516) (local.tee $two (call $make (i32.const 30))))
                (call $many (i32.const 128))
                (call $drop (local.get $one))
                (call $drop (local.get $two)))
            (func (export "dropped") (param i32) (result i32) (call $dropped (i32.const 0)))
            (func (export "keep") (param i32) (result i32)
                (global.set $kept (call $make (local.get 0))) (i32.const 0))
            (func (export "kept") (param i32) (result i32) (call $get (global.get $kept)))
            (func (export "let-go") (param i32) (result i32) (call $drop (global.get $kept)) (i32.const 0))
            (func (export "forged") (param i32) (result i32) (call $get (local.get 0)))
            (func (export "twice") (param i32) (result i32) (local $h i32)
                (call $drop (local.tee $h (call $make (local.get 0))))
                (call $drop (local.get $h)) (i32.const 0)))
        (core instance $k (instantiate $m (with "h" (instance {given})))) {})"#,
        lifts.concat()
    )
}

/// The keeper, and a part that uses it.
fn pair(user: &str, exports: &str) -> Vec<u8> {
    wat(&format!(
        r#"(component {KEEPER} {user}
            (instance $keeper (instantiate $keeper))
            (alias export $keeper "x" (instance $x))
            (instance $user (instantiate $user (with "x" (instance $x)))) {exports})"#
    ))
}

fn whole() -> Vec<u8> {
    let names = [
        "get", "take", "sum", "either", "maybe", "many", "dropped", "keep", "kept", "let-go", "forged",
        "twice",
    ];
    let exports = names.map(|name| format!(r#"(export "{name}" (func $user "{name}"))"#));
    pair(&user(), &exports.concat())
}

#[test]
fn a_resource_is_made_lent_handed_over_and_destroyed_once() {
    let wasm = whole();
    let results = assert_same(&wasm, &[("get", 5), ("dropped", 0), ("take", 6), ("dropped", 0)]);
    assert_eq!(results, [Some(5), Some(5), Some(6), Some(56)]);
    let kept = [("keep", 3), ("kept", 0), ("dropped", 0), ("kept", 0), ("let-go", 0), ("dropped", 0)];
    assert_eq!(assert_same(&wasm, &kept), [Some(0), Some(3), Some(0), Some(3), Some(0), Some(3)]);
}

#[test]
fn what_is_lent_is_found_wherever_parameters_hold_it() {
    let wasm = whole();
    assert_eq!(assert_same(&wasm, &[("sum", 4)]), [Some(2 * 4 + 3 * 7)]);
    assert_eq!(assert_same(&wasm, &[("either", 4)]), [Some(1000 + 4 + 500)]);
    assert_eq!(assert_same(&wasm, &[("maybe", 4)]), [Some(1000 + 4)]);
    assert_eq!(assert_same(&wasm, &[("many", 4)]), [Some(4 + 4 + 2 * 30)]);
}

#[test]
fn a_wrong_number_ends_the_call() {
    let wasm = whole();
    for forged in [0, 1, 77, u32::MAX] {
        assert_eq!(assert_same(&wasm, &[("forged", forged)]), [None]);
    }
    assert_eq!(assert_same(&wasm, &[("twice", 4)]), [None]);
}

/// A part between keeper and user, which looks at what is lent to it as `look` says and gives it back.
fn between(look: &str) -> Vec<u8> {
    let (lowered, given) = lowered();
    let user_module = r#"(core module $m {IMPORTS}
        (import "h" "look" (func $look (param i32 i32 i32 i32) (result i32)))
        (func (export "go") (param i32) (result i32) (local $h i32) (local $sum i32)
            (local.set $h (call $make (local.get 0)))
            (i32.store (i32.const 64) (local.get $h))
            (i32.store (i32.const 68) (local.get $h))
            (local.set $sum (call $look (local.get $h) (local.get $h) (i32.const 64) (i32.const 2)))
            (local.set $sum (i32.add (local.get $sum) (call $get (local.get $h))))
            (call $drop (local.get $h))
            (local.get $sum)))"#
        .replace("{IMPORTS}", IMPORTS);
    let ty = |r: &str| {
        format!(
            r#"(func (param "one" (borrow {r})) (param "two" (borrow {r})) (param "more" (list (borrow {r}))) (result u32))"#
        )
    };
    let lift = r#"(memory $mem "memory") (realloc (func $k "realloc"))"#;
    let component = |name: &str, deeper: &str, lower: &str, give: &str, body: &str| {
        format!(
            r#"(component ${name}
            (import "x" (instance $x (export "r" (type $r (sub resource))) {FUNCTIONS}))
            {lowered} {deeper} {lower}
            (core module $m {IMPORTS} {body}
                (global $free (mut i32) (i32.const 1024))
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
                    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
                    (global.set $free (i32.add (local.get $at) (local.get 3)))
                    (local.get $at)))
            (core instance $k (instantiate $m (with "h" (instance {given} {give}))))
            (type $look {})
            (func (export "look") (type $look) (canon lift (core func $k "look") {lift})))"#,
            ty("$r")
        )
    };
    let drops = "(call $drop (local.get 0)) (call $drop (local.get 1))
        (call $drop (i32.load (local.get 2))) (call $drop (i32.load offset=4 (local.get 2)))";
    let last = component(
        "last",
        "",
        "",
        "",
        &format!(
            r#"(func (export "look") (param i32 i32 i32 i32) (result i32)
                (i32.add (call $get (local.get 0)) (call $get (i32.load offset=4 (local.get 2)))) {drops})"#
        ),
    );
    let deeper = format!(r#"(import "deeper" (func $deeper {}))"#, &ty("$r")[6..ty("$r").len() - 1]);
    let first = component(
        "first",
        &deeper,
        r#"(core func $deeper (canon lower (func $deeper) (memory $mem "memory")))"#,
        r#"(export "deeper" (func $deeper))"#,
        &format!(
            r#"(import "h" "deeper" (func $deeper (param i32 i32 i32 i32) (result i32)))
            (func (export "look") (param i32 i32 i32 i32) (result i32) {look})"#
        )
        .replace("{drops}", drops),
    );
    let user = format!(
        r#"(component $user
            (import "x" (instance $x (export "r" (type $r (sub resource))) {FUNCTIONS}))
            {lowered}
            (import "look" (func $look {}))
            (core func $look (canon lower (func $look) (memory $mem "memory")))
            {user_module}
            (core instance $k (instantiate $m (with "h" (instance {given} (export "look" (func $look))))))
            (func (export "go") (param "of" u32) (result u32) (canon lift (core func $k "go"))))"#,
        &ty("$r")[6..ty("$r").len() - 1]
    );
    wat(&format!(
        r#"(component {KEEPER} {last} {first} {user}
            (instance $keeper (instantiate $keeper))
            (alias export $keeper "x" (instance $x))
            (instance $last (instantiate $last (with "x" (instance $x))))
            (instance $first (instantiate $first (with "x" (instance $x)) (with "deeper" (func $last "look"))))
            (instance $user (instantiate $user (with "x" (instance $x)) (with "look" (func $first "look"))))
            (export "go" (func $user "go"))
            (export "dropped" (func $x "dropped")))"#
    ))
}

#[test]
fn what_is_lent_on_stays_with_its_owner() {
    let look = "(call $deeper (local.get 0) (local.get 0) (local.get 2) (local.get 3))
        (i32.add (call $get (local.get 1))) {drops}";
    let calls = [("go", 5), ("dropped", 0), ("go", 6), ("dropped", 0)];
    assert_eq!(assert_same(&between(look), &calls), [Some(20), Some(5), Some(24), Some(56)]);
}

#[test]
fn what_is_lent_is_given_back_before_the_call_returns() {
    let look = "(i32.const 0) (call $drop (local.get 0)) (call $drop (local.get 1))";
    assert_eq!(assert_same(&between(look), &[("go", 5)]), [None]);
}

/// Two instances of one component have resources and state each of their own.
#[test]
fn instances_of_one_component_keep_their_resources_apart() {
    let names = ["keep", "kept", "let-go", "dropped"];
    let exports = |user: &str| {
        names.map(|name| format!(r#"(export "{user}-{name}" (func ${user} "{name}"))"#)).concat()
    };
    let wasm = wat(&format!(
        r#"(component {KEEPER} {}
            (instance $keeper1 (instantiate $keeper)) (instance $keeper2 (instantiate $keeper))
            (alias export $keeper1 "x" (instance $x1)) (alias export $keeper2 "x" (instance $x2))
            (instance $a (instantiate $user (with "x" (instance $x1))))
            (instance $b (instantiate $user (with "x" (instance $x2)))) {} {})"#,
        user(),
        exports("a"),
        exports("b")
    ));
    let calls = [
        ("a-keep", 3),
        ("b-keep", 4),
        ("a-kept", 0),
        ("b-kept", 0),
        ("a-let-go", 0),
        ("a-dropped", 0),
        ("b-dropped", 0),
        ("b-let-go", 0),
        ("a-dropped", 0),
        ("b-dropped", 0),
    ];
    let results = [0, 0, 3, 4, 0, 3, 0, 0, 3, 4].map(Some);
    assert_eq!(assert_same(&wasm, &calls), results);
}

/// A type without a destructor, and one that its own component drops in the midst of its work.
#[test]
fn a_component_drops_its_own() {
    let wasm = wat(r#"(component
        (core module $d
            (global $sum (mut i32) (i32.const 0))
            (func (export "destroy") (param i32) (global.set $sum (i32.add (global.get $sum) (local.get 0))))
            (func (export "sum") (param i32) (result i32) (global.get $sum)))
        (core instance $d (instantiate $d))
        (type $r (resource (rep i32) (dtor (core func $d "destroy"))))
        (type $plain (resource (rep i32)))
        (core func $new (canon resource.new $r)) (core func $drop (canon resource.drop $r))
        (core func $new2 (canon resource.new $plain)) (core func $rep2 (canon resource.rep $plain))
        (core func $drop2 (canon resource.drop $plain))
        (core module $m
            (import "h" "new" (func $new (param i32) (result i32)))
            (import "h" "drop" (func $drop (param i32)))
            (import "h" "new2" (func $new2 (param i32) (result i32)))
            (import "h" "rep2" (func $rep2 (param i32) (result i32)))
            (import "h" "drop2" (func $drop2 (param i32)))
            (func (export "go") (param i32) (result i32) (local $h i32)
                (call $drop (call $new (local.get 0)))
                (call $rep2 (local.tee $h (call $new2 (local.get 0))))
                (call $drop2 (local.get $h)))
            (func (export "confuse") (param i32) (result i32)
                (call $drop2 (call $new (local.get 0))) (i32.const 0)))
        (core instance $k (instantiate $m (with "h" (instance
            (export "new" (func $new)) (export "drop" (func $drop)) (export "new2" (func $new2))
            (export "rep2" (func $rep2)) (export "drop2" (func $drop2))))))
        (func (export "go") (param "of" u32) (result u32) (canon lift (core func $k "go")))
        (func (export "confuse") (param "of" u32) (result u32) (canon lift (core func $k "confuse")))
        (func (export "sum") (param "of" u32) (result u32) (canon lift (core func $d "sum"))))"#);
    assert_eq!(assert_same(&wasm, &[("go", 5), ("sum", 0), ("go", 6), ("sum", 0)]), [5, 5, 6, 11].map(Some));
    assert_eq!(assert_same(&wasm, &[("confuse", 5)]), [None]);
}
