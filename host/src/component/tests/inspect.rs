//! The report.

use super::wat;
use crate::component::{ItemKind, World, inspect};

const AGENT: &str = r#"(component
    (import "wasi:io/poll@0.2.3" (instance
        (export "pollable" (type $p (sub resource)))
        (export "[method]pollable.block" (func (param "self" (borrow $p))))))
    (import "host" (func))
    (core module $m (memory 2 10) (func (export "handle")))
    (core instance $i (instantiate $m))
    (func $handle (canon lift (core func $i "handle")))
    (instance $handler (export "handle" (func $handle)))
    (export "dormouse:agent/handler@0.1.0" (instance $handler)))"#;

#[test]
fn an_agent() {
    let report = inspect(&wat(AGENT)).unwrap();
    assert_eq!(report.world, World::Agent);
    assert!(report.capturable && report.refusals.is_empty());
    let imports: Vec<_> = report.imports.iter().map(|item| (item.name.as_str(), item.kind)).collect();
    assert_eq!(imports, [("wasi:io/poll@0.2.3", ItemKind::Instance), ("host", ItemKind::Function)]);
    assert_eq!(report.imports[0].functions, ["[method]pollable.block"]);
    assert_eq!(report.exports[0].functions, ["handle"]);
    assert_eq!((report.memories[0].min, report.memories[0].max), (131_072, Some(655_360)));
    assert_eq!((report.components, report.modules.len()), (1, 1));
    assert_eq!(report.shared_genesis, None);
}

#[test]
fn worlds() {
    let world = |text: &str| inspect(&wat(text)).unwrap().world;
    let exporting = |name: &str| {
        format!(
            "(component (import \"f\" (func $f)) (instance $i (export \"run\" (func $f))) (export \"{name}\" (instance $i)))"
        )
    };
    assert_eq!(world(&exporting("wasi:cli/run@0.2.12")), World::Command);
    assert_eq!(world(&exporting("wasi:cli/run@0.2.0")), World::Command);
    assert_eq!(world(&exporting("dormouse:agent/handler@0.1.0")), World::Other, "it has no `handle`");
    assert_eq!(world("(component (import \"f\" (func $f)) (export \"handle\" (func $f)))"), World::Agent);
    assert_eq!(world("(module (func (export \"handle\")))"), World::Other);
}

#[test]
fn a_refused_component_is_reported_with_the_reason() {
    let report = inspect(&wat("(component (core module (memory 1 1 shared)))")).unwrap();
    assert!(!report.capturable);
    assert_eq!(report.refusals.len(), 1);
    assert!(report.refusals[0].to_string().starts_with("it has a shared memory (core module 0, offset 0x"));
}
