//! Rewritten components in wasmtime: what the text of a component promises, they do.

use wasmtime::component::{Component, Instance, Linker};
use wasmtime::{Engine, Store, StoreContextMut};

use super::wat;
use crate::component::{LOAD_ALL, Rewritten, Variant, load_export, rewrite, save_export};

/// What the host of `a:b/i` has been asked to do.
#[derive(Default)]
struct Calls {
    made: u32,
    dropped: Vec<u32>,
}

struct Running {
    store: Store<Calls>,
    instance: Instance,
    accessors: Vec<String>,
}

impl Running {
    fn start(wasm: &[u8], variant: Variant) -> Self {
        let Rewritten { wasm, accessors, .. } = rewrite(wasm, variant).unwrap();
        let engine = Engine::default();
        let mut linker = Linker::new(&engine);
        let mut host = linker.instance("a:b/i").unwrap();
        host.func_wrap("constructor-r", |mut caller: StoreContextMut<'_, Calls>, ()| {
            caller.data_mut().made += 1;
            Ok((0x0700_0000 + caller.data().made,))
        })
        .unwrap();
        host.func_wrap("method-r-get", |_: StoreContextMut<'_, Calls>, (handle,): (u32,)| Ok((handle + 1,)))
            .unwrap();
        host.func_wrap("drop-r", |mut caller: StoreContextMut<'_, Calls>, (handle,): (u32,)| {
            caller.data_mut().dropped.push(handle);
            Ok(())
        })
        .unwrap();
        host.func_wrap("static-r-find", |_: StoreContextMut<'_, Calls>, (all,): (Vec<u32>,)| {
            Ok((all.first().copied(),))
        })
        .unwrap();
        host.func_wrap("plain", |_: StoreContextMut<'_, Calls>, ()| Ok(())).unwrap();
        linker
            .instance("a:b/j")
            .unwrap()
            .func_wrap("use-it", |_: StoreContextMut<'_, Calls>, (_,): (u32,)| Ok(()))
            .unwrap();
        let component = Component::new(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, Calls::default());
        let instance = linker.instantiate(&mut store, &component).unwrap();
        Self { store, instance, accessors }
    }

    fn call(&mut self, name: &str) -> u32 {
        let function = self.instance.get_typed_func::<(), (u32,)>(&mut self.store, name).unwrap();
        function.call(&mut self.store, ()).unwrap().0
    }

    fn save(&mut self) {
        for suffix in self.accessors.clone() {
            let name = save_export(&suffix);
            let function = self.instance.get_typed_func::<(), ()>(&mut self.store, name).unwrap();
            function.call(&mut self.store, ()).unwrap();
        }
    }

    fn load(&mut self, mask: u64) {
        for suffix in self.accessors.clone() {
            let name = load_export(&suffix);
            let function = self.instance.get_typed_func::<(u64,), ()>(&mut self.store, name).unwrap();
            function.call(&mut self.store, (mask,)).unwrap();
        }
    }
}

/// A module whose `sum` adds up one global of each type, and whose `step` changes them all.
const COUNTER: &str = r#"(core module $m
    (global $a (mut i32) (i32.const 1)) (global $b (mut i64) (i64.const 10))
    (global $c (mut f32) (f32.const 100)) (global $d (mut f64) (f64.const 1000))
    (global $e (mut v128) (v128.const i32x4 0 0 0 10000))
    (global $constant i32 (i32.const 0))
    (func (export "sum") (result i32)
        global.get $a
        (i32.add (i32.wrap_i64 (global.get $b)))
        (i32.add (i32.trunc_f32_s (global.get $c)))
        (i32.add (i32.trunc_f64_s (global.get $d)))
        (i32.add (i32x4.extract_lane 3 (global.get $e))))
    (func (export "step") (result i32)
        (global.set $a (i32.mul (global.get $a) (i32.const 2)))
        (global.set $b (i64.mul (global.get $b) (i64.const 3)))
        (global.set $c (f32.mul (global.get $c) (f32.const 4)))
        (global.set $d (f64.mul (global.get $d) (f64.const 5)))
        (global.set $e (i32x4.mul (global.get $e) (i32x4.splat (i32.const 6))))
        i32.const 0))"#;

#[test]
fn loading_brings_saved_globals_back() {
    let wasm = wat(&format!(
        r#"(component
            (component $child {COUNTER}
                (core instance $i (instantiate $m))
                (func (export "sum") (result u32) (canon lift (core func $i "sum")))
                (func (export "step") (result u32) (canon lift (core func $i "step"))))
            {COUNTER}
            (core instance $i1 (instantiate $m)) (core instance $i2 (instantiate $m))
            (instance $c1 (instantiate $child)) (instance $c2 (instantiate $child))
            (func (export "sum1") (result u32) (canon lift (core func $i1 "sum")))
            (func (export "step1") (result u32) (canon lift (core func $i1 "step")))
            (func (export "sum2") (result u32) (canon lift (core func $i2 "sum")))
            (func (export "step2") (result u32) (canon lift (core func $i2 "step")))
            (export "sum3" (func $c1 "sum")) (export "step3" (func $c1 "step"))
            (export "sum4" (func $c2 "sum")) (export "step4" (func $c2 "step")))"#
    ));
    let once = 2 + 30 + 400 + 5000 + 60000;
    let mut run = Running::start(&wasm, Variant::Boot);
    let sums = |run: &mut Running| ["sum1", "sum2", "sum3", "sum4"].map(|name| run.call(name));
    run.call("step2");
    run.call("step4");
    let saved = [11111, once, 11111, once];
    assert_eq!(sums(&mut run), saved);
    run.save();
    for step in ["step1", "step2", "step3", "step4"] {
        run.call(step);
    }
    assert_ne!(sums(&mut run), saved);
    let stepped = sums(&mut run);
    run.load(!1);
    assert_eq!(sums(&mut run), stepped, "all of it is in the first block");
    run.load(LOAD_ALL);
    assert_eq!(sums(&mut run), saved);
}

/// A part that gets a handle and drops it: `x` says how it comes by the type.
fn eater(x: &str) -> String {
    format!(
        r#"(component $eater
            {x}
            (core func $drop (canon resource.drop $t))
            (core module $m
                (import "h" "drop" (func $d (param i32))) (global (mut i32) (i32.const 0))
                (func (export "eat") (param i32) (call $d (local.get 0))))
            (core instance $k (instantiate $m (with "h" (instance (export "drop" (func $drop))))))
            (func (export "eat") (param "it" (own $t)) (canon lift (core func $k "eat"))))"#
    )
}

#[test]
fn parts_drop_what_was_handed_on_to_them_in_any_way() {
    let as_instance = eater(
        r#"(import "x" (instance $x (export "r" (type (sub resource))))) (alias export $x "r" (type $t))"#,
    );
    let by_itself = eater(r#"(import "x" (type $t (sub resource)))"#);
    let bundled = format!(
        r#"(instance $b (export "r" (type $r)))
           {as_instance} (instance $e (instantiate $eater (with "x" (instance $b))))"#
    );
    let renamed = format!(
        r#"(component $p (import "in" (type $in (sub resource))) (export "r" (type $in)))
           (instance $b (instantiate $p (with "in" (type $r))))
           {as_instance} (instance $e (instantiate $eater (with "x" (instance $b))))"#
    );
    let alone = format!(r#"{by_itself} (instance $e (instantiate $eater (with "x" (type $r))))"#);
    let deep = format!(
        r#"(component $outer
               (import "in" (instance $in (export "r" (type (sub resource)))))
               (alias export $in "r" (type $r))
               (component $inner
                   (import "in" (type $r (sub resource)))
                   {by_itself}
                   (instance $e (instantiate $eater (with "x" (type $r))))
                   (export "eat" (func $e "eat")))
               (instance $i (instantiate $inner (with "in" (type $r))))
               (export "eat" (func $i "eat")))
           (instance $b (export "r" (type $r)))
           (instance $e (instantiate $outer (with "in" (instance $b))))"#
    );
    let whole = format!(r#"{as_instance} (instance $e (instantiate $eater (with "x" (instance $i))))"#);
    for parts in [bundled, renamed, alone, deep, whole] {
        let wasm = wat(&format!(
            r#"(component
                (import "a:b/i" (instance $i
                    (export "r" (type $r (sub resource)))
                    (export "[constructor]r" (func (result (own $r))))))
                (alias export $i "r" (type $r))
                {parts}
                (component $main
                    (import "r" (type $r (sub resource)))
                    (import "make" (func $make (result (own $r))))
                    (import "feed" (func $feed (param "it" (own $r))))
                    (core func $lowered-make (canon lower (func $make)))
                    (core func $lowered-feed (canon lower (func $feed)))
                    (core module $m
                        (import "h" "make" (func $make (result i32)))
                        (import "h" "feed" (func $feed (param i32)))
                        (func (export "go") (result i32) (local $h i32)
                            (call $feed (local.tee $h (call $make)))
                            (local.get $h)))
                    (core instance $n (instantiate $m (with "h" (instance
                        (export "make" (func $lowered-make)) (export "feed" (func $lowered-feed))))))
                    (func (export "go") (result u32) (canon lift (core func $n "go"))))
                (instance $n (instantiate $main
                    (with "r" (type $r)) (with "make" (func $i "[constructor]r")) (with "feed" (func $e "eat"))))
                (export "go" (func $n "go")))"#
        ));
        for variant in [Variant::Boot, Variant::Restore] {
            let mut run = Running::start(&wasm, variant);
            let made = [run.call("go"), run.call("go")];
            assert_eq!(run.store.data().dropped, made, "{parts}");
            assert_eq!(run.accessors.len(), 1);
        }
    }
}

#[test]
fn the_restore_variant_starts_with_nothing_and_runs_nothing() {
    let wasm = wat(r#"(component
        (core module $m
            (memory 1) (data (i32.const 8) "\2a\00\00\00") (data $p "\07\00\00\00")
            (func $start (i32.store (i32.const 16) (i32.const 5)))
            (start $start)
            (func (export "active") (result i32) (i32.load (i32.const 8)))
            (func (export "started") (result i32) (i32.load (i32.const 16)))
            (func (export "passive") (result i32)
                (memory.init $p (i32.const 24) (i32.const 0) (i32.const 4))
                (i32.load (i32.const 24))))
        (core instance $i (instantiate $m))
        (func (export "active") (result u32) (canon lift (core func $i "active")))
        (func (export "started") (result u32) (canon lift (core func $i "started")))
        (func (export "passive") (result u32) (canon lift (core func $i "passive"))))"#);
    let results = |variant| {
        let mut run = Running::start(&wasm, variant);
        ["active", "started", "passive"].map(|name| run.call(name))
    };
    assert_eq!(results(Variant::Boot), [42, 5, 7]);
    assert_eq!(results(Variant::Restore), [0, 0, 7]);
}

#[test]
fn handles_reach_the_host_as_numbers() {
    let wasm = wat(super::rewriting::WITH_RESOURCE);
    let mut run = Running::start(&wasm, Variant::Boot);
    assert_eq!(run.call("run"), 0x0700_0002);
    assert_eq!(run.call("run"), 0x0700_0003);
    assert_eq!(run.store.data().dropped, [0x0700_0001, 0x0700_0002]);
}

/// Functions of a part's own with names like those that the rewriter makes, beside a resource that they do not concern.
#[test]
fn parts_call_what_they_mean_by_a_name_that_looks_made() {
    let wasm = wat(r#"(component
        (import "a:b/i" (instance $i
            (export "r" (type $r (sub resource)))
            (export "[constructor]r" (func (result (own $r))))
            (export "[method]r.get" (func (param "self" (borrow $r)) (result u32)))))
        (alias export $i "r" (type $r))
        (component $giver
            (core module $m
                (func (export "drop-r") (param i32) (result i32) (i32.add (local.get 0) (i32.const 100)))
                (func (export "method-r-get") (param i32) (result i32) (i32.add (local.get 0) (i32.const 200))))
            (core instance $k (instantiate $m))
            (import "r" (type $r (sub resource)))
            (type $f (func (param "x" u32) (result u32)))
            (func $drop (type $f) (canon lift (core func $k "drop-r")))
            (func $get (type $f) (canon lift (core func $k "method-r-get")))
            (instance (export "a:b/own")
                (export "r" (type $r)) (export "drop-r" (func $drop)) (export "method-r-get" (func $get))))
        (instance $g (instantiate $giver (with "r" (type $r))))
        (alias export $g "a:b/own" (instance $own))
        (component $user
            (import "i" (instance $i
                (export "r" (type $r (sub resource)))
                (export "[constructor]r" (func (result (own $r))))
                (export "[method]r.get" (func (param "self" (borrow $r)) (result u32)))))
            (alias export $i "r" (type $r))
            (import "own" (instance $own
                (export "r" (type (eq $r)))
                (export "method-r-get" (func (param "x" u32) (result u32)))
                (export "drop-r" (func (param "x" u32) (result u32)))))
            (core func $drop (canon resource.drop $r))
            (core func $make (canon lower (func $i "[constructor]r")))
            (core func $get (canon lower (func $i "[method]r.get")))
            (core func $own-drop (canon lower (func $own "drop-r")))
            (core func $own-get (canon lower (func $own "method-r-get")))
            (core module $m
                (import "h" "drop" (func $drop (param i32)))
                (import "h" "make" (func $make (result i32)))
                (import "h" "get" (func $get (param i32) (result i32)))
                (import "h" "own-drop" (func $own-drop (param i32) (result i32)))
                (import "h" "own-get" (func $own-get (param i32) (result i32)))
                (func (export "go") (result i32) (local $h i32)
                    (local.set $h (call $make))
                    (call $own-drop (call $own-get (call $get (local.get $h))))
                    (call $drop (local.get $h))))
            (core instance $k (instantiate $m (with "h" (instance
                (export "drop" (func $drop)) (export "make" (func $make)) (export "get" (func $get))
                (export "own-drop" (func $own-drop)) (export "own-get" (func $own-get))))))
            (func (export "go") (result u32) (canon lift (core func $k "go"))))
        (instance $u (instantiate $user (with "i" (instance $i)) (with "own" (instance $own))))
        (export "go" (func $u "go")))"#);
    let mut run = Running::start(&wasm, Variant::Boot);
    assert_eq!(run.call("go"), 0x0700_0001 + 1 + 200 + 100);
    assert_eq!(run.store.data().dropped, [0x0700_0001]);
}

/// A mask loads just the blocks whose bits are set, the last bit all the rest.
#[test]
fn a_mask_loads_some_of_many_globals() {
    const GLOBALS: usize = 2200;
    let globals = "(global (mut i32) (i32.const 0))".repeat(GLOBALS);
    let each = |from: usize, to: usize, of: &dyn Fn(usize) -> String| -> String {
        (from..to).map(of).collect::<Vec<_>>().concat()
    };
    let add = each(0, GLOBALS, &|n| format!("(global.set {n} (i32.add (global.get {n}) (i32.const 1)))"));
    let sum = |from, to| each(from, to, &|n| format!("(global.get {n}) i32.add "));
    let wasm = wat(&format!(
        r#"(component
            (core module $m {globals}
                (func (export "step") (result i32) {add} i32.const 0)
                (func (export "first") (result i32) i32.const 0 {})
                (func (export "second") (result i32) i32.const 0 {})
                (func (export "rest") (result i32) i32.const 0 {}))
            (core instance $i (instantiate $m))
            (func (export "step") (result u32) (canon lift (core func $i "step")))
            (func (export "first") (result u32) (canon lift (core func $i "first")))
            (func (export "second") (result u32) (canon lift (core func $i "second")))
            (func (export "rest") (result u32) (canon lift (core func $i "rest"))))"#,
        sum(0, 32),
        sum(32, 64),
        sum(63 * 32, GLOBALS),
    ));
    let rest = (GLOBALS - 63 * 32) as u32;
    let mut run = Running::start(&wasm, Variant::Boot);
    let sums = |run: &mut Running| ["first", "second", "rest"].map(|name| run.call(name));
    run.save();
    run.call("step");
    assert_eq!(sums(&mut run), [32, 32, rest]);
    run.load(1 << 1);
    assert_eq!(sums(&mut run), [32, 0, rest]);
    run.load(1 << 63);
    assert_eq!(sums(&mut run), [32, 0, 0]);
    run.load(LOAD_ALL);
    assert_eq!(sums(&mut run), [0, 0, 0]);
}
