//! Every reason for refusing, and what must not be refused.

use super::{component_of, reasons, refusals, wat};
use crate::component::{Place, Reason, Refusal, limits};

/// The reasons for a component with this one module.
fn of_module(module: &str) -> Vec<Reason> {
    reasons(&component_of(module))
}

#[test]
fn tables_that_change_are_captured() {
    let table = "(table $t 2 funcref) (elem $e func $f) (func $f)";
    let code = |op: &str| of_module(&format!("{table} (func {op})"));
    let zeros = "i32.const 0 i32.const 0 i32.const 0";
    for op in [
        "i32.const 0 ref.null func table.set $t",
        "ref.null func i32.const 1 table.grow $t drop",
        "i32.const 0 ref.null func i32.const 1 table.fill $t",
        &format!("{zeros} table.copy $t $t"),
        &format!("{zeros} table.init $t $e"),
        "elem.drop $e",
        "i32.const 0 table.get $t drop",
        "i32.const 0 call_indirect $t",
    ] {
        assert_eq!(code(op), [], "{op}");
    }
}

#[test]
fn calls_that_would_find_functions_of_another_type() {
    let change = "(func (i32.const 0) (ref.null func) (table.set 0))";
    let table = "(type $n (func (param i32))) (type $r (func (param funcref))) (table $t 2 funcref)";
    let called = "(func (i32.const 0) (i32.const 0) (call_indirect (type $n)))";
    let referenced =
        |ty: &str| format!("(elem declare func $f) (func $f (type {ty})) (func (drop (ref.func $f)))");
    assert_eq!(of_module(&format!("{table} {called} {}", referenced("$r"))), []);
    assert_eq!(of_module(&format!("{table} {change} {called} {}", referenced("$r"))), [Reason::AlikeTypes]);
    assert_eq!(of_module(&format!("{table} {change} {called} {}", referenced("$n"))), []);
    // what nobody makes a reference of, nobody finds
    assert_eq!(of_module(&format!("{table} {change} {called} (func (type $r))")), []);
    // also in two modules, whose functions may meet in a table
    let wasm = wat(&format!(
        "(component (core module {table} {change} {}) (component (core module)
            (core module (type (func)) {table} {called})))",
        referenced("$r"),
    ));
    let refusals = refusals(&wasm);
    assert_eq!(refusals[0].reason, Reason::AlikeTypes);
    assert_eq!((refusals[0].place.components.as_slice(), refusals[0].place.module), (&[0][..], Some(1)));
    assert_eq!(wasm[refusals[0].place.offset as usize], 0x60, "the function type");
}

#[test]
fn dropped_data_is_captured() {
    let init = "i32.const 0 i32.const 0 i32.const 1 memory.init $d";
    let passive =
        |code: &str| of_module(&format!("(memory 1) (data $d \"x\") (data $e \"y\") (func {code})"));
    assert_eq!(passive(init), []);
    assert_eq!(passive("data.drop $d"), []);
    assert_eq!(passive(&format!("{init} data.drop $e")), []);
    assert_eq!(passive(&format!("{init} data.drop $d")), []);
    // an active segment is dropped from the start
    let active = format!("(memory 1) (data $d (i32.const 0) \"x\") (func {init} data.drop $d)");
    assert_eq!(of_module(&active), []);
}

#[test]
fn memories_and_globals() {
    assert_eq!(of_module("(memory 1 1 shared)"), [Reason::SharedMemory]);
    assert_eq!(of_module("(memory i64 1)"), [Reason::Memory64]);
    assert_eq!(of_module("(memory 1 (pagesize 1))"), [Reason::PageSize]);
    assert_eq!(of_module("(table i64 1 funcref)"), [Reason::Memory64]);
    assert_eq!(of_module("(global (mut funcref) (ref.null func))"), []);
    assert_eq!(of_module("(global funcref (ref.null func))"), []);
    assert_eq!(of_module("(memory 1) (memory 2) (global (mut v128) (v128.const i64x2 0 0))"), []);
}

#[test]
fn garbage_collected_types() {
    assert_eq!(of_module("(type (struct (field i32)))"), [Reason::GarbageCollection]);
    assert_eq!(of_module("(type (array (mut i8)))"), [Reason::GarbageCollection]);
    for module in [
        "(func (param externref))",
        "(func (result externref) unreachable)",
        "(global (mut externref) (ref.null extern))",
        "(table 1 externref)",
    ] {
        assert_eq!(of_module(module), [Reason::ExternalReference], "{module}");
    }
    assert!(Reason::ExternalReference.to_string().contains("`externref`"));
}

#[test]
fn exceptions_are_captured_as_long_as_nothing_keeps_one() {
    let tag = "(tag $t (param i32))";
    for module in [
        "(import \"a\" \"t\" (tag (param i32)))",
        "(func (throw $t (i32.const 1)))",
        "(func (block (try_table (catch_all 0))))",
        "(func (param exnref) (result exnref) (local exnref) (throw_ref (local.get 0)))",
        "(func (result i32) (ref.is_null (ref.null exn)))",
    ] {
        let module = if module.contains("import") { module.to_owned() } else { format!("{tag} {module}") };
        let component = wat(&format!("(component (core module {module}))"));
        assert_eq!(reasons(&component), [], "{module}");
    }
    assert_eq!(of_module("(table 1 exnref)"), [Reason::KeptExceptions("a table")]);
    assert_eq!(of_module("(global (mut exnref) (ref.null exn))"), [Reason::KeptExceptions("a global")]);
    assert_eq!(of_module("(global exnref (ref.null exn))"), [Reason::KeptExceptions("a global")]);
    assert_eq!(of_module("(elem exnref (ref.null exn))"), [Reason::KeptExceptions("an element segment")]);
    let imported = wat("(component (core module (import \"a\" \"t\" (table 1 exnref))))");
    assert_eq!(reasons(&imported), [Reason::KeptExceptions("a table")]);
    let wasm = component_of("(memory 1) (global (mut exnref) (ref.null exn))");
    let refusal = &refusals(&wasm)[0];
    assert_eq!(wasm[refusal.place.offset as usize], 0x69, "the type exnref");
    assert!(
        refusal.to_string().contains("a global for references to exceptions (`exnref`) (core module 0, ")
    );
}

#[test]
fn exceptions_of_the_old_form() {
    // try, catch_all, end: no text of today's has it
    let body = [0, 0x06, 0x40, 0x19, 0x0b, 0x0b];
    let mut module = wasm_encoder::Module::new();
    let mut types = wasm_encoder::TypeSection::new();
    types.ty().function([], []);
    let mut functions = wasm_encoder::FunctionSection::new();
    functions.function(0);
    let mut code = wasm_encoder::CodeSection::new();
    code.raw(&body);
    module.section(&types).section(&functions).section(&code);
    let mut component = wasm_encoder::Component::new();
    component.section(&wasm_encoder::ModuleSection(&module));
    let wasm = component.finish();
    let refusals = refusals(&wasm);
    assert_eq!(refusals[0].reason, Reason::LegacyExceptions);
    assert_eq!(wasm[refusals[0].place.offset as usize], 0x06, "`try`");
}

#[test]
fn what_has_no_name_of_its_own_is_refused_with_the_validators_words() {
    for module in [
        "(func (param i64 i64) local.get 0 local.get 1 i64.mul_wide_u drop drop)",
        "(memory 1) (func i32.const 0 i32.atomic.load drop)",
        "(func ref.null any drop)",
    ] {
        let refusals = refusals(&component_of(module));
        assert!(matches!(refusals[0].reason, Reason::Unsupported(_)), "{refusals:?}");
        assert!(refusals[0].place.offset > 8);
    }
}

#[test]
fn resources_without_an_interface() {
    let imported = wat("(component (import \"r\" (type (sub resource))))");
    assert_eq!(reasons(&imported), [Reason::LooseResource]);
}

#[test]
fn a_part_that_hands_on_what_nothing_can_drop() {
    // only the interface that defines the resource has a function that drops it
    let text = "(component
        (import \"i\" (instance $i (export \"r\" (type (sub resource)))))
        (alias export $i \"r\" (type $r))
        (import \"j\" (instance $j (export \"r\" (type (eq $r)))))
        (component $p (import \"in\" (instance $in (export \"r\" (type (sub resource))))))
        (instance (instantiate $p (with \"in\" (instance $j)))))";
    let refusals = refusals(&wat(text));
    assert!(matches!(&refusals[..], [Refusal { reason: Reason::Composition(_), .. }]), "{refusals:?}");
}

#[test]
fn borrowed_handles_in_too_many_places() {
    let lifted = |places: usize| {
        let list = "(list (borrow $r)) ".repeat(places);
        wat(&format!(
            "(component
                (import \"i\" (instance $i (export \"r\" (type $r (sub resource)))))
                (alias export $i \"r\" (type $r))
                (core module $m (memory (export \"m\") 1) (func (export \"f\") (param i32))
                    (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) unreachable))
                (core instance $c (instantiate $m))
                (type $t (tuple {list}))
                (func (param \"x\" $t) (canon lift (core func $c \"f\")
                    (memory $c \"m\") (realloc (func $c \"realloc\")))))"
        ))
    };
    assert_eq!(reasons(&lifted(limits::MAX_FUNCTION_BORROWS)), []);
    assert_eq!(reasons(&lifted(limits::MAX_FUNCTION_BORROWS + 1)), [Reason::BorrowedHandle]);
}

#[test]
fn borrowed_handles_in_places_that_multiply() {
    let twice = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(|n| {
        let of = n - 1;
        format!("(type $t{n} (tuple $t{of} $t{of}))")
    });
    let text = format!(
        "(component
            (import \"i\" (instance $i (export \"r\" (type $r (sub resource)))))
            (alias export $i \"r\" (type $r))
            (core module $m (memory (export \"m\") 1) (func (export \"f\") (param i32))
                (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) unreachable))
            (core instance $c (instantiate $m))
            (type $t0 (borrow $r)) {}
            (func (param \"x\" $t12) (canon lift (core func $c \"f\")
                (memory $c \"m\") (realloc (func $c \"realloc\")))))",
        twice.concat()
    );
    assert_eq!(reasons(&wat(&text)), [Reason::BorrowedHandle]);
}

#[test]
fn asynchronous_components_and_threads() {
    let stream = "(component (type $s (stream u8)) (core func (canon stream.new $s)))";
    assert_eq!(reasons(&wat(stream)), [Reason::Async("StreamNew".to_owned())]);
    let lift = "(component (core module $m (func (export \"f\")))
        (core instance $i (instantiate $m))
        (type $f (func async))
        (func (type $f) (canon lift (core func $i \"f\") async)))";
    assert_eq!(reasons(&wat(lift)), [Reason::Async("async lift or lower".to_owned())]);
    let yielding = "(component (core func (canon thread.available_parallelism)))";
    assert_eq!(reasons(&wat(yielding)), [Reason::Threads("ThreadAvailableParallelism".to_owned())]);
}

#[test]
fn code_from_outside() {
    let module = "(component (component $c (import \"m\" (core module $m)) (core instance (instantiate $m)))
        (core module $m (memory 1)) (instance (instantiate $c (with \"m\" (core module $m)))))";
    let refusals = refusals(&wat(module));
    assert_eq!(refusals[0].reason, Reason::ForeignModule);
    assert_eq!(refusals[0].place.components, [0]);

    let component = "(component (component $c (import \"c\" (component $d)) (instance (instantiate $d)))
        (component $d) (instance (instantiate $c (with \"c\" (component $d)))))";
    assert_eq!(reasons(&wat(component)), [Reason::ForeignComponent]);
}

#[test]
fn names_of_the_rewriters_own() {
    let core = of_module("(func (export \"dormouse:global:0\"))");
    assert_eq!(core, [Reason::ReservedName("dormouse:global:0".to_owned())]);
    for name in ["dormouse-save", "DORMOUSE-load-i0"] {
        let component = format!("(component (import \"f\" (func $f)) (export \"{name}\" (func $f)))");
        assert_eq!(reasons(&wat(&component)), [Reason::ReservedName(name.to_owned())]);
    }
    let interface = "dormouse:rewrite/resources";
    let component = format!("(component (import \"{interface}\" (instance)))");
    assert_eq!(reasons(&wat(&component)), [Reason::ReservedName(interface.to_owned())]);
    // an interface of ours is something else
    assert_eq!(reasons(&wat("(component (import \"dormouse:agent/lifecycle@0.1.0\" (instance)))")), []);
}

#[test]
fn names_that_become_the_same() {
    let items = "(export \"r\" (type $r (sub resource)))
        (export \"r-f\" (type $q (sub resource)))
        (export \"[static]r.f-f\" (func))
        (export \"[static]r-f.f\" (func))";
    let collision = [Reason::NameCollision("static-r-f-f".to_owned())];
    let imported = format!("(component (import \"a:b/i\" (instance {items})))");
    assert_eq!(reasons(&wat(&imported)), collision);
}

#[test]
fn names_of_ones_own_beside_those_that_are_made() {
    for name in ["drop-r", "method-r-f", "constructor-r", "static-r-g", "plain-drop-r"] {
        let component = format!(
            "(component (import \"a:b/i\" (instance
                (export \"r\" (type $r (sub resource)))
                (export \"[constructor]r\" (func (result (own $r))))
                (export \"[method]r.f\" (func (param \"self\" (borrow $r))))
                (export \"[static]r.g\" (func))
                (export \"{name}\" (func (param \"x\" u8))))))"
        );
        assert_eq!(reasons(&wat(&component)), [], "{name}");
        let as_type = component
            .replace(&format!("\"{name}\" (func (param \"x\" u8))"), &format!("\"{name}\" (type (eq $r))"));
        assert_eq!(reasons(&wat(&as_type)), [], "{name}");
    }
}

#[test]
fn the_place_is_named() {
    let component = "(component
        (core module (memory 1))
        (component (core module (memory 1)))
        (component
            (core module (memory 1))
            (core module
                (import \"a\" \"f\" (func)) (memory 1)
                (func) (func i32.const 0 i32.atomic.load drop))))";
    let wasm = wat(component);
    let refusals = refusals(&wasm);
    assert_eq!(refusals.len(), 1);
    let Place { components, module, function, offset } = &refusals[0].place;
    assert_eq!((components.as_slice(), *module, *function), (&[1][..], Some(1), Some(2)));
    assert_eq!(wasm[*offset as usize], 0xfe, "the prefix of atomic instructions");
    let text = refusals[0].to_string();
    assert!(
        text.contains("threads") && text.contains("function 2, core module 1, component 1, offset 0x"),
        "{text}"
    );
}

#[test]
fn each_reason_is_given_once_for_a_module() {
    let twice = "(memory 1 1 shared) (memory 1 1 shared) (memory i64 1)";
    let module = format!("(core module {twice})");
    let wasm = wat(&format!("(component {module} {module})"));
    assert_eq!(refusals(&wasm).len(), 4);
}
