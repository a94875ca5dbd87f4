//! Tests of the component module on small components as text. Real toolchains' components are tested
//! where they can be run.

mod fuzzing;
mod hostile;
mod inspect;
mod refusals;
mod resources;
mod rewriting;
mod running;
mod wrapping;

use super::{ComponentError, Reason, Refusal, scan};

/// Assembles a component or core module.
fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A component with one core module, which is instantiated.
fn component_of(module: &str) -> Vec<u8> {
    wat(&format!("(component (core module $m {module}) (core instance (instantiate $m)))"))
}

/// Why a component is refused. The rewriter must refuse it for the same reasons.
fn refusals(wasm: &[u8]) -> Vec<Refusal> {
    let refusals = scan(wasm).unwrap().capturable.err().unwrap_or_default();
    for variant in [super::Variant::Boot, super::Variant::Restore] {
        match super::rewrite(wasm, variant) {
            Ok(_) => assert_eq!(refusals, []),
            Err(ComponentError::Refused(others)) => assert_eq!(refusals, others),
            Err(error) => panic!("{error}"),
        }
    }
    refusals
}

fn reasons(wasm: &[u8]) -> Vec<Reason> {
    refusals(wasm).into_iter().map(|refusal| refusal.reason).collect()
}
