//! What the fuzz target `components` calls, in a build with the feature `fuzzing`; tests call the same.

use super::{ComponentError, Variant, inspect, rewrite};

/// The longest input that is looked at; more teaches nothing. Bytes.
pub const MAX_INPUT: usize = 64 << 10;

/// Bytes that a component grows by, at most, whatever it is, and for each byte that it has: state is captured by code.
const GROWS: usize = 4 << 20;
const GROWS_EACH: usize = 64;

/// Takes any bytes for a component. What `inspect` says of it and what the rewriter does agree, both variants have the
/// same state, and what comes out is in proportion to what went in. Gives the restore variant of what is accepted.
///
/// # Panics
/// Where that is not so.
pub fn components(bytes: &[u8]) -> Option<Vec<u8>> {
    let wasm = &bytes[..bytes.len().min(MAX_INPUT)];
    let report = inspect(wasm);
    if let Err(ComponentError::Rewriter(fault)) = &report {
        panic!("the rewriter loses track: {fault}");
    }
    let is_taken = report.is_ok_and(|report| report.capturable && report.components > 0);
    let [boot, restore] = [Variant::Boot, Variant::Restore].map(|variant| rewrite(wasm, variant));
    for (variant, rewritten) in [("boot", &boot), ("restore", &restore)] {
        assert_eq!(rewritten.is_ok(), is_taken, "{variant}: {:?}", rewritten.as_ref().err());
    }
    let (boot, restore) = (boot.ok()?, restore.ok()?);
    assert_eq!(boot.accessors, restore.accessors);
    assert_eq!((boot.memories, boot.globals), (restore.memories, restore.globals));
    let most = GROWS + GROWS_EACH * wasm.len();
    assert!(boot.wasm.len() <= most && restore.wasm.len() <= most, "it grows to {} bytes", boot.wasm.len());
    let again = rewrite(&restore.wasm, Variant::Restore);
    assert!(again.is_err() || restore.accessors.is_empty(), "what has been rewritten is taken once more");
    Some(restore.wasm)
}
