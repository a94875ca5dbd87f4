//! Files that mean harm: an error each, and never a panic.

use wasm_encoder as we;

use super::{component_of, wat};
use crate::component::limits;
use crate::component::{ComponentError, Variant, inspect, rewrite, scan, wrap_core_module};

fn exceeds(wasm: &[u8], what: &str) {
    let limit = |result: Result<(), ComponentError>| match result {
        Err(ComponentError::Limit { what: found, .. }) => assert_eq!(found, what),
        other => panic!("{other:?}"),
    };
    limit(scan(wasm).map(|_| ()));
    limit(rewrite(wasm, Variant::Boot).map(|_| ()));
}

#[test]
fn other_files() {
    for bytes in [&b""[..], b"\0as", b"#!/bin/sh\n", b"\x7fELF"] {
        assert_eq!(scan(bytes).unwrap_err(), ComponentError::NotWasm);
        assert_eq!(wrap_core_module(bytes).unwrap_err(), ComponentError::NotWasm);
    }
    // a version that nobody knows
    assert!(matches!(scan(b"\0asm\x63\0\x01\0"), Err(ComponentError::Invalid { .. })));
}

#[test]
fn too_large() {
    let mut wasm = component_of("");
    wasm.resize(limits::MAX_BYTES + 1, 0);
    exceeds(&wasm, "bytes");
}

/// Every prefix and every single wrong byte of a component is an error or still a component.
#[test]
fn damaged_files() {
    let wasm = wat(r#"(component
        (import "a:b/i" (instance $i (export "r" (type (sub resource))) (export "f" (func (result string)))))
        (alias export $i "r" (type $r))
        (core func $drop (canon resource.drop $r))
        (component $c (core module $m (memory 1) (global (mut i32) (i32.const 0)) (data (i32.const 0) "x"))
            (core instance (instantiate $m)))
        (core module $m (import "i" "drop" (func (param i32))) (table 1 funcref) (func (export "run")) (elem (i32.const 0) 1))
        (core instance $k (instantiate $m (with "i" (instance (export "drop" (func $drop))))))
        (instance (instantiate $c))
        (func (export "run") (canon lift (core func $k "run"))))"#);
    damage(&wasm);
}

fn damage(wasm: &[u8]) {
    assert!(inspect(wasm).unwrap().capturable);
    let whole_sections = (0..wasm.len()).filter(|length| agree(&wasm[..*length])).count();
    assert!(whole_sections < 30, "a prefix is a component only where a section ends");
    let mut accepted = 0;
    for at in 0..wasm.len() {
        for flip in [0x01, 0x02, 0x40, 0x80, 0xff] {
            let mut damaged = wasm.to_vec();
            damaged[at] ^= flip;
            accepted += usize::from(agree(&damaged));
        }
    }
    assert!(accepted > 0);
}

/// The same where a component has resources of its own, and is lent them and others.
#[test]
fn damaged_files_with_resources() {
    damage(&wat(r#"(component
        (component $c
            (import "i" (instance $i (export "q" (type (sub resource)))))
            (alias export $i "q" (type $q))
            (core module $m (memory (export "m") 1)
                (func (export "f") (param i32 i32 i32 i32))
                (func (export "d") (param i32))
                (func (export "r") (param i32 i32 i32 i32) (result i32) i32.const 0))
            (core instance $k (instantiate $m))
            (type $r (resource (rep i32) (dtor (core func $k "d"))))
            (core func (canon resource.new $r)) (core func (canon resource.rep $r)) (core func (canon resource.drop $r))
            (core func (canon resource.drop $q))
            (func $f (param "a" (list (tuple u8 (borrow $r)))) (param "b" (option (borrow $q)))
                (canon lift (core func $k "f") (memory $k "m") (realloc (func $k "r"))))
            (instance $out (export "r" (type $r)) (export "q" (type $q)) (export "f" (func $f)))
            (export "out" (instance $out)))
        (import "i" (instance $i (export "q" (type (sub resource)))))
        (instance $k (instantiate $c (with "i" (instance $i))))
        (alias export $k "out" (instance $out))
        (alias export $out "r" (type $r))
        (core func (canon resource.drop $r)))"#));
}

/// Whether a file is accepted, about which the report and the rewriter must agree. What the rewriter
/// gives out it has validated.
fn agree(wasm: &[u8]) -> bool {
    let capturable = inspect(wasm).is_ok_and(|report| report.capturable);
    let component = wasmparser::Parser::is_component(wasm);
    let rewritten = rewrite(wasm, Variant::Boot);
    assert_eq!(rewritten.is_ok(), capturable && component, "{:?}", rewritten.err());
    capturable && component
}

#[test]
fn nested_too_deep() {
    let mut component = we::Component::new();
    for _ in 0..200 {
        let mut outer = we::Component::new();
        outer.section(&we::NestedComponentSection(&component));
        component = outer;
    }
    exceeds(&component.finish(), "levels of nested components");
}

#[test]
fn types_nested_too_deep() {
    // (type (instance (type (instance ...)))), by hand: text would be as deep
    let depth = 1_000_000;
    let mut section = vec![1];
    section.extend([0x42, 0x01, 0x01].repeat(depth));
    section.extend([0x42, 0x00]);
    let mut component = we::Component::new();
    component.section(&we::RawSection { id: 7, data: &section });
    exceeds(&component.finish(), "types within a component type");
}

#[test]
fn too_many_modules_components_and_types() {
    let mut component = we::Component::new();
    let empty = we::Module::new();
    for _ in 0..=limits::MAX_MODULES {
        component.section(&we::ModuleSection(&empty));
    }
    exceeds(&component.finish(), "core modules");

    let mut component = we::Component::new();
    let empty = we::Component::new();
    for _ in 0..=limits::MAX_COMPONENTS {
        component.section(&we::NestedComponentSection(&empty));
    }
    exceeds(&component.finish(), "components");

    let mut component = we::Component::new();
    let mut types = we::ComponentTypeSection::new();
    for _ in 0..=limits::MAX_TYPES {
        types.defined_type().primitive(we::PrimitiveValType::U8);
    }
    component.section(&types);
    exceeds(&component.finish(), "component types");
}

/// Lists of names that are far longer than the file: each name stands there once.
#[test]
fn names_that_multiply() {
    let name = "n".repeat(90_000);
    let functions = (0..5).map(|n| format!("(export \"{name}{n}\" (func))")).collect::<Vec<_>>().concat();
    let imports =
        (0..100).map(|n| format!("(import \"i{n}\" (instance (type $t)))")).collect::<Vec<_>>().concat();
    exceeds(
        &wat(&format!("(component (type $t (instance {functions})) {imports})")),
        "bytes of names of imports, exports and their functions",
    );

    // one name of a module for many imports (the section's groups with 0x7f), of which there is room for three bytes each
    let (items, length) = (1_000_000, name.len());
    let leb = |n: usize| [n as u8 | 0x80, (n >> 7) as u8 | 0x80, (n >> 14) as u8];
    let section =
        [&[1][..], &leb(length), name.as_bytes(), &[0, 0x7f], &leb(items), &[0, 0, 0].repeat(items)];
    let mut module = we::Module::new();
    module.section(&we::RawSection { id: 2, data: &section.concat() });
    exceeds(&module.finish(), "bytes of names of imports, exports and their functions");
}

#[test]
fn instances_that_multiply() {
    // with its accessor's, an instance of the first has two memories
    for (state, what) in
        [("(memory 1)", "memories"), ("(global (mut i32) (i32.const 0))", "stateful components")]
    {
        let mut text = format!("(component $c0 (core module $m {state}) (core instance (instantiate $m)))");
        for n in 1..12 {
            let inner = n - 1;
            text = format!(
                "(component $c{n} {text} (instance (instantiate $c{inner})) (instance (instantiate $c{inner})))"
            );
        }
        exceeds(&wat(&text), what);
    }
}

/// A component that has `inner`, and is instantiated ten times by one that is instantiated ten times, and so on.
fn ten_times_each(depth: usize, inner: &str) -> String {
    let mut text = format!("(component $c {inner})");
    for _ in 0..depth {
        text = format!("(component $c {text} {})", "(instance (instantiate $c)) ".repeat(10));
    }
    format!("(component {text} (instance (instantiate $c)))")
}

#[test]
fn instances_are_counted_through_all_levels_also_where_they_have_no_state() {
    for inner in ["", "(core module $m) (core instance (instantiate $m))"] {
        exceeds(&wat(&ten_times_each(8, inner)), "instances");
        scan(&wat(&ten_times_each(3, inner))).unwrap();
    }
}

#[test]
fn tables_and_what_is_put_into_them_are_counted_through_all_levels() {
    let with = |module: &str| format!("(core module $m {module}) (core instance (instantiate $m))");
    exceeds(&wat(&ten_times_each(2, &with("(table 1000000 funcref)"))), "table entries");
    scan(&wat(&ten_times_each(1, &with("(table 1000000 funcref)")))).unwrap();
    exceeds(&wat(&ten_times_each(3, &with(&"(table 0 funcref)".repeat(11)))), "tables");
    let segment = format!("(func $f) (table 20000 funcref) (elem (i32.const 0) {})", "$f ".repeat(20_000));
    let table = "(func $f) (table 20000 funcref)";
    exceeds(&wat(&ten_times_each(3, &with(&segment))), "table entries");
    let again = format!("(elem (i32.const 0) {}) ", "$f ".repeat(100)).repeat(200);
    exceeds(
        &wat(&ten_times_each(3, &with(&format!("(func $f) (table 100 funcref) {again}")))),
        "entries of element segments",
    );
    scan(&wat(&ten_times_each(2, &with(table)))).unwrap();
    exceeds(&component_of(&"(memory 0) ".repeat(101)), "memories of a module");
}

/// A module that changes a table, with so many functions of which it makes references.
fn referencing(functions: usize) -> Vec<u8> {
    let all: Vec<String> = (0..functions).map(|n| n.to_string()).collect();
    let bodies = "(func)".repeat(functions);
    let change = "(func (table.set (i32.const 0) (ref.null func)))";
    wat(&format!("(module (table 1 funcref) (elem func {}) {bodies} {change})", all.join(" ")))
}

#[test]
fn too_many_references() {
    let module = referencing(20_000);
    let mut component = we::ComponentBuilder::default();
    let module = component.core_module_raw(None, &module);
    for _ in 0..60 {
        component.core_instantiate::<[(&str, we::ModuleArg); 0]>(None, module, []);
    }
    exceeds(&component.finish(), "references to functions");
}

#[test]
fn tables_that_change_and_are_too_large() {
    let change = "(func (table.set (i32.const 0) (ref.null func)))";
    let large = limits::MAX_TABLE_ENTRIES + 1;
    exceeds(&component_of(&format!("(table {large} funcref) {change}")), "entries of a table");
    assert!(scan(&component_of(&format!("(table {large} funcref)"))).unwrap().capturable.is_ok());
    let many = format!("(table 0 funcref) {} (memory 0)", "(table 0 funcref) ".repeat(99));
    exceeds(&component_of(&format!("{many} {change}")), "memories and tables of a module");

    let items =
        "(elem func) ".repeat(3) + &format!("(elem func {})", "0 ".repeat(limits::MAX_TABLE_ENTRIES + 1));
    exceeds(&component_of(&format!("(table 1 funcref) {items} {change}")), "entries of element segments");
}

#[test]
fn a_million_functions() {
    let mut module = we::Module::new();
    let mut types = we::TypeSection::new();
    types.ty().function([], []);
    let (mut functions, mut code) = (we::FunctionSection::new(), we::CodeSection::new());
    let mut body = we::Function::new([]);
    body.instructions().end();
    for _ in 0..1_000_000 {
        functions.function(0);
        code.function(&body);
    }
    module.section(&types).section(&functions).section(&code);
    let mut component = we::ComponentBuilder::default();
    component.core_module_raw(None, &module.finish());
    let wasm = component.finish();
    assert!(scan(&wasm).unwrap().capturable.is_ok());
    assert!(rewrite(&wasm, Variant::Restore).unwrap().wasm.len() > 4_000_000);
}

#[test]
fn segments_without_end() {
    // one more than the validator allows once the empty one is added
    let segments = "(data \"x\") ".repeat(100_000);
    let code = "(func (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop 0))";
    let wasm = component_of(&format!("(memory 1) {segments} {code}"));
    let refusals = scan(&wasm).unwrap().capturable.unwrap_err();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
}

#[test]
fn too_much_state() {
    let globals = "(global (mut i32) (i32.const 0)) ".repeat(limits::MAX_GLOBALS + 1);
    exceeds(&component_of(&globals), "mutable globals");
    let memories = "(memory 0) ".repeat(100);
    let instances = "(core instance (instantiate $m)) ".repeat(6);
    let component = format!("(component (core module $m {memories}) {instances})");
    exceeds(&wat(&component), "memories");
}

#[test]
fn too_many_resource_types_and_handles_that_are_lent() {
    let types = "(type (resource (rep i32)))".repeat(limits::MAX_RESOURCES + 1);
    exceeds(&wat(&format!("(component {types})")), "resource types of its own");

    let parameters = [0, 1, 2, 3].map(|n| format!("(param \"p{n}\" (borrow $r)) ")).concat();
    let lifts = format!("(func {parameters} (canon lift (core func $c \"f\")))");
    let component = format!(
        "(component
            (type $r (resource (rep i32)))
            (core module $m (func (export \"f\") (param {})))
            (core instance $c (instantiate $m)) {})",
        "i32 ".repeat(4),
        lifts.repeat(limits::MAX_BORROWS / 4 + 1)
    );
    exceeds(&wat(&component), "borrowed handles in parameters");
}
