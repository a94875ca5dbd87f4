//! Core modules for preview 1.

use super::{reasons, wat};
use crate::component::{BinaryKind, ComponentError, World, inspect, scan, wrap_core_module};

const IMPORTS: &str = r#"(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)"#;

#[test]
fn a_command() {
    let module = wat(&format!("(module {IMPORTS} (func (export \"_start\") i32.const 3 call $exit))"));
    let report = inspect(&module).unwrap();
    assert_eq!((report.kind, report.world), (BinaryKind::CoreModule, World::Command));
    assert_eq!(report.imports[0].name, "wasi_snapshot_preview1.proc_exit");

    let component = wrap_core_module(&module).unwrap();
    let report = inspect(&component).unwrap();
    assert_eq!((report.kind, report.world), (BinaryKind::Component, World::Command));
    assert!(report.exports.iter().any(|item| item.functions == ["run"]), "{:?}", report.exports);
    assert_eq!(reasons(&component), []);
    assert_eq!(crate::wasi::not_provided(report.kind, &report.imports), Vec::<String>::new());
    // its status takes the way that has room for one
    let exits = report.imports.iter().filter(|item| item.name.starts_with("wasi:cli/exit@"));
    let functions: Vec<_> = exits.flat_map(|item| item.functions.clone()).collect();
    assert!(functions.contains(&"exit-with-code".to_string()), "{functions:?}");
}

#[test]
fn a_command_that_imports_nothing() {
    for module in [
        "(module (func (export \"_start\")))",
        "(module (memory (export \"memory\") 1) (func (export \"_start\")))",
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 1) (func (export "_start") i32.const 3 call $exit))"#,
    ] {
        let component = wrap_core_module(&wat(module)).unwrap();
        let report = inspect(&component).unwrap();
        assert_eq!((report.kind, report.world), (BinaryKind::Component, World::Command), "{module}");
        assert_eq!(reasons(&component), []);
    }
}

#[test]
fn a_reactor() {
    let module = wat(&format!("(module {IMPORTS} (func (export \"_initialize\")))"));
    let component = wrap_core_module(&module).unwrap();
    assert_eq!(scan(&component).unwrap().world(), World::Other);
    assert_eq!(reasons(&component), []);
}

#[test]
fn what_cannot_be_wrapped() {
    let wrap = |text: &str| wrap_core_module(&wat(text)).unwrap_err();
    let message = |error: ComponentError| match error {
        ComponentError::Wrap(message) => message,
        other => panic!("{other:?}"),
    };
    assert!(message(wrap("(component)")).contains("already"));
    let old = wrap(r#"(module (import "wasi_unstable" "proc_exit" (func (param i32))))"#);
    assert!(message(old).contains("`wasi_unstable.proc_exit`"));
    let unknown = wrap(r#"(module (import "env" "call_me" (func)))"#);
    assert_eq!(message(unknown), "it imports `env.call_me`, which Dormouse does not provide");
    let start = wrap(r#"(module (func (export "_start") (param i32)))"#);
    assert!(message(start).contains("`_start`"));
    let shared = wrap(r#"(module (memory 1 1 shared) (func (export "_start")))"#);
    assert!(matches!(shared, ComponentError::Refused(_)));
}
