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
    assert!(message(unknown).contains("env"));
    let shared = wrap(r#"(module (memory 1 1 shared) (func (export "_start")))"#);
    assert!(matches!(shared, ComponentError::Refused(_)));
}
