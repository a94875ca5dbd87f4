//! What the rewritten component looks like.

use wasmparser::{Parser, Payload};

use super::{component_of, reasons, wat};
use crate::component::{Item, Rewritten, Variant, load_export, rewrite, save_export, scan};

/// A component that makes, uses and drops a resource of its host, which also passes through `a:b/j`.
pub const WITH_RESOURCE: &str = r#"(component
    (import "a:b/i" (instance $i
        (export "r" (type $r (sub resource)))
        (type $own (own $r))
        (export "[constructor]r" (func (result $own)))
        (export "[method]r.get" (func (param "self" (borrow $r)) (result u32)))
        (export "[static]r.find" (func (param "all" (list (own $r))) (result (option (own $r)))))
        (export "plain" (func))))
    (alias export $i "r" (type $r))
    (import "a:b/j" (instance
        (alias outer 1 $r (type $outer))
        (export "r" (type $r2 (eq $outer)))
        (export "use-it" (func (param "it" (borrow $r2))))))
    (core func $drop (canon resource.drop $r))
    (core func $drop2 (canon resource.drop $r))
    (core func $make (canon lower (func $i "[constructor]r")))
    (core func $get (canon lower (func $i "[method]r.get")))
    (core module $m
        (import "i" "drop" (func $drop (param i32)))
        (import "i" "make" (func $make (result i32)))
        (import "i" "get" (func $get (param i32) (result i32)))
        (global $g (mut i32) (i32.const 0))
        (memory 1)
        (func (export "run") (result i32)
            call $make global.set $g
            global.get $g call $get
            global.get $g call $drop))
    (core instance $c (instantiate $m (with "i" (instance
        (export "drop" (func $drop)) (export "make" (func $make)) (export "get" (func $get))))))
    (func (export "run") (result u32) (canon lift (core func $c "run"))))"#;

fn both(wasm: &[u8]) -> [Rewritten; 2] {
    let [boot, restore] = [Variant::Boot, Variant::Restore].map(|variant| rewrite(wasm, variant).unwrap());
    assert_eq!(boot.accessors, restore.accessors);
    assert_eq!((&boot.memories, boot.globals), (&restore.memories, restore.globals));
    let exports = scan_exports(&boot.wasm);
    assert_eq!(exports, scan_exports(&restore.wasm));
    for suffix in &boot.accessors {
        for name in [save_export(suffix), load_export(suffix)] {
            assert!(exports.contains(&name), "{name} of {exports:?}");
        }
    }
    [boot, restore]
}

fn scan_exports(wasm: &[u8]) -> Vec<String> {
    scan(wasm).unwrap().exports.into_iter().map(|item| item.name).collect()
}

fn functions<'a>(items: &'a [Item], name: &str) -> Vec<&'a str> {
    let item = items.iter().find(|item| item.name == name).unwrap();
    item.functions.iter().map(String::as_str).collect()
}

#[test]
fn handles_become_numbers() {
    let [boot, _] = both(&wat(WITH_RESOURCE));
    assert_eq!(boot.accessors, [""]);
    assert_eq!((boot.memories.len(), boot.globals), (2, 1));
    assert!(!has_handles(&boot.wasm));
    let imports = rewritten_imports(&boot.wasm);
    assert_eq!(
        functions(&imports, "a:b/i"),
        ["drop-r", "constructor-r", "method-r-get", "static-r-find", "plain"]
    );
    assert_eq!(functions(&imports, "a:b/j"), ["use-it"]);
}

/// The imports of a rewritten component. Its exports have reserved names, so it is refused, and only
/// the names of its imports matter here.
fn rewritten_imports(wasm: &[u8]) -> Vec<Item> {
    scan(wasm).unwrap().imports
}

/// Whether a component has a handle type or drops a resource.
fn has_handles(wasm: &[u8]) -> bool {
    use wasmparser::{CanonicalFunction, ComponentDefinedType, ComponentType};
    Parser::new(0).parse_all(wasm).any(|payload| match payload.unwrap() {
        Payload::ComponentTypeSection(section) => section.into_iter().any(|ty| {
            let handle = |ty: &ComponentDefinedType| {
                matches!(ty, ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_))
            };
            match ty.unwrap() {
                ComponentType::Defined(ty) => handle(&ty),
                ComponentType::Resource { .. } => true,
                ComponentType::Instance(items) => items.iter().any(|item| match item {
                    wasmparser::InstanceTypeDeclaration::Type(ComponentType::Defined(ty)) => handle(ty),
                    _ => false,
                }),
                _ => false,
            }
        }),
        Payload::ComponentCanonicalSection(section) => section
            .into_iter()
            .any(|function| matches!(function.unwrap(), CanonicalFunction::ResourceDrop { .. })),
        _ => false,
    })
}

#[test]
fn the_original_has_what_the_rewritten_has_not() {
    assert!(has_handles(&wat(WITH_RESOURCE)));
}

#[test]
fn only_the_restore_variant_loses_its_start_and_data() {
    let module = r#"(memory 1)
        (global (mut i32) (i32.const 7))
        (data (i32.const 0) "active") (data $p "passive")
        (func $start) (start $start)
        (func i32.const 0 i32.const 0 i32.const 1 memory.init $p)"#;
    let [boot, restore] = both(&component_of(module));
    let modules = |wasm: &[u8]| scan(wasm).unwrap().modules;
    let (boot, restore) = (modules(&boot.wasm), modules(&restore.wasm));
    assert_eq!((boot[0].active_data, boot[0].active_data_bytes, boot[0].passive_data), (1, 6, 1));
    assert!(boot[0].has_start);
    assert_eq!((restore[0].active_data, restore[0].active_data_bytes, restore[0].passive_data), (0, 0, 2));
    assert!(!restore[0].has_start);
    assert_eq!(boot.len(), 2, "the module and its accessor");
}

#[test]
fn every_instance_of_a_module_is_captured() {
    let wasm = wat("(component
        (core module $m (memory 1) (memory 2) (global (mut i32) (i32.const 0)) (global (mut f64) (f64.const 0)))
        (core module $stateless (func))
        (core instance (instantiate $m)) (core instance (instantiate $stateless)) (core instance (instantiate $m)))");
    let [boot, _] = both(&wasm);
    assert_eq!(boot.accessors, [""]);
    assert_eq!((boot.memories.len(), boot.globals), (5, 4));
}

#[test]
fn every_type_of_global_is_captured() {
    let module = "(global (mut i32) (i32.const 1)) (global (mut i64) (i64.const 2)) (global i32 (i32.const 0))
        (global (mut f32) (f32.const 3)) (global (mut f64) (f64.const 4)) (global (mut v128) (v128.const i64x2 5 6))";
    let [boot, _] = both(&component_of(module));
    assert_eq!((boot.memories.len(), boot.globals), (1, 5));
}

#[test]
fn a_component_without_state_needs_no_accessor() {
    let [boot, _] = both(&component_of("(func)"));
    assert_eq!(boot.accessors, Vec::<String>::new());
    assert_eq!(boot.memories, []);
}

#[test]
fn nested_components_are_captured_as_often_as_they_are_instantiated() {
    let wasm = wat("(component
        (core module $outer (memory 1))
        (component $leaf (core module $m (memory 1) (global (mut i32) (i32.const 0)))
            (core instance (instantiate $m)))
        (component $unused (core module $m (memory 1)) (core instance (instantiate $m)))
        (component $mid
            (alias outer 1 $leaf (component $leaf))
            (alias outer 1 $outer (core module $outer))
            (instance (instantiate $leaf)) (instance (instantiate $leaf))
            (core instance (instantiate $outer)))
        (instance (instantiate $mid)) (instance (instantiate $leaf)))");
    let [boot, _] = both(&wasm);
    assert_eq!(boot.accessors, ["-i0-i0", "-i1-i1", "-i2", "-i3"]);
    // three leaves of two memories each, and the middle one's own two
    assert_eq!((boot.memories.len(), boot.globals), (8, 3));
}

#[test]
fn memories_are_listed_in_the_order_in_which_they_are_made() {
    let wasm = wat("(component
        (core module $early (memory 2 5))
        (component $leaf (core module $m (memory 3)) (core instance (instantiate $m)))
        (core module $late (memory 4 4) (memory 0))
        (core instance (instantiate $early))
        (instance (instantiate $leaf))
        (core instance (instantiate $late)))");
    let [boot, _] = both(&wasm);
    let pages: Vec<_> = boot.memories.iter().map(|it| (it.min >> 16, it.max.map(|max| max >> 16))).collect();
    // each level's accessor has the last of its level
    let accessor = (1, Some(1));
    assert_eq!(pages, [(2, Some(5)), (3, None), accessor, (4, Some(4)), (0, None), accessor]);
    assert_eq!(scan(&wasm).unwrap().instance_memories, boot.memories);
}

#[test]
fn resources_pass_through_nested_components() {
    let wasm = wat(r#"(component
        (import "a:b/i" (instance $i
            (export "r" (type $r (sub resource)))
            (export "[method]r.get" (func (param "self" (borrow $r)) (result u32)))))
        (component $c
            (import "x" (instance $x
                (export "r" (type $r (sub resource)))
                (export "[method]r.get" (func (param "self" (borrow $r)) (result u32)))))
            (alias export $x "r" (type $r))
            (core func $drop (canon resource.drop $r))
            (core module $m (import "i" "drop" (func (param i32))) (memory 1))
            (core instance (instantiate $m (with "i" (instance (export "drop" (func $drop)))))))
        (alias export $i "r" (type $r))
        (component $types
            (import "import-type-r" (type $r (sub resource)))
            (import "f" (func $f (param "self" (borrow $r)) (result u32)))
            (export "r" (type $r))
            (export "f" (func $f)))
        (instance (instantiate $c (with "x" (instance $i))))
        (instance $out (instantiate $types
            (with "import-type-r" (type $r)) (with "f" (func $i "[method]r.get"))))
        (export "a:b/out" (instance $out)))"#);
    assert_eq!(reasons(&wasm), []);
    let [boot, _] = both(&wasm);
    assert_eq!(boot.accessors, ["-i0"]);
}

#[test]
fn debug_names_survive_and_other_custom_sections_do_not() {
    let wasm = component_of("(memory 1) (@custom \"producers\" \"x\") (func $a-name)");
    let custom = |wasm: &[u8]| -> Vec<String> {
        let sections = Parser::new(0).parse_all(wasm).filter_map(|payload| match payload.unwrap() {
            Payload::CustomSection(section) => Some(section.name().to_owned()),
            _ => None,
        });
        sections.collect()
    };
    assert!(custom(&wasm).contains(&"producers".to_owned()));
    let [boot, _] = both(&wasm);
    assert_eq!(custom(&boot.wasm), ["name"]);
}

/// The code section of the first core module.
fn code(wasm: &[u8]) -> &[u8] {
    let found = Parser::new(0).parse_all(wasm).find_map(|payload| match payload.unwrap() {
        Payload::CodeSectionStart { range, .. } => Some(&wasm[range]),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn code_that_moves_no_references_stays_as_it_is() {
    let wasm = component_of(
        r#"(memory 1) (table 2 funcref) (elem (i32.const 0) $f $f) (elem $e func $f) (data $d (i32.const 0) "x")
        (data $p "y") (data $q "z") (global funcref (ref.func $f))
        (func $f (drop (table.get 0 (i32.const 0))) (drop (ref.func $f)) (elem.drop $e))
        (func (memory.init $d (i32.const 0) (i32.const 0) (i32.const 0)) (data.drop $d) (data.drop $q)
            (memory.init $p (i32.const 0) (i32.const 0) (i32.const 1)))"#,
    );
    for rewritten in both(&wasm) {
        assert_eq!(code(&rewritten.wasm), code(&wasm));
        assert_eq!((rewritten.memories.len(), rewritten.globals), (2, 0));
    }
}

#[test]
fn tables_that_change_become_memories_and_what_was_dropped_a_global() {
    let change = "(table 2 funcref) (table 3 funcref) (global (mut funcref) (ref.null func)) (elem $e func) (data $d \"x\")";
    let code = "(func (table.init $e (i32.const 0) (i32.const 0) (i32.const 0)) (elem.drop $e))";
    let [boot, _] = both(&component_of(&format!("{change} {code}")));
    // two tables and the accessor's own; the global, and one for the element segment
    assert_eq!((boot.memories.len(), boot.globals), (3, 2));
    let code = "(func (memory.init $d (i32.const 0) (i32.const 0) (i32.const 0)) (data.drop $d))";
    let [boot, _] = both(&component_of(&format!("(memory 1) (data $d \"x\") {code}")));
    assert_eq!((boot.memories.len(), boot.globals), (2, 1));
}
